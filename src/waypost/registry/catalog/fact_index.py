"""Facts of agents by ordinal: keys as bitmaps, amounts in buckets, owners, times of the last activity.

Most records state no facts, so everything is sparse except for one time for each agent. The ordinals are those of the tag
index, and mean the same agents only until the next change.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from pyroaring import BitMap

from waypost.model.facts import COST, EVERYWHERE, LANGUAGE, LATENCY, REGION
from waypost.model.registration import CatalogEntry
from waypost.registry.catalog.tag_index import BitmapPostings

_BUCKETS_PER_DOUBLING: Final = 32  # within the bucket of the bound, values are compared one by one
_ZERO_BUCKET: Final = -(2**20)


class AmountIndex:
    """Ordinals by an amount of 0 or more, for queries with an upper bound."""

    def __init__(self) -> None:
        self._values: dict[int, float] = {}
        self._buckets: dict[int, BitMap] = {}

    def add(self, ordinal: int, value: float) -> None:
        self._values[ordinal] = value
        self._buckets.setdefault(_bucket(value), BitMap()).add(ordinal)

    def discard(self, ordinal: int) -> None:
        value = self._values.pop(ordinal, None)
        if value is not None:
            self._buckets[_bucket(value)].discard(ordinal)

    def at_most(self, most: float) -> BitMap:
        last = _bucket(most)
        below = [ordinals for bucket, ordinals in self._buckets.items() if bucket < last]
        within = BitMap(ordinal for ordinal in self._buckets.get(last, ()) if self._values[ordinal] <= most)
        return BitMap.union(within, *below)


class FactIndex:
    def __init__(self) -> None:
        self.owners = BitmapPostings()
        self._keys = BitmapPostings()
        self._amounts: defaultdict[str, AmountIndex] = defaultdict(AmountIndex)
        self._times = array("d")
        self._unreachable = BitMap()

    # --- Filling ---------------------------------------------------------------------------------

    def put(self, ordinal: int, entry: CatalogEntry) -> None:
        self.owners.add(entry.owner, ordinal)
        self._add_facts(ordinal, entry)
        self.touch(ordinal, entry)

    def load(self, rows: Iterable[tuple[int, CatalogEntry]]) -> None:
        """`put` for many new agents at once."""
        owned: defaultdict[str, list[int]] = defaultdict(list)
        new = list(rows)
        self._make_room(max((ordinal for ordinal, _ in new), default=0))
        for ordinal, entry in new:
            owned[entry.owner].append(ordinal)
            if entry.facts or not entry.protocols:
                self._add_facts(ordinal, entry)
            self._times[ordinal] = last_activity(entry)
        for owner, ordinals in owned.items():
            self.owners.add_many(owner, ordinals)

    def touch(self, ordinal: int, entry: CatalogEntry) -> None:
        """Set the time of the last activity."""
        self._make_room(ordinal)
        self._times[ordinal] = last_activity(entry)

    def _make_room(self, ordinal: int) -> None:
        missing = ordinal + 1 - len(self._times)
        if missing > 0:
            self._times.extend([0.0] * missing)

    def remove(self, ordinal: int, entry: CatalogEntry) -> None:
        self.owners.discard(entry.owner, ordinal)
        self._unreachable.discard(ordinal)
        for fact in entry.facts or ():
            kind, value = _parts(fact)
            if kind in (LATENCY, COST):
                self._amounts[_scale(kind, value)].discard(ordinal)
            else:
                for key in _keys(kind, value):
                    self._keys.discard(key, ordinal)

    def _add_facts(self, ordinal: int, entry: CatalogEntry) -> None:
        if not entry.protocols:
            self._unreachable.add(ordinal)
        for fact in entry.facts or ():
            kind, value = _parts(fact)
            if kind in (LATENCY, COST):
                self._amounts[_scale(kind, value)].add(ordinal, float(value.rpartition(":")[2]))
            else:
                for key in _keys(kind, value):
                    self._keys.add(key, ordinal)

    # --- Queries ---------------------------------------------------------------------------------

    @property
    def unreachable(self) -> BitMap:
        """Agents without an endpoint: they are listed, but not found by a search."""
        return self._unreachable

    def match_any(self, kind: str, values: Iterable[str]) -> BitMap:
        """Agents that state one of these values, a narrower one (`eu-west` is in `eu`), or that they serve all. A language
        covers its regions: an agent that states `de` serves `de-at`."""
        keys = [f"{kind}={EVERYWHERE}"]
        for value in values:
            keys.append(f"{kind}:{value}")
            if kind == LANGUAGE:
                keys += (f"{kind}={broader}" for broader in _broader(value))
        return self._keys.union(keys)

    def match_exact(self, kind: str, value: str) -> BitMap:
        """Agents that state exactly this value."""
        return self._keys.union((f"{kind}={value}",))

    def match_not(self, kind: str, value: str) -> BitMap:
        """Agents that do not state this value."""
        return BitMap(range(len(self._times))) - self.match_exact(kind, value)

    def at_most(self, scale: str, most: float) -> BitMap:
        amounts = self._amounts.get(scale)
        return BitMap() if amounts is None else amounts.at_most(most)

    def active_since(self, oldest: float) -> BitMap:
        import numpy as np  # here: 80 ms, which `waypost doctor` and `serve --help` do without

        recent = np.flatnonzero(np.frombuffer(self._times, dtype=np.float64) >= oldest) if self._times else ()
        return BitMap(array("I", np.asarray(recent, dtype=np.uint32).tobytes()))


def last_activity(entry: CatalogEntry) -> float:
    """When the agent was last changed or renewed."""
    return entry.changed_at if entry.renewed_at is None else max(entry.changed_at, entry.renewed_at)


def _parts(fact: str) -> tuple[str, str]:
    kind, _, value = fact.partition(":")
    return kind, value


def _scale(kind: str, value: str) -> str:
    """Amounts are compared within one scale, prices within one currency."""
    return f"{kind}:{value.rpartition(':')[0]}" if kind == COST else kind


def _keys(kind: str, value: str) -> Iterator[str]:
    yield f"{kind}={value}"
    yield f"{kind}:{value}"
    if kind in (REGION, LANGUAGE):
        yield from (f"{kind}:{broader}" for broader in _broader(value))


def _broader(value: str) -> Iterator[str]:
    while "-" in value:
        value = value.rpartition("-")[0]
        yield value


def _bucket(value: float) -> int:
    return math.floor(math.log2(value) * _BUCKETS_PER_DOUBLING) if value > 0 else _ZERO_BUCKET
