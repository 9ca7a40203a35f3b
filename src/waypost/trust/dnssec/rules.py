"""Which algorithms count, and how much work one look-up is worth (D13)."""

from __future__ import annotations

from typing import Final

import msgspec

from waypost import limits

RSASHA256, RSASHA512, ECDSAP256, ECDSAP384, ED25519, ED448 = 8, 10, 13, 14, 15, 16
SHA1, SHA256, SHA384 = 1, 2, 4


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is not listed is not known: a zone that has nothing else counts as not signed (RFC 4035 §5.2)."""

    algorithms: frozenset[int] = frozenset((RSASHA256, RSASHA512, ECDSAP256, ECDSAP384, ED25519, ED448))
    digests: frozenset[int] = frozenset((SHA1, SHA256, SHA384))
    signatures: int = limits.DNSSEC_SIGNATURES
    signatures_seen: int = limits.DNSSEC_SIGNATURES_SEEN
    keys: int = limits.DNSSEC_KEYS
    colliding_keys: int = limits.DNSSEC_COLLIDING_KEYS
    iterations: int = limits.DNSSEC_NSEC3_ITERATIONS
    denials: int = limits.DNSSEC_DENIALS


RULES: Final = Rules()


class Effort:
    """What is left of the work that one look-up may cause."""

    def __init__(
        self, signatures: int = limits.DNSSEC_SIGNATURES_ALL, hashes: int = limits.DNSSEC_NSEC3_HASHES
    ) -> None:
        self.signatures = signatures
        self.hashes = hashes

    def spend_signature(self) -> bool:
        """Whether one more may be verified."""
        self.signatures -= 1
        return self.signatures >= 0

    def spend_hash(self) -> bool:
        """Whether one more name may be hashed."""
        self.hashes -= 1
        return self.hashes >= 0
