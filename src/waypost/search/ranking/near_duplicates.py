"""Crowds among the candidates: many that say the same must not take every place in which a record is looked at.

A bounded number of candidates is measured (PRO-31), so two hundred copies could fill it before anything is spread. Where a
crowd is seen only some of it are kept: its best, and those that were registered first; where it is most of what a signal
brought, the best are looked for deeper. It knows fingerprints and figures, no record. Nothing depends on how rows are spread
over segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.search.index.segment import Rows
from waypost.search.index.segment_reader import Mask, SegmentReader
from waypost.search.index.simhash import Simhashes
from waypost.search.ranking.candidates import F32, SegmentHits, SignalHits

try:
    from waypost.search.kernels.duplicates import are_members, find_clusters, match_clusters
except ImportError:
    from waypost.search.kernels.duplicates_fallback import are_members, find_clusters, match_clusters

DEEP_CANDIDATES: Final = 1024  # that are looked through behind a flood
_SAMPLE: Final = 64
_MEMBERS: Final = 8  # of the sample, from which a cluster is a crowd
_FACES: Final = 8  # of a cluster, by which others of it are known
_FIRST: Final = 4  # registered earliest: the original is among them


def find_duplicates(lives: Sequence[SegmentReader], rows: Sequence[Rows]) -> Simhashes | None:
    """Some fingerprints of those that crowd the candidates; None when nobody does."""
    if len(lives) == 1:
        column, some = lives[0].segment.arrays, rows[0]
        marks, prints = column["mark"], column["fingerprint"]
    else:
        marks, prints = _gathered(lives, rows, "mark"), _gathered(lives, rows, "fingerprint")
        some = np.arange(len(marks), dtype=np.uint32)
    faces = [
        face
        for members in find_clusters(marks, prints, some, _SAMPLE, _MEMBERS)
        for face in _distinct_simhashes(prints[members])
    ]
    return np.array(faces, dtype=np.uint64) if faces else None


def _distinct_simhashes(prints: Simhashes) -> list[list[int]]:
    """The first few that differ."""
    return [*map(list, dict.fromkeys(map(tuple, prints.tolist())))][:_FACES]


def near_duplicate_rows(findings: Sequence[SegmentHits], crowd: Simhashes) -> list[Rows]:
    """The rows of each segment that belong to the crowd, of all that was found, in order."""
    return [
        np.frombuffer(
            match_clusters(finding.live.segment.arrays["fingerprint"], _rows(finding), crowd), dtype=np.uint32
        )
        for finding in findings
    ]


def _rows(finding: SegmentHits) -> list[Rows]:
    return [each.rows for each in _signals(finding)]


def is_flooded(findings: Sequence[SegmentHits], kin: Sequence[Rows]) -> bool:
    """Whether the crowd is most of what any signal brought."""
    for found in zip(*map(_signals, findings), strict=True):
        brought = sum(len(each.rows) for each in found)
        if 2 * sum(are_members(each.rows, some).count(1) for each, some in zip(found, kin, strict=True)) > brought:
            return True
    return False


def _signals(finding: SegmentHits) -> tuple[SignalHits, ...]:
    return (finding.by_words, finding.by_words_in_use, finding.by_tags, *finding.by_vectors)


def cap_duplicates(findings: Sequence[SegmentHits], kin: Sequence[Rows], kept: int) -> list[SegmentHits]:
    """The same with at most `kept` of the crowd by each signal, and the first of it."""
    by_signal = [_cap_signal(findings, found, kin, kept) for found in zip(*map(_signals, findings), strict=True)]
    return [
        finding._replace(by_words=words, by_words_in_use=in_use, by_tags=tags, by_vectors=vectors)
        for finding, (words, in_use, tags, *vectors) in zip(findings, zip(*by_signal, strict=True), strict=True)
    ]


def _cap_signal(
    findings: Sequence[SegmentHits], found: Sequence[SignalHits], kin: Sequence[Rows], kept: int
) -> Sequence[SignalHits]:
    flags = [are_members(each.rows, some) for each, some in zip(found, kin, strict=True)]
    if sum(each.count(1) for each in flags) <= kept:
        return found
    return _with_the_best(findings, found, [np.frombuffer(each, dtype=np.bool_) for each in flags], kept)


def _with_the_best(
    findings: Sequence[SegmentHits], found: Sequence[SignalHits], held: Sequence[Mask], kept: int
) -> Sequence[SignalHits]:
    lives, rows = [finding.live for finding in findings], [each.rows for each in found]
    figures: F32 = np.concatenate([each.figures for each in found])
    kin = np.flatnonzero(np.concatenate(held))
    some = [each[flags] for each, flags in zip(rows, held, strict=True)]
    marks = _gathered(lives, some, "mark")
    best = kin[np.lexsort((marks, -figures[kin]))[:kept]]
    first = kin[np.lexsort((marks, _gathered(lives, some, "since")))[:_FIRST]]
    keeps: Mask = np.ones(len(figures), dtype=np.bool_)
    keeps[kin] = False
    keeps[best] = True
    keeps[first] = True
    figures = figures.copy()
    figures[first] = np.maximum(figures[first], figures[best].max(initial=0.0))  # as good as its best copy
    ends = np.cumsum([len(each) for each in rows])[:-1]
    return [
        SignalHits(each[keep], some[keep])
        for each, keep, some in zip(rows, np.split(keeps, ends), np.split(figures, ends), strict=True)
    ]


def _gathered(lives: Sequence[SegmentReader], rows: Sequence[Rows], name: str) -> npt.NDArray[Any]:
    columns = [live.segment.arrays[name][some] for live, some in zip(lives, rows, strict=True)]
    return columns[0] if len(columns) == 1 else np.concatenate(columns)
