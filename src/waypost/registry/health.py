"""Whether agents live: their endpoints are asked from time to time, by the process that writes.

Many dead endpoints slow nothing down: so many checks run at once and no more, each with a deadline, in places of their own;
nothing waits for them. What is asked and how is the prober's business, when is `health_schedule`'s, what follows is
`model.health`'s; a state is written when it changes, and only then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec

from waypost import limits
from waypost.errors import AddressDenied, FetchFailed, RateLimited, WaypostError
from waypost.model.health import (
    UNHEALTHY,
    Standing,
    after_failure,
    after_success,
    endpoint_to_check,
    failure_of,
)
from waypost.model.registration import endpoint_of
from waypost.registry.engine import Registry
from waypost.registry.fetching import Prober
from waypost.registry.health_rules import evict, note_health
from waypost.registry.health_schedule import Schedule, Watched
from waypost.registry.ports import Command, Committed
from waypost.registry.publication import Publication

log = logging.getLogger("waypost.health")

_TICK_SECONDS = 1.0
_READ_AT_ONCE = 256  # registrations, at the start
_OWN = "own"  # why an address is denied that is this service's
DENIED = "address_denied"


class HealthOptions(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float = limits.HEALTH_SECONDS
    evict_seconds: float = limits.HEALTH_EVICT_SECONDS  # 0: nobody is removed


class HealthChecks:
    def __init__(
        self,
        registry: Registry,
        prober: Prober,
        options: HealthOptions | None = None,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._prober = prober
        self._options = options or HealthOptions()
        self._schedule = Schedule(self._options.seconds, chance)
        self._written: set[str] = set()  # agents of which something is being written here: no news of theirs
        self._is_loaded = False
        self._held_since: float | None = None  # when it was first seen that too many fail at once
        self.checks = 0

    def attach(self) -> None:
        """Go on as long as the registry does. Said before its start."""
        self._registry.observe(self._on_commit)
        self._registry.chore(_TICK_SECONDS, self.check_due)
        self._registry.judge_endpoints(self.admit)

    @property
    def watched(self) -> Schedule:
        return self._schedule

    def admit(self, publication: Publication) -> None:
        """An endpoint at a number that is never asked is refused when it is registered (S1): it would never be found. What is
        heard on the LAN is where the LAN is."""
        named = publication.source_url if publication.via == "rtfs" else None
        endpoint = endpoint_to_check(publication.decoded.record, named)
        if endpoint is not None and not publication.gated:
            try:
                self._prober.check_endpoint(endpoint)
            except AddressDenied as error:
                if error.details.get("reason") != _OWN:
                    raise AddressDenied(
                        error.message, path="endpoint", hint=error.hint, details=error.details
                    ) from None

    # --- Who is checked --------------------------------------------------------------------------

    def _on_commit(self, committed: Committed) -> None:
        """A registration or a heartbeat is a reason to look at once; it clears nothing by itself."""
        agent_id, registration = committed.event.id, committed.registration
        if registration is None:
            self._schedule.forget(agent_id)
            return
        endpoint = endpoint_of(registration)
        if agent_id in self._written and self._schedule.find(agent_id) == endpoint:
            return
        self._schedule.watch(agent_id, endpoint, registration.health, self._registry.clock.now())

    async def _load(self) -> None:
        """Those that were there before the start, spread over a round."""
        ids = [*self._registry.catalogue.ids()]
        for start in range(0, len(ids), _READ_AT_ONCE):
            part = await self._registry.store.fetch(ids[start : start + _READ_AT_ONCE], sources=False)
            now = self._registry.clock.now()
            for agent_id, registration in part.items():
                if self._schedule.find(agent_id) is None and self._registry.catalogue.is_alive(agent_id):
                    endpoint = endpoint_of(registration)
                    self._schedule.watch(agent_id, endpoint, registration.health, self._schedule.some_time(now))
            await asyncio.sleep(0)
        self._is_loaded = True

    # --- Checking --------------------------------------------------------------------------------

    async def check_due(self) -> None:
        """Check whatever is due, so many at once."""
        if not self._is_loaded:
            await self._load()
        gate = asyncio.Semaphore(limits.HEALTH_AT_ONCE)
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                await gate.acquire()
                watched = self._schedule.take(self._registry.clock.now())
                if watched is None:
                    return
                task = group.create_task(self._check_in(gate, watched))
                running.add(task)
                task.add_done_callback(running.discard)
                if len(running) > limits.HEALTH_AT_EASE:  # what begins together times out together
                    await asyncio.sleep(limits.HEALTH_GAP_SECONDS)

    async def _check_in(self, gate: asyncio.Semaphore, watched: Watched) -> None:
        try:
            await self._check(watched)
        except WaypostError as error:  # the disk is full, say: it is tried again
            log.warning("the health of %s could not be noted: %s", watched.endpoint[:64], error.message)
        finally:
            watched.is_running = False
            gate.release()

    async def _check(self, watched: Watched) -> None:
        try:
            failure = await self._ask(watched.endpoint)
        except RateLimited as error:
            self._schedule.postpone(watched, error.retry_after or 1, self._registry.clock.now())
            return
        except AddressDenied:  # this very service
            self._schedule.drop(watched)
            return
        now = self._registry.clock.now()
        self.checks += 1
        if failure is None:
            standing = after_success(watched.standing, now)
        else:
            standing = after_failure(watched.standing, failure, now, hold=self._may_be_us(watched.standing, now))
        self._schedule.done(watched, standing, now)
        await self._tell(watched, standing, now)

    async def _ask(self, endpoint: str) -> str | None:
        """What speaks against it, in a word. Raises RateLimited when it is not the time, AddressDenied for this service."""
        try:
            return failure_of(endpoint, await self._prober.probe(endpoint))
        except AddressDenied as error:
            if error.details.get("reason") == _OWN:
                raise
            return DENIED
        except FetchFailed as error:
            return str(error.details.get("reason", "failed"))
        except RateLimited:
            raise
        except WaypostError:  # an address that nobody would ask
            return DENIED

    def _may_be_us(self, standing: Standing, now: float) -> bool:
        """Whether so many of those that lived fail now that our own network is the likelier cause."""
        failing, up = self._schedule.failing, self._schedule.up
        if failing < limits.HEALTH_HOLD_LEAST or 2 * failing <= up:
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = now
            log.warning("%d of %d endpoints that answered do not: nobody is delisted for it yet", failing, up)
        return standing.was_up and now - self._held_since < limits.HEALTH_HOLD_SECONDS

    # --- What follows ----------------------------------------------------------------------------

    async def _tell(self, watched: Watched, standing: Standing, now: float) -> None:
        for agent_id in [*watched.agents]:
            entry = self._registry.catalogue.find(agent_id)
            if entry is not None and entry.health != standing.state:
                decide = note_health(agent_id, watched.endpoint, standing.health, now=now)
                await self._write(Command(keys=(agent_id,), decide=decide), agent_id)
        seconds = self._options.evict_seconds
        if seconds and standing.state == UNHEALTHY and now - standing.since >= seconds:
            await self._evict(watched, seconds, now)

    async def _evict(self, watched: Watched, seconds: float, now: float) -> None:
        for agent_id in [*watched.agents]:
            decide = evict(agent_id, watched.endpoint, seconds=seconds, now=now)
            await self._write(Command(keys=(agent_id,), decide=decide), agent_id)

    async def _write(self, command: Command, agent_id: str) -> None:
        self._written.add(agent_id)
        try:
            await self._registry.store.execute(command)
        finally:
            self._written.discard(agent_id)
