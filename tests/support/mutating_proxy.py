"""A proxy in front of a service that breaks it: it changes requests on their way in and answers on their way out."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

_HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "keep-alive", "server"}
_START_SECONDS = 30.0


@dataclass
class Exchange:
    """A request and its answer, both open to changes."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]
    content: bytes
    status: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""

    @property
    def json(self) -> Any:
        """The answer as JSON; None if it is not."""
        try:
            return json.loads(self.answer)
        except ValueError:
            return None

    @json.setter
    def json(self, value: Any) -> None:
        self.answer = json.dumps(value, ensure_ascii=False).encode()

    @property
    def sent(self) -> Any:
        try:
            return json.loads(self.content)
        except ValueError:
            return None

    @sent.setter
    def sent(self, value: Any) -> None:
        self.content = json.dumps(value, ensure_ascii=False).encode()


Change = Callable[[Exchange], None]


def _nothing(_exchange: Exchange) -> None: ...


class MutatingProxy:
    """An ASGI application. Without `on_request` and `on_answer` it changes nothing."""

    def __init__(self) -> None:
        self.upstream = ""
        self._client = httpx2.AsyncClient(trust_env=False, timeout=60)
        self.reset()

    def reset(self) -> None:
        """Change nothing from now on."""
        self.on_request: Change = _nothing
        self.on_answer: Change = _nothing
        self.on_message: Callable[[str | bytes], str | bytes] = lambda message: message
        self.confirms_subprotocol = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._forward(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._relay(scope, receive, send)

    async def _forward(self, scope: Any, receive: Any, send: Any) -> None:
        content, more = b"", True
        while more:
            event = await receive()
            content += event.get("body", b"")
            more = event.get("more_body", False)
        exchange = Exchange(
            method=scope["method"],
            path=scope["raw_path"].decode("ascii"),
            query=scope["query_string"].decode("ascii"),
            headers={name.decode(): value.decode("latin-1") for name, value in scope["headers"]},
            content=content,
        )
        self.on_request(exchange)
        if not exchange.status:
            await self._ask(exchange)
            self.on_answer(exchange)
        headers = [
            (name.encode(), value.encode("latin-1"))
            for name, value in exchange.answer_headers.items()
            if name.lower() not in _HOP_BY_HOP
        ]
        await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
        await send({"type": "http.response.body", "body": exchange.answer})

    async def _ask(self, exchange: Exchange) -> None:
        target = exchange.path + (f"?{exchange.query}" if exchange.query else "")
        headers = {name: value for name, value in exchange.headers.items() if name not in _HOP_BY_HOP}
        response = await self._client.request(
            exchange.method,
            f"{self.upstream}/",
            headers=headers,
            content=exchange.content or None,
            extensions={"target": target.encode("ascii")},
        )
        exchange.status, exchange.answer = response.status_code, response.content
        exchange.answer_headers = dict(response.headers.items())

    async def _relay(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        url = self.upstream.replace("http", "ws", 1) + scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name == b"authorization"}
        offered = list(scope.get("subprotocols") or ())
        async with connect(url, subprotocols=offered or None, additional_headers=headers, proxy=None) as upstream:
            chosen = upstream.subprotocol if self.confirms_subprotocol else None
            await send({"type": "websocket.accept", "subprotocol": chosen})
            back = asyncio.ensure_future(self._relay_back(upstream, send))
            while (event := await receive())["type"] == "websocket.receive":
                await upstream.send(event["bytes"] if event.get("bytes") is not None else event["text"])
            back.cancel()

    async def _relay_back(self, upstream: Any, send: Any) -> None:
        try:
            while True:
                message = self.on_message(await upstream.recv())
                kind = "bytes" if isinstance(message, bytes) else "text"
                await send({"type": "websocket.send", kind: message})
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd else 1011
            await send({"type": "websocket.close", "code": code})


@contextmanager
def running_app(app: Any, port: int) -> Iterator[str]:
    """An ASGI application on a port of this machine, in a thread. A proxy keeps the `Date` of the origin: uvicorn's own may be
    more than a second old."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        log_level="critical",
        lifespan="off",
        loop="asyncio",
        date_header=not isinstance(app, MutatingProxy),
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(int(_START_SECONDS * 100)):
        if server.started:
            break
        threading.Event().wait(0.01)
    assert server.started, "the application did not start"
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(_START_SECONDS)
