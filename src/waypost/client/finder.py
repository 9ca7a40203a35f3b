"""`Finder`: queries all transports and registries, and merges their answers by agent.

Answers are verified like announcements: once a key is bound to an agent_id, only that key counts; the first key of a new
agent is bound. Results are cached for five minutes or their ttl, empty results for five seconds (P-31).
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
from waypost.client.clock import WallClock
from waypost.client.default_transports import default_transports
from waypost.client.identity import TrustFile
from waypost.errors import Unavailable, WaypostError
from waypost.model.json import JsonObject
from waypost.model.verdict import Verdict
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.settings import load_settings
from waypost.transports.directory import FIRST_USE, admission_request, agent_id_of, sequence_of, ttl_of
from waypost.transports.port import QUERY_SECONDS, ReceivesEchoes, Transport, TransportClock
from waypost.transports.responses import ResponseCache, matches_query
from waypost.trust.announce.admission import admit

log = logging.getLogger("waypost.finder")


class FoundAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, by its newest accepted message.

    Example:
        print(agent.agent["agent_name"], agent.trust, agent.transports)
    """

    agent_id: str
    agent: JsonObject
    message: JsonObject  # the Announce or Response, with its signature
    transports: tuple[str, ...]  # where it was found
    trust: Literal["verified", "signed", "unsigned"]  # `signed`: by a key that was bound on first use
    verdicts: tuple[Verdict, ...] = ()
    is_stale: bool = False


class _TransportAnswer(msgspec.Struct, frozen=True):
    message: JsonObject
    transport: str
    is_lan: bool


