"""The bridge between the registry and the transports of the announce protocol: mDNS, UDP and the bus.

Announcements pass the same admission as those over HTTP. There is no authentication on a LAN: only the key of an agent
counts, refusals are not answered, and a received agent has no owner until it is announced with a token. The registry
answers queries with public signed agents; if reading needs a token, only with agents that were received on the LAN.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import NotFound, RateLimited, WaypostError
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.principal import ANONYMOUS, LAN_SUBJECT, LAN_VIA, SCOPE_WRITE, Principal
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.protocols.announce.messages import AgentQuery, build_response
from waypost.registry.catalog.entries import AnnouncedFilter
from waypost.registry.publication import Publication
from waypost.registry.registry import Registry
from waypost.server.api.announce.views import AnnounceViews
from waypost.server.http.metrics import Metrics
from waypost.server.renderer import Renderer
from waypost.transports.directory import agent_id_of, is_goodbye
from waypost.transports.factory import TRANSPORTS
from waypost.transports.port import UNKNOWN_SENDER, Ack, CountsDrops, MessageContext, Transport

log = logging.getLogger("waypost.lan")

_PAGE_SIZE = 50


class AcceptedAnnouncement(msgspec.Struct, frozen=True, gc=False):
    record_id: str
    etag: str  # of the record after the announcement; if it differs, the record was changed since
    digest: bytes
    valid_until: float


class RepeatCache:
    """Announcements that were accepted. An agent repeats itself every few seconds and signs again once a minute, so an
    identical message only renews the lease and is not verified again for a while."""

    def __init__(self, capacity: int = limits.DIRECTORY_AGENTS) -> None:
        self._accepted: LruCache[str, AcceptedAnnouncement] = LruCache(capacity)

    def put(
        self, agent_id: str, document: bytes, record_id: str, etag: str, *, now: float, signed_at: float | None
    ) -> None:
        """Remember an announcement. Without a signing time it is not remembered, so it is verified each time."""
        if signed_at is None:
            self._accepted.drop(agent_id)
            return
        valid_until = min(now + limits.LAN_REVERIFY_SECONDS, signed_at + limits.ANNOUNCE_PAST_SECONDS)
        self._accepted.put(agent_id, AcceptedAnnouncement(record_id, etag, _digest(document), valid_until))

    def find(self, agent_id: str, document: bytes, now: float) -> AcceptedAnnouncement | None:
        accepted = self._accepted.get(agent_id)
        if accepted is None or now >= accepted.valid_until or accepted.digest != _digest(document):
            return None
        return accepted

    def drop(self, agent_id: str) -> None:
        self._accepted.drop(agent_id)


def _digest(document: bytes) -> bytes:
    return hashlib.blake2b(document, digest_size=16).digest()


class LanBridge:
    def __init__(
        self,
        registry: Registry,
        renderer: Renderer,
        transports: Sequence[Transport],
        *,
        anonymous_read: bool = False,
        publish: bool = False,
    ) -> None:
        """`publish`: announce public agents that were registered elsewhere on the LAN too (`mdns_publish`)."""
        self._registry = registry
        self._views = AnnounceViews(registry, renderer)
        self._transports = transports
        self._anonymous_read = anonymous_read
        self._publishes = publish
        self._local: dict[str, float] = {}  # agent_ids received on the LAN: when they expire
        self._published: set[str] = set()
        self._repeats = RepeatCache()
        self._write_slots = asyncio.Semaphore(limits.LAN_CONCURRENT_WRITES)
        self._renewal_slots = asyncio.Semaphore(limits.LAN_CONCURRENT_RENEWALS)
        self._queued: Counter[str] = Counter()  # announcements by source

    async def start(self) -> None:
        """Open the transports. A transport that fails stops the start, because the operator configured it."""
        for transport in self._transports:
            transport.serve(self.answer, self.receive)
            await transport.open()
            log.info("listening for announcements by %s", transport.name)

    def show(self, metrics: Metrics) -> None:
        metrics.add_gauge("lan_dropped", "Packets and messages of LAN and bus that were dropped unread.", self.dropped)
        metrics.add_gauge(
            "lan_parked", "Messages of the bus that could not be handled and were set aside.", self.parked
        )

    def dropped(self) -> float:
        return sum(each.drop_counts().dropped for each in self._transports if isinstance(each, CountsDrops))

    def parked(self) -> float:
        return sum(each.drop_counts().parked for each in self._transports if isinstance(each, CountsDrops))

    async def stop(self) -> None:
        for transport in self._transports:
            await transport.close()

    # --- Announcements ---------------------------------------------------------------------------

    async def receive(self, message: JsonObject, context: MessageContext) -> JsonObject | None:
        """Register an announced agent. A refusal is raised to the transport; the sender gets no reply."""
        source = context.source
        if self._queued.total() >= limits.LAN_QUEUE or self._queued[source] >= limits.LAN_QUEUE_PER_SOURCE:
            raise RateLimited("Too many announcements are queued.", hint="Announce again.", retry_after=5)
        self._queued[source] += 1
        try:
            await self._handle(message, context)
        finally:
            self._queued[source] -= 1
            if not self._queued[source]:
                del self._queued[source]
        return None

    async def _handle(self, message: JsonObject, context: MessageContext) -> None:
        document, agent_id = dump_json(message), agent_id_of(message)
        repeat = self._repeats.find(agent_id, document, self._registry.clock.now())
        is_new = repeat is None
        if context.sender is not UNKNOWN_SENDER and agent_id not in self._local:
            await asyncio.sleep(limits.LAN_SETTLE_SECONDS)
        async with self._write_slots if is_new else self._renewal_slots:
            if context.sender.is_flooding():  # may have been detected while this message was queued
                raise RateLimited("The source sends too many messages.", hint="Announce less often.", retry_after=5)
            try:
                if repeat is None or not await self._renew(repeat, agent_id, context):
                    await self._publish(message, document, context)
            finally:
                await asyncio.sleep(limits.LAN_WRITE_PAUSE_SECONDS if is_new else limits.LAN_RENEWAL_PAUSE_SECONDS)

    async def _renew(self, repeat: AcceptedAnnouncement, agent_id: str, context: MessageContext) -> bool:
        """Renew the lease of a repeated announcement. False if the record is gone or was changed since."""
        entry = self._registry.entries.find(repeat.record_id)
        if entry is None or entry.etag != repeat.etag:
            return False
        try:
            receipt = await self._registry.renew(_lan_principal(entry.owner, context), repeat.record_id)
        except NotFound:  # it expired or was withdrawn in the meantime
            return False
        self._add_local(agent_id, receipt.expires_at or self._registry.clock.now())
        return True

    async def _publish(self, message: JsonObject, document: bytes, context: MessageContext) -> None:
        dialect, decoded = self._registry.decode(document, dialect="announce")
        existing = await self._find(decoded.record.id)
        if existing is not None and _is_registered_directly(existing) and not is_goodbye(message):
            return
        announced = decoded.ttl_seconds
        ttl_seconds = None if announced is None else min(announced, limits.ANNOUNCED_TTL_SECONDS[1])
        receipt = await self._registry.publish(
            Publication(
                dialect=dialect,
                document=document,
                decoded=decoded,
                principal=_principal(existing, context),
                via=context.transport,
                ttl_seconds=ttl_seconds,
                gated=True,
            )
        )
        agent_id, now = agent_id_of(message), self._registry.clock.now()
        if is_goodbye(message):
            self._local.pop(agent_id, None)
            self._repeats.drop(agent_id)
            return
        self._add_local(agent_id, now + (ttl_seconds or limits.LAN_TTL_SECONDS))
        entry = self._registry.entries.find(receipt.id)
        if entry is not None:
            self._repeats.put(agent_id, document, entry.id, entry.etag, now=now, signed_at=_signed_at(message))

    async def _find(self, record_id: str) -> Registration | None:
        entry = self._registry.entries.find_named(record_id)
        found = await self._registry.registrations([entry.id]) if entry is not None else []
        return found[0] if found else None

    def _add_local(self, agent_id: str, expires_at: float) -> None:
        if len(self._local) >= limits.DIRECTORY_AGENTS:
            now = self._registry.clock.now()
            self._local = {name: until for name, until in self._local.items() if now < until}
        self._local[agent_id] = expires_at

    # --- Queries ---------------------------------------------------------------------------------

    async def answer(self, query: AgentQuery) -> list[JsonObject]:
        names = tuple(each.name for each in query.requirements if each.name != "*")
        page = await self._views.page(ANONYMOUS, query, AnnouncedFilter(names=names, signed=True, limit=_PAGE_SIZE))
        now = self._registry.clock.now()
        messages = (_to_announce(body, now) for body in page.bodies)
        return [
            build_response(message, query.query_id)
            for message in messages
            if self._anonymous_read or self._is_from_lan(agent_id_of(message), now)
        ]

    def _is_from_lan(self, agent_id: str, now: float) -> bool:
        """Received on the LAN, by this process or by another node: then it has no other owner."""
        if self._local.get(agent_id, 0.0) > now:
            return True
        entry = self._registry.entries.find_named(agent_id)
        return entry is not None and entry.owner == LAN_SUBJECT

    # --- Publication on the LAN ------------------------------------------------------------------

    async def publish(self) -> None:
        """Announce public signed agents that were not received on the LAN, and withdraw those that are gone."""
        if not self._publishes:
            return
        messages = {agent_id_of(message): message for message in await self._public_messages()}
        for transport in self._transports:
            if transport.name == "mdns":
                await self._publish_on(transport, messages)
        self._published = set(messages)

    async def _publish_on(self, transport: Transport, messages: dict[str, JsonObject]) -> None:
        for agent_id in self._published - messages.keys():
            await transport.withdraw(agent_id)
        for agent_id, message in messages.items():
            announce = {name: value for name, value in message.items() if name != "ttl"}
            ttl_seconds = min(message["ttl"], limits.MDNS_CROWDED_TTL_SECONDS)
            try:
                ack = await transport.announce(announce, ttl_seconds)
            except WaypostError as error:
                ack = Ack(False, reason=error.message)
            if not ack.accepted:
                log.debug("%s is not published: %s", agent_id, ack.reason)

    async def _public_messages(self) -> list[JsonObject]:
        """Announcements with a fresh signature: receivers refuse older ones (P-17)."""
        now = self._registry.clock.now()
        messages: list[JsonObject] = []
        cursor: str | None = None
        while len(messages) < limits.LOCAL_AGENTS:
            page = await self._views.page(
                ANONYMOUS, AgentQuery(), AnnouncedFilter(signed=True, limit=_PAGE_SIZE, cursor=cursor)
            )
            candidates = [_to_announce(body, now) for body in page.bodies]
            messages += [message for message in candidates if self._is_publishable(message, now)]
            cursor = page.next_cursor
            if cursor is None:
                break
        return messages[: limits.LOCAL_AGENTS]

    def _is_publishable(self, message: JsonObject, now: float) -> bool:
        signed_at = _signed_at(message)
        is_fresh = signed_at is not None and now - signed_at < limits.ANNOUNCE_PAST_SECONDS
        return is_fresh and self._local.get(agent_id_of(message), 0.0) <= now


def _to_announce(response: bytes, now: float) -> JsonObject:
    """The Announce message of a Response, with the remaining TTL."""
    message = parse_object(response)
    expires_at = find_instant(message.pop("expires_at", None))
    message.pop("matched", None)
    ttl_seconds = max(1, math.ceil(expires_at - now)) if expires_at is not None else limits.LAN_TTL_SECONDS
    return {**message, "ttl": ttl_seconds}


def _is_registered_directly(existing: Registration) -> bool:
    """True for an agent that announced itself over HTTP or a WebSocket. That document says more than fits on a LAN and
    has a lease of its own, so a message from the LAN does not replace it, except for a goodbye."""
    source = existing.source("announce")
    return source is not None and source.via not in TRANSPORTS


def _principal(existing: Registration | None, context: MessageContext) -> Principal:
    """The key of an announced record may change it, so the write is made as its owner; other records have no such key."""
    is_announced = existing is not None and existing.source("announce") is not None
    return _lan_principal(existing.owner if existing is not None and is_announced else LAN_SUBJECT, context)


def _lan_principal(subject: str, context: MessageContext) -> Principal:
    return Principal(
        subject=subject,
        scopes=frozenset((SCOPE_WRITE,)),
        via=LAN_VIA,
        credential=context.transport,
        address=context.source,
    )


def _signed_at(message: JsonObject) -> float | None:
    metadata = message["agent"].get("metadata")
    return find_instant(metadata.get("__iat")) if isinstance(metadata, dict) else None
