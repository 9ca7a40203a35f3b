"""The composition root: settings in, a running service out. The only place where parts are put together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import uvloop

from waypost import limits, samples
from waypost.domains.organisation import OrganisationReader
from waypost.domains.rechecking import Rechecks
from waypost.domains.registering import DomainImporter, publications
from waypost.domains.resolving import DomainResolver, ResolveOptions
from waypost.errors import ConfigurationError, FetchFailed, WaypostError
from waypost.meeting.peers import PeerKeysInOrder, PinnedKeys, RegisteredKeys
from waypost.model.principal import SCOPE_ADMIN, Principal
from waypost.model.times import to_rfc3339
from waypost.net.clock import SystemClock
from waypost.net.outgoing import Outgoing, OutgoingOptions
from waypost.net.urls import origin_of
from waypost.registry.domains import DomainOptions, Domains
from waypost.registry.engine import Options, Registry
from waypost.registry.following import FollowingRegistry
from waypost.registry.gate import GateOptions
from waypost.registry.importing import Importer
from waypost.registry.keeping import Keeper
from waypost.registry.ports import Clock, Ranker, Store
from waypost.registry.publication import Publication
from waypost.registry.trail import AuditTrail
from waypost.server.af import AfOptions, AfSurface
from waypost.server.af_face import AfFace
from waypost.server.af_registry import RegistryDirectory
from waypost.server.agp_agents import OwnAgents
from waypost.server.agp_socket import PATH as CHAT_PATH
from waypost.server.agp_socket import Conversations, SocketPaths
from waypost.server.agp_tunnel import Tunnel
from waypost.server.announce import AnnounceFace
from waypost.server.announced_certificates import AnnouncedCertificates
from waypost.server.audit import AuditFace
from waypost.server.auth import ADMIN
from waypost.server.capability_versions import CapabilityVersions
from waypost.server.confirming import ConfirmingFace
from waypost.server.credentials import make_authenticator, make_issuers, make_rates, make_tls
from waypost.server.described import FACE_ROUTES
from waypost.server.doctor import DoctorFace
from waypost.server.documents import DocumentFace
from waypost.server.domain_keys import DomainKeys, HostedPeerKeys
from waypost.server.domain_tasks import DomainTasks
from waypost.server.domains import DomainFace
from waypost.server.forwarding import Follower, Forwarded, Reporter
from waypost.server.history import HistoryFace
from waypost.server.hosted_keys import HostedKeys
from waypost.server.hosting import Hosting
from waypost.server.hosts import Hosts
from waypost.server.identity import service_record, service_registration
from waypost.server.importing import ImportFace
from waypost.server.issuers import FetchKeys, Issuers
from waypost.server.lan import Lan
from waypost.server.listening import Server, bind, bind_inner, bind_shared, forget_inner, inner_path, reserve
from waypost.server.meeting import Meeting
from waypost.server.metrics import Metrics
from waypost.server.operator import OperatorFace
from waypost.server.origin import Origin
from waypost.server.own import OwnFace
from waypost.server.page.face import PageFace, PageParts
from waypost.server.page.sessions import SIGN_IN_PARAMETER, Sessions, make_code, page_seal
from waypost.server.profile import ProfileFace
from waypost.server.reference import ReferenceFace
from waypost.server.rendering import Renderer
from waypost.server.resolving import ResolvingFace
from waypost.server.rtfs import RtfsFace
from waypost.server.service import Service
from waypost.server.sharing import SharingFace
from waypost.server.tls import Tls
from waypost.server.trust_store import TrustStoreFace
from waypost.server.upstream import Upstream
from waypost.server.verifying import VerifyingFace
from waypost.server.watch import WatchFace
from waypost.server.websocket import Sockets
from waypost.server.zones import ZoneFace, certificate_in
from waypost.settings import ADMIN_TOKEN_FILE, Settings
from waypost.stores.keeper_memory import MemoryKeeper
from waypost.stores.keeper_sqlite import SqliteKeeper
from waypost.stores.memory import MemoryStore
from waypost.stores.sqlite import SqliteStore
from waypost.stores.sqlite_following import SqliteFollower
from waypost.transports.bus_login import login_of
from waypost.transports.lan import make_bus, make_mdns, make_udp
from waypost.transports.port import Transport
from waypost.trust import tokens
from waypost.trust.seal import Seal
from waypost.workers.board import Board, Place
from waypost.workers.supervisor import Supervisor

if TYPE_CHECKING:
    from waypost.embedders.choice import Choice

log = logging.getLogger("waypost")

_TOKEN_KEY = "keys/token.pem"
_IDENTITY_KEY = "keys/identity.pem"
_MODELS = "models"
_RECHECK_SECONDS = 60.0  # how often it is asked whether a proof of a domain is due


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
        """What can wait until requests are answered: models are loaded in the background."""
        threading.Thread(target=self.models.load, name="waypost-models", daemon=True).start()

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
        await self.keeper.close()
        await self.registry.stop()


def build(
    settings: Settings,
    *,
    clock: Clock | None = None,
    port: int | None = None,
    store: Store | None = None,
    place: Place | None = None,
    started_at: float | None = None,
) -> Application:
    """The service of these settings; `place` says which of its processes this is. Nothing is opened before `start`."""
    clock = clock or SystemClock()
    base_url = settings.public_url(port)
    host = urlsplit(base_url).hostname or "localhost"
    data = settings.data
    identity_key = _key(data / _IDENTITY_KEY)
    identity = identity_key.public_key()
    token_key = _key(data / _TOKEN_KEY)
    models = Models(settings)
    registry = _registry(settings, clock, store, place, models)
    keeper = _keeper(settings)
    registry.judge_certificates(
        AnnouncedCertificates(settings.client_ca, settings.crl, clock.now, is_revoked=registry.trust.is_revoked)
    )
    renderer, metrics = Renderer(base_url, host), Metrics()
    started_at = clock.now() if started_at is None else started_at
    self_record = service_registration(service_record(base_url, host, identity, started_at), started_at)
    keys = HostedKeys(data, identity_key, host)
    hosting = Hosting(renderer, keys, self_record, CapabilityVersions(data))
    documents = DocumentFace(registry, renderer, self_record, hosting)
    own = OwnFace(registry, renderer, _minter(settings, token_key, clock))
    own.keys = keys
    trail = AuditTrail(registry.store, identity.public_bytes_raw(), identity_key.sign)
    own.workers = place.board.told if place is not None else None
    watch = WatchFace(registry)
    operator = OperatorFace(registry, metrics, watch, keeper)
    reference = ReferenceFace(renderer, started_at)
    outgoing = _outgoing(settings, port)
    profile = ProfileFace(registry, own)
    resolver = _resolver(settings, outgoing, clock)
    own_dns = settings.resolver != "system"
    peers = PeerKeysInOrder(
        (DomainKeys(resolver, everywhere=own_dns), PinnedKeys(registry), RegisteredKeys(registry, ADMIN))
    )
    conversations = Conversations(
        OwnAgents(registry, keeper, keys, peers, self_record.record.id, profile.found), metrics, registry.clock.now
    )
    meeting = Meeting(
        registry, keeper, outgoing, keys, renderer, self_record, peers, profile, hosting, DomainTasks(resolver)
    )
    peers.add(HostedPeerKeys(registry, keys))
    peers.add(meeting.invitations)
    meeting.speak_through(conversations)
    operator.meeting = meeting.figures
    importer = _importer(settings, registry, outgoing, resolver)
    page = _page(settings, registry, documents, hosting, importer, watch, reference, renderer)
    organisations = OrganisationReader(outgoing, outgoing, clock, follow_signed=settings.foreign_index)
    resolving = ResolvingFace(resolver, organisations)
    routes = [
        route
        for face in (
            page,
            documents,
            profile,
            meeting,
            conversations,
            own,
            ConfirmingFace(registry),
            VerifyingFace(registry),
            SharingFace(registry),
            ImportFace(importer),
            DomainFace(_domains(settings, registry, outgoing, host)),
            resolving,
            AuditFace(trail),
            HistoryFace(registry),
            ZoneFace(registry, hosting, self_record, certificate_in(settings.tls_cert)),
            TrustStoreFace(registry),
            DoctorFace(registry, settings, lambda: issuers.silent() if issuers else (), models.are_there),
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
    issuers = make_issuers(settings, _key_fetcher(outgoing), clock)
    own.rates = resolving.rates = rates = make_rates(settings, clock)
    authenticator = make_authenticator(
        settings,
        tokens.Verifier(token_key.public_key(), issuer=settings.issuer, audience=settings.audience),
        _admin_token(data),
        clock,
        issuers=issuers,
        is_revoked=registry.trust.is_revoked,
    )
    meeting.guard(authenticator, documents)
    origin = Origin(settings.trusted_proxies)
    page.guard(authenticator, rates, origin)
    rtfs = RtfsFace(registry, anonymous_read=settings.anonymous_read, rates=rates)
    service = Service(
        routes,
        [
            AfFace(surface),
            rtfs,
            AnnounceFace(registry, renderer, anonymous_read=settings.anonymous_read, rates=rates, rtfs=rtfs),
        ],
        authenticator,
        metrics,
        anonymous_read=settings.anonymous_read,
        open_access=settings.open,
        rates=rates,
        origin=origin,
    )
    hosts = Hosts(base_url, settings.host, settings.allowed_hosts, settings.allowed_origins)
    conversations.guard(authenticator, hosts, origin, service.refuse)
    sockets = Sockets(
        registry,
        renderer,
        authenticator,
        hosts,
        metrics,
        anonymous_read=settings.anonymous_read,
        rates=rates,
        origin=origin,
    )
    follows = place is not None and not place.writes
    chats = Tunnel(inner_path(data)) if follows else conversations  # one process holds all conversations
    service.sockets, sockets.refuse = SocketPaths({"/ws": sockets, CHAT_PATH: chats}), service.refuse
    application = Application(
        settings=settings,
        registry=registry,
        service=service,
        operator=operator,
        renderer=renderer,
        metrics=metrics,
        base_url=base_url,
        models=models,
        app=service,
        tls=make_tls(settings),
        issuers=issuers,
        keeper=keeper,
        meeting=meeting,
        conversations=conversations,
        lan=_lan(settings, registry, renderer, outgoing) if place is None or place.writes else None,
    )
    if application.lan is not None:
        application.lan.show(metrics)
    if isinstance(registry, FollowingRegistry) and place is not None:
        upstream = Upstream(inner_path(data))
        application.upstream, application.app = upstream, Follower(service, registry, upstream)
        application.reporter = Reporter(metrics, upstream, lambda: watch.watchers, place.number)
        sockets.catch_up = registry.catch_up
    sockets.app = application.app
    return application


def _registry(settings: Settings, clock: Clock, store: Store | None, place: Place | None, models: Models) -> Registry:
    options = Options(
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
    if place is None:
        return Registry(store or _store(settings), partial(make_ranker, settings, models), clock, options)
    if place.writes:
        return Registry(
            store or _store(settings), partial(make_ranker, settings, models), clock, options, announce=place.note
        )
    return FollowingRegistry(
        store or SqliteFollower(settings.data),
        partial(make_ranker, settings, models),
        clock,
        options,
        head=lambda: place.board.head,
        announce=place.note,
    )


class Models:
    """The embedders of the settings. What searching needs is a third of all that a start imports, so it is loaded when the
    first agents can be read; but for a setting that may be wrong, which is told at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        if settings.embedder not in ("auto", "none"):
            self.choice.load()

    @cached_property
    def choice(self) -> Choice:
        from waypost.embedders.choice import choose

        folder = None if self._settings.store == "memory" else self._settings.data / _MODELS
        return choose(self._settings.embedder, folder)

    def load(self) -> None:
        if self._settings.embedder != "none":
            self.choice.load()

    def are_there(self) -> bool:
        """Whether there is a sentence model: named, or found where `auto` looks for one."""
        return are_there(self._settings)


