"""The announce protocol over HTTP: `POST /agents`, `GET /agents`, `GET` and `DELETE /agents/{id}` (announce.md §6.4).

Requests are read, passed to the registry, answered. Who is admitted is decided there; how messages look, in
`protocols/announce/messages.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import (
    InvalidDocument,
    InvalidParameter,
    MethodNotAllowed,
    NotFound,
    Revoked,
    UnsupportedMediaType,
    UpgradeRequired,
    WaypostError,
    error_codes,
)
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal, audience
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
from waypost.registry.announcement_admission import SHUTDOWN
from waypost.registry.catalog.entries import AnnouncedFilter
from waypost.registry.publication import Publication, PublicationReceipt
from waypost.registry.registry import Registry
from waypost.server.api.announce.views import AnnouncePage, AnnounceViews, signatures_of
from waypost.server.auth.rate_limits import RateLimits
from waypost.server.http import websockets
from waypost.server.http.asgi import PROBLEM, AnyResponse, Request, Response, decode_segment
from waypost.server.http.document_responses import list_response
from waypost.server.http.problems import problem_headers, problem_instance, problem_json
from waypost.server.http.request_params import read_limit, read_ttl, read_visibility
from waypost.server.http.routing import RequestContext
from waypost.server.renderer import Renderer
from waypost.trust.announce.allow_list import find_agent_id
from waypost.trust.policy import require_scope

log = logging.getLogger("waypost.announce")

VIA_ANNOUNCE = "announce"
_PATH = b"/agents"
_SOCKET_PATH = b"/ws"
_REVOCATIONS = "revocations"
_VERSION = "v1.0"
_METHODS = {"": ("GET", "HEAD", "POST", "OPTIONS"), "id": ("GET", "HEAD", "DELETE", "OPTIONS")}
_RETRY_AFTER = {"ErrMalformedPayload": 5, "ErrAuth": 30, "ErrForbidden": 300, "ErrUnavailable": 10}  # §10, in seconds
_RETRIED = frozenset((400, 401, 403, 503))
_FILTERS = 16  # capabilities that one list may ask for

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

    # --- What the service asks of a face ---------------------------------------------------------

    def claims(self, raw_path: bytes) -> bool:
        return raw_path in (_PATH, _SOCKET_PATH) or raw_path.startswith(_PATH + b"/")

    def is_public(self, request: Request) -> bool:
        return request.method == "OPTIONS" or request.path == "/ws"

    def scope(self, request: Request) -> str | None:
        """A POST may announce or ask: what it needs is known once it is read."""
        if request.method == "POST":
            return None
        return SCOPE_WRITE if request.method == "DELETE" else SCOPE_READ

    async def answer(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if request.path == "/ws":
            raise UpgradeRequired(
                "This path is a WebSocket.",
                path="Upgrade",
                hint="Connect with version 13 and the subprotocol agent-discovery.",
            )
        segment = _segment(request)
        call = RequestContext(request, principal, request_id, decode_segment(segment) if segment else "")
        _check_method(request.method, "id" if call.id else "")
        match request.method:
            case "OPTIONS":
                return Response(204, headers=[(b"allow", ", ".join(_METHODS["id" if call.id else ""]).encode())])
            case "POST":
                return await self._post(call)
            case "DELETE":
                return await self._delete(call)
        if call.id == _REVOCATIONS:
            return await self._revocations(call)
        return await (self._one(call) if call.id else self._list(call))

    def refuse(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """A problem document like everybody's, and beside it what this protocol calls an error (P-34)."""
        codes = error_codes(error)
        retry_after = error.retry_after
        if retry_after is None and codes.http in _RETRIED and not isinstance(error, Revoked):
            retry_after = error.retry_after = _RETRY_AFTER.get(codes.ann)
        told: dict[str, Any] = {"code": codes.ann, "message": error.message}
        if "reason" in error.details:
            told["reason"] = error.details["reason"]
        if retry_after is not None:
            told["retry_after"] = retry_after
        problem = problem_json(error, instance=problem_instance(request), correlation_id=request_id)
        body = dump_json({**problem, "protocol_version": _VERSION, "error": told})
        return Response(codes.http, body, content_type=PROBLEM, headers=problem_headers(error))

    # --- POST ------------------------------------------------------------------------------------

    async def _post(self, call: RequestContext) -> AnyResponse:
        request, principal = call.request, call.principal
        if principal.is_anonymous and not self._anonymous_read:
            require_scope(principal, SCOPE_WRITE)
        _check_media_type(request)
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
        request = call.request
        dialect, decoded = self._registry.decode(body, dialect="announce")
        if message.get("action") == SHUTDOWN:
            return await self._goodbye(call, message, minor)
        receipt = await self._registry.publish(
            Publication(
                dialect=dialect,
                document=body,
                decoded=decoded,
                principal=call.principal,
                via=request.scope.get(websockets.VIA_SCOPE_KEY, VIA_ANNOUNCE),
                visibility=read_visibility(request),
                ttl_seconds=read_ttl(request),
                gated=True,
            )
        )
        return self._echo(message, minor, receipt)

    def _echo(self, message: JsonObject, minor: int, receipt: PublicationReceipt | None) -> Response:
        """P-25. What has ended lives no longer."""
        ended = receipt is None or receipt.registration is None
        now = self._registry.clock.now()
        ends = now if receipt is None or receipt.expires_at is None else receipt.expires_at
        body = encode_response(
            dump_json(message["agent"]),
            signatures_of(message),
            version=negotiated_version(minor),
            ttl=0 if receipt is None or ended else receipt.ttl_seconds,
            expires_at=to_rfc3339(ends),
            coalesced=receipt is not None and receipt.outcome in ("refreshed", "unchanged"),
            warnings=list(receipt.warnings) or None if receipt is not None else None,
        )
        return Response(200, body, headers=[(b"cache-control", b"no-store")])

    async def _goodbye(self, call: RequestContext, message: JsonObject, minor: int) -> Response:
        """P-19: `action` stands outside the signature, so it counts only for whoever owns the record."""
        await self._registry.withdraw(
            call.principal,
            _record_id(message["agent"]["agent_id"]),
            repeat_ok=True,
            via=call.request.scope.get(websockets.VIA_SCOPE_KEY, VIA_ANNOUNCE),
        )
        return self._echo(message, minor, None)

    async def _query(self, call: RequestContext, message: JsonObject) -> AnyResponse:
        require_scope(call.principal, SCOPE_READ, anonymous_ok=self._anonymous_read)
        if self._rates is not None:
            self._rates.read(call.principal, call.principal.address)
        query = parse_query(message)
        listed = await self._views.page(call.principal, query, _announce_filter(call.request, query))
        body = _list_body(listed, negotiated_version(query.minor), query.query_id)
        return Response(200, body, headers=[(b"cache-control", b"no-store")])

    def _warn_of_version(self, principal: Principal, minor: int) -> None:
        """ANN-51: another minor is processed, and told of once an hour for each peer."""
        if minor == 0:
            return
        peer, now = principal.subject or principal.address, self._registry.clock.now()
        last = self._warned.get(peer)
        if last is None or now - last >= limits.VERSION_WARN_SECONDS:
            self._warned.put(peer, now)
            log.warning("%s speaks v1.%d; it is read as %s", peer, minor, negotiated_version(minor))

    # --- GET and DELETE --------------------------------------------------------------------------

    async def _list(self, call: RequestContext) -> AnyResponse:
        query = _read_query(call.request)
        listed = await self._views.page(call.principal, query, _announce_filter(call.request, query))
        last_modified = self._registry.entries.last_modified(audience(call.principal))
        return list_response(call.request, _list_body(listed, _VERSION), last_modified)

    async def _one(self, call: RequestContext) -> AnyResponse:
        view = await self._views.get(call.principal, call.id)
        return list_response(call.request, view.body, view.changed_at)

    async def _revocations(self, call: RequestContext) -> AnyResponse:
        """P-14. What is revoked is for all readers to know: they may have cached it."""
        found = [row for row in await self._registry.trust.revocations() if row.kind in ("key", "agent")]
        body = dump_json({"protocol_version": _VERSION, "revoked": [row.told() for row in found]})
        return list_response(call.request, body, max((row.revoked_at for row in found), default=None))

    async def _delete(self, call: RequestContext) -> AnyResponse:
        """Withdraw, by the owner; again is the same as once."""
        try:
            key = (await self._views.resolve(call.principal, call.id)).id
        except NotFound:
            key = _record_id(call.id)
        await self._registry.withdraw(call.principal, key, repeat_ok=True, via="announce")
        return Response(204)


