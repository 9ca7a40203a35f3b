"""The composition root: settings in, a running service out. The only place where parts are put together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvicorn
import uvloop

from waypost import limits, samples
from waypost.errors import ConfigurationError, WaypostError
from waypost.model.principal import Principal
from waypost.model.times import to_rfc3339
from waypost.net.clock import SystemClock
from waypost.registry.engine import Options, Registry
from waypost.registry.ports import Clock, Store
from waypost.registry.publication import Publication
from waypost.search.ranker import LexicalRanker
from waypost.server.af import AfOptions, AfSurface
from waypost.server.af_face import AfFace
from waypost.server.af_registry import RegistryDirectory
from waypost.server.auth import ADMIN, Authenticator
from waypost.server.connection import GuardedProtocol
from waypost.server.described import FACE_ROUTES
from waypost.server.documents import DocumentFace
from waypost.server.home import HomeFace
from waypost.server.identity import service_record, service_registration
from waypost.server.metrics import Metrics
from waypost.server.operator import OperatorFace
from waypost.server.own import OwnFace
from waypost.server.profile import ProfileFace
from waypost.server.reference import ReferenceFace
from waypost.server.rendering import Renderer
from waypost.server.rtfs import RtfsFace
from waypost.server.service import Service
from waypost.server.watch import WatchFace
from waypost.settings import ADMIN_TOKEN_FILE, Settings
from waypost.stores.memory import MemoryStore
from waypost.stores.sqlite import SqliteStore
from waypost.trust import tokens

log = logging.getLogger("waypost")

_TOKEN_KEY = "keys/token.pem"
_IDENTITY_KEY = "keys/identity.pem"


class Application(msgspec.Struct, kw_only=True):
    """Everything that runs: the ASGI callable and what stands behind it."""

    settings: Settings
    registry: Registry
    service: Service
    operator: OperatorFace
    renderer: Renderer
    base_url: str

    async def start(self) -> None:
        await self.registry.start()
        if self.settings.samples:
            await load_samples(self.registry)

    async def stop(self) -> None:
        await self.registry.stop()


def build(
    settings: Settings, *, clock: Clock | None = None, port: int | None = None, store: Store | None = None
) -> Application:
    """The service of these settings. Nothing is opened before `start`."""
    clock = clock or SystemClock()
    base_url = settings.public_url(port)
    host = urlsplit(base_url).hostname or "localhost"
    data = settings.data
    identity = _key(data / _IDENTITY_KEY).public_key()
    token_key = _key(data / _TOKEN_KEY)
    registry = Registry(
        store or _store(settings),
        LexicalRanker(None if settings.store == "memory" else data / "index"),
        clock,
        Options(
            default_visibility=settings.default_visibility,
            watch_keep_seconds=settings.watch_keep_seconds,
            watch_keep_changes=settings.watch_keep_changes,
        ),
    )
    renderer, metrics = Renderer(base_url, host), Metrics()
    started_at = clock.now()
    self_record = service_registration(service_record(base_url, host, identity, started_at), started_at)
    documents = DocumentFace(registry, renderer, self_record)
    own = OwnFace(registry, renderer, _minter(settings, token_key, clock))
    watch = WatchFace(registry)
    operator = OperatorFace(registry, metrics, watch)
    reference = ReferenceFace(renderer)
    routes = [
        route
        for face in (
            HomeFace(registry, self_record, documents.hosted, open_access=settings.open),
            documents,
            ProfileFace(registry, own),
            own,
            watch,
            reference,
            operator,
        )
        for route in face.routes()
    ]
    reference.described = [*routes, *FACE_ROUTES]
    directory = RegistryDirectory(registry, renderer)
    surface = AfSurface(
        directory,
        AfOptions(
            base_url=base_url,
            legacy=True,
            choose_card=_card_chooser(directory, documents),
            whole_cards=True,
            a2a_card=lambda request, seen: "/.well-known/agent-card.json",
        ),
        now=clock.now,
    )
    verifier = tokens.Verifier(token_key.public_key(), issuer=settings.issuer, audience=settings.audience)
    authenticator = Authenticator(verifier, _admin_token(data), clock, open_access=settings.open)
    service = Service(
        routes,
        [AfFace(surface), RtfsFace(registry, anonymous_read=settings.anonymous_read)],
        authenticator,
        metrics,
        anonymous_read=settings.anonymous_read,
        open_access=settings.open,
    )
    return Application(
        settings=settings, registry=registry, service=service, operator=operator, renderer=renderer, base_url=base_url
    )


def _card_chooser(directory: RegistryDirectory, documents: DocumentFace) -> Any:
    async def choose(request: Any, principal: Principal) -> Any:
        """The card of an origin: the hosted agent's, else the service's own."""
        return directory.card(await documents.hosted(request) or documents.service)

    return choose


def _store(settings: Settings) -> Store:
    if settings.store == "memory":
        return MemoryStore()
    return SqliteStore(settings.data)


def _minter(settings: Settings, key: Any, clock: Clock) -> Callable[[str, tuple[str, ...], int], tuple[str, str]]:
    def mint(subject: str, scopes: tuple[str, ...], ttl_seconds: int) -> tuple[str, str]:
        token = tokens.mint(
            key,
            issuer=settings.issuer,
            audience=settings.audience,
            subject=subject,
            scopes=scopes,
            ttl_seconds=ttl_seconds,
            now=clock.now(),
            token_id=secrets.token_hex(8),
        )
        return token, to_rfc3339(int(clock.now()) + ttl_seconds)

    return mint


def mint_locally(
    settings: Settings, subject: str, scopes: tuple[str, ...], ttl_seconds: int, *, clock: Clock | None = None
) -> tuple[str, str]:
    """A token signed with the key in the data folder, without a running service."""
    return _minter(settings, _key(settings.data / _TOKEN_KEY), clock or SystemClock())(subject, scopes, ttl_seconds)


# --- What lies in the data folder -----------------------------------------------------------------


def _key(path: Path) -> Any:
    pem = _read_or_make(path, lambda: tokens.new_key_pem(secrets.token_bytes(32)))
    try:
        return tokens.load_key(pem)
    except ValueError:
        raise ConfigurationError(
            f"{path.name} in the data folder is not an Ed25519 key.", path="data", hint="Remove it; a new one is made."
        ) from None


def _admin_token(data: Path) -> str:
    made = _read_or_make(data / ADMIN_TOKEN_FILE, _new_admin_token)
    token = made.decode("ascii", "replace").strip()
    if len(token) < 32:
        raise ConfigurationError(
            f"{ADMIN_TOKEN_FILE} in the data folder is too short to be safe.",
            path="data",
            hint="Remove it; a new one is made.",
        )
    return token


def _new_admin_token() -> bytes:
    return f"wp_{secrets.token_urlsafe(32)}\n".encode()


def _read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """A secret file, mode 0600. Made whole or not at all, and never over one that another process made meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"The data folder {path.parent} cannot be used: {error.strerror}.",
        path="data",
        hint="Name a folder that you may write to with --data or WAYPOST_DATA.",
    )


