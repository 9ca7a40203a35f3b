"""`Announcer`: announces an agent on several transports until it is stopped.

It signs and repeats announcements, chooses between LAN and registry (`Rollback` in `protocols/announce/messages.py`), and
sends a goodbye. A failure on one transport is shown in `states` and retried; the other transports are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random as randomness
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import msgspec

from waypost import limits
from waypost.client.clock import WallClock
from waypost.client.default_transports import default_transports
from waypost.client.identity import Identity, MemorySequence, SequenceSource, load_identity
from waypost.errors import TooLarge, WaypostError
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.messages import Rollback, Suppress, initial_rollback
from waypost.protocols.announce.packets import compact_agent, fit_announcement, split_datagrams, write_txt_message
from waypost.settings import data_folder
from waypost.transports.port import Ack, ReceivesEchoes, Transport, TransportClock
from waypost.trust.announce.signed_announcement import sign_announcement
from waypost.trust.keys.private_key import PrivateKey

log = logging.getLogger("waypost.announcer")

AnnounceState: TypeAlias = Literal["waiting", "announced", "failed", "withdrawn"]
StateCallback: TypeAlias = Callable[["TransportState"], None]

_SIZE_LIMITED = ("mdns", "udp")
_DESCRIPTION_CHARS = 200
_REUSE_SHARE = 0.8  # of the time between two signatures: the next announcement may be a little late
_JITTER = (1 - limits.ANNOUNCE_JITTER, 1 + limits.ANNOUNCE_JITTER)
_MAX_DOUBLINGS = 8


class _SignedMessage(msgspec.Struct, frozen=True):
    message: JsonObject
    signed_at: float


class AnnouncementSigner:
    """Signs the announcements of an agent, in the size that a transport can carry."""

    def __init__(
        self,
        agent: JsonObject,
        key: PrivateKey,
        sequence: SequenceSource,
        *,
        previous: PrivateKey | None,
        transports: Iterable[str],
        legacy_salt: bool = False,
    ) -> None:
        """Sign for an agent.

        Args:
            agent: The `agent` object.
            key: Its private key.
            sequence: Its sequence numbers.
            previous: The key before, while the rotation is announced.
            transports: The names of the transports.
            legacy_salt: Sign RSA with the salt of the protocol's first implementation.
        """
        self._agent = agent
        self._key = key
        self._previous = previous
        self._sequence = sequence
        names = set(transports)
        self._size_limited = sorted(names & set(_SIZE_LIMITED))
        self._prefers_small = names == {"udp"}  # one datagram should be enough (P-23)
        self._legacy_salt = legacy_salt
        self._cached: _SignedMessage | None = None

    @property
    def agent_id(self) -> str:
        """The agent_id in lower case."""
        return str(self._agent["agent_id"]).lower()

    def change(self, agent: JsonObject) -> None:
        """Announce another content from now on.

        Args:
            agent: The `agent` object.
        """
        self._agent = agent
        self.refresh()

    def refresh(self) -> None:
        """Drop the signed announcement, so that the next one is signed with the current content."""
        self._cached = None

    def message(self, transport: str, now: float) -> JsonObject:
        """The announcement for a transport.

        For a registry it is signed each time, because it must be newer than any that the registry received elsewhere. All
        transports with limited size share one that is up to a minute old, so that receivers do not see two contents.

        Args:
            transport: The name of the transport.
            now: The time.
        """
        if transport not in _SIZE_LIMITED:
            return self._sign(self._agent, now)
        cached = self._cached
        if cached is None or not 0 <= now - cached.signed_at < limits.RESIGN_SECONDS * _REUSE_SHARE:
            cached = self._cached = _SignedMessage(self._fitting(now), now)
        return cached.message

    def goodbye(self, now: float) -> JsonObject:
        """A signed, short goodbye with its own sequence number (P-19).

        Args:
            now: The time.
        """
        agent = compact_agent(self._agent)
        return self._sign({**agent, "metadata": {**agent.get("metadata", {}), "__state": "shutdown"}}, now)

    def _fitting(self, now: float) -> JsonObject:
        """The whole agent, or one without metadata that only registries use, or a compact one."""
        for agent in (self._agent, drop_metadata(self._agent)):
            message = self._sign(agent, now)
            is_large = len(dump_json(message)) > limits.DATAGRAM_BYTES
            if not (self._prefers_small and is_large) and all(_fits(message, name) for name in self._size_limited):
                return message
        return fit_announcement(self._agent, lambda agent: self._sign(agent, now), "udp").message

    def _sign(self, agent: JsonObject, now: float) -> JsonObject:
        stamps = {"__seq": self._sequence.next(now), "__iat": to_rfc3339(now)}
        stamped = {**agent, "metadata": {**(agent.get("metadata") or {}), **stamps}}
        return sign_announcement(stamped, self._key, self._previous, older_readers=self._legacy_salt)


def drop_metadata(agent: JsonObject) -> JsonObject:
    """An agent whose metadata is the start of its description, for which people search.

    Args:
        agent: The `agent` object.
    """
    members = {name: value for name, value in agent.items() if name != "metadata"}
    description = (agent.get("metadata") or {}).get("description")
    if not isinstance(description, str):
        return members
    return {**members, "metadata": {"description": description[:_DESCRIPTION_CHARS]}}


def _fits(message: JsonObject, transport: str) -> bool:
    data = dump_json(message)
    try:
        if transport == "udp":
            return bool(split_datagrams(data))
        return bool(write_txt_message(data, str(message["agent"]["agent_id"]), str(message["protocol_version"])))
    except TooLarge:
        return False


class TransportState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an agent on one transport."""

    transport: str
    state: AnnounceState
    at: float
    expires_at: float | None = None
    reason: str = ""


