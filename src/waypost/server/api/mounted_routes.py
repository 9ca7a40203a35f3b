"""What the API description says of faces that route by themselves (AF, RTFS). Their own modules answer these paths."""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.protocols.rtfs.sexpr import RTFS_TEXT_TYPE
from waypost.server.api.ard.api import ARD_ROUTES
from waypost.server.http.openapi import document_schema
from waypost.server.http.routing import BodySpec, ParameterSpec, Route

_BASE = "/.well-known/agentframework/v1"
_CUSTOM = ("application/agent-metadata+json;version=1",)
_GROUPS = ("description", "owner", "endpoints", "capabilities", "timestamps", "metadata", "summary", "all")
_VIEW = ParameterSpec(name="view", schema={"enum": ["summary", "full"]})
_INCLUDE = ParameterSpec(name="include", schema={"type": "string"}, description=f"comma list of {', '.join(_GROUPS)}")
_LIST: dict[str, Any] = {
    "type": "object",
    "required": ["agents"],
    "properties": {
        "agents": {"type": "array", "items": {"type": "object", "required": ["id", "name", "tags"]}},
        "page": {"type": "integer"},
        "per_page": {"type": "integer"},
        "total": {"type": "integer"},
    },
}
_RPC_CALL: dict[str, Any] = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "method": {"type": "string"},
        "params": {"type": "object"},
        "id": {"type": ["string", "number", "null"]},
    },
}
_MCP_MESSAGE: dict[str, Any] = {
    **_RPC_CALL,
    "properties": {**_RPC_CALL["properties"], "params": {"type": ["object", "null"]}},
}
_RPC_REPLY: dict[str, Any] = {"type": ["object", "array"]}
_RESPONSE: dict[str, Any] = {
    "type": "object",
    "required": ["protocol_version", "agent", "matched"],
    "properties": {
        "protocol_version": {"type": "string"},
        "agent": {"type": "object", "required": ["agent_id", "capabilities", "transport"]},
        "matched": {"const": True},
        "signature": {"type": "string"},
        "previous_signature": {"type": "string"},
        "expires_at": {"type": "string", "format": "date-time"},
    },
}
_ECHO: dict[str, Any] = {
    **_RESPONSE,
    "properties": {
        **_RESPONSE["properties"],
        "ttl": {"type": "integer", "minimum": 0},
        "coalesced": {"type": "boolean"},
    },
}
_RESPONSES: dict[str, Any] = {
    "type": "object",
    "required": ["protocol_version", "agents"],
    "properties": {
        "protocol_version": {"type": "string"},
        "agents": {"type": "array", "items": _RESPONSE},
        "next_cursor": {"type": "string"},
    },
}
_ANNOUNCE: dict[str, Any] = {
    "type": "object",
    "required": ["protocol_version"],
    "properties": {
        "protocol_version": {"type": "string", "pattern": r"^v\d+\.\d+$"},
        "agent": {"type": "object"},
        "signature": {"type": "string"},
        "previous_signature": {"type": "string"},
        "ttl": {"type": "integer"},
        "query": {"type": "object"},
        "query_id": {"type": "string", "maxLength": 64},
    },
}
_REVOKED: dict[str, Any] = {
    "type": "object",
    "required": ["revoked"],
    "properties": {"revoked": {"type": "array", "items": {"type": "object", "required": ["revoked_at"]}}},
}

