"""What operators look at: liveness, readiness, figures."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from cryptography import x509

from waypost.errors import Unavailable
from waypost.model.json import JsonObject
from waypost.model.principal import audience
from waypost.model.times import to_rfc3339_millis
from waypost.registry.doctor import SEVERITIES, Deployment, DoctorFinding, HostFacts, RuntimeFacts, examine
from waypost.registry.ports import KeyValueStore
from waypost.registry.registry import Registry
from waypost.search.kernels import find_missing_kernels
from waypost.server.api.rest.changes import WatchApi
from waypost.server.http.asgi import AnyResponse, Response, json_response
from waypost.server.http.metrics import CONTENT_TYPE, Metrics
from waypost.server.http.routing import BodySpec, RequestContext, Route
from waypost.server.response_schemas import DIAGNOSIS
from waypost.settings import ADMIN_TOKEN_FILE, Settings

GaugeReader = Callable[[], Awaitable[dict[str, tuple[str, float]]]]

_STATE = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}


class MonitoringApi:
    def __init__(
        self, registry: Registry, metrics: Metrics, watch: WatchApi, keeper: KeyValueStore, messaging: GaugeReader
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._keeper = keeper
        self._messaging = messaging
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
                summary="Alive?",
                answers={200: BodySpec(schema=_STATE)},
                open=True,
            ),
            Route(
                method="GET",
                path="/readyz",
                operation="health",
                handler=self.ready,
                summary="Ready for work?",
                answers={200: BodySpec(schema=_STATE)},
                open=True,
            ),
            Route(
                method="GET",
                path="/metrics",
                operation="metrics",
                handler=self.metrics,
                summary="Figures for Prometheus",
                answers={200: BodySpec(schema={"type": "string"}, content_type="text/plain")},
            ),
        ]

    async def health(self, call: RequestContext) -> AnyResponse:
        return json_response({"status": "ok"}, headers=[(b"cache-control", b"no-store")])

    async def ready(self, call: RequestContext) -> AnyResponse:
        if self._is_stopping:
            raise Unavailable("The service is stopping.", retry_after=5)
        await self._registry.check_ready()
        if not await self._keeper.healthy():
            raise Unavailable(
                "Tasks, messages and invitations cannot be kept.",
                path="meeting.db",
                hint="See the log of the service; after a fault of the disk it is to be started anew.",
                retry_after=5,
            )
        return json_response({"status": "ready"}, headers=[(b"cache-control", b"no-store")])

    async def metrics(self, call: RequestContext) -> AnyResponse:
        tokens = audience(call.principal)
        gauges: dict[str, tuple[str, float]] = {
            "agents": ("Agents that the caller may see.", self._registry.entries.count(tokens)),
        }
        if call.principal.is_admin:
            gauges["indexing_pending"] = ("Changes that the index has not folded in.", self._registry.indexing_pending)
            gauges["revision"] = ("The last revision.", self._registry.changes.revision)
            gauges |= await self._messaging()
        # The number of requests would reveal agents that the caller may not see.
        body = self._metrics.render_all(gauges) if call.principal.is_admin else self._metrics.render(gauges)
        return Response(200, body, content_type=CONTENT_TYPE)


# ---- The doctor's facts, and its findings over HTTP, for admins.

_KEYS_FOLDER = "keys"


class DoctorApi:
    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        silent_issuers: Callable[[], tuple[str, ...]],
        has_embedder: Callable[[], bool],
    ) -> None:
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
                summary="What protects this deployment, and what does not",
                answers={200: BodySpec(schema=DIAGNOSIS)},
            )
        ]

    async def diagnose(self, call: RequestContext) -> AnyResponse:
        now = self._registry.clock.now()
        machine = inspect_machine(self._settings, has_embedder=self._has_embedder())
        deployment = Deployment(settings=self._settings, machine=machine, now=now, running=await self._running())
        return json_response(diagnosis_json(examine(deployment), now), headers=[(b"cache-control", b"no-store")])

    async def _running(self) -> RuntimeFacts:
        registry = self._registry
        return RuntimeFacts(
            allow_rules=tuple(rule.rule for rule in await registry.trust.allow_rules()),
            silent_issuers=self._silent_issuers(),
            agents=len(registry.entries),
            failed=registry.entries.count_trust("failed"),
            verified=registry.entries.count_trust("verified"),
            waiting=await registry.count_pending(),
        )


def diagnosis_json(findings: list[DoctorFinding], now: float) -> JsonObject:
    return {
        "findings": [
            {name: value for name, value in msgspec.structs.asdict(finding).items() if value} for finding in findings
        ],
        "counts": {severity: sum(each.severity == severity for each in findings) for severity in SEVERITIES},
        "at": to_rfc3339_millis(now),
    }


# --- What the machine shows -----------------------------------------------------------------------


def inspect_machine(settings: Settings, *, has_embedder: bool) -> HostFacts:
    data = settings.data
    keys = [*sorted((data / _KEYS_FOLDER).glob("*.pem")), *([settings.tls_key] if settings.tls_key else [])]
    return HostFacts(
        data_mode=_mode(data),
        admin_token_mode=_mode(data / ADMIN_TOKEN_FILE),
        key_modes=tuple((key.name, mode) for key in keys if (mode := _mode(key)) is not None),
        free_bytes=_free_bytes(data),
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


def _free_bytes(folder: Path) -> int | None:
    """Of the nearest folder that is there."""
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
