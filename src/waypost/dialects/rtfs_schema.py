"""RTFS type expressions as JSON Schema 2020-12 (rtfs.md RTFS-9, P-9).

What JSON Schema has no word for is kept as text under `x-rtfs-type` or `x-rtfs-predicates`: a type never fails a profile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.sexpr import Form, Keyword, Map, Symbol, Vector
from waypost.model.sexpr_json import form_to_json, json_name, map_to_json
from waypost.model.sexpr_print import print_line

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


def schema_of(form: Form) -> JsonObject | bool:
    """The JSON Schema of a type expression."""
    name = _name(form)
    if name is not None:
        return _primitive(name, form)
    if isinstance(form, Map):
        return _as_written(form)
    if isinstance(form, Vector) and form.items:
        head = _name(form.items[0])
        build = _COMPOSITES.get(head) if head is not None else None
        if build is not None:
            try:
                return build(form.items[1:])
            except (InvalidDocument, _Odd):
                return _unmapped(form)
    return _unmapped(form)


def _as_written(form: Map) -> JsonObject:
    """A map in a type's place is JSON Schema written as data; exported profiles have it."""
    try:
        return map_to_json(form, "", [])
    except InvalidDocument:
        return _unmapped(form)


class _Odd(Exception):
    """A composite without the parts that it needs."""


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
    """The types in a row; a separate `?` makes the one before it nullable."""
    found: list[JsonObject | bool] = []
    for item in items:
        if item == _OPTIONAL and found:
            found[-1] = _nullable(found[-1])
        else:
            found.append(schema_of(item))
    return found


def _array(items: Sequence[Form]) -> JsonObject:
    types = _types(items)
    if len(types) > 1:
        raise _Odd
    return {"type": "array", "items": types[0]} if types else {"type": "array"}


def _shaped_array(items: Sequence[Form]) -> JsonObject:
    if not items:
        raise _Odd
    shape = {"x-rtfs-shape": print_line(items[1])} if len(items) > 1 else {}
    return {"type": "array", "items": schema_of(items[0])} | shape


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
            raise _Odd
        key, kind, *marks = entry.items
        schema = _with_options(schema_of(kind), marks)
        if key == Keyword("*"):
            others = schema
            continue
        if not isinstance(key, (Keyword, str, int)):
            raise _Odd
        name = json_name(key)
        properties[name] = schema
        if _OPTIONAL not in marks and not (_name(kind) or "").endswith("?"):
            required.append(name)
    body: JsonObject = {"type": "object", "properties": properties}
    if required:
        body["required"] = required
    return body | {"additionalProperties": others}


def _with_options(schema: JsonObject | bool, marks: Sequence[Form]) -> JsonObject | bool:
    """E's trailing map in an entry: `default` and `description` have words in JSON Schema."""
    for mark in marks:
        if isinstance(mark, Map):
            said = form_to_json(mark, "", [])
            known = {name: said[name] for name in ("default", "description") if name in said}
            base: JsonObject = schema if isinstance(schema, dict) else ({} if schema else {"not": {}})
            schema = base | known
    return schema


def _any_of(items: Sequence[Form]) -> JsonObject:
    if not items:
        raise _Odd
    return {"anyOf": _types(items)}


def _all_of(items: Sequence[Form]) -> JsonObject:
    if not items:
        raise _Odd
    parts: list[JsonObject | bool] = [schema_of(items[0])]
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
    """The schema of a predicate, of a type in its place, or None for one that JSON Schema cannot say."""
    if not isinstance(form, Vector) or not form.items:
        return None
    head = _name(form.items[0]) or ""
    build = _PREDICATES.get(head)
    if build is not None and len(form.items) == 2:
        return build(form.items[1])
    return schema_of(form) if head in _COMPOSITES else None


def _numbered(*names: str, whole: bool = False) -> Callable[[Form], JsonObject | None]:
    def build(value: Form) -> JsonObject | None:
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            return None
        if whole and value < 0:
            return None
        return dict.fromkeys(names, value)

    return build


def _patterned(make: Callable[[str], str]) -> Callable[[Form], JsonObject | None]:
    return lambda value: {"pattern": make(value)} if isinstance(value, str) else None


def _escaped(text: str) -> str:
    return _SYNTAX.sub(lambda found: "\\" + found.group(), text)


_MIN_LENGTH = _numbered("minLength", whole=True)
_MAX_LENGTH = _numbered("maxLength", whole=True)
_PREDICATES: dict[str, Callable[[Form], JsonObject | None]] = {
    ">": _numbered("exclusiveMinimum"),
    ">=": _numbered("minimum"),
    "<": _numbered("exclusiveMaximum"),
    "<=": _numbered("maximum"),
    "string-length": _numbered("minLength", "maxLength", whole=True),
    "string-min-length": _MIN_LENGTH,
    "min-length": _MIN_LENGTH,
    "string-max-length": _MAX_LENGTH,
    "max-length": _MAX_LENGTH,
    "string-starts-with": _patterned(lambda text: "^" + _escaped(text)),
    "string-ends-with": _patterned(lambda text: _escaped(text) + "$"),
    "string-contains": _patterned(_escaped),
    "string-matches-regex": _patterned(str),
    "min-count": _numbered("minItems", whole=True),
    "max-count": _numbered("maxItems", whole=True),
}


def _const(items: Sequence[Form]) -> JsonObject:
    if len(items) != 1:
        raise _Odd
    return {"const": form_to_json(items[0], "", [])}


def _enum(items: Sequence[Form]) -> JsonObject:
    values: list[Any] = [form_to_json(item, "", []) for item in items]
    if not values:
        raise _Odd
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
