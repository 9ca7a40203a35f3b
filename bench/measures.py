"""Metrics: nDCG, recall and reciprocal rank of a ranking, AUC of two groups of scores, quantiles of times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Set
from statistics import fmean


def ndcg(found: Sequence[str], relevant: Set[str], depth: int = 10) -> float:
    gain = sum(1 / math.log2(at + 2) for at, each in enumerate(found[:depth]) if each in relevant)
    return gain / sum(1 / math.log2(at + 2) for at in range(min(depth, len(relevant))))


def recall(found: Sequence[str], relevant: Set[str], depth: int = 5) -> float:
    return len(relevant & set(found[:depth])) / min(depth, len(relevant))


def reciprocal_rank(found: Sequence[str], relevant: Set[str]) -> float:
    return next((1 / (at + 1) for at, each in enumerate(found) if each in relevant), 0.0)


def auc(with_good: Sequence[float], without: Sequence[float]) -> float:
    """How often a query with a matching agent has a higher top score than a query without one; a tie counts half."""
    ordered = sorted([(score, 0) for score in without] + [(score, 1) for score in with_good])
    below, won, at = 0, 0.0, 0
    while at < len(ordered):
        end = at
        while end < len(ordered) and ordered[end][0] == ordered[at][0]:
            end += 1
        good = sum(kind for _, kind in ordered[at:end])
        bad = end - at - good
        won += good * (below + bad / 2)
        below, at = below + bad, end
    return won / (len(with_good) * len(without))


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return fmean(listed) if listed else 0.0
