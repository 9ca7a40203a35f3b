"""The ASGI application: finds the route or the mounted API of a request, authenticates, limits, and renders errors.

`AsgiRoot` routes WebSockets beside it: refusals before the upgrade, and requests of a session to the service.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote

import msgspec

from waypost import limits
from waypost.errors import NotFound, UnsupportedMediaType, WaypostError
from waypost.model.json import JsonObject, parse_object
from waypost.model.principal import ANONYMOUS, SCOPE_READ, SCOPE_WRITE, Principal, require_scope
from waypost.registry.operations import OPERATIONS
from waypost.server.auth.authenticator import Authenticator
from waypost.server.auth.callers import RateLimits, TrustedHosts, TrustedProxies
from waypost.server.http.asgi import (
    JSON,
    SUBJECT_SCOPE_KEY,
    AnyResponse,
    App,
    BodyMemory,
    ClientDisconnect,
    Headers,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    merge_vary,
)
from waypost.server.http.conditional_requests import is_not_modified, strong_etag
from waypost.server.http.content_coding import (
    CONTENT_ENCODING,
    check_content_encoding,
    compress_response,
    not_modified_response,
)
from waypost.server.http.content_negotiation import prefers_html
from waypost.server.http.metrics import Metrics
from waypost.server.http.problems import BARE_CHALLENGE, internal_error, problem_instance, problem_response
from waypost.server.http.request_log import CLIENT_CLOSED_REQUEST, RequestLog, SessionSend, new_request_id
from waypost.server.http.routing import RequestContext, Route, RouteMatch, Router

log = logging.getLogger("waypost.server")

_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))

_NOSNIFF = (b"x-content-type-options", b"nosniff")

_CLOSE = (b"connection", b"close")

_REQUEST_TIMEOUT = 408
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_VARY = (b"vary", b"Authorization, Accept")

_MCP = "mcp"  # its specification demands these checks of every server, with or without authentication

PROTECTED_RESOURCE_PATH = "/.well-known/oauth-protected-resource"  # RFC 9728 §3
_UNMATCHED = "unmatched"  # the route label of requests that no API takes


ErrorPage: TypeAlias = Callable[[Request, WaypostError, str], Awaitable[Response]]  # with the request id


class MountedApi(Protocol):
    """An API that handles whole path prefixes and renders errors in its own format (AF, RTFS)."""

    name: str
    first_segments: tuple[bytes, ...]  # of the paths that it may claim

    def claims(self, raw_path: bytes) -> bool: ...

    def is_public(self, request: Request) -> bool:
        """True if the request needs no credential."""
        ...

    def required_scope(self, request: Request) -> str | None:
        """The scope that the request needs; None if the API checks that itself."""
        ...

    async def handle(self, request: Request, principal: Principal, request_id: str) -> AnyResponse: ...

    def error_response(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse: ...


class HttpApp:
    def __init__(
        self,
        routes: list[Route],
        apis: Sequence[MountedApi],
        authenticator: Authenticator,
        metrics: Metrics,
        *,
        anonymous_read: bool,
        open_access: bool,
        rates: RateLimits | None = None,
        origin: TrustedProxies | None = None,
        hosts: TrustedHosts | None = None,
        error_page: ErrorPage | None = None,
        base_url: str = "",
        request_log: RequestLog | None = None,
        described: Sequence[Route] = (),
    ) -> None:
        """`base_url` is the address at which a 401 response says that the metadata of the service is. `described` are the
        routes of `apis`: their paths are labels in log and metrics."""
        self._log = request_log or RequestLog()
        self._labels = Router([msgspec.structs.replace(route, handler=_label_only) for route in described])
        self._in_progress = 0
        self.bodies = BodyMemory()
        metrics.add_gauge(
            "requests_in_progress", "Requests that are being answered.", lambda: self._in_progress, is_summed=True
        )
        self._challenge = f'Bearer resource_metadata="{base_url}{PROTECTED_RESOURCE_PATH}", realm="waypost"'.encode()
        self.router = Router(routes)
        self._apis: dict[bytes, list[MountedApi]] = {}
        for api in apis:
            for segment in api.first_segments:
                self._apis.setdefault(segment, []).append(api)
        self._authenticator = authenticator
        self._metrics = metrics
        self._anonymous_read = anonymous_read
        self._open_access = open_access
        self._rates = rates
        self._origin = origin or TrustedProxies()
        self._hosts = hosts
        self._error_page = error_page
        self._request_id_prefix = secrets.token_hex(4)  # tells the processes of a service apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._in_progress += 1
            try:
                await self._handle(Request(scope, receive, self.bodies), send)
            finally:
                self._in_progress -= 1
        elif scope["type"] == "lifespan":
            await _run_lifespan(receive, send)

    async def _handle(self, request: Request, send: Send) -> None:
        request_id = self._request_id(request)
        label = _UNMATCHED
        api: MountedApi | None = None
        response: AnyResponse
        try:
            api = self._find_api(request.raw_path)
            self._check_site(request, api)
            if request.method not in _SAFE_METHODS:
                check_content_encoding(request)
            if api is not None:
                label = self._api_label(api, request)
                response = await self._call_api(api, request, request_id)
            elif request.method == "OPTIONS":
                response = Response(204, headers=[(b"allow", self._allowed(request.raw_path))])
            else:
                found = self.router.match(request.method, request.raw_path)
                label = found.route.path
                response = await self._call_route(found, request, request_id)
        except ClientDisconnect:
            self._write_log(request, label, CLIENT_CLOSED_REQUEST, 0, request_id)
            return
        except WaypostError as error:
            response = await self._error_response(api, request, error, request_id)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("unexpected failure (correlation_id %s)", request_id)
            response = await self._error_response(api, request, internal_error(), request_id)
        await self._send(request, response, send, request_id, label)

    async def refuse(self, request: Request, send: Send, error: WaypostError) -> None:
        """Send an error that occurred before the request was handled, in the format of the API of its path."""
        request_id = self._request_id(request)
        api = self._find_api(request.raw_path)
        response = await self._error_response(api, request, error, request_id)
        if request.scope["type"] == "websocket":
            label = request.path  # one of the few paths at which there are WebSockets
        else:
            label = self._find_label(request) if api is None else self._api_label(api, request)
        await self._send(request, response, send, request_id, label)

    def _allowed(self, raw_path: bytes) -> bytes:
        is_server = raw_path == b"*"  # RFC 9110 §9.3.7: the server as a whole
        return ", ".join(self.router.methods if is_server else self.router.allowed(raw_path)).encode()

    async def _send(self, request: Request, response: AnyResponse, send: Send, request_id: str, label: str) -> None:
        if isinstance(response, Response) and len(response.body) >= limits.GZIP_BYTES:
            await compress_response(request, response)
        response.headers.append((b"x-request-id", request_id.encode()))
        response.headers.append(_NOSNIFF)
        if response.status in (_UNAUTHORIZED, _FORBIDDEN):
            self._complete_challenge(request, response)
        if request.has_unread_body:
            response.headers.append(_CLOSE)
            if response.status != _REQUEST_TIMEOUT:
                await request.drain()
        self._metrics.observe(request.method, label, response.status, request.elapsed_seconds())
        try:
            await response.send(send, head=request.method == "HEAD")
        except ClientDisconnect:
            return
        finally:
            self._write_log(request, label, response.status, response.sent_bytes, request_id)

    def _write_log(self, request: Request, label: str, status: int, body_bytes: int, request_id: str) -> None:
        if not self._log.logs(status) or VIA_SCOPE_KEY in request.scope:
            return  # a part of a WebSocket session, which has a line of its own
        self._log.write(
            request.scope,
            route=label,
            status=status,
            seconds=request.elapsed_seconds(),
            body_bytes=body_bytes,
            request_id=request_id,
        )

    def _api_label(self, api: MountedApi, request: Request) -> str:
        """The path of the API's route, with `{id}` for ids; else the name of the API. Never a path of the caller."""
        try:
            return self._labels.match(request.method, request.raw_path).route.path
        except WaypostError:
            return api.name

    def _find_label(self, request: Request) -> str:
        try:
            return self.router.match(request.method, request.raw_path).route.path
        except WaypostError:
            return _UNMATCHED

    async def _error_response(
        self, api: MountedApi | None, request: Request, error: WaypostError, request_id: str
    ) -> AnyResponse:
        response = await self._render_error(api, request, error, request_id)
        if isinstance(error, UnsupportedMediaType) and error.path == CONTENT_ENCODING:
            response.headers.append((b"accept-encoding", b"identity"))  # RFC 9110 §12.5.3
        return response

    async def _render_error(
        self, api: MountedApi | None, request: Request, error: WaypostError, request_id: str
    ) -> AnyResponse:
        """A page for a browser, else the error format of the API."""
        if self._error_page is not None and prefers_html(request.header(b"accept")):
            return await self._error_page(request, error, request_id)
        if api is not None:
            return api.error_response(request, error, request_id)
        return problem_response(error, instance=problem_instance(request), correlation_id=request_id)

    def _complete_challenge(self, request: Request, response: AnyResponse) -> None:
        """Name the metadata (RFC 9728 §5.1) in every 401, and in a 403 that names a missing scope. `error` tells a client
        that its credential is invalid, not missing (RFC 6750 §3.1)."""
        headers = response.headers
        if response.status == _FORBIDDEN:
            headers[:] = [
                (name, value.replace(BARE_CHALLENGE, self._challenge) if name == b"www-authenticate" else value)
                for name, value in headers
            ]
            return
        headers[:] = [pair for pair in headers if pair[0] != b"www-authenticate"]
        is_given = request.header(b"authorization") is not None
        headers.append(
            (b"www-authenticate", self._challenge + b', error="invalid_token"' if is_given else self._challenge)
        )

    def _request_id(self, request: Request) -> str:
        """The id that the caller sent, if it can be echoed safely, else a new one."""
        value = request.header(b"x-request-id")
        if value and len(value) <= limits.REQUEST_ID_CHARS and value.isascii() and value.isprintable():
            return value
        return f"{self._request_id_prefix}-{new_request_id()}"

    def _find_api(self, raw_path: bytes) -> MountedApi | None:
        segment = raw_path.split(b"/", 2)[1] if raw_path.startswith(b"/") else b""
        return next((api for api in self._apis.get(segment, ()) if api.claims(raw_path)), None)

    async def _call_route(self, found: RouteMatch, request: Request, request_id: str) -> AnyResponse:
        route = found.route
        if route.open:
            self._admit(request, ANONYMOUS, None if route.operation == "health" else SCOPE_READ)
            principal = ANONYMOUS
        elif route.signed and _is_signed(request):
            principal = self._admit(request, ANONYMOUS, SCOPE_WRITE)
        else:
            principal = await self._authorize(request, route.scope or OPERATIONS[route.operation].scope)
        if route.handler is None:
            raise NotFound(
                "Nothing is served at this path.", path="path", hint="The API reference at /docs lists the paths."
            )
        response = await route.handler(RequestContext(request, principal, request_id, found.id, found.values))
        if not route.open:
            _mark_private(response.headers)
        is_read = request.method in ("GET", "HEAD") and response.status == 200
        return _add_etag(request, response) if is_read and isinstance(response, Response) else response

    async def _call_api(self, api: MountedApi, request: Request, request_id: str) -> AnyResponse:
        if api.is_public(request):
            principal = self._admit(request, ANONYMOUS, SCOPE_READ)
        else:
            principal = await self._authorize(request, api.required_scope(request))
        return await api.handle(request, principal, request_id)

    async def _authorize(self, request: Request, scope: str | None) -> Principal:
        """The principal, within its rate limit and with the scope."""
        principal = self._admit(request, await self._authenticator.authenticate(request), scope)
        if scope is not None:
            require_scope(principal, scope, anonymous_ok=self._anonymous_read and scope == SCOPE_READ)
        return principal

    def _admit(self, request: Request, principal: Principal, scope: str | None) -> Principal:
        """The principal within its rate limit, with the caller's address if the request may write: the audit trail records it.
        An API that checks scopes itself (None) also limits rates itself."""
        address = self._origin.client_address(request.scope)
        if self._rates is not None and scope is not None:
            take = self._rates.read if scope == SCOPE_READ else self._rates.write
            take(principal, address)
        return principal if request.method in _SAFE_METHODS else msgspec.structs.replace(principal, address=address)

    def _check_site(self, request: Request, api: MountedApi | None) -> None:
        """Without authentication, and for MCP, a web page in the user's browser must not act for the user (E3)."""
        is_mcp = api is not None and api.name == _MCP
        if self._hosts is None or not (self._open_access or is_mcp):
            return
        self._hosts.check_host(request)
        if is_mcp or request.method not in _SAFE_METHODS:
            self._hosts.check_origin(request)


