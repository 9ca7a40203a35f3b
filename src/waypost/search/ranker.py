"""Recent questions and their answers: the same is asked often, and by many. Bounded, and good only until the index changes.

An answer is kept for one audience and one way to tell who lives, and is given again only while all of its agents do. What
depends on the time of day is no finer than an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.cache import LruCache
from waypost.model.credentials import RESERVED_SUBJECTS
from waypost.model.principal import LAN_SUBJECT
from waypost.model.query import Hit, MatchSignals, Query, Ranking
from waypost.model.registration import Registration
from waypost.search.index.document import hash_of
from waypost.search.index.index import SearchIndex, YieldControl, never_yield
from waypost.search.index.segment import Array, Rows, id_keys
from waypost.search.index.segment_reader import Mask, SegmentReader
from waypost.search.kernels.ivf_index_fallback import QUERY_GRID
from waypost.search.kernels.scoring_fallback import round_scores
from waypost.search.parsed_query import ParsedQuery, SearchFilters, TermWeights, parse_filters, parse_query
from waypost.search.ranking import scoring
from waypost.search.ranking.candidates import (
    F64,
    RetrievalDepth,
    SegmentHits,
    Signals,
    WeightedTerms,
    apply_filters,
    concatenate_signals,
    find_again_by_words,
    find_candidates,
    measure_signals,
    nearest_example,
    retrieval_depth,
    select_rows,
)
from waypost.search.ranking.diversity import DIVERSITY_RULES
from waypost.search.ranking.near_duplicates import (
    DEEP_CANDIDATES,
    cap_duplicates,
    find_duplicates,
    is_flooded,
    near_duplicate_rows,
)
from waypost.search.ranking.scoring import SignalWeights, SpaceNames
from waypost.search.text.language import ENGLISH, UNKNOWN, detect_language, is_not_english
from waypost.search.text.taxonomy import Taxonomy, standard_taxonomy
from waypost.search.vectors.embedding import Embedder, Vectors, VectorSpace, find_parts_embedder

HOUR_SECONDS: Final = 3600.0

_CACHED_RANKINGS: Final = 1024

_MAX_CACHED_LIMIT: Final = 100  # a longer answer is somebody's export, not a question


class RankingCache:
    """Recent rankings, valid until the index changes. The key None is never cached."""

    def __init__(self) -> None:
        self._rankings: LruCache[Hashable, tuple[Hashable, Ranking]] = LruCache(_CACHED_RANKINGS)

    def __len__(self) -> int:
        return len(self._rankings)

    def find(self, key: Hashable, generation: Hashable, alive: Callable[[str], bool]) -> Ranking | None:
        """The ranking of this generation of the index, if all of its agents are still alive."""
        cached = self._rankings.get(key) if key is not None else None
        if cached is None or cached[0] != generation or not all(alive(hit.id) for hit in cached[1].hits):
            return None
        return cached[1]

    def put(self, key: Hashable, generation: Hashable, ranking: Ranking) -> None:
        if key is not None:
            self._rankings.put(key, (generation, ranking))


def cache_key(
    query: Query, audience: frozenset[str] | None, alive: Callable[[str], bool], now: float, readiness: Hashable
) -> Hashable:
    """None: not to be remembered. A plain function may test anything; a method tests the same for everybody."""
    told_by = getattr(alive, "__func__", None)
    if told_by is None or query.constraints or query.statuses or query.limit > _MAX_CACHED_LIMIT:
        return None
    asked = (query.text, query.required_tags, query.preferred_tags, query.excluded_tags, query.protocols, query.limit)
    return (*asked, query.include_evidence, query.diversity, audience, told_by, now // HOUR_SECONDS, readiness)


# ---- The ranker: masks, candidates, signals, fusion, score, spread. The engine knows it by `registry.ports.Ranker`.
#
# Order: the score; equals always stand in the same order. A deprecated agent keeps half of its score, a
# stuffed one what `honesty` leaves. Near
# duplicates and floods by one owner are spread so that each ten stays open to others (see `spreading`).

try:
    from waypost.search.kernels.duplicates import diversify_rows
    from waypost.search.kernels.scoring import rank_by_scores, rank_candidates, read_ids
except ImportError:
    from waypost.search.kernels.duplicates_fallback import diversify_rows
    from waypost.search.kernels.ranking_fallback import rank_by_scores, rank_candidates
    from waypost.search.kernels.scoring_fallback import read_ids

_SCORE_DECIMALS: Final = 4  # that are shown

_SCORE_STEPS: Final = 10.0**_SCORE_DECIMALS  # steps of a score that is shown
# What these hold was brought by many: an import of the operator's, an open service, the LAN. None of them floods an answer.
_SHARED_OWNERS: Final = np.array([*map(hash_of, (*sorted(RESERVED_SUBJECTS), LAN_SUBJECT))], dtype=np.uint64)

_DIVERSIFIED: Final = 100  # of the best: those that a flood could fill

_SPARE: Final = 24  # candidates beyond the limit that may turn out dead

_NO_NAMES: Final = SpaceNames()

_KNOWN_SHARE: Final = 0.25  # of a question's words: with fewer that the index knows, words say nothing

_NOISE_SCORE: Final = 0.003  # the score of an agent of which nothing speaks but a vector that is not very near


class HybridRanker:
    def __init__(
        self,
        folder: Path | None = None,
        spaces: Iterable[VectorSpace] = (),
        weights: SignalWeights | None = None,
        taxonomy: Taxonomy | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.index = SearchIndex(folder, tuple(spaces))
        self._weights = weights or SignalWeights()
        self._taxonomy = taxonomy
        self._warnings = tuple(warnings)
        self._recent = RankingCache()

    # --- The index -------------------------------------------------------------------------------

    def open(self) -> int:
        return self.index.open()

    def clear(self) -> None:
        self.index.clear()

    def put(self, registration: Registration) -> None:
        self.index.put(registration)

    def remove(self, agent_id: str, revision: int = 0) -> None:
        self.index.remove(agent_id, revision)

    @property
    def pending(self) -> int:
        return self.index.pending

    @property
    def unsaved(self) -> int:
        return self.index.unsaved

    def is_apart(self, *, at_rest: bool = False) -> bool:
        return self.index.is_apart(at_rest=at_rest)

    def maintain(self, revision: int, give_way: YieldControl = never_yield, *, at_rest: bool = False) -> None:
        self.index.maintain(revision, give_way, at_rest=at_rest)

    def follow(self) -> int:
        return self.index.follow()

    def is_behind(self, audience: frozenset[str] | None) -> bool:
        return self.index.is_behind(audience)

    def prepare_for(self, audience: frozenset[str] | None) -> None:
        self.index.prepare_for(audience)

    def lacking(self, limit: int) -> list[str]:
        return self.index.lacking(limit)

    def embed(self, registrations: Sequence[Registration]) -> None:
        self.index.embed(registrations)

    def close(self) -> None:
        self.index.close()

    # --- Questions -------------------------------------------------------------------------------

    def rank(
        self,
        query: Query,
        audience: frozenset[str] | None,
        *,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None = None,
    ) -> Ranking:
        ready = tuple([space.embedder.is_ready for space in self.index.spaces.values()])
        key = None if among is not None else cache_key(query, audience, alive, now, ready)
        generation = self.index.generation(audience)
        known = self._recent.find(key, generation, alive)
        if known is not None:
            return known
        ranking, is_whole = self._ranked(query, audience, alive, now // HOUR_SECONDS * HOUR_SECONDS, among)
        if is_whole:
            self._recent.put(key, generation, ranking)
        return ranking

    def _ranked(
        self,
        query: Query,
        audience: frozenset[str] | None,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None,
    ) -> tuple[Ranking, bool]:
        """The answer, and whether it is whole: nothing was too fresh to be looked at."""
        question = parse_filters(query, audience)
        if not (question.terms or question.required or question.preferred or question.protocols):
            return Ranking(hits=(), warnings=("The query holds no word to search for.",)), True
        lives, skipped = self.index.look(audience)
        moment = self._moment(lives, query, question, None if among is None else id_keys(among))
        order = _CandidateOrder(moment, now)
        hits = order.hits(query.limit, alive, is_spread=query.diversity, is_told=query.include_evidence)
        if question.selects and len(hits) < query.limit:
            hits += _filter_only_hits(moment, hits, query.limit, alive)
        warnings = (*self._warnings, *self._loading(), *_unindexed_warning(skipped))
        return Ranking(hits=tuple(hits), warnings=warnings), not skipped

    def _loading(self) -> tuple[str, ...]:
        is_loading = not all(space.embedder.is_ready for space in self.index.spaces.values())
        return ("The sentence model is not loaded: words and tags alone are weighed.",) if is_loading else ()

    def _moment(
        self, lives: Sequence[SegmentReader], query: Query, question: SearchFilters, among: Array | None
    ) -> _QueryContext:
        taxonomy = self._taxonomy = standard_taxonomy() if self._taxonomy is None else self._taxonomy
        asked = parse_query(query, question.preferred, taxonomy)
        rarity = TermWeights(lives, question.audience, asked)
        masks = [apply_filters(live, question, among) for live in lives]
        visible = sum([live.visible(question.audience)[1] for live in lives])
        vectors = self._vectors(asked) if asked.terms else {}
        wanted = query.limit + _SPARE
        depth = deep = retrieval_depth(asked, vectors, wanted)
        words = _weighted_terms(lives, rarity)

        def found(depth: RetrievalDepth) -> list[SegmentHits]:
            return [
                find_candidates(live, asked, words[place], vectors, mask, count, visible, depth)
                for place, (live, (mask, count)) in enumerate(zip(lives, masks, strict=True))
            ]

        findings = found(depth)
        chosen = select_rows(findings, depth)
        if query.diversity and lives and (crowd := find_duplicates(lives, chosen)) is not None:
            kin = near_duplicate_rows(findings, crowd)
            if is_flooded(findings, kin):
                deep = retrieval_depth(asked, vectors, max(wanted, DEEP_CANDIDATES))
                findings = found(deep)
                kin = near_duplicate_rows(findings, crowd)
            thin = TermWeights(lives, question.audience, asked, kin)
            if not thin.is_like(rarity):
                rarity, words = thin, _weighted_terms(lives, thin)
                findings = [
                    find_again_by_words(finding, some, mask, count, deep.words)
                    for finding, some, (mask, count) in zip(findings, words, masks, strict=True)
                ]
                kin = near_duplicate_rows(findings, crowd)
            chosen = select_rows(cap_duplicates(findings, kin, wanted), depth)
        parts = [
            measure_signals(place, lives[place], asked, words[place], vectors, rows)
            for place, rows in enumerate(chosen)
            if len(rows)
        ]
        signals = concatenate_signals(parts) if parts else None
        names = self._names(vectors)
        return _QueryContext(lives, masks, asked, vectors, signals, names, self._weights, rarity)

    def _vectors(self, asked: ParsedQuery) -> Mapping[str, Vectors]:
        return {
            name: _encode_query(space.embedder, asked.units)
            for name, space in self.index.spaces.items()
            if self._weight_of(space) > 0 and space.embedder.is_ready
        }

    def _weight_of(self, space: VectorSpace) -> float:
        return self._weights.network if space.has_examples else self._weights.static

    def _names(self, vectors: Mapping[str, Vectors]) -> SpaceNames:
        if not vectors:
            return _NO_NAMES
        network = [name for name in vectors if self.index.spaces[name].has_examples]
        static = [name for name in vectors if not self.index.spaces[name].has_examples]
        return SpaceNames(network=network[0] if network else None, static=static[0] if static else None)


def _weighted_terms(lives: Sequence[SegmentReader], rarity: TermWeights) -> list[WeightedTerms]:
    return [
        WeightedTerms(live.segment, rarity.numbers[at], rarity.weights, rarity.heavy) for at, live in enumerate(lives)
    ]


def _encode_query(embedder: Embedder, units: tuple[str, ...]) -> Vectors:
    """On a grid of whole numbers: products with stored codes, whole numbers too, then add up to the same in any order, so
    that no figure tells beside how many others a record was measured."""
    parts = find_parts_embedder(embedder) if len(units) > 1 else None
    made = embedder.encode(units) if parts is None else parts.encode_parts(units[0], units[1:])
    return np.asarray(np.rint(made * QUERY_GRID) / QUERY_GRID, dtype=np.float32)


class _QueryContext(NamedTuple):
    """One question against one state of the index."""

    lives: Sequence[SegmentReader]
    masks: Sequence[tuple[Mask, int]]
    asked: ParsedQuery
    vectors: Mapping[str, Vectors]
    signals: Signals | None
    names: SpaceNames
    weights: SignalWeights
    rarity: TermWeights


class _CandidateOrder:
    """The candidates in order, best first."""

    def __init__(self, moment: _QueryContext, now: float) -> None:
        self._moment = moment
        self._signals = signals = moment.signals
        if signals is None:
            return
        places, figures, rows = self._placed(signals, now)
        self._places = memoryview(places).cast("q")
        self._rows: Rows = np.frombuffer(rows, dtype=np.uint32)
        self.scores: F64 = np.frombuffer(figures, dtype=np.float64)

    def _placed(self, signals: Signals, now: float) -> tuple[bytes, bytes, bytes]:
        moment, rules = self._moment, scoring.curve_for(self._moment.names)
        if not moment.asked.terms:
            return rank_by_scores(scoring.score_by_tags(signals.preferred), signals, rules)
        foreign, doubtful = self._foreign(signals)
        return rank_candidates(
            signals, moment.names, moment.weights, moment.rarity.total, foreign, doubtful, now, rules
        )

    def _foreign(self, signals: Signals) -> tuple[Mask | None, Mask | None]:
        """Candidates of which words say nothing: in another language, or all, when the index knows too few of the words.
        And those of which that is not plain, because the question or the agent does not show its language. None: nobody."""
        if self._moment.names.network is None:
            return None, None
        theirs = signals.language
        if self._moment.rarity.known < _KNOWN_SHARE * len(self._moment.asked.terms):
            return np.ones(len(theirs), dtype=np.bool_), None
        question = self._moment.asked.units[0]
        mine = detect_language(question)
        if mine == UNKNOWN:
            if is_not_english(question):
                return None, np.ones(len(theirs), dtype=np.bool_)
            return None, (theirs != UNKNOWN) & (theirs != ENGLISH)
        return (theirs != mine) & (theirs != UNKNOWN), None if mine == ENGLISH else theirs == UNKNOWN

    def hits(self, limit: int, alive: Callable[[str], bool], *, is_spread: bool, is_told: bool) -> list[Hit]:
        if self._signals is None or limit < 1:
            return []
        found: list[Hit] = []
        for some in self._spread(limit) if is_spread else self._in_order(limit, frozenset()):
            for at, agent_id, score in zip(some, *self._called(some), strict=True):
                if (score >= _NOISE_SCORE or self._is_named(at)) and alive(agent_id):
                    found.append(Hit(agent_id, score, self._near(at) if is_told else None))
                    if len(found) == limit:
                        return found
        return found

    def _near(self, at: int) -> MatchSignals | None:
        """What was measured of one candidate, by the unit of the question that fits it best."""
        signals, moment, at = self._signals, self._moment, self._places[at]
        if signals is None or not moment.asked.terms:
            return None
        words = float(signals.lexical[at].max()) / max(moment.rarity.total, 1e-6)
        name = moment.names.network
        if name is None or not signals.covered[name][at]:
            return MatchSignals(words=min(1.0, words))
        live, row = moment.lives[int(signals.place[at])], int(signals.rows[at])
        example, place = nearest_example(live, name, row, moment.vectors[name])
        context = float(np.clip(signals.centres[name][at].max(), 0, 1))
        return MatchSignals(words=min(1.0, words), context=context, example=example, place=place)

    def _is_named(self, at: int) -> bool:
        """True when a word or a tag of the question stands in the record: that may be little, but it is no noise."""
        signals, at = self._signals, self._places[at]
        return signals is not None and bool(signals.lexical[at, 0] > 0 or signals.preferred[at] > 0)

    def _called(self, some: Sequence[int]) -> tuple[list[str], list[float]]:
        """The ids of these places, and their scores as they are shown."""
        signals, lives = self._signals, self._moment.lives
        if not some or signals is None:
            return [], []
        if len(lives) == 1:
            arrays = lives[0].segment.arrays
            return read_ids(arrays["id_bytes"], arrays["id_starts"], self._rows, self.scores, some, _SCORE_STEPS)
        segments = [lives[int(signals.place[self._places[at]])].segment for at in some]
        ids = [segment.id_of(int(self._rows[at])) for segment, at in zip(segments, some, strict=True)]
        return ids, round_scores(self.scores[list(some)], _SCORE_STEPS)

    def _spread(self, limit: int) -> Iterator[Sequence[int]]:
        """Positions, the best of each ten open to others. Beyond what is shown the order is as it was."""
        shown = self._spread_to(limit, limit)
        if shown is not None:
            yield shown
            shown = self._spread_to(limit, limit + _SPARE) or []  # some of them turned out dead
            yield shown[limit:]
        yield from self._in_order(limit, frozenset(shown or ()))

    def _in_order(self, limit: int, seen: frozenset[int]) -> Iterator[Sequence[int]]:
        """As ranked, without those that were seen: mostly the first few are enough."""
        for start in range(0, len(self.scores), limit):
            some = range(start, min(start + limit, len(self.scores)))
            yield [at for at in some if at not in seen] if seen else some

    def _spread_to(self, limit: int, count: int) -> list[int] | None:
        """The first so many; None where the first `limit` are open as they stand."""
        top = max(_DIVERSIFIED, 2 * limit)
        rows, (prints, owners, since) = self._columns(self._rows[:top], ("fingerprint", "owner", "since"))
        return diversify_rows(
            self.scores[:top], rows, prints, owners, since, _SHARED_OWNERS, DIVERSITY_RULES, limit, count
        )

    def _columns(self, rows: Rows, names: Sequence[str]) -> tuple[Rows, list[npt.NDArray[Any]]]:
        """Traits of the first candidates, and where they stand in them: of one segment they are read where they are."""
        segments = [live.segment.arrays for live in self._moment.lives]
        if len(segments) == 1 or self._signals is None:
            return rows, [segments[0][name] for name in names]
        segment = self._signals.place.take(np.frombuffer(self._places, dtype=np.int64)[: len(rows)])
        here = [np.flatnonzero(segment == place) for place in range(len(segments))]
        found = []
        for name in names:
            column = np.empty((len(rows), *segments[0][name].shape[1:]), dtype=segments[0][name].dtype)
            for places, arrays in zip(here, segments, strict=True):
                column[places] = arrays[name][rows[places]]
            found.append(column)
        return np.arange(len(rows), dtype=np.uint32), found


def _filter_only_hits(
    moment: _QueryContext, hits: Sequence[Hit], limit: int, alive: Callable[[str], bool]
) -> list[Hit]:
    """What passes the filters but says nothing of the words: by id, with the least score, deprecated ones last."""
    seen = {hit.id for hit in hits}
    score = min([_FILTER_ONLY_SCORE, *(hit.score for hit in hits)])
    found: list[Hit] = []
    for is_deprecated in (False, True):
        ids = [
            agent_id
            for live, (mask, _) in zip(moment.lives, moment.masks, strict=True)
            for agent_id in _first_ids(
                live, mask & (live.segment.deprecated == is_deprecated), limit + len(seen) + _SPARE
            )
        ]
        shown = round(score * scoring.DEPRECATED_FACTOR if is_deprecated else score, _SCORE_DECIMALS)
        found += [Hit(agent_id, shown) for agent_id in sorted(ids) if agent_id not in seen and alive(agent_id)]
        if len(hits) + len(found) >= limit:
            break
    return found[: limit - len(hits)]


def _first_ids(live: SegmentReader, mask: Mask, count: int) -> list[str]:
    rows = np.flatnonzero(mask)
    if len(rows) > count:
        rows = rows[np.argpartition(live.segment.mark[rows], count)[:count]]
    return [live.segment.id_of(int(row)) for row in rows]


_FILTER_ONLY_SCORE: Final = 0.05  # of an agent that passes the filters and no more


def _unindexed_warning(skipped: int) -> tuple[str, ...]:
    return (f"{skipped} agents registered a moment ago are not searched yet.",) if skipped else ()
