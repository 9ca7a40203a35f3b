"""JSON: one strict parser, one writer, and single-line documents.

Two parsers must never read two documents from the same bytes, so duplicate names, NaN, lone surrogates and integers
that a double cannot represent are rejected before anything else uses the value. Errors carry a JSON path.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate, islice
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import MalformedJson, TooComplex, TooLarge

JsonObject: TypeAlias = dict[str, Any]

_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_YAML_START: Final = re.compile(r"\s*(?:---|[A-Za-z_$][\w.-]*:(?:\s|\Z)|- )")
_INTEGER_CHARS: Final = len(str(limits.JSON_INTEGER_MAX))  # a shorter integer is never too large
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"{}[]"))
_STEPS: Final = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
# To locate an error: text without a number that could be invalid, and text up to the end of an object. Quantifiers are
# possessive (`++`), or the alternatives start with different characters, so nothing backtracks. Groups are not
# possessive, because Python before 3.11.5 matches such groups wrongly.
_STRING: Final = r'"(?:[^"\\]++|\\.)*"'
_HARMLESS: Final = re.compile(
    rf"""(?:[^"0-9NI-]++|{_STRING}
    |-?[0-9]{{1,15}}+(?:\.[0-9]++)?(?:[eE](?:-[0-9]++|\+?[01]?[0-9]{{1,2}}+))?(?![0-9.eE]))*""",
    re.VERBOSE | re.DOTALL,
)
_UP_TO_OBJECT_END: Final = re.compile(rf'(?:[^"}}]++|{_STRING})*\}}', re.DOTALL)
_CLOSING: Final = str.maketrans("[{", "]}")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# Parsers that split lines as Unicode does (`str.splitlines`, httpx2's `iter_lines`) also split at these characters,
# which JSON allows in strings. Escaped they mean the same.
_DIVIDERS: Final = tuple((char.encode(), b"\\u%04x" % ord(char)) for char in "\x85\u2028\u2029")

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
    if len(text) < _INTEGER_CHARS:
        return int(text)
    value = int(text) if len(text) <= 17 else None
    if value is None or not -limits.JSON_INTEGER_MAX <= value <= limits.JSON_INTEGER_MAX:
        raise MalformedJson(
            f"The integer {text[:24]}{'…' if len(text) > 24 else ''} is beyond ±(2^53−1).",
            hint="Send it as a string: parsers disagree on larger numbers.",
        )
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise MalformedJson(f"The number {text[:24]} does not fit a double.", hint="Send it as a string.")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float)

_plain_decoder = json.JSONDecoder(object_pairs_hook=tuple)


def parse_json(
    data: bytes,
    *,
    max_bytes: int = limits.DOCUMENT_BYTES,
    depth: int = limits.JSON_DEPTH,
    any_length: bool = False,
) -> Any:
    """Parse `data`; the error states what is wrong and where.

    With `any_length`, arrays and objects may have any number of items: `max_bytes` alone bounds them.
    """
    if len(data) > max_bytes:
        raise TooLarge(
            f"The document has {len(data)} bytes; at most {max_bytes} are allowed.",
            path="$",
            hint="Send a smaller one.",
        )
    if data.startswith(b"\xef\xbb\xbf"):
        raise MalformedJson(
            "The document starts with a byte order mark.", path="$", hint="Save it as UTF-8 without a byte order mark."
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MalformedJson("The document is encoded as UTF-16.", path="$", hint="Save it as UTF-8.")
    if not data.strip():
        raise MalformedJson("The document is empty.", path="$", hint="Send a JSON document.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJson(
            f"Byte {error.start} is not valid UTF-8.", path="$", hint="Encode the document as UTF-8."
        ) from None
    if data.count(b"{") + data.count(b"[") > depth:
        _check_depth(data, depth)
    try:
        value = _decoder.decode(text)
    except _Repeated as repeated:
        raise MalformedJson(
            f"The member {repeated.name[:64]!r} appears twice in one object.",
            path=_path_of_repeated(text, repeated.name),
            hint="Keep one of them.",
        ) from None
    except json.JSONDecodeError as error:
        raise MalformedJson(
            f"Not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            path="$",
            hint=_hint_for(text),
        ) from None
    except MalformedJson as error:
        error.path = _path_of_wrong_number(text)
        raise
    except RecursionError:
        raise _too_deep(f"The document is nested deeper than {depth}.") from None
    if not any_length and data.count(b",") >= limits.JSON_OBJECT_KEYS:
        _check_size(value)  # with fewer, no container can be too large: an array may have more items than an object
    if b"\\" in data and _SURROGATE_ESCAPE.search(data):
        _check_surrogates(value)
    return value


def _hint_for(text: str) -> str:
    """What to do about a text that is not JSON."""
    if text.lstrip().startswith("<"):
        return "This is a page or an XML document. Send the JSON document of the agent, or its address."
    if _YAML_START.match(text):
        return "This looks like YAML. Convert it to JSON: only JSON is read."
    return "Send one JSON document; a checker such as `python -m json.tool` shows the place."


def parse_number(text: str) -> int | float:
    """Parse the text of a JSON number."""
    return _integer(text) if text.isdigit() or text[1:].isdigit() else _float(text)


def parse_object(data: bytes, *, max_bytes: int = limits.DOCUMENT_BYTES) -> JsonObject:
    value = parse_json(data, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise MalformedJson(f"Expected a JSON object, found {kind_of(value)}.", path="$", hint="Send {…}.")
    return value


def dump_json(value: Any) -> bytes:
    """Return compact UTF-8 JSON in the given member order."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # an error text may quote a lone surrogate
        return _encoder.encode(_escaped(value))


_VALUE_BYTES = 80  # of an empty list; a dictionary with one member has three separators below, and takes 240


def memory_size(value: Any) -> int:
    """Estimate how many bytes of memory a value takes that JSON can express; rather too many than too few.

    `[[],[],[]]` takes more than twenty times as much memory as text does. One wide character makes all of its string wide.
    """
    text = dump_json(value)
    widest = 1 if text.isascii() else 4
    return widest * len(text) + _VALUE_BYTES * (1 + sum(map(text.count, (b",", b":", b"[", b"{"))))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, msgspec.Struct):
        return _escaped(msgspec.to_builtins(value))
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, (list, tuple)) else value


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type, with its article, for messages."""
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
    """Return the JSON path of a member (RFC 9535 normal or shorthand form)."""
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{name[:64]!r}]"


def _check_depth(data: bytes, most: int) -> None:
    """Check the depth; runs only if the number of brackets does not rule the depth out."""
    brackets = _brackets(data)
    if brackets and max(accumulate(map(_STEPS.__getitem__, brackets))) > most:
        raise _too_deep(f"The document is nested deeper than {most} (line {_line_of_depth(data, most)}).")


def _brackets(data: bytes) -> bytes:
    """Return the brackets outside strings: without escapes, every other quote starts a string."""
    unescaped = _ESCAPE.sub(b"", data) if b"\\" in data else data
    return b"".join(unescaped.split(b'"')[::2]).translate(None, _NO_BRACKETS)


def _line_of_depth(data: bytes, most: int) -> int:
    depth = 0
    for found in re.finditer(rb'"(?:[^"\\]++|\\.)*"?|\\.|([{\[])|[}\]]', data, re.DOTALL):
        if found[0][0] in _STEPS:
            depth += 1 if found[1] else -1
            if depth > most:
                return data.count(b"\n", 0, found.start()) + 1
    return 1


def _too_deep(message: str) -> TooComplex:
    return TooComplex(message, path="$", hint="Send a flatter document.", details={"bound": "depth"})


def _check_size(value: Any) -> None:
    if isinstance(value, (dict, list)) and (found := _path_of_large(value)):
        path, size, what = found
        kind, items = ("object", "members") if what is dict else ("array", "items")
        most = limits.JSON_OBJECT_KEYS if what is dict else limits.JSON_ARRAY_ITEMS
        raise TooComplex(
            f"An {kind} has {size} {items}; at most {most} are allowed.",
            path="$" + path,
            hint="Leave some out, or put them into objects of their own." if what is dict else "Leave some out.",
        )


def _path_of_large(value: JsonObject | list[Any]) -> tuple[str, int, type] | None:
    """Return the first object or array that is too large: its path from here, its size and its type."""
    if isinstance(value, dict):
        if len(value) > limits.JSON_OBJECT_KEYS:
            return "", len(value), dict
        for name, item in value.items():
            if isinstance(item, (dict, list)) and item and (found := _path_of_large(item)):
                return member("", name) + found[0], *found[1:]
        return None
    if len(value) > limits.JSON_ARRAY_ITEMS:
        return "", len(value), list
    for index, item in enumerate(value):
        if isinstance(item, (dict, list)) and item and (found := _path_of_large(item)):
            return f"[{index}]" + found[0], *found[1:]
    return None


def _check_surrogates(value: Any) -> None:
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        raise MalformedJson(
            "The text contains a lone surrogate.",
            path=f"${_path_of_lone_surrogate(value)}",
            hint="Send the whole character.",
        ) from None


def _path_of_lone_surrogate(value: Any) -> str | None:
    """Return the path from here of the first string with a lone surrogate; of its object if it is a name."""
    if isinstance(value, str):
        return "" if not value.isascii() and _LONE_SURROGATE.search(value) else None
    if isinstance(value, dict):
        for name, item in value.items():
            if not name.isascii() and _LONE_SURROGATE.search(name):
                return ""
            if isinstance(item, (str, dict, list)) and item and (found := _path_of_lone_surrogate(item)) is not None:
                return member("", name) + found
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, (str, dict, list)) and item and (found := _path_of_lone_surrogate(item)) is not None:
                return f"[{index}]{found}"
    return None


def _path_of_wrong_number(text: str) -> str:
    """Return the path of the number that the decoder rejected, the first invalid one. Runs only for an error."""
    at = 0
    while True:
        at = _HARMLESS.match(text, at).end()  # type: ignore[union-attr]  # it always matches
        try:
            at = _decoder.raw_decode(text, at)[1]
        except MalformedJson:
            return _path_of(_open_containers(text[:at], "null"))


def _path_of_repeated(text: str, name: str) -> str:
    """Return the path of a duplicate name: in the first object that ends with one, or in an object around it."""
    try:
        value = _plain_decoder.decode(text)
    except (ValueError, RecursionError):  # the rest is not JSON
        return _path_of_repeated_before(text, name)
    return _path_within(_containers_of_repeated(value) or (), name)


def _containers_of_repeated(value: Any) -> list[Any] | None:
    """Return the containers from `value` to the first object that ends with a duplicate name, each up to that point."""
    if isinstance(value, list):
        for at, item in enumerate(value):
            if item and isinstance(item, (list, tuple)) and (inner := _containers_of_repeated(item)) is not None:
                return [value[: at + 1], *inner]
        return None
    for at, (_, item) in enumerate(value):
        if item and isinstance(item, (list, tuple)) and (inner := _containers_of_repeated(item)) is not None:
            return [value[: at + 1], *inner]
    return [value] if len(value) > 1 and len({name for name, _ in value}) < len(value) else None


def _path_within(containers: Iterable[Any], name: str) -> str:
    path = "$"
    for container in containers:
        if isinstance(container, tuple) and [other for other, _ in container].count(name) > 1:
            return member(path, name)
        path = _path_of([container], path)
    return path


def _path_of_repeated_before(text: str, name: str) -> str:
    """Return the same for a text that is invalid further on: up to the duplicate."""
    closed = 0

    def close(pairs: list[tuple[str, Any]]) -> None:
        nonlocal closed
        if len(pairs) > 1:
            _object(pairs)
        closed += 1

    with suppress(_Repeated):
        json.JSONDecoder(object_pairs_hook=close).decode(text)
    end = next(islice(_UP_TO_OBJECT_END.finditer(text), closed, None)).end()
    return _path_within(_open_containers(text[: end - 1], ""), name)


def _open_containers(prefix: str, last: str) -> list[Any]:
    """Return the containers that are open at the end of a valid prefix, from the outermost: arrays as lists, objects as
    tuples of pairs. The open container is the last item of the one around it."""
    brackets = _brackets(prefix.encode()).decode()
    while (fewer := brackets.replace("[]", "").replace("{}", "")) != brackets:
        brackets = fewer
    value = _plain_decoder.decode(prefix + last + brackets[::-1].translate(_CLOSING))
    found = []
    for _ in brackets:
        found.append(value)
        value = value[-1] if isinstance(value, list) else value[-1][1]
    return found


def _path_of(containers: list[Any], path: str = "$") -> str:
    """Return the path of the last item."""
    for container in containers:
        path = f"{path}[{len(container) - 1}]" if isinstance(container, list) else member(path, container[-1][0])
    return path


def to_single_line(document: bytes) -> bytes:
    """Return the same JSON without characters that a parser could take for a line end."""
    if b"\n" in document or b"\r" in document:  # only between tokens: in strings they are escaped
        document = document.replace(b"\r", b"").replace(b"\n", b" ")
    if document.isascii():
        return document
    for raw, escaped in _DIVIDERS:
        document = document.replace(raw, escaped)
    return document
