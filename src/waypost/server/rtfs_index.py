"""Which agents have a capability: built at the first question that needs it, then kept by the change log.

It only narrows: what it names is matched card by card all the same. It knows ids of capabilities, with and without their
version, and the cards with more tags than the record (and so the tag index) holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from waypost import limits
from waypost.dialects.rtfs_card import split_version
from waypost.dialects.rtfs_match import Capability, glob_fits
from waypost.model.registration import Registration
from waypost.registry.engine import Registry
from waypost.registry.ports import Committed
from waypost.server.pace import Pace
from waypost.server.rtfs_cards import card_to_match


class CapabilityIndex:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._agents: dict[str, set[str]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._changed: set[str] | None = None  # while the index is built: what the change log told meanwhile
        self._building = asyncio.Lock()
        self._built = False
        self.crowded: set[str] = set()

    async def build(self) -> None:
        """Read every card once. Later calls find it done."""
        if not self._built:
            async with self._building:
                await self._build()

    async def _build(self) -> None:
        if self._built:
            return
        self._changed = set()
        self._registry.observe(self._on_commit)
        pace = Pace()
        async for page in self._registry.store.scan():
            await self._load(page, pace)
        self._built, self._changed = True, None

    async def _load(self, page: Sequence[Registration], pace: Pace) -> None:
        for registration in page:
            await pace.step()
            if self._changed is None or registration.id not in self._changed:
                self._put(registration)

    def _on_commit(self, committed: Committed) -> None:
        if committed.event.type == "renewed":
            return
        if self._changed is not None:
            self._changed.add(committed.event.id)
        self._drop(committed.event.id)
        if committed.registration is not None:
            self._put(committed.registration)

    def _put(self, registration: Registration) -> None:
        card = card_to_match(registration)
        names = [item["capability_id"] for item in card.get("capabilities") or ()]
        keys = tuple(dict.fromkeys((*names, *(split_version(name)[0] for name in names))))
        self._names[registration.id] = keys
        for key in keys:
            self._agents.setdefault(key, set()).add(registration.id)
        if len(card.get("discovery_tags") or ()) > limits.TAGS:
            self.crowded.add(registration.id)

    def _drop(self, agent_id: str) -> None:
        self.crowded.discard(agent_id)
        for key in self._names.pop(agent_id, ()):
            agents = self._agents.get(key)
            if agents is not None:
                agents.discard(agent_id)
                if not agents:
                    del self._agents[key]

    async def agents_with(self, capability: Capability) -> set[str]:
        """Every agent that may have the capability."""
        found = set(self._agents.get(capability.text, ()))
        if capability.is_glob:
            found.update(await self._globbed(capability.text))
        for agent_id in _prefixes(capability.text):
            resolved = self._registry.catalogue.resolve(agent_id)
            if resolved is not None:
                found.add(resolved)
        return found

    async def _globbed(self, pattern: str) -> set[str]:
        found: set[str] = set()
        pace = Pace()
        for key in list(self._agents):
            await pace.step()
            if glob_fits(pattern, key):
                found.update(self._agents.get(key, ()))
        return found


def _prefixes(text: str) -> Iterable[str]:
    """What may be the agent in `{agent_id}/{capability_id}`: either part may hold a slash itself."""
    at = text.find("/")
    while at >= 0:
        yield text[:at]
        at = text.find("/", at + 1)
