"""What an encoded point of edwards25519 is, as far as a key must be refused for it (RFC 8032 §5.1.3).

With a key of small order one constant signature verifies many messages, or all of them, so anyone could sign for its
agent. It decides on encodings, and finds the point of one; adding points is for others.
"""

from __future__ import annotations

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the base point
_SIGN_BIT = 1 << 255
_D = -121665 * pow(121666, -1, PRIME) % PRIME
_ROOT_OF_MINUS_ONE = pow(2, (PRIME - 1) // 4, PRIME)
_ORDER_8_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER_Y = (0, 1, PRIME - 1, _ORDER_8_Y, PRIME - _ORDER_8_Y, PRIME, PRIME + 1)  # two of them a second time
SMALL_ORDER = frozenset((y | sign).to_bytes(32, "little") for y in _SMALL_ORDER_Y for sign in (0, _SIGN_BIT))


def is_small_order(encoded: bytes) -> bool:
    """Whether these 32 bytes name one of the eight points of small order, in any of their 14 encodings."""
    return encoded in SMALL_ORDER


def is_canonical(encoded: bytes) -> bool:
    """Whether these 32 bytes are the one way to write their point. (That 0 has no sign is asked of small orders only.)"""
    return int.from_bytes(encoded, "little") & ~_SIGN_BIT < PRIME


def find_x(encoded: bytes) -> int | None:
    """The x of an encoded point, whose y is written out; None where the curve has no such point (RFC 8032 §5.1.3)."""
    y = int.from_bytes(encoded, "little") & ~_SIGN_BIT
    square = (y * y - 1) * pow(_D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != square:
        x = x * _ROOT_OF_MINUS_ONE % PRIME
    if x * x % PRIME != square:
        return None
    return PRIME - x if x and x & 1 != encoded[31] >> 7 else x
