"""The canonical record: the profile's Agent Metadata (profile.md §4), with unknown members preserved.

Every dialect maps to it and from it. `extra` holds members that the profile does not define, among them the residue of
each dialect under `org.waypost.<dialect>` (PRO-19: collision-resistant names), so that a round trip loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, kind_of, member
from waypost.model.names import fold

STATUSES = ("active", "inactive", "suspended", "deprecated", "testing")
LISTED = ("active", "testing", "deprecated")  # statuses that lists and searches include by default


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to reach the agent (Table 4). A lower `priority` is preferred."""

    protocol: str
    endpoint: str
    media_types: tuple[str, ...] = ()
    interaction_model: str | None = None
    priority: int | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_link(self) -> bool:
        """Whether the endpoint is a document of the agent, like the one that an entry of a catalog names, and not a place
        that answers the protocol."""
        return self.extra.get("unresolved") is True


class Example(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A concrete task the agent can do (Table 3)."""

    text: str
    id: str | None = None
    tags: tuple[str, ...] = ()
    input_schema: Any = None
    output_schema: Any = None
    language: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One agent (Table 2)."""

    id: str
    name: str
    description: str
    bindings: tuple[Binding, ...] = ()
    tags: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    auth: Any = None
    constraints: dict[str, Any] | None = None
    status: str | None = None
    expires_at: str | None = None
    version: str | None = None
    updated_at: str | None = None
    signature: Any = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def effective_status(self) -> str:
        return self.status or "active"


class MappingLoss(msgspec.Struct, frozen=True):
    """A record member that the target dialect cannot carry."""

    path: str  # JSON path into the profile document, e.g. $.examples[0].input_schema
    reason: str


def protocols_of(record: AgentRecord) -> tuple[str, ...]:
    """Return the protocols to index: each binding's own, and its family (`a2a` for `a2a+jsonrpc`)."""
    own = [fold(binding.protocol) for binding in record.bindings]
    return tuple(dict.fromkeys([*own, *(name.split("+", 1)[0] for name in own if "+" in name)]))


_BINDING_FIELDS = ("protocol", "endpoint", "media_types", "interaction_model", "priority")
_EXAMPLE_FIELDS = ("id", "text", "tags", "input_schema", "output_schema", "language")
RECORD_FIELDS = (
    "id",
    "name",
    "description",
    "tags",
    "examples",
    "bindings",
    "auth",
    "constraints",
    "status",
    "expires_at",
    "version",
    "updated_at",
    "signature",
)
_LATER_FIELDS = RECORD_FIELDS[6:]
_KNOWN_BINDING = frozenset(_BINDING_FIELDS)
_KNOWN_EXAMPLE = frozenset(_EXAMPLE_FIELDS)
_KNOWN_RECORD = frozenset(RECORD_FIELDS)


def record_to_json(record: AgentRecord) -> JsonObject:
    """Return the record as a profile document: members in table order, absent ones left out, unknown ones last."""
    document: JsonObject = {"id": record.id, "name": record.name, "description": record.description}
    if record.tags:
        document["tags"] = list(record.tags)
    if record.examples:
        document["examples"] = [_example_to_json(example) for example in record.examples]
    document["bindings"] = [_binding_to_json(binding) for binding in record.bindings]
    for name in _LATER_FIELDS:
        value = getattr(record, name)
        if value is not None:
            document[name] = value
    for name, value in record.extra.items():
        document.setdefault(name, value)
    return document


def _binding_to_json(binding: Binding) -> JsonObject:
    document: JsonObject = {"protocol": binding.protocol, "endpoint": binding.endpoint}
    if binding.media_types:
        document["media_types"] = list(binding.media_types)
    if binding.interaction_model is not None:
        document["interaction_model"] = binding.interaction_model
    if binding.priority is not None:
        document["priority"] = binding.priority
    for name, value in binding.extra.items():
        document.setdefault(name, value)
    return document


def _example_to_json(example: Example) -> JsonObject:
    document: JsonObject = {} if example.id is None else {"id": example.id}
    document["text"] = example.text
    if example.tags:
        document["tags"] = list(example.tags)
    if example.input_schema is not None:
        document["input_schema"] = example.input_schema
    if example.output_schema is not None:
        document["output_schema"] = example.output_schema
    if example.language is not None:
        document["language"] = example.language
    for name, value in example.extra.items():
        document.setdefault(name, value)
    return document


class _WrittenExample(msgspec.Struct, omit_defaults=True, gc=False):
    """An example without unknown members, in the member order of the tables; likewise below."""

    id: str | None = None
    text: str | msgspec.UnsetType = msgspec.UNSET
    tags: tuple[str, ...] = ()
    input_schema: Any = None
    output_schema: Any = None
    language: str | None = None


class _WrittenBinding(msgspec.Struct, omit_defaults=True, gc=False):
    protocol: str
    endpoint: str
    media_types: tuple[str, ...] = ()
    interaction_model: str | None = None
    priority: int | None = None


class _WrittenRecord(msgspec.Struct, omit_defaults=True, gc=False):
    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: list[_WrittenExample] | msgspec.UnsetType = msgspec.UNSET
    bindings: list[_WrittenBinding] | msgspec.UnsetType = msgspec.UNSET
    auth: Any = None
    constraints: dict[str, Any] | None = None
    status: str | None = None
    expires_at: str | None = None
    version: str | None = None
    updated_at: str | None = None
    signature: Any = None


def record_bytes(record: AgentRecord) -> bytes:
    """Return the bytes of `record_to_json`. Records without unknown members are encoded without making a document."""
    parts: tuple[AgentRecord | Binding | Example, ...] = (record, *record.bindings, *record.examples)
    for part in parts:
        if part.extra:
            return dump_json(record_to_json(record))
    examples = [
        _WrittenExample(each.id, each.text, each.tags, each.input_schema, each.output_schema, each.language)
        for each in record.examples
    ]
    bindings = [
        _WrittenBinding(each.protocol, each.endpoint, each.media_types, each.interaction_model, each.priority)
        for each in record.bindings
    ]
    return dump_json(
        _WrittenRecord(
            record.id,
            record.name,
            record.description,
            record.tags,
            examples or msgspec.UNSET,
            bindings,
            record.auth,
            record.constraints,
            record.status,
            record.expires_at,
            record.version,
            record.updated_at,
            record.signature,
        )
    )


def record_from_json(document: Mapping[str, Any]) -> AgentRecord:
    """Read a record from a profile document that was already checked: by a codec, or before it was stored."""
    return AgentRecord(
        id=document["id"],
        name=document["name"],
        description=document["description"],
        bindings=tuple(binding_from_json(item) for item in document.get("bindings") or ()),
        tags=tuple(document.get("tags") or ()),
        examples=tuple(example_from_json(item) for item in document.get("examples") or ()),
        auth=document.get("auth"),
        constraints=document.get("constraints"),
        status=document.get("status"),
        expires_at=document.get("expires_at"),
        version=document.get("version"),
        updated_at=document.get("updated_at"),
        signature=document.get("signature"),
        extra={name: value for name, value in document.items() if name not in _KNOWN_RECORD},
    )


def binding_from_json(item: Mapping[str, Any]) -> Binding:
    return Binding(
        protocol=item["protocol"],
        endpoint=item["endpoint"],
        media_types=tuple(item.get("media_types") or ()),
        interaction_model=item.get("interaction_model"),
        priority=item.get("priority"),
        extra={name: value for name, value in item.items() if name not in _KNOWN_BINDING},
    )


def example_from_json(item: Mapping[str, Any]) -> Example:
    return Example(
        text=item["text"],
        id=item.get("id"),
        tags=tuple(item.get("tags") or ()),
        input_schema=item.get("input_schema"),
        output_schema=item.get("output_schema"),
        language=item.get("language"),
        extra={name: value for name, value in item.items() if name not in _KNOWN_EXAMPLE},
    )


# --- Member access with checks, for all dialects --------------------------------------------------


def need_text(
    document: Mapping[str, Any],
    name: str,
    path: str = "$",
    *,
    most: int,
    blank: bool = False,
    what: str = "string",
) -> str:
    """Return the string member `name`; the error names its path."""
    where = member(path, name)
    if name not in document or document[name] is None:
        raise InvalidDocument(f"The member {name!r} is missing.", path=where, hint=f"Add it as a {what}.")
    value = document[name]
    if not isinstance(value, str):
        raise InvalidDocument(
            f"{name!r} must be a string, not {kind_of(value)}.", path=where, hint=f"Write it as a {what}."
        )
    if not blank and not value.strip():
        raise InvalidDocument(f"{name!r} is empty.", path=where, hint="Add a text.")
    return check_length(value, where, most)


def find_text(document: Mapping[str, Any], name: str, path: str = "$", *, most: int) -> str | None:
    """Return the string member `name`; None if it is absent or null."""
    value: str | None = _find(document, name, path, str, "a string", "Write it as a string")
    return None if value is None else check_length(value, member(path, name), most)


def find_texts(document: Mapping[str, Any], name: str, path: str = "$", *, most: int, chars: int) -> tuple[str, ...]:
    """Return the array of strings `name`; empty if it is absent or null."""
    value = document.get(name)
    if value is None:
        return ()
    where = member(path, name)
    items = need_array(value, where, most)
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise InvalidDocument(
                f"Each item of {name!r} must be a string, not {kind_of(item)}.",
                path=f"{where}[{index}]",
                hint="Write it as a string, or leave it out.",
            )
        check_length(item, f"{where}[{index}]", chars)
    return tuple(items)


def find_object(document: Mapping[str, Any], name: str, path: str = "$") -> JsonObject | None:
    value: JsonObject | None = _find(document, name, path, dict, "an object", "Write it as {…}")
    return value


def find_flag(document: Mapping[str, Any], name: str, path: str = "$") -> bool | None:
    value: bool | None = _find(document, name, path, bool, "a boolean", "Write true or false")
    return value


def find_integer(document: Mapping[str, Any], name: str, path: str = "$") -> int | None:
    value: int | None = _find(document, name, path, int, "an integer", "Write a whole number")
    return value


def _find(document: Mapping[str, Any], name: str, path: str, kind: type, expected: str, hint: str) -> Any:
    value = document.get(name)
    if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
        return value
    raise InvalidDocument(
        f"{name!r} must be {expected}, not {kind_of(value)}.",
        path=member(path, name),
        hint=f"{hint}, or leave it out.",
    )


def find_array(document: Mapping[str, Any], name: str, path: str = "$", *, most: int) -> list[Any]:
    """Return the array member `name`; empty if it is absent or null."""
    value = document.get(name)
    return [] if value is None else need_array(value, member(path, name), most)


def find_objects(document: Mapping[str, Any], name: str, path: str = "$", *, most: int) -> list[tuple[JsonObject, str]]:
    """Return the objects of the array member `name`, each with its path; empty if it is absent or null."""
    items = [
        (item, f"{member(path, name)}[{index}]")
        for index, item in enumerate(find_array(document, name, path, most=most))
    ]
    for item, where in items:
        need_object(item, where)
    return items


def need_array(value: Any, path: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidDocument(f"Expected an array, found {kind_of(value)}.", path=path, hint="Write it as […].")
    if len(value) > most:
        raise InvalidDocument(f"{len(value)} items; at most {most} are allowed.", path=path, hint="Send fewer.")
    return value


def need_object(value: Any, path: str, *, shape: str = "{…}") -> JsonObject:
    """Return an object; the error shows `shape`, how it is written."""
    if not isinstance(value, dict):
        raise InvalidDocument(f"Expected an object, found {kind_of(value)}.", path=path, hint=f"Write it as {shape}.")
    return value


def check_length(value: str, path: str, most: int) -> str:
    if len(value) > most:
        raise InvalidDocument(f"{len(value)} characters; at most {most} are allowed.", path=path, hint="Shorten it.")
    return value


def check_id(value: str, path: str = "$.id") -> str:
    """An id is any URI, DNS name or local name without spaces or control characters (PRO-10)."""
    check_length(value, path, limits.ID_CHARS)
    if not value or " " in value or not value.isprintable():  # no other white space is printable
        raise InvalidDocument(
            "An id must be a non-empty string without spaces and control characters.",
            path=path,
            hint="Use a URI or a name.",
        )
    return value
