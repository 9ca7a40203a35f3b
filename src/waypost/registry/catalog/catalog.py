"""Every agent as a compact entry in memory: names, order, filters, deadlines. Filled from the store, then by commits.

Reads take no lock and make no call to the store. Every read compares deadlines, so an expired agent is gone at once; the store
learns of it later, because a full disk must not keep expired agents alive. Sorted lists and the tag index are built after the
start: in the background, or at the first read that needs them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, compress, islice
from operator import not_
from typing import Any, Final

import msgspec
from pyroaring import BitMap
from sortedcontainers import SortedList

from waypost import limits
from waypost.model.health import DEAD, HEALTH_FACT
from waypost.model.names import fold, hash_slug, slug, stored_spellings, unslug
from waypost.model.principal import PRIVATE, PUBLIC, VISIBILITIES, record_scopes
from waypost.model.record import LISTED, STATUSES
from waypost.model.registration import KEY_FACT, TRUST_FACT, CatalogEntry
from waypost.registry.catalog.entry_columns import AUDIENCE_FIELDS, EntryColumns, LazyEntries
from waypost.registry.catalog.fact_index import FactIndex
from waypost.registry.catalog.short_names import ShortNames, ending_in, named, similar
from waypost.registry.catalog.tag_index import TagIndex, TagSuggester, TagSuggestions
from waypost.search.text.sanitize import skeleton

# Names of verified agents by what they look like. Only public agents count, so that trying names does not reveal hidden ones.
# `skeleton` decides whether two names look alike; the consequences (a warning, a lower rank) are decided elsewhere.

_MIN_LETTERS = 4  # a shorter name looks like many others

_skeleton = lru_cache(maxsize=limits.NAME_SKELETON_CACHE)(skeleton)


class ConfusableNames:
    def __init__(self) -> None:
        # skeleton -> owner -> id -> name. By owner, so that `find` skips a thousand agents of one owner in one step.
        self._names: dict[str, dict[str, dict[str, str]]] = {}

    def put(self, entry: CatalogEntry) -> None:
        if _is_protected(entry):
            owners = self._names.setdefault(_skeleton(entry.name), {})
            owners.setdefault(entry.owner, {})[entry.id] = entry.name

    def remove(self, entry: CatalogEntry) -> None:
        if not _is_protected(entry):
            return
        looks = _skeleton(entry.name)
        owners = self._names.get(looks, {})
        names = owners.get(entry.owner, {})
        names.pop(entry.id, None)
        if not names:
            owners.pop(entry.owner, None)
        if not owners:
            self._names.pop(looks, None)

    def find(self, name: str, owner: str) -> str | None:
        """The name of another owner's verified agent that this name looks like, or equals."""
        if not self._names:
            return None
        looks = _skeleton(name)
        if len(looks) < _MIN_LETTERS:
            return None
        for other, names in self._names.get(looks, {}).items():
            if other != owner:
                return next(iter(names.values()))
        return None


def _is_protected(entry: CatalogEntry) -> bool:
    return bool(entry.facts) and entry.visibility == PUBLIC and entry.trust == "verified"


Position = tuple[str, str]  # (folded name, id): the order of every list

_ALL_SCOPES = "*"  # the list and the counters of everything

_FINGERPRINT_MASK = 2**64 - 1

_KEY_PREFIX = f"{KEY_FACT}:"

_TRUST_PREFIX = f"{TRUST_FACT}:"

_DEAD_FACT = f"{HEALTH_FACT}:{DEAD}"
_PREPARE_BATCH = 4000  # loaded entries that are indexed at once: about 10 ms

_FRESH_BATCH = 500  # new entries that wait for the tag index: about 5 ms

_SPELLING_BATCH = 500

_UNLISTED = tuple(status for status in STATUSES if status not in LISTED)

_SORT_BELOW = 4096  # fewer matches are sorted; more are picked from the sorted lists

_MANY_ALIKE = 1000  # agents of one short name that are considered

_UNHASHED_BYTES = 94  # a slug holds an id of this length completely

# Stands for an absent agent: callers take the same steps for it as for a hidden one (THREATS V2).
NO_ENTRY: Final = CatalogEntry("", "", "", PRIVATE, "active", "", 0, 0.0, None, (), (), (), ())


