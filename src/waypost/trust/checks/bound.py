"""Keys that something vouches for, verdicts with their evidence, and the one way in which a JWS is judged by such keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from waypost.model.times import to_rfc3339
from waypost.model.verdict import State, Verdict
from waypost.trust.algorithms import JOSE
from waypost.trust.jose import NotSigned, Signed, UnknownKey
from waypost.trust.keys import PublicKey

UNBOUND = "signed by a key that nothing binds to this agent"
_QUOTED_CHARS = 256
_NAME_OF_A_KEY = re.compile(r"sha256:[0-9a-f]{64}|(?:ed25519:)?[A-Za-z0-9_-]{43}")
_UNNAMED_KEYS = 4  # attempts for a signature that names none of our keys


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


def told(check: str, state: State, reason: str, now: float, **evidence: Any) -> Verdict:
    """A verdict. Evidence that there is none of is left out, and words of the document are not quoted at length."""
    known = {
        name: value[:_QUOTED_CHARS] if isinstance(value, str) else value
        for name, value in evidence.items()
        if value is not None
    }
    return Verdict(check=check, state=state, reason=reason, evidence=known, at=to_rfc3339(now))


def find_bound(key: PublicKey, keys: Sequence[BoundKey]) -> BoundKey | None:
    return next((bound for bound in keys if bound.key.spki == key.spki), None)


def judge_jws(signed: Signed, keys: Sequence[BoundKey]) -> BoundKey | None:
    """The bound key that signed; None when it names, or is by, a key that is not bound. NotSigned when it does not hold.

    A `kid` is any word, and tells nothing when no bound key goes by it. Then a signature that the agent's own key did
    not make counts as one that does not hold: content that was changed, and a stranger's key, look the same.
    """
    algorithm, kid = signed.header["alg"], signed.header.get("kid")
    if algorithm not in JOSE:
        _refuse_algorithm(algorithm)
    named = [bound for bound in keys if kid is not None and bound.is_named(kid)]
    tried = named or _fitting(algorithm, keys)
    for bound in tried:
        if bound.key.verify_as(algorithm, signed.signature, signed.signing_input):
            return bound
    if named:
        raise NotSigned("its signature does not hold")
    if any(bound.own for bound in tried) and not _names_a_key(kid):
        raise NotSigned("the key that is bound to this agent did not sign this content")
    return None


def _names_a_key(kid: str | None) -> bool:
    """A key id, a fingerprint or a thumbprint: it follows from the key, so it is another one's."""
    return kid is not None and _NAME_OF_A_KEY.fullmatch(kid) is not None


def _refuse_algorithm(algorithm: str) -> NoReturn:
    """No signature and a shared secret prove nothing to anybody; what we cannot verify may still be good."""
    if algorithm.lower() == "none" or algorithm.upper().startswith("HS"):
        raise NotSigned("its algorithm proves nothing")
    raise UnknownKey("its algorithm is not one that is verified here")


def _fitting(algorithm: str, keys: Sequence[BoundKey]) -> list[BoundKey]:
    return [bound for bound in keys if bound.key.kind == JOSE[algorithm][0]][:_UNNAMED_KEYS]
