"""Several processes of one service: a table in shared memory, and the supervisor that starts and ends them.

    start the leader -> it is ready -> start the followers -> all are ready -> supervise
    a process exits unexpectedly -> restart it after a growing pause -> it fails to become ready too often: stop all
    the leader ends with RELOAD_EXIT_CODE -> restart it, and the followers once it is ready: they follow other files
    stop signal -> all report that they are not ready; stop the followers, then the leader, which answers forwarded requests
                   until they have ended

The supervisor has one thread and no event loop, so that it may fork at any time. A forked process returns from `run` with
its slot and goes on as if it were alone. It ends when the supervisor does, however that ends: the supervisor holds the
other end of a pipe that all of them read.
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

from waypost.responses.service import WorkerStats

log = logging.getLogger("waypost.workers")

_WORD_BYTES = 8
_HEAD = 0  # the word of the newest revision
_CREDENTIALS = 1  # the word that counts changes of API keys and revocations
_CLOCK = 2  # two words: the offsets of the cluster's clock
_NODES = 4  # the word that counts the nodes of the cluster that are alive
_STOP = 5  # the word with the monotonic milliseconds of the stop signal
_FIRST_SLOT = 8  # words before it belong to the table
_SLOT_WORDS = 8  # one cache line, so that slots do not slow each other down
_PID, _REVISION, _READY, _STARTS = range(4)

_POLL_SECONDS = 0.02  # for readiness, at the start
_IDLE_SECONDS = 60.0
_RESTART_SECONDS = 0.1  # the first pause before a restart, doubled at each further one
_RESTART_MAX_SECONDS = 5.0
_STEADY_SECONDS = 5.0  # a process that ran this long starts again with the first pause
_MAX_FALSE_STARTS = 6  # in a row, of one process
_STOP_SECONDS = 8.0  # more than the grace period of a request in flight
_ORPHAN_SECONDS = 10.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
RELOAD_EXIT_CODE = 3  # of a leader whose replica is to be loaded again
_SIGNALS = frozenset((*_STOP_SIGNALS, signal.SIGCHLD))


class WorkerTable:
    """The newest revision and the state of each process. A number is one aligned machine word with one writer, so a reader
    never sees half of it."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._words = memoryview(mmap.mmap(-1, _WORD_BYTES * (_FIRST_SLOT + _SLOT_WORDS * workers))).cast("Q")

    @property
    def head(self) -> int:
        """The newest revision that any caller was answered with."""
        return self._words[_HEAD]

    def announce(self, revision: int) -> None:
        """Called by the process that writes, after the commit and before the response."""
        if revision > self._words[_HEAD]:
            self._words[_HEAD] = revision

    def forget_head(self) -> None:
        """Before the leader loads an earlier state, while no process reads."""
        self._words[_HEAD] = 0

    @property
    def credential_changes(self) -> int:
        """How often API keys or revocations have changed."""
        return self._words[_CREDENTIALS]

    def count_credential_change(self) -> None:
        """Called by the process that writes, after the commit and before the response."""
        self._words[_CREDENTIALS] += 1

    @property
    def clock_offsets(self) -> memoryview[int]:
        """Microseconds, signed, that the clock of the cluster is ahead of this machine's."""
        return self._words.cast("B").cast("q")[_CLOCK : _CLOCK + 2]

    @property
    def nodes(self) -> int:
        """The nodes of the cluster that are alive, at least this one."""
        return max(1, self._words[_NODES])

    def set_nodes(self, count: int) -> None:
        """Called by the process that writes."""
        self._words[_NODES] = count

    @property
    def stopping_since(self) -> float | None:
        """When the service was told to stop, on the monotonic clock that all processes share."""
        return self._words[_STOP] / 1000 or None

    def begin_stop(self) -> None:
        """Called by the supervisor, before it signals the first process."""
        self._words[_STOP] = max(1, int(time.monotonic() * 1000))

    def slot(self, number: int) -> WorkerSlot:
        return WorkerSlot(self, number, self._words[_FIRST_SLOT + _SLOT_WORDS * number :][:_SLOT_WORDS])

    def slots(self) -> list[WorkerSlot]:
        return [self.slot(number) for number in range(self.workers)]

    def stats(self) -> tuple[WorkerStats, ...]:
        """The state of every process."""
        return tuple(slot.stats() for slot in self.slots())


class WorkerSlot:
    """One process in the table. Number 0 writes; the others follow it."""

    def __init__(self, table: WorkerTable, number: int, words: memoryview[int]) -> None:
        self.table = table
        self.number = number
        self._words = words

    @property
    def writes(self) -> bool:
        return self.number == 0

    @property
    def is_ready(self) -> bool:
        return self._words[_READY] != 0

    def take(self, pid: int) -> None:
        """A process starts here."""
        self._words[_READY] = 0
        self._words[_REVISION] = 0
        self._words[_PID] = pid
        self._words[_STARTS] += 1

    def leave(self) -> None:
        self._words[_READY] = 0

    def set_ready(self) -> None:
        self._words[_READY] = 1

    def set_revision(self, revision: int) -> None:
        """The revision that this process has applied."""
        self._words[_REVISION] = revision
        if self.writes:
            self.table.announce(revision)

    def stats(self) -> WorkerStats:
        """The state of the process."""
        return WorkerStats(
            pid=self._words[_PID],
            role="leader" if self.writes else "follower",
            ready=self.is_ready,
            revision=self._words[_REVISION],
            restarts=max(0, self._words[_STARTS] - 1),
        )