def position_of(entry: CatalogEntry) -> Position:
    return (fold(entry.name), entry.id)


class SortedLists:
    """The listed agents of each scope in order. Loaded agents are sorted when a list is first read or changed."""

    def __init__(self) -> None:
        self._lists: dict[str, SortedList[Position]] = {_ALL_SCOPES: SortedList()}
        self._loaded: list[tuple[Sequence[Any], ...]] = []  # columns that are not in the lists yet

    def load(self, columns: EntryColumns) -> None:
        self._loaded.append(tuple(map(columns.column, ("name", "id", "status", *AUDIENCE_FIELDS))))

    def add(self, entry: CatalogEntry) -> None:
        position = position_of(entry)
        for scope in (*entry.scopes, _ALL_SCOPES):
            self._list(scope).add(position)

    def discard(self, entry: CatalogEntry) -> None:
        position = position_of(entry)
        for scope in (*entry.scopes, _ALL_SCOPES):
            self._list(scope).discard(position)

    def visible_to(self, audience: frozenset[str] | None) -> list[SortedList[Position]]:
        everything = self._list(_ALL_SCOPES)
        if audience is None:
            return [everything]
        return [self._lists[scope] for scope in sorted(audience) if self._lists.get(scope)] or [SortedList()]

    def _list(self, scope: str) -> SortedList[Position]:
        if self._loaded:
            self._sort_loaded()
        found = self._lists.get(scope)
        if found is None:
            found = self._lists[scope] = SortedList()
        return found

    def _sort_loaded(self) -> None:
        """Sort once; the part of each list is sorted already then, so that updating it is cheap."""
        loaded, self._loaded = self._loaded, []
        positions: dict[str, list[Position]] = {_ALL_SCOPES: []}
        listed = [
            (fold(name), agent_id, record_scopes(*audience))
            for columns in loaded
            for name, agent_id, status, *audience in zip(*columns, strict=True)
            if status in LISTED
        ]
        listed.sort()
        for folded, agent_id, scopes in listed:
            position = (folded, agent_id)
            positions[_ALL_SCOPES].append(position)
            for scope in scopes:
                positions.setdefault(scope, []).append(position)
        for scope, found in positions.items():
            self._lists.setdefault(scope, SortedList()).update(found)


class ChangeCounters:
    """For each scope: the number of changes, the time of the last one, and a fingerprint of its agents."""

    def __init__(self) -> None:
        self._changes: dict[str, int] = {}
        self._modified: dict[str, float] = {}
        self._fingerprints: dict[str, int] = {}

    def load(self, columns: EntryColumns) -> None:
        """The newest change of each audience; fingerprints are made with the tag index."""
        latest: dict[tuple[str, str, tuple[str, ...]], float] = {}
        times, audiences = columns.column("changed_at"), [*map(columns.column, AUDIENCE_FIELDS)]
        if times and all(len(set(column)) == 1 for column in audiences):  # one owner and one visibility
            latest[audiences[0][0], audiences[1][0], audiences[2][0]] = max(times)
        else:
            for audience, at in zip(zip(*audiences, strict=True), times, strict=True):
                if at > latest.get(audience, 0.0):
                    latest[audience] = at
        newest: dict[tuple[str, ...], float] = {}
        for audience, at in latest.items():
            scopes = record_scopes(*audience)
            newest[scopes] = max(at, newest.get(scopes, 0.0))
        for scopes, at in newest.items():
            self.count(scopes, at)

    def count(self, scopes: Iterable[str], at: float) -> None:
        for scope in (*scopes, _ALL_SCOPES):
            self._changes[scope] = self._changes.get(scope, 0) + 1
            if at > self._modified.get(scope, 0.0):
                self._modified[scope] = at

    def set_modified(self, scopes: Iterable[str], at: float) -> None:
        """Set the time of the last change without counting one."""
        for scope in (*scopes, _ALL_SCOPES):
            self._modified[scope] = max(at, self._modified.get(scope, 0.0))

    def add_fingerprint(self, entry: CatalogEntry) -> None:
        self._add(entry, _fingerprint_of(entry))

    def remove_fingerprint(self, entry: CatalogEntry) -> None:
        self._add(entry, -_fingerprint_of(entry))

    def _add(self, entry: CatalogEntry, number: int) -> None:
        for scope in (*entry.scopes, _ALL_SCOPES):
            self._fingerprints[scope] = self._fingerprints.get(scope, 0) + number

    def generation(self, audience: frozenset[str] | None) -> int:
        if audience is None:
            return self._changes.get(_ALL_SCOPES, 0)
        return sum(self._changes.get(scope, 0) for scope in audience)

    def fingerprint(self, audience: frozenset[str] | None) -> str:
        scopes: Iterable[str] = (_ALL_SCOPES,) if audience is None else audience
        return f"{sum(self._fingerprints.get(scope, 0) for scope in scopes) & _FINGERPRINT_MASK:016x}"

    def last_modified(self, audience: frozenset[str] | None) -> float | None:
        scopes: Iterable[str] = (_ALL_SCOPES,) if audience is None else audience
        found = [self._modified[scope] for scope in scopes if scope in self._modified]
        return max(found) if found else None


