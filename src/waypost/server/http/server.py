"""The listening sockets of the service, and the uvicorn server behind them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import cast

import uvicorn

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.server.http.admission import AdmissionController
from waypost.server.http.asgi import App
from waypost.server.http.connections import ConnectionTable
from waypost.server.http.tls import TlsContext
from waypost.server.http.uvicorn_hooks import HttpConfig, HttpProtocol, WebSocketProtocol

log = logging.getLogger("waypost.server")

WORKER_SOCKET = "workers.sock"  # in the data folder: followers reach the leader process through it
_DRAIN_POLL_SECONDS = 0.02
_PATH_BYTES = 100  # the system allows some 107 in the name of a socket


class Listener:
    """Accepts every connection that waits, as asyncio does. uvloop's own server accepts one in each round of the event loop:
    when rounds are long, connections would wait for seconds in the backlog, where no admission check sees them.

    It has the methods of `asyncio.Server` that uvicorn calls.
    """

    def __init__(
        self,
        listening: socket.socket,
        connect: Callable[[], asyncio.Protocol],
        table: ConnectionTable,
        tls: TlsContext | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._connect = connect
        self._table = table
        self._tls = tls
        self._opening: set[asyncio.Task[None]] = set()
        self._is_closed = False
        listening.setblocking(False)
        listening.listen(limits.BACKLOG)
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        for _ in range(limits.BACKLOG):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors or memory are left: waiting connections stay in the backlog
                log.warning("cannot accept a connection: %s", error)
                if self._is_closed:
                    return
                self._loop.remove_reader(self._socket)
                self._loop.call_later(limits.ACCEPT_RETRY_SECONDS, self._resume)
                return
            accepted.setblocking(False)
            if self._tls is None:
                opening = self._open(accepted)
            elif self._table.begin_handshake(address[0]):
                opening = self._shake_hands(accepted, address[0], self._tls)
            else:
                accepted.close()
                continue
            task = self._loop.create_task(opening)
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _resume(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._socket, self._accept)

    async def _open(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._connect, accepted)
        except OSError:  # the client left
            accepted.close()

    async def _shake_hands(self, accepted: socket.socket, address: str, tls: TlsContext) -> None:
        """Until the handshake is complete there is no protocol that counts the connection, or limits its time."""
        try:
            await self._loop.connect_accepted_socket(
                self._connect, accepted, ssl=tls.context, ssl_handshake_timeout=limits.TLS_HANDSHAKE_SECONDS
            )
        except OSError:  # the client left, or the handshake failed
            accepted.close()
        finally:
            self._table.end_handshake(address)

    @property
    def is_opening(self) -> bool:
        """Whether connections were accepted that have no protocol yet."""
        return bool(self._opening)

    def close(self) -> None:
        """Connections that wait are accepted first: the system would reset them."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._socket)
            self._accept()
            self._socket.close()

    async def wait_closed(self) -> None:
        for task in self._opening:
            task.cancel()


