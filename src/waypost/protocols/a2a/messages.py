"""A2A messages over JSON-RPC, without sockets: the methods, the search in a message, and results and errors.

Methods of 1.0 (`SendMessage`) and of 0.3 (`message/send`) are read; the name of the method tells them apart, and the
answer has the form of the request. There are no tasks: every message is answered at once, with a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidCall, InvalidParameter, InvalidRequest, WaypostError, error_codes
from waypost.model.json import JsonObject, dump_json, kind_of
from waypost.model.record import find_object, find_objects, find_text, find_texts, need_object, need_text
from waypost.protocols.codec import truncate_text

VERSION_HEADER: Final = "a2a-version"
SEND: Final = "SendMessage"
LIST_TASKS: Final = "ListTasks"
_SUPPORTED: Final = ("1.0", "0.3")
_OLDER_METHODS: Final = {
    "message/send": SEND,
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs",
    "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
_TEXT, _JSON = "text/plain", "application/json"
_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_DOMAIN: Final = "a2a-protocol.org"
_INVALID_REQUEST, _INVALID_PARAMS, _INTERNAL = -32600, -32602, -32603
_REASONS: Final = {
    -32700: "PARSE_ERROR",
    _INVALID_REQUEST: "INVALID_REQUEST",
    -32601: "METHOD_NOT_FOUND",
    _INVALID_PARAMS: "INVALID_PARAMS",
    _INTERNAL: "INTERNAL_ERROR",
}
_DESCRIPTION_CHARS: Final = 160


class A2aError(InvalidCall):
    """An error of A2A (specification §3.3.2). `reason` is its name in `ErrorInfo`."""

    number: ClassVar[int] = _INVALID_REQUEST
    reason: ClassVar[str] = "INVALID_REQUEST"


class TaskNotFound(A2aError):
    number, reason = -32001, "TASK_NOT_FOUND"


class PushNotificationUnsupported(A2aError):
    number, reason = -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"


class UnsupportedOperation(A2aError):
    number, reason = -32004, "UNSUPPORTED_OPERATION"


class ContentTypeUnsupported(A2aError):
    number, reason = -32005, "CONTENT_TYPE_NOT_SUPPORTED"


class UnsupportedA2aVersion(A2aError):
    number, reason = -32009, "VERSION_NOT_SUPPORTED"


class UnknownA2aMethod(A2aError):
    number, reason = -32601, "METHOD_NOT_FOUND"


class SearchMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that asks for agents."""

    request: JsonObject  # a Discovery Request
    context_id: str | None
    wants_text: bool
    wants_data: bool


# --- Requests -------------------------------------------------------------------------------------


def current_method(method: str, version: str | None) -> str:
    """Return the method's name in 1.0. `version` is the header that states the version of A2A."""
    if version and not version.strip().startswith(_SUPPORTED):
        raise UnsupportedA2aVersion(
            f"A2A {version[:16]!r} is not supported.", path="A2A-Version", hint=f"Use {' or '.join(_SUPPORTED)}."
        )
    return _OLDER_METHODS.get(method, method)


def is_older_method(method: str) -> bool:
    return method in _OLDER_METHODS


def refuse_method(method: str, params: JsonObject) -> WaypostError:
    """Return the error for a method that needs tasks, streams or notifications, which this agent does not have."""
    match method:
        case "GetTask" | "CancelTask":
            task_id = params.get("id")
            if not isinstance(task_id, str) or not task_id:
                return InvalidParameter("The id of a task must be a string.", path="$.params.id")
            return TaskNotFound(
                f"There is no task {task_id[:64]!r}.", path="$.params.id", hint="Messages are answered at once."
            )
        case "SendStreamingMessage" | "SubscribeToTask":
            return UnsupportedOperation("This agent does not stream.", path="$.method", hint="Call SendMessage.")
        case "GetExtendedAgentCard":
            return UnsupportedOperation("This agent has no extended card.", path="$.method", hint="Read its card.")
        case _ if "PushNotificationConfig" in method:
            return PushNotificationUnsupported("This agent sends no notifications.", path="$.method")
        case _:
            return UnknownA2aMethod(
                f"There is no method {method[:64]!r}.", path="$.method", hint=f"Call {SEND}, or read the card."
            )


