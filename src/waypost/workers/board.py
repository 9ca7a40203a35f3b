"""A board in shared memory, made before the processes part: the newest revision, and how each of them is doing.

One process writes each number, any may read it. A number is one aligned machine word, so a reader sees it whole.
"""

from __future__ import annotations

import mmap
from typing import Any

_WORD = 8
_HEAD = 0
_FIRST = 8  # the words of the first place; those before it are the board's own
_PLACE = 8  # words of one place: a line of the cache, so that neighbours do not slow each other down
_PID, _REVISION, _READY, _STARTS = range(4)


class Board:
    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._words = memoryview(mmap.mmap(-1, _WORD * (_FIRST + _PLACE * workers))).cast("Q")

    @property
    def head(self) -> int:
        """The newest revision of which a caller was told."""
        return self._words[_HEAD]

    def announce(self, revision: int) -> None:
        """By the process that writes, after the commit and before the answer."""
        if revision > self._words[_HEAD]:
            self._words[_HEAD] = revision

    def place(self, number: int) -> Place:
        return Place(self, number, self._words[_FIRST + _PLACE * number :][:_PLACE])

    def places(self) -> list[Place]:
        return [self.place(number) for number in range(self.workers)]

    def told(self) -> list[dict[str, Any]]:
        """Every process, for whoever runs the service."""
        return [place.told() for place in self.places()]


class Place:
    """One process on the board. The first one writes; the others follow it."""

    def __init__(self, board: Board, number: int, words: memoryview[int]) -> None:
        self.board = board
        self.number = number
        self._words = words

    @property
    def writes(self) -> bool:
        return self.number == 0

    @property
    def is_ready(self) -> bool:
        return self._words[_READY] != 0

    def take(self, pid: int) -> None:
        """A process begins here."""
        self._words[_READY] = 0
        self._words[_REVISION] = 0
        self._words[_PID] = pid
        self._words[_STARTS] += 1

    def leave(self) -> None:
        self._words[_READY] = 0

    def note_ready(self) -> None:
        self._words[_READY] = 1

    def note(self, revision: int) -> None:
        """How far this process has come."""
        self._words[_REVISION] = revision
        if self.writes:
            self.board.announce(revision)

    def told(self) -> dict[str, Any]:
        return {
            "pid": self._words[_PID],
            "role": "writer" if self.writes else "follower",
            "ready": self.is_ready,
            "revision": self._words[_REVISION],
            "restarts": max(0, self._words[_STARTS] - 1),
        }
