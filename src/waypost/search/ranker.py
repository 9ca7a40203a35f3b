"""The ranker: filters, candidates, signals, scores, diversity. It implements `registry.ports.Ranker`, its
index `registry.ports.AgentIndex`.

Results are ordered by score; ties always have the same order. A deprecated agent keeps half of its score, a stuffed one what
`spam` leaves. Near duplicates and floods of one owner are bounded in each window of results (see `diversity`).

A ranking is cached per query and audience until the index changes for that audience, and only used while all of its agents are
alive. Freshness is computed with the precision of an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from waypost.cache import LruCache
from waypost.model.credentials import RESERVED_SUBJECTS
from waypost.model.principal import LAN_SUBJECT
from waypost.model.query import Hit, MatchSignals, Query, Ranking
from waypost.model.registration import Registration
from waypost.search.index.document import hash_of
from waypost.search.index.index import SearchIndex, SegmentBuilder
from waypost.search.index.segment import Array, Mask, Rows, SegmentReader, id_keys
from waypost.search.parsed_query import (
    GRAM_IDF_STEPS,
    ParsedQuery,
    SearchFilters,
    TermWeights,
    parse_filters,
    parse_query,
)
from waypost.search.ranking import scoring
from waypost.search.ranking.candidates import (
    RetrievalDepth,
    SegmentHits,
    Signals,
    WeightedTerms,
    apply_filters,
    concatenate_signals,
    find_again_by_words,
    find_by_vectors,
    find_by_words_and_tags,
    measure_signals,
    nearest_example,
    retrieval_depth,
    select_rows,
)
from waypost.search.ranking.diversity import diversify_rows
from waypost.search.ranking.near_duplicates import (
    DEEP_CANDIDATES,
    cap_duplicates,
    find_duplicates,
    is_flooded,
    near_duplicate_rows,
)
from waypost.search.ranking.scoring import QueryMass, Scores, ScoringInput, SignalWeights, Spaces
from waypost.search.spelling import Spelling, check_spelling
from waypost.search.text.analyzer import ENGLISH, UNKNOWN, is_foreign
from waypost.search.vectors import Embedder, SpaceRole, Vectors, VectorSpace, find_parts_embedder, find_word_embedder
from waypost.search.vectors.vector_block import QUERY_GRID

HOUR_SECONDS: Final = 3600.0
_CACHED_RANKINGS: Final = 1024
_MAX_CACHED_LIMIT: Final = 100  # longer rankings are exports


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
    """None: not cached. A plain `alive` function may depend on anything; a method is the same for every call."""
    method = getattr(alive, "__func__", None)
    if method is None or query.constraints or query.statuses or query.limit > _MAX_CACHED_LIMIT:
        return None
    parts = (query.text, query.required_tags, query.preferred_tags, query.excluded_tags, query.protocols, query.limit)
    return (
        *parts,
        query.depth,
        query.include_evidence,
        query.diversity,
        audience,
        method,
        now // HOUR_SECONDS,
        readiness,
    )


_SCORE_DECIMALS: Final = 4

# Agents of these subjects come from many: imports by the operator, an open service, the LAN. They are not one owner's.
_SHARED_OWNERS: Final = np.array([*map(hash_of, (*sorted(RESERVED_SUBJECTS), LAN_SUBJECT))], dtype=np.uint64)
_DIVERSIFIED: Final = 100  # of the best candidates
_SPARE: Final = 24  # candidates beyond the limit, in place of dead agents
_NO_WORD: Final = "The query contains no word to search for."
_KNOWN_SHARE: Final = 0.25  # of the query terms: with fewer in the index, words say nothing
_NOISE_SCORE: Final = 0.02  # below it, an agent without a matching word or tag is noise
_NOISE_WITHOUT_SENTENCES: Final = 0.1  # of vectors: parts of words, and words without their context, say little


class HybridRanker:
    def __init__(
        self,
        folder: Path | None = None,
        spaces: Iterable[VectorSpace] = (),
        weights: SignalWeights | None = None,
        warnings: Sequence[str] = (),
        builder: SegmentBuilder | None = None,
    ) -> None:
        self.index: Final = SearchIndex(folder, tuple(spaces), builder)
        self._weights = weights or SignalWeights()
        self._warnings = tuple(warnings)
        self._cache = RankingCache()
        self._beside = ThreadPoolExecutor(1, "waypost-encode")  # its thread starts with the first query

    def close(self) -> None:
        self._beside.shutdown()
        self.index.close()

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
        cached = self._cache.find(key, generation, alive)
        if cached is not None:
            return cached
        ranking, is_complete = self._ranked(query, audience, alive, now // HOUR_SECONDS * HOUR_SECONDS, among)
        if is_complete:
            self._cache.put(key, generation, ranking)
        return ranking

    def extend(self, registrations: Sequence[Registration]) -> ExtendedRanker:
        return ExtendedRanker(self, registrations)

    def rank_extended(
        self,
        query: Query,
        audience: frozenset[str] | None,
        extension: Sequence[SegmentReader],
        *,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None = None,
    ) -> Ranking:
        """Rank agents of further segments together with those of the index. Nothing is cached."""
        return self._ranked(query, audience, alive, now // HOUR_SECONDS * HOUR_SECONDS, among, extension)[0]

    def measure(self, query: Query, audience: frozenset[str] | None) -> tuple[list[str], ScoringInput] | None:
        """The ids of the candidates, and what their scores are computed from: to compare weights on the same candidates. None
        if nothing is found, or if the query has no words."""
        readers, _ = self.index.look(audience)
        query, _ = self._correct(query, readers, audience)
        context = self._evaluate(readers, query, parse_filters(query, audience), None)
        if context.signals is None or not context.query.terms:
            return None
        places = zip(context.signals.place.tolist(), context.signals.rows.tolist(), strict=True)
        return [readers[place].segment.id_of(row) for place, row in places], context.scoring_input(context.signals)

    def _ranked(
        self,
        query: Query,
        audience: frozenset[str] | None,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None,
        extension: Sequence[SegmentReader] = (),
    ) -> tuple[Ranking, bool]:
        """The ranking, and whether it is complete: no recent change was left out."""
        filters = parse_filters(query, audience)
        is_empty = not (filters.terms or filters.required or filters.preferred or filters.protocols)
        if is_empty and not query.text.strip():
            return Ranking(hits=(), warnings=(_NO_WORD,)), True
        readers, skipped = self.index.look(audience)
        readers = [*readers, *extension]
        query, spelling = self._correct(query, readers, audience)
        context = self._evaluate(readers, query, filters, None if among is None else id_keys(among))
        order = _CandidateOrder(context, now)
        # Reasons and evidence need the signals; exports and pages of ARD have neither.
        with_signals = query.include_evidence or max(query.limit, query.depth) <= _MAX_CACHED_LIMIT
        hits = order.hits(query.limit, alive, is_diverse=query.diversity, with_signals=with_signals)
        if filters.selects and len(hits) < query.limit:
            hits += _filter_only_hits(context, hits, query.limit, alive)
        warnings = (*self._warnings, *self._loading(), *spelling.warnings, *_unindexed_warning(skipped))
        if is_empty and not hits:
            warnings = (_NO_WORD, *warnings)  # function words may be the name or tag of an agent, but here they are not
        return Ranking(
            hits=tuple(hits),
            warnings=warnings,
            spelling=dict(spelling.suggestions),
            corrections=dict(spelling.corrections),
            searched_text=query.text if spelling.corrections else None,
        ), not skipped

    def _correct(
        self, query: Query, readers: Sequence[SegmentReader], audience: frozenset[str] | None
    ) -> tuple[Query, Spelling]:
        """The query with the spelling of its words corrected."""
        ready = [space.embedder for space in self.index.spaces.values() if space.embedder.is_ready]
        knowing = [found for embedder in ready if (found := find_word_embedder(embedder)) is not None]
        has_word = (lambda word: any(each.has_word(word) for each in knowing)) if knowing else None
        spelling = check_spelling(query.text, readers, audience, has_word)
        if not spelling.corrections:
            return query, spelling
        return msgspec.structs.replace(query, text=spelling.correct(query.text)), spelling

    @property
    def _is_loading(self) -> bool:
        return not all(space.embedder.is_ready for space in self.index.spaces.values())

    def _loading(self) -> tuple[str, ...]:
        if not self._is_loading:
            return ()
        if self._spaces().sentence:
            return ("A sentence model is not loaded yet: scores may still change.",)
        return ("The sentence model is not loaded yet: results are by words and tags only.",)

    def _evaluate(
        self, readers: Sequence[SegmentReader], query: Query, filters: SearchFilters, among: Array | None
    ) -> _QueryContext:
        parsed, spaces = parse_query(query, filters.preferred), self._spaces()
        encoding = self._start_encoding(parsed, spaces)
        weights = TermWeights(readers, filters.audience, parsed)
        masks = [apply_filters(reader, filters, among) for reader in readers]
        words = _weighted_terms(readers, parsed, weights)
        wanted = max(query.limit, query.depth) + _SPARE
        depth = deep = retrieval_depth(parsed, wanted, has_vectors=bool(spaces.names))

        def find_by_words(depth: RetrievalDepth) -> list[SegmentHits]:
            return [
                find_by_words_and_tags(reader, parsed, terms, *admitted, depth)
                for reader, terms, admitted in zip(readers, words, masks, strict=True)
            ]

        def add_nearest(hits: Sequence[SegmentHits], depth: RetrievalDepth) -> list[SegmentHits]:
            found = zip(hits, masks, strict=True)
            return [find_by_vectors(each, vectors, spaces.stand_in, mask, depth.near) for each, (mask, _) in found]

        by_words = find_by_words(depth)
        vectors = encoding()
        hits = add_nearest(by_words, depth)
        selected = select_rows(hits, depth)
        if query.diversity and readers and (samples := find_duplicates(readers, selected)) is not None:
            duplicates = near_duplicate_rows(hits, samples)
            if is_flooded(hits, duplicates):
                deep = retrieval_depth(parsed, max(wanted, DEEP_CANDIDATES), has_vectors=bool(vectors))
                hits = add_nearest(find_by_words(deep), deep)
                duplicates = near_duplicate_rows(hits, samples)
            discounted = TermWeights(readers, filters.audience, parsed, duplicates)
            if not discounted.is_close_to(weights):
                weights, words = discounted, _weighted_terms(readers, parsed, discounted)
                hits = [
                    find_again_by_words(each, terms, mask, count, deep.words)
                    for each, terms, (mask, count) in zip(hits, words, masks, strict=True)
                ]
                duplicates = near_duplicate_rows(hits, samples)
            selected = select_rows(cap_duplicates(hits, duplicates, wanted), depth)
        parts = [
            measure_signals(place, readers[place], parsed, words[place], weights, vectors, rows)
            for place, rows in enumerate(selected)
            if len(rows)
        ]
        signals = concatenate_signals(parts) if parts else None
        return _QueryContext(readers, masks, parsed, vectors, signals, spaces, self._weights, weights, self._is_loading)

    def _start_encoding(self, query: ParsedQuery, spaces: Spaces) -> Callable[[], Mapping[str, Vectors]]:
        """Start to encode a query; the function returns its vectors in each space. The second sentence model runs in a thread
        beside the search by words and the first model: inference takes most of the time of a query, and onnxruntime computes
        without the interpreter lock."""
        if not query.terms:
            return dict
        encode = {
            name: partial(_encode_query, self.index.spaces[name].embedder, query.units)
            for name in dict.fromkeys((*spaces.sentence.values(), *spaces.names.values()))
        }
        beside = {name: self._beside.submit(encode[name]) for name in [*spaces.sentence.values()][1:]}

        def finish() -> Mapping[str, Vectors]:
            own = {name: run() for name, run in encode.items() if name not in beside}
            return {name: own[name] if name in own else beside[name].result() for name in encode}

        return finish

    def _spaces(self) -> Spaces:
        """The first space of each role that is ready."""
        names: dict[SpaceRole, str] = {}
        for name, space in self.index.spaces.items():
            if space.embedder.is_ready and self._weights.meaning > 0:
                names.setdefault(space.role, name)
        return Spaces(names)


class ExtendedRanker:
    """The ranker, and agents of other registries for one query: all of them get their scores on one scale."""

    def __init__(self, ranker: HybridRanker, registrations: Sequence[Registration]) -> None:
        self._ranker = ranker
        self._ids = {registration.id for registration in registrations}
        self._readers = ranker.index.build_detached(registrations)

    def rank(
        self,
        query: Query,
        audience: frozenset[str] | None,
        *,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None = None,
    ) -> Ranking:
        return self._ranker.rank_extended(
            query,
            audience,
            self._readers,
            alive=lambda agent_id: agent_id in self._ids or alive(agent_id),
            now=now,
            among=None if among is None else [*among, *self._ids],
        )


def _weighted_terms(readers: Sequence[SegmentReader], query: ParsedQuery, weights: TermWeights) -> list[WeightedTerms]:
    return [
        WeightedTerms(reader.segment, numbers, weights, query.counted)
        for reader, numbers in zip(readers, weights.numbers, strict=True)
    ]


def _encode_query(embedder: Embedder, units: tuple[str, ...]) -> Vectors:
    """Encode on an integer grid: products with stored integer codes then add up to the same in any order, so that no digit
    reveals how many other records were measured."""
    parts = find_parts_embedder(embedder)
    made = embedder.encode(units) if parts is None else parts.encode_parts(units[0], units[1:])
    return np.asarray(np.rint(made * QUERY_GRID) / QUERY_GRID, dtype=np.float32)


class _QueryContext(NamedTuple):
    """One query against one state of the index."""

    readers: Sequence[SegmentReader]
    masks: Sequence[tuple[Mask, int]]
    query: ParsedQuery
    vectors: Mapping[str, Vectors]
    signals: Signals | None
    spaces: Spaces
    weights: SignalWeights
    terms: TermWeights
    is_loading: bool  # a sentence model is configured, but not loaded yet

    def scoring_input(self, signals: Signals) -> ScoringInput:
        mass = QueryMass(self.terms.total, float(self.terms.gram_idf.sum()) / GRAM_IDF_STEPS)
        return ScoringInput(signals, mass, self.spaces, self._foreign(signals))

    def _foreign(self, signals: Signals) -> Mask:
        """Candidates that are compared in another language than English: because of the query (or if the index knows too few
        of its terms), or because of the record."""
        if is_foreign(self.query.units[0]) or self.terms.known < _KNOWN_SHARE * len(self.query.terms):
            return np.ones(len(signals.rows), dtype=np.bool_)
        foreign: Mask = (signals.language != UNKNOWN) & (signals.language != ENGLISH)
        return foreign


class _CandidateOrder:
    """The candidates, best first."""

    def __init__(self, context: _QueryContext, now: float) -> None:
        self._context = context
        self._sentence_spaces = tuple(context.spaces.sentence.values())
        self._signals = signals = context.signals
        if signals is None:
            return
        found = self._score(signals, now)
        self._places = found.order(signals.mark)
        self._rows: Rows = signals.rows[self._places]
        self._components = found.components
        self.scores = found.total[self._places]

    def _score(self, signals: Signals, now: float) -> Scores:
        context = self._context
        if not context.query.terms:
            return scoring.score_by_tags(signals)
        return context.scoring_input(signals).score(now, context.weights)

    def hits(self, limit: int, alive: Callable[[str], bool], *, is_diverse: bool, with_signals: bool) -> list[Hit]:
        if self._signals is None or limit < 1:
            return []
        found: list[Hit] = []
        noise = _NOISE_SCORE if self._context.spaces.sentence else _NOISE_WITHOUT_SENTENCES
        for some in self._diversify(limit) if is_diverse else self._in_order(limit, frozenset()):
            for at in some:
                score = round(float(self.scores[at]), _SCORE_DECIMALS)
                if (score >= noise or self._has_match(at)) and alive(agent_id := self._id_of(at)):
                    signals = self._match_signals(at) if with_signals else None
                    found.append(Hit(agent_id, score, signals, self._is_provisional(at)))
                    if len(found) == limit:
                        return found
        return found

    def _match_signals(self, at: int) -> MatchSignals | None:
        """The parts of one candidate's score, and its nearest example."""
        signals, context, at = self._signals, self._context, int(self._places[at])
        if signals is None:
            return None
        components = {name: float(part[at]) for name, part in self._components.items()}
        if not context.query.terms:
            return MatchSignals(words=0.0, components=components)
        words = min(1.0, float(signals.words[at]) / max(context.terms.total, 1e-6))
        name = next((name for name in self._sentence_spaces if signals.covered[name][at]), None)
        if name is None:
            return MatchSignals(words=words, components=components)
        reader, row = context.readers[int(signals.place[at])], int(signals.rows[at])
        example, place = nearest_example(reader, name, row, context.vectors[name])
        centre = min(1.0, max(0.0, float(signals.centres[name][at].max())))
        return MatchSignals(words=words, context=centre, example=example, place=place, components=components)

    def _is_provisional(self, at: int) -> bool:
        """Whether the sentence vectors of a candidate, or the model for those of the query, are not there yet."""
        signals, names = self._signals, self._sentence_spaces
        if signals is None or not self._context.query.terms:
            return False
        return self._context.is_loading or not all(signals.covered[name][self._places[at]] for name in names)

    def _has_match(self, at: int) -> bool:
        """Whether a word or preferred tag of the query is in the record: then a low score is not noise."""
        signals, at = self._signals, self._places[at]
        return signals is not None and bool(signals.words[at] > 0 or signals.preferred[at] > 0 or signals.exact[at])

    def _id_of(self, at: int) -> str:
        signals = self._signals
        place = 0 if signals is None else int(signals.place[self._places[at]])
        return self._context.readers[place].segment.id_of(int(self._rows[at]))

    def _diversify(self, limit: int) -> Iterator[Sequence[int]]:
        """Positions in diversified order; beyond the results the ranked order."""
        shown = self._diversified(limit, limit)
        if shown is not None:
            yield shown
            shown = self._diversified(limit, limit + _SPARE) or []  # some agents were dead
            yield shown[limit:]
        yield from self._in_order(limit, frozenset(shown or ()))

    def _in_order(self, limit: int, seen: frozenset[int]) -> Iterator[Sequence[int]]:
        """The ranked order without those in `seen`, in pages: mostly the first is enough."""
        for start in range(0, len(self.scores), limit):
            some = range(start, min(start + limit, len(self.scores)))
            yield [at for at in some if at not in seen] if seen else some

    def _diversified(self, limit: int, count: int) -> list[int] | None:
        """The first `count` places in diversified order; None if the first `limit` are diverse as ranked."""
        top = max(_DIVERSIFIED, 2 * limit)
        prints, owners, since = (self._column(name, top) for name in ("fingerprint", "owner", "since"))
        return diversify_rows(self.scores[:top], prints, owners, since, _SHARED_OWNERS, limit, count)

    def _column(self, name: str, count: int) -> npt.NDArray[Any]:
        """A column of the first candidates."""
        columns = [reader.segment.arrays[name] for reader in self._context.readers]
        rows = self._rows[:count]
        if len(columns) == 1 or self._signals is None:
            return columns[0][rows]
        places = self._signals.place.take(self._places[:count])
        found = np.empty((len(rows), *columns[0].shape[1:]), dtype=columns[0].dtype)
        for place, column in enumerate(columns):
            found[places == place] = column[rows[places == place]]
        return found