def _fingerprint_of(entry: CatalogEntry) -> int:
    """A number made of the content. The sum over a set does not depend on the order in which it was filled."""
    number = int.from_bytes(entry.etag[:12].encode("ascii", "replace"))
    return number if entry.status in LISTED else ~number  # an unhealthy agent leaves the lists with the same content


class Catalog:
    def __init__(self) -> None:
        self._entries: dict[str, CatalogEntry] = {}
        self._aliases: dict[str, str] = {}
        self._lists = SortedLists()
        self._counters = ChangeCounters()
        self._deadlines: list[tuple[float, str, int]] = []
        self._expired: list[str] = []
        self._tags = TagIndex()
        self._facts = FactIndex()
        self._short_names = ShortNames()
        self._unindexed: list[tuple[EntryColumns, int]] = []  # loaded columns, and how many of their rows to index yet
        self._fresh: list[CatalogEntry] = []  # entries since the load that are to be indexed
        self._incomplete: list[str] = []  # entries without facts or size
        self._new_spellings: dict[str, set[str]] = {tier: set() for tier in VISIBILITIES}
        self.confusable_names = ConfusableNames()
        self._owned: Counter[str] = Counter()  # agents by owner
        self._stored_bytes: Counter[str] = Counter()  # of their documents, by owner
        self._without_keys: set[str] = set()  # loaded agents with verdicts whose entries name no key
        self._judged: Counter[str] = Counter()  # agents with a verified or failed check, by scope
        self._dead: dict[str, tuple[str, ...]] = {}  # scopes of agents whose endpoint is dead, by id
        self._dead_in: Counter[str] = Counter()  # their number, by scope

    def __len__(self) -> int:
        return len(self._entries)

    # --- Loading ---------------------------------------------------------------------------------

    def load(self, entries: Sequence[CatalogEntry]) -> None:
        """Add many entries at the start: a hundred thousand must take less than a tenth of a second."""
        columns = EntryColumns.of(entries)
        ids = columns.column("id")
        if columns.is_materialized or isinstance(self._entries, LazyEntries):
            self._entries.update(zip(ids, columns, strict=True))
        else:
            self._entries = LazyEntries(self._entries, columns)
        self._unindexed.append((columns, len(columns)))
        self._load_owned(columns)
        self._load_names(columns)
        self._load_judged(columns)
        self._load_dead(columns)
        self._deadlines += columns.rows_with("expires_at", "id", "revision")
        heapq.heapify(self._deadlines)
        self._lists.load(columns)
        self._counters.load(columns)

    def _load_owned(self, columns: EntryColumns) -> None:
        owners, sizes = columns.column("owner"), columns.column("stored_bytes")
        self._owned.update(owners)
        if len(set(owners)) == 1:
            self._stored_bytes[owners[0]] += sum(filter(None, sizes))
        else:
            for owner, size in zip(owners, sizes, strict=True):
                self._stored_bytes[owner] += size or 0

    def _load_names(self, columns: EntryColumns) -> None:
        ids, aliases = columns.column("id"), columns.column("aliases")
        rows = range(len(ids))
        named = set(compress(rows, aliases))
        if not "".join(ids).isascii():
            named.update(compress(rows, map(not_, map(str.isascii, ids))))
        if max(map(len, ids), default=0) > _UNHASHED_BYTES:
            named.update(compress(rows, map(_UNHASHED_BYTES.__lt__, map(len, ids))))
        for row in sorted(named):
            if aliases[row] or _may_be_hashed(ids[row]):
                self._add_names(columns[row])

    def _load_judged(self, columns: EntryColumns) -> None:
        """Most agents share a few sets of facts: each distinct set is examined once."""
        facts_column = columns.column("facts")
        judged = {facts for facts in set(facts_column) if any(fact.startswith(_TRUST_PREFIX) for fact in facts or ())}
        for row, facts in enumerate(facts_column) if judged else ():
            if facts in judged:
                entry = columns[row]
                self._add_judged(entry)
                if not any(fact.startswith(_KEY_PREFIX) for fact in facts or ()):
                    self._without_keys.add(entry.id)

    def _load_dead(self, columns: EntryColumns) -> None:
        facts_column = columns.column("facts")
        with_dead = {facts for facts in set(facts_column) if _DEAD_FACT in (facts or ())}
        for row, facts in enumerate(facts_column) if with_dead else ():
            if facts in with_dead:
                self._note_health(columns[row])

    # --- Indexing --------------------------------------------------------------------------------

    @property
    def tags(self) -> TagIndex:
        self._index_all()
        return self._tags

    @property
    def facts(self) -> FactIndex:
        """Facts by the ordinals of `tags`."""
        self._index_all()
        return self._facts

    def _index_all(self) -> None:
        while self._unindexed or self._fresh:
            self._index_some()

    @property
    def is_prepared(self) -> bool:
        """Whether so little is left that it can be done at once."""
        return not self._unindexed and sum(map(len, self._new_spellings.values())) <= _SPELLING_BATCH

    @property
    def is_loaded(self) -> bool:
        """Whether the tag index has all agents that were there at the start."""
        return not self._unindexed

    def prepare(self) -> bool:
        """Index a batch of entries; returns whether more are left. Indexing many at once costs a fraction of indexing
        each, so registrations do not wait for it: it runs in the background, or when a read needs the index."""
        if self._unindexed or self._fresh:
            self._index_some()
        else:
            self._add_spellings()
        return bool(self._unindexed or self._fresh or any(self._new_spellings.values()))

    def _index_some(self) -> None:
        if self._unindexed:
            self._index(self._take_unindexed())
        else:
            part, self._fresh = self._fresh, []
            self._index(part)

    def _take_unindexed(self) -> Sequence[CatalogEntry]:
        columns, left = self._unindexed.pop()
        start = max(0, left - _PREPARE_BATCH)
        part = columns[start:left]
        if isinstance(self._entries, LazyEntries):
            self._entries.fill(part)
        if start:
            self._unindexed.append((columns, start))
        elif not self._unindexed:
            self._entries = dict(self._entries)  # all entries are made
        return part

    def _index(self, part: Sequence[CatalogEntry]) -> None:
        self._tags.load((entry.id, entry.tags, entry.protocols, entry.status, entry.scopes) for entry in part)
        for entry in part:
            self._counters.add_fingerprint(entry)
            self._new_spellings[entry.visibility].update(entry.tags)
        self._short_names.load(part)
        ordinals = (self._tags.ordinal(entry.id) for entry in part)
        newest = (self._entries.get(entry.id, entry) for entry in part)  # it may have been renewed meanwhile
        self._facts.load((found, entry) for found, entry in zip(ordinals, newest, strict=True) if found is not None)
        self._incomplete += [entry.id for entry in part if entry.facts is None or entry.stored_bytes is None]

    @cached_property
    def _spellings(self) -> TagSuggestions:
        return TagSuggestions(self.generation)

    def _add_spellings(self) -> None:
        for tier, tags in self._new_spellings.items():
            if tags:
                self._spellings.add(tier, [tags.pop() for _ in range(min(_SPELLING_BATCH, len(tags)))])
                return

    def suggesters(self, audience: frozenset[str] | None) -> list[TagSuggester]:
        """Where to look for similar tags that the audience sees."""
        while self.prepare():
            pass
        return self._spellings.visible_to(audience, self._tags)

    def take_incomplete(self) -> list[str]:
        """Ids of entries that an earlier release wrote without facts or size."""
        taken, self._incomplete = self._incomplete, []
        return taken

    def complete(self, entry: CatalogEntry) -> None:
        """Replace an entry by the same one with facts and size, unless it changed meanwhile."""
        current, ordinal = self._entries.get(entry.id), self.tags.ordinal(entry.id)
        if current is not None and ordinal is not None and current.revision == entry.revision:
            entry = msgspec.structs.replace(entry, number=current.number)
            self._entries[entry.id] = entry
            self._stored_bytes[entry.owner] += (entry.stored_bytes or 0) - (current.stored_bytes or 0)
            self._facts.remove(ordinal, current)
            self._facts.put(ordinal, entry)
            self._remove_judged(current)
            self._add_judged(entry)

    # --- Changes ---------------------------------------------------------------------------------

    def put(self, entry: CatalogEntry, at: float) -> None:
        before = self._entries.get(entry.id)
        if before is not None:
            self._forget(before, at)
        self._add_names(entry)
        self._owned[entry.owner] += 1
        self._stored_bytes[entry.owner] += entry.stored_bytes or 0
        self._add_deadline(entry)
        self._add_judged(entry)
        self._note_health(entry)
        self._fresh.append(entry)
        if len(self._fresh) >= _FRESH_BATCH:
            self._index_some()
        self._counters.count(entry.scopes, at)
        if entry.status in LISTED:
            self._lists.add(entry)

    def renew(self, entry: CatalogEntry) -> None:
        """Replace the deadline, the health and nothing else: order, filters and change times stay."""
        before = self._entries.get(entry.id, entry)
        self._entries[entry.id] = entry
        self._stored_bytes[entry.owner] += (entry.stored_bytes or 0) - (before.stored_bytes or 0)
        self._note_health(entry)
        self._add_deadline(entry)
        ordinal = self._tags.ordinal(entry.id)
        if ordinal is None:
            return
        if before.facts != entry.facts:  # the health of its endpoint, which changes no list
            self._facts.remove(ordinal, before)
            self._facts.put(ordinal, entry)
        self._facts.touch(ordinal, entry)

    def remove(self, agent_id: str, at: float) -> None:
        entry = self._entries.pop(agent_id, None)
        if entry is not None:
            self._without_keys.discard(agent_id)
            self._forget_health(agent_id)
            self._forget(entry, at)
            self._entries.pop(agent_id, None)

    def _add_names(self, entry: CatalogEntry) -> None:
        agent_id = entry.id
        self._entries[agent_id] = entry
        for alias in entry.aliases:
            self._aliases.setdefault(alias, agent_id)
        if _may_be_hashed(agent_id) and (published := slug(agent_id)).startswith("h-"):
            self._aliases[published] = agent_id

    def _add_judged(self, entry: CatalogEntry) -> None:
        if entry.trust != "self_asserted":
            self._judged.update(entry.scopes)
            self.confusable_names.put(entry)

    def _remove_judged(self, entry: CatalogEntry) -> None:
        if entry.trust != "self_asserted":
            self._judged.subtract(entry.scopes)
            self.confusable_names.remove(entry)

    def _note_health(self, entry: CatalogEntry) -> None:
        self._forget_health(entry.id)
        if _DEAD_FACT in (entry.facts or ()):
            self._dead[entry.id] = entry.scopes
            self._dead_in.update(entry.scopes)

    def _forget_health(self, agent_id: str) -> None:
        if agent_id in self._dead:
            self._dead_in.subtract(self._dead.pop(agent_id))

    def _add_deadline(self, entry: CatalogEntry) -> None:
        if entry.expires_at is not None:
            heapq.heappush(self._deadlines, (entry.expires_at, entry.id, entry.revision))
            if len(self._deadlines) > 2 * len(self._entries) + 1000:  # mostly deadlines that were replaced
                entries = (self._entries[agent_id] for agent_id in self._entries)
                self._deadlines = [
                    (each.expires_at, each.id, each.revision) for each in entries if each.expires_at is not None
                ]
                heapq.heapify(self._deadlines)

    def _forget(self, entry: CatalogEntry, at: float) -> None:
        self._owned[entry.owner] -= 1
        self._stored_bytes[entry.owner] -= entry.stored_bytes or 0
        if not self._owned[entry.owner]:
            del self._owned[entry.owner], self._stored_bytes[entry.owner]
        for alias in entry.aliases:
            if self._aliases.get(alias) == entry.id:
                del self._aliases[alias]
        if _may_be_hashed(entry.id):
            self._aliases.pop(hash_slug(entry.id), None)
        self._remove_judged(entry)
        ordinal = self.tags.ordinal(entry.id)
        if ordinal is not None:
            self._facts.remove(ordinal, entry)
            self._tags.remove(entry.id)
            self._short_names.remove(entry)
        self._counters.remove_fingerprint(entry)
        self._counters.count(entry.scopes, at)
        if entry.status in LISTED:
            self._lists.discard(entry)

    # --- Deadlines -------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Drop expired agents. If there are none, it costs one comparison."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, agent_id, _ = heapq.heappop(self._deadlines)
            entry = self._entries.get(agent_id)
            if entry is not None and entry.expires_at is not None and entry.expires_at <= now:
                self.remove(agent_id, deadline)
                self._expired.append(agent_id)

    def take_expired(self, most: int) -> list[str]:
        """Ids of expired agents that the store still holds."""
        taken, self._expired = self._expired[:most], self._expired[most:]
        return taken

    def put_back_expired(self, ids: Iterable[str]) -> None:
        self._expired.extend(ids)

    # --- Single agents ---------------------------------------------------------------------------

    def resolve(self, key: str) -> str | None:
        """The id behind an id in any spelling, a path-safe id or an alias. The exact name comes first."""
        plain = unslug(key)  # in any case: present and absent ids take the same steps
        names = (key,) if plain is None else (key, plain)
        for name in (*names, *stored_spellings(names[-1])):
            known = name if name in self._entries else self._aliases.get(name)
            if known is not None:
                return known
        return None

    def published(self, key: str) -> str | None:
        """The agent that is shown under this path-safe id, if that is not its own id."""
        agent_id = unslug(key) or self._aliases.get(key) or ""
        is_its_slug = slug(agent_id) == key  # in any case: hidden and absent agents take the same steps
        return agent_id if is_its_slug and agent_id in self._entries else None

    def find_short(self, name: str, audience: frozenset[str] | None) -> list[str]:
        """Ids that end in `/name` or `:name`, or whose agent has this name: one more than an error lists, at most."""
        self._index_all()
        ending = ending_in(self._short_names.visible_to(audience), name)
        found = chain(ending, named(self._lists.visible_to(audience), name))
        return sorted(dict.fromkeys(islice(found, _MANY_ALIKE)))[: limits.NEAR_IDS + 1]

    def near(self, name: str, audience: frozenset[str] | None) -> list[str]:
        """Ids with a similar short name, and of agents with a similar name, the nearest first."""
        self._index_all()
        lists = (*self._short_names.visible_to(audience), *self._lists.visible_to(audience))
        best: dict[str, float] = {}
        for similarity, agent_id in similar(lists, name):
            best[agent_id] = max(similarity, best.get(agent_id, 0.0))
        return heapq.nsmallest(limits.NEAR_IDS, best, key=lambda agent_id: (-best[agent_id], agent_id))

    def find(self, agent_id: str) -> CatalogEntry | None:
        return self._entries.get(agent_id)

    def is_alive(self, agent_id: str) -> bool:
        return agent_id in self._entries

    def is_reachable(self, agent_id: str) -> bool:
        """Alive, with an endpoint (PRO-3) that is not known to be dead."""
        entry = self._entries.get(agent_id)
        return entry is not None and bool(entry.protocols) and entry.status in LISTED

    def is_dead(self, agent_id: str) -> bool:
        """Whether its endpoint failed the last checks. Searches rank it last."""
        return agent_id in self._dead

    def is_live(self, agent_id: str) -> bool:
        """Reachable and not dead."""
        return agent_id not in self._dead and self.is_reachable(agent_id)

    def has_dead(self, audience: frozenset[str] | None) -> bool:
        """Whether any visible agent is dead."""
        if audience is None:
            return bool(self._dead)
        return any(self._dead_in[scope] for scope in audience)

    def ids(self) -> Iterator[str]:
        return iter(self._entries)

    def signed_by(self, key_id: str) -> list[str]:
        """Agents that a key may have signed: known ones, and those whose entries predate the fact."""
        return [*self.tags.ids_of(self.facts.match_exact(KEY_FACT, key_id)), *sorted(self._without_keys)]

    # --- What an audience sees -------------------------------------------------------------------

    def has_verdicts(self, audience: frozenset[str] | None) -> bool:
        """Whether any visible agent has a verified or failed check."""
        if audience is None:
            return any(self._judged.values())
        return any(self._judged[scope] for scope in audience)

    def count(self, audience: frozenset[str] | None, statuses: Sequence[str] = LISTED) -> int:
        return len(self.tags.select(statuses=tuple(statuses), audience=audience))

    def count_of_owner(self, owner: str) -> int:
        """All agents of an owner, of any status."""
        return self._owned[owner]

    def stored_bytes_of_owner(self, owner: str) -> int:
        """The bytes of the documents of all its agents."""
        return self._stored_bytes[owner]

    def owners_above(self, stored_bytes: float) -> list[str]:
        """The owners whose documents have more bytes, those with the most first."""
        return [owner for owner, found in self._stored_bytes.most_common() if found > stored_bytes]

    def generation(self, audience: frozenset[str] | None) -> int:
        """A number that changes if and only if something changes that the audience sees."""
        return self._counters.generation(audience)

    def fingerprint(self, audience: frozenset[str] | None) -> str:
        """A digest of the visible agents, the same in every process."""
        self._index_all()
        return self._counters.fingerprint(audience)

    def last_modified(self, audience: frozenset[str] | None) -> float | None:
        """The time of the newest visible change, removals included."""
        return self._counters.last_modified(audience)

    def set_modified(self, scopes: Iterable[str], at: float) -> None:
        """Count a change before the start (a removal in the log) for `last_modified`."""
        self._counters.set_modified(scopes, at)

    # --- Lists -----------------------------------------------------------------------------------

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
        """One page in the order of (folded name, id), and the total; only of `ids` or `among`, if given."""
        unfiltered = not tags and not protocols and owner is None and ids is None and among is None
        if unfiltered and tuple(statuses) == LISTED:
            return self._plain_page(audience, limit, offset, after)
        if unfiltered and set(statuses) == set(STATUSES):
            others = self.select(audience, statuses=_UNLISTED)
            return self._plain_page(audience, limit, offset, after, others)
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
        """The ordinals of a complete list. They mean the same agents until the next change."""
        chosen = self.tags.select(
            required=tuple(tags), protocols=tuple(protocols), statuses=tuple(statuses), audience=audience
        )
        return chosen if owner is None else chosen & self.facts.owners.get(owner)

    def _plain_page(
        self,
        audience: frozenset[str] | None,
        limit: int,
        offset: int,
        after: Position | None,
        others: BitMap | None = None,
    ) -> tuple[list[CatalogEntry], int]:
        """All listed agents, and `others`, which are few."""
        lists = self._lists.visible_to(audience)
        if others:
            found = (self._entries[agent_id] for agent_id in self.tags.ids_of(others))
            lists = [*lists, SortedList(map(position_of, found))]
        total = sum(map(len, lists))
        if len(lists) == 1:
            only = lists[0]
            start = offset + (only.bisect_right(after) if after is not None else 0)
            return self._take(only.islice(start, start + limit)), total
        parts = [each if after is None else each.irange(after, inclusive=(False, True)) for each in lists]
        return self._take(islice(heapq.merge(*parts), offset, offset + limit)), total

    def _positions_of(self, chosen: BitMap, audience: frozenset[str] | None, *, ordered: bool) -> Iterator[Position]:
        if len(chosen) <= _SORT_BELOW or not ordered:
            found = (self._entries[agent_id] for agent_id in self.tags.ids_of(chosen))
            return iter(sorted(map(position_of, found)))
        merged = heapq.merge(*self._lists.visible_to(audience))
        return (position for position in merged if self._is_among(position[1], chosen))

    def _is_among(self, agent_id: str, chosen: BitMap) -> bool:
        ordinal = self.tags.ordinal(agent_id)
        return ordinal is not None and ordinal in chosen

    def _take(self, positions: Iterable[Position]) -> list[CatalogEntry]:
        return [self._entries[agent_id] for _, agent_id in positions if agent_id in self._entries]


def _may_be_hashed(agent_id: str) -> bool:
    """False for an id that its slug surely holds completely: a character has at most four bytes."""
    return len(agent_id) > _UNHASHED_BYTES or (len(agent_id) > _UNHASHED_BYTES // 4 and not agent_id.isascii())