class Announcer:
    """Announces an agent on transports. Use it with `async with`; leaving the block withdraws the agent.

    Attributes:
        states: The state on each transport: `waiting` until the first announcement was sent, then `announced`, `failed` (with a
            `reason`; it is tried again) or `withdrawn`.
        rollback: Whether LAN or registry is used at the moment.

    Example:
        async with Announcer.load(Path("agent.json")) as announcer:
            for name, state in announcer.states.items():
                print(name, state.state, state.reason)
            await asyncio.sleep(3600)
    """

    def __init__(
        self,
        agent: Mapping[str, Any],
        key: PrivateKey,
        transports: Sequence[Transport],
        *,
        previous: PrivateKey | None = None,
        sequence: SequenceSource | None = None,
        ttl: int | None = None,
        suppress: Suppress = "keepalive",
        legacy_salt: bool = False,
        clock: TransportClock | None = None,
        random: randomness.Random | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_state: StateCallback | None = None,
    ) -> None:
        """Prepare the announcements of an agent.

        Args:
            agent: The `agent` object, with its agent_id.
            key: Its private key.
            transports: Where to announce it.
            previous: The key before, while the rotation is announced.
            sequence: Its sequence numbers. Default: from the clock.
            ttl: The lease in seconds. Default: 10 on a LAN, 120 in a registry.
            suppress: The registry entry while the LAN works: `keepalive` keeps it, `strict` withdraws it.
            legacy_salt: Sign RSA with the salt of the protocol's first implementation.
            clock: The clock.
            random: Jitters the pauses.
            pause: Waits between announcements.
            on_state: Called when the state on a transport changes.
        """
        self.rollback: Rollback = initial_rollback(suppress)
        self.states: dict[str, TransportState] = {}
        self._clock = clock or WallClock()
        self._random = random or randomness.SystemRandom()
        self._pause = pause
        self._on_state = on_state
        self._signer = AnnouncementSigner(
            dict(agent),
            key,
            sequence or MemorySequence(),
            previous=previous,
            transports=[transport.name for transport in transports],
            legacy_salt=legacy_salt,
        )
        self._runs = _make_runs(transports, ttl)
        now = self._clock.now()
        self.states |= {run.name: TransportState(transport=run.name, state="waiting", at=now) for run in self._runs}
        self._has_rollback = {run.is_lan for run in self._runs} == {True, False}
        # Echoes on this transport show whether the LAN works.
        self._echo_run = next((run for run in self._runs if run.transport.name == "mdns"), None) or next(
            (run for run in self._runs if run.is_lan), None
        )
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        told = ", ".join(f"{state.transport} {state.state}" for state in self.states.values())
        return f"<Announcer {self.agent_id!r} {told or 'no transport'}>"

    @classmethod
    def load(
        cls,
        document: Mapping[str, Any] | bytes | Path,
        transports: Sequence[Transport] | None = None,
        *,
        data: Path | None = None,
        key: Path | None = None,
        **options: Any,
    ) -> Self:
        """An announcer for a document, with the key and the agent_id of this machine; both are created if missing.

        Args:
            document: A document of any dialect: a mapping, bytes, or the path of a file.
            transports: Where to announce it. Default: mDNS, if the extra `lan` is installed, and the registry that the
                command would use.
            data: The data folder.
            key: The file of the key. Default: a key in the data folder.
            **options: Further arguments of `Announcer`.

        Example:
            announcer = Announcer.load(Path("agent.json"), ttl=30)
            print(announcer.agent_id)
        """
        if isinstance(document, Path):
            content = document.read_bytes()
        else:
            content = document if isinstance(document, bytes) else dump_json(dict(document))
        folder = data or data_folder()
        chosen = default_transports(folder) if transports is None else transports
        return cls.of(load_identity(content, folder, key=key), chosen, **options)

    @classmethod
    def of(cls, identity: Identity, transports: Sequence[Transport], **options: Any) -> Self:
        """An announcer for an identity.

        Args:
            identity: The agent, its keys and its sequence numbers.
            transports: Where to announce it.
            **options: Further arguments of `Announcer`.

        Example:
            identity = load_identity(Path("agent.json").read_bytes(), Path("data"))
            announcer = Announcer.of(identity, [MemoryNetwork(ManualClock()).transport("here")])
        """
        return cls(
            identity.agent,
            identity.key,
            transports,
            previous=identity.previous,
            sequence=identity.sequence,
            **options,
        )

    # --- Lifecycle -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def agent_id(self) -> str:
        """The agent_id in lower case."""
        return self._signer.agent_id

    async def start(self) -> None:
        """Announce on every transport, and repeat it in the background.

        Returns when each transport was tried once, so that `states` says whether the agent is announced; a transport that takes
        longer than a few seconds stays `waiting`.

        Example:
            announcer = Announcer.load(Path("agent.json"))
            await announcer.start()
            print(announcer.states)
            await announcer.stop()
        """
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(run), name=f"announce {run.name}") for run in self._runs]
        tried = [loop.create_task(run.tried.wait()) for run in self._runs]
        if tried:
            _, waiting = await asyncio.wait(tried, timeout=limits.ANNOUNCE_START_SECONDS)
            for each in waiting:
                each.cancel()

    async def stop(self) -> None:
        """Withdraw the agent everywhere, and close the transports.

        Example:
            announcer = Announcer.load(Path("agent.json"))
            await announcer.start()
            await announcer.stop()
            print([state.state for state in announcer.states.values()])
        """
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await asyncio.gather(*(self._leave(run) for run in self._runs))

    def change(self, agent: Mapping[str, Any]) -> None:
        """Announce another content, at once. The agent_id stays.

        Args:
            agent: The `agent` object.

        Example:
            async with Announcer.load(Path("agent.json")) as announcer:
                announcer.change({"agent_name": "printer", "capabilities": [{"name": "print", "version": "1.1.0"}]})
        """
        self._signer.change({**agent, "agent_id": self.agent_id})
        self._wake_all()

    # --- One transport ---------------------------------------------------------------------------

    async def _repeat(self, run: _TransportRun) -> None:
        while True:
            run.wake.clear()
            seconds = await self._announce_once(run)
            if seconds > 0:
                await self._wait(run, seconds * self._random.uniform(*_JITTER))

    async def _announce_once(self, run: _TransportRun) -> float:
        """Announce, unless the rollback state forbids it. Returns the seconds until the next announcement."""
        if self._has_rollback and not run.is_lan and not self.rollback.uses_registry:
            await self._suppress(run)
            return run.period
        echoed_before = run.echoed_at()
        ack = await self._announce(run)
        if ack.accepted:
            run.failures = 0
            self._set_state(run, "announced", ack)
            seconds = self._period(run, ack)
            awaits_echo = self._has_rollback and run is self._echo_run
            return await self._await_echo(run, echoed_before, seconds) if awaits_echo else seconds
        run.failures += 1
        self._set_state(run, "failed", ack)
        self._roll(run, failed=True)
        return min(run.period, limits.ANNOUNCE_RETRY_SECONDS * 2.0 ** min(run.failures - 1, _MAX_DOUBLINGS))

    async def _announce(self, run: _TransportRun) -> Ack:
        try:
            if not run.is_open:
                await run.transport.open()
                run.is_open = True
            message = self._signer.message(run.transport.name, self._clock.now())
            return await run.transport.announce(message, run.ttl)
        except WaypostError as error:  # with the hint: `states` is the only place where it is shown
            return Ack(False, reason=f"{error.message} {error.hint}" if error.hint else error.message)
        except OSError as error:
            return Ack(False, reason=error.strerror or str(error))

    async def _suppress(self, run: _TransportRun) -> None:
        """`strict`: withdraw the registry entry, once."""
        state = self.states.get(run.name)
        if state is not None and state.state == "announced":
            with contextlib.suppress(WaypostError):
                await run.transport.withdraw(self.agent_id)
        if state is None or state.state != "withdrawn":
            self._set_state(run, "withdrawn", Ack(True))

    async def _leave(self, run: _TransportRun) -> None:
        if run.is_open:
            try:
                await self._say_goodbye(run)
            except (WaypostError, OSError) as error:
                log.debug("%s: the goodbye failed: %s", run.name, error)
            if run.name in self.states and self.states[run.name].state == "announced":
                self._set_state(run, "withdrawn", Ack(True))
        await run.transport.close()

    async def _say_goodbye(self, run: _TransportRun) -> None:
        """A signed goodbye, which receivers accept at once; then the withdrawal of the transport itself."""
        state = self.states.get(run.name)
        if state is None or state.state in ("waiting", "withdrawn"):
            return
        ack = await run.transport.announce(self._signer.goodbye(self._clock.now()), run.ttl)
        if run.is_lan or not ack.accepted:
            await run.transport.withdraw(self.agent_id)

    # --- Period and rollback ---------------------------------------------------------------------

    def _period(self, run: _TransportRun, ack: Ack) -> float:
        """Half the granted lease: less than requested in a registry, more on a crowded LAN (P-21).

        The period grows to it step by step, because a crowded LAN loses packets: a new agent needs several announcements.
        """
        granted = run.ttl if ack.expires_at is None else ack.expires_at - self._clock.now()
        least = limits.ANNOUNCED_TTL_SECONDS[0] / 4  # another clock may be ahead
        run.announcements += 1
        grown = run.period * 2.0 ** min(run.announcements - 1, _MAX_DOUBLINGS)
        return min(max(granted / 2, min(run.period, least)), grown, float(limits.RESIGN_SECONDS))

    async def _await_echo(self, run: _TransportRun, before: float | None, seconds: float) -> float:
        """Check that the announcement came back, and return the seconds until the next one.

        A lost announcement is repeated at once, so that a broken LAN is noticed before the leases there end.
        """
        await self._wait(run, limits.ECHO_SECONDS)
        looped = run.echoed_at() != before
        if not looped and run.wake.is_set():  # interrupted: the announcement is repeated anyway
            return 0.0
        self._roll(run, failed=False, looped=looped)
        return 0.0 if self.rollback.is_doubtful else seconds - limits.ECHO_SECONDS

    def _roll(self, run: _TransportRun, *, failed: bool, looped: bool = False) -> None:
        if not self._has_rollback or run is not self._echo_run:
            return
        before = self.rollback
        self.rollback = before.after("failed" if failed else "looped" if looped else "silent")
        if self.rollback.state != before.state:
            log.info("announcing: %s → %s", before.state, self.rollback.state)
            self._signer.refresh()
            self._wake_all(but=run)

    def _wake_all(self, but: _TransportRun | None = None) -> None:
        for run in self._runs:
            if run is not but:
                run.announcements = 0
                run.wake.set()

    async def _wait(self, run: _TransportRun, seconds: float) -> None:
        """Wait for the time to pass or for a wake-up."""
        both = (asyncio.ensure_future(self._pause(seconds)), asyncio.ensure_future(run.wake.wait()))
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in both:
                each.cancel()

    def _set_state(self, run: _TransportRun, name: AnnounceState, ack: Ack) -> None:
        before = self.states.get(run.name)
        state = TransportState(
            transport=run.name,
            state=name,
            at=self._clock.now(),
            expires_at=ack.expires_at if name == "announced" else None,
            reason=ack.reason,
        )
        self.states[run.name] = state
        run.tried.set()
        is_changed = before is None or (before.state, before.reason) != (state.state, state.reason)
        if is_changed and self._on_state is not None:
            self._on_state(state)


