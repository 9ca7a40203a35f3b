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
        rows: npt.NDArray[np.int16],
    ) -> None: ...
    def made(self, numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]: ...
    def line(self, numbers: npt.NDArray[np.int64], sizes: Sequence[int]) -> npt.NDArray[np.float32]: ...
    def hidden(self, line: npt.NDArray[np.float32], sizes: Sequence[int]) -> npt.NDArray[np.float32]: ...
    def vectors(
        self,
        numbers: npt.NDArray[np.int64],
        hidden: npt.NDArray[np.float32],
        groups: Sequence[tuple[int, int, int, int]],
    ) -> npt.NDArray[np.float32]: ...

def with_at_most(way: int) -> None: ...

class Means:
    def __init__(self, codes: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> None: ...
    def sums(self, numbers: npt.NDArray[np.int64], runs: Sequence[tuple[int, int]]) -> npt.NDArray[np.float32]: ...
