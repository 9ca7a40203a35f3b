"""Search: filters, ranking, trust, preferences, evidence, facets, and the explanation of an empty result.

The ranker does not know constraints. It gets the ids that pass them if these are few, else a predicate over ids, so that it
skips agents that do not pass. Evidence never quotes private examples.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.model.principal import Principal, audience, may_see
from waypost.model.query import (
    MATCHES,
    DiscoverResult,
    EmptyResult,
    Evidence,
    Facets,
    Hit,
    Match,
    MatchedAgent,
    MatchSignals,
    Query,
    Ranking,
    Suggestions,
    is_match_at_least,
)
from waypost.model.record import AgentRecord
from waypost.model.registration import CatalogEntry, Registration, trust_of, verdicts_of
from waypost.model.verdict import TrustSummary
from waypost.registry.catalog.catalog import NO_ENTRY, Catalog
from waypost.registry.catalog.entries import entry_of
from waypost.registry.find.calibration import MatchCalibration
from waypost.registry.find.empty_results import (
    empty_warnings,
    explain_empty_result,
    spelling_warnings,
    suggest_tags,
    suggestion_warnings,
)
from waypost.registry.find.facets import FacetCounter
from waypost.registry.find.filters import FilterSelection, compile_constraints
from waypost.registry.find.standing_query import StandingQuery
from waypost.registry.jobs.indexer import LiveIndex
from waypost.registry.ports import Clock, QueryRanker, Ranker, Timings
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
from waypost.search.ranking.match import (
    DEFAULT_THRESHOLDS,
    ExactField,
    ExactMatcher,
    MatchThresholds,
    match_of,
)
from waypost.search.reason import ReasonWriter, add_remark
from waypost.search.text.analyzer import analyze_query

_RANKED_BY_ID: Final = 5000  # up to so many agents that pass the constraints are ranked among themselves
_WIDER_LIMITS: Final = (1000, 20_000)  # further hits to try if too few of the best pass; the last one bounds the work
_AFTER_ALL_WINDOWS: Final = 1_000_000
_SPARE_HITS: Final = 20  # beyond the limit, which trust or a preference may move up
_SCORE_DECIMALS: Final = 4
_LOOKS_LIKE_ID: Final = re.compile(r"^\S+[:/]\S+$|^[0-9A-Fa-f]{8}-[0-9A-Fa-f-]{27}$")
_SELF_ASSERTED: Final = TrustSummary(level="self_asserted")


ReasonCache = LruCache[
    Hashable, str
]  # by query, agent with its version, and signals: a repeated query writes none again


class AgentSearch:
    """One query: `rank` first, then `make_result` with the records of the hits."""

    def __init__(
        self,
        query: Query,
        catalog: Catalog,
        principal: Principal,
        now: float,
        thresholds: MatchThresholds = DEFAULT_THRESHOLDS,
        foreign: Sequence[Registration] = (),
        reasons: ReasonCache | None = None,
    ) -> None:
        """`foreign` are agents that other registries found for this query: they are in no catalog and no index here."""
        self._query = query
        self._thresholds = thresholds.for_query(query.text)
        self._catalog = catalog
        self._principal = principal
        self._audience = audience(principal)
        self._now = now
        self._constraints, self._unsupported = compile_constraints(query.constraints, now)
        self._preferences = parse_preferences(query.client_context)
        self._searched = query  # the same with the spelling corrected
        self._reasons = ReasonWriter(query)
        self._cached_reasons = ReasonCache(0) if reasons is None else reasons
        self._exact = ExactMatcher(query.text)
        self._exact_fields: dict[str, ExactField | None] = {}  # by id
        self._has_words = bool(analyze_query(query.text[: limits.QUERY_CHARS]).terms)
        self.foreign = self._admit_foreign(foreign) if foreign else {}
        # Otherwise trust is equal for all.
        self._has_verdicts = catalog.has_verdicts(self._audience) or any(map(verdicts_of, self.foreign.values()))
        self._has_dead = catalog.has_dead(self._audience)
        self._hit_limit = query.limit + (_SPARE_HITS if self._preferences or self._has_verdicts else 0)
        self._facets: Facets | None = None
        self._rejected: dict[str, int] = {}
        self._best_score: float | None = None
        self._best_match: Match | None = None
        self._policies: dict[str, float] = {}

    def _admit_foreign(self, foreign: Sequence[Registration]) -> dict[str, Registration]:
        """Those that pass the filters."""
        catalog = Catalog()
        catalog.load([entry_of(registration) for registration in foreign])
        while catalog.prepare():
            continue
        admits = FilterSelection(catalog, self._audience, self._query, self._constraints).admits()
        return {each.id: each for each in foreign if admits(each.id) and not each.has_expired(self._now)}

    def _find_entry(self, agent_id: str) -> CatalogEntry | None:
        registration = self.foreign.get(agent_id)
        return self._catalog.find(agent_id) if registration is None else entry_of(registration)

    # --- Ranking ---------------------------------------------------------------------------------

    def rank(self, ranker: QueryRanker, facets: FacetCounter) -> Ranking:
        if self._constraints or self._query.facets or self._query.statuses:
            selection = self._selection()
            if self._query.facets:
                self._facets = facets.count(self._query.facets, selection.admitted, self._principal)
            if self._constraints or self._query.statuses:
                self._rejected = selection.rejected()
                return self._drop_low_scores(
                    self._put_named_first(self._apply_trust(self._rank_selection(ranker, selection)))
                )
        ranking = self._rank(ranker, self._catalog.is_reachable, self._hit_limit)
        return self._drop_low_scores(self._put_named_first(self._apply_trust(ranking)))

    def rank_among(self, ranker: QueryRanker, ids: Sequence[str]) -> Ranking:
        """Rank these agents alone."""
        ranking = self._rank(ranker, self._catalog.is_reachable, self._hit_limit, list(ids))
        return self._apply_trust(ranking)

    def matches(self, ranking: Ranking, registrations: Iterable[Registration]) -> dict[str, Match]:
        """The match of each hit that is not below `min_match`."""
        found = {registration.record.id: registration for registration in registrations}
        chosen = [(hit, 0.0) for hit in ranking.hits if hit.id in found]
        return {hit.id: self._match(hit, found[hit.id]) for hit, _ in self._drop_weak_matches(chosen, found)}

    def _put_named_first(self, ranking: Ranking) -> Ranking:
        """If the text is the id or an alias of a visible agent that passes the filters, it is the best hit: ids are not
        searched by words. A plain word names no agent, or an id such as `weather` would be first for everybody."""
        text = self._query.text.strip()
        if len(text) > limits.ID_CHARS or not _LOOKS_LIKE_ID.search(text):
            return ranking
        agent_id = self._catalog.resolve(text)
        entry = (self._catalog.find(agent_id) if agent_id is not None else None) or NO_ENTRY
        if not may_see(self._principal, entry.scopes) or not self._selection().admits()(entry.id):
            return ranking
        known = next((hit for hit in ranking.hits if hit.id == entry.id), None)
        named = Hit(entry.id, 1.0, None if known is None else known.near)
        return msgspec.structs.replace(ranking, hits=(named, *(hit for hit in ranking.hits if hit is not known)))

    def _apply_trust(self, ranking: Ranking) -> Ranking:
        """Multiply scores by the trust policy and sort again, within each window of the diversity rule."""
        if not self._has_verdicts:
            return ranking
        weighted: list[tuple[int, float, Hit]] = []
        lowest = 1.0  # as in `_choose`
        for index, hit in enumerate(ranking.hits):
            policy = self._policies[hit.id] = self._policy_of(hit.id)
            lowest = min(lowest, hit.score)
            scored = _with_score(hit, apply_policy(hit.score, policy))
            weighted.append((self._window(index, hit.id), -apply_policy(lowest, policy), scored))
        weighted.sort(key=lambda item: item[:2])
        limit = self._query.limit + (_SPARE_HITS if self._preferences else 0)
        return msgspec.structs.replace(ranking, hits=tuple(hit for _, _, hit in weighted[:limit]))

    def _window(self, index: int, agent_id: str) -> int:
        """The diversity rule moved some agents out of a window of results, and dead agents are last: later steps must not
        move them back in."""
        window = index // limits.DIVERSITY_WINDOW if self._query.diversity else 0
        return window + _AFTER_ALL_WINDOWS if self._has_dead and self._catalog.is_dead(agent_id) else window

    def _policy_of(self, agent_id: str) -> float:
        entry = self._find_entry(agent_id)
        if entry is None:
            return CLAIMED
        similar = entry.trust == "self_asserted" and self._catalog.confusable_names.find(entry.name, entry.owner)
        return policy_of(entry.trust, is_confusable=bool(similar))

    def _rank_selection(self, ranker: QueryRanker, selection: FilterSelection) -> Ranking:
        """Rank a small selection among itself. For a large one, filter the best hits, and try more if too few pass."""
        count = len(selection.admitted)
        if not count and not self.foreign:
            return Ranking(hits=())
        if count <= _RANKED_BY_ID:
            among = self._catalog.tags.ids_of(selection.admitted)
            return self._rank(ranker, self._catalog.is_reachable, self._hit_limit, among)
        ranking = Ranking(hits=())
        for limit in (self._hit_limit, *_WIDER_LIMITS):
            ranking = self._rank(ranker, selection.admits(), limit)
            if len(ranking.hits) >= self._hit_limit:
                break
        return msgspec.structs.replace(ranking, hits=ranking.hits[: self._hit_limit])

    def _rank(
        self, ranker: QueryRanker, alive: Callable[[str], bool], limit: int, among: list[str] | None = None
    ) -> Ranking:
        query = self._query if limit == self._query.limit else msgspec.structs.replace(self._query, limit=limit)
        rank = partial(ranker.rank, query, self._audience, now=self._now, among=among)
        ranking = rank_dead_last(rank, alive, self._catalog, limit) if self._has_dead else rank(alive=alive)
        if ranking.searched_text is not None:
            self._searched = msgspec.structs.replace(self._query, text=ranking.searched_text)
            self._reasons, self._exact = ReasonWriter(self._searched), ExactMatcher(ranking.searched_text)
        return ranking

    def _drop_low_scores(self, ranking: Ranking) -> Ranking:
        """Drop hits that no preference can lift to the minimum score."""
        min_score = self._query.min_score
        if not min_score or not ranking.hits:
            return ranking
        boost = 1.0 + MAX_PREFERENCE_BOOST if self._preferences else 1.0
        hits = tuple(hit for hit in ranking.hits if hit.score * boost >= min_score)
        if len(hits) < len(ranking.hits):
            self._best_score = max(hit.score for hit in ranking.hits)
        return msgspec.structs.replace(ranking, hits=hits)

    def _selection(self) -> FilterSelection:
        return FilterSelection(self._catalog, self._audience, self._query, self._constraints)

    # --- The result ------------------------------------------------------------------------------

    def make_result(self, ranking: Ranking, registrations: Iterable[Registration]) -> DiscoverResult:
        found = {registration.record.id: registration for registration in registrations}
        chosen = self._drop_weak_matches(self._choose(ranking, found), found)
        shown = accumulate((hit.score for hit, _ in chosen), min)
        empty = None if chosen else explain_empty_result(self._selection(), self._best_score, self._best_match)
        records = [found[hit.id].record for hit, _ in chosen]
        suggestions = self._suggestions(records)
        return DiscoverResult(
            candidates=tuple(
                self._candidate(hit, share, found[hit.id], score)
                for (hit, share), score in zip(chosen, shown, strict=True)
            ),
            applied_filters=self._applied_filters(),
            generated_at=self._now,
            unsupported_filters=tuple(self._unsupported),
            warnings=(
                *ranking.warnings,
                *self._warnings(empty, suggestions),
                *spelling_warnings(ranking.spelling, ranking.corrections),
                *self._dead_warnings(chosen),
            ),
            facets=self._facets,
            suggestions=suggestions,
            spelling=ranking.spelling,
            corrections=ranking.corrections,
            rejected=self._rejected,
            empty=empty,
        )

    def _choose(self, ranking: Ranking, found: dict[str, Registration]) -> list[tuple[Hit, float]]:
        """The hits of the result, each with the share of the caller's preferences that it meets."""
        hits = [hit for hit in ranking.hits if hit.id in found]
        if not self._preferences:
            return [(hit, 0.0) for hit in hits[: self._query.limit]]
        weighted: list[tuple[tuple[int, float], Hit, float]] = []
        lowest = 1.0  # so far: the ranker may have moved a hit down for other reasons than its score
        for index, hit in enumerate(hits):
            lowest = min(lowest, hit.score)
            share = preference_share(found[hit.id].record, self._preferences)
            scored = _with_score(hit, apply_preference(hit.score, share))
            weighted.append(((self._window(index, hit.id), -apply_preference(lowest, share)), scored, share))
        weighted.sort(key=lambda item: item[0])
        chosen = [(hit, share) for _, hit, share in weighted if hit.score >= self._query.min_score]
        return chosen[: self._query.limit]

    def _drop_weak_matches(
        self, chosen: list[tuple[Hit, float]], found: dict[str, Registration]
    ) -> list[tuple[Hit, float]]:
        least = self._query.min_match
        if least == "weak" or not chosen:
            return chosen
        matches = [self._match(hit, found[hit.id]) for hit, _ in chosen]
        kept = [each for each, match in zip(chosen, matches, strict=True) if is_match_at_least(match, least)]
        if not kept:
            self._best_match = min(matches, key=MATCHES.index)
        return kept

    def _exact_field(self, registration: Registration) -> ExactField | None:
        if registration.id not in self._exact_fields:
            field = self._exact.find_field(registration.record, registration.aliases)
            self._exact_fields[registration.id] = field
        return self._exact_fields[registration.id]

    def _match(self, hit: Hit, registration: Registration) -> Match:
        record, exact = registration.record, self._exact_field(registration)
        if exact is None and self._reasons.find_ruled_out(record):
            return "weak"
        match = match_of(hit.score, self._thresholds, exact)
        if match != "weak":
            return match
        # Without words it has all that the caller named: tags, protocols.
        has_all = not self._has_words or self._reasons.has_all_words(_without_private_examples(record))
        return "possible" if has_all else "weak"

    def _reason(self, hit: Hit, registration: Registration) -> str:
        record, asked, near = registration.record, self._searched, hit.near
        nearest = None if near is None else (near.place, near.context, near.example)
        key = (asked.text, asked.required_tags, asked.preferred_tags, registration.id, registration.etag, nearest)
        reason = self._cached_reasons.get(key)
        if reason is None:
            shown, exact = _without_private_examples(record), self._exact_field(registration)
            reason = self._reasons.write(shown, _public_signals(near, record), exact)
            self._cached_reasons.put(key, reason)
        if record.status == "deprecated":
            reason = add_remark(reason, "it is deprecated")
        if self._has_dead and self._catalog.is_dead(hit.id):
            reason = add_remark(reason, "it did not answer its last health check")
        return reason

    def _candidate(self, hit: Hit, share: float, registration: Registration, score: float) -> MatchedAgent:
        """`score` is at most that of the candidate before: a hit that was moved down, as a copy or because it is dead, gets
        the score of its place, so that candidates are in the order of their scores."""
        with_evidence = self._query.include_evidence
        return MatchedAgent(
            record=registration.record,
            score=score,
            match=self._match(hit, registration),
            reason=self._reason(hit, registration),
            is_provisional=hit.is_provisional,
            etag=registration.etag,
            changed_at=registration.changed_at,
            revision=registration.revision,
            expires_at=registration.expires_at,
            evidence=self._evidence(hit, share, registration.record, score) if with_evidence else None,
            trust=trust_of(registration) if with_evidence else self._trust_level(hit.id),
            health=registration.health,
            federation=registration.federation,
        )

    def _trust_level(self, agent_id: str) -> TrustSummary:
        entry = self._find_entry(agent_id) if self._has_verdicts else None
        return _SELF_ASSERTED if entry is None else TrustSummary(level=entry.trust)

    def _evidence(self, hit: Hit, share: float, record: AgentRecord, score: float) -> Evidence:
        evidence = explain(self._searched, _without_private_examples(record), _public_signals(hit.near, record))
        policy = self._policies.get(hit.id, CLAIMED)
        components = dict(evidence.components)
        ranked = sum(components.values())  # trust and preferences add the rest of the score
        trusted = apply_policy(ranked, policy)
        components["policy"] = round(trusted - ranked + score - hit.score, _SCORE_DECIMALS)
        if self._preferences:
            components["preference"] = round(apply_preference(trusted, share) - trusted, _SCORE_DECIMALS)
        flags = (*evidence.flags, CONFUSABLE_NAME) if policy == CONFUSABLE else evidence.flags
        return msgspec.structs.replace(evidence, components=components, flags=flags)

    def _suggestions(self, found: list[AgentRecord]) -> Suggestions:
        """Similar tags for those of the query that no agent carries. Every result carries the required tags. A result that
        is not empty does not wait for the catalog to be prepared after a start."""
        query = self._query
        tags = {*query.preferred_tags, *query.excluded_tags, *(() if found else query.required_tags)}
        tags = {tag for tag in tags if not any(tag in record.tags for record in found)}
        if not tags or (found and not self._catalog.is_prepared):
            return {}
        return suggest_tags(self._catalog, sorted(tags), self._audience, self._selection().visible)

    def _warnings(self, empty: EmptyResult | None, suggestions: Suggestions) -> Iterable[str]:
        if empty is not None:
            yield from empty_warnings(empty, self._query, suggestions)
        yield from suggestion_warnings(suggestions)

    def _dead_warnings(self, chosen: list[tuple[Hit, float]]) -> Iterable[str]:
        count = sum(self._catalog.is_dead(hit.id) for hit, _ in chosen) if self._has_dead else 0
        if count:
            what = "One of these agents is dead" if count == 1 else f"{count} of these agents are dead"
            yield f"{what}: the endpoint failed at least {limits.HEALTH_FAILURES} checks in a row. Dead agents are ranked last."

    def _applied_filters(self) -> dict[str, Any]:
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
        if query.min_match != "weak":
            applied["min_match"] = query.min_match
        return applied


