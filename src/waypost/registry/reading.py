"""What can be read of a registry: one agent, lists, counts, changes. It decides nothing and writes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from waypost import limits
from waypost.model.names import looks_like_slug
from waypost.model.principal import Principal, audience
from waypost.model.query import FACETS, Overview, Suggestions
from waypost.model.registration import Brief, Entry, Registration, Source, verdicts_of
from waypost.model.verdict import UNCHECKED, summary
from waypost.registry.catalogue import LISTED, NOBODY, Catalogue, Position, position_of
from waypost.registry.changes import ChangeLog, WatchItem
from waypost.registry.facets import FacetCounter
from waypost.registry.lru import Lru
from waypost.registry.ports import Clock, Store
from waypost.registry.publication import Page
from waypost.registry.reasons import suggest
from waypost.trust.policy import may_see, no_such_agent
from waypost.trust.seal import Seal


def _is_silent(source: Source) -> bool:
    return not source.verdicts and source.dialect in UNCHECKED


class Reading:
    """The reading half of `engine.Registry`, which fills all of this."""

    store: Store
    clock: Clock
    catalogue: Catalogue
    seal: Seal
    changes: ChangeLog
    _facets: FacetCounter
    _cache: Lru[str, Registration]
    _brief: Lru[str, Registration]  # without sources
    _domains: dict[str, str]

    def resolve(self, principal: Principal, key: str) -> Entry:
        """The entry behind a canonical id, a path-safe id or an alias, if the caller may see it."""
        entry = self._entry_named(principal, key)
        if entry is NOBODY:
            raise no_such_agent(key)
        return entry

    def addressed(self, principal: Principal, key: str) -> str:
        """The id of the agent that a path names to this caller; what names none stays as it is, to be refused."""
        return (self._entry_named(principal, key).id or key) if looks_like_slug(key) else key

    def _entry_named(self, principal: Principal, key: str) -> Entry:
        """The path-safe id of one agent goes before the same text as the id of another (AF-14): else anybody could take the
        address that somebody was given. Of what the caller may not see, neither counts.

        Hidden and absent take the same steps, so that the time of a refusal tells nothing (THREATS V2)."""
        self.catalogue.expire(self.clock.now())
        for name in (self.catalogue.published(key) or key, key) if looks_like_slug(key) else (key,):
            entry = self.catalogue.find(self.catalogue.resolve(name) or name) or NOBODY
            if may_see(principal, entry.scopes) and entry is not NOBODY:
                return entry
        return NOBODY

    async def get(self, principal: Principal, key: str) -> Registration:
        entry = self.resolve(principal, key)
        found = await self.registrations((entry.id,))
        if not found:
            raise no_such_agent(key)
        return found[0]

    async def received(self, entry: Entry, dialect: str) -> bytes | None:
        """The document of a dialect as it was received, where that is quicker to have than the whole registration."""
        if entry.expires_at is not None or self._cache.get(entry.id) is not None:
            return None
        found = await self.store.document(entry, dialect)
        return found[1] if found is not None and found[0] == entry.etag else None

    async def briefs(self, entries: Sequence[Entry]) -> dict[str, Brief]:
        """What stands in the store of these, in short, where it is what their entries are of."""
        found = await self.store.briefs(entries)
        return {
            entry.id: brief
            for entry in entries
            if (brief := found.get(entry.id)) is not None and brief.etag == entry.etag
        }

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
    ) -> Page:
        """One page of what the caller sees. The cursor fits only the same caller and filters."""
        now = self.clock.now()
        self.catalogue.expire(now)
        context = self._cursor_context(principal, tags, protocols, statuses, owner)
        after: Position | None = None
        if cursor is not None:
            after = msgspec.msgpack.decode(self.seal.open_page("page", cursor, now, *context), type=tuple[str, str])
        entries, total = self.catalogue.page(
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
        return Page(entries=entries, total=total, next_cursor=next_cursor)

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

    def hosted(self, host: str) -> Entry | None:
        """The public agent that is served under a domain."""
        self.catalogue.expire(self.clock.now())
        agent_id = self._domains.get(host.lower().rstrip("."))
        entry = self.catalogue.find(agent_id) if agent_id else None
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
        silent = [UNCHECKED[source.dialect] for source in registration.sources if _is_silent(source)]
        return summary((*told, *silent))

    def facets(
        self,
        principal: Principal,
        names: Sequence[str] = FACETS,
        *,
        tags: Sequence[str] = (),
        protocols: Sequence[str] = (),
        statuses: Sequence[str] = LISTED,
        owner: str | None = None,
    ) -> Overview:
        """Counts over the list that these filters give."""
        self.catalogue.expire(self.clock.now())
        chosen = self.catalogue.select(
            audience(principal), tags=tags, protocols=protocols, statuses=statuses, owner=owner
        )
        return Overview(
            total=len(chosen),
            facets=self._facets.count(names, chosen, principal),
            suggestions=self.suggest(principal, tags),
        )

    def suggest(self, principal: Principal, tags: Sequence[str]) -> Suggestions:
        """What else may have been meant by tags that nobody carries whom the caller sees."""
        seen_by = audience(principal)
        return suggest(self.catalogue, tags, seen_by, self.catalogue.select(seen_by)) if tags else {}

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
