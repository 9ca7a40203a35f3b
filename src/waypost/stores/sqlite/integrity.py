"""Integrity of the SQLite files: structure, checksum of every row, audit tree, write-ahead log; and consistent copies of them.

A check reads in one transaction and changes nothing, so it also runs while the service writes. SQLite verifies neither row
contents (hence the checksums) nor that its log is complete: a damaged frame ends the recovery, and the commits after it would
be lost without a word. `find_lost_commits` detects that.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from waypost.errors import StoreUnavailable
from waypost.files import open_private
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.audit import audit_hashes, audit_size, read_entry, read_tile
from waypost.stores.sqlite.database import FILE_NAME, damage_error, open_reader
from waypost.trust.transparency_log import TILE_WIDTH, leaf_hash

_MOST_PROBLEMS = 20  # of one table; the file is lost anyway
_HEADER_BYTES = 100
_TREE = re.compile(r"Tree (\d+) (?:page (\d+))?")


class DamageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One damaged place."""

    file: str
    where: str  # a table, a page, a row or a block
    message: str
    hint: str


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a store at one revision. Equal digests mean equal agents: records, documents and leases."""

    agents: int
    revision: int
    audit_entries: int
    digest: str  # SHA-256, hex


_RESTORE = "Restore the newest backup into an empty folder: `waypost restore FILE --data DIR`."


def copy_database(source: Path, target: Path) -> None:
    """A consistent copy with mode 0600, also while other processes write. Raises sqlite3.Error and OSError."""
    open_private(target).close()
    reading = open_reader(source)
    try:
        writing = sqlite3.connect(target, isolation_level=None)
        try:
            reading.backup(writing)  # in one step: other writers go on in the log, the copy sees one state
            writing.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log beside it
        finally:
            writing.close()
    finally:
        reading.close()


def open_for_check(path: Path) -> sqlite3.Connection:
    """A reading connection that changes nothing. On a read-only disk, where SQLite cannot create its shared-memory file, a
    database without a log is read directly."""
    connection = open_reader(path)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
    return connection


def check_database(path: Path) -> list[DamageReport]:
    """All damage of one file."""
    found = [_problem(path, "write-ahead log", lost)] if (lost := find_lost_commits(path)) else []
    if _is_truncated(path):
        found.append(_problem(path, "whole file", "its size is not a number of whole pages: it was truncated"))
    try:
        connection = open_for_check(path)
    except (sqlite3.Error, OSError) as error:
        return [*found, _problem(path, "whole file", str(error))]
    try:
        connection.execute("BEGIN")
        found += _check_structure(connection, path)
        for name, check in _CHECKS if path.name == FILE_NAME else _KEY_VALUE_CHECKS:
            found += islice(_run_check(connection, path, name, check), _MOST_PROBLEMS)
    except sqlite3.Error as error:
        found.append(_problem(path, "whole file", str(error)))
    finally:
        connection.close()
    return list(dict.fromkeys(found))


def _is_truncated(path: Path) -> bool:
    """SQLite detects truncation in whole pages only, and treats an empty file as new."""
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    size = path.stat().st_size
    if len(header) < _HEADER_BYTES:
        return size > 0
    page_bytes = int.from_bytes(header[16:18], "big")
    return size % (65536 if page_bytes == 1 else page_bytes or 1) != 0


def summarize(path: Path) -> AgentSummary:
    """Count and hash the agents. Raises sqlite3.Error and StoreUnavailable."""
    connection = open_for_check(path)
    try:
        connection.execute("BEGIN")
        digest, agents = hashlib.sha256(), 0
        for agent_id, *blobs in connection.execute(_AGENTS):
            agents += 1
            if not isinstance(agent_id, str) or not all(isinstance(blob, bytes) for blob in blobs):
                raise damage_error(f"the rows of {agent_id!r} are incomplete")
            for part in (agent_id.encode(), *blobs):
                digest.update(len(part).to_bytes(8, "big") + part)
        ((newest, pruned),) = connection.execute(
            "SELECT (SELECT max(revision) FROM events), (SELECT value FROM meta WHERE name = 'pruned')"
        ).fetchall()
        return AgentSummary(
            agents=agents,
            revision=max(newest or 0, pruned or 0),
            audit_entries=audit_size(connection),
            digest=digest.hexdigest(),
        )
    finally:
        connection.close()


_AGENTS = """SELECT e.id, e.entry, r.registration, r.documents FROM entries e LEFT JOIN registrations r USING (number)
    ORDER BY e.id"""

# --- Structure ------------------------------------------------------------------------------------


def _check_structure(connection: sqlite3.Connection, path: Path) -> Iterator[DamageReport]:
    """Of all at once; if SQLite gives up, of each table."""
    roots = _tables_by_root(connection)
    tables = [name.split(" ")[1] for name in roots.values() if name.startswith("table ")]
    try:
        messages = [("structure", line) for line in _integrity_messages(connection, str(_MOST_PROBLEMS))]
    except sqlite3.DatabaseError as error:
        messages = [("structure", str(error)), *(each for name in tables for each in _check_table(connection, name))]
    for where, message in messages:
        yield _problem(path, _name_place(message, roots) or where, message)


def _check_table(connection: sqlite3.Connection, name: str) -> list[tuple[str, str]]:
    try:
        return [(f"table {name}", line) for line in _integrity_messages(connection, name)]
    except sqlite3.DatabaseError as error:
        return [(f"table {name}", str(error))]


def _integrity_messages(connection: sqlite3.Connection, what: str) -> list[str]:
    found = [str(row[0]) for row in connection.execute(f"PRAGMA integrity_check({what})")]
    lines = [line for each in found for line in each.splitlines()]
    return [line for line in lines if line != "ok" and not line.startswith("*** in database")]


def _tables_by_root(connection: sqlite3.Connection) -> dict[int, str]:
    try:
        return dict(connection.execute("SELECT rootpage, type || ' ' || name FROM sqlite_schema WHERE rootpage"))
    except sqlite3.DatabaseError:
        return {}


def _name_place(message: str, roots: dict[int, str]) -> str:
    """SQLite names the tree by its first page; empty if it names none."""
    found = _TREE.search(message)
    if found is None:
        return ""
    table = roots.get(int(found[1]), f"tree {found[1]}")
    return f"{table}, page {found[2]}" if found[2] else table


# --- Rows -----------------------------------------------------------------------------------------

RowCheck = Callable[[sqlite3.Connection], Iterable[Callable[[], Any]]]


def _run_check(connection: sqlite3.Connection, path: Path, table: str, check: RowCheck) -> Iterator[DamageReport]:
    try:
        for verify in check(connection):
            try:
                verify()
            except StoreUnavailable as error:
                yield _problem(path, f"table {table}", error.message)
            except (ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:  # a column of another type
                yield _problem(path, f"table {table}", f"a row cannot be read: {error}")
    except sqlite3.Error as error:
        yield _problem(path, f"table {table}", str(error))


def _agents(connection: sqlite3.Connection) -> Iterator[Callable[[], Any]]:
    statement = """SELECT e.id, e.entry, e.crc, r.registration, r.crc, r.documents
        FROM entries e LEFT JOIN registrations r USING (number) ORDER BY e.id"""
    for row in connection.execute(statement):
        yield partial(_check_agent, connection, *row)
    for (number,) in connection.execute(
        "SELECT number FROM registrations WHERE number NOT IN (SELECT number FROM entries)"
    ):
        yield partial(_fail, f"the registration {number} belongs to no agent")


def _check_agent(
    connection: sqlite3.Connection, agent_id: str, entry: bytes, crc: int, data: bytes, data_crc: int, documents: bytes
) -> None:
    registration = rows.read_registration(agent_id, (entry, crc), (data, data_crc), documents)
    for alias in registration.aliases:
        if not connection.execute("SELECT 1 FROM aliases WHERE alias = ?", (alias,)).fetchall():
            _fail(f"the alias {alias!r} of {agent_id!r} is missing")


def _aliases(connection: sqlite3.Connection) -> Iterator[Callable[[], Any]]:
    statement = """SELECT a.alias, a.id, r.registration FROM aliases a LEFT JOIN entries e ON e.id = a.id
        LEFT JOIN registrations r USING (number)"""
    for row in connection.execute(statement):
        yield partial(_check_alias, *row)


class _Aliases(msgspec.Struct):
    aliases: tuple[str, ...] = ()


_aliases_decoder = msgspec.json.Decoder(_Aliases)


def _check_alias(alias: str, agent_id: str, registration: bytes | None) -> None:
    if registration is None or alias not in _aliases_decoder.decode(registration).aliases:
        _fail(f"the alias {alias!r} names {agent_id!r}, which does not have it")


def _events(connection: sqlite3.Connection) -> Iterator[Callable[[], Any]]:
    before: int | None = None
    for row in connection.execute("SELECT revision, event, crc, record FROM events ORDER BY revision"):
        if before is not None and row[0] != before + 1:
            yield partial(_fail, f"events before revision {row[0]} are missing")
        before = row[0]
        yield partial(rows.read_event, *row)


def _audit_entries(connection: sqlite3.Connection) -> Iterator[Callable[[], Any]]:
    before: int | None = None
    for row in connection.execute("SELECT number, leaf, crc FROM audit ORDER BY number"):
        if before is not None and row[0] != before + 1:
            yield partial(_fail, f"audit entries before {row[0]} are missing")
        before = row[0]
        yield partial(_check_leaf, connection, *row)


def _check_leaf(connection: sqlite3.Connection, number: int, leaf: bytes, crc: int) -> None:
    """The leaf itself, and once per tile whether the tile has the hashes of its leaves."""
    read_entry(number, leaf, crc)
    if number % TILE_WIDTH:
        return
    tile = number // TILE_WIDTH - 1
    leaves = connection.execute(
        "SELECT leaf FROM audit WHERE number > ? AND number <= ? ORDER BY number", (number - TILE_WIDTH, number)
    ).fetchall()
    if len(leaves) == TILE_WIDTH and b"".join(leaf_hash(each) for (each,) in leaves) != read_tile(connection, 0, tile):
        _fail(f"tile {tile} of the audit trail does not match its entries")


def _audit_tree(connection: sqlite3.Connection) -> Iterator[Callable[[], Any]]:
    for row in connection.execute("SELECT level, number FROM audit_tiles ORDER BY level, number"):
        yield partial(read_tile, connection, *row)
    yield lambda: audit_hashes(connection, [(0, audit_size(connection))])


def _each(statement: str, read: Callable[..., Any]) -> RowCheck:
    def check(connection: sqlite3.Connection) -> Iterator[Callable[[], Any]]:
        for row in connection.execute(statement):
            yield partial(read, *row)

    return check


def _check_value(key: str, crc: int, value: bytes) -> None:
    if not isinstance(value, bytes) or zlib.crc32(value) != crc:
        _fail(f"the value of {key!r}")


def _fail(what: str) -> None:
    raise damage_error(what)


_CHECKS: tuple[tuple[str, RowCheck], ...] = (
    ("registrations", _agents),
    ("aliases", _aliases),
    ("tombstones", _each("SELECT id, tombstone, crc FROM tombstones", rows.read_tombstone)),
    ("events", _events),
    ("answers", _each("SELECT answer, crc FROM answers", rows.read_answer)),
    ("secrets", _each("SELECT name, value, crc FROM secrets", rows.read_secret)),
    ("notes", _each("SELECT name, value, crc FROM notes", rows.read_note)),
    ("history", _each("SELECT id, revision, version, crc FROM history", rows.read_version)),
    ("audit", _audit_entries),
    ("audit_tiles", _audit_tree),
)
_KEY_VALUE_CHECKS: tuple[tuple[str, RowCheck], ...] = (
    ("things", _each("SELECT key, crc, value FROM things", _check_value)),
)

# --- Write-ahead log ------------------------------------------------------------------------------
# File format of SQLite: a header of 32 bytes, then frames: a header of 24 bytes and a page. A frame belongs to the log if it has
# the salts of the log header; one with the size of the database in it ends a transaction.

_LOG_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_RECOVERED_AT = 16  # in the shared-memory file: the number of frames that SQLite has recovered, in native byte order


def find_lost_commits(path: Path) -> str | None:
    """Describe commits in the log of a database that SQLite cannot read because an earlier frame is damaged; None if there are
    none. A commit is synchronised before the next one is written, so a commit that is followed by frames was complete."""
    log = path.with_name(f"{path.name}-wal")
    for _ in range(3):
        before = _log_header(log)
        if before is None:
            return None
        if not _is_header_intact(before):
            return f"the header of {log.name} is damaged: the acknowledged changes in it cannot be read"
        frames, commits = _read_frames(log, before)
        recovered = _recovered_frames(path)
        if _log_header(log) != before:
            continue  # a checkpoint has restarted the log meanwhile
        commits = [number for number in commits if number < frames]
        if recovered is None or not commits or commits[-1] <= recovered:
            return None
        lost = sum(number > recovered for number in commits)
        return (
            f"{log.name} is damaged after frame {recovered} of {frames}: {lost} or more acknowledged changes "
            "after it cannot be read"
        )
    return None


def _log_header(log: Path) -> tuple[int, ...] | None:
    try:
        with log.open("rb") as file:
            header = file.read(_LOG_HEADER.size)
    except FileNotFoundError:
        return None
    if len(header) < _LOG_HEADER.size:
        return None
    return _LOG_HEADER.unpack(header)


def _is_header_intact(header: tuple[int, ...]) -> bool:
    """The last two words are a checksum of the others. An odd magic number means that it was computed in big-endian order."""
    if header[0] not in _LOG_MAGIC:
        return False
    words = header[:6] if header[0] & 1 else struct.unpack("<6I", struct.pack(">6I", *header[:6]))
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return (first, second) == header[6:]


def _read_frames(log: Path, header: tuple[int, ...]) -> tuple[int, list[int]]:
    """The number of the last frame of the log, and those of the frames that end a transaction. Frames with other salts are
    damaged, or left over from before the log was restarted."""
    _magic, _version, page_bytes, _sequence, *salts, _sum1, _sum2 = header
    last, commits, number = 0, [], 0
    with log.open("rb") as file:
        file.seek(_LOG_HEADER.size)
        while len(head := file.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
            number += 1
            _page, size, *found, _sum1, _sum2 = _FRAME_HEADER.unpack(head)
            if found == salts:
                last = number
                if size:
                    commits.append(number)
            file.seek(page_bytes, 1)
    return last, commits


def _recovered_frames(path: Path) -> int | None:
    """How many frames SQLite reads: opening the database recovers the log into the shared-memory file."""
    try:
        connection = open_reader(path)
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with path.with_name(f"{path.name}-shm").open("rb") as file:
                file.seek(_RECOVERED_AT)
                return int(struct.unpack("=I", file.read(4))[0])
        finally:
            connection.close()
    except (sqlite3.Error, OSError, struct.error):
        return None


def _problem(path: Path, where: str, message: str) -> DamageReport:
    return DamageReport(file=path.name, where=where, message=message.rstrip("."), hint=_RESTORE)
