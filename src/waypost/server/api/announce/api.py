"""The announce protocol over HTTP: `POST /agents`, `GET /agents`, `GET` and `DELETE /agents/{id}` (announce.md §6.4)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import (
    InvalidDocument,
    InvalidParameter,
    MethodNotAllowed,
    NotFound,
    Revoked,
    UpgradeRequired,
    WaypostError,
    error_codes,
)
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal, audience, require_scope
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.messages import (
    AgentQuery,
    encode_response,
    kind_of_message,
    negotiated_version,
    parse_capability_requirement,
    parse_minor,
    parse_query,
)
from waypost.registry.admission import SHUTDOWN
from waypost.registry.catalog.entries import AnnouncedFilter
from waypost.registry.publication import Publication, PublicationReceipt
from waypost.registry.registry import Registry
from waypost.server.api.announce.views import VERSION, AnnouncePage, AnnounceViews, signatures_of
from waypost.server.auth.callers import RateLimits
from waypost.server.http.app import VIA_SCOPE_KEY
from waypost.server.http.asgi import PROBLEM, AnyResponse, Request, Response, decode_segment
from waypost.server.http.problems import problem_headers, problem_instance, problem_json
from waypost.server.http.request_params import (
    CURSOR_PARAMETER,
    PAGE_PARAMETERS,
    AnswerBudget,
    check_media_type,
    read_limit,
    read_ttl,
    read_visibility,
)
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.server.renderer import Renderer, list_response
from waypost.trust.announce.trust_store import find_agent_id

log = logging.getLogger("waypost.announce")

VIA_ANNOUNCE = "announce"

_PATH = b"/agents"
_SOCKET_PATH = "/ws"
_REVOCATIONS = "revocations"
_COLLECTION_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_AGENT_METHODS = ("GET", "HEAD", "DELETE", "OPTIONS")
_NO_STORE = (b"cache-control", b"no-store")
_MAX_CAPABILITIES = 16  # in the query of a list
# §10: seconds after which a client may try again, by error name; for these statuses only.
_RETRY_AFTER = {"ErrMalformedPayload": 5, "ErrAuth": 30, "ErrForbidden": 300, "ErrUnavailable": 10}
_RETRY_STATUSES = frozenset((400, 401, 403, 503))

RpcHandler = Callable[[Request, Principal, bytes], Awaitable[Response]]


class AnnounceApi:
    name = "announce"
    first_segments: tuple[bytes, ...] = (b"agents", b"ws")

    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        *,
        anonymous_read: bool = False,
        rates: RateLimits | None = None,
        answer_rpc: RpcHandler | None = None,
    ) -> None:
        """`answer_rpc`: answers RTFS calls that are sent to `/agents` (RTFS-30)."""
        self._registry = registry
        self._answer_rpc = answer_rpc
        self._views = AnnounceViews(registry, renderer)
        self._anonymous_read = anonymous_read
        self._rates = rates
        self._warned: LruCache[str, float] = LruCache(limits.VERSION_PEERS)

    def claims(self, raw_path: bytes) -> bool:
        return raw_path in (_PATH, _SOCKET_PATH.encode()) or raw_path.startswith(_PATH + b"/")

    def is_public(self, request: Request) -> bool:
        return request.method == "OPTIONS" or request.path == _SOCKET_PATH

    def required_scope(self, request: Request) -> str | None:
        """None for a POST: its body decides whether it announces or queries."""
        if request.method == "POST":
            return None
        return SCOPE_WRITE if request.method == "DELETE" else SCOPE_READ

    async def handle(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if request.path == _SOCKET_PATH:
            raise UpgradeRequired(
                "This path is a WebSocket.",
                path="Upgrade",
                hint="Connect with version 13 and the subprotocol agent-discovery.",
            )
        segment = _segment(request)
        call = RequestContext(request, principal, request_id, decode_segment(segment) if segment else "")
        allowed = _AGENT_METHODS if call.id else _COLLECTION_METHODS
        if request.method not in allowed:
            raise MethodNotAllowed(
                f"{request.method[:16]} is not allowed here.",
                path="method",
                hint=f"Use {', '.join(allowed)}.",
                details={"allow": list(allowed)},
            )
        match request.method:
            case "OPTIONS":
                return Response(204, headers=[(b"allow", ", ".join(allowed).encode())])
            case "POST":
                return await self._post(call)
            case "DELETE":
                return await self._delete(call)
        if call.id == _REVOCATIONS:
            return await self._revocations(call)
        return await (self._get(call) if call.id else self._list(call))

    def error_response(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """A problem document with the error of this protocol as an additional member (P-34)."""
        codes = error_codes(error)
        if error.retry_after is None and codes.http in _RETRY_STATUSES and not isinstance(error, Revoked):
            error.retry_after = _RETRY_AFTER.get(codes.ann)
        member: JsonObject = {"code": codes.ann, "message": error.message}
        if "reason" in error.details:
            member["reason"] = error.details["reason"]
        if error.retry_after is not None:
            member["retry_after"] = error.retry_after
        problem = problem_json(error, instance=problem_instance(request), correlation_id=request_id)
        body = dump_json({**problem, "protocol_version": VERSION, "error": member})
        return Response(codes.http, body, content_type=PROBLEM, headers=problem_headers(error))

    # --- POST ------------------------------------------------------------------------------------

    async def _post(self, call: RequestContext) -> AnyResponse:
        request, principal = call.request, call.principal
        if principal.is_anonymous and not self._anonymous_read:
            require_scope(principal, SCOPE_WRITE)
        check_media_type(request, "application/json")
        body = await request.body(limits.ANNOUNCE_BYTES)
        message = parse_object(body, max_bytes=limits.ANNOUNCE_BYTES)
        if self._answer_rpc is not None and "jsonrpc" in message and "protocol_version" not in message:
            return await self._answer_rpc(request, principal, body)
        kind = kind_of_message(message)
        minor = parse_minor(message.get("protocol_version"))
        self._warn_of_version(principal, minor)
        if kind == "query":
            return await self._query(call, message)
        require_scope(principal, SCOPE_WRITE)
        if self._rates is not None:
            self._rates.write(principal, principal.address)
        if kind == "response":
            raise InvalidDocument(
                "A response is not an announcement.", path="$.matched", hint="Leave `matched` out to announce."
            )
        return await self._announce(call, body, message, minor)

    async def _announce(self, call: RequestContext, body: bytes, message: JsonObject, minor: int) -> AnyResponse:
        dialect, decoded = self._registry.decode(body, dialect="announce")
        via = call.request.scope.get(VIA_SCOPE_KEY, VIA_ANNOUNCE)
        if message.get("action") == SHUTDOWN:
            # P-19: the signature does not cover `action`, so only the owner of the record may withdraw it this way.
            record_id = _record_id(message["agent"]["agent_id"])
            await self._registry.withdraw(call.principal, record_id, repeat_ok=True, via=via)
            return self._echo(message, minor, None)
        receipt = await self._registry.publish(
            Publication(
                dialect=dialect,
                document=body,
                decoded=decoded,
                principal=call.principal,
                via=via,
                visibility=read_visibility(call.request),
                ttl_seconds=read_ttl(call.request),
                gated=True,
            )
        )
        return self._echo(message, minor, receipt)

    def _echo(self, message: JsonObject, minor: int, receipt: PublicationReceipt | None) -> Response:
        """The response to an announcement (P-25). Without a receipt the agent was withdrawn: its TTL is 0."""
        ttl_seconds: int | None = 0
        expires_at = self._registry.clock.now()
        if receipt is not None:
            ttl_seconds = receipt.ttl_seconds if receipt.registration is not None else 0
            expires_at = receipt.expires_at if receipt.expires_at is not None else expires_at
        body = encode_response(
            dump_json(message["agent"]),
            signatures_of(message),
            version=negotiated_version(minor),
            ttl=ttl_seconds,
            expires_at=to_rfc3339(expires_at),
            coalesced=receipt is not None and receipt.outcome in ("refreshed", "unchanged"),
            warnings=list(receipt.warnings) or None if receipt is not None else None,
        )
        return Response(200, body, headers=[_NO_STORE])

    async def _query(self, call: RequestContext, message: JsonObject) -> AnyResponse:
        require_scope(call.principal, SCOPE_READ, anonymous_ok=self._anonymous_read)
        if self._rates is not None:
            self._rates.read(call.principal, call.principal.address)
        query = parse_query(message)
        page = await self._views.page(call.principal, query, _read_filters(call.request, query))
        return Response(200, _list_body(page, negotiated_version(query.minor), query.query_id), headers=[_NO_STORE])

    def _warn_of_version(self, principal: Principal, minor: int) -> None:
        """ANN-51: other minor versions are accepted, with one warning per peer and hour."""
        if minor == 0:
            return
        peer, now = principal.subject or principal.address, self._registry.clock.now()
        last = self._warned.get(peer)
        if last is None or now - last >= limits.VERSION_WARN_SECONDS:
            self._warned.put(peer, now)
            log.warning("%s uses protocol version v1.%d; it is handled as %s", peer, minor, negotiated_version(minor))

    # --- GET and DELETE --------------------------------------------------------------------------

    async def _list(self, call: RequestContext) -> AnyResponse:
        query = _read_query(call.request)
        page = await self._views.page(call.principal, query, _read_filters(call.request, query))
        last_modified = self._registry.entries.last_modified(audience(call.principal))
        return list_response(call.request, _list_body(page, VERSION), last_modified)

    async def _get(self, call: RequestContext) -> AnyResponse:
        view = await self._views.get(call.principal, call.id)
        return list_response(call.request, view.body, view.changed_at)

    async def _revocations(self, call: RequestContext) -> AnyResponse:
        """P-14: revoked keys and agents, for every reader, because readers cache what was revoked."""
        cursor, cursors = call.request.param("cursor"), self._registry.cursors
        last = "" if cursor is None else cursors.open_page(_REVOCATIONS, cursor, str)
        page: JsonObject = {"protocol_version": VERSION, "revoked": []}
        last_modified: float | None = None
        budget = AnswerBudget()
        async for row in self._registry.trust.revocations(last):
            if row.kind not in ("key", "agent"):
                continue
            view = dump_json(row.view())
            if not budget.take(len(view)):
                page["next_cursor"] = cursors.seal_page(_REVOCATIONS, last)
                break
            page["revoked"].append(msgspec.Raw(view))
            last, last_modified = row.note, max(row.revoked_at, last_modified or 0.0)
        return list_response(call.request, dump_json(page), last_modified)

    async def _delete(self, call: RequestContext) -> AnyResponse:
        """Withdraw an agent. Repeating the request has the same result."""
        try:
            record_id = (await self._views.resolve(call.principal, call.id)).id
        except NotFound:
            record_id = _record_id(call.id)
        await self._registry.withdraw(call.principal, record_id, repeat_ok=True, via=VIA_ANNOUNCE)
        return Response(204)


def _segment(request: Request) -> bytes:
    raw: bytes = request.scope.get("raw_path") or request.path.encode()
    segment = raw.removeprefix(_PATH).removeprefix(b"/")
    if b"/" in segment:
        raise NotFound("Nothing is served at this path.", path="path", hint="Percent-encode an id with a slash.")
    return segment


def _record_id(agent_id: str) -> str:
    uuid = find_agent_id(agent_id)
    return agent_id if uuid is None else f"urn:uuid:{uuid}"


def _read_query(request: Request) -> AgentQuery:
    capabilities = [value for name, value in request.query if name == "capability"]
    if len(capabilities) > _MAX_CAPABILITIES:
        raise InvalidParameter(
            f"The request has {len(capabilities)} capabilities; the limit is {_MAX_CAPABILITIES}.",
            path="capability",
            hint="Send fewer.",
        )
    agent_id = request.param("agent_id")
    return AgentQuery(
        requirements=tuple(map(parse_capability_requirement, capabilities)),
        agent_id=None if agent_id is None else agent_id.strip().lower(),
    )


def _read_filters(request: Request, query: AgentQuery) -> AnnouncedFilter:
    signed = request.param("signed")
    if signed not in (None, "true", "false"):
        raise InvalidParameter("signed must be true or false.", path="signed", hint="Leave it out for false.")
    return AnnouncedFilter(
        names=tuple(each.name for each in query.requirements if each.name != "*"),
        signed=signed == "true",
        limit=read_limit(request),
        cursor=request.param("cursor"),
    )


def _list_body(page: AnnouncePage, version: str, query_id: str | None = None) -> bytes:
    head: JsonObject = {"protocol_version": version}
    if query_id is not None:
        head["query_id"] = query_id
    tail = b',"next_cursor":' + dump_json(page.next_cursor) if page.next_cursor else b""
    return dump_json(head)[:-1] + b',"agents":[' + b",".join(page.bodies) + b"]" + tail + b"}"


# --- Routes, for the API description -------------------------------------------------------------

_RESPONSE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["protocol_version", "agent", "matched"],
    "properties": {
        "protocol_version": {"type": "string"},
        "agent": {"type": "object", "required": ["agent_id", "capabilities", "transport"]},
        "matched": {"const": True},
        "signature": {"type": "string"},
        "previous_signature": {"type": "string"},
        "expires_at": {"type": "string", "format": "date-time"},
    },
}
_ECHO_SCHEMA: dict[str, Any] = {
    **_RESPONSE_SCHEMA,
    "properties": {
        **_RESPONSE_SCHEMA["properties"],
        "ttl": {"type": "integer", "minimum": 0},
        "coalesced": {"type": "boolean"},
    },
}
_LIST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["protocol_version", "agents"],
    "properties": {
        "protocol_version": {"type": "string"},
        "agents": {"type": "array", "items": _RESPONSE_SCHEMA},
        "next_cursor": {"type": "string"},
    },
}
_MESSAGE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["protocol_version"],
    "properties": {
        "protocol_version": {"type": "string", "pattern": r"^v\d+\.\d+$"},
        "agent": {"type": "object"},
        "signature": {"type": "string"},
        "previous_signature": {"type": "string"},
        "ttl": {"type": "integer"},
        "query": {"type": "object"},
        "query_id": {"type": "string", "maxLength": 64},
    },
}
_REVOCATIONS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["revoked"],
    "properties": {
        "protocol_version": {"type": "string"},
        "revoked": {"type": "array", "items": {"type": "object", "required": ["revoked_at"]}},
        "next_cursor": {"type": "string"},
    },
}

ANNOUNCE_ROUTES: list[Route] = [
    Route(
        method="POST",
        path="/agents",
        operation="register",
        summary="Announce protocol: announce an agent, or send a query",
        body=BodySpec(schema=_MESSAGE_SCHEMA),
        answers={
            200: BodySpec(schema={"anyOf": [_ECHO_SCHEMA, _LIST_SCHEMA]}),
            403: BodySpec(description="not on the allow-list"),
            409: BodySpec(description="the id is bound to another key"),
            413: BodySpec(description="more than 16 KiB"),
            415: BodySpec(description="not JSON"),
        },
    ),
    Route(
        method="GET",
        path="/agents",
        operation="list",
        summary="Announce protocol: list agents",
        parameters=(
            ParameterSpec(
                name="capability",
                schema={"type": "array", "items": {"type": "string"}},
                description="all of them; name or name@range",
            ),
            ParameterSpec(name="agent_id", description="only this agent"),
            ParameterSpec(name="signed", schema={"type": "boolean"}, description="only signed announcements"),
            *PAGE_PARAMETERS,
        ),
        answers={200: BodySpec(schema=_LIST_SCHEMA)},
    ),
    Route(
        method="GET",
        path="/agents/{id}",
        operation="get",
        summary="Announce protocol: one agent",
        answers={200: BodySpec(schema=_RESPONSE_SCHEMA)},
    ),
    Route(
        method="DELETE",
        path="/agents/{id}",
        operation="withdraw",
        summary="Announce protocol: withdraw an agent",
        answers={204: BodySpec(description="withdrawn")},
    ),
    Route(
        method="GET",
        path="/agents/revocations",
        operation="revocations",
        summary="Announce protocol: revoked keys and agents",
        parameters=(CURSOR_PARAMETER,),
        answers={200: BodySpec(schema=_REVOCATIONS_SCHEMA)},
    ),
]
