"""The registry API of MCP (`/v0.1/servers`): the current version of each server; deleted ones are withdrawn."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.kinds.documents import document_entry, split_json
from waypost.federation.kinds.port import UNREADABLE, PeerPage, PeerProblem
from waypost.federation.kinds.requests import PeerRequests
from waypost.federation.peers import Peer
from waypost.model.times import find_instant, to_rfc3339
from waypost.registry.ports import Clock, OutboundSender
from waypost.responses.federation import FeedEntry
from waypost.time_slice import TimeSlice

_MCP_PATHS: Final = ("/v0.1/servers", "/v0/servers")
_MCP_OFFICIAL: Final = "io.modelcontextprotocol.registry/official"


class _McpPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str
    cursor: str = ""  # of the next page
    since: str = ""  # only changes after it
    started_at: str = ""  # of this pass


class McpRegistry:
    """Later passes ask for what changed since the one before, with some overlap: clocks differ."""

    def __init__(self, sender: OutboundSender, clock: Clock) -> None:
        self._requests = PeerRequests(sender)
        self._clock = clock

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        position = _decode_position(cursor)
        if position is None:
            position = _McpPosition(await self._find_path(peer), started_at=to_rfc3339(self._clock.wall()))
        elif not position.cursor:
            since = find_instant(position.since) or 0.0
            position = _McpPosition(
                position.path,
                since=to_rfc3339(max(0.0, since - limits.PEER_OVERLAP_SECONDS)),
                started_at=to_rfc3339(self._clock.wall()),
            )
        query = f"limit={min(limit, limits.PEER_MCP_PAGE)}&include_deleted=true"
        for name, value in (("cursor", position.cursor), ("updated_since", position.since)):
            query += f"&{name}={quote(value, safe='')}" if value else ""
        response = await self._requests.get(peer, f"{peer.url}{position.path}?{query}")
        servers, following = await split_json(_read_servers, response.body)
        entries, bad, time_slice = [], 0, TimeSlice(limits.PEER_SLICE_SECONDS)
        for server in servers:
            await time_slice.step()
            try:
                entry = _mcp_entry(peer, server, self._clock.now())
            except (WaypostError, *UNREADABLE):
                bad += 1
                continue
            if entry is not None:
                entries.append(entry)
        if following == position.cursor and following:
            raise PeerProblem("Its cursor does not move.")
        is_whole = not position.since
        following_position = (
            msgspec.structs.replace(position, cursor=following)
            if following
            else _McpPosition(position.path, since=position.started_at)
        )
        return PeerPage(
            entries=entries,
            cursor=msgspec.json.encode(following_position).decode(),
            service_id=peer.url,
            is_last=not following,
            starts_over=is_whole and not position.cursor,
            ends_snapshot=is_whole and not following,
            bad=bad,
        )

    async def _find_path(self, peer: Peer) -> str:
        for path in _MCP_PATHS[:-1]:
            try:
                await self._requests.get(peer, f"{peer.url}{path}?limit=1")
            except PeerProblem:
                continue
            return path
        return _MCP_PATHS[-1]


def _decode_position(cursor: str | None) -> _McpPosition | None:
    try:
        return None if cursor is None else msgspec.json.decode(cursor, type=_McpPosition)
    except msgspec.MsgspecError:
        return None


def _read_servers(body: bytes) -> tuple[list[bytes], str]:
    try:
        page = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        servers = msgspec.json.decode(page["servers"], type=list[msgspec.Raw] | None) or []
        metadata = msgspec.json.decode(page.get("metadata", msgspec.Raw(b"{}")), type=dict[str, Any])
    except (KeyError, *UNREADABLE):
        raise PeerProblem("Its answer is not a list of MCP servers.") from None
    following = metadata.get("nextCursor") or metadata.get("next_cursor") or ""
    if not isinstance(following, str) or len(following) > limits.FEED_CURSOR_CHARS:
        raise PeerProblem("The cursor of its next page is no text, or too long.")
    return [bytes(each) for each in servers], following


def _mcp_entry(peer: Peer, server: bytes, now: float) -> FeedEntry | None:
    """The change that a server of the list stands for; None for a version that is not the current one."""
    members = msgspec.json.decode(server, type=dict[str, Any])
    meta = members.get("_meta")
    official = meta.get(_MCP_OFFICIAL) if isinstance(meta, dict) else None
    official = official if isinstance(official, dict) else {}
    if official.get("isLatest") is False:
        return None
    updated_at = official.get("updatedAt")
    updated_at = updated_at if isinstance(updated_at, str) else None
    is_deleted = official.get("status") == "deleted"
    return document_entry(peer, server, "mcp", now, updated_at, is_gone=is_deleted)
