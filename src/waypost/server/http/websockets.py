"""Which paths are WebSockets, and how many are open in this process. The protocol classes are loaded with the first one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from waypost.errors import WaypostError
from waypost.lazy import lazy_module
from waypost.model.json import JsonObject, parse_object
from waypost.server.http.asgi import App, Message, Receive, Request, Scope, Send

if TYPE_CHECKING:
    from waypost.server.http import bounded_websocket
else:
    bounded_websocket = lazy_module("waypost.server.http.bounded_websocket")

RefuseUpgrade = Callable[[Request, Send, WaypostError], Awaitable[None]]


class AsgiRoot:
    """Passes a WebSocket connection to the application of its path, and everything else to the HTTP application."""

    def __init__(self, http: App, websockets: dict[str, App]) -> None:
        self.http = http
        self.websockets = websockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.websockets.get(scope["path"]) if scope["type"] == "websocket" else self.http
        if app is not None:
            await app(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 4404, "reason": "nothing is served at this path"})


def deny_upgrade(send: Send) -> Send:
    """A `send` that answers the handshake with an HTTP response instead of the upgrade."""

    async def send_denial(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return send_denial


class WebSocketCount:
    """Sessions have a bound of their own, and take no place of a request."""

    count = 0


def announce_protocol(**given: Any) -> bounded_websocket.BoundedWebSocket:
    return bounded_websocket.BoundedWebSocket(**given)


def agp_protocol(**given: Any) -> bounded_websocket.AgpWebSocket:
    return bounded_websocket.AgpWebSocket(**given)


WEBSOCKET_PROTOCOLS: dict[bytes, Callable[..., bounded_websocket.BoundedWebSocket]] = {
    b"/ws": announce_protocol,
    b"/agent/chat": agp_protocol,
}


# ---- A request of a WebSocket session to the service that it runs in, under the session's own credential.
#
# What is announced over a socket takes the very way of `POST /agents`: one gate, one rate, one audit trail; and in a process
# that follows it goes on to the one that writes, like every other write.

VIA_SCOPE_KEY = "via"  # in the scope of a request: how it came, where that is not by HTTP

_FORWARDED_HEADERS = frozenset((b"authorization", b"host", b"x-forwarded-for", b"x-request-id"))


class InProcessClient:
    def __init__(self, app: App, outer: Scope, via: str) -> None:
        """`outer`: the handshake of the session, whose headers hold its credential."""
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
        """The status, and the answer: what was asked for, or a problem."""
        exchange = _InProcessExchange(body)
        headers = [
            *self._headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        asked = {"method": "POST", "path": unquote(path), "raw_path": path.encode(), "headers": headers}
        await self._app({**self._scope, **asked}, exchange.receive, exchange.send)
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
