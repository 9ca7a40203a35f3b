"""What agents state, by ordinal: facts as bitmaps, amounts in order of size, owners, times. Kept by the catalogue.

Most records state nothing, so everything here is sparse but for one number for each agent: when it was last heard of.
The ordinals are the tag index's, and mean the same agents only until the next change.
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
from waypost.search.index.tag_index import BitmapPostings

_STEPS: Final = 32  # buckets of amounts for each doubling: what is on the edge is looked at one by one
_NOTHING: Final = -(2**20)  # the bucket of 0


class AmountIndex:
    """Ordinals by an amount of 0 or more, asked for by an upper bound."""

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
        edge = _bucket(most)
        whole = [held for bucket, held in self._buckets.items() if bucket < edge]
        at_edge = BitMap(item for item in self._buckets.get(edge, ()) if self._values[item] <= most)
        return BitMap.union(at_edge, *whole)


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
        self._state(ordinal, entry)
        self.touch(ordinal, entry)

    def load(self, rows: Iterable[tuple[int, CatalogEntry]]) -> None:
        """`put` for many new agents at once."""
        owned: defaultdict[str, list[int]] = defaultdict(list)
        taken = list(rows)
        self._make_room(max((ordinal for ordinal, _ in taken), default=0))
        for ordinal, entry in taken:
            owned[entry.owner].append(ordinal)
            if entry.facts or not entry.protocols:
                self._state(ordinal, entry)
            self._times[ordinal] = last_activity(entry)
        for owner, ordinals in owned.items():
            self.owners.add_many(owner, ordinals)

    def touch(self, ordinal: int, entry: CatalogEntry) -> None:
        """Note when the agent was last heard of."""
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

    def _state(self, ordinal: int, entry: CatalogEntry) -> None:
        if not entry.protocols:
            self._unreachable.add(ordinal)
        for fact in entry.facts or ():
            kind, value = _parts(fact)
            if kind in (LATENCY, COST):
                self._amounts[_scale(kind, value)].add(ordinal, float(value.rpartition(":")[2]))
            else:
                for key in _keys(kind, value):
                    self._keys.add(key, ordinal)

    # --- Asking ----------------------------------------------------------------------------------

    @property
    def unreachable(self) -> BitMap:
        """Agents that name no place where they can be reached: listed, but no answer to a question."""
        return self._unreachable

    def match_any(self, kind: str, wanted: Iterable[str]) -> BitMap:
        """Agents that state one of these values, or a narrower one (`eu-west` is in `eu`), or that they serve all.
        A language is understood in all its regions: whoever states `de` serves `de-at`."""
        keys = [f"{kind}={EVERYWHERE}"]
        for value in wanted:
            keys.append(f"{kind}:{value}")
            if kind == LANGUAGE:
                keys += (f"{kind}={broader}" for broader in _broader(value))
        return self._keys.union(keys)

    def match_exact(self, kind: str, value: str) -> BitMap:
        """Agents of exactly this value."""
        return self._keys.union((f"{kind}={value}",))

    def but(self, kind: str, value: str) -> BitMap:
        """All agents but those of this value."""
        return BitMap(range(len(self._times))) - self.match_exact(kind, value)

    def at_most(self, scale: str, most: float) -> BitMap:
        held = self._amounts.get(scale)
        return BitMap() if held is None else held.at_most(most)

    def active_since(self, oldest: float) -> BitMap:
        import numpy as np  # here: 80 ms, which `waypost doctor` and `serve --help` do without

        recent = np.flatnonzero(np.frombuffer(self._times, dtype=np.float64) >= oldest) if self._times else ()
        return BitMap(array("I", np.asarray(recent, dtype=np.uint32).tobytes()))


def last_activity(entry: CatalogEntry) -> float:
    """When the agent last changed or was renewed."""
    return entry.changed_at if entry.renewed_at is None else max(entry.changed_at, entry.renewed_at)


def _parts(fact: str) -> tuple[str, str]:
    kind, _, value = fact.partition(":")
    return kind, value


def _scale(kind: str, value: str) -> str:
    """Amounts are compared within one scale: prices in one currency."""
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
    return math.floor(math.log2(value) * _STEPS) if value > 0 else _NOTHING
