"""The RTFS registry over HTTP: JSON-RPC 2.0 and `(discover-agents …)` forms on `POST /rtfs` (rtfs.md §4, §5, §7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import (
    EndpointRejected,
    InvalidCursor,
    InvalidDocument,
    InvalidParameter,
    InvalidRequest,
    MethodNotAllowed,
    NotOwner,
    OwnerConflict,
    TooLarge,
    Unauthorized,
    WaypostError,
    error_codes,
)
from waypost.model.json import JsonObject, dump_json, kind_of
from waypost.model.names import is_same_id
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal, require_scope
from waypost.model.registration import parse_ttl
from waypost.model.times import to_rfc3339
from waypost.protocols.codec import DecodeContext, Decoded
from waypost.protocols.dialects import decode_document
from waypost.protocols.jsonrpc import (
    CALL_SCHEMA,
    NULL_ID,
    REPLY_SCHEMA,
    RpcCall,
    RpcRejection,
    encode_replies,
    error_reply,
    parse_calls,
    result_reply,
)
from waypost.protocols.rtfs.codec import CARD, RTFS
from waypost.protocols.rtfs.criteria import parse_criteria
from waypost.protocols.rtfs.discover_form import METHOD as DISCOVER
from waypost.protocols.rtfs.discover_form import failed_discovery, parse_discover, parse_response
from waypost.protocols.rtfs.sexpr import RTFS_TEXT_TYPE
from waypost.registry.publication import Publication, PublicationReceipt
from waypost.registry.registry import Registry
from waypost.server.api.rtfs.search import CardBudget, CardSearch
from waypost.server.auth.callers import RateLimits
from waypost.server.http.asgi import AnyResponse, Headers, Request, Response, json_response
from waypost.server.http.problems import problem_headers
from waypost.server.http.request_params import check_media_type, media_type_of, read_visibility
from waypost.server.http.routing import BodySpec, Route
from waypost.server.web.layout import html_response, plain_page

TOKEN_PREFIX = "wpr_"

_RPC_PATHS = frozenset((b"/rtfs", b"/rtfs/", b"/rtfs/register", b"/rtfs/discover"))
_HEALTH_PATH = "/rtfs/health"
_MEDIA_TYPES = ("application/json", "application/json-rpc", RTFS_TEXT_TYPE)
_TOKEN_PURPOSE = "rtfs-registration"
_SCHEMES = frozenset(("http", "https", "ws", "wss", "grpc", "grpcs", "tcp"))
_ERROR_PATHS = {"id": "agent_id", "$.id": "$.agent_id"}  # the registry's names of members to those of a card
_NO_STORE = (b"cache-control", b"no-store")


class RtfsCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of all calls of one request."""

    principal: Principal
    bearer: str | None = None  # a registration token sent as the bearer token
    visibility: str | None = None
    budget: CardBudget


RtfsMethod = Callable[[JsonObject, RtfsCaller], Awaitable[JsonObject]]


