"""Invitations to private agents (ADP-55, ADP-56, P-6), kept: made, shown once, redeemed as often as they allow, revoked.

Of a code only its hash is kept, so nobody who reads the file can use one. A wrong code, one that is used up, one that was revoked
and one that ran out are all the same to whoever shows it.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import BadSignature, FetchFailed, FingerprintMismatch, InvalidDocument, NotFound, RateLimited
from waypost.messaging.peers import PeerIdentity
from waypost.messaging.request_signatures import AGENT_URI_PREFIX as AGENT_SCHEME
from waypost.messaging.request_signatures import parse_agent_uri
from waypost.model.json import JsonObject, parse_object
from waypost.model.names import domain_of
from waypost.model.times import to_rfc3339
from waypost.protocols.adp.invitation import SCHEME, Invitation
from waypost.registry.ports import KeyValueItem, KeyValueStore, KeyValueWrite, OutboundSender
from waypost.responses.messaging import InvitationView
from waypost.trust.checks.adp import parse_full_key
from waypost.trust.keys.public_key import PublicKey, parse_der

INVITATION_KIND = "invite"

INVITATION_CODE_KIND = "invite-code"  # by the hash of the code

INVITED_AGENT_KIND = "invite-agent"  # by the agent

INVITATION_PIN_KIND = "invite-pin"  # keys of agents that somebody here was invited to

_MAX_RETRIES = 64

_KEEP_ENDED_SECONDS = 7 * 86_400  # how long one that is over is still listed


class StoredInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation as it is kept, without its code."""

    id: str
    record: str  # the id of the agent's record
    agent: str
    by: str
    created_at: float
    expires_at: float
    uses: int = 1
    used: int = 0
    revoked_at: float | None = None
    redeemed: tuple[str, ...] = ()  # by subjects that are known

    def state(self, now: float) -> str:
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at <= now:
            return "expired"
        return "open" if self.used < self.uses else "used"

    def view(self, now: float) -> InvitationView:
        """The invitation as answers show it, without its code."""
        return InvitationView(
            id=self.id,
            agent=self.agent,
            record=self.record,
            state=self.state(now),
            uses=self.uses,
            used=self.used,
            redeemed_by=self.redeemed,
            created=to_rfc3339(self.created_at),
            expires=to_rfc3339(self.expires_at),
            by=self.by,
        )


