"""Segments do not depend on how they were built, and answer exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from waypost.search.index.document import IndexDocument, hash_of, term_impacts
from waypost.search.index.segment import DROPPED_ROW, build_segment, merge_segments
from waypost.search.ranking.candidates import WeightedTerms
from waypost.search.text.analyzer import fold_words, grams_of
from waypost.search.text.spam import AnalyzedFields, SpamDamping

WORDS = [f"word{number}" for number in range(12)]


def _said(text: str) -> dict[str, Any]:
    fields = AnalyzedFields(text, text, (), (text,), len(text.split()))
    impacts, name_terms = term_impacts(fields, SpamDamping())
    grams = grams_of(fold_words((text,)))
    return {
        "impacts": impacts,
        "name_terms": name_terms,
        "grams": np.fromiter(sorted(grams), dtype=np.uint16, count=len(grams)),
        "vocabulary": tuple(fold_words((text,))),
        "worth": 1.0,
        "language": 0,
        "fingerprint": np.arange(4, dtype=np.uint64),
    }


@st.composite
def documents(draw: st.DrawFn) -> list[IndexDocument]:
    count = draw(st.integers(1, 12))
    return [
        IndexDocument(
            id=f"agent-{number}",
            tier=draw(st.integers(0, 2)),
            owner=draw(st.integers(0, 3)),
            is_deprecated=draw(st.booleans()),
            since=float(number),
            updated=0.0,
            keys=tuple(draw(st.sets(st.integers(0, 5)))),
            texts=("text",),
            **_said(" ".join(draw(st.lists(st.sampled_from(WORDS), max_size=8)))),
        )
        for number in range(count)
    ]


@given(documents(), st.data())
def test_merging_equals_building_at_once(prepared: list[IndexDocument], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(prepared) - 1)), max_size=3)))
    pieces = [prepared[start:end] for start, end in zip([0, *cuts], [*cuts, len(prepared)], strict=True) if start < end]
    live = [np.array(data.draw(st.lists(st.booleans(), min_size=len(p), max_size=len(p)))) for p in pieces]
    merged, renumbered = merge_segments([build_segment(piece) for piece in pieces], live)
    kept = [
        each for piece, alive in zip(pieces, live, strict=True) for each, yes in zip(piece, alive, strict=True) if yes
    ]
    whole = build_segment(kept)
    assert merged.arrays.keys() == whole.arrays.keys()
    for name, array in whole.arrays.items():
        if name == "words":  # those of dropped rows stay
            assert set(merged.vocabulary.words.tolist()) >= set(whole.vocabulary.words.tolist())
        else:
            assert np.array_equal(merged.arrays[name], array), name
    numbers = np.concatenate(renumbered)
    assert [merged.id_of(int(number)) for number in numbers[numbers != DROPPED_ROW]] == [each.id for each in kept]


@given(documents())
def test_rows_are_found_by_id(prepared: list[IndexDocument]) -> None:
    segment = build_segment(prepared)
    assert segment.rows_by_id([each.id for each in prepared]).tolist() == list(range(len(prepared)))
    assert segment.rows_by_id(["nobody"]).tolist() == [-1]


def test_nothing_can_be_built_and_asked() -> None:
    segment = build_segment([])
    assert segment.count == 0
    assert segment.rows_by_id(["nobody"]).tolist() == [-1]
    assert not len(WeightedTerms(segment, [-1], [1.0], (0,)).best(np.zeros(0, dtype=np.bool_), 0, 5)[0])


def _many(count: int) -> list[IndexDocument]:
    random = np.random.default_rng(7)
    zipf = 1 / np.arange(1, 2001)
    words = [f"w{number}" for number in range(2000)]
    texts = random.choice(words, size=(count, 30), p=zipf / zipf.sum())
    return [
        IndexDocument(
            id=f"agent-{number}",
            tier=number % 3,
            owner=0,
            is_deprecated=False,
            since=0.0,
            updated=0.0,
            keys=(),
            texts=(),
            **_said(" ".join(words)),
        )
        for number, words in enumerate(texts)
    ]


def test_the_best_rows_are_the_best_rows_whatever_is_pruned() -> None:
    """Against the plain sum over every admitted row, for questions of rare, common and many words."""
    segment = build_segment(_many(60_000))
    mask = segment.tier == 0
    admitted = np.flatnonzero(mask).astype(np.uint32)
    random = np.random.default_rng(3)
    for size in (1, 2, 5, 30):
        for spread in (10, 100, 2000):
            terms = [hash_of(f"w{number}") for number in random.integers(0, spread, size=size)]
            terms = list(dict.fromkeys(terms))
            weights = [float(np.log1p(segment.count / (1 + len(segment.terms.rows_of(term))))) for term in terms]
            numbers = segment.postings.find_terms(terms)
            heavy = range(0, len(terms), 2) if size == 30 else range(len(terms))
            weighted = WeightedTerms(segment, numbers, weights, heavy)
            found, figures, _ = weighted.best(mask, len(admitted), 50)
            every = WeightedTerms(segment, [n if at in heavy else -1 for at, n in enumerate(numbers)], weights, heavy)
            *_, lexical, _, _, _ = every.measure(0, admitted, np.ones((len(terms), 1), dtype=np.float32), ())
            scores = lexical[:, 0]
            expected = np.sort(scores)[::-1][:50]
            assert mask[found].all()
            assert np.allclose(np.sort(figures)[::-1], expected[: len(found)], atol=1e-5)
            assert len(found) == min(50, int((scores > 0).sum()))


def test_a_unit_measures_the_same_alone_and_beside_others() -> None:
    segment = build_segment(_many(400))
    numbers = segment.postings.find_terms([hash_of(f"w{number}") for number in range(8)])
    weighted = WeightedTerms(segment, numbers, [1.0 + at / 7 for at in range(8)], range(8))
    rows = np.arange(0, 400, 3, dtype=np.uint32)
    whole = np.ones((8, 1), dtype=np.float32)
    units = np.hstack([whole, (np.arange(8) % 3 == 0).astype(np.float32)[:, None]])
    measured = [weighted.measure(0, rows, has, ()) for has in (whole, units)]
    for alone, beside in zip(*((lexical, coverage) for *_, lexical, coverage, _, _ in measured), strict=True):
        assert np.array_equal(alone[:, 0], beside[:, 0])
        assert (beside[:, 1] <= beside[:, 0]).all()
        assert beside[:, 1].any()
