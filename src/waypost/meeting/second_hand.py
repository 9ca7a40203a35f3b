"""A second thread that helps with signatures when several wait: libsodium works without the interpreter's lock.

Whoever has the work begins it at once and never waits for the helper: what the helper has not finished in the end is done
again. So a helper that sleeps, is held up or died in a fork costs nothing but its help, and the order stays with the caller.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

from waypost import limits

Job = TypeVar("Job")
Done = TypeVar("Done")


class Sharing(Generic[Job, Done]):
    """Jobs that two do together: one takes them from the front, the other from the back."""

    __slots__ = ("_do", "_done", "_jobs", "_left")

    def __init__(self, do: Callable[[Job], Done], jobs: Sequence[Job]) -> None:
        self._do = do
        self._jobs = jobs
        self._done: list[Done | None] = [None] * len(jobs)
        self._left = list(range(len(jobs)))  # only popped: that is one step, whoever does it

    def help(self) -> None:
        self._take(0)

    def finish(self) -> list[Done]:
        self._take(-1)
        do = self._do
        return [do(job) if done is None else done for done, job in zip(self._done, self._jobs, strict=True)]

    def _take(self, end: int) -> None:
        do, jobs, done, pop = self._do, self._jobs, self._done, self._left.pop
        while self._left:
            try:
                at = pop(end)
            except IndexError:  # the other took the last one
                return
            done[at] = do(jobs[at])


class SecondHand:
    """The helper of one process. Its thread begins when there is something to share, and then waits for more."""

    def __init__(self) -> None:
        self._handed: SimpleQueue[Sharing[object, object]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_of_use = (os.cpu_count() or 1) > 1

    def do(self, do: Callable[[Job], Done], jobs: Sequence[Job]) -> list[Done]:
        """What `do` makes of each job, in their order. For what needs no lock of the interpreter and may be done twice."""
        if len(jobs) < limits.AGP_SHARED_FROM or not self._is_of_use:
            return [do(job) for job in jobs]
        sharing = Sharing(do, jobs)
        self._hand(sharing)  # type: ignore[arg-type]
        return sharing.finish()

    def _hand(self, sharing: Sharing[object, object]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._help, name="waypost-signatures", daemon=True)
            self._thread.start()
        if self._handed.empty():  # else it is busy with another's, or gone
            self._handed.put(sharing)

    def _help(self) -> None:
        while True:
            self._handed.get().help()


second_hand = SecondHand()
