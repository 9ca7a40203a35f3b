"""The caller and its audience. A record is visible if one of its scopes is in the caller's audience."""

from __future__ import annotations

import msgspec

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
