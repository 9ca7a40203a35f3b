"""Compiled and plain: both read a question alike."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost import limits
from waypost.search import language, plain_reading, reading
from waypost.search.expansion import PHRASE, WORD
from waypost.search.taxonomy import parse_taxonomy

kernel = pytest.importorskip("waypost.compiled.reading", reason="the kernels are not compiled here")

BLOB = 80
TEXTS = (
    "rain Raining the and AND then y Y also und translate contract getFoodData HTTPServer2x parseXML1st q2 chat bot machine",
    "learning Ann's 'tis students' \"Berlin 'Paris' \"New York\" 'a b' SELECT e.g. i.e. 3.5 www.example.org a_b snake_case",
    "der die das por favor quiero les des il gli het een of to with me my C++ c# _ - --- 42 <b> 'unclosed \"unclosed find_me",
)
WORDS = " ".join(TEXTS).split()
GAPS = (" ",) * 12 + (", ", ". ", "; ", ": ", "\n", "\n\n", "\t", "\r\n", "  ", ".\n.", "...", "?! ", ",")
QUOTING = ("'", '"', " ' ", ' "', "' ", "\x1f", "\x0b")
OUTLINE = """
chatbot
  virtual assistant
machine learning
  deep learning
  very long name of one tag
translation
"""
TAXONOMY = parse_taxonomy(OUTLINE)


def same(text: str) -> None:
    """To the bit, and in the same order."""
    plain = reading.read_plainly(text)
    terms, quoted, parts, has = reading._reader.read(text)  # type: ignore[union-attr]
    assert (terms, quoted, parts) == plain[:3]
    assert (has is None) is (plain.has is None) is (not parts)
    assert has is None or bytes(has) == bytes(plain.has)
    assert reading.read.__wrapped__(text)[:3] == plain[:3]
    assert language.language_of(text) == language.language_of_any(text)
    assert kernel.is_plain(text, BLOB) is plain_reading.is_plain(text, BLOB)
    asked = (terms, *TAXONOMY.phrases, 4, 3, PHRASE, WORD)
    assert [*kernel.named(*asked).items()] == [*plain_reading.named(*asked).items()]


@pytest.mark.parametrize("seed", range(8))
def test_texts_of_words_are_read_alike(seed: int) -> None:
    dice = random.Random(seed)
    for count in (0, 1, 2, 5, 9, 20, 60, 150, 300) * 4:
        text = "".join(dice.choice(WORDS) + dice.choice(GAPS + QUOTING) for _ in range(count))
        same(text[: limits.QUERY_CHARS])


@given(st.text("ab_yY<A1;and \n.,'\"\t", max_size=120))
def test_any_text_in_ascii_is_read_alike(text: str) -> None:
    same(text)


@given(
    st.lists(st.sampled_from(["chat", "bot", "machin", "learn", "deep", "veri", "long", "name", "of", "one", "tag"]))
)
def test_the_same_tags_are_named(terms: list[str]) -> None:
    for most, phrase_terms in ((1, 4), (8, 4), (8, 2)):
        asked = (tuple(terms), *TAXONOMY.phrases, phrase_terms, most, PHRASE, WORD)
        assert [*kernel.named(*asked).items()] == [*plain_reading.named(*asked).items()]


def test_more_terms_than_a_question_has_are_cut_alike() -> None:
    words = [f"word{number}" for number in range(3 * limits.QUERY_TERMS)]
    same(" ".join(words))
    same(
        " ".join(words[:100])
        + ". "
        + " ".join(words[30:150])
        + ', then "'
        + " ".join(words[150:155])
        + '" and more of it'
    )
    same("one two three. " + " ".join(words))
    same("'" + " ".join(f"{chr(97 + at % 26)}{at}B{at}c" for at in range(12)) + "' " + " ".join(words[:5]))


@pytest.mark.parametrize(
    "text", ["x" * BLOB, "x" * (BLOB - 1), "a-b/" * 20, "a b " * 30, "<", "\x00", "\x7f", "a\tb\r\nc", ""]
)
def test_what_a_reader_sees_as_it_is_written(text: str) -> None:
    assert kernel.is_plain(text, BLOB) is plain_reading.is_plain(text, BLOB)


@pytest.mark.parametrize(
    "text", ["übersetze einen Vertrag und schicke ihn", "東京の天気", "rain\u200b", "\ud800", "caf\xe9"]
)
def test_what_is_not_ascii_is_left_to_the_twin(text: str) -> None:
    assert reading._reader is not None
    assert reading._reader.read(text) is None
    assert reading.read(text)[:3] == reading.read_plainly(text)[:3]
    assert not kernel.is_plain(text, BLOB)
    assert not plain_reading.is_plain(text, BLOB)


def test_fifty_kilobytes_made_to_be_slow_are_read() -> None:
    for piece in (" ", "\n", ".", ",", '"', "'", "a ", " '", '"a"', "and ", ", and ", " y", ".\n", "a.b"):
        text = piece * (50_000 // len(piece))
        assert len(reading._reader.read(text)[0]) <= limits.QUERY_TERMS  # type: ignore[union-attr, index]


def test_words_that_are_no_text_are_refused() -> None:
    bounds = {"most_terms": 4, "most_clauses": 2, "least_words": 1, "least_terms": 1, "least_beside": 1}
    bounds["longest_quote"] = 9
    with pytest.raises(TypeError):
        kernel.Reader({"a": 1}, (), **bounds).read("a")
    with pytest.raises(TypeError):
        kernel.Reader([], (), **bounds)
    with pytest.raises(KeyError):
        kernel.Reader({}, (), **bounds).read("a")
    with pytest.raises(ValueError, match="no more terms"):
        kernel.Reader({"a": "b c d e f g h i j k l"}, (), **bounds).read("a")
