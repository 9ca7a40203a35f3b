"""`/agent/connect`: what the form of a landing page asks for (ADP-35). It tells the other side how to go on; it calls nobody.

Who wants to talk proves itself in the conversation, so nothing is looked up here: a name in a form is only a name.
"""

from __future__ import annotations

import shlex
from typing import Any

from waypost.errors import InvalidParameter
from waypost.model.json import JsonObject
from waypost.model.names import parse_domain
from waypost.server.page.layout import Sheet
from waypost.server.page.markup import Html, el
from waypost.server.page.sheet import copyable


def parse_agent(text: str) -> str:
    """`agent:{domain}`; a bare domain is taken for its agent."""
    name = text.strip()
    if not name:
        raise InvalidParameter("from is missing.", path="from", hint="Name your agent, such as agent:your.example.com.")
    return f"agent:{parse_domain(name.removeprefix('agent:'), 'from')}"


def connection(asker: str, document: JsonObject) -> JsonObject:
    """How the asker reaches the agent, for programs."""
    identity: Any = document.get("identity")
    identity = identity if isinstance(identity, dict) else {}
    endpoints: Any = document.get("endpoints")
    endpoints = endpoints if isinstance(endpoints, dict) else {}
    known = {name: value for name, value in endpoints.items() if isinstance(value, str)}
    return {"from": asker, "to": identity.get("id"), "endpoints": known, "next": _next(known)}


def _next(endpoints: dict[str, str]) -> str:
    if "chat" in endpoints:
        return "Open the chat endpoint and send a signed hello (AGP)."
    if "tasks" in endpoints:
        return "Post a task to the tasks endpoint."
    return "This agent names no place for conversations; see its A2A card."


def connect_sheet(told: JsonObject) -> Sheet:
    to, asker = str(told["to"]), str(told["from"])
    endpoints: dict[str, str] = told["endpoints"]
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
            " and send a signed hello. Both sides prove who they are there; this form proves nothing.",
        ),
        el("li", "From a terminal:", copyable(f"waypost chat {shlex.quote(to)}", "command")),
    ]
    main: Html = el(
        "div",
        el("h1", "How to connect"),
        el("p", el("code", asker), " → ", el("code", to), class_="lead"),
        el("p", str(told["next"])),
        el("ol", steps, class_="steps"),
        el("p", el("a", "Back", href="/")),
        class_="landing",
    )
    return Sheet(title="How to connect", main=main)
