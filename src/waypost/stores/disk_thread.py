"""A thread that waits for the disk, and does nothing else.

It and the event loop share one interpreter: while it runs, the loop stands still. So what it does around each wait is as
little as can be: no futures, no locks of its own. What it is given must not raise.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread


class DiskThread:
    """Started with its first work."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._name = name
        self._thread: Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Wait until all that was given is done."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