ANNOUNCE_ROUTES: list[Route] = [
    Route(
        method="POST",
        path="/agents",
        operation="register",
        summary="Announce protocol: announce an agent, or ask with a query",
        body=BodySpec(schema=_ANNOUNCE),
        answers={
            200: BodySpec(schema={"anyOf": [_ECHO, _RESPONSES]}),
            403: BodySpec(description="not on the allow-list"),
            409: BodySpec(description="the id is bound to another key"),
            413: BodySpec(description="more than 16 KiB"),
            415: BodySpec(description="not JSON"),
        },
    ),
    Route(
        method="GET",
        path="/agents",
        operation="list",
        summary="Announce protocol: list agents",
        parameters=(
            ParameterSpec(
                name="capability",
                schema={"type": "array", "items": {"type": "string"}},
                description="all of them; name or name@range",
            ),
            ParameterSpec(name="agent_id"),
            ParameterSpec(
                name="signed", schema={"type": "boolean"}, description="only those that were announced and signed"
            ),
            ParameterSpec(name="limit", schema={"type": "integer", "minimum": 1, "maximum": limits.PAGE_MAX}),
            ParameterSpec(name="cursor"),
        ),
        answers={200: BodySpec(schema=_RESPONSES)},
    ),
    Route(
        method="GET",
        path="/agents/{id}",
        operation="get",
        summary="Announce protocol: one agent",
        answers={200: BodySpec(schema=_RESPONSE)},
    ),
    Route(
        method="DELETE",
        path="/agents/{id}",
        operation="withdraw",
        summary="Announce protocol: withdraw an agent",
        answers={204: BodySpec(description="withdrawn")},
    ),
    Route(
        method="GET",
        path="/agents/revocations",
        operation="revocations",
        summary="Announce protocol: keys and agents that were revoked",
        answers={200: BodySpec(schema=_REVOKED)},
    ),
]

MOUNTED_ROUTES: list[Route] = [
    *ANNOUNCE_ROUTES,
    *ARD_ROUTES,
    Route(
        method="POST",
        path="/mcp",
        operation="find",
        summary="MCP over streamable HTTP: tools find_agents, get_agent, register_agent",
        body=BodySpec(schema=_MCP_MESSAGE),
        answers={
            200: BodySpec(schema=_RPC_REPLY),
            202: BodySpec(description="a notification was taken"),
            400: BodySpec(schema=_RPC_REPLY, description="no message, or not of a revision that is spoken"),
            401: BodySpec(schema=_RPC_REPLY, description="no token"),
            404: BodySpec(schema=_RPC_REPLY, description="no such method"),
            413: BodySpec(schema=_RPC_REPLY, description="too large"),
            415: BodySpec(schema=_RPC_REPLY, description="not JSON"),
            429: BodySpec(schema=_RPC_REPLY, description="too often"),
        },
    ),
    Route(
        method="GET",
        path=f"{_BASE}/agents",
        operation="list",
        summary="Agent Framework: list agents",
        parameters=(
            ParameterSpec(
                name="q", schema={"type": "string", "maxLength": limits.AF_QUERY_CHARS}, description="all words"
            ),
            ParameterSpec(name="tag", schema={"type": "array", "items": {"type": "string", "minLength": 1}}),
            _INCLUDE,
            _VIEW,
            ParameterSpec(name="page", schema={"type": "integer", "minimum": 1, "maximum": limits.AF_PAGE_NUMBER_MAX}),
            ParameterSpec(name="per_page", schema={"type": "integer", "minimum": 1}),
            ParameterSpec(name="id", description="exactly this agent"),
        ),
        answers={200: BodySpec(schema=_LIST, also=_CUSTOM), 406: BodySpec(description="no representation fits")},
    ),
    Route(
        method="GET",
        path=f"{_BASE}/agents/{{id}}",
        operation="get",
        summary="Agent Framework: one agent",
        parameters=(_VIEW, _INCLUDE),
        answers={200: BodySpec(schema=document_schema("af"), also=_CUSTOM)},
    ),
    Route(
        method="GET",
        path="/.well-known/agent-card",
        operation="document",
        summary="Agent Framework: the card of this origin",
        parameters=(ParameterSpec(name="agent", description="the card of one agent"),),
        answers={200: BodySpec(schema=document_schema("af"), also=_CUSTOM)},
        open=True,
    ),
    Route(
        method="POST",
        path="/rtfs",
        operation="find",
        summary="RTFS registry: JSON-RPC 2.0 (rtfs.registry.register, .discover, .deregister, .heartbeat), or a "
        "(discover-agents …) form",
        body=BodySpec(
            schema={"oneOf": [_RPC_CALL, {"type": "array", "items": _RPC_CALL, "maxItems": limits.RPC_BATCH_CALLS}]},
            text=RTFS_TEXT_TYPE,
        ),
        answers={
            200: BodySpec(schema=_RPC_REPLY, text=RTFS_TEXT_TYPE),
            204: BodySpec(description="only notifications"),
            413: BodySpec(schema=_RPC_REPLY, text=RTFS_TEXT_TYPE, description="too large"),
            415: BodySpec(schema=_RPC_REPLY, description="neither JSON nor a form"),
        },
    ),
]