def are_there(settings: Settings) -> bool:
    if settings.embedder == "auto":
        from waypost.embedders.package import find_package

        return find_package() is not None
    return settings.embedder != "none"


def make_ranker(settings: Settings, models: Models) -> Ranker:
    """The index of this service. A follower reads what the writer saved: it follows the folder, and never saves."""
    from waypost.search.ranker import HybridRanker

    folder = None if settings.store == "memory" else settings.data / "index"
    if settings.embedder == "none":
        return HybridRanker(folder)
    return HybridRanker(folder, models.choice.spaces, warnings=models.choice.warnings)


def _page(
    settings: Settings,
    registry: Registry,
    documents: DocumentFace,
    hosting: Hosting,
    importer: Importer,
    watch: WatchFace,
    reference: ReferenceFace,
    renderer: Renderer,
) -> PageFace:
    """The pages for people."""
    mint = _minter(settings, _key(settings.data / _TOKEN_KEY), registry.clock)
    sessions = Sessions(
        _page_seal(settings),
        lambda: mint(ADMIN.subject or "", (SCOPE_ADMIN,), limits.PAGE_SESSION_SECONDS, secrets.token_hex(8))[0],
        registry.clock.now,
        base_url=renderer.base_url,
        open_access=settings.open,
        anonymous_read=settings.anonymous_read,
    )
    return PageFace(
        PageParts(
            registry=registry,
            renderer=renderer,
            service=documents.service,
            hosting=hosting,
            hosted=documents.hosted,
            sessions=sessions,
            importer=importer,
            watch=watch,
            reference=reference.rows,
            open_access=settings.open,
        )
    )


