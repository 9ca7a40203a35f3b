"""The `(agent-profile …)` form: found in a text, taken apart, checked (rtfs.md RTFS-7, RTFS-8).

It knows what a profile may say, not what a card makes of it (rtfs_derive). Only a missing `:id` and values of the wrong kind
are errors; what can be read past is a warning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeGuard

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.sexpr import Form, Key, Keyword, List, Map, Symbol, Vector
from waypost.model.sexpr_print import print_line
from waypost.model.sexpr_read import read_forms

HEAD = Symbol("agent-profile")
PROPERTIES = (
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
class Profile:
    """A checked profile: its properties as they were written, and what was read past."""

    properties: Map
    warnings: tuple[str, ...] = field(default=())

    @property
    def id(self) -> str:
        value = self.properties.find("id")
        return value if isinstance(value, str) else ""

    def maps(self, name: str) -> tuple[Map, ...]:
        """The maps in a vector property; empty when it is absent."""
        return maps_in(self.properties.find(name))

    def map(self, name: str) -> Map:
        value = self.properties.find(name)
        return value if isinstance(value, Map) else Map()


def maps_in(value: Form) -> tuple[Map, ...]:
    return tuple(item for item in value.items if isinstance(item, Map)) if isinstance(value, Vector) else ()


def read_profile(source: str | bytes) -> Profile:
    """The one profile in a text; other forms are passed over with a warning."""
    profiles, skipped = _profiles(source, lenient=False)
    if len(profiles) > 1:
        raise InvalidDocument(
            f"The text holds {len(profiles)} agent profiles.", path="agent-profile[1]", hint="Put each in its own file."
        )
    return _checked(profiles[0], skipped)


def read_profiles(source: str | bytes) -> tuple[Profile, ...]:
    """Every profile in a text, read leniently."""
    profiles, skipped = _profiles(source, lenient=True)
    return tuple(_checked(profile, skipped) for profile in profiles)


def _profiles(source: str | bytes, *, lenient: bool) -> tuple[list[List], tuple[str, ...]]:
    forms = read_forms(source, lenient=lenient)
    profiles = [form for form in forms if _is_profile(form)]
    if not profiles:
        raise InvalidDocument("The text holds no (agent-profile …) form.", path="line 1, column 1")
    others = [form for form in forms if not _is_profile(form)]
    return profiles, tuple(f"{print_line(form)[:40]}: not an agent profile, passed over." for form in others)


def _is_profile(form: Form) -> TypeGuard[List]:
    return isinstance(form, List) and form.items[:1] == (HEAD,)


def _checked(form: List, skipped: tuple[str, ...]) -> Profile:
    warnings = list(skipped)
    properties = _properties(form.items[1:])
    for key, _ in properties.entries:
        if not isinstance(key, Keyword) or key.name not in PROPERTIES:
            warnings.append(f"{print_line(key)}: not a property of a profile; it is kept.")
    _check_id(properties)
    _check_kinds(properties)
    declared = _check_capabilities(maps_in(properties.find("capabilities")))
    for at, endpoint in enumerate(maps_in(properties.find("communication-endpoints"))):
        _check_endpoint(endpoint, f":communication-endpoints[{at}]", declared, warnings)
    return Profile(properties, tuple(warnings))


def _properties(items: tuple[Form, ...]) -> Map:
    """Pairs written inline, or one map (P-6)."""
    if len(items) == 1 and isinstance(items[0], Map):
        return items[0]
    entries: dict[Key, Form] = {}
    for at in range(0, len(items), 2):
        key = items[at]
        if not isinstance(key, Keyword):
            raise InvalidDocument(f"{print_line(key)[:40]} stands where a property is expected.", path="agent-profile")
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
    if not isinstance(value, str) or not fits_id(value):
        raise InvalidDocument(
            f":id is a text of 1 to {limits.RTFS_ID_CHARS} characters without spaces and control characters.",
            path=":id",
        )


def fits_id(value: str) -> bool:
    """P-8: what `:id` and `agent_id` may be."""
    return 0 < len(value) <= limits.RTFS_ID_CHARS and value.isprintable() and not any(map(str.isspace, value))


def _check_kinds(properties: Map) -> None:
    for name in ("metadata", "communication", "interoperability"):
        value = properties.find(name)
        if value is not None and not isinstance(value, Map):
            raise InvalidDocument(f":{name} is a map.", path=f":{name}")
    for name in ("capabilities", "communication-endpoints", "discovery-mechanisms"):
        value = properties.find(name)
        if value is None:
            continue
        if not isinstance(value, Vector):
            raise InvalidDocument(f":{name} is a vector of maps.", path=f":{name}")
        for at, item in enumerate(value.items):
            if not isinstance(item, Map):
                raise InvalidDocument(f"{print_line(item)[:40]} is not a map.", path=f":{name}[{at}]")


def _check_capabilities(capabilities: tuple[Map, ...]) -> frozenset[str]:
    declared: set[str] = set()
    for at, capability in enumerate(capabilities):
        where = f":capabilities[{at}] :capability-id"
        name = capability.find("capability-id")
        if not isinstance(name, str) or not name.strip():
            raise InvalidDocument("A capability has a :capability-id, a text.", path=where)
        if name in declared:
            raise InvalidDocument(f"The capability {name[:64]!r} is declared twice.", path=where)
        declared.add(name)
    return frozenset(declared)


def _check_endpoint(endpoint: Map, path: str, declared: frozenset[str], warnings: list[str]) -> None:
    uri = endpoint.find("uri")
    if not isinstance(uri, str) or not _ABSOLUTE.match(uri):
        raise InvalidDocument("An endpoint has a :uri, an absolute one.", path=f"{path} :uri")
    provided = endpoint.find("provides-capabilities")
    if provided is None:
        return
    if not isinstance(provided, Vector) or not all(isinstance(item, (str, Keyword)) for item in provided.items):
        raise InvalidDocument("A vector of capability ids is expected.", path=f"{path} :provides-capabilities")
    for item in provided.items:
        name = item.name if isinstance(item, Keyword) else item
        if name not in declared:
            warnings.append(f"{path} :provides-capabilities: {name!r} is not a capability of this profile.")
