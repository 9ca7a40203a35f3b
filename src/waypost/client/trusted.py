"""What the client gives back about the allow-list and the trust store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class AllowRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that lets agents announce."""

    rule: str
    added_at: str
    added_by: str = ""
    outcome: str | None = None  # added, unchanged: of the call that gave it


class TrustedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is, or was, bound to an agent."""

    agent_id: str
    key_id: str
    state: str  # active retiring retired revoked
    kind: str = ""
    via: str = ""
    first_seen: str | None = None
    until: str | None = None
    outcome: str | None = None  # trusted, unchanged: of the call that gave it


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """One of key_id, agent_id, serial and token_id says what was revoked."""

    revoked_at: str
    key_id: str | None = None
    agent_id: str | None = None
    serial: str | None = None
    token_id: str | None = None
    reason: str | None = None
    outcome: str | None = None  # revoked, already: of the call that gave it
    withdrawn: tuple[str, ...] = ()  # agents that went with it

    @property
    def what(self) -> str:
        if self.token_id is not None:
            return f"token:{self.token_id}"
        return self.key_id or self.agent_id or f"serial:{self.serial}"


class TrustStore(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the keys by agent, and of what was revoked. `next_cursor` is None on the last one."""

    keys: tuple[TrustedKey, ...] = ()
    revoked: tuple[Revocation, ...] = ()
    next_cursor: str | None = None


def rules_of(document: Mapping[str, Any]) -> tuple[AllowRule, ...]:
    return msgspec.convert(document["rules"], tuple[AllowRule, ...])


def revocations_of(document: Mapping[str, Any]) -> tuple[Revocation, ...]:
    return msgspec.convert(document["revoked"], tuple[Revocation, ...])
