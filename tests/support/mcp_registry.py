"""A generated MCP registry behind a socket: many servers with several versions each, pages, `updated_since`, deletions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from waypost.model.times import to_rfc3339

OFFICIAL = "io.modelcontextprotocol.registry/official"
VERSIONS = 3
OLD = "2026-01-01T00:00:00Z"


class GeneratedMcpRegistry:
    def __init__(self, servers: int) -> None:
        self.servers = servers
        self.rows = servers * VERSIONS
        self.requests = 0
        self.deleted: list[int] = []

    def current_version(self, number: int) -> str:
        """Not the newest by time: `isLatest` decides."""
        return f"1.{number % VERSIONS}.0"

    def delete(self, number: int) -> None:
        self.deleted.append(number)

    def page(self, query: dict[str, str]) -> dict[str, Any]:
        self.requests += 1
        start, limit = int(query.get("cursor", 0)), int(query.get("limit", 30))
        if "updated_since" in query:
            rows = [self._row(number, number % VERSIONS, "deleted") for number in self.deleted]
            return {"servers": rows[start : start + limit], "metadata": {"count": limit}}
        end = min(start + limit, self.rows)
        rows = [self._row(*divmod(place, VERSIONS)) for place in range(start, end)]
        metadata = {"count": len(rows), **({"nextCursor": str(end)} if end < self.rows else {})}
        return {"servers": rows, "metadata": metadata}

    def _row(self, number: int, version: int, status: str = "active") -> dict[str, Any]:
        at = OLD if status == "active" else to_rfc3339(time.time())
        return {
            "server": {
                "name": f"io.example/server-{number}",
                "description": f"Server {number} in version {version}",
                "version": f"1.{version}.0",
                "remotes": [{"type": "streamable-http", "url": f"https://s{number}.example/mcp"}],
            },
            "_meta": {
                OFFICIAL: {
                    "status": status,
                    "publishedAt": OLD,
                    "updatedAt": at,
                    "isLatest": version == number % VERSIONS,
                }
            },
        }

    @contextmanager
    def running(self) -> Iterator[str]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                is_known = parts.path == "/v0.1/servers"
                body = json.dumps(outer.page(query)).encode() if is_known else b""
                self.send_response(200 if is_known else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
