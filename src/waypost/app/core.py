"""What all parts of a service share: settings, clock, keys and token of the data folder, store, registry, search models,
renderer, metrics.
"""

from __future__ import annotations

import hmac
import os
import platform
import secrets
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost import __version__, limits
from waypost.app.service_keys import KeyRing, ServiceKeys, format_cursor_key, read_admin_token, service_keys_of
from waypost.app.workers import WorkerSlot
from waypost.embedders.choice import EmbedderChoice, choose_embedder
from waypost.model.times import to_rfc3339
from waypost.net.clock import ClusterClock, SystemClock
from waypost.net.outbound import OutboundClient
from waypost.registry.admission import AnnouncementOptions
from waypost.registry.audit_trail import AuditTrail, NoteSigner, PublishedLog, audit_service_keys
from waypost.registry.credentials.credentials import SharedCounter
from waypost.registry.jobs.health_checks import EndpointCheck
from waypost.registry.jobs.periodic import ChoreCheck, Job, do_all_chores
from waypost.registry.jobs.segment_process import SegmentProcess
from waypost.registry.ports import Clock, KeyValueStore, Ranker, Store, Timings
from waypost.registry.registry import Registry, RegistryOptions
from waypost.registry.trust_store import RegistryTrustStore
from waypost.responses.service import NodeList
from waypost.search.ranker import HybridRanker
from waypost.server.api.adp.agp.websocket import CHAT_PATH
from waypost.server.auth.certificates import AnnouncedCertificates
from waypost.server.http.metrics import Metrics
from waypost.server.renderer import Renderer
from waypost.settings import INDEX_FOLDER, REPLICA_FOLDER, Settings
from waypost.stores import ClusterBackend, ClusterStore, StoreBackend, get_backend
from waypost.trust import jwt
from waypost.trust.keys import ed25519

# (subject, scopes, TTL in seconds, token id) -> (token, end of validity)
MintToken = Callable[[str, tuple[str, ...], int, str], tuple[str, str]]


