"""What was announced here and still holds: a transport answers queries for it by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from waypost import limits
from waypost.dialects.announce_capabilities import read_capabilities
from waypost.errors import QuotaExceeded, WaypostError
from waypost.model.json import JsonObject
from waypost.transports.directory import agent_id_of, is_goodbye
from waypost.wire.announce import AgentQuery


class _Said(NamedTuple):
    message: JsonObject
    until: float
    capabilities: dict[str, str] | None  # read once, not for every question; None: they cannot be read


class Own:
    def __init__(self) -> None:
        self._announced: dict[str, _Said] = {}

    def put(self, message: JsonObject, ttl: int, now: float) -> float:
        """Until when it holds. A goodbye is announced like anything else, and leaves nothing."""
        agent_id = agent_id_of(message)
        if agent_id not in self._announced and len(self._announced) >= limits.OWN_AGENTS:
            self._sweep(now)
        if agent_id not in self._announced and len(self._announced) >= limits.OWN_AGENTS:
            raise QuotaExceeded(
                f"{limits.OWN_AGENTS} agents are announced here.", path="$.agent", hint="Use a registry for more."
            )
        if is_goodbye(message):
            self._announced.pop(agent_id, None)
        else:
            self._announced[agent_id] = _Said(message, now + ttl, _capabilities(message))
        return now + ttl

    def drop(self, agent_id: str) -> bool:
        return self._announced.pop(agent_id.lower(), None) is not None

    def find(self, agent_id: str, now: float) -> JsonObject | None:
        said = self._announced.get(agent_id)
        return said.message if said is not None and now < said.until else None

    def matching(self, query: AgentQuery, now: float) -> list[JsonObject]:
        """Each with what is left of its ttl."""
        return [
            {**said.message, "ttl": max(1, int(said.until - now))}
            for agent_id, said in self._asked_for(query)
            if now < said.until and said.capabilities is not None and query.matches(agent_id, said.capabilities)
        ]

    def _asked_for(self, query: AgentQuery) -> Iterable[tuple[str, _Said]]:
        """Those that can match: of a question for one agent that one alone."""
        if query.agent_id is None:
            return self._announced.items()
        agent_id = query.agent_id.lower()
        said = self._announced.get(agent_id)
        return () if said is None else ((agent_id, said),)

    def first(self, now: float) -> JsonObject | None:
        """Any of them, to show which version is spoken here."""
        return next((said.message for said in self._announced.values() if now < said.until), None)

    def holds(self, message: JsonObject) -> bool:
        """Whether this is an own word that came back."""
        held = self._announced.get(agent_id_of(message))
        return held is not None and held.message["agent"] == message["agent"]

    def _sweep(self, now: float) -> None:
        self._announced = {name: said for name, said in self._announced.items() if now < said.until}


def _capabilities(message: JsonObject) -> dict[str, str] | None:
    try:
        return read_capabilities(message["agent"], "$.agent")
    except WaypostError:
        return None
