"""Paths, links, problems and representations of the Agent Framework endpoints.

Ids are taken from the undecoded path, so that an escaped slash survives (AF-72).
"""

from __future__ import annotations

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
from waypost.server.http.content_coding import compress_response, not_modified_response
from waypost.server.http.content_negotiation import MediaType, choose_media_type
from waypost.server.http.problems import problem_headers, problem_instance, problem_json

# --- Paths ----------------------------------------------------------------------------------------

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
_PATH_CHARS = "/:@!$&'()*+,;=~"  # may occur unescaped in a path


class AfRoute(NamedTuple):
    """The target of a path. `segment` is its last part, still escaped: an id or a problem code."""

    page: AfPageKind
    canonical: str  # the escaped path without root path, under the canonical prefix
    is_alias: bool = False
    is_legacy: bool = False
    has_slash: bool = False  # a trailing slash, which is redirected away
    segment: bytes = b""


def local_path(scope: Scope) -> str:
    """The path below the root path. Some servers include `root_path` in `path`, others do not; both are handled."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path


def find_route(scope: Scope, *, alias: bool = True, legacy: bool = False, cards: bool = True) -> AfRoute | None:
    """The route of a request; None if the path is not one of these endpoints."""
    path = local_path(scope)
    if path.startswith(PREFIX) and _ends_segment(path, PREFIX):
        return _parse_path(_raw_rest(scope, path, PREFIX))
    if alias and path.startswith(ALIAS) and _ends_segment(path, ALIAS):
        return _parse_path(_raw_rest(scope, path, ALIAS))._replace(is_alias=True)
    if legacy and path.startswith(LEGACY) and _ends_segment(path, LEGACY):
        return _find_legacy(_raw_rest(scope, path, LEGACY))
    bare = path.rstrip("/")
    if cards and bare in (CARD, LEGACY_CARD):
        return AfRoute("card", bare, is_legacy=bare == LEGACY_CARD, has_slash=bare != path)
    return None


def with_root_path(scope: Scope, path: str) -> str:
    """A path as a link target, below the root path."""
    root: str = scope.get("root_path", "")
    return quote(root.rstrip("/"), safe=_PATH_CHARS) + path if root else path


def item_path(published_id: str) -> str:
    return f"{BASE}/agents/{quote(published_id, safe='~')}"


def _ends_segment(path: str, prefix: str) -> bool:
    return len(path) == len(prefix) or path[len(prefix)] == "/"


def _raw_rest(scope: Scope, path: str, prefix: str) -> bytes:
    """The escaped path after a prefix. If the server gives no raw path, the decoded one is used and only slugs work."""
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        root = quote(scope.get("root_path", "").rstrip("/"), safe=_PATH_CHARS).encode()
        raw = raw.partition(b"?")[0].removeprefix(root)
        at = raw.find(prefix.encode())
        if at >= 0:
            return raw[at + len(prefix) :]
    return quote(path[len(prefix) :], safe=_PATH_CHARS).encode()


def _parse_path(rest: bytes) -> AfRoute:
    """The route of what follows the prefix: "", "/v1", "/v1/agents", "/v1/agents/{segment}" …"""
    bare = rest.rstrip(b"/")
    has_slash = bare != rest
    canonical = PREFIX + bare.decode("latin-1")
    parts = bare.split(b"/")[1:]
    match [unquote_to_bytes(part) for part in parts]:
        case []:
            return AfRoute("versions", canonical, has_slash=has_slash)
        case [b"v1"]:
            return AfRoute("version", canonical, has_slash=has_slash)
        case [b"v1", b"agents"]:
            return AfRoute("list", canonical, has_slash=has_slash)
        case [b"v1", b"agents", _] if parts[2]:
            return AfRoute("item", canonical, has_slash=has_slash, segment=parts[2])
        case [b"v1", b"schema.json"]:
            return AfRoute("schema", canonical, has_slash=has_slash)
        case [b"v1", b"problems", _] if parts[2]:
            return AfRoute("problem", canonical, has_slash=has_slash, segment=parts[2])
        case [version, *_] if version != b"v1" and _VERSION_SEGMENT.match(version):
            return AfRoute("unknown_version", canonical)
        case _:
            return AfRoute("unknown", canonical)


def _find_legacy(rest: bytes) -> AfRoute | None:
    bare = rest.rstrip(b"/")
    if bare.count(b"/") > 1:
        return None
    page: AfPageKind = "item" if bare else "list"
    return AfRoute(page, f"{BASE}/agents{bare.decode('latin-1')}", is_legacy=True, segment=bare[1:])


# --- Links ----------------------------------------------------------------------------------------

_QUERY_CHARS = "%=&+~!$'()*,;:@/?-._"


def describedby_link(scope: Scope) -> tuple[str, str]:
    return with_root_path(scope, f"{BASE}/schema.json"), 'rel="describedby"; type="application/schema+json"'


def page_links(scope: Scope, query_string: bytes, page: int, per_page: int, total: int) -> list[tuple[str, str]]:
    """RFC 8288 links to the first, previous, next and last page. All other parameters are preserved."""
    others = [part for part in query_string.split(b"&") if part and _param_name(part) not in (b"page", b"per_page")]
    prefix = "".join(escape_query(part) + "&" for part in others)
    last = max(1, -(-total // per_page))
    targets = {"first": 1, "prev": min(page - 1, last), "next": page + 1, "last": last}
    if page <= 1:
        del targets["prev"]
    if page >= last:
        del targets["next"]
    path = with_root_path(scope, f"{BASE}/agents")
    return [(f"{path}?{prefix}page={number}&per_page={per_page}", f'rel="{rel}"') for rel, number in targets.items()]


def escape_query(query_string: bytes) -> str:
    """A query string as it was sent, except that characters which would end a link are escaped."""
    return quote(query_string, safe=_QUERY_CHARS)


def redirect(scope: Scope, path: str, query_string: bytes) -> Response:
    """308 to another path of these endpoints. The query string is preserved byte for byte."""
    target = with_root_path(scope, quote(path, safe="/%:@!$&'()*+,;=~"))
    if query_string:
        target += "?" + query_string.decode("latin-1")
    headers: Headers = [(b"location", encode_header(target)), (b"cache-control", b"max-age=86400")]
    return Response(308, headers=headers)


def _param_name(part: bytes) -> bytes:
    return unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" "))


# --- Problems (RFC 9457) --------------------------------------------------------------------------

ALLOWED = ("GET", "HEAD", "OPTIONS")
ALLOW = ", ".join(ALLOWED).encode()

PROBLEM_PAGES: dict[str, str] = {
    "invalid_request": "A parameter, the path, the method or the Accept header is invalid. The member invalid_params names\n"
    "each invalid parameter with the reason. Correct them and repeat the request.",
    "unauthorized": "The request has no credential, or an invalid one. The WWW-Authenticate header names what to send.",
    "forbidden": "The credential is valid, but grants no right to discovery here. Ask the operator for it.",
    "not_found": "There is no such page, or no agent with this id that you may see. The list of agents has the ids.",
    "conflict": "The write conflicts with the stored record: another owner has the id, its version is not the one that\n"
    "If-Match names, or the idempotency key was used before. Read the agent again, then decide.",
    "stale_metadata": "The document is older than the stored one, or the requested version is no longer stored.\n"
    "Read the agent again.",
    "unsupported_filter": "A required filter cannot be applied here. Leave it out, or filter the results yourself.",
    "rate_limited": "Too many requests in a short time. Wait as long as the Retry-After header says.",
    "unavailable": "The directory cannot be read at the moment. Wait as long as the Retry-After header says.",
    "internal": "An internal error of this service. Its operator finds it in the log by the correlation_id.",
}


def problem_page(code: str) -> bytes | None:
    """The text behind a problem type; None for a code without one."""
    text = PROBLEM_PAGES.get(code)
    return None if text is None else f"{code}\n\n{text}\n".encode()


def correlation_id(request: Request) -> str:
    """The caller's X-Request-Id if it is short printable ASCII, else a new id."""
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
    """The problem of an error. `origin` makes the type absolute; it comes from configuration, never from the request."""
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


