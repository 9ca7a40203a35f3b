"""Machine-readable parts of the pages at `/` (adp.md §5): JSON-LD, meta tags, elements; and the page of a hosted agent.

`/agent/connect` answers the form of that page (ADP-35) with instructions. It makes no request and proves nothing: agents
authenticate in the conversation.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject
from waypost.model.names import parse_domain
from waypost.model.registration import Registration
from waypost.model.verdict import TrustSummary
from waypost.server.web.agent_cards import make_summary
from waypost.server.web.layout import LinkPreview, WebPage

_CONTEXT = {"@context": "https://schema.org", "@type": "SoftwareApplication"}

CONNECT_PATH = "/agent/connect"


class AdpMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The complete metadata, equal to the well-known document, as JSON-LD and meta tags (ADP-33, ADP-34)."""

    tags: list[tuple[str, str]]
    linked_data: JsonObject
    capabilities: list[CapabilityView]


class CapabilityView(msgspec.Struct, frozen=True, kw_only=True):
    """ADP-35."""

    name: str
    description: str | None
    inputs: str
    outputs: str


def make_adp_metadata(document: JsonObject) -> AdpMetadata:
    identity: Any = document.get("identity")
    identity = identity if isinstance(identity, dict) else {}
    key: Any = identity.get("publicKey")
    fingerprint = key.get("fingerprint") if isinstance(key, dict) else None
    named = (
        ("agent-id", identity.get("id")),
        ("agent-protocol", document.get("protocol")),
        ("agent-fingerprint", fingerprint),
        ("description", identity.get("description")),
    )
    listed: Any = document.get("capabilities")
    shown = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return AdpMetadata(
        tags=[(name, value) for name, value in named if isinstance(value, str)],
        linked_data=_CONTEXT | _schema_org(document, identity, shown) | document,
        capabilities=[_capability(each) for each in shown],
    )


def _schema_org(document: JsonObject, identity: JsonObject, capabilities: list[JsonObject]) -> JsonObject:
    """What search engines read of a `SoftwareApplication`. Members of ADP have other names, and theirs come first."""
    meta: Any = document.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    agent_id = identity.get("id")
    domain = agent_id.removeprefix("agent:") if isinstance(agent_id, str) and agent_id.startswith("agent:") else None
    features = [str(each.get("name") or each.get("id")) for each in capabilities if each.get("name") or each.get("id")]
    described = [each.get("description") for each in capabilities]
    members = {
        "name": identity.get("name"),
        "identifier": agent_id,
        "url": None if domain is None else f"https://{domain}/",
        "description": identity.get("description") or next((text for text in described if isinstance(text, str)), None),
        "applicationCategory": "AI agent",
        "featureList": features or None,
        "softwareVersion": meta.get("version"),
        "dateModified": meta.get("updated"),
    }
    return {name: value for name, value in members.items() if isinstance(value, str | list)}


def _capability(capability: JsonObject) -> CapabilityView:
    description = capability.get("description")
    return CapabilityView(
        name=str(capability.get("name") or capability.get("id") or ""),
        description=description if isinstance(description, str) else None,
        inputs=_join_names(capability.get("input")),
        outputs=_join_names(capability.get("output")),
    )


def _join_names(values: Any) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else ""


def make_landing_page(
    registration: Registration, document: JsonObject, trust: TrustSummary, preview: LinkPreview | None
) -> WebPage:
    """The page of an agent under its own domain."""
    endpoints: Any = document.get("endpoints")
    endpoints = endpoints if isinstance(endpoints, dict) else {}
    values = {
        "agent": make_summary(registration, trust),
        "record": registration.record,
        "adp": make_adp_metadata(document),
        "endpoints": [(name, value) for name, value in endpoints.items() if isinstance(value, str)],
    }
    return WebPage(template="landing.html", title=registration.record.name, values=values, preview=preview)


def parse_agent_input(text: str) -> str:
    """Normalise to `agent:{domain}`; a bare domain is accepted."""
    name = text.strip()
    if not name:
        raise InvalidParameter("from is missing.", path="from", hint="Name your agent, such as agent:your.example.com.")
    return f"agent:{parse_domain(name.removeprefix('agent:'), 'from')}"


def connection_info(asker: str, document: JsonObject) -> JsonObject:
    """Instructions to reach the agent, for programs."""
    identity: Any = document.get("identity")
    identity = identity if isinstance(identity, dict) else {}
    endpoints: Any = document.get("endpoints")
    endpoints = endpoints if isinstance(endpoints, dict) else {}
    known = {name: value for name, value in endpoints.items() if isinstance(value, str)}
    return {"from": asker, "to": identity.get("id"), "endpoints": known, "next": _next_steps(known)}


def _next_steps(endpoints: dict[str, str]) -> str:
    if "chat" in endpoints:
        return "Open the chat endpoint and send a signed hello (AGP)."
    if "tasks" in endpoints:
        return "Post a task to the tasks endpoint."
    return "This agent has no endpoint for conversations; see its A2A card."


def make_connect_page(info: JsonObject) -> WebPage:
    to, asker = str(info["to"]), str(info["from"])
    endpoints: dict[str, str] = info["endpoints"]
    values = {
        "to": to,
        "asker": asker,
        "domain": asker.removeprefix("agent:"),
        "chat": endpoints.get("chat", "the agent's endpoint"),
        "next": str(info["next"]),
        "command": f"waypost chat {shlex.quote(to)}",
    }
    return WebPage(template="connect.html", title="How to connect", values=values)
