"""What a listener knows of the agents around it: who was seen, until when, signed by which key.

Pure: messages and times go in, sightings come out. Every message is judged as on first use
(`trust/announce/admission.py`): it must be
signed; the first key of an id is bound to it, another one needs the word of that key; a replay is none. So a spoofed message
never takes the place of a verified one (THREATS L1). A listener's word counts for itself alone; a registry has its own gate.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument, QuotaExceeded, Replayed
from waypost.model.json import JsonObject
from waypost.model.times import find_instant
from waypost.model.verdict import Verdict
from waypost.protocols.announce.codec import read_capabilities
from waypost.protocols.announce.messages import AgentQuery, parse_minor
from waypost.transports.port import Sighting, SightingKind
from waypost.trust.announce.admission import (
    PIN_CHECK,
    AdmissionPolicy,
    AdmissionRequest,
    AdmissionResult,
    AnnouncementStamp,
    admit,
)
from waypost.trust.announce.key_pins import AgentPin
from waypost.trust.announce.signed_announcement import parse_signed_announcement

FIRST_USE = AdmissionPolicy(mode="tofu", authenticated=False)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_TRUST_ON_FIRST_USE = "the key was seen first by this listener; nothing else binds it to the id"
_STAMPS = ("__seq", "__iat")


class _KnownAgent(msgspec.Struct):
    message: JsonObject
    source: str  # of the last word
    first: str  # of the first
    capabilities: dict[str, str]
    verdicts: tuple[Verdict, ...]
    iat: float | None
    ttl: int
    expires_at: float
    suspect: bool = False


class AgentDirectory:
    def __init__(
        self,
        transport: str,
        *,
        terms: AdmissionPolicy = FIRST_USE,
        pins: Callable[[str], AgentPin | None] = lambda agent_id: None,
        bound: Callable[[AgentPin], object] = lambda pin: None,
        most: int = limits.DIRECTORY_AGENTS,
        most_of_source: int | None = None,
    ) -> None:
        """`pins` gives what a trust store already says of an id; `bound` is told when a key was bound. `most_of_source`: agents
        that one source may fill it with, where a source is a machine."""
        self._transport = transport
        self._terms = terms
        self._known_pins = pins
        self._bound = bound
        self._most = most
        self._most_of_source = most_of_source
        self._sources: Counter[str] = Counter()  # agents by the machine that told of them first
        self._seen: dict[str, _KnownAgent] = {}
        self._pins: OrderedDict[str, AgentPin] = OrderedDict()  # outlive what was seen, so that old words stay old

    def __len__(self) -> int:
        return len(self._seen)

    # --- What happens ----------------------------------------------------------------------------

    def hear(self, message: JsonObject, *, source: str, ttl: int, now: float) -> Sighting | None:
        """A message of an agent. None: nothing new but the time. Raises the refusal of one that is not believed."""
        agent_id = agent_id_of(message)
        seen = self._seen.get(agent_id)
        if seen is not None and _is_same(seen.message, message) and not seen.suspect:
            _check_age(seen.iat, now)
            seen.expires_at, seen.ttl = now + ttl, ttl
            return None
        if seen is None:
            self._check_room(source)
        return self._judge(agent_id, seen, message, source, ttl, now)

    def goodbye(self, agent_id: str, *, source: str, now: float) -> Sighting | None:
        """Anybody can say it: the agent is suspect, and goes when its ttl ends (P-21, L4)."""
        seen = self._seen.get(agent_id.lower())
        if seen is None or seen.suspect:
            return None
        seen.suspect = True
        return self._sighting("suspect", agent_id.lower(), seen, now, source)

    def remove(self, agent_id: str, now: float) -> Sighting | None:
        """Gone on good authority: an authenticated session, a signed goodbye, a revocation."""
        if agent_id.lower() not in self._seen:
            return None
        return self._sighting("removed", agent_id.lower(), self._forget(agent_id.lower()), now)

    def sweep(self, now: float) -> list[Sighting]:
        """Whoever was not heard of within its ttl (ANN-41), each told once."""
        ended = [agent_id for agent_id, seen in self._seen.items() if now >= seen.expires_at]
        return [self._sighting("expired", agent_id, self._forget(agent_id), now) for agent_id in ended]

    # --- What is known ---------------------------------------------------------------------------

    def known(self, query: AgentQuery | None = None, *, now: float) -> list[JsonObject]:
        return [seen.message for _, seen in self._matching(query, now)]

    def sightings(self, query: AgentQuery | None = None, *, now: float) -> list[Sighting]:
        """All that is known, as a newcomer is told."""
        return [self._sighting("added", agent_id, seen, now) for agent_id, seen in self._matching(query, now)]

    def pin_of(self, agent_id: str) -> AgentPin | None:
        return self._pins.get(agent_id) or self._known_pins(agent_id)

    def _matching(self, query: AgentQuery | None, now: float) -> Iterator[tuple[str, _KnownAgent]]:
        for agent_id, seen in self._seen.items():
            if now < seen.expires_at and (query is None or query.matches(agent_id, seen.capabilities)):
                yield agent_id, seen

    # --- Judging ---------------------------------------------------------------------------------

    def _judge(
        self, agent_id: str, seen: _KnownAgent | None, message: JsonObject, source: str, ttl: int, now: float
    ) -> Sighting | None:
        capabilities = read_capabilities(message["agent"], "$.agent")
        said = announcement_of(agent_id, message)
        before = self.pin_of(agent_id)
        admitted = admit(said, before, self._terms, now)
        self._keep_pin(agent_id, before, admitted.pin)
        if is_goodbye(message):
            _check_goodbye(said, before, admitted)
            return self.remove(agent_id, now)
        verdicts = self._weighed(agent_id, admitted.verdicts)
        first = source if seen is None else seen.first
        fresh = _KnownAgent(message, source, first, capabilities, verdicts, said.stamp.iat, ttl, now + ttl)
        self._seen[agent_id] = fresh
        if seen is None:
            self._sources[machine_of(first)] += 1
        if seen is None:
            return self._sighting("added", agent_id, fresh, now)
        if admitted.event == "rotate":
            return self._sighting("rotated", agent_id, fresh, now)
        if seen.suspect or _content(seen.message) != _content(message):
            return self._sighting("updated", agent_id, fresh, now)
        return None

    def _weighed(self, agent_id: str, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
        """A key that was only seen first here is the same as before, and nobody's word for whose it is (L1)."""
        known = self._known_pins(agent_id)
        if known is not None and known.provisioned:
            return verdicts
        return tuple(
            msgspec.structs.replace(each, state="unknown", reason=_TRUST_ON_FIRST_USE)
            if each.check == PIN_CHECK
            else each
            for each in verdicts
        )

    def _check_room(self, source: str) -> None:
        if len(self._seen) >= self._most:
            raise QuotaExceeded(
                f"{self._most} agents are known already.", path="$.agent", hint="Ask for fewer with a query."
            )
        if self._most_of_source is not None and self._sources[machine_of(source)] >= self._most_of_source:
            raise QuotaExceeded(
                f"{self._most_of_source} agents of {machine_of(source)} are known already.",
                path="$.agent",
                hint="Let it announce them to a registry.",
            )

    def _forget(self, agent_id: str) -> _KnownAgent:
        seen = self._seen.pop(agent_id)
        machine = machine_of(seen.first)
        self._sources[machine] -= 1
        if self._sources[machine] <= 0:
            del self._sources[machine]
        return seen

    def _keep_pin(self, agent_id: str, before: AgentPin | None, pin: AgentPin | None) -> None:
        if pin is None:
            return
        if before is None or _states(before) != _states(pin):
            self._bound(pin)
        self._pins[agent_id] = pin
        self._pins.move_to_end(agent_id)
        while len(self._pins) > 2 * self._most:
            oldest = next(iter(self._pins))
            if oldest in self._seen:  # who is there keeps its key, however many others come and go
                self._pins.move_to_end(oldest)
            else:
                del self._pins[oldest]

    def _sighting(self, kind: SightingKind, agent_id: str, seen: _KnownAgent, now: float, source: str = "") -> Sighting:
        return Sighting(
            kind=kind,
            agent_id=agent_id,
            message=seen.message,
            transport=self._transport,
            source=source or seen.source,
            at=now,
            ttl=seen.ttl,
            verdicts=seen.verdicts,
        )


