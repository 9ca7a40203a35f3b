"""JSON-RPC 2.0 without sockets: bytes to calls, answers to bytes (rtfs.md RTFS-30…34).

It knows requests, batches, notifications and error objects; it refuses to know any method. An id travels as the JSON text
it was written in, so that `1`, `"1"`, `1.50` and an integer of thirty digits come back as they came.
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


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One request. `id` is its JSON text; None makes it a notification, which is executed and never answered."""

    method: str
    params: JsonObject | list[Any]
    id: bytes | None

    def named_params(self) -> JsonObject:
        if isinstance(self.params, dict):
            return self.params
        raise InvalidParameter("Parameters are given by name, as an object.", path="params")


@dataclass(frozen=True, slots=True)
class RpcRefusal:
    """What stands in the place of a call that is not one; it is always answered."""

    error: WaypostError
    id: bytes = NULL_ID


@dataclass(frozen=True, slots=True)
class RpcBatch:
    calls: tuple[RpcCall | RpcRefusal, ...]
    is_batch: bool


def parse_calls(body: bytes) -> RpcBatch:
    """The calls in a body. A body that is no JSON, or too many calls, is one refusal."""
    try:
        value, as_written = _parse(body)
    except WaypostError as error:
        return _one_refusal(error)
    if not isinstance(value, list):
        return RpcBatch((_call(value, as_written),), is_batch=False)
    if not value:
        return _one_refusal(InvalidCall("The batch is empty.", hint="Send at least one call."))
    if len(value) > limits.RPC_BATCH_CALLS:
        return _one_refusal(_too_many())
    return RpcBatch(tuple(_call(item, as_written) for item in value), is_batch=True)


def _one_refusal(error: WaypostError) -> RpcBatch:
    return RpcBatch((RpcRefusal(error),), is_batch=False)


def _too_many() -> InvalidCall:
    return InvalidCall(
        f"A batch has at most {limits.RPC_BATCH_CALLS} calls.",
        hint="Send several batches.",
        details={"reason": "batch_too_large"},
    )


def _call(value: Any, as_written: bool) -> RpcCall | RpcRefusal:
    if not isinstance(value, dict):
        return RpcRefusal(InvalidCall(f"A call is an object, not {kind_of(value)}."))
    call_id = _find_id(value)
    if "id" in value and call_id is None:
        return RpcRefusal(InvalidCall(f"An id is a string, a number or null, not {kind_of(value['id'])}.", path="id"))
    try:
        if as_written:
            value = {name: _settle(item, name) for name, item in _once(value, "$").items() if name != "id"}
        _check(value)
    except _RepeatedName as error:
        return RpcRefusal(error)  # which of two ids is meant cannot be known
    except WaypostError as error:
        return RpcRefusal(error, call_id or NULL_ID)
    params = value.get("params")
    return RpcCall(value["method"], {} if params is None else params, call_id)


def _find_id(value: JsonObject) -> bytes | None:
    """The JSON text of an id; None when there is none, or none that may be one."""
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
        raise InvalidCall(f'"params" is an object, not {kind_of(value["params"])}.', path="params")


# --- Answers --------------------------------------------------------------------------------------


def result_reply(call_id: bytes, result: Any) -> bytes:
    return dump_json({"jsonrpc": "2.0", "result": result, "id": msgspec.Raw(call_id)})


def error_reply(call_id: bytes, error: WaypostError, *, code: int | None = None) -> bytes:
    return dump_json({"jsonrpc": "2.0", "error": error_object(error, code=code), "id": msgspec.Raw(call_id)})


def error_object(error: WaypostError, *, code: int | None = None) -> JsonObject:
    """The number is the face's; `data.code` is the profile's word, by which a client decides when numbers overlap."""
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
    """The body of the answer; None when there is nothing to say."""
    if not replies:
        return None
    return b"[" + b",".join(replies) + b"]" if is_batch else replies[0]