def parse_message(params: JsonObject) -> SearchMessage:
    """Return the search in the parameters of a message: its texts are the query, and an object is a Discovery Request."""
    message = need_object(params.get("message"), "$.params.message")
    path = "$.params.message"
    need_text(message, "messageId", path, most=limits.ID_CHARS)
    context_id = find_text(message, "contextId", path, most=limits.ID_CHARS)
    task_id = find_text(message, "taskId", path, most=limits.ID_CHARS)
    if task_id:
        raise TaskNotFound(
            f"There is no task {task_id[:64]!r}.", path=f"{path}.taskId", hint="Leave it out: messages start no tasks."
        )
    configuration = find_object(params, "configuration", "$.params") or {}
    modes = find_texts(
        configuration,
        "acceptedOutputModes",
        "$.params.configuration",
        most=limits.JSON_ARRAY_ITEMS,
        chars=limits.ENDPOINT_CHARS,
    )
    wants_text, wants_data = not modes or _accepts(modes, _TEXT), not modes or _accepts(modes, _JSON)
    if not (wants_text or wants_data):
        raise ContentTypeUnsupported(
            "No accepted output mode is supported.",
            path="$.params.configuration.acceptedOutputModes",
            hint=f"Accept {_TEXT} or {_JSON}.",
        )
    return SearchMessage(
        request=_read_request(message, path),
        context_id=context_id or None,
        wants_text=wants_text,
        wants_data=wants_data,
    )


def _accepts(modes: tuple[str, ...], media_type: str) -> bool:
    """Before 1.0 a mode could be `text` alone."""
    kind = media_type.partition("/")[0]
    bare = [mode.partition(";")[0].strip().lower() for mode in modes]
    return any(mode in ("*/*", media_type, f"{kind}/*", kind) for mode in bare)


def _read_request(message: JsonObject, path: str) -> JsonObject:
    request: JsonObject = {}
    texts: list[str] = []
    for part, where in find_objects(message, "parts", path, most=limits.JSON_ARRAY_ITEMS):
        if "text" in part:
            texts.append(need_text(part, "text", where, most=limits.REQUEST_BYTES, blank=True))
        elif "data" in part:
            if not isinstance(part["data"], dict):
                raise InvalidParameter(
                    f"data must be a Discovery Request, not {kind_of(part['data'])}.",
                    path=f"{where}.data",
                    hint='Send {"query": "…"}, or a text.',
                )
            request |= part["data"]
        else:
            raise ContentTypeUnsupported(
                "This agent reads text and data, not files.", path=where, hint='Send {"text": "the task in words"}.'
            )
    text = "\n".join(text.strip() for text in texts).strip()
    if text:
        request["query"] = text
    if not request.get("query"):
        raise InvalidParameter(
            "The message has no text.", path=f"{path}.parts", hint='Send [{"text": "the task in words"}].'
        )
    return request


# --- Results --------------------------------------------------------------------------------------


def message_result(
    search: SearchMessage, answer: JsonObject, message_id: str, context_id: str, *, is_older: bool
) -> JsonObject:
    """Return the result of a message. `answer` is the Discovery Response."""
    parts: list[JsonObject] = []
    if search.wants_text:
        text = describe_candidates(answer)
        parts.append({"kind": "text", "text": text} if is_older else {"text": text, "mediaType": _TEXT})
    if search.wants_data:
        parts.append({"kind": "data", "data": answer} if is_older else {"data": answer, "mediaType": _JSON})
    ids = {"messageId": message_id, "contextId": search.context_id or context_id}
    if is_older:
        return {"kind": "message", "role": "agent", **ids, "parts": parts}
    return {"message": {**ids, "role": "ROLE_AGENT", "parts": parts}}


def describe_candidates(answer: Mapping[str, Any]) -> str:
    """List the candidates of a Discovery Response in words."""
    lines: list[str] = []
    for number, candidate in enumerate(answer["candidates"], 1):
        summary = " ".join(str(candidate.get("description") or "").split())
        lines.append(
            f"{number}. {candidate.get('name') or candidate['id']}: {truncate_text(summary, _DESCRIPTION_CHARS)}"
        )
        lines.append(f"   {candidate['match']} match: {candidate['reason']}")
        lines.append(f"   id: {candidate['id']}")
        lines += [f"   {binding['protocol']}: {binding['endpoint']}" for binding in candidate["bindings"]]
    if not lines:
        return "No agent fits."
    if all(candidate["match"] == "weak" for candidate in answer["candidates"]):
        lines.insert(0, "Nothing fits well. The nearest agents:")
    return "\n".join(lines)


def tasks_result() -> JsonObject:
    return {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}


def error_body(call_id: bytes, error: WaypostError) -> bytes:
    """Return the JSON-RPC response to a refused message, with a `google.rpc.ErrorInfo` as A2A 1.0 wants it."""
    if isinstance(error, A2aError):
        number, reason = error.number, error.reason
    else:
        # Between -32000 and -32099 A2A has numbers of its own.
        number = error_codes(error).jsonrpc
        if number not in _REASONS:
            number = _INVALID_PARAMS if isinstance(error, InvalidRequest) else _INTERNAL
        reason = _REASONS[number]
    members = {"code": error.code, "path": error.path, "hint": error.hint, "retry_after": error.retry_after}
    metadata = {name: str(value) for name, value in members.items() if value is not None}
    info = {"@type": _ERROR_INFO, "reason": reason, "domain": _DOMAIN, "metadata": metadata}
    shown = {"code": number, "message": error.message, "data": [info]}
    return dump_json({"jsonrpc": "2.0", "id": msgspec.Raw(call_id), "error": shown})
