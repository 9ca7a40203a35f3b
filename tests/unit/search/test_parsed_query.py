"""Parsing a query: terms, named tags, and their limits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import limits
from waypost.search.text import analyzer
from waypost.search.text.analyzer import query_terms

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


def check(text: str) -> None:
    read = analyzer.analyze_query(text)
    assert read.terms == query_terms(text)
    assert len(read.terms) == len(set(read.terms)) <= limits.QUERY_TERMS
    assert len(read.counts) == len(read.terms)
    assert all(count > 0 for count in read.counts)
    assert read.parts == analyzer.split_clauses(text)


@pytest.mark.parametrize("seed", range(8))
def test_texts_of_words_are_read_within_bounds(seed: int) -> None:
    dice = random.Random(seed)
    for count in (0, 1, 2, 5, 9, 20, 60, 150, 300) * 4:
        text = "".join(dice.choice(WORDS) + dice.choice(GAPS) for _ in range(count))
        check(text[: limits.QUERY_CHARS])


@given(st.text(max_size=120))
def test_any_text_is_read_within_bounds(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    ("text", "ruled_out"),
    [
        ("a database, but not postgres", {"postgr"}),
        ("search the web without using Google", {"googl"}),
        ("anything but jira for tickets", {"jira", "ticket"}),
        ("postgres, not the postgres of aws", {"aw"}),
        ("a database", set()),
    ],
)
def test_what_follows_a_negation_is_ruled_out(text: str, ruled_out: set[str]) -> None:
    assert analyzer.analyze_query(text).ruled_out == ruled_out


def test_a_misspelled_word_shares_most_of_its_grams() -> None:
    right, wrong, other = (analyzer.grams_of((word,)) for word in ("translation", "translatoin", "weather"))
    assert len(right & wrong) >= 4
    assert not right & other
    assert len(analyzer.grams_of(("csv",))) == 1


def test_fifty_kilobytes_made_to_be_slow_are_read() -> None:
    for piece in (" ", "\n", ".", ",", '"', "'", "a ", " '", '"a"', "and ", ", and ", " y", ".\n", "a.b"):
        text = piece * (50_000 // len(piece))
        assert len(analyzer.analyze_query(text).terms) <= limits.QUERY_TERMS
