"""Derivation of the agent_card that a registry stores from an agent profile (rtfs.md §3). The profile stays the source
of truth.

RTFS type expressions become JSON Schema 2020-12 (RTFS-9, P-9). What JSON Schema cannot express is kept as text under
`x-rtfs-type` or `x-rtfs-predicates`: a type never makes a profile invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.rtfs.agent_profile import AgentProfile, maps_in
from waypost.protocols.rtfs.sexpr import (
    Form,
    Keyword,
    Map,
    Symbol,
    Vector,
    form_to_json,
    json_name,
    map_to_json,
    print_line,
)

_WEB = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_TIMES = {"updated_at": "last_updated_timestamp"}
_METADATA_ELSEWHERE = ("name", "version", "description", "tags", "discovery_tags")


class _CardDerivation:
    """One traversal of a profile, which collects warnings."""

    def __init__(self, profile: AgentProfile, *, base: str | None, annotations: bool) -> None:
        self.profile = profile
        self.base = base
        self.annotations = annotations
        self.warnings = list(profile.warnings)

    def card(self) -> JsonObject:
        metadata = map_to_json(self.profile.map("metadata"), ":metadata", self.warnings)
        communication = self.communication()
        uri = self.profile_uri(communication["endpoints"])
        card: JsonObject = {"agent_id": self.profile.id}
        if uri is not None:
            card["agent_profile_uri"] = uri
        card["name"] = _text(metadata.get("name")) or self.profile.id[: limits.NAME_CHARS]
        for name in ("version", "description"):
            text = _text(metadata.get(name))
            if text is not None:
                card[name] = text
        card["capabilities"] = [
            self.capability(item, f":capabilities[{at}]", uri or "")
            for at, item in enumerate(self.profile.maps("capabilities"))
        ]
        card["communication"] = communication
        tags = list(_distinct(_texts(metadata.get("discovery_tags")) + _texts(metadata.get("tags"))))
        if tags:
            card["discovery_tags"] = tags
        rest = self.metadata(metadata)
        return card | ({"metadata": rest} if rest else {})

    def metadata(self, converted: JsonObject) -> JsonObject:
        rest = {_TIMES.get(name, name): value for name, value in converted.items() if name not in _METADATA_ELSEWHERE}
        interoperability = self.profile.map("interoperability")
        if interoperability.entries:
            rest["interoperability"] = map_to_json(interoperability, ":interoperability", self.warnings)
        return rest

    # --- Capabilities ----------------------------------------------------------------------------

    def capability(self, form: Map, path: str, profile_uri: str) -> JsonObject:
        name = str(form.find("capability-id"))
        card: JsonObject = {"capability_id": name}
        for key in ("description", "type", "version"):
            text = _text(self.value(form.find(key), f"{path} :{key}"))
            if text is not None:
                card[key] = text
        for side in ("input", "output"):
            kind = form.find(f"{side}-schema")
            if kind is not None:
                card[f"{side}_schema_ref"] = _schema_reference(
                    kind, f"{profile_uri}#/capabilities/{name}/{side}_schema"
                )
        notes = form.find("annotations")
        if self.annotations and isinstance(notes, Map):
            card["annotations"] = map_to_json(notes, f"{path} :annotations", self.warnings)
        return card

    # --- Communication ---------------------------------------------------------------------------

    def communication(self) -> JsonObject:
        """Read `:communication-endpoints`; if it is absent, `:communication` in the form of a card (P-14)."""
        listed = self.profile.maps("communication-endpoints")
        if not listed and self.profile.map("communication").entries:
            return self.card_communication(self.profile.map("communication"))
        endpoints = [self.endpoint(item, f":communication-endpoints[{at}]") for at, item in enumerate(listed)]
        return {"protocols": _protocols(endpoints), "endpoints": endpoints}

    def card_communication(self, form: Map) -> JsonObject:
        endpoints = [
            map_to_json(item, f":communication :endpoints[{at}]", self.warnings)
            for at, item in enumerate(maps_in(form.find("endpoints")))
        ]
        protocols = _texts(self.value(form.find("protocols"), ":communication :protocols"))
        return {"protocols": protocols or _protocols(endpoints), "endpoints": endpoints}

    def endpoint(self, form: Map, path: str) -> JsonObject:
        protocol = form.find("protocol") or form.find("transport")
        scheme = str(form.find("uri")).split(":", 1)[0].lower()
        endpoint: JsonObject = {
            "protocol": _text(self.value(protocol, f"{path} :protocol")) or scheme,
            "uri": form.find("uri"),
        }
        details = self.details(form.find("details"), f"{path} :details")
        for key in ("endpoint-id", "transport", "provides-capabilities"):
            value = self.value(form.find(key), f"{path} :{key}")
            if value is not None:
                details[json_name(Keyword(key))] = value
        return endpoint | ({"details": details} if details else {})

    def details(self, form: Form, path: str) -> JsonObject:
        if not isinstance(form, Map):
            return {}
        converted = map_to_json(form, path, self.warnings)
        return {"methods" if name == "http_methods" else name: value for name, value in converted.items()}

    def value(self, form: Form, path: str) -> Any:
        return form_to_json(form, path, self.warnings)

    # --- URL of the profile ----------------------------------------------------------------------

    def profile_uri(self, endpoints: list[JsonObject]) -> str | None:
        for at, mechanism in enumerate(self.profile.maps("discovery-mechanisms")):
            path = f":discovery-mechanisms[{at}]"
            registered = mechanism.find("registration-id")
            if registered is not None and registered != self.profile.id:
                self.warnings.append(f"{path} :registration-id: differs from :id and is ignored.")
        for mechanism in self.profile.maps("discovery-mechanisms"):
            uri = mechanism.find("uri")
            if mechanism.find("type") == Keyword("well-known-uri") and isinstance(uri, str):
                return self.absolute(uri, endpoints)
        return None

    def absolute(self, uri: str, endpoints: list[JsonObject]) -> str | None:
        base = self.base or next(filter(None, (_origin(item.get("uri")) for item in endpoints)), None)
        resolved = _join(base, uri)
        if resolved is None:
            self.warnings.append(f":discovery-mechanisms: {uri[:80]!r} is not an http(s) URL; left out.")
        return resolved


def derive_card(
    profile: AgentProfile, *, base: str | None = None, endpoint_url: str | None = None, annotations: bool = False
) -> tuple[JsonObject, tuple[str, ...]]:
    """Return the card of a profile, and warnings. Relative references are resolved against `base`, else an endpoint's
    origin."""
    derivation = _CardDerivation(profile, base=base or _origin(endpoint_url), annotations=annotations)
    return derivation.card(), tuple(derivation.warnings)


def _schema_reference(kind: Form, reference: str) -> JsonObject | str:
    """Return a string as a reference, and a small type expression as an inline schema."""
    if isinstance(kind, str):
        return kind
    schema = type_to_schema(kind)
    inline: JsonObject = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
    if len(dump_json(inline)) > limits.RTFS_INLINE_SCHEMA_BYTES or _depth(inline) > limits.RTFS_INLINE_SCHEMA_DEPTH:
        return reference
    return inline


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _origin(uri: Any) -> str | None:
    if not isinstance(uri, str):
        return None
    try:
        parts = urlsplit(uri)
        scheme, host = _WEB.get(parts.scheme), parts.hostname
    except ValueError:
        return None
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}/" if scheme and host else None


def _join(base: str | None, uri: str) -> str | None:
    try:
        resolved = urljoin(base or "", uri)
        parts = urlsplit(resolved)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    return resolved if usable else None


def _protocols(endpoints: list[JsonObject]) -> list[str]:
    return list(dict.fromkeys(item["protocol"] for item in endpoints if isinstance(item.get("protocol"), str)))


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if text.casefold() not in seen:
            seen.add(text.casefold())
            yield text


def _text(value: Any) -> str | None:
    if isinstance(value, str) and value.strip():
        return value
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


# --- Types ----------------------------------------------------------------------------------------

_PRIMITIVES: dict[str, JsonObject | bool] = {
    "string": {"type": "string"},
    "keyword": {"type": "string"},
    "symbol": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "nil": {"type": "null"},
    "any": True,
    "never": False,
}
_OPTIONAL = Symbol("?")
_SYNTAX = re.compile(r"[\^$\\.*+?()\[\]{}|/]")


def type_to_schema(form: Form) -> JsonObject | bool:
    """Return the JSON Schema of a type expression."""
    name = _name(form)
    if name is not None:
        return _primitive(name, form)
    if isinstance(form, Map):
        return _literal_schema(form)
    if isinstance(form, Vector) and form.items:
        head = _name(form.items[0])
        build = _COMPOSITES.get(head) if head is not None else None
        if build is not None:
            try:
                return build(form.items[1:])
            except (InvalidDocument, _UnmappedType):
                return _unmapped(form)
    return _unmapped(form)


def _literal_schema(form: Map) -> JsonObject:
    """Read a map in place of a type: JSON Schema as data, as in exported profiles."""
    try:
        return map_to_json(form, "", [])
    except InvalidDocument:
        return _unmapped(form)


class _UnmappedType(Exception):
    """A composite type without its required parts."""


def _name(form: Form) -> str | None:
    return form.name if isinstance(form, (Keyword, Symbol)) else None


def _unmapped(form: Form) -> JsonObject:
    return {"x-rtfs-type": print_line(form)}


def _primitive(name: str, form: Form) -> JsonObject | bool:
    found = _PRIMITIVES.get(name.removesuffix("?"))
    if found is None:
        return _unmapped(form)
    plain = dict(found) if isinstance(found, dict) else found
    return _nullable(plain) if name.endswith("?") else plain


def _nullable(schema: JsonObject | bool) -> JsonObject | bool:
    if schema is True:
        return True
    if isinstance(schema, dict) and isinstance(schema.get("type"), str) and "enum" not in schema:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _types(items: Sequence[Form]) -> list[JsonObject | bool]:
    """Return the types of a sequence; a separate `?` makes the one before it nullable."""
    schemas: list[JsonObject | bool] = []
    for item in items:
        if item == _OPTIONAL and schemas:
            schemas[-1] = _nullable(schemas[-1])
        else:
            schemas.append(type_to_schema(item))
    return schemas


def _array(items: Sequence[Form]) -> JsonObject:
    types = _types(items)
    if len(types) > 1:
        raise _UnmappedType
    return {"type": "array", "items": types[0]} if types else {"type": "array"}


def _shaped_array(items: Sequence[Form]) -> JsonObject:
    if not items:
        raise _UnmappedType
    shape = {"x-rtfs-shape": print_line(items[1])} if len(items) > 1 else {}
    return {"type": "array", "items": type_to_schema(items[0])} | shape


def _tuple(items: Sequence[Form]) -> JsonObject:
    types = _types(items)
    return {"type": "array", "prefixItems": types, "items": False, "minItems": len(types)} if types else _empty_array()


def _empty_array() -> JsonObject:
    return {"type": "array", "maxItems": 0}


def _map(items: Sequence[Form]) -> JsonObject:
    properties: JsonObject = {}
    required: list[str] = []
    others: JsonObject | bool = True
    for entry in items:
        if not isinstance(entry, Vector) or len(entry.items) < 2:
            raise _UnmappedType
        key, kind, *marks = entry.items
        schema = _with_options(type_to_schema(kind), marks)
        if key == Keyword("*"):
            others = schema
            continue
        if not isinstance(key, (Keyword, str, int)):
            raise _UnmappedType
        name = json_name(key)
        properties[name] = schema
        if _OPTIONAL not in marks and not (_name(kind) or "").endswith("?"):
            required.append(name)
    body: JsonObject = {"type": "object", "properties": properties}
    if required:
        body["required"] = required
    return body | {"additionalProperties": others}


def _with_options(schema: JsonObject | bool, marks: Sequence[Form]) -> JsonObject | bool:
    """Add `default` and `description` from the trailing map of an entry."""
    for mark in marks:
        if isinstance(mark, Map):
            options = form_to_json(mark, "", [])
            known = {name: options[name] for name in ("default", "description") if name in options}
            base: JsonObject = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
            schema = base | known
    return schema


def _any_of(items: Sequence[Form]) -> JsonObject:
    if not items:
        raise _UnmappedType
    return {"anyOf": _types(items)}


def _all_of(items: Sequence[Form]) -> JsonObject:
    if not items:
        raise _UnmappedType
    parts: list[JsonObject | bool] = [type_to_schema(items[0])]
    unknown: list[str] = []
    for item in items[1:]:
        predicate = _predicate(item)
        if predicate is not None:
            parts.append(predicate)
        else:
            unknown.append(print_line(item))
    body: JsonObject = {"allOf": parts}
    return body | ({"x-rtfs-predicates": unknown} if unknown else {})


def _predicate(form: Form) -> JsonObject | bool | None:
    """Return the schema of a predicate, or of a type in its place; None if JSON Schema cannot express it."""
    if not isinstance(form, Vector) or not form.items:
        return None
    head = _name(form.items[0]) or ""
    build = _PREDICATES.get(head)
    if build is not None and len(form.items) == 2:
        return build(form.items[1])
    return type_to_schema(form) if head in _COMPOSITES else None


def _number_predicate(*names: str, is_count: bool = False) -> Callable[[Form], JsonObject | None]:
    def build(value: Form) -> JsonObject | None:
        if isinstance(value, bool) or not isinstance(value, int if is_count else (int, float)):
            return None
        if is_count and value < 0:
            return None
        return dict.fromkeys(names, value)

    return build


def _pattern_predicate(make: Callable[[str], str]) -> Callable[[Form], JsonObject | None]:
    return lambda value: {"pattern": make(value)} if isinstance(value, str) else None


def _escaped(text: str) -> str:
    return _SYNTAX.sub(lambda found: "\\" + found.group(), text)


_MIN_LENGTH = _number_predicate("minLength", is_count=True)
_MAX_LENGTH = _number_predicate("maxLength", is_count=True)
_PREDICATES: dict[str, Callable[[Form], JsonObject | None]] = {
    ">": _number_predicate("exclusiveMinimum"),
    ">=": _number_predicate("minimum"),
    "<": _number_predicate("exclusiveMaximum"),
    "<=": _number_predicate("maximum"),
    "string-length": _number_predicate("minLength", "maxLength", is_count=True),
    "string-min-length": _MIN_LENGTH,
    "min-length": _MIN_LENGTH,
    "string-max-length": _MAX_LENGTH,
    "max-length": _MAX_LENGTH,
    "string-starts-with": _pattern_predicate(lambda text: "^" + _escaped(text)),
    "string-ends-with": _pattern_predicate(lambda text: _escaped(text) + "$"),
    "string-contains": _pattern_predicate(_escaped),
    "string-matches-regex": _pattern_predicate(str),
    "min-count": _number_predicate("minItems", is_count=True),
    "max-count": _number_predicate("maxItems", is_count=True),
}


def _const(items: Sequence[Form]) -> JsonObject:
    if len(items) != 1:
        raise _UnmappedType
    return {"const": form_to_json(items[0], "", [])}


def _enum(items: Sequence[Form]) -> JsonObject:
    values: list[Any] = [form_to_json(item, "", []) for item in items]
    if not values:
        raise _UnmappedType
    return {"enum": values}


_COMPOSITES: dict[str, Callable[[Sequence[Form]], JsonObject]] = {
    "vector": _array,
    "list": _array,
    "stream": _array,
    "array": _shaped_array,
    "tuple": _tuple,
    "map": _map,
    "or": _any_of,
    "union": _any_of,
    "and": _all_of,
    "val": _const,
    "enum": _enum,
}
