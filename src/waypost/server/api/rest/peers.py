"""Peers, for admins (`/api/v1/peers`), and the change feed that peers read (`/api/v1/feed`)."""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.errors import InvalidParameter, Unavailable
from waypost.federation.peers import PeerRequest
from waypost.federation.service import PeerService
from waypost.model.json import JsonObject
from waypost.model.principal import VISIBILITIES
from waypost.responses.federation import PEER_KINDS, PeerList, PeerView
from waypost.server.http.asgi import NO_STORE, AnyResponse, Response, json_response
from waypost.server.http.request_params import limit_parameter, read_limit, read_object
from waypost.server.http.routing import BodySpec, ParameterSpec, RequestContext, Route

_NDJSON = b"application/x-ndjson"
_TEXTS = ("url", "name", "kind", "visibility", "key", "token")
_SWITCHES = ("pull", "ask", "reexport", "dry_run")
_MEMBERS = (*_TEXTS, *_SWITCHES, "namespaces", "every_seconds", "max_records")
_BODY = BodySpec(
    schema={
        "type": "object",
        "required": ["url"],
        "additionalProperties": False,
        "properties": {
            "url": {"type": "string", "description": "base URL of the other registry"},
            "name": {"type": "string", "maxLength": 63},
            "kind": {"enum": list(PEER_KINDS)},
            "pull": {"type": "boolean", "default": True},
            "ask": {"type": "boolean", "default": False, "description": "pass searches on to it that want it"},
            "reexport": {"type": "boolean", "default": False, "description": "pass its agents on in the own feed"},
            "visibility": {"enum": list(VISIBILITIES), "default": "internal"},
            "namespaces": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "maxItems": limits.PEER_NAMESPACES,
                "description": "patterns of ids, with `*`; empty: all",
            },
            "max_records": {"type": "integer", "minimum": 1, "default": limits.PEER_RECORDS},
            "every_seconds": {"type": ["number", "null"], "minimum": 1},
            "key": {"type": "string", "description": "fingerprint of the key that the peer must have"},
            "token": {"type": "string", "description": "bearer token for the peer"},
            "dry_run": {"type": "boolean", "default": False, "description": "contact it, store nothing"},
        },
    }
)


class PeersApi:
    def __init__(self, peers: PeerService) -> None:
        self._peers = peers
        self._readers = 0

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/api/v1/feed",
                operation="feed",
                handler=self.feed,
                summary="Read public agents and their changes, as a peer does",
                parameters=(
                    ParameterSpec(name="from", description="`cursor` of the last bookmark; absent: all agents first"),
                    ParameterSpec(
                        name="wait",
                        schema={"type": "number", "minimum": 0, "maximum": limits.PEER_WAIT_MAX_SECONDS},
                        description="seconds to wait for a change",
                    ),
                    limit_parameter(limits.PEER_PAGE_MAX),
                ),
                answers={200: BodySpec(schema={"type": "string"}, content_type="application/x-ndjson")},
            ),
            Route(
                method="GET",
                path="/api/v1/peers",
                operation="peers_list",
                handler=self.list_peers,
                summary="List the peers and how far they are",
                answers={200: PeerList},
            ),
            Route(
                method="POST",
                path="/api/v1/peers",
                operation="peers_add",
                handler=self.add,
                summary="Follow another registry",
                body=_BODY,
                answers={201: PeerView, 200: PeerView},
            ),
            Route(
                method="GET",
                path="/api/v1/peers/{id}",
                operation="peers_show",
                handler=self.show,
                summary="Show one peer",
                answers={200: PeerView},
            ),
            Route(
                method="DELETE",
                path="/api/v1/peers/{id}",
                operation="peers_remove",
                handler=self.remove,
                summary="Stop following a peer and remove its agents",
                parameters=(
                    ParameterSpec(
                        name="keep", schema={"enum": ["true", "false"]}, description="true: keep the agents of the peer"
                    ),
                ),
                answers={204: BodySpec(description="removed")},
            ),
            *(
                Route(
                    method="POST",
                    path=f"/api/v1/peers/{{id}}:{verb}",
                    operation=f"peers_{verb}",
                    handler=handler,
                    summary=summary,
                    answers={200: PeerView},
                )
                for verb, handler, summary in (
                    ("sync", self.sync, "Pull from a peer now"),
                    ("pause", self.pause, "Stop pulling from a peer; its agents stay"),
                    ("resume", self.resume, "Pull from a paused peer again"),
                )
            ),
        ]

    async def feed(self, call: RequestContext) -> AnyResponse:
        request = call.request
        limit = read_limit(request, default=limits.PEER_PAGE, most=limits.PEER_PAGE_MAX)
        wait = _read_wait(request.param("wait"))
        if self._readers >= limits.FEED_READERS:
            raise Unavailable("Too many peers read the feed at the same time.", retry_after=5)
        self._readers += 1
        try:
            body = await self._peers.feed.page(request.param("from"), limit=limit, wait_seconds=wait)
        finally:
            self._readers -= 1
        return Response(200, body, content_type=_NDJSON, headers=[NO_STORE])

    async def list_peers(self, call: RequestContext) -> AnyResponse:
        return json_response(PeerList(peers=self._peers.list()), headers=[NO_STORE])

    async def add(self, call: RequestContext) -> AnyResponse:
        document = await read_object(call.request)
        request, is_dry_run = _read_request(document)
        view = await self._peers.add(call.principal, request, is_dry_run=is_dry_run)
        return json_response(view, 200 if is_dry_run else 201, headers=[NO_STORE])

    async def show(self, call: RequestContext) -> AnyResponse:
        return json_response(self._peers.show(call.id), headers=[NO_STORE])

    async def remove(self, call: RequestContext) -> AnyResponse:
        keep = call.request.param("keep", "false")
        if keep not in ("true", "false"):
            raise InvalidParameter("keep must be true or false.", path="keep")
        await self._peers.remove(call.principal, call.id, keep=keep == "true")
        return Response(204)

    async def sync(self, call: RequestContext) -> AnyResponse:
        return json_response(await self._peers.sync(call.id), headers=[NO_STORE])

    async def pause(self, call: RequestContext) -> AnyResponse:
        return json_response(await self._peers.pause(call.principal, call.id, is_paused=True), headers=[NO_STORE])

    async def resume(self, call: RequestContext) -> AnyResponse:
        return json_response(await self._peers.pause(call.principal, call.id, is_paused=False), headers=[NO_STORE])


