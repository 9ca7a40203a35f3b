"""Formats that people have at hand and that are not read here. The error for one names it and the closest format that is read.

They are looked for only in documents that no dialect recognises, so a mark may be a member that dialects have, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

_Document = Mapping[str, Any]


class ForeignFormat(NamedTuple):
    title: str
    matches: Callable[[_Document], bool]
    dialect: str  # the closest one
    hint: str


def _has(*members: str) -> Callable[[_Document], bool]:
    return lambda document: all(member in document for member in members)


def _is_acp_descriptor(document: _Document) -> bool:
    metadata = document.get("metadata")
    return isinstance(metadata, dict) and "ref" in metadata and "specs" in document


def _is_host_configuration(document: _Document) -> bool:
    if "mcpServers" in document:
        return True
    servers = document.get("servers")
    listed = servers.values() if isinstance(servers, dict) else ()
    return any(isinstance(server, dict) and ("command" in server or "url" in server) for server in listed)


def _is_agent_description(document: _Document) -> bool:
    return "AgentDescription" in str(document.get("@type")) or document.get("protocolType") == "ANP"


def _is_oasf_draft(document: _Document) -> bool:
    data = document.get("data")
    return isinstance(data, dict) and "schema_version" in data and "type" in document


_CARD_OF_THE_AGENT: Final = "If the agent speaks A2A, register its card: /.well-known/agent-card.json of its host."
_SERVER_JSON: Final = "A server.json has name, description, version, and remotes [{type, url}] or packages."

_FORMATS: Final = (
    ForeignFormat(
        "an agent manifest of ACP (today a part of A2A)",
        _has("input_content_types", "output_content_types"),
        "a2a",
        "An A2A card has name, description, version, supportedInterfaces, capabilities and skills; the agent's "
        "capabilities are its skills.",
    ),
    ForeignFormat(
        "an agent descriptor of AGNTCY's ACP",
        _is_acp_descriptor,
        "oasf",
        "An OASF record has name, version, schema_version, description, authors, created_at, skills and locators.",
    ),
    ForeignFormat("the configuration of an MCP host", _is_host_configuration, "mcp", _SERVER_JSON),
    ForeignFormat("an MCP server card, or the answer to `initialize`", _has("serverInfo"), "mcp", _SERVER_JSON),
    ForeignFormat("the manifest of an MCP bundle", _has("manifest_version", "server"), "mcp", _SERVER_JSON),
    ForeignFormat("the manifest of an MCP bundle", _has("dxt_version", "server"), "mcp", _SERVER_JSON),
    ForeignFormat(
        "an OpenAPI description",
        lambda document: ("openapi" in document or "swagger" in document) and "info" in document,
        "profile",
        "Write id, name, description and bindings [{protocol: openapi, endpoint: the URL of this file}].",
    ),
    ForeignFormat(
        "the manifest of a ChatGPT plugin",
        _has("name_for_model"),
        "profile",
        "Write id, name, description and bindings [{protocol: openapi, endpoint: its api.url}].",
    ),
    ForeignFormat("an assistant of LangGraph", _has("assistant_id", "graph_id"), "a2a", _CARD_OF_THE_AGENT),
    ForeignFormat("an ANP agent description", _is_agent_description, "a2a", _CARD_OF_THE_AGENT),
    ForeignFormat(
        "a draft of OASF after 1.0",
        _is_oasf_draft,
        "oasf",
        "Move the members of `data` beside `modules` and `locators`.",
    ),
)


def find_foreign_format(document: _Document) -> ForeignFormat | None:
    return next((known for known in _FORMATS if known.matches(document)), None)
