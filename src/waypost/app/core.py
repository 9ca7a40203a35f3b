"""The core of a service: store, registry, search models, renderer, metrics."""

from __future__ import annotations

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
from waypost.server.auth.certificates import AnnouncedCertificates
from waypost.server.http.metrics import Metrics
from waypost.server.renderer import Renderer
from waypost.settings import Settings
from waypost.stores import get_backend

if TYPE_CHECKING:
    from waypost.embedders.choice import EmbedderChoice

INDEX_FOLDER = "index"
_MODELS_FOLDER = "models"

# The imports inside the functions below take 100 ms (numpy, the index, the embedders). `waypost doctor` and `serve --help`
# import this module and need none of them.


class Models:
    """The embedders of the settings, imported on first use. An explicit setting is loaded at once: it may be wrong."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if settings.embedder not in ("auto", "none"):
            self.choice.load()

    @cached_property
    def choice(self) -> EmbedderChoice:
        from waypost.embedders.choice import choose_embedder

        folder = self._settings.data / _MODELS_FOLDER if self._settings.is_durable else None
        return choose_embedder(self._settings.embedder, folder)

    def load(self) -> None:
        if self._settings.embedder != "none":
            self.choice.load()

    def are_available(self) -> bool:
        return has_sentence_model(self._settings)


def has_sentence_model(settings: Settings) -> bool:
    """Whether a sentence model is configured, or installed where `auto` looks for one."""
    if settings.embedder == "auto":
        from waypost.embedders.use_model import find_package

        return find_package() is not None
    return settings.embedder != "none"


def make_ranker(settings: Settings, models: Models) -> Ranker:
    from waypost.search.ranker import HybridRanker

    folder = settings.data / INDEX_FOLDER if settings.is_durable else None
    if settings.embedder == "none":
        return HybridRanker(folder)
    return HybridRanker(folder, models.choice.spaces, warnings=models.choice.warnings)


class Core(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    registry: Registry
    key_value_store: KeyValueStore  # tasks, messages, swarms, invitations
    models: Models
    renderer: Renderer
    metrics: Metrics


def make_core(context: AppContext, client: OutboundClient, store: Store | None) -> Core:
    settings = context.settings
    backend, models = get_backend(settings.store), Models(settings)
    store = store or backend.make_store(settings.data, read_only=not context.writes)
    return Core(
        store=store,
        registry=_make_registry(context, store, models, client),
        key_value_store=backend.make_key_value_store(settings.data),
        models=models,
        renderer=Renderer(context.base_url, context.host),
        metrics=Metrics(),
    )


def _make_registry(context: AppContext, store: Store, models: Models, client: OutboundClient) -> Registry:
    settings, clock, slot = context.settings, context.clock, context.slot

    def make_certificates(trust: RegistryTrustStore) -> AnnouncedCertificates:
        return AnnouncedCertificates(settings.client_ca, settings.crl, clock.now, is_revoked=trust.is_revoked)

    make = partial(
        Registry,
        store,
        partial(make_ranker, settings, models),
        clock,
        _make_options(settings),
        certificates=make_certificates,
        checks=(EndpointCheck(client),) if context.checks_health else (),
    )
    if slot is None:
        return make()
    return make(announce=slot.set_revision, head=None if slot.writes else lambda: slot.table.head)


def _make_options(settings: Settings) -> RegistryOptions:
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
