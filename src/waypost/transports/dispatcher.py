"""One endpoint of a transport that carries whole messages (UDP, bus, memory): what to do with each received message.

It knows the agents that were announced here, the pending queries and the handlers. It sends nothing itself: replies are
returned, and the transport knows where to send them.
"""

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
from waypost.transports.directory import AgentDirectory, Subscriptions, agent_id_of, is_goodbye, ttl_of
from waypost.transports.port import (
    UNKNOWN_SENDER,
    MessageContext,
    MessageHandler,
    MessageSender,
    QueryHandler,
    TransportClock,
)
from waypost.transports.responses import QueryResponses

log = logging.getLogger("waypost.transports")


class _LocalAgent(NamedTuple):
    message: JsonObject
    expires_at: float
    capabilities: dict[str, str] | None  # parsed once, not for every query; None if malformed


class LocalAgents:
    """The agents that were announced here: the transport answers queries for them."""

    def __init__(self) -> None:
        self._agents: dict[str, _LocalAgent] = {}

    def put(self, message: JsonObject, ttl: int, now: float) -> float:
        """Returns the expiry. A goodbye is announced like any message, and removes the agent."""
        agent_id = agent_id_of(message)
        if agent_id not in self._agents and len(self._agents) >= limits.LOCAL_AGENTS:
            self._sweep(now)
        if agent_id not in self._agents and len(self._agents) >= limits.LOCAL_AGENTS:
            raise QuotaExceeded(
                f"The limit of {limits.LOCAL_AGENTS} announced agents is reached.",
                path="$.agent",
                hint="Use a registry for more.",
            )
        if is_goodbye(message):
            self._agents.pop(agent_id, None)
        else:
            self._agents[agent_id] = _LocalAgent(message, now + ttl, _find_capabilities(message))
        return now + ttl

    def remove(self, agent_id: str) -> None:
        self._agents.pop(agent_id.lower(), None)

    def find(self, agent_id: str, now: float) -> JsonObject | None:
        agent = self._agents.get(agent_id)
        return agent.message if agent is not None and now < agent.expires_at else None

    def matching(self, query: AgentQuery, now: float) -> list[JsonObject]:
        """Messages with their remaining ttl."""
        return [
            {**agent.message, "ttl": max(1, int(agent.expires_at - now))}
            for agent_id, agent in self._candidates(query)
            if now < agent.expires_at and agent.capabilities is not None and query.matches(agent_id, agent.capabilities)
        ]

    def _candidates(self, query: AgentQuery) -> Iterable[tuple[str, _LocalAgent]]:
        if query.agent_id is None:
            return self._agents.items()
        agent_id = query.agent_id.lower()
        agent = self._agents.get(agent_id)
        return () if agent is None else ((agent_id, agent),)

    def first(self, now: float) -> JsonObject | None:
        """Any message, to show which protocol version is spoken here."""
        return next((agent.message for agent in self._agents.values() if now < agent.expires_at), None)

    def contains(self, message: JsonObject) -> bool:
        """Whether the message is an echo of an own announcement."""
        agent = self._agents.get(agent_id_of(message))
        return agent is not None and agent.message["agent"] == message["agent"]

    def _sweep(self, now: float) -> None:
        self._agents = {agent_id: agent for agent_id, agent in self._agents.items() if now < agent.expires_at}


def _find_capabilities(message: JsonObject) -> dict[str, str] | None:
    try:
        return read_capabilities(message["agent"], "$.agent")
    except WaypostError:
        return None


class Dispatcher:
    def __init__(
        self, name: str, clock: TransportClock, random: randomness.Random, directory: AgentDirectory | None = None
    ) -> None:
        self.name = name
        self.local_agents = LocalAgents()
        self.subscriptions = Subscriptions(AgentDirectory(name) if directory is None else directory, clock)
        self.echoed_at: float | None = None
        self._clock = clock
        self._random = random
        self._negotiation = VersionNegotiation()
        self._on_query: QueryHandler | None = None
        self._on_message: MessageHandler | None = None
        self._pending: dict[str, tuple[QueryResponses, asyncio.Event]] = {}

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        self._on_query, self._on_message = on_query, on_message

    def begin_query(self, query: AgentQuery) -> AgentQuery:
        """Returns the query with an id for its responses. `collect` must follow."""
        if len(self._pending) >= limits.PENDING_QUERIES:
            raise RateLimited(
                f"The limit of {limits.PENDING_QUERIES} concurrent queries is reached.",
                hint="Try again.",
                retry_after=5,
            )
        sent = msgspec.structs.replace(query, query_id=query.query_id or f"{self._random.getrandbits(64):016x}")
        self._pending[str(sent.query_id)] = (QueryResponses(query), asyncio.Event())
        return sent

    async def collect(self, query: AgentQuery, seconds: float) -> list[JsonObject]:
        """The responses within the time. A query for one agent ends with its response."""
        responses, arrived = self._pending[str(query.query_id)]
        try:
            async with asyncio.timeout(seconds):
                await (arrived.wait() if query.agent_id is not None else asyncio.Event().wait())
        except TimeoutError:
            pass
        finally:
            self._pending.pop(str(query.query_id), None)
        return responses.messages()

    async def receive(
        self, message: JsonObject, source: str, sender: MessageSender = UNKNOWN_SENDER
    ) -> list[JsonObject]:
        """Like `handle`, but logs a rejection instead of raising it."""
        try:
            return await self.handle(message, source, sender)
        except WaypostError as error:
            log.debug("%s: message of %s rejected: %s", self.name, source, error)
            return []

    async def handle(
        self, message: JsonObject, source: str, sender: MessageSender = UNKNOWN_SENDER
    ) -> list[JsonObject]:
        """Process a message; returns the replies to its source."""
        kind = kind_of_message(message)
        now = self._clock.now()
        version = self._negotiation.read(source, message.get("protocol_version"), now)
        if not version.process:
            own = self.local_agents.first(now) if version.answer else None
            return [own] if own is not None else []
        if version.warn:
            log.warning("%s: %s uses protocol version %s", self.name, source, message["protocol_version"])
        if kind == "query":
            return await self.respond(parse_query(message))
        if kind == "response":
            self._handle_response(message, source)
            return []
        return await self._handle_announce(message, MessageContext(transport=self.name, source=source, sender=sender))

    async def respond(self, query: AgentQuery) -> list[JsonObject]:
        """Responses for the local agents and those that the query handler returns."""
        responses = QueryResponses(query)
        for message in self.local_agents.matching(query, self._clock.now()):
            responses.add(message)
        if self._on_query is not None:
            for message in await self._on_query(query):
                responses.add(message)
        return [build_response(message, query.query_id) for message in responses.messages()]

    def _handle_response(self, message: JsonObject, source: str) -> None:
        pending = self._pending.get(str(message.get("query_id")))
        if pending is not None:
            responses, arrived = pending
            with suppress(WaypostError):
                if responses.add(message, self.subscriptions.directory.find_pin(agent_id_of(message))):
                    arrived.set()
        if message.get("matched") is not False:
            self.subscriptions.receive(message, source)

    async def _handle_announce(self, message: JsonObject, context: MessageContext) -> list[JsonObject]:
        is_echo = self.local_agents.contains(message)
        if is_echo:
            self.echoed_at = self._clock.now()
        if self.subscriptions.receive(message, context.source, ttl_of(message)):
            context.sender.mark_known()
        if is_echo or self._on_message is None:
            return []
        reply = await self._on_message(message, context)
        context.sender.mark_known()
        return [reply] if reply is not None else []
