"""All that runs, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from waypost import limits
from waypost.app.models import INDEX, Models
from waypost.errors import WaypostError
from waypost.net.outgoing import Outgoing
from waypost.registry.engine import Registry
from waypost.registry.keeping import Keeper
from waypost.registry.publication import Publication
from waypost.server.agp_socket import Conversations
from waypost.server.auth import ADMIN
from waypost.server.forwarding import Reporter
from waypost.server.issuers import Issuers
from waypost.server.lan import Lan
from waypost.server.meeting import Meeting
from waypost.server.metrics import Metrics
from waypost.server.operator import OperatorFace
from waypost.server.rendering import Renderer
from waypost.server.service import Service
from waypost.server.tls import Tls
from waypost.server.upstream import Upstream
from waypost.settings import Settings
from waypost.stores.read_ahead import read_ahead
from waypost.stores.sqlite_schema import FILE_NAME


class Application(msgspec.Struct, kw_only=True):
    """Everything that runs: the ASGI callable and what stands behind it."""

    settings: Settings
    registry: Registry
    service: Service
    operator: OperatorFace
    renderer: Renderer
    metrics: Metrics
    base_url: str
    models: Models
    app: Any  # what answers: the service, or what stands before it in a process that follows
    upstream: Upstream | None = None  # of a process that follows
    reporter: Reporter | None = None
    reporting: asyncio.Task[None] | None = None
    tls: Tls | None = None
    issuers: Issuers | None = None  # outside ones
    asking: asyncio.Task[None] | None = None  # for their keys
    lan: Lan | None = None  # of the process that writes
    keeper: Keeper  # of what is no record: tasks, messages, swarms, invitations
    meeting: Meeting  # what comes after discovery
    conversations: Conversations
    outgoing: Outgoing

    async def start(self) -> None:
        await self.registry.start()
        await self.keeper.open()
        if self.upstream is None:
            self.meeting.start()
            await self.conversations.agents.start()
        if self.lan is not None:
            try:
                await self.lan.start()
            except WaypostError:
                await self.stop()
                raise
        if self.issuers is not None:
            self.asking = asyncio.create_task(self.issuers.keep_fresh(), name="keys of issuers")
        if self.reporter is not None:
            self.reporting = asyncio.create_task(self.reporter.go_on(), name="report")
        elif self.settings.samples:
            await load_samples(self.registry)

    def answering(self) -> None:
        """What can wait until requests are answered: models are loaded in the background, and files are read ahead."""
        threading.Thread(target=self.models.load, name="waypost-models", daemon=True).start()
        if self.upstream is None and self.settings.store != "memory":
            threading.Thread(target=self._read_ahead, name="waypost-read-ahead", daemon=True).start()

    def _read_ahead(self) -> None:
        """What questions are answered from, then what is shown of agents. One process does it for all."""
        data = self.settings.data
        indexed = sorted(path for path in (data / INDEX).rglob("*") if path.is_file())
        read_ahead((*indexed, data / FILE_NAME))

    def ending(self) -> Callable[[], None]:
        """What is to be done when a signal says that it is over: streams end, readiness turns."""
        loop = asyncio.get_running_loop()

        def stopping() -> None:
            self.operator.stopping = True
            loop.call_soon_threadsafe(self.registry.changes.close)

        return stopping

    async def stop(self) -> None:
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
        await self.keeper.close()
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