# --- Reading --------------------------------------------------------------------------------------
# The strict reader serves almost every request. Only where it refuses a repeated name or a large integer, or where an id is
# a fraction, is the text read once more with numbers kept as they were written, so that each call of a batch is judged alone.


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Pairs(dict[str, Any]):
    """An object in which a name appears twice."""

    repeated: str


class _RepeatedName(InvalidCall):
    pass


_Path: TypeAlias = "str | tuple[_Path, str | int]"  # written out when there is an error to be told


def _parse(body: bytes) -> tuple[Any, bool]:
    """The value, and whether its numbers are still as they were written."""
    if _exceeds_batch_limit(body):
        raise _too_many()
    try:
        value = parse_json(body, max_bytes=limits.RPC_BYTES, depth=limits.RTFS_DEPTH)
    except MalformedJson as error:
        return _parse_as_written(body, error), True
    except TooLarge as error:
        raise _refusal(body, error) from None
    calls = value if isinstance(value, list) else [value]
    if any(isinstance(call, dict) and isinstance(call.get("id"), float) for call in calls):
        _write_ids(calls, body)
    return value, False


def _exceeds_batch_limit(body: bytes) -> bool:
    """Whether a batch has more calls than are read: known quickly, before each is looked at."""
    if body.count(b",") < limits.RPC_BATCH_CALLS or len(body) > limits.RPC_BYTES or body.lstrip()[:1] != b"[":
        return False
    with suppress(ValueError, RecursionError):
        return len(json.loads(body)) > limits.RPC_BATCH_CALLS
    return False


def _write_ids(calls: list[Any], body: bytes) -> None:
    """An id that is a fraction, as it was written."""
    written = _fraction_decoder.decode(body.decode("utf-8"))
    for call, same in zip(calls, written if isinstance(written, list) else [written], strict=True):
        if isinstance(call, dict) and isinstance(call.get("id"), float):
            call["id"] = same["id"]


def _refusal(body: bytes, error: TooLarge) -> WaypostError:
    if error.details.get("bound") == "depth":
        return MalformedJson(error.message, path=error.path)
    if error.path == "$" and body.lstrip()[:1] == b"[":
        return _too_many()
    return error


def _parse_as_written(body: bytes, refused: MalformedJson) -> Any:
    try:
        return _decoder.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise refused from None


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


def _once(value: JsonObject, path: _Path) -> JsonObject:
    if isinstance(value, _Pairs):
        raise _RepeatedName(
            f"The member {value.repeated[:64]!r} appears twice in one object.",
            path=_written(path),
            hint="Keep one of them.",
        )
    if len(value) > limits.JSON_OBJECT_KEYS:
        raise TooComplex(f"An object has more than {limits.JSON_OBJECT_KEYS} members.", path=_written(path))
    return value


def _settle(value: Any, path: _Path) -> Any:
    """The value with its numbers made numbers, by the same rules as the strict reader's."""
    if isinstance(value, _Number):
        return _number(value, path)
    if isinstance(value, str):
        return _whole(value, path)
    if isinstance(value, dict):
        return {_whole(name, path): _settle(item, (path, name)) for name, item in _once(value, path).items()}
    if isinstance(value, list):
        if len(value) > limits.JSON_ARRAY_ITEMS:
            raise TooComplex(f"An array has more than {limits.JSON_ARRAY_ITEMS} items.", path=_written(path))
        return [_settle(item, (path, at)) for at, item in enumerate(value)]
    return value


def _whole(text: str, path: _Path) -> str:
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise MalformedJson("The text holds half of a surrogate pair.", path=_written(path))
    return text


def _number(text: _Number, path: _Path) -> int | float:
    try:
        return parse_number(text)
    except MalformedJson as error:
        raise InvalidParameter(error.message, path=_written(path), hint=error.hint) from None


def _written(path: _Path) -> str:
    if isinstance(path, str):
        return path
    parent, place = path
    return f"{_written(parent)}[{place}]" if isinstance(place, int) else member(_written(parent), place)
