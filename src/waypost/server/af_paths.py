"""The addresses of the AF surface: which of its pages a path names, and how its links are written.

It knows prefixes and segments, not agents. Ids are taken from the undecoded path, so that an escaped slash survives (AF-72).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from waypost.server.asgi import Scope

PREFIX = "/.well-known/agentframework"
ALIAS = "/.agent-framework"
VERSION = "v1"
BASE = f"{PREFIX}/{VERSION}"
LEGACY = "/v1/agents"
CARD = "/.well-known/agent-card"
LEGACY_CARD = "/v1/card"
A2A_CARD = "/.well-known/agent-card.json"

Page = Literal["versions", "version", "list", "item", "schema", "problem", "unknown_version", "unknown", "card"]

_VERSION_SEGMENT = re.compile(rb"v\d+\Z")
_PATH = "/:@!$&'()*+,;=~"  # what a path may hold unescaped


class Route(NamedTuple):
    """What a path names. `segment` is the escaped last part: an id or a problem code."""

    page: Page
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


def find_route(scope: Scope, *, alias: bool = True, legacy: bool = False, cards: bool = True) -> Route | None:
    """The page of the AF surface that a request names, or None when the path belongs to somebody else."""
    path = local_path(scope)
    if path.startswith(PREFIX) and _ends_segment(path, PREFIX):
        return _page(_raw_rest(scope, path, PREFIX))
    if alias and path.startswith(ALIAS) and _ends_segment(path, ALIAS):
        return _page(_raw_rest(scope, path, ALIAS))._replace(alias=True)
    if legacy and path.startswith(LEGACY) and _ends_segment(path, LEGACY):
        return _legacy(_raw_rest(scope, path, LEGACY))
    if cards and path.rstrip("/") in (CARD, LEGACY_CARD):
        bare = path.rstrip("/")
        return Route("card", bare, legacy=bare == LEGACY_CARD, slash=bare != path)
    return None


def rooted(scope: Scope, path: str) -> str:
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


def _page(rest: bytes) -> Route:
    """`rest` is what follows the canonical prefix: "", "/v1", "/v1/agents", "/v1/agents/{segment}" …"""
    bare = rest.rstrip(b"/")
    slash = bare != rest
    canonical = PREFIX + bare.decode("latin-1")
    parts = bare.split(b"/")[1:]
    match [unquote_to_bytes(part) for part in parts]:
        case []:
            return Route("versions", canonical, slash=slash)
        case [b"v1"]:
            return Route("version", canonical, slash=slash)
        case [b"v1", b"agents"]:
            return Route("list", canonical, slash=slash)
        case [b"v1", b"agents", _] if parts[2]:
            return Route("item", canonical, slash=slash, segment=parts[2])
        case [b"v1", b"schema.json"]:
            return Route("schema", canonical, slash=slash)
        case [b"v1", b"problems", _] if parts[2]:
            return Route("problem", canonical, slash=slash, segment=parts[2])
        case [version, *_] if version != b"v1" and _VERSION_SEGMENT.match(version):
            return Route("unknown_version", canonical)
        case _:
            return Route("unknown", canonical)


def _legacy(rest: bytes) -> Route | None:
    bare = rest.rstrip(b"/")
    if bare.count(b"/") > 1:
        return None
    page: Page = "item" if bare else "list"
    return Route(page, f"{BASE}/agents{bare.decode('latin-1')}", legacy=True, segment=bare[1:])