class HttpServer(uvicorn.Server):
    """Calls `on_start` when requests are answered, `on_exit` on a signal, so that streams end and readiness turns, and
    `on_close` before it stops listening.

    `inner` is a second application on a socket of its own, for the other processes of this service. `stopping_since` is when
    the first of them was told to stop: the time that it takes until this one is told so is part of the time to stop.
    """

    def __init__(
        self,
        app: App,
        *,
        on_start: Callable[[], None],
        on_exit: Callable[[], None],
        on_close: Callable[[], None] = lambda: None,
        signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM),
        inner: tuple[App, socket.socket] | None = None,
        tls: TlsContext | None = None,
        websockets: Mapping[bytes, type[WebSocketProtocol]] | None = None,
        table: ConnectionTable | None = None,
        admission: AdmissionController | None = None,
        stopping_since: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._http = HttpConfig(app, websockets, table, admission)
        super().__init__(self._http)
        self._tls = tls
        self._tls_checked_at = 0.0
        self._on_start = on_start
        self._on_exit = on_exit
        self._on_close = on_close
        self._signals = signals
        self._inner = inner
        self._inner_http = None if inner is None else HttpConfig(inner[0], admission=self._http.admission)
        self._stopping_since = stopping_since

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        if self.started:
            for listening in sockets or []:
                self._listen(self._http, listening, self._tls)
            if self._inner is not None and self._inner_http is not None:
                self._listen(self._inner_http, self._inner[1])
            self._on_start()

    def _listen(self, config: HttpConfig, listening: socket.socket, tls: TlsContext | None = None) -> None:
        listener = Listener(listening, self._protocol_factory(config), config.table, tls)
        self.servers.append(cast(asyncio.Server, listener))

    def _protocol_factory(self, config: uvicorn.Config) -> Callable[[], asyncio.Protocol]:
        return lambda: HttpProtocol(config=config, server_state=self.server_state, app_state={})

    async def on_tick(self, counter: int) -> bool:
        if self._tls is not None:
            now = asyncio.get_running_loop().time()
            if now - self._tls_checked_at >= limits.FILE_CHECK_SECONDS:
                self._tls_checked_at = now
                self._tls.refresh()
        if self._stopping_since() is not None:
            self._http.is_draining = True
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The second signal ends the process at once: acknowledged writes are on the disk."""
        if self.should_exit:
            self.force_exit = True
            return
        self._http.is_draining = True
        if self._inner_http is not None:
            self._inner_http.is_draining = True
        self._on_exit()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer for a moment as not ready, with `Connection: close`; then stop listening, let connections in use ask once
        more, and end the rest as uvicorn does."""
        await self._wait_while_in_use(limits.NOT_READY_SECONDS - self._spent_seconds())
        self._on_close()
        for server in self.servers:
            server.close()
        whole = limits.NOT_READY_SECONDS + limits.DRAIN_SECONDS + limits.SHUTDOWN_SECONDS
        await self._wait_while_in_use(min(limits.DRAIN_SECONDS, whole - self._spent_seconds()))
        left = min(limits.SHUTDOWN_SECONDS, whole - self._spent_seconds())
        # Whole seconds, rounded down: what is left over is for the process that stops last.
        self.config.timeout_graceful_shutdown = max(0, int(left))
        await super().shutdown(sockets)

    def _spent_seconds(self) -> float:
        """How long the service has been stopping, if another process was told so before this one."""
        since = self._stopping_since()
        return 0.0 if since is None else max(0.0, time.monotonic() - since)

    async def _wait_while_in_use(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(int(seconds / _DRAIN_POLL_SECONDS)):
            connections = [each for each in self.server_state.connections if isinstance(each, HttpProtocol)]
            is_opening = any(cast(Listener, each).is_opening for each in self.servers)
            is_used = is_opening or any(each.is_in_use(loop.time()) for each in connections)
            if self.force_exit or not is_used:
                return
            await asyncio.sleep(_DRAIN_POLL_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but does not raise the signal again at the end: the store is closed after the last response."""
        before = {sig: signal.signal(sig, self.handle_exit) for sig in self._signals}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind the address for one process."""
    bound = _new_socket(host)
    _bind_address(bound, host, port)
    bound.set_inheritable(True)
    return bound


def reserve_address(host: str, port: int) -> socket.socket:
    """Bind the address for several processes of one service. It is bound alone first, which fails if another service has it."""
    with bind_socket(host, port) as alone:
        port = alone.getsockname()[1]
    return bind_reuse_port(host, port)


def bind_reuse_port(host: str, port: int) -> socket.socket:
    """One of several sockets with the same address. The kernel spreads connections over those that listen."""
    bound = _new_socket(host)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    _bind_address(bound, host, port)
    return bound


def _new_socket(host: str) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Accepted connections inherit it. The system then ends those whose client stops reading while the rest of an answer
        # is in its buffers, where no timer of this process sees it.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limits.WRITE_STALL_SECONDS * 1000)
    return bound


def _bind_address(bound: socket.socket, host: str, port: int) -> None:
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {error.strerror}.",
            path="port",
            hint="Stop the program that uses it, or choose another --port (0 picks a free one).",
        ) from None


# --- Between the processes of one service ---------------------------------------------------------


def worker_socket_path(folder: Path) -> str:
    """The path of the socket in the data folder; relative to an open folder descriptor if the path is too long."""
    path = str(folder / WORKER_SOCKET)
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}/{WORKER_SOCKET}"


def bind_worker_socket(path: str) -> socket.socket:
    """Bind the socket with mode 0600 before it listens. The caller has locked the folder, so an existing socket is stale."""
    remove_worker_socket(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(path)
    os.chmod(path, 0o600)
    return bound


def remove_worker_socket(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