def _with_score(hit: Hit, score: float) -> Hit:
    return Hit(hit.id, round(score, _SCORE_DECIMALS), hit.near, hit.is_provisional)


def rank_dead_last(rank: Callable[..., Ranking], alive: Callable[[str], bool], catalog: Catalog, limit: int) -> Ranking:
    """The best live agents, then dead ones as far as there is room. `rank` takes the predicate `alive`."""
    if alive == catalog.is_reachable:
        is_live = catalog.is_live  # a method, so that the ranker can cache the result
    else:
        is_live = lambda agent_id: alive(agent_id) and not catalog.is_dead(agent_id)  # noqa: E731
    live = rank(alive=is_live)
    if len(live.hits) >= limit:
        return live
    dead = [hit for hit in rank(alive=alive).hits if catalog.is_dead(hit.id)]
    return msgspec.structs.replace(live, hits=(*live.hits, *dead)[:limit])


class RegistryFinder:
    """Answers queries: one `AgentSearch` each, over the catalog and the search index."""

    def __init__(
        self,
        catalog: Catalog,
        index: LiveIndex,
        reader: RegistryReader,
        facets: FacetCounter,
        clock: Clock,
        timings: Timings,
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._reader = reader
        self._facets = facets
        self._clock = clock
        self._timings = timings
        self.calibration = MatchCalibration(catalog, index, clock)
        self._reasons = ReasonCache(limits.REASON_CACHE)

    async def find(self, query: Query, principal: Principal, foreign: Sequence[Registration] = ()) -> DiscoverResult:
        """Ranked candidates that the caller sees, with the filters that were and were not applied. `foreign` are agents that
        other registries found for the query; they are ranked with those of this one."""
        started_at = time.perf_counter()
        visible_to = audience(principal)
        thresholds = await self.calibration.thresholds(visible_to)
        ranker = await self._index.ranker_for(visible_to, query)
        now = self._clock.now()
        self._catalog.expire(now)
        search = AgentSearch(query, self._catalog, principal, now, thresholds, foreign, self._reasons)
        extended = await self._extend(ranker, search.foreign)
        ranking = search.rank(extended, self._facets)
        local = [hit.id for hit in ranking.hits if hit.id not in search.foreign]
        registrations = await self._reader.registrations(local, sources=False)
        result = search.make_result(ranking, (*registrations, *search.foreign.values()))
        self._timings.search(time.perf_counter() - started_at)
        return result

    async def _extend(self, ranker: Ranker, foreign: Mapping[str, Registration]) -> QueryRanker:
        return await asyncio.to_thread(ranker.extend, list(foreign.values())) if foreign else ranker

    def standing_query(self, query: Query, principal: Principal) -> StandingQuery:
        """A filter for the events of a watcher."""

        async def match_agents(ids: Sequence[str]) -> dict[str, Match]:
            return await self._match_agents(
                msgspec.structs.replace(query, limit=len(ids), diversity=False), principal, ids
            )

        return StandingQuery(match_agents, self._lacks_vectors)

    def _lacks_vectors(self, ids: Sequence[str]) -> bool:
        return self._index.has_caught_up and self._index.ranker.index.lacks_vectors(ids)

    async def _match_agents(self, query: Query, principal: Principal, ids: Sequence[str]) -> dict[str, Match]:
        visible_to = audience(principal)
        thresholds = await self.calibration.thresholds(visible_to)
        ranker = await self._index.ranker_for(visible_to, query)
        now = self._clock.now()
        self._catalog.expire(now)
        search = AgentSearch(query, self._catalog, principal, now, thresholds)
        ranking = search.rank_among(ranker, ids)
        registrations = await self._reader.registrations([hit.id for hit in ranking.hits], sources=False)
        return search.matches(ranking, registrations)

    async def rank(
        self,
        query: Query,
        principal: Principal,
        *,
        is_match: Callable[[str], bool] | None = None,
        foreign: Sequence[Registration] = (),
    ) -> Ranking:
        """The ranking alone, of agents that `is_match` accepts by id; by default of all that the caller sees. `foreign` are
        ranked with them."""
        started_at = time.perf_counter()
        visible_to = audience(principal)
        ranker = await self._index.ranker_for(visible_to, query)
        now = self._clock.now()
        self._catalog.expire(now)
        alive = is_match or self._catalog.is_alive
        extended = await self._extend(ranker, {each.id: each for each in foreign})
        rank = partial(extended.rank, query, visible_to, now=now)
        has_dead = self._catalog.has_dead(visible_to)
        ranking = rank_dead_last(rank, alive, self._catalog, query.limit) if has_dead else rank(alive=alive)
        self._timings.search(time.perf_counter() - started_at)
        return ranking


def _public_signals(near: MatchSignals | None, record: AgentRecord) -> MatchSignals | None:
    """Number the nearest example among the public ones; drop it if it is private."""
    if near is None or not near.place or near.place > len(record.examples):
        return near
    if record.examples[near.place - 1].extra.get("private"):
        return msgspec.structs.replace(near, example=None, place=0)
    quoted = sum(not example.extra.get("private") for example in record.examples[: near.place])
    return msgspec.structs.replace(near, place=quoted)


def _without_private_examples(record: AgentRecord) -> AgentRecord:
    """The record without private examples: evidence must not quote them (PRO-38)."""
    if not any(example.extra.get("private") for example in record.examples):
        return record
    shown = tuple(example for example in record.examples if not example.extra.get("private"))
    return msgspec.structs.replace(record, examples=shown)
