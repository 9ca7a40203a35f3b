"""Segments do not depend on how they were built, and answer exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.search.index.document import IndexDocument, hash_of, term_impacts
from waypost.search.index.segment import DROPPED_ROW, FEW_ROWS, Segment, SegmentReader, build_segment, merge_segments
from waypost.search.parsed_query import ParsedQuery, TermWeights
from waypost.search.ranking.candidates import (
    LEXICAL_CANDIDATES,
    SegmentHits,
    SignalHits,
    WeightedTerms,
    find_again_by_words,
)
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
    assert segment.terms.find([1, 2]) == [-1, -1]
    assert not segment.keys.has_key(1, np.zeros(0, dtype=np.uint32)).any()


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


def _weighted(segment: Segment, terms: Sequence[int], counted: Sequence[bool] = ()) -> WeightedTerms:
    flags = tuple(counted) or (True,) * len(terms)
    query = ParsedQuery(("",), tuple(terms), (1,) * len(terms), flags, np.zeros(0, dtype=np.uint16), 0, ())
    weights = TermWeights([SegmentReader(segment)], None, query)
    return WeightedTerms(segment, weights.numbers[0], weights, flags)


@pytest.mark.parametrize("few", [300, FEW_ROWS, 6_000])
def test_the_best_rows_are_those_of_the_plain_sum(few: int) -> None:
    """Whether few rows are looked up one by one, or many by the postings of their terms; for rare and common words."""
    segment = build_segment(_many(20_000))
    mask = segment.tier == 0
    mask[np.flatnonzero(mask)[few:]] = False
    admitted = np.flatnonzero(mask).astype(np.uint32)
    random = np.random.default_rng(3)
    for size in (1, 2, 4):
        for spread in (10, 100, 2000):
            terms = [*dict.fromkeys(hash_of(f"w{number}") for number in random.integers(0, spread, size=size))]
            weighted = _weighted(segment, terms)
            found = weighted.best(mask, len(admitted), 50)
            scores = weighted.measure(admitted).words
            assert mask[found.rows].all()
            assert np.all(np.diff(found.rows.astype(np.int64)) > 0)
            expected = np.sort(scores)[::-1][: len(found.rows)]
            assert np.allclose(np.sort(weighted.measure(found.rows).words)[::-1], expected, rtol=0.001)
            assert len(found.rows) == min(50, int((scores > 0).sum()))


@pytest.mark.parametrize("few", [300, FEW_ROWS, FEW_ROWS + 1, 6_000])
def test_the_rows_of_a_term_among_few_or_many_are_the_same(few: int) -> None:
    segment = build_segment(_many(20_000))
    mask = segment.tier == 0
    mask[np.flatnonzero(mask)[few:]] = False
    keys = [*segment.terms.keys[:: len(segment.terms.keys) // 50].tolist(), 1]
    found = segment.terms.rows_among(keys, mask, few)
    assert [rows.tolist() for rows in found] == [
        [row for row in segment.terms.rows_of(key) if mask[row]] for key in keys
    ]


def test_a_term_that_is_ruled_out_counts_in_no_signal() -> None:
    segment = build_segment(_many(400))
    terms, rows = [hash_of(f"w{number}") for number in range(8)], np.arange(0, 400, 3, dtype=np.uint32)
    flags = [number % 3 > 0 for number in range(8)]
    some, only = _weighted(segment, terms, flags), [term for term, flag in zip(terms, flags, strict=True) if flag]
    measured, wanted = some.measure(rows), _weighted(segment, only).measure(rows)
    for name in ("words", "coverage", "name"):
        assert np.allclose(getattr(measured, name), getattr(wanted, name))
    assert measured.ruled_out.tolist() == (_weighted(segment, terms[::3]).measure(rows).name > 0).tolist()


@pytest.mark.parametrize("count", [700, 4200])
def test_active_agents_are_found_behind_many_deprecated_ones(count: int) -> None:
    documents = [_agent_of(number, is_deprecated=number % 8 > 0) for number in range(count)]
    segment = build_segment(documents)
    live, every = SegmentReader(segment), np.ones(count, dtype=np.bool_)
    nothing = SignalHits(np.zeros(0, dtype=np.uint32), np.zeros(0))
    hits = SegmentHits(live, nothing, nothing, (), nothing)
    found = find_again_by_words(hits, _weighted(segment, [hash_of("rain")]), every, count, LEXICAL_CANDIDATES)
    assert not segment.deprecated[found.by_words_in_use.rows].any()
    assert len(found.by_words_in_use.rows) == min(LEXICAL_CANDIDATES, -(-count // 8))


def _agent_of(number: int, *, is_deprecated: bool) -> IndexDocument:
    text = "rain" if is_deprecated else "rain and other weather of the week"
    return IndexDocument(
        id=f"agent-{number}", tier=0, owner=0, is_deprecated=is_deprecated, since=0.0, updated=0.0, keys=(), texts=(),
        **_said(text),
    )  # fmt: skip


def test_deleted_rows_count_in_no_document_frequency() -> None:
    segment = build_segment(_many(100))
    reader, terms = SegmentReader(segment), segment.terms.keys.tolist()
    reader.delete(np.arange(0, 100, 3))
    kept, _ = merge_segments([segment], [~reader.dead])
    counts = SegmentReader(kept).count_documents(kept.terms.find(kept.terms.keys.tolist()))
    wanted = dict(zip(kept.terms.keys.tolist(), counts, strict=True))
    assert reader.count_documents(segment.terms.find(terms)) == [wanted.get(term, 0) for term in terms]
    assert segment.terms.find([1]) == [-1]
    assert reader.count_documents([-1]) == [0]
