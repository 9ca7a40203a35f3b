"""Who comes to a conversation before it has said who it is: the subject of its token, and the invitation that it shows.

An invitation lets in once for each of its uses. The use is of an agent with its key, so that whoever comes back by the same key
takes none (ADP-55, P-6). What it opens is one private agent; to anybody else that agent is not here.
"""

from __future__ import annotations

from waypost.meeting.invitations import Held, Invitations
from waypost.model.principal import ANONYMOUS, Principal
from waypost.model.registration import Entry
from waypost.server.asgi import Request
from waypost.server.auth import Authenticator
from waypost.trust.policy import may_see
from waypost.wire.agp_hello import Hello
from waypost.wire.invitation import SCHEME


class Visitor:
    def __init__(self, principal: Principal = ANONYMOUS, code: str | None = None, held: Held | None = None) -> None:
        self.principal = principal
        self._code = code
        self._held = held

    def sees(self, entry: Entry) -> bool:
        """Whether it may know of an agent: by its token, or by an invitation to this one."""
        return may_see(self.principal, entry.scopes) or self.is_invited_to(entry)

    def is_invited_to(self, entry: Entry) -> bool:
        return self._held is not None and self._held.record == entry.id

    async def redeem(self, invitations: Invitations, entry: Entry, hello: Hello) -> None:
        """Take a use of the invitation to an agent for another one, which must prove the key that it shows. When there is
        none left, it is not invited."""
        if self._code is None or not self.is_invited_to(entry) or may_see(self.principal, entry.scopes):
            return
        self._held = await invitations.redeem(self._code, entry.id, f"{hello.agent} {hello.fingerprint}")


async def visitor_of(request: Request, authenticator: Authenticator, invitations: Invitations | None) -> Visitor:
    """A token that is shown must hold; an invitation that does not is none."""
    scheme, _, credential = (request.header(b"authorization") or "").partition(" ")
    is_invitation = scheme.lower() == SCHEME.lower()
    code = credential.strip() if is_invitation else request.param("invite")
    principal = await authenticator.principal(request) if scheme and not is_invitation else ANONYMOUS
    if code is None or invitations is None:
        return Visitor(principal)
    return Visitor(principal, code, await invitations.find(code))


STRANGER = Visitor()
