"""The tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.sentence_model import ODD, SENTENCES, installed, tokenizer
from waypost.embedders.use_encoder import _find_exact_run
from waypost.embedders.use_model import BEGIN, END, Tokenizer

UNKNOWN = 0


def _said(numbers: list[int]) -> str:
    pieces = tokenizer().pieces()
    return "".join(pieces[number] for number in numbers).replace("\u2581", " ").strip()


@pytest.mark.parametrize("text", [text for texts in SENTENCES.values() for text in texts[:2]])
def test_the_tokens_of_a_text_join_to_the_text(text: str) -> None:
    numbers = tokenizer().encode(text, 256)
    assert UNKNOWN not in numbers
    assert _said(numbers) == text


def test_letters_of_another_width_are_the_usual_ones() -> None:
    assert tokenizer().encode("ＡＢＣ ﬁne", 256) == tokenizer().encode("ABC fine", 256)


def test_control_pieces_cannot_be_written_in_a_text() -> None:
    assert not {BEGIN, END} & set(tokenizer().encode("<s> </s>", 256))


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u3000"])
def test_a_text_of_spaces_has_no_pieces(text: str) -> None:
    assert tokenizer().encode(text, 256) == []


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_split_all_the_same_and_alike_the_second_time(text: str) -> None:
    assert tokenizer().encode(text, 256) == tokenizer().encode(text, 256) != []


def test_a_long_text_begins_with_the_pieces_of_its_beginning() -> None:
    text = "discovery of agents " * 50_000
    assert tokenizer().encode(text, 10) == tokenizer().encode(text[:200], 10)
    assert len(tokenizer().encode(text, 10)) == 10


def test_no_piece_is_longer_than_a_text_is_cut_for() -> None:
    assert max(map(len, tokenizer().pieces())) <= 64


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_file_that_is_cut_short_is_refused(size: int, tmp_path: Path) -> None:
    cut = tmp_path / "sp.model"
    cut.write_bytes((installed().folder / "sp.model").read_bytes()[:size])
    with pytest.raises(ValueError, match=r"sp\.model"):
        Tokenizer(cut)


@pytest.mark.parametrize(
    ("part", "whole", "most", "found"),
    [
        ([1, 2], [0, 1, 2, 3], 4, (1, 3)),
        ([1, 2], [1, 1, 2], 3, (1, 3)),
        ([2, 3], [0, 1, 2, 3], 3, None),
        ([], [1], 1, None),
        ([1], [], 1, None),
    ],
)
def test_a_part_is_found_within_the_first_pieces(
    part: list[int], whole: list[int], most: int, found: tuple[int, int] | None
) -> None:
    assert _find_exact_run(part, whole, most) == found
