"""The REST API for agents: register a document of any dialect, read it in any dialect, list, batch and export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, RateLimited, TooLarge, WaypostError
from waypost.model.federation import peer_of
from waypost.model.health import UNKNOWN
from waypost.model.json import dump_json, parse_object, to_single_line
from waypost.model.names import parse_domain, slug
from waypost.model.principal import PRIVATE, Principal, audience
from waypost.model.query import FACETS
from waypost.model.record import STATUSES
from waypost.model.registration import CatalogEntry, Registration, parse_ttl
from waypost.protocols.dialects import DIALECTS
from waypost.protocols.rtfs.sexpr import RTFS_TEXT_TYPE
from waypost.registry.publication import Publication, PublicationReceipt
from waypost.registry.registry import Registry
from waypost.registry.write_rules import parse_invitees
from waypost.responses.agents import BatchLine, ErrorDetail, Page, Receipt
from waypost.responses.search import FacetOverview
from waypost.server.auth.callers import RateLimits
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.http.asgi import AnyResponse, Response, StreamingResponse, json_response
from waypost.server.http.conditional_requests import quote_etag
from waypost.server.http.openapi import DIALECT_SCHEMA, JSON_LINES, document_schema, served_schema
from waypost.server.http.request_params import (
    FORM,
    IF_MATCH,
    LIST_FILTER_PARAMETERS,
    PAGE_PARAMETERS,
    TTL_PARAMETER,
    WRITE_HEADERS,
    check_dialect,
    read_dialect,
    read_facets,
    read_filters,
    read_form,
    read_if_match,
    read_object,
    read_page,
    read_ttl,
    read_visibility,
)
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.renderer import (
    DocumentReader,
    RenderedDocument,
    Renderer,
    document_response,
    is_served_verbatim,
    list_response,
    suggestion_members,
    to_receipt,
    write_response,
)

_DOCUMENT_TYPES = tuple(sorted({dialect.codec.media_type for dialect in DIALECTS.values()} - {"application/json"}))
_BATCH_CHUNK = 256  # lines that are decided and committed together
_EXPORT_CHUNK = 200  # registrations that an export reads from the store at once
_EXPORT_LINES = 50  # that are sent at once: each may have 256 KiB
_NDJSON = b"application/x-ndjson"
_AS = ParameterSpec(name="as", schema=DIALECT_SCHEMA, description="the dialect of the answer")
_SOURCE = "source"  # the export of each document in the dialect in which it was registered
_INVITEES = {"type": "array", "maxItems": limits.INVITEES, "items": {"type": "string", "minLength": 1}}
_DOCUMENT = BodySpec(schema=document_schema(), description="a document of any dialect")


class AgentsApi:
    """`/api/v1/agents` and `/api/v1/facets`."""

    def __init__(self, registry: Registry, renderer: Renderer, rates: RateLimits, keys: HostedKeys) -> None:
        """`keys` are those of hosted domains; a domain that has none gets one when an agent is hosted there."""
        self._registry = registry
        self._renderer = renderer
        self._documents = DocumentReader(registry, renderer)
        self._rates = rates
        self._keys = keys

    def routes(self) -> list[Route]:
        return [*self._list_routes(), *self._agent_routes(), *self._bulk_routes()]

    def _list_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents",
                operation="register",
                handler=self.register,
                summary="Register a document of any dialect",
                parameters=(
                    TTL_PARAMETER,
                    ParameterSpec(
                        name="dialect", schema=DIALECT_SCHEMA, description="overrides recognition by content"
                    ),
                    ParameterSpec(
                        name="base",
                        schema={"type": "string", "format": "uri"},
                        description="the origin of relative references in the document",
                    ),
                    ParameterSpec(
                        name="fetched_from",
                        schema={"type": "string", "format": "uri"},
                        description="where the document is published; the id of an agent whose format has none",
                    ),
                    *WRITE_HEADERS,
                ),
                body=_DOCUMENT,
                answers={201: Receipt, 200: Receipt, 202: Receipt},
            ),
            Route(
                method="GET",
                path="/api/v1/agents",
                operation="list",
                handler=self.list_agents,
                summary="List agents",
                parameters=(*PAGE_PARAMETERS, *LIST_FILTER_PARAMETERS, _AS),
                answers={200: Page},
            ),
            Route(
                method="GET",
                path="/api/v1/facets",
                operation="facets",
                handler=self.facets,
                summary="Count agents by tag, protocol, status and owner",
                parameters=(
                    *LIST_FILTER_PARAMETERS,
                    ParameterSpec(
                        name="facet",
                        schema={"type": "array", "items": {"enum": list(FACETS)}},
                        description="what to count; default: all",
                    ),
                ),
                answers={200: FacetOverview},
            ),
        ]

    def _agent_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}",
                operation="get",
                handler=self.get,
                summary="Read an agent in any dialect",
                parameters=(_AS, FORM),
                answers={200: BodySpec(schema=served_schema(), also=_DOCUMENT_TYPES, text=RTFS_TEXT_TYPE)},
            ),
            Route(
                method="DELETE",
                path="/api/v1/agents/{id}",
                operation="withdraw",
                handler=self.withdraw,
                summary="Withdraw an agent",
                parameters=(IF_MATCH,),
                answers={204: BodySpec(description="withdrawn")},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:renew",
                operation="renew",
                handler=self.renew,
                summary="Renew a lease",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "properties": {"ttl_seconds": {"type": ["integer", "null"], "minimum": 1}},
                    },
                    required=False,
                ),
                answers={200: Receipt},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:host",
                operation="host",
                handler=self.host,
                summary="Serve an agent's documents under a domain",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["domain"],
                        "properties": {"domain": {"type": ["string", "null"], "description": "null ends it"}},
                    }
                ),
                answers={200: Receipt},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:share",
                operation="share",
                handler=self.share,
                summary="Change or show who sees a private agent",
                body=BodySpec(schema={"type": "object", "properties": {"add": _INVITEES, "remove": _INVITEES}}),
                answers={200: Receipt},
            ),
        ]

    def _bulk_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents:batch",
                operation="register_many",
                handler=self.batch,
                summary="Register many documents, one JSON line each",
                body=JSON_LINES,
                answers={200: JSON_LINES},
            ),
            Route(
                method="GET",
                path="/api/v1/agents:export",
                operation="export",
                handler=self.export,
                summary="Export all agents, one JSON line each",
                parameters=(
                    ParameterSpec(name="as", schema={"enum": [*DIALECTS, _SOURCE]}, description=_AS.description),
                ),
                answers={200: JSON_LINES},
            ),
        ]

    # --- Writes ----------------------------------------------------------------------------------

    async def register(self, call: RequestContext) -> AnyResponse:
        request = call.request
        ttl_seconds, dialect, base = read_ttl(request), request.param("dialect"), request.param("base")
        fetched_from = request.param("fetched_from")
        visibility, if_match = read_visibility(request), read_if_match(request)
        if_none_match, idempotency_key = request.header(b"if-none-match"), request.header(b"idempotency-key")
        document = await request.body(limits.DOCUMENT_BYTES)
        name, decoded = self._registry.decode(
            document,
            dialect=check_dialect(dialect, "dialect") if dialect is not None else None,
            base_url=base,
            source_url=fetched_from,
        )
        receipt = await self._registry.publish(
            Publication(
                dialect=name,
                document=document,
                decoded=decoded,
                principal=call.principal,
                visibility=visibility,
                ttl_seconds=ttl_seconds,
                if_match=if_match,
                if_none_match_any=if_none_match == "*",
                idempotency_key=idempotency_key,
                source_url=fetched_from or base,
            )
        )
        return write_response(receipt, location_of(receipt))

    async def renew(self, call: RequestContext) -> AnyResponse:
        body = await call.request.body(limits.REQUEST_BYTES)
        ttl_seconds: int | None = None
        if body.strip():
            value = parse_object(body, max_bytes=limits.REQUEST_BYTES).get("ttl_seconds")
            ttl_seconds = None if value is None else parse_ttl(value, "$.ttl_seconds")
        receipt = await self._registry.renew(call.principal, self._agent_id(call), ttl_seconds)
        return json_response(to_receipt(receipt)).add(b"etag", quote_etag(receipt.etag))

    async def host(self, call: RequestContext) -> AnyResponse:
        request = await read_object(call.request)
        if "domain" not in request:
            raise InvalidParameter("domain is missing.", path="$.domain", hint="Name a domain, or null to end it.")
        domain = None if request["domain"] is None else parse_domain(request["domain"], "$.domain")
        receipt = await self._registry.host(call.principal, self._agent_id(call), domain)
        if domain is not None and not await self._states_key(receipt.id):
            self._keys.ensure(domain)
        return json_response(to_receipt(receipt))

    async def _states_key(self, agent_id: str) -> bool:
        """True for an agent that came as an ADP document: the document states its key, so a key made here is not its own."""
        found = await self._registry.registrations((agent_id,))
        return bool(found) and found[0].source("adp") is not None

    async def share(self, call: RequestContext) -> AnyResponse:
        """The answer lists all invitees. Without `add` and `remove` it only shows them."""
        request = await read_object(call.request)
        add, remove = (parse_invitees(request.get(name, []), f"$.{name}") for name in ("add", "remove"))
        shared = await self._registry.share(call.principal, self._agent_id(call), add, remove)
        receipt = to_receipt(shared)
        registration = shared.registration
        if registration is not None:
            warnings = receipt.warnings
            if registration.invitees and registration.visibility != PRIVATE:
                warnings += (f"The agent is {registration.visibility}: others than its invitees see it too.",)
            receipt = msgspec.structs.replace(receipt, invitees=registration.invitees, warnings=warnings)
        return json_response(receipt).add(b"etag", quote_etag(receipt.etag))

    async def withdraw(self, call: RequestContext) -> AnyResponse:
        await self._registry.withdraw(call.principal, self._agent_id(call), read_if_match(call.request))
        return Response(204)

    def _agent_id(self, call: RequestContext) -> str:
        return self._registry.resolve_path_id(call.principal, call.id)

    # --- Reads -----------------------------------------------------------------------------------

    async def get(self, call: RequestContext) -> AnyResponse:
        dialect = read_dialect(call.request)
        form = read_form(call.request, dialect)
        try:
            document = await self._document(call.principal, call.id, dialect, form)
        except NotFound:
            agent_id = self._registry.resolve_short(call.principal, call.id)
            document = await self._document(call.principal, agent_id, dialect, form)
        return document_response(call.request, document)

    async def _document(self, principal: Principal, name: str, dialect: str, form: str | None) -> RenderedDocument:
        if form == "profile":
            return await self._documents.get_agent_profile(principal, name)
        if form is not None and dialect != "rtfs":
            return await self._documents.get_form(principal, name, dialect, form)
        return await self._documents.get(principal, name, dialect)

    async def list_agents(self, call: RequestContext) -> AnyResponse:
        request = call.request
        dialect, filters, requested = read_dialect(request), read_filters(request), read_page(request)
        entries = self._registry.page(
            call.principal,
            limit=requested.limit,
            cursor=requested.cursor,
            tags=filters.tags,
            protocols=filters.protocols,
            statuses=filters.statuses,
            owner=filters.owner,
        )
        page, entries = await self._documents.page(entries, dialect)
        suggestions = self._registry.suggest(call.principal, filters.tags) if filters.tags and not entries.total else {}
        page = msgspec.structs.replace(
            page,
            health={entry.id: state for entry in entries.entries if (state := entry.health) != UNKNOWN},
            **suggestion_members(suggestions),
        )
        return list_response(request, dump_json(page), self._registry.entries.last_modified(audience(call.principal)))

    async def facets(self, call: RequestContext) -> AnyResponse:
        filters = read_filters(call.request)
        found = self._registry.facets(
            call.principal,
            read_facets(call.request),
            tags=filters.tags,
            protocols=filters.protocols,
            statuses=filters.statuses,
            owner=filters.owner,
        )
        overview = FacetOverview(total=found.total, facets=found.facets, **suggestion_members(found.suggestions))
        return json_response(overview).add(b"cache-control", b"no-store")

    # --- Batches and exports ---------------------------------------------------------------------

    async def batch(self, call: RequestContext) -> AnyResponse:
        """Decide lines while they arrive; answer when all have arrived, in their order. The next lines are decoded while the disk
        writes the last ones. Lines that are answered at greater length than they are sent must not take the memory: then the
        last answer says where to go on."""
        visibility, ttl_seconds = read_visibility(call.request), read_ttl(call.request)
        body = bytearray()
        chunk: list[bytes | WaypostError] = []
        ahead: asyncio.Task[list[BatchLine]] | None = None  # registers the chunk before
        try:
            async for line in split_lines(call.request.chunks(limits.BATCH_BYTES)):
                if len(body) > limits.BATCH_ANSWER_BYTES:
                    chunk = [_BATCH_CUT]
                    break
                chunk.append(line)
                if len(chunk) == _BATCH_CHUNK:
                    before, ahead = (
                        ahead,
                        asyncio.create_task(self._register_lines(call, chunk, visibility, ttl_seconds)),
                    )
                    chunk = []
                    body += b"" if before is None else _encode_lines(await before)
            body += b"" if ahead is None else _encode_lines(await ahead)
        finally:
            if ahead is not None:
                ahead.cancel()  # if the body is refused or the client leaves
        body += _encode_lines(await self._register_lines(call, chunk, visibility, ttl_seconds))
        response = Response(200, headers=[(b"content-type", _NDJSON)])  # also of an empty batch
        response.body = bytes(body)
        return response

    async def _register_lines(
        self,
        call: RequestContext,
        lines: Sequence[bytes | WaypostError],
        visibility: str | None,
        ttl_seconds: int | None,
    ) -> list[BatchLine]:
        try:
            if len(lines) >= limits.WRITE_LINES:
                self._rates.write(call.principal, call.principal.address, len(lines) // limits.WRITE_LINES)
        except RateLimited as error:  # earlier chunks stay registered; the client sends the rest again later
            return [batch_line(error) for _ in lines]
        results = await asyncio.gather(
            *(self._register_line(call, line, visibility, ttl_seconds) for line in lines), return_exceptions=True
        )
        return [batch_line(result) for result in results]

    async def _register_line(
        self, call: RequestContext, line: bytes | WaypostError, visibility: str | None, ttl_seconds: int | None
    ) -> PublicationReceipt:
        if isinstance(line, WaypostError):
            raise line
        name, decoded = self._registry.decode(line)
        return await self._registry.publish(
            Publication(
                dialect=name,
                document=line,
                decoded=decoded,
                principal=call.principal,
                visibility=visibility,
                ttl_seconds=ttl_seconds,
            ),
            is_brief=True,
        )

    async def export(self, call: RequestContext) -> AnyResponse:
        chosen = call.request.param("as")
        dialect = _SOURCE if chosen in (None, _SOURCE) else read_dialect(call.request)
        return StreamingResponse(
            200, self._export_lines(call, dialect), content_type=_NDJSON, receive=call.request.receive
        )

    async def _export_lines(self, call: RequestContext, dialect: str) -> AsyncIterator[bytes]:
        """The lines of some agents at a time: a part of the response for each line would cost more than reading it."""
        cursor: str | None = None
        while True:
            page = self._registry.page(call.principal, limit=_EXPORT_CHUNK, cursor=cursor, statuses=STATUSES)
            async for part in self._export_page(page.entries, dialect):
                yield part
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _export_page(self, entries: Sequence[CatalogEntry], dialect: str) -> AsyncIterator[bytes]:
        received = await self._received_lines(entries) if dialect == _SOURCE else {}
        rest = [entry.id for entry in entries if entry.id not in received]
        found = await self._registry.registrations(rest, cached=False) if rest else ()
        registrations = {registration.id: registration for registration in found}
        lines: list[bytes] = []
        for number, entry in enumerate(entries, 1):
            line, registration = received.get(entry.id), registrations.get(entry.id)
            if registration is not None and (dialect == _SOURCE or self._renderer.can_render(registration, dialect)):
                if number % limits.EXPORT_SLICE == 0:
                    await asyncio.sleep(0)  # a whole page would keep the event loop for 100 ms
                line = self._export_line(registration, dialect)
            if line is not None:
                lines.append(line)
            if len(lines) >= _EXPORT_LINES:
                yield b"\n".join((*lines, b""))
                lines = []
        if lines:
            yield b"\n".join((*lines, b""))

    async def _received_lines(self, entries: Sequence[CatalogEntry]) -> dict[str, bytes]:
        """The documents that are exported as they were received."""
        own = [entry for entry in entries if peer_of(entry.owner) is None]  # a copy is exported with its origin
        found = await self._registry.received_newest(own)
        return {
            agent_id: to_single_line(each.document)
            for agent_id, each in found.items()
            if is_served_verbatim(each.dialect)
        }

    def _export_line(self, registration: Registration, dialect: str) -> bytes:
        if dialect == _SOURCE:
            dialect = registration.sources[0].dialect if registration.sources else "profile"
        rendering = self._renderer.render(registration, dialect, self._registry.clock.now())
        return to_single_line(rendering.body)  # a document as it was received may have line breaks


def location_of(receipt: PublicationReceipt) -> str:
    """The path of what was written. An agent without bindings is of little use in the profile, so its own dialect is named."""
    is_bare = receipt.registration is not None and not receipt.registration.record.bindings
    return f"/api/v1/agents/{slug(receipt.id)}" + (f"?as={receipt.dialect}" if is_bare else "")


_BATCH_CUT = TooLarge(
    "The answer to this batch is too long. This line and those after it were not read.",
    path="$",
    hint="Send them in another batch.",
)


def _encode_lines(answers: Sequence[BatchLine]) -> bytes:
    return b"".join(to_single_line(dump_json(answer)) + b"\n" for answer in answers)


def batch_line(result: PublicationReceipt | BaseException) -> BatchLine:
    """The answer to one line. An exception that is not an error of the line fails the batch."""
    if isinstance(result, PublicationReceipt):
        return BatchLine(id=result.id, outcome=result.outcome, etag=result.etag)
    if not isinstance(result, WaypostError):
        raise result
    return BatchLine(error=ErrorDetail.of(result))


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes | WaypostError]:
    """The lines of a stream without blank ones. A line that is too long becomes an error and does not end the batch."""
    rest = b""
    is_too_long = False
    async for chunk in chunks:
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        for part in parts:
            line = _finish_line(part, is_too_long=is_too_long)
            is_too_long = False
            if line is not None:
                yield line
        if len(rest) > limits.DOCUMENT_BYTES + 1:  # one more for the carriage return
            rest, is_too_long = b"", True
    line = _finish_line(rest, is_too_long=is_too_long)
    if line is not None:
        yield line


def _finish_line(line: bytes, *, is_too_long: bool) -> bytes | WaypostError | None:
    if is_too_long or len(line) > limits.DOCUMENT_BYTES + 1:
        return TooLarge(
            f"The line has more than {limits.DOCUMENT_BYTES} bytes.", path="$", hint="Send a smaller document."
        )
    return line.strip() or None
