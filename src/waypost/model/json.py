"""JSON as every face reads it: one strict reader, one writer.

Two readers must never see two documents in the same bytes, so duplicate names, NaN, lone surrogates and integers that a
double cannot hold are refused here, before anything else looks at the value. Errors carry a JSON path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import MalformedJson, TooComplex, TooLarge

JsonObject: TypeAlias = dict[str, Any]

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_encoder = msgspec.json.Encoder()


class _Repeated(Exception):
    def __init__(self, name: str) -> None:
        self.name = name


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Repeated(name)
            seen.add(name)
    return value


def _constant(text: str) -> NoReturn:
    raise MalformedJson(f"{text} is not a JSON number.", hint="Use null or leave the member out.")


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 17 else None
    if value is None or not -limits.JSON_INTEGER_MAX <= value <= limits.JSON_INTEGER_MAX:
        raise MalformedJson(
            f"The integer {text[:24]}{'…' if len(text) > 24 else ''} is beyond ±(2^53−1).",
            hint="Send it as a string: readers disagree on larger numbers.",
        )
    return value


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise MalformedJson(f"The number {text[:24]} does not fit a double.", hint="Send it as a string.")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float)


def parse_json(data: bytes, *, max_bytes: int = limits.DOCUMENT_BYTES, depth: int = limits.JSON_DEPTH) -> Any:
    """The value in `data`, or an error that says what is wrong and where."""
    if len(data) > max_bytes:
        raise TooLarge(
            f"The document has {len(data)} bytes; at most {max_bytes} are read.", path="$", hint="Send a smaller one."
        )
    if data[:3] == b"\xef\xbb\xbf":
        raise MalformedJson("The document starts with a byte order mark.", path="$", hint="Send plain UTF-8.")
    if not data.strip():
        raise MalformedJson("The document is empty.", path="$", hint="Send a JSON document.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJson(
            f"Byte {error.start} is not valid UTF-8.", path="$", hint="Encode the document as UTF-8."
        ) from None
    if data.count(b"{") + data.count(b"[") > depth:
        _check_depth(text, depth)
    try:
        value = _decoder.decode(text)
    except _Repeated as repeated:
        raise MalformedJson(
            f"The member {repeated.name[:64]!r} appears twice in one object.",
            path=_locate(text, repeated.name),
            hint="Keep one of them.",
        ) from None
    except json.JSONDecodeError as error:
        raise MalformedJson(
            f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            path="$",
            hint="Send one JSON document; a checker such as `python -m json.tool` shows the place.",
        ) from None
    except MalformedJson as error:
        error.path = _locate(text, is_wrong=_is_wrong_number)
        raise
    except RecursionError:
        raise _too_deep(f"The document is nested deeper than {depth}.") from None
    if data.count(b":") > limits.JSON_OBJECT_KEYS or data.count(b",") >= limits.JSON_ARRAY_ITEMS:
        _check_size(value, "$")  # fewer of these cannot make a container that is too large
    if _SURROGATE_ESCAPE.search(data):
        _check_surrogates(value, "$")
    return value


def parse_object(data: bytes, *, max_bytes: int = limits.DOCUMENT_BYTES) -> JsonObject:
    value = parse_json(data, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise MalformedJson(f"Expected a JSON object, found {kind_of(value)}.", path="$", hint="Send {…}.")
    return value


def dump_json(value: Any) -> bytes:
    """Compact UTF-8 JSON in the member order given."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # an error quotes what it refuses, and that may hold half of a surrogate pair
        return _encoder.encode(_escaped(value))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, (list, tuple)) else value


def kind_of(value: Any) -> str:
    """The JSON name of a value's type, with its article, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def member(path: str, name: str) -> str:
    """The JSON path of a member (RFC 9535 normal or shorthand form)."""
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{name[:64]!r}]"


def _check_depth(text: str, most: int) -> None:
    """A linear scan outside strings; runs only when the bracket count alone cannot rule the depth out."""
    depth = 0
    in_string = False
    for part in re.finditer(r'\\.|["{}\[\]]', text, re.DOTALL):
        token = part.group()
        if token == '"':
            in_string = not in_string
        elif in_string or token[0] == "\\":
            continue
        elif token in "{[":
            depth += 1
            if depth > most:
                line = text.count("\n", 0, part.start()) + 1
                raise _too_deep(f"The document is nested deeper than {most} (line {line}).")
        else:
            depth -= 1


def _too_deep(message: str) -> TooComplex:
    return TooComplex(message, path="$", hint="Send a flatter document.", details={"bound": "depth"})


def _check_size(value: Any, path: str) -> None:
    if isinstance(value, dict):
        if len(value) > limits.JSON_OBJECT_KEYS:
            raise TooComplex(
                f"An object has {len(value)} members; at most {limits.JSON_OBJECT_KEYS} are read.",
                path=path,
                hint="Leave some out, or put them into objects of their own.",
            )
        for name, item in value.items():
            if isinstance(item, (dict, list)):
                _check_size(item, member(path, name))
    elif isinstance(value, list):
        if len(value) > limits.JSON_ARRAY_ITEMS:
            raise TooComplex(
                f"An array has {len(value)} items; at most {limits.JSON_ARRAY_ITEMS} are read.",
                path=path,
                hint="Leave some out.",
            )
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                _check_size(item, f"{path}[{index}]")


def _check_surrogates(value: Any, path: str) -> None:
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise MalformedJson("The text holds half of a surrogate pair.", path=path, hint="Send the whole character.")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_surrogates(name, path)
            _check_surrogates(item, member(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_surrogates(item, f"{path}[{index}]")


def _is_wrong_number(token: str) -> bool:
    try:
        _decoder.decode(token)
    except MalformedJson:
        return True
    except ValueError:
        return False
    return False


def _locate(text: str, repeated: str | None = None, *, is_wrong: Callable[[str], bool] = lambda token: False) -> str:
    """The JSON path of the first member that appears twice, or of the first wrong number. Only on the way to an error."""

    def walk(position: int, path: str) -> tuple[int, str | None]:
        position = skip(position)
        if text[position] == "{":
            names: set[str] = set()
            position = skip(position + 1)
            while text[position] != "}":
                name, position = json.decoder.scanstring(text, position + 1, True)  # type: ignore[attr-defined]
                if name in names and name == repeated:
                    return position, member(path, name)
                names.add(name)
                position = skip(position) + 1  # the colon
                position, found = walk(position, member(path, name))
                if found:
                    return position, found
                position = skip(position)
                if text[position] == ",":
                    position = skip(position + 1)
            return position + 1, None
        if text[position] == "[":
            index = 0
            position = skip(position + 1)
            while text[position] != "]":
                position, found = walk(position, f"{path}[{index}]")
                if found:
                    return position, found
                index += 1
                position = skip(position)
                if text[position] == ",":
                    position = skip(position + 1)
            return position + 1, None
        if text[position] == '"':
            _, position = json.decoder.scanstring(text, position + 1, True)  # type: ignore[attr-defined]
            return position, None
        start = position
        while position < len(text) and text[position] not in ",]} \t\r\n":
            position += 1
        return position, path if is_wrong(text[start:position]) else None

    def skip(position: int) -> int:
        while text[position] in " \t\r\n":
            position += 1
        return position

    try:
        return walk(0, "$")[1] or "$"
    except (IndexError, ValueError, RecursionError):
        return "$"
