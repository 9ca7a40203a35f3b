"""Group commit: the queue of commands, the order in which they are decided, and when they are answered.

Commands are decided on the event loop, a few per iteration, inside one open transaction. Only the commit, which waits for
the disk, runs in a thread. Commands that arrive meanwhile share the next commit. A thread that ran the statements would
compete with the loop for the GIL at each of them (docs/decisions/0008).

    idle → deciding → committing → idle or deciding; then the committed commands are answered

The commit thread does as little as possible around each wait: no futures, no locks. Its work must not raise.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from waypost import limits
from waypost.errors import InternalError, WaypostError
from waypost.registry.ports import CommittedChange, NoteListener
from waypost.stores.commit import store_closed_error
from waypost.stores.sqlite.database import Failpoint, fault_of, queue_full_error, write_error
from waypost.stores.sqlite.transaction import WriteTransaction


class DiskThread:
    """Starts with the first work item."""

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
        """Wait until all work is done."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


T = TypeVar("T")

TransactionWork = Callable[[WriteTransaction], Any]

PendingReply = tuple["asyncio.Future[Any]", Any, BaseException | None]

CommitFailure = sqlite3.Error | OSError | None

CommitListener = Callable[[Sequence[CommittedChange]], None]

# Beyond this size the WAL is checkpointed while writers wait: a checkpoint of the pages of 100,000 agents takes as long as
# a thousand registrations. Recovery reads little more than this.
_CHECKPOINT_BYTES = 32 * limits.MIB

_LULL_BYTES = 2 * limits.MIB  # the same, when nothing was written for a while

_LULL_SECONDS = 0.2

_PAGE_BYTES = 4 * limits.KIB

_PAGES_TOUCHED = 2  # WAL bytes of a usual command besides its own rows

_PAGES_OF_GROUP = 10  # WAL bytes shared by the commands of one commit: table ends and inner pages


def _nothing() -> None: ...


