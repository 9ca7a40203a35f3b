"""WebSockets at the ASGI level: routing by path, refusals before the upgrade, and requests of a session to the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from waypost.errors import WaypostError
from waypost.model.json import JsonObject, parse_object
from waypost.server.http.asgi import App, Message, Receive, Request, Scope, Send

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


VIA_SCOPE_KEY = "via"  # in the scope of a request: its transport, if that is not HTTP

_FORWARDED_HEADERS = frozenset((b"authorization", b"host", b"x-forwarded-for", b"x-request-id"))


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
