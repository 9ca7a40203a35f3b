"""The methods of the RTFS registry: parameters in, an operation of the engine, a result out (rtfs.md §5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.dialects import decode_document
from waypost.dialects.codec import DecodeContext, Decoded
from waypost.dialects.rtfs import RTFS
from waypost.dialects.rtfs_envelope import CARD
from waypost.dialects.rtfs_match import parse_criteria
from waypost.errors import (
    EndpointRejected,
    InvalidCursor,
    InvalidDocument,
    InvalidParameter,
    MethodNotAllowed,
    NotOwner,
    OwnerConflict,
    TooLarge,
)
from waypost.model.json import JsonObject, dump_json, kind_of
from waypost.model.lease import parse_ttl
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.model.times import to_rfc3339
from waypost.registry.engine import Registry
from waypost.registry.publication import Publication, Receipt
from waypost.server.rtfs_search import Budget, CardSearch
from waypost.trust.policy import require_scope

TOKEN_PREFIX = "wpr_"
_TOKEN = "rtfs-registration"
_SCHEMES = frozenset(("http", "https", "ws", "wss", "grpc", "grpcs", "tcp"))


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and what the request said besides its calls."""

    principal: Principal
    bearer: str | None = None  # a registration token in place of a credential
    visibility: str | None = None
    budget: Budget


class RtfsMethods:
    """`list_all` lets a search without criteria browse; `anonymous_read` lets anybody search."""

    def __init__(self, registry: Registry, *, anonymous_read: bool, list_all: bool) -> None:
        self._registry = registry
        self._search = CardSearch(registry)
        self._anonymous_read = anonymous_read
        self._list_all = list_all
        self._methods: dict[str, Callable[[JsonObject, Caller], Awaitable[JsonObject]]] = {
            "rtfs.registry.register": self._register,
            "rtfs.registry.discover": self._discover,
            "rtfs.registry.deregister": self._deregister,
            "rtfs.registry.heartbeat": self._heartbeat,
            "rtfs.registry.refresh": self._heartbeat,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._methods)

    def method(self, name: str) -> Callable[[JsonObject, Caller], Awaitable[JsonObject]]:
        found = self._methods.get(name)
        if found is None:
            raise MethodNotAllowed(
                f"There is no method {name[:64]!r}.", path="method", hint=f"Known: {', '.join(self._methods)}."
            )
        return found

    # --- Methods ---------------------------------------------------------------------------------

    async def _register(self, params: JsonObject, caller: Caller) -> JsonObject:
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

    async def _heartbeat(self, params: JsonObject, caller: Caller) -> JsonObject:
        agent_id, ttl = _agent_id(params), _ttl(params)
        principal = self._writer(caller, params, agent_id, NotOwner)
        receipt = await self._registry.renew(principal, agent_id, ttl)
        result: JsonObject = {"status": "refreshed", "agent_id": agent_id} | _lease(receipt)
        return result | _warned(_unknown(params, ("agent_id", "ttl_seconds", "registration_token")))

    async def _deregister(self, params: JsonObject, caller: Caller) -> JsonObject:
        agent_id = _agent_id(params)
        principal = self._writer(caller, params, agent_id, NotOwner)
        outcome = await self._registry.withdraw(principal, agent_id, repeat_ok=True, via="rtfs")
        result: JsonObject = {"status": "deregistered", "agent_id": agent_id}
        if outcome == "already":
            result["already"] = True
        return result | _warned(_unknown(params, ("agent_id", "registration_token")))

    async def _discover(self, params: JsonObject, caller: Caller) -> JsonObject:
        require_scope(caller.principal, SCOPE_READ, anonymous_ok=self._anonymous_read)
        criteria = parse_criteria(params, list_all=self._list_all)
        found = await self._search.find(criteria, caller.principal, params, caller.budget)
        result: JsonObject = {"agents": found.cards, "total": found.total}
        if found.next_cursor is not None:
            result |= {"has_more": True, "next_cursor": found.next_cursor}
        return result | _warned([*found.warnings, *map(_ignored, criteria.unknown)])

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

    def _registered(self, agent_id: str, receipt: Receipt, principal: Principal, unknown: list[str]) -> JsonObject:
        result: JsonObject = {"status": "registered", "agent_id": agent_id} | _lease(receipt)
        result["outcome"] = receipt.outcome
        if receipt.created and principal.via == "open":
            result["registration_token"] = self._token(agent_id, principal.subject or "")
        losses = [f"{loss.path}: {loss.reason}" for loss in receipt.losses]
        return result | _warned([*receipt.warnings, *losses, *unknown])

    # --- Who writes ------------------------------------------------------------------------------

    def _token(self, agent_id: str, owner: str) -> str:
        """Proof of having created a registration where nobody is authenticated (P-22)."""
        return TOKEN_PREFIX + self._registry.seal.seal(_TOKEN, msgspec.msgpack.encode((agent_id, owner)))

    def _writer(
        self, caller: Caller, params: JsonObject, agent_id: object, refusal: type[NotOwner] | type[OwnerConflict]
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
            sealed = self._registry.seal.open(_TOKEN, token.removeprefix(TOKEN_PREFIX))
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
    return not _is_nobodys(parts.hostname)


def _is_nobodys(host: str) -> bool:
    """True for an address at which no agent can be: those of metadata services and of one link, all hosts, none at all."""
    try:
        address = ip_address(host)
    except ValueError:
        return False  # a name: what it leads to is looked at when it is called
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return _is_nobodys(str(address.ipv4_mapped))
    return address.is_link_local or address.is_multicast or address.is_unspecified


def _lease(receipt: Receipt) -> JsonObject:
    lease: JsonObject = {}
    if receipt.expires_at is not None:
        lease["expires_at"] = to_rfc3339(receipt.expires_at)
    if receipt.ttl_seconds is not None:
        lease["ttl_seconds"] = receipt.ttl_seconds
    return lease


def _unknown(params: JsonObject, known: tuple[str, ...]) -> list[str]:
    return [_ignored(name) for name in params if name not in known]


def _ignored(name: str) -> str:
    return f"{name[:64]}: not a parameter of this method; it was ignored."


def _warned(warnings: list[str]) -> dict[str, Any]:
    return {"warnings": warnings} if warnings else {}
