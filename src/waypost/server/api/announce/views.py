"""Agents as the announce protocol answers with them: those that were announced verbatim with their signatures, the others
derived and marked so. Views are kept until the agent changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import NotFound, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.principal import Principal
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import AgentQuery, AnnounceSignatures, encode_response
from waypost.registry.catalog.entries import AnnouncedFilter, expiry_of
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry
from waypost.server.renderer import Renderer
from waypost.trust.announce.allow_list import find_agent_id
from waypost.trust.policy import no_such_agent

_VERSION = "v1.0"
_DERIVED = "__derived"
_ROUNDS = 16  # pages of candidates that one answer looks through; the next cursor goes on from there
_AT_ONCE = 256  # registrations read at once for the index of derived ids


class AnnounceView(msgspec.Struct, frozen=True, gc=False):
    revision: int
    record_id: str
    agent_id: str
    capabilities: dict[str, str]
    signed: bool
    body: bytes  # a Response
    expires_at: float | None = None
    changed_at: float = 0.0


class AnnouncePage(msgspec.Struct, frozen=True, kw_only=True):
    views: list[AnnounceView]
    next_cursor: str | None = None

    @property
    def bodies(self) -> list[bytes]:
        return [view.body for view in self.views]


class AnnounceViews:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer
        self._views: LruCache[str, AnnounceView] = LruCache(limits.RECORD_CACHE)
        self._derived = DerivedIds(registry)

    async def page(self, principal: Principal, query: AgentQuery, wish: AnnouncedFilter) -> AnnouncePage:
        """One page of the agents that match."""
        if query.agent_id is not None:
            return await self._list_one(principal, query, signed=wish.signed)
        views: list[AnnounceView] = []
        cursor = wish.cursor
        for _ in range(_ROUNDS):
            asked = msgspec.structs.replace(wish, limit=wish.limit - len(views), cursor=cursor)
            page = self._registry.page_announced(principal, asked)
            views += [view for view in await self._of(page.entries) if _matches(view, query, wish)]
            cursor = page.next_cursor
            if cursor is None or len(views) == wish.limit:
                break
        return AnnouncePage(views=views, next_cursor=cursor)

    async def _list_one(self, principal: Principal, query: AgentQuery, *, signed: bool) -> AnnouncePage:
        try:
            view = await self.get(principal, query.agent_id or "")
        except NotFound:
            return AnnouncePage(views=[])
        return AnnouncePage(views=[view] if _matches(view, query, AnnouncedFilter(signed=signed)) else [])

    async def get(self, principal: Principal, key: str) -> AnnounceView:
        """The agent behind an agent_id, or any other name of it."""
        entry = await self.resolve(principal, key)
        views = await self._of([entry])
        if not views:
            raise no_such_agent(key)
        return views[0]

    async def resolve(self, principal: Principal, key: str) -> CatalogEntry:
        agent_id = find_agent_id(key)
        for name in (key,) if agent_id is None else (f"urn:uuid:{agent_id}", agent_id, key):
            try:
                return self._registry.resolve(principal, name)
            except NotFound:
                continue
        found = None if agent_id is None else await self._derived.find(agent_id)
        try:
            if found is not None:
                return self._registry.resolve(principal, found)
        except NotFound:
            pass  # whoever may not see it is not told its other name either
        raise no_such_agent(key)

    async def _of(self, entries: Sequence[CatalogEntry]) -> list[AnnounceView]:
        kept = {entry.id: view for entry in entries if (view := self._kept(entry)) is not None}
        missing = [entry.id for entry in entries if entry.id not in kept]
        for registration in await self._registry.registrations(missing) if missing else ():
            view = self._view(registration)
            kept[registration.id] = view
            self._views.put(registration.id, view)
        return [kept[entry.id] for entry in entries if entry.id in kept]

    def _kept(self, entry: CatalogEntry) -> AnnounceView | None:
        view = self._views.get(entry.id)
        return view if view is not None and view.revision == entry.revision else None

    def _view(self, registration: Registration) -> AnnounceView:
        source = registration.source("announce")
        if source is None:
            agent, signatures = self._derive(registration), AnnounceSignatures()
        else:
            agent, signatures = read_source(source.document)
        ends = expiry_of(registration)
        body = encode_response(
            dump_json(agent), signatures, version=_VERSION, expires_at=None if ends is None else to_rfc3339(ends)
        )
        signed = signatures.signature is not None
        return AnnounceView(
            registration.revision,
            registration.id,
            agent["agent_id"],
            _capabilities(agent),
            signed,
            body,
            ends,
            _changed_at(registration),
        )

    def _derive(self, registration: Registration) -> JsonObject:
        """Nobody signed it, and its id is the UUID that is kept beside the record."""
        agent = self._renderer.document(registration, "announce", self._registry.clock.now())
        dialect = registration.sources[0].dialect if registration.sources else "profile"
        return {**agent, "metadata": {**agent.get("metadata", {}), _DERIVED: dialect}}


def _changed_at(registration: Registration) -> float:
    """A lease that runs on is a change of the answer."""
    return max(registration.changed_at, registration.renewed_at if expiry_of(registration) is not None else 0.0)


def read_source(document: bytes) -> tuple[JsonObject, AnnounceSignatures]:
    """The agent and the signatures of a document that was announced, bare or in its envelope."""
    message = parse_object(document)
    if "agent" not in message or "agent_id" in message:
        return message, AnnounceSignatures()
    return message["agent"], signatures_of(message)


def signatures_of(message: Mapping[str, object]) -> AnnounceSignatures:
    told = (message.get("signature"), message.get("previous_signature"))
    return AnnounceSignatures(*(text if isinstance(text, str) else None for text in told))


def _capabilities(agent: JsonObject) -> dict[str, str]:
    try:
        return read_capabilities(agent, "$")
    except WaypostError:  # a record whose tags make no capabilities has none
        return {}


def _matches(view: AnnounceView, query: AgentQuery, wish: AnnouncedFilter) -> bool:
    if wish.signed and not view.signed:
        return False
    return all(wanted.fits(view.capabilities) for wanted in query.wanted)


class DerivedIds:
    """Which agent the UUID of a derived answer belongs to. Made when the first one is asked for, then kept up to date."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ids: dict[str, str] = {}
        self._making = asyncio.Lock()
        self._is_made = False

    async def find(self, agent_id: str) -> str | None:
        async with self._making:
            if not self._is_made:
                await self._make()
        if len(self._ids) > 2 * len(self._registry.entries) + limits.RECORD_CACHE:
            self._forget_gone()
        return self._ids.get(agent_id)

    async def _make(self) -> None:
        self._registry.subscribe(self._take_in)
        known = self._registry.entries.ids()
        for start in range(0, len(known), _AT_ONCE):
            part = known[start : start + _AT_ONCE]
            for registration in await self._registry.registrations(part, sources=False, cached=False):
                self._note(registration)
            await asyncio.sleep(0)
        self._is_made = True

    def _take_in(self, committed: CommittedChange) -> None:
        if committed.registration is not None:
            self._note(committed.registration)

    def _note(self, registration: Registration) -> None:
        if registration.announce_id is not None:
            self._ids[registration.announce_id] = registration.id

    def _forget_gone(self) -> None:
        alive = self._registry.entries.is_alive
        self._ids = {agent_id: record_id for agent_id, record_id in self._ids.items() if alive(record_id)}