class GroupCommitWriter:
    """Owns the writing connection through `tables`. All methods except `_commit` and `_checkpoint` run on the loop."""

    def __init__(
        self,
        tables: WriteTransaction,
        listener: CommitListener,
        failpoint: Failpoint,
        noted: NoteListener | None = None,
        before_told: Callable[[], None] = _nothing,
    ) -> None:
        self._tables = tables
        self._before_told = before_told
        self._listener = listener
        self._noted = noted
        self._failpoint = failpoint
        self._loop = asyncio.get_running_loop()
        self._disk = DiskThread("waypost-commit")
        self._waiting: deque[tuple[TransactionWork, asyncio.Future[Any], bool]] = (
            deque()
        )  # with `_is_joined` of the next
        self._is_joined = False  # the next work belongs to the same commit
        self._group: list[PendingReply] = []
        self._changes_before = 0
        self._decided_at = time.monotonic()  # the end of the last slice
        self._logged_bytes = 0  # since the last checkpoint
        self._submitted = 0
        self._lull: asyncio.TimerHandle | None = None  # waiting for a checkpoint
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.revision = tables.revision  # the last durable revision
        self.full = False
        self.broken: CommitFailure = None

    # --- Callers ---------------------------------------------------------------------------------

    def submit(self, work: Callable[[WriteTransaction], T]) -> asyncio.Future[T]:
        """Run `work` in the next group. The future completes when its rows are durable, or it was refused."""
        self._check_open()
        (future,) = self._submit((work,))
        return future

    def submit_all(self, works: Sequence[Callable[[WriteTransaction], T]]) -> list[asyncio.Future[T]]:
        """Run several works in one commit, in this order."""
        self._check_open()
        return self._submit(works)

    def _submit(self, works: Sequence[Callable[[WriteTransaction], T]]) -> list[asyncio.Future[T]]:
        futures: list[asyncio.Future[T]] = [self._loop.create_future() for _ in works]
        last = len(works) - 1
        self._waiting.extend(
            (work, future, place < last) for place, (work, future) in enumerate(zip(works, futures, strict=True))
        )
        self._submitted += len(works)
        if self._idle.is_set() and works:
            self._idle.clear()
            self._decided_at = (
                time.monotonic()
            )  # the loop was not busy with other work while there was nothing to decide
            self._loop.call_soon(self._decide_some)
        return futures

    def _check_open(self) -> None:
        if self._closed:
            raise store_closed_error()
        if self.broken is not None:
            raise write_error(self.broken)
        if len(self._waiting) >= limits.WRITE_QUEUE:
            raise queue_full_error()

    async def close(self) -> None:
        """Write and answer everything queued; accept nothing new."""
        self._closed = True
        if self._lull is not None:
            self._lull.cancel()
        await self._idle.wait()
        self._disk.close()

    # --- Decide ----------------------------------------------------------------------------------

    def _decide_some(self) -> None:
        """Decide a slice of the group; the loop runs other callbacks between slices.

        If those took long, the slice is longer: a fixed number in each round of a busy loop would let writes wait for seconds.
        """
        started_at = time.monotonic()
        ends_at = started_at + min(limits.GROUP_SLICE_SECONDS, limits.GROUP_SHARE * (started_at - self._decided_at))
        try:
            if not self._tables.connection.in_transaction:
                self._begin()
            count = 0
            while self._waiting and (count < limits.GROUP_SLICE or time.monotonic() < ends_at):
                if self._is_complete_group:
                    break
                self._decide(*self._waiting.popleft())
                count += 1
            self._decided_at = time.monotonic()
            more = bool(self._waiting) and not self._is_complete_group
            if self._wrote and not more:
                self._tables.before_commit()
        except (sqlite3.Error, OSError) as error:
            self._finish(error)
            return
        if more:
            self._loop.call_soon(self._decide_some)
        elif self._wrote:
            self._disk.submit(self._commit)
        else:
            self._finish_unwritten()

    @property
    def _is_complete_group(self) -> bool:
        return len(self._group) >= limits.GROUP_COMMIT_MAX and not self._is_joined

    def _begin(self) -> None:
        self._failpoint("before_begin")
        self._tables.begin()
        self._changes_before = self._tables.connection.total_changes

    @property
    def _wrote(self) -> bool:
        """Whether there is anything to commit; audit entries are written last."""
        return self._tables.connection.total_changes != self._changes_before or bool(self._tables.audit.waiting)

    def _decide(self, work: TransactionWork, future: asyncio.Future[Any], is_joined: bool) -> None:
        self._is_joined = is_joined
        if future.cancelled():
            return
        try:
            self._group.append((future, work(self._tables), None))
        except WaypostError as refusal:
            self._group.append((future, None, refusal))
        except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError) as error:
            self._group.append((future, None, InternalError(f"A row could not be written: {error}.")))
        except (sqlite3.Error, OSError):
            self._group.append((future, None, None))
            raise
        except Exception as error:  # noqa: BLE001 - whatever a command raises belongs to its caller, not to the group
            self._group.append((future, None, error))

    def _finish_unwritten(self) -> None:
        """Nothing to commit: every decision was a refusal or changed nothing."""
        try:
            self._tables.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._finish(error)
        else:
            self._finish(None)

    # --- Commit (in the thread) ------------------------------------------------------------------

    def _commit(self) -> None:
        failure: CommitFailure = None
        try:
            self._failpoint("before_commit")
            self._tables.connection.execute("COMMIT")
            self._failpoint("after_commit")
        except (sqlite3.Error, OSError) as error:
            failure = error
        self._tell(self._finish, failure)

    def _checkpoint(self) -> None:
        """Checkpoint the WAL after callers were answered; readers are not blocked."""
        failure: CommitFailure = None
        try:
            self._failpoint("during_checkpoint")
            self._tables.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (sqlite3.Error, OSError) as error:
            failure = error
        self._tell(self._checkpointed, failure)

    def _tell(self, then: Callable[[CommitFailure], None], failure: CommitFailure) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(then, failure)

    # --- Answer ----------------------------------------------------------------------------------

    def _finish(self, failure: CommitFailure) -> None:
        group, self._group = self._group, []
        if failure is not None:
            self._fail(group, failure)
            return
        self._before_told()
        pages = len(group) * _PAGES_TOUCHED + _PAGES_OF_GROUP
        self._logged_bytes += self._tables.written_bytes + pages * _PAGE_BYTES
        changes, noted = self._tables.settle()
        self.revision = self._tables.revision
        if self._wrote:
            self.full = False
        try:
            self._note(noted)
            if changes:
                self._listener(changes)
            self._failpoint("before_reply")
        finally:
            for reply in group:
                _answer(*reply)

    def _note(self, noted: dict[str, bytes | None]) -> None:
        try:
            self._failpoint("before_publish")
            if noted and self._noted is not None:
                self._noted(noted)
        finally:
            self._go_on_at_once()

    def _go_on_at_once(self) -> None:
        """Decide the next group before answering this one, so that the disk works meanwhile. A decision depends only on the
        store, and its caller is answered after its own commit."""
        if self._waiting and self._logged_bytes < _CHECKPOINT_BYTES:
            self._decide_some()
        else:
            self._go_on(checkpoint=self._logged_bytes >= _CHECKPOINT_BYTES)

    def _fail(self, group: list[PendingReply], failure: sqlite3.Error | OSError) -> None:
        """Fail the whole group: none of it was committed."""
        kind = fault_of(failure)
        if kind == "broken":
            self.broken = failure
        self.full = kind == "full"
        try:
            self._tables.roll_back()
        except sqlite3.Error as error:
            self.broken = self.broken or error
        while self._is_joined and self._waiting:  # the rest of a batch must not be committed without its beginning
            _, future, self._is_joined = self._waiting.popleft()
            group.append((future, None, None))
        if self.broken is not None or not group:
            group += [(future, None, None) for _, future, _ in self._waiting]
            self._waiting.clear()
        for future, _, _ in group:
            _answer(future, None, write_error(self.broken or failure))
        self._go_on(checkpoint=self.full)

    def _go_on(self, *, checkpoint: bool) -> None:
        if checkpoint and self.broken is None:
            self._disk.submit(self._checkpoint)
        elif self._waiting:
            self._loop.call_soon(self._decide_some)
        else:
            self._idle.set()
            self._await_lull()

    def _await_lull(self) -> None:
        """Checkpoint during a pause, so that the next burst does not have to wait for it."""
        if self._lull is None and self._logged_bytes >= _LULL_BYTES and not self._closed and self.broken is None:
            self._lull = self._loop.call_later(_LULL_SECONDS, self._fold_in_lull, self._submitted)

    def _fold_in_lull(self, submitted: int) -> None:
        self._lull = None
        if self._submitted != submitted:
            self._await_lull()
        elif self._idle.is_set() and not self._closed and self.broken is None:
            self._idle.clear()
            self._disk.submit(self._checkpoint)

    def _checkpointed(self, failure: CommitFailure) -> None:
        self._logged_bytes = 0
        if failure is not None and fault_of(failure) == "broken":
            self._fail([], failure)
        else:
            self._go_on(checkpoint=False)


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
