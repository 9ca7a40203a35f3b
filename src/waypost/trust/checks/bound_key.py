"""Keys that something vouches for, verdicts with their evidence, and the one way in which a JWS is judged by such keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict, VerdictState
from waypost.trust.keys.algorithms import JOSE_ALGORITHMS
from waypost.trust.keys.public_key import PublicKey
from waypost.trust.tokens.jose import InvalidJws, Jws, UnknownKey

UNBOUND = "signed by a key that nothing binds to this agent"
_QUOTED_CHARS = 256
_KEY_NAME = re.compile(r"sha256:[0-9a-f]{64}|(?:ed25519:)?[A-Za-z0-9_-]{43}")
_UNNAMED_KEY_ATTEMPTS = 4  # attempts for a signature that names none of our keys


@dataclass(frozen=True, slots=True)
class BoundKey:
    """A key, and what binds it to the agent: a pin, a proven domain, an admin."""

    key: PublicKey
    by: str
    kid: str | None = None
    own: bool = False  # by somebody's word to this very agent: what a key of its kind signed is by it, or is wrong

    def is_named(self, kid: str) -> bool:
        """A key goes by its own `kid`, its key id, its thumbprint, or its fingerprint."""
        return kid == self.kid or kid in self.key.names


def make_verdict(check: str, state: VerdictState, reason: str, now: float, **evidence: Any) -> Verdict:
    """A verdict. Evidence that there is none of is left out, and words of the document are not quoted at length."""
    known = {
        name: value[:_QUOTED_CHARS] if isinstance(value, str) else value
        for name, value in evidence.items()
        if value is not None
    }
    return Verdict(check=check, state=state, reason=reason, evidence=known, at=to_rfc3339(now))


def find_bound_key(key: PublicKey, keys: Sequence[BoundKey]) -> BoundKey | None:
    return next((bound for bound in keys if bound.key.spki == key.spki), None)


def verify_jws_by_bound_keys(signed: Jws, keys: Sequence[BoundKey]) -> BoundKey | None:
    """The bound key that signed; None when it names, or is by, a key that is not bound. NotSigned when it does not hold.

    A `kid` is any word, and tells nothing when no bound key goes by it. Then a signature that the agent's own key did
    not make counts as one that does not hold: content that was changed, and a stranger's key, look the same.
    """
    algorithm, kid = signed.header["alg"], signed.header.get("kid")
    if algorithm not in JOSE_ALGORITHMS:
        _refuse_algorithm(algorithm)
    named = [bound for bound in keys if kid is not None and bound.is_named(kid)]
    tried = named or _keys_for_algorithm(algorithm, keys)
    for bound in tried:
        if bound.key.verify_as(algorithm, signed.signature, signed.signing_input):
            return bound
    if named:
        raise InvalidJws("its signature does not hold")
    if any(bound.own for bound in tried) and not _names_a_key(kid):
        raise InvalidJws("the key that is bound to this agent did not sign this content")
    return None


def _names_a_key(kid: str | None) -> bool:
    """A key id, a fingerprint or a thumbprint: it follows from the key, so it is another one's."""
    return kid is not None and _KEY_NAME.fullmatch(kid) is not None


def _refuse_algorithm(algorithm: str) -> NoReturn:
    """No signature and a shared secret prove nothing to anybody; what we cannot verify may still be good."""
    if algorithm.lower() == "none" or algorithm.upper().startswith("HS"):
        raise InvalidJws("its algorithm proves nothing")
    raise UnknownKey("its algorithm is not one that is verified here")


def _keys_for_algorithm(algorithm: str, keys: Sequence[BoundKey]) -> list[BoundKey]:
    return [bound for bound in keys if bound.key.kind == JOSE_ALGORITHMS[algorithm][0]][:_UNNAMED_KEY_ATTEMPTS]
