"""RSA keys of a generator whose primes can be guessed (ROCA, CVE-2017-15361).

Its primes are powers of 65537 modulo a product of small primes, and so is their product. A modulus whose remainder is a
power of 65537 for every one of these primes came from it: an honest one passes all of them once in 2^27 keys.
"""

from __future__ import annotations

_PRIMES = (
    *(3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97),
    *(101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167),
)


def _powers(prime: int) -> frozenset[int]:
    found, power = {1}, 65_537 % prime
    while power not in found:
        found.add(power)
        power = power * 65_537 % prime
    return frozenset(found)


_TELLING = tuple((prime, powers) for prime in _PRIMES if len(powers := _powers(prime)) < prime - 1)


def is_weak(modulus: int) -> bool:
    return all(modulus % prime in powers for prime, powers in _TELLING)
