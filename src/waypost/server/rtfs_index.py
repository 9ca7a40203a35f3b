"""Which agents have a capability.

It only narrows: what it names is matched card by card all the same. It knows ids of capabilities, with and without their
version, and the cards with more tags than the record (and so the tag index) holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from waypost import limits
from waypost.dialects.rtfs_card import split_version
from waypost.dialects.rtfs_match import Capability, glob_fits
from waypost.model.registration import Registration
from waypost.registry.engine import Registry
from waypost.server.late_table import LateTable
from waypost.server.pace import Pace
from waypost.server.rtfs_cards import card_to_match


class CapabilityIndex(LateTable):
    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self._agents: dict[str, set[str]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self.crowded: set[str] = set()

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
