"""Agents as Responses of the announce protocol.

An agent that was announced is shown verbatim with its signature. Others are derived from their record and marked so.
Views are cached until the agent changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import NotFound, WaypostError
from waypost.model.json import JsonObject, dump_json, memory_size, parse_object
from waypost.model.principal import Principal, no_such_agent
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import AgentQuery, AnnounceSignatures, encode_response
from waypost.registry.catalog.entries import AnnouncedFilter
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry
from waypost.server.http.request_params import AnswerBudget
from waypost.server.renderer import Renderer
from waypost.trust.announce.trust_store import find_agent_id

VERSION = "v1.0"

_DERIVED = "__derived"
_CANDIDATE_PAGES = 16  # pages of candidates that one response filters; the next cursor continues after them
_FETCH_SIZE = 256


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


def _view_size(view: AnnounceView) -> int:
    return len(view.body) + memory_size(view.capabilities)


class AnnounceViews:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer
        self._views: LruCache[str, AnnounceView] = LruCache(
            limits.RENDERING_CACHE_BYTES, _view_size, max_entries=limits.RECORD_CACHE
        )
        self._derived_ids = DerivedIds(registry)

    async def page(self, principal: Principal, query: AgentQuery, filters: AnnouncedFilter) -> AnnouncePage:
        """One page of the agents that match."""
        if query.agent_id is not None:
            return await self._page_of_one(principal, query, query.agent_id, filters)
        views: list[AnnounceView] = []
        budget = AnswerBudget()
        cursor = filters.cursor
        for _ in range(_CANDIDATE_PAGES):
            remaining = msgspec.structs.replace(filters, limit=filters.limit - len(views), cursor=cursor)
            page = self._registry.page_announced(principal, remaining)
            found = {view.record_id: view for view in await self._views_of(page.entries)}
            for index, entry in enumerate(page.entries):
                view = found.get(entry.id)
                if view is None or not _matches(view, query, filters):
                    continue
                if not budget.take(len(view.body)):
                    cursor = page.first(index).next_cursor if index else cursor
                    return AnnouncePage(views=views, next_cursor=cursor)
                views.append(view)
            cursor = page.next_cursor
            if cursor is None or len(views) == filters.limit:
                break
        return AnnouncePage(views=views, next_cursor=cursor)

    async def _page_of_one(
        self, principal: Principal, query: AgentQuery, agent_id: str, filters: AnnouncedFilter
    ) -> AnnouncePage:
        try:
            view = await self.get(principal, agent_id)
        except NotFound:
            return AnnouncePage(views=[])
        return AnnouncePage(views=[view] if _matches(view, query, filters) else [])

    async def get(self, principal: Principal, key: str) -> AnnounceView:
        """The agent with this agent_id, id or alias."""
        views = await self._views_of([await self.resolve(principal, key)])
        if not views:
            raise no_such_agent(key)
        return views[0]

    async def resolve(self, principal: Principal, key: str) -> CatalogEntry:
        """The service gave a derived agent_id to one record. Only the owner of that record may announce another under it:
        anybody else who registers it would get the readers of the first."""
        agent_id = find_agent_id(key)
        if agent_id is None:
            return self._registry.resolve(principal, key)
        record_id = await self._derived_ids.find(agent_id)
        derived = None if record_id is None else self._find(principal, record_id)
        named = self._find(principal, f"urn:uuid:{agent_id}", agent_id, key)
        if named is not None and (derived is None or derived.owner == named.owner):
            return named
        if derived is None:
            raise no_such_agent(key)  # never names the record of an agent that the caller may not see
        return derived

    def _find(self, principal: Principal, *names: str) -> CatalogEntry | None:
        for name in names:
            try:
                return self._registry.resolve(principal, name)
            except NotFound:
                continue
        return None

    async def _views_of(self, entries: Sequence[CatalogEntry]) -> list[AnnounceView]:
        views: dict[str, AnnounceView] = {}
        for entry in entries:
            cached = self._views.get(entry.id)
            if cached is not None and cached.revision == entry.revision:
                views[entry.id] = cached
        missing = [entry.id for entry in entries if entry.id not in views]
        for registration in await self._registry.registrations(missing) if missing else ():
            views[registration.id] = view = self._make_view(registration)
            self._views.put(registration.id, view)
        return [views[entry.id] for entry in entries if entry.id in views]

    def _make_view(self, registration: Registration) -> AnnounceView:
        source = registration.source("announce")
        if source is None:
            agent, signatures = self._derive(registration), AnnounceSignatures()
        else:
            agent, signatures = read_source(source.document)
        expires_at = registration.expires_at
        body = encode_response(
            dump_json(agent),
            signatures,
            version=VERSION,
            expires_at=None if expires_at is None else to_rfc3339(expires_at),
        )
        return AnnounceView(
            revision=registration.revision,
            record_id=registration.id,
            agent_id=agent["agent_id"],
            capabilities=_capabilities(agent),
            signed=signatures.signature is not None,
            body=body,
            expires_at=expires_at,
            # A renewed lease changes `expires_at`, and so the response.
            changed_at=max(registration.changed_at, registration.renewed_at if expires_at is not None else 0.0),
        )

    def _derive(self, registration: Registration) -> JsonObject:
        """An unsigned agent object. Its agent_id is the UUID that is stored with the registration."""
        agent = self._renderer.document(registration, "announce", self._registry.clock.now())
        dialect = registration.sources[0].dialect if registration.sources else "profile"
        return {**agent, "metadata": {**agent.get("metadata", {}), _DERIVED: dialect}}


def read_source(document: bytes) -> tuple[JsonObject, AnnounceSignatures]:
    """The agent and the signatures of an announced document: a bare agent object or an Announce message."""
    message = parse_object(document)
    if "agent" not in message or "agent_id" in message:
        return message, AnnounceSignatures()
    return message["agent"], signatures_of(message)


def signatures_of(message: Mapping[str, object]) -> AnnounceSignatures:
    values = (message.get("signature"), message.get("previous_signature"))
    return AnnounceSignatures(*(value if isinstance(value, str) else None for value in values))


def _capabilities(agent: JsonObject) -> dict[str, str]:
    try:
        return read_capabilities(agent, "$")
    except WaypostError:  # tags of a derived agent that are no valid capability names
        return {}


def _matches(view: AnnounceView, query: AgentQuery, filters: AnnouncedFilter) -> bool:
    if filters.signed and not view.signed:
        return False
    return all(each.fits(view.capabilities) for each in query.requirements)


class DerivedIds:
    """The records of derived agent_ids. The table is built on first use and then follows the change log."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._record_ids: dict[str, str] = {}
        self._lock = asyncio.Lock()
        self._is_built = False

    async def find(self, agent_id: str) -> str | None:
        async with self._lock:
            if not self._is_built:
                await self._build()
        if len(self._record_ids) > 2 * len(self._registry.entries) + limits.RECORD_CACHE:
            is_alive = self._registry.entries.is_alive
            self._record_ids = {key: value for key, value in self._record_ids.items() if is_alive(value)}
        return self._record_ids.get(agent_id)

    async def _build(self) -> None:
        self._registry.subscribe(self._on_commit)
        ids = self._registry.entries.ids()
        for start in range(0, len(ids), _FETCH_SIZE):
            part = ids[start : start + _FETCH_SIZE]
            for registration in await self._registry.registrations(part, sources=False, cached=False):
                self._put(registration)
            await asyncio.sleep(0)
        self._is_built = True

    def _on_commit(self, committed: CommittedChange) -> None:
        if committed.registration is not None:
            self._put(committed.registration)

    def _put(self, registration: Registration) -> None:
        if registration.announce_id is not None:
            self._record_ids[registration.announce_id] = registration.id
