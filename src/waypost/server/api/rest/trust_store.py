"""The allow-list and the trust store, for admins: who may announce, which keys are bound, and revocations."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound
from waypost.model.json import JsonObject
from waypost.model.names import parse_domain
from waypost.model.record import check_id
from waypost.model.times import rfc3339_or_none, to_rfc3339
from waypost.registry.registry import Registry
from waypost.registry.trust_store import AllowListEntry, RevocationEntry, RevokedKind, revocation_subject
from waypost.responses.trust import AllowEntry, AllowListResponse, RevokedItem, TrustedKey, TrustStorePage
from waypost.server.http.asgi import NO_STORE, AnyResponse, Response, json_response
from waypost.server.http.request_params import PAGE_PARAMETERS, read_object, read_page
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.trust.announce.signed_announcement import parse_announced_key
from waypost.trust.announce.trust_store import AgentPin, find_agent_id, parse_rule
from waypost.trust.keys.public_key import KEY_ID

_DOMAIN = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\.?\Z")
_TEXT = {"type": "string"}
_KINDS: dict[str, RevokedKind] = {"key_id": "key", "agent_id": "agent", "serial": "serial", "token_id": "token"}
_SERIAL = re.compile(r"[0-9a-f]{1,64}\Z")
_PURPOSE = "keys"


class TrustStoreApi:
    """`/api/v1/allow` and `/api/v1/keys`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.trust

    def routes(self) -> list[Route]:
        return [*self._allow_routes(), *self._key_routes()]

    def _allow_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/allow",
                operation="allow_list",
                handler=self.rules,
                summary="List the allow-list",
                answers={200: AllowListResponse},
            ),
            Route(
                method="POST",
                path="/api/v1/allow",
                operation="allow_add",
                handler=self.add_rule,
                summary="Add a rule to the allow-list",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["rule"],
                        "properties": {
                            "rule": {
                                "type": "string",
                                "description": "an agent_id, key:sha256:<hex>, san:<suffix> or *",
                            }
                        },
                    }
                ),
                answers={201: AllowEntry, 200: AllowEntry},
            ),
            Route(
                method="DELETE",
                path="/api/v1/allow/{id}",
                operation="allow_remove",
                handler=self.remove_rule,
                summary="Remove a rule from the allow-list",
                answers={204: BodySpec(description="removed")},
            ),
        ]

    def _key_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/keys",
                operation="keys_list",
                handler=self.keys,
                summary="List the trust store: keys by agent, and revocations",
                parameters=(ParameterSpec(name="agent_id", description="only keys of this agent"), *PAGE_PARAMETERS),
                answers={200: TrustStorePage},
            ),
            Route(
                method="POST",
                path="/api/v1/keys",
                operation="keys_trust",
                handler=self.trust,
                summary="Bind a key to an agent",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "required": ["agent_id", "public_key"],
                        "properties": {
                            "agent_id": {"type": "string", "description": "an agent_id, any id, or a domain"},
                            "public_key": {"type": "string", "description": "PEM"},
                        },
                    }
                ),
                answers={201: TrustedKey, 200: TrustedKey},
            ),
            Route(
                method="POST",
                path="/api/v1/keys:revoke",
                operation="keys_revoke",
                handler=self.revoke,
                summary="Revoke a key, an agent, a certificate or a token",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "properties": {**dict.fromkeys(_KINDS, _TEXT), "reason": _TEXT},
                        "description": "one of the four names, and a reason",
                    }
                ),
                answers={200: RevokedItem},
            ),
        ]

    # --- The allow-list --------------------------------------------------------------------------

    async def rules(self, call: RequestContext) -> AnyResponse:
        rules = tuple(_allow_entry(rule) for rule in await self._store.allow_rules())
        return json_response(AllowListResponse(rules=rules), headers=[NO_STORE])

    async def add_rule(self, call: RequestContext) -> AnyResponse:
        rule = parse_rule(_read_text(await read_object(call.request), "rule"), "$.rule")
        added, outcome = await self._store.allow(call.principal, rule)
        return json_response(_allow_entry(added, outcome), 201 if outcome == "added" else 200)

    async def remove_rule(self, call: RequestContext) -> AnyResponse:
        await self._store.disallow(call.principal, parse_rule(call.id))
        return Response(204)

    # --- Keys ------------------------------------------------------------------------------------

    async def keys(self, call: RequestContext) -> AnyResponse:
        """Pages list agents with their keys, then revocations. For one agent the answer is a single page."""
        agent, page = call.request.param("agent_id"), read_page(call.request)
        now = self._registry.clock.now()
        position: str | None = None
        rows: Sequence[AgentPin | RevocationEntry]
        if agent is not None:
            rows = await self._store.of_agent(self._trusted_name(call, agent, "agent_id"))
        else:
            rows, position = await self._store.page(self._position(page.cursor), page.limit)
        found = TrustStorePage(
            keys=tuple(key for pin in rows if isinstance(pin, AgentPin) for key in trusted_keys(pin, now)),
            revoked=tuple(row.view() for row in rows if isinstance(row, RevocationEntry)),
            next_cursor=position and self._registry.cursors.seal_page(_PURPOSE, position),
        )
        return json_response(found, headers=[NO_STORE])

    def _position(self, cursor: str | None) -> str:
        return "" if cursor is None else self._registry.cursors.open_page(_PURPOSE, cursor, str)

    async def trust(self, call: RequestContext) -> AnyResponse:
        request = await read_object(call.request)
        agent_id = self._trusted_name(call, _read_text(request, "agent_id"), "$.agent_id")
        key = parse_announced_key(_read_text(request, "public_key"), "$.public_key")
        pin, outcome = await self._store.trust(call.principal, agent_id, key)
        if outcome == "trusted":
            await self._registry.reverify(agent_id)
        bound = next(each for each in trusted_keys(pin, self._registry.clock.now()) if each.key_id == key.key_id)
        return json_response(msgspec.structs.replace(bound, outcome=outcome), 201 if outcome == "trusted" else 200)

    async def revoke(self, call: RequestContext) -> AnyResponse:
        result = await self._store.revoke(call.principal, self._read_revocation(call, await read_object(call.request)))
        revoked = msgspec.structs.replace(result.revocation.view(), outcome=result.outcome, withdrawn=result.withdrawn)
        return json_response(revoked, headers=[NO_STORE])

    def _read_revocation(self, call: RequestContext, request: JsonObject) -> RevocationEntry:
        named = [name for name in _KINDS if request.get(name) is not None]
        if len(named) != 1:
            raise InvalidParameter(
                "Name one thing to revoke.", path="$", hint=f"Send one of {', '.join(_KINDS)}, and a reason."
            )
        member = named[0]
        reason = request.get("reason") or ""
        if not isinstance(reason, str) or len(reason) > limits.REASON_CHARS:
            raise InvalidParameter(
                f"reason must be a string of at most {limits.REASON_CHARS} characters.", path="$.reason"
            )
        return RevocationEntry(
            kind=_KINDS[member],
            name=self._read_name(call, member, _read_text(request, member)),
            revoked_at=self._registry.clock.now(),
            reason=reason,
            revoked_by=call.principal.subject or "anonymous",
        )

    def _read_name(self, call: RequestContext, member: str, text: str) -> str:
        folded = text.strip().lower()
        if member == "agent_id":
            return self._revocable_agent(call, text.strip())
        if member == "key_id":
            folded = folded.removeprefix("key:")
            if not KEY_ID.match(folded):
                raise InvalidParameter(
                    f"{text[:80]!r} is not a key id.", path="$.key_id", hint="Write sha256: and 64 hex digits."
                )
            return folded
        if member == "serial":
            folded = folded.replace(":", "").lstrip("0")
            if not _SERIAL.match(folded):
                raise InvalidParameter(
                    f"{text[:80]!r} is not a serial number.", path="$.serial", hint="Write it in hex."
                )
            return folded
        return text.strip()

    def _revocable_agent(self, call: RequestContext, text: str) -> str:
        """A registered agent, a UUID or an id of another dialect. Anything else is refused, so that a typing error is not
        taken for a revocation."""
        name = self._agent_name(call, text)
        is_id = find_agent_id(name) is not None or (":" in name and not name.startswith(("sha256:", "key:")))
        if name == text and not is_id and self._registry.entries.find_named(text) is None:
            raise InvalidParameter(
                f"{text[:80]!r} is neither an agent nor a key.",
                path="$.agent_id",
                hint="Name an agent_id, a registered agent, or a key as sha256: and 64 hex digits.",
            )
        return name

    def _trusted_name(self, call: RequestContext, text: str, path: str) -> str:
        """The name to which a key is bound: a UUID, an id, or a domain for all ids of that domain."""
        text = text.strip()
        name = self._agent_name(call, check_id(text, path))
        return parse_domain(text, path) if name == text and _DOMAIN.match(text) else name

    def _agent_name(self, call: RequestContext, text: str) -> str:
        """The name under which an agent is trusted or revoked, from any of its names. An unknown agent keeps the given id."""
        try:
            return revocation_subject(self._registry.resolve(call.principal, text).id)
        except NotFound:
            return revocation_subject(text)


def trusted_keys(pin: AgentPin, now: float) -> list[TrustedKey]:
    return [
        TrustedKey(
            agent_id=pin.agent_id,
            key_id=key.key_id,
            kind=key.kind,
            state=key.state_at(now),
            via=key.via,
            first_seen=to_rfc3339(key.first_seen),
            until=rfc3339_or_none(key.until),
        )
        for key in pin.keys
    ]


def _allow_entry(entry: AllowListEntry, outcome: str | None = None) -> AllowEntry:
    return AllowEntry(rule=entry.rule, added_at=to_rfc3339(entry.added_at), added_by=entry.added_by, outcome=outcome)


def _read_text(request: JsonObject, name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > limits.REQUEST_BYTES:
        raise InvalidParameter(f"{name} must be a string.", path=f"$.{name}", hint=f"Add the member {name!r}.")
    return value
