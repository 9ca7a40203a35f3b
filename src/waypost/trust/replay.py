"""Whether a signed announcement is news, a repetition or a replay (announce.md §5, THREATS C10…C13).

The signature covers no time of its own, so a captured announcement could be sent again at will. What is signed inside it
decides: a sequence that only grows and the time of signing. Objects without them are told apart by their contents.
"""

from __future__ import annotations

import msgspec

from waypost import limits
from waypost.errors import Replayed
from waypost.trust.pins import Pin, PinnedKey

FORK = "fork"  # the reason of the refusal of two contents under one sequence


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What an announcement says of its own age, all of it signed."""

    digest: str  # of the canonical agent
    seq: int | None = None
    iat: float | None = None


def check_news(pin: Pin, stamp: Stamp, key: PinnedKey, *, now: float, authenticated: bool, withdrawn: bool) -> Pin:
    """The pin with the marks moved on, or a refusal. `withdrawn`: the record was taken away, not just run out."""
    if stamp.seq is None:
        return _check_contents(pin, stamp, now, authenticated)
    if stamp.seq > (now + limits.FUTURE_SKEW_SECONDS) * 1000:
        raise _replayed(
            "The sequence is ahead of the clock.", "fast_forward", "Use Unix milliseconds, or a counter below them."
        )
    floor = _floor(pin, key)
    if floor is not None and stamp.seq < floor:
        raise _replayed(f"The sequence {stamp.seq} is below {floor}, which was seen.", "replay")
    _check_time(stamp, now, authenticated)
    if floor is not None and stamp.seq == floor:
        _check_repetition(pin, key, stamp, withdrawn)
    marked = msgspec.structs.replace(key, seq=stamp.seq, digest=stamp.digest)
    keys = tuple(marked if each.key_id == key.key_id else each for each in pin.keys)
    return msgspec.structs.replace(pin, keys=keys, digest=stamp.digest, seen_at=now)


def _floor(pin: Pin, key: PinnedKey) -> int | None:
    """The sequence to beat. A new key counts anew (C11); the one that it replaced has to beat both, and moves only its own
    mark: whoever stole it cannot shut the new one out."""
    active = pin.active
    marks = [each.seq for each in (key, active) if each is not None and each.seq is not None]
    return max(marks) if marks else None


def _check_repetition(pin: Pin, key: PinnedKey, stamp: Stamp, withdrawn: bool) -> None:
    if key.seq != stamp.seq:
        raise _replayed(f"The sequence {stamp.seq} was seen, signed by the key that is active.", "replay")
    if key.digest != stamp.digest:
        # Somebody else signs with this key, or the publisher has lost its counter: worth an alarm.
        raise Replayed(
            f"Another content was announced under the sequence {stamp.seq}.",
            path="$.agent.metadata.__seq",
            hint="Raise __seq with every change; if the key may have leaked, rotate or revoke it.",
            retry_after=30,
            details={"reason": FORK},
        )
    if pin.digest != stamp.digest:
        raise _replayed("Another content was announced since, with the other key of this agent.", "replay")
    if withdrawn:
        raise _replayed("This announcement was withdrawn.", "replay", "Announce it again with a higher __seq.")


def _check_time(stamp: Stamp, now: float, authenticated: bool) -> None:
    if stamp.iat is None:
        if not authenticated:
            raise _replayed("The announcement does not say when it was signed.", "no_iat", "Add metadata.__iat.")
        return
    age = now - stamp.iat
    if age > limits.ANNOUNCE_PAST_SECONDS:
        raise _replayed(
            f"It was signed more than {limits.ANNOUNCE_PAST_SECONDS} seconds ago.",
            "too_old",
            "Sign it again, at least once a minute, with a higher __seq and the time in __iat.",
        )
    if age < -limits.ANNOUNCE_FUTURE_SECONDS:
        raise _replayed("It was signed in the future.", "future", "Check the clock of the publisher.")


def _check_contents(pin: Pin, stamp: Stamp, now: float, authenticated: bool) -> Pin:
    """P-18: without a sequence, going back to an earlier content is a replay, unless the session itself is proven."""
    if any(key.seq is not None for key in pin.keys) and not authenticated:
        raise _replayed("Earlier announcements had a sequence; this one has none.", "no_seq", "Add metadata.__seq.")
    known = {digest: at for digest, at in pin.digests if now - at < limits.ANNOUNCE_DIGEST_SECONDS}
    if not authenticated and stamp.digest != pin.digest and stamp.digest in known:
        raise _replayed("This is an earlier content of the agent.", "replay", "Add metadata.__seq and sign it again.")
    return msgspec.structs.replace(pin, digest=stamp.digest, digests=_remembered(pin, stamp, now), seen_at=now)


def _remembered(pin: Pin, stamp: Stamp, now: float) -> tuple[tuple[str, float], ...]:
    others = tuple(item for item in pin.digests if item[0] != stamp.digest)
    return ((stamp.digest, now), *others)[: limits.ANNOUNCE_DIGESTS]


def _replayed(message: str, reason: str, hint: str = "Sign it again with a higher __seq.") -> Replayed:
    return Replayed(message, path="$.agent.metadata", hint=hint, retry_after=30, details={"reason": reason})
