"""Peers: other registries, what is taken from them, and how far that has come. Stored as notes beside the records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, OwnerConflict, WaypostError
from waypost.model.principal import VISIBILITIES, Principal
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ports import Command, CommandResult, Decision, StoreState
from waypost.registry.registry import Registry
from waypost.responses.federation import ASKED_KINDS, PEER_KINDS

_PEER_NOTES = "peer:"
_STATE_NOTES = "peer-state:"
_BREAKER_NOTES = "peer-ask:"
_PARKED_NOTES = "peer-parked-record:"  # one for each record, so that a page writes only what it changes
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?\Z")


class OtherNode(OwnerConflict):
    """Another node of the cluster stored a page of the peer meanwhile."""


class Peer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another registry, and the policy for what it sends."""

    name: str
    url: str
    kind: str
    added_at: float
    added_by: str
    pull: bool = True
    ask: bool = False
    reexport: bool = False
    visibility: str = "internal"
    namespaces: tuple[str, ...] = ()  # patterns of ids, with `*`; empty: all
    every_seconds: float | None = None
    search_url: str = ""  # of an ARD registry
    max_records: int = limits.PEER_RECORDS
    token: str = ""
    key: str = ""  # the pinned public key, DER in base64
    paused: bool = False

    @property
    def has_feed(self) -> bool:
        return self.kind == "waypost"

    def takes(self, agent_id: str) -> bool:
        return not self.namespaces or any(fnmatchcase(agent_id, pattern) for pattern in self.namespaces)


ParkedItem = tuple[str, str]  # etag, reason


class PeerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a pull has come. It survives a restart."""

    cursor: str | None = None
    last_contact: float | None = None
    current_at: float | None = None  # when everything of the peer was known here
    service_id: str = ""
    is_complete: bool = False  # the last digest of the peer was matched
    error: str = ""
    unreadable: int = 0  # entries of the last complete reading that are no records
    unreadable_so_far: int | None = None  # of the reading that is under way, if there is one

    def is_like(self, other: PeerState) -> bool:
        """Whether only the times differ."""
        return self == msgspec.structs.replace(other, last_contact=self.last_contact, current_at=self.current_at)

    def is_old(self, now: float) -> bool:
        return now - (self.last_contact or 0) > limits.PEER_SAVE_SECONDS


class Breaker(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The circuit breaker of a peer that is asked."""

    failures: int = 0  # one after the other
    open_until: float = 0.0  # until then it is not asked
    error: str = ""

    def state(self, now: float) -> str:
        if not self.open_until:
            return "closed"
        return "open" if now < self.open_until else "half_open"


class PeerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an admin asks for."""

    url: str
    name: str | None = None
    kind: str | None = None
    pull: bool = True
    ask: bool = False
    reexport: bool = False
    visibility: str = "internal"
    namespaces: tuple[str, ...] = ()
    max_records: int = limits.PEER_RECORDS
    every_seconds: float | None = None
    key: str | None = None  # the fingerprint that the peer must have
    token: str | None = None

    def check(self) -> None:
        parts = _split(self.url)
        if parts is None:
            raise InvalidParameter(
                "The address of a peer is an http or https URL without a query.",
                path="$.url",
                hint="For example https://registry.example.",
            )
        if self.name is not None and not _NAME.match(self.name):
            raise InvalidParameter(
                "The name of a peer has lower-case letters, digits, dots and hyphens, at most 63.", path="$.name"
            )
        if self.kind is not None and self.kind not in PEER_KINDS:
            raise InvalidParameter(
                f"{self.kind[:40]!r} is not a kind of peer.", path="$.kind", hint=f"Use {', '.join(PEER_KINDS)}."
            )
        if self.ask and self.kind is not None and self.kind not in ASKED_KINDS:
            raise InvalidParameter(
                f"A peer of kind {self.kind} answers no searches.", path="$.ask", hint="It can be pulled."
            )
        if not 1 <= self.max_records <= limits.PEER_RECORDS_MAX:
            raise InvalidParameter(
                f"max_records is a number from 1 to {limits.PEER_RECORDS_MAX}.", path="$.max_records"
            )
        if self.visibility not in VISIBILITIES:
            raise InvalidParameter(
                f"{self.visibility[:40]!r} is not a visibility.",
                path="$.visibility",
                hint=f"Use {', '.join(VISIBILITIES)}.",
            )
        if len(self.namespaces) > limits.PEER_NAMESPACES or not all(self.namespaces):
            raise InvalidParameter(f"A peer has at most {limits.PEER_NAMESPACES} namespaces.", path="$.namespaces")
        if self.every_seconds is not None and not 1 <= self.every_seconds <= limits.TTL_MAX_SECONDS:
            raise InvalidParameter("The pause between two pulls is 1 s to one day.", path="$.every_seconds")

    def is_same_peer(self, peer: Peer) -> bool:
        """Whether only the policy may differ."""
        return self.url.rstrip("/") == peer.url and self.kind in (None, peer.kind)

    def apply_policy(self, peer: Peer) -> Peer:
        return msgspec.structs.replace(
            peer,
            pull=self.pull,
            ask=self.ask,
            reexport=self.reexport,
            visibility=self.visibility,
            namespaces=self.namespaces,
            every_seconds=self.every_seconds,
            max_records=self.max_records,
            token=self.token or "",
        )

    def default_name(self) -> str:
        parts = urlsplit(self.url)
        host = (parts.hostname or "peer").lower()
        name = re.sub(r"[^a-z0-9.-]+", "-", host if parts.port is None else f"{host}-{parts.port}").strip("-.")
        return name[:63].strip("-.") or "peer"


def _split(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        return None
    return parts.scheme, parts.hostname


class PeerStore:
    """All peers, mirrored in memory."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._peers: dict[str, Peer] = {}
        self._states: dict[str, PeerState] = {}
        self._saved: dict[str, str] = {}  # the stored cursors
        self._breakers: dict[str, Breaker] = {}
        self._parked: defaultdict[str, dict[str, ParkedItem]] = defaultdict(dict)
        self.on_change: Callable[[], None] = lambda: None  # another node or process changed the peers
        registry.subscribe_notes(self._apply_notes)

    async def load(self) -> None:
        self._peers = {
            peer.name: peer
            for _, value in await self._registry.notes(_PEER_NOTES)
            for peer in (msgspec.json.decode(value, type=Peer),)
        }
        self._states = {
            name.removeprefix(_STATE_NOTES): msgspec.json.decode(value, type=PeerState)
            for name, value in await self._registry.notes(_STATE_NOTES)
        }
        self._saved = {name: state.cursor for name, state in self._states.items() if state.cursor is not None}
        self._parked.clear()
        for name, value in await self._registry.notes(_PARKED_NOTES):
            self._apply_parked(name.removeprefix(_PARKED_NOTES), value)
        self._breakers = {
            name.removeprefix(_BREAKER_NOTES): msgspec.json.decode(value, type=Breaker)
            for name, value in await self._registry.notes(_BREAKER_NOTES)
        }

    def _apply_notes(self, notes: Mapping[str, bytes | None]) -> None:
        """Follow what was committed, by this node or another one."""
        has_changed = False
        for note, value in notes.items():
            kind, _, name = note.partition(":")
            if kind + ":" == _PEER_NOTES:
                _put(self._peers, name, None if value is None else msgspec.json.decode(value, type=Peer))
                has_changed = True
            elif kind + ":" == _STATE_NOTES:
                state = None if value is None else msgspec.json.decode(value, type=PeerState)
                _put(self._states, name, state)
                _put(self._saved, name, None if state is None else state.cursor)
            elif kind + ":" == _PARKED_NOTES:
                self._apply_parked(name, value)
            elif kind + ":" == _BREAKER_NOTES:
                _put(self._breakers, name, None if value is None else msgspec.json.decode(value, type=Breaker))
        if has_changed:
            self.on_change()

    def _apply_parked(self, name: str, value: bytes | None) -> None:
        peer, _, agent_id = name.partition(":")
        item = None if value is None else msgspec.json.decode(value, type=ParkedItem)
        _put(self._parked[peer], agent_id, item)

    def may_reexport(self, name: str) -> bool:
        peer = self._peers.get(name)
        return peer is not None and peer.reexport

    def peers(self) -> list[Peer]:
        return [self._peers[name] for name in sorted(self._peers)]

    def find(self, name: str) -> Peer | None:
        return self._peers.get(name)

    def get(self, name: str) -> Peer:
        peer = self._peers.get(name)
        if peer is None:
            raise NotFound(f"There is no peer {name[:63]!r}.", path="name", hint="`waypost peers list` shows them.")
        return peer

    def state(self, name: str) -> PeerState:
        return self._states.get(name, PeerState())

    def others_with(self, service_id: str, name: str) -> list[Peer]:
        """The peers besides `name` that gave this id as that of their service."""
        return [peer for peer in self.peers() if peer.name != name and self.state(peer.name).service_id == service_id]

    def breaker(self, name: str) -> Breaker:
        return self._breakers.get(name, Breaker())

    def set_breaker(self, name: str, breaker: Breaker) -> None:
        self._breakers[name] = breaker

    async def save_breaker(self, name: str) -> None:
        """Write the state that is in memory by now."""
        if name in self._peers:
            await self._save({_BREAKER_NOTES + name: msgspec.json.encode(self.breaker(name))})

    async def add(self, principal: Principal, peer: Peer) -> None:
        if peer.name in self._peers or any(known.url == peer.url for known in self._peers.values()):
            raise OwnerConflict(
                f"There is a peer {peer.name!r} or one with this address already.",
                path="$.name",
                hint="Remove it first, or choose another --name.",
            )
        if len(self._peers) >= limits.PEERS:
            raise InvalidParameter(f"There are {limits.PEERS} peers, which is the limit.", path="$")
        await self._write(
            principal, "peer-add", peer.name, {_PEER_NOTES + peer.name: msgspec.json.encode(peer)}, peer.url
        )
        self._peers[peer.name] = peer
        self._states.pop(peer.name, None)

    async def change(self, principal: Principal, peer: Peer, action: str) -> None:
        await self._write(principal, action, peer.name, {_PEER_NOTES + peer.name: msgspec.json.encode(peer)})
        self._peers[peer.name] = peer

    async def remove(self, principal: Principal, name: str) -> None:
        self.get(name)
        parked = [*self.parked(name)]
        for start in range(0, len(parked), limits.PEER_BATCH):  # before the peer: after a crash, it is removed again
            await self._save(_parked_notes(name, dict.fromkeys(parked[start : start + limits.PEER_BATCH])))
        await self._write(principal, "peer-remove", name, dict.fromkeys(_note_names(name)))
        self._peers.pop(name, None)
        self._states.pop(name, None)
        self._breakers.pop(name, None)
        self._parked.pop(name, None)

    def set_state(self, name: str, state: PeerState) -> None:
        self._states[name] = state

    async def save_state(self, name: str, state: PeerState) -> None:
        self._states[name] = state
        await self._save({_STATE_NOTES + name: msgspec.json.encode(state)})

    def parked(self, name: str) -> Mapping[str, ParkedItem]:
        """Records of a peer that were not taken, by id. It follows the commits."""
        return self._parked[name]

    async def park(self, name: str, agent_id: str, etag: str, reason: str) -> None:
        """Note a record that was taken and is kept no longer."""
        parked = self.parked(name)
        if name in self._peers and (agent_id in parked or len(parked) < limits.PEER_PARKED):
            await self._save(_parked_notes(name, {agent_id: (etag, reason)}))

    async def commit_page(
        self,
        name: str,
        after: PeerState,
        commands: Sequence[Command],
        get_parked: Callable[[], Mapping[str, ParkedItem | None]],
    ) -> list[CommandResult | WaypostError]:
        """Run the commands of a page and store the state after it in one commit: after a crash the page is read again, or it is
        not. `get_parked` is called when all of them have run, and returns what changes of the parked records. If another node
        moved the cursor meanwhile, nothing is lost, because the commands change nothing that is newer; but the state stays that
        of the other node."""
        note = _STATE_NOTES + name

        def decide(state: StoreState) -> Decision:
            stored = state.notes.get(note)
            if stored is not None and msgspec.json.decode(stored, type=PeerState).cursor != self._saved.get(name):
                raise OtherNode("Another node reads this peer.")
            notes = {note: msgspec.json.encode(after), **_parked_notes(name, get_parked())}
            return Decision(outcome="saved", notes=notes)

        saving = Command(keys=(), notes=(note,), decide=decide)
        *results, saved = await self._registry.execute_all((*commands, saving))
        if isinstance(saved, WaypostError):
            raise saved
        self._states[name] = after
        return results

    async def _save(self, notes: Mapping[str, bytes | None]) -> None:
        def decide(_: StoreState) -> Decision:
            return Decision(outcome="saved", notes=notes)

        await self._registry.execute(Command(keys=(), notes=tuple(notes), decide=decide))

    async def _write(
        self, principal: Principal, action: str, name: str, notes: Mapping[str, bytes | None], detail: str = ""
    ) -> None:
        entry = audit_entry_by(
            principal, action, now=self._registry.clock.now(), object=_PEER_NOTES + name, outcome="done", detail=detail
        )

        def decide(_: StoreState) -> Decision:
            return Decision(outcome="done", notes=notes, audit=(entry,))

        await self._registry.execute(Command(keys=(), notes=tuple(notes), decide=decide))


def _note_names(name: str) -> tuple[str, ...]:
    return (_PEER_NOTES + name, _STATE_NOTES + name, _BREAKER_NOTES + name)


def _parked_notes(name: str, items: Mapping[str, ParkedItem | None]) -> dict[str, bytes | None]:
    return {
        f"{_PARKED_NOTES}{name}:{agent_id}": None if item is None else msgspec.json.encode(item)
        for agent_id, item in items.items()
    }


T = TypeVar("T")


def _put(known: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        known.pop(name, None)
    else:
        known[name] = value
