"""Following an invitation to an agent elsewhere: its document is fetched with the code, and must hold the key that was promised.

The key is kept as the agent's only where the agent's own domain gave the document: otherwise whoever writes an invitation could
put a key of theirs into the place of another agent's.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from waypost import limits
from waypost.errors import BadSignature, FetchFailed, FingerprintMismatch, InvalidDocument
from waypost.meeting.invitations import no_such_invitation
from waypost.meeting.signatures import SCHEME as AGENT_SCHEME
from waypost.meeting.signatures import parse_agent
from waypost.model.json import JsonObject, parse_object
from waypost.registry.fetching import Sender
from waypost.trust.checks.adp import parse_full
from waypost.trust.keys import PublicKey
from waypost.wire.invitation import SCHEME, Invitation


class Followed(NamedTuple):
    document: JsonObject
    key: PublicKey
    is_from_domain: bool  # the agent's own domain gave it


async def follow(invitation: Invitation, sender: Sender, now: float) -> Followed:
    if invitation.expires_at <= now:
        raise no_such_invitation()
    agent = parse_agent(invitation.agent, "$.invitation.invite.agent")
    url = invitation.well_known
    answer = await sender.send(
        url, "descriptor", method="GET", headers=[("Authorization", f"{SCHEME} {invitation.code}")]
    )
    if not answer.is_success:
        raise FetchFailed(
            f"The agent's server answered {answer.status}.", path="invitation", hint="Is the invitation used up?"
        )
    document = parse_object(answer.body, max_bytes=limits.DESCRIPTOR_BYTES)
    key = check_document(document, agent, invitation)
    return Followed(document, key, urlsplit(url).hostname == agent.removeprefix(AGENT_SCHEME))


def check_document(document: JsonObject, agent: str, invitation: Invitation) -> PublicKey:
    """P-6: the fingerprint of the invitation is the one that ADP-51 asks for."""
    identity = document.get("identity")
    stated = identity.get("publicKey") if isinstance(identity, dict) else None
    if not isinstance(identity, dict) or identity.get("id") != agent or not isinstance(stated, dict):
        raise InvalidDocument(
            f"The document is not the one of {agent}.", path="$.identity.id", hint="Ask for a new invitation."
        )
    key = parse_full(stated.get("full"))
    if key is None or key.fingerprint() != invitation.pubkey:
        raise FingerprintMismatch(
            f"{agent} shows another key than the one that the invitation names.",
            path="$.identity.publicKey.full",
            hint="Do not trust it; ask whoever invited you.",
        )
    if invitation.signature is not None and not invitation.is_signed_by(key):
        raise BadSignature("The invitation was changed.", path="$.invite.signature", hint="Ask for a new one.")
    return key