class Supervisor:
    """`exit_code` is set when `run` has returned None."""

    def __init__(self, table: WorkerTable, on_ready: Callable[[], None]) -> None:
        self._table = table
        self._on_ready = on_ready
        self._is_ready = False
        self._is_reloading = False
        self._running: dict[int, WorkerSlot] = {}  # by process id
        self._due: dict[int, float] = {0: 0.0}  # start times by slot number
        self._started: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._false_starts: dict[int, int] = {}
        self._is_stopping = False
        self._is_leader_stopping = False
        self._kill_at: float | None = None
        self._lifeline = os.pipe()
        self.exit_code = 0

    def run(self) -> WorkerSlot | None:
        """Returns None when all processes have ended. In a process that was started here: returns its slot, at once."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        gc.freeze()  # the pages of loaded objects are shared; a collection would write to them
        while True:
            for number in self._take_due():
                slot = self._table.slot(number)
                pid = os.fork()
                if pid == 0:
                    self._enter_child()
                    return slot
                slot.take(pid)
                self._running[pid] = slot
                self._started[number] = time.monotonic()
            if not self._running and not self._due:
                for end in self._lifeline:
                    os.close(end)
                return None
            self._handle_signal(signal.sigtimedwait(_SIGNALS, self._timeout()))
            self._reap()
            self._check_readiness()

    # --- Starting --------------------------------------------------------------------------------

    def _take_due(self) -> list[int]:
        now = time.monotonic()
        numbers = sorted(number for number, at in self._due.items() if at <= now)
        for number in numbers:
            del self._due[number]
        return numbers

    def _enter_child(self) -> None:
        """Restore the signal handling; an interrupt from the terminal is for the supervisor only."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        reads, writes = self._lifeline
        os.close(writes)
        threading.Thread(target=_end_with, args=(reads,), name="waypost-lifeline", daemon=True).start()

    def _check_readiness(self) -> None:
        """Start the followers when the leader is ready; report the service as ready when all are."""
        slots = self._table.slots()
        if self._is_reloading and slots[0].is_ready:
            self._is_reloading = False
            running = {slot.number for slot in self._running.values()}
            self._due.update((slot.number, 0.0) for slot in slots[1:] if slot.number not in running)
        if self._is_ready or self._is_stopping:
            return
        if slots[0].is_ready and len(self._started) == 1:
            self._due.update((slot.number, 0.0) for slot in slots[1:])
        if all(slot.is_ready for slot in slots):
            self._is_ready = True
            self._on_ready()

    # --- Supervising -----------------------------------------------------------------------------

    def _timeout(self) -> float:
        """Seconds until something has to be done."""
        now = time.monotonic()
        times = list(self._due.values())
        if self._kill_at is not None:
            times.append(self._kill_at)
        if (not self._is_ready or self._is_reloading) and not self._is_stopping:
            times.append(now + _POLL_SECONDS)
        return max(0.0, min(times, default=now + _IDLE_SECONDS) - now)

    def _handle_signal(self, info: signal.struct_siginfo | None) -> None:
        if info is not None and info.si_signo in _STOP_SIGNALS:
            if self._is_stopping:
                self._kill_all()  # the second signal: acknowledged writes are on the disk
            else:
                self._stop(0)
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            log.error("killing processes that do not stop")
            self._kill_all()
            self._kill_at = None

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            slot = self._running.pop(pid, None)
            if slot is not None:
                self._on_exit(slot, pid, os.waitstatus_to_exitcode(status))
                slot.leave()
        if self._is_stopping and self._running and all(slot.writes for slot in self._running.values()):
            self._stop_leader()

    def _on_exit(self, slot: WorkerSlot, pid: int, code: int) -> None:
        if self._is_stopping:
            return
        if slot.writes and code == RELOAD_EXIT_CODE:
            self._reload()
            return
        if self._is_reloading and not slot.writes:
            return  # started again when the leader is ready
        number, role = slot.number, slot.stats().role
        is_steady = time.monotonic() - self._started[number] >= _STEADY_SECONDS
        self._failures[number] = 1 if is_steady else self._failures.get(number, 0) + 1
        self._false_starts[number] = 0 if slot.is_ready else self._false_starts.get(number, 0) + 1
        if not self._is_ready or self._false_starts[number] >= _MAX_FALSE_STARTS:
            log.error("process %d (%s) ended with %d; the service stops", pid, role, code)
            self._stop(code if code > 0 else 1)
            return
        pause = min(_RESTART_SECONDS * 2 ** (self._failures[number] - 1), _RESTART_MAX_SECONDS)
        log.warning("process %d (%s) ended with %d; restarting in %.1f s", pid, role, code, pause)
        self._due[number] = time.monotonic() + pause

    def _reload(self) -> None:
        """Restart all: the leader first, the others follow what it loads."""
        self._is_reloading = True
        self._table.forget_head()
        self._due = {0: time.monotonic()}
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)

    # --- Stopping --------------------------------------------------------------------------------

    def _stop(self, code: int) -> None:
        """Stop the followers first: the leader still answers the requests that they have forwarded."""
        self._is_stopping = True
        self._table.begin_stop()
        self.exit_code = code
        self._due.clear()
        self._kill_at = time.monotonic() + _STOP_SECONDS
        followers = [pid for pid, slot in self._running.items() if not slot.writes]
        for pid in followers:
            os.kill(pid, signal.SIGTERM)
        if not followers:
            self._stop_leader()

    def _stop_leader(self) -> None:
        for pid, slot in self._running.items():
            if slot.writes and not self._is_leader_stopping:
                self._is_leader_stopping = True
                self._kill_at = time.monotonic() + _STOP_SECONDS
                os.kill(pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)


def _end_with(lifeline: int) -> None:
    """Wait until the supervisor ends, then stop this process: in order, if that still works."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)
