"""What a peer can be: each kind is read page by page as changes with an origin and exact documents.

    waypost   the change feed of another Waypost registry, signed, with long polls
    mcp       the registry API of MCP (`/v0.1/servers`): only the current version of each server; deleted ones are withdrawn
    catalog   an AI Catalog and the catalogs in it

Kinds without a feed are read again after a pause. An entry whose bytes are known is not stored again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote, urljoin

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.federation.peers import Peer
from waypost.model.times import find_instant, to_rfc3339, to_rfc3339_millis
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document, unpack_documents
from waypost.registry.ports import Clock, FetchResponse, OutboundSender
from waypost.responses.federation import FeedBookmark, FeedDocument, FeedEntry, FeedOrigin

_MCP_PATHS: Final = ("/v0.1/servers", "/v0/servers")
_MCP_OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
_CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
_CATALOG_TYPE: Final = "application/ai-catalog+json"
_NOT_MODIFIED: Final = 304
_REFUSED: Final = (401, 403)
_GONE: Final = 410

_entry_decoder = msgspec.json.Decoder(FeedEntry)
_bookmark_decoder = msgspec.json.Decoder(FeedBookmark)


class PeerProblem(Exception):
    """A peer that cannot be followed, in words for an operator."""


class PeerRefusal(PeerProblem):
    """A peer that wants a token, or another one."""


class PeerPage(msgspec.Struct, frozen=True, kw_only=True):
    entries: Sequence[FeedEntry]
    cursor: str | None  # where to go on; None: from the beginning
    service_id: str
    is_last: bool  # nothing more is waiting
    starts_over: bool = False  # the first page of everything
    ends_snapshot: bool = False  # after it, everything was read once
    count: int | None = None  # agents of the peer, if it says so
    bad: int = 0  # entries that could not be read
    bookmark: FeedBookmark | None = None  # signed, if the kind has one


class PeerSource(Protocol):
    """One kind of peer."""

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        """One page; None if the cursor is no longer valid. Raises PeerProblem."""
        ...


class _Requests:
    """Requests to peers. Nothing of a caller is in them."""

    def __init__(self, sender: OutboundSender) -> None:
        self._sender = sender

    async def get(self, peer: Peer, url: str, headers: Mapping[str, str] | None = None) -> FetchResponse:
        sent = dict(headers or {})
        if peer.token and url.startswith(f"{peer.url}/"):
            sent["Authorization"] = f"Bearer {peer.token}"
        try:
            response = await self._sender.send(url, "feed", method="GET", headers=list(sent.items()))
        except WaypostError as error:
            raise PeerProblem(error.message) from None
        if response.status in _REFUSED:
            raise PeerRefusal(f"It wants a token (status {response.status}): give it one with --token-file.")
        if not response.is_success and response.status not in (_NOT_MODIFIED, _GONE):
            raise PeerProblem(f"It answered with status {response.status}.")
        return response


# --- Waypost --------------------------------------------------------------------------------------


class WaypostFeed:
    def __init__(self, sender: OutboundSender) -> None:
        self._requests = _Requests(sender)

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        query = f"wait={wait_seconds:g}&limit={limit}" + (f"&from={quote(cursor)}" if cursor else "")
        response = await self._requests.get(peer, f"{peer.url}/api/v1/feed?{query}")
        if response.status == _GONE:
            return None
        return parse_feed(response.body, is_first=cursor is None)


def parse_feed(body: bytes, *, is_first: bool) -> PeerPage:
    lines = [line for line in body.split(b"\n") if line.strip()]
    if not lines:
        raise PeerProblem("It answered without a bookmark.")
    try:
        bookmark = _bookmark_decoder.decode(lines[-1])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise PeerProblem("The last line of its answer is not a bookmark.") from None
    if bookmark.type != "bookmark" or not bookmark.cursor:
        raise PeerProblem("The last line of its answer is not a bookmark.")
    entries, bad = [], 0
    for line in lines[:-1]:
        try:
            entries.append(_entry_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            bad += 1  # the digest will not match, and says so
    return PeerPage(
        entries=entries,
        cursor=bookmark.cursor,
        service_id=bookmark.service_id,
        is_last=bookmark.digest is not None,
        starts_over=is_first,
        ends_snapshot=not bookmark.snapshot,
        count=bookmark.count,
        bad=bad,
        bookmark=bookmark,
    )


# --- MCP registries -------------------------------------------------------------------------------


class _McpPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str
    cursor: str = ""  # of the next page
    since: str = ""  # only changes after it
    started_at: str = ""  # of this pass


class McpRegistry:
    """Later passes ask for what changed since the one before, with some overlap: clocks differ."""

    def __init__(self, sender: OutboundSender, clock: Clock) -> None:
        self._requests = _Requests(sender)
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
        servers, following = _read_servers(response.body)
        entries, bad = [], 0
        for server in servers:
            try:
                entry = _mcp_entry(peer, server, self._clock.now())
            except (WaypostError, msgspec.MsgspecError, UnicodeDecodeError):
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
    except (msgspec.MsgspecError, KeyError, UnicodeDecodeError):
        raise PeerProblem("Its answer is not a list of MCP servers.") from None
    following = metadata.get("nextCursor") or metadata.get("next_cursor") or ""
    return [bytes(each) for each in servers], following if isinstance(following, str) else ""


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
    return _document_entry(peer, server, "mcp", now, updated_at, is_gone=is_deleted)


def _document_entry(
    peer: Peer, document: bytes, dialect: str, now: float, updated_at: str | None, *, is_gone: bool = False
) -> FeedEntry:
    """A document of a list as a change. Its revision is its own time; without one, that of its arrival."""
    decoded = decode_document(document, dialect, DecodeContext(now=now, source_url=peer.url))[2]
    digest = hashlib.sha256(document).hexdigest()
    instant = find_instant(updated_at)
    return FeedEntry(
        type="withdrawn" if is_gone else "updated",
        id=decoded.record.id,
        at=to_rfc3339_millis(now),
        etag=digest[:22],
        origin=FeedOrigin(
            service=peer.url,
            service_id=peer.url,
            id=decoded.record.id,
            revision=int((now if instant is None else instant) * 1000),
            updated_at=updated_at,
        ),
        documents=() if is_gone else (FeedDocument(dialect=dialect, document=document.decode(), digest=digest),),
    )


# --- AI Catalogs ----------------------------------------------------------------------------------


class AiCatalog:
    """Every pass reads the catalog and those in it, unless the first one has not changed."""

    def __init__(self, sender: OutboundSender, clock: Clock) -> None:
        self._requests = _Requests(sender)
        self._clock = clock

    async def read(self, peer: Peer, cursor: str | None, *, wait_seconds: float, limit: int) -> PeerPage | None:
        url = peer.url if peer.url.endswith(".json") else f"{peer.url}{_CATALOG_PATH}"
        response = await self._requests.get(peer, url, {"If-None-Match": cursor} if cursor else None)
        if response.status == _NOT_MODIFIED:
            return PeerPage(entries=(), cursor=cursor, service_id=peer.url, is_last=True)
        entries: dict[str, FeedEntry] = {}
        bad = await self._walk(peer, response, entries, {url}, limits.PEER_CATALOG_DEPTH)
        return PeerPage(
            entries=list(entries.values()),
            cursor=response.headers.get("etag") or None,
            service_id=peer.url,
            is_last=True,
            starts_over=True,
            ends_snapshot=True,
            bad=bad,
        )

    async def _walk(
        self, peer: Peer, response: FetchResponse, entries: dict[str, FeedEntry], visited: set[str], depth: int
    ) -> int:
        """Collect the entries of a catalog and of those in it. Returns how many could not be read."""
        try:
            documents = unpack_documents(response.body)
        except (WaypostError, msgspec.MsgspecError):
            documents = None
        if documents is None:
            raise PeerProblem(f"{response.url} is not an AI Catalog.")
        bad = 0
        for document in documents:
            nested = _nested_catalog(document)
            if nested is not None:
                url = urljoin(response.url, nested)
                if depth > 1 and url not in visited and len(visited) < limits.PEER_CATALOGS:
                    visited.add(url)
                    try:
                        inner = await self._requests.get(peer, url)
                        bad += await self._walk(peer, inner, entries, visited, depth - 1)
                    except PeerProblem:
                        bad += 1  # the others are taken all the same
                continue
            try:
                entry = _document_entry(peer, document, "ard", self._clock.now(), _updated_at(document))
            except (WaypostError, msgspec.MsgspecError, UnicodeDecodeError):
                bad += 1
                continue
            if len(entries) >= peer.max_records:
                raise PeerProblem(f"It has more than {peer.max_records} entries.")
            entries.setdefault(entry.id, entry)
        return bad


class _CatalogEntry(msgspec.Struct):
    type: Any = None
    mediaType: Any = None  # noqa: N815 - the name in the catalog
    url: Any = None
    updatedAt: Any = None  # noqa: N815


def _nested_catalog(document: bytes) -> str | None:
    """The address of a catalog in a catalog."""
    try:
        entry = msgspec.json.decode(document, type=_CatalogEntry)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    kind = entry.type or entry.mediaType
    return entry.url if kind == _CATALOG_TYPE and isinstance(entry.url, str) else None


def _updated_at(document: bytes) -> str | None:
    entry = msgspec.json.decode(document, type=_CatalogEntry)
    return entry.updatedAt if isinstance(entry.updatedAt, str) else None


# --- All kinds ------------------------------------------------------------------------------------


def make_sources(sender: OutboundSender, clock: Clock) -> dict[str, PeerSource]:
    """The kinds of peers, in the order in which they are tried."""
    return {
        "waypost": WaypostFeed(sender),
        "mcp": McpRegistry(sender, clock),
        "catalog": AiCatalog(sender, clock),
    }
