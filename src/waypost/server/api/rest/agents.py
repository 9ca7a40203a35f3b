"""Batches: JSON lines in, one answer for each. A bad line is an answer of its own; it stops no other."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

from waypost import limits
from waypost.errors import InvalidParameter, RateLimited, TooLarge, WaypostError
from waypost.model.health import UNKNOWN
from waypost.model.json import JsonObject, dump_json, parse_object, to_single_line
from waypost.model.names import parse_domain, slug
from waypost.model.principal import PRIVATE, SCOPE_ADMIN, SCOPES, audience
from waypost.model.record import STATUSES
from waypost.model.registration import Registration, parse_ttl
from waypost.protocols.dialects import DIALECTS
from waypost.protocols.rtfs.sexpr import RTFS_TEXT_TYPE
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.operations import OPERATIONS
from waypost.registry.publication import Publication, PublicationReceipt
from waypost.registry.registry import Registry
from waypost.registry.write_rules import parse_invitees
from waypost.server.auth.rate_limits import RateLimits
from waypost.server.facets import facets_route, suggestions_tail
from waypost.server.hosted_agents.keys import HostedKeys
from waypost.server.http.asgi import AnyResponse, Response, StreamingResponse, json_response
from waypost.server.http.conditional_requests import quote_etag
from waypost.server.http.document_responses import document_response, list_response, write_response
from waypost.server.http.request_params import (
    FORM,
    IF_MATCH,
    LIST_FILTER_PARAMETERS,
    PAGE_PARAMETERS,
    WRITE_HEADERS,
    check_dialect,
    read_dialect,
    read_filters,
    read_form,
    read_if_match,
    read_limit,
    read_object,
    read_ttl,
    read_visibility,
    receipt_json,
)
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.renderer import DocumentReader, Renderer
from waypost.server.response_schemas import AGENT_LIST, DIALECT, FIGURES, NDJSON, RECEIPT, TOKEN, document_schema


def line_result(result: PublicationReceipt | WaypostError) -> JsonObject:
    if isinstance(result, PublicationReceipt):
        return {"id": result.id, "outcome": result.outcome, "etag": result.etag}
    error: JsonObject = {"code": result.code, "message": result.message}
    if result.path is not None:
        error["path"] = result.path
    if result.hint is not None:
        error["hint"] = result.hint
    return {"error": error}


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes | WaypostError]:
    """Lines of a stream. A line that is too long is passed over as an error of its own, not of the batch."""
    rest = b""
    too_long = False
    async for chunk in chunks:
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        for part in parts:
            line = _finish_line(part, too_long)
            too_long = False
            if line is not None:
                yield line
        if len(rest) > limits.DOCUMENT_BYTES + 1:  # a carriage return is not of the line
            rest, too_long = b"", True
    line = _finish_line(rest, too_long)
    if line is not None:
        yield line


def _finish_line(line: bytes, too_long: bool) -> bytes | WaypostError | None:
    if too_long or len(line) > limits.DOCUMENT_BYTES + 1:
        return TooLarge(
            f"The line has more than {limits.DOCUMENT_BYTES} bytes.", path="$", hint="Send a smaller document."
        )
    stripped = line.strip()
    return stripped or None


# ---- The service's own face, /api/v1: any dialect in, any dialect out.

_DOCUMENT_TYPES = tuple(sorted({dialect.codec.media_type for dialect in DIALECTS.values()} - {"application/json"}))

_BATCH_CHUNK = 256  # lines decided and committed together

_AT_ONCE = 100  # registrations read from the store at once for lists and exports

_TTL = ParameterSpec(name="ttl_seconds", schema={"type": "integer", "minimum": 1}, description="lease to ask for")


class AgentsApi:
    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        mint: Any,
        rates: RateLimits,
        keys: HostedKeys,
        workers: Callable[[], list[dict[str, Any]]] | None = None,
    ) -> None:
        """`keys` makes a key for a hosted domain that has none. `workers` describes the processes of this service."""
        self._registry = registry
        self._renderer = renderer
        self._reader = DocumentReader(registry, renderer)
        self._mint = mint
        self._rates = rates
        self._keys = keys
        self._workers = workers

    def routes(self) -> list[Route]:
        return [*self._agent_routes(), *self._one_agent_routes(), *self._many_routes(), *self._service_routes()]

    def _agent_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents",
                operation="register",
                handler=self.register,
                summary="Register a document of any dialect",
                parameters=(
                    _TTL,
                    ParameterSpec(name="dialect", schema=DIALECT, description="when the content should not decide"),
                    ParameterSpec(
                        name="base", schema={"type": "string", "format": "uri"}, description="origin of relative paths"
                    ),
                    ParameterSpec(
                        name="fetched_from",
                        schema={"type": "string", "format": "uri"},
                        description="where the document is published; names an agent whose format has no id",
                    ),
                    *WRITE_HEADERS,
                ),
                body=BodySpec(schema=document_schema(), description="a document of any dialect"),
                answers={201: BodySpec(schema=RECEIPT), 200: BodySpec(schema=RECEIPT), 202: BodySpec(schema=RECEIPT)},
            ),
            Route(
                method="GET",
                path="/api/v1/agents",
                operation="list",
                handler=self.list_agents,
                summary="List agents",
                parameters=(*PAGE_PARAMETERS, *LIST_FILTER_PARAMETERS, ParameterSpec(name="as", schema=DIALECT)),
                answers={200: BodySpec(schema=AGENT_LIST)},
            ),
            facets_route(self._registry),
        ]

    def _one_agent_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/agents/{id}",
                operation="get",
                handler=self.get,
                summary="Read one agent in any dialect",
                parameters=(ParameterSpec(name="as", schema=DIALECT), FORM),
                answers={200: BodySpec(schema=document_schema(), also=_DOCUMENT_TYPES, text=RTFS_TEXT_TYPE)},
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
                answers={200: BodySpec(schema=RECEIPT)},
            ),
            Route(
                method="POST",
                path="/api/v1/agents/{id}:host",
                operation="host",
                handler=self.host,
                summary="Answer for an agent under a domain",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["domain"],
                        "properties": {"domain": {"type": ["string", "null"], "description": "null ends it"}},
                    }
                ),
                answers={200: BodySpec(schema=RECEIPT)},
            ),
        ]

    def _many_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents:batch",
                operation="register_many",
                handler=self.batch,
                summary="Register many documents, one JSON line each",
                body=BodySpec(schema=NDJSON, content_type="application/x-ndjson", required=False),
                answers={200: BodySpec(schema=NDJSON, content_type="application/x-ndjson")},
            ),
            Route(
                method="GET",
                path="/api/v1/agents:export",
                operation="export",
                handler=self.export,
                summary="All agents, one document a line",
                parameters=(ParameterSpec(name="as", schema={"enum": [*DIALECTS, "source"]}),),
                answers={200: BodySpec(schema=NDJSON, content_type="application/x-ndjson")},
            ),
        ]

    def _service_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/stats",
                operation="stats",
                handler=self.stats,
                summary="Figures",
                answers={200: BodySpec(schema=FIGURES)},
            ),
            Route(
                method="POST",
                path="/api/v1/tokens",
                operation="mint_token",
                handler=self.mint_token,
                summary="Mint a token",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["sub", "scopes"],
                        "properties": {
                            "sub": {"type": "string", "minLength": 1, "maxLength": 256},
                            "scopes": {"type": "array", "items": {"enum": list(SCOPES)}, "minItems": 1},
                            "ttl_seconds": {"type": "integer", "minimum": 1, "maximum": limits.TOKEN_TTL_MAX_SECONDS},
                        },
                    }
                ),
                answers={201: BodySpec(schema=TOKEN)},
                scope=SCOPE_ADMIN,
            ),
            Route(
                method="GET",
                path="/api/v1/operations",
                operation="describe",
                handler=self.operations,
                summary="The table of operations",
                answers={200: BodySpec(schema={"type": "object"})},
            ),
        ]

    # --- Writing ---------------------------------------------------------------------------------

    async def register(self, call: RequestContext) -> AnyResponse:
        request = call.request
        ttl_seconds, dialect, base = read_ttl(request), request.param("dialect"), request.param("base")
        fetched_from = request.param("fetched_from")
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
                visibility=read_visibility(request),
                ttl_seconds=ttl_seconds,
                if_match=read_if_match(request),
                if_none_match_any=request.header(b"if-none-match") == "*",
                idempotency_key=request.header(b"idempotency-key"),
                source_url=fetched_from or base,
            )
        )
        return write_response(receipt, location_of(receipt))

    async def batch(self, call: RequestContext) -> AnyResponse:
        """Lines are decided as they arrive; the answers are sent when all have come, in order."""
        visibility, ttl_seconds = read_visibility(call.request), read_ttl(call.request)
        answers: list[bytes] = []
        waiting: list[bytes | WaypostError] = []
        async for line in split_lines(call.request.chunks(limits.BATCH_BYTES)):
            waiting.append(line)
            if len(waiting) == _BATCH_CHUNK:
                answers += await self._register_lines(call, waiting, visibility, ttl_seconds)
                waiting.clear()
        answers += await self._register_lines(call, waiting, visibility, ttl_seconds)
        body = b"".join(to_single_line(answer) + b"\n" for answer in answers)
        response = Response(200, headers=[(b"content-type", b"application/x-ndjson")])
        response.body = body
        return response

    async def _register_lines(
        self, call: RequestContext, waiting: list[bytes | WaypostError], visibility: str | None, ttl_seconds: int | None
    ) -> list[bytes]:
        try:
            self._pace(call, len(waiting))
        except RateLimited as error:  # what was answered stands; a client goes on with the rest when it is time
            return [dump_json(line_result(error)) for _ in waiting]
        results = await asyncio.gather(
            *(self._register_line(call, line, visibility, ttl_seconds) for line in waiting), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, WaypostError):
                raise result
        return [dump_json(line_result(result)) for result in results]  # type: ignore[arg-type]

    def _pace(self, call: RequestContext, lines: int) -> None:
        if lines >= limits.WRITE_LINES:
            self._rates.write(call.principal, call.principal.address, lines // limits.WRITE_LINES)

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
            )
        )

    async def renew(self, call: RequestContext) -> AnyResponse:
        body = await call.request.body(limits.REQUEST_BYTES)
        asked: int | None = None
        if body.strip():
            value = parse_object(body, max_bytes=limits.REQUEST_BYTES).get("ttl_seconds")
            asked = None if value is None else parse_ttl(value, "$.ttl_seconds")
        receipt = await self._registry.renew(
            call.principal, self._registry.resolve_path_id(call.principal, call.id), asked
        )
        return json_response(receipt_json(receipt)).add(b"etag", quote_etag(receipt.etag))

    async def host(self, call: RequestContext) -> AnyResponse:
        asked = await read_object(call.request)
        if "domain" not in asked:
            raise InvalidParameter("domain is missing.", path="$.domain", hint="Name a domain, or null to end it.")
        domain = None if asked["domain"] is None else parse_domain(asked["domain"], "$.domain")
        receipt = await self._registry.host(
            call.principal, self._registry.resolve_path_id(call.principal, call.id), domain
        )
        if domain is not None and not await self._has_own_key(receipt.id):
            self._keys.ensure(domain)
        return json_response(receipt_json(receipt))

    async def _has_own_key(self, agent_id: str) -> bool:
        """An agent that came with an ADP document says itself which key is its own; another one would speak for nobody."""
        found = await self._registry.registrations((agent_id,))
        return bool(found) and found[0].source("adp") is not None

    async def withdraw(self, call: RequestContext) -> AnyResponse:
        await self._registry.withdraw(
            call.principal, self._registry.resolve_path_id(call.principal, call.id), read_if_match(call.request)
        )
        return Response(204)

    async def mint_token(self, call: RequestContext) -> AnyResponse:
        asked = await read_object(call.request)
        subject, scopes = asked.get("sub"), asked.get("scopes")
        if not isinstance(subject, str):
            raise InvalidParameter("sub must be a text.", path="$.sub", hint="Name the subject that the token is for.")
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
            raise InvalidParameter("scopes must be an array of texts.", path="$.scopes")
        ttl = parse_ttl(asked.get("ttl_seconds", 3600), "$.ttl_seconds")
        token_id = secrets.token_hex(8)
        token, expires_at = self._mint(subject, tuple(scopes), ttl, token_id)
        await self._registry.record(
            audit_entry_by(
                call.principal,
                "mint",
                now=self._registry.clock.now(),
                object=subject,
                outcome="minted",
                detail=f"jwt:{token_id} {' '.join(scopes)} {ttl}s",
            )
        )
        answer = {"token": token, "expires_at": expires_at}
        return json_response(answer, 201).add(b"cache-control", b"no-store")

    # --- Reading ---------------------------------------------------------------------------------

    async def get(self, call: RequestContext) -> AnyResponse:
        dialect = read_dialect(call.request)
        if read_form(call.request, dialect) == "profile":
            document = await self._reader.get_agent_profile(call.principal, call.id)
        else:
            document = await self._reader.get(call.principal, call.id, dialect)
        return document_response(call.request, document)

    async def list_agents(self, call: RequestContext) -> AnyResponse:
        request = call.request
        dialect = read_dialect(request)
        filters = read_filters(request)
        page = self._registry.page(
            call.principal,
            limit=read_limit(request),
            cursor=request.param("cursor"),
            tags=filters.tags,
            protocols=filters.protocols,
            statuses=filters.statuses,
            owner=filters.owner,
        )
        body = await self._reader.list_body(page, dialect)
        health = {entry.id: state for entry in page.entries if (state := entry.health) != UNKNOWN}
        if health:
            body = body[:-1] + b',"health":' + dump_json(health) + b"}"
        if filters.tags and not page.total:
            body = body[:-1] + suggestions_tail(self._registry.suggest(call.principal, filters.tags)) + b"}"
        return list_response(call.request, body, self._registry.entries.last_modified(audience(call.principal)))

    async def export(self, call: RequestContext) -> AnyResponse:
        chosen = call.request.param("as")
        chosen = "source" if chosen is None else chosen
        if chosen != "source":
            check_dialect(chosen, "as")
        return StreamingResponse(
            200, self._export_lines(call, chosen), content_type=b"application/x-ndjson", receive=call.request.receive
        )

    async def _export_lines(self, call: RequestContext, chosen: str) -> AsyncIterator[bytes]:
        cursor: str | None = None
        while True:
            page = self._registry.page(call.principal, limit=_AT_ONCE, cursor=cursor, statuses=STATUSES)
            for registration in await self._registry.registrations([entry.id for entry in page.entries]):
                if chosen == "source" or self._renderer.can_render(registration, chosen):
                    yield self._export_line(registration, chosen) + b"\n"
            cursor = page.next_cursor
            if cursor is None:
                return

    def _export_line(self, registration: Registration, chosen: str) -> bytes:
        if chosen == "source" and registration.sources:
            chosen = registration.sources[0].dialect
        body = self._renderer.render(
            registration, "profile" if chosen == "source" else chosen, self._registry.clock.now()
        ).body
        return to_single_line(
            body
        )  # a document as it was received may be spread over lines; a line of the export may not

    async def stats(self, call: RequestContext) -> AnyResponse:
        figures = self._registry.stats(call.principal)
        if self._workers is not None and call.principal.is_admin:
            figures["workers"] = self._workers()
        return json_response(figures).add(b"cache-control", b"no-store")

    async def operations(self, call: RequestContext) -> AnyResponse:
        rows = [
            {
                "name": operation.name,
                "summary": operation.summary,
                "scope": operation.scope,
                "idempotent": operation.idempotent,
                "errors": sorted({error.code for error in operation.errors}),
                "command": operation.command,
                "method": operation.method,
            }
            for operation in OPERATIONS.values()
        ]
        return json_response({"operations": rows})


def location_of(receipt: PublicationReceipt) -> str:
    """Where what was written can be read. An agent that cannot be reached has no profile document, but its own."""
    bare = receipt.registration is not None and not receipt.registration.record.bindings
    return f"/api/v1/agents/{slug(receipt.id)}" + (f"?as={receipt.dialect}" if bare else "")


# ---- Who sees a private agent, on the service's own face: `POST /api/v1/agents/{id}:share`.

_INVITEES = {"type": "array", "maxItems": limits.INVITEES, "items": {"type": "string", "minLength": 1}}

_SHARE_RESPONSE = RECEIPT | {
    "properties": RECEIPT["properties"] | {"invitees": {"type": "array", "items": {"type": "string"}}},
}


class SharingApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/agents/{id}:share",
                operation="share",
                handler=self.share,
                summary="Let subjects see a private agent, or no longer",
                body=BodySpec(schema={"type": "object", "properties": {"add": _INVITEES, "remove": _INVITEES}}),
                answers={200: BodySpec(schema=_SHARE_RESPONSE)},
            ),
        ]

    async def share(self, call: RequestContext) -> AnyResponse:
        """The answer names all who are let in. Without `add` and `remove` it only shows them."""
        asked = await read_object(call.request)
        add, remove = (parse_invitees(asked.get(name, []), f"$.{name}") for name in ("add", "remove"))
        receipt = await self._registry.share(
            call.principal, self._registry.resolve_path_id(call.principal, call.id), add, remove
        )
        answer = receipt_json(receipt)
        registration = receipt.registration
        if registration is not None:
            answer["invitees"] = list(registration.invitees)
            if registration.invitees and registration.visibility != PRIVATE:
                answer["warnings"].append(f"The agent is {registration.visibility}: more than its invitees see it.")
        return json_response(answer).add(b"etag", quote_etag(receipt.etag))
