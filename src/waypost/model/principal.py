"""The caller, its audience, and the access rules: the only place that decides about scopes, ownership and visibility.

Client certificates and tokens become a Principal, signatures and the allow-list become verdicts, before they get here.
A record is visible if one of its scopes is in the caller's audience.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from waypost.errors import MissingScope, NotFound, NotOwner, Unauthorized
from waypost.model.names import is_same_id

SCOPE_READ = "discover:read"

SCOPE_WRITE = "discover:write"

SCOPE_ADMIN = "admin"

SCOPES = (SCOPE_READ, SCOPE_WRITE, SCOPE_ADMIN)

LAN_SUBJECT = "urn:waypost:lan"  # owner of records received on the LAN, where only the agent's key is proof

LAN_VIA = "lan"

PUBLIC = "public"

INTERNAL = "internal"

PRIVATE = "private"

VISIBILITIES = (PUBLIC, INTERNAL, PRIVATE)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A subject with scopes. The anonymous caller has no subject.

    `credential` names the credential (never the secret), `address` is the origin of the request: both for the audit
    trail.
    """

    subject: str | None = None
    scopes: frozenset[str] = frozenset()
    via: str = "none"
    credential: str = ""
    address: str = ""
    only: str | None = None  # the one agent that this credential may write

    @property
    def is_admin(self) -> bool:
        return SCOPE_ADMIN in self.scopes

    @property
    def is_anonymous(self) -> bool:
        return self.subject is None

    def has(self, scope: str) -> bool:
        return scope in self.scopes or SCOPE_ADMIN in self.scopes


ANONYMOUS = Principal()


def record_scopes(owner: str, visibility: str, invitees: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the audience tokens under which a record is visible."""
    if visibility in (PUBLIC, INTERNAL):
        return (visibility,)
    return (f"private:{owner}", *(f"private:{subject}" for subject in invitees))


def audience(principal: Principal) -> frozenset[str] | None:
    """Return the audience tokens of a principal; None means that all records are visible (admin)."""
    if principal.is_admin:
        return None
    if principal.subject is None:
        return frozenset((PUBLIC,))
    return frozenset((PUBLIC, INTERNAL, f"private:{principal.subject}"))


def require_scope(principal: Principal, scope: str, *, anonymous_ok: bool = False) -> None:
    """Raise Unauthorized (401) for an anonymous caller, MissingScope (403) for a known one without the scope."""
    if principal.has(scope) or (anonymous_ok and principal.is_anonymous):
        return
    if principal.is_anonymous:
        raise Unauthorized(
            f"This request needs a token with the scope {scope}.",
            path="Authorization",
            hint="Send Authorization: Bearer <token>; `waypost token mint` makes one.",
        )
    raise MissingScope(
        f"The token of {principal.subject!r} lacks the scope {scope}.",
        path="Authorization",
        hint=f"Mint one with `waypost token mint --sub NAME --scope {scope}`.",
        details={"scope": scope},
    )


def may_see(principal: Principal, scopes: tuple[str, ...]) -> bool:
    tokens = audience(principal)
    return tokens is None or not tokens.isdisjoint(scopes)


def may_change(principal: Principal, owner: str) -> bool:
    return principal.is_admin or principal.subject == owner


def require_owner(principal: Principal, owner: str, scopes: tuple[str, ...], name: str) -> None:
    """Raise NotFound for a hidden record, NotOwner for a visible one of another subject."""
    if not may_see(principal, scopes):
        raise no_such_agent(name)
    if not may_change(principal, owner):
        raise NotOwner(
            "This agent belongs to another subject.", path="id", hint="Only its owner or an admin can change it."
        )


def require_bound(principal: Principal, *names: str) -> None:
    """Raise NotOwner if the credential is bound to another agent."""
    only = principal.only
    if only is not None and not any(is_same_id(name, only) for name in names):
        raise NotOwner(
            "This credential is bound to another agent.",
            path="id",
            hint="Use the credential of this agent, or a token.",
        )


def no_such_agent(name: str, path: str = "id", near: Sequence[str] = ()) -> NotFound:
    """Return the error for unknown and hidden agents: the response must not distinguish them."""
    hint = f"Did you mean {_either(near)}?" if near else "`waypost list` shows every id, `waypost find` searches."
    details = {"suggestions": list(near)} if near else {}
    return NotFound(f"No agent is registered as {_shown(name)}.", path=path, hint=hint, details=details)


def ambiguous_agent(name: str, ids: Sequence[str], *, has_more: bool) -> NotFound:
    """Return the error for a short name that several agents have."""
    more = " or another" if has_more else ""
    return NotFound(
        f"{'More than ' if has_more else ''}{len(ids)} agents are called {_shown(name)}.",
        path="id",
        hint=f"Give the whole id: {_either(ids)}{more}.",
        details={"suggestions": list(ids)},
    )


def _shown(name: str) -> str:
    return repr(name if len(name) <= 64 else name[:63] + "…")


def _either(ids: Sequence[str]) -> str:
    return " or ".join((", ".join(ids[:-1]), ids[-1])) if len(ids) > 1 else ids[0]
