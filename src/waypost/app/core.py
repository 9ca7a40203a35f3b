"""The core: the registry over its store and ranker, what is kept besides records, and how both are shown."""

from __future__ import annotations

from functools import partial

import msgspec

from waypost.app.ground import Ground
from waypost.app.models import Models, make_ranker
from waypost.registry.engine import Options, Registry
from waypost.registry.following import FollowingRegistry
from waypost.registry.gate import GateOptions
from waypost.registry.keeping import Keeper
from waypost.registry.ports import Store
from waypost.server.announced_certificates import AnnouncedCertificates
from waypost.server.metrics import Metrics
from waypost.server.rendering import Renderer
from waypost.settings import Settings
from waypost.stores.keeper_memory import MemoryKeeper
from waypost.stores.keeper_sqlite import SqliteKeeper
from waypost.stores.memory import MemoryStore
from waypost.stores.sqlite import SqliteStore
from waypost.stores.sqlite_following import SqliteFollower


class Core(msgspec.Struct, frozen=True, kw_only=True):
    registry: Registry
    keeper: Keeper  # of what is no record: tasks, messages, swarms, invitations
    models: Models
    renderer: Renderer
    metrics: Metrics


def make_core(ground: Ground, store: Store | None) -> Core:
    models = Models(ground.settings)
    return Core(
        registry=_make_registry(ground, store, models),
        keeper=_make_keeper(ground.settings),
        models=models,
        renderer=Renderer(ground.base_url, ground.host),
        metrics=Metrics(),
    )


def _make_registry(ground: Ground, store: Store | None, models: Models) -> Registry:
    settings, clock, place = ground.settings, ground.clock, ground.place
    ranker, options = partial(make_ranker, settings, models), _options(settings)
    registry: Registry
    if place is None:
        registry = Registry(store or _make_store(settings), ranker, clock, options)
    elif place.writes:
        registry = Registry(store or _make_store(settings), ranker, clock, options, announce=place.note)
    else:
        follower = store or SqliteFollower(settings.data)
        board = place.board
        registry = FollowingRegistry(follower, ranker, clock, options, head=lambda: board.head, announce=place.note)
    registry.judge_certificates(
        AnnouncedCertificates(settings.client_ca, settings.crl, clock.now, is_revoked=registry.trust.is_revoked)
    )
    return registry


def _options(settings: Settings) -> Options:
    return Options(
        default_visibility=settings.default_visibility,
        watch_keep_seconds=settings.watch_keep_seconds,
        watch_keep_changes=settings.watch_keep_changes,
        audit_keep=settings.audit_keep,
        confusable_names=settings.confusable_names,
        agents_per_owner=settings.agents_per_owner,
        announcements=GateOptions(
            trust_mode=settings.trust_mode,
            unsigned=settings.unsigned,
            bind_subject=settings.bind_subject,
            legacy_canon=settings.legacy_canon,
        ),
    )


def _make_store(settings: Settings) -> Store:
    return MemoryStore() if settings.store == "memory" else SqliteStore(settings.data)


def _make_keeper(settings: Settings) -> Keeper:
    """Every process of a service has one, of the same file."""
    return MemoryKeeper() if settings.store == "memory" else SqliteKeeper(settings.data)
