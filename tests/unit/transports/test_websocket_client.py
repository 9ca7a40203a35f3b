"""Opening WebSockets."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response

from waypost.transports.websocket_client import open_websocket


async def test_a_redirect_is_refused_so_that_the_token_stays_with_its_server() -> None:
    asked: list[tuple[str, str]] = []

    def redirect(connection: ServerConnection, request: Request) -> Response:
        asked.append((request.path, request.headers["Authorization"]))
        response = connection.respond(HTTPStatus.TEMPORARY_REDIRECT, "")
        response.headers["Location"] = "/elsewhere"
        return response

    async def ignore(connection: ServerConnection) -> None: ...

    async with serve(ignore, "127.0.0.1", 0, process_request=redirect) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(InvalidStatus) as refused:
            await open_websocket(f"ws://127.0.0.1:{port}/ws", "announce", max_size=1024, token="secret")
    assert refused.value.response.status_code == 307
    assert asked == [("/ws", "Bearer secret")]


async def test_an_address_replaces_the_lookup_of_the_host() -> None:
    hosts: list[str] = []

    async def note_host(connection: ServerConnection) -> None:
        assert connection.request is not None
        hosts.append(connection.request.headers["Host"])

    async with serve(note_host, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://agent.invalid:{port}/agent/chat"
        connection = await open_websocket(url, "agp", max_size=1024, address="127.0.0.1")
        await connection.wait_closed()
    assert hosts == [f"agent.invalid:{port}"]