def _filter_only_hits(
    context: _QueryContext, hits: Sequence[Hit], limit: int, alive: Callable[[str], bool]
) -> list[Hit]:
    """Agents that pass the filters without a matching word: by id, with the lowest score, deprecated ones last."""
    seen = {hit.id for hit in hits}
    score = min([_FILTER_ONLY_SCORE, *(hit.score for hit in hits)])
    found: list[Hit] = []
    for is_deprecated in (False, True):
        ids = [
            agent_id
            for reader, (mask, _) in zip(context.readers, context.masks, strict=True)
            for agent_id in _first_ids(
                reader, mask & (reader.segment.deprecated == is_deprecated), limit + len(seen) + _SPARE
            )
        ]
        shown = round(score * scoring.DEPRECATED_FACTOR if is_deprecated else score, _SCORE_DECIMALS)
        signals = MatchSignals(words=0.0, components={"filter": shown})
        found += [Hit(agent_id, shown, signals) for agent_id in sorted(ids) if agent_id not in seen and alive(agent_id)]
        if len(hits) + len(found) >= limit:
            break
    return found[: limit - len(hits)]


def _first_ids(reader: SegmentReader, mask: Mask, count: int) -> list[str]:
    rows = np.flatnonzero(mask)
    if len(rows) > count:
        rows = rows[np.argpartition(reader.segment.mark[rows], count)[:count]]
    return [reader.segment.id_of(int(row)) for row in rows]


_FILTER_ONLY_SCORE: Final = 0.05  # of an agent that only passes the filters


def _unindexed_warning(skipped: int) -> tuple[str, ...]:
    return (f"{skipped} agents were registered a moment ago: they are found by their words only.",) if skipped else ()
