"""Conversations in a process that follows: passed on, frame by frame, to the process that writes.

One process holds all conversations of a service: an agent that holds a line is reached by whoever calls, whichever process
took the call. Only text frames pass; the other process judges them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Origin, Subprotocol

from waypost import limits
from waypost.server.asgi import Receive, Scope, Send
from waypost.server.forwarding import ORIGIN, origin_header
from waypost.wire.agp import SUBPROTOCOL

_PASSED = (b"authorization", b"cookie")
TRY_AGAIN = 1013


class Tunnel:
    """The ASGI application of `/agent/chat` in a process that follows. `path`: the socket of the one that writes."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the handshake
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        offered = SUBPROTOCOL in scope.get("subprotocols", ())
        passed = [(name.decode(), headers[name]) for name in _PASSED if name in headers]
        passed.append((ORIGIN.decode(), origin_header(scope).decode("latin-1")))
        origin = headers.get(b"origin")
        try:
            async with unix_connect(
                self._path,
                uri=f"ws://{headers.get(b'host', 'localhost')}{scope['path']}{_query(scope)}",
                subprotocols=[Subprotocol(SUBPROTOCOL)] if offered else None,
                additional_headers=passed,
                origin=None if origin is None else Origin(origin),
                compression=None,
                max_size=limits.AGP_FRAME_BYTES,
                open_timeout=limits.SOCKET_OPEN_SECONDS,
                ping_interval=None,  # each side of the way looks after its own
            ) as other:
                await send({"type": "websocket.accept", "subprotocol": other.subprotocol})
                await _pump(other, receive, send)
        except InvalidStatus as error:
            await _refuse(error, send)
        except (OSError, TimeoutError, WebSocketException):
            with suppress(OSError):
                await send({"type": "websocket.close", "code": TRY_AGAIN, "reason": "come back later"})


def _query(scope: Scope) -> str:
    """With an invitation in it, perhaps."""
    query = scope.get("query_string", b"").decode("latin-1")
    return f"?{query}" if query else ""


async def _pump(other: ClientConnection, receive: Receive, send: Send) -> None:
    going = asyncio.create_task(_go(other, receive))
    try:
        async for frame in other:
            await send({"type": "websocket.send", "text" if isinstance(frame, str) else "bytes": frame})
    except ConnectionClosed:
        pass
    except OSError:  # the caller left
        return
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    with suppress(OSError):
        await send({"type": "websocket.close", "code": _code(other), "reason": other.close_reason or ""})


async def _go(other: ClientConnection, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await other.close()
            return
        frame = message.get("text")
        await other.send(frame if frame is not None else message["bytes"])


def _code(other: ClientConnection) -> int:
    """Codes that no frame may carry mean that the other process is gone."""
    code = other.close_code
    return TRY_AGAIN if code is None or code in (1005, 1006, 1015) else code


async def _refuse(error: InvalidStatus, send: Send) -> None:
    """The refusal of the other process, as it is."""
    headers = [
        (name.lower().encode(), value.encode())
        for name, value in error.response.headers.raw_items()
        if name.lower() not in ("connection", "content-length", "date", "transfer-encoding")
    ]
    start = {"type": "websocket.http.response.start", "status": error.response.status_code, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": error.response.body or b""})
