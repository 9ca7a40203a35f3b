"""What is at an address, shown before it is registered, and the question whether it should be."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from waypost.cli.cards import agent_card
from waypost.cli.output import Printer, without_none
from waypost.cli.report import report_error
from waypost.cli.text import clean
from waypost.client.agent import Agent
from waypost.client.results import Failure, Fetched, FoundAgent
from waypost.client.sync.client import SyncClient
from waypost.domains.naming import is_domain

_FILES = (".json", ".jsonl", ".ndjson", ".rtfs", ".txt", ".yaml", ".yml", ".toml", ".pem")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_STATES = {"passed": "green", "failed": "red", "unknown": "yellow", "not_checked": "dim"}
_SHOWN = 5  # of a catalogue, as cards; the others as lines


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """How to treat what is found: `dry_run` never registers, `yes` asks nothing."""

    yes: bool = False
    dry_run: bool = False
    dialect: str | None = None
    visibility: str | None = None
    ttl_seconds: int | None = None
    organisation: bool = False  # of a domain: all that it lists


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def is_address(name: str) -> bool:
    """An address, a domain or an agent URI. What is a file, or is called like one, is a file."""
    if is_url(name) or name.lower().startswith("agent:"):
        return True
    return not name.lower().endswith(_FILES) and not Path(name).exists() and is_domain(name)


def take_url(client: SyncClient, printer: Printer, url: str, choice: Choice) -> Fetched | None:
    """Show and, unless it is declined, register. None when nothing was registered."""
    asking = printer.is_terminal and sys.stdin.isatty() and not choice.yes
    if not choice.dry_run and not asking:
        found = _fetch(client, url, choice, save=True)
        for agent in found.agents:
            if isinstance(agent, FoundAgent):
                printer.note(f"found: {agent.dialect} {agent.name!r} at {found.url}")
        return found
    found = _fetch(client, url, choice, save=False)
    show_found(printer, found)
    if choice.dry_run or not click.confirm("Register?", default=True, err=True):
        return None
    return _fetch(client, url, choice, save=True, digest=found.digest)


def _fetch(client: SyncClient, url: str, choice: Choice, *, save: bool, digest: str | None = None) -> Fetched:
    return client.fetch(
        url,
        save,
        dialect=choice.dialect,
        visibility=choice.visibility if save else None,
        ttl_seconds=choice.ttl_seconds if save else None,
        digest=digest,
        organisation=choice.organisation and not is_url(url),
    )


def show_found(printer: Printer, found: Fetched) -> None:
    if not printer.is_human:
        printer.value(found_value(found))
        return
    for number, agent in enumerate(found.agents):
        if isinstance(agent, Failure):
            report_error(agent.error, f"{found.url}[{number}]")
        elif number < _SHOWN and printer.is_terminal:
            printer.console.print(agent_card(Agent.from_document(agent.agent)))
            for line in _particulars(agent):
                printer.line(line)
        else:
            printer.line(f"found  {clean(agent.id)}  ({clean(agent.dialect)})  {clean(agent.name)}")
            for line in _particulars(agent):
                printer.line(line)


def _particulars(agent: FoundAgent) -> Iterator[Text]:
    yield _line("found at", f"{agent.url} ({agent.dialect})")
    for check in agent.trust.get("checks", ()):
        state = str(check.get("state", ""))
        reason = f": {check['reason']}" if check.get("reason") else ""
        yield _line(str(check.get("check", "")), f"{state}{reason}", _STATES.get(state, ""))
    yield _line("trust", str(agent.trust.get("level", "self_asserted")))
    for loss in agent.losses:
        yield _line("not carried", f"{loss.path} ({loss.reason})")
    for warning in agent.warnings:
        yield _line("warning", warning, "yellow")
    if agent.existing is not None:
        whose = "yours" if agent.existing.get("yours") else "another owner's"
        yield _line("registered", f"already, {whose}", "" if agent.existing.get("yours") else "yellow")


def _line(label: str, text: str, style: str = "") -> Text:
    return Text().append(f"  {clean(label):<18}", style="dim").append(clean(text), style=style)


def found_value(found: Fetched) -> dict[str, Any]:
    """As JSON, without what is not there."""
    agents = [
        {"outcome": "failed", "error": {"code": agent.error.code, "message": agent.error.message}}
        if isinstance(agent, Failure)
        else without_none(msgspec.to_builtins(agent))
        for agent in found.agents
    ]
    return {"url": found.url, "digest": found.digest, "agents": agents}
