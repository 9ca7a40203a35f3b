"""Asking peers at query time: only those that an admin allowed, and only for searches that want it.

All peers are asked at once and share one budget; the answer has what is there by then. A peer that keeps failing is not asked
for a while (a circuit breaker, kept in the store). What peers find is decoded and judged here; their scores are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.backoff import backoff_seconds
from waypost.federation.copies import ParkedRecord, decode_copy
from waypost.federation.feed import Feed, ServiceName
from waypost.federation.kinds.port import PeerProblem, Question
from waypost.federation.kinds.table import PeerKinds
from waypost.federation.peers import Breaker, Peer, PeerStore
from waypost.model.principal import PUBLIC, Principal, may_see
from waypost.model.query import Query
from waypost.model.registration import Registration
from waypost.registry.registry import Registry
from waypost.responses.federation import FeedEntry
from waypost.time_slice import TimeSlice

_TIMED_OUT = "It did not answer in time."


class PeerAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What peers found. `warnings` name those that did not answer."""

    registrations: tuple[Registration, ...] = ()
    warnings: tuple[str, ...] = ()


class Asker:
    def __init__(self, registry: Registry, store: PeerStore, kinds: PeerKinds, feed: Feed) -> None:
        self._registry = registry
        self._store = store
        self._kinds = kinds
        self._feed = feed
        self._running = 0
        self._trials: set[str] = set()  # peers with an open breaker that are tried again just now
        self._saves: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        await asyncio.gather(*self._saves, return_exceptions=True)

    async def ask_query(
        self, query: Query, principal: Principal, *, path: Sequence[str] = (), seconds: float | None = None
    ) -> PeerAnswers:
        """`path` are the ids of the registries that the search came through; `seconds` is what the caller has left."""
        if query.federation != "auto":
            return PeerAnswers()
        question = Question(
            text=query.text,
            limit=min(query.limit, limits.ASK_CANDIDATES),
            required_tags=query.required_tags,
            preferred_tags=query.preferred_tags,
            excluded_tags=query.excluded_tags,
            protocols=query.protocols,
            statuses=query.statuses,
        )
        return await self.ask(question, principal, path=path, seconds=seconds)

    async def ask(
        self, question: Question, principal: Principal, *, path: Sequence[str] = (), seconds: float | None = None
    ) -> PeerAnswers:
        own = await self._feed.service_name()
        if own.id in path or len(path) >= limits.PEER_HOPS:
            return PeerAnswers()  # a ring: this registry answers with its own agents
        chosen, warnings = self._choose()
        if not chosen:
            return PeerAnswers(warnings=tuple(warnings))
        if self._running >= limits.ASK_CONCURRENCY:
            return PeerAnswers(warnings=("Too many searches ask other registries: none was asked.",))
        self._running += 1
        try:
            question = msgspec.structs.replace(question, path=(*path, own.id))
            budget = limits.ASK_SECONDS if seconds is None else min(limits.ASK_SECONDS, seconds)
            found, failed = await self._ask_all(chosen, question, budget)
        finally:
            self._running -= 1
        registrations = await self._judge(found, own, principal)
        return PeerAnswers(registrations=registrations, warnings=(*warnings, *failed))

    # --- Whom to ask -----------------------------------------------------------------------------

    def _choose(self) -> tuple[list[Peer], list[str]]:
        """The peers to ask, and warnings about others."""
        now = self._registry.clock.now()
        asked = [peer for peer in self._store.peers() if peer.ask and not peer.paused]
        ready = [peer for peer in asked if self._is_ready(peer.name, now)]
        warnings = [f"{peer.name} failed a moment ago and was not asked." for peer in asked if peer not in ready]
        left_out = ready[limits.ASK_PEERS :]
        if left_out:
            warnings.append(f"{len(left_out)} registries were not asked: at most {limits.ASK_PEERS} are.")
        return ready[: limits.ASK_PEERS], warnings

    def _is_ready(self, name: str, now: float) -> bool:
        breaker = self._store.breaker(name)
        return breaker.state(now) == "closed" or (breaker.open_until <= now and name not in self._trials)

    # --- Asking ----------------------------------------------------------------------------------

    async def _ask_all(
        self, chosen: Sequence[Peer], question: Question, budget: float
    ) -> tuple[list[tuple[Peer, Sequence[FeedEntry]]], list[str]]:
        tasks = {asyncio.create_task(self._kinds.searches[peer.kind].ask(peer, question)): peer for peer in chosen}
        self._trials.update(peer.name for peer in chosen)
        try:
            await asyncio.wait(tasks, timeout=budget)
        finally:
            self._trials.difference_update(peer.name for peer in chosen)
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        found, warnings = [], []
        for task, peer in tasks.items():
            if task.cancelled():
                self._fail(peer, _TIMED_OUT)
                warnings.append(f"{peer.name} did not answer within {budget:.3g} s.")
            elif (problem := task.exception()) is None:
                self._succeed(peer)
                found.append((peer, task.result()))
            elif isinstance(problem, PeerProblem):
                self._fail(peer, str(problem))
                warnings.append(f"{peer.name} could not be asked.")  # the reason is for admins
            else:
                raise problem
        return found, warnings

    def _fail(self, peer: Peer, reason: str) -> None:
        before, now = self._store.breaker(peer.name), self._registry.clock.now()
        failures = before.failures + 1
        is_open = failures >= limits.ASK_FAILURES
        open_until = now + backoff_seconds(failures - limits.ASK_FAILURES + 1) if is_open else 0.0
        self._save(peer.name, Breaker(failures=failures, open_until=open_until, error=reason[:200]))

    def _succeed(self, peer: Peer) -> None:
        if self._store.breaker(peer.name) != Breaker():
            self._save(peer.name, Breaker())

    def _save(self, name: str, breaker: Breaker) -> None:
        """In the background: a search does not wait for it."""
        self._store.set_breaker(name, breaker)
        task = asyncio.create_task(self._store.save_breaker(name), name=f"breaker of {name}")
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)

    # --- Judging ---------------------------------------------------------------------------------

    async def _judge(
        self, found: Sequence[tuple[Peer, Sequence[FeedEntry]]], own: ServiceName, principal: Principal
    ) -> tuple[Registration, ...]:
        """What may be shown: one record for each agent, that of its origin first. A record that cannot be read, that policy
        refuses, or that the caller sees here, is left out."""
        chosen: dict[str, Registration] = {}
        time_slice = TimeSlice(limits.PEER_SLICE_SECONDS)
        for peer, entries in found:
            for entry in entries:
                await time_slice.step()
                origin = entry.origin
                if origin is None or own.url in (origin.service, *origin.via) or self._is_known(entry.id, principal):
                    continue
                try:
                    copy = decode_copy(peer, entry, own, self._registry.clock, PUBLIC)
                    registration = await self._registry.judge(copy)
                except (ParkedRecord, WaypostError):
                    continue
                if not any(self._is_known(name, principal) for name in registration.aliases):
                    held = chosen.get(registration.id)
                    chosen[registration.id] = registration if held is None else _better(registration, held)
        return tuple(chosen.values())

    def _is_known(self, name: str, principal: Principal) -> bool:
        """Whether the caller sees such an agent here. A hidden one does not count, or the result would reveal it."""
        entry = self._registry.entries.find_named(name)
        return entry is not None and may_see(principal, entry.scopes)


def _better(one: Registration, other: Registration) -> Registration:
    first, second = one.federation, other.federation
    if first is None or second is None:
        return other
    return one if (len(first.path), -first.revision) < (len(second.path), -second.revision) else other
