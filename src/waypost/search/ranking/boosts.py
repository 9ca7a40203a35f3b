"""How far what was verified moves a score: a little up, or clearly down. Never by what a text says.

`policy` is the component that evidence shows: 1 for an agent that was verified, 0.5 for one that only claims, 0.25 for one whose
name could be taken for that of somebody else's verified agent, 0 for one that failed a check. It orders near-ties; only a
failure costs more than a better description could bring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waypost.model.facts import LANGUAGE, REGION, facts_of, language_tag, texts_of, values_of
from waypost.model.names import fold_tag
from waypost.model.record import AgentRecord
from waypost.model.verdict import TrustState

VERIFIED: Final = 1.0

CLAIMED: Final = 0.5

CONFUSABLE: Final = 0.25

FAILED: Final = 0.0

MAX_VERIFIED_BOOST: Final = 0.02  # of the score, at most, for what was verified

MAX_FAILED_PENALTY: Final = 0.3  # of the score, at most, for what failed

CONFUSABLE_NAME: Final = "confusable_name"


def policy_of(level: TrustState, *, is_confusable: bool = False) -> float:
    if level == "failed":
        return FAILED
    if level == "verified":
        return VERIFIED
    return CONFUSABLE if is_confusable else CLAIMED


def apply_policy(score: float, policy: float) -> float:
    """A score with its policy taken in."""
    share = (policy - CLAIMED) / (VERIFIED - CLAIMED)
    return min(1.0, score * (1.0 + (MAX_VERIFIED_BOOST if share > 0 else MAX_FAILED_PENALTY) * share))


# ---- How well an agent suits whoever asks, apart from what is asked: language, domain and region of `client_context`.
#
# A preference, never a filter: an agent that states nothing loses nothing but a place among its equals.

MAX_PREFERENCE_BOOST: Final = 0.05  # of the score, at most: it orders near-ties and no more

_DOMAIN_MEMBERS: Final = ("domain", "domains", "industry")


class ClientPreferences(msgspec.Struct, frozen=True, kw_only=True):
    languages: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.languages or self.domains or self.regions)


_NO_PREFERENCES: Final = ClientPreferences()


def parse_preferences(context: Mapping[str, Any]) -> ClientPreferences:
    """What a context says that can be preferred. Other members, and other shapes, say nothing."""
    if not context:
        return _NO_PREFERENCES
    languages = texts_of(context.get("language")) or texts_of(context.get("locale"))
    return ClientPreferences(
        languages=tuple(map(language_tag, languages)),
        domains=tuple(map(fold_tag, texts_of(context.get("domain")))),
        regions=tuple(texts_of(context.get("region"))),
    )


def preference_share(record: AgentRecord, context: Mapping[str, Any] | ClientPreferences) -> float:
    """The share of the wishes that the record states to fulfil, in 0..1."""
    wishes = context if isinstance(context, ClientPreferences) else parse_preferences(context)
    facts = facts_of(record)
    met: list[bool] = []
    if wishes.languages:
        met.append(_any_within(values_of(facts, LANGUAGE), wishes.languages, broader_too=True))
    if wishes.regions:
        met.append(_any_within(values_of(facts, REGION), wishes.regions, broader_too=False))
    if wishes.domains:
        met.append(not _domains(record).isdisjoint(wishes.domains))
    return sum(met) / len(met) if met else 0.0


def apply_preference(score: float, share: float) -> float:
    """A score with its preference taken in."""
    return min(1.0, score * (1.0 + MAX_PREFERENCE_BOOST * share))


def _any_within(stated: list[str], wanted: tuple[str, ...], *, broader_too: bool) -> bool:
    return any(
        one in (other, "*") or one.startswith(f"{other}-") or (broader_too and other.startswith(f"{one}-"))
        for one in stated
        for other in wanted
    )


def _domains(record: AgentRecord) -> set[str]:
    places = (record.constraints or {}, record.extra)
    named = {fold_tag(text) for place in places for name in _DOMAIN_MEMBERS for text in texts_of(place.get(name))}
    return named | set(map(fold_tag, record.tags))
