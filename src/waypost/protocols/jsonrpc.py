"""JSON-RPC 2.0 without sockets: bytes to calls, replies to bytes (rtfs.md RTFS-30…34).

Requests, batches, notifications and error objects; no methods. An id is kept as JSON text, so that `1`, `"1"`, `1.50`
and an integer of thirty digits are returned as received.

The strict parser reads almost every request. If it rejects a duplicate name or a large integer, or if an id is a
fraction, the text is parsed again with numbers as text, so that each call of a batch is checked on its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidCall, InvalidParameter, MalformedJson, TooComplex, TooLarge, WaypostError, error_codes
from waypost.model.json import JsonObject, dump_json, kind_of, member, parse_json, parse_number

NULL_ID = b"null"

CALL_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "method": {"type": "string"},
        "params": {"type": "object"},
        "id": {"type": ["string", "number", "null"]},
    },
}
NULLABLE_CALL_SCHEMA: JsonObject = {
    **CALL_SCHEMA,
    "properties": {**CALL_SCHEMA["properties"], "params": {"type": ["object", "null"]}},
}
REPLY_SCHEMA: JsonObject = {"type": ["object", "array"]}


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One request. `id` is its JSON text; None is a notification, which gets no reply."""

    method: str
    params: JsonObject | list[Any]
    id: bytes | None

    def named_params(self) -> JsonObject:
        if isinstance(self.params, dict):
            return self.params
        raise InvalidParameter("Parameters must be given by name, as an object.", path="params")


@dataclass(frozen=True, slots=True)
class RpcRejection:
    """An invalid call; it always gets a reply."""

    error: WaypostError
    id: bytes = NULL_ID


@dataclass(frozen=True, slots=True)
class RpcBatch:
    calls: tuple[RpcCall | RpcRejection, ...]
    is_batch: bool


def parse_calls(body: bytes) -> RpcBatch:
    """Parse a body. Invalid JSON, or too many calls, is one rejection."""
    try:
        value, numbers_as_text = _parse(body)
    except WaypostError as error:
        return _reject_body(error)
    if not isinstance(value, list):
        return RpcBatch((_call(value, numbers_as_text),), is_batch=False)
    if not value:
        return _reject_body(InvalidCall("The batch is empty.", hint="Send at least one call."))
    if len(value) > limits.RPC_BATCH_CALLS:
        return _reject_body(_too_many())
    return RpcBatch(tuple(_call(item, numbers_as_text) for item in value), is_batch=True)


def _reject_body(error: WaypostError) -> RpcBatch:
    return RpcBatch((RpcRejection(error),), is_batch=False)


def _too_many() -> InvalidCall:
    return InvalidCall(
        f"A batch must have at most {limits.RPC_BATCH_CALLS} calls.",
        hint="Send several batches.",
        details={"reason": "batch_too_large"},
    )


def _call(value: Any, numbers_as_text: bool) -> RpcCall | RpcRejection:
    if not isinstance(value, dict):
        return RpcRejection(InvalidCall(f"A call must be an object, not {kind_of(value)}."))
    call_id = _find_id(value)
    if "id" in value and call_id is None:
        return RpcRejection(
            InvalidCall(f"An id must be a string, a number or null, not {kind_of(value['id'])}.", path="id")
        )
    try:
        if numbers_as_text:
            value = {
                name: _parse_numbers(item, name) for name, item in _check_members(value, "$").items() if name != "id"
            }
        _check(value)
    except _RepeatedName as error:
        return RpcRejection(error)  # the id may be ambiguous
    except WaypostError as error:
        return RpcRejection(error, call_id or NULL_ID)
    params = value.get("params")
    return RpcCall(value["method"], {} if params is None else params, call_id)


def _find_id(value: JsonObject) -> bytes | None:
    """Return the JSON text of an id; None if it is absent or invalid."""
    if "id" not in value:
        return None
    match value["id"]:
        case _Number() as number:
            return number.encode()
        case bool():
            return None
        case None | int() as plain:
            return dump_json(plain)
        case str() as text:
            return json.dumps(text).encode()
        case _:
            return None


def _check(value: JsonObject) -> None:
    if value.get("jsonrpc") != "2.0":
        raise InvalidCall('"jsonrpc" must be "2.0".', path="jsonrpc")
    if not isinstance(value.get("method"), str):
        raise InvalidCall('"method" must be a string.', path="method")
    if not isinstance(value.get("params"), (dict, list, type(None))):
        raise InvalidCall(f'"params" must be an object, not {kind_of(value["params"])}.', path="params")


# --- Replies --------------------------------------------------------------------------------------


def result_reply(call_id: bytes, result: Any) -> bytes:
    return dump_json({"jsonrpc": "2.0", "result": result, "id": msgspec.Raw(call_id)})


def error_reply(call_id: bytes, error: WaypostError, *, code: int | None = None) -> bytes:
    return dump_json({"jsonrpc": "2.0", "error": error_object(error, code=code), "id": msgspec.Raw(call_id)})


