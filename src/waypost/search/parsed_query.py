"""A parsed query: analysed terms, clauses, filters, wished tags, and the idf weights of the terms for an audience."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache
from itertools import compress
from math import log1p
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.model.principal import VISIBILITIES
from waypost.model.query import Query
from waypost.search.index.document import exact_key, hash_of, spelling_key
from waypost.search.index.segment import AUDIENCE_CACHE, Rows, SegmentReader
from waypost.search.text.analyzer import analyze_query, fold_words, grams_of, without_terms
from waypost.search.text.sanitize import sanitize_text
from waypost.search.text.taxonomy import standard_taxonomy


class SearchFilters(msgspec.Struct, frozen=True, kw_only=True):
    terms: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    audience: frozenset[str] | None = None  # None sees everything

    @property
    def selects(self) -> bool:
        """Whether passing the filters is enough to be a (weak) result."""
        return bool(self.required) or (not self.terms and bool(self.protocols))

    def admits(self, tags: frozenset[str], protocols: frozenset[str]) -> bool:
        """Apply the hard filters to one agent."""
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
    """Replace lone surrogates, which no record contains, so that the key can be encoded."""
    return key if key.isascii() else key.encode("utf-8", "replace").decode()


GRAM_IDF_STEPS: Final = 4096.0
_MIN_DOCS: Final = 100  # a smaller catalogue is weighted as one of so many: in few records every word is common
_ENOUGH_WEIGHT: Final = 0.9  # of the query's weight, in the selective terms
_MIN_TERMS: Final = 4
_MIN_WEIGHT: Final = 0.6  # of the query's weight, whatever it costs
_MAX_POSTINGS_READ: Final = 100_000  # of the selective terms: some milliseconds
_SAME_WEIGHT_TOLERANCE: Final = 0.02  # of a term's weight
_TAG_CACHE: Final = 4096
_MAX_NAME_WORDS: Final = 2  # so few words in capitals are a name
_MAX_SPELLINGS: Final = 6  # looked up for one tag; the others are only distantly related


class WishedTag(NamedTuple):
    """A tag that the caller prefers: its spellings with their weights."""

    keys: tuple[tuple[int, float], ...]


class ParsedQuery(NamedTuple):
    units: tuple[str, ...]  # the whole text, then its clauses
    terms: tuple[int, ...]  # of the whole text
    counts: tuple[int, ...]  # how often each term occurs
    counted: tuple[bool, ...]  # whether each term counts: False if the text rules it out
    grams: npt.NDArray[np.uint16]  # of the counted words
    exact: int  # the key of an agent whose name, id or tag is the whole text
    wishes: tuple[WishedTag, ...]


def parse_query(query: Query, preferred: Sequence[str]) -> ParsedQuery:
    text = _lower_shouting(sanitize_text(query.text[: limits.QUERY_CHARS]))
    words, counts, ruled_out, parts = analyze_query(text)
    grams = grams_of(fold_words((without_terms(text, ruled_out) if ruled_out else text,)))
    return ParsedQuery(
        units=(text, *parts),
        terms=tuple(map(hash_of, words)),
        counts=counts,
        counted=tuple([word not in ruled_out for word in words]),
        grams=np.fromiter(sorted(grams), dtype=np.uint16, count=len(grams)),
        exact=exact_key(text),
        wishes=tuple([_wished_tag(tag) for tag in preferred]),
    )


def _lower_shouting(text: str) -> str:
    """Lower a query in capitals, which a sentence model reads as other words. One or two words are a name."""
    return text.lower() if text.isupper() and len(text.split()) > _MAX_NAME_WORDS else text


@lru_cache(maxsize=_TAG_CACHE)
def _wished_tag(tag: str) -> WishedTag:
    keys = sorted(standard_taxonomy().keys_of(tag).items(), key=lambda item: -item[1])[:_MAX_SPELLINGS]
    return WishedTag(tuple((spelling_key(spelling), weight) for spelling, weight in keys))


class TermWeights:
    """The idf weights of query terms for an audience: from records that all of it may see, never from private ones (except for
    an admin, who sees all). `numbers` are the terms' numbers in each segment. All but one of the near duplicates (rows of
    each segment) are discounted: copies must not make a word common."""

    def __init__(
        self,
        readers: Sequence[SegmentReader],
        audience: frozenset[str] | None,
        query: ParsedQuery,
        duplicates: Sequence[Rows] | None = None,
    ) -> None:
        tiers = visible_tiers(audience)
        self.numbers = [reader.segment.terms.find(query.terms) for reader in readers]
        are_counted = [reader.segment.common_tier in tiers for reader in readers]
        docs = sum(reader.count for reader in compress(readers, are_counted))
        counted = compress(zip(readers, self.numbers, strict=True), are_counted)
        containing = _sum_counts([reader.count_documents(numbers) for reader, numbers in counted], len(query.terms))
        if duplicates is not None:
            copies, copied = self._count_duplicates(readers, duplicates, are_counted)
            docs -= max(0, copies - 1)
            containing = [
                count - max(0, copied_count - 1) for count, copied_count in zip(containing, copied, strict=True)
            ]
        docs = max(docs, _MIN_DOCS)
        rarity = [_idf(docs, count) for count in containing]
        self.total = sum(idf * 2 * count / (1 + count) for idf, count in zip(rarity, query.counts, strict=True))
        self.idf = [idf * counted for idf, counted in zip(rarity, query.counted, strict=True)]
        self.weights = [idf * 2 * count / (1 + count) for idf, count in zip(self.idf, query.counts, strict=True)]
        self.gram_idf = _gram_idf(readers, tiers, docs, query.grams)
        self.known = len(containing) - containing.count(0)  # terms that occur in any record
        self.selective = _selective_terms(self.weights, containing)

    def is_close_to(self, other: TermWeights) -> bool:
        """Whether the weights are nearly equal: a few copies among many records change nothing visible."""
        return all(
            abs(mine - theirs) <= _SAME_WEIGHT_TOLERANCE * theirs
            for mine, theirs in zip(self.weights, other.weights, strict=True)
        )

    def _count_duplicates(
        self, readers: Sequence[SegmentReader], duplicates: Sequence[Rows], are_counted: Sequence[bool]
    ) -> tuple[int, list[int]]:
        """How many of these rows are counted at all, and the document frequency of each term in them."""
        count, containing = 0, [0] * len(self.numbers[0])
        for reader, numbers, rows in compress(zip(readers, self.numbers, duplicates, strict=True), are_counted):
            count += len(rows)
            for at, number in enumerate(numbers):
                containing[at] += int(np.count_nonzero(reader.segment.impacts_of(number, rows))) if number >= 0 else 0
        return count, containing


@lru_cache(maxsize=AUDIENCE_CACHE)
def visible_tiers(audience: frozenset[str] | None) -> Sequence[int]:
    """The tiers that all of an audience may see."""
    return [number for number, tier in enumerate(VISIBILITIES) if audience is None or tier in audience]


def _sum_counts(counts: Sequence[Sequence[int]], terms: int) -> list[int]:
    return [*map(sum, zip(*counts, strict=True))] if counts else [0] * terms


def _idf(docs: int, containing: int) -> float:
    """A document frequency of 0 is weighted as 1: what no record has tells no more than what one has."""
    frequency = max(containing, 1)
    return log1p((docs - frequency + 0.5) / (frequency + 0.5))


def _gram_idf(
    readers: Sequence[SegmentReader], tiers: Sequence[int], docs: int, grams: npt.NDArray[np.uint16]
) -> npt.NDArray[np.int64]:
    """The idf of each gram in steps of 1/4096: integers add up to the same in any order."""
    counts = np.zeros(len(grams), dtype=np.int64)
    for reader in readers:
        if reader.segment.common_tier in tiers:
            counts += reader.gram_counts.take(grams)
    counts = np.clip(counts, 1, max(docs, 1))
    return np.rint(np.log1p((docs - counts + 0.5) / (counts + 0.5)) * GRAM_IDF_STEPS).astype(np.int64)


def _selective_terms(weights: Sequence[float], containing: Sequence[int]) -> Container[int]:
    """The places of the terms that select candidates: the rarest known ones that make up most of the weight. Common words
    select nothing; with very many records, less of the weight has to suffice. Unknown terms are included: they may occur
    in a private record, and cost next to nothing."""
    if len(weights) <= _MIN_TERMS and sum(containing) <= _MAX_POSTINGS_READ:
        return range(len(weights))  # no more than the minimum
    order = [at for at, count in enumerate(containing) if count > 0 and weights[at] > 0]
    order.sort(key=weights.__getitem__, reverse=True)
    whole, taken, read = sum(weight for weight, count in zip(weights, containing, strict=True) if count > 0), 0.0, 0
    selective = {at for at, count in enumerate(containing) if not count}
    for chosen, at in enumerate(order):
        is_enough = taken >= _ENOUGH_WEIGHT * whole and chosen >= _MIN_TERMS
        is_expensive = taken >= _MIN_WEIGHT * whole and read + containing[at] > _MAX_POSTINGS_READ
        if is_enough or is_expensive:
            break
        selective.add(at)
        taken += weights[at]
        read += containing[at]
    return selective
