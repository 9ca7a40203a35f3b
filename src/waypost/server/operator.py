"""What operators look at: liveness, readiness, figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from waypost.errors import Unavailable
from waypost.model.principal import audience
from waypost.registry.engine import Registry
from waypost.registry.keeping import Keeper
from waypost.server.asgi import AnyResponse, Response, json_response
from waypost.server.metrics import Metrics
from waypost.server.routes import Body, Call, Route
from waypost.server.watch import WatchFace

Figures = Callable[[], Awaitable[dict[str, tuple[str, float]]]]
_STATE = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}


class OperatorFace:
    def __init__(self, registry: Registry, metrics: Metrics, watch: WatchFace, keeper: Keeper) -> None:
        self._registry = registry
        self._metrics = metrics
        self._watch = watch
        self._keeper = keeper
        self.meeting: Figures | None = None  # what comes after discovery, in figures
        self.stopping = False

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/healthz",
                operation="health",
                handler=self.health,
                summary="Alive?",
                answers={200: Body(schema=_STATE)},
                open=True,
            ),
            Route(
                method="GET",
                path="/readyz",
                operation="health",
                handler=self.ready,
                summary="Ready for work?",
                answers={200: Body(schema=_STATE)},
                open=True,
            ),
            Route(
                method="GET",
                path="/metrics",
                operation="metrics",
                handler=self.metrics,
                summary="Figures for Prometheus",
                answers={200: Body(schema={"type": "string"}, content_type="text/plain")},
            ),
        ]

    async def health(self, call: Call) -> AnyResponse:
        return json_response({"status": "ok"}, headers=[(b"cache-control", b"no-store")])

    async def ready(self, call: Call) -> AnyResponse:
        if self.stopping:
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

    async def metrics(self, call: Call) -> AnyResponse:
        tokens = audience(call.principal)
        gauges: dict[str, tuple[str, float]] = {
            "agents": ("Agents that the caller may see.", self._registry.catalogue.count(tokens)),
        }
        if call.principal.is_admin:
            gauges["watchers"] = (
                "Open watch streams.",
                self._watch.watchers + self._metrics.watchers_elsewhere,
            )
            gauges["indexing_pending"] = ("Changes that the index has not folded in.", self._registry.ranker.pending)
            gauges["revision"] = ("The last revision.", self._registry.changes.revision)
            gauges |= self._metrics.gauges()
            gauges |= await self.meeting() if self.meeting is not None else {}
        # How often others registered something tells of agents that the caller may not see.
        body = self._metrics.render(gauges, requests=call.principal.is_admin)
        return Response(200, body, content_type=b"text/plain; version=0.0.4; charset=utf-8")
