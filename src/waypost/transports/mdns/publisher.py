"""Own agents as DNS-SD instances: their records, their names, and the way out of a conflict of names."""

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
        self._sending: set[asyncio.Future[None]] = set()

    def agents(self) -> tuple[str, ...]:
        return tuple(self._infos)

    def is_own(self, name: str, text: bytes) -> bool:
        return any(info.key == name and info.text == text for info in self._infos.values())

    async def publish(self, message: JsonObject, text: bytes, ttl: int) -> None:
        """Say it now, and answer for it from now on. The first time the name is probed for."""
        agent_id = agent_id_of(message)
        if agent_id in self._starting:
            await asyncio.wait([self._starting[agent_id]])
        held = self._infos.get(agent_id)
        if held is None:
            await self._start(agent_id, message, text, ttl)
            return
        info = self._info(held.name, message, text, ttl)
        self._zeroconf.registry.async_update(info)
        self._infos[agent_id] = info
        self._zeroconf.async_send(self._zeroconf.generate_service_broadcast(info, None))

    async def withdraw(self, agent_id: str) -> None:
        """With a goodbye."""
        info = self._infos.pop(agent_id, None)
        if info is not None:
            self._keep(await self._zeroconf.async_unregister_service(info))

    def forget(self, agent_id: str) -> None:
        """Without one: a signed one was sent."""
        info = self._infos.pop(agent_id, None)
        if info is not None:
            self._zeroconf.registry.async_remove(info)

    def show(self, address: str) -> None:
        """One own announcement to one neighbour alone, so that it sees which version is spoken here."""
        for info in self._infos.values():
            self._zeroconf.async_send(self._zeroconf.generate_service_broadcast(info, None), addr=address)
            return

    # --- Starting --------------------------------------------------------------------------------

    async def _start(self, agent_id: str, message: JsonObject, text: bytes, ttl: int) -> None:
        task = asyncio.ensure_future(self._register(message, text, ttl))
        self._starting[agent_id] = task
        try:
            self._infos[agent_id] = await task
        finally:
            del self._starting[agent_id]

    async def _register(self, message: JsonObject, text: bytes, ttl: int) -> ServiceInfo:
        for _ in range(limits.MDNS_NAMES):
            label = instance_label(agent_id_of(message), _name_of(message), self._random.getrandbits(16))
            info = self._info(f"{label}.{self._service}", message, text, ttl)
            if await self._is_free(info):
                self._keep(await self._zeroconf.async_register_service(info, cooperating_responders=True))
                return info
        raise Conflict(
            f"{limits.MDNS_NAMES} names in a row are taken on this link.",
            path="$.agent.agent_name",
            hint="Give the agent another agent_name.",
        )

    async def _is_free(self, info: ServiceInfo) -> bool:
        """Ask for the name three times (RFC 6762 §8.1), and all at once: whoever shares this machine's port must hear it."""
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

    def _info(self, name: str, message: JsonObject, text: bytes, ttl: int) -> ServiceInfo:
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

    def _keep(self, sending: Awaitable[None]) -> None:
        """zeroconf repeats what it says in the background; somebody must hold on to that."""
        future = asyncio.ensure_future(sending)
        self._sending.add(future)
        future.add_done_callback(self._sending.discard)


def make_txt(message: JsonObject, pointer: Callable[[str], str] | None) -> bytes:
    """The TXT record of a message: whole, or as a pointer where there is something to point at (P-23)."""
    agent_id = agent_id_of(message)
    try:
        return write_txt_message(dump_json(message), agent_id, str(message["protocol_version"]))
    except TooLarge:
        if pointer is None:
            raise
    key = parse_signed_announcement(message).key
    if key is None:
        raise Unavailable("An agent without a key cannot be pointed at.", path="$.agent.public_key", hint="Sign it.")
    return write_txt_pointer(TxtPointer(agent_id, pointer(agent_id), key.key_id), str(message["protocol_version"]))


def port_of(agent: JsonObject) -> int:
    """The port of the agent's own endpoint, or 0: SRV wants one, and nobody has to use it."""
    endpoint = agent.get("transport", {}).get("endpoint")
    if not isinstance(endpoint, str):
        return 0
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        return parts.port or _SCHEME_PORTS.get(parts.scheme, 0)
    except ValueError:
        return 0


def _name_of(message: JsonObject) -> str | None:
    name = message["agent"].get("agent_name")
    return name if isinstance(name, str) and name else None
