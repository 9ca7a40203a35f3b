"""Agents as the announce protocol answers with them: those that were announced verbatim with their signatures, the others
derived and marked so. Views are kept until the agent changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from waypost import limits
from waypost.dialects.announce_capabilities import read_capabilities
from waypost.errors import NotFound, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.principal import Principal
from waypost.model.registration import Entry, Registration
from waypost.model.times import to_rfc3339
from waypost.registry.announced import Wish, page_announced
from waypost.registry.engine import Registry
from waypost.registry.entries import expiry_of
from waypost.registry.lru import Lru
from waypost.registry.ports import Committed
from waypost.server.rendering import Renderer
from waypost.trust.allowlist import find_agent_id
from waypost.trust.policy import no_such_agent
from waypost.wire.announce import AgentQuery, Signatures, response_body

_VERSION = "v1.0"
_DERIVED = "__derived"
_ROUNDS = 16  # pages of candidates that one answer looks through; the next cursor goes on from there
_AT_ONCE = 256  # registrations read at once for the index of derived ids


class View(msgspec.Struct, frozen=True, gc=False):
    revision: int
    record_id: str
    agent_id: str
    capabilities: dict[str, str]
    signed: bool
    body: bytes  # a Response
    ends: float | None = None
    changed_at: float = 0.0


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    views: list[View]
    next_cursor: str | None = None

    @property
    def bodies(self) -> list[bytes]:
        return [view.body for view in self.views]


class AnnouncedViews:
    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer
        self._views: Lru[str, View] = Lru(limits.RECORD_CACHE)
        self._derived = DerivedIds(registry)

    async def page(self, principal: Principal, query: AgentQuery, wish: Wish) -> Listed:
        """One page of the agents that match."""
        if query.agent_id is not None:
            return await self._list_one(principal, query, signed=wish.signed)
        views: list[View] = []
        cursor = wish.cursor
        registry = self._registry
        registry.catalogue.expire(registry.clock.now())
        for _ in range(_ROUNDS):
            asked = msgspec.structs.replace(wish, limit=wish.limit - len(views), cursor=cursor)
            page = page_announced(registry.catalogue, registry.seal, principal, asked, registry.clock.now())
            views += [view for view in await self._of(page.entries) if _fits(view, query, wish)]
            cursor = page.next_cursor
            if cursor is None or len(views) == wish.limit:
                break
        return Listed(views=views, next_cursor=cursor)

    async def _list_one(self, principal: Principal, query: AgentQuery, *, signed: bool) -> Listed:
        try:
            view = await self.get(principal, query.agent_id or "")
        except NotFound:
            return Listed(views=[])
        return Listed(views=[view] if _fits(view, query, Wish(signed=signed)) else [])

    async def get(self, principal: Principal, key: str) -> View:
        """The agent behind an agent_id, or any other name of it."""
        entry = await self.resolve(principal, key)
        views = await self._of([entry])
        if not views:
            raise no_such_agent(key)
        return views[0]

    async def resolve(self, principal: Principal, key: str) -> Entry:
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

    async def _of(self, entries: Sequence[Entry]) -> list[View]:
        kept = {entry.id: view for entry in entries if (view := self._kept(entry)) is not None}
        missing = [entry.id for entry in entries if entry.id not in kept]
        for registration in await self._registry.registrations(missing) if missing else ():
            view = self._view(registration)
            kept[registration.id] = view
            self._views.put(registration.id, view)
        return [kept[entry.id] for entry in entries if entry.id in kept]

    def _kept(self, entry: Entry) -> View | None:
        view = self._views.get(entry.id)
        return view if view is not None and view.revision == entry.revision else None

    def _view(self, registration: Registration) -> View:
        source = registration.source("announce")
        if source is None:
            agent, signatures = self._derive(registration), Signatures()
        else:
            agent, signatures = read_source(source.document)
        ends = expiry_of(registration)
        body = response_body(
            dump_json(agent), signatures, version=_VERSION, expires_at=None if ends is None else to_rfc3339(ends)
        )
        signed = signatures.signature is not None
        return View(
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


def read_source(document: bytes) -> tuple[JsonObject, Signatures]:
    """The agent and the signatures of a document that was announced, bare or in its envelope."""
    message = parse_object(document)
    if "agent" not in message or "agent_id" in message:
        return message, Signatures()
    return message["agent"], signatures_of(message)


def signatures_of(message: Mapping[str, object]) -> Signatures:
    told = (message.get("signature"), message.get("previous_signature"))
    return Signatures(*(text if isinstance(text, str) else None for text in told))


def _capabilities(agent: JsonObject) -> dict[str, str]:
    try:
        return read_capabilities(agent, "$")
    except WaypostError:  # a record whose tags make no capabilities has none
        return {}


def _fits(view: View, query: AgentQuery, wish: Wish) -> bool:
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
        if len(self._ids) > 2 * len(self._registry.catalogue) + limits.RECORD_CACHE:
            self._forget_gone()
        return self._ids.get(agent_id)

    async def _make(self) -> None:
        self._registry.observe(self._take_in)
        known = list(self._registry.catalogue.ids())
        for start in range(0, len(known), _AT_ONCE):
            found = await self._registry.store.fetch(known[start : start + _AT_ONCE], sources=False)
            for registration in found.values():
                self._note(registration)
            await asyncio.sleep(0)
        self._is_made = True

    def _take_in(self, committed: Committed) -> None:
        if committed.registration is not None:
            self._note(committed.registration)

    def _note(self, registration: Registration) -> None:
        if registration.announce_id is not None:
            self._ids[registration.announce_id] = registration.id

    def _forget_gone(self) -> None:
        alive = self._registry.catalogue.is_alive
        self._ids = {agent_id: record_id for agent_id, record_id in self._ids.items() if alive(record_id)}
