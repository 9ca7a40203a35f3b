"""What a dialect is: a pure, two-way mapping between its document and the record.

Laws, run over every registered codec by introspection (tests/property/test_codec_laws.py):
  1. decode(encode(r).document).record == r, apart from the paths that encode(r).losses names;
  2. every loss that is reported is a path that the codec declares in `loses`;
  3. members that the codec does not know survive decode → encode of the same dialect;
  4. encode(r).document validates against `written_schema()`, unless the record brings the dialect's own wording along;
  5. whatever decode accepts, and whatever encode makes of it, validates against `schema()`: a document that is given back
     as it was sent is an answer like any other.

A codec puts members of its own dialect that the profile has no place for under `record.extra["org.waypost.<dialect>"]`
(its residue) and gives them back when it encodes. Where its format has a free-form place, it carries what is left of the
record there under CARRY (the remainder); where it has none, it reports losses.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, kind_of, member
from waypost.model.names import fold_tag
from waypost.model.record import RECORD_FIELDS, AgentRecord, Binding, need_text, record_to_json
from waypost.protocols.record_reader import read_record

CARRY = "org.waypost.record"

DERIVED = "org.waypost.derived"  # names members of the record that no publisher wrote: a codec made them up


class MappingLoss(msgspec.Struct, frozen=True):
    """A record member that the target dialect cannot carry."""

    path: str  # JSON path into the profile document, e.g. $.examples[0].input_schema
    reason: str


class DecodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a decoder may know besides the document. No clock: `now` is given."""

    now: float
    source_url: str | None = None  # where the document was fetched from
    base_url: str | None = None  # the origin that relative references belong to