async def load_samples(registry: Registry) -> int:
    """Register the sample agents; those that are there already stay as they are."""
    loaded = 0
    for sample in samples.load() if hasattr(samples, "load") else ():
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


# --- Running --------------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """Says when requests are answered, and when a signal asks it to stop, so that streams end and readiness turns."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None], on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._on_exit = on_exit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal is not raised again at the end: the store must be closed after the last answer."""
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


async def serve(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT. `ready` is told the base URL once requests are answered."""
    bound = _bind(settings.host, settings.port)
    port: int = bound.getsockname()[1]
    application = build(settings, port=port)
    if settings.open:
        log.warning("authentication is off: every program on this machine may read and write")
    await application.start()
    config = uvicorn.Config(
        application.service,
        http=GuardedProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here trusts a forwarded address
        timeout_keep_alive=limits.IDLE_SECONDS,
        timeout_graceful_shutdown=5,
        limit_concurrency=limits.CONNECTIONS,
        backlog=limits.BACKLOG,
        ws="none",
    )
    loop = asyncio.get_running_loop()

    def stopping() -> None:
        application.operator.stopping = True
        loop.call_soon_threadsafe(application.registry.changes.close)

    server = _Server(config, lambda: ready(application.base_url), stopping)
    try:
        await server.serve(sockets=[bound])
    finally:
        await application.stop()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            path="port",
            hint="Stop what uses it, or choose another --port (0 picks a free one).",
        ) from None
    bound.set_inheritable(True)
    return bound


def run(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """`serve` on the fastest loop there is here."""
    sys.setswitchinterval(limits.THREAD_SWITCH_SECONDS)
    gc.set_threshold(*limits.COLLECTOR_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, ready=ready))
    except WaypostError:
        raise
    except KeyboardInterrupt:
        return
