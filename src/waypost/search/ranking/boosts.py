"""Boosts: how trust and the caller's preferences change a score.

`policy`, a component of the evidence, is 1 for a verified agent, 0.5 for a self-asserted one, 0.25 for one with a confusable
name, 0 for one that failed a check. It orders near-ties; only a failure costs more than a better description can gain.
Preferences (language, domain and region of `client_context`) never filter: an agent that states nothing only loses ties.
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
MAX_VERIFIED_BOOST: Final = 0.02  # of the score, for a verified agent
MAX_FAILED_PENALTY: Final = 0.3  # of the score, for a failed check
CONFUSABLE_NAME: Final = "confusable_name"


def policy_of(level: TrustState, *, is_confusable: bool = False) -> float:
    if level == "failed":
        return FAILED
    if level == "verified":
        return VERIFIED
    return CONFUSABLE if is_confusable else CLAIMED


def apply_policy(score: float, policy: float) -> float:
    """Apply the policy component to a score."""
    share = (policy - CLAIMED) / (VERIFIED - CLAIMED)
    return min(1.0, score * (1.0 + (MAX_VERIFIED_BOOST if share > 0 else MAX_FAILED_PENALTY) * share))


MAX_PREFERENCE_BOOST: Final = 0.05  # of the score: it only orders near-ties
_DOMAIN_MEMBERS: Final = ("domain", "domains", "industry")


class ClientPreferences(msgspec.Struct, frozen=True, kw_only=True):
    languages: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.languages or self.domains or self.regions)


_NO_PREFERENCES: Final = ClientPreferences()


def parse_preferences(context: Mapping[str, Any]) -> ClientPreferences:
    """The preferences in a client context. Other members, and values of other types, are ignored."""
    if not context:
        return _NO_PREFERENCES
    languages = texts_of(context.get("language")) or texts_of(context.get("locale"))
    return ClientPreferences(
        languages=tuple(map(language_tag, languages)),
        domains=tuple(map(fold_tag, texts_of(context.get("domain")))),
        regions=tuple(texts_of(context.get("region"))),
    )


def preference_share(record: AgentRecord, context: Mapping[str, Any] | ClientPreferences) -> float:
    """The share of the preferences that the record meets, in 0..1."""
    preferences = context if isinstance(context, ClientPreferences) else parse_preferences(context)
    facts = facts_of(record)
    met: list[bool] = []
    if preferences.languages:
        met.append(_any_within(values_of(facts, LANGUAGE), preferences.languages, broader_too=True))
    if preferences.regions:
        met.append(_any_within(values_of(facts, REGION), preferences.regions, broader_too=False))
    if preferences.domains:
        met.append(not _domains(record).isdisjoint(preferences.domains))
    return sum(met) / len(met) if met else 0.0


def apply_preference(score: float, share: float) -> float:
    """Apply a share of met preferences to a score."""
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
