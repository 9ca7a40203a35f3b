"""How an AF representation is sent: validators, caching, links, cross-origin rules, compression.

It knows headers. Which agents are in the body, and who may see them, was decided before.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from waypost import limits
from waypost.errors import NotAcceptable
from waypost.model.principal import Principal
from waypost.server.af_paths import BASE, rooted
from waypost.server.asgi import Headers, Request, Response, Scope, header_bytes, merge_vary
from waypost.server.conditional import http_date, not_modified, strong_etag
from waypost.server.negotiation import MediaType, accepts_gzip, choose

OFFERS = (MediaType("application", "json"), MediaType("application", "agent-metadata+json", (("version", "1"),)))
AVAILABLE = [str(offer) for offer in OFFERS]
_MEDIA_TYPES = {offer: str(offer).encode() for offer in OFFERS}

_PUBLIC = b"public, max-age=60, stale-while-revalidate=300"
_PRIVATE = b"private, no-cache"
_VARY = b"Accept, Authorization"
_EXPOSED = b"ETag, Link, X-Total-Count, AF-Generation, Content-Location, Last-Modified"
_QUERY = "%=&+~!$'()*,;:@/?-._"


class Representation(NamedTuple):
    body: bytes
    media_type: bytes
    last_modified: float | None = None
    links: Sequence[tuple[str, str]] = ()  # (target, parameters)
    content_location: str | None = None
    more: Sequence[tuple[bytes, bytes]] = ()


class Origins(NamedTuple):
    """AF-10: which pages of other origins may read what their user may see."""

    allowed: frozenset[str] = frozenset()

    def apply(self, request: Request, headers: Headers, *, anonymous: bool) -> None:
        origin = request.header(b"origin") if self.allowed else None
        if self.allowed:
            merge_vary(headers, ("Origin",))
        if origin is not None and origin in self.allowed:
            headers.append((b"access-control-allow-origin", header_bytes(origin)))
            headers.append((b"access-control-allow-credentials", b"true"))
        elif anonymous:
            headers.append((b"access-control-allow-origin", b"*"))
        else:
            return
        headers.append((b"access-control-expose-headers", _EXPOSED))


def acceptable(request: Request) -> bytes:
    """The media type to answer in (AF-30), or a refusal that names those there are."""
    chosen = choose(OFFERS, request.header(b"accept"))
    if chosen is None:
        raise NotAcceptable(
            "No representation fits the Accept header.",
            path="Accept",
            hint=f"Available: {', '.join(AVAILABLE)}.",
            details={"available": AVAILABLE},
        )
    return _MEDIA_TYPES[chosen]


async def answer(request: Request, principal: Principal, found: Representation, *, now: float) -> Response:
    """200 with the representation, or 304 when the caller has it already."""
    etag = strong_etag(found.body, found.media_type)
    compressed = len(found.body) >= limits.AF_GZIP_BYTES and accepts_gzip(request.header(b"accept-encoding"))
    if compressed:
        etag = f'{etag[:-1]}-gzip"'
    modified = found.last_modified if found.last_modified is not None and found.last_modified <= now else None
    headers: Headers = [
        (b"etag", etag.encode()),
        (b"cache-control", _PUBLIC if principal.is_anonymous else _PRIVATE),
        (b"vary", _VARY + b", Accept-Encoding" if len(found.body) >= limits.AF_GZIP_BYTES else _VARY),
    ]
    if modified is not None:
        headers.append((b"last-modified", http_date(modified)))
    if found.content_location is not None:
        headers.append((b"content-location", header_bytes(found.content_location)))
    if not_modified(request, etag, modified, now=now):
        return Response(304, headers=headers)
    if found.links:
        headers.append((b"link", _link_field(found.links)))
    headers.extend(found.more)
    if not compressed:
        return Response(200, found.body, content_type=found.media_type, headers=headers)
    headers.append((b"content-encoding", b"gzip"))
    body = await asyncio.to_thread(gzip.compress, found.body, 5, mtime=0)
    return Response(200, body, content_type=found.media_type, headers=headers)


def redirect(scope: Scope, path: str, query_string: bytes) -> Response:
    """308 to another path of this surface, the query kept byte for byte."""
    target = rooted(scope, quote(path, safe="/%:@!$&'()*+,;=~"))
    if query_string:
        target += "?" + query_string.decode("latin-1")
    headers: Headers = [(b"location", header_bytes(target)), (b"cache-control", b"max-age=86400")]
    return Response(308, headers=headers)


def describedby(scope: Scope) -> tuple[str, str]:
    return rooted(scope, f"{BASE}/schema.json"), 'rel="describedby"; type="application/schema+json"'


def page_links(scope: Scope, query_string: bytes, page: int, per_page: int, total: int) -> list[tuple[str, str]]:
    """RFC 8288 links to the first, previous, next and last page, every other parameter kept."""
    kept = [part for part in query_string.split(b"&") if part and _name_of(part) not in (b"page", b"per_page")]
    others = "".join(escaped_query(part) + "&" for part in kept)
    last = max(1, -(-total // per_page))
    targets = {"first": 1, "prev": min(page - 1, last), "next": page + 1, "last": last}
    if page <= 1:
        del targets["prev"]
    if page >= last:
        del targets["next"]
    path = rooted(scope, f"{BASE}/agents")
    return [(f"{path}?{others}page={number}&per_page={per_page}", f'rel="{rel}"') for rel, number in targets.items()]


def escaped_query(query_string: bytes) -> str:
    """A query string as it was sent, with what could end a link early escaped."""
    return quote(query_string, safe=_QUERY)


def _name_of(part: bytes) -> bytes:
    return unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" "))


def _link_field(links: Sequence[tuple[str, str]]) -> bytes:
    return header_bytes(", ".join(f"<{target}>; {parameters}" for target, parameters in links))
