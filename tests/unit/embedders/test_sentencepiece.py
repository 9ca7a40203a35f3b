"""Cutting texts into pieces."""

from __future__ import annotations

import pytest

from support.vectors import ODD, SENTENCES, installed, model
from waypost import limits
from waypost.embedders import plain_pieces
from waypost.embedders.cutting import Tokenizer
from waypost.embedders.sentencepiece import UNKNOWN, parse_vocabulary


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(model().vocabulary)


def _said(numbers: list[int]) -> str:
    return "".join(model().vocabulary.pieces[number] for number in numbers).replace("\u2581", " ").strip()


@pytest.mark.parametrize("text", [text for texts in SENTENCES.values() for text in texts[:2]])
def test_the_pieces_of_a_text_say_the_text(tokenizer: Tokenizer, text: str) -> None:
    numbers = tokenizer.encode(text, 256)
    assert UNKNOWN not in numbers
    assert _said(numbers) == text


def test_letters_of_another_width_are_the_usual_ones(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("ＡＢＣ ﬁne", 256) == tokenizer.encode("ABC fine", 256)


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u3000"])
def test_a_text_of_spaces_has_no_pieces(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text, 256) == []


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_cut_all_the_same_and_alike_the_second_time(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text, 256) == tokenizer.encode(text, 256) != []


def test_cutting_ends_where_enough_is_read(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("discovery " * 100_000, 10)) < 20


def test_the_memory_of_words_is_bounded() -> None:
    tokenizer = plain_pieces.Tokenizer(model().vocabulary)
    for start in range(0, limits.EMBEDDER_WORDS + 100, 100):
        tokenizer.encode(" ".join(str(number) for number in range(start, start + 100)), 10_000)
    assert len(tokenizer._words) <= limits.EMBEDDER_WORDS


@pytest.mark.parametrize("size", [0, 1, 1000, 2_000_000])
def test_a_file_that_is_cut_short_is_refused(size: int) -> None:
    whole = (installed().folder / "sp.model").read_bytes()
    with pytest.raises(ValueError, match="vocabulary"):
        parse_vocabulary(whole[:size])
