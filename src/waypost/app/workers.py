"""A board in shared memory, made before the processes part: the newest revision, and how each of them is doing.

One process writes each number, any may read it. A number is one aligned machine word, so a reader sees it whole.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

_WORD = 8

_HEAD = 0

_FIRST = 8  # the words of the first place; those before it are the board's own

_PLACE = 8  # words of one place: a line of the cache, so that neighbours do not slow each other down

_PID, _REVISION, _READY, _STARTS = range(4)


class WorkerTable:
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

    def place(self, number: int) -> WorkerSlot:
        return WorkerSlot(self, number, self._words[_FIRST + _PLACE * number :][:_PLACE])

    def places(self) -> list[WorkerSlot]:
        return [self.place(number) for number in range(self.workers)]

    def told(self) -> list[dict[str, Any]]:
        """Every process, for whoever runs the service."""
        return [place.told() for place in self.places()]


class WorkerSlot:
    """One process on the board. The first one writes; the others follow it."""

    def __init__(self, board: WorkerTable, number: int, words: memoryview[int]) -> None:
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


# ---- Starting the processes, looking after them, ending them. One thread, no event loop: so that it may fork at any time.
#
#     start the writer → it is ready → start the followers → all are ready → watch over them
#     one ends by itself → start it again, after a longer pause each time → it never gets ready again: end all
#     told to stop → followers end, then the writer, which answers until they have
#
# A process that is forked here leaves `run` with its place and goes on as if it were alone. Each ends when the supervisor
# does, however that ends: it holds the other end of a pipe that all of them read.

log = logging.getLogger("waypost.workers")

_LOOK_SECONDS = 0.02  # how often it is looked whether all are ready, at the start

_IDLE_SECONDS = 60.0

_PAUSE_SECONDS = 0.1  # before a start after a failure, doubled at each further one

_PAUSE_MOST_SECONDS = 5.0

_STEADY_SECONDS = 5.0  # who has run so long has not failed again, but anew

_FALSE_STARTS = 6  # in a row, of one process

_STOP_SECONDS = 8.0  # more than the grace that a request in flight is given

_ORPHAN_SECONDS = 10.0

_STOPS = (signal.SIGTERM, signal.SIGINT)

_SIGNALS = frozenset((*_STOPS, signal.SIGCHLD))


class Supervisor:
    """`exit_code` says how it went, once `run` has returned None."""

    def __init__(self, board: WorkerTable, ready: Callable[[], None]) -> None:
        self._board = board
        self._ready = ready
        self._is_told = False
        self._running: dict[int, WorkerSlot] = {}  # by process id
        self._due: dict[int, float] = {0: 0.0}  # when to start whom
        self._started: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._false_starts: dict[int, int] = {}
        self._stopping = False
        self._writer_told = False
        self._kill_at: float | None = None
        self._lifeline = os.pipe()
        self.exit_code = 0

    def run(self) -> WorkerSlot | None:
        """Until all have ended: None. In a process that was started here: its place, at once."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        gc.freeze()  # what is loaded by now is shared by all; the collector would write to its pages
        while True:
            for number in self._whose_turn():
                place = self._board.place(number)
                pid = os.fork()
                if pid == 0:
                    self._part()
                    return place
                place.take(pid)
                self._running[pid] = place
                self._started[number] = time.monotonic()
            if not self._running and not self._due:
                self._end()
                return None
            self._hear(signal.sigtimedwait(_SIGNALS, self._patience()))
            self._reap()
            self._look()

    # --- Starting --------------------------------------------------------------------------------

    def _whose_turn(self) -> list[int]:
        now = time.monotonic()
        numbers = sorted(number for number, at in self._due.items() if at <= now)
        for number in numbers:
            del self._due[number]
        return numbers

    def _part(self) -> None:
        """In the new process: signals as usual, but an interrupt from the terminal is for the supervisor alone."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        reads, writes = self._lifeline
        os.close(writes)
        threading.Thread(target=_end_with, args=(reads,), name="waypost-lifeline", daemon=True).start()

    def _look(self) -> None:
        """Followers start when the writer is ready; once all are, it is told."""
        if self._is_told or self._stopping:
            return
        places = self._board.places()
        if places[0].is_ready and len(self._started) == 1:
            self._due.update((place.number, 0.0) for place in places[1:])
        if all(place.is_ready for place in places):
            self._is_told = True
            self._ready()

    # --- Watching over ---------------------------------------------------------------------------

    def _patience(self) -> float:
        """How long nothing has to be done."""
        now = time.monotonic()
        times = list(self._due.values())
        if self._kill_at is not None:
            times.append(self._kill_at)
        if not self._is_told and not self._stopping:
            times.append(now + _LOOK_SECONDS)
        return max(0.0, min(times, default=now + _IDLE_SECONDS) - now)

    def _hear(self, heard: signal.struct_siginfo | None) -> None:
        if heard is not None and heard.si_signo in _STOPS:
            if self._stopping:
                self._send(signal.SIGKILL)  # told twice: what was answered is on the disk
            else:
                self._stop(0)
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            log.error("processes that do not stop are killed")
            self._send(signal.SIGKILL)
            self._kill_at = None

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            place = self._running.pop(pid, None)
            if place is not None:
                self._ended(place, pid, os.waitstatus_to_exitcode(status))
                place.leave()
        if self._stopping and self._running and all(place.writes for place in self._running.values()):
            self._stop_the_writer()

    def _ended(self, place: WorkerSlot, pid: int, code: int) -> None:
        if self._stopping:
            return
        number, role = place.number, place.told()["role"]
        is_steady = time.monotonic() - self._started[number] >= _STEADY_SECONDS
        self._failures[number] = 1 if is_steady else self._failures.get(number, 0) + 1
        self._false_starts[number] = 0 if place.is_ready else self._false_starts.get(number, 0) + 1
        if not self._is_told or self._false_starts[number] >= _FALSE_STARTS:
            log.error("process %d (%s) ended with %d; the service stops", pid, role, code)
            self._stop(code if code > 0 else 1)
            return
        pause = min(_PAUSE_SECONDS * 2 ** (self._failures[number] - 1), _PAUSE_MOST_SECONDS)
        log.warning("process %d (%s) ended with %d; another is started in %.1f s", pid, role, code, pause)
        self._due[number] = time.monotonic() + pause

    # --- Ending ----------------------------------------------------------------------------------

    def _stop(self, code: int) -> None:
        """Followers first: what they have passed on is still answered."""
        self._stopping = True
        self.exit_code = code
        self._due.clear()
        self._kill_at = time.monotonic() + _STOP_SECONDS
        followers = [pid for pid, place in self._running.items() if not place.writes]
        for pid in followers:
            os.kill(pid, signal.SIGTERM)
        if not followers:
            self._stop_the_writer()

    def _stop_the_writer(self) -> None:
        for pid, place in self._running.items():
            if place.writes and not self._writer_told:
                self._writer_told = True
                self._kill_at = time.monotonic() + _STOP_SECONDS
                os.kill(pid, signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for pid in self._running:
            os.kill(pid, number)

    def _end(self) -> None:
        for end in self._lifeline:
            os.close(end)


def _end_with(lifeline: int) -> None:
    """Wait for the supervisor to end, then end this process: in order, if it still can."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)
