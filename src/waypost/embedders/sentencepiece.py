"""The vocabulary of a SentencePiece unigram model, and reading such a model's file. How a text is cut by it: `cutting`."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

UNKNOWN: Final = 0
BEGIN: Final = 1
END: Final = 2

_SPACE: Final = "\u2581"  # stands for the space before a word
_UNKNOWN_PENALTY: Final = 10.0  # below the least likely piece, as the model's own tools have it
_PIECE_TAG: Final = 0x0A
_NORMALISER_TAG: Final = 0x1A
_SCORE_TAG: Final = 0x15
_BYTES_WIRE: Final = 2
_CHARSMAP_FIELD: Final = 2


class Vocabulary(NamedTuple):
    pieces: list[str]  # by number
    scores: npt.NDArray[np.float32]  # logarithms of their probabilities
    charsmap: bytes  # a double array over UTF-8, then the replacements

    @property
    def space(self) -> str:
        return _SPACE

    @property
    def unknown_score(self) -> float:
        return float(self.scores.min()) - _UNKNOWN_PENALTY


def parse_vocabulary(data: bytes) -> Vocabulary:
    """Out of the protocol buffer that a model is kept in. Raises ValueError."""
    pieces: list[str] = []
    scores: list[float] = []
    charsmap = b""
    try:
        for tag, start, stop in _fields(data, 0, len(data)):
            if tag == _PIECE_TAG:
                piece, score = _parse_piece(data, start, stop)
                pieces.append(piece)
                scores.append(score)
            elif tag == _NORMALISER_TAG:
                charsmap = _find_charsmap(data, start, stop) or charsmap
    except (IndexError, struct.error) as error:
        raise ValueError("The vocabulary is cut short.") from error
    if not pieces or not charsmap:
        raise ValueError("The vocabulary has no pieces or no character map.")
    return Vocabulary(pieces, np.array(scores, np.float32), charsmap)


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, start and end of each field that is a run of bytes; numbers of one to ten bytes are passed over."""
    while at < end:
        tag = data[at]
        size, at = _varint(data, at + 1)
        if tag & 7 == _BYTES_WIRE:
            yield tag, at, at + size
            at += size


def _parse_piece(data: bytes, start: int, stop: int) -> tuple[str, float]:
    """Text, then score; what follows (its kind) has no say here."""
    if data[start] != _PIECE_TAG:
        raise ValueError("A piece of the vocabulary does not begin with its text.")
    size, at = _varint(data, start + 1)
    end = at + size
    text = data[at:end].decode()
    score = struct.unpack_from("<f", data, end + 1)[0] if end < stop and data[end] == _SCORE_TAG else 0.0
    return text, score


def _find_charsmap(data: bytes, start: int, stop: int) -> bytes | None:
    for tag, at, end in _fields(data, start, stop):
        if tag >> 3 == _CHARSMAP_FIELD:
            return data[at:end]
    return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