def _segment(request: Request) -> bytes:
    raw: bytes = request.scope.get("raw_path") or request.path.encode()
    segment = raw.removeprefix(_PATH).removeprefix(b"/")
    if b"/" in segment:
        raise NotFound("Nothing is served at this path.", path="path", hint="Percent-encode an id with a slash.")
    return segment


def _check_method(method: str, kind: str) -> None:
    if method not in _METHODS[kind]:
        raise MethodNotAllowed(
            f"{method[:16]} is not allowed here.",
            path="method",
            hint=f"Use {', '.join(_METHODS[kind])}.",
            details={"allow": list(_METHODS[kind])},
        )


def _check_media_type(request: Request) -> None:
    given = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise UnsupportedMediaType(
            f"{given[:64]!r} is not read here.", path="Content-Type", hint="Send application/json."
        )


def _record_id(agent_id: str) -> str:
    found = find_agent_id(agent_id)
    return agent_id if found is None else f"urn:uuid:{found}"


def _read_query(request: Request) -> AgentQuery:
    told = [value for name, value in request.query if name == "capability"]
    if len(told) > _FILTERS:
        raise InvalidParameter(
            f"{len(told)} capabilities are asked for; at most {_FILTERS} are read.",
            path="capability",
            hint="Ask for fewer.",
        )
    agent_id = request.param("agent_id")
    return AgentQuery(
        wanted=tuple(map(parse_capability_requirement, told)),
        agent_id=None if agent_id is None else agent_id.strip().lower(),
    )


def _announce_filter(request: Request, query: AgentQuery) -> AnnouncedFilter:
    return AnnouncedFilter(
        names=tuple(wanted.name for wanted in query.wanted if wanted.name != "*"),
        signed=_read_switch(request, "signed"),
        limit=read_limit(request),
        cursor=request.param("cursor"),
    )


def _read_switch(request: Request, name: str) -> bool:
    text = request.param(name)
    if text not in (None, "true", "false"):
        raise InvalidParameter(f"{name} must be true or false.", path=name, hint="Leave it out for false.")
    return text == "true"


def _list_body(listed: AnnouncePage, version: str, query_id: str | None = None) -> bytes:
    head: JsonObject = {"protocol_version": version}
    if query_id is not None:
        head["query_id"] = query_id
    tail = b',"next_cursor":' + dump_json(listed.next_cursor) if listed.next_cursor else b""
    return dump_json(head)[:-1] + b',"agents":[' + b",".join(listed.bodies) + b"]" + tail + b"}"
