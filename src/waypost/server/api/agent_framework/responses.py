"""The addresses of the AF surface: which of its pages a path names, and how its links are written.

It knows prefixes and segments, not agents. Ids are taken from the undecoded path, so that an escaped slash survives (AF-72).
"""

from __future__ import annotations

import asyncio
import gzip
import re
import secrets
from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from waypost import limits
from waypost.errors import MethodNotAllowed, NotAcceptable, Unauthorized, WaypostError
from waypost.model.json import dump_json
from waypost.model.principal import Principal
from waypost.server.http.asgi import PROBLEM, Headers, Request, Response, Scope, encode_header, merge_vary
from waypost.server.http.conditional_requests import format_http_date, is_not_modified, strong_etag
from waypost.server.http.content_negotiation import MediaType, accepts_gzip, choose_media_type
from waypost.server.http.problems import problem_headers, problem_instance, problem_json

PREFIX = "/.well-known/agentframework"

ALIAS = "/.agent-framework"

VERSION = "v1"

BASE = f"{PREFIX}/{VERSION}"

LEGACY = "/v1/agents"

CARD = "/.well-known/agent-card"

LEGACY_CARD = "/v1/card"

A2A_CARD = "/.well-known/agent-card.json"

AfPageKind = Literal["versions", "version", "list", "item", "schema", "problem", "unknown_version", "unknown", "card"]

_VERSION_SEGMENT = re.compile(rb"v\d+\Z")

_PATH = "/:@!$&'()*+,;=~"  # what a path may hold unescaped


class AfRoute(NamedTuple):
    """What a path names. `segment` is the escaped last part: an id or a problem code."""

    page: AfPageKind
    canonical: str  # the path without root path, escaped, under the canonical prefix
    alias: bool = False
    legacy: bool = False
    slash: bool = False  # a trailing slash that is to be redirected away
    segment: bytes = b""


