"""Files that answers are read from, brought into the system's cache: after a start nobody should wait for a disk.

It asks the system for it and knows nothing of what is in them. What is larger than a share of the memory is left to be read by
whoever needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from waypost import limits
from waypost.app.core import INDEX, Models
from waypost.app.messaging_services import MessagingServices
from waypost.errors import WaypostError
from waypost.net.outbound import OutboundClient
from waypost.registry.jobs.periodic import PeriodicJobs
from waypost.registry.ports import KeyValueStore, Store
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.server.api.adp.agp.websocket import AgpWebSocketApp
from waypost.server.api.announce.lan import LanBridge
from waypost.server.api.rest.monitoring import MonitoringApi
from waypost.server.auth.authenticator import ADMIN
from waypost.server.auth.issuers import Issuers
from waypost.server.http.app import HttpApp
from waypost.server.http.follower import MetricsReporter, UpstreamPool
from waypost.server.http.metrics import Metrics
from waypost.server.http.tls import TlsContext
from waypost.server.renderer import Renderer
from waypost.settings import Settings
from waypost.stores.sqlite.database import FILE_NAME

_AT_ONCE = 8 << 20  # bytes; between two of these others have their turn

_SHARE = 4  # of the memory, all files together

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def prefetch_files(paths: Iterable[Path]) -> int:
    """Ask for these files, in their order, as far as there is room; how many bytes were asked for. What is not there, or
    cannot be asked for, is passed over: nothing depends on it."""
    room = _memory_bytes() // _SHARE
    asked = 0
    for path in paths:
        try:
            size = path.stat().st_size
            if asked + size <= room:
                asked += _advise(path, size)
        except OSError:
            continue
    return asked


def _advise(path: Path, size: int) -> int:
    if not hasattr(os, "posix_fadvise"):
        return 0
    file = os.open(path, os.O_RDONLY)
    try:
        for start in range(0, size, _AT_ONCE):
            os.posix_fadvise(file, start, _AT_ONCE, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)
    return size


def _memory_bytes() -> int:
    """Of the machine, or of the container, where that has a limit of its own."""
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
    return min([installed, *(found for found in map(_limit_in, _LIMITS) if found is not None)])


def _limit_in(path: Path) -> int | None:
    try:
        told = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(told) if told.isdigit() else None  # `max`: none


# ---- All that runs, started and stopped in order.


@contextlib.contextmanager
def gc_frozen() -> Iterator[None]:
    """Disable garbage collection while loading, then freeze: these objects live as long as the process."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()


class Application(msgspec.Struct, kw_only=True):
    """Everything that runs: the ASGI callable and what stands behind it."""

    settings: Settings
    store: Store
    registry: Registry
    service: HttpApp
    operator: MonitoringApi
    renderer: Renderer
    metrics: Metrics
    base_url: str
    models: Models
    app: Any  # what answers: the service, or what stands before it in a process that follows
    upstream: UpstreamPool | None = None  # of a process that follows
    reporter: MetricsReporter | None = None
    reporting: asyncio.Task[None] | None = None
    tls: TlsContext | None = None
    issuers: Issuers | None = None  # outside ones
    asking: asyncio.Task[None] | None = None  # for their keys
    lan: LanBridge | None = None  # of the process that writes
    key_value_store: KeyValueStore  # of what is no record: tasks, messages, swarms, invitations
    meeting: MessagingServices  # what comes after discovery
    conversations: AgpWebSocketApp
    outgoing: OutboundClient
    jobs: PeriodicJobs

    async def start(self) -> None:
        with gc_frozen():
            await self.registry.start()
        await self.key_value_store.open()
        if self.upstream is None:
            self.meeting.start()
            await self.conversations.agents.start()
        if self.lan is not None:
            try:
                await self.lan.start()
            except WaypostError:
                await self.stop()
                raise
        self.jobs.start()
        if self.issuers is not None:
            self.asking = asyncio.create_task(self.issuers.keep_fresh(), name="keys of issuers")
        if self.reporter is not None:
            self.reporting = asyncio.create_task(self.reporter.go_on(), name="report")
        elif self.settings.samples:
            await load_samples(self.registry)

    def warm_up(self) -> None:
        """What can wait until requests are answered: models are loaded in the background, and files are read ahead."""
        threading.Thread(target=self.models.load, name="waypost-models", daemon=True).start()
        if self.upstream is None and self.settings.store != "memory":
            threading.Thread(target=self._read_ahead, name="waypost-read-ahead", daemon=True).start()

    def _read_ahead(self) -> None:
        """What questions are answered from, then what is shown of agents. One process does it for all."""
        data = self.settings.data
        indexed = sorted(path for path in (data / INDEX).rglob("*") if path.is_file())
        prefetch_files((*indexed, data / FILE_NAME))

    def ending(self) -> Callable[[], None]:
        """What is to be done when a signal says that it is over: streams end, readiness turns."""
        loop = asyncio.get_running_loop()

        def stopping() -> None:
            self.operator.stopping = True
            loop.call_soon_threadsafe(self.registry.changes.close)

        return stopping

    async def stop(self) -> None:
        await self.jobs.stop()
        if self.lan is not None:
            await self.lan.stop()
        if self.asking is not None:
            self.asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.asking
        if self.reporter is not None and self.reporting is not None:
            self.reporting.cancel()
            with contextlib.suppress(WaypostError):
                await self.reporter.report()
        if self.upstream is not None:
            self.upstream.close()
        await self.meeting.stop()
        await self.conversations.agents.stop()
        await self.outgoing.aclose()
        await self.key_value_store.close()
        await self.registry.stop()


async def load_samples(registry: Registry) -> int:
    """Register the sample agents; those that are there already stay as they are."""
    from waypost import samples  # late: for trying it

    loaded = 0
    for sample in samples.load():
        dialect, decoded = registry.decode(sample.data, dialect=sample.dialect)
        publication = Publication(
            dialect=dialect,
            document=sample.data,
            decoded=decoded,
            principal=ADMIN,
            via="samples",
            ttl_seconds=limits.TTL_MAX_SECONDS if dialect in ("rtfs", "announce") else None,
        )
        await registry.publish(publication)
        loaded += 1
    return loaded
