"""The pages for people, and the link that signs somebody in."""

from __future__ import annotations

import secrets

from waypost import limits
from waypost.app.core import Core
from waypost.app.faces import Faces
from waypost.app.ground import Ground
from waypost.app.guards import Guards
from waypost.app.hosted import Hosted
from waypost.app.secret_files import read_admin_token, read_key
from waypost.app.ways_out import WaysOut
from waypost.model.principal import SCOPE_ADMIN
from waypost.net.clock import SystemClock
from waypost.registry.ports import Clock
from waypost.server.auth import ADMIN
from waypost.server.page.face import PageFace, PageParts
from waypost.server.page.sessions import SIGN_IN_PARAMETER, Sessions, make_code, page_seal
from waypost.settings import TOKEN_KEY_FILE, Settings


def make_page(ground: Ground, core: Core, ways_out: WaysOut, hosted: Hosted, guards: Guards, faces: Faces) -> PageFace:
    page = PageFace(
        PageParts(
            registry=core.registry,
            renderer=core.renderer,
            service=hosted.itself,
            hosting=hosted.hosting,
            hosted=faces.documents.hosted,
            sessions=_make_sessions(ground),
            importer=ways_out.importer,
            watch=faces.watch,
            reference=faces.reference.rows,
            open_access=ground.settings.open,
        )
    )
    page.guard(guards.authenticator, guards.rates, guards.origin)
    return page


def _make_sessions(ground: Ground) -> Sessions:
    mint = ground.mint
    return Sessions(
        page_seal(ground.token_key.private_bytes_raw(), ground.admin_token),
        lambda: mint(ADMIN.subject or "", (SCOPE_ADMIN,), limits.PAGE_SESSION_SECONDS, secrets.token_hex(8))[0],
        ground.clock.now,
        base_url=ground.base_url,
        open_access=ground.settings.open,
        anonymous_read=ground.settings.anonymous_read,
    )


def sign_in_link(settings: Settings, base_url: str, *, clock: Clock | None = None) -> str | None:
    """An address that signs its first visitor in as admin; None where everybody may do everything."""
    if settings.open:
        return None
    seal = page_seal(read_key(settings.data / TOKEN_KEY_FILE).private_bytes_raw(), read_admin_token(settings.data))
    code = make_code(seal, (clock or SystemClock()).now(), secrets.token_bytes(16))
    return f"{base_url}/?{SIGN_IN_PARAMETER}={code}"
