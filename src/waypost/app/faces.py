"""The faces that other parts ask, too. Those that only answer requests are made in `routes.py`."""

from __future__ import annotations

import msgspec

from waypost.app.core import Core
from waypost.app.ground import Ground
from waypost.app.guards import Guards
from waypost.app.hosted import Hosted
from waypost.server.documents import DocumentFace
from waypost.server.operator import OperatorFace
from waypost.server.own import OwnFace
from waypost.server.profile import ProfileFace
from waypost.server.reference import ReferenceFace
from waypost.server.watch import WatchFace


class Faces(msgspec.Struct, frozen=True, kw_only=True):
    documents: DocumentFace
    own: OwnFace
    profile: ProfileFace
    watch: WatchFace
    operator: OperatorFace
    reference: ReferenceFace


def make_faces(ground: Ground, core: Core, hosted: Hosted, guards: Guards) -> Faces:
    registry, renderer = core.registry, core.renderer
    own = OwnFace(registry, renderer, ground.mint)
    own.keys, own.rates = hosted.keys, guards.rates
    own.workers = ground.place.board.told if ground.place is not None else None
    watch = WatchFace(registry)
    return Faces(
        documents=DocumentFace(registry, renderer, hosted.itself, hosted.hosting),
        own=own,
        profile=ProfileFace(registry, own),
        watch=watch,
        operator=OperatorFace(registry, core.metrics, watch, core.keeper),
        reference=ReferenceFace(renderer, ground.started_at),
    )
