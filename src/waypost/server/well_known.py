"""Read-only documents at well-known paths. A `Host` that equals a hosted agent's domain selects that agent.

An agent that is hosted and not public is answered as one that is not there (ADP-55), unless the request holds an invitation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from waypost.errors import NotFound
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import ANONYMOUS, PUBLIC
from waypost.model.registration import Registration
from waypost.protocols.ard.catalog import CATALOG_STATUSES, build_catalog, host_entry, registry_entry
from waypost.protocols.dialects import get_codec
from waypost.registry.registry import Registry
from waypost.server.hosted_agents.documents import (
    ADP_MEDIA_TYPE,
    CAPABILITIES_PATH,
    DIGEST_PARAMETER,
    PROVIDED_CAPABILITIES_PATH,
    PROVIDED_PATH,
    DocumentLocation,
    HostedDocuments,
)
from waypost.server.hosted_agents.service_agent import service_a2a_card, service_ard_entry
from waypost.server.http.asgi import AnyResponse, Request, Response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.content_negotiation import MediaType, choose_media_type
from waypost.server.http.openapi import document_schema
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.renderer import TRUST_HEADER, ArdEntryWriter, RenderedDocument, Renderer, parse_rendered
from waypost.trust.policy import no_such_agent

# The plain type is for clients that accept nothing else (ARD-9).
_CATALOG_TYPES = (MediaType("application", "ai-catalog+json"), MediaType("application", "json"))
_MAX_CATALOG_ENTRIES = 5000  # entries; a larger registry is searched, not downloaded
_CACHE_HEADER = (b"cache-control", b"public, max-age=300")
_CORS_HEADER = (b"access-control-allow-origin", b"*")
_PRIVATE_HEADER = (b"cache-control", b"private, no-store")
_AUDIENCE = frozenset((PUBLIC,))
_ADP_BODY = BodySpec(schema=document_schema("adp"), content_type=get_codec("adp").media_type)
_DIGEST_PARAMETER = ParameterSpec(
    name=DIGEST_PARAMETER, description="the one with this digest, as a zone may still name it"
)
CheckInvitation = Callable[[Request, Registration], Awaitable[bool]]


class WellKnownApi:
    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        service: Registration,
        hosting: HostedDocuments,
        is_invited: CheckInvitation,
    ) -> None:
        """`is_invited` decides whether the credentials of a request open a private agent."""
        self._registry = registry
        self._renderer = renderer
        self._entries = ArdEntryWriter(registry, renderer)
        self.service = service
        self._hosting = hosting
        self._is_invited = is_invited
        self._catalog: tuple[int, bytes] | None = None

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/.well-known/agent.json",
                operation="document",
                handler=self.adp,
                summary="ADP document",
                parameters=(
                    ParameterSpec(name="agent", description="the document of one agent"),
                    ParameterSpec(name="invite", description="the code of an invitation to a private agent"),
                ),
                answers={200: _ADP_BODY},
                open=True,
            ),
            Route(
                method="GET",
                path=CAPABILITIES_PATH,
                operation="document",
                handler=self.capabilities,
                summary="Capability document of a hosted agent, or of the service; its digest is `cap-sha256` of the zone",
                parameters=(_DIGEST_PARAMETER,),
                answers={200: _ADP_BODY},
                open=True,
            ),
            Route(
                method="GET",
                path=PROVIDED_PATH,
                operation="document",
                handler=self.provided,
                summary="ADP document of the agent that is hosted under a domain whose TargetName is this service",
                answers={200: _ADP_BODY},
                open=True,
            ),
            Route(
                method="GET",
                path=PROVIDED_CAPABILITIES_PATH,
                operation="document",
                handler=self.provided_capabilities,
                summary="Its capability document",
                parameters=(_DIGEST_PARAMETER,),
                answers={200: _ADP_BODY},
                open=True,
            ),
            Route(
                method="GET",
                path="/.well-known/agent-card.json",
                operation="document",
                handler=self.a2a,
                summary="A2A card",
                parameters=(ParameterSpec(name="agent", description="the card of one agent"),),
                answers={200: BodySpec(schema=document_schema("a2a"), content_type=get_codec("a2a").media_type)},
                open=True,
            ),
            Route(
                method="GET",
                path="/.well-known/ai-catalog.json",
                operation="document",
                handler=self.catalog,
                summary="AI Catalog of the public agents",
                answers={200: BodySpec(schema={"type": "object"}, content_type=str(_CATALOG_TYPES[0]))},
                open=True,
            ),
        ]

    async def hosted(self, request: Request) -> Registration | None:
        """The agent that the Host header names, if the service answers for its domain."""
        host = (request.header(b"host") or "").rsplit("]", 1)[-1].split(":", 1)[0]
        return await self.under(request, host) if host else None

    async def under(self, request: Request, domain: str) -> Registration | None:
        entry = self._registry.hosted(domain)
        found = await self._registry.registrations((entry.id,)) if entry is not None else []
        if not found:
            return None
        if not await self._shows(request, found[0]):
            raise no_such_agent(domain)
        return found[0]

    async def selected(self, call: RequestContext) -> Registration:
        """`?agent=` first, then `Host`, else the service itself."""
        wanted = call.request.param("agent")
        if wanted is not None:
            registration = await self._registry.get(ANONYMOUS, wanted)
            if registration.visibility != PUBLIC:
                raise no_such_agent(wanted)
            return registration
        return await self.hosted(call.request) or self.service

    async def adp(self, call: RequestContext) -> AnyResponse:
        wanted = call.request.param("agent")
        if wanted is not None:
            return await self._named(call, wanted)
        return self._adp(call, await self.hosted(call.request) or self.service)

    async def _named(self, call: RequestContext, wanted: str) -> Response:
        """An agent that has no domain here: its document as it came, for everybody or for who is invited."""
        for entry in self._registry.entries.candidates(wanted):
            found = await self._registry.registrations((entry.id,)) if entry.id else []
            if found and await self._shows(call.request, found[0]):
                rendering = self._renderer.render(found[0], "adp", self._registry.clock.now())
                return self._answer(call, rendering, is_public=found[0].visibility == PUBLIC)
        raise no_such_agent(wanted)

    async def _shows(self, request: Request, registration: Registration) -> bool:
        if registration.visibility == PUBLIC:
            return True
        return await self._is_invited(request, registration)

    async def capabilities(self, call: RequestContext) -> AnyResponse:
        return self._adp(call, await self.hosted(call.request) or self.service, whole=False)

    async def provided(self, call: RequestContext) -> AnyResponse:
        return self._adp(call, await self._provided(call), "provider")

    async def provided_capabilities(self, call: RequestContext) -> AnyResponse:
        return self._adp(call, await self._provided(call), "provider", whole=False)

    async def _provided(self, call: RequestContext) -> Registration:
        """The agent whose domain points here by its TargetName, so that `Host` names the service (ADP-7, C-7)."""
        found = await self.under(call.request, call.id)
        if found is None:
            raise no_such_agent(call.id)
        return found

    def _adp(
        self,
        call: RequestContext,
        registration: Registration,
        place: DocumentLocation = "domain",
        *,
        whole: bool = True,
    ) -> Response:
        hosted = self._hosting.of(registration, self._registry.clock.now(), place)
        body = hosted.body if whole else self._hosting.capabilities(hosted, call.request.param(DIGEST_PARAMETER))
        if body is None:
            raise NotFound(
                "No capability document of this agent has this digest.",
                path=DIGEST_PARAMETER,
                hint="Ask without it for the one that holds now; its zone may be behind.",
            )
        etag = strong_etag(body, ADP_MEDIA_TYPE)
        headers = [
            (b"etag", etag.encode()),
            (b"last-modified", format_http_date(hosted.changed_at)),
            (TRUST_HEADER, hosted.trust.encode()),
            (b"vary", b"Host"),
            _CACHE_HEADER if registration.visibility == PUBLIC else _PRIVATE_HEADER,
            _CORS_HEADER,
        ]
        if is_not_modified(call.request, etag, hosted.changed_at):
            return Response(304, headers=headers)
        return Response(200, body, content_type=ADP_MEDIA_TYPE, headers=headers)

    async def a2a(self, call: RequestContext) -> AnyResponse:
        registration = await self.selected(call)
        rendering = self._renderer.render(registration, "a2a", self._registry.clock.now())
        if registration is self.service:
            rendering = msgspec.structs.replace(
                rendering, body=dump_json(service_a2a_card(parse_rendered(rendering.body)))
            )
        return self._answer(call, rendering, is_public=registration.visibility == PUBLIC)

    def _answer(self, call: RequestContext, rendering: RenderedDocument, *, is_public: bool) -> Response:
        headers = [
            (b"etag", rendering.etag.encode()),
            (b"last-modified", format_http_date(rendering.changed_at)),
            (TRUST_HEADER, rendering.trust.encode()),
            (b"vary", b"Host"),
            _CACHE_HEADER if is_public else _PRIVATE_HEADER,
            _CORS_HEADER,
        ]
        if is_not_modified(call.request, rendering.etag, rendering.changed_at):
            return Response(304, headers=headers)
        return Response(200, rendering.body, content_type=rendering.content_type, headers=headers)

    async def catalog(self, call: RequestContext) -> AnyResponse:
        alone = await self.hosted(call.request)
        if alone is not None:
            body = dump_json(
                build_catalog(
                    [self._entries.entry(alone)], host_entry(alone.record.name, alone.hosted or self._renderer.host)
                )
            )
        else:
            body = await self._whole_catalog()
        chosen = choose_media_type(_CATALOG_TYPES, call.request.header(b"accept")) or _CATALOG_TYPES[0]
        content_type = str(chosen).encode()
        etag = strong_etag(body, content_type)
        # The service has an entry too: with no other agent, the document is as old as that.
        changed = max(self.service.changed_at, self._registry.entries.last_modified(_AUDIENCE) or 0.0)
        headers = [
            (b"etag", etag.encode()),
            (b"last-modified", format_http_date(changed)),
            (b"vary", b"Host, Accept"),
            _CACHE_HEADER if alone is None or alone.visibility == PUBLIC else _PRIVATE_HEADER,
            _CORS_HEADER,
        ]
        if is_not_modified(call.request, etag, changed):
            return Response(304, headers=headers)
        return Response(200, body, content_type=content_type, headers=headers)

    async def _whole_catalog(self) -> bytes:
        """Written anew only when something public has changed."""
        generation = self._registry.entries.generation(_AUDIENCE)
        if self._catalog is not None and self._catalog[0] == generation:
            return self._catalog[1]
        entries, _ = self._registry.entries.page(_AUDIENCE, limit=_MAX_CATALOG_ENTRIES)
        written: list[JsonObject] = [self._own_entry(), registry_entry(self._renderer.base_url, self._renderer.host)]
        ids = [entry.id for entry in entries if entry.status in CATALOG_STATUSES]
        for start in range(0, len(ids), 100):
            written += map(self._entries.entry, await self._registry.registrations(ids[start : start + 100]))
        body = dump_json(build_catalog(written, host_entry("Waypost", self._renderer.host)))
        self._catalog = (generation, body)
        return body

    def _own_entry(self) -> JsonObject:
        """The service itself is in no list: its card is where its entry points."""
        entry = service_ard_entry(self._entries.entry(self.service), self.service.record)
        entry.pop("data", None)
        return {
            **entry,
            "type": "application/a2a-agent-card+json",
            "url": f"{self._renderer.base_url}/.well-known/agent-card.json",
        }
