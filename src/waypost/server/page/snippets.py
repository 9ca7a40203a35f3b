"""How to call an agent: a few lines to copy, for a shell, for Python, and for whoever speaks the agent's own protocol.

Addresses are the publisher's words, so each is quoted for the language it stands in.
"""

from __future__ import annotations

import json
import shlex

import msgspec

from waypost.model.names import slug
from waypost.model.record import AgentRecord, Binding


class Snippet(msgspec.Struct, frozen=True):
    title: str
    code: str
    note: str = ""


def snippets_of(record: AgentRecord, base_url: str) -> list[Snippet]:
    """Its own protocols first, then how to read it from this registry."""
    own = list({made.title: made for binding in record.bindings if (made := _own(binding))}.values())
    return [*own, _curl(record, base_url), _python(record, base_url), _command(record, base_url)]


def _own(binding: Binding) -> Snippet | None:
    family = binding.protocol.lower().split("+", 1)[0]
    make = _PROTOCOLS.get(family)
    if make is not None:
        return make(binding)
    if binding.endpoint.lower().startswith(("http://", "https://")):
        return _http(binding)
    return None


def _a2a(binding: Binding) -> Snippet:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "message/send",
        "params": {"message": {"role": "user", "messageId": "1", "parts": [{"kind": "text", "text": "Hello"}]}},
    }
    return Snippet("A2A", _post(binding.endpoint, message), "Sends one message by JSON-RPC.")


def _mcp(binding: Binding) -> Snippet:
    if not binding.endpoint.lower().startswith(("http://", "https://")):
        package = json.dumps({"package": binding.endpoint}, indent=2, ensure_ascii=True)
        return Snippet(
            "MCP", package, "A package that an MCP host starts on its own machine. Look at it before you do."
        )
    config = {"mcpServers": {"agent": {"type": "streamable-http", "url": binding.endpoint}}}
    return Snippet("MCP", json.dumps(config, indent=2, ensure_ascii=True), "For the settings of an MCP host.")


def _adp(binding: Binding) -> Snippet:
    code = f"waypost chat {shlex.quote(binding.endpoint)}"
    return Snippet("AGP", code, "A signed conversation; both sides prove who they are.")


def _http(binding: Binding) -> Snippet:
    return Snippet(
        binding.protocol.upper(), _post(binding.endpoint, {"input": "Hello"}), "What it takes is up to the agent."
    )


_PROTOCOLS = {"a2a": _a2a, "mcp": _mcp, "adp": _adp, "agp": _adp}


def _post(url: str, body: object) -> str:
    return (
        f"curl -s {shlex.quote(url)} \\\n"
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=True))}"
    )


def _curl(record: AgentRecord, base_url: str) -> Snippet:
    url = f"{base_url}/api/v1/agents/{slug(record.id)}?as=a2a"
    code = f'curl -s -H "Authorization: Bearer $WAYPOST_TOKEN" \\\n  {shlex.quote(url)}'
    return Snippet("curl", code, "The record from this registry, here as an A2A card.")


def _python(record: AgentRecord, base_url: str) -> Snippet:
    code = (
        "from waypost import Client\n\n"
        f"async with Client({json.dumps(base_url)}) as waypost:\n"
        f"    agent = await waypost.get({json.dumps(record.id, ensure_ascii=True)})\n"
        "    print(agent.name, agent.bindings)"
    )
    return Snippet("Python", code, "SyncClient is the same without await.")


def _command(record: AgentRecord, base_url: str) -> Snippet:
    code = f"waypost get {shlex.quote(record.id)} --server {shlex.quote(base_url)}"
    return Snippet("Command", code)
