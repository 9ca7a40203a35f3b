"""S-expression values as JSON values and back (rtfs.md RTFS-20, RTFS-63).

Only data converts: a list, a quoted form or a reference would have to be evaluated, and nothing is evaluated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.sexpr import Context, Form, Key, Keyword, List, Map, Quote, Symbol, Vector, is_name
from waypost.model.sexpr_print import print_line


def form_to_json(form: Form, path: str, warnings: list[str], *, symbols: bool = True) -> Any:
    """The JSON value of a form. `symbols=False` refuses names that only a running program could resolve."""
    match form:
        case Keyword(name):
            return name
        case Symbol(name) if symbols:
            return name
        case Vector(items):
            return [form_to_json(item, f"{path}[{at}]", warnings, symbols=symbols) for at, item in enumerate(items)]
        case Map():
            return map_to_json(form, path, warnings, symbols=symbols)
        case Symbol() | List() | Quote() | Context():
            raise InvalidDocument(
                f"{print_line(form)[:40]} is not data.", path=path, hint="Write the value itself: nothing is evaluated."
            )
        case bool() | str() | None:
            return form
        case int():
            return _integer(form, path, warnings)
        case float():
            if not math.isfinite(form):
                raise InvalidDocument(f"{form} is not a JSON number.", path=path)
            return form


def map_to_json(form: Map, path: str, warnings: list[str], *, symbols: bool = True) -> JsonObject:
    value: JsonObject = {}
    for key, item in form.entries:
        name = json_name(key)
        where = f"{path} {print_line(key)}"
        if name in value:
            raise InvalidDocument(f"Two keys of a map become {name!r}.", path=where, hint="Rename one of them.")
        value[name] = form_to_json(item, where, warnings, symbols=symbols)
    return value


def json_name(key: Key) -> str:
    """A keyword's name with `-` as `_`, a string as it is, an integer in decimal."""
    if isinstance(key, Keyword):
        return key.name.replace("-", "_")
    return key if isinstance(key, str) else str(key)


def _integer(value: int, path: str, warnings: list[str]) -> int | str:
    if abs(value) <= limits.JSON_INTEGER_MAX:
        return value
    warnings.append(f"{path}: {value} is beyond ±(2^53−1) and was made a string.")
    return str(value)


def json_to_form(value: Any, key: Callable[[str], Key] = Keyword) -> Form:
    """A JSON value as data. Member names become keywords, unless `key` says otherwise."""
    if isinstance(value, dict):
        return Map(tuple((key(name), json_to_form(item, key)) for name, item in value.items()))
    if isinstance(value, (list, tuple)):
        return Vector(tuple(json_to_form(item, key) for item in value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidDocument(f"{type(value).__name__} is not a JSON value.")


def profile_key(name: str) -> Key:
    """The key a JSON member has in a profile: `_` as `-`, so that `json_name` gives the name back; else the text itself."""
    renamed = name.replace("_", "-")
    return Keyword(renamed) if "-" not in name and is_name(renamed) else name
