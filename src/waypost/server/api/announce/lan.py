"""What was heard on the LAN and let in, word for word: the same again needs no second judgement, for a while.

An agent repeats itself every few seconds, and signs anew once a minute. Pure: what is renewed, and how, is not known here.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec

from waypost import limits
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
from waypost.transports.port import UNKNOWN_SENDER, Ack, CountsDrops, MessageContext, Transport


class AcceptedAnnouncement(msgspec.Struct, frozen=True, gc=False):
    record_id: str
    etag: str  # of the record as it was let in: what was changed by others since is judged anew
    digest: bytes
    until: float


class RepeatCache:
    def __init__(self, most: int = limits.DIRECTORY_AGENTS) -> None:
        self._most = most
        self._kept: OrderedDict[str, AcceptedAnnouncement] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(
        self, agent_id: str, document: bytes, record_id: str, etag: str, *, now: float, signed_at: float | None
    ) -> None:
        """It was let in. Words without a time, and old ones, are judged each time."""
        self.drop(agent_id)
        if signed_at is None:
            return
        until = min(now + limits.LAN_REVERIFY_SECONDS, signed_at + limits.ANNOUNCE_PAST_SECONDS)
        self._kept[agent_id] = AcceptedAnnouncement(record_id, etag, _digest(document), until)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def find(self, agent_id: str, document: bytes, now: float) -> AcceptedAnnouncement | None:
        kept = self._kept.get(agent_id)
        return kept if kept is not None and now < kept.until and kept.digest == _digest(document) else None

    def drop(self, agent_id: str) -> None:
        self._kept.pop(agent_id, None)


def _digest(document: bytes) -> bytes:
    return hashlib.blake2b(document, digest_size=16).digest()


# ---- The registry on the LAN: what is heard goes through the gate that announcements over HTTP go through, and is answered for.
#
# Nobody is authenticated here: the key of an agent is all that counts, refusals are silent, and what is heard of belongs to
# nobody until somebody announces it with a token. It answers with what is public and signed; where reading needs a token, with
# what was heard here alone.

log = logging.getLogger("waypost.lan")

_ANSWERS = 50

_CARRIERS = ("mdns", "udp", "bus")


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
        """`publish`: also tell the LAN of the public agents that were registered elsewhere (`mdns_publish`)."""
        self._registry = registry
        self._views = AnnounceViews(registry, renderer)
        self._transports = transports
        self._anonymous_read = anonymous_read
        self._publishes = publish
        self._local: dict[str, float] = {}  # agent_ids that were heard here, until when
        self._published: set[str] = set()
        self._repeats = RepeatCache()
        self._room = asyncio.Semaphore(limits.LAN_CONCURRENT_WRITES)
        self._room_of_repeats = asyncio.Semaphore(limits.LAN_CONCURRENT_RENEWALS)
        self._waiting: Counter[str] = Counter()  # announcements by their source

    async def start(self) -> None:
        """Listen. What is in the way of one transport ends the start: the operator asked for it."""
        for transport in self._transports:
            transport.serve(self.answer, self.hear)
            await transport.open()
            log.info("listening for announcements by %s", transport.name)

    def show(self, metrics: Metrics) -> None:
        """What an operator should see of it."""
        metrics.show(
            "lan_dropped", "Packets and messages of the LAN and the bus that were dropped unread.", self.dropped
        )
        metrics.show("lan_parked", "Messages of the bus that could not be handled and are set aside.", self.parked)

    def dropped(self) -> float:
        return sum(each.tally().dropped for each in self._transports if isinstance(each, CountsDrops))

    def parked(self) -> float:
        return sum(each.tally().parked for each in self._transports if isinstance(each, CountsDrops))

    async def stop(self) -> None:
        for transport in self._transports:
            await transport.close()

    # --- Hearing ---------------------------------------------------------------------------------

    async def hear(self, message: JsonObject, how: MessageContext) -> JsonObject | None:
        """Register what is announced, or raise the refusal, which nobody is told. Nothing is ever sent back."""
        if self._waiting.total() >= limits.LAN_QUEUE or self._waiting[how.source] >= limits.LAN_QUEUE_PER_SOURCE:
            raise RateLimited("Too many announcements wait.", hint="Say it again.", retry_after=5)
        self._waiting[how.source] += 1
        try:
            await self._take_in_turn(message, how)
        finally:
            self._waiting[how.source] -= 1
            if not self._waiting[how.source]:
                del self._waiting[how.source]
        return None

    async def _take_in_turn(self, message: JsonObject, how: MessageContext) -> None:
        document, agent_id = dump_json(message), agent_id_of(message)
        repeat = self._repeats.find(agent_id, document, self._registry.clock.now())
        is_new = repeat is None
        if how.sender is not UNKNOWN_SENDER and agent_id not in self._local:
            await asyncio.sleep(limits.LAN_SETTLE_SECONDS)
        async with self._room if is_new else self._room_of_repeats:
            if how.sender.is_flood():  # it was found out while this one waited
                raise RateLimited("Its source floods.", hint="Say less.", retry_after=5)
            try:
                if repeat is None or not await self._renew(repeat, agent_id, how):
                    await self._take(message, document, how)
            finally:
                await asyncio.sleep(limits.LAN_WRITE_PAUSE_SECONDS if is_new else limits.LAN_RENEWAL_PAUSE_SECONDS)

    async def _renew(self, repeat: AcceptedAnnouncement, agent_id: str, how: MessageContext) -> bool:
        """Let the lease run on; False: what is held is not what was said here."""
        entry = self._registry.entries.find(repeat.record_id)
        if entry is None or entry.etag != repeat.etag:
            return False
        try:
            receipt = await self._registry.renew(_lan_principal(entry.owner, how), repeat.record_id)
        except NotFound:  # it ran out, or was withdrawn, meanwhile
            return False
        self._note(agent_id, receipt.expires_at or self._registry.clock.now())
        return True

    async def _take(self, message: JsonObject, document: bytes, how: MessageContext) -> None:
        dialect, decoded = self._registry.decode(document, dialect="announce")
        held = await self._find(decoded.record.id)
        if held is not None and _is_registered_directly(held) and not is_goodbye(message):
            return
        receipt = await self._registry.publish(
            Publication(
                dialect=dialect,
                document=document,
                decoded=decoded,
                principal=_principal(held, how),
                via=how.transport,
                gated=True,
            )
        )
        agent_id, now = agent_id_of(message), self._registry.clock.now()
        if is_goodbye(message):
            self._local.pop(agent_id, None)
            self._repeats.drop(agent_id)
            return
        self._note(agent_id, now + (decoded.ttl_seconds or limits.LAN_TTL_SECONDS))
        entry = self._registry.entries.find(receipt.id)
        if entry is not None:
            self._repeats.put(agent_id, document, entry.id, entry.etag, now=now, signed_at=_signed_at(message))

    async def _find(self, record_id: str) -> Registration | None:
        entry = self._registry.entries.find_named(record_id)
        found = await self._registry.registrations([entry.id]) if entry is not None else []
        return found[0] if found else None

    def _note(self, agent_id: str, until: float) -> None:
        if len(self._local) >= limits.DIRECTORY_AGENTS:
            now = self._registry.clock.now()
            self._local = {name: ends for name, ends in self._local.items() if now < ends}
        self._local[agent_id] = until

    # --- Answering -------------------------------------------------------------------------------

    async def answer(self, query: AgentQuery) -> list[JsonObject]:
        names = tuple(wanted.name for wanted in query.wanted if wanted.name != "*")
        listed = await self._views.page(ANONYMOUS, query, AnnouncedFilter(names=names, signed=True, limit=_ANSWERS))
        now = self._registry.clock.now()
        messages = (self._message(body, now) for body in listed.bodies)
        return [
            build_response(message, query.query_id)
            for message in messages
            if self._anonymous_read or self._local.get(agent_id_of(message), 0.0) > now
        ]

    @staticmethod
    def _message(body: bytes, now: float) -> JsonObject:
        """An Announce with what is left of its time."""
        told = parse_object(body)
        ends = find_instant(told.pop("expires_at", None))
        told.pop("matched", None)
        return {**told, "ttl": max(1, math.ceil(ends - now)) if ends is not None else limits.LAN_TTL_SECONDS}

    # --- Publishing ------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Tell the LAN of public agents that are signed and were not heard here; and no longer of those that are gone."""
        if not self._publishes:
            return
        now = self._registry.clock.now()
        messages = {agent_id_of(message): message for message in await self._public(now)}
        for transport in self._transports:
            if transport.name == "mdns":
                await self._publish_on(transport, messages)
        self._published = set(messages)

    async def _publish_on(self, transport: Transport, messages: dict[str, JsonObject]) -> None:
        for agent_id in self._published - messages.keys():
            await transport.withdraw(agent_id)
        for agent_id, message in messages.items():
            plain = {name: value for name, value in message.items() if name != "ttl"}
            ttl = min(message["ttl"], limits.MDNS_CROWDED_TTL_SECONDS)
            try:
                ack = await transport.announce(plain, ttl)
            except WaypostError as error:
                ack = Ack(False, reason=error.message)
            if not ack.accepted:
                log.debug("%s is not published: %s", agent_id, ack.reason)

    async def _public(self, now: float) -> list[JsonObject]:
        """Freshly signed ones alone: nobody believes the others (P-17)."""
        found: list[JsonObject] = []
        cursor: str | None = None
        while len(found) < limits.LOCAL_AGENTS:
            listed = await self._views.page(
                ANONYMOUS, AgentQuery(), AnnouncedFilter(signed=True, limit=_ANSWERS, cursor=cursor)
            )
            found += [message for body in listed.bodies if self._is_worth(message := self._message(body, now), now)]
            cursor = listed.next_cursor
            if cursor is None:
                break
        return found[: limits.LOCAL_AGENTS]

    def _is_worth(self, message: JsonObject, now: float) -> bool:
        signed_at = _signed_at(message)
        is_fresh = signed_at is not None and now - signed_at < limits.ANNOUNCE_PAST_SECONDS
        return is_fresh and self._local.get(agent_id_of(message), 0.0) <= now


def _is_registered_directly(held: Registration) -> bool:
    """What an agent tells the registry itself is more than what fits on a LAN, and is kept alive there. It is not replaced
    by what is heard, but for a goodbye; when it ends, the LAN counts again."""
    source = held.source("announce")
    return source is not None and source.via not in _CARRIERS


def _principal(held: Registration | None, how: MessageContext) -> Principal:
    """Who it is written as. A record that was announced is its key's to change, whoever owns it; others are not."""
    is_announced = held is not None and held.source("announce") is not None
    return _lan_principal(held.owner if held is not None and is_announced else LAN_SUBJECT, how)


def _lan_principal(subject: str, how: MessageContext) -> Principal:
    return Principal(
        subject=subject,
        scopes=frozenset((SCOPE_WRITE,)),
        via=LAN_VIA,
        credential=how.transport,
        address=how.source,
    )


def _signed_at(message: JsonObject) -> float | None:
    metadata = message["agent"].get("metadata")
    return find_instant(metadata.get("__iat")) if isinstance(metadata, dict) else None
