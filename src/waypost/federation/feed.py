"""The change feed for peers: public agents with their exact documents, in pages of JSON lines.

A reader without a cursor gets all agents first (a snapshot), then changes. The last line of a page is a signed bookmark. When
the reader has everything, the bookmark states the number and a digest of all agents, so that a mirror can prove that it is
complete. The digest is the sum, modulo 2^256, of SHA-256(id NUL etag): it follows a change without reading the others.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence

import msgspec

from waypost import limits
from waypost.errors import CursorTooOld, InvalidCursor
from waypost.model.events import Event, EventType, event_type_for
from waypost.model.federation import Federation, peer_of
from waypost.model.json import to_single_line
from waypost.model.principal import ANONYMOUS, PUBLIC
from waypost.model.record import STATUSES
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.times import rfc3339_or_none, to_rfc3339_millis
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry
from waypost.responses.federation import FeedBookmark, FeedDocument, FeedEntry, FeedOrigin, KeyChange
from waypost.time_slice import TimeSlice
from waypost.trust.document_signatures import canonicalize
from waypost.trust.keys.private_key import PrivateKey

_PURPOSE = "feed"
_EVERYBODY = frozenset((PUBLIC,))
_MODULUS = 1 << 256
_PRESENT = ("registered", "updated", "renewed")  # events after which the agent exists

_encode = msgspec.json.Encoder().encode


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """A place in the feed: all changes up to `revision` were sent, and of the snapshot the pages before `page`."""

    revision: int
    page: str | None  # a cursor of the list of agents; empty: its beginning; None: the snapshot was sent
    nonce: bytes  # equal bookmarks would reveal that nothing hidden happened in between


class ServiceName(msgspec.Struct, frozen=True, kw_only=True):
    """How peers know this service. Addresses may be equal on different machines; ids are not."""

    url: str
    id: str


class SetDigest:
    """The number and the digest of a set of agents, each with its entity tag."""

    def __init__(self) -> None:
        self._etags: dict[str, str] = {}
        self._sum = 0

    @property
    def count(self) -> int:
        return len(self._etags)

    @property
    def digest(self) -> str:
        return f"{self._sum:064x}"

    def ids(self) -> Iterable[str]:
        return self._etags.keys()

    def get(self, agent_id: str) -> str | None:
        return self._etags.get(agent_id)

    def put(self, agent_id: str, etag: str) -> None:
        if self._etags.get(agent_id) == etag:
            return
        self.remove(agent_id)
        self._etags[agent_id] = etag
        self._sum = (self._sum + _leaf(agent_id, etag)) % _MODULUS

    def remove(self, agent_id: str) -> None:
        etag = self._etags.pop(agent_id, None)
        if etag is not None:
            self._sum = (self._sum - _leaf(agent_id, etag)) % _MODULUS


class SetDigestChange:
    """Changes of a set that are applied later: what it would be then."""

    def __init__(self, base: SetDigest) -> None:
        self._base = base
        self._etags: dict[str, str | None] = {}

    def put(self, agent_id: str, etag: str) -> None:
        self._etags[agent_id] = etag

    def remove(self, agent_id: str) -> None:
        self._etags[agent_id] = None

    def apply(self) -> None:
        for agent_id, etag in self._etags.items():
            if etag is None:
                self._base.remove(agent_id)
            else:
                self._base.put(agent_id, etag)
        self._etags = {}

    @property
    def count(self) -> int:
        return self._base.count + sum(
            (etag is not None) - (self._base.get(agent_id) is not None) for agent_id, etag in self._etags.items()
        )

    @property
    def digest(self) -> str:
        total = int(self._base.digest, 16)
        for agent_id, etag in self._etags.items():
            before = self._base.get(agent_id)
            if before != etag:
                total += 0 if etag is None else _leaf(agent_id, etag)
                total -= 0 if before is None else _leaf(agent_id, before)
        return f"{total % _MODULUS:064x}"


def _leaf(agent_id: str, etag: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{agent_id}\0{etag}".encode()).digest())


class Feed:
    def __init__(
        self,
        registry: Registry,
        url: str,
        get_key: Callable[[], PrivateKey],
        may_reexport: Callable[[str], bool],
        get_replaced: Callable[[], Sequence[PrivateKey]] = tuple,
    ) -> None:
        """`may_reexport` says whether the records of a peer are passed on. `get_replaced` returns the keys that were replaced
        recently: they introduce the present one to peers that know them."""
        self._get_replaced = get_replaced
        self._registry = registry
        self._url = url
        self._get_key = get_key
        self._may_reexport = may_reexport
        self._name: ServiceName | None = None
        self._public: SetDigest | None = None  # made for the first reader
        self._public_revision = 0  # of the last change of it
        self._changed: set[str] = set()  # ids that changed while it is made
        self._loading = asyncio.Lock()
        self._forgotten = 0  # how often it was forgotten
        registry.subscribe(self._follow)

    async def page(self, cursor: str | None, *, limit: int, wait_seconds: float) -> bytes:
        """One page. At the end of the feed, wait for the next change. Raises InvalidCursor, CursorTooOld."""
        name = await self.service_name()
        await self._load_public()
        position = await self._parse_cursor(cursor)
        may_wait = position.page is None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        lines, position, is_cut = await self._read(position, limit, name)
        # A change that is not shown ends no wait: it would tell of hidden agents.
        while may_wait and not lines and (left := deadline - loop.time()) > 0:
            if not await self._registry.changes.wait_beyond(position.revision, left):
                break
            lines, position, is_cut = await self._read(position, limit, name)
        public = await self._load_public()
        lines.append(to_single_line(self._bookmark(name, position, public, is_cut=is_cut)))
        return b"\n".join(lines) + b"\n"

    async def service_name(self) -> ServiceName:
        if self._name is None:
            self._name = ServiceName(url=self._url, id=await self._registry.service_id())
        return self._name

    # --- Reading ---------------------------------------------------------------------------------

    async def _read(self, position: _Position, limit: int, name: ServiceName) -> tuple[list[bytes], _Position, bool]:
        """Lines, the position after them, and whether there is more."""
        if position.page is not None:
            return await self._read_snapshot(position, limit, name)
        return await self._read_changes(position, limit, name)

    async def _read_snapshot(
        self, position: _Position, limit: int, name: ServiceName
    ) -> tuple[list[bytes], _Position, bool]:
        page = self._registry.page(ANONYMOUS, limit=limit, cursor=position.page or None, statuses=STATUSES)
        found = await self._registry.registrations([entry.id for entry in page.entries], cached=False)
        by_id = {registration.id: registration for registration in found}
        budget = _Budget()
        lines: list[bytes] = []
        time_slice = TimeSlice(limits.PEER_SLICE_SECONDS)
        for place, entry in enumerate(page.entries):
            await time_slice.step()
            registration = by_id.get(entry.id)
            if registration is None or not self._is_shown(registration):
                continue
            line = _encode(self._entry("registered", registration, registration.changed_at, name))
            if not budget.take(len(line)):
                page = page.first(place)
                break
            lines.append(line)
        return lines, _Position(position.revision, page.next_cursor, b""), page.next_cursor is not None

    async def _read_changes(
        self, position: _Position, limit: int, name: ServiceName
    ) -> tuple[list[bytes], _Position, bool]:
        """Of several changes of an agent in a page, only the last is sent."""
        time_slice = TimeSlice(limits.PEER_SLICE_SECONDS)
        shown, revision, is_cut = await self._read_shown(position.revision, limit, time_slice)
        last = {event.id: event.revision for event, _ in shown}
        shown = [(event, kind) for event, kind in shown if last[event.id] == event.revision]
        registrations = await self._present(shown)
        before, budget = position.revision, _Budget()
        lines: list[bytes] = []
        for event, kind in shown:
            await time_slice.step()
            line = self._change(event, kind, registrations.get(event.id), name)
            if line is not None:
                if not budget.take(len(line)):
                    return lines, _Position(before, None, b""), True
                lines.append(line)
            before = event.revision
        return lines, _Position(revision, None, b""), is_cut

    async def _read_shown(
        self, revision: int, limit: int, time_slice: TimeSlice
    ) -> tuple[list[tuple[Event, EventType]], int, bool]:
        """Changes that everybody may see, the revision up to which there are no others, and whether there are more. Hidden
        changes do not count: a page that they fill, or end, would tell how many there are."""
        shown: list[tuple[Event, EventType]] = []
        end = self._registry.changes.revision
        while revision < end:
            for event in await self._registry.changes.read(revision):
                await time_slice.step()
                kind = event_type_for(event, _EVERYBODY)
                if kind is not None:
                    if len(shown) == limit:
                        return shown, revision, True
                    shown.append((event, kind))
                revision = event.revision
        return shown, revision, False

    async def _present(self, shown: Sequence[tuple[Event, EventType]]) -> dict[str, Registration]:
        """Renewals need no documents."""
        found: dict[str, Registration] = {}
        for is_renewal in (False, True):
            ids = [event.id for event, kind in shown if kind in _PRESENT and (kind == "renewed") == is_renewal]
            for registration in await self._registry.registrations(ids, sources=not is_renewal) if ids else ():
                found[registration.id] = registration
        return found

    def _change(
        self, event: Event, kind: EventType, registration: Registration | None, name: ServiceName
    ) -> bytes | None:
        if kind not in _PRESENT:
            if not self._passes_on(event.owner):
                return None
            at, origin = to_rfc3339_millis(event.at), _end(event, name)
            return _encode(FeedEntry(type=kind, id=event.id, at=at, etag=event.etag, origin=origin))
        # A record that is gone or hidden by now has a later event.
        if registration is None or not self._is_shown(registration):
            return None
        return _encode(self._entry(kind, registration, event.at, name))

    def _entry(self, kind: str, registration: Registration, at: float, name: ServiceName) -> FeedEntry:
        return FeedEntry(
            type=kind,
            id=registration.id,
            at=to_rfc3339_millis(at),
            etag=registration.etag,
            origin=_origin(registration, name),
            status=registration.status,
            expires_at=rfc3339_or_none(registration.expires_at),
            aliases=registration.aliases,
            documents=()
            if kind == "renewed"
            else tuple(
                FeedDocument(
                    dialect=source.dialect,
                    document=source.document.decode(),
                    digest=source.digest,
                    url=source.url,
                )
                for source in registration.sources
            ),
        )

    def _is_shown(self, registration: Registration) -> bool:
        return registration.visibility == PUBLIC and self._passes_on(registration.owner)

    def _passes_on(self, owner: str) -> bool:
        peer = peer_of(owner)
        return peer is None or self._may_reexport(peer)

    # --- The digest ------------------------------------------------------------------------------

    def _follow(self, change: CommittedChange) -> None:
        if self._public is None:
            if self._loading.locked():
                self._changed.add(change.event.id)
            return
        registration = change.registration
        agent_id = change.event.id
        before = self._public.get(agent_id)
        if registration is None or not self._is_shown(registration):
            self._public.remove(agent_id)
        else:
            self._public.put(agent_id, registration.etag)
        if self._public.get(agent_id) != before:
            self._public_revision = change.event.revision

    def forget_digest(self) -> None:
        """Which peers' agents are passed on has changed."""
        self._public = None
        self._forgotten += 1

    async def _load_public(self) -> SetDigest:
        async with self._loading:
            while self._public is None:
                forgotten = self._forgotten
                public = await self._make_public()
                if forgotten == self._forgotten:
                    self._public = public
            return self._public

    async def _make_public(self) -> SetDigest:
        self._changed.clear()
        public, entries, time_slice = SetDigest(), self._registry.entries, TimeSlice(limits.PEER_SLICE_SECONDS)
        for agent_id in entries.ids():
            self._put_public(public, agent_id, entries.find(agent_id))
            await time_slice.step()
        for agent_id in self._changed:
            self._put_public(public, agent_id, entries.find(agent_id))
        self._public_revision = self._registry.changes.revision
        return public

    def _put_public(self, public: SetDigest, agent_id: str, entry: CatalogEntry | None) -> None:
        if entry is not None and entry.visibility == PUBLIC and self._passes_on(entry.owner):
            public.put(agent_id, entry.etag)
        else:
            public.remove(agent_id)

    # --- Cursors and bookmarks -------------------------------------------------------------------

    async def _parse_cursor(self, cursor: str | None) -> _Position:
        changes = self._registry.changes
        if cursor is None or cursor == "0":
            return _Position(changes.revision, "", b"")
        try:
            payload = self._registry.cursors.open(_PURPOSE, cursor)
            position = msgspec.msgpack.decode(payload, type=_Position)
        except (InvalidCursor, msgspec.DecodeError):
            raise InvalidCursor(
                "This cursor was not issued by the feed of this service.",
                path="from",
                hint="Leave it out to read everything.",
            ) from None
        if position.revision > changes.revision:
            raise CursorTooOld(
                "This cursor belongs to another history of the registry.",
                path="from",
                hint="Leave it out to read everything.",
            )
        return position

    def _bookmark(self, name: ServiceName, position: _Position, public: SetDigest, *, is_cut: bool) -> bytes:
        sealed = msgspec.structs.replace(position, nonce=secrets.token_bytes(8))
        is_complete = not is_cut and position.revision >= self._public_revision
        key = self._get_key()
        bookmark = FeedBookmark(
            type="bookmark",
            cursor=self._registry.cursors.seal(_PURPOSE, msgspec.msgpack.encode(sealed)),
            at=to_rfc3339_millis(self._registry.clock.now()),
            service=name.url,
            service_id=name.id,
            snapshot=position.page is not None,
            count=public.count,
            digest=public.digest if is_complete else None,
            key=base64.b64encode(key.public.spki).decode(),
            replaced=tuple(_introduce(key, old, name.id) for old in self._get_replaced()),
        )
        signature = key.sign(signed_bytes(bookmark))
        return _encode(msgspec.structs.replace(bookmark, signature=base64.b64encode(signature).decode()))


