"""Who asks, and what the asker may see. A record is seen when one of its scopes is in the asker's audience."""

from __future__ import annotations

import msgspec

SCOPE_READ = "discover:read"
SCOPE_WRITE = "discover:write"
SCOPE_ADMIN = "admin"
SCOPES = (SCOPE_READ, SCOPE_WRITE, SCOPE_ADMIN)

LAN_SUBJECT = "urn:waypost:lan"  # owns what was heard on the LAN: nobody but the key of the agent proves anything there
LAN_VIA = "lan"

PUBLIC = "public"
INTERNAL = "internal"
PRIVATE = "private"
VISIBILITIES = (PUBLIC, INTERNAL, PRIVATE)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A subject with scopes. `subject` None is the anonymous caller.

    `credential` names what proved it (never the secret), `address` where the request came from: both for the audit trail.
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
    """The audience tokens under which a record is seen."""
    if visibility in (PUBLIC, INTERNAL):
        return (visibility,)
    return (f"private:{owner}", *(f"private:{subject}" for subject in invitees))


def audience(principal: Principal) -> frozenset[str] | None:
    """The tokens a principal holds; None means that everything is seen (admin)."""
    if principal.is_admin:
        return None
    if principal.subject is None:
        return frozenset((PUBLIC,))
    return frozenset((PUBLIC, INTERNAL, f"private:{principal.subject}"))
