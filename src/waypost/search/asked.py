"""A question as the engine works on it: its units, the terms of each, what each term weighs, the tags it is after."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache
from math import log1p
from operator import add
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.model.principal import VISIBILITIES
from waypost.model.query import Query
from waypost.search.document import alike_key, hash_of
from waypost.search.expansion import names_in
from waypost.search.live import AUDIENCES, Live
from waypost.search.reading import Reading, read
from waypost.search.segment import Rows
from waypost.search.taxonomy import Taxonomy
from waypost.search.visible import visible_text

_ENOUGH: Final = 0.9  # of the question's weight
_LEAST_TERMS: Final = 4
_LEAST_SHARE: Final = 0.6  # of the weight, whatever it costs
_MOST_READ: Final = 100_000  # rows that hold the terms that choose: some milliseconds
_ALIKE: Final = 0.02  # of a term's weight
_QUOTED: Final = 0.25  # of its weight: a term that the question only quotes
_TAGS: Final = 4096  # whose spellings are remembered
_NAME: Final = 2  # words in capitals, at most
_KEYS: Final = 6  # spellings looked up for one tag: the rest are distant relatives

Flags = npt.NDArray[np.float32]
_WHOLE: Final[Flags] = np.ones((limits.QUERY_TERMS, 1), dtype=np.float32)  # a text of one unit has all of its terms


class Wished(NamedTuple):
    """One tag that counts in favour: spellings with what each is worth."""

    keys: tuple[tuple[int, float], ...]
    is_asked: bool  # by the caller, not read from the words


class Asked(NamedTuple):
    units: tuple[str, ...]  # the whole, then its clauses
    terms: tuple[int, ...]  # of the whole: every clause has only terms of it
    shares: tuple[float, ...]  # of each term's weight that counts
    has: Flags  # [terms, units]: 1 where a unit has the term
    wishes: tuple[Wished, ...]


def asked_of(query: Query, preferred: Sequence[str], taxonomy: Taxonomy) -> Asked:
    text = _calm(visible_text(query.text[: limits.QUERY_CHARS]))
    reading = read(text)
    words, quoted, parts, _ = reading
    return Asked(
        units=(text, *parts),
        terms=tuple(map(hash_of, words)),
        shares=tuple([_QUOTED if word in quoted else 1.0 for word in words]) if quoted else (1.0,) * len(words),
        has=_flags_of(reading),
        wishes=_wishes(words, preferred, taxonomy),
    )


def _calm(text: str) -> str:
    """A question in capitals, as it would be said: to a sentence model these are other words. One or two are a name."""
    return text.lower() if text.isupper() and len(text.split()) > _NAME else text


def _flags_of(reading: Reading) -> Flags:
    if reading.has is None:
        return _WHOLE[: len(reading.terms)]
    return np.frombuffer(reading.has, dtype=np.float32).reshape(len(reading.terms), len(reading.parts) + 1)


def _wishes(words: Sequence[str], preferred: Sequence[str], taxonomy: Taxonomy) -> tuple[Wished, ...]:
    named = [_wished(taxonomy, tag, 1.0, True) for tag in preferred]
    named += [_wished(taxonomy, tag, confidence, False) for tag, confidence in names_in(words, taxonomy).items()]
    return tuple(named)


@lru_cache(maxsize=_TAGS)
def _wished(taxonomy: Taxonomy, tag: str, confidence: float, is_asked: bool) -> Wished:
    """By the spellings that are looked up for a tag, and what each is worth."""
    keys = sorted(taxonomy.keys_of(tag).items(), key=lambda item: -item[1].weight)[:_KEYS]
    return Wished(tuple((alike_key(spelling), confidence * expansion.weight) for spelling, expansion in keys), is_asked)


class Rarity:
    """What the terms of a question weigh for an audience: by the records that all of it may see, never by anybody's private
    ones (but for an admin, who sees them all). `numbers` are the terms' numbers in each segment. Of a crowd (rows of each
    segment) all but one are left out: copies make no word common."""

    def __init__(
        self,
        lives: Sequence[Live],
        audience: frozenset[str] | None,
        asked: Asked,
        crowd: Sequence[Rows] | None = None,
    ) -> None:
        tiers = _tiers(audience)
        known = [live.counted(asked.terms, tiers) for live in lives]
        self.numbers = [numbers for numbers, _ in known]
        docs = sum([live.docs[tier] for live in lives for tier in tiers])
        containing = known[0][1] if len(known) == 1 else _added([held for _, held in known], len(asked.terms))
        if crowd is not None:
            copies, copied = self._counted(lives, crowd, tiers)
            docs -= max(0, copies - 1)
            containing = [count - max(0, some - 1) for count, some in zip(containing, copied, strict=True)]
        self.weights = [share * _weight(docs, count) for share, count in zip(asked.shares, containing, strict=True)]
        self.known = len(containing) - containing.count(0)  # terms that anybody uses
        self.heavy = _heavy(self.weights, containing)
        self.total = sum(self.weights)

    def is_like(self, other: Rarity) -> bool:
        """Whether the terms weigh nearly the same: a few copies among very many records change nothing that shows."""
        return all(
            abs(mine - theirs) <= _ALIKE * theirs for mine, theirs in zip(self.weights, other.weights, strict=True)
        )

    def _counted(self, lives: Sequence[Live], crowd: Sequence[Rows], tiers: Sequence[int]) -> tuple[int, list[int]]:
        """How many of these rows are counted at all, and how many hold each term."""
        count, containing = 0, [0] * len(self.numbers[0])
        for live, numbers, rows in zip(lives, self.numbers, crowd, strict=True):
            shared, held = live.segment.table.holding(rows, numbers, tiers)
            count += shared
            containing = [*map(add, containing, held)]
        return count, containing


@lru_cache(maxsize=AUDIENCES)
def _tiers(audience: frozenset[str] | None) -> Sequence[int]:
    """Those of records that all of an audience may see."""
    return [number for number, tier in enumerate(VISIBILITIES) if audience is None or tier in audience]


def _added(held: Sequence[Sequence[int]], terms: int) -> list[int]:
    return [*map(sum, zip(*held, strict=True))] if held else [0] * terms


def _weight(docs: int, containing: int) -> float:
    """As in a product of two tf·idf vectors. What nobody says tells no more than what one alone says."""
    held = max(containing, 1)
    rarity = log1p((docs - held + 0.5) / (held + 0.5))
    return rarity * rarity


def _heavy(weights: Sequence[float], containing: Sequence[int]) -> Container[int]:
    """The terms that choose the candidates, by their place: the rarest, of those that anybody uses, that make up most of the
    weight. A word that everybody uses finds nobody; among very many records less of the weight has to do. A word that no
    shared record has may still stand in a private one: looking for it costs next to nothing."""
    if len(weights) <= _LEAST_TERMS and sum(containing) <= _MOST_READ:
        return range(len(weights))  # as many as are looked for at least
    order = [at for at, count in enumerate(containing) if count > 0 and weights[at] > 0]
    order.sort(key=weights.__getitem__, reverse=True)
    whole, taken, read = sum(weight for weight, count in zip(weights, containing, strict=True) if count > 0), 0.0, 0
    heavy = {at for at, count in enumerate(containing) if not count}
    for chosen, at in enumerate(order):
        is_enough = taken >= _ENOUGH * whole and chosen >= _LEAST_TERMS
        is_dear = taken >= _LEAST_SHARE * whole and read + containing[at] > _MOST_READ
        if is_enough or is_dear:
            break
        heavy.add(at)
        taken += weights[at]
        read += containing[at]
    return heavy
