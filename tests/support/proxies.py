"""Proxies in front of the service: nginx and HAProxy with the configurations of `deploy/`, and a plain one that reuses one
connection for all its clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
READY_SECONDS = 20.0
_PAUSE_SECONDS = 0.02

_NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/waypost.conf;
}}
"""


def _configuration(name: str, *changes: tuple[str, str]) -> str:
    """A configuration of `deploy/` with other ports."""
    text = (DEPLOY / name).read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


@contextlib.contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[int]:
    """nginx with `deploy/nginx.conf` and one connection to the service; yields its port."""
    _require("nginx")
    port = free_port()
    text = _configuration(
        "nginx.conf",
        ("listen 80;", f"listen 127.0.0.1:{port};"),
        ("127.0.0.1:8440;", f"127.0.0.1:{upstream};"),
        ("keepalive 32;", "keepalive 1;"),
    )
    (folder / "waypost.conf").write_text(text)
    (folder / "nginx.conf").write_text(_NGINX.format(folder=folder))
    with _running(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], port):
        yield port


@contextlib.contextmanager
def haproxy(folder: Path, upstream: int) -> Iterator[int]:
    """HAProxy with `deploy/haproxy.cfg` and one connection to the service; yields its port."""
    _require("haproxy")
    port = free_port()
    text = _configuration(
        "haproxy.cfg",
        ("bind :80 ", f"bind 127.0.0.1:{port} "),
        ("127.0.0.1:8440 maxconn 1000", f"127.0.0.1:{upstream} maxconn 1"),
        ("http-reuse safe", "http-reuse always"),
    )
    (folder / "haproxy.cfg").write_text(text)
    with _running(["haproxy", "-db", "-f", str(folder / "haproxy.cfg")], port):
        yield port


@contextlib.contextmanager
def balancer(folder: Path, upstreams: Sequence[int]) -> Iterator[int]:
    """HAProxy with `deploy/haproxy.cluster.cfg` in front of three nodes; yields its port."""
    _require("haproxy")
    port = free_port()
    nodes = [(f"node-{number}:8440", f"127.0.0.1:{upstream}") for number, upstream in enumerate(upstreams, 1)]
    text = _configuration("haproxy.cluster.cfg", ("bind :8440 ", f"bind 127.0.0.1:{port} "), *nodes)
    (folder / "haproxy.cfg").write_text(text)
    with _running(["haproxy", "-db", "-f", str(folder / "haproxy.cfg")], port):
        yield port


def _require(program: str) -> None:
    if shutil.which(program) is None and "CI" not in os.environ:
        pytest.skip(f"{program} is not installed")


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        ends = time.monotonic() + READY_SECONDS
        while True:
            assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < ends
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(20)
        if process.stderr is not None:
            process.stderr.close()


# --- A plain proxy --------------------------------------------------------------------------------


class PlainProxy:
    """Passes each client's bytes on as they are and gives back one response: what a proxy does that reads a request as its
    sender meant it. All clients share one connection, which is replaced when the service closes it."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._lock = asyncio.Lock()
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Each message of a client has its length in front: here nothing is to be guessed."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(8), "big")
                response = await self._exchange(await reader.readexactly(size))
                writer.write(len(response).to_bytes(8, "big") + response)
                await writer.drain()
        writer.close()

    async def _exchange(self, request: bytes) -> bytes:
        """Once more on a fresh connection if the service closed the kept one instead of answering."""
        async with self._lock:
            return await self._try(request) or await self._try(request)

    async def _try(self, request: bytes) -> bytes:
        if self._connection is None or self._connection[0].at_eof():
            self._connection = await asyncio.open_connection("127.0.0.1", self._upstream)
            self.connections += 1
        reader, writer = self._connection
        head, end, body = request.partition(b"\r\n\r\n")
        try:
            writer.write(head + end)
            if body:  # on its own, as proxies do that stream it
                await asyncio.sleep(_PAUSE_SECONDS)
                writer.write(body)
            async with asyncio.timeout(30):
                answered = await reader.readuntil(b"\r\n\r\n")
                response = answered + await reader.readexactly(_content_length(answered))
        except (asyncio.IncompleteReadError, ConnectionError):
            self._close()
            return b""
        if b"\r\nconnection: close" in answered.lower():
            self._close()
        return response

    def _close(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None


def _content_length(head: bytes) -> int:
    lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(lines[0].partition(b":")[2]) if lines else 0


@contextlib.contextmanager
def plain_proxy(upstream: int) -> Iterator[int]:
    """The plain proxy in a thread; yields its port."""
    loop = asyncio.new_event_loop()

    async def start() -> tuple[asyncio.Server, int]:
        server = await asyncio.start_server(PlainProxy(upstream).serve, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()[1]

    server, port = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