class Finder:
    """Finds agents on transports. Use it with `async with`.

    Example:
        async with Finder() as finder:
            for agent in await finder.find():
                print(agent.agent_id, agent.trust)
    """

    def __init__(
        self,
        transports: Sequence[Transport] | None = None,
        *,
        trust: Path | None = None,
        clock: TransportClock | None = None,
    ) -> None:
        """Prepare to find agents.

        Args:
            transports: Where to look. Default: mDNS, if the extra `lan` is installed, and the registry that the command would
                use.
            trust: A file with the keys of agents. Without one, keys are bound as long as the Finder exists.
            clock: The clock.
        """
        self._transports = default_transports(load_settings().data) if transports is None else transports
        self._clock = clock or WallClock()
        self._trust = TrustFile(trust)
        self._responses = ResponseCache()
        self._found: dict[str, FoundAgent] = {}
        self._open: list[Transport] = []

    def __repr__(self) -> str:
        told = ", ".join(transport.name for transport in self._transports)
        return f"<Finder {told or 'no transport'}: {len(self._found)} found>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Open the transports. Those that fail are left out; raises if all fail.

        Example:
            finder = Finder()
            await finder.open()
            print(await finder.find())
            await finder.aclose()
        """
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
        """Close the transports.

        Example:
            finder = Finder()
            await finder.open()
            await finder.aclose()
        """
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
        """Agents that have all the capabilities.

        Args:
            *capabilities: Capabilities, such as `metrics` or `metrics@^2.0`.
            agent_id: Find only this agent.
            seconds: How long to wait for answers.
            stale_ok: Return expired results, marked as stale, if no transport can be queried.

        Example:
            async with Finder() as finder:
                for agent in await finder.find("metrics@^2.0", seconds=3):
                    print(agent.agent_id, agent.trust)
        """
        requirements = tuple(map(parse_capability_requirement, capabilities))
        query = AgentQuery(requirements=requirements, agent_id=None if agent_id is None else agent_id.lower())
        now = self._clock.now()
        cached = self._responses.find(query, now)
        if cached is not None:
            return [self._found[agent_id_of(message)] for message in cached]
        try:
            answers = await self._query_all(query, seconds)
        except Unavailable:
            stale = self._responses.find_stale(query) if stale_ok else []
            if not stale:
                raise
            return [msgspec.structs.replace(self._found[agent_id_of(message)], is_stale=True) for message in stale]
        found = self._merge(query, answers)
        self._responses.put(query, [(each.message, ttl_of(each.message)) for each in found], now)
        return found

    def forget(self, agent_id: str) -> None:
        """Remove an agent from the cache, because it was removed or revoked.

        Args:
            agent_id: The agent.

        Example:
            async with Finder() as finder:
                for agent in await finder.find():
                    finder.forget(agent.agent_id)
        """
        self._responses.remove_agent(agent_id)

    # --- Queries ---------------------------------------------------------------------------------

    async def _query_all(self, query: AgentQuery, seconds: float) -> list[_TransportAnswer]:
        results = await asyncio.gather(*(self._query_one(transport, query, seconds) for transport in self._open))
        if results and all(isinstance(result, WaypostError) for result in results):
            reason = next(result.message for result in results if isinstance(result, WaypostError))
            raise Unavailable(f"No transport could be queried: {reason}", hint="Name another transport or registry.")
        return [answer for result in results if isinstance(result, list) for answer in result]

    async def _query_one(
        self, transport: Transport, query: AgentQuery, seconds: float
    ) -> list[_TransportAnswer] | WaypostError:
        try:
            found = await transport.query(query, seconds)
        except WaypostError as error:
            log.warning("%s: %s", transport.name, error)
            return error
        return [_TransportAnswer(message, transport.name, isinstance(transport, ReceivesEchoes)) for message in found]

    # --- Answers ---------------------------------------------------------------------------------

    def _merge(self, query: AgentQuery, answers: Iterable[_TransportAnswer]) -> list[FoundAgent]:
        by_agent: dict[str, list[_TransportAnswer]] = {}
        for answer in answers:
            if matches_query(query, answer.message):
                by_agent.setdefault(agent_id_of(answer.message), []).append(answer)
        found: list[FoundAgent] = []
        is_bound = False
        for agent_id, group in by_agent.items():
            agent, has_new_key = self._choose(agent_id, sorted(group, key=lambda each: -sequence_of(each.message)))
            is_bound |= has_new_key
            if agent is not None:
                self._remember(agent)
                found.append(agent)
        if is_bound:
            self._trust.save()
        return found

    def _choose(self, agent_id: str, answers: list[_TransportAnswer]) -> tuple[FoundAgent | None, bool]:
        """The newest accepted answer, signed ones first, and whether a key was bound."""
        transports = tuple(dict.fromkeys(answer.transport for answer in answers))
        for answer in answers:
            if answer.message.get("signature") is None:
                continue
            try:
                verdicts, is_bound = self._verify(agent_id, answer)
            except WaypostError as error:
                log.debug("%s from %s is not accepted: %s", agent_id, answer.transport, error)
                continue
            return self._make_found(agent_id, answer, transports, verdicts), is_bound
        for answer in answers:
            if answer.message.get("signature") is None and not answer.is_lan and self._trust.pin_of(agent_id) is None:
                return self._make_found(agent_id, answer, transports, ()), False
        return None, False

    def _verify(self, agent_id: str, answer: _TransportAnswer) -> tuple[tuple[Verdict, ...], bool]:
        """Verify an answer like an announcement. A registry checked its age on arrival; on a LAN it is checked here."""
        request = admission_request(agent_id, answer.message)
        now = self._clock.now()
        if not answer.is_lan and request.stamp.iat is not None:
            now = min(now, request.stamp.iat + limits.ANNOUNCE_PAST_SECONDS)
        terms = msgspec.structs.replace(FIRST_USE, authenticated=not answer.is_lan)
        admitted = admit(request, self._trust.pin_of(agent_id), terms, now)
        return admitted.verdicts, admitted.pin is not None and self._trust.bind(admitted.pin)

    def _make_found(
        self, agent_id: str, answer: _TransportAnswer, transports: tuple[str, ...], verdicts: tuple[Verdict, ...]
    ) -> FoundAgent:
        return FoundAgent(
            agent_id=agent_id,
            agent=answer.message["agent"],
            message=answer.message,
            transports=transports,
            trust=self._trust_of(agent_id, verdicts),
            verdicts=verdicts,
        )

    def _trust_of(self, agent_id: str, verdicts: tuple[Verdict, ...]) -> Literal["verified", "signed", "unsigned"]:
        """A key that was bound on first use proves continuity, not identity."""
        if not verdicts:
            return "unsigned"
        pin = self._trust.pin_of(agent_id)
        return "verified" if pin is not None and pin.provisioned else "signed"

    def _remember(self, found: FoundAgent) -> None:
        if len(self._found) > 2 * limits.QUERY_CACHE * limits.ANSWERS_PER_QUERY:
            self._found.clear()
        self._found[found.agent_id] = found