def _read_wait(text: str | None) -> float:
    try:
        wait = limits.PEER_WAIT_SECONDS if text is None else float(text)
    except ValueError:
        wait = -1.0
    if not 0 <= wait <= limits.PEER_WAIT_MAX_SECONDS:
        raise InvalidParameter(
            f"wait must be a number of seconds from 0 to {limits.PEER_WAIT_MAX_SECONDS:g}.", path="wait"
        )
    return wait


def _read_request(document: JsonObject) -> tuple[PeerRequest, bool]:
    for name in document:
        if name not in _MEMBERS:
            raise InvalidParameter(
                f"A peer has no member {name[:40]!r}.", path=f"$.{name[:40]}", hint=f"Use {', '.join(_MEMBERS)}."
            )
    members: dict[str, Any] = {}
    for name in _TEXTS:
        value = document.get(name)
        if value is not None:
            if not isinstance(value, str) or not value.strip() or len(value) > limits.FETCH_URL_CHARS:
                raise InvalidParameter(f"{name} must be a text.", path=f"$.{name}")
            members[name] = value.strip()
    if "url" not in members:
        raise InvalidParameter("url is missing.", path="$.url", hint="Name the base URL of the other registry.")
    for name in _SWITCHES:
        value = document.get(name)
        if value is not None:
            if not isinstance(value, bool):
                raise InvalidParameter(f"{name} must be true or false.", path=f"$.{name}")
            members[name] = value
    namespaces = document.get("namespaces") or []
    if not isinstance(namespaces, list) or not all(isinstance(each, str) for each in namespaces):
        raise InvalidParameter("namespaces must be an array of patterns.", path="$.namespaces")
    members["namespaces"] = tuple(namespaces)
    every = document.get("every_seconds")
    if every is not None:
        if isinstance(every, bool) or not isinstance(every, int | float):
            raise InvalidParameter("every_seconds must be a number.", path="$.every_seconds")
        members["every_seconds"] = float(every)
    most = document.get("max_records")
    if most is not None:
        if isinstance(most, bool) or not isinstance(most, int):
            raise InvalidParameter("max_records must be an integer.", path="$.max_records")
        members["max_records"] = most
    is_dry_run = bool(members.pop("dry_run", False))
    return PeerRequest(**members), is_dry_run