class EncodeContext(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    base_url: str = "http://127.0.0.1:8440"  # this service, for links to its own representations
    host: str = "localhost"  # the service's own FQDN, publisher of minted names
    announce_id: str | None = None  # the UUIDv4 kept beside the record
    updated_at: float | None = None  # when the registry last changed the record
    created_at: float | None = None


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    record: AgentRecord
    source_id: str  # the id in the dialect's own terms
    aliases: tuple[str, ...] = ()
    losses: tuple[MappingLoss, ...] = ()  # members of the document that the record does not carry (empty for most)
    warnings: tuple[str, ...] = ()
    visibility: str | None = None
    ttl_seconds: int | None = None
    sequence: int | None = None
    parsed: JsonObject | None = None  # the document as it was read, where it is signed: its signature covers that


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    document: JsonObject
    losses: tuple[MappingLoss, ...] = ()


class Codec(Protocol):
    """One instance per dialect, registered in `waypost.protocols.dialects.CODECS`."""

    name: str
    media_type: str
    loses: tuple[str, ...]  # JSON path patterns with [*] for any index and .* for any member

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """True when the content alone says that the document is of this dialect."""
        ...

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded: ...

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded: ...

    def schema(self) -> JsonObject:
        """JSON Schema (2020-12) of the documents this codec reads, older forms included, and of those it writes."""
        ...

    def written_schema(self) -> JsonObject:
        """JSON Schema of the documents that this codec makes out of a record: the specification's own form."""
        ...

    def examples(self) -> tuple[JsonObject, ...]:
        """The specification's own examples (completed where the source is damaged)."""
        ...


def residue_name(dialect: str) -> str:
    return f"org.waypost.{dialect}"


# ---- What a dialect has no word for, and how it travels all the same.
#
# Two leftovers exist. The *remainder* is what a dialect's own members cannot say of a record: it rides under CARRY in the
# format's free-form place, and decoding lays it over what the native members gave. The *residue* is what a record cannot say
# of a document: it rides in `record.extra` under the dialect's name, and encoding fills it in again. This module knows no
# dialect; each codec says where its free-form place is and which members are its own.

# --- The remainder: record members that the native document does not give back --------------------


def make_remainder(record: AgentRecord, back: AgentRecord) -> JsonObject:
    """What to carry so that `back`, the record that the native document decodes to, becomes `record` again.

    `members` holds each top-level member whose value differs, `absent` names those that decoding invented. Empty when the
    native document says everything.
    """
    wanted, given = record_to_json(record), record_to_json(back)
    members = {name: value for name, value in wanted.items() if name not in given or given[name] != value}
    absent = [name for name in given if name not in wanted]
    carried: JsonObject = {}
    if members:
        carried["members"] = members
    if absent:
        carried["absent"] = absent
    return carried


def encode_with_remainder(
    record: AgentRecord,
    residue: JsonObject,
    *,
    write: Callable[[JsonObject], JsonObject],
    read: Callable[[JsonObject], AgentRecord],
) -> tuple[JsonObject, JsonObject]:
    """The document in the dialect's own members, and the remainder to put in its free-form place.

    `write` makes the native document, given a residue to fill in; `read` decodes it again. A residue that does not make a
    valid document was not put there by the codec (anybody may write the member): it is left out here and carried instead.
    """
    try:
        document = write(residue)
        back = read(document)
    except InvalidDocument:
        document = write({})
        back = read(document)
    return document, make_remainder(record, back)


def apply_remainder(record: AgentRecord, carried: Any, path: str) -> AgentRecord:
    """`record` with a remainder laid over it. The remainder came from outside, so the result is checked like any document."""
    if carried is None:
        return record
    if not isinstance(carried, dict):
        raise InvalidDocument(f"Expected an object, found {kind_of(carried)}.", path=path)
    members = _members(carried, path)
    document = record_to_json(record)
    for name in _absent(carried, path):
        document.pop(name, None)
    document.update(members)
    return read_record(document, path=member(path, "members"))


# What a format that is too small keeps first. After these, and among the others, the smaller goes in first.
_KEPT_FIRST = ("id", "name", "status", "version", "updated_at", "expires_at", "description", "bindings", "tags")


def shrink_remainder(carried: JsonObject, most_bytes: int) -> JsonObject:
    """The remainder cut to `most_bytes` by leaving whole members out."""
    kept = {name: value for name, value in carried.items() if name != "members"}
    size = len(dump_json({"members": {}, **kept}))
    members = carried.get("members", {})
    chosen: set[str] = set()
    for name, length in sorted(_lengths(members).items(), key=lambda item: (_priority(item[0]), item[1])):
        if size + length <= most_bytes:
            size += length
            chosen.add(name)
    if chosen:
        kept["members"] = {name: value for name, value in members.items() if name in chosen}
    return kept


def _lengths(members: JsonObject) -> dict[str, int]:
    return {name: len(dump_json({name: value})) for name, value in members.items()}


def _priority(name: str) -> int:
    return _KEPT_FIRST.index(name) if name in _KEPT_FIRST else len(_KEPT_FIRST)


def differing_members(record: AgentRecord, back: AgentRecord) -> tuple[str, ...]:
    """The top-level members in which two records differ."""
    one, other = record_to_json(record), record_to_json(back)
    return tuple(
        name
        for name in dict.fromkeys((*one, *other))
        if name not in one or name not in other or one[name] != other[name]
    )


def carries_id(carried: Any) -> bool:
    """True when the id in the native members was only minted: the record's own id is in the remainder."""
    return isinstance(carried, dict) and isinstance(carried.get("members"), dict) and "id" in carried["members"]


def _members(carried: JsonObject, path: str) -> JsonObject:
    members = carried.get("members", {})
    if not isinstance(members, dict):
        raise InvalidDocument(f"Expected an object, found {kind_of(members)}.", path=member(path, "members"))
    return members


def _absent(carried: JsonObject, path: str) -> list[str]:
    names = carried.get("absent", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidDocument("Expected an array of member names.", path=member(path, "absent"))
    return names


def member_paths(names: Iterable[str]) -> tuple[str, ...]:
    """The JSON paths of top-level members, known ones in the order of the profile's table."""
    order = {name: index for index, name in enumerate(RECORD_FIELDS)}
    return tuple(member("$", name) for name in sorted(names, key=lambda name: (order.get(name, len(order)), name)))


# --- The residue: document members that the record has no place for -------------------------------


def unknown_members(document: Mapping[str, Any], known: Container[str]) -> JsonObject:
    """The members of `document` that the codec does not know, as they are."""
    return {name: value for name, value in document.items() if name not in known}


def attach_residue(record: AgentRecord, dialect: str, residue: JsonObject) -> AgentRecord:
    """The record with the dialect's residue; unchanged when there is none."""
    if not residue:
        return record
    return msgspec.structs.replace(record, extra={**record.extra, residue_name(dialect): residue})


def residue_of(record: AgentRecord, dialect: str, place: str = "") -> JsonObject:
    """The dialect's residue, or an empty object. A residue that is no object was not put there by a codec: left alone.

    Left alone as well is an empty `place`, the member that the remainder goes into: nobody could tell afterwards that it was
    there.
    """
    residue = record.extra.get(residue_name(dialect))
    if not isinstance(residue, dict):
        return {}
    return {name: value for name, value in residue.items() if name != place or value not in (None, {})}


def merge_missing_members(document: JsonObject, residue: Mapping[str, Any]) -> JsonObject:
    """`document` with the members that only the residue has, at every level of objects. What `document` says stands."""
    filled = dict(document)
    for name, value in residue.items():
        if name not in filled:
            filled[name] = value
        elif isinstance(filled[name], dict) and isinstance(value, dict):
            filled[name] = merge_missing_members(filled[name], value)
    return filled


# ---- A document's own wording: kept while it still says what the record says, written anew once it does not.
#
# A reader that digests (skills into tags, headers into auth) cannot be undone from the record alone. So the members that a
# codec's writer would word differently ride in the residue, and come back only as long as reading them gives the record's
# own values. This module knows no dialect: a codec lists its facets and hands over its reader.


class MemberGroup(NamedTuple):
    """Members of a document that together tell some members of the record."""

    members: tuple[str, ...]
    fields: tuple[str, ...]
    instead: Mapping[str, str] = MappingProxyType({})  # a member of the document that takes the place of a written one


def residue_members(document: Mapping[str, Any], written: Mapping[str, Any]) -> JsonObject:
    """The residue: members that the writer leaves out or words differently."""
    return {name: value for name, value in document.items() if name not in written or written[name] != value}


def restore_wording(
    written: JsonObject,
    residue: Mapping[str, Any],
    record: AgentRecord,
    facets: Sequence[MemberGroup],
    read: Callable[[JsonObject], AgentRecord],
) -> JsonObject:
    """`written` with the residue's own wording wherever it still tells what `record` tells."""
    document = dict(written)
    spoken = {name for facet in facets for name in facet.members}
    for name, value in residue.items():
        if name not in spoken:
            document.setdefault(name, value)
    whole = document
    for facet in facets:
        whole = _with_original(whole, residue, facet)
    if whole is document or _decodes_to(whole, record, facets, read):
        return whole
    for facet in facets:
        trial = _with_original(document, residue, facet)
        if trial is not document and _decodes_to(trial, record, (facet,), read):
            document = trial
    return document


def _with_original(document: JsonObject, residue: Mapping[str, Any], facet: MemberGroup) -> JsonObject:
    """The document with one facet in the residue's words; itself when the residue has none."""
    own = {name: residue[name] for name in facet.members if name in residue}
    if not own:
        return document
    ousted = {facet.instead[name] for name in own if name in facet.instead}
    return {name: value for name, value in document.items() if name not in ousted} | own


def _decodes_to(
    document: JsonObject, record: AgentRecord, facets: Sequence[MemberGroup], read: Callable[[JsonObject], AgentRecord]
) -> bool:
    try:
        said = read(document)
    except InvalidDocument:  # a residue may have been edited by hand, in a profile document
        return False
    return all(getattr(said, name) == getattr(record, name) for facet in facets for name in facet.fields)


# --- What several neighbours need when they digest ------------------------------------------------


def collect_tags(*groups: Iterable[Any]) -> tuple[str, ...]:
    """Lower-case tags without repeats, within the record's bounds (PRO-13). What is no text or too long is left out."""
    tags: dict[str, str] = {}
    for group in groups:
        for item in group:
            if isinstance(item, str) and 0 < len(tag := item.strip().lower()) <= limits.TAG_CHARS:
                tags.setdefault(fold_tag(tag), tag)
    return tuple(tags.values())[: limits.TAGS]


def truncate_text(text: str, most: int) -> str:
    """`text` cut at a word to `most` characters, with an ellipsis when something was cut."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut > most // 2 else head).rstrip() + "…"


def need_endpoint(item: Mapping[str, Any], name: str, path: str) -> str:
    return check_endpoint(need_text(item, name, path, most=limits.ENDPOINT_CHARS, what="URL"), member(path, name))


def check_endpoint(endpoint: str, path: str) -> str:
    if not endpoint or not endpoint.isprintable() or " " in endpoint:
        raise InvalidDocument(
            "An endpoint has no spaces and no control characters, and is not empty.",
            path=path,
            hint="Percent-encode them.",
        )
    return endpoint


def sort_by_priority(bindings: Sequence[Binding]) -> list[Binding]:
    """The preferred first; those without a priority last, in their own order."""
    return sorted(bindings, key=lambda binding: (binding.priority is None, binding.priority or 0))


# ---- Older names of members, brought to today's. It knows names only; what they hold is for the reader of the dialect.


def rename_members(value: JsonObject, today: Mapping[str, str], path: str) -> JsonObject:
    """The object under today's names. A member under two names is refused: readers would not agree on which one holds."""
    renamed: JsonObject = {}
    for name, item in value.items():
        present = today.get(name, name)
        if present in renamed:
            raise InvalidDocument(
                f"{present!r} is given under two names.",
                path=member(path, name),
                hint=f"Keep {present!r} and leave the other out.",
            )
        renamed[present] = item
    return renamed
