"""Reads of the registry: single agents, lists, counts, earlier versions, changes. It writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.errors import NotFound
from waypost.model.events import JsonDifference, RecordVersion, differences_between, record_version_of
from waypost.model.names import looks_like_slug
from waypost.model.principal import Principal, ambiguous_agent, audience, may_change, may_see, no_such_agent
from waypost.model.query import FACETS, FacetSummary, Suggestions
from waypost.model.record import LISTED, STATUSES
from waypost.model.registration import TRUST_FACT, CatalogEntry, Registration
from waypost.registry.catalog.catalog import NO_ENTRY, position_of
from waypost.registry.catalog.entries import AnnouncedFilter, select_announced
from waypost.registry.catalog.view import CatalogView
from waypost.registry.change_log import ChangeLog, Cursors, EventFilter, WatchItem
from waypost.registry.find.empty_results import suggest_tags
from waypost.registry.find.facets import FacetCounter, catalog_stats
from waypost.registry.ports import Clock, NewestDocument, Store
from waypost.registry.publication import EntryPage, content_etag_part
from waypost.registry.state import RegistryState
from waypost.responses.service import Stats

_POSITION = tuple[str, str]
_PAGE, _ANNOUNCED_PAGE = "page", "announced"  # purposes of cursors


class VersionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version in the history. `changed` are the paths that differ from the next older version that is shown."""

    version: RecordVersion
    changed: list[str] | None  # None: no older version is shown
    current: bool


class AgentHistory(msgspec.Struct, frozen=True, kw_only=True):
    registration: Registration
    lines: list[VersionEntry]  # newest first
    names_subjects: bool  # the caller may know who wrote each version


