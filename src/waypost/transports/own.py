"""What was announced here and still holds: a transport answers queries for it by itself."""

from __future__ import annotations

from waypost import limits
from waypost.errors import QuotaExceeded
from waypost.model.json import JsonObject
from waypost.transports.answers import fits
from waypost.transports.directory import agent_id_of, is_goodbye
from waypost.wire.announce import AgentQuery


class Own:
    def __init__(self) -> None:
        self._announced: dict[str, tuple[JsonObject, float]] = {}  # until when

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
            self._announced[agent_id] = (message, now + ttl)
        return now + ttl

    def drop(self, agent_id: str) -> bool:
        return self._announced.pop(agent_id.lower(), None) is not None

    def find(self, agent_id: str, now: float) -> JsonObject | None:
        message, until = self._announced.get(agent_id, (None, now))
        return message if now < until else None

    def matching(self, query: AgentQuery, now: float) -> list[JsonObject]:
        """Each with what is left of its ttl."""
        return [
            {**message, "ttl": max(1, int(until - now))}
            for message, until in self._announced.values()
            if now < until and fits(query, message)
        ]

    def first(self, now: float) -> JsonObject | None:
        """Any of them, to show which version is spoken here."""
        return next((message for message, until in self._announced.values() if now < until), None)

    def holds(self, message: JsonObject) -> bool:
        """Whether this is an own word that came back."""
        held = self._announced.get(agent_id_of(message))
        return held is not None and held[0]["agent"] == message["agent"]

    def _sweep(self, now: float) -> None:
        self._announced = {name: held for name, held in self._announced.items() if now < held[1]}