class AppContext(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    clock: Clock
    port: int | None  # the bound port
    slot: WorkerSlot | None  # of this process, if the service has a worker table
    started_at: float
    base_url: str
    host: str  # the host name of the base URL
    keys: ServiceKeys
    admin_token: str

    @property
    def writes(self) -> bool:
        """One process of a service writes; the others follow it."""
        return self.slot is None or self.slot.writes

    @property
    def node_url(self) -> str | None:
        """Where other nodes of the cluster reach this one; None without a cluster, and if that is not known."""
        return self.settings.internal_url(self.port) if self.settings.is_cluster else None

    def count_nodes(self) -> int:
        """The nodes of the cluster that are alive, this one included."""
        return 1 if self.slot is None else self.slot.table.nodes

    def is_service_stopping(self) -> bool:
        """Whether another process of the service may be stopping already."""
        return self.slot is not None and self.slot.table.stopping_since is not None

    @property
    def checks_health(self) -> bool:
        return self.settings.health_checks is not False and self.writes

    @property
    def mint(self) -> MintToken:
        return _make_mint(self.settings, lambda: self.token_keys()[0], self.clock)

    def token_keys(self) -> list[Ed25519PrivateKey]:
        """The current token key, and those that it replaced recently."""
        if self.settings.open:
            return [_open_access_key(self.keys.identity.current())]
        return list(self.keys.token.accepted(self.clock.wall()))

    def token_keys_version(self) -> object:
        """Differs as soon as `token_keys` does."""
        return None if self.settings.open else self.keys.token.version(self.clock.wall())


def make_context(
    settings: Settings, clock: Clock | None, port: int | None, slot: WorkerSlot | None, started_at: float | None
) -> AppContext:
    clock = clock or SystemClock()
    if settings.is_cluster and slot is not None and isinstance(clock, SystemClock):
        clock = ClusterClock(clock, slot.table.clock_offsets)
    base_url = settings.public_url(port)
    return AppContext(
        settings=settings,
        clock=clock,
        port=port,
        slot=slot,
        started_at=clock.now() if started_at is None else started_at,
        base_url=base_url,
        host=urlsplit(base_url).hostname or "localhost",
        keys=_make_keys(settings),
        admin_token=read_admin_token(settings.data),
    )


def _make_keys(settings: Settings) -> ServiceKeys:
    """Read, or made at the first start: a damaged file ends the start, not a later request."""
    keys = service_keys_of(settings)
    keys.identity.current()
    if not settings.open:
        keys.token.current()
    return keys


def mint_locally(
    settings: Settings, subject: str, scopes: tuple[str, ...], ttl_seconds: int, *, clock: Clock | None = None
) -> tuple[str, str]:
    """A token signed with the key in the data folder, without a running service."""
    mint = _make_mint(settings, service_keys_of(settings).token.current, clock or SystemClock())
    return mint(subject, scopes, ttl_seconds, secrets.token_hex(8))


def _make_mint(settings: Settings, get_key: Callable[[], Ed25519PrivateKey], clock: Clock) -> MintToken:
    def mint(subject: str, scopes: tuple[str, ...], ttl_seconds: int, token_id: str) -> tuple[str, str]:
        settings.require_authentication()
        now = clock.wall()
        token = jwt.mint(
            get_key(),
            issuer=settings.issuer,
            audience=settings.audience,
            subject=subject,
            scopes=scopes,
            ttl_seconds=ttl_seconds,
            now=now,
            token_id=token_id,
        )
        return token, to_rfc3339(int(now) + ttl_seconds)

    return mint


def _open_access_key(identity: Ed25519PrivateKey) -> Ed25519PrivateKey:
    """The token key of a service without authentication, which accepts no tokens: it only seals the forms of pages, so all
    processes need the same one. It is in no file, where `waypost token mint` would find it."""
    return Ed25519PrivateKey.from_private_bytes(
        hmac.digest(identity.private_bytes_raw(), b"waypost open access", "sha256")
    )


MODELS_FOLDER = "models"
_PUBLISH_CHECK_SECONDS = 60.0

# The imports inside the functions below take 100 ms (numpy, the index, the embedders). `waypost doctor` and `serve --help`
# import this module and need none of them.


class Models:
    """The embedders of the settings, chosen on first use. An explicit setting is loaded at once: it may be wrong."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if settings.embedder not in ("auto", "none"):
            self.choice.load()

    @cached_property
    def choice(self) -> EmbedderChoice:
        folder = self._settings.data / MODELS_FOLDER if self._settings.is_durable else None
        return choose_embedder(self._settings.embedder, folder)

    def load(self) -> None:
        if self._settings.embedder != "none":
            self.choice.load()

    def are_available(self) -> bool:
        return has_sentence_model(self._settings)


def has_sentence_model(settings: Settings) -> bool:
    """Whether a sentence model is configured. One ships with Waypost."""
    return settings.embedder != "none"


def index_folder(settings: Settings) -> Path:
    """The index of a replica is removed with it: it belongs to the same history."""
    return settings.data / (REPLICA_FOLDER if settings.is_cluster else "") / INDEX_FOLDER


def make_ranker(settings: Settings, models: Models) -> Ranker:
    folder = index_folder(settings) if settings.is_durable else None
    builder = SegmentProcess() if (os.cpu_count() or 1) > 1 else None
    if settings.embedder == "none":
        return HybridRanker(folder, builder=builder)
    return HybridRanker(folder, models.choice.spaces, warnings=models.choice.warnings, builder=builder)


class CursorKeyFile:
    """The cursor key of the data folder. Its first value is the one in the store, which earlier releases used."""

    def __init__(self, ring: KeyRing[bytes], clock: Clock) -> None:
        self._ring = ring
        self._clock = clock

    def adopt(self, key: bytes) -> None:
        self._ring.adopt(format_cursor_key(key))

    def accepted(self) -> Sequence[bytes]:
        return list(self._ring.accepted(self._clock.wall()))


class Core(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    registry: Registry
    key_value_store: KeyValueStore  # tasks, messages, swarms, invitations
    audit_trail: AuditTrail
    published_log: PublishedLog
    models: Models
    renderer: Renderer
    metrics: Metrics


def make_core(context: AppContext, client: OutboundClient, store: Store | None) -> Core:
    settings = context.settings
    backend, models = get_backend(settings.store, settings.cluster_key_file), Models(settings)
    store = store or _make_store(context, backend)
    metrics = Metrics(
        build={
            "version": __version__,
            "python": platform.python_version(),
            "store": settings.store_kind.removesuffix("://"),
        }
    )
    registry = _make_registry(context, store, models, client, metrics)
    metrics.add_gauge("write_queue", "Writes that are not durable yet.", lambda: registry.writes_waiting)
    if settings.is_cluster and context.writes:
        _add_cluster_gauges(context, metrics, cast(ClusterStore, store))
    key_value_store = backend.make_key_value_store(settings.data)
    audit_trail = _make_audit_trail(context, store)
    return Core(
        store=store,
        registry=registry,
        key_value_store=key_value_store,
        audit_trail=audit_trail,
        published_log=PublishedLog(audit_trail, key_value_store, context.clock),
        models=models,
        renderer=Renderer(context.base_url, context.host),
        metrics=metrics,
    )


def _make_store(context: AppContext, backend: StoreBackend) -> Store:
    clock, data = context.clock, context.settings.data
    if isinstance(clock, ClusterClock) and context.writes:
        on_nodes = context.slot.table.set_nodes if context.slot is not None else lambda count: None
        return cast(ClusterBackend, backend).make_store(
            data, name=context.node_url or platform.node(), on_time=clock.follow, on_nodes=on_nodes
        )
    return backend.make_store(data, read_only=not context.writes)


def _add_cluster_gauges(context: AppContext, metrics: Metrics, store: ClusterStore) -> None:
    metrics.add_gauge("cluster_nodes", "Nodes of the cluster that are alive.", context.count_nodes)
    metrics.add_gauge(
        "cluster_staleness_seconds", "Time since this node had everything of the cluster.", lambda: store.stale_seconds
    )
    stats = store.stats
    add = metrics.add_gauge
    add("cluster_database_away", "1 while this node cannot reach the database.", lambda: float(stats.is_away))
    add("cluster_groups", "Groups of writes that this node put into the log.", lambda: stats.groups)
    add("cluster_grouped_writes", "Writes in these groups.", lambda: stats.writes)
    add("cluster_lost_races", "Groups of writes that were decided again.", lambda: stats.lost_races)
    add("cluster_vectors_computed", "Agents whose vectors this node computed for all.", lambda: stats.vectors_computed)
    add("cluster_vectors_read", "Agents whose vectors this node read instead.", lambda: stats.vectors_read)
    add("cluster_log_rows", "Rows of the log that this node applied.", lambda: stats.rows)
    add(
        "cluster_feed_lag_seconds",
        "Time from the commit of the last row of the log to its arrival at this node.",
        lambda: stats.feed_lag_seconds,
    )


def make_node_list(context: AppContext, store: Store) -> NodeList | None:
    """Lists the nodes of the cluster; None without one, and in a worker process, which forwards the question."""
    if context.settings.is_cluster and context.writes:
        return lambda: cast(ClusterStore, store).nodes
    return None


def make_chore_check(context: AppContext, store: Store) -> ChoreCheck:
    """Whether this process may do a chore; in a cluster, one node does each."""
    if context.settings.is_cluster and context.writes:
        return cast(ClusterStore, store).may_do
    return do_all_chores


def _make_audit_trail(context: AppContext, store: Store) -> AuditTrail:
    def signers() -> list[NoteSigner]:
        keys = context.keys.identity.accepted(context.clock.wall())
        return [(key.public_key().public_bytes_raw(), partial(ed25519.sign, key)) for key in keys]

    return AuditTrail(store, signers)


class RotationRecorder:
    """Writes rotations that were made without the API to the audit trail. Runs in the leader only, so each has one entry."""

    def __init__(self, keys: ServiceKeys, registry: Registry) -> None:
        self._keys = keys
        self._registry = registry
        self._recorded: dict[str, str] = {}

    async def record(self) -> None:
        key_ids = self._keys.key_ids()
        if key_ids != self._recorded:
            await self._registry.execute(audit_service_keys(key_ids, now=self._registry.clock.now()))
            self._recorded = key_ids

    @property
    def job(self) -> Job:
        return Job("record rotations", limits.ROTATION_CHECK_SECONDS, self.record)


def make_publishing_job(core: Core) -> Job:
    return Job("publish the audit log", _PUBLISH_CHECK_SECONDS, core.published_log.publish_if_due)


def _make_registry(
    context: AppContext, store: Store, models: Models, client: OutboundClient, metrics: Metrics
) -> Registry:
    settings, clock, slot = context.settings, context.clock, context.slot

    def make_certificates(trust: RegistryTrustStore) -> AnnouncedCertificates:
        return AnnouncedCertificates(settings.client_ca, settings.crl, clock.wall, is_revoked=trust.is_revoked)

    make = partial(
        Registry,
        store,
        partial(make_ranker, settings, models),
        clock,
        _make_options(settings, relay_url=f"ws{context.base_url.removeprefix('http')}{CHAT_PATH}"),
        certificates=make_certificates,
        checks=(EndpointCheck(client),) if context.checks_health and settings.health_checks else (),
        timings=Timings(search=metrics.observe_search, commit=metrics.observe_commit),
        cursor_keys=CursorKeyFile(context.keys.cursor, clock) if settings.is_durable else None,
        may_do=make_chore_check(context, store),
        vectors=cast(ClusterStore, store).vectors if settings.is_cluster and context.writes else None,
    )
    if slot is None:
        return make()
    return make(
        announce=slot.set_revision,
        head=None if slot.writes else lambda: slot.table.head,
        credential_changes=SharedCounter(
            read=lambda: slot.table.credential_changes, increment=slot.table.count_credential_change
        ),
    )


def _make_options(settings: Settings, relay_url: str) -> RegistryOptions:
    return RegistryOptions(
        relay_url=relay_url,
        default_visibility=settings.default_visibility,
        watch_keep_seconds=settings.watch_keep_seconds,
        watch_keep_changes=settings.watch_keep_changes,
        watch_keep_bytes=settings.watch_keep_bytes,
        audit_keep=settings.audit_keep,
        confusable_names=settings.confusable_names,
        agents_per_owner=settings.agents_per_owner,
        stored_bytes_per_owner=settings.stored_bytes_per_owner,
        stored_bytes_per_peer=settings.stored_bytes_per_peer,
        hourly_bytes_per_owner=settings.hourly_bytes_per_owner,
        announcements=AnnouncementOptions(
            trust_mode=settings.trust_mode,
            unsigned=settings.unsigned_announcements,
            bind_subject=settings.bind_subject,
            legacy_canon=settings.legacy_signatures,
        ),
    )
