"""How far what was verified moves a score: a little up, or clearly down. Never by what a text says.

`policy` is the component that evidence shows: 1 for an agent that was verified, 0.5 for one that only claims, 0.25 for one whose
name could be taken for that of somebody else's verified agent, 0 for one that failed a check. It orders near-ties; only a
failure costs more than a better description could bring.
"""

from __future__ import annotations

from typing import Final

from waypost.model.verdict import Level

VERIFIED: Final = 1.0
CLAIMED: Final = 0.5
CONFUSABLE: Final = 0.25
FAILED: Final = 0.0
LIFT: Final = 0.02  # of the score, at most, for what was verified
COST: Final = 0.3  # of the score, at most, for what failed

CONFUSABLE_NAME: Final = "confusable_name"


def policy_of(level: Level, *, is_confusable: bool = False) -> float:
    if level == "failed":
        return FAILED
    if level == "verified":
        return VERIFIED
    return CONFUSABLE if is_confusable else CLAIMED


def with_policy(score: float, policy: float) -> float:
    """A score with its policy taken in."""
    share = (policy - CLAIMED) / (VERIFIED - CLAIMED)
    return min(1.0, score * (1.0 + (LIFT if share > 0 else COST) * share))
