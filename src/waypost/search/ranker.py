"""The ranker: masks, candidates, signals, fusion, score, spread. The engine knows it by `registry.ports.Ranker`.

Order: the score; equals always stand in the same order. A deprecated agent keeps half of its score, a
stuffed one what `honesty` leaves. Near
duplicates and floods by one owner are spread so that each ten stays open to others (see `spreading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost.model.credentials import RESERVED_SUBJECTS
from waypost.model.principal import LAN_SUBJECT
from waypost.model.query import Hit, Nearness, Query, Ranking
from waypost.model.registration import Registration
from waypost.search import calibration
from waypost.search.asked import Asked, Rarity, asked_of
from waypost.search.candidates import (
    F64,
    Depth,
    Finding,
    Signals,
    chosen_rows,
    depth_of,
    find,
    find_by_words,
    joined,
    measure,
    nearest_example,
)
from waypost.search.crowds import DEEP, find_crowd, is_flooded, kin_of, thinned
from waypost.search.document import hash_of
from waypost.search.embedding import Embedder, Space, Vectors, reader_of_parts
from waypost.search.filters import admitted
from waypost.search.fusion import Names, Weights
from waypost.search.index import GiveWay, Index, to_nobody
from waypost.search.language import ENGLISH, UNKNOWN, language_of, speaks_no_english
from waypost.search.live import Live, Mask
from waypost.search.plain_near import GRID
from waypost.search.plain_order import in_steps
from waypost.search.postings import Weighted
from waypost.search.question import Question, question_of
from waypost.search.recent import HOUR, Recent, key_of
from waypost.search.segment import Array, Rows, id_keys
from waypost.search.spreading import RULES
from waypost.search.taxonomy import Taxonomy, standard

try:
    from waypost.compiled.bits import spread_places
    from waypost.compiled.order import called, placed, placed_by
except ImportError:
    from waypost.search.plain_bits import spread_places
    from waypost.search.plain_order import called
    from waypost.search.plain_placing import placed, placed_by

_PLACES: Final = 4  # that are shown
_SHOWN: Final = 10.0**_PLACES  # steps of a score that is shown
# What these hold was brought by many: an import of the operator's, an open service, the LAN. None of them floods an answer.
_NOBODYS: Final = np.array([*map(hash_of, (*sorted(RESERVED_SUBJECTS), LAN_SUBJECT))], dtype=np.uint64)
_SPREAD: Final = 100  # of the best: those that a flood could fill
_SPARE: Final = 24  # candidates beyond the limit that may turn out dead
_NO_NAMES: Final = Names()
_KNOWN_SHARE: Final = 0.25  # of a question's words: with fewer that the index knows, words say nothing
_NOISE: Final = 0.003  # the score of an agent of which nothing speaks but a vector that is not very near


class HybridRanker:
    def __init__(
        self,
        folder: Path | None = None,
        spaces: Iterable[Space] = (),
        weights: Weights | None = None,
        taxonomy: Taxonomy | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.index = Index(folder, tuple(spaces))
        self._weights = weights or Weights()
        self._taxonomy = taxonomy
        self._warnings = tuple(warnings)
        self._recent = Recent()

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

    def maintain(self, revision: int, give_way: GiveWay = to_nobody, *, at_rest: bool = False) -> None:
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
        key = None if among is not None else key_of(query, audience, alive, now, ready)
        generation = self.index.generation(audience)
        known = self._recent.recall(key, generation, alive)
        if known is not None:
            return known
        ranking, is_whole = self._ranked(query, audience, alive, now // HOUR * HOUR, among)
        if is_whole:
            self._recent.keep(key, generation, ranking)
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
        question = question_of(query, audience)
        if not (question.terms or question.required or question.preferred or question.protocols):
            return Ranking(hits=(), warnings=("The query holds no word to search for.",)), True
        lives, skipped = self.index.look(audience)
        moment = self._moment(lives, query, question, None if among is None else id_keys(among))
        order = _Order(moment, now)
        hits = order.hits(query.limit, alive, is_spread=query.diversity, is_told=query.include_evidence)
        if question.selects and len(hits) < query.limit:
            hits += _rest(moment, hits, query.limit, alive)
        warnings = (*self._warnings, *self._loading(), *_waiting(skipped))
        return Ranking(hits=tuple(hits), warnings=warnings), not skipped

    def _loading(self) -> tuple[str, ...]:
        is_loading = not all(space.embedder.is_ready for space in self.index.spaces.values())
        return ("The sentence model is not loaded: words and tags alone are weighed.",) if is_loading else ()

    def _moment(self, lives: Sequence[Live], query: Query, question: Question, among: Array | None) -> _Moment:
        taxonomy = self._taxonomy = standard() if self._taxonomy is None else self._taxonomy
        asked = asked_of(query, question.preferred, taxonomy)
        rarity = Rarity(lives, question.audience, asked)
        masks = [admitted(live, question, among) for live in lives]
        visible = sum([live.visible(question.audience)[1] for live in lives])
        vectors = self._vectors(asked) if asked.terms else {}
        wanted = query.limit + _SPARE
        depth = deep = depth_of(asked, vectors, wanted)
        words = _weighted(lives, rarity)

        def found(depth: Depth) -> list[Finding]:
            return [
                find(live, asked, words[place], vectors, mask, count, visible, depth)
                for place, (live, (mask, count)) in enumerate(zip(lives, masks, strict=True))
            ]

        findings = found(depth)
        chosen = chosen_rows(findings, depth)
        if query.diversity and lives and (crowd := find_crowd(lives, chosen)) is not None:
            kin = kin_of(findings, crowd)
            if is_flooded(findings, kin):
                deep = depth_of(asked, vectors, max(wanted, DEEP))
                findings = found(deep)
                kin = kin_of(findings, crowd)
            thin = Rarity(lives, question.audience, asked, kin)
            if not thin.is_like(rarity):
                rarity, words = thin, _weighted(lives, thin)
                findings = [
                    find_by_words(finding, some, mask, count, deep.words)
                    for finding, some, (mask, count) in zip(findings, words, masks, strict=True)
                ]
                kin = kin_of(findings, crowd)
            chosen = chosen_rows(thinned(findings, kin, wanted), depth)
        parts = [
            measure(place, lives[place], asked, words[place], vectors, rows)
            for place, rows in enumerate(chosen)
            if len(rows)
        ]
        signals = joined(parts) if parts else None
        names = self._names(vectors)
        return _Moment(lives, masks, asked, vectors, signals, names, self._weights, rarity)

    def _vectors(self, asked: Asked) -> Mapping[str, Vectors]:
        return {
            name: _encoded(space.embedder, asked.units)
            for name, space in self.index.spaces.items()
            if self._weight_of(space) > 0 and space.embedder.is_ready
        }

    def _weight_of(self, space: Space) -> float:
        return self._weights.network if space.has_examples else self._weights.static

    def _names(self, vectors: Mapping[str, Vectors]) -> Names:
        if not vectors:
            return _NO_NAMES
        network = [name for name in vectors if self.index.spaces[name].has_examples]
        static = [name for name in vectors if not self.index.spaces[name].has_examples]
        return Names(network=network[0] if network else None, static=static[0] if static else None)


def _weighted(lives: Sequence[Live], rarity: Rarity) -> list[Weighted]:
    return [Weighted(live.segment, rarity.numbers[at], rarity.weights, rarity.heavy) for at, live in enumerate(lives)]


def _encoded(embedder: Embedder, units: tuple[str, ...]) -> Vectors:
    """On a grid of whole numbers: products with stored codes, whole numbers too, then add up to the same in any order, so
    that no figure tells beside how many others a record was measured."""
    parts = reader_of_parts(embedder) if len(units) > 1 else None
    made = embedder.encode(units) if parts is None else parts.encode_parts(units[0], units[1:])
    return np.asarray(np.rint(made * GRID) / GRID, dtype=np.float32)


class _Moment(NamedTuple):
    """One question against one state of the index."""

    lives: Sequence[Live]
    masks: Sequence[tuple[Mask, int]]
    asked: Asked
    vectors: Mapping[str, Vectors]
    signals: Signals | None
    names: Names
    weights: Weights
    rarity: Rarity


class _Order:
    """The candidates in order, best first."""

    def __init__(self, moment: _Moment, now: float) -> None:
        self._moment = moment
        self._signals = signals = moment.signals
        if signals is None:
            return
        places, figures, rows = self._placed(signals, now)
        self._places = memoryview(places).cast("q")
        self._rows: Rows = np.frombuffer(rows, dtype=np.uint32)
        self.scores: F64 = np.frombuffer(figures, dtype=np.float64)

    def _placed(self, signals: Signals, now: float) -> tuple[bytes, bytes, bytes]:
        moment, rules = self._moment, calibration.rules_of(self._moment.names)
        if not moment.asked.terms:
            return placed_by(calibration.by_tags_alone(signals.preferred), signals, rules)
        foreign, doubtful = self._foreign(signals)
        return placed(signals, moment.names, moment.weights, moment.rarity.total, foreign, doubtful, now, rules)

    def _foreign(self, signals: Signals) -> tuple[Mask | None, Mask | None]:
        """Candidates of which words say nothing: in another language, or all, when the index knows too few of the words.
        And those of which that is not plain, because the question or the agent does not show its language. None: nobody."""
        if self._moment.names.network is None:
            return None, None
        theirs = signals.language
        if self._moment.rarity.known < _KNOWN_SHARE * len(self._moment.asked.terms):
            return np.ones(len(theirs), dtype=np.bool_), None
        question = self._moment.asked.units[0]
        mine = language_of(question)
        if mine == UNKNOWN:
            if speaks_no_english(question):
                return None, np.ones(len(theirs), dtype=np.bool_)
            return None, (theirs != UNKNOWN) & (theirs != ENGLISH)
        return (theirs != mine) & (theirs != UNKNOWN), None if mine == ENGLISH else theirs == UNKNOWN

    def hits(self, limit: int, alive: Callable[[str], bool], *, is_spread: bool, is_told: bool) -> list[Hit]:
        if self._signals is None or limit < 1:
            return []
        found: list[Hit] = []
        for some in self._spread(limit) if is_spread else self._in_order(limit, frozenset()):
            for at, agent_id, score in zip(some, *self._called(some), strict=True):
                if (score >= _NOISE or self._is_named(at)) and alive(agent_id):
                    found.append(Hit(agent_id, score, self._near(at) if is_told else None))
                    if len(found) == limit:
                        return found
        return found

    def _near(self, at: int) -> Nearness | None:
        """What was measured of one candidate, by the unit of the question that fits it best."""
        signals, moment, at = self._signals, self._moment, self._places[at]
        if signals is None or not moment.asked.terms:
            return None
        words = float(signals.lexical[at].max()) / max(moment.rarity.total, 1e-6)
        name = moment.names.network
        if name is None or not signals.covered[name][at]:
            return Nearness(words=min(1.0, words))
        live, row = moment.lives[int(signals.place[at])], int(signals.rows[at])
        example, place = nearest_example(live, name, row, moment.vectors[name])
        context = float(np.clip(signals.centres[name][at].max(), 0, 1))
        return Nearness(words=min(1.0, words), context=context, example=example, place=place)

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
            return called(arrays["id_bytes"], arrays["id_starts"], self._rows, self.scores, some, _SHOWN)
        segments = [lives[int(signals.place[self._places[at]])].segment for at in some]
        ids = [segment.id_of(int(self._rows[at])) for segment, at in zip(segments, some, strict=True)]
        return ids, in_steps(self.scores[list(some)], _SHOWN)

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
        top = max(_SPREAD, 2 * limit)
        rows, (prints, owners, since) = self._columns(self._rows[:top], ("fingerprint", "owner", "since"))
        return spread_places(self.scores[:top], rows, prints, owners, since, _NOBODYS, RULES, limit, count)

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


def _rest(moment: _Moment, hits: Sequence[Hit], limit: int, alive: Callable[[str], bool]) -> list[Hit]:
    """What passes the filters but says nothing of the words: by id, with the least score, deprecated ones last."""
    seen = {hit.id for hit in hits}
    score = min([_BASE, *(hit.score for hit in hits)])
    found: list[Hit] = []
    for is_deprecated in (False, True):
        ids = [
            agent_id
            for live, (mask, _) in zip(moment.lives, moment.masks, strict=True)
            for agent_id in _first(live, mask & (live.segment.deprecated == is_deprecated), limit + len(seen) + _SPARE)
        ]
        shown = round(score * calibration.DEPRECATED if is_deprecated else score, _PLACES)
        found += [Hit(agent_id, shown) for agent_id in sorted(ids) if agent_id not in seen and alive(agent_id)]
        if len(hits) + len(found) >= limit:
            break
    return found[: limit - len(hits)]


def _first(live: Live, mask: Mask, count: int) -> list[str]:
    rows = np.flatnonzero(mask)
    if len(rows) > count:
        rows = rows[np.argpartition(live.segment.mark[rows], count)[:count]]
    return [live.segment.id_of(int(row)) for row in rows]


_BASE: Final = 0.05  # of an agent that passes the filters and no more


def _waiting(skipped: int) -> tuple[str, ...]:
    return (f"{skipped} agents registered a moment ago are not searched yet.",) if skipped else ()