def local_path(scope: Scope) -> str:
    """The path below the root path. Servers disagree on whether `path` contains `root_path`; both are read."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path


def find_route(scope: Scope, *, alias: bool = True, legacy: bool = False, cards: bool = True) -> AfRoute | None:
    """The page of the AF surface that a request names, or None when the path belongs to somebody else."""
    path = local_path(scope)
    if path.startswith(PREFIX) and _ends_segment(path, PREFIX):
        return _find_page(_raw_rest(scope, path, PREFIX))
    if alias and path.startswith(ALIAS) and _ends_segment(path, ALIAS):
        return _find_page(_raw_rest(scope, path, ALIAS))._replace(alias=True)
    if legacy and path.startswith(LEGACY) and _ends_segment(path, LEGACY):
        return _find_legacy(_raw_rest(scope, path, LEGACY))
    if cards and path.rstrip("/") in (CARD, LEGACY_CARD):
        bare = path.rstrip("/")
        return AfRoute("card", bare, legacy=bare == LEGACY_CARD, slash=bare != path)
    return None


def with_root_path(scope: Scope, path: str) -> str:
    """A path of this surface as a link: the root path before it."""
    root: str = scope.get("root_path", "")
    return quote(root.rstrip("/"), safe=_PATH) + path if root else path


def item_path(published_id: str) -> str:
    return f"{BASE}/agents/{quote(published_id, safe='~')}"


def _ends_segment(path: str, prefix: str) -> bool:
    return len(path) == len(prefix) or path[len(prefix)] == "/"


def _raw_rest(scope: Scope, path: str, prefix: str) -> bytes:
    """What follows the prefix, still escaped. Without a raw path the decoded one stands in, and only slugs work."""
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        raw = raw.partition(b"?")[0].removeprefix(quote(scope.get("root_path", "").rstrip("/"), safe=_PATH).encode())
        at = raw.find(prefix.encode())
        if at >= 0:
            return raw[at + len(prefix) :]
    return quote(path[len(prefix) :], safe=_PATH).encode()


def _find_page(rest: bytes) -> AfRoute:
    """`rest` is what follows the canonical prefix: "", "/v1", "/v1/agents", "/v1/agents/{segment}" …"""
    bare = rest.rstrip(b"/")
    slash = bare != rest
    canonical = PREFIX + bare.decode("latin-1")
    parts = bare.split(b"/")[1:]
    match [unquote_to_bytes(part) for part in parts]:
        case []:
            return AfRoute("versions", canonical, slash=slash)
        case [b"v1"]:
            return AfRoute("version", canonical, slash=slash)
        case [b"v1", b"agents"]:
            return AfRoute("list", canonical, slash=slash)
        case [b"v1", b"agents", _] if parts[2]:
            return AfRoute("item", canonical, slash=slash, segment=parts[2])
        case [b"v1", b"schema.json"]:
            return AfRoute("schema", canonical, slash=slash)
        case [b"v1", b"problems", _] if parts[2]:
            return AfRoute("problem", canonical, slash=slash, segment=parts[2])
        case [version, *_] if version != b"v1" and _VERSION_SEGMENT.match(version):
            return AfRoute("unknown_version", canonical)
        case _:
            return AfRoute("unknown", canonical)


def _find_legacy(rest: bytes) -> AfRoute | None:
    bare = rest.rstrip(b"/")
    if bare.count(b"/") > 1:
        return None
    page: AfPageKind = "item" if bare else "list"
    return AfRoute(page, f"{BASE}/agents{bare.decode('latin-1')}", legacy=True, segment=bare[1:])


# ---- Problems of the AF surface (RFC 9457): their members, their headers, and the pages that their types lead to.

ALLOWED = ("GET", "HEAD", "OPTIONS")

ALLOW = ", ".join(ALLOWED).encode()

PROBLEM_PAGES: dict[str, str] = {
    "invalid_request": "The request cannot be used as it is: a parameter, the path, the method or the Accept header.\n"
    "The member invalid_params names each parameter with the reason. Correct them and ask again.",
    "unauthorized": "No credential was sent, or one that does not hold. Send one as the WWW-Authenticate header asks.",
    "forbidden": "The credential holds, but this caller has no right to discovery here. Ask the operator for it.",
    "not_found": "There is no agent of this name that you may see, or no such page. The list of agents has the ids.",
    "conflict": "The write collides with what is held: another owner has the id, or it is no longer in the version that\n"
    "If-Match names, or the idempotency key was used before. Read the agent again, then decide.",
    "stale_metadata": "What was sent is older than what is held, or what was asked for is no longer kept. Read it anew.",
    "unsupported_filter": "A filter that must hold cannot be applied here. Leave it out, or filter the answers yourself.",
    "rate_limited": "Too many requests in a short time. Wait as long as the Retry-After header says.",
    "unavailable": "The directory cannot be read at the moment. Wait as long as the Retry-After header says.",
    "internal": "A fault of this service. Its operator finds it in the log by the correlation_id.",
}


def problem_page(code: str) -> bytes | None:
    """The text behind a problem type, or None for a code that has none."""
    text = PROBLEM_PAGES.get(code)
    return None if text is None else f"{code}\n\n{text}\n".encode()


def correlation_id(request: Request) -> str:
    """The id that this request goes by: the caller's if it is fit to be repeated, else a new one."""
    given = request.header(b"x-request-id") or ""
    if 0 < len(given) <= limits.REQUEST_ID_CHARS and given.isascii() and given.isprintable():
        return given
    return secrets.token_hex(8)


def af_problem_response(
    request: Request,
    error: WaypostError,
    *,
    request_id: str | None = None,
    origin: str = "",
    challenge: str | None = None,
) -> Response:
    """The answer to an error. `origin` makes the type absolute; it comes from configuration, never from the request."""
    document = problem_json(
        error, instance=problem_instance(request), correlation_id=request_id or correlation_id(request)
    )
    document["type"] = (
        origin + with_root_path(request.scope, f"{BASE}/problems/{error.code}")
        if error.code in PROBLEM_PAGES
        else "about:blank"
    )
    document.update(error.details)
    if document["status"] == 400:
        document.setdefault("invalid_params", [{"name": error.path or "query", "reason": error.message}])
    headers = problem_headers(error)
    if challenge is not None and isinstance(error, Unauthorized):
        headers = [pair for pair in headers if pair[0] != b"www-authenticate"]
        headers.append((b"www-authenticate", encode_header(challenge)))
    headers.append((b"vary", b"Accept, Authorization"))
    return Response(document["status"], dump_json(document), content_type=PROBLEM, headers=headers)


