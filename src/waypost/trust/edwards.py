"""What an encoded point of edwards25519 is, as far as a key must be refused for it (RFC 8032 §5.1.3).

With a key of small order one constant signature verifies many messages, or all of them, so anyone could sign for its
agent. Only encodings are compared here; libsodium does the arithmetic.
"""

from __future__ import annotations

PRIME = 2**255 - 19
_SIGN_BIT = 1 << 255
_ORDER_8_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER_Y = (0, 1, PRIME - 1, _ORDER_8_Y, PRIME - _ORDER_8_Y, PRIME, PRIME + 1)  # two of them a second time
SMALL_ORDER = frozenset((y | sign).to_bytes(32, "little") for y in _SMALL_ORDER_Y for sign in (0, _SIGN_BIT))


def is_small_order(encoded: bytes) -> bool:
    """Whether these 32 bytes name one of the eight points of small order, in any of their 14 encodings."""
    return encoded in SMALL_ORDER


def is_canonical(encoded: bytes) -> bool:
    """Whether these 32 bytes are the one way to write their point. (That 0 has no sign is asked of small orders only.)"""
    return int.from_bytes(encoded, "little") & ~_SIGN_BIT < PRIME
