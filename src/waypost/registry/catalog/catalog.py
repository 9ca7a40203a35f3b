"""Agents in the order of every list, for each audience: by folded name, then by id.

What was loaded is put in order when a list is first asked for or changes: a start need not wait for it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress, islice
from operator import not_
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyroaring import BitMap
from sortedcontainers import SortedList

from waypost.model.names import fold, hash_slug, slug, unslug
from waypost.model.principal import PRIVATE, VISIBILITIES, record_scopes
from waypost.model.record import LISTED
from waypost.model.registration import KEY_FACT, TRUST_FACT, CatalogEntry
from waypost.registry.catalog.entry_columns import AUDIENCE_FIELDS, EntryColumns, LazyEntries
from waypost.registry.catalog.fact_index import FactIndex
from waypost.registry.catalog.similar_names import ConfusableNames
from waypost.search.index.tag_index import TagIndex

if TYPE_CHECKING:
    from waypost.registry.catalog.tag_suggestions import TagSuggestions
    from waypost.search.index.tag_suggester import TagSuggester


_ALL_AGENTS = "*"

Position = tuple[str, str]  # (folded name, id)


class SortedLists:
    def __init__(self) -> None:
        self._orders: dict[str, SortedList[Position]] = {_ALL_AGENTS: SortedList()}
        self._loaded: list[tuple[Sequence[Any], ...]] = []  # columns that were loaded, and are not in the orders yet

    def load(self, roll: EntryColumns) -> None:
        self._loaded.append(tuple(map(roll.column, ("name", "id", "status", *AUDIENCE_FIELDS))))

    def add(self, entry: CatalogEntry) -> None:
        position = position_of(entry)
        for scope in (*entry.scopes, _ALL_AGENTS):
            self._order(scope).add(position)

    def discard(self, entry: CatalogEntry) -> None:
        position = position_of(entry)
        for scope in (*entry.scopes, _ALL_AGENTS):
            self._order(scope).discard(position)

    def visible_to(self, audience: frozenset[str] | None) -> list[SortedList[Position]]:
        everything = self._order(_ALL_AGENTS)
        if audience is None:
            return [everything]
        return [self._orders[scope] for scope in sorted(audience) if self._orders.get(scope)] or [SortedList()]

    def _make(self) -> None:
        """Sorted once; what is handed to each order is sorted already, which costs it next to nothing."""
        loaded, self._loaded = self._loaded, []
        positions: dict[str, list[Position]] = {_ALL_AGENTS: []}
        listed = [
            (fold(name), agent_id, record_scopes(*seen_by))
            for columns in loaded
            for name, agent_id, status, *seen_by in zip(*columns, strict=True)
            if status in LISTED
        ]
        listed.sort()
        for folded, agent_id, scopes in listed:
            position = (folded, agent_id)
            positions[_ALL_AGENTS].append(position)
            for scope in scopes:
                positions.setdefault(scope, []).append(position)
        for scope, found in positions.items():
            self._orders.setdefault(scope, SortedList()).update(found)

    def _order(self, scope: str) -> SortedList[Position]:
        if self._loaded:
            self._make()
        found = self._orders.get(scope)
        if found is None:
            found = self._orders[scope] = SortedList()
        return found


def position_of(entry: CatalogEntry) -> Position:
    return (fold(entry.name), entry.id)


# ---- What changes leave behind for each audience: how many there were, when the last one was, and a sum of what is there.
#
# It keeps no agent: an audience is told by these alone that what it sees is another set than before.

_ALL_SCOPES = "*"

_MARK_BITS = 2**64 - 1


class ChangeCounters:
    def __init__(self) -> None:
        self._changes: dict[str, int] = {}
        self._modified: dict[str, float] = {}
        self._marks: dict[str, int] = {}

    def load(self, roll: EntryColumns) -> None:
        """The newest change of each audience; marks are made with the tags."""
        latest: dict[tuple[str, str, tuple[str, ...]], float] = {}
        times, seen = roll.column("changed_at"), [*map(roll.column, AUDIENCE_FIELDS)]
        if times and all(len(set(column)) == 1 for column in seen):  # one owner, one visibility
            latest[seen[0][0], seen[1][0], seen[2][0]] = max(times)
        else:
            for seen_by, at in zip(zip(*seen, strict=True), times, strict=True):
                if at > latest.get(seen_by, 0.0):
                    latest[seen_by] = at
        newest: dict[tuple[str, ...], float] = {}
        for seen_by, at in latest.items():
            scopes = record_scopes(*seen_by)
            newest[scopes] = max(at, newest.get(scopes, 0.0))
        for scopes, at in newest.items():
            self.touch(scopes, at)

    def touch(self, scopes: Iterable[str], at: float) -> None:
        for scope in (*scopes, _ALL_SCOPES):
            self._changes[scope] = self._changes.get(scope, 0) + 1
            if at > self._modified.get(scope, 0.0):
                self._modified[scope] = at

    def note(self, scopes: Iterable[str], at: float) -> None:
        """A change that counts for `last_modified` and for nothing else."""
        for scope in (*scopes, _ALL_SCOPES):
            self._modified[scope] = max(at, self._modified.get(scope, 0.0))

    def mark(self, entry: CatalogEntry) -> None:
        self._add(entry, _content_mark(entry))

    def unmark(self, entry: CatalogEntry) -> None:
        self._add(entry, -_content_mark(entry))

    def _add(self, entry: CatalogEntry, mark: int) -> None:
        for scope in (*entry.scopes, _ALL_SCOPES):
            self._marks[scope] = self._marks.get(scope, 0) + mark

    def generation(self, audience: frozenset[str] | None) -> int:
        if audience is None:
            return self._changes.get(_ALL_SCOPES, 0)
        return sum(self._changes.get(scope, 0) for scope in audience)

    def fingerprint(self, audience: frozenset[str] | None) -> str:
        scopes: Iterable[str] = (_ALL_SCOPES,) if audience is None else audience
        return f"{sum(self._marks.get(scope, 0) for scope in scopes) & _MARK_BITS:016x}"

    def last_modified(self, audience: frozenset[str] | None) -> float | None:
        scopes: Iterable[str] = (_ALL_SCOPES,) if audience is None else audience
        found = [self._modified[scope] for scope in scopes if scope in self._modified]
        return max(found) if found else None


def _content_mark(entry: CatalogEntry) -> int:
    """A number made of the content: marks of a set add up to the same sum in whatever order it came about."""
    mark = int.from_bytes(entry.etag[:12].encode("ascii", "replace"))
    return mark if entry.status in LISTED else ~mark  # who is dead leaves the list without a change of its content


# ---- Every agent in brief, in memory: names, order, filters, deadlines. Filled from the store, then by the change log.
#
# Reads take no lock and make no call. Deadlines are compared on each read: an agent whose time is over is gone at once, and
# the store learns of it later (a full disk must not keep the dead alive).

_KEY = f"{KEY_FACT}:"

_TRUST = f"{TRUST_FACT}:"

_PREPARED_AT_ONCE = 4000  # some 10 ms of work

_FRESH = 500  # new agents that wait to be put into the tag index: some 5 ms

_SPELT_AT_ONCE = 500

_SORT_BELOW = 4096  # fewer matches than this are sorted; more are picked from the order that stands

_UNHASHED = 94  # bytes of an id that its slug surely holds

# In the place of an agent that is not there: whoever looks takes the same steps as for one that is hidden (THREATS V2).
NO_ENTRY: Final = CatalogEntry("", "", "", PRIVATE, "active", "", 0, 0.0, None, (), (), (), ())


class Catalog:
    def __init__(self) -> None:
        self._entries: dict[str, CatalogEntry] = {}
        self._aliases: dict[str, str] = {}
        self._orders = SortedLists()
        self._deadlines: list[tuple[float, str, int]] = []
        self._traces = ChangeCounters()
        self._expired: list[str] = []
        self._untagged: list[
            tuple[EntryColumns, int]
        ] = []  # what was loaded, and how much of it is not in the tag index yet
        self._fresh: list[CatalogEntry] = []  # new since, and not in it either
        self._unstated: list[str] = []  # agents whose entries do not tell what they state
        # tags that were loaded, and whose neighbours nobody knows yet
        self._unspelt: dict[str, set[str]] = {tier: set() for tier in VISIBILITIES}
        self._tags = TagIndex()
        self._stated = FactIndex()
        self.lookalikes = ConfusableNames()
        self._owned: Counter[str] = Counter()  # agents by owner
        self._unkeyed: set[str] = set()  # loaded agents that were judged, and whose entries name no key
        self._judged: Counter[str] = Counter()  # agents of which something was verified or failed, by scope

    def __len__(self) -> int:
        return len(self._entries)

    # --- Filling ---------------------------------------------------------------------------------

    def load(self, entries: Sequence[CatalogEntry]) -> None:
        """Take many entries at once, at start: a hundred thousand of them must not take a tenth of a second. Of a roll they
        are made later."""
        roll = EntryColumns.of(entries)
        ids = roll.column("id")
        if roll.is_materialized or isinstance(self._entries, LazyEntries):
            self._entries.update(zip(ids, roll, strict=True))
        else:
            self._entries = LazyEntries(self._entries, roll)
        self._untagged.append((roll, len(roll)))
        self._owned.update(roll.column("owner"))
        self._load_names(roll)
        self._load_judged(roll)
        self._deadlines += roll.stated("expires_at", "id", "revision")
        heapq.heapify(self._deadlines)
        self._orders.load(roll)
        self._traces.load(roll)

    def _load_names(self, roll: EntryColumns) -> None:
        ids, aliases = roll.column("id"), roll.column("aliases")
        rows = range(len(ids))
        named = set(compress(rows, aliases))
        if not "".join(ids).isascii():
            named.update(compress(rows, map(not_, map(str.isascii, ids))))
        if max(map(len, ids), default=0) > _UNHASHED:
            named.update(compress(rows, map(_UNHASHED.__lt__, map(len, ids))))
        for row in sorted(named):
            if aliases[row] or _may_be_hashed(ids[row]):
                self._name(roll[row])

    def _load_judged(self, roll: EntryColumns) -> None:
        """Most agents state one of a few things: each is looked at once, not once for each of them."""
        stated = roll.column("facts")
        judged = {facts for facts in set(stated) if any(fact.startswith(_TRUST) for fact in facts or ())}
        for row, facts in enumerate(stated) if judged else ():
            if facts in judged:
                entry = roll[row]
                self._judge(entry)
                if not any(fact.startswith(_KEY) for fact in facts or ()):
                    self._unkeyed.add(entry.id)

    @property
    def tags(self) -> TagIndex:
        while self._untagged or self._fresh:
            self._prepare_tags()
        return self._tags

    @property
    def facts(self) -> FactIndex:
        """What agents state, by the ordinals of `tags`."""
        while self._untagged or self._fresh:
            self._prepare_tags()
        return self._stated

    @cached_property
    def _spellings(self) -> TagSuggestions:
        # Imported here: it needs numpy (80 ms), which `waypost doctor` and `serve --help` do without.
        from waypost.registry.catalog.tag_suggestions import TagSuggestions

        return TagSuggestions(self.generation)

    def neighbours(self, audience: frozenset[str] | None) -> list[TagSuggester]:
        """Tags that are written alike, of agents that the audience sees."""
        while self.prepare():
            pass
        return self._spellings.visible_to(audience, self._tags)

    @property
    def is_prepared(self) -> bool:
        """Whether so little is left that it can be done at once."""
        return not self._untagged and sum(map(len, self._unspelt.values())) <= _SPELT_AT_ONCE

    def prepare(self) -> bool:
        """Take a part of what was loaded, or came since, into the tag index; True while something is left. The first answers
        need neither tags nor order, a registration waits for neither, and many at once cost a fraction of each by itself:
        it is done from time to time, or at once when somebody asks."""
        if self._untagged or self._fresh:
            self._prepare_tags()
        else:
            self._spell()
        return bool(self._untagged or self._fresh or any(self._unspelt.values()))

    def _spell(self) -> None:
        for tier, waiting in self._unspelt.items():
            if waiting:
                self._spellings.add(tier, [waiting.pop() for _ in range(min(_SPELT_AT_ONCE, len(waiting)))])
                return

    def _prepare_tags(self) -> None:
        if self._untagged:
            self._tag(self._take_untagged())
        else:
            part, self._fresh = self._fresh, []
            self._tag(part)

    def _take_untagged(self) -> Sequence[CatalogEntry]:
        roll, left = self._untagged.pop()
        start = max(0, left - _PREPARED_AT_ONCE)
        part = roll[start:left]
        if isinstance(self._entries, LazyEntries):
            self._entries.settle(part)
        if start:
            self._untagged.append((roll, start))
        elif not self._untagged:
            self._entries = dict(self._entries)  # all are made
        return part

    def _tag(self, part: Sequence[CatalogEntry]) -> None:
        self._tags.load((entry.id, entry.tags, entry.protocols, entry.status, entry.scopes) for entry in part)
        for entry in part:
            self._traces.mark(entry)
            self._unspelt[entry.visibility].update(entry.tags)
        ordinals = (self._tags.ordinal(entry.id) for entry in part)
        newest = (self._entries.get(entry.id, entry) for entry in part)  # a renewal may have come in between
        self._stated.load((found, entry) for found, entry in zip(ordinals, newest, strict=True) if found is not None)
        self._unstated += [entry.id for entry in part if entry.facts is None]

    def take_without_facts(self) -> list[str]:
        taken, self._unstated = self._unstated, []
        return taken

    def restate(self, entry: CatalogEntry) -> None:
        """The entry of an agent once more, with what it states, unless it changed meanwhile."""
        held, ordinal = self._entries.get(entry.id), self.tags.ordinal(entry.id)
        if held is not None and ordinal is not None and held.revision == entry.revision:
            entry = msgspec.structs.replace(entry, number=held.number)
            self._entries[entry.id] = entry
            self._stated.remove(ordinal, held)
            self._stated.put(ordinal, entry)
            self._unjudge(held)
            self._judge(entry)

    def put(self, entry: CatalogEntry, at: float) -> None:
        before = self._entries.get(entry.id)
        if before is not None:
            self._forget(before, at)
        self._name(entry)
        self._owned[entry.owner] += 1
        self._watch_deadline(entry)
        self._judge(entry)
        self._fresh.append(entry)
        if len(self._fresh) >= _FRESH:
            self._prepare_tags()
        self._traces.touch(entry.scopes, at)
        if entry.status in LISTED:
            self._orders.add(entry)

    def renew(self, entry: CatalogEntry) -> None:
        """A new deadline and nothing else: order, filters and change times stay."""
        before = self._entries.get(entry.id, entry)
        self._entries[entry.id] = entry
        self._watch_deadline(entry)
        ordinal = self._tags.ordinal(entry.id)
        if ordinal is None:
            return
        if before.facts != entry.facts:  # its endpoint answers otherwise, which is nothing new to who reads its list
            self._stated.remove(ordinal, before)
            self._stated.put(ordinal, entry)
        self._stated.touch(ordinal, entry)

    def remove(self, agent_id: str, at: float) -> None:
        entry = self._entries.pop(agent_id, None)
        if entry is not None:
            self._unkeyed.discard(agent_id)
            self._forget(entry, at)
            self._entries.pop(agent_id, None)

    def _name(self, entry: CatalogEntry) -> None:
        agent_id = entry.id
        self._entries[agent_id] = entry
        for alias in entry.aliases:
            self._aliases.setdefault(alias, agent_id)
        if _may_be_hashed(agent_id) and (published := slug(agent_id)).startswith("h-"):
            self._aliases[published] = agent_id

    def _judge(self, entry: CatalogEntry) -> None:
        if entry.trust != "self_asserted":
            self._judged.update(entry.scopes)
            self.lookalikes.put(entry)

    def _unjudge(self, entry: CatalogEntry) -> None:
        if entry.trust != "self_asserted":
            self._judged.subtract(entry.scopes)
            self.lookalikes.remove(entry)

    def signed_by(self, key_id: str) -> list[str]:
        """Agents behind which a key may stand: those of which it is known, and those that were judged before that was kept."""
        return [*self.tags.ids_of(self.facts.match_exact(KEY_FACT, key_id)), *sorted(self._unkeyed)]

    def has_verdicts(self, audience: frozenset[str] | None) -> bool:
        """Whether of any agent that the audience sees something was verified, or failed."""
        if audience is None:
            return any(self._judged.values())
        return any(self._judged[scope] for scope in audience)

    def _watch_deadline(self, entry: CatalogEntry) -> None:
        if entry.expires_at is not None:
            heapq.heappush(self._deadlines, (entry.expires_at, entry.id, entry.revision))
            if len(self._deadlines) > 2 * len(self._entries) + 1000:
                held = (self._entries[agent_id] for agent_id in self._entries)
                self._deadlines = [
                    (each.expires_at, each.id, each.revision) for each in held if each.expires_at is not None
                ]
                heapq.heapify(self._deadlines)

    def _forget(self, entry: CatalogEntry, at: float) -> None:
        self._owned[entry.owner] -= 1
        if not self._owned[entry.owner]:
            del self._owned[entry.owner]
        for alias in entry.aliases:
            if self._aliases.get(alias) == entry.id:
                del self._aliases[alias]
        if _may_be_hashed(entry.id):
            self._aliases.pop(hash_slug(entry.id), None)
        self._unjudge(entry)
        ordinal = self.tags.ordinal(entry.id)
        if ordinal is not None:
            self._stated.remove(ordinal, entry)
            self._tags.remove(entry.id)
        self._traces.unmark(entry)
        self._traces.touch(entry.scopes, at)
        if entry.status in LISTED:
            self._orders.discard(entry)

    # --- Deadlines -------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Drop what has run out. Cheap when nothing has: one comparison."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, agent_id, _ = heapq.heappop(self._deadlines)
            entry = self._entries.get(agent_id)
            if entry is not None and entry.expires_at is not None and entry.expires_at <= now:
                self.remove(agent_id, deadline)
                self._expired.append(agent_id)

    def take_expired(self, most: int) -> list[str]:
        """Ids that ran out and that the store has not been told of."""
        taken, self._expired = self._expired[:most], self._expired[most:]
        return taken

    def put_back_expired(self, ids: Iterable[str]) -> None:
        self._expired.extend(ids)

    # --- Reading ---------------------------------------------------------------------------------

    def resolve(self, key: str) -> str | None:
        """The canonical id behind a canonical id, a path-safe id or an alias."""
        plain = unslug(key)  # whatever is found: an id that is there takes no fewer steps than one that is not
        if key in self._entries:
            return key
        known = self._aliases.get(key)
        if known is not None:
            return known
        if plain is not None:
            return plain if plain in self._entries else self._aliases.get(plain)
        return None

    def published(self, key: str) -> str | None:
        """The agent that is shown under this path-safe id, where that is not its own."""
        agent_id = unslug(key) or self._aliases.get(key) or ""
        is_its_form = slug(agent_id) == key  # whoever is there: what is hidden takes no more steps than what is absent
        return agent_id if is_its_form and agent_id in self._entries else None

    def find(self, agent_id: str) -> CatalogEntry | None:
        return self._entries.get(agent_id)

    def is_alive(self, agent_id: str) -> bool:
        return agent_id in self._entries

    def is_reachable(self, agent_id: str) -> bool:
        """Alive, and with a place where it can be called: without one an agent is no answer (PRO-3). Nor is one whose
        place is known to be dead."""
        entry = self._entries.get(agent_id)
        return entry is not None and bool(entry.protocols) and entry.status in LISTED

    def ids(self) -> Iterator[str]:
        return iter(self._entries)

    def count(self, audience: frozenset[str] | None, statuses: Sequence[str] = LISTED) -> int:
        return len(self.tags.select(statuses=tuple(statuses), audience=audience))

    def count_of_owner(self, owner: str) -> int:
        """All agents of an owner, whatever their status."""
        return self._owned[owner]

    def generation(self, audience: frozenset[str] | None) -> int:
        """A number that changes when something the audience sees changes, and by nothing else."""
        return self._traces.generation(audience)

    def fingerprint(self, audience: frozenset[str] | None) -> str:
        """The same wherever the audience sees the same set, in every process; another one when that set changes."""
        while self._untagged or self._fresh:
            self._prepare_tags()
        return self._traces.fingerprint(audience)

    def last_modified(self, audience: frozenset[str] | None) -> float | None:
        """The newest change in what the audience sees, removals included."""
        return self._traces.last_modified(audience)

    def record_change_time(self, scopes: Iterable[str], at: float) -> None:
        """A change from before the start (a removal in the log) that still counts for `last_modified`."""
        self._traces.note(scopes, at)

    def page(
        self,
        audience: frozenset[str] | None,
        *,
        limit: int,
        offset: int = 0,
        after: Position | None = None,
        tags: Sequence[str] = (),
        protocols: Sequence[str] = (),
        statuses: Sequence[str] = LISTED,
        owner: str | None = None,
        ids: Iterable[str] | None = None,
        among: BitMap | None = None,
    ) -> tuple[list[CatalogEntry], int]:
        """One page in the order of (folded name, id), and how many there are in all; of `among`, where that is given."""
        unfiltered = not tags and not protocols and owner is None and ids is None and among is None
        if unfiltered and tuple(statuses) == LISTED:
            return self._plain_page(audience, limit, offset, after)
        chosen = self.select(audience, tags=tags, protocols=protocols, statuses=statuses, owner=owner)
        if among is not None:
            chosen &= among
        if ids is not None:
            chosen &= BitMap(ordinal for agent_id in ids if (ordinal := self.tags.ordinal(agent_id)) is not None)
        listed_only = set(statuses) <= set(LISTED)
        positions = self._positions_of(chosen, audience, ordered=listed_only)
        if after is not None:
            positions = (position for position in positions if position > after)
        return self._take(islice(positions, offset, offset + limit)), len(chosen)

    def select(
        self,
        audience: frozenset[str] | None,
        *,
        tags: Sequence[str] = (),
        protocols: Sequence[str] = (),
        statuses: Sequence[str] = LISTED,
        owner: str | None = None,
    ) -> BitMap:
        """The ordinals of a whole list. They mean the same agents until the next change."""
        chosen = self.tags.select(
            required=tuple(tags), protocols=tuple(protocols), statuses=tuple(statuses), audience=audience
        )
        return chosen if owner is None else chosen & self.facts.owners.get(owner)

    def _plain_page(
        self, audience: frozenset[str] | None, limit: int, offset: int, after: Position | None
    ) -> tuple[list[CatalogEntry], int]:
        orders = self._orders.visible_to(audience)
        total = sum(map(len, orders))
        if len(orders) == 1:
            order = orders[0]
            start = offset + (order.bisect_right(after) if after is not None else 0)
            return self._take(order.islice(start, start + limit)), total
        parts = [order if after is None else order.irange(after, inclusive=(False, True)) for order in orders]
        return self._take(islice(heapq.merge(*parts), offset, offset + limit)), total

    def _positions_of(self, chosen: BitMap, audience: frozenset[str] | None, *, ordered: bool) -> Iterator[Position]:
        if len(chosen) <= _SORT_BELOW or not ordered:
            found = (self._entries[agent_id] for agent_id in self.tags.ids_of(chosen))
            return iter(sorted(map(position_of, found)))
        merged = heapq.merge(*self._orders.visible_to(audience))
        return (position for position in merged if self._is_among(position[1], chosen))

    def _is_among(self, agent_id: str, chosen: BitMap) -> bool:
        ordinal = self.tags.ordinal(agent_id)
        return ordinal is not None and ordinal in chosen

    def _take(self, positions: Iterable[Position]) -> list[CatalogEntry]:
        return [self._entries[agent_id] for _, agent_id in positions if agent_id in self._entries]


def _may_be_hashed(agent_id: str) -> bool:
    """False for ids whose slug surely holds all of them: 94 bytes fit, and a character has at most four."""
    return len(agent_id) > _UNHASHED or (len(agent_id) > _UNHASHED // 4 and not agent_id.isascii())
