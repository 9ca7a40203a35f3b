"""Health checks of agents' endpoints, by the process that writes.

Agents with the same endpoint share its checks. Each check picks the time of the next one with jitter, so that checks are spread;
endpoints that stay dead are checked less and less often. The number of concurrent checks is limited and each has a deadline, so
dead endpoints slow nothing down. `model.health` defines the states; a state is written only when it changes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Callable, Iterator

import msgspec

from waypost import limits
from waypost.errors import AddressDenied, FetchFailed, RateLimited, Unavailable, WaypostError
from waypost.model.health import (
    DEAD,
    DOWN,
    UNHEALTHY,
    UNKNOWN,
    EndpointHealth,
    Health,
    endpoint_to_check,
    failure_of,
    health_after_failure,
    health_after_success,
    restore_endpoint_health,
    scheme_of,
)
from waypost.model.names import canonical_id
from waypost.model.principal import PUBLIC
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
from waypost.time_slice import TimeSlice

log = logging.getLogger("waypost.health")

HEALTH_VIA = "health"
DENIED = "address_denied"
_OWN = "own"  # the reason for denying an address of this service
_NEVER = float("-inf")
_TICK_SECONDS = 1.0
_LOAD_BATCH = 256  # registrations, at the start


class CheckedEndpoint(msgspec.Struct, kw_only=True):
    """One endpoint, and the agents that use it."""

    endpoint: str
    standing: EndpointHealth
    agents: set[str]
    due: float
    checked_at: float = _NEVER
    failed_at: float = _NEVER  # its last failure that counted
    is_running: bool = False


class HealthSchedule:
    """When each endpoint is checked next. Pure: time and randomness are arguments."""

    def __init__(self, seconds: float, chance: Callable[[], float]) -> None:
        self._seconds = seconds
        self._chance = chance
        self._watched: dict[str, CheckedEndpoint] = {}
        self._endpoints: dict[str, str] = {}  # by agent
        self._queue: list[tuple[float, str]] = []  # may hold outdated times
        self.up = 0  # endpoints that have been healthy
        self.failing = 0  # those of them that fail now

    def __len__(self) -> int:
        return len(self._watched)

    def __iter__(self) -> Iterator[CheckedEndpoint]:
        return iter(self._watched.values())

    def find(self, agent_id: str) -> str | None:
        """The endpoint of an agent, if it is checked."""
        return self._endpoints.get(agent_id)

    # --- Agents ----------------------------------------------------------------------------------

    def watch(self, agent_id: str, endpoint: str | None, health: Health | None, due: float) -> None:
        """Check the endpoint of an agent at `due` at the latest, but not too soon after its last check."""
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
        """Stop checking an endpoint until an agent is registered with it."""
        for agent_id in [*watched.agents]:
            self.forget(agent_id)

    def _drop(self, watched: CheckedEndpoint) -> None:
        if self._watched.get(watched.endpoint) is watched:
            del self._watched[watched.endpoint]
            self._count(watched.standing, -1)

    # --- Times -----------------------------------------------------------------------------------

    def take(self, now: float) -> CheckedEndpoint | None:
        """The next endpoint that is due, if any. It is not due again before `done`."""
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
        """Check it later: nothing was learned."""
        watched.is_running = False
        self._put(watched, now + seconds + self._seconds * limits.HEALTH_JITTER * self._chance())

    def first_due_time(self, now: float) -> float:
        """The first time of one of many endpoints: spread over a round."""
        return now + self._seconds * self._chance()

    def _pause(self, standing: EndpointHealth) -> float:
        backoff = 1.0
        if standing.state in DOWN and standing.failures:
            backoff = min(2.0 ** (standing.failures - limits.HEALTH_FAILURES), limits.HEALTH_BACKOFF)
        return self._seconds * backoff * (1.0 + limits.HEALTH_JITTER * (2.0 * self._chance() - 1.0))

    def _put(self, watched: CheckedEndpoint, due: float) -> None:
        watched.due = due
        if self._watched.get(watched.endpoint) is not watched:
            return
        heapq.heappush(self._queue, (due, watched.endpoint))
        if len(self._queue) > 2 * len(self._watched) + 1000:
            self._queue = [(each.due, each.endpoint) for each in self if not each.is_running]
            heapq.heapify(self._queue)

    def _count(self, standing: EndpointHealth, number: int) -> None:
        if standing.was_up and standing.state not in DOWN:
            self.up += number
            self.failing += number if standing.failures else 0


def record_health(agent_id: str, endpoint: str | None, health: Health, *, now: float) -> Rule:
    """Store the health of an agent's endpoint. It is an event for watchers only if the agent dies, leaves the lists or
    returns; otherwise it counts as a renewal. It is dropped if the agent has another endpoint by now."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        is_other = endpoint is not None and current is not None and endpoint_of(current) != endpoint
        if current is None or is_other or _state_of(current) == health.state:
            return Decision(outcome="unchanged", registration=current)
        after = msgspec.structs.replace(current, health=health)
        is_dead_before_or_after = DEAD in (health.state, _state_of(current))
        if after.status == current.status and not is_dead_before_or_after:
            change = RegistrationChange(type="renewed", at=now, registration=after, before=current.scopes)
            return Decision(outcome="noted", change=change)
        after = msgspec.structs.replace(after, changed_at=now)
        change = RegistrationChange(type="updated", at=now, registration=after, before=current.scopes)
        entry = AuditEntry(
            at=now,
            action="check",
            subject="",
            object=agent_id,
            outcome=health.state,
            via=HEALTH_VIA,
            etag=current.etag,
            detail=health.reason,
        )
        return Decision(outcome="noted", change=change, audit=(entry,))

    return decide


