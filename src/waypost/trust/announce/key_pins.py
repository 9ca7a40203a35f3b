"""The trust store's row for one announced id: its keys with their states, and the progress of its announcements.

A row outlives the record. Its keys change in three ways only: the first key is pinned, the active key introduces its
successor (announce.md P-13), a key is revoked (P-14). Retired and revoked keys stay as tombstones.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from waypost import limits

KeyState = Literal["active", "retiring", "retired", "revoked"]


class PinnedKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    key_id: str
    kind: str
    spki: bytes
    state: KeyState
    first_seen: float
    via: str  # tofu, admin, trust, rotation, ca
    until: float | None = None  # end of a retiring key's grace period
    seq: int | None = None  # highest sequence it has signed
    digest: str | None = None  # of the content it signed with that sequence

    def state_at(self, now: float) -> KeyState:
        if self.state == "retiring" and self.until is not None and now >= self.until:
            return "retired"
        return self.state


class AgentPin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    agent_id: str
    keys: tuple[PinnedKey, ...] = ()  # newest first
    provisioned: bool = False  # by an admin: needs no allow-list rule
    rotated_at: float | None = None
    digest: str | None = None  # of the last accepted content
    digests: tuple[tuple[str, float], ...] = ()  # contents without a sequence, newest first, with the last time of each
    seen_at: float = 0.0

    @property
    def active(self) -> PinnedKey | None:
        return next((key for key in self.keys if key.state == "active"), None)

    def find_key(self, key_id: str) -> PinnedKey | None:
        return next((key for key in self.keys if key.key_id == key_id), None)


def pin_first_key(pin: AgentPin, key: PinnedKey, *, provisioned: bool) -> AgentPin:
    """Pin a key. Another active key is retired at once, so only an operator may do this to a pin that has one.

    A key that was known before keeps its sequence, so that its old announcements cannot be replayed.
    """
    known = pin.find_key(key.key_id)
    if known is not None:
        key = msgspec.structs.replace(key, seq=known.seq, digest=known.digest)
    others = tuple(
        msgspec.structs.replace(each, state="retired", until=None) if each.state in ("active", "retiring") else each
        for each in pin.keys
        if each.key_id != key.key_id
    )
    return msgspec.structs.replace(
        pin, keys=drop_oldest_retired((key, *others)), provisioned=pin.provisioned or provisioned
    )


def rotate_key(pin: AgentPin, key: PinnedKey, now: float) -> AgentPin:
    """Make `key` the active one, with its own sequence. Its predecessor stays valid for the grace period, but cannot
    rotate."""
    others = tuple(
        msgspec.structs.replace(each, state="retiring", until=now + limits.ROTATION_GRACE_SECONDS)
        if each.state == "active"
        else each
        for each in pin.keys
    )
    return msgspec.structs.replace(pin, keys=drop_oldest_retired((key, *others)), rotated_at=now)


def revoke_pinned_key(pin: AgentPin, key_id: str) -> AgentPin:
    keys = tuple(
        msgspec.structs.replace(key, state="revoked", until=None) if key.key_id == key_id else key for key in pin.keys
    )
    return msgspec.structs.replace(pin, keys=keys)


def drop_oldest_retired(keys: tuple[PinnedKey, ...]) -> tuple[PinnedKey, ...]:
    """Drop the oldest retired keys beyond the limit; other keys are never dropped."""
    excess = len(keys) - limits.PINNED_KEYS
    remaining: list[PinnedKey] = []
    for key in reversed(keys):
        if excess > 0 and key.state == "retired":
            excess -= 1
        else:
            remaining.append(key)
    return tuple(reversed(remaining))


def is_evictable(pin: AgentPin, now: float) -> bool:
    """Return whether the pin may be dropped: bound by first use only, unused for long, and without a revoked key."""
    if pin.provisioned or now - pin.seen_at < limits.PIN_UNUSED_SECONDS:
        return False
    return all(key.state != "revoked" for key in pin.keys)


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AgentPin)


def pin_note_key(agent_id: str) -> str:
    """Return the key of the note that stores the pin."""
    return f"pin:{agent_id}"


def dump_pin(pin: AgentPin) -> bytes:
    return _encode(pin)


def load_pin(data: bytes | None) -> AgentPin | None:
    return None if data is None else decode_pin(data)


def decode_pin(data: bytes) -> AgentPin:
    return _decoder.decode(data)
