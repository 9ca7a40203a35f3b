"""Who may do what: the one place where scopes, owners and visibility are decided.

Later checks (allow-list, signatures, client certificates) turn into a Principal or into verdicts before they get here.
"""

from __future__ import annotations

from waypost.errors import MissingScope, NotFound, NotOwner, Unauthorized
from waypost.model.principal import Principal, audience


def require_scope(principal: Principal, scope: str, *, anonymous_ok: bool = False) -> None:
    """Pass, or say what is missing: 401 for a caller nobody knows, 403 for a known one without the right."""
    if principal.has(scope) or (anonymous_ok and principal.is_anonymous):
        return
    if principal.is_anonymous:
        raise Unauthorized(
            f"This needs a token with the scope {scope}.",
            path="Authorization",
            hint="Send Authorization: Bearer <token>; `waypost token mint` makes one.",
        )
    raise MissingScope(
        f"The token of {principal.subject!r} lacks the scope {scope}.",
        path="Authorization",
        hint=f"Mint one with --scope {scope}.",
    )


def may_see(principal: Principal, scopes: tuple[str, ...]) -> bool:
    tokens = audience(principal)
    return tokens is None or not tokens.isdisjoint(scopes)


def may_change(principal: Principal, owner: str) -> bool:
    return principal.is_admin or principal.subject == owner


def require_owner(principal: Principal, owner: str, scopes: tuple[str, ...], name: str) -> None:
    """Hidden looks like absent; visible but foreign is refused."""
    if not may_see(principal, scopes):
        raise no_such_agent(name)
    if not may_change(principal, owner):
        raise NotOwner(
            "This agent belongs to another subject.", path="id", hint="Only its owner or an admin changes it."
        )


def require_bound(principal: Principal, *names: str) -> None:
    """A credential that is for one agent writes that agent and no other."""
    only = principal.only
    if only is not None and not any(name in (only, f"urn:uuid:{only}") for name in names):
        raise NotOwner(
            "This credential is for one agent, and this is another.",
            path="id",
            hint="Use the credential of this agent, or a token.",
        )


def no_such_agent(name: str, path: str = "id") -> NotFound:
    """The same words for unknown and hidden: the answer must not tell them apart."""
    shown = name if len(name) <= 64 else name[:63] + "…"
    return NotFound(
        f"No agent is registered as {shown!r}.", path=path, hint="List or find agents to see the ids in use."
    )
