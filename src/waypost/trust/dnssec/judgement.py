"""The four ends of a validation (RFC 4035 §4.3), with the reason."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Security = Literal["secure", "insecure", "bogus", "indeterminate"]
_WEAKEST_FIRST: Final[tuple[Security, ...]] = ("bogus", "indeterminate", "insecure", "secure")


class Judgement(msgspec.Struct, frozen=True):
    security: Security
    reason: str = ""

    @property
    def is_secure(self) -> bool:
        return self.security == "secure"


SECURE: Final = Judgement("secure")


def insecure(reason: str) -> Judgement:
    return Judgement("insecure", reason)


def bogus(reason: str) -> Judgement:
    return Judgement("bogus", reason)


def weakest(*judgements: Judgement) -> Judgement:
    """A chain is as strong as its weakest link; of equals the first tells why."""
    return min(judgements, key=lambda judgement: _WEAKEST_FIRST.index(judgement.security), default=SECURE)
