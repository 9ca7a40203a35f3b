"""The fallback of `duplicates.pyx`: the same results, more slowly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from waypost.search.index import simhash
from waypost.search.index.simhash import DuplicateGroups, Hashes, Simhashes, is_near_any
from waypost.search.index.storage import sorted_unique
from waypost.search.ranking.diversity import DiversityRules, RankedCandidates, diversify

Rows = npt.NDArray[np.uint32]


def find_clusters(marks: Hashes, fingerprints: Simhashes, rows: Rows, sample: int, least: int) -> list[list[int]]:
    """The clusters of at least `least` near duplicates in a sample of the rows, each as rows in the order of the sample. The
    sample is by marks (hashes of ids): registration order cannot influence it."""
    chosen = rows[marks[rows].argsort(kind="stable")[:sample]]
    return [chosen[members].tolist() for members in simhash.find_clusters(fingerprints[chosen], least)]


def match_clusters(fingerprints: Simhashes, parts: Sequence[Rows], samples: Simhashes) -> bytes:
    """The distinct rows of all parts that are near duplicates of any sample, in order."""
    rows = sorted_unique(np.concatenate([*parts, np.zeros(0, dtype=np.uint32)]))
    return rows[is_near_any(fingerprints[rows], samples)].tobytes()


def are_members(rows: Rows, members: Rows) -> bytes:
    """One byte per row: whether it is one of the sorted members."""
    if not len(members):
        return bytes(len(rows))
    places = members.searchsorted(rows)
    places[places == len(members)] = 0
    is_member: npt.NDArray[np.bool_] = members[places] == rows
    return is_member.tobytes()


def diversify_rows(
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
    """The first `count` places of ranked rows in diversified order; None if the first `limit` are diverse as ranked. Agents
    of `shared` owners (imports, open services) do not count as one owner's."""
    groups = DuplicateGroups(fingerprints[rows])
    names = _owner_names(owners[rows].tolist(), frozenset(shared.tolist()))
    if _is_diverse(names[:limit], rules) and not groups.has_cluster(limit + rules.window, rules.per_cluster + 1):
        return None
    ranked = RankedCandidates(scores.tolist(), groups.of, names, since[rows].tolist())
    return [*islice(diversify(ranked, rules), count)]


def _owner_names(owners: Sequence[int], shared: frozenset[int]) -> list[int]:
    """The owner of each candidate; those of shared owners get a number each."""
    return [-at if owner in shared else owner for at, owner in enumerate(owners, 1)]


def _is_diverse(owners: Sequence[int], rules: DiversityRules) -> bool:
    return max(Counter(owners).values(), default=0) <= rules.per_owner