# --- Representations ------------------------------------------------------------------------------

OFFERS = (MediaType("application", "json"), MediaType("application", "agent-metadata+json", (("version", "1"),)))
AVAILABLE = [str(offer) for offer in OFFERS]

_MEDIA_TYPES = {offer: str(offer).encode() for offer in OFFERS}
_PUBLIC = b"public, max-age=60, stale-while-revalidate=300"
_PRIVATE = b"private, no-cache"
_VARY = b"Accept, Authorization"
_EXPOSED = b"ETag, Link, X-Total-Count, AF-Generation, Content-Location, Last-Modified"


class AfRepresentation(NamedTuple):
    body: bytes
    media_type: bytes
    last_modified: float | None = None
    links: Sequence[tuple[str, str]] = ()  # (target, parameters)
    content_location: str | None = None
    headers: Sequence[tuple[bytes, bytes]] = ()


class CorsPolicy(NamedTuple):
    """AF-10: which origins may read what their user may see."""

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
    """The media type of the response (AF-30)."""
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
    request: Request, principal: Principal, representation: AfRepresentation, *, now: float
) -> Response:
    """200 with the representation, or 304 if the caller has it already."""
    body, media_type, last_modified = representation.body, representation.media_type, representation.last_modified
    etag = strong_etag(body, media_type)
    if last_modified is not None and last_modified > now:
        last_modified = None
    headers: Headers = [
        (b"etag", etag.encode()),
        (b"cache-control", _PUBLIC if principal.is_anonymous else _PRIVATE),
        (b"vary", _VARY),
    ]
    if last_modified is not None:
        headers.append((b"last-modified", format_http_date(last_modified)))
    if representation.content_location is not None:
        headers.append((b"content-location", encode_header(representation.content_location)))
    if is_not_modified(request, etag, last_modified, now=now):
        return not_modified_response(request, headers, body, media_type)
    if representation.links:
        links = ", ".join(f"<{target}>; {parameters}" for target, parameters in representation.links)
        headers.append((b"link", encode_header(links)))
    headers.extend(representation.headers)
    response = Response(200, body, content_type=media_type, headers=headers)
    await compress_response(request, response)
    return response
