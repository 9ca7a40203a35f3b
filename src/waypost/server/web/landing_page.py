"""Machine-readable parts of the pages at `/` (adp.md §5): JSON-LD, meta tags, elements; and the page of a hosted agent.

`/agent/connect` answers the form of that page (ADP-35) with instructions. It makes no request and proves nothing: agents
authenticate in the conversation.
"""

from __future__ import annotations

import shlex
from typing import Any

from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject
from waypost.model.names import parse_domain
from waypost.model.registration import Registration
from waypost.model.verdict import TrustSummary
from waypost.server.web.agent_cards import liveness, trust_badge, trust_checklist
from waypost.server.web.agent_page import copyable_code
from waypost.server.web.layout import WebPage, definition_list, section
from waypost.server.web.markup import Html, HtmlContent, el, escape_multiline, external_link, join, json_script

_CONTEXT = {"@context": "https://schema.org", "@type": "SoftwareApplication"}

CONNECT_PATH = "/agent/connect"


def adp_metadata(document: JsonObject) -> Html:
    """The complete metadata, equal to the well-known document, as JSON-LD and meta tags (ADP-33, ADP-34)."""
    identity: Any = document.get("identity")
    identity = identity if isinstance(identity, dict) else {}
    key: Any = identity.get("publicKey")
    fingerprint = key.get("fingerprint") if isinstance(key, dict) else None
    named = (
        ("agent-id", identity.get("id")),
        ("agent-protocol", document.get("protocol")),
        ("agent-fingerprint", fingerprint),
    )
    metas = [el("meta", name=name, content=value) for name, value in named if isinstance(value, str)]
    described = identity.get("description")
    if isinstance(described, str):
        metas.append(el("meta", name="description", content=described))
    return join((metas, json_script(_CONTEXT | document, "application/ld+json")))


def capability_list(document: JsonObject, status: str) -> Html:
    """ADP-35."""
    listed: Any = document.get("capabilities")
    shown = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return el("capability-list", [_capability(each, status) for each in shown], role="list")


def _capability(capability: JsonObject, status: str) -> Html:
    name = capability.get("name") or capability.get("id") or ""
    description = capability.get("description")
    goes = [
        join((el("dt", word), el("dd", ", ".join(map(str, values)))))
        for word, values in (("takes", capability.get("input")), ("gives", capability.get("output")))
        if isinstance(values, list) and values
    ]
    return el(
        "capability",
        el("h3", str(name)),
        el("p", escape_multiline(description), class_="publisher-text") if isinstance(description, str) else None,
        el("dl", goes, class_="inline") if goes else None,
        name=str(name),
        status=status,
        role="listitem",
    )


def connect_form(label: str) -> Html:
    form = el(
        "form",
        el("label", label, for_="from"),
        el(
            "div",
            el(
                "input",
                id="from",
                name="from",
                type="text",
                placeholder="agent:your.example.com",
                required=True,
                maxlength=300,
                autocomplete="off",
                spellcheck="false",
            ),
            el("button", "Connect", type="submit"),
            class_="ask",
        ),
        action=CONNECT_PATH,
        method="post",
    )
    return el("connect-form", form, action=CONNECT_PATH)


def make_landing_page(registration: Registration, document: JsonObject, trust: TrustSummary) -> WebPage:
    """The page of an agent under its own domain."""
    record = registration.record
    status = registration.status
    card = el(
        "agent-card",
        el(
            "header",
            el("div", el("h1", record.name), trust_badge(trust), liveness(registration), class_="head"),
            el("p", el("code", record.id), class_="fine"),
            class_="agent-head",
        ),
        el("p", escape_multiline(record.description), class_="lead publisher-text"),
        el("p", [join((el("span", tag, class_="tag"), " ")) for tag in record.tags], class_="labels"),
        section("What it can do", capability_list(document, status), name="can"),
        section("Connect", connect_form("Your agent"), _endpoints(document), name="connect"),
        section("How far it can be trusted", trust_checklist(trust), name="trust"),
        section("For programs", _documents(), name="programs"),
        class_="landing",
    )
    return WebPage(title=record.name, main=card, head=adp_metadata(document))


def _endpoints(document: JsonObject) -> HtmlContent:
    endpoints: Any = document.get("endpoints")
    if not isinstance(endpoints, dict):
        return None
    rows: list[tuple[str, HtmlContent]] = [
        (name, external_link(value, el("code", value))) for name, value in endpoints.items() if isinstance(value, str)
    ]
    return definition_list(rows)


def _documents() -> Html:
    links = (
        ("/.well-known/agent.json", "ADP document"),
        ("/.well-known/agent-card.json", "A2A card"),
        ("/.well-known/agent-card", "Agent Framework card"),
        ("/.well-known/ai-catalog.json", "AI Catalog"),
    )
    return el("ul", [el("li", el("a", name, href=path)) for path, name in links], class_="plain")


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
    steps = [
        el(
            "li",
            "Publish your own document at ",
            el("code", f"https://{asker.removeprefix('agent:')}/.well-known/agent.json"),
            ", with the key that you sign with.",
        ),
        el(
            "li",
            "Open ",
            el("code", endpoints.get("chat", "the agent's endpoint")),
            " and send a signed hello. Both sides authenticate there; this form proves nothing.",
        ),
        el("li", "From a terminal:", copyable_code(f"waypost chat {shlex.quote(to)}", "command")),
    ]
    main: Html = el(
        "div",
        el("h1", "How to connect"),
        el("p", el("code", asker), " → ", el("code", to), class_="lead"),
        el("p", str(info["next"])),
        el("ol", steps, class_="steps"),
        el("p", el("a", "Back", href="/")),
        class_="landing",
    )
    return WebPage(title="How to connect", main=main)
