"""The allow-list and the trust store on the service's own face, for admins: who may announce, which keys are bound, what was
revoked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from waypost import limits
from waypost.errors import InvalidParameter, NotFound
from waypost.model.json import JsonObject, dump_json
from waypost.model.names import parse_domain
from waypost.model.record import check_id
from waypost.model.times import to_rfc3339
from waypost.registry.registry import Registry
from waypost.registry.trust_store import AllowListEntry, RevocationEntry, RevokedKind, revocation_subject
from waypost.server.http.asgi import AnyResponse, Response, json_response
from waypost.server.http.request_params import read_limit, read_object
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route
from waypost.trust.announce.allow_list import find_agent_id, parse_rule
from waypost.trust.announce.key_pins import AgentPin
from waypost.trust.announce.signed_announcement import parse_announced_key
from waypost.trust.keys.public_key import KEY_ID

_DOMAIN = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\.?\Z")
_TEXT: dict[str, Any] = {"type": "string"}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
RULE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["rule", "added_at", "added_by"],
    "properties": {"rule": _TEXT, "added_at": _TIME, "added_by": _TEXT, "outcome": {"enum": ["added", "unchanged"]}},
}
KEY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["agent_id", "key_id", "kind", "state", "via", "first_seen"],
    "properties": {
        "agent_id": _TEXT,
        "key_id": _TEXT,
        "kind": _TEXT,
        "state": {"enum": ["active", "retiring", "retired", "revoked"]},
        "via": _TEXT,
        "first_seen": _TIME,
        "until": _TIME,
        "outcome": {"enum": ["trusted", "unchanged"]},
    },
}
REVOCATION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["revoked_at"],
    "properties": {
        "key_id": _TEXT,
        "agent_id": _TEXT,
        "serial": _TEXT,
        "token_id": _TEXT,
        "revoked_at": _TIME,
        "reason": _TEXT,
        "outcome": {"enum": ["revoked", "already"]},
        "withdrawn": {"type": "array", "items": _TEXT, "description": "agents that went with it"},
    },
}
_KINDS: dict[str, RevokedKind] = {"key_id": "key", "agent_id": "agent", "serial": "serial", "token_id": "token"}
_SERIAL = re.compile(r"[0-9a-f]{1,64}\Z")
_NOT_STORED = (b"cache-control", b"no-store")
_PURPOSE = "keys"


class TrustStoreApi:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._book = registry.trust

    def routes(self) -> list[Route]:
        return [*self._allow_routes(), *self._key_routes()]

    def _allow_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/allow",
                operation="allow_list",
                handler=self.rules,
                summary="The allow-list",
                answers={200: BodySpec(schema=_array("rules", RULE_SCHEMA))},
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
                answers={201: BodySpec(schema=RULE_SCHEMA), 200: BodySpec(schema=RULE_SCHEMA)},
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
                summary="The trust store: keys by agent, and what was revoked",
                parameters=(
                    ParameterSpec(name="agent_id"),
                    ParameterSpec(name="limit", schema={"type": "integer", "minimum": 1, "maximum": limits.PAGE_MAX}),
                    ParameterSpec(name="cursor"),
                ),
                answers={
                    200: BodySpec(
                        schema={
                            "type": "object",
                            "required": ["keys", "revoked"],
                            "properties": {
                                "keys": {"type": "array", "items": KEY_SCHEMA},
                                "revoked": {"type": "array", "items": REVOCATION_SCHEMA},
                                "next_cursor": _TEXT,
                            },
                        }
                    )
                },
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
                answers={201: BodySpec(schema=KEY_SCHEMA), 200: BodySpec(schema=KEY_SCHEMA)},
            ),
            Route(
                method="POST",
                path="/api/v1/keys:revoke",
                operation="keys_revoke",
                handler=self.revoke,
                summary="Revoke a key, an agent, a certificate or a token, at once and for good",
                body=BodySpec(
                    schema={
                        "type": "object",
                        "properties": {**dict.fromkeys(_KINDS, _TEXT), "reason": _TEXT},
                        "description": "one of the four, and why",
                    }
                ),
                answers={200: BodySpec(schema=REVOCATION_SCHEMA)},
            ),
        ]

    # --- The allow-list --------------------------------------------------------------------------

    async def rules(self, call: RequestContext) -> AnyResponse:
        rows = [_rule_json(rule) for rule in await self._book.allow_rules()]
        return json_response({"rules": rows}, headers=[_NOT_STORED])

    async def add_rule(self, call: RequestContext) -> AnyResponse:
        rule = parse_rule(_text(await read_object(call.request), "rule"), "$.rule")
        held, outcome = await self._book.allow(call.principal, rule)
        return json_response({**_rule_json(held), "outcome": outcome}, 201 if outcome == "added" else 200)

    async def remove_rule(self, call: RequestContext) -> AnyResponse:
        await self._book.disallow(call.principal, parse_rule(call.id))
        return Response(204)

    # --- Keys ------------------------------------------------------------------------------------

    async def keys(self, call: RequestContext) -> AnyResponse:
        """Agents with their keys, then what was revoked, so many at a time. Of one agent: its own, at once."""
        wanted, limit = call.request.param("agent_id"), read_limit(call.request)
        now = self._registry.clock.now()
        place: str | None = None
        rows: Sequence[AgentPin | RevocationEntry]
        if wanted is not None:
            rows = await self._book.of_agent(self._trusted_name(call, wanted, "agent_id"))
        else:
            rows, place = await self._book.page(self._place(call.request.param("cursor")), limit)
        answer: JsonObject = {
            "keys": [row for pin in rows if isinstance(pin, AgentPin) for row in keys_json(pin, now)],
            "revoked": [row.told() for row in rows if isinstance(row, RevocationEntry)],
        }
        if place is not None:
            answer["next_cursor"] = self._registry.cursors.seal_page(_PURPOSE, place)
        return json_response(answer, headers=[_NOT_STORED])

    def _place(self, cursor: str | None) -> str:
        return "" if cursor is None else self._registry.cursors.open_page(_PURPOSE, cursor, str)

    async def trust(self, call: RequestContext) -> AnyResponse:
        asked = await read_object(call.request)
        agent_id = self._trusted_name(call, _text(asked, "agent_id"), "$.agent_id")
        key = parse_announced_key(_text(asked, "public_key"), "$.public_key")
        pin, outcome = await self._book.trust(call.principal, agent_id, key)
        if outcome == "trusted":
            await self._registry.reverify(agent_id)
        row = next(row for row in keys_json(pin, self._registry.clock.now()) if row["key_id"] == key.key_id)
        return json_response({**row, "outcome": outcome}, 201 if outcome == "trusted" else 200)

    async def revoke(self, call: RequestContext) -> AnyResponse:
        asked = await read_object(call.request)
        done = await self._book.revoke(call.principal, self._read_revocation(call, asked))
        answer = {**done.revocation.told(), "outcome": done.outcome, "withdrawn": list(done.withdrawn)}
        return Response(200, dump_json(answer), headers=[_NOT_STORED])

    def _read_revocation(self, call: RequestContext, asked: JsonObject) -> RevocationEntry:
        named = [name for name in _KINDS if asked.get(name) is not None]
        if len(named) != 1:
            raise InvalidParameter(
                "Name one thing to revoke.", path="$", hint=f"Send one of {', '.join(_KINDS)}, and a reason."
            )
        member = named[0]
        reason = asked.get("reason") or ""
        if not isinstance(reason, str) or len(reason) > limits.REASON_CHARS:
            raise InvalidParameter(f"reason is a text of at most {limits.REASON_CHARS} characters.", path="$.reason")
        return RevocationEntry(
            kind=_KINDS[member],
            name=self._read_name(call, member, _text(asked, member)),
            revoked_at=self._registry.clock.now(),
            reason=reason,
            revoked_by=call.principal.subject or "anonymous",
        )

    def _read_name(self, call: RequestContext, member: str, text: str) -> str:
        folded = text.strip().lower()
        if member == "agent_id":
            return self._revocable(call, text.strip())
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

    def _revocable(self, call: RequestContext, text: str) -> str:
        """An agent that is here, a UUID, or another dialect's id: a slip of the pen must not look like a revocation."""
        name = self._known_agent(call, text)
        is_id = find_agent_id(name) is not None or (":" in name and not name.startswith(("sha256:", "key:")))
        if name == text and not is_id and self._registry.entries.find_named(text) is None:
            raise InvalidParameter(
                f"{text[:80]!r} is neither an agent nor a key.",
                path="$.agent_id",
                hint="Name an agent_id, an agent that is registered, or a key as sha256: and 64 hex digits.",
            )
        return name

    def _trusted_name(self, call: RequestContext, text: str, path: str) -> str:
        """What a key is bound to: an announced agent by its UUID, another one by its id, all ids of a domain by its name."""
        text = text.strip()
        known = self._known_agent(call, check_id(text, path))
        return parse_domain(text, path) if known == text and _DOMAIN.match(text) else known

    def _known_agent(self, call: RequestContext, text: str) -> str:
        """The agent behind any of its names; one that is not here is revoked by the id that is given."""
        try:
            return revocation_subject(self._registry.resolve(call.principal, text).id)
        except NotFound:
            return revocation_subject(text)


def keys_json(pin: AgentPin, now: float) -> list[JsonObject]:
    return [
        {
            "agent_id": pin.agent_id,
            "key_id": key.key_id,
            "kind": key.kind,
            "state": key.state_at(now),
            "via": key.via,
            "first_seen": to_rfc3339(key.first_seen),
            **({"until": to_rfc3339(key.until)} if key.until is not None else {}),
        }
        for key in pin.keys
    ]


def _rule_json(rule: AllowListEntry) -> JsonObject:
    return {"rule": rule.rule, "added_at": to_rfc3339(rule.added_at), "added_by": rule.added_by}


def _text(asked: JsonObject, name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > limits.REQUEST_BYTES:
        raise InvalidParameter(f"{name} must be a text.", path=f"$.{name}", hint=f"Add the member {name!r}.")
    return value


def _array(name: str, items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": [name], "properties": {name: {"type": "array", "items": items}}}
