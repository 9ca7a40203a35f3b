"""The score of a candidate: a weighted mean of signals on absolute scales.

    score = Σ weight · signal / Σ weight

Every signal is in 0..1 and depends on the query and the record alone, never on the other candidates, so a score means the same
wherever it is. idf is ln(1 + (N − n + ½) / (n + ½)) over what the audience may see.

    words      Σ idf · 2q/(1+q) · impact over the query's terms, divided by M = Σ idf · 2q/(1+q) of all of them (at least 6, at
               most 25); q is how often a term occurs in the query, impact is BM25F of the record (see `index/document`)
    spelling   the same over character 4-grams: Σ idf · impact, divided by Σ idf of the query's grams (at least 30, at most
               140). It tolerates typos and joins forms of a word
    coverage   the share of the query's idf in terms that the record has
    name       the share of the name's terms that are in the query
    meaning    similarity of vectors: half of it with the whole query, half with its best clause. Each is that of the record as a
               whole (`context`), raised halfway to its best example if that is nearer (`example`)
    freshness  halved by each half year since the last update: it orders near-ties

Words that the query rules out ("but not postgres") count in none of these but the meaning, and an agent with such a word in its
name keeps half of its score. Two things lift the score by a share of what is missing to 1: a query that is exactly the agent's
name, id or tag, and preferred tags (`tag`). Spam and deprecation leave a share. The parts are `Scores.components`: they add up.

A sentence model counts as much as its vectors say left out (docs/explanation/search.md): see MEANING. If the query or a record is
not English, words rarely match: then English vectors do not count, and multilingual ones count more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.search.ranking.candidates import Signals
from waypost.search.vectors import SpaceRole

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

DEPRECATED_FACTOR: Final = 0.5  # of the score, for a deprecated agent
RULED_OUT_FACTOR: Final = 0.5  # the same, if the name has a word that the query rules out
EXACT_LIFT: Final = 0.8  # of what is missing to 1, if the query is the agent's name, id or tag
PREFERRED_LIFT: Final = 0.3  # the same, for an agent with all preferred tags
HALF_LIFE_SECONDS: Final = 182 * 86_400.0  # of freshness
EXAMPLE_SHARE: Final = 0.5  # of the way from the similarity of the record to that of a nearer example
CLAUSE_SHARE: Final = 0.5  # of the similarity, if the query has clauses: the best one
FOREIGN_EXTRA: Final = (
    4.0  # of multilingual vectors beyond the weight of all, if the query or the record is not English
)

_STATIC, _MULTILINGUAL, _ENGLISH = SpaceRole.STATIC, SpaceRole.MULTILINGUAL, SpaceRole.ENGLISH
MeaningWeights = Mapping[frozenset[SpaceRole], Mapping[SpaceRole, float]]
# The weights of the vectors, by the spaces there are. Static vectors only stand in for vectors that are not computed yet.
MEANING: Final[MeaningWeights] = {
    frozenset({_MULTILINGUAL, _ENGLISH}): {_MULTILINGUAL: 5.0, _ENGLISH: 7.0},
    frozenset({_MULTILINGUAL}): {_MULTILINGUAL: 8.0},
    frozenset({_ENGLISH}): {_ENGLISH: 10.0},
    frozenset({_STATIC}): {_STATIC: 7.0},
    frozenset(): {},
}
_WORDS_MASS: Final = (6.0, 25.0)  # bounds of Σ idf: short and long queries
_GRAMS_MASS: Final = (30.0, 140.0)
_ORDER_STEPS: Final = 1e9  # of a score in the order: finer differences are rounding noise


class SignalWeights(NamedTuple):
    words: float = 4.0
    spelling: float = 5.0
    coverage: float = 2.0
    name: float = 1.0
    meaning: float = 1.0  # factor of MEANING
    freshness: float = 0.1
    examples: float = 1.0  # factor of EXAMPLE_SHARE
    clauses: float = 1.0  # factor of CLAUSE_SHARE


class QueryMass(NamedTuple):
    """The idf of a query: of its terms (weighted by their counts) and of its grams."""

    terms: float
    grams: float


class Spaces(NamedTuple):
    """The vector spaces that are ready, by role."""

    names: Mapping[SpaceRole, str]
    meaning: MeaningWeights = MEANING

    @property
    def sentence(self) -> dict[SpaceRole, str]:
        return {role: name for role, name in self.names.items() if role != _STATIC}

    @property
    def stand_in(self) -> str | None:
        return self.names.get(_STATIC) if self.sentence else None

    def weights(self, factor: float) -> dict[SpaceRole, float]:
        counted = frozenset(self.sentence) or frozenset(self.names)
        return {role: factor * weight for role, weight in self.meaning[counted].items()}


class Scores(NamedTuple):
    """[candidates]: the scores, and their parts by name, which add up to them."""

    total: F64
    components: Mapping[str, F64]

    def order(self, marks: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """Best first; ties are broken by mark (the hash of the id)."""
        return np.lexsort((marks, -np.rint(self.total * _ORDER_STEPS)))


class ScoringInput(NamedTuple):
    """What the score of a query's candidates is computed from, whatever the weights."""

    signals: Signals
    mass: QueryMass
    spaces: Spaces
    foreign: Mask  # candidates that are compared in another language than English

    def score(self, now: float, weights: SignalWeights) -> Scores:
        return score_candidates(self.signals, self.mass, self.spaces, self.foreign, now, weights)


