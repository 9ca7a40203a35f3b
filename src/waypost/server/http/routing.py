"""Routes: a path, a method, the operation behind it, and what the API description says of it.

Matching works on the raw path, so that an id with an encoded slash stays one segment, and costs two dictionary look-ups.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from waypost.errors import MethodNotAllowed, NotFound
from waypost.model.principal import Principal
from waypost.server.http.asgi import AnyResponse, Request, decode_segment


class RequestContext(msgspec.Struct):
    """A request with its caller."""

    request: Request
    principal: Principal
    request_id: str
    id: str = ""  # the decoded `{id}` of the path


Handler: TypeAlias = Callable[[RequestContext], Awaitable[AnyResponse]]


class ParameterSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    place: str = "query"
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})
    description: str = ""
    required: bool = False


class BodySpec(msgspec.Struct, frozen=True, kw_only=True):
    """A request or response body. `type` is a response type, from which the schema is generated."""

    schema: dict[str, Any] | None = None
    type: type[msgspec.Struct] | None = None
    content_type: str = "application/json"
    also: tuple[str, ...] = ()  # further content types
    text: str | None = None  # a content type with text instead of JSON
    description: str = ""
    required: bool = True


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str  # `{id}` stands for one segment; what follows it is a suffix
    operation: str
    handler: Handler | None = None  # None: a face answers this path itself, the route only describes it
    summary: str = ""
    parameters: tuple[ParameterSpec, ...] = ()
    body: BodySpec | None = None
    answers: Mapping[int, type[msgspec.Struct] | BodySpec] = msgspec.field(default_factory=dict)
    open: bool = False  # answered to anyone, with public data only
    described: bool = True  # part of the API description
    scope: str | None = None  # instead of the operation's
    signed: bool = False  # also for an agent that signs its requests (P-5); the handler looks who that is


class Router:
    """Static paths by equality, one-segment paths by prefix and suffix."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._static: dict[bytes, dict[str, Route]] = {}
        self._prefixed: dict[bytes, list[tuple[bytes, dict[str, Route]]]] = {}
        for route in routes:
            if route.handler is not None:
                self._add(route)
        self._plain = dict(self._without_suffix())

    def _without_suffix(self) -> Iterator[tuple[bytes, dict[str, Route]]]:
        """Where every suffix begins with a colon: an id that holds none is all of its segment."""
        for prefix, held in self._prefixed.items():
            suffixes = dict(held)
            if b"" in suffixes and all(suffix.startswith(b":") for suffix in suffixes if suffix):
                yield prefix, suffixes[b""]

    def _add(self, route: Route) -> None:
        if "{id}" not in route.path:
            self._static.setdefault(route.path.encode(), {})[route.method] = route
            return
        prefix, suffix = route.path.encode().split(b"{id}")
        held = self._prefixed.setdefault(prefix, [])
        for known, methods in held:
            if known == suffix:
                methods[route.method] = route
                return
        held.append((suffix, {route.method: route}))
        held.sort(key=lambda item: -len(item[0]))  # the longest suffix first

    def match(self, method: str, raw_path: bytes) -> tuple[Route, str]:
        """The route and the decoded id. NotFound and MethodNotAllowed say what is there."""
        methods = self._static.get(raw_path)
        if methods is not None:
            return self._pick(methods, method), ""
        cut = raw_path.rfind(b"/") + 1
        segment = raw_path[cut:]
        plain = self._plain.get(raw_path[:cut])
        if plain is not None and segment and b":" not in segment:
            return self._pick(plain, method), decode_segment(segment)
        refused: MethodNotAllowed | None = None
        for suffix, candidates in self._prefixed.get(raw_path[:cut], ()):
            if segment and segment.endswith(suffix) and len(segment) > len(suffix):
                try:
                    route = self._pick(candidates, method)
                except MethodNotAllowed as error:
                    refused = refused or error  # what looks like a suffix may be the end of an id
                    continue
                return route, decode_segment(segment[: len(segment) - len(suffix)])
        if refused is not None:
            raise refused
        raise NotFound("Nothing is served at this path.", path="path", hint="See /docs for what is.")

    def allowed(self, raw_path: bytes) -> list[str]:
        """The methods of a path, for OPTIONS. NotFound when nothing is there."""
        try:
            self.match("", raw_path)
        except MethodNotAllowed as error:
            return list(error.details["allow"])
        raise NotFound("Nothing is served at this path.", path="path", hint="See /docs for what is.")

    @staticmethod
    def _pick(methods: dict[str, Route], method: str) -> Route:
        route = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if route is None:
            allow = [*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]
            raise MethodNotAllowed(
                f"{method[:16]} is not allowed here.",
                path="method",
                hint=f"Use {', '.join(allow)}.",
                details={"allow": allow},
            )
        return route
