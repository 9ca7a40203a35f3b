"""An agent, drawn for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from waypost.cli.badges import badge
from waypost.cli.text import clean
from waypost.client.agent import Agent


def agent_card(agent: Agent, trust: str | None = None) -> Group:
    """Name, how far it was verified, description, and the rest in two columns."""
    return Group(*_parts(agent, trust))


def _parts(agent: Agent, trust: str | None) -> Iterator[RenderableType]:
    head = Text().append(clean(agent.name), style="bold").append(f"  {clean(agent.id)}", style="cyan")
    yield head if trust is None else head.append("  ").append_text(badge(trust))
    if agent.description:
        yield Padding(Text(clean(agent.description)), (0, 0, 1, 0))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _facts(agent):
        table.add_row(label, Text(clean(value)))
    yield table


def _facts(agent: Agent) -> Iterator[tuple[str, str]]:
    for index, binding in enumerate(agent.bindings):
        media = ", ".join(binding.get("media_types") or ())
        words = (str(binding.get("protocol", "")), str(binding.get("endpoint", "")), f"({media})" if media else "")
        yield "reach it" if index == 0 else "", " ".join(word for word in words if word)
    if agent.tags:
        yield "tags", ", ".join(agent.tags)
    for index, example in enumerate(agent.examples):
        yield "ask it" if index == 0 else "", f"“{example.get('text', '')}”"
    yield "status", agent.status
    for label, name in (("version", "version"), ("updated", "updated_at"), ("expires", "expires_at")):
        if agent.get(name):
            yield label, str(agent[name])
    shown = (
        "id",
        "name",
        "description",
        "tags",
        "examples",
        "bindings",
        "status",
        "version",
        "updated_at",
        "expires_at",
    )
    others = [name for name in agent if name not in shown]
    if others:
        yield "also", ", ".join(others) + "  (-o json shows all)"
