"""Invitations to private agents (ADP-55, ADP-56, P-6): create, redeem, revoke, and follow those of other servers.

Only the hash of a code is stored, so that reading the file does not reveal it. A caller cannot distinguish a wrong code from one
that is used up, revoked or expired. The key of an invited agent is pinned only if the agent's own domain served the document:
otherwise an invitation could replace the key of another agent.
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

INVITATION_PIN_KIND = "invite-pin"  # keys of agents on other servers

_MAX_RETRIES = 64

_KEEP_ENDED_SECONDS = 7 * 86_400  # ended invitations stay listed


class StoredInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """A stored invitation, without its code."""

    id: str
    record: str  # record id of the agent
    agent: str
    by: str
    created_at: float
    expires_at: float
    uses: int = 1
    used: int = 0
    revoked_at: float | None = None
    redeemed: tuple[str, ...] = ()  # subjects

    def state(self, now: float) -> str:
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at <= now:
            return "expired"
        return "open" if self.used < self.uses else "used"

    def view(self, now: float) -> InvitationView:
        """The invitation in responses, without its code."""
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
    def __init__(self, store: KeyValueStore, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def create(
        self, record: str, agent: str, by: str, uses: int, ttl_seconds: int
    ) -> tuple[StoredInvitation, str]:
        """Returns the invitation and its code, which cannot be read again."""
        now = self._now()
        if (
            await self._store.count(INVITED_AGENT_KIND, now, prefix=_agent_prefix(record))
            >= limits.INVITATIONS_PER_AGENT
        ):
            raise RateLimited(
                f"The limit of {limits.INVITATIONS_PER_AGENT} invitations of an agent is reached.",
                path="$.agent",
                hint="Revoke some, or create one with more uses.",
                retry_after=60,
            )
        code = secrets.token_hex(limits.INVITATION_CODE_BYTES)
        invitation = StoredInvitation(
            id=uuid.uuid4().hex[:16],
            record=record,
            agent=agent,
            by=by,
            created_at=now,
            expires_at=float(int(now) + ttl_seconds),
            uses=uses,
        )
        expires_at = invitation.expires_at + _KEEP_ENDED_SECONDS
        writes = (
            self._write(invitation, None),
            KeyValueWrite(
                kind=INVITATION_CODE_KIND,
                key=_hash_code(code),
                value=invitation.id.encode(),
                expires_at=invitation.expires_at,
                expected=None,
            ),
            KeyValueWrite(
                kind=INVITED_AGENT_KIND,
                key=f"{_agent_prefix(record)}{invitation.id}",
                value=invitation.id.encode(),
                expires_at=expires_at,
            ),
        )
        await self._store.commit(writes, now)
        return invitation, code

    def _write(self, invitation: StoredInvitation, stored: bytes | None) -> KeyValueWrite:
        value = msgspec.msgpack.encode(invitation)
        expires_at = invitation.expires_at + _KEEP_ENDED_SECONDS
        return KeyValueWrite(
            kind=INVITATION_KIND, key=invitation.id, value=value, expires_at=expires_at, expected=stored
        )

    async def of(self, record: str) -> list[StoredInvitation]:
        found = await self._store.scan(
            INVITED_AGENT_KIND, self._now(), prefix=_agent_prefix(record), limit=limits.INVITATIONS_PER_AGENT
        )
        values = [await self._store.get(INVITATION_KIND, one.value.decode(), self._now()) for one in found]
        return [_decode_invitation(value) for value in values if value is not None]

    async def all(self, limit: int) -> list[StoredInvitation]:
        found: list[KeyValueItem] = await self._store.scan(INVITATION_KIND, self._now(), limit=limit)
        return [_decode_invitation(item.value) for item in found]

    async def get(self, invitation_id: str) -> StoredInvitation:
        stored = (
            await self._store.get(INVITATION_KIND, invitation_id, self._now()) if len(invitation_id) <= 64 else None
        )
        if stored is None:
            raise unknown_invitation_error(invitation_id)
        return _decode_invitation(stored)

    async def revoke(self, invitation_id: str) -> StoredInvitation:
        """End an invitation. Subjects that redeemed it keep their access."""
        for _ in range(_MAX_RETRIES):
            stored = await self._store.get(INVITATION_KIND, invitation_id, self._now())
            if stored is None:
                raise invalid_invitation_error()
            invitation = _decode_invitation(stored)
            if invitation.revoked_at is not None:
                return invitation
            revoked = msgspec.structs.replace(invitation, revoked_at=self._now())
            if await self._store.commit((self._write(revoked, stored),), self._now()):
                return revoked
        raise invalid_invitation_error()

    async def find(self, code: str) -> StoredInvitation | None:
        """The valid invitation of a code."""
        found = await self._store.get(INVITATION_CODE_KIND, _hash_code(code), self._now())
        stored = None if found is None else await self._store.get(INVITATION_KIND, found.decode(), self._now())
        invitation = None if stored is None else _decode_invitation(stored)
        return invitation if invitation is not None and invitation.state(self._now()) in ("open", "used") else None

    async def redeem(self, code: str, record: str | None = None, subject: str | None = None) -> StoredInvitation | None:
        """Count one use; None if the invitation is not valid or used up. A subject that redeemed it before counts once."""
        for _ in range(_MAX_RETRIES):
            found = await self.find(code)
            if found is None or (record is not None and found.record != record):
                return None
            stored = await self._store.get(INVITATION_KIND, found.id, self._now())
            invitation = found if stored is None else _decode_invitation(stored)
            if subject is not None and subject in invitation.redeemed:
                return invitation
            if invitation.state(self._now()) != "open":
                return None
            redeemed = invitation.redeemed if subject is None else (*invitation.redeemed, subject)
            used = msgspec.structs.replace(invitation, used=invitation.used + 1, redeemed=redeemed)
            if await self._store.commit((self._write(used, stored),), self._now()):
                return used
        return None

    async def release(self, invitation_id: str, subject: str | None) -> None:
        """Undo a use that failed."""
        for _ in range(_MAX_RETRIES):
            stored = await self._store.get(INVITATION_KIND, invitation_id, self._now())
            if stored is None:
                return
            invitation = _decode_invitation(stored)
            redeemed = tuple(name for name in invitation.redeemed if name != subject)
            released = msgspec.structs.replace(invitation, used=max(0, invitation.used - 1), redeemed=redeemed)
            if await self._store.commit((self._write(released, stored),), self._now()):
                return

    async def pin(self, agent: str, pin: InvitationPin) -> None:
        """Pin the key of an invited agent, instead of one from the DNS (P-6)."""
        await self._store.commit(
            (KeyValueWrite(kind=INVITATION_PIN_KIND, key=agent, value=msgspec.msgpack.encode(pin)),), self._now()
        )

    async def key_of(self, agent: str) -> PeerIdentity | None:
        """`PeerKeySource` of peers.py."""
        stored = await self._store.get(INVITATION_PIN_KIND, agent, self._now())
        if stored is None:
            return None
        pin = _decode_pin(stored)
        return PeerIdentity(
            agent=agent,
            fingerprint=pin.fingerprint,
            by="invitation",
            key=parse_der(pin.spki),
            domain=domain_of(agent) or "",
        )


def invalid_invitation_error() -> NotFound:
    """The same text for every reason."""
    return NotFound("There is no such invitation, or it has ended.", path="code", hint="Ask for a new invitation.")


def unknown_invitation_error(invitation_id: str) -> NotFound:
    """For owners of invitations; the same text for unknown ones and those of others."""
    return NotFound(
        f"There is no invitation {invitation_id[:64]!r} of yours.",
        path="id",
        hint="`waypost invite list` shows them.",
    )


def _hash_code(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _agent_prefix(record: str) -> str:
    return f"{hashlib.sha256(record.encode()).hexdigest()[:32]} "


class InvitedDocument(NamedTuple):
    document: JsonObject
    key: PublicKey
    is_from_domain: bool  # served by the agent's own domain


async def fetch_invited_document(invitation: Invitation, sender: OutboundSender, now: float) -> InvitedDocument:
    if invitation.expires_at <= now:
        raise invalid_invitation_error()
    agent = parse_agent_uri(invitation.agent, "$.invitation.invite.agent")
    url = invitation.well_known
    response = await sender.send(
        url, "descriptor", method="GET", headers=[("Authorization", f"{SCHEME} {invitation.code}")]
    )
    if not response.is_success:
        raise FetchFailed(
            f"The agent's server answered {response.status}.", path="invitation", hint="The invitation may be used up."
        )
    document = parse_object(response.body, max_bytes=limits.DESCRIPTOR_BYTES)
    key = check_invited_document(document, agent, invitation)
    return InvitedDocument(document, key, urlsplit(url).hostname == agent.removeprefix(AGENT_SCHEME))


def check_invited_document(document: JsonObject, agent: str, invitation: Invitation) -> PublicKey:
    """P-6: the key must match the fingerprint in the invitation (ADP-51)."""
    identity = document.get("identity")
    stated = identity.get("publicKey") if isinstance(identity, dict) else None
    if not isinstance(identity, dict) or identity.get("id") != agent or not isinstance(stated, dict):
        raise InvalidDocument(
            f"The document is not of {agent}.", path="$.identity.id", hint="Ask for a new invitation."
        )
    key = parse_full_key(stated.get("full"))
    if key is None or key.fingerprint() != invitation.pubkey:
        raise FingerprintMismatch(
            f"The key of {agent} does not match the invitation.",
            path="$.identity.publicKey.full",
            hint="Do not trust it; ask the sender of the invitation.",
        )
    if invitation.signature is not None and not invitation.is_signed_by(key):
        raise BadSignature(
            "The signature of the invitation is not valid.", path="$.invite.signature", hint="Ask for a new one."
        )
    return key
