"""MCP servers that were withdrawn, for those who mirror this registry: they ask what changed since a time.

The change log says which public servers went, as far as it reaches back. The index follows it, and is read only if a request
asks for deleted servers. A server that became hidden is reported like one that was withdrawn, with what was public of it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import CursorTooOld
from waypost.model.events import Event, event_type_for
from waypost.model.json import JsonObject
from waypost.model.principal import PUBLIC
from waypost.protocols.codec import truncate_text
from waypost.protocols.mcp.codec import server_name
from waypost.protocols.mcp.registry_entry import DELETED, make_entry
from waypost.registry.registry import Registry

_AUDIENCE: Final = frozenset((PUBLIC,))
_PROTOCOLS: Final = ("mcp", "mcp-package")
_DESCRIPTION_CHARS: Final = 100
_UNKNOWN_VERSION: Final = "0.0.0"  # its last version is not in the log any more


class _LastVersion(msgspec.Struct, frozen=True, gc=False):
    """What a public server said of itself last."""

    description: str
    version: str
    registered_at: float


class DeletedServer(msgspec.Struct, frozen=True, gc=False):
    name: str
    at: float
    last: _LastVersion | None

    def entry(self) -> JsonObject:
        """The entry of a registry: the members that a server.json must have, and the status."""
        last = self.last
        server: JsonObject = {
            "name": self.name,
            "description": last.description if last is not None else "Withdrawn.",
            "version": last.version if last is not None else _UNKNOWN_VERSION,
        }
        published_at = last.registered_at if last is not None else self.at
        return make_entry(server, status=DELETED, published_at=published_at, updated_at=self.at, is_latest=True)


class _LoggedBinding(msgspec.Struct):
    protocol: str = ""


class _LoggedRecord(msgspec.Struct):
    """The members of a logged profile document that are needed here."""

    description: str = ""
    version: str | None = None
    tags: tuple[str, ...] = ()
    bindings: tuple[_LoggedBinding, ...] = ()


class DeletedServers:
    def __init__(self, registry: Registry, host: str) -> None:
        self._registry = registry
        self._host = host
        self._lock = asyncio.Lock()
        self._revision: int | None = None
        self._last: LruCache[str, _LastVersion] = LruCache(limits.DELETED_SERVERS)
        self._deleted: LruCache[str, DeletedServer] = LruCache(limits.DELETED_SERVERS)
        self._names: list[str] = []

    async def names_after(self, name: str | None) -> Sequence[str]:
        await self._follow()
        return self._names if name is None else self._names[bisect_right(self._names, name) :]

    def find(self, name: str) -> DeletedServer | None:
        return self._deleted.get(name)

    async def _follow(self) -> None:
        """Read the rest of the change log."""
        async with self._lock:
            changes = self._registry.changes
            before, names = self._revision, set(self._names)
            if self._revision is None:
                self._revision = await changes.parse_cursor("0")
            try:
                while events := await changes.read(self._revision):
                    for event in events:
                        self._apply(event, names)
                    self._revision = events[-1].revision
            except CursorTooOld:
                self._revision = changes.revision  # what was pruned before it was read here is not known
            if self._revision != before:
                self._names = sorted(name for name in names if self._deleted.get(name) is not None)

    def _apply(self, event: Event, names: set[str]) -> None:
        kind = event_type_for(event, _AUDIENCE)
        if kind in ("registered", "updated") and event.record is not None:
            record = msgspec.json.decode(event.record, type=_LoggedRecord)
            name = server_name(event.id, self._host)
            self._deleted.drop(name)
            names.discard(name)
            if _is_server(event.id, record):
                description = truncate_text(record.description, _DESCRIPTION_CHARS)
                known = self._last.get(event.id)
                since = known.registered_at if known is not None and kind == "updated" else event.at
                self._last.put(event.id, _LastVersion(description, record.version or _UNKNOWN_VERSION, since))
        elif kind in ("withdrawn", "expired"):
            last = self._last.get(event.id)
            self._last.drop(event.id)
            if last is not None or server_name(event.id, "") == event.id:
                name = server_name(event.id, self._host)
                self._deleted.put(name, DeletedServer(name, event.at, last))
                names.add(name)


def _is_server(agent_id: str, record: _LoggedRecord) -> bool:
    if any(binding.protocol in _PROTOCOLS for binding in record.bindings):
        return True
    return not record.bindings and "mcp" in record.tags and server_name(agent_id, "") == agent_id