def score_candidates(
    signals: Signals, mass: QueryMass, spaces: Spaces, foreign: Mask, now: float, weights: SignalWeights
) -> Scores:
    """`foreign` candidates are compared in another language than English."""
    meaning = spaces.weights(weights.meaning)
    parts = {
        "words": weights.words * signals.words.astype(np.float64) / np.clip(mass.terms, *_WORDS_MASS),
        "spelling": weights.spelling * signals.spelling.astype(np.float64) / np.clip(mass.grams, *_GRAMS_MASS),
        "coverage": weights.coverage * signals.coverage.astype(np.float64),
        "name": weights.name * signals.name.astype(np.float64),
        **_meaning(signals, spaces, meaning, foreign, weights),
        "freshness": weights.freshness * _freshness(signals.updated, now),
    }
    whole = weights.words + weights.spelling + weights.coverage + weights.name + weights.freshness
    whole += sum(meaning.values())
    return _finish({name: part / whole for name, part in parts.items()}, signals)


def score_by_tags(signals: Signals) -> Scores:
    """For a query without words."""
    return _finish({}, signals)


def _finish(parts: dict[str, F64], signals: Signals) -> Scores:
    """Lift what is named exactly or preferred, then keep the share that spam and deprecation leave."""
    base = sum(parts.values(), np.zeros(len(signals.rows)))
    excess = np.maximum(base, 1.0)  # above 1 at most in another language, where vectors weigh more
    parts = {name: part / excess for name, part in parts.items()}
    base = base / excess
    lift = np.maximum(EXACT_LIFT * signals.exact, PREFERRED_LIFT * signals.preferred.astype(np.float64))
    parts["tag"] = lift * (1.0 - base)
    kept = signals.worth.astype(np.float64) * np.where(signals.deprecated, DEPRECATED_FACTOR, 1.0)
    kept *= np.where(signals.ruled_out, RULED_OUT_FACTOR, 1.0)
    components = {name: part * kept for name, part in parts.items()}
    return Scores(np.minimum(base + parts["tag"], 1.0) * kept, components)


def _meaning(
    signals: Signals, spaces: Spaces, by_role: Mapping[SpaceRole, float], foreign: Mask, weights: SignalWeights
) -> dict[str, F64]:
    """The weighted similarity of the records as a whole, and what their examples add."""
    context, example = np.zeros((2, len(signals.rows)))
    has_multilingual = _MULTILINGUAL in by_role
    foreign_weight = sum(by_role.values()) + FOREIGN_EXTRA * weights.meaning
    for role, weight in by_role.items():
        whole, both = _similarity(signals, spaces.names[role], spaces.stand_in, weights)
        abroad = foreign_weight if role == _MULTILINGUAL else 0.0
        counted = np.where(foreign, abroad, weight) if has_multilingual else weight
        context += counted * whole
        example += counted * (both - whole)
    return {"context": context, "example": example} if by_role else {}


def _similarity(signals: Signals, name: str, stand_in: str | None, weights: SignalWeights) -> tuple[F64, F64]:
    """By the record as a whole, and with its best example. Rows without vectors get those of the stand-in."""
    centre, best = signals.centres[name].astype(np.float64), signals.examples[name].astype(np.float64)
    both = centre + EXAMPLE_SHARE * weights.examples * np.maximum(best - centre, 0.0)
    whole, both = _join_clauses(centre, weights), _join_clauses(both, weights)
    if stand_in is None or signals.covered[name].all():
        return whole, both
    static = _join_clauses(signals.centres[stand_in].astype(np.float64), weights)
    return np.where(signals.covered[name], whole, static), np.where(signals.covered[name], both, static)


def _join_clauses(by_unit: F64, weights: SignalWeights) -> F64:
    """[candidates, units] → [candidates]: the whole query, and its best clause."""
    share = CLAUSE_SHARE * weights.clauses if by_unit.shape[1] > 1 else 0.0
    joined = by_unit[:, 0] * (1.0 - share)
    return np.maximum(joined + share * by_unit[:, 1:].max(axis=1) if share else joined, 0.0)


def _freshness(updated: F64, now: float) -> F64:
    """By Python's power, one by one: numpy's differs in the last digit on some processors."""
    ages = np.maximum(0.0, now - updated) / HALF_LIFE_SECONDS
    return np.array([0.5**age for age in ages.tolist()], dtype=np.float64)
