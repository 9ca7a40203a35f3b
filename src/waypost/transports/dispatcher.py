"""What was announced here and still holds: a transport answers queries for it by itself."""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from waypost import limits
from waypost.errors import QuotaExceeded, RateLimited, WaypostError
from waypost.model.json import JsonObject
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import (
    AgentQuery,
    VersionNegotiation,
    build_response,
    kind_of_message,
    parse_query,
)
from waypost.transports.directory import AgentDirectory, agent_id_of, is_goodbye, ttl_of
from waypost.transports.port import (
    UNKNOWN_SENDER,
    MessageContext,
    MessageHandler,
    MessageSender,
    QueryHandler,
    TransportClock,
)
from waypost.transports.responses import QueryResponses
from waypost.transports.subscriptions import Subscriptions


class _LocalAgent(NamedTuple):
    message: JsonObject
    until: float
    capabilities: dict[str, str] | None  # read once, not for every question; None: they cannot be read


class LocalAgents:
    def __init__(self) -> None:
        self._announced: dict[str, _LocalAgent] = {}

    def put(self, message: JsonObject, ttl: int, now: float) -> float:
        """Until when it holds. A goodbye is announced like anything else, and leaves nothing."""
        agent_id = agent_id_of(message)
        if agent_id not in self._announced and len(self._announced) >= limits.LOCAL_AGENTS:
            self._sweep(now)
        if agent_id not in self._announced and len(self._announced) >= limits.LOCAL_AGENTS:
            raise QuotaExceeded(
                f"{limits.LOCAL_AGENTS} agents are announced here.", path="$.agent", hint="Use a registry for more."
            )
        if is_goodbye(message):
            self._announced.pop(agent_id, None)
        else:
            self._announced[agent_id] = _LocalAgent(message, now + ttl, _capabilities(message))
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

    def _asked_for(self, query: AgentQuery) -> Iterable[tuple[str, _LocalAgent]]:
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


# ---- One end of a carrier of whole messages (UDP, the network in memory): what to do with each that comes in.
#
# It knows who announced what here, who asked what, who serves. It sends nothing: replies are returned, and the shell around it
# knows where they go.

log = logging.getLogger("waypost.transports")


class Dispatcher:
    def __init__(
        self, name: str, clock: TransportClock, random: randomness.Random, directory: AgentDirectory | None = None
    ) -> None:
        self.name = name
        self.own = LocalAgents()
        self.listening = Subscriptions(AgentDirectory(name) if directory is None else directory, clock)
        self.echoed_at: float | None = None
        self._clock = clock
        self._random = random
        self._negotiation = VersionNegotiation()
        self._answer: QueryHandler | None = None
        self._heard: MessageHandler | None = None
        self._asked: dict[str, tuple[QueryResponses, asyncio.Event]] = {}

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        self._answer, self._heard = answer, heard

    # --- Asking ----------------------------------------------------------------------------------

    def ask(self, query: AgentQuery) -> AgentQuery:
        """The query with an id by which its answers are known. `collect` must follow."""
        if len(self._asked) >= limits.PENDING_QUERIES:
            raise RateLimited(
                f"{limits.PENDING_QUERIES} queries wait for answers.", hint="Wait for some of them.", retry_after=5
            )
        asked = msgspec.structs.replace(query, query_id=query.query_id or f"{self._random.getrandbits(64):016x}")
        self._asked[str(asked.query_id)] = (QueryResponses(query), asyncio.Event())
        return asked

    async def collect(self, asked: AgentQuery, seconds: float) -> list[JsonObject]:
        """What comes back within the time; a question for one agent ends with its answer."""
        answers, arrived = self._asked[str(asked.query_id)]
        try:
            async with asyncio.timeout(seconds):
                await (arrived.wait() if asked.agent_id is not None else asyncio.Event().wait())
        except TimeoutError:
            pass
        finally:
            self._asked.pop(str(asked.query_id), None)
        return answers.found()

    # --- Hearing ---------------------------------------------------------------------------------

    async def receive(
        self, message: JsonObject, source: str, sender: MessageSender = UNKNOWN_SENDER
    ) -> list[JsonObject]:
        """What goes back to the source alone. What is wrong with a message ends with it."""
        try:
            return await self.take(message, source, sender)
        except WaypostError as error:
            log.debug("%s: a message of %s came to nothing: %s", self.name, source, error)
            return []

    async def take(self, message: JsonObject, source: str, sender: MessageSender = UNKNOWN_SENDER) -> list[JsonObject]:
        """As `receive`, and what is wrong with the message is raised."""
        kind = kind_of_message(message)
        now = self._clock.now()
        reading = self._negotiation.read(source, message.get("protocol_version"), now)
        if not reading.process:
            own = self.own.first(now) if reading.answer else None
            return [own] if own is not None else []
        if reading.warn:
            log.warning("%s: %s speaks %s", self.name, source, message["protocol_version"])
        if kind == "query":
            return await self.answers_to(parse_query(message))
        if kind == "response":
            self._take_response(message, source)
            return []
        return await self._take_announce(message, MessageContext(transport=self.name, source=source, sender=sender))

    async def answers_to(self, query: AgentQuery) -> list[JsonObject]:
        """Responses: of own agents, and of those that whoever serves here knows of."""
        found = QueryResponses(query)
        for message in self.own.matching(query, self._clock.now()):
            found.take(message)
        if self._answer is not None:
            for message in await self._answer(query):
                found.take(message)
        return [build_response(message, query.query_id) for message in found.found()]

    def _take_response(self, message: JsonObject, source: str) -> None:
        asked = self._asked.get(str(message.get("query_id")))
        if asked is not None:
            answers, arrived = asked
            with suppress(WaypostError):
                if answers.take(message, self.listening.directory.pin_of(agent_id_of(message))):
                    arrived.set()
        if message.get("matched") is not False:
            self.listening.hear(message, source)

    async def _take_announce(self, message: JsonObject, how: MessageContext) -> list[JsonObject]:
        is_own = self.own.holds(message)
        if is_own:
            self.echoed_at = self._clock.now()
        if self.listening.hear(message, how.source, ttl_of(message)):
            how.sender.believe()
        if is_own or self._heard is None:
            return []
        reply = await self._heard(message, how)
        how.sender.believe()
        return [reply] if reply is not None else []
