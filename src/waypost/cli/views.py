"""Human-readable output of agents, candidates, facets, receipts, versions and differences."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from waypost.cli.output import Printer, sanitize, truncate
from waypost.model.events import JsonDifference
from waypost.model.health import HEALTH_WORDS
from waypost.model.json import dump_json
from waypost.model.query import FacetCount
from waypost.model.times import parse_rfc3339
from waypost.model.verdict import BADGES
from waypost.responses.agents import Agent, AgentHealth, AgentVersion, DiffResult, HistoryResult, Receipt
from waypost.responses.search import Candidate

TRUST_STYLES = {"verified": "bold green", "self_asserted": "yellow", "failed": "bold red"}


MATCH_STYLES = {"strong": "bold green", "possible": "green", "weak": "dim"}


def trust_word(level: str | None) -> str:
    """`verified`, `self-asserted` or `FAILED`; an unknown level is shown as `self-asserted`."""
    return BADGES.get(level or "self_asserted", BADGES["self_asserted"])


def trust_badge(level: str | None) -> Text:
    return Text(trust_word(level), style=TRUST_STYLES.get(level or "self_asserted", ""))


# --- Agents ---


def agent_card(agent: Agent, trust: str | None = None) -> Group:
    """Name, trust level, description, and the other members in two columns."""
    return Group(*_card_parts(agent, trust))


def _card_parts(agent: Agent, trust: str | None) -> Iterator[RenderableType]:
    head = Text().append(sanitize(agent.name), style="bold").append(f"  {sanitize(agent.id)}", style="cyan")
    yield head if trust is None else head.append("  ").append_text(trust_badge(trust))
    if agent.description:
        yield Padding(Text(sanitize(agent.description)), (0, 0, 1, 0))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _card_facts(agent):
        table.add_row(label, Text(sanitize(value)))
    yield table


def _card_facts(agent: Agent) -> Iterator[tuple[str, str]]:
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
    others = [name for name in agent if name not in shown and not name.startswith("org.waypost.")]
    if others:
        yield "also", ", ".join(others) + "  (-o json shows all)"


# --- Candidates ---

_EIGHTHS = " ▏▎▍▌▋▊▉█"

_WIDTH = 20


def bar(share: float, width: int = _WIDTH) -> str:
    """Draw a share of 0..1 as a bar of `width` cells."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width)


def show_candidate(printer: Printer, place: int, candidate: Candidate, *, explain: bool) -> None:
    """Print rank, match, name and id, then the reason and the description, then the evidence."""
    match = candidate.match or f"{candidate.score or 0.0:.2f}"
    head = Text(f"{place:>2}  ").append(f"{sanitize(match):<8}", style=MATCH_STYLES.get(match, "")).append("  ")
    head.append(sanitize(candidate.name) or sanitize(candidate.id), style="bold")
    if candidate.name:
        head.append(f"  {sanitize(candidate.id)}", style="cyan")
    if candidate.trust is not None:
        head.append("  ").append_text(trust_badge(candidate.trust.level))
    if candidate.health is not None and candidate.health.state != "healthy":
        state = candidate.health.state
        head.append(f"  {sanitize(HEALTH_WORDS.get(state, state))}", style="red")
    if candidate.federation is not None:
        head.append(f"  from {sanitize(candidate.federation.origin_service)}", style="dim")
    if candidate.provisional:
        head.append("  provisional", style="dim")
    printer.line(head)
    if candidate.reason:
        printer.line(Text(f"    {sanitize(candidate.reason)}"))
    if candidate.description:
        room = printer.console.width - 5 if printer.is_terminal else 160
        printer.line(Text(f"    {truncate(candidate.description, max(40, room))}", style="dim"))
    if explain:
        for line in _evidence_lines(candidate):
            printer.line(line)
        printer.line("")


def _evidence_lines(candidate: Candidate) -> Iterator[Text]:
    if candidate.score is not None:
        yield _evidence_line("score", f"{candidate.score:.2f}")
    shown = ((name, share) for name, share in candidate.score_components.items() if round(share, 2))
    components = sorted(shown, key=lambda item: -item[1])
    width = max((len(name) for name, _ in components), default=0)
    for name, share in components:
        line = Text().append(f"    {sanitize(name):<{width}}  ", style="dim").append(bar(share), style="green")
        yield line.append(f" {share:.2f}")
    if candidate.matched_tags:
        yield _evidence_line("tags", ", ".join(candidate.matched_tags))
    if candidate.expanded_tags:
        yield _evidence_line("related tags", ", ".join(candidate.expanded_tags))
    for example in candidate.matched_examples:
        yield _evidence_line("similar example", f"“{sanitize(example.text)}”")
    if candidate.flags:
        yield _evidence_line("warning", ", ".join(flag.replace("_", " ") for flag in candidate.flags))
    for snippet in candidate.snippets:
        yield _evidence_line("excerpt", truncate(snippet, 160))
    for check in (candidate.trust.checks if candidate.trust is not None else None) or ():
        reason = f": {check.reason}" if check.reason else ""
        yield _evidence_line("check", f"{check.check} {check.state.replace('_', ' ')}{reason}")
    if candidate.freshness is not None and candidate.freshness.metadata_updated_at:
        yield _evidence_line("updated", candidate.freshness.metadata_updated_at)


