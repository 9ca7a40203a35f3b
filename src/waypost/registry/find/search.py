"""From a question to its answer: filters, ranking, preferences, evidence, facets, and why there is nothing to show.

Hard filters that the ranker does not know (constraints) are handed to it as the ids that fit, where these are few; else as
a test of ids, so that it passes over what does not fit and goes on to what does. Nothing private is quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.model.principal import Principal, audience
from waypost.model.query import (
    DiscoverResult,
    EmptyResult,
    Evidence,
    Facets,
    Hit,
    MatchedAgent,
    MatchSignals,
    Query,
    Ranking,
    Suggestions,
)
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration, trust_of
from waypost.model.verdict import TrustSummary
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.entries import expiry_of
from waypost.registry.find.empty_results import empty_warnings, explain_empty_result, suggest_tags, suggestion_warnings
from waypost.registry.find.facets import FacetCounter
from waypost.registry.find.filters import FilterSelection, compile_constraints
from waypost.registry.jobs.indexer import LiveIndex
from waypost.registry.ports import Clock, Ranker
from waypost.registry.reader import RegistryReader
from waypost.search.evidence import explain
from waypost.search.ranking.boosts import (
    CLAIMED,
    CONFUSABLE,
    CONFUSABLE_NAME,
    MAX_PREFERENCE_BOOST,
    apply_policy,
    apply_preference,
    parse_preferences,
    policy_of,
    preference_share,
)

_FEW: Final = 5000  # agents that fit the constraints and are ranked among themselves
_WIDER: Final = (1000, 20_000)  # hits asked for when too few of the best fit; the last bounds the work
_NEAR_TIES: Final = 20  # hits beyond the limit that a preference may bring into it
_PLACES: Final = 4

Trust = Callable[[Registration], TrustSummary]
_CLAIMED: Final = TrustSummary(level="self_asserted")


class AgentSearch:
    """One question. `rank` and `findings` are two halves because whole records are read between them."""

    def __init__(self, query: Query, catalogue: Catalog, principal: Principal, now: float) -> None:
        self._query = query
        self._catalogue = catalogue
        self._principal = principal
        self._audience = audience(principal)
        self._now = now
        self._constraints, self._unsupported = compile_constraints(query.constraints, now)
        self._wishes = parse_preferences(query.client_context)
        # Whether of any agent that the caller sees something was verified, or failed: else all are equal in that.
        self._is_judged = catalogue.has_verdicts(self._audience)
        self._wanted = query.limit + (_NEAR_TIES if self._wishes or self._is_judged else 0)
        self._facets: Facets | None = None
        self._rejected: dict[str, int] = {}
        self._best_score: float | None = None
        self._policies: dict[str, float] = {}

    # --- Before records are read -----------------------------------------------------------------

    def rank(self, ranker: Ranker, facets: FacetCounter) -> Ranking:
        if self._constraints or self._query.facets or self._query.statuses:
            selection = self._selection()
            if self._query.facets:
                self._facets = facets.count(self._query.facets, selection.admitted, self._principal)
            if self._constraints or self._query.statuses:
                self._rejected = selection.rejected()
                return self._worth_reading(self._by_policy(self._constrained(ranker, selection)))
        return self._worth_reading(self._by_policy(self._asked(ranker, self._catalogue.is_reachable, self._wanted)))

    def _by_policy(self, ranking: Ranking) -> Ranking:
        """Scores with what was verified taken in, and their order. What was put behind one ten is not lifted into it."""
        if not self._is_judged:
            return ranking
        placed: list[tuple[int, float, Hit]] = []
        place = 1.0  # as in `_chosen`
        for at, hit in enumerate(ranking.hits):
            policy = self._policies[hit.id] = self._policy_of(hit.id)
            place = min(place, hit.score)
            ten = at // limits.DIVERSITY_WINDOW if self._query.diversity else 0
            shown = Hit(hit.id, round(apply_policy(hit.score, policy), _PLACES), hit.near)
            placed.append((ten, -apply_policy(place, policy), shown))
        placed.sort(key=lambda item: item[:2])
        wanted = self._query.limit + (_NEAR_TIES if self._wishes else 0)
        return msgspec.structs.replace(ranking, hits=tuple(hit for _, _, hit in placed[:wanted]))

    def _level_of(self, agent_id: str) -> TrustSummary:
        """What an answer without evidence says of trust."""
        entry = self._catalogue.find(agent_id) if self._is_judged else None
        return _CLAIMED if entry is None else TrustSummary(level=entry.trust)

    def _policy_of(self, agent_id: str) -> float:
        entry = self._catalogue.find(agent_id)
        if entry is None:
            return CLAIMED
        alike = entry.trust == "self_asserted" and self._catalogue.lookalikes.find(entry.name, entry.owner)
        return policy_of(entry.trust, is_confusable=bool(alike))

    def _constrained(self, ranker: Ranker, selection: FilterSelection) -> Ranking:
        """Few that fit are ranked among themselves. Of many the best are looked through for those that fit, and more of
        them where too few do."""
        count = len(selection.admitted)
        if not count:
            return Ranking(hits=())
        if count <= _FEW:
            among = self._catalogue.tags.ids_of(selection.admitted)
            return self._asked(ranker, self._catalogue.is_reachable, self._wanted, among)
        ranking = Ranking(hits=())
        for limit in (self._wanted, *_WIDER):
            ranking = self._asked(ranker, selection.admits(), limit)
            if len(ranking.hits) >= self._wanted:
                break
        return msgspec.structs.replace(ranking, hits=ranking.hits[: self._wanted])

    def _asked(
        self, ranker: Ranker, alive: Callable[[str], bool], limit: int, among: list[str] | None = None
    ) -> Ranking:
        asked = self._query if limit == self._query.limit else msgspec.structs.replace(self._query, limit=limit)
        return ranker.rank(asked, self._audience, alive=alive, now=self._now, among=among)

    def _worth_reading(self, ranking: Ranking) -> Ranking:
        """Without what cannot reach the floor, whatever is preferred."""
        floor = self._query.min_score
        if not floor or not ranking.hits:
            return ranking
        most = 1.0 + MAX_PREFERENCE_BOOST if self._wishes else 1.0  # policy is in the scores already
        worth = tuple(hit for hit in ranking.hits if hit.score * most >= floor)
        if len(worth) < len(ranking.hits):
            self._best_score = max(hit.score for hit in ranking.hits)
        return msgspec.structs.replace(ranking, hits=worth)

    def _selection(self) -> FilterSelection:
        return FilterSelection(self._catalogue, self._audience, self._query, self._constraints)

    # --- After -----------------------------------------------------------------------------------

    def findings(self, ranking: Ranking, registrations: Iterable[Registration], trust: Trust) -> DiscoverResult:
        held = {registration.id: registration for registration in registrations}
        chosen = self._chosen(ranking, held)
        empty = None if chosen else explain_empty_result(self._selection(), self._best_score)
        suggestions = self._suggestions([held[hit.id].record for hit, _ in chosen])
        return DiscoverResult(
            candidates=tuple(self._candidate(hit, share, held[hit.id], trust) for hit, share in chosen),
            applied_filters=self._applied(),
            generated_at=self._now,
            unsupported_filters=tuple(self._unsupported),
            warnings=(*ranking.warnings, *self._warnings(empty, suggestions)),
            facets=self._facets,
            suggestions=suggestions,
            rejected=self._rejected,
            empty=empty,
        )

    def _chosen(self, ranking: Ranking, held: dict[str, Registration]) -> list[tuple[Hit, float]]:
        """Hits with the share of preference that is in their scores."""
        fit = [hit for hit in ranking.hits if hit.id in held]
        if not self._wishes:
            return [(hit, 0.0) for hit in fit[: self._query.limit]]
        weighed: list[tuple[tuple[int, float], Hit, float]] = []
        place = 1.0  # the lowest score so far: the ranker may have put one behind for more than its score
        for at, hit in enumerate(fit):
            ten = (
                at // limits.DIVERSITY_WINDOW if self._query.diversity else 0
            )  # what was put behind one ten is not lifted into it
            place = min(place, hit.score)
            share = preference_share(held[hit.id].record, self._wishes)
            shown = Hit(hit.id, round(apply_preference(hit.score, share), _PLACES), hit.near)
            weighed.append(((ten, -apply_preference(place, share)), shown, share))
        weighed.sort(key=lambda item: item[0])
        chosen = [(hit, share) for _, hit, share in weighed if hit.score >= self._query.min_score]
        return chosen[: self._query.limit]

    def _candidate(self, hit: Hit, share: float, registration: Registration, trust: Trust) -> MatchedAgent:
        told = self._query.include_evidence
        return MatchedAgent(
            record=registration.record,
            score=hit.score,
            etag=registration.etag,
            changed_at=registration.changed_at,
            revision=registration.revision,
            expires_at=expiry_of(registration),
            evidence=self._evidence(hit, share, registration.record) if told else None,
            trust=trust(registration) if told else self._level_of(hit.id),
            health=registration.health,
        )

    def _evidence(self, hit: Hit, share: float, record: AgentRecord) -> Evidence:
        evidence = explain(self._query, _shareable(record), self._now, _shareable_nearness(hit.near, record))
        policy = self._policies.get(hit.id, CLAIMED)
        components = {**evidence.components, "policy": policy}
        if self._wishes:
            components["preference"] = round(share, _PLACES)
        flags = (*evidence.flags, CONFUSABLE_NAME) if policy == CONFUSABLE else evidence.flags
        return msgspec.structs.replace(evidence, components=components, flags=flags)

    def _suggestions(self, found: list[AgentRecord]) -> Suggestions:
        """Of tags that were asked for and that nobody carries. What was found carries every required tag, and an answer
        that is not empty does not wait for what a start has yet to prepare."""
        query = self._query
        tags = {*query.preferred_tags, *query.excluded_tags, *(() if found else query.required_tags)}
        tags = {tag for tag in tags if not any(tag in record.tags for record in found)}
        if not tags or (found and not self._catalogue.is_prepared):
            return {}
        return suggest_tags(self._catalogue, sorted(tags), self._audience, self._selection().visible)

    def _warnings(self, empty: EmptyResult | None, suggestions: Suggestions) -> Iterable[str]:
        if empty is not None:
            yield from empty_warnings(empty, self._query, suggestions)
        yield from suggestion_warnings(suggestions)

    def _applied(self) -> dict[str, Any]:
        query = self._query
        named = (
            ("required_tags", query.required_tags),
            ("preferred_tags", query.preferred_tags),
            ("excluded_tags", query.excluded_tags),
            ("protocols", query.protocols),
            ("statuses", query.statuses),
        )
        applied: dict[str, Any] = {name: list(values) for name, values in named if values}
        if self._constraints:
            applied["constraints"] = {each.name: each.value for each in self._constraints}
        if query.min_score:
            applied["min_score"] = query.min_score
        return applied


class Finder:
    """Answers queries: one `AgentSearch` each, over the catalog and the search index."""

    def __init__(
        self, catalog: Catalog, index: LiveIndex, reader: RegistryReader, facets: FacetCounter, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._reader = reader
        self._facets = facets
        self._clock = clock

    async def find(self, query: Query, principal: Principal) -> DiscoverResult:
        """Ranked candidates that the caller sees, with the filters that were and were not applied."""
        ranker = await self._index.ranker_for(audience(principal))
        now = self._clock.now()
        self._catalog.expire(now)
        search = AgentSearch(query, self._catalog, principal, now)
        ranking = search.rank(ranker, self._facets)
        registrations = await self._reader.registrations([hit.id for hit in ranking.hits], sources=False)
        return search.findings(ranking, registrations, trust_of)

    async def rank(
        self, query: Query, principal: Principal, *, is_match: Callable[[str], bool] | None = None
    ) -> Ranking:
        """The ranking alone, of agents that `is_match` accepts by id; by default of all that the caller sees."""
        visible_to = audience(principal)
        ranker = await self._index.ranker_for(visible_to)
        now = self._clock.now()
        self._catalog.expire(now)
        return ranker.rank(query, visible_to, alive=is_match or self._catalog.is_alive, now=now)


def _shareable_nearness(near: MatchSignals | None, record: AgentRecord) -> MatchSignals | None:
    """With the place of the nearest example among those that may be quoted; without it, when that one may not."""
    if near is None or not near.place or near.place > len(record.examples):
        return near
    if record.examples[near.place - 1].extra.get("private"):
        return msgspec.structs.replace(near, example=None, place=0)
    quoted = sum(not example.extra.get("private") for example in record.examples[: near.place])
    return msgspec.structs.replace(near, place=quoted)


def _shareable(record: AgentRecord) -> AgentRecord:
    """The record without the examples that its publisher marked private: evidence must not quote them (PRO-38)."""
    if not any(example.extra.get("private") for example in record.examples):
        return record
    shown = tuple(example for example in record.examples if not example.extra.get("private"))
    return msgspec.structs.replace(record, examples=shown)
