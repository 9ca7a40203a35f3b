# Generated from waypost/client/aio by scripts/unasync.py. Edit that, then run the script.
"""The half of the client for operators of trust: who may announce, which keys are bound, what was revoked."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from waypost.client.calls import Call, json_call, json_of, present
from waypost.client.sync.connection import Connection
from waypost.client.trusted import AllowRule, Revocation, TrustedKey, TrustStore, revocations_of, rules_of

ALLOW = "/api/v1/allow"
KEYS = "/api/v1/keys"


class TrustCalls:
    _connection: Connection

    def allow_list(self) -> tuple[AllowRule, ...]:
        """The rules of the allow-list. Only admin may."""
        return rules_of(json_of(self._connection.send(Call(method="GET", path=ALLOW))))

    def allow_add(self, rule: str) -> AllowRule:
        """Let agents announce: an agent_id, `key:sha256:<hex>`, `san:<suffix>` or `*`. Only admin may."""
        return msgspec.convert(json_of(self._connection.send(json_call(ALLOW, {"rule": rule}))), AllowRule)

    def allow_remove(self, rule: str) -> None:
        """Remove a rule. Only admin may."""
        path = f"{ALLOW}/{quote(rule, safe='')}"
        self._connection.send(Call(method="DELETE", path=path, repeatable=False))

    def keys_list(
        self, agent_id: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> TrustStore:
        """A page of the trust store: the keys of all agents, then what was revoked; or both of one agent. Only admin may."""
        call = Call(method="GET", path=KEYS, params=present(agent_id=agent_id, limit=limit, cursor=cursor))
        return msgspec.convert(json_of(self._connection.send(call)), TrustStore)

    def keys_trust(self, agent_id: str, public_key: str) -> TrustedKey:
        """Bind a key (PEM) to an agent; the keys before it are retired. Only admin may."""
        call = json_call(KEYS, {"agent_id": agent_id, "public_key": public_key})
        return msgspec.convert(json_of(self._connection.send(call)), TrustedKey)

    def keys_revoke(
        self,
        *,
        key_id: str | None = None,
        agent_id: str | None = None,
        serial: str | None = None,
        token_id: str | None = None,
        reason: str | None = None,
    ) -> Revocation:
        """Revoke a key, an agent, a certificate or a token, at once and for good. Only admin may."""
        asked = {"key_id": key_id, "agent_id": agent_id, "serial": serial, "token_id": token_id, "reason": reason}
        named = {name: value for name, value in asked.items() if value is not None}
        return msgspec.convert(json_of(self._connection.send(json_call(f"{KEYS}:revoke", named))), Revocation)

    def revocations(self) -> tuple[Revocation, ...]:
        """Keys and agents that were revoked."""
        return revocations_of(json_of(self._connection.send(Call(method="GET", path="/agents/revocations"))))
