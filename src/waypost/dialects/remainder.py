"""What a dialect has no word for, and how it travels all the same.

Two leftovers exist. The *remainder* is what a dialect's own members cannot say of a record: it rides under CARRY in the
format's free-form place, and decoding lays it over what the native members gave. The *residue* is what a record cannot say
of a document: it rides in `record.extra` under the dialect's name, and encoding fills it in again. This module knows no
dialect; each codec says where its free-form place is and which members are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import msgspec

from waypost.dialects.codec import residue_name
from waypost.dialects.profile_reader import read_record
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, kind_of, member
from waypost.model.record import RECORD_FIELDS, AgentRecord, BriefRecord, record_to_json

# --- The remainder: record members that the native document does not give back --------------------


def remainder(record: AgentRecord, back: AgentRecord) -> JsonObject:
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


def native_and_rest(
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
    return document, remainder(record, back)


def overlay(record: AgentRecord, carried: Any, path: str) -> AgentRecord:
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


def shrink(carried: JsonObject, most_bytes: int) -> JsonObject:
    """The remainder cut to `most_bytes` by leaving whole members out."""
    kept = {name: value for name, value in carried.items() if name != "members"}
    size = len(dump_json({"members": {}, **kept}))
    members = carried.get("members", {})
    chosen: set[str] = set()
    for name, length in sorted(_lengths(members).items(), key=lambda item: (_rank(item[0]), item[1])):
        if size + length <= most_bytes:
            size += length
            chosen.add(name)
    if chosen:
        kept["members"] = {name: value for name, value in members.items() if name in chosen}
    return kept


def _lengths(members: JsonObject) -> dict[str, int]:
    return {name: len(dump_json({name: value})) for name, value in members.items()}


def _rank(name: str) -> int:
    return _KEPT_FIRST.index(name) if name in _KEPT_FIRST else len(_KEPT_FIRST)


def differing(record: AgentRecord, back: AgentRecord) -> tuple[str, ...]:
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


def leftover(document: Mapping[str, Any], known: Container[str]) -> JsonObject:
    """The members of `document` that the codec does not know, as they are."""
    return {name: value for name, value in document.items() if name not in known}


def attach(record: AgentRecord, dialect: str, residue: JsonObject) -> AgentRecord:
    """The record with the dialect's residue; unchanged when there is none."""
    if not residue:
        return record
    return msgspec.structs.replace(record, extra={**record.extra, residue_name(dialect): residue})


def residue_of(record: AgentRecord | BriefRecord, dialect: str, place: str = "") -> JsonObject:
    """The dialect's residue, or an empty object. A residue that is no object was not put there by a codec: left alone.

    Left alone as well is an empty `place`, the member that the remainder goes into: nobody could tell afterwards that it was
    there.
    """
    residue = record.extra.get(residue_name(dialect))
    if not isinstance(residue, dict):
        return {}
    return {name: value for name, value in residue.items() if name != place or value not in (None, {})}


def fill(document: JsonObject, residue: Mapping[str, Any]) -> JsonObject:
    """`document` with the members that only the residue has, at every level of objects. What `document` says stands."""
    filled = dict(document)
    for name, value in residue.items():
        if name not in filled:
            filled[name] = value
        elif isinstance(filled[name], dict) and isinstance(value, dict):
            filled[name] = fill(filled[name], value)
    return filled
