"""Announcements by mDNS and DNS-SD (announce.md §6.1), with zeroconf as responder (extra `lan`).

Each agent is an instance of `_agentsc._tcp.local.` whose TXT record carries the signed message, or a pointer to it
(`protocols/announce/packets.py`). The names, addresses and ports of an instance are for other tools; only the signed message
counts. Anyone can send an mDNS goodbye, so it only makes an agent suspect (THREATS L4).
"""

from __future__ import annotations

import asyncio
import logging
import random as randomness
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any

from waypost import limits
from waypost.errors import ConfigurationError, InvalidDocument, WaypostError
from waypost.model.json import JsonObject
from waypost.protocols.announce.messages import AgentQuery, VersionNegotiation, kind_of_message, parse_message
from waypost.protocols.announce.packets import SERVICE, TxtMessage, TxtPointer, parse_txt
from waypost.transports.directory import AgentDirectory, Subscriber, Subscriptions, agent_id_of, is_goodbye
from waypost.transports.dispatcher import LocalAgents
from waypost.transports.interfaces import Interface, find_interfaces
from waypost.transports.packet_filter import (
    PacketAdmission,
    PacketFilter,
    PacketSource,
    SourcePredicate,
    SourceStanding,
    WorkQueue,
    source_of,
)
from waypost.transports.port import (
    QUERY_SECONDS,
    UNKNOWN_SENDER,
    Ack,
    DropCounts,
    MessageContext,
    MessageHandler,
    MessageSender,
    QueryHandler,
    SightingCallback,
    TransportClock,
)
from waypost.transports.responses import QueryResponses
from waypost.trust.announce.signed_announcement import parse_signed_announcement

try:
    from zeroconf import DNSOutgoing, DNSQuestion, DNSText, RecordUpdate, RecordUpdateListener, Zeroconf  # type: ignore[attr-defined]
    from zeroconf.asyncio import AsyncZeroconf

    from waypost.transports.mdns.publisher import MdnsPublisher, make_txt
except ImportError as error:
    raise ConfigurationError(
        "mDNS needs the package zeroconf.", path="mdns", hint="Install it with `pip install 'waypost[lan]'`."
    ) from error

log = logging.getLogger("waypost.transports")

Fetch = Callable[[str], Awaitable[bytes]]

_QUERY_FLAGS, _TYPE_PTR, _TYPE_TXT, _CLASS_IN = 0x0000, 12, 16, 1

_DISCOVERY_SECONDS = (0.0, 1.0, 3.0)  # after a subscription: RFC 6762 §5.2

_REFRESH_FRACTION = 0.8  # of the ttl, after which a record is queried again (RFC 6762 §5.2)


