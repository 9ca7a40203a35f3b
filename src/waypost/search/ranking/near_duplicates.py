"""Near duplicates among the candidates: many copies must not fill the candidate list.

A bounded number of candidates is measured (PRO-31), so two hundred copies could fill it before diversification. Of each large
cluster only the best members and the earliest registrations are kept; if a cluster dominates a signal, that signal is searched
deeper. The result does not depend on how rows are distributed over segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.search.index.segment import Mask, Rows, SegmentReader
from waypost.search.index.simhash import Simhashes, find_clusters, is_near_any
from waypost.search.index.storage import is_member, sorted_unique
from waypost.search.ranking.candidates import F64, SegmentHits, SignalHits

DEEP_CANDIDATES: Final = 1024  # searched if near duplicates dominate a signal
_SAMPLE: Final = 64
_MIN_MEMBERS: Final = 8  # of the sample, for a large cluster
_SAMPLES: Final = 8  # of a cluster, by which other members are found
_ORIGINALS: Final = 4  # earliest registrations of a cluster: the original is among them


def find_duplicates(readers: Sequence[SegmentReader], rows: Sequence[Rows]) -> Simhashes | None:
    """Sample simhashes of the large clusters among the candidates; None if there is no such cluster."""
    # The sample is by marks (hashes of ids): registration order cannot influence it.
    chosen = _gather(readers, rows, "mark").argsort(kind="stable")[:_SAMPLE]
    prints = _gather(readers, rows, "fingerprint")[chosen]
    clusters = find_clusters(prints, _MIN_MEMBERS)
    samples = [sample for members in clusters for sample in _distinct_simhashes(prints[members])]
    return np.array(samples, dtype=np.uint64) if samples else None


def _distinct_simhashes(prints: Simhashes) -> list[list[int]]:
    """The first few distinct ones."""
    return [*map(list, dict.fromkeys(map(tuple, prints.tolist())))][:_SAMPLES]


def near_duplicate_rows(hits: Sequence[SegmentHits], samples: Simhashes) -> list[Rows]:
    """The rows of each segment among all hits that belong to these clusters, sorted."""
    found = []
    for segment_hits in hits:
        rows = sorted_unique(np.concatenate([each.rows for each in _signals(segment_hits)]))
        prints = segment_hits.reader.segment.arrays["fingerprint"][rows]
        found.append(rows[is_near_any(prints, samples)])
    return found


def is_flooded(hits: Sequence[SegmentHits], duplicates: Sequence[Rows]) -> bool:
    """Whether near duplicates are most of the hits of any signal."""
    for found in zip(*map(_signals, hits), strict=True):
        total = sum(len(each.rows) for each in found)
        flags = [is_member(each.rows, some) for each, some in zip(found, duplicates, strict=True)]
        if 2 * sum(map(np.count_nonzero, flags)) > total:
            return True
    return False


def _signals(segment_hits: SegmentHits) -> tuple[SignalHits, ...]:
    return (segment_hits.by_words, segment_hits.by_words_in_use, segment_hits.by_tags, *segment_hits.by_vectors)


def cap_duplicates(hits: Sequence[SegmentHits], duplicates: Sequence[Rows], kept: int) -> list[SegmentHits]:
    """Keep at most `kept` near duplicates per signal, and the earliest registrations."""
    by_signal = [_cap_signal(hits, found, duplicates, kept) for found in zip(*map(_signals, hits), strict=True)]
    return [
        segment_hits._replace(by_words=words, by_words_in_use=in_use, by_tags=tags, by_vectors=vectors)
        for segment_hits, (words, in_use, tags, *vectors) in zip(hits, zip(*by_signal, strict=True), strict=True)
    ]


def _cap_signal(
    hits: Sequence[SegmentHits], found: Sequence[SignalHits], duplicates: Sequence[Rows], kept: int
) -> Sequence[SignalHits]:
    flags = [is_member(each.rows, some) for each, some in zip(found, duplicates, strict=True)]
    if sum(map(np.count_nonzero, flags)) <= kept:
        return found
    return _with_the_best(hits, found, flags, kept)


def _with_the_best(
    hits: Sequence[SegmentHits], found: Sequence[SignalHits], flags: Sequence[Mask], kept: int
) -> Sequence[SignalHits]:
    readers, rows = [segment_hits.reader for segment_hits in hits], [each.rows for each in found]
    figures: F64 = np.concatenate([each.figures for each in found])
    duplicates = np.flatnonzero(np.concatenate(flags))
    some = [each[flag] for each, flag in zip(rows, flags, strict=True)]
    marks = _gather(readers, some, "mark")
    best = duplicates[np.lexsort((marks, -figures[duplicates]))[:kept]]
    first = duplicates[np.lexsort((marks, _gather(readers, some, "since")))[:_ORIGINALS]]
    keeps: Mask = np.ones(len(figures), dtype=np.bool_)
    keeps[duplicates] = False
    keeps[best] = True
    keeps[first] = True
    figures = figures.copy()
    figures[first] = np.maximum(figures[first], figures[best].max(initial=0.0))  # scored like its best copy
    ends = np.cumsum([len(each) for each in rows])[:-1]
    return [
        SignalHits(each[keep], some[keep])
        for each, keep, some in zip(rows, np.split(keeps, ends), np.split(figures, ends), strict=True)
    ]


def _gather(readers: Sequence[SegmentReader], rows: Sequence[Rows], name: str) -> npt.NDArray[Any]:
    columns = [reader.segment.arrays[name][some] for reader, some in zip(readers, rows, strict=True)]
    return columns[0] if len(columns) == 1 else np.concatenate(columns)
