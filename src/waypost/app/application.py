"""A built service: what runs in a process, started and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast

import msgspec

from waypost import limits, samples
from waypost.app.cluster import SharedKeyFiles
from waypost.app.core import Models, RotationRecorder, index_folder
from waypost.app.http import FollowerParts
from waypost.app.messaging import Messaging
from waypost.errors import WaypostError
from waypost.federation.service import PeerService
from waypost.net.outbound import OutboundClient
from waypost.registry.audit_trail import PublishedLog
from waypost.registry.jobs.periodic import PeriodicJobs, cancel_all, run_tolerant
from waypost.registry.ports import KeyValueStore, Store
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.server.api.adp.invitations import InvitationApi
from waypost.server.api.announce.lan import LanBridge
from waypost.server.api.rest.service import MonitoringApi
from waypost.server.auth.authenticator import ADMIN
from waypost.server.auth.issuers import Issuers
from waypost.server.http.app import AsgiRoot, HttpApp
from waypost.server.http.freshness import ConfirmReads
from waypost.server.http.metrics import Metrics
from waypost.server.http.tls import TlsContext
from waypost.server.renderer import Renderer
from waypost.settings import REPLICA_FOLDER, Settings
from waypost.stores import ClusterStore


class Application(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    base_url: str
    store: Store
    registry: Registry
    key_value_store: KeyValueStore
    published_log: PublishedLog
    models: Models
    renderer: Renderer
    metrics: Metrics
    client: OutboundClient
    lan: LanBridge | None  # of the process that writes
    rotations: RotationRecorder
    jobs: PeriodicJobs
    issuers: Issuers | None
    invitations: InvitationApi
    messaging: Messaging
    peers: PeerService
    monitoring: MonitoringApi
    http_app: HttpApp
    follower: FollowerParts | None  # of a process that follows
    app: AsgiRoot
    tls: TlsContext | None
    shared_keys: SharedKeyFiles | None = None  # of a node of a cluster, in the process that writes
    confirm_reads: ConfirmReads | None = None  # likewise
    tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        with _frozen_gc():
            await self.registry.start()
        await self.key_value_store.open()
        if self.follower is None:
            await run_tolerant("record rotations", self.rotations.record)
            await run_tolerant("publish the audit log", self.published_log.publish_if_due)
            await self.messaging.start()
        if self.lan is not None:
            try:
                await self.lan.start()
            except WaypostError:
                await self.stop()
                raise
        self.jobs.start()
        await self.peers.start(pulls=self.follower is None)
        if self.issuers is not None:
            self.tasks.append(asyncio.create_task(self.issuers.keep_fresh(), name="keys of issuers"))
        if self.follower is not None:
            self.tasks.append(asyncio.create_task(self.follower.reporter.run(), name="report metrics"))
        elif self.settings.samples:
            await load_samples(self.registry)

    @property
    def needs_reload(self) -> bool:
        """Whether a node of a cluster ended because its database has another history than its replica."""
        if not self.settings.is_cluster or self.follower is not None:
            return False
        return cast(ClusterStore, self.store).has_other_history

    def warm_up(self) -> None:
        """Load models and read files ahead in threads; requests are answered meanwhile."""
        threading.Thread(target=self.models.load, name="waypost-models").start()
        if self.follower is None and self.settings.is_durable:
            threading.Thread(target=self._read_ahead, name="waypost-read-ahead", daemon=True).start()

    def _read_ahead(self) -> None:
        """The index, which queries read, before the records. One process does it for all."""
        data = self.settings.data
        index = sorted(path for path in index_folder(self.settings).rglob("*") if path.is_file())
        records = data / REPLICA_FOLDER if self.settings.is_cluster else data
        prefetch_files((*index, *sorted(records.glob("*.sqlite3"))))

    def make_exit_handler(self) -> Callable[[], None]:
        """A function for the signal handler: it ends watches and reports the service as not ready."""
        loop = asyncio.get_running_loop()

        def on_exit() -> None:
            self.monitoring.begin_shutdown()
            loop.call_soon_threadsafe(self.registry.changes.close)

        return on_exit

    async def stop(self) -> None:
        await self.jobs.stop()
        await self.peers.stop()
        if self.lan is not None:
            await self.lan.stop()
        await cancel_all(self.tasks)
        if self.follower is not None:
            with contextlib.suppress(WaypostError):
                await self.follower.reporter.report()
            self.follower.upstream.close()
        await self.messaging.stop()
        await self.client.aclose()
        await self.key_value_store.close()
        await self.registry.stop()
        if self.shared_keys is not None:
            await self.shared_keys.close()


@contextlib.contextmanager
def _frozen_gc() -> Iterator[None]:
    """Disable garbage collection while loading, then freeze: these objects live as long as the process."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()


async def load_samples(registry: Registry) -> int:
    """Register the sample agents; those that are registered already stay as they are."""
    loaded = samples.load()
    for sample in loaded:
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
    return len(loaded)


# --- Reading ahead --------------------------------------------------------------------------------

_ADVICE_BYTES = 8 << 20  # for each call
_MEMORY_SHARE = 4  # all files together take at most a quarter of the memory
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def prefetch_files(paths: Iterable[Path]) -> int:
    """Ask the system to read files into its cache, in order, as far as memory allows. Returns the number of bytes. Files
    that are missing or cannot be read are skipped: this is only advice."""
    room = _memory_bytes() // _MEMORY_SHARE
    total = 0
    for path in paths:
        try:
            size = path.stat().st_size
            if total + size <= room:
                total += _advise(path, size)
        except OSError:
            continue
    return total


def _advise(path: Path, size: int) -> int:
    if not hasattr(os, "posix_fadvise"):
        return 0
    file = os.open(path, os.O_RDONLY)
    try:
        for start in range(0, size, _ADVICE_BYTES):
            os.posix_fadvise(file, start, _ADVICE_BYTES, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(file)
    return size


def _memory_bytes() -> int:
    """The memory of the machine, or of the container if that has a limit."""
    try:
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
    return min([installed, *(limit for limit in map(_read_limit, _CGROUP_LIMITS) if limit is not None)])


def _read_limit(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None  # `max` means no limit
