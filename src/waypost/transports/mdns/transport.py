"""Announcements by mDNS and DNS-SD (announce.md §6.1), with zeroconf as responder (extra `lan`).

Each agent is an instance of `_agentsc._tcp.local.` whose TXT record carries the signed message, or points at it
(`protocols/announce/packets.py`). Names, addresses and ports around it are for other tools; what counts is the
message, and its signature.
A goodbye is anybody's word: it makes an agent suspect (THREATS L4).
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from waypost import limits
from waypost.errors import ConfigurationError, InvalidDocument, WaypostError
from waypost.model.json import JsonObject
from waypost.protocols.announce.messages import AgentQuery, VersionNegotiation, kind_of_message, parse_message
from waypost.protocols.announce.packets import SERVICE, TxtMessage, TxtPointer, parse_txt
from waypost.transports.directory import AgentDirectory, agent_id_of, is_goodbye
from waypost.transports.dispatcher import LocalAgents
from waypost.transports.interfaces import Interface, find_interfaces
from waypost.transports.port import (
    QUERY_SECONDS,
    UNKNOWN_SENDER,
    Ack,
    DropCounts,
    MessageContext,
    MessageHandler,
    QueryHandler,
    SightingCallback,
    TransportClock,
)
from waypost.transports.responses import QueryResponses
from waypost.transports.subscriptions import Subscriber, Subscriptions
from waypost.trust.announce.signed_announcement import parse_signed_announcement

try:
    from zeroconf import DNSOutgoing, DNSQuestion, DNSText, RecordUpdate, RecordUpdateListener, Zeroconf  # type: ignore[attr-defined]
    from zeroconf.asyncio import AsyncZeroconf

    from waypost.transports.mdns.packet_guard import PacketGuard
    from waypost.transports.mdns.publisher import MdnsPublisher, make_txt
except ImportError as error:
    raise ConfigurationError(
        "mDNS needs the package zeroconf.", path="mdns", hint="Install it with `pip install 'waypost[lan]'`."
    ) from error

log = logging.getLogger("waypost.transports")

Fetch = Callable[[str], Awaitable[bytes]]
_QUERY_FLAGS, _TYPE_PTR, _TYPE_TXT, _CLASS_IN = 0x0000, 12, 16, 1
_LOOK_AROUND_SECONDS = (0.0, 1.0, 3.0)  # after a subscription: RFC 6762 §5.2
_REFRESH_PART = 0.8  # of its ttl, after which a record that is not repeated is asked for again


class _Text:
    """The TXT record of one instance, as it was last heard."""

    __slots__ = ("agent_id", "data", "expires_at", "heard_at", "is_asked", "message", "refresh_at")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.agent_id = ""
        self.message: JsonObject | None = None
        self.heard_at = -1.0
        self.expires_at = self.refresh_at = 0.0
        self.is_asked = False


class MdnsTransport(RecordUpdateListener):
    name = "mdns"

    def __init__(
        self,
        interfaces: Sequence[str],
        clock: TransportClock,
        *,
        ipv6: bool = True,
        service: str = SERVICE,
        pointer: Callable[[str], str] | None = None,
        fetch: Fetch | None = None,
        random: randomness.Random | None = None,
        directory: AgentDirectory | None = None,
    ) -> None:
        """`pointer` says where the message of an agent can be had when it fits no record; `fetch` follows the pointers of
        others, and must guard against addresses that nobody may be sent to."""
        self._names = interfaces
        self._ipv6 = ipv6
        self._service = service
        self._pointer = pointer
        self._fetch = fetch
        self._clock = clock
        self._random = random or randomness.SystemRandom()
        self._own = LocalAgents()
        if directory is None:
            directory = AgentDirectory(self.name, most_of_source=limits.DIRECTORY_AGENTS_PER_SOURCE)
        self._listening = Subscriptions(directory, clock)
        self._negotiation = VersionNegotiation()
        self._heard: MessageHandler | None = None
        self._asked: list[tuple[QueryResponses, asyncio.Event]] = []
        self._texts: dict[str, _Text] = {}
        self._working: set[asyncio.Task[Any]] = set()
        self._fetching: set[str] = set()
        self._zeroconf: AsyncZeroconf | None = None
        self._publisher: MdnsPublisher | None = None
        self._guard: PacketGuard | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._echoed_at: float | None = None

    # --- The port --------------------------------------------------------------------------------

    async def open(self) -> None:
        interfaces = find_interfaces(self._names)
        try:
            self._zeroconf = AsyncZeroconf(interfaces=_choices(interfaces, self._ipv6))
            await self._zeroconf.zeroconf.async_wait_for_start()
        except (OSError, RuntimeError) as error:
            raise ConfigurationError(
                f"Multicast cannot be used on {', '.join(self._names)}: {error}.",
                path="mdns",
                hint="Name an interface that is up and can do multicast.",
            ) from None
        zeroconf = self._zeroconf.zeroconf
        self._guard = PacketGuard(interfaces)
        if self._heard is not None:
            self._guard.give_way()
        self._guard.attach_to(zeroconf)
        self._publisher = MdnsPublisher(zeroconf, _addresses(interfaces, self._ipv6), self._service, self._random)
        zeroconf.async_add_listener(self, None)
        self._plan_sweep()

    async def close(self) -> None:
        if self._zeroconf is None:
            return
        zeroconf, self._zeroconf, self._publisher = self._zeroconf, None, None
        if self._sweep is not None:
            self._sweep.cancel()
        if self._guard is not None:
            self._guard.detach()
        zeroconf.zeroconf.async_remove_listener(self)
        self._listening.close()
        for task in tuple(self._working):
            task.cancel()
        zeroconf.zeroconf.registry.async_remove(zeroconf.zeroconf.registry.async_get_service_infos())
        await zeroconf.async_close()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        publisher = self._publisher
        if publisher is None:
            return Ack(False, reason="The transport is closed.")
        if self._guard is not None and self._guard.is_cut():
            return Ack(False, reason="The link is down.")
        try:
            text = make_txt(message, self._pointer)
            granted = self._record_ttl(ttl)
            until = self._own.put(message, granted, self._clock.now())
            await publisher.publish(message, text, granted)
        except WaypostError as error:
            return Ack(False, reason=error.message)
        if is_goodbye(message):
            publisher.forget(agent_id_of(message))
        return Ack(True, until)

    async def withdraw(self, agent_id: str) -> None:
        self._own.drop(agent_id)
        if self._publisher is not None:
            await self._publisher.withdraw(agent_id.lower())

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        answers, arrived = QueryResponses(query), asyncio.Event()
        now = self._clock.now()
        for known in self._texts.values():
            if known.message is not None and now < known.expires_at:
                self._answered(answers, known.message)
        if query.agent_id is not None and len(answers):
            return answers.found()
        entry = (answers, arrived)
        self._asked.append(entry)
        self._ask(self._service, _TYPE_PTR)
        try:
            async with asyncio.timeout(timeout):
                await (arrived.wait() if query.agent_id is not None else asyncio.Event().wait())
        except TimeoutError:
            pass
        finally:
            self._asked.remove(entry)
        return answers.found()

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._listening.subscribe(callback, query)
        now = self._clock.now()
        for known in tuple(self._texts.values()):
            if known.message is not None and now < known.expires_at:
                self._listening.hear(known.message, "", max(1, int(known.expires_at - now)))
        loop = asyncio.get_running_loop()
        for delay in _LOOK_AROUND_SECONDS:
            loop.call_later(delay, self._ask, self._service, _TYPE_PTR)
        return subscriber

    def serve(self, answer: QueryHandler | None, heard: MessageHandler | None) -> None:
        """Queries of mDNS are answered from the records that are published: `answer` is not asked. A registry that wants its
        agents to be found here announces them."""
        self._heard = heard
        if heard is not None and self._guard is not None:
            self._guard.give_way()

    def echoed_at(self) -> float | None:
        return self._echoed_at

    def tally(self) -> DropCounts:
        return DropCounts(dropped=self._guard.refused() if self._guard is not None else 0)

    # --- What comes in ---------------------------------------------------------------------------

    def async_update_records(self, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
        """Called by zeroconf for each packet, with what it holds; and for what its memory lets go of, which nobody said."""
        for update in records:
            record = update.new
            if record.ttl and record.is_expired(now):
                continue
            if isinstance(record, DNSText) and record.name.lower().endswith(f".{self._service}"):
                self._take_text(record.name.lower(), record.text, int(record.ttl))

    def _take_text(self, name: str, data: bytes, ttl: int) -> None:
        source = self._guard.source if self._guard is not None else ""
        known = self._texts.get(name)
        if ttl == 0:
            if known is not None and known.agent_id:
                self._listening.goodbye(known.agent_id, source)
            return
        now, ttl = self._clock.now(), min(ttl, limits.ANNOUNCED_TTL_SECONDS[1])
        if known is None or known.data != data:
            known = self._read(name, data)
        known.expires_at, known.refresh_at, known.is_asked = now + ttl, now + ttl * _REFRESH_PART, False
        if self._publisher is not None and self._publisher.is_own(name, data):
            self._echoed_at = now
        if known.message is not None:
            self._take_message(known, source, ttl)

    def _read(self, name: str, data: bytes) -> _Text:
        if name not in self._texts and len(self._texts) >= limits.DIRECTORY_AGENTS:
            del self._texts[next(iter(self._texts))]  # the oldest name; who is there says it again
        known = self._texts[name] = _Text(data)
        try:
            read = parse_txt(data)
            if isinstance(read, TxtPointer):
                known.agent_id = read.agent_id
                self._follow(known, read)
            else:
                known.message = _message(read)
                known.agent_id = agent_id_of(known.message)
        except WaypostError as error:
            known.message = None
            log.debug("mdns: the record of %s came to nothing: %s", name, error)
        return known

    def _take_message(self, known: _Text, source: str, ttl: int) -> None:
        message, now = known.message, self._clock.now()
        if message is None or not self._speaks(message, source):
            return
        sender = self._guard.sender if self._guard is not None else UNKNOWN_SENDER
        if self._listening.hear(message, source, ttl):
            sender.believe()
        for answers, arrived in self._asked:
            if self._answered(answers, message):
                arrived.set()
        is_repeated = 0 <= now - known.heard_at < 1  # each is sent three times in a row
        if self._heard is None or self._own.holds(message) or (known.heard_at >= 0 and is_repeated):
            return
        known.heard_at = now
        how = MessageContext(transport=self.name, source=source, sender=sender)
        self._begin(self._tell(self._heard, {**message, "ttl": ttl}, how))

    def _speaks(self, message: JsonObject, source: str) -> bool:
        """Whether it is of a major that is spoken here; if not, the source is shown which one is (P-32)."""
        try:
            reading = self._negotiation.read(source, message.get("protocol_version"), self._clock.now())
        except WaypostError as error:
            log.debug("mdns: a message of %s came to nothing: %s", source, error)
            return False
        if reading.answer and self._publisher is not None:
            self._publisher.show(source)
        if reading.warn:
            log.warning("mdns: %s speaks %s", source, message["protocol_version"])
        return reading.process

    def _answered(self, answers: QueryResponses, message: JsonObject) -> bool:
        return not is_goodbye(message) and answers.take(message, self._listening.directory.pin_of(agent_id_of(message)))

    async def _tell(self, heard: MessageHandler, message: JsonObject, how: MessageContext) -> None:
        try:
            await heard(message, how)
            how.sender.believe()
        except WaypostError as error:
            log.debug("mdns: an announcement of %s was refused: %s", how.source, error)

    # --- Pointers --------------------------------------------------------------------------------

    def _follow(self, known: _Text, pointer: TxtPointer) -> None:
        if self._fetch is None or pointer.url in self._fetching:
            return
        if len(self._fetching) < limits.MDNS_CONCURRENT_FETCHES:
            self._fetching.add(pointer.url)
            source = self._guard.source if self._guard is not None else ""
            self._begin(self._fetch_message(self._fetch, known, pointer, source))

    async def _fetch_message(self, fetch: Fetch, known: _Text, pointer: TxtPointer, source: str) -> None:
        try:
            message = parse_message(await fetch(pointer.url))
            check_pointer_target(pointer, message)
        except WaypostError as error:
            log.debug("mdns: the pointer of %s leads nowhere: %s", pointer.agent_id, error)
            return
        finally:
            self._fetching.discard(pointer.url)
        known.message = message
        left = int(known.expires_at - self._clock.now())
        if left > 0:
            self._take_message(known, source, left)

    # --- What goes out ---------------------------------------------------------------------------

    def _ask(self, name: str, kind: int) -> None:
        """A question to all, answered to all: an answer to one alone could be asked for in another's name (L2)."""
        if self._zeroconf is not None:
            out = DNSOutgoing(_QUERY_FLAGS)
            out.add_question(DNSQuestion(name, kind, _CLASS_IN))
            self._zeroconf.zeroconf.async_send(out)

    def _record_ttl(self, ttl: int) -> int:
        """P-21: many instances on a link speak less often."""
        return max(ttl, limits.MDNS_CROWDED_TTL_SECONDS) if len(self._texts) > limits.MDNS_CROWDED_INSTANCES else ttl

    def _plan_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(limits.DIRECTORY_SWEEP_SECONDS, self._run_sweep)

    def _run_sweep(self) -> None:
        now = self._clock.now()
        for name, known in tuple(self._texts.items()):
            if now >= known.expires_at:
                del self._texts[name]
            elif now >= known.refresh_at and not known.is_asked:
                known.is_asked = True
                self._ask(name, _TYPE_TXT)
        if self._publisher is not None:
            for agent_id in self._publisher.agents():
                if self._own.find(agent_id, now) is None:
                    self._begin(self._publisher.withdraw(agent_id))
        self._plan_sweep()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)


