"""The service itself, for operators: liveness, readiness, metrics, statistics, tokens and the doctor."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from cryptography import x509

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, Unavailable, WaypostError
from waypost.files import find_exposed
from waypost.model.credentials import RESERVED_SUBJECTS
from waypost.model.federation import peer_of
from waypost.model.names import domain_of
from waypost.model.principal import SCOPES, audience
from waypost.model.registration import parse_ttl
from waypost.registry.audit_trail import audit_entry_by, audit_service_keys
from waypost.registry.doctor import DatabaseFacts, Deployment, HostFacts, PeerFacts, RuntimeFacts, diagnose
from waypost.registry.ports import KeyValueStore
from waypost.registry.registry import Registry
from waypost.responses.service import (
    Diagnosis,
    MintedToken,
    NodeList,
    ServiceKey,
    ServiceKeyList,
    ServiceState,
    Stats,
    WorkerStats,
)
from waypost.search.kernels import find_missing_kernels
from waypost.server.api.rest.changes import WatchApi
from waypost.server.http.asgi import NO_STORE, AnyResponse, Response, json_response
from waypost.server.http.metrics import CONTENT_TYPE, Metrics
from waypost.server.http.request_params import read_integer, read_object
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.settings import ADMIN_TOKEN_FILE, DATA_ENTRIES, Settings

Gauges: TypeAlias = dict[str, tuple[str, float]]  # name → description, value
MintToken: TypeAlias = Callable[[str, tuple[str, ...], int, str], tuple[str, str]]
_KEYS_FOLDER = "keys"
_SERVICE_KEYS = ("token", "identity", "cursor")
_DATA_FILES = frozenset(DATA_ENTRIES) - {ADMIN_TOKEN_FILE}
_DEFAULT_TTL_SECONDS = 3600


class MonitoringApi:
    """`/healthz`, `/readyz` and `/metrics`."""

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        watch: WatchApi,
        store: KeyValueStore,
        read_messaging_gauges: Callable[[], Awaitable[Gauges]],
        is_service_stopping: Callable[[], bool],
    ) -> None:
        """`is_service_stopping` tells of the other processes of the service."""
        self._registry = registry
        self._metrics = metrics
        self._store = store
        self._is_service_stopping = is_service_stopping
        self._read_messaging_gauges = read_messaging_gauges
        self._is_stopping = False
        metrics.add_gauge("watchers", "Open watch streams.", lambda: watch.watchers, is_summed=True)

    def begin_shutdown(self) -> None:
        """Report the service as not ready from now on, so that load balancers stop sending requests."""
        self._is_stopping = True

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/healthz",
                operation="health",
                handler=self.health,
                summary="Liveness",
                answers={200: ServiceState},
                open=True,
            ),
            Route(
                method="GET",
                path="/readyz",
                operation="health",
                handler=self.ready,
                summary="Readiness",
                answers={200: ServiceState},
                open=True,
            ),
            Route(
                method="GET",
                path="/metrics",
                operation="metrics",
                handler=self.metrics,
                summary="Metrics for Prometheus",
                answers={200: BodySpec(schema={"type": "string"}, content_type="text/plain")},
            ),
        ]

    async def health(self, call: RequestContext) -> AnyResponse:
        return json_response(ServiceState(status="ok"), headers=[NO_STORE])

    async def ready(self, call: RequestContext) -> AnyResponse:
        if self._is_stopping or self._is_service_stopping():
            raise Unavailable("The service is stopping.", retry_after=5)
        await self._registry.check_ready()
        if not await self._store.healthy():
            raise Unavailable(
                "The store of tasks, messages and invitations accepts no writes.",
                path="meeting.db",
                hint="See the log of the service; restart it after a disk error.",
                retry_after=5,
            )
        return json_response(ServiceState(status="ready"), headers=[NO_STORE])

    async def metrics(self, call: RequestContext) -> AnyResponse:
        gauges: Gauges = {
            "agents": ("Agents that the caller may see.", self._registry.entries.count(audience(call.principal))),
        }
        if call.principal.is_admin:
            gauges["indexing_pending"] = (
                "Changes that the search index does not contain yet.",
                self._registry.indexing_pending,
            )
            gauges["revision"] = ("The last revision.", self._registry.changes.revision)
            with suppress(WaypostError):  # the database of a cluster is away: its own metrics say so
                gauges |= await self._read_messaging_gauges()
        # The number of requests would reveal agents that the caller may not see.
        body = self._metrics.render_all(gauges) if call.principal.is_admin else self._metrics.render(gauges)
        return Response(200, body, content_type=CONTENT_TYPE)


class ServiceApi:
    """`/api/v1/stats` and `/api/v1/tokens`."""

    def __init__(
        self,
        registry: Registry,
        mint: MintToken,
        *,
        workers: Callable[[], tuple[WorkerStats, ...]] | None,
        nodes: NodeList | None,
    ) -> None:
        """`workers` reads the state of each process of the service, if a supervisor started them; `nodes` that of each node,
        if there is a cluster."""
        self._registry = registry
        self._mint = mint
        self._workers = workers
        self._nodes = nodes

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/stats",
                operation="stats",
                handler=self.stats,
                summary="Statistics",
                answers={200: Stats},
            ),
            Route(
                method="POST",
                path="/api/v1/tokens",
                operation="mint_token",
                handler=self.mint_token,
                summary="Mint a token",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["sub", "scopes"],
                        "properties": {
                            "sub": {"type": "string", "minLength": 1, "maxLength": 256},
                            "scopes": {"type": "array", "items": {"enum": list(SCOPES)}, "minItems": 1},
                            "ttl_seconds": {"type": "integer", "minimum": 1, "maximum": limits.TOKEN_TTL_MAX_SECONDS},
                        },
                    }
                ),
                answers={201: MintedToken},
            ),
        ]

    async def stats(self, call: RequestContext) -> AnyResponse:
        stats = self._registry.stats(call.principal)
        if self._workers is not None and call.principal.is_admin:
            stats = msgspec.structs.replace(stats, workers=self._workers())
        if self._nodes is not None and call.principal.is_admin:
            stats = msgspec.structs.replace(stats, nodes=self._nodes())
        return json_response(stats, headers=[NO_STORE])

    async def mint_token(self, call: RequestContext) -> AnyResponse:
        request = await read_object(call.request)
        subject, scopes = request.get("sub"), request.get("scopes")
        if not isinstance(subject, str):
            raise InvalidParameter("sub must be a string.", path="$.sub", hint="Name the subject of the token.")
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
            raise InvalidParameter("scopes must be an array of strings.", path="$.scopes")
        ttl_seconds = parse_ttl(request.get("ttl_seconds", _DEFAULT_TTL_SECONDS), "$.ttl_seconds")
        token_id = secrets.token_hex(8)
        token, expires_at = self._mint(subject, tuple(scopes), ttl_seconds, token_id)
        await self._registry.record(
            audit_entry_by(
                call.principal,
                "mint",
                now=self._registry.clock.now(),
                object=subject,
                outcome="minted",
                detail=f"jwt:{token_id} {' '.join(scopes)} {ttl_seconds}s",
            )
        )
        return json_response(MintedToken(token=token, expires_at=expires_at), 201, headers=[NO_STORE])


class RotatableKeys(Protocol):
    def describe(self, now: float) -> tuple[ServiceKey, ...]: ...

    def rotate(self, name: str, now: float, overlap_seconds: int | None = None) -> ServiceKey: ...

    def key_ids(self) -> dict[str, str]: ...


class ServiceKeysApi:
    """`/api/v1/service-keys`: the keys of the service itself. Every process uses a new key from its next request on."""

    def __init__(self, registry: Registry, keys: RotatableKeys, require_authentication: Callable[[], None]) -> None:
        """Without authentication any program of the machine could replace the keys."""
        self._registry = registry
        self._keys = keys
        self._require_authentication = require_authentication

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/service-keys",
                operation="service_keys",
                handler=self.list_keys,
                summary="List the keys of the service itself",
                answers={200: ServiceKeyList},
            ),
            Route(
                method="POST",
                path="/api/v1/service-keys/{id}:rotate",
                operation="rotate_service_key",
                handler=self.rotate,
                summary="Replace a key of the service; the old one is accepted for a while",
                parameters=(
                    ParameterSpec(
                        name="overlap_seconds",
                        schema={"type": "integer", "minimum": 0, "maximum": limits.KEY_OVERLAP_MAX_SECONDS},
                        description="how long the old key is accepted; default: as long as anything made with it is valid",
                    ),
                ),
                answers={200: ServiceKey},
            ),
        ]

    async def list_keys(self, call: RequestContext) -> AnyResponse:
        self._require_authentication()
        keys = self._keys.describe(self._registry.clock.wall())
        return json_response(ServiceKeyList(keys=keys), headers=[NO_STORE])

    async def rotate(self, call: RequestContext) -> AnyResponse:
        self._require_authentication()
        name = call.id
        if name not in _SERVICE_KEYS:
            raise NotFound(f"The service has no key {name[:40]!r}.", path="id", hint=f"Use {', '.join(_SERVICE_KEYS)}.")
        if await call.request.body():  # an overlap of 0 there would be ignored, and a stolen key stay valid for days
            raise InvalidParameter("A rotation has no body.", path="$", hint="Send overlap_seconds in the query.")
        overlap = read_integer(call.request, "overlap_seconds", 0, limits.KEY_OVERLAP_MAX_SECONDS)
        earlier = audit_service_keys(self._keys.key_ids(), now=self._registry.clock.now())
        await self._registry.execute(earlier)  # rotations without the API, before this one hides them
        key = self._keys.rotate(name, self._registry.clock.wall(), overlap)
        entry = audit_entry_by(
            call.principal,
            "rotate",
            now=self._registry.clock.now(),
            object=f"service-key:{name}",
            outcome="rotated",
            detail=f"{key.key_id or ''} overlap {'default' if overlap is None else f'{overlap}s'}".strip(),
        )
        await self._registry.execute(audit_service_keys(self._keys.key_ids(), now=entry.at, rotation=entry))
        return json_response(key, headers=[NO_STORE])


class DoctorApi:
    """`/api/v1/doctor`."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        silent_issuers: Callable[[], tuple[str, ...]],
        has_embedder: Callable[[], bool],
        inspect_database: Callable[[], Awaitable[DatabaseFacts]] | None = None,
        inspect_peers: Callable[[], tuple[PeerFacts, ...]] = tuple,
    ) -> None:
        """`silent_issuers` lists the URLs of external issuers' key sets that could not be fetched. `inspect_database`
        examines the database of a cluster."""
        self._inspect_database = inspect_database
        self._inspect_peers = inspect_peers
        self._registry = registry
        self._settings = settings
        self._has_embedder = has_embedder
        self._silent_issuers = silent_issuers

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/doctor",
                operation="doctor",
                handler=self.diagnose,
                summary="The protections of this deployment, and those that are missing",
                answers={200: Diagnosis},
            )
        ]

    async def diagnose(self, call: RequestContext) -> AnyResponse:
        deployment = Deployment(
            settings=self._settings,
            machine=inspect_machine(self._settings, has_embedder=self._has_embedder()),
            now=self._registry.clock.now(),
            running=await self._runtime_facts(),
        )
        return json_response(diagnose(deployment), headers=[NO_STORE])

    async def _runtime_facts(self) -> RuntimeFacts:
        registry = self._registry
        asserted = await self._find_asserted_domains()
        return RuntimeFacts(
            database=None if self._inspect_database is None else await self._inspect_database(),
            peers=self._inspect_peers(),
            allow_rules=tuple(rule.rule for rule in await registry.trust.allow_rules()),
            silent_issuers=self._silent_issuers(),
            agents=len(registry.entries),
            failed=registry.entries.count_trust("failed"),
            verified=registry.entries.count_trust("verified"),
            pending=await registry.count_pending(),
            full_owners=self._full_owners(),
            asserted_domains=len(asserted),
            asserted_examples=tuple(asserted[: limits.DOCTOR_EXAMPLES]),
        )

    def _full_owners(self) -> tuple[str, ...]:
        """Peers and the admin token have no such quota."""
        most = self._settings.stored_bytes_per_owner
        found = self._registry.entries.owners_above(most * limits.DOCTOR_QUOTA_SHARE) if most else []
        owners = (owner for owner in found if peer_of(owner) is None and owner not in RESERVED_SUBJECTS)
        return tuple(islice(owners, limits.DOCTOR_EXAMPLES))

    async def _find_asserted_domains(self) -> list[str]:
        """The ids that name a domain which nothing proves. Other requests run in between: there may be a million ids."""
        found: list[str] = []
        ids = self._registry.entries.ids()
        for start in range(0, len(ids), limits.DOCTOR_SLICE):
            found += filter(self._is_asserted, ids[start : start + limits.DOCTOR_SLICE])
            await asyncio.sleep(0)
        return found

    def _is_asserted(self, agent_id: str) -> bool:
        if "." not in (domain_of(agent_id) or ""):
            return False
        entry = self._registry.entries.find(agent_id)
        return entry is not None and entry.domain is None and entry.trust == "self_asserted"