def _evidence_line(label: str, text: str) -> Text:
    return Text().append(f"    {label}: ", style="dim").append(sanitize(text))


# --- Facets ---

_FACET_CHARS = 32


def show_facets(printer: Printer, facets: Mapping[str, Sequence[FacetCount]]) -> None:
    """Print counts: bars on a terminal, rows in a pipe."""
    if not printer.is_terminal:
        printer.rows((name, truncate(found.value, 256), str(found.count)) for name in facets for found in facets[name])
        return
    width = max((len(truncate(item.value, _FACET_CHARS)) for values in facets.values() for item in values), default=0)
    for name, values in facets.items():
        printer.line(Text(name, style="bold dim"))
        most = max((found.count for found in values), default=1)
        for found in values:
            line = Text(f"  {truncate(found.value, _FACET_CHARS):<{width}}  ")
            printer.line(line.append(bar(found.count / most, 12), style="green").append(f" {found.count}"))


# --- Receipts of writes ---

OUTCOME_STYLES = {
    "created": "green",
    "updated": "cyan",
    "refreshed": "cyan",
    "unchanged": "dim",
    "held": "yellow",
    "failed": "red",
}


def show_receipt(printer: Printer, receipt: Receipt, subject: str | None = None) -> None:
    """Print a receipt; its warnings and losses go to stderr."""
    if not printer.is_human:
        printer.value(receipt_value(receipt))
    else:
        line = Text().append(f"{receipt.outcome:<9}", style=OUTCOME_STYLES.get(receipt.outcome, ""))
        line.append(f"  {sanitize(receipt.id)}")
        if receipt.dialect:
            line.append(f"  ({sanitize(receipt.dialect)})", style="dim")
        if receipt.expires_at:
            line.append(f"  {lease_text(receipt.expires_at, time.time())}", style="dim")
        printer.line(line)
    show_warnings(printer, receipt, subject)


def lease_text(expires_at: str, now: float) -> str:
    """`lease ends in 24 h`."""
    seconds = round(parse_rfc3339(expires_at) - now)
    if seconds <= 0:
        return "lease has ended"
    for unit, size in (("h", 3_600), ("min", 60)):
        if seconds > 1.5 * size:
            return f"lease ends in {round(seconds / size)} {unit}"
    return f"lease ends in {seconds} s"


def show_warnings(printer: Printer, receipt: Receipt, subject: str | None = None) -> None:
    where = f"{subject}: " if subject else ""
    for warning in receipt.warnings:
        printer.note(f"{where}warning: {warning}", style="yellow")
    if receipt.held is not None:
        printer.note(f"{where}`waypost confirm {receipt.id}` shows the pending change and confirms it.", style="yellow")
    for loss in receipt.losses:
        printer.note(f"{where}lost: {loss.path} ({loss.reason})")


def receipt_value(receipt: Receipt) -> dict[str, Any]:
    return receipt.document


# --- Health ---


def show_health(printer: Printer, health: AgentHealth) -> None:
    values = msgspec.to_builtins(health)
    if not printer.is_human:
        printer.value(values)
        return
    printer.rows((name, sanitize(str(value))) for name, value in values.items())
    if health.state == "unknown":
        printer.note("The endpoint was never checked; `serve --health-checks` checks those of all agents.")


# --- Versions and differences ---

_VALUE_CHARS = 200


def show_history(printer: Printer, history: HistoryResult) -> None:
    if not printer.is_human:
        printer.value(history.document)
        return
    rows = [_version_cells(version) for version in history.versions]
    if not printer.is_terminal:
        printer.rows(rows)
        return
    columns = [
        Column("ETAG", style="cyan", no_wrap=True),
        Column("SINCE", no_wrap=True),
        Column("BY"),
        Column("CHANGED", overflow="fold"),
    ]
    printer.table(columns, [tuple(map(Text, row)) for row in rows])


def _version_cells(version: AgentVersion) -> tuple[str, str, str, str]:
    changed = "" if version.changed is None else ", ".join(version.changed) or "(envelope only)"
    return version.etag, version.at, sanitize(version.subject or ""), sanitize(changed)


def show_diff(printer: Printer, comparison: DiffResult) -> None:
    if not printer.is_human:
        printer.value(comparison.document)
        return
    printer.note(f"{comparison.from_} → {comparison.to}")
    for difference in comparison.differences:
        _show_difference(printer, difference)
    if not comparison.differences:
        printer.note("The records are equal; visibility, invitees or aliases may differ.")
    if not comparison.complete:
        printer.note("Not all differences are shown.", style="yellow")


def _show_difference(printer: Printer, difference: JsonDifference) -> None:
    printer.line(Text(sanitize(difference.path), style="bold"))
    for sign, value, style in (("-", difference.before, "red"), ("+", difference.after, "green")):
        if value is not msgspec.UNSET:
            printer.line(Text(f"  {sign} {_value_text(value)}", style=style))


def _value_text(value: Any) -> str:
    return truncate(value if isinstance(value, str) else dump_json(value).decode(), _VALUE_CHARS)
