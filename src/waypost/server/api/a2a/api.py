"""The service as an A2A agent: `POST /a2a` takes JSON-RPC messages, and a text is a search of the public agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import uuid4

from waypost import limits
from waypost.errors import InvalidCall, MethodNotAllowed, WaypostError, error_codes
from waypost.model.json import JsonObject
from waypost.model.principal import ANONYMOUS, Principal
from waypost.protocols.a2a.messages import (
    LIST_TASKS,
    SEND,
    VERSION_HEADER,
    current_method,
    error_body,
    is_older_method,
    message_result,
    parse_message,
    refuse_method,
    tasks_result,
)
from waypost.protocols.jsonrpc import (
    NULL_ID,
    NULLABLE_CALL_SCHEMA,
    REPLY_SCHEMA,
    RpcCall,
    RpcRejection,
    parse_calls,
    result_reply,
)
from waypost.server.http.asgi import AnyResponse, Request, Response
from waypost.server.http.problems import problem_headers
from waypost.server.http.request_params import check_media_type
from waypost.server.http.routing import BodySpec, Route
from waypost.server.renderer import parse_rendered

A2A_PATH: Final = "/a2a"

_PATHS: Final = frozenset((b"/a2a", b"/a2a/"))
_MEDIA_TYPES: Final = ("application/json", "application/json-rpc", "application/a2a+json")
_NO_STORE: Final = (b"cache-control", b"no-store")

# Answers a Discovery Request for a caller and a request id with the bytes of a Discovery Response.
SearchHandler = Callable[[JsonObject, Principal, str], Awaitable[bytes]]


class A2aApi:
    """Open to everybody, and shows public agents only, whatever credential a request has."""

    name = "a2a"
    first_segments: tuple[bytes, ...] = (b"a2a",)

    def __init__(self, search: SearchHandler) -> None:
        self._search = search

    def claims(self, raw_path: bytes) -> bool:
        return raw_path in _PATHS

    def is_public(self, request: Request) -> bool:
        return True

    def required_scope(self, request: Request) -> str | None:
        return None

    async def handle(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if request.method == "OPTIONS":
            return Response(204, headers=[(b"allow", b"POST, OPTIONS")])
        if request.method != "POST":
            raise MethodNotAllowed(
                "This path takes A2A messages by POST.",
                path="method",
                hint="The card is at /.well-known/agent-card.json.",
                details={"allow": ("POST", "OPTIONS")},
            )
        check_media_type(request, *_MEDIA_TYPES)
        call = _parse_call(await request.body(limits.REQUEST_BYTES))
        if isinstance(call, RpcRejection):
            return _response(error_body(call.id, call.error), 400)
        if call.id is None:  # a notification
            return Response(202, headers=[_NO_STORE])
        try:
            result = await self._call_method(call, request.header(VERSION_HEADER.encode()), request_id)
        except WaypostError as error:
            return _response(error_body(call.id, error))
        return _response(result_reply(call.id, result))

    def error_response(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """The response to a request that was refused before its message was read."""
        return Response(error_codes(error).http, error_body(NULL_ID, error), headers=problem_headers(error))

    async def _call_method(self, call: RpcCall, version: str | None, request_id: str) -> JsonObject:
        method, params = current_method(call.method, version), call.named_params()
        if method == LIST_TASKS:
            return tasks_result()
        if method != SEND:
            raise refuse_method(method, params)
        search = parse_message(params)
        answer = parse_rendered(await self._search(search.request, ANONYMOUS, request_id))
        return message_result(search, answer, str(uuid4()), str(uuid4()), is_older=is_older_method(call.method))


def _parse_call(body: bytes) -> RpcCall | RpcRejection:
    incoming = parse_calls(body)
    if incoming.is_batch:
        return RpcRejection(InvalidCall("A batch is not supported.", path="$", hint="Send one message per request."))
    call = incoming.calls[0]
    if isinstance(call, RpcCall) and not isinstance(call.params, dict):
        return RpcRejection(InvalidCall("params must be an object.", path="$.params"), call.id or NULL_ID)
    return call


def _response(body: bytes, status: int = 200) -> Response:
    return Response(status, body, headers=[_NO_STORE])


A2A_ROUTES: Final = [
    Route(
        method="POST",
        path=A2A_PATH,
        operation="find",
        summary="The service as an A2A agent (JSON-RPC, 1.0): a text message is a search of the public agents",
        body=BodySpec(schema=NULLABLE_CALL_SCHEMA),
        answers={
            200: BodySpec(schema=REPLY_SCHEMA),
            202: BodySpec(description="notification accepted"),
            400: BodySpec(schema=REPLY_SCHEMA, description="the request could not be read"),
            413: BodySpec(schema=REPLY_SCHEMA, description="too large"),
            415: BodySpec(schema=REPLY_SCHEMA, description="not JSON"),
            429: BodySpec(schema=REPLY_SCHEMA, description="rate limited"),
        },
        open=True,
    ),
]
