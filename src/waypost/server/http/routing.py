"""Routes: path, method, operation, handler and OpenAPI description.

Matching works on the raw path, so that an id with an encoded slash stays one segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from waypost.errors import MethodNotAllowed, NotFound
from waypost.model.principal import Principal
from waypost.registry.operations import OPERATIONS
from waypost.server.http.asgi import AnyResponse, Request, decode_segment


class RequestContext(msgspec.Struct):
    """What a handler gets: the request, who sent it, and the placeholders of its path."""

    request: Request
    principal: Principal
    request_id: str
    id: str = ""  # the decoded `{id}` of the path, or its first placeholder
    values: tuple[str, ...] = ()  # all placeholders of the path, decoded


Handler: TypeAlias = Callable[[RequestContext], Awaitable[AnyResponse]]


class ParameterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a route, for the OpenAPI description. The handler reads and checks it."""

    name: str
    place: str = "query"  # `in` of OpenAPI
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
    """A method and a path of an operation, with all that the OpenAPI description says about it."""

    method: str
    path: str  # `{id}` is one segment; a suffix may follow, as in `{id}:renew`. Other placeholders are whole segments
    operation: str
    handler: Handler | None = None  # None: a mounted API serves the path; the route only describes it
    summary: str = ""
    parameters: tuple[ParameterSpec, ...] = ()
    body: BodySpec | None = None
    answers: Mapping[int, type[msgspec.Struct] | BodySpec] = msgspec.field(default_factory=dict)
    open: bool = False  # needs no credential and shows public data only
    described: bool = True  # in the OpenAPI description
    scope: str | None = None  # instead of the operation's
    signed: bool = False  # also accepts requests signed by an agent (P-5); the handler verifies the signature

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ValueError(
                f"{self.method} {self.path}: there is no operation {self.operation!r}. Add it to registry/operations.py."
            )


class RouteMatch(NamedTuple):
    route: Route
    values: tuple[str, ...] = ()  # the placeholders, decoded

    @property
    def id(self) -> str:
        return self.values[0] if self.values else ""


class Router:
    """Matches static paths by equality, paths that end in `{id}` by prefix and suffix, and paths with placeholders before
    the end segment by segment."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self.methods = (*sorted({"GET", "HEAD", *(route.method for route in routes)}), "OPTIONS")  # of any path
        self._static: dict[bytes, dict[str, Route]] = {}
        self._prefixed: dict[bytes, dict[bytes, dict[str, Route]]] = {}  # by prefix, then suffix
        self._nested: dict[tuple[bytes, int], dict[str, list[Route]]] = {}  # by first segment and number of segments
        for route in sorted(routes, key=lambda route: -len(route.path)):  # the longest suffix first
            if route.handler is None:
                continue
            prefix, has_id, suffix = route.path.encode().partition(b"{id}")
            if route.path.count("{") > (1 if has_id else 0) or b"/" in suffix:
                segments = route.path.encode().split(b"/")
                self._nested.setdefault((segments[1], len(segments)), {}).setdefault(route.path, []).append(route)
                continue
            methods = self._prefixed.setdefault(prefix, {}) if has_id else self._static
            methods.setdefault(suffix if has_id else prefix, {})[route.method] = route

    def match(self, method: str, raw_path: bytes) -> RouteMatch:
        """The route and the values of its placeholders. Raises NotFound, or MethodNotAllowed with the methods of the
        path."""
        methods = self._static.get(raw_path)
        if methods is not None:
            return RouteMatch(_choose(methods, method))
        start = raw_path.rfind(b"/") + 1
        segment = raw_path[start:]
        not_allowed: MethodNotAllowed | None = None
        for suffix, methods in self._prefixed.get(raw_path[:start], {}).items():
            if segment.endswith(suffix) and len(segment) > len(suffix):
                try:
                    route = _choose(methods, method)
                except MethodNotAllowed as error:
                    not_allowed = not_allowed or error  # the suffix may also be the end of an id
                    continue
                return RouteMatch(route, (decode_segment(segment[: len(segment) - len(suffix)]),))
        if not_allowed is not None:
            raise not_allowed
        return self._match_nested(method, raw_path)

    def _match_nested(self, method: str, raw_path: bytes) -> RouteMatch:
        segments = raw_path.split(b"/")
        if len(segments) > 1:
            for path, routes in self._nested.get((segments[1], len(segments)), {}).items():
                pairs = list(zip(path.encode().split(b"/"), segments, strict=True))
                if all(part == wanted or (wanted[:1] == b"{" and part) for wanted, part in pairs):
                    route = _choose({route.method: route for route in routes}, method)
                    values = tuple(decode_segment(part) for wanted, part in pairs if wanted[:1] == b"{")
                    return RouteMatch(route, values)
        raise NotFound(
            "Nothing is served at this path.", path="path", hint="The API reference at /docs lists the paths."
        )

    def allowed(self, raw_path: bytes) -> list[str]:
        """The methods of a path, for OPTIONS."""
        try:
            self.match("", raw_path)
        except MethodNotAllowed as error:
            return list(error.details["allow"])
        raise NotFound(
            "Nothing is served at this path.", path="path", hint="The API reference at /docs lists the paths."
        )


def _choose(methods: dict[str, Route], method: str) -> Route:
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
