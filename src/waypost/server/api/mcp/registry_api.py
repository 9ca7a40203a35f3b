"""The MCP registry API, read-only: the public MCP servers of this registry under `/v0.1` and `/v0` (neighbours.md §2).

An MCP server is an agent with an `mcp` or `mcp-package` binding, or one that was registered by a server.json. Each is listed
once, at its current version; earlier versions are those of its history. Servers that were withdrawn have the status `deleted`.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice, takewhile
from typing import Any, Final, NamedTuple

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter, NotFound, WaypostError, error_codes
from waypost.model.json import JsonObject, dump_json
from waypost.model.principal import ANONYMOUS, PUBLIC, Principal
from waypost.model.record import STATUSES, record_from_json
from waypost.model.registration import CatalogEntry, Registration
from waypost.model.times import find_instant
from waypost.protocols.codec import EncodeContext
from waypost.protocols.dialects import get_codec
from waypost.protocols.mcp.codec import server_name
from waypost.protocols.mcp.legacy import OFFICIAL
from waypost.protocols.mcp.registry_entry import DELETED, LATEST, find_published_at, make_entry, registry_status
from waypost.registry.registry import Registry
from waypost.server.api.mcp.deleted_servers import DeletedServer, DeletedServers
from waypost.server.http.asgi import PROBLEM, AnyResponse, Request, Response
from waypost.server.http.problems import problem_headers, problem_instance, problem_json
from waypost.server.http.request_params import AnswerBudget, limit_parameter, read_limit
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route, Router
from waypost.server.renderer import Renderer, list_response, parse_rendered

_DIALECT: Final = "mcp"
_PROTOCOLS: Final = ("mcp", "mcp-package")
_VERSIONS: Final = ("v0.1", "v0")
_AUDIENCE: Final = frozenset((PUBLIC,))
_PAGE_DEFAULT, _PAGE_MAX = 30, 100
_LIST_PURPOSE: Final = "mcp servers"  # of cursors
_ALL: Final = 2**31
_ENTRY_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "required": ["server", "_meta"],
    "properties": {"server": {"type": "object"}, "_meta": {"type": "object"}},
}
_LIST_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "required": ["servers", "metadata"],
    "properties": {
        "servers": {"type": "array", "items": _ENTRY_SCHEMA},
        "metadata": {
            "type": "object",
            "required": ["count"],
            "properties": {"nextCursor": {"type": "string"}, "count": {"type": "integer"}},
        },
    },
}
_INCLUDE_DELETED: Final = ParameterSpec(
    name="include_deleted",
    schema={"type": "boolean"},
    description="also servers with the status deleted; the default is true together with updated_since",
)
_LIST_PARAMETERS: Final = (
    ParameterSpec(name="search", description="a part of the name or title, in any case"),
    ParameterSpec(
        name="updated_since", schema={"type": "string", "format": "date-time"}, description="changed then or later"
    ),
    ParameterSpec(name="version", description="`latest`, or an exact version"),
    _INCLUDE_DELETED,
    limit_parameter(_PAGE_MAX),
    ParameterSpec(name="cursor", description="`metadata.nextCursor` of the page before"),
)


class ServerIndex:
    """The public MCP servers by their names. It is made again after a change, at intervals if that takes long."""

    def __init__(self, registry: Registry, host: str) -> None:
        self._registry = registry
        self._host = host
        self._generation: int | None = None
        self._rebuild_at = 0.0
        self._names: list[str] = []
        self._ids: dict[str, str] = {}

    def find(self, name: str) -> CatalogEntry | None:
        """The entry of a public server. A name that is an id is found before the index knows it."""
        for entry in self._registry.entries.candidates(name):
            if entry.visibility == PUBLIC and _is_server(entry) and self.name_of(entry.id) == name:
                return entry
        self._refresh()
        return self.get_public(name)

    def name_of(self, agent_id: str) -> str:
        return server_name(agent_id, self._host)

    def names_after(self, name: str | None) -> Sequence[str]:
        self._refresh()
        return self._names if name is None else self._names[bisect_right(self._names, name) :]

    def get_public(self, name: str) -> CatalogEntry | None:
        """The entry of a name of the index, unless it was removed or hidden meanwhile."""
        agent_id = self._ids.get(name)
        entry = None if agent_id is None else self._registry.entries.find(agent_id)
        return entry if entry is not None and entry.visibility == PUBLIC and _is_server(entry) else None

    def _refresh(self) -> None:
        generation, now = self._registry.entries.generation(_AUDIENCE), time.monotonic()
        if generation == self._generation or now < self._rebuild_at:
            return
        found: dict[str, str] = {}
        for selection in ({"protocols": _PROTOCOLS}, {"tags": (_DIALECT,)}):
            listed = self._registry.page(ANONYMOUS, limit=_ALL, statuses=STATUSES, **selection)
            for entry in listed.entries:
                if _is_server(entry):
                    found.setdefault(self.name_of(entry.id), entry.id)
        self._ids, self._names, self._generation = found, sorted(found), generation
        taken = time.monotonic() - now
        self._rebuild_at = now + (taken * limits.SERVER_INDEX_SHARE if taken > limits.SERVER_INDEX_SECONDS else 0.0)


def _is_server(entry: CatalogEntry) -> bool:
    """Whether an agent is an MCP server. One without an endpoint has the tag of its dialect and an id of its form."""
    if any(protocol in _PROTOCOLS for protocol in entry.protocols):
        return True
    return not entry.protocols and _DIALECT in entry.tags and server_name(entry.id, "") in (entry.id, *entry.aliases)


class _ListFilter(NamedTuple):
    wanted: str  # case-folded
    since: float | None
    shows_deleted: bool

    def matches(self, name: str, title: str, changed_at: float, status: str) -> bool:
        if self.wanted and self.wanted not in name.casefold() and self.wanted not in title.casefold():
            return False
        is_new = self.since is None or changed_at >= self.since
        return is_new and (self.shows_deleted or status != DELETED)


class McpRegistryApi:
    """Open to everybody, and shows public servers only, whatever credential a request has."""

    name = "mcp_registry"
    first_segments: tuple[bytes, ...] = tuple(version.encode() for version in _VERSIONS)

    def __init__(self, registry: Registry, renderer: Renderer) -> None:
        self._registry = registry
        self._renderer = renderer
        self._index = ServerIndex(registry, renderer.host)
        self._deleted = DeletedServers(registry, renderer.host)
        handlers = {"servers": self.list_servers, "versions": self.list_versions, "{version}": self.get_version}
        self._router = Router(
            [
                msgspec.structs.replace(route, handler=handlers[route.path.rpartition("/")[2]])
                for route in MCP_REGISTRY_ROUTES
            ]
        )

    def claims(self, raw_path: bytes) -> bool:
        return raw_path.split(b"/", 3)[2:3] == [b"servers"]

    def is_public(self, request: Request) -> bool:
        return True

    def required_scope(self, request: Request) -> str | None:
        return None

    async def handle(self, request: Request, principal: Principal, request_id: str) -> AnyResponse:
        if request.method == "OPTIONS":
            allowed = ", ".join(self._router.allowed(request.raw_path))
            return Response(204, headers=[(b"allow", allowed.encode())])
        found = self._router.match(request.method, request.raw_path)
        handler = found.route.handler
        if handler is None:
            raise NotFound("Nothing is served at this path.", path="path")
        return await handler(RequestContext(request, ANONYMOUS, request_id, found.id, found.values))

    def error_response(self, request: Request, error: WaypostError, request_id: str) -> AnyResponse:
        """A problem document with the message as `error`, as clients of this API expect it."""
        problem = problem_json(error, instance=problem_instance(request), correlation_id=request_id)
        body = dump_json({**problem, "error": error.message})
        return Response(error_codes(error).http, body, content_type=PROBLEM, headers=problem_headers(error))

    # --- Lists -----------------------------------------------------------------------------------

    async def list_servers(self, call: RequestContext) -> AnyResponse:
        request = call.request
        limit = read_limit(request, default=_PAGE_DEFAULT, most=_PAGE_MAX)
        version = request.param("version")
        matching = await self._matching(request)
        found: list[JsonObject] = []
        while len(found) <= limit and (part := list(islice(matching, limit + 1))):
            entries = await self._entries(part)
            found += [each for each in entries if version in (None, LATEST, each["server"]["version"])]
        return self._list_response(request, found, limit)

    async def _entries(self, part: Sequence[CatalogEntry | DeletedServer]) -> list[JsonObject]:
        ids = [each.id for each in part if not isinstance(each, DeletedServer)]
        registrations = await self._registry.registrations(ids)
        public = {each.id: each for each in registrations if each.visibility == PUBLIC}
        return [
            each.entry() if isinstance(each, DeletedServer) else self._entry(public[each.id])
            for each in part
            if isinstance(each, DeletedServer) or each.id in public
        ]

    async def _matching(self, request: Request) -> Iterator[CatalogEntry | DeletedServer]:
        """The entries after the cursor that the filters let through, in the order of their names."""
        since = _read_time(request, "updated_since")
        filters = _ListFilter(
            wanted=(request.param("search") or "").casefold(),
            since=since,
            shows_deleted=_read_flag(request, "include_deleted", default=since is not None),
        )
        cursor = request.param("cursor")
        last = self._registry.cursors.open(_LIST_PURPOSE, cursor).decode() if cursor else None
        deleted = await self._deleted.names_after(last) if filters.shows_deleted else ()
        return self._select(merge(self._index.names_after(last), deleted), filters)

    def _select(self, names: Iterable[str], filters: _ListFilter) -> Iterator[CatalogEntry | DeletedServer]:
        for name, _ in groupby(names):
            entry = self._index.get_public(name)
            gone = self._deleted.find(name) if entry is None else None
            if entry is not None:
                if filters.matches(name, entry.name, entry.changed_at, registry_status(entry.status)):
                    yield entry
            elif gone is not None and filters.matches(name, name, gone.at, DELETED):
                yield gone

    def _list_response(self, request: Request, entries: Sequence[JsonObject], limit: int) -> Response:
        budget = AnswerBudget()
        shown = list(takewhile(lambda entry: budget.take(len(dump_json(entry))), entries[:limit]))
        metadata: dict[str, Any] = {"count": len(shown)}
        if len(shown) < len(entries):
            name: str = shown[-1]["server"]["name"]
            metadata["nextCursor"] = self._registry.cursors.seal(_LIST_PURPOSE, name.encode())
        body = dump_json({"servers": shown, "metadata": metadata})
        return list_response(request, body, self._registry.entries.last_modified(_AUDIENCE))

    # --- One server ------------------------------------------------------------------------------

    async def list_versions(self, call: RequestContext) -> AnyResponse:
        versions = await self._versions(call.id)
        return self._list_response(call.request, versions, len(versions))

    async def get_version(self, call: RequestContext) -> AnyResponse:
        name, version = call.values
        versions = await self._versions(name)
        for entry in versions:
            if version == LATEST or entry["server"]["version"] == version:
                return list_response(
                    call.request, dump_json(entry), find_instant(entry["_meta"][OFFICIAL]["updatedAt"])
                )
        raise NotFound(
            f"{name!r} has no version {version[:64]!r} here.",
            path="version",
            hint=f"Known: {', '.join(entry['server']['version'] for entry in versions[:5])}.",
        )

    async def _versions(self, name: str) -> list[JsonObject]:
        """The current version, then earlier ones that the history has, newest first."""
        found = self._index.find(name)
        registrations = await self._registry.registrations((found.id,)) if found is not None else []
        if not registrations or registrations[0].visibility != PUBLIC:
            raise NotFound(f"There is no server {name[:200]!r}.", path="name", hint="List the servers, or search.")
        current = registrations[0]
        entries = {str((entry := self._entry(current))["server"]["version"]): entry}
        history = await self._registry.history(ANONYMOUS, current.id, limits.HISTORY_VERSIONS)
        for line in history.lines[1:]:
            record = record_from_json(msgspec.json.decode(line.version.record))
            server = get_codec(_DIALECT).encode(record, self._context(current, line.version.at)).document
            status = registry_status(record.effective_status)
            entries.setdefault(
                server["version"],
                make_entry(
                    server,
                    status=status,
                    published_at=line.version.at,
                    updated_at=line.version.at,
                    is_latest=False,
                ),
            )
        return list(entries.values())

    def _entry(self, registration: Registration) -> JsonObject:
        now = self._registry.clock.now()
        server = parse_rendered(self._renderer.render_form(registration, _DIALECT, "current", now).body)
        source = registration.source(_DIALECT)
        published = None if source is None else find_published_at(parse_rendered(source.document))
        return make_entry(
            server,
            status=registry_status(registration.record.effective_status),
            published_at=registration.created_at if published is None else published,
            updated_at=registration.changed_at,
            is_latest=True,
        )

    def _context(self, registration: Registration, at: float) -> EncodeContext:
        return msgspec.structs.replace(self._renderer.context(registration, at), updated_at=at)


def _read_time(request: Request, name: str) -> float | None:
    text = request.param(name)
    if text is None:
        return None
    instant = find_instant(text)
    if instant is None:
        raise InvalidParameter(f"{name} must be a time.", path=name, hint="Write it like 2026-05-08T00:00:00Z.")
    return instant


def _read_flag(request: Request, name: str, *, default: bool) -> bool:
    text = request.param(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise InvalidParameter(f"{name} must be true or false.", path=name)
    return text == "true"


def _describe(version: str) -> list[Route]:
    name = ParameterSpec(
        name="name", place="path", required=True, description="percent-encoded, as in com.example%2Ftool"
    )
    return [
        Route(
            method="GET",
            path=f"/{version}/servers",
            operation="document",
            summary="MCP registry API: the public MCP servers",
            parameters=_LIST_PARAMETERS,
            answers={200: BodySpec(schema=_LIST_SCHEMA)},
            open=True,
        ),
        Route(
            method="GET",
            path=f"/{version}/servers/{{name}}/versions",
            operation="document",
            summary="MCP registry API: the versions of a server",
            parameters=(name,),
            answers={200: BodySpec(schema=_LIST_SCHEMA)},
            open=True,
        ),
        Route(
            method="GET",
            path=f"/{version}/servers/{{name}}/versions/{{version}}",
            operation="document",
            summary="MCP registry API: one version of a server, or `latest`",
            parameters=(name,),
            answers={200: BodySpec(schema=_ENTRY_SCHEMA)},
            open=True,
        ),
    ]


MCP_REGISTRY_ROUTES: Final = [route for version in _VERSIONS for route in _describe(version)]
