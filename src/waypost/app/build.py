"""A process that follows the one that writes: it answers reads itself, and passes the rest on."""

from __future__ import annotations

from waypost import limits
from waypost.app.apis import Apis, make_apis, make_hosted_agents, make_messaging, make_security
from waypost.app.application import Application
from waypost.app.context import AppContext, make_context
from waypost.app.core import Core, make_core
from waypost.app.http import make_routes, make_service, make_sockets
from waypost.app.outbound import make_health, make_lan, make_outbound, make_outgoing
from waypost.app.workers import WorkerSlot
from waypost.registry.jobs.periodic import Job, PeriodicJobs
from waypost.registry.ports import Clock, Store
from waypost.server.api.announce.websocket import AnnounceWebSocket
from waypost.server.auth.authenticator import make_tls
from waypost.server.http.follower import FollowerApp, MetricsReporter, UpstreamPool
from waypost.server.http.server import worker_socket_path
from waypost.settings import Settings


def follow(application: Application, ground: AppContext, core: Core, faces: Apis, sockets: AnnounceWebSocket) -> None:
    follower, place = core.registry.follower, ground.place
    if follower is None or place is None:
        return
    upstream, watch = UpstreamPool(worker_socket_path(ground.settings.data)), faces.watch
    application.upstream = upstream
    application.app = FollowerApp(application.service, follower, upstream)
    application.reporter = MetricsReporter(core.metrics, upstream, lambda: watch.watchers, place.number)
    sockets.catch_up = follower.catch_up


# ---- A service, made of its settings: the groups of parts in the order in which they need each other.


def build(
    settings: Settings,
    *,
    clock: Clock | None = None,
    port: int | None = None,
    store: Store | None = None,
    place: WorkerSlot | None = None,
    started_at: float | None = None,
) -> Application:
    """The service of these settings; `place` says which of its processes this is. Nothing is opened before `start`."""
    ground = make_context(settings, clock, port, place, started_at)
    outgoing = make_outgoing(ground)
    core = make_core(ground, outgoing, store)
    ways_out = make_outbound(ground, core, outgoing)
    jobs = [*ways_out.jobs, *make_health(ground, core, ways_out)]
    hosted = make_hosted_agents(ground, core)
    guards = make_security(ground, core, ways_out)
    faces = make_apis(ground, core, hosted, guards)
    talks = make_messaging(ground, core, ways_out, hosted, guards, faces)
    routes = make_routes(ground, core, ways_out, hosted, guards, faces, talks)
    service = make_service(ground, core, guards, faces, routes)
    sockets = make_sockets(ground, core, guards, talks, service)
    lan = make_lan(ground, core, ways_out)
    if lan is not None:
        jobs.append(Job("publish on the LAN", limits.MDNS_TTL_SECONDS / 2, lan.publish))
    application = Application(
        settings=settings,
        store=core.store,
        registry=core.registry,
        service=service,
        operator=faces.operator,
        renderer=core.renderer,
        metrics=core.metrics,
        base_url=ground.base_url,
        models=core.models,
        app=service,
        tls=make_tls(settings),
        issuers=guards.issuers,
        key_value_store=core.key_value_store,
        meeting=talks.meeting,
        conversations=talks.conversations,
        outgoing=ways_out.outgoing,
        lan=lan,
        jobs=PeriodicJobs(jobs if ground.writes else ()),
    )
    follow(application, ground, core, faces, sockets)
    sockets.app = application.app
    return application