def error_object(error: WaypostError, *, code: int | None = None) -> JsonObject:
    """`code` depends on the API; `data.code` is the profile's error code, which is unambiguous."""
    data: JsonObject = {"code": error.code}
    errors = error.details.get("errors")
    if errors is None and error.path is not None:
        errors = [{"path": error.path, "reason": error.message}]
    if errors:
        data["errors"] = errors
    if error.retry_after is not None:
        data["retry_after"] = error.retry_after
    if error.hint is not None:
        data["hint"] = error.hint
    for name in ("reason", "line", "column"):
        if name in error.details:
            data[name] = error.details[name]
    return {"code": error_codes(error).jsonrpc if code is None else code, "message": error.message, "data": data}


def encode_replies(replies: Sequence[bytes], *, is_batch: bool) -> bytes | None:
    """Return the body of the response; None without replies."""
    if not replies:
        return None
    return b"[" + b",".join(replies) + b"]" if is_batch else replies[0]


# --- Parsing --------------------------------------------------------------------------------------


class _Number(str):
    """The text of a number."""

    __slots__ = ()


class _Pairs(dict[str, Any]):
    """An object with a duplicate name."""

    repeated: str


class _RepeatedName(InvalidCall):
    pass


_Path: TypeAlias = "str | tuple[_Path, str | int]"  # formatted only for an error


def _parse(body: bytes) -> tuple[Any, bool]:
    """Return the value, and whether its numbers are still text."""
    if _exceeds_batch_limit(body):
        raise _too_many()
    try:
        value = parse_json(body, max_bytes=limits.RPC_BYTES, depth=limits.RTFS_DEPTH)
    except MalformedJson as error:
        return _parse_numbers_as_text(body, error), True
    except TooLarge as error:
        raise _size_error(body, error) from None
    calls = value if isinstance(value, list) else [value]
    if any(isinstance(call, dict) and isinstance(call.get("id"), float) for call in calls):
        _restore_fraction_ids(calls, body)
    return value, False


def _exceeds_batch_limit(body: bytes) -> bool:
    """Return whether a batch has too many calls, before they are checked one by one."""
    if body.count(b",") < limits.RPC_BATCH_CALLS or len(body) > limits.RPC_BYTES or body.lstrip()[:1] != b"[":
        return False
    with suppress(ValueError, RecursionError):
        return len(json.loads(body)) > limits.RPC_BATCH_CALLS
    return False


def _restore_fraction_ids(calls: list[Any], body: bytes) -> None:
    """Replace ids that are fractions by their text."""
    originals = _fraction_decoder.decode(body.decode("utf-8"))
    for call, original in zip(calls, originals if isinstance(originals, list) else [originals], strict=True):
        if isinstance(call, dict) and isinstance(call.get("id"), float):
            call["id"] = original["id"]


def _size_error(body: bytes, error: TooLarge) -> WaypostError:
    if error.details.get("bound") == "depth":
        return MalformedJson(error.message, path=error.path)
    if error.path == "$" and body.lstrip()[:1] == b"[":
        return _too_many()
    return error


def _parse_numbers_as_text(body: bytes, original: MalformedJson) -> Any:
    try:
        return _decoder.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise original from None


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    repeated = _Pairs(value)
    repeated.repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
    return repeated


def _constant(text: str) -> NoReturn:
    raise ValueError(text)


_fraction_decoder = json.JSONDecoder(parse_float=_Number)
_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_Number, parse_float=_Number)


def _check_members(value: JsonObject, path: _Path) -> JsonObject:
    if isinstance(value, _Pairs):
        raise _RepeatedName(
            f"The member {value.repeated[:64]!r} appears twice in one object.",
            path=_format_path(path),
            hint="Keep one of them.",
        )
    if len(value) > limits.JSON_OBJECT_KEYS:
        raise TooComplex(f"An object has more than {limits.JSON_OBJECT_KEYS} members.", path=_format_path(path))
    return value


def _parse_numbers(value: Any, path: _Path) -> Any:
    """Return the value with numbers parsed by the rules of the strict parser."""
    if isinstance(value, _Number):
        return _number(value, path)
    if isinstance(value, str):
        return _check_surrogates(value, path)
    if isinstance(value, dict):
        return {
            _check_surrogates(name, path): _parse_numbers(item, (path, name))
            for name, item in _check_members(value, path).items()
        }
    if isinstance(value, list):
        if len(value) > limits.JSON_ARRAY_ITEMS:
            raise TooComplex(f"An array has more than {limits.JSON_ARRAY_ITEMS} items.", path=_format_path(path))
        return [_parse_numbers(item, (path, at)) for at, item in enumerate(value)]
    return value


def _check_surrogates(text: str, path: _Path) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise MalformedJson("The text contains a lone surrogate.", path=_format_path(path))
    return text


def _number(text: _Number, path: _Path) -> int | float:
    try:
        return parse_number(text)
    except MalformedJson as error:
        raise InvalidParameter(error.message, path=_format_path(path), hint=error.hint) from None


def _format_path(path: _Path) -> str:
    if isinstance(path, str):
        return path
    parent, place = path
    return f"{_format_path(parent)}[{place}]" if isinstance(place, int) else member(_format_path(parent), place)
