"""A question as the signals see it: analysed terms, folded filters, the audience. And what a signal answers."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache
from math import log1p
from operator import add
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.model.principal import VISIBILITIES
from waypost.model.query import Query
from waypost.search.index.document import hash_of, spelling_key
from waypost.search.index.segment import Rows
from waypost.search.index.segment_reader import AUDIENCE_CACHE, SegmentReader
from waypost.search.text.query_analysis import AnalyzedQuery, analyze_query
from waypost.search.text.sanitize import sanitize_text
from waypost.search.text.taxonomy import Taxonomy, find_tag_names


class SearchFilters(msgspec.Struct, frozen=True, kw_only=True):
    terms: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    audience: frozenset[str] | None = None  # None sees everything

    @property
    def selects(self) -> bool:
        """True when passing the filters is reason enough to be an answer, if a weak one."""
        return bool(self.required) or (not self.terms and bool(self.protocols))

    def admits(self, tags: frozenset[str], protocols: frozenset[str]) -> bool:
        """The hard filters, for one agent."""
        if not tags.issuperset(self.required) or not tags.isdisjoint(self.excluded):
            return False
        return not self.protocols or not protocols.isdisjoint(self.protocols)


def parse_filters(query: Query, audience: frozenset[str] | None) -> SearchFilters:
    return SearchFilters(
        terms=analyze_query(query.text[: limits.QUERY_CHARS]).terms,
        required=_folded_tags(query.required_tags),
        preferred=_folded_tags(query.preferred_tags),
        excluded=_folded_tags(query.excluded_tags),
        protocols=tuple([_storable(fold(protocol)) for protocol in dict.fromkeys(query.protocols)]),
        audience=audience,
    )


def _folded_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_storable(fold_tag(tag)) for tag in tags)) if tags else ()


def _storable(key: str) -> str:
    """A key that an index can be asked for. No record holds a lone surrogate, so what stands for it matches nothing."""
    return key if key.isascii() else key.encode("utf-8", "replace").decode()


class Scored(msgspec.Struct, frozen=True, gc=False):
    """An id with an absolute score in 0..1."""

    id: str
    score: float
    deprecated: bool = False


class RankedAgent(msgspec.Struct, frozen=True):
    """What a signal found. Nothing that it left unseen belongs before a seen one whose score is above the ceiling."""

    scored: list[Scored]
    ceiling: float = 0.0
    is_complete: bool = True  # nothing was left unseen
    skipped: int = 0  # visible changes too fresh to be looked at in time


# ---- A question as the engine works on it: its units, the terms of each, what each term weighs, the tags it is after.

_ENOUGH_WEIGHT: Final = 0.9  # of the question's weight

_LEAST_TERMS: Final = 4

_LEAST_SHARE: Final = 0.6  # of the weight, whatever it costs

_MAX_POSTINGS_READ: Final = 100_000  # rows that hold the terms that choose: some milliseconds

_SAME_WEIGHT_TOLERANCE: Final = 0.02  # of a term's weight

_QUOTED_SHARE: Final = 0.25  # of its weight: a term that the question only quotes

_TAG_CACHE: Final = 4096  # whose spellings are remembered

_MAX_NAME_WORDS: Final = 2  # words in capitals, at most

_MAX_SPELLINGS: Final = 6  # spellings looked up for one tag: the rest are distant relatives

Flags = npt.NDArray[np.float32]

_WHOLE: Final[Flags] = np.ones((limits.QUERY_TERMS, 1), dtype=np.float32)  # a text of one unit has all of its terms


class WishedTag(NamedTuple):
    """One tag that counts in favour: spellings with what each is worth."""

    keys: tuple[tuple[int, float], ...]
    is_asked: bool  # by the caller, not read from the words


class ParsedQuery(NamedTuple):
    units: tuple[str, ...]  # the whole, then its clauses
    terms: tuple[int, ...]  # of the whole: every clause has only terms of it
    shares: tuple[float, ...]  # of each term's weight that counts
    has: Flags  # [terms, units]: 1 where a unit has the term
    wishes: tuple[WishedTag, ...]


def parse_query(query: Query, preferred: Sequence[str], taxonomy: Taxonomy) -> ParsedQuery:
    text = _lower_shouting(sanitize_text(query.text[: limits.QUERY_CHARS]))
    reading = analyze_query(text)
    words, quoted, parts, _ = reading
    return ParsedQuery(
        units=(text, *parts),
        terms=tuple(map(hash_of, words)),
        shares=tuple([_QUOTED_SHARE if word in quoted else 1.0 for word in words]) if quoted else (1.0,) * len(words),
        has=_flags_of(reading),
        wishes=_wished_tags(words, preferred, taxonomy),
    )


def _lower_shouting(text: str) -> str:
    """A question in capitals, as it would be said: to a sentence model these are other words. One or two are a name."""
    return text.lower() if text.isupper() and len(text.split()) > _MAX_NAME_WORDS else text


def _flags_of(reading: AnalyzedQuery) -> Flags:
    if reading.has is None:
        return _WHOLE[: len(reading.terms)]
    return np.frombuffer(reading.has, dtype=np.float32).reshape(len(reading.terms), len(reading.parts) + 1)


def _wished_tags(words: Sequence[str], preferred: Sequence[str], taxonomy: Taxonomy) -> tuple[WishedTag, ...]:
    named = [_wished_tag(taxonomy, tag, 1.0, True) for tag in preferred]
    named += [
        _wished_tag(taxonomy, tag, confidence, False) for tag, confidence in find_tag_names(words, taxonomy).items()
    ]
    return tuple(named)


@lru_cache(maxsize=_TAG_CACHE)
def _wished_tag(taxonomy: Taxonomy, tag: str, confidence: float, is_asked: bool) -> WishedTag:
    """By the spellings that are looked up for a tag, and what each is worth."""
    keys = sorted(taxonomy.keys_of(tag).items(), key=lambda item: -item[1].weight)[:_MAX_SPELLINGS]
    return WishedTag(
        tuple((spelling_key(spelling), confidence * expansion.weight) for spelling, expansion in keys), is_asked
    )


class TermWeights:
    """What the terms of a question weigh for an audience: by the records that all of it may see, never by anybody's private
    ones (but for an admin, who sees them all). `numbers` are the terms' numbers in each segment. Of a crowd (rows of each
    segment) all but one are left out: copies make no word common."""

    def __init__(
        self,
        lives: Sequence[SegmentReader],
        audience: frozenset[str] | None,
        asked: ParsedQuery,
        crowd: Sequence[Rows] | None = None,
    ) -> None:
        tiers = _visible_tiers(audience)
        known = [live.counted(asked.terms, tiers) for live in lives]
        self.numbers = [numbers for numbers, _ in known]
        docs = sum([live.docs[tier] for live in lives for tier in tiers])
        containing = known[0][1] if len(known) == 1 else _sum_counts([held for _, held in known], len(asked.terms))
        if crowd is not None:
            copies, copied = self._counted(lives, crowd, tiers)
            docs -= max(0, copies - 1)
            containing = [count - max(0, some - 1) for count, some in zip(containing, copied, strict=True)]
        self.weights = [
            share * _squared_idf(docs, count) for share, count in zip(asked.shares, containing, strict=True)
        ]
        self.known = len(containing) - containing.count(0)  # terms that anybody uses
        self.heavy = _selective_terms(self.weights, containing)
        self.total = sum(self.weights)

    def is_like(self, other: TermWeights) -> bool:
        """Whether the terms weigh nearly the same: a few copies among very many records change nothing that shows."""
        return all(
            abs(mine - theirs) <= _SAME_WEIGHT_TOLERANCE * theirs
            for mine, theirs in zip(self.weights, other.weights, strict=True)
        )

    def _counted(
        self, lives: Sequence[SegmentReader], crowd: Sequence[Rows], tiers: Sequence[int]
    ) -> tuple[int, list[int]]:
        """How many of these rows are counted at all, and how many hold each term."""
        count, containing = 0, [0] * len(self.numbers[0])
        for live, numbers, rows in zip(lives, self.numbers, crowd, strict=True):
            shared, held = live.segment.table.count_in_rows(rows, numbers, tiers)
            count += shared
            containing = [*map(add, containing, held)]
        return count, containing


@lru_cache(maxsize=AUDIENCE_CACHE)
def _visible_tiers(audience: frozenset[str] | None) -> Sequence[int]:
    """Those of records that all of an audience may see."""
    return [number for number, tier in enumerate(VISIBILITIES) if audience is None or tier in audience]


def _sum_counts(held: Sequence[Sequence[int]], terms: int) -> list[int]:
    return [*map(sum, zip(*held, strict=True))] if held else [0] * terms


def _squared_idf(docs: int, containing: int) -> float:
    """As in a product of two tf·idf vectors. What nobody says tells no more than what one alone says."""
    held = max(containing, 1)
    rarity = log1p((docs - held + 0.5) / (held + 0.5))
    return rarity * rarity


def _selective_terms(weights: Sequence[float], containing: Sequence[int]) -> Container[int]:
    """The terms that choose the candidates, by their place: the rarest, of those that anybody uses, that make up most of the
    weight. A word that everybody uses finds nobody; among very many records less of the weight has to do. A word that no
    shared record has may still stand in a private one: looking for it costs next to nothing."""
    if len(weights) <= _LEAST_TERMS and sum(containing) <= _MAX_POSTINGS_READ:
        return range(len(weights))  # as many as are looked for at least
    order = [at for at, count in enumerate(containing) if count > 0 and weights[at] > 0]
    order.sort(key=weights.__getitem__, reverse=True)
    whole, taken, read = sum(weight for weight, count in zip(weights, containing, strict=True) if count > 0), 0.0, 0
    heavy = {at for at, count in enumerate(containing) if not count}
    for chosen, at in enumerate(order):
        is_enough = taken >= _ENOUGH_WEIGHT * whole and chosen >= _LEAST_TERMS
        is_dear = taken >= _LEAST_SHARE * whole and read + containing[at] > _MAX_POSTINGS_READ
        if is_enough or is_dear:
            break
        heavy.add(at)
        taken += weights[at]
        read += containing[at]
    return heavy
