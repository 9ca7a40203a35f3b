"""One end of a carrier of whole messages (UDP, the network in memory): what to do with each that comes in.

It knows who announced what here, who asked what, who serves. It sends nothing: replies are returned, and the shell around it
knows where they go.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from contextlib import suppress

import msgspec

from waypost import limits
from waypost.errors import RateLimited, WaypostError
from waypost.model.json import JsonObject
from waypost.transports.answers import Answers
from waypost.transports.directory import Directory, agent_id_of, ttl_of
from waypost.transports.listening import Listening
from waypost.transports.own import Own
from waypost.transports.port import ANYBODY, Answer, Clock, Hear, Heard, Sender
from waypost.wire.announce import AgentQuery, kind_of_message, parse_query, response_message
from waypost.wire.announce_negotiation import Negotiation

log = logging.getLogger("waypost.transports")


class Station:
    def __init__(self, name: str, clock: Clock, random: randomness.Random, directory: Directory | None = None) -> None:
        self.name = name
        self.own = Own()
        self.listening = Listening(Directory(name) if directory is None else directory, clock)
        self.echoed_at: float | None = None
        self._clock = clock
        self._random = random
        self._negotiation = Negotiation()
        self._answer: Answer | None = None
        self._heard: Hear | None = None
        self._asked: dict[str, tuple[Answers, asyncio.Event]] = {}

    def serve(self, answer: Answer | None, heard: Hear | None) -> None:
        self._answer, self._heard = answer, heard

    # --- Asking ----------------------------------------------------------------------------------

    def ask(self, query: AgentQuery) -> AgentQuery:
        """The query with an id by which its answers are known. `collect` must follow."""
        if len(self._asked) >= limits.QUERIES_AT_ONCE:
            raise RateLimited(
                f"{limits.QUERIES_AT_ONCE} queries wait for answers.", hint="Wait for some of them.", retry_after=5
            )
        asked = msgspec.structs.replace(query, query_id=query.query_id or f"{self._random.getrandbits(64):016x}")
        self._asked[str(asked.query_id)] = (Answers(query), asyncio.Event())
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

    async def receive(self, message: JsonObject, source: str, sender: Sender = ANYBODY) -> list[JsonObject]:
        """What goes back to the source alone. What is wrong with a message ends with it."""
        try:
            return await self.take(message, source, sender)
        except WaypostError as error:
            log.debug("%s: a message of %s came to nothing: %s", self.name, source, error)
            return []

    async def take(self, message: JsonObject, source: str, sender: Sender = ANYBODY) -> list[JsonObject]:
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
        return await self._take_announce(message, Heard(transport=self.name, source=source, sender=sender))

    async def answers_to(self, query: AgentQuery) -> list[JsonObject]:
        """Responses: of own agents, and of those that whoever serves here knows of."""
        found = Answers(query)
        for message in self.own.matching(query, self._clock.now()):
            found.take(message)
        if self._answer is not None:
            for message in await self._answer(query):
                found.take(message)
        return [response_message(message, query.query_id) for message in found.found()]

    def _take_response(self, message: JsonObject, source: str) -> None:
        asked = self._asked.get(str(message.get("query_id")))
        if asked is not None:
            answers, arrived = asked
            with suppress(WaypostError):
                if answers.take(message, self.listening.directory.pin_of(agent_id_of(message))):
                    arrived.set()
        if message.get("matched") is not False:
            self.listening.hear(message, source)

    async def _take_announce(self, message: JsonObject, how: Heard) -> list[JsonObject]:
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
