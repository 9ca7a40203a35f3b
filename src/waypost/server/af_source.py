"""Agents as a user's application gives them: records, documents of any dialect, or their JSON text.

Each is read once into a record, rendered once as AgentMetadata, and folded once for free text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec

from waypost.dialects import CODECS, decode_document, recognise
from waypost.dialects.codec import DecodeContext, EncodeContext, residue_name
from waypost.dialects.profile_reader import check_times, read_record
from waypost.errors import InvalidDocument, UnknownDialect
from waypost.model.json import JsonObject, dump_json, kind_of, parse_object
from waypost.model.names import fold, fold_tag, slug
from waypost.model.record import AgentRecord, check_id, record_bytes
from waypost.model.times import find_instant
from waypost.server.af_view import AfAgent, Text, make_agent, text_of
from waypost.server.af_wide import narrow, widen

AgentLike: TypeAlias = AgentRecord | Mapping[str, Any] | bytes | str

_OF_THE_PROFILE = frozenset(("examples", "auth", "constraints", "status", "expires_at", "signature"))
LOCAL_ORIGIN = "http://localhost"  # what paths belong to while no base address is configured; never shown


class Offered(NamedTuple):
    """One agent of an application, in every form that the surface needs."""

    record: AgentRecord
    agent: AfAgent
    text: Text
    tags: frozenset[str]
    a2a: bytes | None  # its A2A card, if it has one

    @property
    def position(self) -> tuple[str, str]:
        """AF-27: the order of every list."""
        return fold(self.record.name), self.agent.id


def bytes_of(item: AgentLike) -> bytes:
    """The item as it is compared with what was read before."""
    if isinstance(item, AgentRecord):
        return record_bytes(item)
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, Mapping):
        return dump_json(dict(item))
    raise InvalidDocument(
        f"An agent is a record, a document or its JSON text, not {kind_of(item)}.",
        hint="Give a dict or an AgentRecord.",
    )


def read_agent(item: AgentLike, *, base_url: str, now: float) -> Offered:
    """Read and render one agent. `now` stands in for its time of change when it names none."""
    context = EncodeContext(now=now, base_url=base_url or LOCAL_ORIGIN)
    read = _Read(item) if isinstance(item, AgentRecord) else _decode(bytes_of(item), context)
    document = CODECS["af"].encode(read.record, context).document
    if read.document is not None:
        document = widen(document, read.document)
    if read.is_local:
        metadata = {name: value for name, value in document["metadata"].items() if name != "canonical_id"}
        document = {**document, "metadata": metadata}
    card = read.a2a or _a2a_card(read.record, context)
    agent = make_agent(
        document,
        canonical_id=read.record.id,
        changed_at=_changed_at(read.record, now),
        has_a2a_card=card is not None,
    )
    return Offered(
        record=read.record,
        agent=agent,
        text=text_of(msgspec.json.decode(agent.summary), document.get("description", read.record.description)),
        tags=frozenset(map(fold_tag, document["tags"])),
        a2a=card,
    )


def instant_of(value: float | datetime | None) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else value


class _Read(NamedTuple):
    record: AgentRecord
    is_local: bool = False  # its id is this application's own name, not known elsewhere
    a2a: bytes | None = None  # the A2A card that it came as
    document: JsonObject | None = None  # the AgentMetadata that it came as


def _decode(data: bytes, context: EncodeContext) -> _Read:
    reading = DecodeContext(now=context.now, base_url=context.base_url)
    document = parse_object(data) if data.lstrip()[:1] == b"{" else None
    if document is not None and _says_little(document):
        return _read_little(document, reading)
    if document is None or recognise(document) != "af":
        dialect, _, decoded = decode_document(data, None, reading)
        return _Read(decoded.record, a2a=data if dialect == "a2a" else None)
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "canonical_id" in metadata:
        return _Read(_record(document, reading), document=document)
    # Without this an id of AF would become an address of wherever the application happens to run.
    record = _record(_with_own_id(document), reading)
    return _Read(record, is_local=slug(record.id) == record.id, document=document)


def _record(document: JsonObject, reading: DecodeContext) -> AgentRecord:
    return decode_document(dump_json(narrow(document)), "af", reading)[2].record


def _says_little(document: JsonObject) -> bool:
    """An id and no way to be reached: no dialect's document, and all the same an agent of the application (§4, §11)."""
    if not isinstance(document.get("id"), str) or document.get("bindings"):
        return False
    try:
        return recognise(document) == "profile"
    except UnknownDialect:
        return True


def _read_little(document: JsonObject, reading: DecodeContext) -> _Read:
    """As AgentMetadata, unless it has members that only the profile knows."""
    bare = {name: value for name, value in document.items() if name != "bindings"}
    if bare.keys() & _OF_THE_PROFILE and bare.keys() >= {"name", "description"}:
        record = read_record(bare)
        check_times(record, reading.now)
        return _Read(record, is_local=slug(record.id) == record.id)
    record = _record(_with_own_id(bare), reading)
    return _Read(record, is_local=slug(record.id) == record.id, document=bare)


def _with_own_id(document: JsonObject) -> JsonObject:
    """What does not fit a path is published under its slug (AF-13)."""
    metadata = document.get("metadata")
    own_id = check_id(document["id"])
    return {
        **document,
        "id": slug(own_id),
        "metadata": {**(metadata if isinstance(metadata, dict) else {}), "canonical_id": own_id},
    }


def _a2a_card(record: AgentRecord, context: EncodeContext) -> bytes | None:
    if residue_name("a2a") not in record.extra or "a2a" not in CODECS:
        return None
    return dump_json(CODECS["a2a"].encode(record, context).document)


def _changed_at(record: AgentRecord, now: float) -> float:
    updated = find_instant(record.updated_at)
    return updated if updated is not None and updated <= now else now
