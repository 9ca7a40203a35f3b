"""What `waypost.search.kernels.bits` does, where it was not compiled: the same answers, more slowly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from waypost.search.index.simhash import DuplicateGroups, Hashes, Simhashes, find_clusters, is_near_any
from waypost.search.index.storage import sorted_unique
from waypost.search.ranking.diversity import DiversityRules, RankedCandidates, diversify

Rows = npt.NDArray[np.uint32]


def crowds(marks: Hashes, fingerprints: Simhashes, rows: Rows, sample: int, least: int) -> list[list[int]]:
    """Of a sample of the rows the clusters of at least so many, each by its rows in the order of the sample. The sample is by
    marks: no order of arrival can choose it."""
    chosen = rows[marks[rows].argsort(kind="stable")[:sample]]
    return [chosen[members].tolist() for members in find_clusters(fingerprints[chosen], least)]


def kin(fingerprints: Simhashes, parts: Sequence[Rows], crowd: Simhashes) -> bytes:
    """Of the rows in all parts those that say the same as any of the crowd, each once and in order."""
    rows = sorted_unique(np.concatenate([*parts, np.zeros(0, dtype=np.uint32)]))
    return rows[is_near_any(fingerprints[rows], crowd)].tobytes()


def held(rows: Rows, kin: Rows) -> bytes:
    """One byte a row: whether it is among the kin, who stand in order."""
    if not len(kin):
        return bytes(len(rows))
    places = kin.searchsorted(rows)
    places[places == len(kin)] = 0
    is_held: npt.NDArray[np.bool_] = kin[places] == rows
    return is_held.tobytes()


def spread_places(
    scores: npt.NDArray[np.float64],
    rows: Rows,
    fingerprints: Simhashes,
    owners: Hashes,
    since: npt.NDArray[np.float64],
    shared: Hashes,
    rules: DiversityRules,
    limit: int,
    count: int,
) -> list[int] | None:
    """Of rows in the order of their scores the first `count` places in the order to show; None where the first `limit` are open
    as they stand. Who is `shared` is no one owner."""
    kin, whose = DuplicateGroups(fingerprints[rows]), _named(owners[rows].tolist(), frozenset(shared.tolist()))
    if _is_open(whose[:limit], rules) and not kin.is_crowded(limit + rules.window, rules.per_cluster + 1):
        return None
    ranked = RankedCandidates(scores.tolist(), kin.of, whose, since[rows].tolist())
    return [*islice(diversify(ranked, rules), count)]


def _named(owners: Sequence[int], shared: frozenset[int]) -> list[int]:
    """Whose each candidate is; those that are nobody's in particular are each by itself."""
    return [-at if owner in shared else owner for at, owner in enumerate(owners, 1)]


def _is_open(owners: Sequence[int], rules: DiversityRules) -> bool:
    """True when nobody fills these places."""
    return max(Counter(owners).values(), default=0) <= rules.per_owner
