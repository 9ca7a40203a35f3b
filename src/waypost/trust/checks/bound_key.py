"""Bound keys, verdicts with evidence, and the verification of a JWS by bound keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict, VerdictState
from waypost.trust.jose import InvalidJws, Jws, UnknownKey
from waypost.trust.keys.algorithms import JOSE_ALGORITHMS
from waypost.trust.keys.public_key import PublicKey

UNBOUND = "signed by a key that nothing binds to this agent"
_QUOTED_CHARS = 256
_KEY_NAME = re.compile(r"sha256:[0-9a-f]{64}|(?:ed25519:)?[A-Za-z0-9_-]{43}")
_UNNAMED_KEY_ATTEMPTS = 4  # for a signature whose `kid` names no bound key


@dataclass(frozen=True, slots=True)
class BoundKey:
    """A key and what binds it to the agent: a pin, a proven domain, an admin."""

    key: PublicKey
    by: str
    kid: str | None = None
    own: bool = False  # bound to this very agent by an operator: a signature by another key of its kind is wrong

    def is_named(self, kid: str) -> bool:
        """Return whether `kid` is the key's own `kid`, key id, thumbprint or fingerprint."""
        return kid == self.kid or kid in self.key.names


def make_verdict(check: str, state: VerdictState, reason: str, now: float, **evidence: Any) -> Verdict:
    """Make a verdict. Evidence with the value None is left out; strings are truncated."""
    known = {
        name: value[:_QUOTED_CHARS] if isinstance(value, str) else value
        for name, value in evidence.items()
        if value is not None
    }
    return Verdict(check=check, state=state, reason=reason, evidence=known, at=to_rfc3339(now))


def find_bound_key(key: PublicKey, keys: Sequence[BoundKey]) -> BoundKey | None:
    return next((bound for bound in keys if bound.key.spki == key.spki), None)


def verify_jws_by_bound_keys(signed: Jws, keys: Sequence[BoundKey]) -> BoundKey | None:
    """Return the bound key that signed; None if a key that is not bound signed. Raises InvalidJws for a wrong
    signature.

    A `kid` is any string, and says nothing if no bound key has it. Then a signature that the agent's own key did not
    make counts as invalid: changed content and a foreign key look the same.
    """
    algorithm, kid = signed.header["alg"], signed.header.get("kid")
    if algorithm not in JOSE_ALGORITHMS:
        _reject_algorithm(algorithm)
    named = [bound for bound in keys if kid is not None and bound.is_named(kid)]
    tried = named or _keys_for_algorithm(algorithm, keys)
    for bound in tried:
        if bound.key.verify_as(algorithm, signed.signature, signed.signing_input):
            return bound
    if named:
        raise InvalidJws("its signature is invalid")
    if any(bound.own for bound in tried) and not _names_a_key(kid):
        raise InvalidJws("the key bound to this agent did not sign this content")
    return None


def _names_a_key(kid: str | None) -> bool:
    """Return whether `kid` is a key id, fingerprint or thumbprint: derived from a key, so it identifies another key."""
    return kid is not None and _KEY_NAME.fullmatch(kid) is not None


def _reject_algorithm(algorithm: str) -> NoReturn:
    """`none` and shared secrets prove nothing; other unknown algorithms may still be valid."""
    if algorithm.lower() == "none" or algorithm.upper().startswith("HS"):
        raise InvalidJws("its algorithm proves nothing")
    raise UnknownKey("its algorithm is not supported")


def _keys_for_algorithm(algorithm: str, keys: Sequence[BoundKey]) -> list[BoundKey]:
    return [bound for bound in keys if bound.key.kind == JOSE_ALGORITHMS[algorithm][0]][:_UNNAMED_KEY_ATTEMPTS]
