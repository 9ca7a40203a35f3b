from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class InvertedIndex:
    def __init__(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        *,
        said: int,
        unit: float,
        gather: int,
        prune_from: int,
        look_up: int,
    ) -> None: ...
    def find_terms(self, terms: Sequence[int]) -> list[int]: ...
    def count_documents(
        self, counts: npt.NDArray[np.int32], terms: Sequence[int], tiers: Sequence[int]
    ) -> tuple[list[int], list[int]]: ...
    def count_in_rows(
        self, rows: npt.NDArray[np.uint32], numbers: Sequence[int], tiers: Sequence[int]
    ) -> tuple[int, list[int]]: ...
    def filter_rows(
        self,
        required: Sequence[int],
        accepted: Sequence[int],
        excluded: Sequence[int],
        mask: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[np.bool_], int]: ...
    def best_by_terms(
        self,
        numbers: Sequence[int],
        weights: Sequence[float],
        selective: Container[int],
        mask: npt.NDArray[np.bool_],
        admitted: int,
        limit: int,
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32], int]: ...
    def best_by_keys(
        self, keys: Sequence[int], mask: npt.NDArray[np.bool_], admitted: int, limit: int
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32], int]: ...
    def measure_rows(
        self,
        place: int,
        rows: npt.NDArray[np.uint32],
        numbers: Sequence[int],
        weights: Sequence[float],
        has: npt.NDArray[np.float32],
        wishes: Sequence[tuple[Sequence[tuple[int, float]], bool]],
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.uint64],
        npt.NDArray[np.bool_],
        npt.NDArray[np.float32],
        npt.NDArray[np.float64],
        npt.NDArray[np.uint8],
        npt.NDArray[np.float32],
        npt.NDArray[np.float32],
        npt.NDArray[np.float32],
        npt.NDArray[np.float32],
    ]: ...