def method_not_allowed(method: str) -> MethodNotAllowed:
    return MethodNotAllowed(
        f"{method[:16]} is not allowed here: discovery is read only.",
        path="method",
        hint=f"Use {', '.join(ALLOWED)}.",
        details={"allow": list(ALLOWED)},
    )


# ---- How an AF representation is sent: validators, caching, links, cross-origin rules, compression.
#
# It knows headers. Which agents are in the body, and who may see them, was decided before.

OFFERS = (MediaType("application", "json"), MediaType("application", "agent-metadata+json", (("version", "1"),)))

AVAILABLE = [str(offer) for offer in OFFERS]

_MEDIA_TYPES = {offer: str(offer).encode() for offer in OFFERS}

_PUBLIC = b"public, max-age=60, stale-while-revalidate=300"

_PRIVATE = b"private, no-cache"

_VARY = b"Accept, Authorization"

_EXPOSED = b"ETag, Link, X-Total-Count, AF-Generation, Content-Location, Last-Modified"

_QUERY = "%=&+~!$'()*,;:@/?-._"


class AfRepresentation(NamedTuple):
    body: bytes
    media_type: bytes
    last_modified: float | None = None
    links: Sequence[tuple[str, str]] = ()  # (target, parameters)
    content_location: str | None = None
    more: Sequence[tuple[bytes, bytes]] = ()


class CorsPolicy(NamedTuple):
    """AF-10: which pages of other origins may read what their user may see."""

    allowed: frozenset[str] = frozenset()

    def apply(self, request: Request, headers: Headers, *, anonymous: bool) -> None:
        origin = request.header(b"origin") if self.allowed else None
        if self.allowed:
            merge_vary(headers, ("Origin",))
        if origin is not None and origin in self.allowed:
            headers.append((b"access-control-allow-origin", encode_header(origin)))
            headers.append((b"access-control-allow-credentials", b"true"))
        elif anonymous:
            headers.append((b"access-control-allow-origin", b"*"))
        else:
            return
        headers.append((b"access-control-expose-headers", _EXPOSED))


def negotiate_media_type(request: Request) -> bytes:
    """The media type to answer in (AF-30), or a refusal that names those there are."""
    chosen = choose_media_type(OFFERS, request.header(b"accept"))
    if chosen is None:
        raise NotAcceptable(
            "No representation fits the Accept header.",
            path="Accept",
            hint=f"Available: {', '.join(AVAILABLE)}.",
            details={"available": AVAILABLE},
        )
    return _MEDIA_TYPES[chosen]


async def representation_response(
    request: Request, principal: Principal, found: AfRepresentation, *, now: float
) -> Response:
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
        headers.append((b"last-modified", format_http_date(modified)))
    if found.content_location is not None:
        headers.append((b"content-location", encode_header(found.content_location)))
    if is_not_modified(request, etag, modified, now=now):
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
    target = with_root_path(scope, quote(path, safe="/%:@!$&'()*+,;=~"))
    if query_string:
        target += "?" + query_string.decode("latin-1")
    headers: Headers = [(b"location", encode_header(target)), (b"cache-control", b"max-age=86400")]
    return Response(308, headers=headers)


def describedby_link(scope: Scope) -> tuple[str, str]:
    return with_root_path(scope, f"{BASE}/schema.json"), 'rel="describedby"; type="application/schema+json"'


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
    path = with_root_path(scope, f"{BASE}/agents")
    return [(f"{path}?{others}page={number}&per_page={per_page}", f'rel="{rel}"') for rel, number in targets.items()]


def escaped_query(query_string: bytes) -> str:
    """A query string as it was sent, with what could end a link early escaped."""
    return quote(query_string, safe=_QUERY)


def _name_of(part: bytes) -> bytes:
    return unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" "))


def _link_field(links: Sequence[tuple[str, str]]) -> bytes:
    return encode_header(", ".join(f"<{target}>; {parameters}" for target, parameters in links))
