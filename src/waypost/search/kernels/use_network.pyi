from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class UseLayers:
    dims: int
    def __init__(
        self,
        arrays: dict[str, npt.NDArray[Any]],
        table: npt.NDArray[np.uint8],
        scale: npt.NDArray[np.float32],
        low: npt.NDArray[np.float32],
        rows: npt.NDArray[np.int16],
    ) -> None: ...
    def token_rows(self, numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32]]: ...
    def first_convolution(self, numbers: npt.NDArray[np.int64], sizes: Sequence[int]) -> npt.NDArray[np.float32]: ...
    def second_convolution(self, line: npt.NDArray[np.float32], sizes: Sequence[int]) -> npt.NDArray[np.float32]: ...
    def pool(
        self,
        numbers: npt.NDArray[np.int64],
        hidden: npt.NDArray[np.float32],
        groups: Sequence[tuple[int, int, int, int]],
    ) -> npt.NDArray[np.float32]: ...

def limit_instructions(level: int) -> None: ...

class TokenSums:
    def __init__(self, codes: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> None: ...
    def sum_runs(self, numbers: npt.NDArray[np.int64], runs: Sequence[tuple[int, int]]) -> npt.NDArray[np.float32]: ...
