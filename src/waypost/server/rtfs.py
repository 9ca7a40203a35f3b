"""The RTFS registry over HTTP: JSON-RPC 2.0 on `POST /rtfs` (rtfs.md §4)."""

from __future__ import annotations

from collections.abc import Sequence

from waypost import limits
from waypost.errors import InvalidDocument, MethodNotAllowed, Unauthorized, UnsupportedMediaType, WaypostError, codes_of
from waypost.model.principal import Principal
from waypost.registry.engine import Registry
from waypost.server.asgi import AnyResponse, Request, Response, json_response
from waypost.server.pages import html_response, page
from waypost.server.problems import problem_headers
from waypost.server.rates import Rates
from waypost.server.reading import read_visibility
from waypost.server.rtfs_methods import TOKEN_PREFIX, Caller, RtfsMethods
from waypost.server.rtfs_search import Budget
from waypost.wire.jsonrpc import NULL_ID, Call, Refused, error_reply, join_replies, parse_calls, result_reply

_CALLS = frozenset((b"/rtfs", b"/rtfs/", b"/rtfs/register", b"/rtfs/discover"))
_HEALTH = "/rtfs/health"
_MEDIA_TYPES = ("application/json", "application/json-rpc")
_PATHS = {"id": "agent_id", "$.id": "$.agent_id"}  # what the registry calls it, and what a card does
_NOT_STORED = (b"cache-control", b"no-store")
_DISCOVER = "rtfs.registry.discover"


class RtfsFace:
    name = "rtfs"
    first_segments: tuple[bytes, ...] = (b"rtfs",)
    prompt_paths: tuple[bytes, ...] = ()

    def __init__(
        self, registry: Registry, *, anonymous_read: bool = False, list_all: bool = False, rates: Rates | None = None
    ) -> None:
        self._registry = registry
        self._rates = rates
        self._methods = RtfsMethods(registry, anonymous_read=anonymous_read, list_all=list_all)
        self._anonymous_read = anonymous_read

    def claims(self, raw_path: bytes) -> bool:
        return raw_path in _CALLS or raw_path == _HEALTH.encode()

    def open_to_all(self, request: Request) -> bool:
        """What only describes; and calls that bring a registration token, which `RtfsMethods` judges itself."""
        return request.method != "POST" or _registration_token(request) is not None

    def scope(self, request: Request) -> str | None:
        return None  # each call of a batch needs its own

    async def answer(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if request.method != "POST":
            return self._describe(request)
        token = _registration_token(request)
        if principal.is_anonymous and token is None and not self._anonymous_read:
            raise Unauthorized(
                "This needs a token.",
                path="Authorization",
                hint="Send Authorization: Bearer <token>; `waypost token mint` makes one.",
            )
        _check_media_type(request)
        return await self.answer_calls(request, principal, await request.body(limits.RPC_BYTES))

    async def answer_calls(self, request: Request, principal: Principal, body: bytes) -> Response:
        """What was read from `request`, here or where another protocol is spoken too."""
        visibility = read_visibility(request)
        incoming = parse_calls(body)
        token = _registration_token(request)
        caller = Caller(principal=principal, bearer=token, visibility=visibility, budget=Budget())
        self._pace(incoming.calls, principal)
        replies = [reply for call in incoming.calls if (reply := await self._reply(call, caller)) is not None]
        joined = join_replies(replies, is_batch=incoming.is_batch)
        if joined is None:
            return Response(204, headers=[_NOT_STORED])
        return Response(200, joined, headers=[_NOT_STORED])

    def _pace(self, calls: Sequence[Call | Refused], principal: Principal) -> None:
        """Each call of a batch counts."""
        if self._rates is None:
            return
        reads = sum(isinstance(call, Call) and call.method == _DISCOVER for call in calls)
        if reads:
            self._rates.read(principal, principal.address, reads)
        if len(calls) > reads:
            self._rates.write(principal, principal.address, len(calls) - reads)

    async def _reply(self, call: Call | Refused, caller: Caller) -> bytes | None:
        if isinstance(call, Refused):
            return error_reply(call.id, call.error)
        try:
            result = await self._methods.method(call.method)(call.named_params(), caller)
        except WaypostError as error:
            return None if call.id is None else error_reply(call.id, _worded(error))
        return None if call.id is None else result_reply(call.id, result)

    def refuse(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """Refused before any call was read: the HTTP status tells it, and the body says it in JSON-RPC."""
        return Response(codes_of(error).http, error_reply(NULL_ID, error), headers=problem_headers(error))

    def _describe(self, request: Request) -> Response:
        if request.path == _HEALTH and request.method in ("GET", "HEAD"):
            ready = self._registry.ready
            return json_response({"status": "ok" if ready else "starting"}, 200 if ready else 503)
        if request.method in ("GET", "HEAD") and "text/html" in (request.header(b"accept") or ""):
            return html_response(self._page(), private=True)
        raise MethodNotAllowed(
            "This address takes JSON-RPC calls by POST.",
            path="method",
            hint=f"Known methods: {', '.join(self._methods.names)}.",
            details={"allow": ("POST",)},
        )

    def _page(self) -> bytes:
        methods = "".join(f"<li><code>{name}</code></li>" for name in self._methods.names)
        return page(
            "RTFS registry",
            "<h1>RTFS registry</h1><p>JSON-RPC 2.0 by <code>POST</code> to this address, as "
            f"<code>application/json</code>. Methods:</p><ul>{methods}</ul>",
        )


def _worded(error: WaypostError) -> WaypostError:
    """In the words of the protocol: a refused card says so first, and the id of an agent is its `agent_id`."""
    message, details = error.message, error.details
    path = _PATHS.get(error.path or "", error.path)
    if isinstance(error, InvalidDocument):
        message = f"Registration failed: {message}"
        details = {"errors": [{"path": path, "reason": error.message}]} | details
    return type(error)(message, path=path, hint=error.hint, retry_after=error.retry_after, details=details)


def _registration_token(request: Request) -> str | None:
    scheme, _, token = (request.header(b"authorization") or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.startswith(TOKEN_PREFIX) else None


def _check_media_type(request: Request) -> None:
    given = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if given not in _MEDIA_TYPES:
        raise UnsupportedMediaType(
            f"{given[:64]!r} is not read here.", path="Content-Type", hint=f"Send {' or '.join(_MEDIA_TYPES)}."
        )
