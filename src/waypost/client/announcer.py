"""`Announcer`: an agent that shows up by itself, on every transport that it is given, until it is stopped.

It signs, repeats in time, follows the way back to the registry (`wire/announce_rollback.py`), and says goodbye. What fails on
one transport is told in `states` and tried again; the others do not notice.
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress as suppressed
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from waypost import limits
from waypost.client.identity import CountedSequence, Identity, load_identity
from waypost.client.identity import Sequence as Counter
from waypost.client.signed import SignedAgent
from waypost.errors import WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.settings import data_folder
from waypost.transports.port import Ack, Clock, Echoing, Transport
from waypost.trust.signing import PrivateKey
from waypost.wire.announce_rollback import Rollback, Suppress, begin

log = logging.getLogger("waypost.announcer")

Told = Callable[["LaneState"], None]
_JITTER = (1 - limits.ANNOUNCE_JITTER, 1 + limits.ANNOUNCE_JITTER)


class WallClock:
    def now(self) -> float:
        return time.time()


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
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
        clock: Clock | None = None,
        random: randomness.Random | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_state: Told | None = None,
    ) -> None:
        """`ttl`: seconds; without it 10 on a LAN, 120 in a registry. `suppress`: what becomes of the entry in the registry
        while the LAN carries: `keepalive`, or `strict` to take it away. `legacy_salt`: RSA as the first implementation of the
        protocol wants it."""
        self.rollback: Rollback = begin(suppress)
        self.states: dict[str, LaneState] = {}
        self._clock = clock or WallClock()
        self._random = random or randomness.SystemRandom()
        self._pause = pause
        self._on_state = on_state
        names = [transport.name for transport in transports]
        self._signed = SignedAgent(
            dict(agent), key, sequence or CountedSequence(), previous=previous, carriers=names, older=legacy_salt
        )
        self._lanes = _lanes(transports, ttl)
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
        identity = load_identity(_bytes(document), data or data_folder(), key=key)
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

    async def _keep(self, lane: _Lane) -> None:
        while True:
            lane.wake.clear()
            seconds = await self._turn(lane)
            if seconds > 0:
                await self._wait(lane, seconds * self._random.uniform(*_JITTER))

    async def _turn(self, lane: _Lane) -> float:
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

    async def _announce(self, lane: _Lane) -> Ack:
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

    async def _suppress(self, lane: _Lane) -> None:
        """`strict`: the entry is taken away, once."""
        state = self.states.get(lane.name)
        if state is not None and state.state == "announced":
            with suppressed(WaypostError):
                await lane.transport.withdraw(self.agent_id)
        if state is None or state.state != "withdrawn":
            self._note(lane, "withdrawn", Ack(True))

    async def _leave(self, lane: _Lane) -> None:
        if lane.is_open:
            try:
                await self._say_goodbye(lane)
            except (WaypostError, OSError) as error:
                log.debug("%s: the goodbye was not heard: %s", lane.name, error)
            if lane.name in self.states and self.states[lane.name].state == "announced":
                self._note(lane, "withdrawn", Ack(True))
        await lane.transport.close()

    async def _say_goodbye(self, lane: _Lane) -> None:
        """Signed, so that it is believed at once; then the transport's own way."""
        state = self.states.get(lane.name)
        if state is None or state.state == "withdrawn":
            return
        ack = await lane.transport.announce(self._signed.goodbye(self._clock.now()), lane.ttl)
        if lane.is_lan or not ack.accepted:
            await lane.transport.withdraw(self.agent_id)

    # --- The way back ----------------------------------------------------------------------------

    def _period(self, lane: _Lane, ack: Ack) -> float:
        """Half the time that was granted: in a registry it may be less than what was asked for, on a crowded LAN it is longer
        (P-21). It is not made use of at once: in a crowd words are lost, and who begins is heard after a few of them."""
        granted = lane.ttl if ack.expires_at is None else ack.expires_at - self._clock.now()
        least = limits.ANNOUNCED_TTL_SECONDS[0] / 4  # another clock may be ahead
        lane.turns += 1
        begun = lane.period * 2.0 ** min(lane.turns - 1, 8)
        return min(max(granted / 2, min(lane.period, least)), begun, float(limits.RESIGN_SECONDS))

    async def _listen_back(self, lane: _Lane, before: float | None, seconds: float) -> float:
        """Did the announcement come back? One that did not is repeated at once, so that a LAN that is lost is noticed
        within the time that others still believe in. How long until the next."""
        await self._wait(lane, limits.ECHO_SECONDS)
        looped = lane.echoed_at() != before
        if not looped and lane.wake.is_set():  # it was interrupted, and is said again anyway
            return 0.0
        self._roll(lane, failed=False, looped=looped)
        return 0.0 if self.rollback.is_doubtful else seconds - limits.ECHO_SECONDS

    def _roll(self, lane: _Lane, *, failed: bool, looped: bool = False) -> None:
        if not self._rolls or lane is not self._guide:
            return
        before = self.rollback
        self.rollback = before.after("failed" if failed else "looped" if looped else "silent")
        if self.rollback.state != before.state:
            log.info("announcing: %s → %s", before.state, self.rollback.state)
            self._signed.refresh()
            self._wake_all(but=lane)

    def _wake_all(self, but: _Lane | None = None) -> None:
        for lane in self._lanes:
            if lane is not but:
                lane.turns = 0
                lane.wake.set()

    async def _wait(self, lane: _Lane, seconds: float) -> None:
        """For the time to pass, or for something to happen."""
        both = (asyncio.ensure_future(self._pause(seconds)), asyncio.ensure_future(lane.wake.wait()))
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()

    def _note(self, lane: _Lane, state: Literal["waiting", "announced", "failed", "withdrawn"], ack: Ack) -> None:
        before = self.states.get(lane.name)
        told = LaneState(
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


class _Lane:
    """One transport and what is known of it."""

    def __init__(self, transport: Transport, name: str, ttl: int | None) -> None:
        self.transport = transport
        self.name = name
        self.is_lan = isinstance(transport, Echoing)
        self.ttl = ttl or (limits.MDNS_TTL_SECONDS if self.is_lan else limits.LAN_TTL_SECONDS)
        self.period = min(self.ttl / 2, float(limits.RESIGN_SECONDS))
        self.wake = asyncio.Event()
        self.is_open = False
        self.failures = 0
        self.turns = 0  # announcements since the last change

    def echoed_at(self) -> float | None:
        """When an own word last came back, by the transport's own clock."""
        return self.transport.echoed_at() if isinstance(self.transport, Echoing) else None


def _lanes(transports: Sequence[Transport], ttl: int | None) -> list[_Lane]:
    """Each under a name of its own: two registries are `http` and `http-2`."""
    seen: dict[str, int] = {}
    lanes: list[_Lane] = []
    for transport in transports:
        count = seen[transport.name] = seen.get(transport.name, 0) + 1
        lanes.append(_Lane(transport, transport.name if count == 1 else f"{transport.name}-{count}", ttl))
    return lanes


def _bytes(document: Mapping[str, Any] | bytes | Path) -> bytes:
    if isinstance(document, Path):
        return document.read_bytes()
    return document if isinstance(document, bytes) else dump_json(_plain(document))


def _plain(document: Mapping[str, Any]) -> JsonObject:
    return dict(document)
