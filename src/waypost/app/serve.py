"""The process, or processes, in which a service runs until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from waypost import limits
from waypost.app.build import build
from waypost.app.workers import Supervisor, WorkerSlot, WorkerTable
from waypost.errors import ConfigurationError
from waypost.net.clock import SystemClock
from waypost.registry.ports import Clock
from waypost.server.http.follower import LeaderApp
from waypost.server.http.server import (
    HttpServer,
    bind_reuse_port,
    bind_socket,
    bind_worker_socket,
    remove_worker_socket,
    reserve_address,
    worker_socket_path,
)
from waypost.settings import Settings

log = logging.getLogger("waypost")


async def serve(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """One process that does all. Run until SIGTERM or SIGINT; `ready` is told the base URL once requests are answered."""
    bound = bind_socket(settings.host, settings.port)
    place = WorkerTable().place(0)
    place.take(os.getpid())
    application = build(settings, port=bound.getsockname()[1], place=place)
    _warn_if_open(settings)
    await application.start()

    def on_start() -> None:
        place.note_ready()
        ready(application.base_url)
        application.warm_up()

    try:
        server = HttpServer(application.app, on_start=on_start, on_exit=application.ending(), tls=application.tls)
        await server.serve(sockets=[bound])
    finally:
        await application.stop()


async def serve_worker(settings: Settings, place: WorkerSlot, port: int, clock: Clock, started_at: float) -> None:
    """One of several processes, at its place: the first one writes, the others follow it. They have one clock."""
    application = build(settings, clock=clock, port=port, place=place, started_at=started_at)
    if place.writes:
        _warn_if_open(settings)
    await application.start()
    inner = None
    if place.writes:
        path = worker_socket_path(settings.data)
        inner = (LeaderApp(application.service, application.metrics), bind_worker_socket(path))
    bound = bind_reuse_port(settings.host, port)

    def on_start() -> None:
        place.note_ready()
        application.warm_up()

    server = HttpServer(
        application.app,
        on_start=on_start,
        on_exit=application.ending(),
        signals=(signal.SIGTERM,),
        inner=inner,
        tls=application.tls,
    )
    try:
        await server.serve(sockets=[bound])
    finally:
        if place.writes:
            remove_worker_socket(path)
        await application.stop()


def _warn_if_open(settings: Settings) -> None:
    if settings.open:
        log.warning("authentication is off: every program on this machine may read and write")


def run(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """Serve, with as many processes as the settings say, on the fastest loop there is here."""
    sys.setswitchinterval(limits.THREAD_SWITCH_SECONDS)
    gc.set_threshold(*limits.COLLECTOR_THRESHOLDS)
    if settings.workers == 1:
        _run(serve(settings, ready=ready))
    else:
        _run_workers(settings, ready)


def _run_workers(settings: Settings, ready: Callable[[str], None]) -> None:
    """Returns in each of the processes: in those that were started, when their work is done; in the first, after all."""
    if sys.platform != "linux":
        raise ConfigurationError(
            "Several processes need Linux: elsewhere the system does not deal connections out to them.",
            path="workers",
            hint="Leave `workers` at 1.",
        )
    reserved = reserve_address(settings.host, settings.port)
    port: int = reserved.getsockname()[1]
    clock = SystemClock()
    started_at = clock.now()
    supervisor = Supervisor(WorkerTable(settings.workers), lambda: ready(settings.public_url(port)))
    place = supervisor.run()
    if place is not None:
        _run(serve_worker(settings, place, port, clock, started_at))
    elif supervisor.exit_code:
        sys.exit(supervisor.exit_code)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serving)
    except KeyboardInterrupt:
        return
