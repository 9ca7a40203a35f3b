"""Where an agent's token goes: to the API of its registry, and to no document."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from support.agp import ALICE, BOB, key_of
from waypost import LiveAgent
from waypost.errors import WaypostError


@contextmanager
def registry() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """A registry that knows nothing; the paths that were requested, and their tokens."""
    requests: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path.partition("?")[0], self.headers.get("Authorization")))
            self.send_response(200 if self.path.startswith("/.well-known/") else 404)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


async def test_documents_are_read_without_the_token_of_the_registry() -> None:
    with registry() as (url, requests):
        async with LiveAgent(ALICE, key_of(ALICE), registry=url, token="secret") as alice:
            with pytest.raises(WaypostError):
                await alice.contact(BOB)
    assert {token for path, token in requests if path.startswith("/.well-known/")} == {None}
    assert {token for path, token in requests if path.startswith("/api/")} == {"Bearer secret"}
