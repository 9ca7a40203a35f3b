"""Ed25519 by libsodium, compared with another library and with the curve arithmetic."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from waypost.trust.keys import ed25519

PRIME = 2**255 - 19
D = -121665 * pow(121666, -1, PRIME) % PRIME
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RAW = KEY.public_key().public_bytes_raw()


def drawn(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def has_point(encoded: bytes) -> bool:
    """x² is (y² - 1) / (dy² + 1), a square exactly when their product is one."""
    y = int.from_bytes(encoded, "little") & ~(1 << 255)
    return pow((y * y - 1) * (D * y * y + 1), (PRIME - 1) // 2, PRIME) == 1


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000, 100_000])
def test_signatures_are_the_same_bytes_as_those_of_another_library(size: int) -> None:
    data = b"w" * size
    signature = ed25519.sign(KEY, data)
    assert signature == KEY.sign(data)
    assert ed25519.verify(RAW, signature, data)
    assert not ed25519.verify(RAW, signature, data + b"w")


@pytest.mark.parametrize(
    "sizes", [(), (0,), (5000,), (0, 1), (4096, 4096), (4096, 9000, 4100), (5000,) * 9, (4095, 5000)]
)
def test_several_texts_get_the_signatures_that_each_gets_alone(sizes: tuple[int, ...]) -> None:
    texts = [drawn(number) * (size // 32) + b"w" * (size % 32) for number, size in enumerate(sizes)]
    assert ed25519.sign_many(KEY, texts) == [KEY.sign(text) for text in texts]
    assert ed25519.sign_many(KEY, texts, RAW) == [KEY.sign(text) for text in texts]


def test_many_keys_sign_long_texts_as_another_library_does() -> None:
    texts = [drawn(number) * 130 for number in range(4)]
    for number in range(60):
        key = Ed25519PrivateKey.from_private_bytes(drawn(number))
        assert ed25519.sign_many(key, texts) == [key.sign(text) for text in texts]


def test_the_same_forgeries_fall_in_both_libraries() -> None:
    data, signature = b"waypost", bytearray(KEY.sign(b"waypost"))
    for bit in range(8 * 64):
        forged = bytearray(signature)
        forged[bit // 8] ^= 1 << bit % 8
        assert not ed25519.verify(RAW, bytes(forged), data)
        with pytest.raises(InvalidSignature):
            Ed25519PublicKey.from_public_bytes(RAW).verify(bytes(forged), data)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_key_of_another_length_verifies_nothing_and_is_no_point(size: int) -> None:
    key = (RAW + RAW)[:size]
    assert not ed25519.verify(key, KEY.sign(b"waypost"), b"waypost")
    assert not ed25519.is_point(key)


@pytest.mark.parametrize("size", [0, 63, 65, 128])
def test_a_signature_of_another_length_never_holds(size: int) -> None:
    signature = KEY.sign(b"waypost")
    assert not ed25519.verify(RAW, (signature + signature)[:size], b"waypost")


def test_an_unreduced_s_and_an_r_of_small_order_are_refused() -> None:
    order = 2**252 + 27742317777372353535851937790883648493
    signature = KEY.sign(b"waypost")
    unreduced = (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")
    forged = [signature[:32] + unreduced, *(small + signature[32:] for small in sorted(ed25519.SMALL_ORDER))]
    assert not any(ed25519.verify(RAW, each, b"waypost") for each in forged)


@pytest.mark.parametrize("key", sorted(ed25519.SMALL_ORDER))
def test_a_key_of_small_order_verifies_nothing(key: bytes) -> None:
    """With s = 0 and R = -hA, which is of small order too, one of them would hold in eight tries at most."""
    forged = [small + bytes(32) for small in sorted(ed25519.SMALL_ORDER)]
    assert not any(ed25519.verify(key, each, b"m%d" % number) for each in forged for number in range(8))


def test_a_non_canonical_key_verifies_nothing() -> None:
    for y in range(2, 19):  # p + y fits into 255 bits; 0 and 1 are of small order
        for sign in (0, 1 << 255):
            key = (PRIME + y | sign).to_bytes(32, "little")
            assert not ed25519.is_canonical(key)
            assert not ed25519.verify(key, KEY.sign(b"waypost"), b"waypost")


def test_half_of_all_encodings_are_points_as_the_arithmetic_shows() -> None:
    encodings = [drawn(number) for number in range(200)]
    assert all(ed25519.is_canonical(encoded) for encoded in encodings)
    found = [ed25519.is_point(encoded) for encoded in encodings]
    assert found == [has_point(encoded) for encoded in encodings]
    assert 50 < sum(found) < 150


def test_a_point_of_mixed_order_is_a_point() -> None:
    """Speccheck's fourth case has such a key; it is unusual, but only its owner can sign."""
    assert ed25519.is_point(bytes.fromhex("cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d"))