def _introduce(key: PrivateKey, old: PrivateKey, service_id: str) -> KeyChange:
    present = base64.b64encode(key.public.spki).decode()
    signature = old.sign(key_change_bytes(present, service_id))
    return KeyChange(key=base64.b64encode(old.public.spki).decode(), signature=base64.b64encode(signature).decode())


def key_change_bytes(key: str, service_id: str) -> bytes:
    """The bytes by which a replaced key introduces the present one."""
    return canonicalize({"type": "key-change", "key": key, "service_id": service_id})


def signed_bytes(bookmark: FeedBookmark) -> bytes:
    """The bytes that the signature of a bookmark covers."""
    return canonicalize(msgspec.to_builtins(msgspec.structs.replace(bookmark, signature="")))


def _origin(registration: Registration, name: ServiceName) -> FeedOrigin:
    if registration.federation is not None:
        return _passed_on(registration.federation, name)
    return FeedOrigin(
        service=name.url,
        service_id=name.id,
        id=registration.id,
        revision=_milliseconds(max(registration.changed_at, registration.renewed_at)),
        updated_at=registration.record.updated_at or to_rfc3339_millis(registration.changed_at),
    )


def _end(event: Event, name: ServiceName) -> FeedOrigin | None:
    """The origin of an agent that is gone, if it was registered here."""
    if peer_of(event.owner) is not None:
        return None
    return FeedOrigin(service=name.url, service_id=name.id, id=event.id, revision=_milliseconds(event.at))


def _passed_on(origin: Federation, name: ServiceName) -> FeedOrigin:
    return FeedOrigin(
        service=origin.origin_service,
        service_id=origin.service_id,
        id=origin.origin_id,
        revision=origin.revision,
        updated_at=origin.origin_updated_at,
        via=(*origin.via, name.url),
        path=(*origin.path, name.id),
    )


def _milliseconds(at: float) -> int:
    """The revision of a record for peers. That of the registry would tell of hidden records."""
    return int(at * 1000)


class _Budget:
    """The bytes that a page may still have. The first line always fits."""

    def __init__(self) -> None:
        self._left = limits.ANSWER_BYTES - limits.ANSWER_OVERHEAD_BYTES
        self._is_empty = True

    def take(self, size: int) -> bool:
        if size > self._left and not self._is_empty:
            return False
        self._left -= size + 1
        self._is_empty = False
        return True
