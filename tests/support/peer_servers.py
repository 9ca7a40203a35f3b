"""Fake peers behind sockets: good ones, and ones that hang, drip, never end, or lie. Each is a thread of the test."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.peer_sites import WaypostSite
from support.service import profile

CHUNK = b"x" * 65536


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # the one in between asks the DNS for a name, for seconds in a network namespace


class PeerServer:
    """`behaviour` replaces the answers of the site once it is set."""

    def __init__(self, site: WaypostSite, host: str) -> None:
        self.site = site
        self.behaviour: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.bodies: list[bytes] = []
        self.sent_bytes = 0
        self.is_closed = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.handle(self)

            def do_POST(self) -> None:
                outer.handle(self)

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the name in the library

        self._server = _Server((host, 0), Handler)
        self.url = f"http://{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.is_closed.set()
        self._server.shutdown()
        self._server.server_close()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.bodies.append(body)
        with suppress(OSError):
            if self.behaviour is not None:
                self.behaviour(request)
            elif request.path == "/profile/v1/discover":
                agents = [
                    profile(f"urn:ex:{name}", name=name, description="Balances ledgers.") for name in self.site.names
                ]
                reply(request, 200, json.dumps({"candidates": agents}).encode())
            else:
                parts = urlsplit(request.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                if query.get("wait") not in (None, "0") and query.get("from"):
                    time.sleep(0.2)  # a short long poll
                status, _, content = self.site.answer(parts.path, query, {})
                reply(request, status, content if isinstance(content, bytes) else json.dumps(content).encode())

    # --- Misbehaviour ----------------------------------------------------------------------------

    def hang(self, request: BaseHTTPRequestHandler) -> None:
        self.is_closed.wait(120)

    def drip(self, request: BaseHTTPRequestHandler) -> None:
        """One byte a second, for ever."""
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")
        while not self.is_closed.wait(1):
            request.wfile.write(b" ")
            request.wfile.flush()

    def flood(self, request: BaseHTTPRequestHandler) -> None:
        """10 GiB, if anyone reads them."""
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")
        while self.sent_bytes < 10 << 30 and not self.is_closed.is_set():
            request.wfile.write(CHUNK)
            self.sent_bytes += len(CHUNK)

    def empty(self, request: BaseHTTPRequestHandler) -> None:
        reply(request, 200, b"")

    def fail(self, request: BaseHTTPRequestHandler) -> None:
        reply(request, 500, b"")


def reply(request: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def peer_servers(count: int, host: str, agents: int = 3) -> Iterator[list[PeerServer]]:
    """Good ones, each with agents of its own."""
    servers = []
    try:
        for number in range(count):
            site = WaypostSite()
            site.service_id = f"urn:uuid:00000000-0000-4000-8000-{number + 1:012d}"
            site.names = [f"p{number}-{agent}" for agent in range(agents)]
            servers.append(PeerServer(site, host))
        yield servers
    finally:
        for server in servers:
            server.close()
