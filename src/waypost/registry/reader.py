"""What can be read of a registry: one agent, lists, counts, changes. It decides nothing and writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import NotFound
from waypost.model.history import JsonDifference, RecordVersion, differences_between, record_version_of
from waypost.model.names import looks_like_slug
from waypost.model.principal import Principal, audience
from waypost.model.query import FACETS, FacetSummary, Suggestions
from waypost.model.record import LISTED
from waypost.model.registration import CatalogEntry, Registration, SourceDocument, verdicts_of
from waypost.model.verdict import UNCHECKED, trust_summary
from waypost.registry.catalog.catalog import NO_ENTRY, Catalog, Position, position_of
from waypost.registry.change_log import ChangeLog, WatchItem
from waypost.registry.find.empty_results import suggest_tags
from waypost.registry.find.facets import FacetCounter
from waypost.registry.ports import Clock, Store
from waypost.registry.publication import EntryPage, content_etag_part
from waypost.trust.cursor_cipher import CursorCipher
from waypost.trust.policy import may_change, may_see, no_such_agent


def _is_unchecked(source: SourceDocument) -> bool:
    return not source.verdicts and source.dialect in UNCHECKED


class RegistryReader:
    """The reading half of `engine.Registry`, which fills all of this."""

    store: Store
    clock: Clock
    catalog: Catalog
    seal: CursorCipher
    changes: ChangeLog
    _facets: FacetCounter
    _cache: LruCache[str, Registration]
    _brief: LruCache[str, Registration]  # without sources
    _domains: dict[str, str]

    def resolve(self, principal: Principal, key: str) -> CatalogEntry:
        """The entry behind a canonical id, a path-safe id or an alias, if the caller may see it."""
        entry = self._entry_named(principal, key)
        if entry is NO_ENTRY:
            raise no_such_agent(key)
        return entry

    def resolve_path_id(self, principal: Principal, key: str) -> str:
        """The id of the agent that a path names to this caller; what names none stays as it is, to be refused."""
        return (self._entry_named(principal, key).id or key) if looks_like_slug(key) else key

    def _entry_named(self, principal: Principal, key: str) -> CatalogEntry:
        """The path-safe id of one agent goes before the same text as the id of another (AF-14): else anybody could take the
        address that somebody was given. Of what the caller may not see, neither counts.

        Hidden and absent take the same steps, so that the time of a refusal tells nothing (THREATS V2)."""
        self.catalog.expire(self.clock.now())
        for name in (self.catalog.published(key) or key, key) if looks_like_slug(key) else (key,):
            entry = self.catalog.find(self.catalog.resolve(name) or name) or NO_ENTRY
            if may_see(principal, entry.scopes) and entry is not NO_ENTRY:
                return entry
        return NO_ENTRY

    async def get(self, principal: Principal, key: str) -> Registration:
        entry = self.resolve(principal, key)
        found = await self.registrations((entry.id,))
        if not found:
            raise no_such_agent(key)
        return found[0]

    async def received(self, entry: CatalogEntry, dialect: str) -> bytes | None:
        """The document of a dialect as it was received, where that is quicker to have than the whole registration."""
        if entry.expires_at is not None or self._cache.get(entry.id) is not None:
            return None
        found = await self.store.document(entry, dialect)
        return found[1] if found is not None and found[0] == entry.etag else None

    async def registrations(self, ids: Sequence[str], *, sources: bool = True) -> list[Registration]:
        """Registrations in the order of `ids`; those that are gone are left out. Without their sources they are cheaper to
        have, and enough for whoever wants to know the record."""
        found = {agent_id: self._cached(agent_id, sources=sources) for agent_id in ids}
        missing = [agent_id for agent_id, registration in found.items() if registration is None]
        cache = self._cache if sources else self._brief
        for agent_id, fetched in (await self.store.fetch(missing, sources=sources)).items() if missing else ():
            cached = self._cached(agent_id, sources=sources)  # a commit may have come in while the store was reading
            if cached is None or cached.revision < fetched.revision:
                cache.put(agent_id, fetched)
                cached = fetched
            found[agent_id] = cached
        return [registration for agent_id in ids if (registration := found[agent_id]) is not None]

    def _cached(self, agent_id: str, *, sources: bool) -> Registration | None:
        return self._cache.get(agent_id) or (None if sources else self._brief.get(agent_id))

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
    ) -> EntryPage:
        """One page of what the caller sees. The cursor fits only the same caller and filters."""
        now = self.clock.now()
        self.catalog.expire(now)
        context = self._cursor_context(principal, tags, protocols, statuses, owner)
        after: Position | None = None
        if cursor is not None:
            after = msgspec.msgpack.decode(self.seal.open_page("page", cursor, now, *context), type=tuple[str, str])
        entries, total = self.catalog.page(
            audience(principal),
            limit=limit + 1,
            after=after,
            tags=tags,
            protocols=protocols,
            statuses=statuses,
            owner=owner,
        )
        next_cursor = None
        if len(entries) > limit:
            entries = entries[:limit]
            place = msgspec.msgpack.encode(position_of(entries[-1]))
            next_cursor = self.seal.seal_page("page", place, now, *context)
        return EntryPage(entries=entries, total=total, next_cursor=next_cursor)

    def _cursor_context(
        self,
        principal: Principal,
        tags: Sequence[str],
        protocols: Sequence[str],
        statuses: Sequence[str],
        owner: str | None,
    ) -> tuple[str, ...]:
        who = "admin" if principal.is_admin else f"subject {principal.subject}" if principal.subject else "anonymous"
        return (who, "\0".join(tags), "\0".join(protocols), "\0".join(statuses), owner or "")

    def hosted(self, host: str) -> CatalogEntry | None:
        """The public agent that is served under a domain."""
        self.catalog.expire(self.clock.now())
        agent_id = self._domains.get(host.lower().rstrip("."))
        entry = self.catalog.find(agent_id) if agent_id else None
        return entry if entry is not None and entry.domain == host.lower().rstrip(".") else None

    def hosted_below(self, organisation: str) -> tuple[str, ...]:
        """The domains of public agents that are hosted under an organisation's domain."""
        ending = f".{organisation}"
        names = [name for name in self._domains if name == organisation or name.endswith(ending)]
        found = ((name, self.hosted(name)) for name in names)
        return tuple(name for name, entry in found if entry is not None and entry.visibility == "public")

    def trust_of(self, registration: Registration) -> dict[str, Any]:
        """What was found of all its documents, and of which nothing was checked."""
        told = verdicts_of(registration)
        silent = [UNCHECKED[source.dialect] for source in registration.sources if _is_unchecked(source)]
        return trust_summary((*told, *silent))

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
        self.catalog.expire(self.clock.now())
        chosen = self.catalog.select(
            audience(principal), tags=tags, protocols=protocols, statuses=statuses, owner=owner
        )
        return FacetSummary(
            total=len(chosen),
            facets=self._facets.count(names, chosen, principal),
            suggestions=self.suggest(principal, tags),
        )

    def suggest(self, principal: Principal, tags: Sequence[str]) -> Suggestions:
        """What else may have been meant by tags that nobody carries whom the caller sees."""
        seen_by = audience(principal)
        return suggest_tags(self.catalog, tags, seen_by, self.catalog.select(seen_by)) if tags else {}

    # --- Watching --------------------------------------------------------------------------------

    async def watch(
        self, principal: Principal, cursor: str | None = None, *, renewals: bool = False
    ) -> AsyncIterator[WatchItem]:
        """Changes after a cursor. A bad cursor is refused before the first item."""
        return (await self.open_watch(principal, cursor, renewals=renewals))[1]

    async def open_watch(
        self, principal: Principal, cursor: str | None, *, renewals: bool
    ) -> tuple[str, AsyncIterator[WatchItem]]:
        """The same, with the cursor that it starts from: a watcher may lose its connection before the first change."""
        after = await self.changes.parse_cursor(cursor)
        return self.changes.bookmark(after), self.changes.follow(after, audience(principal), renewals=renewals)


