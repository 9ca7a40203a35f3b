"""`WS /ws`: the announce protocol over a WebSocket (announce.md §6.5; THREATS §2.8, rows W).

Who may open a session is decided here, before the upgrade, in the words of every other refusal. What a session does is in
`socket_session.py`; what may be on the wire below its messages, in `bounded_socket.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from waypost import limits
from waypost.errors import InvalidRequest, RateLimited, Unavailable, WaypostError
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.registry.engine import Registry
from waypost.server.announced_view import AnnouncedViews
from waypost.server.asgi import App, Message, Receive, Request, Scope, Send
from waypost.server.auth import Authenticator
from waypost.server.hosts import Hosts
from waypost.server.inner_call import InnerCall
from waypost.server.metrics import Metrics
from waypost.server.origin import Origin
from waypost.server.rates import Rates, network_of
from waypost.server.rendering import Renderer
from waypost.server.socket_session import SocketSession
from waypost.trust.policy import require_scope
from waypost.wire.announce_frames import SUBPROTOCOL

PATH = b"/ws"
VIA = "ws"
_OPEN = "open"

Refuse = Callable[[Request, Send, WaypostError], Awaitable[None]]


async def _is_current() -> None:
    """A process that writes is never behind."""


class Sockets:
    """The ASGI application of WebSockets. `app` answers what sessions ask for; it is set by whoever puts the two together."""

    app: App
    refuse: Refuse

    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        authenticator: Authenticator,
        hosts: Hosts,
        metrics: Metrics,
        *,
        anonymous_read: bool,
        rates: Rates | None = None,
        origin: Origin | None = None,
        catch_up: Callable[[], Awaitable[None]] = _is_current,
        recheck_seconds: float = limits.SOCKET_RECHECK_SECONDS,
        stall_seconds: float = limits.SOCKET_STALL_SECONDS,
    ) -> None:
        self.registry = registry
        self.views = AnnouncedViews(registry, renderer)
        self.rates = rates
        self.anonymous_read = anonymous_read
        self.catch_up = catch_up
        self.recheck_seconds = recheck_seconds
        self.stall_seconds = stall_seconds
        self._authenticator = authenticator
        self._hosts = hosts
        self._metrics = metrics
        self._origin = origin or Origin()
        self._open: Counter[str] = Counter()
        metrics.show_sessions(lambda: self.sessions)

    @property
    def sessions(self) -> int:
        return self._open.total()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request({**scope, "method": "GET"}, receive)
        await receive()  # the handshake
        try:
            principal = await self._admitted(request)
        except WaypostError as error:
            await self.refuse(request, denial(send), error)
            return
        name = _name_of(principal)
        self._open[name] += 1
        self._metrics.count("GET", "/ws", 101)
        try:
            await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
            await SocketSession(self, request, principal, InnerCall(self.app, scope, VIA)).run(receive, send)
        finally:
            self._open[name] -= 1
            if self._open[name] <= 0:
                del self._open[name]

    async def principal(self, request: Request) -> Principal:
        """Who the credential of a handshake stands for, now."""
        found = await self._authenticator.principal(request)
        return msgspec.structs.replace(found, address=self._origin.address(request.scope))

    async def _admitted(self, request: Request) -> Principal:
        self._hosts.check(request)
        principal = await self.principal(request)
        if not principal.has(SCOPE_WRITE):
            require_scope(principal, SCOPE_READ, anonymous_ok=self.anonymous_read)
        _check_subprotocol(request)
        if self.sessions >= limits.SOCKETS:
            raise Unavailable("Too many WebSockets are open.", hint="Come back later.", retry_after=10)
        if principal.via != _OPEN and self._open[_name_of(principal)] >= limits.SOCKETS_OF_PRINCIPAL:
            raise RateLimited(
                f"{limits.SOCKETS_OF_PRINCIPAL} WebSockets of this caller are open.",
                path="Authorization",
                hint="Close some of them: one carries many agents.",
                retry_after=10,
            )
        return principal


def _name_of(principal: Principal) -> str:
    return f"subject {principal.subject}" if principal.subject is not None else network_of(principal.address)


def _check_subprotocol(request: Request) -> None:
    if SUBPROTOCOL not in request.scope.get("subprotocols", ()):
        raise InvalidRequest(
            "The WebSocket speaks another protocol.",
            path="Sec-WebSocket-Protocol",
            hint=f"Offer the subprotocol {SUBPROTOCOL}.",
        )


def denial(send: Send) -> Send:
    """An answer of HTTP instead of the upgrade."""

    async def sent(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return sent