class _TxtRecord:
    """The last TXT record of an instance."""

    __slots__ = ("agent_id", "data", "expires_at", "is_queried", "message", "refresh_at", "reported_at")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.agent_id = ""
        self.message: JsonObject | None = None
        self.reported_at = -1.0
        self.expires_at = self.refresh_at = 0.0
        self.is_queried = False


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
        """`pointer` returns the URL of a message that does not fit into a record; `fetch` follows the pointers of others, and
        must guard against SSRF."""
        self._interface_names = interfaces
        self._ipv6 = ipv6
        self._service = service
        self._pointer = pointer
        self._fetch = fetch
        self._clock = clock
        self._random = random or randomness.SystemRandom()
        self._local_agents = LocalAgents()
        if directory is None:
            directory = AgentDirectory(self.name, capacity_per_source=limits.DIRECTORY_AGENTS_PER_SOURCE)
        self._subscriptions = Subscriptions(directory, clock)
        self._negotiation = VersionNegotiation()
        self._on_message: MessageHandler | None = None
        self._pending: list[tuple[QueryResponses, asyncio.Event]] = []
        self._records: dict[str, _TxtRecord] = {}  # by instance name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._fetching: set[str] = set()  # URLs
        self._zeroconf: AsyncZeroconf | None = None
        self._publisher: MdnsPublisher | None = None
        self._guard: PacketGuard | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._echoed_at: float | None = None

    async def open(self) -> None:
        interfaces = find_interfaces(self._interface_names)
        try:
            self._zeroconf = AsyncZeroconf(interfaces=_listen_addresses(interfaces, self._ipv6))
            await self._zeroconf.zeroconf.async_wait_for_start()
        except (OSError, RuntimeError) as error:
            raise ConfigurationError(
                f"Cannot use multicast on {', '.join(self._interface_names)}: {error}.",
                path="mdns",
                hint="Name an interface that is up and supports multicast.",
            ) from None
        zeroconf = self._zeroconf.zeroconf
        self._guard = PacketGuard(interfaces)
        if self._on_message is not None:
            self._guard.slow_down()
        self._guard.attach_to(zeroconf)
        self._publisher = MdnsPublisher(
            zeroconf, _published_addresses(interfaces, self._ipv6), self._service, self._random
        )
        zeroconf.async_add_listener(self, None)
        self._schedule_sweep()

    async def close(self) -> None:
        if self._zeroconf is None:
            return
        zeroconf, self._zeroconf = self._zeroconf, None
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.finish()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._guard is not None:
            self._guard.detach()
        zeroconf.zeroconf.async_remove_listener(self)
        self._subscriptions.close()
        for task in tuple(self._tasks):
            task.cancel()
        zeroconf.zeroconf.registry.async_remove(zeroconf.zeroconf.registry.async_get_service_infos())
        await zeroconf.async_close()

    async def announce(self, message: JsonObject, ttl: int) -> Ack:
        publisher = self._publisher
        if publisher is None:
            return Ack(False, reason="The transport is closed.")
        if self._guard is not None and self._guard.is_link_down():
            return Ack(False, reason="The link is down.")
        try:
            text = make_txt(message, self._pointer)
            record_ttl = self._record_ttl(ttl)
            expires_at = self._local_agents.put(message, record_ttl, self._clock.now())
            await publisher.publish(message, text, record_ttl)
        except WaypostError as error:
            return Ack(False, reason=error.message)
        if is_goodbye(message):  # signed, for our own kind; records with TTL 0 are for all other tools
            await publisher.withdraw(agent_id_of(message))
        return Ack(True, expires_at)

    async def withdraw(self, agent_id: str) -> None:
        self._local_agents.remove(agent_id)
        if self._publisher is not None:
            await self._publisher.withdraw(agent_id.lower())

    async def query(self, query: AgentQuery, timeout: float = QUERY_SECONDS) -> list[JsonObject]:
        responses, arrived = QueryResponses(query), asyncio.Event()
        now = self._clock.now()
        for record in self._records.values():
            if record.message is not None and now < record.expires_at:
                self._add_response(responses, record.message)
        if query.agent_id is not None and len(responses):
            return responses.messages()
        entry = (responses, arrived)
        self._pending.append(entry)
        self._send_query(self._service, _TYPE_PTR)
        try:
            async with asyncio.timeout(timeout):
                await (arrived.wait() if query.agent_id is not None else asyncio.Event().wait())
        except TimeoutError:
            pass
        finally:
            self._pending.remove(entry)
        return responses.messages()

    async def subscribe(self, callback: SightingCallback, query: AgentQuery | None = None) -> Subscriber:
        subscriber = self._subscriptions.subscribe(callback, query)
        now = self._clock.now()
        for record in tuple(self._records.values()):
            if record.message is not None and now < record.expires_at:
                self._subscriptions.receive(record.message, "", max(1, int(record.expires_at - now)))
        loop = asyncio.get_running_loop()
        for delay in _DISCOVERY_SECONDS:
            loop.call_later(delay, self._send_query, self._service, _TYPE_PTR)
        return subscriber

    def serve(self, on_query: QueryHandler | None, on_message: MessageHandler | None) -> None:
        """`on_query` is not called: zeroconf answers queries from the published records. A registry announces its agents
        instead."""
        self._on_message = on_message
        if on_message is not None and self._guard is not None:
            self._guard.slow_down()

    def echoed_at(self) -> float | None:
        return self._echoed_at

    def drop_counts(self) -> DropCounts:
        return DropCounts(dropped=self._guard.dropped() if self._guard is not None else 0)

    def async_update_records(self, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
        """Called by zeroconf for the records of each packet, and for records that expire in its cache, which are ignored."""
        for update in records:
            record = update.new
            if record.ttl and record.is_expired(now):
                continue
            if isinstance(record, DNSText) and record.name.lower().endswith(f".{self._service}"):
                self._receive_record(record.name.lower(), record.text, int(record.ttl))

    def _receive_record(self, name: str, data: bytes, ttl: int) -> None:
        source = self._guard.source if self._guard is not None else ""
        record = self._records.get(name)
        if ttl == 0:
            if record is not None and record.agent_id:
                self._subscriptions.goodbye(record.agent_id, source)
            return
        now, ttl = self._clock.now(), min(ttl, limits.ANNOUNCED_TTL_SECONDS[1])
        if record is None or record.data != data:
            record = self._parse_record(name, data)
        record.expires_at, record.refresh_at, record.is_queried = now + ttl, now + ttl * _REFRESH_FRACTION, False
        if self._publisher is not None and self._publisher.is_own(name, data):
            self._echoed_at = now
        if record.message is not None:
            self._receive_message(record, source, ttl)

    def _parse_record(self, name: str, data: bytes) -> _TxtRecord:
        if name not in self._records and len(self._records) >= limits.DIRECTORY_AGENTS:
            del self._records[next(iter(self._records))]  # the oldest; a present agent repeats its record
        record = self._records[name] = _TxtRecord(data)
        try:
            content = parse_txt(data)
            if isinstance(content, TxtPointer):
                record.agent_id = content.agent_id
                self._follow(record, content)
            else:
                record.message = _parse_txt_message(content)
                record.agent_id = agent_id_of(record.message)
        except WaypostError as error:
            record.message = None
            log.debug("mdns: record of %s rejected: %s", name, error)
        return record

    def _receive_message(self, record: _TxtRecord, source: str, ttl: int) -> None:
        message, now = record.message, self._clock.now()
        if message is None or not self._negotiate(message, source):
            return
        sender = self._guard.sender if self._guard is not None else UNKNOWN_SENDER
        if self._subscriptions.receive(message, source, ttl):
            sender.mark_known()
        for responses, arrived in self._pending:
            if self._add_response(responses, message):
                arrived.set()
        is_repeated = record.reported_at >= 0 and 0 <= now - record.reported_at < 1  # each is sent three times in a row
        if self._on_message is None or self._local_agents.contains(message) or is_repeated:
            return
        record.reported_at = now
        context = MessageContext(transport=self.name, source=source, sender=sender)
        self._start(self._report(self._on_message, {**message, "ttl": ttl}, context))

    def _negotiate(self, message: JsonObject, source: str) -> bool:
        """Whether the major version is supported. If not, the source is sent an announcement with ours (P-32)."""
        try:
            version = self._negotiation.read(source, message.get("protocol_version"), self._clock.now())
        except WaypostError as error:
            log.debug("mdns: message of %s rejected: %s", source, error)
            return False
        if version.answer and self._publisher is not None:
            self._publisher.send_one(source)
        if version.warn:
            log.warning("mdns: %s uses protocol version %s", source, message["protocol_version"])
        return version.process

    def _add_response(self, responses: QueryResponses, message: JsonObject) -> bool:
        pin = self._subscriptions.directory.find_pin(agent_id_of(message))
        return not is_goodbye(message) and responses.add(message, pin)

    async def _report(self, on_message: MessageHandler, message: JsonObject, context: MessageContext) -> None:
        try:
            await on_message(message, context)
            context.sender.mark_known()
        except WaypostError as error:
            log.debug("mdns: announcement of %s rejected: %s", context.source, error)

    def _follow(self, record: _TxtRecord, pointer: TxtPointer) -> None:
        if self._fetch is None or pointer.url in self._fetching:
            return
        if len(self._fetching) < limits.MDNS_CONCURRENT_FETCHES:
            self._fetching.add(pointer.url)
            source = self._guard.source if self._guard is not None else ""
            self._start(self._fetch_message(self._fetch, record, pointer, source))

    async def _fetch_message(self, fetch: Fetch, record: _TxtRecord, pointer: TxtPointer, source: str) -> None:
        try:
            message = parse_message(await fetch(pointer.url))
            check_pointer_target(pointer, message)
        except WaypostError as error:
            log.debug("mdns: cannot follow the pointer of %s: %s", pointer.agent_id, error)
            return
        finally:
            self._fetching.discard(pointer.url)
        record.message = message
        ttl = int(record.expires_at - self._clock.now())
        if ttl > 0:
            self._receive_message(record, source, ttl)

    def _send_query(self, name: str, kind: int) -> None:
        """By multicast, for a multicast response: unicast responses could be directed at a spoofed source (L2)."""
        if self._zeroconf is not None:
            out = DNSOutgoing(_QUERY_FLAGS)
            out.add_question(DNSQuestion(name, kind, _CLASS_IN))
            self._zeroconf.zeroconf.async_send(out)

    def _record_ttl(self, ttl: int) -> int:
        """P-21: with many instances on a link, records live longer and are repeated less often."""
        return max(ttl, limits.MDNS_CROWDED_TTL_SECONDS) if len(self._records) > limits.MDNS_CROWDED_INSTANCES else ttl

    def _schedule_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(limits.DIRECTORY_SWEEP_SECONDS, self._run_sweep)

    def _run_sweep(self) -> None:
        now = self._clock.now()
        for name, record in tuple(self._records.items()):
            if now >= record.expires_at:
                del self._records[name]
            elif now >= record.refresh_at and not record.is_queried:
                record.is_queried = True
                self._send_query(name, _TYPE_TXT)
        if self._publisher is not None:
            for agent_id in self._publisher.agents():
                if self._local_agents.find(agent_id, now) is None:
                    self._start(self._publisher.withdraw(agent_id))
        self._schedule_sweep()

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def check_pointer_target(pointer: TxtPointer, message: JsonObject) -> None:
    """The message must be of the agent and key that the record names."""
    key = parse_signed_announcement(message).key
    if agent_id_of(message) != pointer.agent_id or key is None or key.key_id != pointer.key_id:
        raise InvalidDocument("The pointer leads to another agent.", path="$", hint="Ignore this record.")


def _parse_txt_message(txt: TxtMessage) -> JsonObject:
    message = parse_message(txt.message)
    if kind_of_message(message) == "query" or (txt.agent_id is not None and agent_id_of(message) != txt.agent_id):
        raise InvalidDocument("The record carries a message of another agent.", path="$", hint="Ignore it.")
    return message


def _listen_addresses(interfaces: Sequence[Interface], ipv6: bool) -> list[str | int]:
    """IPv4 addresses, and indexes of interfaces with a link-local IPv6 address."""
    addresses: list[str | int] = [str(interface.address) for interface in interfaces]
    if ipv6:
        addresses += [
            interface.index for interface in interfaces if any(address.is_link_local for address in interface.v6)
        ]
    return addresses


def _published_addresses(interfaces: Sequence[Interface], ipv6: bool) -> list[bytes]:
    """The addresses in the records of local agents."""
    ipv6_addresses = [address.packed for each in interfaces for address in each.v6 if ipv6 and not address.is_loopback]
    return [each.address.packed for each in interfaces] + ipv6_addresses


# Packet admission between the multicast sockets and zeroconf. mDNS packets never cross a router (THREATS L2): the kernel filter
# drops those without the required hop limit (Linux), and the source must be on one of the links. While zeroconf handles a
# packet, `source` and `sender` identify its sender.

_HOP_LIMIT = 255  # RFC 6762 §11

_FLAGS_OFFSET = 2  # in a DNS header; the first bit is set in responses

_BUFFER_BYTES = 4 << 20  # for a thousand agents that answer one query; the system may grant less

_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29  # Linux: 0 ignores groups that only other sockets joined


class PacketGuard:
    def __init__(self, interfaces: Sequence[Interface]) -> None:
        self.source = ""
        self.sender: MessageSender = UNKNOWN_SENDER
        self._dropped = 0
        self._interfaces = interfaces
        self._is_on_link = lru_cache(limits.ANSWER_SOURCES)(self._find_link)
        self._query_admission, self._response_admission = PacketAdmission(), PacketAdmission()
        self._queue = WorkQueue()
        self._filter: PacketFilter | None = None
        self._descriptor = -1  # of any socket, to read the state of links

    def is_link_down(self) -> bool:
        return self._descriptor >= 0 and not any(each.is_up(self._descriptor) for each in self._interfaces)

    def attach_to(self, zeroconf: Zeroconf) -> None:
        """Call once the sockets are open."""
        sockets: list[Any] = []
        for reader, protocol in zip(zeroconf.engine.readers, zeroconf.engine.protocols, strict=True):
            sockets.append(reader.transport.get_extra_info("socket"))
            restrict_socket(sockets[-1])
            self._descriptor = sockets[-1].fileno()
            reader.transport.set_protocol(_GuardedProtocol(self, protocol))
        self._filter = PacketFilter(sockets, self._discard, hop_limit=_HOP_LIMIT)

    def slow_down(self) -> None:
        self._queue.slow_down()

    def detach(self) -> None:
        """Call before the sockets are closed."""
        self._descriptor = -1
        self._queue.close()
        if self._filter is not None:
            self._filter.close()

    def dropped(self) -> int:
        """Packets that were dropped here or by the kernel."""
        return self._dropped + (self._filter.count() if self._filter is not None else 0)

    def admits(self, source: PacketSource, data: bytes) -> bool:
        is_response = len(data) > _FLAGS_OFFSET and data[_FLAGS_OFFSET] >> 7
        admission = (
            self._response_admission if is_response else self._query_admission
        )  # neither may crowd out the other
        standing = self._filter.standing(source) if self._filter is not None else SourceStanding.NORMAL
        if (
            self._queue.has_room()
            and self._is_on_link(source.host)
            and admission.admits(source, asyncio.get_running_loop().time(), standing)
        ):
            return True
        self._dropped += 1
        if self._filter is not None:
            self._filter.drop(source)
        return False

    def queue(self, reader: _GuardedProtocol, source: PacketSource, data: bytes, address: tuple[Any, ...]) -> None:
        self._queue.add(source, self._read, reader, source, data, address)

    def _discard(self, matches: SourcePredicate) -> None:
        self._dropped += self._queue.discard(matches)

    def _read(self, reader: _GuardedProtocol, source: PacketSource, data: bytes, address: tuple[Any, ...]) -> None:
        self.source = source.host
        if self._filter is not None:
            self.sender = self._filter.sender(source)
        try:
            reader.read(data, address)
        finally:
            self.source, self.sender = "", UNKNOWN_SENDER

    def _find_link(self, address: str) -> bool:
        return any(interface.is_on_link(address) for interface in self._interfaces)


class _GuardedProtocol(asyncio.DatagramProtocol):
    """In front of a listener of zeroconf."""

    def __init__(self, guard: PacketGuard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        source = source_of(addr)
        if self._guard.admits(source, data):
            self._guard.queue(self, source, data, addr)

    def read(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if self._inner.transport is not None:  # it may have been closed in the meantime
            self._inner.datagram_received(data, addr)

    def error_received(self, exc: Exception) -> None:
        self._inner.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


def restrict_socket(sock: Any) -> None:
    """Receive only groups that this socket joined, and send with the required hop limit."""
    _set(sock, socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    _set(sock, socket.IPPROTO_IP, socket.IP_TTL, _HOP_LIMIT)
    if sock.family == socket.AF_INET6:
        _set(sock, socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, _HOP_LIMIT)
    if sys.platform != "linux":
        return
    _set(sock, socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    if sock.family == socket.AF_INET6:
        _set(sock, socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)


def _set(sock: Any, level: int, option: int, value: int | bytes) -> None:
    try:
        sock.setsockopt(level, option, value)
    except OSError as error:  # an older system: the source check alone applies
        log.debug("mdns: cannot set socket option %s: %s", option, error)
