"""Codecs: a dialect is a pure, two-way mapping between its documents and the record.

Laws, tested for every row of the table of dialects (tests/property/test_codec_laws.py):
  1. decode(encode(r).document).record == r, except for the paths in encode(r).losses;
  2. every reported loss is a path that the codec declares in `loses`;
  3. members that the codec does not know survive decode -> encode in the same dialect;
  4. encode(r).document has the form that the specification defines, unless the record
     keeps the original wording of a document of this dialect;
  5. every document that decode accepts, and everything that encode makes of it, is valid against `schema()`: a document
     that is returned as received is a response like any other.

Two parts preserve what one side cannot express:
  - The *remainder* is the part of a record that a dialect's own members cannot express. Formats with a free-form place
    carry it there under CARRY, and decoding lays it over the native members. Formats without one report losses.
  - The *residue* is the part of a document that the record has no member for. It is kept in
    `record.extra["org.waypost.<dialect>"]`, and encoding restores it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, kind_of, member
from waypost.model.names import fold_tag
from waypost.model.record import RECORD_FIELDS, AgentRecord, Binding, need_text, record_to_json
from waypost.model.record import MappingLoss as MappingLoss
from waypost.model.versions import Release
from waypost.protocols.record_reader import read_record

CARRY = "org.waypost.record"

DERIVED = "org.waypost.derived"  # lists the members of the record that a codec derived because the document has none

# Reads a document of any dialect that is embedded in another document: media type and document -> record, or None for a
# media type without a reader.
EmbeddedReader: TypeAlias = Callable[[str, JsonObject], AgentRecord | None]


class DecodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a decoder may know besides the document. Codecs have no clock: the caller passes `now`."""

    now: float
    source_url: str | None = None  # where the document was fetched from
    base_url: str | None = None  # the origin that relative references belong to


