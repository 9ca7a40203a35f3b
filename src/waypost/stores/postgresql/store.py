"""The store of a node: PostgreSQL orders and stores the writes of all nodes, a local replica answers reads.

    execute   decide on the replica → store_group in PostgreSQL → commit the replica → listeners → answer
    follow    the log of PostgreSQL, by polling; a notification only makes it poll at once

One task does both, so that the replica has one writer. Another one compares the head of the log with the replica for reads
that must see what other nodes have acknowledged. While the database is away, reads go on and say how old they may be.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncpg
import msgspec

from waypost import __version__, limits
from waypost.errors import InternalError, WaypostError
from waypost.model.times import to_rfc3339
from waypost.registry.doctor import DatabaseFacts
from waypost.registry.ports import Command, CommandResult, CommittedChange, NoteListener
from waypost.responses.service import NodeStats
from waypost.stores import ClusterStats
from waypost.stores.commit import gather_results, store_closed_error
from waypost.stores.postgresql.cluster import ClusterCipher
from waypost.stores.postgresql.database import (
    DATABASE_ERRORS,
    LONG_SECONDS,
    LOST,
    STATEMENT_SECONDS,
    Database,
    LogConnection,
    away_error,
    check_server,
    read_error,
    start_error,
    write_error,
)
from waypost.stores.postgresql.group import DecidedGroup, GroupTransaction, Move
from waypost.stores.postgresql.index_files import SharedIndex, load_index
from waypost.stores.postgresql.leases import RENEW_SECONDS, Leases
from waypost.stores.postgresql.replica import HistoryChanged, LogRow, Replica, fetch_log
from waypost.stores.postgresql.schema import CHANNEL, LOCK, migrate
from waypost.stores.postgresql.vectors import SharedVectors
from waypost.stores.sqlite.database import Failpoint, queue_full_error
from waypost.stores.sqlite.reads import SqliteReadStore

log = logging.getLogger("waypost.cluster")

POLL_SECONDS: Final = 0.05  # without notifications, a change is seen elsewhere after half of this on average
WRITE_SECONDS: Final = 1.5  # from the decision to an answer: a caller gets 503 within 2 s, with the check of the head
READ_SECONDS: Final = 0.2  # how long a read waits for the head of the log, before it is answered as stale
RECONNECT_SECONDS: Final = 0.25
INDEX_SECONDS: Final = 60.0  # between copies of the search index to the database
_BOUND_SECONDS: Final = 1.0  # a replica that did not see the head of the log for so long is stale
_LISTEN_PROBE_SECONDS: Final = 1.0
_FEED_ROWS: Final = 64
_GROUP_BYTES: Final = 4 * limits.MIB  # that one call sends, besides the last command: it must end in WRITE_SECONDS
_OPTIMISTIC_ATTEMPTS: Final = 3
_LOG_ROWS_KEPT: Final = 1000  # for nodes that were away for a moment, however few changes watchers may read

_LOG_AFTER = "SELECT FROM waypost.log WHERE position > $1 LIMIT 1"
_HEAD = "SELECT position FROM waypost.log ORDER BY position DESC LIMIT 1"
_CHECKSUM = "SELECT checksum FROM waypost.log WHERE position = $1"
_FACTS = """SELECT current_setting('server_version') AS version, current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standbys,
    (SELECT count(*) FROM pg_stat_replication) AS standbys,
    current_setting('max_connections')::integer AS max_connections,
    (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL) AS connections,  -- other roles hide their backend_type
    coalesce(NOT inet_server_addr() <<= ANY (ARRAY['127.0.0.0/8', '::1/128']::inet[]), false) AS is_remote,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls,
    (SELECT count(*) FROM waypost.nodes WHERE seen_at > clock_timestamp() - interval '15 seconds') AS nodes,
    extract(epoch FROM clock_timestamp())::double precision AS time"""
_STORE_GROUP = f"SELECT * FROM waypost.store_group({', '.join(f'${place}' for place in range(1, 41))})"  # noqa: S608
_TIME = "SELECT extract(epoch FROM clock_timestamp())::double precision"
_ALIVE = """WITH dead AS (
        DELETE FROM waypost.nodes WHERE node <> $1 AND (seen_at < clock_timestamp() - interval '1 day' OR
            (name = $3 AND seen_at < clock_timestamp() - interval '15 seconds'))  -- this one, before it was started again
    )
    INSERT INTO waypost.nodes (node, version, seen_at, name, revision, lag_seconds)
    VALUES ($1, $2, clock_timestamp(), $3, $4, $5) ON CONFLICT (node) DO UPDATE SET
        seen_at = excluded.seen_at, revision = excluded.revision, lag_seconds = excluded.lag_seconds"""
_NODES = """SELECT node, name, version, seen_at > clock_timestamp() - interval '15 seconds' AS alive,
    extract(epoch FROM seen_at)::double precision AS seen_at, revision, lag_seconds FROM waypost.nodes
    ORDER BY name, node LIMIT $1"""
_LEAVE = "DELETE FROM waypost.nodes WHERE node = $1"

Work = Callable[[GroupTransaction], Any]


class _Request(msgspec.Struct, eq=False):
    work: Work
    future: asyncio.Future[Any]
    fence: tuple[str, int] | None = None  # the chore and the epoch of its lease
    is_joined: bool = False  # the next request belongs to the same group


_Reply = tuple[_Request, Any, BaseException | None]


class _Settled(msgspec.Struct, frozen=True):
    """A group of this node that is in the database and in the replica, and of which nobody was told yet."""

    changes: list[CommittedChange]
    replies: Sequence[_Reply]
    move: Move
    position: int
    revision: int


def _nothing(_: str) -> None:
    """The default failpoint: does nothing."""


def _end_process() -> None:
    signal.raise_signal(signal.SIGTERM)


class PostgresqlStore(SqliteReadStore):
    """`on_history_change` is called when the replica does not fit the database any more. By default it ends the server, as
    SIGTERM does; opening the store again loads the replica."""

    def __init__(
        self,
        url: str,
        folder: Path,
        cipher: ClusterCipher,
        *,
        name: str = "",
        failpoint: Failpoint = _nothing,
        on_history_change: Callable[[], None] = _end_process,
        on_time: Callable[[float], None] = lambda seconds: None,
        on_nodes: Callable[[int], None] = lambda count: None,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        """`name` is what this node is called in lists of nodes. Every few seconds `on_time` gets the time of the database, first
        before the store is open, and `on_nodes` the number of nodes that are alive."""
        super().__init__()
        self.node = uuid.uuid4()
        self._name = name
        self._write_seconds = write_seconds
        self._statement_seconds = max(STATEMENT_SECONDS, write_seconds)
        self._database = Database(url, self._statement_seconds)
        self._log = LogConnection(self._database)
        self._cipher = cipher
        self._failpoint = failpoint
        self._on_history_change = on_history_change
        self._on_time = on_time
        self._on_nodes = on_nodes
        self._replica = Replica(folder, failpoint)
        self.leases = Leases(self._database, self.node)
        self._listener: Callable[[Sequence[CommittedChange]], None] = lambda changes: None
        self._noted: NoteListener | None = None
        self._waiting: deque[_Request] = deque()
        self._readers: list[asyncio.Future[bool]] = []
        self._reader_came = asyncio.Event()
        self._wake = asyncio.Event()
        self._advanced = asyncio.Event()  # replaced whenever the replica moves
        self._tasks: list[asyncio.Task[None]] = []
        self._group_number = 0  # of the last group of this node
        self._told_position = 0  # of the last row that listeners were told of
        self._revision = 0
        self._untold: _Settled | None = None
        self._is_open = self._is_closing = False
        self._is_away = self._is_forked = False
        self._confirmed_at = time.monotonic()
        self._echo = f"echo {self.node}"  # of a notification that this node sends to itself
        self._hears = False
        self._probe = LogConnection(self._database)
        self.stats = ClusterStats()
        self.nodes: tuple[NodeStats, ...] = ()
        self.vectors = SharedVectors(self._database, self.node, self.stats)
        self._index = SharedIndex(self._database, self._replica)

    # --- Lifecycle -------------------------------------------------------------------------------

    async def open(
        self, listener: Callable[[Sequence[CommittedChange]], None], noted: NoteListener | None = None
    ) -> None:
        self._listener, self._noted = listener, noted
        await asyncio.to_thread(self._replica.open)
        try:
            await self._load()
        except BaseException:
            await asyncio.to_thread(self._replica.close)
            await self._database.close()
            raise
        await asyncio.to_thread(self._open_readers, self._replica.path)
        self._revision = self._replica.tables.revision
        self._told_position = self._replica.position
        self._confirmed_at = time.monotonic()
        self._is_open = True
        self._tasks = [
            asyncio.create_task(self._run(), name="cluster log"),
            asyncio.create_task(self._check_heads(), name="cluster head"),
            asyncio.create_task(self._listen(), name="cluster notifications"),
            asyncio.create_task(self._stay_alive(), name="cluster membership"),
            asyncio.create_task(self._share_index(), name="cluster index"),
        ]

    async def _load(self) -> None:
        """Bring the replica to the head of the log, before anybody reads it."""
        try:
            connection = await self._database.connect(LONG_SECONDS)
        except (*DATABASE_ERRORS, ValueError) as error:
            raise start_error(error, self._database.url) from error
        try:
            await check_server(connection)
            await migrate(connection)
            await self._cipher.check(connection)
            await self._compare_clocks(connection)
            if not self._replica.is_empty and not await self._fits(connection):
                log.warning("the replica in the data folder does not fit the database; it is loaded again")
                self._replica.clear()
            if self._replica.is_empty:
                await load_index(connection, self._replica.index_folder)
                await self._replica.load(connection)
            while found := await self._fetch_log(connection):
                self._replica.apply(found)
        except DATABASE_ERRORS as error:
            raise start_error(error, self._database.url) from error
        finally:
            with suppress(*DATABASE_ERRORS):
                await connection.close(timeout=STATEMENT_SECONDS)

    async def _fits(self, connection: asyncpg.Connection) -> bool:
        return bool(await connection.fetchval(_CHECKSUM, self._replica.position) == self._replica.checksum)

    async def close(self) -> None:
        """Write and answer everything queued, then save the replica."""
        if not self._is_open or self._is_closing:
            return
        self._is_closing = True
        self._wake.set()
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        self._tell()
        self._is_open = False
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks[1:], return_exceptions=True)
        self._answer_readers(is_current=False)
        await self.leases.release()
        with suppress(*DATABASE_ERRORS):
            await self._database.fetch(_LEAVE, self.node)
        self._probe.drop()
        self._log.drop()
        async with self._thread_read_lock.alone:
            for connection in self._take_readers():
                connection.close()
            await asyncio.to_thread(self._replica.close)
        await self._database.close()

    async def healthy(self) -> bool:
        """Also while the database is away: a load balancer must not take all nodes out, because they answer reads."""
        return self._is_open and not self._is_forked

    # --- Writes ----------------------------------------------------------------------------------

    async def execute(self, command: Command) -> CommandResult:
        result: CommandResult = await self._submit(lambda tables: tables.execute(command))
        return result

    async def execute_all(self, commands: Sequence[Command]) -> list[CommandResult | WaypostError]:
        works = [partial(GroupTransaction.execute, command=command) for command in commands]
        return await gather_results(self._submit_all(works))

    def _submit(self, work: Work, fence: tuple[str, int] | None = None) -> asyncio.Future[Any]:
        (future,) = self._submit_all((work,), fence)
        return future

    def _submit_all(self, works: Sequence[Work], fence: tuple[str, int] | None = None) -> list[asyncio.Future[Any]]:
        """The works are one group."""
        if not self._is_open or self._is_closing:
            raise store_closed_error()
        if self._is_away or self._is_forked:
            raise away_error()
        if len(self._waiting) >= limits.WRITE_QUEUE:
            raise queue_full_error()
        loop, last = asyncio.get_running_loop(), len(works) - 1
        requests = [
            _Request(work, loop.create_future(), fence, is_joined=place < last) for place, work in enumerate(works)
        ]
        self._waiting.extend(requests)
        self._wake.set()
        return [request.future for request in requests]

    async def _run(self) -> None:
        """Write groups and follow the log, until the store is closed."""
        while not self._is_closing or self._waiting:
            try:
                if self._waiting and not self._is_away:
                    await self._write_group()
                else:
                    await self._follow()
                if self._replica.checkpoint_if_due():
                    await asyncio.to_thread(self._replica.checkpoint)
            except HistoryChanged as change:
                self._leave_history(str(change))
            except DATABASE_ERRORS as error:
                await self._lose_database(error)
            except sqlite3.Error as error:
                self._leave_history(f"the replica cannot be written: {error}")
            if self._is_forked:
                self._fail_waiting()
                if self._is_closing:
                    return
            if not self._waiting or self._is_forked:
                await self._pause(RECONNECT_SECONDS if self._is_away or self._is_forked else POLL_SECONDS)

    async def _pause(self, seconds: float) -> None:
        if self._is_closing:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    # --- Groups ----------------------------------------------------------------------------------

    def _take_group(self) -> list[_Request]:
        """The next requests. One with a fence is a group of its own."""
        self._wake.clear()  # a group brings the replica to the head of the log: what was heard before needs no poll
        group = [self._waiting.popleft()]
        while group[-1].is_joined or (
            group[0].fence is None
            and self._waiting
            and self._waiting[0].fence is None
            and len(group) < limits.GROUP_COMMIT_MAX
        ):
            group.append(self._waiting.popleft())
        return group

    async def _write_group(self) -> None:
        group = self._take_group()
        started_at = time.monotonic()
        attempt = 0
        try:
            while not await self._try_group(group, started_at, lock_first=attempt >= _OPTIMISTIC_ATTEMPTS):
                attempt += 1
                self.stats.lost_races += 1
                if time.monotonic() - started_at > self._write_seconds:
                    raise TimeoutError("other nodes kept changing the same agents")
                await self._advance()
        except BaseException as error:
            if self._replica.connection.in_transaction:
                self._replica.roll_back()
            failure = write_error(error) if isinstance(error, DATABASE_ERRORS) else away_error()
            for request in group:
                _answer(request.future, None, failure)
            raise

    async def _try_group(self, group: list[_Request], started_at: float, *, lock_first: bool) -> bool:
        """Decide and put a group; False if another node wrote what it read. With `lock_first` the lock that orders groups is
        taken before the decision, so that nobody can."""
        self._group_number += 1
        if not lock_first:
            replies = await self._decide(group)
            row = await self._put(group, started_at)
        else:
            async with self._log.use() as connection, connection.transaction():
                await connection.execute(
                    """SELECT set_config('lock_timeout', '1500', true),
                        set_config('idle_in_transaction_session_timeout', '5000', true), pg_advisory_xact_lock($1)""",
                    LOCK,
                )
                await self._advance(connection)
                replies = await self._decide(group)
                row = await self._call(connection, self._arguments(group))
        return await self._settle(row, replies)

    async def _decide(self, group: list[_Request]) -> list[_Reply]:
        """Decide the requests of a group. Those beyond its bytes go back to the queue."""
        tables = self._replica.tables
        self._failpoint("before_begin")
        tables.begin()
        replies: list[_Reply] = []
        for place, request in enumerate(group, 1):
            if not request.future.cancelled():
                replies.append(_decide(request, tables))
            if tables.written_bytes > _GROUP_BYTES and place < len(group) and not request.is_joined:
                self._waiting.extendleft(reversed(group[place:]))
                del group[place:]
                break
            if place % limits.GROUP_SLICE == 0:
                await asyncio.sleep(0)
        return replies

    async def _put(self, group: Sequence[_Request], started_at: float) -> asyncpg.Record:
        """Call `store_group`. A lost answer is asked for again under the same number, never guessed."""
        arguments = self._arguments(group)
        while True:
            left = self._write_seconds - (time.monotonic() - started_at)
            try:
                async with asyncio.timeout(max(left, 0.1)), self._log.use() as connection:
                    return await self._call(connection, arguments)
            except LOST:
                await self._database.forget_connections()
                if time.monotonic() - started_at + RECONNECT_SECONDS > self._write_seconds:
                    raise
                await asyncio.sleep(RECONNECT_SECONDS)

    @property
    def _source(self) -> bytes:
        """Names the last group of this node."""
        return self.node.bytes + self._group_number.to_bytes(8)

    def _arguments(self, group: Sequence[_Request]) -> list[Any]:
        tables, replica = self._replica.tables, self._replica
        chore, epoch = group[0].fence or (None, None)
        payload = tables.payload(self._source)
        return [
            self.node,
            self._group_number,
            replica.position,
            replica.checksum,
            tables.base,
            tables.reads(),
            tables.names(),
            len(tables.changes),
            payload,
            None if payload is None else hashlib.sha256(payload).digest(),
            chore,
            epoch,
            *tables.arrays(),
        ]

    async def _call(self, connection: LogConnection, arguments: list[Any]) -> asyncpg.Record:
        self._failpoint("before_commit")
        row = await connection.fetchrow(_STORE_GROUP, *arguments)
        self._failpoint("after_commit")
        return row

    async def _settle(self, row: asyncpg.Record, replies: Sequence[_Reply]) -> bool:
        replica, tables = self._replica, self._replica.tables
        status, position = row["status"], row["position_"]
        if status == "stored":
            self.stats.groups += 1
            self.stats.writes += len(replies)
            move = Move(tables.base, row["base"] - tables.base)
            if position == replica.position + 1:  # nobody wrote in between: what was decided is what was stored
                changes, noted = replica.commit(position, row["checksum_"])
                self._note(noted)
                self._tell_later(_Settled(changes, replies, move, position, tables.revision))
                return True
            decided = tables.decided(self._source)
            replica.roll_back()
            await self._advance(decided=decided)
        elif status == "unchanged":
            tables.connection.execute("COMMIT")
            tables.settle()
            self._tell()
            move = Move(0, 0)
        else:
            replica.roll_back()
            if status in ("conflict", "behind"):
                return False
            if status == "forked":
                raise HistoryChanged("the database has another history than the replica")
            for request, _, _ in replies:  # fenced: another node does this chore now
                _answer(request.future, 0, None)
            return True
        self._reply(replies, move)
        return True

    def _reply(self, replies: Sequence[_Reply], move: Move) -> None:
        self._failpoint("before_reply")
        for request, result, error in replies:
            _answer(request.future, move.result(result) if isinstance(result, CommandResult) else result, error)

    def _tell_later(self, settled: _Settled) -> None:
        """Let the next group be decided and sent first, so that the database works meanwhile. Its decision depends on the replica
        and on notes, which are told at once."""
        self._untold = settled
        asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """Tell the listeners of the last group of this node, then answer its callers."""
        settled, self._untold = self._untold, None
        if settled is not None:
            self._publish(settled.changes, settled.position, settled.revision)
            self._reply(settled.replies, settled.move)

    def _deliver(self, changes: list[CommittedChange], noted: dict[str, bytes | None]) -> None:
        """Tell the listeners of rows of the log that were applied."""
        self._tell()  # what was committed before
        self._note(noted)
        self._publish(changes, self._replica.position, self._replica.tables.revision)

    def _note(self, noted: dict[str, bytes | None]) -> None:
        if noted and self._noted is not None:
            with self._report_failure():
                self._noted(noted)

    def _publish(self, changes: list[CommittedChange], position: int, revision: int) -> None:
        """Tell the listener of changes, before their callers are answered."""
        self.end_snapshot()
        self._revision = revision
        with self._report_failure():
            if changes:
                self._listener(changes)
        self._told_position = position
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()

    @contextmanager
    def _report_failure(self) -> Iterator[None]:
        """A listener that fails costs nobody the answer."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            context = {"message": "A listener of the store failed.", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    # --- Following the log -----------------------------------------------------------------------

    async def _follow(self) -> None:
        async with asyncio.timeout(self._statement_seconds), self._log.use() as connection:
            if self._is_away and not self._is_forked:
                await self._return_to(connection)
            await self._advance(connection)

    async def _advance(self, connection: LogConnection | None = None, decided: DecidedGroup | None = None) -> None:
        """Apply the log up to its head. `decided`: the group of this node that was just stored."""
        if connection is None:
            async with self._log.use() as acquired:
                await self._advance(acquired, decided)
            return
        if self._is_forked:
            return
        while True:
            asked_at = time.monotonic()
            found = await self._fetch_log(connection)
            if found:
                self._deliver(*self._replica.apply(found, decided))
                self.stats.rows += len(found)
                self.stats.feed_lag_seconds = found[-1].age_seconds
            if len(found) < _FEED_ROWS:  # there were no more
                break
            await asyncio.sleep(0)
        self._confirmed_at = asked_at

    async def _fetch_log(self, connection: asyncpg.Connection | LogConnection) -> list[LogRow]:
        return await fetch_log(connection, self._replica.position, self._replica.checksum, _FEED_ROWS)

    async def _return_to(self, connection: LogConnection) -> None:
        """The database is back. Whether it has the same history is checked with each row of the log."""
        await self._fetch_log(connection)
        self._is_away = self.stats.is_away = False
        log.warning("the database is back")

    async def _lose_database(self, error: BaseException) -> None:
        if not self._is_away:
            self._is_away = self.stats.is_away = True
            log.error("the database is away (%s): reads go on, writes are refused", str(error) or type(error).__name__)
        self._fail_waiting()
        self._answer_readers(is_current=False)
        with suppress(*DATABASE_ERRORS):
            await self._database.forget_connections()

    def _fail_waiting(self) -> None:
        while self._waiting:
            _answer(self._waiting.popleft().future, None, away_error())

    def _leave_history(self, reason: str) -> None:
        if not self._is_forked:
            self._is_forked = True
            log.critical("%s; the node loads its replica again", reason)
            self._answer_readers(is_current=False)
            self._on_history_change()

    async def _listen(self) -> None:
        """Poll at once when another node has written. Behind a pool in transaction mode nothing is heard; polling remains."""
        while True:
            with suppress(*DATABASE_ERRORS):
                connection = await self._database.connect()
                try:
                    await connection.add_listener(CHANNEL, self._hear)
                    # From another connection: behind a pool, this one would hear only what arrives during its own statements.
                    await self._database.fetch("SELECT pg_notify($1, $2)", CHANNEL, self._echo)
                    while True:
                        await asyncio.sleep(_LISTEN_PROBE_SECONDS)
                        await connection.execute("SELECT 1")
                finally:
                    connection.terminate()
            await asyncio.sleep(_LISTEN_PROBE_SECONDS)

    def _hear(self, *notification: Any) -> None:
        if notification[-1] == self._echo:
            self._hears = True
        elif notification[-1].isdigit() and int(notification[-1]) > self._replica.position:
            self._wake.set()

    async def _stay_alive(self) -> None:
        """Tell the others that this node lives, renew its leases, and compare the clocks."""
        while True:
            with suppress(*DATABASE_ERRORS):
                lag_seconds = self.stale_seconds
                await self._database.fetch(_ALIVE, self.node, __version__, self._name, self._revision, lag_seconds)
                rows = await self._database.fetch(_NODES, limits.NODES_MAX)
                self.nodes = tuple(map(self._describe_node, rows))
                self.vectors.nodes = [row["node"] for row in rows if row["alive"]]
                self._on_nodes(max(1, sum(node.alive for node in self.nodes)))
                await self.leases.renew()
                await self._compare_clocks()
            await asyncio.sleep(RENEW_SECONDS)

    def _describe_node(self, row: asyncpg.Record) -> NodeStats:
        return NodeStats(
            name=row["name"] or str(row["node"]),
            version=row["version"],
            alive=row["alive"],
            seen_at=to_rfc3339(row["seen_at"]),
            revision=row["revision"],
            lag_seconds=round(row["lag_seconds"], 3),
            this=row["node"] == self.node,
        )

    async def _compare_clocks(self, connection: asyncpg.Connection | None = None) -> None:
        started_at = time.monotonic()
        if connection is None:
            ((there,),) = await self._database.fetch(_TIME)
        else:
            there = await connection.fetchval(_TIME)
        self._on_time(there + (time.monotonic() - started_at) / 2)

    async def _share_index(self) -> None:
        """Leave the search index for nodes that start with an empty folder. One node does it."""
        while True:
            await asyncio.sleep(INDEX_SECONDS)
            if not self._is_forked and await self.may_do("index files"):
                with suppress(*DATABASE_ERRORS):  # or OSError: the next round copies what replaced the files
                    await self._index.save()

    # --- Reads that see what other nodes acknowledged --------------------------------------------

    @property
    def position(self) -> int:
        return self._told_position

    async def confirm_reads(self, position: int = 0) -> float | None:
        """Wait until the replica has every change that any node acknowledged before this call. If the database is away or
        slow: how many seconds ago the replica was known to be complete. Every position that was given to anybody is included."""
        return None if await self._confirm() else self.stale_seconds

    async def estimate_staleness(self, position: int = 0) -> float | None:
        """The same without asking the database, unless the replica has not reached the position: None while it follows the
        log in time."""
        if position > self._told_position:
            return await self.confirm_reads()
        age = self.stale_seconds
        return None if age < _BOUND_SECONDS and not self._is_away and not self._is_forked else age

    async def _confirm(self) -> bool:
        if self._is_away or self._is_forked or not self._is_open:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._readers.append(future)
        self._reader_came.set()
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await future
        except TimeoutError:
            return False

    @property
    def has_other_history(self) -> bool:
        """Whether the replica does not fit the database any more: it is to be opened again, which loads it."""
        return self._is_forked

    @property
    def stale_seconds(self) -> float:
        """How long ago the replica was known to be complete."""
        return time.monotonic() - self._confirmed_at

    async def _check_heads(self) -> None:
        """One check for all reads that wait: each is sent after they arrived."""
        while True:
            await self._reader_came.wait()
            self._reader_came.clear()
            readers, self._readers = self._readers, []
            asked_at = time.monotonic()
            try:
                await self._compare_with_head()
                self._confirmed_at = max(asked_at, self._confirmed_at)
                is_current = True
            except (*DATABASE_ERRORS, WaypostError):
                is_current = False
                self._wake.set()  # the other task finds out whether the database is away
            for future in readers:
                if not future.done():
                    future.set_result(is_current)

    async def _compare_with_head(self) -> None:
        """On a connection of its own: every read waits for this."""
        async with self._probe.use() as probe:
            is_behind = await probe.has_row(_LOG_AFTER, self._told_position)
            head = (await probe.fetch(_HEAD))[0][0] if is_behind else None
        if head is not None:
            await self._reach(head)

    async def _reach(self, head: int) -> None:
        async with asyncio.timeout(self._statement_seconds):
            while self._told_position < head:
                advanced = self._advanced
                self._wake.set()
                await advanced.wait()

    def _answer_readers(self, *, is_current: bool) -> None:
        readers, self._readers = self._readers, []
        for future in readers:
            if not future.done():
                future.set_result(is_current)

    async def inspect_database(self) -> DatabaseFacts:
        """For `waypost doctor`."""
        try:
            (row,) = await self._database.fetch(_FACTS)
        except DATABASE_ERRORS:
            return DatabaseFacts(is_away=True)
        skew = time.time() - row["time"]
        return DatabaseFacts(
            **{name: value for name, value in row.items() if name != "time"}, hears=self._hears, skew_seconds=skew
        )

    async def may_do(self, chore: str) -> bool:
        """Whether this node is to do a chore that one node of the cluster does."""
        return await self.leases.claim(chore) is not None

    # --- Other -----------------------------------------------------------------------------------

    async def revision(self) -> int:
        if not self._is_open:
            raise store_closed_error()
        return self._revision

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        try:
            async with self._database.acquire() as connection:
                value = await self._cipher.get_secret(connection, name, make)
        except DATABASE_ERRORS as error:
            raise read_error(error) from error
        return bytes(await self._submit(lambda tables: tables.secret(name, lambda: value)))  # for worker processes

    async def prune(
        self,
        *,
        events_before: float,
        keep_events: int,
        now: float,
        keep_audit: int = limits.AUDIT_KEEP,
        keep_bytes: int = limits.WATCH_KEEP_BYTES,
    ) -> int:
        """Prune every replica through the log, then the database. One node does it."""
        epoch = await self.leases.claim("prune")
        if epoch is None:
            return 0

        def work(tables: GroupTransaction) -> int:
            return tables.prune(
                events_before=events_before,
                keep_events=keep_events,
                now=now,
                keep_audit=keep_audit,
                keep_bytes=keep_bytes,
            )

        total = 0
        while count := await self._submit(work, ("prune", epoch)):
            total += count
        try:
            await self._prune_database(now)
        except DATABASE_ERRORS as error:
            raise write_error(error) from error
        return total

    async def _prune_database(self, now: float) -> None:
        """Remove what no replica has any more. Repeating it removes nothing else."""
        pruned, oldest, tiles = await self._read_apart(lambda reader: _pruned_parts(reader.connection))
        async with self._database.acquire() as connection, connection.transaction():
            await connection.execute(
                """INSERT INTO waypost.meta VALUES ('pruned', $1)
                ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value, excluded.value)""",
                pruned,
            )
            await connection.execute(
                """DELETE FROM waypost.log WHERE last_revision <= $1 AND position <=
                (SELECT max(position) FROM waypost.log) - $2""",
                pruned,
                _LOG_ROWS_KEPT,
            )
            await connection.execute("DELETE FROM waypost.tombstones WHERE forget_at <= $1", now)
            await connection.execute("DELETE FROM waypost.answers WHERE forget_at <= $1", now)
            if oldest > 1:
                await connection.executemany(
                    "INSERT INTO waypost.audit_tiles VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING", tiles
                )
                await connection.execute("DELETE FROM waypost.audit WHERE number < $1", oldest)


def _pruned_parts(connection: sqlite3.Connection) -> tuple[int, int, list[tuple[int, int, bytes, bytes]]]:
    """The last pruned revision, the oldest audit entry that is left, and all full tiles of the trail."""
    ((pruned, oldest),) = connection.execute(
        """SELECT coalesce((SELECT value FROM meta WHERE name = 'pruned'), 0),
        coalesce((SELECT min(number) FROM audit), 1)"""
    ).fetchall()
    tiles = connection.execute("SELECT level, number, root, hashes FROM audit_tiles").fetchall() if oldest > 1 else []
    return pruned, oldest, tiles


def _decide(request: _Request, tables: GroupTransaction) -> _Reply:
    try:
        return request, request.work(tables), None
    except WaypostError as refusal:
        return request, None, refusal
    except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError) as error:
        return request, None, InternalError(f"A row could not be written: {error}.")
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a command raises belongs to its caller, not to the group
        return request, None, error


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