def _page_seal(settings: Settings) -> Seal:
    key = _key(settings.data / _TOKEN_KEY)
    return page_seal(key.private_bytes_raw(), _admin_token(settings.data))


def sign_in_link(settings: Settings, base_url: str, *, clock: Clock | None = None) -> str | None:
    """An address that signs its first visitor in as admin; None where everybody may do everything."""
    if settings.open:
        return None
    code = make_code(_page_seal(settings), (clock or SystemClock()).now(), secrets.token_bytes(16))
    return f"{base_url}/?{SIGN_IN_PARAMETER}={code}"


def _card_chooser(directory: RegistryDirectory, documents: DocumentFace) -> Any:
    async def choose(request: Any, principal: Principal) -> Any:
        """The card of an origin: the hosted agent's, else the service's own."""
        return directory.card(await documents.hosted(request) or documents.service)

    return choose


def _outgoing(settings: Settings, port: int | None) -> Outgoing:
    """The one way out of this process."""
    return Outgoing(
        OutgoingOptions(
            allow_cidrs=settings.allow_cidrs,
            resolver=settings.resolver,
            ca_file=settings.fetch_ca,
            trust_anchors=settings.trust_anchors,
            trust_ad=settings.trust_ad,
            insecure_domains=settings.insecure_domains,
            own=((settings.host, settings.port if port is None else port),),
            own_origin=origin_of(settings.public_url(port)),
        )
    )


