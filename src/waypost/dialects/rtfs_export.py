"""From an agent_card back to an `(agent-profile …)` text, for export (rtfs.md §3, reverse).

Deriving the card of the profile gives the card again, apart from members that a card has and a profile has no place for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from waypost.dialects.rtfs_profile import HEAD
from waypost.model.json import JsonObject
from waypost.model.sexpr import Form, Key, Keyword, List, Map, Vector, is_name
from waypost.model.sexpr_json import json_to_form, profile_key
from waypost.model.sexpr_print import print_form

_TIMES = {"last_updated_timestamp": "updated-at"}
_HOISTED = ("endpoint_id", "transport", "provides_capabilities")
_SCHEMAS = {"input_schema_ref": "input-schema", "output_schema_ref": "output-schema"}
_NAMES = ("protocol", "transport", "type")  # members whose values a profile writes as keywords


def export_profile(card: JsonObject) -> str:
    """The text of a card's profile."""
    metadata = _object(card.get("metadata"))
    properties: list[tuple[str, Form]] = [
        ("id", card["agent_id"]),
        ("metadata", _metadata(card, metadata)),
        ("capabilities", Vector(tuple(_capability(item) for item in _objects(card.get("capabilities"))))),
        ("communication-endpoints", _endpoints(card)),
        ("discovery-mechanisms", _mechanisms(card.get("agent_profile_uri"))),
        ("interoperability", json_to_form(_object(metadata.get("interoperability")), profile_key)),
    ]
    items: list[Form] = [HEAD]
    for name, value in properties:
        if value not in (Vector(), Map()):
            items += [Keyword(name), value]
    return print_form(List(tuple(items))) + "\n"


def _metadata(card: JsonObject, metadata: JsonObject) -> Map:
    entries: list[tuple[Key, Form]] = [
        (Keyword(name), card[name]) for name in ("name", "version", "description") if isinstance(card.get(name), str)
    ]
    tags = card.get("discovery_tags")
    if isinstance(tags, list) and tags:
        entries.append((Keyword("tags"), Vector(tuple(_name(tag) for tag in tags if isinstance(tag, str)))))
    for name, value in metadata.items():
        if name != "interoperability":
            key = Keyword(_TIMES[name]) if name in _TIMES else profile_key(name)
            entries.append((key, json_to_form(value, profile_key)))
    return Map(tuple(entries))


def _capability(item: JsonObject) -> Map:
    entries: list[tuple[Key, Form]] = []
    for name, value in item.items():
        if name in _SCHEMAS:
            entries.append((Keyword(_SCHEMAS[name]), json_to_form(value, str)))
        else:
            entries.append((profile_key(name), _member(name, value)))
    return Map(tuple(entries))


def _endpoints(card: JsonObject) -> Vector:
    listed = _objects(_object(card.get("communication")).get("endpoints"))
    return Vector(tuple(_endpoint(item) for item in listed))


def _endpoint(item: JsonObject) -> Map:
    details = dict(_object(item.get("details")))
    hoisted = {name: details.pop(name) for name in _HOISTED if name in details}
    if "methods" in details:
        details = {"http_methods" if name == "methods" else name: value for name, value in details.items()}
    members = {name: value for name, value in item.items() if name != "details"} | hoisted
    entries = [(profile_key(name), _member(name, value)) for name, value in members.items()]
    if details:
        entries.append((Keyword("details"), json_to_form(details, profile_key)))
    return Map(tuple(entries))


def _mechanisms(uri: Any) -> Vector:
    if not isinstance(uri, str):
        return Vector()
    return Vector((Map(((Keyword("type"), Keyword("well-known-uri")), (Keyword("uri"), uri))),))


def _member(name: str, value: Any) -> Form:
    return _name(value) if name in _NAMES and isinstance(value, str) else json_to_form(value, profile_key)


def _name(text: str) -> Form:
    """A keyword where the text can be one, else the text: both become the same text in a card."""
    return Keyword(text) if is_name(text) else text


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterable[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
