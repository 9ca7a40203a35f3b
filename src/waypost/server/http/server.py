"""Sockets, and the server that answers on them. It knows how a service is reached, not what it says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.server.http.connection import HttpConnection
from waypost.server.http.tls import TlsContext
from waypost.server.http.websockets import announce_protocol

WORKER_SOCKET = "workers.sock"  # in the data folder: the way from the processes that follow to the one that writes
_PATH_BYTES = 100  # the system allows some 107 in the name of a socket


class HttpServer(uvicorn.Server):
    """Says when requests are answered, and when a signal asks it to stop, so that streams end and readiness turns.

    `inner` is a second application on a socket of its own, for the other processes of this service.
    """

    def __init__(
        self,
        app: Any,
        *,
        on_start: Callable[[], None],
        on_exit: Callable[[], None],
        signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
        inner: tuple[Any, socket.socket] | None = None,
        tls: TlsContext | None = None,
    ) -> None:
        super().__init__(uvicorn_config(app))
        self._tls = tls
        self._looked_at = 0.0
        self._on_start = on_start
        self._on_exit = on_exit
        self._signals = signals
        self._inner = inner

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets if self._tls is None else [])
        if self.started:
            if self._tls is not None:
                await self._open_tls(self._tls, sockets or [])
            if self._inner is not None:
                await self._open_inner(*self._inner)
            self._on_start()

    async def _open_tls(self, tls: TlsContext, sockets: Sequence[socket.socket]) -> None:
        """As uvicorn would, but for the time that a handshake may take: before it no other bound holds."""
        loop = asyncio.get_running_loop()
        for listening in sockets:
            opened = await loop.create_server(
                self._connect(self.config),
                sock=listening,
                ssl=tls.context,
                ssl_handshake_timeout=limits.TLS_HANDSHAKE_SECONDS,
                backlog=limits.BACKLOG,
            )
            self.servers.append(opened)

    async def _open_inner(self, app: Any, listening: socket.socket) -> None:
        config = uvicorn_config(app)
        config.load()
        loop = asyncio.get_running_loop()
        connect = self._connect(config)
        self.servers.append(await loop.create_unix_server(connect, sock=listening, backlog=limits.BACKLOG))

    def _connect(self, config: uvicorn.Config) -> Callable[[], asyncio.Protocol]:
        return lambda: HttpConnection(config=config, server_state=self.server_state, app_state=self.lifespan.state)

    async def on_tick(self, counter: int) -> bool:
        """Look from time to time whether the certificate was replaced. The other ticks are uvicorn's."""
        if self._tls is not None:
            now = asyncio.get_running_loop().time()
            if now - self._looked_at >= limits.FILE_CHECK_SECONDS:
                self._looked_at = now
                self._tls.refresh()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal is not raised again at the end: the store must be closed after the last answer."""
        before = {sig: signal.signal(sig, self.handle_exit) for sig in self._signals}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


def uvicorn_config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=HttpConnection,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here trusts a forwarded address
        timeout_keep_alive=limits.IDLE_SECONDS,
        timeout_graceful_shutdown=5,
        limit_concurrency=limits.CONNECTIONS,
        backlog=limits.BACKLOG,
        ws=cast(Any, announce_protocol),  # a class, or what makes one, is the same to uvicorn
        ws_max_size=limits.SOCKET_MESSAGE_BYTES,
        ws_per_message_deflate=False,  # W4
    )


def bind_socket(host: str, port: int) -> socket.socket:
    """The address, for one process alone."""
    bound = _new_socket(host)
    _bind_address(bound, host, port)
    bound.set_inheritable(True)
    return bound


def reserve_address(host: str, port: int) -> socket.socket:
    """The address, for several processes of one service. Whoever has it already keeps it: it is asked for alone first."""
    with bind_socket(host, port) as alone:
        port = alone.getsockname()[1]
    return bind_reuse_port(host, port)


def bind_reuse_port(host: str, port: int) -> socket.socket:
    """One of several sockets with one address. The system deals connections out to those that listen."""
    bound = _new_socket(host)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    _bind_address(bound, host, port)
    return bound


def _new_socket(host: str) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound


def _bind_address(bound: socket.socket, host: str, port: int) -> None:
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            path="port",
            hint="Stop what uses it, or choose another --port (0 picks a free one).",
        ) from None


# --- Between the processes of one service ---------------------------------------------------------


def worker_socket_path(folder: Path) -> str:
    """The name of the socket in the data folder; by way of an open folder where the whole of it is too long."""
    path = str(folder / WORKER_SOCKET)
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}/{WORKER_SOCKET}"


def bind_worker_socket(path: str) -> socket.socket:
    """For this user alone, before anybody can connect. By the process that holds the folder, so an old one is of nobody."""
    remove_worker_socket(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(path)
    os.chmod(path, 0o600)
    return bound


def remove_worker_socket(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
