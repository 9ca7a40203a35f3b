"""Crowds among the candidates: many that say the same must not take every place in which a record is looked at.

A bounded number of candidates is measured (PRO-31), so two hundred copies could fill it before anything is spread. Where a
crowd is seen the best are looked for deeper, and of the crowd only some are kept: its best, and those that were registered
first. It knows fingerprints and figures, no record. Nothing depends on how rows are spread over segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from waypost.search.candidates import F32, Finding, Found
from waypost.search.clusters import Fingerprints, cluster, is_near_any
from waypost.search.live import Live, Mask
from waypost.search.segment import Rows

DEEP: Final = 1024  # that are looked through behind a crowd
_SAMPLE: Final = 64
_MEMBERS: Final = 8  # of the sample, from which a cluster is a crowd
_FIRST: Final = 4  # registered earliest: the original is among them


def find_crowd(lives: Sequence[Live], rows: Sequence[Rows]) -> Fingerprints | None:
    """Fingerprints of those that crowd the candidates; None when nobody does."""
    marks = _gathered(lives, rows, "mark")
    chosen = np.argsort(marks)[:_SAMPLE]  # by marks: a sample that no order of arrival can choose
    prints = _gathered(lives, rows, "fingerprint")[chosen]
    labels = cluster(prints)
    crowded = np.flatnonzero(np.bincount(labels, minlength=1) >= _MEMBERS)
    return prints[np.isin(labels, crowded)] if len(crowded) else None


def thinned(findings: Sequence[Finding], crowd: Fingerprints, kept: int) -> list[Finding]:
    """The same with at most `kept` of the crowd by each signal, and the first of it."""
    signals = [_thinned(findings, [finding.by_words for finding in findings], crowd, kept)]
    signals.append(_thinned(findings, [finding.by_words_in_use for finding in findings], crowd, kept))
    signals.append(_thinned(findings, [finding.by_tags for finding in findings], crowd, kept))
    spaces = [
        _thinned(findings, list(found), crowd, kept)
        for found in zip(*(finding.by_vectors for finding in findings), strict=True)
    ]
    return [
        finding._replace(
            by_words=signals[0][at],
            by_words_in_use=signals[1][at],
            by_tags=signals[2][at],
            by_vectors=[space[at] for space in spaces],
        )
        for at, finding in enumerate(findings)
    ]


def kin_of(findings: Sequence[Finding], crowd: Fingerprints) -> list[Rows]:
    """The rows of each segment that belong to the crowd, of all that was found."""
    kin = []
    for finding in findings:
        found = (finding.by_words, finding.by_words_in_use, finding.by_tags, *finding.by_vectors)
        rows = np.unique(np.concatenate([each.rows for each in found]))
        kin.append(rows[is_near_any(finding.live.segment.arrays["fingerprint"][rows], crowd)])
    return kin


def _thinned(findings: Sequence[Finding], found: Sequence[Found], crowd: Fingerprints, kept: int) -> list[Found]:
    lives, rows = [finding.live for finding in findings], [each.rows for each in found]
    figures: F32 = np.concatenate([each.figures for each in found])
    kin = np.flatnonzero(is_near_any(_gathered(lives, rows, "fingerprint"), crowd))
    marks = _gathered(lives, rows, "mark")[kin]
    best = kin[np.lexsort((marks, -figures[kin]))[:kept]]
    first = kin[np.lexsort((marks, _gathered(lives, rows, "since")[kin]))[:_FIRST]]
    keeps: Mask = np.ones(len(figures), dtype=np.bool_)
    keeps[kin] = False
    keeps[best] = True
    keeps[first] = True
    figures = figures.copy()
    figures[first] = np.maximum(figures[first], figures[best].max(initial=0.0))  # as good as its best copy
    ends = np.cumsum([len(each) for each in rows])[:-1]
    return [
        Found(each[keep], some[keep])
        for each, keep, some in zip(rows, np.split(keeps, ends), np.split(figures, ends), strict=True)
    ]


def _gathered(lives: Sequence[Live], rows: Sequence[Rows], name: str) -> npt.NDArray[Any]:
    return np.concatenate([live.segment.arrays[name][some] for live, some in zip(lives, rows, strict=True)])
