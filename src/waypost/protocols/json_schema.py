"""Schemas of what is read, made out of the schemas of what is written.

A document comes back in its own dialect as it was sent, so a dialect's schema has to take whatever its reader takes, while
what is made here stays held to the specification's own form. Each definition X of that form gives a definition AcceptedX:
a null or an empty text stands for an absent member, older names stand beside today's, and what the codec says it does
without is not demanded. This module knows JSON Schema and no dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from waypost.model.json import JsonObject

ACCEPTED_PREFIX = "Accepted"
_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LISTS = ("anyOf", "oneOf", "allOf")
_PARTS = ("items", "additionalProperties", "then", "else")  # not `if` and `not`: to widen those would narrow the whole
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def build_schema(title: str, forms: Iterable[str], definitions: Mapping[str, JsonObject]) -> JsonObject:
    """A schema whose documents have one of the forms, each the name of a definition."""
    references = [{"$ref": f"#/$defs/{form}"} for form in forms]
    choice: JsonObject = references[0] if len(references) == 1 else {"anyOf": references}
    return {"$schema": _SCHEMA_DIALECT, "title": title, **choice, "$defs": dict(definitions)}


def relax_definitions(
    definitions: Mapping[str, JsonObject],
    changes: Mapping[str, JsonObject] = _NOTHING,
    spellings: Mapping[str, Iterable[str]] = _NOTHING,
) -> dict[str, JsonObject]:
    """The definitions as they are read. `changes` holds keywords that differ for a definition (its properties are merged),
    `spellings` the older names of a member."""
    return {
        ACCEPTED_PREFIX + name: _with_aliases(
            _relaxed(_changed(definition, changes.get(name, {})), definitions), spellings
        )
        for name, definition in definitions.items()
    }


def _changed(definition: JsonObject, change: JsonObject) -> JsonObject:
    merged = {**definition, **change}
    if "properties" in change:
        merged["properties"] = {**definition.get("properties", {}), **change["properties"]}
    return merged


def _relaxed(schema: JsonObject, definitions: Mapping[str, JsonObject]) -> JsonObject:
    wide = dict(schema)
    demanded = schema.get("required", ())
    if "$ref" in schema:
        wide["$ref"] = _reference(schema["$ref"], definitions)
    if "properties" in schema:
        parts = {name: _relaxed(part, definitions) for name, part in schema["properties"].items()}
        wide["properties"] = {name: part if name in demanded else _nullable(part) for name, part in parts.items()}
    for keyword in _PARTS:
        if isinstance(schema.get(keyword), dict):
            wide[keyword] = _relaxed(schema[keyword], definitions)
    for keyword in _LISTS:
        if keyword in schema:
            wide[keyword] = [_relaxed(part, definitions) for part in schema[keyword]]
    return wide


def _reference(target: str, definitions: Mapping[str, JsonObject]) -> str:
    name = target.removeprefix("#/$defs/")
    return f"#/$defs/{ACCEPTED_PREFIX}{name}" if name in definitions else target


def _nullable(schema: JsonObject) -> JsonObject:
    """The schema of a member that need not be there: null says the same, and so does an empty text."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        wide = {key: value for key, value in schema.items() if key != "minLength"}
        return {**wide, "type": [kinds, "null"]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    constrains = any(keyword in schema for keyword in ("type", "$ref", "const", *_LISTS))
    return {"anyOf": [schema, {"type": "null"}]} if constrains else schema


def _with_aliases(schema: JsonObject, spellings: Mapping[str, Iterable[str]]) -> JsonObject:
    """The schema with each member under its older names too. A reader refuses two names for one member."""
    wide = dict(schema)
    if "properties" in schema:
        parts = {name: _with_aliases(part, spellings) for name, part in schema["properties"].items()}
        others = {other: part for name, part in parts.items() for other in spellings.get(name, ())}
        wide["properties"] = parts | others
    renamed = [name for name in schema.get("required", ()) if spellings.get(name)]
    if renamed:
        wide["required"] = [name for name in schema["required"] if name not in renamed]
        either = [{"anyOf": [{"required": [other]} for other in (name, *spellings[name])]} for name in renamed]
        wide["allOf"] = [*schema.get("allOf", ()), *either]
    for keyword in _PARTS:
        if isinstance(schema.get(keyword), dict):
            wide[keyword] = _with_aliases(schema[keyword], spellings)
    for keyword in _LISTS:
        if keyword in schema:
            own = wide[keyword][: len(schema[keyword])]
            wide[keyword] = [_with_aliases(part, spellings) for part in own] + wide[keyword][len(own) :]
    return wide
