"""Rows <-> values, with checks: a damaged row is an error, never an answer."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from waypost.model.events import Event, RecordVersion
from waypost.model.registration import CatalogEntry, Registration, SourceDocument
from waypost.registry.ports import CommandResult, NewestDocument, Tombstone
from waypost.stores.commit import to_logged_event, without_documents
from waypost.stores.sqlite.database import damage_error

T = TypeVar("T")

# An entry, followed by what a renewal changes: renewed_at, ttl_seconds, lease_expires_at.
_EntryRow = tuple[CatalogEntry, float, int | None, float | None]

Bare = Literal[0]
BARE: Bare = 0  # placeholder for documents that were not requested; NULL would be damage


class _GistSource(msgspec.Struct, gc=False):
    dialect: str
    digest: str


class _GistRecord(msgspec.Struct, gc=False):
    id: str


class _Gist(msgspec.Struct, gc=False):
    """The part of a registration that one document needs; the decoder skips the rest."""

    record: _GistRecord
    etag: str
    sources: tuple[_GistSource, ...] = ()


_encode = msgspec.json.Encoder().encode
_gist_decoder = msgspec.json.Decoder(_Gist)
_entry_decoder: msgspec.json.Decoder[_EntryRow] = msgspec.json.Decoder(_EntryRow)
_entries_decoder: msgspec.json.Decoder[list[_EntryRow]] = msgspec.json.Decoder(list[_EntryRow])
_registration_decoder = msgspec.json.Decoder(Registration)
_event_decoder = msgspec.json.Decoder(Event)
_tombstone_decoder = msgspec.json.Decoder(Tombstone)
_answer_decoder = msgspec.json.Decoder(CommandResult)
_documents_encode = msgspec.msgpack.Encoder().encode
_version_encode = msgspec.msgpack.Encoder().encode
_version_decoder = msgspec.msgpack.Decoder(RecordVersion)
_documents_decoder = msgspec.msgpack.Decoder(list[bytes])


def _is_intact(data: object, crc: int) -> bool:
    """A flipped bit can also change the type of a column."""
    return isinstance(data, bytes) and zlib.crc32(data) == crc


def checked(decoder: msgspec.json.Decoder[T], data: bytes, crc: int, what: str) -> T:
    if not _is_intact(data, crc):
        raise damage_error(what)
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise damage_error(f"{what} ({error})") from None


# --- Entries and registrations --------------------------------------------------------------------


def entry_row(entry: CatalogEntry, registration: Registration) -> bytes:
    return _encode(
        (
            entry,
            registration.renewed_at,
            registration.ttl_seconds,
            registration.lease_expires_at,
        )
    )


def read_entries(found: Sequence[tuple[str, bytes, int]]) -> list[CatalogEntry]:
    """Decode many entries as one array: a start reads all of them."""
    if not found:
        return []
    ids, rows, checksums = zip(*found, strict=True)
    try:
        if list(map(zlib.crc32, rows)) == list(checksums):
            entries = [row[0] for row in _entries_decoder.decode(b"[%s]" % b",".join(rows))]
            if [entry.id for entry in entries] == list(ids):
                return entries
    except (TypeError, msgspec.MsgspecError):
        pass  # some row is damaged; find out which one
    return [_read_entry(*row) for row in found]


def _read_entry(agent_id: str, data: bytes, crc: int) -> CatalogEntry:
    entry = checked(_entry_decoder, data, crc, f"the entry of {agent_id!r}")[0]
    if entry.id != agent_id:
        raise damage_error(f"the entry of {agent_id!r} is that of another agent")
    return entry


def registration_row(registration: Registration) -> tuple[bytes, bytes]:
    """The registration without its documents, and the documents."""
    documents = _documents_encode([source.document for source in registration.sources])
    return _encode(without_documents(registration)), documents


def read_registration(
    agent_id: str, entry: tuple[bytes, int], registration: tuple[bytes | None, int], documents: bytes | Bare
) -> Registration:
    """A registration from its two rows; each document is verified against its digest, unless it is read without them."""
    brief, renewed_at, ttl_seconds, lease_expires_at = checked(_entry_decoder, *entry, f"the entry of {agent_id!r}")
    data, crc = registration
    if data is None:
        raise damage_error(f"the registration of {agent_id!r} is missing")
    value = checked(_registration_decoder, data, crc, f"the registration of {agent_id!r}")
    if value.record.id != agent_id or brief.id != agent_id:
        raise damage_error(f"the registration of {agent_id!r} is that of another agent")
    sources = value.sources if documents == BARE else _with_documents(agent_id, value.sources, documents)
    return msgspec.structs.replace(
        value,
        revision=brief.revision,
        renewed_at=renewed_at,
        ttl_seconds=ttl_seconds,
        lease_expires_at=lease_expires_at,
        sources=sources,
    )


def read_document(agent_id: str, dialect: str, registration: bytes, documents: bytes) -> tuple[str, bytes] | None:
    """One document of a registration, or None. It is verified against its digest; other damage does not affect the answer.
    Raises `LookupError` if the row belongs to another agent."""
    try:
        gist = _gist_decoder.decode(registration)
        held = _documents_decoder.decode(documents)
    except (msgspec.MsgspecError, TypeError) as error:
        raise damage_error(f"the registration of {agent_id!r} ({error})") from None
    if gist.record.id != agent_id:
        raise LookupError(agent_id)
    for place, source in enumerate(gist.sources):
        if source.dialect == dialect:
            if len(held) != len(gist.sources):
                raise damage_error(f"the documents of {agent_id!r} are incomplete")
            return gist.etag, _matching(agent_id, dialect, source.digest, held[place])
    return None


def read_newest(registration: bytes, documents: bytes) -> tuple[str, NewestDocument] | None:
    """The id of an agent and its newest document; None if it has none."""
    try:
        gist = _gist_decoder.decode(registration)
        held = _documents_decoder.decode(documents)
    except (msgspec.MsgspecError, TypeError) as error:
        raise damage_error(f"a registration ({error})") from None
    agent_id = gist.record.id
    if not gist.sources:
        return None
    if len(held) != len(gist.sources):
        raise damage_error(f"the documents of {agent_id!r} are incomplete")
    source = gist.sources[0]
    document = _matching(agent_id, source.dialect, source.digest, held[0])
    return agent_id, NewestDocument(gist.etag, source.dialect, document)


def _with_documents(
    agent_id: str, sources: tuple[SourceDocument, ...], data: bytes | Bare
) -> tuple[SourceDocument, ...]:
    documents = _documents(agent_id, data, len(sources))
    return tuple(
        msgspec.structs.replace(source, document=_matching(agent_id, source.dialect, source.digest, document))
        for source, document in zip(sources, documents, strict=True)
    )


def _documents(agent_id: str, data: bytes | Bare, count: int) -> list[bytes]:
    if not isinstance(data, bytes):
        raise damage_error(f"the documents of {agent_id!r}")
    try:
        documents = _documents_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise damage_error(f"the documents of {agent_id!r} ({error})") from None
    if len(documents) != count:
        raise damage_error(f"the documents of {agent_id!r} are incomplete")
    return documents


def _matching(agent_id: str, dialect: str, digest: str, document: bytes) -> bytes:
    if hashlib.sha256(document).hexdigest() != digest:
        raise damage_error(f"the {dialect} document of {agent_id!r} does not match its digest")
    return document


# --- Events, tombstones, answers, versions, notes, secrets ----------------------------------------


def event_row(event: Event) -> tuple[int, float, bytes, int, bytes | None]:
    data = _encode(msgspec.structs.replace(event, record=None))
    record = to_logged_event(event).record
    return event.revision, event.at, data, zlib.crc32(record or b"", zlib.crc32(data)), record


def read_event(revision: int, data: bytes, crc: int, record: bytes | None) -> Event:
    what = f"the event {revision}"
    if not isinstance(data, bytes) or not isinstance(record, bytes | None):
        raise damage_error(what)
    if zlib.crc32(record or b"", zlib.crc32(data)) != crc:
        raise damage_error(what)
    event = checked(_event_decoder, data, zlib.crc32(data), what)
    if event.revision != revision:
        raise damage_error(what)
    return msgspec.structs.replace(event, record=record)


def tombstone_row(tombstone: Tombstone) -> tuple[str, float, bytes, int]:
    data = _encode(tombstone)
    return tombstone.id, tombstone.forget_at, data, zlib.crc32(data)


def read_tombstone(agent_id: str, data: bytes, crc: int) -> Tombstone:
    tombstone = checked(_tombstone_decoder, data, crc, f"the tombstone of {agent_id!r}")
    if tombstone.id != agent_id:
        raise damage_error(f"the tombstone of {agent_id!r}")
    return tombstone


def answer_row(answer: CommandResult) -> tuple[bytes, int]:
    data = _encode(answer)
    return data, zlib.crc32(data)


def read_answer(data: bytes, crc: int) -> CommandResult:
    return checked(_answer_decoder, data, crc, "a stored answer")


def version_row(agent_id: str, version: RecordVersion) -> tuple[int, str, bytes, int]:
    data = _version_encode(version)
    return version.revision, agent_id, data, zlib.crc32(data, zlib.crc32(agent_id.encode()))


def read_version(agent_id: str, revision: int, data: bytes, crc: int) -> RecordVersion:
    what = f"the version {revision} of {agent_id!r}"
    if not isinstance(data, bytes) or zlib.crc32(data, zlib.crc32(agent_id.encode())) != crc:
        raise damage_error(what)
    try:
        version = _version_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise damage_error(f"{what} ({error})") from None
    if version.revision != revision:
        raise damage_error(what)
    return version


def note_row(name: str, value: bytes) -> tuple[str, bytes, int]:
    return name, value, zlib.crc32(value, zlib.crc32(name.encode()))


def read_note(name: str, value: bytes, crc: int) -> bytes:
    if not isinstance(value, bytes) or zlib.crc32(value, zlib.crc32(name.encode())) != crc:
        raise damage_error(f"the note {name!r}")
    return value


def read_secret(name: str, value: bytes, crc: int) -> bytes:
    if not isinstance(value, bytes) or zlib.crc32(value, zlib.crc32(name.encode())) != crc:
        raise damage_error(f"the secret {name!r}")
    return value


def secret_row(name: str, value: bytes) -> tuple[str, bytes, int]:
    return name, value, zlib.crc32(value, zlib.crc32(name.encode()))
