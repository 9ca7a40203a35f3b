"""Subscribers and what they are told: a directory that is fed, a sweep that ends what was not heard of again.

A callback is called by the event loop, one call for each sighting: it may do what it likes with the transport, and a fault
of one callback reaches nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.json import JsonObject
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.directory import AgentDirectory, ttl_of
from waypost.transports.port import Sighting, SightingCallback, TransportClock

log = logging.getLogger("waypost.transports")


class Subscriber:
    """One callback and what it wants to hear of."""

    def __init__(self, listening: Subscriptions, callback: SightingCallback, query: AgentQuery | None) -> None:
        self._listening = listening
        self._callback = callback
        self._query = query
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._listening.forget(self)

    def tell(self, sighting: Sighting) -> None:
        if self._wants(sighting):
            asyncio.get_running_loop().call_soon(self._call, sighting)

    def _call(self, sighting: Sighting) -> None:
        if not self._is_closed:
            self._callback(sighting)

    def _wants(self, sighting: Sighting) -> bool:
        if self._query is None or sighting.message is None:
            return True
        with suppress(WaypostError):
            return self._query.matches(sighting.agent_id, read_capabilities(sighting.message["agent"], "$.agent"))
        return False


class Subscriptions:
    def __init__(self, directory: AgentDirectory, clock: TransportClock) -> None:
        self.directory = directory
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        """Whether anybody listens. If not, nothing is judged or kept."""
        return bool(self._subscribers)

    def subscribe(self, callback: SightingCallback, query: AgentQuery | None) -> Subscriber:
        subscriber = Subscriber(self, callback, query)
        for sighting in self.directory.sightings(query, now=self._clock.now()):
            subscriber.tell(sighting)
        self._subscribers.append(subscriber)
        self._plan_sweep()
        return subscriber

    def forget(self, subscriber: Subscriber) -> None:
        with suppress(ValueError):
            self._subscribers.remove(subscriber)

    def hear(self, message: JsonObject, source: str, ttl: int | None = None) -> bool:
        """An Announce or Response. What is not believed is left out, and said in the log of who looks for it. Whether it was."""
        if not self.is_on:
            return False
        try:
            self.tell(
                self.directory.hear(message, source=source, ttl=ttl or ttl_of(message), now=self._clock.now()),
            )
        except WaypostError as error:
            log.debug("not believed, from %s: %s", source, error)
            return False
        return True

    def goodbye(self, agent_id: str, source: str) -> None:
        self.tell(self.directory.goodbye(agent_id, source=source, now=self._clock.now()))

    def remove(self, agent_id: str) -> None:
        self.tell(self.directory.remove(agent_id, self._clock.now()))

    def tell(self, sighting: Sighting | None) -> None:
        if sighting is not None:
            self._tell_all((sighting,))

    def close(self) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _tell_all(self, sightings: Iterable[Sighting]) -> None:
        for sighting in sightings:
            for subscriber in tuple(self._subscribers):
                subscriber.tell(sighting)

    def _plan_sweep(self) -> None:
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(limits.DIRECTORY_SWEEP_SECONDS, self._run_sweep)

    def _run_sweep(self) -> None:
        self._sweep = None
        self._tell_all(self.directory.sweep(self._clock.now()))
        if self.is_on:
            self._plan_sweep()
