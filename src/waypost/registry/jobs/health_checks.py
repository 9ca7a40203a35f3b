"""When which endpoint is checked. Pure: time and chance are arguments, nobody is asked here.

Agents that name one endpoint share its checks. Each check draws the next time, so that many are spread; what stays dead is
asked ever more seldom.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Callable, Iterator

import msgspec

from waypost import limits
from waypost.errors import AddressDenied, FetchFailed, RateLimited, WaypostError
from waypost.model.health import (
    UNHEALTHY,
    EndpointHealth,
    Health,
    endpoint_to_check,
    failure_of,
    health_after_failure,
    health_after_success,
    restore_endpoint_health,
)
from waypost.model.registration import Registration, endpoint_of
from waypost.registry.jobs.periodic import Job
from waypost.registry.ports import (
    AuditEntry,
    Command,
    CommittedChange,
    Decision,
    EndpointProber,
    RegistrationChange,
    Rule,
    StoreState,
    Tombstone,
)
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry

_NEVER = float("-inf")


class CheckedEndpoint(msgspec.Struct, kw_only=True):
    """One endpoint, and the agents that name it."""

    endpoint: str
    standing: EndpointHealth
    agents: set[str]
    due: float
    checked_at: float = _NEVER
    is_running: bool = False  # a check of it is under way


class HealthSchedule:
    def __init__(self, seconds: float, chance: Callable[[], float]) -> None:
        self._seconds = seconds
        self._chance = chance
        self._watched: dict[str, CheckedEndpoint] = {}
        self._endpoints: dict[str, str] = {}  # by agent
        self._queue: list[tuple[float, str]] = []  # may hold times that no longer count
        self.up = 0  # endpoints that have lived
        self.failing = 0  # those of them that fail now

    def __len__(self) -> int:
        return len(self._watched)

    def __iter__(self) -> Iterator[CheckedEndpoint]:
        return iter(self._watched.values())

    def find(self, agent_id: str) -> str | None:
        """The endpoint of an agent that is watched."""
        return self._endpoints.get(agent_id)

    # --- Agents ----------------------------------------------------------------------------------

    def watch(self, agent_id: str, endpoint: str | None, health: Health | None, due: float) -> None:
        """Check the endpoint of an agent at `due`, or sooner; not sooner than a pause after its last check."""
        if self._endpoints.get(agent_id) != endpoint:
            self.forget(agent_id)
        if endpoint is None:
            return
        watched = self._watched.get(endpoint)
        if watched is None:
            watched = CheckedEndpoint(
                endpoint=endpoint, standing=restore_endpoint_health(health), agents=set(), due=float("inf")
            )
            self._watched[endpoint] = watched
            self._count(watched.standing, 1)
        self._endpoints[agent_id] = endpoint
        watched.agents.add(agent_id)
        due = max(due, watched.checked_at + limits.FETCH_HEALTH_PAUSE_SECONDS)
        if due < watched.due and not watched.is_running:
            self._put(watched, due)

    def forget(self, agent_id: str) -> None:
        endpoint = self._endpoints.pop(agent_id, None)
        watched = self._watched.get(endpoint) if endpoint is not None else None
        if watched is None:
            return
        watched.agents.discard(agent_id)
        if not watched.agents:
            self._drop(watched)

    def drop(self, watched: CheckedEndpoint) -> None:
        """Not checked any more, until an agent names it anew."""
        for agent_id in [*watched.agents]:
            self.forget(agent_id)

    def _drop(self, watched: CheckedEndpoint) -> None:
        if self._watched.get(watched.endpoint) is watched:
            del self._watched[watched.endpoint]
            self._count(watched.standing, -1)

    # --- Time ------------------------------------------------------------------------------------

    def take(self, now: float) -> CheckedEndpoint | None:
        """The next endpoint that is due, if there is one; it is not due again before `done`."""
        while self._queue and self._queue[0][0] <= now:
            due, endpoint = heapq.heappop(self._queue)
            watched = self._watched.get(endpoint)
            if watched is not None and watched.due == due and not watched.is_running:
                watched.is_running, watched.due = True, float("inf")
                return watched
        return None

    def done(self, watched: CheckedEndpoint, standing: EndpointHealth, now: float) -> None:
        if self._watched.get(watched.endpoint) is watched:
            self._count(watched.standing, -1)
            self._count(standing, 1)
        watched.standing, watched.checked_at, watched.is_running = standing, now, False
        self._put(watched, now + self._pause(standing))

    def postpone(self, watched: CheckedEndpoint, seconds: float, now: float) -> None:
        """It could not be checked now; nothing is known of it that was not known before."""
        watched.is_running = False
        self._put(watched, now + seconds + self._seconds * limits.HEALTH_JITTER * self._chance())

    def first_due_time(self, now: float) -> float:
        """A first time for one of many: spread over a whole round."""
        return now + self._seconds * self._chance()

    def _pause(self, standing: EndpointHealth) -> float:
        seldom = 1.0
        if standing.state == UNHEALTHY and standing.failures:
            seldom = min(2.0 ** (standing.failures - limits.HEALTH_FAILURES), limits.HEALTH_BACKOFF)
        return self._seconds * seldom * (1.0 + limits.HEALTH_JITTER * (2.0 * self._chance() - 1.0))

    def _put(self, watched: CheckedEndpoint, due: float) -> None:
        watched.due = due
        if self._watched.get(watched.endpoint) is not watched:
            return
        heapq.heappush(self._queue, (due, watched.endpoint))
        if len(self._queue) > 2 * len(self._watched) + 1000:
            self._queue = [(each.due, each.endpoint) for each in self if not each.is_running]
            heapq.heapify(self._queue)

    def _count(self, standing: EndpointHealth, number: int) -> None:
        if standing.was_up and standing.state != UNHEALTHY:
            self.up += number
            self.failing += number if standing.failures else 0


# ---- What a check of an endpoint changes in a registration, pure: the store calls these rules inside its transaction.
#
# Watchers hear of it when an agent leaves the lists or comes back. That it is suspect, or healthy for the first time, changes no
# list; it is kept beside the lease and is told with renewals alone. What was checked while the agent moved elsewhere is not said
# of it.

HEALTH_VIA = "health"


def record_health(agent_id: str, endpoint: str, health: Health, *, now: float) -> Rule:
    def decide(held: StoreState) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None or endpoint_of(current) != endpoint or _state_of(current) == health.state:
            return Decision(outcome="unchanged", registration=current)
        after = msgspec.structs.replace(current, health=health)
        if after.status == current.status:
            change = RegistrationChange(type="renewed", at=now, registration=after, before=current.scopes)
            return Decision(outcome="noted", change=change)
        after = msgspec.structs.replace(after, changed_at=now)
        change = RegistrationChange(type="updated", at=now, registration=after, before=current.scopes)
        entry = AuditEntry(
            at=now, action="check", subject="", object=agent_id, outcome=health.state, via=HEALTH_VIA, etag=current.etag,
            detail=health.reason,
        )  # fmt: skip
        return Decision(outcome="noted", change=change, audit=(entry,))

    return decide


def evict(agent_id: str, endpoint: str, *, seconds: float, now: float) -> Rule:
    """Remove an agent whose endpoint has been dead for so long, unless its owner was heard of in that time: health alone
    withdraws nobody (THREATS T5)."""

    def decide(held: StoreState) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None or not _may_go(current, endpoint, now - seconds):
            return Decision(outcome="unchanged", registration=current)
        change = RegistrationChange(
            type="expired", at=now, removed=current, tombstone=_tombstone(current, now), before=current.scopes
        )
        entry = AuditEntry(
            at=now, action="expire", subject="", object=agent_id, outcome="evicted", via=HEALTH_VIA, etag=current.etag
        )
        return Decision(outcome="evicted", change=change, audit=(entry,))

    return decide


def _state_of(registration: Registration) -> str:
    return "unknown" if registration.health is None else registration.health.state


def _may_go(current: Registration, endpoint: str, before: float) -> bool:
    health = current.health
    if health is None or health.state != UNHEALTHY or endpoint_of(current) != endpoint:
        return False
    heard_of = max(current.renewed_at, *(source.received_at for source in current.sources), 0.0)
    return health.since <= before and heard_of <= before


def _tombstone(current: Registration, now: float) -> Tombstone:
    """Its owner may register it again at once; nobody else may take its id for a while."""
    return Tombstone(
        id=current.id,
        owner=current.owner,
        at=now,
        type="expired",
        hold_until=now + limits.ID_HOLD_MAX_SECONDS,
        forget_at=now + limits.TTL_MAX_SECONDS + limits.REMEMBER_WITHDRAWN_SECONDS,
        etag=current.etag,
    )


# ---- Whether agents live: their endpoints are asked from time to time, by the process that writes.
#
# Many dead endpoints slow nothing down: so many checks run at once and no more, each with a deadline, in places of their own;
# nothing waits for them. What is asked and how is the prober's business, when is `health_schedule`'s, what follows is
# `model.health`'s; a state is written when it changes, and only then.

log = logging.getLogger("waypost.health")

_TICK_SECONDS = 1.0

_READ_AT_ONCE = 256  # registrations, at the start

_OWN = "own"  # why an address is denied that is this service's

DENIED = "address_denied"


class HealthOptions(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float = limits.HEALTH_SECONDS
    evict_seconds: float = limits.HEALTH_EVICT_SECONDS  # 0: nobody is removed


class EndpointCheck:
    """Refuses the registration of an endpoint that is never probed (S1), since its agent would never be found. Agents that
    are announced on the LAN may be on the LAN."""

    def __init__(self, prober: EndpointProber) -> None:
        self._prober = prober

    def __call__(self, publication: Publication) -> None:
        named = publication.source_url if publication.via == "rtfs" else None
        endpoint = endpoint_to_check(publication.decoded.record, named)
        if endpoint is None or publication.gated:
            return
        try:
            self._prober.check_endpoint(endpoint)
        except AddressDenied as error:
            if error.details.get("reason") != _OWN:
                raise AddressDenied(error.message, path="endpoint", hint=error.hint, details=error.details) from None


class HealthChecks:
    def __init__(
        self,
        registry: Registry,
        prober: EndpointProber,
        options: HealthOptions | None = None,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._prober = prober
        self._options = options or HealthOptions()
        self._schedule = HealthSchedule(self._options.seconds, chance)
        self._written: set[str] = set()  # agents of which something is being written here: no news of theirs
        self._is_loaded = False
        self._held_since: float | None = None  # when it was first seen that too many fail at once
        self.checks = 0
        registry.subscribe(self._on_commit)

    @property
    def job(self) -> Job:
        return Job("check endpoints", _TICK_SECONDS, self.check_due)

    @property
    def watched(self) -> HealthSchedule:
        return self._schedule

    # --- Who is checked --------------------------------------------------------------------------

    def _on_commit(self, committed: CommittedChange) -> None:
        """A registration or a heartbeat is a reason to look at once; it clears nothing by itself."""
        agent_id, registration = committed.event.id, committed.registration
        if registration is None:
            self._schedule.forget(agent_id)
            return
        endpoint = endpoint_of(registration)
        if agent_id in self._written and self._schedule.find(agent_id) == endpoint:
            return
        self._schedule.watch(agent_id, endpoint, registration.health, self._clock.now())

    async def _load(self) -> None:
        """Those that were there before the start, spread over a round."""
        ids = self._registry.entries.ids()
        for start in range(0, len(ids), _READ_AT_ONCE):
            part = ids[start : start + _READ_AT_ONCE]
            for registration in await self._registry.registrations(part, sources=False, cached=False):
                if self._schedule.find(registration.id) is None and self._registry.entries.is_alive(registration.id):
                    due = self._schedule.first_due_time(self._clock.now())
                    self._schedule.watch(registration.id, endpoint_of(registration), registration.health, due)
            await asyncio.sleep(0)
        self._is_loaded = True

    # --- Checking --------------------------------------------------------------------------------

    async def check_due(self) -> None:
        """Check whatever is due, so many at once."""
        if not self._is_loaded:
            await self._load()
        gate = asyncio.Semaphore(limits.HEALTH_CONCURRENCY)
        running: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                await gate.acquire()
                watched = self._schedule.take(self._clock.now())
                if watched is None:
                    return
                task = group.create_task(self._check_in(gate, watched))
                running.add(task)
                task.add_done_callback(running.discard)
                if len(running) > limits.HEALTH_UNPACED_CHECKS:  # what begins together times out together
                    await asyncio.sleep(limits.HEALTH_PACE_SECONDS)

    async def _check_in(self, gate: asyncio.Semaphore, watched: CheckedEndpoint) -> None:
        try:
            await self._check(watched)
        except WaypostError as error:  # the disk is full, say: it is tried again
            log.warning("the health of %s could not be noted: %s", watched.endpoint[:64], error.message)
        finally:
            watched.is_running = False
            gate.release()

    async def _check(self, watched: CheckedEndpoint) -> None:
        try:
            failure = await self._ask(watched.endpoint)
        except RateLimited as error:
            self._schedule.postpone(watched, error.retry_after or 1, self._clock.now())
            return
        except AddressDenied:  # this very service
            self._schedule.drop(watched)
            return
        now = self._clock.now()
        self.checks += 1
        if failure is None:
            standing = health_after_success(watched.standing, now)
        else:
            standing = health_after_failure(watched.standing, failure, now, hold=self._may_be_us(watched.standing, now))
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

    def _may_be_us(self, standing: EndpointHealth, now: float) -> bool:
        """Whether so many of those that lived fail now that our own network is the likelier cause."""
        failing, up = self._schedule.failing, self._schedule.up
        if failing < limits.OUTAGE_MIN_ENDPOINTS or 2 * failing <= up:
            self._held_since = None
            return False
        if self._held_since is None:
            self._held_since = now
            log.warning("%d of %d endpoints that answered do not: nobody is delisted for it yet", failing, up)
        return standing.was_up and now - self._held_since < limits.OUTAGE_HOLD_SECONDS

    # --- What follows ----------------------------------------------------------------------------

    async def _tell(self, watched: CheckedEndpoint, standing: EndpointHealth, now: float) -> None:
        for agent_id in [*watched.agents]:
            entry = self._registry.entries.find(agent_id)
            if entry is not None and entry.health != standing.state:
                decide = record_health(agent_id, watched.endpoint, standing.health, now=now)
                await self._write(Command(keys=(agent_id,), decide=decide), agent_id)
        seconds = self._options.evict_seconds
        if seconds and standing.state == UNHEALTHY and now - standing.since >= seconds:
            await self._evict(watched, seconds, now)

    async def _evict(self, watched: CheckedEndpoint, seconds: float, now: float) -> None:
        for agent_id in [*watched.agents]:
            decide = evict(agent_id, watched.endpoint, seconds=seconds, now=now)
            await self._write(Command(keys=(agent_id,), decide=decide), agent_id)

    async def _write(self, command: Command, agent_id: str) -> None:
        self._written.add(agent_id)
        try:
            await self._registry.execute(command)
        finally:
            self._written.discard(agent_id)
