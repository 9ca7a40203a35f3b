from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.ranking.diversity import DiversityRules

def find_clusters(
    marks: npt.NDArray[np.uint64],
    fingerprints: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.uint32],
    sample: int,
    least: int,
) -> list[list[int]]: ...
def match_clusters(
    fingerprints: npt.NDArray[np.uint64], parts: Sequence[npt.NDArray[np.uint32]], samples: npt.NDArray[np.uint64]
) -> bytes: ...
def are_members(rows: npt.NDArray[np.uint32], members: npt.NDArray[np.uint32]) -> bytes: ...
def diversify_rows(
    scores: npt.NDArray[np.float64],
    rows: npt.NDArray[np.uint32],
    fingerprints: npt.NDArray[np.uint64],
    owners: npt.NDArray[np.uint64],
    since: npt.NDArray[np.float64],
    shared: npt.NDArray[np.uint64],
    rules: DiversityRules,
    limit: int,
    count: int,
) -> list[int] | None: ...
def use_avx512(enabled: bool) -> None: ...
