"""Peers: other registries, what is taken from them, and how far that has come. Stored as notes beside the records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, OwnerConflict
from waypost.model.principal import VISIBILITIES, Principal
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.ports import Command, Decision, StoreState
from waypost.registry.registry import Registry
from waypost.responses.federation import PEER_KINDS

_PEER_NOTES = "peer:"
_STATE_NOTES = "peer-state:"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?\Z")


class Peer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another registry, and the policy for what it sends."""

    name: str
    url: str
    kind: str
    added_at: float
    added_by: str
    pull: bool = True
    reexport: bool = False
    visibility: str = "internal"
    namespaces: tuple[str, ...] = ()  # patterns of ids, with `*`; empty: all
    every_seconds: float | None = None
    max_records: int = limits.PEER_RECORDS
    token: str = ""
    key: str = ""  # the pinned public key, DER in base64
    paused: bool = False

    @property
    def has_feed(self) -> bool:
        return self.kind == "waypost"

    def takes(self, agent_id: str) -> bool:
        return not self.namespaces or any(fnmatchcase(agent_id, pattern) for pattern in self.namespaces)


class PeerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a pull has come. It survives a restart."""

    cursor: str | None = None
    last_contact: float | None = None
    current_at: float | None = None  # when everything of the peer was known here
    service_id: str = ""
    parked: dict[str, tuple[str, str]] = {}  # records that were not taken: id -> etag, reason


class PeerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an admin asks for."""

    url: str
    name: str | None = None
    kind: str | None = None
    pull: bool = True
    reexport: bool = False
    visibility: str = "internal"
    namespaces: tuple[str, ...] = ()
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
        await self._write(principal, "peer-remove", name, {_PEER_NOTES + name: None, _STATE_NOTES + name: None})
        self._peers.pop(name, None)
        self._states.pop(name, None)

    async def save_state(self, name: str, state: PeerState) -> None:
        """Called after the records of a page are stored, so that a crash repeats the page and loses nothing."""
        self._states[name] = state
        notes = {_STATE_NOTES + name: msgspec.json.encode(state)}

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
