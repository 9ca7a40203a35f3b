"""The agents that a listener knows, and the subscribers that it notifies.

`AgentDirectory` is pure: messages and times go in, sightings come out. It admits messages by trust on first use
(`trust/announce/admission.py`): a message must be signed; the first key of an id is pinned, and another key needs a signature
of the pinned one; replays are rejected. So a spoofed message never replaces a verified one (THREATS L1). A registry has its own
admission.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, QuotaExceeded, Replayed, WaypostError
from waypost.model.json import JsonObject
from waypost.model.times import find_instant
from waypost.model.verdict import Verdict
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import AgentQuery, parse_minor
from waypost.transports.port import Sighting, SightingCallback, SightingKind, TransportClock
from waypost.trust.announce.admission import (
    PIN_CHECK,
    AdmissionPolicy,
    AdmissionRequest,
    AdmissionResult,
    AnnouncementStamp,
    admit,
)
from waypost.trust.announce.signed_announcement import parse_signed_announcement
from waypost.trust.announce.trust_store import AgentPin

log = logging.getLogger("waypost.transports")

FIRST_USE = AdmissionPolicy(mode="tofu", authenticated=False)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_TRUST_ON_FIRST_USE = "trust on first use: nothing else binds this key to the id"
_STAMPS = ("__seq", "__iat")


class _KnownAgent(msgspec.Struct):
    message: JsonObject
    source: str  # of the last message
    first_source: str
    capabilities: dict[str, str]
    verdicts: tuple[Verdict, ...]
    iat: float | None
    ttl: int
    expires_at: float
    is_suspect: bool = False


class AgentDirectory:
    def __init__(
        self,
        transport: str,
        *,
        policy: AdmissionPolicy = FIRST_USE,
        find_pin: Callable[[str], AgentPin | None] = lambda agent_id: None,
        on_pin: Callable[[AgentPin], object] = lambda pin: None,
        capacity: int = limits.DIRECTORY_AGENTS,
        capacity_per_source: int | None = None,
    ) -> None:
        """`find_pin` looks an id up in a trust store; `on_pin` is called when a key is pinned. `capacity_per_source` limits the
        agents of one machine."""
        self._transport = transport
        self._policy = policy
        self._find_stored_pin = find_pin
        self._on_pin = on_pin
        self._capacity = capacity
        self._capacity_per_source = capacity_per_source
        self._agents_per_machine: Counter[str] = Counter()  # by the source of the first message
        self._agents: dict[str, _KnownAgent] = {}
        self._pins: OrderedDict[str, AgentPin] = OrderedDict()  # outlive the agents, so that replays stay replays

    def __len__(self) -> int:
        return len(self._agents)

    def receive(self, message: JsonObject, *, source: str, ttl: int, now: float) -> Sighting | None:
        """Process a message of an agent. None if only the expiry changes. Raises if the message is rejected."""
        agent_id = agent_id_of(message)
        known = self._agents.get(agent_id)
        if known is not None and _is_same(known.message, message) and not known.is_suspect:
            _check_age(known.iat, now)
            known.expires_at, known.ttl = now + ttl, ttl
            return None
        if known is None:
            self._check_capacity(source)
        return self._admit(agent_id, known, message, source, ttl, now)

    def goodbye(self, agent_id: str, *, source: str, now: float) -> Sighting | None:
        """An unsigned goodbye, which anyone can send: the agent becomes suspect, and stays until it expires (P-21, L4)."""
        known = self._agents.get(agent_id.lower())
        if known is None or known.is_suspect:
            return None
        known.is_suspect = True
        return self._sighting("suspect", agent_id.lower(), known, now, source)

    def remove(self, agent_id: str, now: float) -> Sighting | None:
        """An authenticated removal: by a session, a signed goodbye or a revocation."""
        if agent_id.lower() not in self._agents:
            return None
        return self._sighting("removed", agent_id.lower(), self._remove(agent_id.lower()), now)

    def sweep(self, now: float) -> list[Sighting]:
        """Remove and report the agents whose ttl has passed (ANN-41)."""
        ended = [agent_id for agent_id, known in self._agents.items() if now >= known.expires_at]
        return [self._sighting("expired", agent_id, self._remove(agent_id), now) for agent_id in ended]

    def messages(self, query: AgentQuery | None = None, *, now: float) -> list[JsonObject]:
        return [known.message for _, known in self._matching(query, now)]

    def sightings(self, query: AgentQuery | None = None, *, now: float) -> list[Sighting]:
        """All known agents, for a new subscriber."""
        return [self._sighting("added", agent_id, known, now) for agent_id, known in self._matching(query, now)]

    def find_pin(self, agent_id: str) -> AgentPin | None:
        return self._pins.get(agent_id) or self._find_stored_pin(agent_id)

    def _matching(self, query: AgentQuery | None, now: float) -> Iterator[tuple[str, _KnownAgent]]:
        for agent_id, known in self._agents.items():
            if now < known.expires_at and (query is None or query.matches(agent_id, known.capabilities)):
                yield agent_id, known

    def _admit(
        self, agent_id: str, known: _KnownAgent | None, message: JsonObject, source: str, ttl: int, now: float
    ) -> Sighting | None:
        capabilities = read_capabilities(message["agent"], "$.agent")
        request = admission_request(agent_id, message)
        before = self.find_pin(agent_id)
        result = admit(request, before, self._policy, now)
        self._store_pin(agent_id, before, result.pin)
        if is_goodbye(message):
            _check_goodbye(request, before, result)
            return self.remove(agent_id, now)
        verdicts = self._weaken_pin_verdict(agent_id, result.verdicts)
        first_source = source if known is None else known.first_source
        agent = _KnownAgent(message, source, first_source, capabilities, verdicts, request.stamp.iat, ttl, now + ttl)
        self._agents[agent_id] = agent
        if known is None:
            self._agents_per_machine[machine_of(first_source)] += 1
            return self._sighting("added", agent_id, agent, now)
        if result.event == "rotate":
            return self._sighting("rotated", agent_id, agent, now)
        if known.is_suspect or _content(known.message) != _content(message):
            return self._sighting("updated", agent_id, agent, now)
        return None

    def _weaken_pin_verdict(self, agent_id: str, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
        """A key pinned on first use proves only that the sender is the same as before (L1)."""
        stored = self._find_stored_pin(agent_id)
        if stored is not None and stored.provisioned:
            return verdicts
        return tuple(
            msgspec.structs.replace(each, state="unknown", reason=_TRUST_ON_FIRST_USE)
            if each.check == PIN_CHECK
            else each
            for each in verdicts
        )

    def _check_capacity(self, source: str) -> None:
        if len(self._agents) >= self._capacity:
            raise QuotaExceeded(
                f"The directory is full: {self._capacity} agents.", path="$.agent", hint="Narrow the query."
            )
        if (
            self._capacity_per_source is not None
            and self._agents_per_machine[machine_of(source)] >= self._capacity_per_source
        ):
            raise QuotaExceeded(
                f"The limit of {self._capacity_per_source} agents of {machine_of(source)} is reached.",
                path="$.agent",
                hint="Announce them to a registry instead.",
            )

    def _remove(self, agent_id: str) -> _KnownAgent:
        known = self._agents.pop(agent_id)
        machine = machine_of(known.first_source)
        self._agents_per_machine[machine] -= 1
        if self._agents_per_machine[machine] <= 0:
            del self._agents_per_machine[machine]
        return known

    def _store_pin(self, agent_id: str, before: AgentPin | None, pin: AgentPin | None) -> None:
        if pin is None:
            return
        if before is None or _states(before) != _states(pin):
            self._on_pin(pin)
        self._pins[agent_id] = pin
        self._pins.move_to_end(agent_id)
        while len(self._pins) > 2 * self._capacity:
            oldest = next(iter(self._pins))
            if oldest in self._agents:  # a present agent keeps its pin, however many others come and go
                self._pins.move_to_end(oldest)
            else:
                del self._pins[oldest]

    def _sighting(
        self, kind: SightingKind, agent_id: str, known: _KnownAgent, now: float, source: str = ""
    ) -> Sighting:
        return Sighting(
            kind=kind,
            agent_id=agent_id,
            message=known.message,
            transport=self._transport,
            source=source or known.source,
            at=now,
            ttl=known.ttl,
            verdicts=known.verdicts,
        )


def machine_of(source: str) -> str:
    """The address in `192.0.2.1:49353`; a source without a port as it is."""
    host, mark, port = source.rpartition(":")
    return host if mark and port.isdigit() and ("." in host or host.endswith("]")) else source


def _states(pin: AgentPin) -> list[tuple[str, str]]:
    return [(key.key_id, key.state) for key in pin.keys]


def agent_id_of(message: JsonObject) -> str:
    """The id in lower case. Raises InvalidDocument unless it is a UUID."""
    agent = message.get("agent")
    agent_id = agent.get("agent_id") if isinstance(agent, dict) else None
    if not isinstance(agent_id, str) or not _ID.match(agent_id.lower()):
        raise InvalidDocument("The message has no valid agent_id.", path="$.agent.agent_id", hint="Send a UUID.")
    return agent_id.lower()


def sequence_of(message: JsonObject) -> int:
    """`__seq`, or 0 if there is none."""
    metadata = message["agent"].get("metadata")
    sequence = metadata.get("__seq") if isinstance(metadata, dict) else None
    return sequence if isinstance(sequence, int) and not isinstance(sequence, bool) else 0


def ttl_of(message: JsonObject, default: int = limits.LAN_TTL_SECONDS) -> int:
    """The ttl of the message within the limits (P-7). A Response has the remaining ttl, which may be lower."""
    ttl = message.get("ttl")
    minimum, maximum = limits.ANNOUNCED_TTL_SECONDS
    if "matched" in message:
        minimum = 1
    return min(maximum, max(minimum, ttl if isinstance(ttl, int) and not isinstance(ttl, bool) else default))


def admission_request(agent_id: str, message: JsonObject) -> AdmissionRequest:
    announced = parse_signed_announcement(message)
    metadata = message["agent"].get("metadata")
    issued_at = metadata.get("__iat") if isinstance(metadata, dict) else None
    return AdmissionRequest(
        agent_id=agent_id,
        stamp=AnnouncementStamp(
            digest=hashlib.sha256(announced.signing_input).hexdigest(),
            seq=sequence_of(message) or None,
            iat=find_instant(issued_at),
        ),
        key=announced.key,
        signature=announced.signature,
        previous_signature=announced.previous_signature,
        minor=parse_minor(message.get("protocol_version")),
        find_canonical_form=announced.find_canonical_form,
    )


def _is_same(one: JsonObject, other: JsonObject) -> bool:
    return one["agent"] == other["agent"] and one.get("signature") == other.get("signature")


def _content(message: JsonObject) -> JsonObject:
    """The agent without the stamps that change with every signature."""
    agent: JsonObject = message["agent"]
    metadata = agent.get("metadata")
    if not isinstance(metadata, dict):
        return agent
    return {**agent, "metadata": {name: value for name, value in metadata.items() if name not in _STAMPS}}


def is_goodbye(message: JsonObject) -> bool:
    metadata = message["agent"].get("metadata")
    return isinstance(metadata, dict) and metadata.get("__state") == "shutdown"


def _check_age(iat: float | None, now: float) -> None:
    """P-17: repeating a message renews an agent only while the message is recent."""
    if iat is not None and now - iat > limits.ANNOUNCE_PAST_SECONDS:
        raise Replayed(
            f"The message was signed more than {limits.ANNOUNCE_PAST_SECONDS} seconds ago.",
            path="$.agent.metadata.__iat",
            hint="Sign it again with a higher __seq.",
            details={"reason": "too_old"},
        )


def _check_goodbye(request: AdmissionRequest, before: AgentPin | None, result: AdmissionResult) -> None:
    """P-19: a signed goodbye needs a sequence number of its own."""
    key = before.find_key(result.key_id) if before is not None and result.key_id is not None else None
    if request.stamp.seq is None or (key is not None and key.seq == request.stamp.seq):
        raise Replayed(
            "A goodbye must be signed with a higher __seq.",
            path="$.agent.metadata.__state",
            hint="Raise __seq and sign it again.",
            details={"reason": "replay"},
        )


class Subscriber:
    """A callback, and the agents that it wants to be notified of.

    The event loop calls it once for each sighting: it may use the transport, and an exception affects no other subscriber.
    """

    def __init__(self, subscriptions: Subscriptions, callback: SightingCallback, query: AgentQuery | None) -> None:
        self._subscriptions = subscriptions
        self._callback = callback
        self._query = query
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._subscriptions.unsubscribe(self)

    def notify(self, sighting: Sighting) -> None:
        if self._matches(sighting):
            asyncio.get_running_loop().call_soon(self._call, sighting)

    def _call(self, sighting: Sighting) -> None:
        if not self._is_closed:
            self._callback(sighting)

    def _matches(self, sighting: Sighting) -> bool:
        if self._query is None or sighting.message is None:
            return True
        with suppress(WaypostError):
            return self._query.matches(sighting.agent_id, read_capabilities(sighting.message["agent"], "$.agent"))
        return False


class Subscriptions:
    """Feeds the directory, notifies the subscribers, and removes expired agents."""

    def __init__(self, directory: AgentDirectory, clock: TransportClock) -> None:
        self.directory = directory
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        """Without subscribers, messages are not processed."""
        return bool(self._subscribers)

    def subscribe(self, callback: SightingCallback, query: AgentQuery | None) -> Subscriber:
        subscriber = Subscriber(self, callback, query)
        for sighting in self.directory.sightings(query, now=self._clock.now()):
            subscriber.notify(sighting)
        self._subscribers.append(subscriber)
        self._schedule_sweep()
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        with suppress(ValueError):
            self._subscribers.remove(subscriber)

    def receive(self, message: JsonObject, source: str, ttl: int | None = None) -> bool:
        """Process an Announce or Response; returns whether it was accepted."""
        if not self.is_active:
            return False
        try:
            now = self._clock.now()
            self.notify(self.directory.receive(message, source=source, ttl=ttl or ttl_of(message), now=now))
        except WaypostError as error:
            log.debug("message of %s rejected: %s", source, error)
            return False
        return True

    def goodbye(self, agent_id: str, source: str) -> None:
        self.notify(self.directory.goodbye(agent_id, source=source, now=self._clock.now()))

    def remove(self, agent_id: str) -> None:
        self.notify(self.directory.remove(agent_id, self._clock.now()))

    def notify(self, sighting: Sighting | None) -> None:
        if sighting is not None:
            self._notify_all((sighting,))

    def close(self) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _notify_all(self, sightings: Iterable[Sighting]) -> None:
        for sighting in sightings:
            for subscriber in tuple(self._subscribers):
                subscriber.notify(sighting)

    def _schedule_sweep(self) -> None:
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(limits.DIRECTORY_SWEEP_SECONDS, self._run_sweep)

    def _run_sweep(self) -> None:
        self._sweep = None
        self._notify_all(self.directory.sweep(self._clock.now()))
        if self.is_active:
            self._schedule_sweep()