def _resolver(settings: Settings, outgoing: Outgoing, clock: Clock) -> DomainResolver:
    """From domains to agents, by the one way out."""
    return DomainResolver(outgoing, outgoing, clock, ResolveOptions(legacy_names=settings.legacy_names))


def _importer(settings: Settings, registry: Registry, outgoing: Outgoing, resolver: DomainResolver) -> Importer:
    """Documents at addresses, and agents of domains, which the process that writes looks up again from time to time."""
    rechecks = Rechecks(registry, resolver, publications, seconds=settings.agent_recheck_seconds)
    registry.chore(min(_RECHECK_SECONDS, settings.agent_recheck_seconds / 8), rechecks.recheck)
    return DomainImporter(registry, outgoing, resolver, rechecks, foreign_index=settings.foreign_index)


def _domains(settings: Settings, registry: Registry, outgoing: Outgoing, host: str) -> Domains:
    """Proofs of domains, which the process that writes looks at again from time to time."""
    options = DomainOptions(service=host, recheck_seconds=settings.domain_recheck_seconds)
    domains = Domains(registry, outgoing, options)
    registry.chore(min(_RECHECK_SECONDS, settings.domain_recheck_seconds / 8), domains.recheck)
    return domains


def _lan(settings: Settings, registry: Registry, renderer: Renderer, outgoing: Outgoing) -> Lan | None:
    """What listens on the LAN and on the bus, in the process that writes."""
    transports: list[Transport] = []
    if settings.mdns:
        transports.append(
            make_mdns(
                settings.mdns_interfaces,
                registry.clock,
                pointer=lambda agent_id: f"{renderer.base_url}/agents/{agent_id}",
                fetch=_pointer_fetcher(outgoing),
            )
        )
    if settings.udp:
        transports.append(make_udp(settings.udp_interface, registry.clock, settings.udp_port, ipv6=settings.udp_ipv6))
    if settings.bus is not None:
        group, login = settings.bus_group, login_of(settings)
        transports.append(make_bus(settings.bus, registry.clock, topic=settings.bus_topic, group=group, login=login))
    if not transports:
        return None
    lan = Lan(
        registry,
        renderer,
        transports,
        anonymous_read=settings.anonymous_read or settings.open,
        publish=settings.mdns_publish,
    )
    registry.chore(limits.MDNS_TTL_SECONDS / 2, lan.publish)
    return lan


