"""The `(agent-profile …)` form: parsed and checked (rtfs.md RTFS-7, RTFS-8), and exported from a card.

Only a missing `:id` and values of the wrong type are errors; other problems are warnings. `card_derivation.py` makes
the card. Deriving the card of an exported profile gives the card again, except for members that a profile cannot
express.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.protocols.rtfs.sexpr import (
    Form,
    Key,
    Keyword,
    List,
    Map,
    Symbol,
    Vector,
    is_name,
    json_to_form,
    parse_forms,
    print_form,
    print_line,
    profile_key,
)

_HEAD = Symbol("agent-profile")
_PROPERTIES = (
    "id",
    "metadata",
    "capabilities",
    "communication-endpoints",
    "communication",
    "discovery-mechanisms",
    "interoperability",
)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+\Z")


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """A checked profile: its properties as written, and warnings."""

    properties: Map
    warnings: tuple[str, ...] = field(default=())

    @property
    def id(self) -> str:
        value = self.properties.find("id")
        return value if isinstance(value, str) else ""

    def maps(self, name: str) -> tuple[Map, ...]:
        """Return the maps in a vector property; empty if it is absent."""
        return maps_in(self.properties.find(name))

    def map(self, name: str) -> Map:
        value = self.properties.find(name)
        return value if isinstance(value, Map) else Map()


def maps_in(value: Form) -> tuple[Map, ...]:
    return tuple(item for item in value.items if isinstance(item, Map)) if isinstance(value, Vector) else ()


def parse_profile(source: str | bytes) -> AgentProfile:
    """Parse the one profile of a text; other forms are skipped with a warning."""
    profiles, skipped = _find_profiles(source, lenient=False)
    if len(profiles) > 1:
        raise InvalidDocument(
            f"The text has {len(profiles)} agent profiles.", path="agent-profile[1]", hint="Put each in its own file."
        )
    return _checked(profiles[0], skipped)


def parse_profiles(source: str | bytes) -> tuple[AgentProfile, ...]:
    """Parse all profiles of a text leniently."""
    profiles, skipped = _find_profiles(source, lenient=True)
    return tuple(_checked(profile, skipped) for profile in profiles)


def _find_profiles(source: str | bytes, *, lenient: bool) -> tuple[list[List], tuple[str, ...]]:
    forms = parse_forms(source, lenient=lenient)
    profiles = [form for form in forms if _is_profile(form)]
    if not profiles:
        raise InvalidDocument("The text has no (agent-profile …) form.", path="line 1, column 1")
    others = [form for form in forms if not _is_profile(form)]
    return profiles, tuple(f"{print_line(form)[:40]}: not an agent profile; skipped." for form in others)


def _is_profile(form: Form) -> TypeGuard[List]:
    return isinstance(form, List) and form.items[:1] == (_HEAD,)


def _checked(form: List, skipped: tuple[str, ...]) -> AgentProfile:
    warnings = list(skipped)
    properties = _properties(form.items[1:])
    for key, _ in properties.entries:
        if not isinstance(key, Keyword) or key.name not in _PROPERTIES:
            warnings.append(f"{print_line(key)}: not a property of a profile; it is preserved.")
    _check_id(properties)
    _check_kinds(properties)
    declared = _check_capabilities(maps_in(properties.find("capabilities")))
    for at, endpoint in enumerate(maps_in(properties.find("communication-endpoints"))):
        _check_endpoint(endpoint, f":communication-endpoints[{at}]", declared, warnings)
    return AgentProfile(properties, tuple(warnings))


def _properties(items: tuple[Form, ...]) -> Map:
    """Read the properties: inline pairs, or one map (P-6)."""
    if len(items) == 1 and isinstance(items[0], Map):
        return items[0]
    entries: dict[Key, Form] = {}
    for at in range(0, len(items), 2):
        key = items[at]
        if not isinstance(key, Keyword):
            raise InvalidDocument(f"Expected a property, found {print_line(key)[:40]}.", path="agent-profile")
        if at + 1 == len(items):
            raise InvalidDocument("The last property has no value.", path=f":{key.name}")
        if key in entries:
            raise InvalidDocument("A property is given twice.", path=f":{key.name}", hint="Keep one of them.")
        entries[key] = items[at + 1]
    return Map(tuple(entries.items()))


def _check_id(properties: Map) -> None:
    value = properties.find("id")
    if value is None:
        raise InvalidDocument("The profile has no :id.", path=":id", hint='Add one, e.g. :id "weather-agent-v1".')
    if not isinstance(value, str) or not is_agent_id(value):
        raise InvalidDocument(
            f":id must be a string of 1 to {limits.RTFS_ID_CHARS} characters without spaces and control characters.",
            path=":id",
        )


def is_agent_id(value: str) -> bool:
    """P-8: return whether the text is a valid `:id` or `agent_id`."""
    return 0 < len(value) <= limits.RTFS_ID_CHARS and value.isprintable() and not any(map(str.isspace, value))


def _check_kinds(properties: Map) -> None:
    for name in ("metadata", "communication", "interoperability"):
        value = properties.find(name)
        if value is not None and not isinstance(value, Map):
            raise InvalidDocument(f":{name} must be a map.", path=f":{name}")
    for name in ("capabilities", "communication-endpoints", "discovery-mechanisms"):
        value = properties.find(name)
        if value is None:
            continue
        if not isinstance(value, Vector):
            raise InvalidDocument(f":{name} must be a vector of maps.", path=f":{name}")
        for at, item in enumerate(value.items):
            if not isinstance(item, Map):
                raise InvalidDocument(f"{print_line(item)[:40]} is not a map.", path=f":{name}[{at}]")


def _check_capabilities(capabilities: tuple[Map, ...]) -> frozenset[str]:
    declared: set[str] = set()
    for at, capability in enumerate(capabilities):
        where = f":capabilities[{at}] :capability-id"
        name = capability.find("capability-id")
        if not isinstance(name, str) or not name.strip():
            raise InvalidDocument("A capability needs a :capability-id, a string.", path=where)
        if name in declared:
            raise InvalidDocument(f"The capability {name[:64]!r} is declared twice.", path=where)
        declared.add(name)
    return frozenset(declared)


def _check_endpoint(endpoint: Map, path: str, declared: frozenset[str], warnings: list[str]) -> None:
    uri = endpoint.find("uri")
    if not isinstance(uri, str) or not _ABSOLUTE.match(uri):
        raise InvalidDocument("An endpoint needs an absolute :uri.", path=f"{path} :uri")
    provided = endpoint.find("provides-capabilities")
    if provided is None:
        return
    if not isinstance(provided, Vector) or not all(isinstance(item, (str, Keyword)) for item in provided.items):
        raise InvalidDocument("Expected a vector of capability ids.", path=f"{path} :provides-capabilities")
    for item in provided.items:
        name = item.name if isinstance(item, Keyword) else item
        if name not in declared:
            warnings.append(f"{path} :provides-capabilities: {name!r} is not a capability of this profile.")


# --- Export: card -> profile text (rtfs.md §3, reverse) -------------------------------------------

_TIMES = {"last_updated_timestamp": "updated-at"}
_HOISTED = ("endpoint_id", "transport", "provides_capabilities")
_SCHEMAS = {"input_schema_ref": "input-schema", "output_schema_ref": "output-schema"}
_NAMES = ("protocol", "transport", "type")  # members whose values are keywords in a profile
_CARD_MEMBERS = frozenset(
    (
        "agent_id",
        "agent_profile_uri",
        "name",
        "version",
        "description",
        "discovery_tags",
        "capabilities",
        "communication",
        "metadata",
    )
)


def export_profile(card: JsonObject) -> tuple[str, tuple[str, ...]]:
    """Return the profile text of a card, and the members of the card that a profile cannot express."""
    metadata = _object(card.get("metadata"))
    properties: list[tuple[str, Form]] = [
        ("id", card["agent_id"]),
        ("metadata", _metadata(card, metadata)),
        ("capabilities", Vector(tuple(_capability(item) for item in _objects(card.get("capabilities"))))),
        ("communication-endpoints", _endpoints(card)),
        ("discovery-mechanisms", _mechanisms(card.get("agent_profile_uri"))),
        ("interoperability", json_to_form(_object(metadata.get("interoperability")), profile_key)),
    ]
    items: list[Form] = [_HEAD]
    for name, value in properties:
        if value not in (Vector(), Map()):
            items += [Keyword(name), value]
    return print_form(List(tuple(items))) + "\n", tuple(name for name in card if name not in _CARD_MEMBERS)


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
    """Return a keyword if possible, else a string: a card has the same string for both."""
    return Keyword(text) if is_name(text) else text


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterable[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
