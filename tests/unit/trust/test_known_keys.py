"""Signatures of a key whose multiples are held: the same verdicts as libsodium's, and sums as the curve's own law gives them."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.wycheproof import cases
from waypost.trust import ed25519
from waypost.trust.edwards import ORDER, PRIME, SMALL_ORDER, find_x
from waypost.trust.hashing import hash_each, plain_hash_each
from waypost.trust.known_keys import KnownKeys

D = -121665 * pow(121666, -1, PRIME) % PRIME
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RAW = KEY.public_key().public_bytes_raw()
ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
Point = tuple[int, int]


def drawn(number: int, size: int = 32) -> bytes:
    return hashlib.shake_256(str(number).encode()).digest(size)


def point_of(encoded: bytes) -> Point:
    x = find_x(encoded)
    assert x is not None
    return x, int.from_bytes(encoded, "little") % (1 << 255)


def added(p: Point, q: Point) -> Point:
    both = D * p[0] * q[0] * p[1] * q[1]
    x = (p[0] * q[1] + p[1] * q[0]) * pow(1 + both, -1, PRIME)
    y = (p[1] * q[1] + p[0] * q[0]) * pow(1 - both, -1, PRIME)
    return x % PRIME, y % PRIME


def times(scalar: int, p: Point) -> Point:
    found: Point = (0, 1)
    for bit in bin(scalar)[2:]:
        found = added(found, found)
        found = added(found, p) if bit == "1" else found
    return found


def encoded(p: Point) -> bytes:
    return (p[1] | (p[0] & 1) << 255).to_bytes(32, "little")


BASE = point_of((4 * pow(5, -1, PRIME) % PRIME).to_bytes(32, "little"))


def known(raw: bytes = RAW, key: Ed25519PrivateKey = KEY) -> KnownKeys:
    keys = KnownKeys(after=1)
    assert keys.verify(raw, key.sign(b"first"), b"first")
    return keys


# --- Verdicts -------------------------------------------------------------------------------------


def test_a_key_is_known_after_so_many_signatures_that_held_and_never_for_others() -> None:
    keys = KnownKeys(after=3)
    signature = KEY.sign(b"waypost")
    for _ in range(5):
        assert not keys.verify(RAW, signature, b"another text")
    assert RAW not in keys
    held = [keys.verify(RAW, signature, b"waypost") for _ in range(6)]
    assert held == [True] * 6


def test_one_bit_changed_anywhere_is_refused_and_what_is_right_beside_it_is_not() -> None:
    keys, data = known(), b"waypost"
    signature = KEY.sign(data)
    for bit in range(8 * 64):
        forged = bytearray(signature)
        forged[bit // 8] ^= 1 << bit % 8
        assert keys.verify_each(RAW, [(signature, data), (bytes(forged), data)]) == [True, False]
    assert not keys.verify(RAW, signature, data + b" ")


def test_texts_of_all_sizes_are_judged_together_as_alone() -> None:
    keys = known()
    signed = [(KEY.sign(data), data) for data in (drawn(size, size) for size in (0, 1, 63, 64, 65, 500, 5000))]
    signed += [(signature, data + b"!") for signature, data in signed]
    alone = [ed25519.verify(RAW, signature, data) for signature, data in signed]
    assert alone == [True] * 7 + [False] * 7
    assert keys.verify_each(RAW, signed) == alone
    assert [keys.verify(RAW, signature, data) for signature, data in signed] == alone
    assert keys.verify_each(RAW, []) == []


def test_every_case_of_wycheproof_gets_the_verdict_that_libsodium_gives() -> None:
    keys, together = KnownKeys(after=1), 0
    for _ in range(2):  # the second time every key is known of which anything holds
        for group, case in cases("ed25519"):
            raw = bytes.fromhex(group["publicKeyDer"])[-32:]
            signature, data = bytes.fromhex(case["sig"]), bytes.fromhex(case["msg"])
            holds = ed25519.verify(raw, signature, data)
            assert keys.verify(raw, signature, data) == holds, case
            assert keys.verify_each(raw, [(signature, data)] * 2) == [holds] * 2, case
            together += 1
    assert together == 302


def test_a_key_and_an_r_with_a_part_of_small_order_are_judged_as_by_libsodium() -> None:
    secret, base = 1234567891011, BASE
    mixed = encoded(added(times(secret, base), point_of(ORDER_8)))
    keys, verdicts = KnownKeys(after=1), []
    for number in range(40):
        nonce = int.from_bytes(drawn(number), "little") % ORDER
        r = times(nonce, base)
        if number % 4 == 0:
            r = added(r, point_of(ORDER_8))
        first = encoded(r)
        h = int.from_bytes(hashlib.sha512(first + mixed + b"m").digest(), "little") % ORDER
        signature = first + ((nonce + h * secret) % ORDER).to_bytes(32, "little")
        verdicts.append(ed25519.verify(mixed, signature, b"m"))
        assert keys.verify(mixed, signature, b"m") == verdicts[-1]
    assert {True, False} == set(verdicts)


def test_an_s_that_is_not_reduced_and_an_r_of_small_order_never_hold() -> None:
    keys, signature = known(), KEY.sign(b"waypost")
    more = (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    forged = [signature[:32] + more, *(small + signature[32:] for small in sorted(SMALL_ORDER)), b"", signature[:63]]
    assert keys.verify_each(RAW, [(each, b"waypost") for each in forged]) == [False] * len(forged)


def test_no_more_keys_are_held_than_may_be() -> None:
    keys = KnownKeys(most=2, after=1)
    for number in range(5):
        key = Ed25519PrivateKey.from_private_bytes(drawn(number))
        raw = key.public_key().public_bytes_raw()
        assert keys.verify(raw, key.sign(b"m"), b"m")
        assert keys.verify(raw, key.sign(b"m"), b"m")
        assert len(keys) <= 2


# --- The kernels ----------------------------------------------------------------------------------


def test_sums_are_those_of_the_curve_also_at_the_ends_of_the_scalars() -> None:
    curve = pytest.importorskip("waypost.compiled.curve")
    other = point_of(RAW)
    tables = [
        curve.Multiples(x.to_bytes(32, "little"), y.to_bytes(32, "little"), bits)
        for (x, y), bits in ((BASE, 6), (other, 5), (BASE, 8), (other, 4))
    ]
    ends = [0, 1, 15, 16, 17, 31, 32, 33, ORDER - 1, ORDER - 2, 2**252, 2**252 - 1, 2**253 - 1]
    scalars = ends + [int.from_bytes(drawn(number), "little") >> 3 for number in range(12)]
    hashes = [(end * ORDER + extra) % 2**512 for end, extra in zip(range(13), ends, strict=True)]
    hashes += [2**512 - 1, 2**512 - ORDER, *(int.from_bytes(drawn(number, 64), "little") for number in range(10))]
    signatures = [bytes(32) + scalar.to_bytes(32, "little") for scalar in scalars]
    written = [number.to_bytes(64, "little") for number in hashes]
    expected = [encoded(added(times(s, BASE), times(h % ORDER, other))) for s, h in zip(scalars, hashes, strict=True)]
    assert curve.sums_each(tables[0], tables[1], signatures, written) == expected
    assert curve.sums_each(tables[2], tables[3], signatures, written) == expected
    assert curve.sums_each(tables[0], tables[1], [], []) == []


def test_the_kernel_refuses_what_is_no_signature_and_no_hash() -> None:
    curve = pytest.importorskip("waypost.compiled.curve")
    x, y = (part.to_bytes(32, "little") for part in BASE)
    table = curve.Multiples(x, y, 4)
    for signatures, hashes in (
        ([bytes(63)], [bytes(64)]),
        ([bytes(64)], [bytes(65)]),
        ([bytes(64)], []),
        ([bytes(63) + b"\x20"], [bytes(64)]),
        (["x" * 64], [bytes(64)]),
    ):
        with pytest.raises(ValueError, match=r"as many|right length|below"):
            curve.sums_each(table, table, signatures, hashes)
    for given in ((b"", y, 4), (x, y + b"\0", 4), (x, y, 1), (x, y, 9)):
        with pytest.raises(ValueError, match="two numbers"):
            curve.Multiples(*given)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 11])
def test_hashes_of_several_texts_are_those_of_each(count: int) -> None:
    sizes = (0, 1, 47, 48, 63, 64, 111, 112, 127, 128, 129, 200, 1000)
    for turn in range(40):
        heads = [drawn(turn + at, sizes[(turn * 3 + at) % 13]) for at in range(count)]
        texts = [drawn(turn - at, sizes[(turn + 5 * at) % 13] * (1 + turn % 3)) for at in range(count)]
        assert hash_each(heads, texts) == plain_hash_each(heads, texts)


def test_the_kernel_of_hashes_takes_one_to_four_texts_of_bytes() -> None:
    hashes = pytest.importorskip("waypost.compiled.hashes")
    assert hashes.hash_each([b"a"], [b"b"]) == [hashlib.sha512(b"ab").digest()]
    for heads, texts in (([], []), ([b""], []), ([b""] * 5, [b""] * 5)):
        with pytest.raises(ValueError, match="as many"):
            hashes.hash_each(heads, texts)
    with pytest.raises(TypeError):
        hashes.hash_each([b""], ["text"])
