"""What an announcer says: its agent, signed anew in time, in the size that a carrier takes. Time is an argument."""

from __future__ import annotations

import asyncio
import logging
import random as randomness
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress as suppressed
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from waypost import limits
from waypost.client.identity import Identity, MemorySequence, SequenceSource, load_identity
from waypost.client.identity import SequenceSource as Counter
from waypost.errors import TooLarge, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.messages import Rollback, Suppress, initial_rollback
from waypost.protocols.announce.packets import compact_agent, fit_announcement, split_datagrams, write_txt_message
from waypost.settings import data_folder
from waypost.transports.port import Ack, ReceivesEchoes, Transport, TransportClock
from waypost.trust.announce.signed_announcement import sign_announcement
from waypost.trust.keys.private_key import PrivateKey

_SIZE_LIMITED = ("mdns", "udp")

_DESCRIPTION_CHARS = 200

_REUSE_PART = 0.8  # of the time between two signatures: the next turn may come a little late


class _SignedMessage(msgspec.Struct, frozen=True):
    message: JsonObject
    signed_at: float


class AnnouncementSigner:
    def __init__(
        self,
        agent: JsonObject,
        key: PrivateKey,
        sequence: SequenceSource,
        *,
        previous: PrivateKey | None,
        carriers: Iterable[str],
        older: bool = False,
    ) -> None:
        """`carriers`: the names of the transports that it goes out by. `older`: with the salt that the first implementation
        asks for."""
        self._agent = agent
        self._key = key
        self._previous = previous
        self._sequence = sequence
        names = set(carriers)
        self._tight = sorted(names & set(_SIZE_LIMITED))
        self._prefers_small = names == {
            "udp"
        }  # nobody else hears it, so one datagram is what it should fit into (P-23)
        self._for_older = older
        self._kept: _SignedMessage | None = None

    @property
    def agent_id(self) -> str:
        return str(self._agent["agent_id"]).lower()

    def change(self, agent: JsonObject) -> None:
        self._agent = agent
        self.refresh()

    def refresh(self) -> None:
        """What is said next is signed anew."""
        self._kept = None

    def message(self, carrier: str, now: float) -> JsonObject:
        """Signed within the last minute, for a registry each time: there it must be newer than what was heard elsewhere. All
        carriers with little room say the same, so that nobody hears two contents."""
        if carrier not in _SIZE_LIMITED:
            return self._sign(self._agent, now)
        kept = self._kept
        if kept is None or not 0 <= now - kept.signed_at < limits.RESIGN_SECONDS * _REUSE_PART:
            kept = self._kept = _SignedMessage(self._fitting(now), now)
        return kept.message

    def goodbye(self, now: float) -> JsonObject:
        """P-19: signed, under a sequence of its own, and short."""
        bare = compact_agent(self._agent)
        return self._sign({**bare, "metadata": {**bare.get("metadata", {}), "__state": "shutdown"}}, now)

    def _fitting(self, now: float) -> JsonObject:
        """The whole agent, or one without what only registries use, or a compact one."""
        for agent in (self._agent, drop_metadata(self._agent)):
            message = self._sign(agent, now)
            is_large = len(dump_json(message)) > limits.DATAGRAM_BYTES
            if not (self._prefers_small and is_large) and all(_fits(message, carrier) for carrier in self._tight):
                return message
        return fit_announcement(self._agent, lambda agent: self._sign(agent, now), "udp").message

    def _sign(self, agent: JsonObject, now: float) -> JsonObject:
        stamps = {"__seq": self._sequence.next(now), "__iat": to_rfc3339(now)}
        said = {**agent, "metadata": {**(agent.get("metadata") or {}), **stamps}}
        return sign_announcement(said, self._key, self._previous, older_readers=self._for_older)


def drop_metadata(agent: JsonObject) -> JsonObject:
    """With its name and the head of its description, which people look for; without the rest of its metadata."""
    bare = {name: value for name, value in agent.items() if name != "metadata"}
    description = (agent.get("metadata") or {}).get("description")
    if not isinstance(description, str):
        return bare
    return {**bare, "metadata": {"description": description[:_DESCRIPTION_CHARS]}}


def _fits(message: JsonObject, carrier: str) -> bool:
    data = dump_json(message)
    try:
        if carrier == "udp":
            return bool(split_datagrams(data))
        return bool(write_txt_message(data, str(message["agent"]["agent_id"]), str(message["protocol_version"])))
    except TooLarge:
        return False


# ---- `Announcer`: an agent that shows up by itself, on every transport that it is given, until it is stopped.
#
# It signs, repeats in time, follows the way back to the registry (`protocols/announce/messages.py`), and says goodbye.
# What fails on
# one transport is told in `states` and tried again; the others do not notice.

log = logging.getLogger("waypost.announcer")

StateCallback = Callable[["TransportState"], None]

_JITTER = (1 - limits.ANNOUNCE_JITTER, 1 + limits.ANNOUNCE_JITTER)


class WallClock:
    def now(self) -> float:
        return time.time()