class VersionComparison(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    before: RecordVersion
    after: RecordVersion
    differences: list[JsonDifference]


class RegistryReader:
    def __init__(
        self,
        state: RegistryState,
        entries: CatalogView,
        store: Store,
        clock: Clock,
        cursors: Cursors,
        changes: ChangeLog,
        facets: FacetCounter,
    ) -> None:
        self._catalog = state.catalog
        self._entries = entries
        self._records = state.records
        self._bare_records = state.bare_records
        self._hosted = state.hosted
        self._store = store
        self._clock = clock
        self._cursors = cursors
        self._changes = changes
        self._facets = facets

    def _expire(self) -> None:
        self._catalog.expire(self._clock.now())

    # --- Single agents ---------------------------------------------------------------------------

    def resolve(self, principal: Principal, key: str) -> CatalogEntry:
        """The entry of a canonical id, a path-safe id or an alias, if the caller may see it."""
        entry = self._find_visible(principal, key)
        if entry is NO_ENTRY:
            raise no_such_agent(key)
        return entry

    def resolve_short(self, principal: Principal, name: str) -> str:
        """The id behind an id, an alias or a short name: the end of an id after `/` or `:`, or the name of the agent.

        Only agents that the caller may see count. The error for several lists them, the error for none lists similar ids.
        """
        found = self._find_visible(principal, name).id
        if found:
            return found
        ids = self._entries.find_short(name, audience(principal))
        if len(ids) == 1:
            return ids[0]
        if ids:
            raise ambiguous_agent(name, ids[: limits.NEAR_IDS], has_more=len(ids) > limits.NEAR_IDS)
        raise no_such_agent(name, near=self._entries.near(name, audience(principal)))

    def resolve_path_id(self, principal: Principal, key: str) -> str:
        """The id of the agent that a path segment names for this caller; an unknown one is returned unchanged."""
        return (self._find_visible(principal, key).id or key) if looks_like_slug(key) else key

    def _find_visible(self, principal: Principal, key: str) -> CatalogEntry:
        for entry in self._entries.candidates(key):
            if may_see(principal, entry.scopes) and entry is not NO_ENTRY:
                return entry
        return NO_ENTRY

    async def get(self, principal: Principal, key: str) -> Registration:
        found = await self.registrations((self.resolve(principal, key).id,))
        if not found:
            raise no_such_agent(key)
        return found[0]

    def hosted(self, host: str) -> CatalogEntry | None:
        """The agent that is served under a domain."""
        self._expire()
        domain = host.lower().rstrip(".")
        agent_id = self._hosted.get(domain)
        entry = self._catalog.find(agent_id) if agent_id else None
        return entry if entry is not None and entry.domain == domain else None

    def hosted_below(self, organisation: str) -> tuple[str, ...]:
        """The domains of public agents that are hosted under the domain of an organisation."""
        suffix = f".{organisation}"
        names = [name for name in self._hosted if name == organisation or name.endswith(suffix)]
        found = ((name, self.hosted(name)) for name in names)
        return tuple(name for name, entry in found if entry is not None and entry.visibility == "public")

    # --- Documents -------------------------------------------------------------------------------

    async def registrations(
        self, ids: Sequence[str], *, sources: bool = True, cached: bool = True
    ) -> list[Registration]:
        """Registrations in the order of `ids`, without those that are gone. Without `sources` they are cheaper to read;
        the record is complete either way. `cached=False` is for scans, which would only empty the cache."""
        if not cached:
            fetched = await self._store.fetch(ids, sources=sources)
            return [fetched[agent_id] for agent_id in ids if agent_id in fetched]
        found = {agent_id: self._find_cached(agent_id, sources=sources) for agent_id in ids}
        missing = [agent_id for agent_id, registration in found.items() if registration is None]
        cache = self._records if sources else self._bare_records
        for agent_id, fresh in (await self._store.fetch(missing, sources=sources)).items() if missing else ():
            found[agent_id] = fresh
            entry = self._catalog.find(agent_id)
            if entry is not None and entry.revision <= fresh.revision:  # no commit came while the store was reading
                cache.put(agent_id, fresh)
        return [registration for agent_id in ids if (registration := found[agent_id]) is not None]

    def _find_cached(self, agent_id: str, *, sources: bool) -> Registration | None:
        return self._records.get(agent_id) or (None if sources else self._bare_records.get(agent_id))

    def scan(self) -> AsyncIterator[Sequence[Registration]]:
        """All registrations with their documents, in pages, past the cache."""
        return self._store.scan()

    async def received(self, entry: CatalogEntry, dialect: str) -> bytes | None:
        """The document of a dialect as it was received, if that is faster to read than the whole registration."""
        if entry.expires_at is not None or self._records.get(entry.id) is not None:
            return None
        found = await self._store.document(entry, dialect)
        return found[1] if found is not None and found[0] == entry.etag else None

    async def received_newest(self, entries: Sequence[CatalogEntry]) -> dict[str, NewestDocument]:
        """By id, the newest document of each agent as it was received, as far as it is that of the entry."""
        found = await self._store.newest_documents(entries)
        etags = {entry.id: entry.etag for entry in entries}
        return {agent_id: each for agent_id, each in found.items() if each.etag == etags.get(agent_id)}

    async def notes(self, prefix: str) -> list[tuple[str, bytes]]:
        """The notes of the store whose names begin with `prefix`."""
        return await self._store.notes(prefix)

    # --- Lists -----------------------------------------------------------------------------------

    def page(
        self,
        principal: Principal,
        *,
        limit: int = limits.PAGE_DEFAULT,
        cursor: str | None = None,
        tags: Sequence[str] = (),
        protocols: Sequence[str] = (),
        statuses: Sequence[str] = LISTED,
        owner: str | None = None,
        verified: bool | None = None,
    ) -> EntryPage:
        """One page of what the caller sees. The cursor is valid for the same caller and filters only. `verified`: only
        agents of that trust level, or only all others."""
        self._expire()
        trust = () if verified is None else ("verified" if verified else "not verified",)
        context = (_caller(principal), "\0".join(tags), "\0".join(protocols), "\0".join(statuses), owner or "", *trust)
        entries, total = self._catalog.page(
            audience(principal),
            limit=limit + 1,
            after=None if cursor is None else self._cursors.open_page(_PAGE, cursor, _POSITION, *context),
            tags=tags,
            protocols=protocols,
            statuses=statuses,
            owner=owner,
            among=None if verified is None else self._select_verified(audience(principal), verified=verified),
        )
        return self._cut(entries, total, limit, _PAGE, context)

    def _select_verified(self, visible_to: frozenset[str] | None, *, verified: bool) -> BitMap:
        found = self._catalog.facts.match_exact(TRUST_FACT, "verified")
        return found if verified else self._catalog.select(visible_to, statuses=STATUSES) - found

    def page_announced(self, principal: Principal, wish: AnnouncedFilter) -> EntryPage:
        """One page of agents that may match. The cursor is valid for the same caller and filter only."""
        self._expire()
        context = (_caller(principal), "\0".join(wish.names), "signed" if wish.signed else "")
        visible_to = audience(principal)
        entries, total = self._catalog.page(
            visible_to,
            limit=wish.limit + 1,
            after=None
            if wish.cursor is None
            else self._cursors.open_page(_ANNOUNCED_PAGE, wish.cursor, _POSITION, *context),
            among=select_announced(self._catalog, visible_to, wish.names, signed=wish.signed),
        )
        return self._cut(entries, total, wish.limit, _ANNOUNCED_PAGE, context)

    def _cut(
        self, entries: list[CatalogEntry], total: int, limit: int, purpose: str, context: tuple[str, ...]
    ) -> EntryPage:
        def seal(entry: CatalogEntry) -> str:
            return self._cursors.seal_page(purpose, position_of(entry), *context)

        if len(entries) <= limit:
            return EntryPage(entries=entries, total=total, seal=seal)
        entries = entries[:limit]
        return EntryPage(entries=entries, total=total, next_cursor=seal(entries[-1]), seal=seal)

    def facets(
        self,
        principal: Principal,
        names: Sequence[str] = FACETS,
        *,
        tags: Sequence[str] = (),
        protocols: Sequence[str] = (),
        statuses: Sequence[str] = LISTED,
        owner: str | None = None,
    ) -> FacetSummary:
        """Counts over the list that these filters give."""
        self._expire()
        chosen = self._catalog.select(
            audience(principal), tags=tags, protocols=protocols, statuses=statuses, owner=owner
        )
        return FacetSummary(
            total=len(chosen),
            facets=self._facets.count(names, chosen, principal),
            suggestions=self.suggest(principal, tags),
        )

    def suggest(self, principal: Principal, tags: Sequence[str]) -> Suggestions:
        """For each tag that no visible agent has, similar tags that some have."""
        visible_to = audience(principal)
        return suggest_tags(self._catalog, tags, visible_to, self._catalog.select(visible_to)) if tags else {}

    def stats(self, principal: Principal) -> Stats:
        """Counts over what the caller sees."""
        self._expire()
        return catalog_stats(self._catalog, audience(principal))

    # --- Earlier versions ------------------------------------------------------------------------

    async def history(self, principal: Principal, key: str, limit: int) -> AgentHistory:
        """The versions of an agent that the caller could see when they were current: a hidden one stays hidden."""
        registration, versions = await self._versions(principal, key)
        lines = []
        for version, older in zip(versions, [*versions[1:], None], strict=True):
            changed = None if older is None else [each.path for each in _compare(older, version)]
            lines.append(VersionEntry(version=version, changed=changed, current=version is versions[0]))
        return AgentHistory(
            registration=registration,
            lines=lines[:limit],
            names_subjects=may_change(principal, registration.owner),
        )

    async def compare(self, principal: Principal, key: str, before: str | None, after: str | None) -> VersionComparison:
        """Two versions by their entity tags; by default the current one and the one before it."""
        registration, versions = await self._versions(principal, key)
        index = 0 if after is None else _index_of(versions, after, "to")
        if before is not None:
            older = versions[_index_of(versions, before, "from")]
        elif index + 1 < len(versions):
            older = versions[index + 1]
        else:
            raise NotFound(
                "No earlier version of this agent is stored.", path="from", hint="See its history for the stored ones."
            )
        newer = versions[index]
        return VersionComparison(id=registration.id, before=older, after=newer, differences=_compare(older, newer))

    async def _versions(self, principal: Principal, key: str) -> tuple[Registration, list[RecordVersion]]:
        registration = await self.get(principal, key)
        stored = await self._store.history(registration.id, limits.HISTORY_VERSIONS)
        visible = [each for each in stored if each.revision < registration.revision and may_see(principal, each.scopes)]
        return registration, [record_version_of(registration), *visible]

    # --- Changes ---------------------------------------------------------------------------------

    async def watch(
        self, principal: Principal, cursor: str | None = None, *, renewals: bool = False
    ) -> AsyncIterator[WatchItem]:
        """Changes after a cursor. An invalid cursor is refused before the first item."""
        return (await self.open_watch(principal, cursor, renewals=renewals))[1]

    async def open_watch(
        self, principal: Principal, cursor: str | None, *, renewals: bool, event_filter: EventFilter | None = None
    ) -> tuple[str, AsyncIterator[WatchItem]]:
        """The same, with the cursor that it starts from: a watcher may lose its connection before the first change."""
        after = await self._changes.parse_cursor(cursor)
        items = self._changes.follow(after, audience(principal), renewals=renewals, event_filter=event_filter)
        return self._changes.bookmark(after, await self._changes.find_mark(after)), items


def _caller(principal: Principal) -> str:
    return "admin" if principal.is_admin else f"subject {principal.subject}" if principal.subject else "anonymous"


def _index_of(versions: list[RecordVersion], etag: str, path: str) -> int:
    content = content_etag_part(etag.strip('"'))
    for index, version in enumerate(versions):
        if version.etag == content:
            return index
    raise NotFound(
        "No version of this agent has this entity tag.", path=path, hint="See its history for the stored versions."
    )


def _compare(before: RecordVersion, after: RecordVersion) -> list[JsonDifference]:
    return differences_between(
        msgspec.json.decode(before.record), msgspec.json.decode(after.record), limits.DIFFERENCES
    )
