"""Runs a service until a signal stops it, in one process or in several."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from waypost import limits
from waypost.app.application import Application
from waypost.app.build import build
from waypost.app.cluster import join_cluster
from waypost.app.workers import RELOAD_EXIT_CODE, Supervisor, WorkerSlot, WorkerTable
from waypost.errors import ConfigurationError, StoreUnavailable
from waypost.files import restrict_modes
from waypost.net.clock import SystemClock
from waypost.registry.ports import Clock
from waypost.server.auth.callers import TrustedProxies
from waypost.server.http.admission import AdmissionController
from waypost.server.http.connections import ConnectionTable, most_connections, raise_descriptor_limit
from waypost.server.http.follower import LeaderApp
from waypost.server.http.metrics import Metrics
from waypost.server.http.server import (
    HttpServer,
    bind_reuse_port,
    bind_socket,
    bind_worker_socket,
    remove_worker_socket,
    reserve_address,
    worker_socket_path,
)
from waypost.settings import DATA_ENTRIES, Settings

log = logging.getLogger("waypost")

_UMASK = 0o077
_NAMED_FILES = 5  # in a log line
_RELOAD_TRIES = 60
_RELOAD_PAUSE_SECONDS = 1.0


async def serve(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """Run in one process until SIGTERM or SIGINT. `ready` gets the base URL when requests are answered."""
    bound = bind_socket(settings.host, settings.port)
    _warn_if_open(settings)
    application = await _start_application(settings, bound)
    ready_once = _OnceReady(ready)
    while await _serve_application(application, bound, ready_once):
        # The address stays bound meanwhile, and connections wait.
        application = await _retry_start(partial(_start_application, settings, bound))


class _OnceReady:
    """Calls a function the first time only."""

    def __init__(self, ready: Callable[[str], None]) -> None:
        self._ready: Callable[[str], None] | None = ready

    def __call__(self, url: str) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready(url)


async def _start_application(settings: Settings, bound: socket.socket) -> Application:
    slot = WorkerTable().slot(0)
    slot.take(os.getpid())
    shared_keys = await join_cluster(settings)
    application = build(settings, port=bound.getsockname()[1], slot=slot, shared_keys=shared_keys)
    await application.start()
    slot.set_ready()
    return application


async def _serve_application(application: Application, bound: socket.socket, ready: Callable[[str], None]) -> bool:
    """Serve until a signal; returns whether the application is to be built again, because its database has another history
    than its replica. `bound` is closed with the listener, unless it is."""

    def on_start() -> None:
        ready(application.base_url)
        application.warm_up()

    def stop_listening() -> None:
        if not application.needs_reload:
            bound.close()  # else connections would wait for a service that ends

    settings, listening = application.settings, bound.dup()
    try:
        server = HttpServer(
            application.app,
            on_start=on_start,
            on_exit=application.make_exit_handler(),
            on_close=stop_listening,
            tls=application.tls,
            table=_make_table(settings),
            admission=_make_admission(settings, application.metrics),
        )
        await server.serve(sockets=[listening])
    finally:
        await application.stop()
    return application.needs_reload and not server.force_exit


async def _retry_start(start: Callable[[], Awaitable[Application]]) -> Application:
    """The database may be away again for a moment."""
    for _ in range(_RELOAD_TRIES):
        try:
            return await start()
        except StoreUnavailable as error:
            log.warning("%s Trying again.", error.message)
            await asyncio.sleep(_RELOAD_PAUSE_SECONDS)
    return await start()


async def serve_worker(settings: Settings, slot: WorkerSlot, port: int, clock: Clock, started_at: float) -> None:
    """Run one of several processes. The first one writes, the others follow it; all have the same start time."""

    async def start() -> Application:
        shared_keys = await join_cluster(settings) if slot.writes else None
        application = build(settings, clock=clock, port=port, slot=slot, started_at=started_at, shared_keys=shared_keys)
        await application.start()
        return application

    if slot.writes:
        _warn_if_open(settings)
    application = await (_retry_start(start) if slot.stats().restarts else start())
    inner = None
    path = worker_socket_path(settings.data)
    if slot.writes:
        inner = (LeaderApp(application.app, application.metrics, application.confirm_reads), bind_worker_socket(path))
    bound = bind_reuse_port(settings.host, port)

    def on_start() -> None:
        slot.set_ready()
        application.warm_up()

    server = HttpServer(
        application.app,
        on_start=on_start,
        on_exit=application.make_exit_handler(),
        signals=(signal.SIGTERM,),
        stopping_since=lambda: slot.table.stopping_since,
        inner=inner,
        tls=application.tls,
        table=_make_table(settings),
        admission=_make_admission(settings, application.metrics),
    )
    try:
        await server.serve(sockets=[bound])
    finally:
        if slot.writes:
            remove_worker_socket(path)
        await application.stop()
    if application.needs_reload:
        sys.exit(RELOAD_EXIT_CODE)


def _make_table(settings: Settings) -> ConnectionTable:
    proxies = TrustedProxies(settings.trusted_proxies)
    return ConnectionTable(settings.max_connections_per_address, is_proxy=proxies.is_trusted)


def _make_admission(settings: Settings, metrics: Metrics) -> AdmissionController:
    return AdmissionController(
        target_seconds=settings.queue_target_ms / 1000,
        count_shed=metrics.count_overload,
        observe_delay=metrics.observe_queue_delay,
    )


def _warn_if_open(settings: Settings) -> None:
    if settings.open:
        log.warning("authentication is off: every program on this machine may read and write")


def _protect_data_folder(folder: Path) -> None:
    """Keep other users out of the data folder: of new files by the umask, of existing ones by a repair of their modes."""
    os.umask(_UMASK)
    changed, failed = restrict_modes(folder, DATA_ENTRIES)
    if changed:
        named = ", ".join(str(path.relative_to(folder)) for path in changed[:_NAMED_FILES])
        log.warning(
            "other users could read %d files of the data folder (%s); their modes were repaired", len(changed), named
        )
    if failed:
        log.error("other users can read %s and %d more files: run chmod -R go= %s", failed[0], len(failed) - 1, folder)


def run(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """Serve with as many processes as the settings say."""
    descriptors = raise_descriptor_limit()
    if descriptors < limits.CONNECTIONS + limits.RESERVED_DESCRIPTORS:
        log.warning(
            "%d file descriptors are allowed, enough for %d connections; raise the limit (ulimit -n, LimitNOFILE=)",
            descriptors,
            most_connections(descriptors),
        )
    _protect_data_folder(settings.data)
    sys.setswitchinterval(limits.THREAD_SWITCH_SECONDS)
    gc.set_threshold(*limits.COLLECTOR_THRESHOLDS)
    if settings.workers == 1:
        _run(serve(settings, ready=ready))
    else:
        _run_workers(settings, ready)


def _run_workers(settings: Settings, ready: Callable[[str], None]) -> None:
    """Returns in every process: in a worker when it has ended, in the supervisor after all of them."""
    if sys.platform != "linux":
        raise ConfigurationError(
            "Several processes need Linux: other systems do not distribute connections among them.",
            path="workers",
            hint="Leave `workers` at 1.",
        )
    reserved = reserve_address(settings.host, settings.port)
    port: int = reserved.getsockname()[1]
    clock = SystemClock()
    started_at = clock.now()
    supervisor = Supervisor(WorkerTable(settings.workers), lambda: ready(settings.public_url(port)))
    slot = supervisor.run()
    if slot is not None:
        _run(serve_worker(settings, slot, port, clock, started_at))
    elif supervisor.exit_code:
        sys.exit(supervisor.exit_code)


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
    except KeyboardInterrupt:
        return
