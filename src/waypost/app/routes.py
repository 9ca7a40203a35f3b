"""All routes that the faces have, but for those that own whole prefixes (`service.py`)."""

from __future__ import annotations

from functools import partial

from waypost.app.core import Core
from waypost.app.faces import Faces
from waypost.app.ground import Ground
from waypost.app.guards import Guards
from waypost.app.hosted import Hosted
from waypost.app.pages import make_page
from waypost.app.talks import Talks
from waypost.app.ways_out import WaysOut
from waypost.registry.trail import AuditTrail
from waypost.server.agent_health import AgentHealthFace
from waypost.server.audit import AuditFace
from waypost.server.confirming import ConfirmingFace
from waypost.server.described import FACE_ROUTES
from waypost.server.doctor import DoctorFace
from waypost.server.domains import DomainFace
from waypost.server.history import HistoryFace
from waypost.server.importing import ImportFace
from waypost.server.resolving import ResolvingFace
from waypost.server.routes import Route
from waypost.server.sharing import SharingFace
from waypost.server.trust_store import TrustStoreFace
from waypost.server.verifying import VerifyingFace
from waypost.server.zones import ZoneFace, certificate_in
from waypost.trust import ed25519


def make_routes(
    ground: Ground,
    core: Core,
    ways_out: WaysOut,
    hosted: Hosted,
    guards: Guards,
    faces: Faces,
    talks: Talks,
) -> list[Route]:
    registry = core.registry
    routes = [
        route
        for face in (
            make_page(ground, core, ways_out, hosted, guards, faces),
            faces.documents,
            faces.profile,
            talks.meeting,
            talks.conversations,
            faces.own,
            ConfirmingFace(registry),
            VerifyingFace(registry),
            SharingFace(registry),
            ImportFace(ways_out.importer),
            DomainFace(ways_out.domains),
            _make_resolving(ways_out, guards),
            AuditFace(_make_trail(ground, core)),
            HistoryFace(registry),
            AgentHealthFace(registry),
            ZoneFace(registry, hosted.hosting, hosted.itself, certificate_in(ground.settings.tls_cert)),
            TrustStoreFace(registry),
            _make_doctor(ground, core, guards),
            faces.watch,
            faces.reference,
            faces.operator,
        )
        for route in face.routes()
    ]
    faces.reference.described = [*routes, *FACE_ROUTES]
    return routes


def _make_resolving(ways_out: WaysOut, guards: Guards) -> ResolvingFace:
    face = ResolvingFace(ways_out.resolver, ways_out.organisations)
    face.rates = guards.rates
    return face


def _make_trail(ground: Ground, core: Core) -> AuditTrail:
    key = ground.identity_key
    return AuditTrail(core.registry.store, key.public_key().public_bytes_raw(), partial(ed25519.sign, key))


def _make_doctor(ground: Ground, core: Core, guards: Guards) -> DoctorFace:
    issuers = guards.issuers
    return DoctorFace(
        core.registry, ground.settings, lambda: issuers.silent() if issuers else (), core.models.are_there
    )
