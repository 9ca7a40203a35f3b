"""Parsing a query: terms, named tags, and their limits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import limits
from waypost.search.text import analyzer
from waypost.search.text.analyzer import query_terms
from waypost.search.text.taxonomy import find_tag_names, parse_taxonomy

WORDS = [
    "rain",
    "Raining",
    "the",
    "and",
    "AND",
    "then",
    "y",
    "Y",
    "also",
    "und",
    "translate",
    "contract",
    "getFoodData",
    "HTTPServer2x",
    "parseXML1st",
    "q2",
    "chat",
    "bot",
    "Ann's",
    "'tis",
    "students'",
    '"Berlin',
    "'Paris'",
    '"New',
    'York"',
    "'a",
    "b'",
    "SELECT",
    "e.g.",
    "3.5",
    "www.example.org",
    "a_b",
    "C++",
    "c#",
    "'unclosed",
]
GAPS = (" ",) * 12 + (", ", ". ", "; ", ": ", "\n", "\n\n", "\t", "\r\n", ".\n.", "...", "?! ", "'", '"', "\x1f")
OUTLINE = """
chatbot
  virtual assistant
machine learning
  deep learning
  very long name of one tag
translation
"""
TAXONOMY = parse_taxonomy(OUTLINE)


def check(text: str) -> None:
    read = analyzer.analyze_query(text)
    assert read.terms == query_terms(text)
    assert len(read.terms) == len(set(read.terms)) <= limits.QUERY_TERMS
    assert read.quoted == analyzer.quoted_terms(text)
    assert read.parts == analyzer.split_clauses(text)
    assert (read.has is None) is (not read.parts)
    if read.has is not None:
        assert len(read.has) == 4 * len(read.terms) * (1 + len(read.parts))


@pytest.mark.parametrize("seed", range(8))
def test_texts_of_words_are_read_within_bounds(seed: int) -> None:
    dice = random.Random(seed)
    for count in (0, 1, 2, 5, 9, 20, 60, 150, 300) * 4:
        text = "".join(dice.choice(WORDS) + dice.choice(GAPS) for _ in range(count))
        check(text[: limits.QUERY_CHARS])


@given(st.text(max_size=120))
def test_any_text_is_read_within_bounds(text: str) -> None:
    check(text)


@given(
    st.lists(st.sampled_from(["chat", "bot", "machin", "learn", "deep", "veri", "long", "name", "of", "one", "tag"]))
)
def test_unused_tags_do_not_change_the_taxonomy_matches(terms: list[str]) -> None:
    assert dict(find_tag_names(terms, TAXONOMY)) == dict(find_tag_names(terms, TAXONOMY, lambda _: False))


def test_fifty_kilobytes_made_to_be_slow_are_read() -> None:
    for piece in (" ", "\n", ".", ",", '"', "'", "a ", " '", '"a"', "and ", ", and ", " y", ".\n", "a.b"):
        text = piece * (50_000 // len(piece))
        assert len(analyzer.analyze_query(text).terms) <= limits.QUERY_TERMS