def inspect_machine(settings: Settings, *, has_embedder: bool) -> HostFacts:
    """The facts about this machine that the doctor examines: file modes, free space, certificate, cores."""
    data = settings.data
    keys = [*sorted((data / _KEYS_FOLDER).glob("*.pem")), *([settings.tls_key] if settings.tls_key else [])]
    return HostFacts(
        data_mode=_mode(data),
        admin_token_mode=_mode(data / ADMIN_TOKEN_FILE),
        exposed=tuple((str(path.relative_to(data)), mode) for path, mode in find_exposed(data, _DATA_FILES)),
        key_modes=tuple((key.name, mode) for key in keys if (mode := _mode(key)) is not None),
        free_bytes=_free_bytes(data),
        descriptors=_descriptors(),
        certificate_ends=_certificate_ends(settings.tls_cert),
        cores=os.cpu_count() or 1,
        has_embedder=has_embedder,
        missing_kernels=tuple(find_missing_kernels()),
    )


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _descriptors() -> int:
    """How many a process may open; the service raises its own limit that far."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return limits.DESCRIPTORS if hard == resource.RLIM_INFINITY else hard


def _free_bytes(folder: Path) -> int | None:
    """The free space of the nearest parent folder that exists."""
    for place in (folder, *folder.parents):
        try:
            room = os.statvfs(place)
        except OSError:
            continue
        return room.f_bavail * room.f_frsize
    return None


def _certificate_ends(path: Path | None) -> float | None:
    if path is None:
        return None
    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return None
    return certificates[0].not_valid_after_utc.timestamp() if certificates else None
