"""Ed25519 keys that sign again and again, as in a conversation: multiples of such a key are computed once, and a signature is
verified in a quarter of the time.

It is the same equation, without the cofactor, for each signature by itself. libsodium stays the judge: a key is only known
here when several of its signatures held there (so it is a point, the one encoding of it, and not of small order), and
whatever does not hold here is asked there. So what is compiled changes how long an answer takes, never the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import TypeAlias

from waypost import limits
from waypost.trust import ed25519
from waypost.trust.edwards import ORDER, PRIME, SMALL_ORDER, find_x
from waypost.trust.hashing import hash_each

try:
    from waypost.compiled.curve import Multiples, sums_each
except ImportError:
    _IS_COMPILED = False
else:
    _IS_COMPILED = True

Signed: TypeAlias = tuple[bytes, bytes]  # a signature, and what it is over

_BASE_BITS, _KEY_BITS = 6, 5  # of a scalar, for one addition: 165 KB of multiples for all, 98 KB for each key
_BASE_Y = 4 * pow(5, -1, PRIME) % PRIME


class KnownKeys:
    """Of one process. Reading needs no lock; whoever adds one takes it."""

    def __init__(self, most: int = limits.KNOWN_KEYS, after: int = limits.KNOWN_KEY_SIGNATURES) -> None:
        self._most = most
        self._after = after
        self._held: dict[bytes, int] = {}  # signatures by key, of those that are not known yet
        self._known: dict[bytes, Multiples] = {}
        self._lock = Lock()

    def __contains__(self, key: bytes) -> bool:
        return key in self._known

    def __len__(self) -> int:
        return len(self._known)

    def verify(self, key: bytes, signature: bytes, data: bytes) -> bool:
        known = self._known.get(key)
        if known is not None and _hold(key, known, [(signature, data)])[0]:
            return True
        holds = ed25519.verify(key, signature, data)
        if holds and known is None and _IS_COMPILED:
            self._count(key)
        return holds

    def verify_each(self, key: bytes, signed: Sequence[Signed]) -> list[bool]:
        """Each by itself. Those of a known key are computed together."""
        known = self._known.get(key)
        if known is None:
            return [self.verify(key, signature, data) for signature, data in signed]
        held = _hold(key, known, signed)
        return [holds or ed25519.verify(key, *each) for holds, each in zip(held, signed, strict=True)]

    def at_once(self, key: bytes) -> int:
        """How many signatures of it are verified in one step."""
        return limits.KNOWN_KEY_AT_ONCE if key in self._known else 1

    def _count(self, key: bytes) -> None:
        with self._lock:
            held = self._held.pop(key, 0) + 1
            if held >= self._after:
                self._know(key)
                return
            if len(self._held) >= self._most:
                del self._held[next(iter(self._held))]
            self._held[key] = held  # last again: those that are used stay

    def _know(self, key: bytes) -> None:
        """Its negative, since the equation is R = s·B − h·A."""
        x, y = find_x(key), int.from_bytes(key, "little") % (1 << 255)
        if x is None:  # no key of which a signature held
            return
        if len(self._known) >= self._most:
            del self._known[next(iter(self._known))]
        self._known[key] = _multiples(PRIME - x, y, _KEY_BITS)


def _hold(key: bytes, known: Multiples, signed: Sequence[Signed]) -> list[bool]:
    """Whether each is found to hold. What is not may still be asked elsewhere."""
    looked = [(signature, data) for signature, data in signed if _may_hold(signature)]
    signatures = [signature for signature, _ in looked]
    hashes = hash_each([signature[:32] + key for signature in signatures], [data for _, data in looked])
    sums = iter(sums_each(_base(), known, signatures, hashes))
    if len(looked) == len(signed):
        return [signature[:32] == found for signature, found in zip(signatures, sums, strict=True)]
    return [_may_hold(signature) and signature[:32] == next(sums) for signature, _ in signed]


def _may_hold(signature: bytes) -> bool:
    """As libsodium asks: s is below the order, R not of small order."""
    if len(signature) != ed25519.SIGNATURE_BYTES or signature[:32] in SMALL_ORDER:
        return False
    return signature[63] < 0x10 or int.from_bytes(signature[32:], "little") < ORDER


@lru_cache(maxsize=1)
def _base() -> Multiples:
    x = find_x(_BASE_Y.to_bytes(32, "little")) or 0  # the curve's own point: there is one
    return _multiples(x, _BASE_Y, _BASE_BITS)


def _multiples(x: int, y: int, bits: int) -> Multiples:
    return Multiples(x.to_bytes(32, "little"), y.to_bytes(32, "little"), bits)


known_keys = KnownKeys()
