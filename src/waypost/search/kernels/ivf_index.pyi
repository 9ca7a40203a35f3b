from typing import Any

import numpy as np
import numpy.typing as npt

class IvfIndex:
    def __init__(self, fallback: Any) -> None: ...
    def nearest(
        self,
        queries: npt.NDArray[np.float32],
        mask: npt.NDArray[np.bool_] | None,
        k: int,
        probes: int | None,
        spare: int,
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]: ...
    def similarities(
        self, rows: npt.NDArray[np.uint32], queries: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
    def best_example(self, row: int, queries: npt.NDArray[np.float32]) -> tuple[float, int]: ...
