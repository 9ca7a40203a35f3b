"""Invitations to private agents (ADP-55, ADP-56, P-6), kept: made, shown once, redeemed as often as they allow, revoked.

Of a code only its hash is kept, so nobody who reads the file can use one. A wrong code, one that is used up, one that was revoked
and one that ran out are all the same to whoever shows it.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable

import msgspec

from waypost import limits
from waypost.errors import NotFound, RateLimited
from waypost.meeting.peers import PeerKey
from waypost.model.json import JsonObject
from waypost.model.names import domain_of
from waypost.model.times import to_rfc3339
from waypost.registry.keeping import Keeper, Kept, Write
from waypost.trust.keys import parse_der

INVITATION = "invite"
CODE = "invite-code"  # by the hash of the code
AGENT = "invite-agent"  # by the agent
PIN = "invite-pin"  # keys of agents that somebody here was invited to
_RACES = 64
_AFTER_SECONDS = 7 * 86_400  # how long one that is over is still listed


class Held(msgspec.Struct, frozen=True, kw_only=True):
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

    def json(self, now: float) -> JsonObject:
        return {
            "id": self.id,
            "agent": self.agent,
            "record": self.record,
            "state": self.state(now),
            "uses": self.uses,
            "used": self.used,
            "redeemed_by": list(self.redeemed),
            "created": to_rfc3339(self.created_at),
            "expires": to_rfc3339(self.expires_at),
            "by": self.by,
        }


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str
    spki: bytes
    by: str


_read = msgspec.msgpack.Decoder(Held).decode
_read_pin = msgspec.msgpack.Decoder(Pin).decode


class Invitations:
    def __init__(self, keeper: Keeper, now: Callable[[], float]) -> None:
        self._keeper = keeper
        self._now = now

    async def make(self, record: str, agent: str, by: str, uses: int, ttl_seconds: int) -> tuple[Held, str]:
        """The invitation, and its code, which nobody can ask for again."""
        now = self._now()
        if await self._keeper.count(AGENT, now, prefix=_prefix(record)) >= limits.INVITATIONS_PER_AGENT:
            raise RateLimited(
                f"An agent has at most {limits.INVITATIONS_PER_AGENT} invitations at a time.",
                path="$.agent",
                hint="Revoke some, or make one with more uses.",
                retry_after=60,
            )
        code = secrets.token_hex(limits.INVITATION_CODE_BYTES)
        held = Held(
            id=uuid.uuid4().hex[:16],
            record=record,
            agent=agent,
            by=by,
            created_at=now,
            expires_at=float(int(now) + ttl_seconds),
            uses=uses,
        )
        ends = held.expires_at + _AFTER_SECONDS
        writes = (
            self._write(held, None),
            Write(kind=CODE, key=_hashed(code), value=held.id.encode(), expires_at=held.expires_at, expected=None),
            Write(kind=AGENT, key=f"{_prefix(record)}{held.id}", value=held.id.encode(), expires_at=ends),
        )
        await self._keeper.commit(writes, now)
        return held, code

    def _write(self, held: Held, kept: bytes | None) -> Write:
        value = msgspec.msgpack.encode(held)
        ends = held.expires_at + _AFTER_SECONDS
        return Write(kind=INVITATION, key=held.id, value=value, expires_at=ends, expected=kept)

    async def of(self, record: str) -> list[Held]:
        found = await self._keeper.scan(AGENT, self._now(), prefix=_prefix(record), limit=limits.INVITATIONS_PER_AGENT)
        kept = [await self._keeper.get(INVITATION, one.value.decode(), self._now()) for one in found]
        return [_read(value) for value in kept if value is not None]

    async def all(self, limit: int) -> list[Held]:
        found: list[Kept] = await self._keeper.scan(INVITATION, self._now(), limit=limit)
        return [_read(kept.value) for kept in found]

    async def get(self, invitation_id: str) -> Held:
        kept = await self._keeper.get(INVITATION, invitation_id, self._now()) if len(invitation_id) <= 64 else None
        if kept is None:
            raise unknown_invitation(invitation_id)
        return _read(kept)

    async def revoke(self, invitation_id: str) -> Held:
        """No more use of it; who redeemed it before stays let in."""
        for _ in range(_RACES):
            kept = await self._keeper.get(INVITATION, invitation_id, self._now())
            if kept is None:
                raise no_such_invitation()
            held = _read(kept)
            if held.revoked_at is not None:
                return held
            revoked = msgspec.structs.replace(held, revoked_at=self._now())
            if await self._keeper.commit((self._write(revoked, kept),), self._now()):
                return revoked
        raise no_such_invitation()

    async def find(self, code: str) -> Held | None:
        """The invitation of a code that can be used now."""
        found = await self._keeper.get(CODE, _hashed(code), self._now())
        kept = None if found is None else await self._keeper.get(INVITATION, found.decode(), self._now())
        held = None if kept is None else _read(kept)
        return held if held is not None and held.state(self._now()) in ("open", "used") else None

    async def redeem(self, code: str, record: str | None = None, subject: str | None = None) -> Held | None:
        """Take one use of it; None when there is none to take. A subject that redeemed it before takes none."""
        for _ in range(_RACES):
            found = await self.find(code)
            if found is None or (record is not None and found.record != record):
                return None
            kept = await self._keeper.get(INVITATION, found.id, self._now())
            held = found if kept is None else _read(kept)
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
        for _ in range(_RACES):
            kept = await self._keeper.get(INVITATION, invitation_id, self._now())
            if kept is None:
                return
            held = _read(kept)
            redeemed = tuple(name for name in held.redeemed if name != subject)
            freed = msgspec.structs.replace(held, used=max(0, held.used - 1), redeemed=redeemed)
            if await self._keeper.commit((self._write(freed, kept),), self._now()):
                return

    async def pin(self, agent: str, pin: Pin) -> None:
        """The key of an agent that somebody was invited to: it stands in for the one of the DNS (P-6)."""
        await self._keeper.commit((Write(kind=PIN, key=agent, value=msgspec.msgpack.encode(pin)),), self._now())

    async def key_of(self, agent: str) -> PeerKey | None:
        """`PeerKeys` of peers.py."""
        kept = await self._keeper.get(PIN, agent, self._now())
        if kept is None:
            return None
        pin = _read_pin(kept)
        return PeerKey(
            agent=agent,
            fingerprint=pin.fingerprint,
            by="invitation",
            key=parse_der(pin.spki),
            domain=domain_of(agent) or "",
        )


def no_such_invitation() -> NotFound:
    """The same words whatever is wrong with it."""
    return NotFound(
        "There is no such invitation, or it is over.", path="code", hint="Ask whoever invited you for a new one."
    )


def unknown_invitation(invitation_id: str) -> NotFound:
    """For who made invitations; the same words for unknown and foreign."""
    return NotFound(
        f"There is no invitation {invitation_id[:64]!r} of yours.",
        path="id",
        hint="`waypost invite list` shows them.",
    )


def _hashed(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _prefix(record: str) -> str:
    return f"{hashlib.sha256(record.encode()).hexdigest()[:32]} "