# ---- Earlier contents of an agent, for whoever saw them when they were current: a version that was hidden stays hidden.


class VersionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One content in the list of them. `changed` are the places that differ from the next older one that is shown."""

    version: RecordVersion
    changed: list[str] | None  # None: nothing older is shown
    current: bool


class AgentHistory(msgspec.Struct, frozen=True, kw_only=True):
    registration: Registration
    lines: list[VersionEntry]  # the newest first
    names_subjects: bool  # the caller may know who wrote what


class VersionComparison(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    before: RecordVersion
    after: RecordVersion
    differences: list[JsonDifference]


async def history_of(registry: RegistryReader, principal: Principal, key: str, limit: int) -> AgentHistory:
    registration, versions = await _versions(registry, principal, key)
    lines = []
    for version, older in zip(versions, [*versions[1:], None], strict=True):
        changed = None if older is None else [each.path for each in _compare(older, version)]
        lines.append(VersionEntry(version=version, changed=changed, current=version is versions[0]))
    return AgentHistory(
        registration=registration,
        lines=lines[:limit],
        names_subjects=may_change(principal, registration.owner),
    )


async def compare_versions(
    registry: RegistryReader, principal: Principal, key: str, before: str | None, after: str | None
) -> VersionComparison:
    """Two contents by their entity tags; without them the current one and the one before it."""
    registration, versions = await _versions(registry, principal, key)
    place = 0 if after is None else _find(versions, after, "to")
    if before is not None:
        older = versions[_find(versions, before, "from")]
    elif place + 1 < len(versions):
        older = versions[place + 1]
    else:
        raise NotFound("No earlier version of this agent is kept.", path="from", hint="See its history for what is.")
    return VersionComparison(
        id=registration.id, before=older, after=versions[place], differences=_compare(older, versions[place])
    )


async def _versions(
    registry: RegistryReader, principal: Principal, key: str
) -> tuple[Registration, list[RecordVersion]]:
    """The current content and, of the earlier ones, those that the caller could see."""
    registration = await registry.get(principal, key)
    kept = await registry.store.history(registration.id, limits.HISTORY_VERSIONS)
    seen = [each for each in kept if each.revision < registration.revision and may_see(principal, each.scopes)]
    return registration, [record_version_of(registration), *seen]


def _find(versions: list[RecordVersion], etag: str, name: str) -> int:
    wanted = content_etag_part(etag.strip('"'))
    for place, version in enumerate(versions):
        if version.etag == wanted:
            return place
    raise NotFound(
        "No version of this agent has this entity tag.", path=name, hint="See its history for those that are kept."
    )


def _compare(before: RecordVersion, after: RecordVersion) -> list[JsonDifference]:
    return differences_between(_document(before), _document(after), limits.DIFFERENCES)


def _document(version: RecordVersion) -> Any:
    return msgspec.json.decode(version.record)
