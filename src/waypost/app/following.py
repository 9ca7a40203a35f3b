"""A process that follows the one that writes: it answers reads itself, and passes the rest on."""

from __future__ import annotations

from waypost.app.application import Application
from waypost.app.core import Core
from waypost.app.faces import Faces
from waypost.app.ground import Ground
from waypost.registry.following import FollowingRegistry
from waypost.server.forwarding import Follower, Reporter
from waypost.server.listening import inner_path
from waypost.server.upstream import Upstream
from waypost.server.websocket import Sockets


def follow(application: Application, ground: Ground, core: Core, faces: Faces, sockets: Sockets) -> None:
    registry, place = core.registry, ground.place
    if not isinstance(registry, FollowingRegistry) or place is None:
        return
    upstream, watch = Upstream(inner_path(ground.settings.data)), faces.watch
    application.upstream = upstream
    application.app = Follower(application.service, registry, upstream)
    application.reporter = Reporter(core.metrics, upstream, lambda: watch.watchers, place.number)
    sockets.catch_up = registry.catch_up
