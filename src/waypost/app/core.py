"""What all parts of a service share: settings, clock, keys and token of the data folder, store, registry, search models,
renderer, metrics.
"""

from __future__ import annotations

import hmac
import platform
import secrets
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from waypost import __version__
from waypost.app.workers import WorkerSlot
from waypost.errors import ConfigurationError
from waypost.files import create_atomic
from waypost.model.times import to_rfc3339
from waypost.net.clock import SystemClock
from waypost.net.outbound import OutboundClient
from waypost.registry.admission import AnnouncementOptions
from waypost.registry.credentials.credentials import SharedCounter
from waypost.registry.jobs.health_checks import EndpointCheck
from waypost.registry.ports import Clock, KeyValueStore, Ranker, Store, Timings
from waypost.registry.registry import Registry, RegistryOptions
from waypost.registry.trust_store import RegistryTrustStore
from waypost.server.auth.certificates import AnnouncedCertificates
from waypost.server.http.metrics import Metrics
from waypost.server.renderer import Renderer
from waypost.settings import ADMIN_TOKEN_FILE, TOKEN_KEY_FILE, Settings
from waypost.stores import get_backend
from waypost.trust import jwt

if TYPE_CHECKING:
    from waypost.embedders.choice import EmbedderChoice


_IDENTITY_KEY = "keys/identity.pem"

_MIN_TOKEN_CHARS = 32  # a shorter one could be guessed

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
    identity_key: Ed25519PrivateKey
    token_key: Ed25519PrivateKey
    admin_token: str

    @property
    def writes(self) -> bool:
        """One process of a service writes; the others follow it."""
        return self.slot is None or self.slot.writes

    @property
    def checks_health(self) -> bool:
        return self.settings.health_checks is not False and self.writes

    @property
    def mint(self) -> MintToken:
        return _make_mint(self.settings, self.token_key, self.clock)


def make_context(
    settings: Settings, clock: Clock | None, port: int | None, slot: WorkerSlot | None, started_at: float | None
) -> AppContext:
    clock = clock or SystemClock()
    base_url = settings.public_url(port)
    identity_key = read_key(settings.data / _IDENTITY_KEY)
    return AppContext(
        settings=settings,
        clock=clock,
        port=port,
        slot=slot,
        started_at=clock.now() if started_at is None else started_at,
        base_url=base_url,
        host=urlsplit(base_url).hostname or "localhost",
        identity_key=identity_key,
        token_key=_open_access_key(identity_key) if settings.open else read_key(settings.data / TOKEN_KEY_FILE),
        admin_token=read_admin_token(settings.data),
    )


def mint_locally(
    settings: Settings, subject: str, scopes: tuple[str, ...], ttl_seconds: int, *, clock: Clock | None = None
) -> tuple[str, str]:
    """A token signed with the key in the data folder, without a running service."""
    mint = _make_mint(settings, read_key(settings.data / TOKEN_KEY_FILE), clock or SystemClock())
    return mint(subject, scopes, ttl_seconds, secrets.token_hex(8))


def _make_mint(settings: Settings, key: Ed25519PrivateKey, clock: Clock) -> MintToken:
    def mint(subject: str, scopes: tuple[str, ...], ttl_seconds: int, token_id: str) -> tuple[str, str]:
        settings.require_authentication()
        now = clock.wall()
        token = jwt.mint(
            key,
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


# --- Secrets in the data folder -------------------------------------------------------------------


def read_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file, made if the file is missing."""
    pem = _read_or_make(path, lambda: jwt.new_token_key_pem(secrets.token_bytes(32)))
    try:
        return jwt.load_token_key(pem)
    except ValueError:
        raise ConfigurationError(
            f"{path.name} in the data folder is not an Ed25519 key.",
            path="data",
            hint="Remove the file; the next start makes a new key.",
        ) from None


def read_admin_token(data: Path) -> str:
    content = _read_or_make(data / ADMIN_TOKEN_FILE, _new_admin_token)
    token = content.decode("ascii", "replace").strip()
    if len(token) < _MIN_TOKEN_CHARS:
        raise ConfigurationError(
            f"{ADMIN_TOKEN_FILE} in the data folder is too short to be safe.",
            path="data",
            hint="Remove the file; the next start makes a new token.",
        )
    return token


def _new_admin_token() -> bytes:
    return f"wp_{secrets.token_urlsafe(32)}\n".encode()


def _read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """A secret file with mode 0600. It is created atomically and never replaces one that another process made meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable_folder(path, error) from None
    try:
        create_atomic(path, make())
        return path.read_bytes()
    except OSError as error:
        raise _unusable_folder(path, error) from None


def _unusable_folder(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The data folder {path.parent} cannot be used: {error.strerror}.",
        path="data",
        hint="Name a folder that you may write to with --data or WAYPOST_DATA.",
    )


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
    metrics = Metrics(build={"version": __version__, "python": platform.python_version(), "store": settings.store})
    registry = _make_registry(context, store, models, client, metrics)
    metrics.add_gauge("write_queue", "Writes that are not durable yet.", lambda: registry.writes_waiting)
    return Core(
        store=store,
        registry=registry,
        key_value_store=backend.make_key_value_store(settings.data),
        models=models,
        renderer=Renderer(context.base_url, context.host),
        metrics=metrics,
    )


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
        _make_options(settings),
        certificates=make_certificates,
        checks=(EndpointCheck(client),) if context.checks_health and settings.health_checks else (),
        timings=Timings(search=metrics.observe_search, commit=metrics.observe_commit),
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
