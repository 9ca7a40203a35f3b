"""How well an agent suits whoever asks, apart from what is asked: language, domain and region of `client_context`.

A preference, never a filter: an agent that states nothing loses nothing but a place among its equals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waypost.model.facts import LANGUAGE, REGION, facts_of, language_tag, texts_of, values_of
from waypost.model.names import fold_tag
from waypost.model.record import AgentRecord

BOOST: Final = 0.05  # of the score, at most: it orders near-ties and no more
_DOMAINS: Final = ("domain", "domains", "industry")


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    languages: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.languages or self.domains or self.regions)


_NO_WISHES: Final = Wishes()


def wishes_of(context: Mapping[str, Any]) -> Wishes:
    """What a context says that can be preferred. Other members, and other shapes, say nothing."""
    if not context:
        return _NO_WISHES
    languages = texts_of(context.get("language")) or texts_of(context.get("locale"))
    return Wishes(
        languages=tuple(map(language_tag, languages)),
        domains=tuple(map(fold_tag, texts_of(context.get("domain")))),
        regions=tuple(texts_of(context.get("region"))),
    )


def preference(record: AgentRecord, context: Mapping[str, Any] | Wishes) -> float:
    """The share of the wishes that the record states to fulfil, in 0..1."""
    wishes = context if isinstance(context, Wishes) else wishes_of(context)
    facts = facts_of(record)
    met: list[bool] = []
    if wishes.languages:
        met.append(_any_within(values_of(facts, LANGUAGE), wishes.languages, broader_too=True))
    if wishes.regions:
        met.append(_any_within(values_of(facts, REGION), wishes.regions, broader_too=False))
    if wishes.domains:
        met.append(not _domains(record).isdisjoint(wishes.domains))
    return sum(met) / len(met) if met else 0.0


def preferred(score: float, share: float) -> float:
    """A score with its preference taken in."""
    return min(1.0, score * (1.0 + BOOST * share))


def _any_within(stated: list[str], wanted: tuple[str, ...], *, broader_too: bool) -> bool:
    return any(
        one in (other, "*") or one.startswith(f"{other}-") or (broader_too and other.startswith(f"{one}-"))
        for one in stated
        for other in wanted
    )


def _domains(record: AgentRecord) -> set[str]:
    places = (record.constraints or {}, record.extra)
    named = {fold_tag(text) for place in places for name in _DOMAINS for text in texts_of(place.get(name))}
    return named | set(map(fold_tag, record.tags))