def check_pointer_target(pointer: TxtPointer, message: JsonObject) -> None:
    """Another agent or another key than the record named would be somebody else's message."""
    key = parse_signed_announcement(message).key
    if agent_id_of(message) != pointer.agent_id or key is None or key.key_id != pointer.key_id:
        raise InvalidDocument("The pointer leads to another agent.", path="$", hint="Ignore this record.")


def _message(read: TxtMessage) -> JsonObject:
    message = parse_message(read.message)
    if kind_of_message(message) == "query" or (read.agent_id is not None and agent_id_of(message) != read.agent_id):
        raise InvalidDocument("The record carries another message than it names.", path="$", hint="Ignore it.")
    return message


def _choices(interfaces: Sequence[Interface], ipv6: bool) -> list[str | int]:
    """Addresses of IPv4; indexes of those that have a link-local address of IPv6."""
    chosen: list[str | int] = [str(interface.address) for interface in interfaces]
    if ipv6:
        chosen += [
            interface.index for interface in interfaces if any(address.is_link_local for address in interface.v6)
        ]
    return chosen


def _addresses(interfaces: Sequence[Interface], ipv6: bool) -> list[bytes]:
    """Where the agents of this machine are, as their records say."""
    v6 = [address.packed for each in interfaces for address in each.v6 if ipv6 and not address.is_loopback]
    return [each.address.packed for each in interfaces] + v6