def _is_signed(request: Request) -> bool:
    """An agent that signs its requests (P-5). A token takes precedence."""
    return request.header(b"adp-signature") is not None and request.header(b"authorization") is None


def _add_etag(request: Request, response: Response) -> Response:
    """Tag JSON that its handler did not tag, such as the lists of an admin, and answer a conditional request for it."""
    headers = dict(response.headers)
    if b"etag" in headers or headers.get(b"content-type") != JSON:
        return response
    etag = strong_etag(response.body, JSON)
    response.add(b"etag", etag)
    if not is_not_modified(request, etag, None):
        return response
    kept = [pair for pair in response.headers if pair[0] != b"content-type"]
    return not_modified_response(request, kept, response.body)


def _mark_private(headers: Headers) -> None:
    """H9: a response that depends on the caller must not be served from a shared cache."""
    names = dict(headers)
    if b"vary" not in names:
        headers.append(_VARY)
    elif _VARY not in headers:
        merge_vary(headers, ("Authorization", "Accept"))
    if b"cache-control" not in names:
        headers.append((b"cache-control", b"private, no-cache"))


async def _run_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


RefuseUpgrade = Callable[[Request, Send, WaypostError], Awaitable[None]]


async def _label_only(call: RequestContext) -> AnyResponse:
    raise NotFound("Nothing is served at this path.", path="path")