def _pointer_fetcher(outgoing: Outgoing) -> Callable[[str], Coroutine[Any, Any, bytes]]:
    """How an announcement is fetched that a record of mDNS only points at: as everything else is."""

    async def fetch(url: str) -> bytes:
        found = await outgoing.fetch(url, "card")
        if not found.is_success:
            raise FetchFailed(f"The pointer leads to status {found.status}.", path="mdns", hint="Ask the agent itself.")
        return found.body

    return fetch


def _key_fetcher(outgoing: Outgoing) -> FetchKeys:
    """How the keys of an outside issuer are fetched: as everything else is."""

    async def fetch(url: str) -> bytes:
        found = await outgoing.fetch(url, "jwks")
        if not found.is_success:
            raise FetchFailed(f"The issuer answered {found.status}.", path="jwks", hint="See the log of the issuer.")
        return found.body

    return fetch


def _store(settings: Settings) -> Store:
    if settings.store == "memory":
        return MemoryStore()
    return SqliteStore(settings.data)


def _keeper(settings: Settings) -> Keeper:
    """Every process of a service has one, of the same file."""
    if settings.store == "memory":
        return MemoryKeeper()
    return SqliteKeeper(settings.data)


def _minter(settings: Settings, key: Any, clock: Clock) -> Callable[[str, tuple[str, ...], int, str], tuple[str, str]]:
    def mint(subject: str, scopes: tuple[str, ...], ttl_seconds: int, token_id: str) -> tuple[str, str]:
        token = tokens.mint(
            key,
            issuer=settings.issuer,
            audience=settings.audience,
            subject=subject,
            scopes=scopes,
            ttl_seconds=ttl_seconds,
            now=clock.now(),
            token_id=token_id,
        )
        return token, to_rfc3339(int(clock.now()) + ttl_seconds)

    return mint


def mint_locally(
    settings: Settings, subject: str, scopes: tuple[str, ...], ttl_seconds: int, *, clock: Clock | None = None
) -> tuple[str, str]:
    """A token signed with the key in the data folder, without a running service."""
    mint = _minter(settings, _key(settings.data / _TOKEN_KEY), clock or SystemClock())
    return mint(subject, scopes, ttl_seconds, secrets.token_hex(8))


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
        _make_folder(path.parent)
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


def _make_folder(folder: Path) -> None:
    """For its owner alone, and so are the folders above it that are not there yet."""
    for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


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


async def serve(settings: Settings, *, ready: Callable[[str], None]) -> None:
    """One process that does all. Run until SIGTERM or SIGINT; `ready` is told the base URL once requests are answered."""
    bound = bind(settings.host, settings.port)
    place = Board().place(0)
    place.take(os.getpid())
    application = build(settings, port=bound.getsockname()[1], place=place)
    _warn(settings)
    await application.start()

    def on_start() -> None:
        place.note_ready()
        ready(application.base_url)
        application.answering()

    try:
        server = Server(application.app, on_start=on_start, on_exit=application.ending(), tls=application.tls)
        await server.serve(sockets=[bound])
    finally:
        await application.stop()


async def work(settings: Settings, place: Place, port: int, clock: Clock, started_at: float) -> None:
    """One of several processes, at its place: the first one writes, the others follow it. They have one clock."""
    application = build(settings, clock=clock, port=port, place=place, started_at=started_at)
    if place.writes:
        _warn(settings)
    await application.start()
    inner = None
    if place.writes:
        path = inner_path(settings.data)
        inner = (Forwarded(application.service, application.metrics), bind_inner(path))
    bound = bind_shared(settings.host, port)

    def on_start() -> None:
        place.note_ready()
        application.answering()

    server = Server(
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
            forget_inner(path)
        await application.stop()


def _warn(settings: Settings) -> None:
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
    reserved = reserve(settings.host, settings.port)
    port: int = reserved.getsockname()[1]
    clock = SystemClock()
    started_at = clock.now()
    supervisor = Supervisor(Board(settings.workers), lambda: ready(settings.public_url(port)))
    place = supervisor.run()
    if place is not None:
        _run(work(settings, place, port, clock, started_at))
    elif supervisor.exit_code:
        sys.exit(supervisor.exit_code)


def _run(serving: Coroutine[Any, Any, None]) -> None:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serving)
    except KeyboardInterrupt:
        return
