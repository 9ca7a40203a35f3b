"""The AF surface as a face of the service: which of its paths need a credential."""

from __future__ import annotations

from waypost.errors import NotFound, WaypostError
from waypost.model.principal import SCOPE_READ, Principal
from waypost.server.af import AfSurface
from waypost.server.af_paths import BASE
from waypost.server.asgi import AnyResponse, Request

_OPEN_PATHS = frozenset(("/.well-known/agent-card", "/v1/card"))
_PREFIXES = (b"/.well-known/agentframework", b"/.agent-framework", b"/v1/agents")
_CARDS = (b"/.well-known/agent-card", b"/.well-known/agent-card/", b"/v1/card", b"/v1/card/")


class AfFace:
    name = "agentframework"
    first_segments: tuple[bytes, ...] = (b".well-known", b".agent-framework", b"v1")
    prompt_paths: tuple[bytes, ...] = (f"{BASE}/agents".encode(), f"{BASE}/agents/".encode())

    def __init__(self, surface: AfSurface) -> None:
        self._surface = surface

    def claims(self, raw_path: bytes) -> bool:
        return raw_path in _CARDS or any(
            raw_path.startswith(prefix) and raw_path[len(prefix) : len(prefix) + 1] in (b"", b"/")
            for prefix in _PREFIXES
        )

    def open_to_all(self, request: Request) -> bool:
        """Cards are open; so is what tells of no agent. Asked of the route, since an id may hold any text."""
        return request.path.rstrip("/") in _OPEN_PATHS or not self._surface.tells_of_agents(request)

    def scope(self, request: Request) -> str | None:
        return SCOPE_READ

    async def answer(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        response = await self._surface.handle(request, principal, request_id)
        if response is None:
            raise NotFound("Nothing is served at this path.", path="path", hint="See /docs for what is.")
        return response

    def refuse(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        return self._surface.refuse(request, error, request_id)
