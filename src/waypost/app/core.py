"""What searching needs: embedders and the index. Loaded when the first agents can be read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from waypost.app.context import AppContext
from waypost.net.outbound import OutboundClient
from waypost.registry.admission import AnnouncementOptions
from waypost.registry.jobs.health_checks import EndpointCheck
from waypost.registry.ports import KeyValueStore, Ranker, Store
from waypost.registry.registry import Registry, RegistryOptions
from waypost.registry.trust_store import RegistryTrustStore
from waypost.registry.writer import PublicationCheck
from waypost.server.auth.certificates import AnnouncedCertificates
from waypost.server.http.metrics import Metrics
from waypost.server.renderer import Renderer
from waypost.settings import Settings
from waypost.stores.memory import MemoryKeyValueStore, MemoryStore
from waypost.stores.sqlite.key_value import SqliteKeyValueStore
from waypost.stores.sqlite.store import SqliteFollowerStore, SqliteStore

if TYPE_CHECKING:
    from waypost.embedders.choice import EmbedderChoice


_MODELS = "models"

INDEX = "index"


class Models:
    """The embedders of the settings. What searching needs is a third of all that a start imports, so it is loaded when the
    first agents can be read; but for a setting that may be wrong, which is told at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if settings.embedder not in ("auto", "none"):
            self.choice.load()

    @cached_property
    def choice(self) -> EmbedderChoice:
        from waypost.embedders.choice import choose_embedder

        folder = None if self._settings.store == "memory" else self._settings.data / _MODELS
        return choose_embedder(self._settings.embedder, folder)

    def load(self) -> None:
        if self._settings.embedder != "none":
            self.choice.load()

    def are_there(self) -> bool:
        """Whether there is a sentence model: named, or found where `auto` looks for one."""
        return has_sentence_model(self._settings)


def has_sentence_model(settings: Settings) -> bool:
    if settings.embedder == "auto":
        from waypost.embedders.use_model import find_package

        return find_package() is not None
    return settings.embedder != "none"


def make_ranker(settings: Settings, models: Models) -> Ranker:
    """The index of this service. A follower reads what the writer saved: it follows the folder, and never saves."""
    from waypost.search.ranker import HybridRanker

    folder = None if settings.store == "memory" else settings.data / INDEX
    if settings.embedder == "none":
        return HybridRanker(folder)
    return HybridRanker(folder, models.choice.spaces, warnings=models.choice.warnings)


# ---- The core: the registry over its store and ranker, what is kept besides records, and how both are shown.


class Core(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    registry: Registry
    key_value_store: KeyValueStore  # of what is no record: tasks, messages, swarms, invitations
    models: Models
    renderer: Renderer
    metrics: Metrics


def make_core(ground: AppContext, outgoing: OutboundClient, store: Store | None) -> Core:
    models = Models(ground.settings)
    checks = (EndpointCheck(outgoing),) if ground.checks_health else ()
    store = store or _make_store(ground)
    return Core(
        store=store,
        registry=_make_registry(ground, store, models, checks),
        key_value_store=_make_keeper(ground.settings),
        models=models,
        renderer=Renderer(ground.base_url, ground.host),
        metrics=Metrics(),
    )


def _make_registry(ground: AppContext, store: Store, models: Models, checks: Sequence[PublicationCheck]) -> Registry:
    settings, clock, place = ground.settings, ground.clock, ground.place

    def make_certificates(trust: RegistryTrustStore) -> AnnouncedCertificates:
        return AnnouncedCertificates(settings.client_ca, settings.crl, clock.now, is_revoked=trust.is_revoked)

    make = partial(
        Registry,
        store,
        partial(make_ranker, settings, models),
        clock,
        _options(settings),
        certificates=make_certificates,
        checks=checks,
    )
    if place is None:
        return make()
    board = place.board
    return make(announce=place.note, head=None if place.writes else lambda: board.head)


def _options(settings: Settings) -> RegistryOptions:
    return RegistryOptions(
        default_visibility=settings.default_visibility,
        watch_keep_seconds=settings.watch_keep_seconds,
        watch_keep_changes=settings.watch_keep_changes,
        audit_keep=settings.audit_keep,
        confusable_names=settings.confusable_names,
        agents_per_owner=settings.agents_per_owner,
        announcements=AnnouncementOptions(
            trust_mode=settings.trust_mode,
            unsigned=settings.unsigned_announcements,
            bind_subject=settings.bind_subject,
            legacy_canon=settings.legacy_signatures,
        ),
    )


def _make_store(ground: AppContext) -> Store:
    if ground.settings.store == "memory":
        return MemoryStore()
    return SqliteStore(ground.settings.data) if ground.writes else SqliteFollowerStore(ground.settings.data)


def _make_keeper(settings: Settings) -> KeyValueStore:
    """Every process of a service has one, of the same file."""
    return MemoryKeyValueStore() if settings.store == "memory" else SqliteKeyValueStore(settings.data)
