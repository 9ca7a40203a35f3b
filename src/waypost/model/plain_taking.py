"""What `waypost.compiled.taking` does, where it was not compiled: it knows of no text that it is plain, so that each is read by
the strict reader, which gives the same answers more slowly; and it looks for words one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ODD: Final = 0
PLAIN: Final = 1
PLAIN_BEYOND_ASCII: Final = 2


def plainness(data: bytes, depth: int, items: int, digits: int) -> int:
    return ODD


class Cues:
    """Words of which a text may have one, in whatever case. Those that are not ASCII are in no text that is."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(word.lower() for word in words if word.isascii())

    def are_in(self, text: str) -> bool:
        """Whether any of them is in a text of ASCII; another text is not looked at, and has none."""
        if not text.isascii():
            return False
        lowered = text.lower()
        for word in self._words:  # noqa: SIM110 - a loop takes two thirds of the time of any()
            if word in lowered:
                return True
        return False
