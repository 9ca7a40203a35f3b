"""What answers over HTTP: the routes, and the faces that own whole prefixes and have an error style of their own."""

from __future__ import annotations

from typing import Any

from waypost.app.core import Core
from waypost.app.faces import Faces
from waypost.app.ground import Ground
from waypost.app.guards import Guards
from waypost.model.principal import Principal
from waypost.server.af import AfOptions, AfSurface
from waypost.server.af_face import AfFace
from waypost.server.af_registry import RegistryDirectory
from waypost.server.announce import AnnounceFace
from waypost.server.ard import ArdFace
from waypost.server.documents import DocumentFace
from waypost.server.mcp import McpFace
from waypost.server.mcp_tools import tools_of
from waypost.server.routes import Route
from waypost.server.rtfs import RtfsFace
from waypost.server.service import Service


def make_service(ground: Ground, core: Core, guards: Guards, faces: Faces, routes: list[Route]) -> Service:
    anonymous_read, rates = ground.settings.anonymous_read, guards.rates
    rtfs = RtfsFace(core.registry, anonymous_read=anonymous_read, rates=rates)
    return Service(
        routes,
        [
            _make_af(ground, core, faces),
            rtfs,
            AnnounceFace(core.registry, core.renderer, anonymous_read=anonymous_read, rates=rates, rtfs=rtfs),
            ArdFace(core.registry, core.renderer),
            McpFace(tools_of(core.registry, faces.profile, faces.own), anonymous_read=anonymous_read, rates=rates),
        ],
        guards.authenticator,
        core.metrics,
        anonymous_read=anonymous_read,
        open_access=ground.settings.open,
        rates=rates,
        origin=guards.origin,
    )


def _make_af(ground: Ground, core: Core, faces: Faces) -> AfFace:
    directory = RegistryDirectory(core.registry, core.renderer)
    options = AfOptions(
        base_url=ground.base_url,
        legacy=True,
        choose_card=_card_chooser(directory, faces.documents),
        whole_cards=True,
        a2a_card=lambda request, seen: "/.well-known/agent-card.json",
    )
    return AfFace(AfSurface(directory, options, now=ground.clock.now))


def _card_chooser(directory: RegistryDirectory, documents: DocumentFace) -> Any:
    async def choose(request: Any, principal: Principal) -> Any:
        """The card of an origin: the hosted agent's, else the service's own."""
        return directory.card(await documents.hosted(request) or documents.service)

    return choose
