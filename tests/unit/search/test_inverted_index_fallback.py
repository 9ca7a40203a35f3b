"""The compiled inverted index equals its fallback, and reports damaged files."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from waypost.search.index.document import IN_NAME, IndexDocument
from waypost.search.index.segment import Array, Segment, SegmentReader, build_segment
from waypost.search.kernels import inverted_index_fallback
from waypost.search.ranking.candidates import (
    LEXICAL_CANDIDATES,
    SegmentHits,
    SignalHits,
    WeightedTerms,
    find_again_by_words,
)

inverted_index = pytest.importorskip("waypost.search.kernels.inverted_index", reason="kernels are not compiled here")

UNIT = float(np.float32(1 / 255))
TERMS, KEYS = 300, 40


def made(count: int, seed: int) -> Segment:
    """Rows of common and rare terms; some say very nearly or exactly the same."""
    dice = random.Random(seed)
    documents = []
    for number in range(count):
        terms = {min(int(dice.paretovariate(0.4)), TERMS) * 7919 << 40 for _ in range(dice.randint(0, 30))}
        impacts = {term: dice.choice((1, 90, 90, 255)) + dice.choice((0, IN_NAME)) for term in sorted(terms)}
        documents.append(
            IndexDocument(
                id=f"agent-{seed}-{number}",
                tier=number % 3,
                owner=number % 5,
                is_deprecated=not number % 4,
                since=float(number),
                updated=float(number) / 3,
                impacts=impacts,
                name_terms=dice.choice((0, 3, 9, 70_000)),
                grams=np.zeros(0, dtype=np.uint16),
                vocabulary=(),
                keys=tuple({dice.randint(1, KEYS) << 55 for _ in range(dice.randint(0, 6))}),
                texts=(),
                worth=dice.random(),
                language=number % 14,
                fingerprint=np.zeros(4, dtype=np.uint64),
            )
        )
    return build_segment(documents)


def tables(arrays: dict[str, Array], **costs: int) -> tuple[Any, Any]:
    """The kernel and its fallback, for which few rows are many."""
    given = {"said": IN_NAME, "gather": 400, "prune_from": 200, "look_up": 2, **costs}
    return inverted_index.InvertedIndex(arrays, unit=UNIT, **given), inverted_index_fallback.InvertedIndex(
        arrays, unit=UNIT, **given
    )


def same(ours: Any, theirs: Any) -> None:
    """To the bit."""
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine) is type(other)
        if isinstance(mine, np.ndarray):
            assert (mine.dtype, mine.shape, mine.tobytes()) == (other.dtype, other.shape, other.tobytes())
        else:
            assert mine == other


@pytest.mark.parametrize("count", [0, 1, 2, 700, 3000])
def test_the_kernel_equals_the_fallback(count: int) -> None:
    segment, dice = made(count, seed=count), random.Random(count)
    kernel, fallback = tables(segment.arrays)
    counts = segment.arrays["containing"]
    known: list[int] = segment.arrays["terms"].tolist()
    for turn in range(80):
        size = dice.choice((0, 1, 2, 5, 12, 40))
        terms = list(dict.fromkeys(dice.choice([*known, 5, 1 << 63]) for _ in range(size)))
        tiers = dice.choice(([0], [0, 1], [0, 1, 2], []))
        same(kernel.count_documents(counts, terms, tiers), fallback.count_documents(counts, terms, tiers))
        numbers = kernel.find_terms(terms)
        assert numbers == fallback.find_terms(terms)
        weights = [dice.choice((0.0, 0.01, 1.5, 1.5, 40.0, dice.random() * 100)) for _ in terms]
        heavy = frozenset(at for at in range(len(terms)) if dice.random() < 0.8)
        share = dice.choice((0.0, 0.02, 0.3, 0.9, 1.0))
        mask = np.array([dice.random() < share for _ in range(count)], dtype=np.bool_)
        asked = (numbers, weights, heavy, mask, int(mask.sum()), dice.choice((1, 3, 20, 150, 5000)))
        same(kernel.best_by_terms(*asked), fallback.best_by_terms(*asked))
        rows = np.array(sorted(dice.sample(range(count), min(count, turn))), dtype=np.uint32)
        has = np.array([[dice.randint(0, 1) for _ in range(1 + turn % 4)] for _ in terms], dtype=np.float32)
        has = has.reshape(len(terms), 1 + turn % 4)
        wishes = [
            (
                tuple((dice.randint(1, KEYS + 2) << 55, dice.random()) for _ in range(dice.randint(0, 4))),
                dice.random() < 0.5,
            )
            for _ in range(turn % 5)
        ]
        keys = [key for spelled, _ in wishes for key, _ in spelled]
        same(kernel.best_by_keys(keys, *asked[3:]), fallback.best_by_keys(keys, *asked[3:]))
        filters = [[dice.randint(1, KEYS + 2) << 55 for _ in range(dice.choice((0, 0, 1, 2)))] for _ in range(3)]
        filters[0] *= dice.choice((1, 1, 150))
        same(kernel.filter_rows(*filters, mask), fallback.filter_rows(*filters, mask))
        given = (turn, rows, numbers, weights, has, wishes)
        same(kernel.measure_rows(*given), fallback.measure_rows(*given))
        same(kernel.count_in_rows(rows, numbers, tiers), fallback.count_in_rows(rows, numbers, tiers))


def test_looking_early_whether_the_rest_can_change_anything_changes_nothing_but_digits() -> None:
    segment = made(3000, seed=1)
    kernel, fallback = tables(segment.arrays, prune_from=0, look_up=0)
    patient, _ = tables(segment.arrays, prune_from=10**9)
    mask = np.ones(3000, dtype=np.bool_)
    numbers = [*range(len(segment.arrays["terms"]))][:12]
    for limit in (1, 10, 100):
        weights = [100.0 / (at + 1) ** 3 for at in range(len(numbers))]
        asked = (numbers, weights, range(len(numbers)), mask, 3000, limit)
        found = kernel.best_by_terms(*asked)
        same(found, fallback.best_by_terms(*asked))
        assert np.allclose(np.sort(found[1]), np.sort(patient.best_by_terms(*asked)[1]), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("term_rows", 0xFFFFFFFE),
        ("term_starts", -5),
        ("term_starts", 2**40),
        ("row_starts", -5),
        ("row_starts", 2**40),
        ("key_starts", -5),
        ("key_starts", 2**40),
    ],
)
def test_a_damaged_array_is_an_error_and_no_crash(name: str, value: int) -> None:
    segment = made(700, seed=2)
    kernel, _ = tables(segment.arrays | {name: np.full_like(segment.arrays[name], value)})
    numbers = [*range(10)]
    keys = [(((key, 1.0),), True) for key in segment.arrays["keys"].tolist()]
    few, many = np.arange(700) < 50, np.ones(700, dtype=np.bool_)
    has = np.ones((10, 1), dtype=np.float32)

    def every_call() -> None:
        for mask in (few, many):
            kernel.best_by_terms(numbers, [1.0] * 10, range(10), mask, int(mask.sum()), 5)
        kernel.best_by_keys(segment.arrays["keys"].tolist(), many, 700, 5)
        kernel.filter_rows([], [], segment.arrays["keys"].tolist(), many)
        kernel.measure_rows(0, np.arange(50, dtype=np.uint32), numbers, [1.0] * 10, has, keys)

    with pytest.raises(IndexError):
        every_call()


def test_rows_that_are_posted_over_and_over_overrun_nothing() -> None:
    arrays = made(700, seed=3).arrays
    for value in (0, 255):
        kernel, _ = tables(
            arrays
            | {
                "term_rows": np.zeros_like(arrays["term_rows"]),
                "term_impacts": np.full_like(arrays["term_impacts"], value),
            }
        )
        mask = np.ones(700, dtype=np.bool_)
        try:
            found = kernel.best_by_terms([*range(50)], [1.0] * 50, range(50), mask, 700, 5)[0].tolist()
        except IndexError:
            found = [0]
        assert found == [0]


def test_terms_and_rows_out_of_range_raise() -> None:
    segment = made(30, seed=4)
    kernel, _ = tables(segment.arrays)
    one, mask = np.ones((1, 1), dtype=np.float32), np.ones(30, dtype=np.bool_)
    with pytest.raises(IndexError):
        kernel.best_by_terms([10**6], [1.0], (0,), mask, 30, 5)
    with pytest.raises(IndexError):
        kernel.measure_rows(0, np.array([30], dtype=np.uint32), [0], [1.0], one, ())
    with pytest.raises(IndexError):
        kernel.count_in_rows(np.array([30], dtype=np.uint32), [0], [0])
    for wrong in (mask[:-1], mask[::2], mask.astype(np.uint16)):
        with pytest.raises(ValueError, match=r"\w"):
            kernel.best_by_terms([0], [1.0], (0,), wrong, 30, 5)
    with pytest.raises(ValueError, match="length"):
        tables(segment.arrays | {"mark": segment.arrays["mark"][:-1]})
    with pytest.raises(ValueError, match="for"):
        tables(segment.arrays | {"mark": segment.arrays["mark"].astype(np.float32)})


def test_active_agents_are_found_behind_many_deprecated_ones() -> None:
    """Whether few rows are looked at one by one, or many by the lists of their words."""
    for count in (700, 4200):
        segment = build_segment([_saying(number, is_deprecated=number % 8 > 0) for number in range(count)])
        live, every = SegmentReader(segment), np.ones(count, dtype=np.bool_)
        nothing = SignalHits(np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.float32))
        finding = SegmentHits(live, nothing, nothing, (), nothing)
        found = find_again_by_words(finding, WeightedTerms(segment, [0], [1.0], (0,)), every, count, LEXICAL_CANDIDATES)
        assert not segment.deprecated[found.by_words_in_use.rows].any()
        assert len(found.by_words_in_use.rows) == min(LEXICAL_CANDIDATES, -(-count // 8))


def _saying(number: int, *, is_deprecated: bool) -> IndexDocument:
    return IndexDocument(
        id=f"agent-{number}",
        tier=0,
        owner=0,
        is_deprecated=is_deprecated,
        since=0.0,
        updated=0.0,
        impacts={7: 200 if is_deprecated else 90},
        name_terms=1,
        grams=np.zeros(0, dtype=np.uint16),
        vocabulary=(),
        keys=(),
        texts=(),
        worth=1.0,
        language=0,
        fingerprint=np.zeros(4, dtype=np.uint64),
    )
