"""The vocabulary of a segment: its distinct words as written, folded and sorted, for corrections of misspelled queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost.search.index.storage import sorted_unique
from waypost.search.text.analyzer import STOP_WORDS

MAX_BYTES: Final = 20  # of UTF-8; longer words are rare, and mostly identifiers
WORD_TYPE: Final = f"S{MAX_BYTES}"
_MIN_CHARS: Final = 4  # one less than a misspelled word has

Words = npt.NDArray[np.bytes_]


def is_vocabulary_word(word: str) -> bool:
    """Whether the spelling of a folded word is checked."""
    return len(word) >= _MIN_CHARS and word.isalpha() and len(word.encode()) <= MAX_BYTES and word not in STOP_WORDS


class Vocabulary:
    def __init__(self, words: Words) -> None:
        """`words` are sorted and distinct."""
        self.words = words

    @classmethod
    def of(cls, documents: Iterable[Sequence[str]]) -> Vocabulary:
        distinct = {word for words in documents for word in words}
        return cls(np.array(sorted(word.encode() for word in distinct), dtype=WORD_TYPE))

    @classmethod
    def merge(cls, parts: Sequence[Vocabulary]) -> Vocabulary:
        return cls(sorted_unique(np.concatenate([part.words for part in parts])))

    def find(self, words: Words) -> list[str]:
        """Those of the words that it contains."""
        if not len(self.words):
            return []
        places = np.minimum(self.words.searchsorted(words), len(self.words) - 1)
        return [word.decode() for word in words[self.words[places] == words].tolist()]
