"""What both pages at `/` carry for programs (adp.md §5): JSON-LD, meta tags, elements; and the page of a hosted agent."""

from __future__ import annotations

from typing import Any

from waypost.model.json import JsonObject
from waypost.model.registration import Registration
from waypost.server.page.badges import ladder, trust_badge
from waypost.server.page.cards import liveness
from waypost.server.page.layout import Sheet, facts, section
from waypost.server.page.markup import Content, Html, data_block, el, join, outside_link, shown_lines

_CONTEXT = {"@context": "https://schema.org", "@type": "SoftwareApplication"}
CONNECT_PATH = "/agent/connect"


def adp_head(document: JsonObject) -> Html:
    """ADP-33, ADP-34: the whole metadata, equal to the well-known document, and who and what in meta tags."""
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
    return join((metas, data_block(_CONTEXT | document, "application/ld+json")))


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
        el("p", shown_lines(description), class_="says") if isinstance(description, str) else None,
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


def landing(registration: Registration, document: JsonObject, trust: dict[str, Any]) -> Sheet:
    """The page of an agent under its own domain: about it and nothing else."""
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
        el("p", shown_lines(record.description), class_="lead says"),
        el("p", [join((el("span", tag, class_="tag"), " ")) for tag in record.tags], class_="labels"),
        section("What it can do", capability_list(document, status), name="can"),
        section("Connect", connect_form("Your agent"), _endpoints(document), name="connect"),
        section("How far it can be trusted", ladder(trust), name="trust"),
        section("For programs", _documents(), name="programs"),
        class_="landing",
    )
    return Sheet(title=record.name, main=card, head=adp_head(document))


def _endpoints(document: JsonObject) -> Content:
    endpoints: Any = document.get("endpoints")
    if not isinstance(endpoints, dict):
        return None
    rows: list[tuple[str, Content]] = [
        (name, outside_link(value, el("code", value))) for name, value in endpoints.items() if isinstance(value, str)
    ]
    return facts(rows)


def _documents() -> Html:
    links = (
        ("/.well-known/agent.json", "ADP document"),
        ("/.well-known/agent-card.json", "A2A card"),
        ("/.well-known/agent-card", "Agent Framework card"),
        ("/.well-known/ai-catalog.json", "AI Catalog"),
    )
    return el("ul", [el("li", el("a", name, href=path)) for path, name in links], class_="plain")
