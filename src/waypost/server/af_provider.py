"""Where a user's application keeps its agents, and the directory over it (AF-70).

A provider is two calls, `list` and `get`. Adapters for a list, a callable and a database stand ready.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.model.principal import Principal
from waypost.registry.lru import Lru
from waypost.server.af_directory import AfPage, AfQuery, Policy, Seen, candidates, default_policy, names_agent, window
from waypost.server.af_source import AgentLike, Offered, bytes_of, instant_of, read_agent
from waypost.server.af_view import Level

Generation: TypeAlias = str | int | None
Listing: TypeAlias = tuple[Iterable[AgentLike], Generation, float | datetime | None]


class Provider(Protocol):
    """What an application implements. `principal` is None for a caller that nobody knows."""

    async def list(self, principal: Principal | None) -> Listing:
        """Every agent, a value that changes when they do, and when they last did; None for what is not known."""
        ...

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        """The agent with this canonical id."""
        ...


class StaticProvider:
    """Agents from the code of the application. They may be changed while it runs."""

    def __init__(
        self, agents: Iterable[AgentLike], *, base_url: str = "", now: Callable[[], float] = time.time
    ) -> None:
        self._agents: dict[str, AgentLike] = {}
        for index, item in enumerate(agents):
            offered = read_agent(item, base_url=base_url, now=now())
            if offered.record.id in self._agents:
                raise ConfigurationError(
                    f"Two agents have the id {offered.record.id!r}.", path=f"agents[{index}].id", hint="Rename one."
                )
            self._agents[offered.record.id] = item
        self._base_url = base_url
        self._now = now
        self._listed = tuple(self._agents.values())

    async def list(self, principal: Principal | None) -> Listing:
        return self._listed, None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return self._agents.get(agent_id)

    def register(self, agent: AgentLike) -> None:
        offered = read_agent(agent, base_url=self._base_url, now=self._now())
        self._agents[offered.record.id] = agent
        self._listed = tuple(self._agents.values())

    def withdraw(self, agent_id: str) -> None:
        self._agents.pop(agent_id, None)
        self._listed = tuple(self._agents.values())


class CallableProvider:
    """Agents from a function, plain or async, that is called for each request."""

    def __init__(self, agents: Callable[[], Iterable[AgentLike] | Awaitable[Iterable[AgentLike]]]) -> None:
        self._call = agents

    async def list(self, principal: Principal | None) -> Listing:
        found = self._call()
        return (await found if inspect.isawaitable(found) else found), None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return None  # the directory looks through the list


class DatabaseProvider:
    """Agents from any DB-API 2.0 database: one row for each, its first column the document as JSON text."""

    def __init__(self, connect: Callable[[], Any], select: str = "SELECT document FROM agents") -> None:
        self._connect = connect
        self._select = select

    async def list(self, principal: Principal | None) -> Listing:
        return await asyncio.to_thread(self._rows), None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return None

    def _rows(self) -> Sequence[AgentLike]:
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self._select)
            return [row[0] for row in cursor.fetchall()]


class ProviderDirectory:
    """A directory over a provider: reads and renders each agent once, and asks the policy each time."""

    ranked = False

    def __init__(
        self,
        provider: Provider,
        policy: Policy | None = None,
        *,
        base_url: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._policy = policy
        self._base_url = base_url
        self._now = now
        self._read: Lru[bytes, Offered] = Lru(limits.RECORD_CACHE)
        self._sorted: tuple[object, list[Offered]] = (None, [])
        self._since: Lru[str, tuple[str, float]] = Lru(limits.RECORD_CACHE)

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        items, generation, modified = await self._provider.list(_asker(principal))
        visible = [
            (offered, level)
            for offered in self._in_order(items)
            if (level := self._level(principal, offered)) != "none"
        ]
        digest = _digest(visible)
        chosen = [Seen(offered.agent, level) for offered, level in visible if _matches(offered, level, query)]
        offset, limit, paged = window(query, len(visible))
        return AfPage(
            seen=chosen[offset : offset + limit],
            total=len(chosen),
            paged=paged,
            generation=digest if generation is None else str(generation),
            last_modified=self._last_change(principal, digest) if modified is None else instant_of(modified),
        )

    async def one(self, principal: Principal, key: str) -> Seen | None:
        offered = await self.find(principal, key)
        level = self._level(principal, offered) if offered is not None else "none"
        return None if offered is None or level == "none" else Seen(offered.agent, level)

    async def find(self, principal: Principal, key: str) -> Offered | None:
        """The agent that a key names, whoever may see it."""
        for agent_id in candidates(key):
            item = await self._provider.get(_asker(principal), agent_id)
            if item is not None and names_agent(key, (offered := self._offered(item)).record.id):
                return offered
        items, _, _ = await self._provider.list(_asker(principal))
        return next((offered for offered in self._in_order(items) if names_agent(key, offered.record.id)), None)

    async def offered(self, principal: Principal) -> list[Offered]:
        """All that the caller sees, in order."""
        items, _, _ = await self._provider.list(_asker(principal))
        return [offered for offered in self._in_order(items) if self._level(principal, offered) != "none"]

    def _in_order(self, items: Iterable[AgentLike]) -> list[Offered]:
        if self._sorted[0] is items and isinstance(items, tuple):  # the same tuple holds the same agents
            return self._sorted[1]
        found: dict[str, Offered] = {}
        for item in items:
            offered = self._offered(item)
            found.setdefault(offered.agent.id, offered)
        ordered = sorted(found.values(), key=lambda offered: offered.position)
        self._sorted = (items, ordered)
        return ordered

    def _offered(self, item: AgentLike) -> Offered:
        key = bytes_of(item)
        known = self._read.get(key)
        if known is None:
            known = read_agent(item, base_url=self._base_url, now=self._now())
            self._read.put(key, known)
        return known

    def _level(self, principal: Principal, offered: Offered) -> Level:
        if self._policy is not None:
            return self._policy(_asker(principal), offered.record)
        return default_policy(principal, offered.record, self._now())

    def _last_change(self, principal: Principal, digest: str) -> float:
        """AF-35: when this caller's set became what it is, removals included; the first time it was seen so, at the latest."""
        viewer = repr((principal.subject, principal.via))
        known = self._since.get(viewer)
        if known is None or known[0] != digest:
            known = (digest, self._now())
            self._since.put(viewer, known)
        return known[1]


def _asker(principal: Principal) -> Principal | None:
    return None if principal.is_anonymous else principal


def _matches(offered: Offered, level: Level, query: AfQuery) -> bool:
    if query.id is not None and query.id not in (offered.record.id, offered.agent.id):
        return False
    return offered.tags.issuperset(query.tags) and offered.text.holds(query.terms, level)


def _digest(visible: Iterable[tuple[Offered, Level]]) -> str:
    digest = hashlib.sha256()
    for offered, level in visible:
        digest.update(level.encode())
        digest.update(offered.agent.summary if level == "summary" else offered.agent.whole)
    return digest.hexdigest()[:16]