class RtfsApi:
    name = "rtfs"
    first_segments: tuple[bytes, ...] = (b"rtfs",)

    def __init__(
        self,
        registry: Registry,
        *,
        anonymous_read: bool = False,
        list_all: bool = False,
        rates: RateLimits | None = None,
    ) -> None:
        self._registry = registry
        self._rates = rates
        self._methods = RtfsMethods(registry, anonymous_read=anonymous_read, list_all=list_all)
        self._anonymous_read = anonymous_read

    def claims(self, raw_path: bytes) -> bool:
        return raw_path in _RPC_PATHS or raw_path == _HEALTH_PATH.encode()

    def is_public(self, request: Request) -> bool:
        """True for descriptions, and for calls with a registration token, which `RtfsMethods` checks itself."""
        return request.method != "POST" or _registration_token(request) is not None

    def required_scope(self, request: Request) -> str | None:
        return None  # each call of a batch has its own

    async def handle(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if request.method != "POST":
            return self._describe(request)
        token = _registration_token(request)
        if principal.is_anonymous and token is None and not self._anonymous_read:
            raise Unauthorized(
                "This needs a token.",
                path="Authorization",
                hint="Send Authorization: Bearer <token>; `waypost token mint` makes one.",
            )
        media_type = check_media_type(request, *_MEDIA_TYPES)
        body = await request.body(limits.RPC_BYTES)
        if media_type == RTFS_TEXT_TYPE:
            return await self._answer_form(request, principal, body)
        return await self.answer_calls(request, principal, body)

    async def answer_calls(self, request: Request, principal: Principal, body: bytes) -> Response:
        """The response to a JSON-RPC body, which may have been sent to the path of another API (RTFS-30)."""
        caller = self._caller(request, principal)
        incoming = parse_calls(body)
        self._limit_rate(incoming.calls, principal)
        replies = [reply for call in incoming.calls if (reply := await self._reply(call, caller)) is not None]
        joined = encode_replies(replies, is_batch=incoming.is_batch)
        if joined is None:
            return Response(204, headers=[_NO_STORE])
        return Response(200, joined, headers=[_NO_STORE])

    async def _answer_form(self, request: Request, principal: Principal, body: bytes) -> Response:
        """The value of a `(discover-agents …)` form (RTFS-60…63).

        The form becomes the call that a client would send, and the reply becomes the value that a client would make
        of it. Options concern the caller alone, so `:registry-uri` is ignored here.
        """
        try:
            form = parse_discover(body)
        except InvalidRequest as error:
            return _form_response(200, failed_discovery(error).text, [_NO_STORE])
        call = RpcCall(DISCOVER, form.params, b'""')
        self._limit_rate([call], principal)
        reply = await self._reply(call, self._caller(request, principal)) or b""
        # Many large cards take longer than other requests should wait.
        text = await asyncio.to_thread(lambda: parse_response(200, reply, "", warnings=form.warnings).text)
        return _form_response(200, text, [_NO_STORE])

    def _caller(self, request: Request, principal: Principal) -> RtfsCaller:
        return RtfsCaller(
            principal=principal,
            bearer=_registration_token(request),
            visibility=read_visibility(request),
            budget=CardBudget(),
        )

    def _limit_rate(self, calls: Sequence[RpcCall | RpcRejection], principal: Principal) -> None:
        """Count each call of a batch."""
        if self._rates is None:
            return
        reads = sum(isinstance(call, RpcCall) and call.method == DISCOVER for call in calls)
        if reads:
            self._rates.read(principal, principal.address, reads)
        if len(calls) > reads:
            self._rates.write(principal, principal.address, len(calls) - reads)

    async def _reply(self, call: RpcCall | RpcRejection, caller: RtfsCaller) -> bytes | None:
        if isinstance(call, RpcRejection):
            return error_reply(call.id, call.error)
        try:
            result = await self._methods.get(call.method)(call.named_params(), caller)
        except WaypostError as error:
            return None if call.id is None else error_reply(call.id, _to_rtfs_error(error))
        return None if call.id is None else result_reply(call.id, result)

    def error_response(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """The response to a request that was refused before a call was read: an HTTP status with a JSON-RPC error."""
        status, body = error_codes(error).http, error_reply(NULL_ID, error)
        if media_type_of(request) == RTFS_TEXT_TYPE:
            return _form_response(status, parse_response(status, body, "").text, problem_headers(error))
        return Response(status, body, headers=problem_headers(error))

    def _describe(self, request: Request) -> Response:
        if request.path == _HEALTH_PATH and request.method in ("GET", "HEAD"):
            ready = self._registry.ready
            return json_response({"status": "ok" if ready else "starting"}, 200 if ready else 503)
        if request.method in ("GET", "HEAD") and "text/html" in (request.header(b"accept") or ""):
            return html_response(self._page(), private=True)
        raise MethodNotAllowed(
            "This address takes JSON-RPC calls by POST.",
            path="method",
            hint=f"Known methods: {', '.join(self._methods.names)}.",
            details={"allow": ("POST",)},
        )

    def _page(self) -> bytes:
        return plain_page("rtfs.html", "RTFS registry", methods=self._methods.names, text_type=RTFS_TEXT_TYPE)


def _form_response(status: int, text: str, headers: Headers) -> Response:
    return Response(status, text.encode(), content_type=RTFS_TEXT_TYPE.encode(), headers=headers)


def _to_rtfs_error(error: WaypostError) -> WaypostError:
    """The same error with the names of a card; the message of a refused card begins as rtfs.md §4 says."""
    message, details = error.message, error.details
    path = _ERROR_PATHS.get(error.path or "", error.path)
    if isinstance(error, InvalidDocument):
        message = f"Registration failed: {message}"
        details = {"errors": [{"path": path, "reason": error.message}]} | details
    return type(error)(message, path=path, hint=error.hint, retry_after=error.retry_after, details=details)


def _registration_token(request: Request) -> str | None:
    scheme, _, token = (request.header(b"authorization") or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.startswith(TOKEN_PREFIX) else None


class RtfsMethods:
    """The methods of the registry: parameters in, an operation of the registry, a result out (rtfs.md §5).

    `list_all` allows a search without criteria (P-27); `anonymous_read` allows a search without a token.
    """

    def __init__(self, registry: Registry, *, anonymous_read: bool, list_all: bool) -> None:
        self._registry = registry
        self._search = CardSearch(registry)
        self._anonymous_read = anonymous_read
        self._list_all = list_all
        self._methods: dict[str, RtfsMethod] = {
            "rtfs.registry.register": self._register,
            DISCOVER: self._discover,
            "rtfs.registry.deregister": self._deregister,
            "rtfs.registry.heartbeat": self._heartbeat,
            "rtfs.registry.refresh": self._heartbeat,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._methods)

    def get(self, name: str) -> RtfsMethod:
        method = self._methods.get(name)
        if method is None:
            raise MethodNotAllowed(
                f"There is no method {name[:64]!r}.", path="method", hint=f"Known: {', '.join(self._methods)}."
            )
        return method

    async def _register(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        card = params.get(CARD)
        if card is None:
            raise InvalidParameter("agent_card is missing.", path=CARD)
        if not isinstance(card, dict):
            raise InvalidDocument(f"agent_card must be an object, not {kind_of(card)}.", path=CARD)
        endpoint = _parse_endpoint_url(params)
        # Given explicitly, because an unchanged card restarts its lease too (RTFS-42).
        ttl_seconds = _parse_ttl(params) or limits.TTL_DEFAULT_SECONDS["rtfs"]
        principal = self._authorize(caller, params, card.get("agent_id"), OwnerConflict)
        document = _document_of(card, endpoint)
        publication = Publication(
            dialect="rtfs",
            document=dump_json(document),
            decoded=self._decode(document, endpoint),
            principal=principal,
            via="rtfs",
            visibility=caller.visibility,
            ttl_seconds=ttl_seconds,
            source_url=endpoint,
        )
        receipt = await self._registry.publish(publication)
        agent_id = card["agent_id"]
        result: JsonObject = {"status": "registered", "agent_id": agent_id} | _lease(receipt)
        result["outcome"] = receipt.outcome
        if receipt.created and principal.via == "open":
            result["registration_token"] = self._registration_token(agent_id, principal.subject or "")
        losses = [f"{loss.path}: {loss.reason}" for loss in receipt.losses]
        ignored = _ignored(params, (CARD, "endpoint_url", "ttl_seconds", "registration_token"))
        return result | _with_warnings([*receipt.warnings, *losses, *ignored])

    def _decode(self, document: JsonObject, endpoint: str | None) -> Decoded:
        context = DecodeContext(now=self._registry.clock.latest(), base_url=endpoint)
        try:
            decoded = decode_document(dump_json(document), RTFS.name, context)[2]
        except TooLarge as error:
            raise InvalidDocument(error.message, path=error.path, hint=error.hint) from None
        if not decoded.record.bindings:
            raise InvalidDocument(
                "The card names no endpoint.", path="$.communication.endpoints", hint="Add one, or give endpoint_url."
            )
        return decoded

    async def _heartbeat(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        agent_id, ttl_seconds = _parse_agent_id(params), _parse_ttl(params)
        principal = self._authorize(caller, params, agent_id, NotOwner)
        receipt = await self._registry.renew(principal, agent_id, ttl_seconds)
        result: JsonObject = {"status": "refreshed", "agent_id": agent_id} | _lease(receipt)
        return result | _with_warnings(_ignored(params, ("agent_id", "ttl_seconds", "registration_token")))

    async def _deregister(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        agent_id = _parse_agent_id(params)
        principal = self._authorize(caller, params, agent_id, NotOwner)
        outcome = await self._registry.withdraw(principal, agent_id, repeat_ok=True, via="rtfs")
        result: JsonObject = {"status": "deregistered", "agent_id": agent_id}
        if outcome == "already":
            result["already"] = True
        return result | _with_warnings(_ignored(params, ("agent_id", "registration_token")))

    async def _discover(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        require_scope(caller.principal, SCOPE_READ, anonymous_ok=self._anonymous_read)
        criteria = parse_criteria(params, list_all=self._list_all)
        found = await self._search.find(criteria, caller.principal, params, caller.budget)
        result: JsonObject = {"agents": found.cards, "total": found.total}
        if found.next_cursor is not None:
            result |= {"has_more": True, "next_cursor": found.next_cursor}
        return result | _with_warnings([*found.warnings, *map(_ignored_warning, criteria.unknown)])

    # --- Authorization of writes -----------------------------------------------------------------

    def _authorize(
        self, caller: RtfsCaller, params: JsonObject, agent_id: object, refusal: type[NotOwner] | type[OwnerConflict]
    ) -> Principal:
        """The authenticated subject, else the subject that the registration token of this agent names."""
        token = params.get("registration_token", caller.bearer)
        if token is None or (not caller.principal.is_anonymous and caller.principal.via != "open"):
            require_scope(caller.principal, SCOPE_WRITE)
            return caller.principal
        owner = self._find_token_owner(token, agent_id)
        if owner is None:
            raise refusal("The registration token does not belong to this agent.", path="registration_token")
        return Principal(
            subject=owner,
            scopes=frozenset((SCOPE_READ, SCOPE_WRITE)),
            via="registration-token",
            credential="registration-token",
            address=caller.principal.address,
        )

    def _registration_token(self, agent_id: str, owner: str) -> str:
        """Proof of having created a registration on a service without authentication (P-22)."""
        return TOKEN_PREFIX + self._registry.cursors.seal(_TOKEN_PURPOSE, msgspec.msgpack.encode((agent_id, owner)))

    def _find_token_owner(self, token: object, agent_id: object) -> str | None:
        if not isinstance(token, str) or not token.startswith(TOKEN_PREFIX):
            return None
        try:
            payload = self._registry.cursors.open(_TOKEN_PURPOSE, token.removeprefix(TOKEN_PREFIX))
        except InvalidCursor:
            return None
        token_agent_id, owner = msgspec.msgpack.decode(payload, type=tuple[str, str])
        return owner if isinstance(agent_id, str) and is_same_id(token_agent_id, agent_id) else None


def _document_of(card: JsonObject, endpoint: str | None) -> JsonObject:
    """The document to store: the card, inside its envelope if only the envelope names an endpoint."""
    communication = card.get("communication")
    has_endpoints = isinstance(communication, dict) and communication.get("endpoints")
    return card if has_endpoints or endpoint is None else {CARD: card, "endpoint_url": endpoint}


def _parse_agent_id(params: JsonObject) -> str:
    value = params.get("agent_id")
    if value is None:
        raise InvalidParameter("agent_id is missing.", path="agent_id")
    if not isinstance(value, str) or not value:
        raise InvalidParameter("agent_id must be a string that is not empty.", path="agent_id")
    return value


def _parse_ttl(params: JsonObject) -> int | None:
    value = params.get("ttl_seconds")
    if value is None:
        return None
    if isinstance(value, str):
        raise InvalidParameter("ttl_seconds must be a number, not a string.", path="ttl_seconds")
    return parse_ttl(value)


def _parse_endpoint_url(params: JsonObject) -> str | None:
    value = params.get("endpoint_url")
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidParameter(f"endpoint_url must be a string, not {kind_of(value)}.", path="endpoint_url")
    if not _is_usable_endpoint(value):
        raise EndpointRejected(
            "endpoint_url is not an address that can be called.",
            path="endpoint_url",
            hint=f"Give an absolute URL ({', '.join(sorted(_SCHEMES))}) without user and password.",
        )
    return value


def _is_usable_endpoint(url: str) -> bool:
    if len(url) > limits.ENDPOINT_CHARS or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.hostname or parts.username is not None or parts.port == 0:
            return False
    except ValueError:
        return False
    return not _is_unusable_host(parts.hostname)


def _is_unusable_host(host: str) -> bool:
    """True for link-local (cloud metadata services), multicast and unspecified addresses."""
    try:
        address = ip_address(host)
    except ValueError:
        return False  # a domain name: its addresses are checked when it is called
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return _is_unusable_host(str(address.ipv4_mapped))
    return address.is_link_local or address.is_multicast or address.is_unspecified


def _lease(receipt: PublicationReceipt) -> JsonObject:
    lease: JsonObject = {}
    if receipt.expires_at is not None:
        lease["expires_at"] = to_rfc3339(receipt.expires_at)
    if receipt.ttl_seconds is not None:
        lease["ttl_seconds"] = receipt.ttl_seconds
    return lease


def _ignored(params: JsonObject, known: tuple[str, ...]) -> list[str]:
    return [_ignored_warning(name) for name in params if name not in known]


def _ignored_warning(name: str) -> str:
    return f"{name[:64]}: not a parameter of this method; it was ignored."


def _with_warnings(warnings: list[str]) -> dict[str, Any]:
    return {"warnings": warnings} if warnings else {}


# --- Routes, for the API description -------------------------------------------------------------

RTFS_ROUTES = [
    Route(
        method="POST",
        path="/rtfs",
        operation="find",
        summary="RTFS registry: JSON-RPC 2.0 (rtfs.registry.register, .discover, .deregister, .heartbeat), or a "
        "(discover-agents …) form",
        body=BodySpec(
            schema={
                "oneOf": [CALL_SCHEMA, {"type": "array", "items": CALL_SCHEMA, "maxItems": limits.RPC_BATCH_CALLS}]
            },
            text=RTFS_TEXT_TYPE,
        ),
        answers={
            200: BodySpec(schema=REPLY_SCHEMA, text=RTFS_TEXT_TYPE),
            204: BodySpec(description="only notifications"),
            413: BodySpec(schema=REPLY_SCHEMA, text=RTFS_TEXT_TYPE, description="too large"),
            415: BodySpec(schema=REPLY_SCHEMA, description="neither JSON nor a form"),
        },
    ),
]
