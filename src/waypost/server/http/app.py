"""The ASGI application: a request comes in, the right face answers it, an error becomes what that face calls an error."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Sequence
from typing import Protocol

import msgspec

from waypost import limits
from waypost.errors import Forbidden, NotFound, WaypostError
from waypost.model.principal import ANONYMOUS, SCOPE_READ, SCOPE_WRITE, Principal
from waypost.registry.operations import OPERATIONS
from waypost.server.auth.authenticator import Authenticator
from waypost.server.auth.rate_limits import RateLimits
from waypost.server.auth.trusted_hosts import TrustedProxies
from waypost.server.http.asgi import (
    AnyResponse,
    ClientDisconnect,
    Headers,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    StreamingResponse,
    merge_vary,
)
from waypost.server.http.metrics import Metrics
from waypost.server.http.problems import internal_error, problem_instance, problem_response
from waypost.server.http.routing import RequestContext, Route, Router
from waypost.trust.policy import require_scope

log = logging.getLogger("waypost.server")

_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_CLOSE = (b"connection", b"close")
_TOO_SLOW = 408
_VARY = (b"vary", b"Authorization, Accept")


class MountedApi(Protocol):
    """A face that answers for whole prefixes in its own error style (AF, RTFS)."""

    name: str
    first_segments: tuple[bytes, ...]  # of the paths it may claim: most requests are told apart by this alone

    def claims(self, raw_path: bytes) -> bool: ...

    def is_public(self, request: Request) -> bool:
        """True when this request is answered without a credential."""
        ...

    def scope(self, request: Request) -> str | None:
        """The scope that a request needs before the face sees it; None when the face decides itself."""
        ...

    async def answer(self, request: Request, principal: Principal, request_id: str) -> AnyResponse: ...

    def refuse(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse: ...


class HttpApp:
    def __init__(
        self,
        routes: list[Route],
        faces: Sequence[MountedApi],
        authenticator: Authenticator,
        metrics: Metrics,
        *,
        anonymous_read: bool,
        open_access: bool,
        rates: RateLimits | None = None,
        origin: TrustedProxies | None = None,
    ) -> None:
        self._rates = rates
        self._origin = origin or TrustedProxies()
        self.router = Router(routes)
        self._faces: dict[bytes, list[MountedApi]] = {}
        for face in faces:
            for segment in face.first_segments:
                self._faces.setdefault(segment, []).append(face)
        self._authenticator = authenticator
        self._metrics = metrics
        self._anonymous_read = anonymous_read
        self._open_access = open_access
        self._addressed_before = (
            ANONYMOUS,
            ANONYMOUS,
        )  # a principal, and the same with an address: who writes, writes on
        self._run = secrets.token_hex(5)
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _run_lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request_id = self._request_id(request)
        label = "unmatched"
        face: MountedApi | None = None
        response: AnyResponse
        try:
            raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
            face = self._face_of(raw_path)
            if face is not None:
                label = face.name
                response = await self._through_face(face, request, request_id)
            elif scope["method"] == "OPTIONS":
                response = Response(204, headers=[(b"allow", ", ".join(self.router.allowed(raw_path)).encode())])
            else:
                route, agent_id = self.router.match(scope["method"], raw_path)
                label = route.path
                response = await self._through_route(route, request, request_id, agent_id)
        except ClientDisconnect:
            return
        except WaypostError as error:
            response = self._refusal(face, request, error, request_id)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("unexpected failure (correlation_id %s)", request_id)
            response = self._refusal(face, request, internal_error(), request_id)
        await self._send(request, response, send, request_id, label)

    async def _send(self, request: Request, response: AnyResponse, send: Send, request_id: str, label: str) -> None:
        response.headers.append((b"x-request-id", request_id.encode()))
        response.headers.append(_NOSNIFF)
        if request.body_left:
            response.headers.append(_CLOSE)  # what is still on its way is not worth waiting for
            if response.status != _TOO_SLOW:
                await request.discard()
        method = request.method
        self._metrics.observe(method, label, response.status, request.elapsed_seconds())
        try:
            await response.send(send, head=method == "HEAD")
        except ClientDisconnect:
            return

    async def refuse(self, request: Request, send: Send, error: WaypostError) -> None:
        """Answer what failed before the service was asked, in the words of the face that would have answered."""
        request_id = self._request_id(request)
        raw_path: bytes = request.scope.get("raw_path") or request.path.encode()
        face = self._face_of(raw_path)
        response = self._refusal(face, request, error, request_id)
        await self._send(request, response, send, request_id, face.name if face is not None else "unmatched")

    def _request_id(self, request: Request) -> str:
        """The caller's id for the request if it is fit to be echoed, else a new one. It is a name, not a secret."""
        given = request.header(b"x-request-id")
        if given and len(given) <= limits.REQUEST_ID_CHARS and given.isascii() and given.isprintable():
            return given
        return f"{self._run}-{next(self._numbers):x}"

    def _face_of(self, raw_path: bytes) -> MountedApi | None:
        for face in self._faces.get(raw_path.split(b"/", 2)[1] if raw_path.startswith(b"/") else b"", ()):
            if face.claims(raw_path):
                return face
        return None

    async def _through_route(self, route: Route, request: Request, request_id: str, agent_id: str) -> AnyResponse:
        self._check_origin(request)
        if route.open:
            self._pace(request, ANONYMOUS, None if route.operation == "health" else SCOPE_READ)
            principal = ANONYMOUS
        elif route.signed and _is_signed(request):
            self._pace(request, ANONYMOUS, SCOPE_WRITE)
            principal = self._addressed(request, ANONYMOUS)
        else:
            scope = route.scope or OPERATIONS[route.operation].scope
            principal = await self._admitted(request, scope)
        if route.handler is None:
            raise NotFound("Nothing is served at this path.", path="path", hint="See /docs for what is.")
        response = await route.handler(RequestContext(request, principal, request_id, agent_id))
        if not route.open:
            _mark_private(response.headers)
        return response

    async def _through_face(self, face: MountedApi, request: Request, request_id: str) -> AnyResponse:
        self._check_origin(request)
        if face.is_public(request):
            self._pace(request, ANONYMOUS, SCOPE_READ)
            return await face.answer(request, self._addressed(request, ANONYMOUS), request_id)
        principal = await self._admitted(request, face.scope(request))
        return await face.answer(request, principal, request_id)

    async def _admitted(self, request: Request, scope: str | None) -> Principal:
        """Who asks, with the right to ask for this, and not too often."""
        principal = await self._authenticator.authenticate(request)
        self._pace(request, principal, scope)
        if scope is not None:
            require_scope(principal, scope, anonymous_ok=self._anonymous_read and scope == SCOPE_READ)
        return self._addressed(request, principal)

    def _addressed(self, request: Request, principal: Principal) -> Principal:
        """With the address that it asks from, where something is written: reads stay cheap."""
        if request.method in _SAFE_METHODS:
            return principal
        address = self._origin.client_address(request.scope)
        if self._addressed_before[0] is not principal or self._addressed_before[1].address != address:
            self._addressed_before = (principal, msgspec.structs.replace(principal, address=address))
        return self._addressed_before[1]

    def _pace(self, request: Request, principal: Principal, scope: str | None) -> None:
        """Count the request. What has no scope of its own is counted by the face that answers it."""
        if self._rates is None or scope is None:
            return
        if scope == SCOPE_READ:
            self._rates.read(principal, self._origin.client_address(request.scope))
        else:
            self._rates.write(principal, self._origin.client_address(request.scope))

    def _refusal(self, face: MountedApi | None, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        if face is not None:
            return face.refuse(request, error, request_id)
        return problem_response(error, instance=problem_instance(request), correlation_id=request_id)

    def _check_origin(self, request: Request) -> None:
        """Without authentication, a page of another site in the user's browser must not be able to write here."""
        if not self._open_access or request.method in _SAFE_METHODS:
            return
        origin = request.header(b"origin")
        site = request.header(b"sec-fetch-site")
        own = {f"http://{request.header(b'host')}", f"https://{request.header(b'host')}"}
        if site == "cross-site" or (origin is not None and origin not in own):
            raise Forbidden(
                "A page of another site may not write to an open service.",
                path="Origin",
                hint="Run the service with authentication and send a token.",
            )


def _is_signed(request: Request) -> bool:
    """Whether an agent speaks for itself (P-5); a token wins over that."""
    return request.header(b"adp-signature") is not None and request.header(b"authorization") is None


def _mark_private(headers: Headers) -> None:
    """H9: what depends on who asks is kept by nobody for another."""
    said = dict(headers)
    if b"vary" not in said:
        headers.append(_VARY)
    elif _VARY not in headers:
        merge_vary(headers, ("Authorization", "Accept"))
    if b"cache-control" not in said:
        headers.append((b"cache-control", b"private, no-cache"))


async def _run_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


__all__ = ["MountedApi", "Response", "HttpApp", "StreamingResponse"]