class InvitationPin(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str
    spki: bytes
    by: str


_decode_invitation = msgspec.msgpack.Decoder(StoredInvitation).decode

_decode_pin = msgspec.msgpack.Decoder(InvitationPin).decode


class InvitationStore:
    def __init__(self, keeper: KeyValueStore, now: Callable[[], float]) -> None:
        self._keeper = keeper
        self._now = now

    async def make(self, record: str, agent: str, by: str, uses: int, ttl_seconds: int) -> tuple[StoredInvitation, str]:
        """The invitation, and its code, which nobody can ask for again."""
        now = self._now()
        if (
            await self._keeper.count(INVITED_AGENT_KIND, now, prefix=_agent_prefix(record))
            >= limits.INVITATIONS_PER_AGENT
        ):
            raise RateLimited(
                f"An agent has at most {limits.INVITATIONS_PER_AGENT} invitations at a time.",
                path="$.agent",
                hint="Revoke some, or make one with more uses.",
                retry_after=60,
            )
        code = secrets.token_hex(limits.INVITATION_CODE_BYTES)
        held = StoredInvitation(
            id=uuid.uuid4().hex[:16],
            record=record,
            agent=agent,
            by=by,
            created_at=now,
            expires_at=float(int(now) + ttl_seconds),
            uses=uses,
        )
        ends = held.expires_at + _KEEP_ENDED_SECONDS
        writes = (
            self._write(held, None),
            KeyValueWrite(
                kind=INVITATION_CODE_KIND,
                key=_hash_code(code),
                value=held.id.encode(),
                expires_at=held.expires_at,
                expected=None,
            ),
            KeyValueWrite(
                kind=INVITED_AGENT_KIND,
                key=f"{_agent_prefix(record)}{held.id}",
                value=held.id.encode(),
                expires_at=ends,
            ),
        )
        await self._keeper.commit(writes, now)
        return held, code

    def _write(self, held: StoredInvitation, kept: bytes | None) -> KeyValueWrite:
        value = msgspec.msgpack.encode(held)
        ends = held.expires_at + _KEEP_ENDED_SECONDS
        return KeyValueWrite(kind=INVITATION_KIND, key=held.id, value=value, expires_at=ends, expected=kept)

    async def of(self, record: str) -> list[StoredInvitation]:
        found = await self._keeper.scan(
            INVITED_AGENT_KIND, self._now(), prefix=_agent_prefix(record), limit=limits.INVITATIONS_PER_AGENT
        )
        kept = [await self._keeper.get(INVITATION_KIND, one.value.decode(), self._now()) for one in found]
        return [_decode_invitation(value) for value in kept if value is not None]

    async def all(self, limit: int) -> list[StoredInvitation]:
        found: list[KeyValueItem] = await self._keeper.scan(INVITATION_KIND, self._now(), limit=limit)
        return [_decode_invitation(kept.value) for kept in found]

    async def get(self, invitation_id: str) -> StoredInvitation:
        kept = await self._keeper.get(INVITATION_KIND, invitation_id, self._now()) if len(invitation_id) <= 64 else None
        if kept is None:
            raise unknown_invitation_error(invitation_id)
        return _decode_invitation(kept)

    async def revoke(self, invitation_id: str) -> StoredInvitation:
        """No more use of it; who redeemed it before stays let in."""
        for _ in range(_MAX_RETRIES):
            kept = await self._keeper.get(INVITATION_KIND, invitation_id, self._now())
            if kept is None:
                raise invalid_invitation_error()
            held = _decode_invitation(kept)
            if held.revoked_at is not None:
                return held
            revoked = msgspec.structs.replace(held, revoked_at=self._now())
            if await self._keeper.commit((self._write(revoked, kept),), self._now()):
                return revoked
        raise invalid_invitation_error()

    async def find(self, code: str) -> StoredInvitation | None:
        """The invitation of a code that can be used now."""
        found = await self._keeper.get(INVITATION_CODE_KIND, _hash_code(code), self._now())
        kept = None if found is None else await self._keeper.get(INVITATION_KIND, found.decode(), self._now())
        held = None if kept is None else _decode_invitation(kept)
        return held if held is not None and held.state(self._now()) in ("open", "used") else None

    async def redeem(self, code: str, record: str | None = None, subject: str | None = None) -> StoredInvitation | None:
        """Take one use of it; None when there is none to take. A subject that redeemed it before takes none."""
        for _ in range(_MAX_RETRIES):
            found = await self.find(code)
            if found is None or (record is not None and found.record != record):
                return None
            kept = await self._keeper.get(INVITATION_KIND, found.id, self._now())
            held = found if kept is None else _decode_invitation(kept)
            if subject is not None and subject in held.redeemed:
                return held
            if held.state(self._now()) != "open":
                return None
            redeemed = held.redeemed if subject is None else (*held.redeemed, subject)
            used = msgspec.structs.replace(held, used=held.used + 1, redeemed=redeemed)
            if await self._keeper.commit((self._write(used, kept),), self._now()):
                return used
        return None

    async def give_back(self, invitation_id: str, subject: str | None) -> None:
        """A use that came to nothing."""
        for _ in range(_MAX_RETRIES):
            kept = await self._keeper.get(INVITATION_KIND, invitation_id, self._now())
            if kept is None:
                return
            held = _decode_invitation(kept)
            redeemed = tuple(name for name in held.redeemed if name != subject)
            freed = msgspec.structs.replace(held, used=max(0, held.used - 1), redeemed=redeemed)
            if await self._keeper.commit((self._write(freed, kept),), self._now()):
                return

    async def pin(self, agent: str, pin: InvitationPin) -> None:
        """The key of an agent that somebody was invited to: it stands in for the one of the DNS (P-6)."""
        await self._keeper.commit(
            (KeyValueWrite(kind=INVITATION_PIN_KIND, key=agent, value=msgspec.msgpack.encode(pin)),), self._now()
        )

    async def key_of(self, agent: str) -> PeerIdentity | None:
        """`PeerKeys` of peers.py."""
        kept = await self._keeper.get(INVITATION_PIN_KIND, agent, self._now())
        if kept is None:
            return None
        pin = _decode_pin(kept)
        return PeerIdentity(
            agent=agent,
            fingerprint=pin.fingerprint,
            by="invitation",
            key=parse_der(pin.spki),
            domain=domain_of(agent) or "",
        )


def invalid_invitation_error() -> NotFound:
    """The same words whatever is wrong with it."""
    return NotFound(
        "There is no such invitation, or it is over.", path="code", hint="Ask whoever invited you for a new one."
    )


def unknown_invitation_error(invitation_id: str) -> NotFound:
    """For who made invitations; the same words for unknown and foreign."""
    return NotFound(
        f"There is no invitation {invitation_id[:64]!r} of yours.",
        path="id",
        hint="`waypost invite list` shows them.",
    )


def _hash_code(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _agent_prefix(record: str) -> str:
    return f"{hashlib.sha256(record.encode()).hexdigest()[:32]} "


# ---- Following an invitation to an agent elsewhere: its document is fetched with the code, and must hold the key that
# was promised.
#
# The key is kept as the agent's only where the agent's own domain gave the document: otherwise whoever writes an invitation could
# put a key of theirs into the place of another agent's.


class InvitedDocument(NamedTuple):
    document: JsonObject
    key: PublicKey
    is_from_domain: bool  # the agent's own domain gave it


async def fetch_invited_document(invitation: Invitation, sender: OutboundSender, now: float) -> InvitedDocument:
    if invitation.expires_at <= now:
        raise invalid_invitation_error()
    agent = parse_agent_uri(invitation.agent, "$.invitation.invite.agent")
    url = invitation.well_known
    answer = await sender.send(
        url, "descriptor", method="GET", headers=[("Authorization", f"{SCHEME} {invitation.code}")]
    )
    if not answer.is_success:
        raise FetchFailed(
            f"The agent's server answered {answer.status}.", path="invitation", hint="Is the invitation used up?"
        )
    document = parse_object(answer.body, max_bytes=limits.DESCRIPTOR_BYTES)
    key = check_invited_document(document, agent, invitation)
    return InvitedDocument(document, key, urlsplit(url).hostname == agent.removeprefix(AGENT_SCHEME))


def check_invited_document(document: JsonObject, agent: str, invitation: Invitation) -> PublicKey:
    """P-6: the fingerprint of the invitation is the one that ADP-51 asks for."""
    identity = document.get("identity")
    stated = identity.get("publicKey") if isinstance(identity, dict) else None
    if not isinstance(identity, dict) or identity.get("id") != agent or not isinstance(stated, dict):
        raise InvalidDocument(
            f"The document is not the one of {agent}.", path="$.identity.id", hint="Ask for a new invitation."
        )
    key = parse_full_key(stated.get("full"))
    if key is None or key.fingerprint() != invitation.pubkey:
        raise FingerprintMismatch(
            f"{agent} shows another key than the one that the invitation names.",
            path="$.identity.publicKey.full",
            hint="Do not trust it; ask whoever invited you.",
        )
    if invitation.signature is not None and not invitation.is_signed_by(key):
        raise BadSignature("The invitation was changed.", path="$.invite.signature", hint="Ask for a new one.")
    return key