class _TransportRun:
    """One transport and the progress of the announcements on it."""

    def __init__(self, transport: Transport, name: str, ttl: int | None) -> None:
        self.transport = transport
        self.name = name
        self.is_lan = isinstance(transport, ReceivesEchoes)
        self.ttl = ttl or (limits.MDNS_TTL_SECONDS if self.is_lan else limits.LAN_TTL_SECONDS)
        self.period = min(self.ttl / 2, float(limits.RESIGN_SECONDS))
        self.wake = asyncio.Event()
        self.tried = asyncio.Event()  # set when the first announcement has succeeded or failed
        self.is_open = False
        self.failures = 0
        self.announcements = 0  # since the last change

    def echoed_at(self) -> float | None:
        """When an own announcement last came back, by the transport's clock."""
        return self.transport.echoed_at() if isinstance(self.transport, ReceivesEchoes) else None


def _make_runs(transports: Sequence[Transport], ttl: int | None) -> list[_TransportRun]:
    """Runs with unique names: two registries are `http` and `http-2`."""
    counts: dict[str, int] = {}
    runs: list[_TransportRun] = []
    for transport in transports:
        count = counts[transport.name] = counts.get(transport.name, 0) + 1
        runs.append(_TransportRun(transport, transport.name if count == 1 else f"{transport.name}-{count}", ttl))
    return runs
