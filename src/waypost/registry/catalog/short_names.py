"""Agents by short name: the last part of an id (after its last `/` or `:`), so that people need not type whole ids.

The names of each scope are a sorted list of their own. A lookup reads only the lists of the caller's audience, so hidden agents
change neither its result nor its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from sortedcontainers import SortedList

from waypost.model.names import fold
from waypost.model.registration import CatalogEntry

ShortName = tuple[str, str]  # (folded short name, id)

ALL_SCOPES: Final = "*"
_LAST: Final = chr(0x10FFFF)
_MOST_ALIKE: Final = 1000  # agents with the same short name that are compared with a name of several parts
_SHORT_LIST: Final = 200  # names that are all compared: about a millisecond
_COMPARED: Final = 32  # names that are compared at each place of a longer list where similar ones are expected
_PREFIXES: Final = (6, 4, 3, 2)  # characters that a similar name may begin with
_LEAST_SIMILARITY: Final = 0.45


def short_name_of(agent_id: str) -> str:
    """The folded last part of an id. An id without parts is its own short name."""
    trimmed = agent_id.rstrip("/:")
    return fold(trimmed[max(trimmed.rfind("/"), trimmed.rfind(":")) + 1 :])


class ShortNames:
    """The short names of all agents, by scope."""

    def __init__(self) -> None:
        self._lists: dict[str, SortedList[ShortName]] = {ALL_SCOPES: SortedList()}

    def load(self, entries: Iterable[CatalogEntry]) -> None:
        """Add many entries. Sorting them together costs less than adding each."""
        added: dict[str, list[ShortName]] = {}
        for entry in entries:
            name = (short_name_of(entry.id), entry.id)
            for scope in (*entry.scopes, ALL_SCOPES):
                added.setdefault(scope, []).append(name)
        for scope, names in added.items():
            self._lists.setdefault(scope, SortedList()).update(names)

    def remove(self, entry: CatalogEntry) -> None:
        name = (short_name_of(entry.id), entry.id)
        for scope in (*entry.scopes, ALL_SCOPES):
            names = self._lists.get(scope)
            if names is None:
                continue
            names.discard(name)
            if not names and scope != ALL_SCOPES:
                del self._lists[scope]

    def visible_to(self, audience: frozenset[str] | None) -> list[SortedList[ShortName]]:
        scopes = (ALL_SCOPES,) if audience is None else sorted(audience)
        return [self._lists[scope] for scope in scopes if scope in self._lists]


def ending_in(lists: Iterable[SortedList[ShortName]], name: str) -> Iterator[str]:
    """Ids whose end is `/name` or `:name`, in any case. A whole id in another case is another id."""
    folded, short = fold(name), short_name_of(name)
    for names in lists:
        for _, agent_id in islice(names.irange((short, ""), (short, _LAST)), _MOST_ALIKE):
            if fold(agent_id.rstrip("/:")).endswith((f"/{folded}", f":{folded}")):
                yield agent_id


def named(lists: Iterable[SortedList[ShortName]], name: str) -> Iterator[str]:
    """Ids of the agents with this name in lists of (folded name, id)."""
    folded = fold(name)
    for names in lists:
        yield from (agent_id for _, agent_id in names.irange((folded, ""), (folded, _LAST)))


def similar(lists: Iterable[SortedList[ShortName]], name: str) -> Iterator[tuple[float, str]]:
    """Ids with a similar name, and how similar it is (0 to 1).

    A short list is compared completely. In a long one only the names around the places where the name and its beginnings
    would be are compared, so that an unknown name costs no more in a large registry.
    """
    folded = short_name_of(name)
    pairs = _pairs(folded)
    for names in lists:
        for candidate, agent_id in _neighbours(names, folded):
            similarity = _similarity(folded, pairs, candidate)
            if similarity >= _LEAST_SIMILARITY:
                yield similarity, agent_id


def _neighbours(names: SortedList[ShortName], folded: str) -> Iterator[ShortName]:
    if len(names) <= _SHORT_LIST:
        yield from names
        return
    place = names.bisect_left((folded, ""))
    yield from names.islice(max(0, place - _COMPARED // 2), place + _COMPARED // 2)
    for length in _PREFIXES:
        if length < len(folded):
            start = names.bisect_left((folded[:length], ""))
            yield from names.islice(start, start + _COMPARED // 2)


def _similarity(name: str, pairs: set[str], candidate: str) -> float:
    """The share of common pairs of letters (Dice); a name inside the other one counts at least as a weak match."""
    others = _pairs(candidate)
    dice = 2 * len(pairs & others) / (len(pairs) + len(others)) if pairs and others else 0.0
    if len(name) > 2 and (name in candidate or (len(candidate) > 2 and candidate in name)):
        return max(dice, 0.5)
    return dice


def _pairs(text: str) -> set[str]:
    return {text[index : index + 2] for index in range(len(text) - 1)}
