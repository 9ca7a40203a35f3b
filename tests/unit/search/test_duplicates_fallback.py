"""The compiled kernels of `waypost.search.kernels.duplicates` equal their fallbacks."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from waypost.search.index.simhash import Simhashes
from waypost.search.kernels import duplicates_fallback
from waypost.search.ranking.diversity import DIVERSITY_RULES, DiversityRules

duplicates = pytest.importorskip("waypost.search.kernels.duplicates", reason="the kernels are not compiled here")


@pytest.fixture(autouse=True, params=[True, False], ids=["four at a time", "one by one"])
def _compared(request: pytest.FixtureRequest) -> Iterator[None]:
    duplicates.use_avx512(request.param)
    yield
    duplicates.use_avx512(True)


SHARED = np.array([7, 8], dtype=np.uint64)


def some_fingerprints(dice: random.Random, count: int) -> Simhashes:
    """Clusters of few and of many, chains, records that say nothing, and strangers."""
    originals = [dice.getrandbits(248) for _ in range(dice.randint(1, 12))]
    made = []
    for _ in range(count):
        value, allowed = dice.choice(originals), dice.choice((0, 5, 30, 90))
        for _ in range(dice.choice((0, 0, 4, 20, 60))):
            value ^= 1 << dice.randrange(248)
        if dice.random() < 0.3:
            value = dice.getrandbits(248)
        if dice.random() < 0.1:
            value, allowed = 0, 0
        whole = value << 8 | allowed
        words = [whole >> at & 2**64 - 1 for at in (64, 128, 192, 0)]
        made.append(words)
    return np.array(made, dtype=np.uint64).reshape(count, 4)


@pytest.mark.parametrize("seed", range(60))
def test_the_same_clusters_are_found(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice((0, 1, 2, 9, 64, 65, 300))
    prints = some_fingerprints(dice, count)
    marks = np.array([dice.randrange(dice.choice((5, 2**64))) for _ in range(count)], dtype=np.uint64)
    rows = np.array(dice.sample(range(count), dice.randint(0, count)), dtype=np.uint32)
    given = (marks, prints, rows, dice.choice((1, 8, 64)), dice.choice((1, 2, 3, 8)))
    assert duplicates.find_clusters(*given) == duplicates_fallback.find_clusters(*given)
    parts = [rows, rows[::-2].copy(), rows[:0]][: dice.randint(0, 3)]
    found = (prints, parts, prints[: dice.randint(0, 9)])
    assert duplicates.match_clusters(*found) == duplicates_fallback.match_clusters(*found)
    members = np.frombuffer(duplicates.match_clusters(*found), dtype=np.uint32)
    assert duplicates.are_members(rows, members) == duplicates_fallback.are_members(rows, members)


@pytest.mark.parametrize("seed", range(300))
def test_answers_are_spread_in_the_same_order(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice((0, 1, 2, 3, 10, 30, 100, 100, 200))
    scores = np.array(sorted((dice.choice((dice.random(), 0.5, 0.9)) for _ in range(count)), reverse=True))
    owners = np.array([dice.randrange(dice.choice((1, 3, 9, 1000))) for _ in range(count)], dtype=np.uint64)
    since = np.array([float(dice.randrange(dice.choice((1, 50)))) for _ in range(count)])
    limit = dice.choice((1, 2, 5, 10, 10, 50, 100))
    rules = dice.choice(
        (
            DIVERSITY_RULES,
            DIVERSITY_RULES,
            DiversityRules(window=3, per_cluster=1, per_owner=4, comparable=0.5, original=0.8),
        )
    )
    rows, prints = np.array(dice.sample(range(count), count), dtype=np.uint32), some_fingerprints(dice, count)
    given = (scores, rows, prints, owners, since, SHARED, rules, limit, dice.choice((limit, 300)))
    before = scores.copy()
    assert duplicates.diversify_rows(*given) == duplicates_fallback.diversify_rows(*given)
    assert (scores == before).all()


def test_rows_out_of_range_raise() -> None:
    prints, marks = np.zeros((3, 4), dtype=np.uint64), np.zeros(3, dtype=np.uint64)
    far = np.array([3], dtype=np.uint32)
    with pytest.raises(IndexError):
        duplicates.find_clusters(marks, prints, far, 64, 8)
    with pytest.raises(IndexError):
        duplicates.find_clusters(np.zeros(4, dtype=np.uint64), prints, far, 64, 8)  # fewer fingerprints than marks
    with pytest.raises(IndexError):
        duplicates.match_clusters(np.zeros((3, 3), dtype=np.uint64), [far], prints)
    with pytest.raises(IndexError):
        duplicates.match_clusters(prints, [far], prints)
    few, all_three = np.zeros(2), np.arange(3, dtype=np.uint32)
    with pytest.raises(ValueError, match="differ in length"):
        duplicates.diversify_rows(np.zeros(3), all_three, prints, marks, few, SHARED, DIVERSITY_RULES, 10, 10)
    with pytest.raises(IndexError):
        duplicates.diversify_rows(np.zeros(1), far, prints, marks, np.zeros(3), SHARED, DIVERSITY_RULES, 10, 10)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_figures_break_nothing(seed: int) -> None:
    """Any bits: every answer is a list of places that are there, each once."""
    noise = np.random.default_rng(seed)
    count = int(noise.integers(1, 120))
    scores, since = np.frombuffer(noise.bytes(16 * count), dtype=np.float64).reshape(2, count)
    prints = np.frombuffer(noise.bytes(32 * count), dtype=np.uint64).reshape(count, 4) & np.uint64(2**64 - 1 - 2**62)
    prints = np.where(noise.random((count, 1)) < 0.3, np.uint64(255), prints)
    owners = noise.integers(0, 4, count).astype(np.uint64)
    shown = duplicates.diversify_rows(
        scores, np.arange(count, dtype=np.uint32), prints, owners, since, SHARED, DIVERSITY_RULES, 10, 300
    )
    assert shown is None or sorted(shown) == [*range(count)]
