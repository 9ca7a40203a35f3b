"""A resolution for people: what was asked step by step, the rungs that were reached, and what it took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from rich.text import Text

from waypost.cli.output import Printer
from waypost.cli.text import clean
from waypost.model.resolution import Endpoint, OrganisationIndex, Resolution, Step
from waypost.model.verdict import Verdict

MARKS: Final = {
    "passed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "unknown": ("?", "yellow"),
    "not_checked": ("·", "dim"),
}
_LEVELS: Final = {
    "key-verified": "bold green",
    "peer-verified": "bold green",
    "dane-verified": "green",
    "dns-verified": "cyan",
}
_NAME_CHARS: Final = 14
_DNSSEC: Final = {"secure": "green", "insecure": "dim", "bogus": "bold red", "indeterminate": "yellow"}


def exit_code(found: Resolution) -> int:
    """75 is "try again": nobody could be asked, which says nothing of the agent."""
    if found.is_resolved:
        return 0
    return 75 if found.is_unanswered else 1


def show_resolution(printer: Printer, found: Resolution) -> None:
    if not printer.is_human:
        printer.value(msgspec.to_builtins(found))
        return
    for line in lines_of(found):
        printer.line(line)


def show_organisation(printer: Printer, found: OrganisationIndex) -> None:
    if not printer.is_human:
        printer.value(msgspec.to_builtins(found))
        return
    for line in _organisation_lines(found):
        printer.line(line)


def _organisation_lines(found: OrganisationIndex) -> Iterator[Text]:
    style = {"resolved": "green", "not_found": "yellow"}.get(found.outcome, "bold red")
    told = f"{len(found.entries)} agents" if found.entries else found.reason or found.outcome
    yield Text(clean(found.domain), style="bold").append(f"  {clean(told)}", style=style)
    for step in found.steps:
        yield _step_line(step)
    if found.entries:
        yield Text("")
    for entry in found.entries:
        parts = (entry.domain or entry.name, entry.protocol, f"({entry.via})", entry.url)
        yield Text("  ").append(clean("  ".join(part for part in parts if part)))
    for warning in found.warnings:
        yield _line("warning", warning, "yellow")


def lines_of(found: Resolution) -> Iterator[Text]:
    yield _head(found)
    for step in found.steps:
        yield _step_line(step)
    yield Text("")
    for verdict in found.verdicts:
        yield _rung_line(verdict)
    yield Text("")
    yield from _particulars(found)


def _head(found: Resolution) -> Text:
    head = Text(clean(found.agent), style="bold")
    if found.outcome == "resolved":
        return head.append("  ").append(found.level, style=_LEVELS.get(found.level, "yellow"))
    style = "yellow" if found.outcome == "not_found" else "bold red"
    head.append("  ").append(found.outcome.replace("_", " "), style=style)
    return head.append(f"  {clean(found.reason)}", style="default not bold")


def _step_line(step: Step) -> Text:
    mark, style = MARKS[step.state]
    line = Text("  ").append(f"{mark} ", style=style).append(f"{clean(step.name):<{_NAME_CHARS}}")
    line.append(clean(_told(step)))
    dnssec = step.evidence.get("dnssec")
    if dnssec in _DNSSEC and "type" in step.evidence:
        line.append(f"  {dnssec}", style=_DNSSEC[dnssec])
    return line.append(_cost_of(step), style="dim")


def _told(step: Step) -> str:
    """What was asked, and what came of it."""
    seen = step.evidence
    what = str(seen.get("name") or seen.get("url") or seen.get("fingerprint") or seen.get("domain") or "")
    parts = [what]
    if seen.get("records") and isinstance(seen["records"], list | tuple):
        parts.append(" | ".join(map(str, seen["records"][:3])))
    if seen.get("pk"):
        parts.append(f"pk={seen['pk']}")
    if seen.get("dialect"):
        parts.append(f"({seen['dialect']})")
    if step.reason:
        parts.append(f"— {step.reason}")
    return "  ".join(part for part in parts if part)


def _cost_of(step: Step) -> str:
    queries = f"{_counted(step.queries, 'query', 'queries')}, " if step.queries else ""
    return f"  {queries}{step.took_ms:.1f} ms" if step.took_ms else ""


def _rung_line(verdict: Verdict) -> Text:
    mark, style = MARKS[verdict.state]
    line = Text("  ").append(f"{mark} ", style=style).append(f"{verdict.check:<{_NAME_CHARS}}", style="bold")
    how = verdict.evidence.get("how")
    found = f"found by {how}, DNSSEC {verdict.evidence.get('dnssec')}" if how else verdict.state.replace("_", " ")
    return line.append(clean(verdict.reason or found), style="dim" if verdict.state == "not_checked" else "")


def _particulars(found: Resolution) -> Iterator[Text]:
    for endpoint in found.endpoints:
        yield _line("endpoint", _endpoint(endpoint))
    if found.document is not None:
        document = found.document
        yield _line("document", f"{document.name or document.url} ({document.dialect or 'no dialect'})  {document.url}")
    if found.capabilities:
        yield _line("capabilities", ", ".join(found.capabilities))
    if found.key is not None:
        yield _line("key", found.key.fingerprint)
    for warning in found.warnings:
        yield _line("warning", warning, "yellow")
    yield _line("cost", _cost(found))


def _endpoint(endpoint: Endpoint) -> str:
    where = endpoint.url or f"{endpoint.host}:{endpoint.port}"
    return "  ".join(part for part in (where, endpoint.protocol, ",".join(endpoint.alpn)) if part)


def _cost(found: Resolution) -> str:
    cost = found.cost
    counts = (_counted(cost.queries, "query", "queries"), _counted(cost.round_trips, "round trip", "round trips"))
    told = f"{', '.join(counts)}, {cost.fetches} fetched, {cost.took_ms:.0f} ms"
    held = f"; holds for {found.ttl_seconds} s" if found.ttl_seconds else ""
    return ("from memory" if found.remembered else told) + held


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _line(label: str, text: Any, style: str = "") -> Text:
    return Text().append(f"  {label:<{_NAME_CHARS + 2}}", style="dim").append(clean(str(text)), style=style)
