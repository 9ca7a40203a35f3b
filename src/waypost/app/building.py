"""A service, made of its settings: the groups of parts in the order in which they need each other."""

from __future__ import annotations

from waypost.app.application import Application
from waypost.app.core import make_core
from waypost.app.faces import make_faces
from waypost.app.following import follow
from waypost.app.ground import make_ground
from waypost.app.guards import make_guards
from waypost.app.health import make_health
from waypost.app.hosted import make_hosted
from waypost.app.lan import make_lan
from waypost.app.routes import make_routes
from waypost.app.service import make_service
from waypost.app.sockets import make_sockets
from waypost.app.talks import make_talks
from waypost.app.ways_out import make_ways_out
from waypost.registry.ports import Clock, Store
from waypost.server.credentials import make_tls
from waypost.settings import Settings
from waypost.workers.board import Place


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
    ground = make_ground(settings, clock, port, place, started_at)
    core = make_core(ground, store)
    ways_out = make_ways_out(ground, core)
    make_health(ground, core, ways_out)
    hosted = make_hosted(ground, core)
    guards = make_guards(ground, core, ways_out)
    faces = make_faces(ground, core, hosted, guards)
    talks = make_talks(ground, core, ways_out, hosted, guards, faces)
    routes = make_routes(ground, core, ways_out, hosted, guards, faces, talks)
    service = make_service(ground, core, guards, faces, routes)
    sockets = make_sockets(ground, core, guards, talks, service)
    application = Application(
        settings=settings,
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
        keeper=core.keeper,
        meeting=talks.meeting,
        conversations=talks.conversations,
        outgoing=ways_out.outgoing,
        lan=make_lan(ground, core, ways_out),
    )
    follow(application, ground, core, faces, sockets)
    sockets.app = application.app
    return application
