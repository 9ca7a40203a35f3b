"""`Finder`: one question to every transport and every registry, and one answer for each agent.

Answers are verified as announcements are: a key that is bound to an agent_id is the only one that counts, the first key of a
new one is bound. What was found may be given again for five minutes or its ttl, and that nothing was, for five seconds (P-31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from waypost import limits
from waypost.client.announcer import WallClock
from waypost.client.identity import TrustFile
from waypost.errors import Unavailable, WaypostError
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.transports.directory import FIRST_USE, admission_request, agent_id_of, sequence_of, ttl_of
from waypost.transports.port import QUERY_SECONDS, ReceivesEchoes, Transport, TransportClock
from waypost.transports.responses import ResponseCache, matches_query
from waypost.trust.announce.admission import admit

log = logging.getLogger("waypost.finder")


class FoundAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, by the newest of its words that are believed."""

    agent_id: str
    agent: JsonObject
    message: JsonObject  # the Announce or Response, with its signature
    transports: tuple[str, ...]  # where it was found
    trust: Literal["verified", "signed", "unsigned"]  # `signed`: by the key that was seen first
    verdicts: tuple[Verdict, ...] = ()
    is_stale: bool = False


class _TransportAnswer(msgspec.Struct, frozen=True):
    message: JsonObject
    transport: str
    is_lan: bool


class Finder:
    def __init__(
        self, transports: Sequence[Transport], *, trust: Path | None = None, clock: TransportClock | None = None
    ) -> None:
        """`trust`: a file in which the keys of agents are bound; without it they are bound while the Finder lives."""
        self._transports = transports
        self._clock = clock or WallClock()
        self._trust = TrustFile(trust)
        self._memory = ResponseCache()
        self._where: dict[str, FoundAgent] = {}
        self._open: list[Transport] = []

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Whatever cannot be opened is left out; with nothing left, that is the error."""
        failures: list[WaypostError] = []
        for transport in self._transports:
            try:
                await transport.open()
                self._open.append(transport)
            except WaypostError as error:
                log.warning("%s: %s", transport.name, error)
                failures.append(error)
        if failures and not self._open:
            raise failures[0]

    async def aclose(self) -> None:
        for transport in self._open:
            await transport.close()
        self._open.clear()

    async def find(
        self,
        *capabilities: str,
        agent_id: str | None = None,
        seconds: float = QUERY_SECONDS,
        stale_ok: bool = False,
    ) -> list[FoundAgent]:
        """Agents that have all these capabilities (`metrics`, `metrics@^2.0`). With `stale_ok`, what was known once is
        given where nobody can be asked, and marked so."""
        wanted = tuple(map(parse_capability_requirement, capabilities))
        query = AgentQuery(requirements=wanted, agent_id=None if agent_id is None else agent_id.lower())
        now = self._clock.now()
        known = self._memory.find(query, now)
        if known is not None:
            return [self._where[agent_id_of(message)] for message in known]
        try:
            answers = await self._ask(query, seconds)
        except Unavailable:
            stale = self._memory.find_stale(query) if stale_ok else []
            if not stale:
                raise
            return [msgspec.structs.replace(self._where[agent_id_of(message)], is_stale=True) for message in stale]
        found = self._merge(query, answers)
        self._memory.put(query, [(each.message, ttl_of(each.message)) for each in found], now)
        return found

    def forget(self, agent_id: str) -> None:
        """It was removed or revoked: it is asked for again."""
        self._memory.remove_agent(agent_id)

    # --- Asking ----------------------------------------------------------------------------------

    async def _ask(self, query: AgentQuery, seconds: float) -> list[_TransportAnswer]:
        asked = [self._ask_one(transport, query, seconds) for transport in self._open]
        told = await asyncio.gather(*asked)
        if told and all(isinstance(each, WaypostError) for each in told):
            reason = next(each.message for each in told if isinstance(each, WaypostError))
            raise Unavailable(f"Nobody could be asked: {reason}", hint="Name another transport or registry.")
        return [answer for each in told if isinstance(each, list) for answer in each]

    async def _ask_one(
        self, transport: Transport, query: AgentQuery, seconds: float
    ) -> list[_TransportAnswer] | WaypostError:
        try:
            found = await transport.query(query, seconds)
        except WaypostError as error:
            log.warning("%s: %s", transport.name, error)
            return error
        return [_TransportAnswer(message, transport.name, isinstance(transport, ReceivesEchoes)) for message in found]

    # --- Merging ---------------------------------------------------------------------------------

    def _merge(self, query: AgentQuery, answers: Iterable[_TransportAnswer]) -> list[FoundAgent]:
        by_agent: dict[str, list[_TransportAnswer]] = {}
        for answer in answers:
            if matches_query(query, answer.message):
                by_agent.setdefault(agent_id_of(answer.message), []).append(answer)
        found: list[FoundAgent] = []
        changed = False
        for agent_id, told in by_agent.items():
            best, bound = self._choose(agent_id, sorted(told, key=lambda each: -sequence_of(each.message)))
            changed |= bound
            if best is not None:
                self._remember(best)
                found.append(best)
        if changed:
            self._trust.keep()
        return found

    def _choose(self, agent_id: str, told: list[_TransportAnswer]) -> tuple[FoundAgent | None, bool]:
        """The newest that is believed; signed words before any others. And whether a key was bound."""
        where = tuple(dict.fromkeys(answer.transport for answer in told))
        for answer in told:
            if answer.message.get("signature") is None:
                continue
            try:
                verdicts, bound = self._verify(agent_id, answer)
            except WaypostError as error:
                log.debug("%s of %s is not believed: %s", agent_id, answer.transport, error)
                continue
            return self._found(agent_id, answer, where, verdicts), bound
        for answer in told:
            if answer.message.get("signature") is None and not answer.is_lan and self._trust.pin_of(agent_id) is None:
                return self._found(agent_id, answer, where, ()), False
        return None, False

    def _verify(self, agent_id: str, answer: _TransportAnswer) -> tuple[tuple[Verdict, ...], bool]:
        """As an announcement. A registry looked at its age when it came; on a LAN that is for us to do."""
        said = admission_request(agent_id, answer.message)
        now = self._clock.now()
        if not answer.is_lan and said.stamp.iat is not None:
            now = min(now, said.stamp.iat + limits.ANNOUNCE_PAST_SECONDS)
        terms = msgspec.structs.replace(FIRST_USE, authenticated=not answer.is_lan)
        admitted = admit(said, self._trust.pin_of(agent_id), terms, now)
        return admitted.verdicts, admitted.pin is not None and self._trust.bind(admitted.pin)

    def _found(
        self, agent_id: str, answer: _TransportAnswer, where: tuple[str, ...], verdicts: tuple[Verdict, ...]
    ) -> FoundAgent:
        return FoundAgent(
            agent_id=agent_id,
            agent=answer.message["agent"],
            message=answer.message,
            transports=where,
            trust=self._trust_of(agent_id, verdicts),
            verdicts=verdicts,
        )

    def _trust_of(self, agent_id: str, verdicts: tuple[Verdict, ...]) -> Literal["verified", "signed", "unsigned"]:
        """A key that was only seen first is nobody's word for whose it is."""
        if not verdicts:
            return "unsigned"
        pin = self._trust.pin_of(agent_id)
        return "verified" if pin is not None and pin.provisioned else "signed"

    def _remember(self, found: FoundAgent) -> None:
        if len(self._where) > 2 * limits.QUERY_CACHE * limits.ANSWERS_PER_QUERY:
            self._where.clear()
        self._where[found.agent_id] = found