def evict(agent_id: str, endpoint: str, *, seconds: float, now: float) -> Rule:
    """Remove an agent whose endpoint has been dead for `seconds`, unless its owner changed or renewed it meanwhile: bad health
    alone removes no agent (THREATS T5)."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None or not _may_evict(current, endpoint, now - seconds):
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


def _may_evict(current: Registration, endpoint: str, before: float) -> bool:
    health = current.health
    if health is None or health.state != UNHEALTHY or endpoint_of(current) != endpoint:
        return False
    last_contact = max(current.renewed_at, *(source.received_at for source in current.sources), 0.0)
    return health.since <= before and last_contact <= before


def _tombstone(current: Registration, now: float) -> Tombstone:
    """Without freshness marks: the owner may register the same document again. The id is reserved for a while."""
    return Tombstone(
        id=canonical_id(current.id),
        owner=current.owner,
        at=now,
        type="expired",
        hold_until=now + limits.ID_HOLD_MAX_SECONDS,
        forget_at=now + limits.TTL_MAX_SECONDS + limits.REMEMBER_WITHDRAWN_SECONDS,
        etag=current.etag,
    )


class HealthOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`is_gentle` checks public agents with https endpoints only, slowly, and leaves denied addresses alone."""

    seconds: float = limits.HEALTH_SECONDS
    evict_seconds: float = limits.HEALTH_EVICT_SECONDS  # 0: never; only what is delisted is removed
    delists: bool = True
    is_gentle: bool = False


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
        self._writing: set[str] = set()  # agents whose health is being written: their commits are no news
        self._outdated: set[str] = set()  # agents with a state that are no longer checked
        self._is_loaded = False
        self._outage_since: float | None = None  # since when too many endpoints fail at once
        self._succeeded_at = _NEVER
        self._failed: set[str] = set()  # endpoints, since the last success
        self.checks = 0
        registry.subscribe(self._on_commit)

    @property
    def job(self) -> Job:
        return Job("check endpoints", _TICK_SECONDS, self.check_due)

    @property
    def watched(self) -> HealthSchedule:
        return self._schedule

    # --- Endpoints -------------------------------------------------------------------------------

    def _on_commit(self, committed: CommittedChange) -> None:
        """A registration or a heartbeat triggers a check; it changes no state by itself."""
        agent_id, registration = committed.event.id, committed.registration
        if registration is None:
            self._schedule.forget(agent_id)
            return
        endpoint = self._endpoint_of(registration)
        if agent_id in self._writing and self._schedule.find(agent_id) == endpoint:
            return
        self._watch(registration, endpoint, self._clock.now())

    def _watch(self, registration: Registration, endpoint: str | None, due: float) -> None:
        if endpoint is None and _state_of(registration) != UNKNOWN:
            self._outdated.add(registration.id)
        self._schedule.watch(registration.id, endpoint, registration.health, due)

    def _endpoint_of(self, registration: Registration) -> str | None:
        """The endpoint that is checked, or None."""
        if not self._options.is_gentle:
            return endpoint_of(registration)
        if registration.visibility != PUBLIC:  # first, because a pull commits thousands of internal copies
            return None
        endpoint = endpoint_of(registration)
        return endpoint if endpoint is not None and scheme_of(endpoint) == "https" else None

    async def _load(self) -> None:
        """Schedule the agents from before the start, spread over a round."""
        ids = self._registry.entries.ids()
        for start in range(0, len(ids), _LOAD_BATCH):
            part = ids[start : start + _LOAD_BATCH]
            for registration in await self._registry.registrations(part, sources=False, cached=False):
                if self._schedule.find(registration.id) is None and self._registry.entries.is_alive(registration.id):
                    endpoint = self._endpoint_of(registration)
                    self._watch(registration, endpoint, self._schedule.first_due_time(self._clock.now()))
            await asyncio.sleep(0)
        self._is_loaded = True

    # --- Checks ----------------------------------------------------------------------------------

    async def check_due(self) -> None:
        """Check all endpoints that are due, with limited concurrency."""
        if not self._is_loaded:
            await self._load()
        time_slice = TimeSlice()
        while self._outdated:
            await self._reset(self._outdated.pop())
            await time_slice.step()
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
                if self._options.is_gentle:
                    await asyncio.sleep(limits.HEALTH_GENTLE_PACE_SECONDS)
                elif len(running) > limits.HEALTH_UNPACED_CHECKS:  # checks that start together time out together
                    await asyncio.sleep(limits.HEALTH_PACE_SECONDS)

    async def _reset(self, agent_id: str) -> None:
        """An agent that is no longer checked must not stay dead for good."""
        now = self._clock.now()
        decide = record_health(agent_id, None, Health(UNKNOWN, now), now=now)
        try:
            await self._write(Command(keys=(agent_id,), decide=decide), agent_id)
        except WaypostError as error:
            log.warning("cannot reset the health of an agent: %s", error.message)

    async def _check_in(self, gate: asyncio.Semaphore, watched: CheckedEndpoint) -> None:
        try:
            await self._check(watched)
        except WaypostError as error:  # for example a full disk: the next check tries again
            log.warning("cannot store the health of %s: %s", watched.endpoint[:64], error.message)
        finally:
            watched.is_running = False
            gate.release()

    async def _check(self, watched: CheckedEndpoint) -> None:
        try:
            failure = await self._probe(watched.endpoint)
        except (RateLimited, Unavailable) as error:
            self._schedule.postpone(watched, error.retry_after or 1, self._clock.now())
            return
        except AddressDenied:  # an endpoint of this service, or one that is left alone
            if watched.standing.state != UNKNOWN:
                self._outdated |= watched.agents
            self._schedule.drop(watched)
            return
        now = self._clock.now()
        self.checks += 1
        if failure is None:
            self._succeeded_at = now
            self._failed.clear()
            standing = health_after_success(watched.standing, now)
        elif (
            watched.standing.failures
            and now - watched.failed_at < self._options.seconds * limits.HEALTH_FAILURE_SPACING
        ):
            standing = watched.standing  # a write triggered this check: it found the same outage
        else:
            watched.failed_at = now
            if len(self._failed) < limits.OUTAGE_MIN_ENDPOINTS:
                self._failed.add(watched.endpoint)
            hold = self._is_own_outage(watched.standing, now) or self._is_cut_off(now)
            standing = health_after_failure(watched.standing, failure, now, hold=hold, delists=self._options.delists)
        self._schedule.done(watched, standing, now)
        await self._store_health(watched, standing, now)

    async def _probe(self, endpoint: str) -> str | None:
        """The reason of a failure, or None. Raises RateLimited if it is too soon, AddressDenied for this service, Unavailable if
        our own resolver does not answer."""
        try:
            return failure_of(endpoint, await self._prober.probe(endpoint))
        except AddressDenied as error:
            if error.details.get("reason") == _OWN or self._options.is_gentle:
                raise
            return DENIED
        except FetchFailed as error:
            reason = str(error.details.get("reason", "failed"))
            if reason == "dns_failed":  # the resolver of this service is down: nothing was learned about the agent
                raise Unavailable(error.message, retry_after=round(self._options.seconds)) from None
            return reason
        except RateLimited:
            raise
        except WaypostError as error:  # an invalid address, or a port that is never called
            if self._options.is_gentle:
                raise AddressDenied(error.message) from None
            return DENIED

    def _is_own_outage(self, standing: EndpointHealth, now: float) -> bool:
        """Whether so many healthy endpoints fail at once that our own network is the likely cause."""
        failing, up = self._schedule.failing, self._schedule.up
        if failing < limits.OUTAGE_MIN_ENDPOINTS or 2 * failing <= up:
            self._outage_since = None
            return False
        if self._outage_since is None:
            self._outage_since = now
            log.warning("%d of %d healthy endpoints fail: assuming an outage here, delisting none yet", failing, up)
        return standing.was_up and now - self._outage_since < limits.OUTAGE_HOLD_SECONDS

    def _is_cut_off(self, now: float) -> bool:
        """Whether this service probably cannot reach the internet at all: many endpoints failed since the last success.
        Checks that nobody asked for must not declare every agent dead then."""
        is_recent = now - self._succeeded_at < limits.OUTAGE_HOLD_SECONDS
        return self._options.is_gentle and not is_recent and len(self._failed) >= limits.OUTAGE_MIN_ENDPOINTS

    # --- Writes ----------------------------------------------------------------------------------

    async def _store_health(self, watched: CheckedEndpoint, standing: EndpointHealth, now: float) -> None:
        time_slice = TimeSlice()  # thousands of agents may share an endpoint, such as that of a gateway
        for agent_id in [*watched.agents]:
            await time_slice.step()
            entry = self._registry.entries.find(agent_id)
            if entry is not None and entry.health != standing.state:
                decide = record_health(agent_id, watched.endpoint, standing.health, now=now)
                await self._write(Command(keys=(agent_id,), decide=decide), agent_id)
        seconds = self._options.evict_seconds
        if seconds and standing.state == UNHEALTHY and now - standing.since >= seconds:
            await self._evict(watched, seconds, now)

    async def _evict(self, watched: CheckedEndpoint, seconds: float, now: float) -> None:
        time_slice = TimeSlice()
        for agent_id in [*watched.agents]:
            await time_slice.step()
            decide = evict(agent_id, watched.endpoint, seconds=seconds, now=now)
            await self._write(Command(keys=(agent_id,), decide=decide), agent_id)

    async def _write(self, command: Command, agent_id: str) -> None:
        self._writing.add(agent_id)
        try:
            await self._registry.execute(command)
        finally:
            self._writing.discard(agent_id)
