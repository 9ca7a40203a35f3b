"""Integrity of every file in a data folder, for `waypost check`: databases, search index, keys, tokens, documents.

Nothing is changed, and the service may run meanwhile.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from waypost.app.core import MODELS_FOLDER
from waypost.app.service_keys import (
    ADMIN_TOKEN,
    CURSOR_KEY,
    IDENTITY_KEY,
    TOKEN_KEY,
    admin_token_id,
    has_check,
    parse_admin_token,
    parse_cursor_key,
)
from waypost.errors import ConfigurationError, WaypostError
from waypost.registry.audit_trail import SERVICE_KEYS_NOTE
from waypost.search.index.storage import DamagedFile, SegmentDirectory, SegmentFile, read_arrays
from waypost.settings import ADMIN_TOKEN_FILE, DATABASES, INDEX_FOLDER
from waypost.stores.sqlite import rows
from waypost.stores.sqlite.integrity import AgentSummary, DamageReport, check_database, open_for_check, summarize
from waypost.trust.encodings import encode_base64url
from waypost.trust.jwt import load_token_key
from waypost.trust.keys.private_key import load_private_key
from waypost.trust.keys.public_key import from_native

_REBUILT = "Start the service: it makes the index again from the records. Nothing is lost."
_RECOMPUTED = "Start the service: it computes the file again. Nothing is lost."
_KEY_HINT = (
    "Restore the file from a backup. Without one, remove it: the next start makes a new key, and what the old key signed is "
    "no longer accepted."
)
_OTHER_SECRET = "it is not the one that the service used last"
_TOKEN_HINT = (
    "If you replaced it, start the service, which then uses it. Else restore the file from a backup, or remove it: the next "
    "start makes a new token."
)
_JSON_FOLDERS = ("announced", "checkpoints", "dns")
_ATTEMPTS = 5  # a running service replaces index files at any time


class CheckedFile(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    state: str  # ok, damaged or missing
    bytes: int


class IntegrityReport(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    data: str
    files: tuple[CheckedFile, ...]
    problems: tuple[DamageReport, ...]
    summary: AgentSummary | None  # None if the records cannot be read


def check_data_folder(data: Path) -> IntegrityReport:
    if not (data / DATABASES[0]).is_file():
        raise ConfigurationError(
            f"There is no {DATABASES[0]} in {data}.",
            path="data",
            hint="Name the data folder of the service with --data. A service with `store = memory` keeps nothing.",
        )
    files: list[CheckedFile] = []
    problems: list[DamageReport] = []
    for name in DATABASES:
        _record(files, problems, data, name, check_database(data / name) if (data / name).exists() else [])
    summary = _summarize(data / DATABASES[0])
    known = _read_key_ids(data / DATABASES[0])
    _record(files, problems, data, ADMIN_TOKEN_FILE, _check_admin_token(data, known))
    for check in (partial(_check_keys, known=known), _check_capabilities, _check_json, _check_models):
        for name, found in check(data):
            _record(files, problems, data, name, found)
    for name, found in _check_index(data, summary):
        _record(files, problems, data, name, found)
    return IntegrityReport(
        ok=not problems, data=str(data), files=tuple(files), problems=tuple(problems), summary=summary
    )


def _record(
    files: list[CheckedFile], problems: list[DamageReport], data: Path, name: str, found: list[DamageReport]
) -> None:
    try:
        size = (data / name).stat().st_size
    except OSError:
        size = 0
    state = "damaged" if found else "ok" if (data / name).exists() else "missing"
    files.append(CheckedFile(file=name, state=state, bytes=size))
    problems += found


def _summarize(path: Path) -> AgentSummary | None:
    try:
        return summarize(path)
    except (sqlite3.Error, OSError, WaypostError):
        return None


# --- Keys and tokens ------------------------------------------------------------------------------

FileProblems = Iterator[tuple[str, list[DamageReport]]]


def _check_file(data: Path, name: str, check: Callable[[bytes], object], hint: str = _KEY_HINT) -> list[DamageReport]:
    try:
        check((data / name).read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError, WaypostError) as error:
        message = error.message if isinstance(error, WaypostError) else str(error)
        return [DamageReport(file=name, where="whole file", message=message.rstrip("."), hint=hint)]
    return []


def _read_key_ids(database: Path) -> dict[str, str]:
    """The ids of the keys that the service used last, which it notes for the audit trail."""
    try:
        with closing(open_for_check(database)) as connection:
            row = connection.execute(
                "SELECT name, value, crc FROM notes WHERE name = ?", (SERVICE_KEYS_NOTE,)
            ).fetchone()
        return {} if row is None else msgspec.json.decode(rows.read_note(*row), type=dict[str, str])
    except (sqlite3.Error, OSError, WaypostError, msgspec.MsgspecError):
        return {}  # damage of the database is reported for itself


def _check_admin_token(data: Path, known: Mapping[str, str]) -> list[DamageReport]:
    def check(content: bytes) -> None:
        parse_admin_token(content)
        if not has_check(content) and known.get(ADMIN_TOKEN, admin_token_id(content)) != admin_token_id(content):
            raise ValueError(_OTHER_SECRET)

    return _check_file(data, ADMIN_TOKEN_FILE, check, _TOKEN_HINT)


def _check_keys(data: Path, known: Mapping[str, str]) -> FileProblems:
    for path in sorted((data / "keys").rglob("*.pem")):
        name = path.relative_to(data).as_posix()
        purpose, is_current = path.name.split(".")[0], path.parent == data / "keys"
        if purpose not in (TOKEN_KEY, IDENTITY_KEY) or path.parent.name == "hosted":
            yield name, _check_file(data, name, _check_key)
        else:
            yield (
                name,
                _check_file(data, name, partial(_check_own_key, key_id=known.get(purpose) if is_current else None)),
            )
    for path in sorted((data / "keys").rglob(f"{CURSOR_KEY}*.key")):
        name = path.relative_to(data).as_posix()
        yield name, _check_file(data, name, parse_cursor_key)


def _check_key(content: bytes) -> None:
    """The key of an agent, by `waypost keys new`, or of a hosted domain. One from elsewhere has no fingerprint."""
    key = load_private_key(content)
    if key.public.key_id.encode() in content and content != key.key_file():
        raise ValueError("the text in front of the key is damaged")


def _check_own_key(content: bytes, key_id: str | None) -> None:
    """A key of an earlier release has no fingerprint in its file; then the id that the service noted tells."""
    key = load_token_key(content)
    if content.startswith(b"-----") and key_id is not None and from_native(key.public_key()).key_id != key_id:
        raise ValueError(_OTHER_SECRET)


def _check_json(data: Path) -> FileProblems:
    """What commands remember: announced agents, published zones, known checkpoints."""
    for path in sorted(path for folder in _JSON_FOLDERS for path in (data / folder).rglob("*.json")):
        name = path.relative_to(data).as_posix()
        yield name, _check_file(data, name, msgspec.json.decode, "Restore the file from a backup, or remove it.")


def _check_capabilities(data: Path) -> FileProblems:
    """Named by their digest."""
    for path in sorted((data / "capabilities").rglob("*.json")):
        name, digest = path.relative_to(data).as_posix(), path.stem

        def check(content: bytes, digest: str = digest) -> None:
            if encode_base64url(hashlib.sha256(content).digest()) != digest:
                raise ValueError("it does not match the digest in its name")

        yield name, _check_file(data, name, check, "Remove the file: an earlier document is then no longer served.")


# --- Derived files --------------------------------------------------------------------------------


def _check_index(data: Path, summary: AgentSummary | None) -> FileProblems:
    directory = SegmentDirectory(data / INDEX_FOLDER)
    found: list[tuple[str, list[DamageReport]]] = []
    for _ in range(_ATTEMPTS):
        found = list(_check_segments(directory, summary))
        if not any(problems for _, problems in found):
            break
    yield from ((f"{INDEX_FOLDER}/{name}", problems) for name, problems in found)


def _check_segments(directory: SegmentDirectory, summary: AgentSummary | None) -> FileProblems:
    name = "index.json"
    try:
        manifest = directory.read_manifest()
    except DamagedFile as error:
        yield name, [_derived(INDEX_FOLDER, name, str(error))]
        return
    if manifest is None:
        return
    ahead = summary is not None and manifest.revision > summary.revision
    yield name, [_lost_changes(manifest.revision, summary.revision)] if ahead and summary is not None else []
    for file in (file for segment in manifest.segments for file in segment.files):
        yield file.name, _check_segment(directory, file)


def _check_segment(directory: SegmentDirectory, file: SegmentFile) -> list[DamageReport]:
    try:
        directory.read(file)
    except DamagedFile as error:
        return [_derived(INDEX_FOLDER, file.name, str(error))]
    return []


def _lost_changes(indexed: int, stored: int) -> DamageReport:
    return DamageReport(
        file=DATABASES[0],
        where="newest changes",
        message=f"the search index contains changes up to revision {indexed}, the store only up to {stored}",
        hint="The store has lost acknowledged changes. Restore the newest backup, or start the service to go on without them.",
    )


def _derived(folder: str, name: str, message: str, hint: str = _REBUILT) -> DamageReport:
    return DamageReport(file=f"{folder}/{name}", where="block", message=message.rstrip("."), hint=hint)


def _check_models(data: Path) -> FileProblems:
    """Computed arrays, named by their digest."""
    for path in sorted((data / MODELS_FOLDER).glob("*.arrays")):
        name = f"{MODELS_FOLDER}/{path.name}"
        try:
            read_arrays(path, path.name.split(".")[-2])
        except DamagedFile as error:
            yield name, [_derived(MODELS_FOLDER, path.name, str(error), _RECOMPUTED)]
        else:
            yield name, []
