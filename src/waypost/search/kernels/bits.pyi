from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from waypost.search.ranking.diversity import DiversityRules

def crowds(
    marks: npt.NDArray[np.uint64],
    fingerprints: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.uint32],
    sample: int,
    least: int,
) -> list[list[int]]: ...
def kin(
    fingerprints: npt.NDArray[np.uint64], parts: Sequence[npt.NDArray[np.uint32]], crowd: npt.NDArray[np.uint64]
) -> bytes: ...
def held(rows: npt.NDArray[np.uint32], kin: npt.NDArray[np.uint32]) -> bytes: ...
def spread_places(
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
def by_fours(yes: bool) -> None: ...
