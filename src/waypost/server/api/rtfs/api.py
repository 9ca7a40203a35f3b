"""The methods of the RTFS registry: parameters in, an operation of the engine, a result out (rtfs.md §5)."""

from __future__ import annotations

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
    MethodNotAllowed,
    NotOwner,
    OwnerConflict,
    TooLarge,
    Unauthorized,
    UnsupportedMediaType,
    WaypostError,
    error_codes,
)
from waypost.model.json import JsonObject, dump_json, kind_of
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.model.registration import parse_ttl
from waypost.model.times import to_rfc3339
from waypost.protocols.codec import DecodeContext, Decoded
from waypost.protocols.dialects import decode_document
from waypost.protocols.jsonrpc import (
    NULL_ID,
    RpcCall,
    RpcRefusal,
    encode_replies,
    error_reply,
    parse_calls,
    result_reply,
)
from waypost.protocols.rtfs.codec import CARD, RTFS
from waypost.protocols.rtfs.criteria import parse_criteria
from waypost.registry.publication import Publication, PublicationReceipt
from waypost.registry.registry import Registry
from waypost.server.api.rtfs.search import CardBudget, CardSearch
from waypost.server.auth.rate_limits import RateLimits
from waypost.server.http.asgi import AnyResponse, Request, Response, json_response
from waypost.server.http.problems import problem_headers
from waypost.server.http.request_params import read_visibility
from waypost.server.web.layout import html_response, plain_page
from waypost.trust.policy import require_scope

TOKEN_PREFIX = "wpr_"

_TOKEN_PURPOSE = "rtfs-registration"

_SCHEMES = frozenset(("http", "https", "ws", "wss", "grpc", "grpcs", "tcp"))


class RtfsCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and what the request said besides its calls."""

    principal: Principal
    bearer: str | None = None  # a registration token in place of a credential
    visibility: str | None = None
    budget: CardBudget


class RtfsMethods:
    """`list_all` lets a search without criteria browse; `anonymous_read` lets anybody search."""

    def __init__(self, registry: Registry, *, anonymous_read: bool, list_all: bool) -> None:
        self._registry = registry
        self._search = CardSearch(registry)
        self._anonymous_read = anonymous_read
        self._list_all = list_all
        self._methods: dict[str, Callable[[JsonObject, RtfsCaller], Awaitable[JsonObject]]] = {
            "rtfs.registry.register": self._register,
            "rtfs.registry.discover": self._discover,
            "rtfs.registry.deregister": self._deregister,
            "rtfs.registry.heartbeat": self._heartbeat,
            "rtfs.registry.refresh": self._heartbeat,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._methods)

    def method(self, name: str) -> Callable[[JsonObject, RtfsCaller], Awaitable[JsonObject]]:
        found = self._methods.get(name)
        if found is None:
            raise MethodNotAllowed(
                f"There is no method {name[:64]!r}.", path="method", hint=f"Known: {', '.join(self._methods)}."
            )
        return found

    # --- Methods ---------------------------------------------------------------------------------

    async def _register(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        card = params.get(CARD)
        if card is None:
            raise InvalidParameter("agent_card is missing.", path=CARD)
        if not isinstance(card, dict):
            raise InvalidDocument(f"agent_card is an object, not {kind_of(card)}.", path=CARD)
        endpoint = _endpoint_url(params)
        ttl = _ttl(params) or limits.TTL_DEFAULT_SECONDS["rtfs"]  # also when the card is the one that is known
        principal = self._writer(caller, params, card.get("agent_id"), OwnerConflict)
        document = _document(card, endpoint)
        publication = Publication(
            dialect="rtfs",
            document=dump_json(document),
            decoded=self._decode(document, endpoint),
            principal=principal,
            via="rtfs",
            visibility=caller.visibility,
            ttl_seconds=ttl,
            source_url=endpoint,
        )
        receipt = await self._registry.publish(publication)
        known = (CARD, "endpoint_url", "ttl_seconds", "registration_token")
        return self._registered(card["agent_id"], receipt, principal, _unknown(params, known))

    async def _heartbeat(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        agent_id, ttl = _agent_id(params), _ttl(params)
        principal = self._writer(caller, params, agent_id, NotOwner)
        receipt = await self._registry.renew(principal, agent_id, ttl)
        result: JsonObject = {"status": "refreshed", "agent_id": agent_id} | _lease(receipt)
        return result | _with_warnings(_unknown(params, ("agent_id", "ttl_seconds", "registration_token")))

    async def _deregister(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        agent_id = _agent_id(params)
        principal = self._writer(caller, params, agent_id, NotOwner)
        outcome = await self._registry.withdraw(principal, agent_id, repeat_ok=True, via="rtfs")
        result: JsonObject = {"status": "deregistered", "agent_id": agent_id}
        if outcome == "already":
            result["already"] = True
        return result | _with_warnings(_unknown(params, ("agent_id", "registration_token")))

    async def _discover(self, params: JsonObject, caller: RtfsCaller) -> JsonObject:
        require_scope(caller.principal, SCOPE_READ, anonymous_ok=self._anonymous_read)
        criteria = parse_criteria(params, list_all=self._list_all)
        found = await self._search.find(criteria, caller.principal, params, caller.budget)
        result: JsonObject = {"agents": found.cards, "total": found.total}
        if found.next_cursor is not None:
            result |= {"has_more": True, "next_cursor": found.next_cursor}
        return result | _with_warnings([*found.warnings, *map(_ignored_warning, criteria.unknown)])

    # --- Registering -----------------------------------------------------------------------------

    def _decode(self, document: JsonObject, endpoint: str | None) -> Decoded:
        context = DecodeContext(now=self._registry.clock.now(), base_url=endpoint)
        try:  # as every document is read, bounds included
            decoded = decode_document(dump_json(document), RTFS.name, context)[2]
        except TooLarge as error:
            raise InvalidDocument(error.message, path=error.path, hint=error.hint) from None
        if not decoded.record.bindings:
            raise InvalidDocument(
                "The card names no endpoint.", path="$.communication.endpoints", hint="Add one, or give endpoint_url."
            )
        return decoded

    def _registered(
        self, agent_id: str, receipt: PublicationReceipt, principal: Principal, unknown: list[str]
    ) -> JsonObject:
        result: JsonObject = {"status": "registered", "agent_id": agent_id} | _lease(receipt)
        result["outcome"] = receipt.outcome
        if receipt.created and principal.via == "open":
            result["registration_token"] = self._token(agent_id, principal.subject or "")
        losses = [f"{loss.path}: {loss.reason}" for loss in receipt.losses]
        return result | _with_warnings([*receipt.warnings, *losses, *unknown])

    # --- Who writes ------------------------------------------------------------------------------

    def _token(self, agent_id: str, owner: str) -> str:
        """Proof of having created a registration where nobody is authenticated (P-22)."""
        return TOKEN_PREFIX + self._registry.seal.seal(_TOKEN_PURPOSE, msgspec.msgpack.encode((agent_id, owner)))

    def _writer(
        self, caller: RtfsCaller, params: JsonObject, agent_id: object, refusal: type[NotOwner] | type[OwnerConflict]
    ) -> Principal:
        """The authenticated subject, else whoever holds the registration token of this very agent."""
        token = params.get("registration_token", caller.bearer)
        if token is None or (not caller.principal.is_anonymous and caller.principal.via != "open"):
            require_scope(caller.principal, SCOPE_WRITE)
            return caller.principal
        owner = self._owner_by(token, agent_id)
        if owner is None:
            raise refusal("The registration token does not belong to this agent.", path="registration_token")
        return Principal(
            subject=owner,
            scopes=frozenset((SCOPE_READ, SCOPE_WRITE)),
            via="registration-token",
            credential="registration-token",
            address=caller.principal.address,
        )

    def _owner_by(self, token: object, agent_id: object) -> str | None:
        if not isinstance(token, str) or not token.startswith(TOKEN_PREFIX):
            return None
        try:
            sealed = self._registry.seal.open(_TOKEN_PURPOSE, token.removeprefix(TOKEN_PREFIX))
        except InvalidCursor:
            return None
        named, owner = msgspec.msgpack.decode(sealed, type=tuple[str, str])
        return owner if named == agent_id else None


def _document(card: JsonObject, endpoint: str | None) -> JsonObject:
    """What is kept: the card; with its envelope where only that says how to reach the agent."""
    communication = card.get("communication")
    named = isinstance(communication, dict) and communication.get("endpoints")
    return card if named or endpoint is None else {CARD: card, "endpoint_url": endpoint}


def _agent_id(params: JsonObject) -> str:
    value = params.get("agent_id")
    if value is None:
        raise InvalidParameter("agent_id is missing.", path="agent_id")
    if not isinstance(value, str) or not value:
        raise InvalidParameter("agent_id is a text, not empty.", path="agent_id")
    return value


def _ttl(params: JsonObject) -> int | None:
    value = params.get("ttl_seconds")
    if value is None:
        return None
    if isinstance(value, str):
        raise InvalidParameter("ttl_seconds is a number, not a string.", path="ttl_seconds")
    return parse_ttl(value)


def _endpoint_url(params: JsonObject) -> str | None:
    value = params.get("endpoint_url")
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidParameter(f"endpoint_url is a text, not {kind_of(value)}.", path="endpoint_url")
    if not _is_reachable(value):
        raise EndpointRejected(
            "endpoint_url is not an address that can be called.",
            path="endpoint_url",
            hint=f"Give an absolute URL ({', '.join(sorted(_SCHEMES))}) without user and password.",
        )
    return value


def _is_reachable(url: str) -> bool:
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
    """True for an address at which no agent can be: those of metadata services and of one link, all hosts, none at all."""
    try:
        address = ip_address(host)
    except ValueError:
        return False  # a name: what it leads to is looked at when it is called
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


def _unknown(params: JsonObject, known: tuple[str, ...]) -> list[str]:
    return [_ignored_warning(name) for name in params if name not in known]


def _ignored_warning(name: str) -> str:
    return f"{name[:64]}: not a parameter of this method; it was ignored."


def _with_warnings(warnings: list[str]) -> dict[str, Any]:
    return {"warnings": warnings} if warnings else {}


# ---- The RTFS registry over HTTP: JSON-RPC 2.0 on `POST /rtfs` (rtfs.md §4).

_CALLS = frozenset((b"/rtfs", b"/rtfs/", b"/rtfs/register", b"/rtfs/discover"))

_HEALTH = "/rtfs/health"

_MEDIA_TYPES = ("application/json", "application/json-rpc")

_PATHS = {"id": "agent_id", "$.id": "$.agent_id"}  # what the registry calls it, and what a card does

_NOT_STORED = (b"cache-control", b"no-store")

_DISCOVER = "rtfs.registry.discover"


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
        return raw_path in _CALLS or raw_path == _HEALTH.encode()

    def is_public(self, request: Request) -> bool:
        """What only describes; and calls that bring a registration token, which `RtfsMethods` judges itself."""
        return request.method != "POST" or _registration_token(request) is not None

    def scope(self, request: Request) -> str | None:
        return None  # each call of a batch needs its own

    async def answer(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if request.method != "POST":
            return self._describe(request)
        token = _registration_token(request)
        if principal.is_anonymous and token is None and not self._anonymous_read:
            raise Unauthorized(
                "This needs a token.",
                path="Authorization",
                hint="Send Authorization: Bearer <token>; `waypost token mint` makes one.",
            )
        _check_media_type(request)
        return await self.answer_calls(request, principal, await request.body(limits.RPC_BYTES))

    async def answer_calls(self, request: Request, principal: Principal, body: bytes) -> Response:
        """What was read from `request`, here or where another protocol is spoken too."""
        visibility = read_visibility(request)
        incoming = parse_calls(body)
        token = _registration_token(request)
        caller = RtfsCaller(principal=principal, bearer=token, visibility=visibility, budget=CardBudget())
        self._pace(incoming.calls, principal)
        replies = [reply for call in incoming.calls if (reply := await self._reply(call, caller)) is not None]
        joined = encode_replies(replies, is_batch=incoming.is_batch)
        if joined is None:
            return Response(204, headers=[_NOT_STORED])
        return Response(200, joined, headers=[_NOT_STORED])

    def _pace(self, calls: Sequence[RpcCall | RpcRefusal], principal: Principal) -> None:
        """Each call of a batch counts."""
        if self._rates is None:
            return
        reads = sum(isinstance(call, RpcCall) and call.method == _DISCOVER for call in calls)
        if reads:
            self._rates.read(principal, principal.address, reads)
        if len(calls) > reads:
            self._rates.write(principal, principal.address, len(calls) - reads)

    async def _reply(self, call: RpcCall | RpcRefusal, caller: RtfsCaller) -> bytes | None:
        if isinstance(call, RpcRefusal):
            return error_reply(call.id, call.error)
        try:
            result = await self._methods.method(call.method)(call.named_params(), caller)
        except WaypostError as error:
            return None if call.id is None else error_reply(call.id, _in_rtfs_terms(error))
        return None if call.id is None else result_reply(call.id, result)

    def refuse(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """Refused before any call was read: the HTTP status tells it, and the body says it in JSON-RPC."""
        return Response(error_codes(error).http, error_reply(NULL_ID, error), headers=problem_headers(error))

    def _describe(self, request: Request) -> Response:
        if request.path == _HEALTH and request.method in ("GET", "HEAD"):
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
        methods = "".join(f"<li><code>{name}</code></li>" for name in self._methods.names)
        return plain_page(
            "RTFS registry",
            "<h1>RTFS registry</h1><p>JSON-RPC 2.0 by <code>POST</code> to this address, as "
            f"<code>application/json</code>. Methods:</p><ul>{methods}</ul>",
        )


def _in_rtfs_terms(error: WaypostError) -> WaypostError:
    """In the words of the protocol: a refused card says so first, and the id of an agent is its `agent_id`."""
    message, details = error.message, error.details
    path = _PATHS.get(error.path or "", error.path)
    if isinstance(error, InvalidDocument):
        message = f"Registration failed: {message}"
        details = {"errors": [{"path": path, "reason": error.message}]} | details
    return type(error)(message, path=path, hint=error.hint, retry_after=error.retry_after, details=details)


def _registration_token(request: Request) -> str | None:
    scheme, _, token = (request.header(b"authorization") or "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token.startswith(TOKEN_PREFIX) else None


def _check_media_type(request: Request) -> None:
    given = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if given not in _MEDIA_TYPES:
        raise UnsupportedMediaType(
            f"{given[:64]!r} is not read here.", path="Content-Type", hint=f"Send {' or '.join(_MEDIA_TYPES)}."
        )
