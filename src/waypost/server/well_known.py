"""Documents at well-known paths. A `Host` that equals the domain of a hosted agent selects that agent.

A hosted agent that is not public is treated as unknown (ADP-55), unless the request has an invitation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from waypost.errors import InvalidParameter, NotFound
from waypost.model.json import JsonObject, dump_json
from waypost.model.names import slug
from waypost.model.principal import ANONYMOUS, PUBLIC, SCOPES, no_such_agent
from waypost.model.registration import Registration
from waypost.protocols.a2a.legacy import add_older_members, downgrade_card
from waypost.protocols.ard.codec import (
    A2A_TYPE,
    CATALOG_STATUSES,
    build_catalog,
    catalog_entry,
    host_entry,
    registry_entry,
)
from waypost.protocols.dialects import get_codec
from waypost.registry.registry import Registry
from waypost.responses.service import ProtectedResource
from waypost.server.hosted_agents.documents import (
    ADP_MEDIA_TYPE,
    CAPABILITIES_PATH,
    DIGEST_PARAMETER,
    PROVIDED_CAPABILITIES_PATH,
    PROVIDED_PATH,
    DocumentLocation,
    HostedDocuments,
)
from waypost.server.hosted_agents.service_agent import ServiceAgent, service_a2a_card, service_ard_entry
from waypost.server.http.app import PROTECTED_RESOURCE_PATH
from waypost.server.http.asgi import JSON, AnyResponse, Headers, Request, Response
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.content_coding import not_modified_response
from waypost.server.http.content_negotiation import MediaType, choose_media_type
from waypost.server.http.openapi import document_schema
from waypost.server.http.request_params import AnswerBudget
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.renderer import TRUST_HEADER, ArdEntryWriter, RenderedDocument, Renderer, parse_rendered

# The plain type is for clients that accept nothing else (ARD-9).
_CATALOG_TYPES = (MediaType("application", "ai-catalog+json"), MediaType("application", "json"))
_CARD_TYPES = (MediaType("application", "a2a-agent-card+json"), MediaType("application", "json"))
_MAX_CATALOG_ENTRIES = 5000  # entries; a larger registry is searched, not downloaded
_CACHE_HEADER = (b"cache-control", b"public, max-age=300")
_CORS_HEADER = (b"access-control-allow-origin", b"*")
_PRIVATE_HEADER = (b"cache-control", b"private, no-store")
_AUDIENCE = frozenset((PUBLIC,))
_ADP_BODY = BodySpec(schema=document_schema("adp"), content_type=get_codec("adp").media_type)
_DIGEST_PARAMETER = ParameterSpec(
    name=DIGEST_PARAMETER, description="the digest of an earlier version, as a zone may name it"
)
_CARD_BODY = BodySpec(schema=document_schema("a2a"), content_type=get_codec("a2a").media_type)
_TYPED_CARD_BODY = BodySpec(schema=document_schema("a2a"), content_type=str(_CARD_TYPES[0]))
_CARD_FORMS = {"1.0": "current", "0.3": "0.3"}  # by version of A2A
_BOTH_FORMS = "both"
_SERVICE_CARD_WRITERS: dict[str, Callable[[JsonObject], JsonObject]] = {
    "current": lambda card: card,
    "0.3": downgrade_card,
    _BOTH_FORMS: add_older_members,
}
_CARD_VERSION = ParameterSpec(
    name="v",
    schema={"enum": list(_CARD_FORMS)},
    description="the version of A2A whose form is wanted; without it, that of 1.0 with the members of 0.3 beside it",
)
CheckInvitation = Callable[[Request, Registration], Awaitable[bool]]


class WellKnownApi:
    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        service: ServiceAgent,
        documents: HostedDocuments,
        is_invited: CheckInvitation,
        issuers: Sequence[str] = (),
    ) -> None:
        """`is_invited` tells whether a request has an invitation to a private agent. `issuers` are the external issuers
        whose tokens are accepted."""
        self._registry = registry
        self._renderer = renderer
        self._entries = ArdEntryWriter(registry, renderer)
        self._service = service
        self._documents = documents
        self._is_invited = is_invited
        base_url = renderer.base_url.rstrip("/")
        self._protected_resource = dump_json(
            ProtectedResource(
                resource=base_url,
                authorization_servers=tuple(issuer for issuer in issuers if issuer.startswith("https://")),
                scopes_supported=SCOPES,
                bearer_methods_supported=("header",),
                resource_name="Waypost",
                resource_documentation=f"{base_url}/docs",
            )
        )
        self._catalog: tuple[tuple[int, str | None], bytes] | None = None

    @property
    def service(self) -> Registration:
        return self._service.registration

    def routes(self) -> list[Route]:
        return [*self._adp_routes(), *self._card_routes()]

    def _adp_routes(self) -> list[Route]:
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
                summary="ADP document of a hosted agent, for a domain whose TargetName is this service",
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
                path=PROTECTED_RESOURCE_PATH,
                operation="document",
                handler=self.protected_resource,
                summary="Metadata of the protected resource (RFC 9728)",
                answers={200: ProtectedResource},
                open=True,
            ),
        ]

    def _card_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/.well-known/agent-card.json",
                operation="document",
                handler=self.a2a,
                summary="A2A card",
                parameters=(ParameterSpec(name="agent", description="the card of one agent"), _CARD_VERSION),
                answers={200: _CARD_BODY},
                open=True,
            ),
            Route(
                method="GET",
                path="/a2a/.well-known/agent-card.json",
                operation="document",
                handler=self.a2a_of_service,
                summary="A2A card of the service, for clients that are given the URL of its interface, /a2a",
                parameters=(_CARD_VERSION,),
                answers={200: _TYPED_CARD_BODY},
                open=True,
            ),
            Route(
                method="GET",
                path="/a2a/{id}/.well-known/agent-card.json",
                operation="document",
                handler=self.a2a_of_agent,
                summary="A2A card of an agent, for clients that are given the base URL /a2a/{id}",
                parameters=(_CARD_VERSION,),
                answers={200: _TYPED_CARD_BODY},
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

    async def find_by_host(self, request: Request) -> Registration | None:
        """The hosted agent that the Host header names."""
        host = request.host_name
        return await self.find_by_domain(request, host) if host else None

    async def find_by_domain(self, request: Request, domain: str) -> Registration | None:
        entry = self._registry.hosted(domain)
        registrations = await self._registry.registrations((entry.id,)) if entry is not None else []
        if not registrations:
            return None
        if not await self._is_visible(request, registrations[0]):
            raise no_such_agent(domain)
        return registrations[0]

    async def _is_visible(self, request: Request, registration: Registration) -> bool:
        return registration.visibility == PUBLIC or await self._is_invited(request, registration)

    # --- ADP -------------------------------------------------------------------------------------

    async def adp(self, call: RequestContext) -> AnyResponse:
        agent_id = call.request.param("agent")
        if agent_id is not None:
            return await self._adp_by_id(call, agent_id)
        return self._adp_response(call, await self.find_by_host(call.request) or self.service)

    async def _adp_by_id(self, call: RequestContext, agent_id: str) -> Response:
        """The ADP document of any agent that is public or that the request has an invitation to."""
        for entry in self._registry.entries.candidates(agent_id):
            registrations = await self._registry.registrations((entry.id,)) if entry.id else []
            if registrations and await self._is_visible(call.request, registrations[0]):
                rendering = self._renderer.render(registrations[0], "adp", self._registry.clock.now())
                return _rendered_response(call, rendering, registrations[0])
        raise no_such_agent(agent_id)

    async def protected_resource(self, call: RequestContext) -> AnyResponse:
        etag = strong_etag(self._protected_resource, JSON)
        return _response(
            call, self._protected_resource, JSON, etag, self.service.changed_at, headers=[], is_public=True
        )

    async def capabilities(self, call: RequestContext) -> AnyResponse:
        return self._adp_response(call, await self.find_by_host(call.request) or self.service, capabilities=True)

    async def provided(self, call: RequestContext) -> AnyResponse:
        return self._adp_response(call, await self._get_provided(call), "provider")

    async def provided_capabilities(self, call: RequestContext) -> AnyResponse:
        return self._adp_response(call, await self._get_provided(call), "provider", capabilities=True)

    async def _get_provided(self, call: RequestContext) -> Registration:
        """The agent whose domain has this service as its TargetName, so that `Host` names the service (ADP-7, C-7)."""
        registration = await self.find_by_domain(call.request, call.id)
        if registration is None:
            raise no_such_agent(call.id)
        return registration

    def _adp_response(
        self,
        call: RequestContext,
        registration: Registration,
        location: DocumentLocation = "domain",
        *,
        capabilities: bool = False,
    ) -> Response:
        hosted = self._documents.get(registration, self._registry.clock.now(), location)
        body: bytes | None = hosted.body
        if capabilities:
            body = self._documents.find_capabilities(hosted, call.request.param(DIGEST_PARAMETER))
        if body is None:
            raise NotFound(
                "No capability document of this agent has this digest.",
                path=DIGEST_PARAMETER,
                hint="Omit the parameter for the current document; the zone may be out of date.",
            )
        etag = strong_etag(body, ADP_MEDIA_TYPE)
        headers = [(TRUST_HEADER, hosted.trust.encode()), (b"vary", b"Host")]
        is_public = registration.visibility == PUBLIC
        return _response(call, body, ADP_MEDIA_TYPE, etag, hosted.changed_at, headers, is_public=is_public)

    # --- A2A -------------------------------------------------------------------------------------

    async def a2a(self, call: RequestContext) -> AnyResponse:
        """`?agent=` first, then `Host`, else the service itself. Without `v`, a card that was received stays as it is."""
        form = _read_card_form(call.request)
        agent_id = call.request.param("agent")
        if agent_id is None:
            registration = await self.find_by_host(call.request) or self.service
        else:
            registration = await self._get_public(agent_id)
        if registration is self.service:
            return _rendered_response(call, self._service_card(form), registration)
        now = self._registry.clock.now()
        if form is None and registration.source("a2a") is not None:
            return _rendered_response(call, self._renderer.render(registration, "a2a", now), registration)
        rendering = self._renderer.render_form(registration, "a2a", form or _BOTH_FORMS, now)
        return _rendered_response(call, rendering, registration)

    async def a2a_of_service(self, call: RequestContext) -> AnyResponse:
        return _typed_card_response(call, self._service_card(_read_card_form(call.request)))

    async def a2a_of_agent(self, call: RequestContext) -> AnyResponse:
        form = _read_card_form(call.request) or _BOTH_FORMS
        if call.id in (self.service.id, slug(self.service.id)):
            return _typed_card_response(call, self._service_card(form))
        registration = await self._get_public(call.id)
        now = self._registry.clock.now()
        return _typed_card_response(call, self._renderer.render_form(registration, "a2a", form, now))

    async def _get_public(self, agent_id: str) -> Registration:
        registration = await self._registry.get(ANONYMOUS, agent_id)
        if registration.visibility != PUBLIC:
            raise no_such_agent(agent_id)
        return registration

    def _service_card(self, form: str | None) -> RenderedDocument:
        form = form or _BOTH_FORMS
        rendering = self._renderer.render(self.service, "a2a", self._registry.clock.now())
        card = _SERVICE_CARD_WRITERS[form](service_a2a_card(parse_rendered(rendering.body)))
        return msgspec.structs.replace(rendering, body=dump_json(card), etag=f'{rendering.etag[:-1]}-{form}"')

    # --- AI Catalog ------------------------------------------------------------------------------

    async def catalog(self, call: RequestContext) -> AnyResponse:
        agent = await self.find_by_host(call.request)
        if agent is not None:
            host = host_entry(agent.record.name, agent.hosted or self._renderer.host)
            body = dump_json(build_catalog([self._entries.entry(agent)], host, self._renderer.host))
        else:
            body = await self._service_catalog()
        media_type = choose_media_type(_CATALOG_TYPES, call.request.header(b"accept")) or _CATALOG_TYPES[0]
        content_type = str(media_type).encode()
        etag = strong_etag(body, content_type)
        # The catalog contains the service itself, which is older than any agent.
        changed_at = max(self.service.changed_at, self._registry.entries.last_modified(_AUDIENCE))
        is_public = agent is None or agent.visibility == PUBLIC
        return _response(call, body, content_type, etag, changed_at, [(b"vary", b"Host, Accept")], is_public=is_public)

    async def _service_catalog(self) -> bytes:
        """Built again only after a public agent or the key of the service has changed."""
        fingerprint = self._documents.get(self.service, self._registry.clock.now()).fingerprint
        generation = (self._registry.entries.generation(_AUDIENCE), fingerprint)
        if self._catalog is not None and self._catalog[0] == generation:
            return self._catalog[1]
        entries, _ = self._registry.entries.page(_AUDIENCE, limit=_MAX_CATALOG_ENTRIES)
        catalog: list[JsonObject] = [
            self._service_entry(fingerprint),
            registry_entry(self._renderer.base_url, self._renderer.host),
        ]
        catalog += await self._listed_entries([entry.id for entry in entries if entry.status in CATALOG_STATUSES])
        body = dump_json(build_catalog(catalog, host_entry("Waypost", self._renderer.host), self._renderer.host))
        self._catalog = (generation, body)
        return body

    async def _listed_entries(self, ids: Sequence[str]) -> list[JsonObject]:
        """Those that one answer may have. The entry of the registry says where the others are."""
        budget = AnswerBudget()
        listed: list[JsonObject] = []
        for start in range(0, len(ids), 100):
            for registration in await self._registry.registrations(ids[start : start + 100]):
                entry = catalog_entry(self._entries.entry(registration), self._renderer.host)
                if not budget.take(len(dump_json(entry))):
                    return listed
                listed.append(entry)
        return listed

    def _service_entry(self, fingerprint: str | None) -> JsonObject:
        """The service is not in the registry, so its entry points to its card."""
        entry = service_ard_entry(self._entries.entry(self.service), fingerprint)
        entry.pop("data", None)
        return {
            **entry,
            "type": A2A_TYPE,
            "url": f"{self._renderer.base_url}/a2a/{slug(self.service.id)}/.well-known/agent-card.json",
        }


def _read_card_form(request: Request) -> str | None:
    """The form of a card that `v` names; None without it."""
    version = request.param("v")
    if version is not None and version not in _CARD_FORMS:
        raise InvalidParameter(
            f"There is no form of A2A {version[:16]!r}.", path="v", hint=f"Use {' or '.join(_CARD_FORMS)}."
        )
    return None if version is None else _CARD_FORMS[version]


def _typed_card_response(call: RequestContext, rendering: RenderedDocument) -> AnyResponse:
    """A card under the media type that catalogs name, or as plain JSON for clients that ask for nothing else."""
    media_type = choose_media_type(_CARD_TYPES, call.request.header(b"accept")) or _CARD_TYPES[0]
    content_type = str(media_type).encode()
    etag = rendering.etag if media_type == _CARD_TYPES[1] else f'{rendering.etag[:-1]}-card"'
    headers = [(TRUST_HEADER, rendering.trust.encode()), (b"vary", b"Host, Accept")]
    return _response(call, rendering.body, content_type, etag, rendering.changed_at, headers, is_public=True)


def _rendered_response(call: RequestContext, rendering: RenderedDocument, registration: Registration) -> Response:
    headers = [(TRUST_HEADER, rendering.trust.encode()), (b"vary", b"Host")]
    is_public = registration.visibility == PUBLIC
    return _response(
        call,
        rendering.body,
        rendering.content_type,
        rendering.etag,
        rendering.changed_at,
        headers,
        is_public=is_public,
    )


def _response(
    call: RequestContext,
    body: bytes,
    content_type: bytes,
    etag: str,
    changed_at: float,
    headers: Headers,
    *,
    is_public: bool,
) -> Response:
    headers = [
        (b"etag", etag.encode()),
        (b"last-modified", format_http_date(changed_at)),
        *headers,
        _CACHE_HEADER if is_public else _PRIVATE_HEADER,
        _CORS_HEADER,
    ]
    if is_not_modified(call.request, etag, changed_at):
        return not_modified_response(call.request, headers, body, content_type)
    return Response(200, body, content_type=content_type, headers=headers)
