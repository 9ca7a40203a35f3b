from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class Layers:
    dims: int
    def __init__(
        self,
        arrays: dict[str, npt.NDArray[Any]],
        table: npt.NDArray[np.uint8],
        scale: npt.NDArray[np.float32],
        low: npt.NDArray[np.float32],
        rows: npt.NDArray[np.float32],
    ) -> None: ...
    def keep(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]: ...
    def line(self, slots: npt.NDArray[np.int32], sizes: Sequence[int]) -> npt.NDArray[np.float32]: ...
    def hidden(self, line: npt.NDArray[np.float32], sizes: Sequence[int]) -> npt.NDArray[np.float32]: ...
    def bent(
        self,
        numbers: npt.NDArray[np.int64],
        hidden: npt.NDArray[np.float32],
        groups: Sequence[tuple[int, int, int, int]],
    ) -> npt.NDArray[np.float32]: ...
    def carried(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]: ...

class Means:
    def __init__(self, codes: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> None: ...
    def sums(self, numbers: npt.NDArray[np.int64], runs: Sequence[tuple[int, int]]) -> npt.NDArray[np.float32]: ...