def machine_of(source: str) -> str:
    """The address in `192.0.2.1:49353`; a source without a port is one itself."""
    host, mark, port = source.rpartition(":")
    return host if mark and port.isdigit() and ("." in host or host.endswith("]")) else source


def _states(pin: AgentPin) -> list[tuple[str, str]]:
    return [(key.key_id, key.state) for key in pin.keys]


# --- Reading a message ----------------------------------------------------------------------------


def agent_id_of(message: JsonObject) -> str:
    """The id in lower case; its form is checked before it is used for anything."""
    agent = message.get("agent")
    agent_id = agent.get("agent_id") if isinstance(agent, dict) else None
    if not isinstance(agent_id, str) or not _ID.match(agent_id.lower()):
        raise InvalidDocument("The message names no agent.", path="$.agent.agent_id", hint="Send a UUID.")
    return agent_id.lower()


def sequence_of(message: JsonObject) -> int:
    """`__seq`, or 0 where there is none."""
    metadata = message["agent"].get("metadata")
    found = metadata.get("__seq") if isinstance(metadata, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def ttl_of(message: JsonObject, default: int = limits.LAN_TTL_SECONDS) -> int:
    """What the message asks for, within bounds (P-7); in a Response it is what is left of that."""
    asked = message.get("ttl")
    least, most = limits.ANNOUNCED_TTL_SECONDS
    if "matched" in message:
        least = 1
    return min(most, max(least, asked if isinstance(asked, int) and not isinstance(asked, bool) else default))


def announcement_of(agent_id: str, message: JsonObject) -> AdmissionRequest:
    announced = parse_signed_announcement(message)
    metadata = message["agent"].get("metadata")
    told = metadata if isinstance(metadata, dict) else {}
    return AdmissionRequest(
        agent_id=agent_id,
        stamp=AnnouncementStamp(
            digest=hashlib.sha256(announced.signing_input).hexdigest(),
            seq=sequence_of(message) or None,
            iat=find_instant(told.get("__iat")),
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
    """The agent without what changes at every signing."""
    agent: JsonObject = message["agent"]
    metadata = agent.get("metadata")
    if not isinstance(metadata, dict):
        return agent
    return {**agent, "metadata": {name: value for name, value in metadata.items() if name not in _STAMPS}}


def is_goodbye(message: JsonObject) -> bool:
    metadata = message["agent"].get("metadata")
    return isinstance(metadata, dict) and metadata.get("__state") == "shutdown"


def _check_age(iat: float | None, now: float) -> None:
    """P-17: the same words again keep an agent alive only while they are young."""
    if iat is not None and now - iat > limits.ANNOUNCE_PAST_SECONDS:
        raise Replayed(
            f"It was signed more than {limits.ANNOUNCE_PAST_SECONDS} seconds ago.",
            path="$.agent.metadata.__iat",
            hint="Sign it again with a higher __seq.",
            details={"reason": "too_old"},
        )


def _check_goodbye(said: AdmissionRequest, before: AgentPin | None, admitted: AdmissionResult) -> None:
    """P-19: under a sequence of its own."""
    held = before.find_key(admitted.key_id) if before is not None and admitted.key_id is not None else None
    if said.stamp.seq is None or (held is not None and held.seq == said.stamp.seq):
        raise Replayed(
            "A goodbye must be signed with a higher __seq.",
            path="$.agent.metadata.__state",
            hint="Raise __seq and sign it again.",
            details={"reason": "replay"},
        )
