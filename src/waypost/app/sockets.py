"""What answers on WebSockets: announcements, and conversations."""

from __future__ import annotations

from waypost.app.core import Core
from waypost.app.ground import Ground
from waypost.app.guards import Guards
from waypost.app.talks import Talks
from waypost.server.agp_socket import PATH as CHAT_PATH
from waypost.server.agp_socket import SocketPaths
from waypost.server.asgi import App
from waypost.server.listening import inner_path
from waypost.server.service import Service
from waypost.server.websocket import Sockets


def make_sockets(ground: Ground, core: Core, guards: Guards, talks: Talks, service: Service) -> Sockets:
    """Those of announcements; the service is told of both."""
    sockets = Sockets(
        core.registry,
        core.renderer,
        guards.authenticator,
        guards.hosts,
        core.metrics,
        anonymous_read=ground.settings.anonymous_read,
        rates=guards.rates,
        origin=guards.origin,
    )
    sockets.refuse = service.refuse
    talks.conversations.guard(guards.authenticator, guards.hosts, guards.origin, service.refuse)
    chats = talks.conversations if ground.writes else _make_tunnel(ground)
    service.sockets = SocketPaths({"/ws": sockets, CHAT_PATH: chats})
    return sockets


def _make_tunnel(ground: Ground) -> App:
    """One process holds all conversations; the others pass theirs on to it."""
    from waypost.server.agp_tunnel import Tunnel  # late: a client of WebSockets, which only a process that follows is

    return Tunnel(inner_path(ground.settings.data))