class TransportState(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands on one transport."""

    transport: str
    state: Literal["waiting", "announced", "failed", "withdrawn"]
    at: float
    expires_at: float | None = None
    reason: str = ""


class Announcer:
    def __init__(
        self,
        agent: Mapping[str, Any],
        key: PrivateKey,
        transports: Sequence[Transport],
        *,
        previous: PrivateKey | None = None,
        sequence: Counter | None = None,
        ttl: int | None = None,
        suppress: Suppress = "keepalive",
        legacy_salt: bool = False,
        clock: TransportClock | None = None,
        random: randomness.Random | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_state: StateCallback | None = None,
    ) -> None:
        """`ttl`: seconds; without it 10 on a LAN, 120 in a registry. `suppress`: what becomes of the entry in the registry
        while the LAN carries: `keepalive`, or `strict` to take it away. `legacy_salt`: RSA as the first implementation of the
        protocol wants it."""
        self.rollback: Rollback = initial_rollback(suppress)
        self.states: dict[str, TransportState] = {}
        self._clock = clock or WallClock()
        self._random = random or randomness.SystemRandom()
        self._pause = pause
        self._on_state = on_state
        names = [transport.name for transport in transports]
        self._signed = AnnouncementSigner(
            dict(agent), key, sequence or MemorySequence(), previous=previous, carriers=names, older=legacy_salt
        )
        self._lanes = _make_runs(transports, ttl)
        self._rolls = {lane.is_lan for lane in self._lanes} == {True, False}
        self._guide = next((lane for lane in self._lanes if lane.transport.name == "mdns"), None) or next(
            (lane for lane in self._lanes if lane.is_lan), None
        )
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    def load(
        cls,
        document: Mapping[str, Any] | bytes | Path,
        transports: Sequence[Transport],
        *,
        data: Path | None = None,
        key: Path | None = None,
        **more: Any,
    ) -> Self:
        """Of a document in any dialect, with the key and the agent_id that are kept in the data folder, or made there."""
        identity = load_identity(_document_bytes(document), data or data_folder(), key=key)
        return cls.of(identity, transports, **more)

    @classmethod
    def of(cls, identity: Identity, transports: Sequence[Transport], **more: Any) -> Self:
        return cls(
            identity.agent,
            identity.key,
            transports,
            previous=identity.previous,
            sequence=identity.sequence,
            **more,
        )

    # --- Life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def agent_id(self) -> str:
        return self._signed.agent_id

    async def start(self) -> None:
        """Announce on every transport, and go on doing so in the background."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep(lane), name=f"announce {lane.name}") for lane in self._lanes]

    async def stop(self) -> None:
        """Withdraw everywhere, and close the transports."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await asyncio.gather(*(self._leave(lane) for lane in self._lanes))

    def change(self, agent: Mapping[str, Any]) -> None:
        """Announce this from now on, at once. Its agent_id stays."""
        self._signed.change({**agent, "agent_id": self.agent_id})
        self._wake_all()

    # --- One transport ---------------------------------------------------------------------------

    async def _keep(self, lane: _TransportRun) -> None:
        while True:
            lane.wake.clear()
            seconds = await self._turn(lane)
            if seconds > 0:
                await self._wait(lane, seconds * self._random.uniform(*_JITTER))

    async def _turn(self, lane: _TransportRun) -> float:
        """One announcement, or none where the state says so. How long until the next."""
        if self._rolls and not lane.is_lan and not self.rollback.uses_registry:
            await self._suppress(lane)
            return lane.period
        echoed_before = lane.echoed_at()
        ack = await self._announce(lane)
        if ack.accepted:
            lane.failures = 0
            self._note(lane, "announced", ack)
            seconds = self._period(lane, ack)
            is_followed = self._rolls and lane is self._guide
            return await self._listen_back(lane, echoed_before, seconds) if is_followed else seconds
        lane.failures += 1
        self._note(lane, "failed", ack)
        self._roll(lane, failed=True)
        return min(lane.period, limits.ANNOUNCE_RETRY_SECONDS * 2.0 ** min(lane.failures - 1, 8))

    async def _announce(self, lane: _TransportRun) -> Ack:
        try:
            if not lane.is_open:
                await lane.transport.open()
                lane.is_open = True
            message = self._signed.message(lane.transport.name, self._clock.now())
            return await lane.transport.announce(message, lane.ttl)
        except WaypostError as error:  # with what to do about it: whoever reads the states sees no other word of it
            return Ack(False, reason=f"{error.message} {error.hint}" if error.hint else error.message)
        except OSError as error:
            return Ack(False, reason=error.strerror or str(error))

    async def _suppress(self, lane: _TransportRun) -> None:
        """`strict`: the entry is taken away, once."""
        state = self.states.get(lane.name)
        if state is not None and state.state == "announced":
            with suppressed(WaypostError):
                await lane.transport.withdraw(self.agent_id)
        if state is None or state.state != "withdrawn":
            self._note(lane, "withdrawn", Ack(True))

    async def _leave(self, lane: _TransportRun) -> None:
        if lane.is_open:
            try:
                await self._say_goodbye(lane)
            except (WaypostError, OSError) as error:
                log.debug("%s: the goodbye was not heard: %s", lane.name, error)
            if lane.name in self.states and self.states[lane.name].state == "announced":
                self._note(lane, "withdrawn", Ack(True))
        await lane.transport.close()

    async def _say_goodbye(self, lane: _TransportRun) -> None:
        """Signed, so that it is believed at once; then the transport's own way."""
        state = self.states.get(lane.name)
        if state is None or state.state == "withdrawn":
            return
        ack = await lane.transport.announce(self._signed.goodbye(self._clock.now()), lane.ttl)
        if lane.is_lan or not ack.accepted:
            await lane.transport.withdraw(self.agent_id)

    # --- The way back ----------------------------------------------------------------------------

    def _period(self, lane: _TransportRun, ack: Ack) -> float:
        """Half the time that was granted: in a registry it may be less than what was asked for, on a crowded LAN it is longer
        (P-21). It is not made use of at once: in a crowd words are lost, and who begins is heard after a few of them."""
        granted = lane.ttl if ack.expires_at is None else ack.expires_at - self._clock.now()
        least = limits.ANNOUNCED_TTL_SECONDS[0] / 4  # another clock may be ahead
        lane.turns += 1
        begun = lane.period * 2.0 ** min(lane.turns - 1, 8)
        return min(max(granted / 2, min(lane.period, least)), begun, float(limits.RESIGN_SECONDS))

    async def _listen_back(self, lane: _TransportRun, before: float | None, seconds: float) -> float:
        """Did the announcement come back? One that did not is repeated at once, so that a LAN that is lost is noticed
        within the time that others still believe in. How long until the next."""
        await self._wait(lane, limits.ECHO_SECONDS)
        looped = lane.echoed_at() != before
        if not looped and lane.wake.is_set():  # it was interrupted, and is said again anyway
            return 0.0
        self._roll(lane, failed=False, looped=looped)
        return 0.0 if self.rollback.is_doubtful else seconds - limits.ECHO_SECONDS

    def _roll(self, lane: _TransportRun, *, failed: bool, looped: bool = False) -> None:
        if not self._rolls or lane is not self._guide:
            return
        before = self.rollback
        self.rollback = before.after("failed" if failed else "looped" if looped else "silent")
        if self.rollback.state != before.state:
            log.info("announcing: %s → %s", before.state, self.rollback.state)
            self._signed.refresh()
            self._wake_all(but=lane)

    def _wake_all(self, but: _TransportRun | None = None) -> None:
        for lane in self._lanes:
            if lane is not but:
                lane.turns = 0
                lane.wake.set()

    async def _wait(self, lane: _TransportRun, seconds: float) -> None:
        """For the time to pass, or for something to happen."""
        both = (asyncio.ensure_future(self._pause(seconds)), asyncio.ensure_future(lane.wake.wait()))
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()

    def _note(
        self, lane: _TransportRun, state: Literal["waiting", "announced", "failed", "withdrawn"], ack: Ack
    ) -> None:
        before = self.states.get(lane.name)
        told = TransportState(
            transport=lane.name,
            state=state,
            at=self._clock.now(),
            expires_at=ack.expires_at if state == "announced" else None,
            reason=ack.reason,
        )
        self.states[lane.name] = told
        is_news = before is None or (before.state, before.reason) != (told.state, told.reason)
        if is_news and self._on_state is not None:
            self._on_state(told)


class _TransportRun:
    """One transport and what is known of it."""

    def __init__(self, transport: Transport, name: str, ttl: int | None) -> None:
        self.transport = transport
        self.name = name
        self.is_lan = isinstance(transport, ReceivesEchoes)
        self.ttl = ttl or (limits.MDNS_TTL_SECONDS if self.is_lan else limits.LAN_TTL_SECONDS)
        self.period = min(self.ttl / 2, float(limits.RESIGN_SECONDS))
        self.wake = asyncio.Event()
        self.is_open = False
        self.failures = 0
        self.turns = 0  # announcements since the last change

    def echoed_at(self) -> float | None:
        """When an own word last came back, by the transport's own clock."""
        return self.transport.echoed_at() if isinstance(self.transport, ReceivesEchoes) else None


def _make_runs(transports: Sequence[Transport], ttl: int | None) -> list[_TransportRun]:
    """Each under a name of its own: two registries are `http` and `http-2`."""
    seen: dict[str, int] = {}
    lanes: list[_TransportRun] = []
    for transport in transports:
        count = seen[transport.name] = seen.get(transport.name, 0) + 1
        lanes.append(_TransportRun(transport, transport.name if count == 1 else f"{transport.name}-{count}", ttl))
    return lanes


def _document_bytes(document: Mapping[str, Any] | bytes | Path) -> bytes:
    if isinstance(document, Path):
        return document.read_bytes()
    return document if isinstance(document, bytes) else dump_json(_plain(document))


def _plain(document: Mapping[str, Any]) -> JsonObject:
    return dict(document)