class AsgiRoot:
    """Passes a WebSocket connection to the application of its path, and everything else to the HTTP application.

    The line of a WebSocket session is logged when the session has ended. `forwarded` are the paths whose sessions another
    process has, which logs them.
    """

    def __init__(
        self,
        http: App,
        websockets: dict[str, App],
        request_log: RequestLog | None = None,
        forwarded: frozenset[str] = frozenset(),
    ) -> None:
        self.http = http
        self.websockets = websockets
        self._log = request_log or RequestLog()
        self._forwarded = forwarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self.http(scope, receive, send)
            return
        app = self.websockets.get(scope["path"])
        if app is None:
            await receive()
            await send({"type": "websocket.close", "code": 4404, "reason": "nothing is served at this path"})
        elif scope["path"] in self._forwarded:
            await app(scope, receive, send)
        else:
            await self._run_session(app, scope, receive, send)

    async def _run_session(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        scope[SUBJECT_SCOPE_KEY] = {}
        started_at = time.perf_counter()
        session = SessionSend(send)
        try:
            await app(scope, receive, session)
        finally:
            if session.is_accepted:  # otherwise the refusal was logged as a response
                self._log.write(
                    scope,
                    route=scope["path"],
                    status=101,
                    seconds=time.perf_counter() - started_at,
                    body_bytes=session.sent_bytes,
                    request_id=_find_header(scope, b"x-request-id") or new_request_id(),
                )


def _find_header(scope: Scope, name: bytes) -> str | None:
    """A header that is safe to log."""
    value = next((value for key, value in scope["headers"] if key == name), b"").decode("latin-1")
    is_safe = value.isascii() and value.isprintable() and len(value) <= limits.REQUEST_ID_CHARS
    return value if value and is_safe else None


def deny_upgrade(send: Send) -> Send:
    """A `send` that answers the handshake with an HTTP response instead of the upgrade."""

    async def send_denial(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return send_denial


VIA_SCOPE_KEY = "via"  # in the scope of a request: its transport, if that is not HTTP

_FORWARDED_HEADERS = frozenset((b"authorization", b"forwarded", b"host", b"x-forwarded-for", b"x-request-id"))


class InProcessClient:
    """Sends requests of a WebSocket session to the service it runs in, under the session's own credential.

    An announcement over a WebSocket is a `POST /agents`: one admission check, one rate limit, one audit trail, and a
    follower process forwards it to the leader like every other write.
    """

    def __init__(self, app: App, outer: Scope, via: str) -> None:
        """`outer` is the scope of the handshake, whose headers carry the credential."""
        self._app = app
        self._headers = [pair for pair in outer["headers"] if pair[0] in _FORWARDED_HEADERS]
        self._scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "https" if outer.get("scheme") == "wss" else "http",
            "client": outer.get("client"),
            "server": outer.get("server"),
            "root_path": "",
            "query_string": b"",
            "extensions": {name: value for name, value in outer.get("extensions", {}).items() if name == "tls"},
            VIA_SCOPE_KEY: via,
        }

    async def post(self, path: str, body: bytes) -> tuple[int, JsonObject]:
        """The status and the JSON body: the result, or a problem."""
        exchange = _InProcessExchange(body)
        headers = [
            *self._headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        target = {"method": "POST", "path": unquote(path), "raw_path": path.encode(), "headers": headers}
        await self._app({**self._scope, **target}, exchange.receive, exchange.send)
        return exchange.status, parse_object(b"".join(exchange.parts)) if exchange.parts else {}


class _InProcessExchange:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self.status = 0
        self.parts: list[bytes] = []

    async def receive(self) -> Message:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message.get("body"):
            self.parts.append(message["body"])
