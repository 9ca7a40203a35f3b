"""Splits a text into the pieces of a SentencePiece model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sentencepiece import SentencePieceProcessor

BEGIN: Final = 1
END: Final = 2

_CHARS_PER_PIECE: Final = 64  # no piece is longer; a longer text is cut before it is split


class Tokenizer:
    """May be used by several threads."""

    def __init__(self, model: Path) -> None:
        """Raises OSError or ValueError when the file is no model."""
        if not model.is_file():
            raise FileNotFoundError(f"There is no file {model}.")
        try:
            self._processor = SentencePieceProcessor(model_file=str(model))
        except RuntimeError as error:
            raise ValueError(f"{model.name} is not a SentencePiece model.") from error

    def encode(self, text: str, most: int) -> list[int]:
        """The ids of the first `most` pieces; none for a text without a visible character."""
        text = text[: most * _CHARS_PER_PIECE]
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()  # half a surrogate pair has no UTF-8
        ids: list[int] = self._processor.encode(text)
        return ids[:most]

    def pieces(self) -> list[str]:
        """The text of each piece, by id."""
        processor = self._processor
        return [processor.id_to_piece(at) for at in range(processor.get_piece_size())]

    def scores(self) -> list[float]:
        """The logarithm of each piece's probability, by id."""
        processor = self._processor
        return [processor.get_score(at) for at in range(processor.get_piece_size())]
