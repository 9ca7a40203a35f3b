"""Publishes local agents as DNS-SD instances, and resolves name conflicts."""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from zeroconf import DNSOutgoing, DNSQuestion, ServiceInfo, Zeroconf, current_time_millis  # type: ignore[attr-defined]

from waypost import limits
from waypost.errors import Conflict, TooLarge, Unavailable
from waypost.model.json import JsonObject, dump_json
from waypost.protocols.announce.packets import (
    TxtPointer,
    host_name,
    instance_label,
    write_txt_message,
    write_txt_pointer,
)
from waypost.transports.directory import agent_id_of
from waypost.trust.announce.signed_announcement import parse_signed_announcement

_TYPE_ANY, _CLASS_IN = 255, 1
_GOODBYE_SECONDS = 2.0  # zeroconf repeats a goodbye for a quarter of a second
_PROBES, _PROBE_SECONDS = 3, 0.25
_SCHEME_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class MdnsPublisher:
    def __init__(self, zeroconf: Zeroconf, addresses: Sequence[bytes], service: str, random: randomness.Random) -> None:
        self._zeroconf = zeroconf
        self._addresses = list(addresses)
        self._service = service
        self._random = random
        self._infos: dict[str, ServiceInfo] = {}
        self._starting: dict[str, asyncio.Task[ServiceInfo]] = {}
        self._introducing: dict[str, asyncio.Future[None]] = {}  # the first announcements, which are repeated
        self._background: set[asyncio.Future[None]] = set()

    def agents(self) -> tuple[str, ...]:
        return tuple(self._infos)

    def is_own(self, name: str, text: bytes) -> bool:
        return any(info.key == name and info.text == text for info in self._infos.values())

    async def publish(self, message: JsonObject, text: bytes, ttl: int) -> None:
        """Announce the record and answer queries for it from now on. A new instance name is probed first."""
        agent_id = agent_id_of(message)
        if agent_id in self._starting:
            await asyncio.wait([self._starting[agent_id]])
        current = self._infos.get(agent_id)
        if current is None:
            await self._publish_new(agent_id, message, text, ttl)
            return
        info = self._make_info(current.name, message, text, ttl)
        self._zeroconf.registry.async_update(info)
        self._infos[agent_id] = info
        self._zeroconf.async_send(self._zeroconf.generate_service_broadcast(info, None))

    async def withdraw(self, agent_id: str) -> None:
        """Stop publishing, with a goodbye."""
        info = self._infos.pop(agent_id, None)
        introducing = self._introducing.pop(agent_id, None)
        if introducing is not None:
            introducing.cancel()  # a repetition after the goodbye would bring the instance back for its TTL
        if info is not None:
            self._run_in_background(await self._zeroconf.async_unregister_service(info))

    async def finish(self) -> None:
        """Wait until goodbyes are sent."""
        if self._background:
            await asyncio.wait(tuple(self._background), timeout=_GOODBYE_SECONDS)

    def send_one(self, address: str) -> None:
        """Send any own announcement by unicast, to show which protocol version is spoken here."""
        for info in self._infos.values():
            self._zeroconf.async_send(self._zeroconf.generate_service_broadcast(info, None), addr=address)
            return

    async def _publish_new(self, agent_id: str, message: JsonObject, text: bytes, ttl: int) -> None:
        task = asyncio.ensure_future(self._register(message, text, ttl))
        self._starting[agent_id] = task
        try:
            self._infos[agent_id] = await task
        finally:
            del self._starting[agent_id]

    async def _register(self, message: JsonObject, text: bytes, ttl: int) -> ServiceInfo:
        for _ in range(limits.MDNS_NAMES):
            label = instance_label(agent_id_of(message), _agent_name(message), self._random.getrandbits(16))
            info = self._make_info(f"{label}.{self._service}", message, text, ttl)
            if await self._is_free(info):
                repeating = await self._zeroconf.async_register_service(info, cooperating_responders=True)
                self._introduce(agent_id_of(message), repeating)
                return info
        raise Conflict(
            f"{limits.MDNS_NAMES} instance names in a row are taken on this link.",
            path="$.agent.agent_name",
            hint="Give the agent another agent_name.",
        )

    async def _is_free(self, info: ServiceInfo) -> bool:
        """Probe for the name three times (RFC 6762 §8.1), by multicast, so that other processes of this machine receive it."""
        await asyncio.sleep(self._random.uniform(0, _PROBE_SECONDS))
        for _ in range(_PROBES):
            out = DNSOutgoing(0)
            out.add_question(DNSQuestion(info.name, _TYPE_ANY, _CLASS_IN))
            out.add_authorative_answer(info.dns_pointer())
            self._zeroconf.async_send(out)
            await asyncio.sleep(_PROBE_SECONDS)
            now = current_time_millis()
            if any(not record.is_expired(now) for record in self._zeroconf.cache.async_entries_with_name(info.name)):
                return False
        return True

    def _make_info(self, name: str, message: JsonObject, text: bytes, ttl: int) -> ServiceInfo:
        return ServiceInfo(
            self._service,
            name,
            port=port_of(message["agent"]),
            server=host_name(agent_id_of(message)),
            addresses=self._addresses,
            properties=text,
            host_ttl=ttl,
            other_ttl=ttl,
        )

    def _introduce(self, agent_id: str, repeating: Awaitable[None]) -> None:
        future = self._run_in_background(repeating)
        self._introducing[agent_id] = future
        future.add_done_callback(lambda done: self._forget_introduction(agent_id, done))

    def _forget_introduction(self, agent_id: str, done: asyncio.Future[None]) -> None:
        if self._introducing.get(agent_id) is done:
            del self._introducing[agent_id]

    def _run_in_background(self, work: Awaitable[None]) -> asyncio.Future[None]:
        """zeroconf repeats its broadcasts in the background. The event loop holds only a weak reference to that task."""
        future = asyncio.ensure_future(work)
        self._background.add(future)
        future.add_done_callback(self._background.discard)
        return future


def make_txt(message: JsonObject, pointer: Callable[[str], str] | None) -> bytes:
    """The TXT record of a message; a pointer if the message is too large (P-23)."""
    agent_id = agent_id_of(message)
    try:
        return write_txt_message(dump_json(message), agent_id, str(message["protocol_version"]))
    except TooLarge:
        if pointer is None:
            raise
    key = parse_signed_announcement(message).key
    if key is None:
        raise Unavailable("A pointer needs a signed message.", path="$.agent.public_key", hint="Sign it.")
    return write_txt_pointer(TxtPointer(agent_id, pointer(agent_id), key.key_id), str(message["protocol_version"]))


def port_of(agent: JsonObject) -> int:
    """The port of the agent's endpoint for the SRV record, or 0."""
    endpoint = agent.get("transport", {}).get("endpoint")
    if not isinstance(endpoint, str):
        return 0
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        return parts.port or _SCHEME_PORTS.get(parts.scheme, 0)
    except ValueError:
        return 0


def _agent_name(message: JsonObject) -> str | None:
    name = message["agent"].get("agent_name")
    return name if isinstance(name, str) and name else None