class EncodeContext(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    base_url: str = "http://127.0.0.1:8440"  # this service, for links to its own representations
    host: str = "localhost"  # the service's own FQDN, publisher of minted names
    announce_id: str | None = None  # the UUIDv4 stored with the record
    updated_at: float | None = None  # when the registry last changed the record
    created_at: float | None = None


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    record: AgentRecord
    source_id: str  # the id in the dialect's own terms
    aliases: tuple[str, ...] = ()
    losses: tuple[MappingLoss, ...] = ()  # members of the document that the record cannot carry
    warnings: tuple[str, ...] = ()
    visibility: str | None = None
    ttl_seconds: int | None = None
    sequence: int | None = None
    release: Release | None = None  # one of several versions that a registry lists
    parsed: JsonObject | None = None  # the parsed document, if it is signed: the signature covers it


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    document: JsonObject
    losses: tuple[MappingLoss, ...] = ()


class Codec(ABC):
    """One dialect. Its folder also holds `schema.json` and `examples.json`."""

    name: ClassVar[str]
    media_type: ClassVar[str] = "application/json"
    loses: ClassVar[tuple[str, ...]] = ()  # JSON path patterns with [*] for any index and .* for any member

    @abstractmethod
    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Return whether the content alone identifies the document as one of this dialect."""

    @abstractmethod
    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded: ...

    @abstractmethod
    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded: ...

    def recognises_text(self, data: bytes) -> bool:
        """Return whether the bytes, which do not start with `{`, are this dialect's form that is not JSON. Most have none."""
        return False

    def decode_text(self, data: bytes, context: DecodeContext) -> Decoded:
        raise NotImplementedError

    def schema(self) -> JsonObject:
        """Return the JSON Schema (2020-12) of all documents that this codec reads, older forms included, and writes.

        Each definition X is the form of the specification, AcceptedX the wider form that is read.
        """
        schema: JsonObject = load_resource(self._package(), "schema.json")
        return schema

    def examples(self) -> tuple[JsonObject, ...]:
        """Return the specification's own examples, completed where the source is damaged."""
        return tuple(load_resource(self._package(), "examples.json"))

    def _package(self) -> str:
        return type(self).__module__.rpartition(".")[0]


@cache
def load_resource(package: str, name: str) -> Any:
    """Return the parsed JSON file of a package. The value is shared: do not change it."""
    return msgspec.json.decode((resources.files(package) / name).read_bytes())


def residue_name(dialect: str) -> str:
    return f"org.waypost.{dialect}"


# --- The remainder: record members that the native document does not restore ----------------------


def make_remainder(record: AgentRecord, decoded: AgentRecord) -> JsonObject:
    """Return what to carry so that `decoded`, which the native document decodes to, becomes `record` again.

    `members` holds each top-level member whose value differs, `absent` names those that only decoding adds. The result
    is empty when the native document expresses the whole record.
    """
    expected, actual = record_to_json(record), record_to_json(decoded)
    members = {name: value for name, value in expected.items() if name not in actual or actual[name] != value}
    absent = [name for name in actual if name not in expected]
    return ({"members": members} if members else {}) | ({"absent": absent} if absent else {})


def encode_with_remainder(
    record: AgentRecord,
    residue: JsonObject,
    *,
    write: Callable[[JsonObject], JsonObject],
    read: Callable[[JsonObject], AgentRecord],
) -> tuple[JsonObject, JsonObject]:
    """Return the document in the dialect's own members, and the remainder for its free-form place.

    `write` makes the native document from a residue; `read` decodes it. Anyone can write a residue into a profile
    document, so a residue that does not make a valid document is left out here and carried in the remainder instead.
    """
    try:
        document = write(residue)
        decoded = read(document)
    except InvalidDocument:
        document = write({})
        decoded = read(document)
    return document, make_remainder(record, decoded)


def apply_remainder(record: AgentRecord, carried: Any, path: str) -> AgentRecord:
    """Lay a remainder over `record`. The remainder is external input, so the result is checked like any document."""
    if carried is None:
        return record
    if not isinstance(carried, dict):
        raise InvalidDocument(f"Expected an object, found {kind_of(carried)}.", path=path)
    members = carried.get("members", {})
    if not isinstance(members, dict):
        raise InvalidDocument(f"Expected an object, found {kind_of(members)}.", path=member(path, "members"))
    absent = carried.get("absent", [])
    if not isinstance(absent, list) or not all(isinstance(name, str) for name in absent):
        raise InvalidDocument("Expected an array of member names.", path=member(path, "absent"))
    document = unknown_members(record_to_json(record), absent) | members
    return read_record(document, path=member(path, "members"))


# The members that a format with too little room carries first. All others follow, the smallest first.
_CARRIED_FIRST = ("id", "name", "status", "version", "updated_at", "expires_at", "description", "bindings", "tags")


def shrink_remainder(carried: JsonObject, max_bytes: int) -> JsonObject:
    """Return the remainder without as many whole members as it takes to fit into `max_bytes`."""
    shrunk = unknown_members(carried, ("members",))
    size = len(dump_json({"members": {}, **shrunk}))
    members = carried.get("members", {})
    lengths = {name: len(dump_json({name: value})) for name, value in members.items()}
    chosen: set[str] = set()
    for name, length in sorted(lengths.items(), key=lambda item: (_priority(item[0]), item[1])):
        if size + length <= max_bytes:
            size += length
            chosen.add(name)
    if chosen:
        shrunk["members"] = {name: value for name, value in members.items() if name in chosen}
    return shrunk


def _priority(name: str) -> int:
    return _CARRIED_FIRST.index(name) if name in _CARRIED_FIRST else len(_CARRIED_FIRST)


def differing_members(record: AgentRecord, decoded: AgentRecord) -> tuple[str, ...]:
    """Return the names of the top-level members in which two records differ."""
    one, other = record_to_json(record), record_to_json(decoded)
    return tuple(
        name
        for name in dict.fromkeys((*one, *other))
        if name not in one or name not in other or one[name] != other[name]
    )


def carries_id(carried: Any) -> bool:
    """Return whether the remainder holds the record's own id, so that the id in the native members was only minted."""
    return isinstance(carried, dict) and isinstance(carried.get("members"), dict) and "id" in carried["members"]


def member_paths(names: Iterable[str]) -> tuple[str, ...]:
    """Return the JSON paths of top-level members: known ones in the order of the profile's table, then the others."""
    order = {name: index for index, name in enumerate(RECORD_FIELDS)}
    return tuple(member("$", name) for name in sorted(names, key=lambda name: (order.get(name, len(order)), name)))


# --- The residue: document members that the record has no place for -------------------------------


def unknown_members(document: Mapping[str, Any], known: Container[str]) -> JsonObject:
    return {name: value for name, value in document.items() if name not in known}


def attach_residue(record: AgentRecord, dialect: str, residue: JsonObject) -> AgentRecord:
    """Return the record with the dialect's residue; the same record when the residue is empty."""
    if not residue:
        return record
    return msgspec.structs.replace(record, extra={**record.extra, residue_name(dialect): residue})


def residue_of(record: AgentRecord, dialect: str, carrier: str = "") -> JsonObject:
    """Return the dialect's residue, or an empty object when it is not an object (then no codec wrote it).

    An empty `carrier`, the member that the remainder goes into, is left out: a reader could not tell that it was there.
    """
    residue = record.extra.get(residue_name(dialect))
    if not isinstance(residue, dict):
        return {}
    return {name: value for name, value in residue.items() if name != carrier or value not in (None, {})}


def merge_missing_members(document: JsonObject, residue: Mapping[str, Any]) -> JsonObject:
    """Return `document` with the members that only the residue has, at every level of objects."""
    merged = dict(document)
    for name, value in residue.items():
        if name not in merged:
            merged[name] = value
        elif isinstance(merged[name], dict) and isinstance(value, dict):
            merged[name] = merge_missing_members(merged[name], value)
    return merged


# --- The original wording: restored while it still decodes to the record's values -----------------
# A reader that condenses (skills into tags, headers into auth) cannot be undone from the record alone. So the members
# that a codec's writer would word differently are kept in the residue, and are restored only while they decode to the
# record's values.


class MemberGroup(NamedTuple):
    """Members of a document that together determine some fields of the record."""

    members: tuple[str, ...]
    fields: tuple[str, ...]
    replaces: Mapping[str, str] = MappingProxyType({})  # original member -> written member that it replaces


def residue_members(document: Mapping[str, Any], written: Mapping[str, Any]) -> JsonObject:
    """Return the residue: members that the writer leaves out or words differently."""
    return {name: value for name, value in document.items() if name not in written or written[name] != value}


def restore_wording(
    written: JsonObject,
    residue: Mapping[str, Any],
    record: AgentRecord,
    groups: Sequence[MemberGroup],
    read: Callable[[JsonObject], AgentRecord],
) -> JsonObject:
    """Return `written` with the residue's own wording in every group that still decodes to the values of `record`."""
    document = dict(written)
    grouped = {name for group in groups for name in group.members}
    for name, value in residue.items():
        if name not in grouped:
            document.setdefault(name, value)
    restored = document
    for group in groups:
        restored = _with_original(restored, residue, group)
    if restored is document or _decodes_to(restored, record, groups, read):
        return restored
    for group in groups:
        trial = _with_original(document, residue, group)
        if trial is not document and _decodes_to(trial, record, (group,), read):
            document = trial
    return document


def _with_original(document: JsonObject, residue: Mapping[str, Any], group: MemberGroup) -> JsonObject:
    """Return the document with one group in the residue's wording; the same document when the residue has none."""
    original = {name: residue[name] for name in group.members if name in residue}
    if not original:
        return document
    replaced = {group.replaces[name] for name in original if name in group.replaces}
    return unknown_members(document, replaced) | original


def _decodes_to(
    document: JsonObject, record: AgentRecord, groups: Sequence[MemberGroup], read: Callable[[JsonObject], AgentRecord]
) -> bool:
    try:
        decoded = read(document)
    except InvalidDocument:  # anyone can edit a residue in a profile document
        return False
    return all(getattr(decoded, name) == getattr(record, name) for group in groups for name in group.fields)


# --- Shared by several dialects -------------------------------------------------------------------


def collect_tags(*groups: Iterable[Any]) -> tuple[str, ...]:
    """Return lower-case tags without repeats, within the record's bounds (PRO-13). Other types and long texts are left
    out."""
    tags: dict[str, str] = {}
    for group in groups:
        for item in group:
            if isinstance(item, str) and 0 < len(tag := item.strip().lower()) <= limits.TAG_CHARS:
                tags.setdefault(fold_tag(tag), tag)
    return tuple(tags.values())[: limits.TAGS]


def truncate_text(text: str, max_chars: int) -> str:
    """Cut `text` at a word boundary to `max_chars` characters, with an ellipsis if something was cut."""
    if len(text) <= max_chars:
        return text
    head = text[: max_chars - 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut > max_chars // 2 else head).rstrip() + "…"


def need_cut_text(document: Mapping[str, Any], name: str, path: str = "$", *, most: int) -> str:
    """Return the string member `name`, cut to `most` characters. Formats without a bound of their own may have more than
    the record holds; `cut_losses` reports it."""
    return truncate_text(need_text(document, name, path, most=limits.DOCUMENT_BYTES), most)


def cut_losses(document: Mapping[str, Any], bounds: Mapping[str, int]) -> tuple[MappingLoss, ...]:
    """Return a loss for each top-level text that is longer than its bound."""
    return tuple(
        MappingLoss(member("$", name), f"{len(text)} characters; the record has the first {most}.")
        for name, most in bounds.items()
        if isinstance(text := document.get(name), str) and len(text) > most
    )


def need_endpoint(item: Mapping[str, Any], name: str, path: str) -> str:
    return check_endpoint(need_text(item, name, path, most=limits.ENDPOINT_CHARS, what="URL"), member(path, name))


def check_endpoint(endpoint: str, path: str) -> str:
    if not endpoint or not endpoint.isprintable() or " " in endpoint:
        raise InvalidDocument(
            "An endpoint must not be empty and must not contain spaces or control characters.",
            path=path,
            hint="Percent-encode them.",
        )
    return endpoint


def sort_by_priority(bindings: Sequence[Binding]) -> list[Binding]:
    """Return the preferred binding first; those without a priority come last, in their own order."""
    return sorted(bindings, key=lambda binding: (binding.priority is None, binding.priority or 0))


def rename_members(value: JsonObject, current: Mapping[str, str], path: str) -> JsonObject:
    """Rename the older names of members to `current` ones. A member under two names is rejected: readers would
    disagree."""
    renamed: JsonObject = {}
    for name, item in value.items():
        new = current.get(name, name)
        if new in renamed:
            raise InvalidDocument(
                f"The member {new!r} is given under two names.",
                path=member(path, name),
                hint=f"Keep {new!r} and leave the other out.",
            )
        renamed[new] = item
    return renamed
