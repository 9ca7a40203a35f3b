"""Resolving in the command's own process, without a service: with the resolver, the trust anchors and the ranges that flags,
variables or the settings file name. Where a stranger's DNS leads is not followed into private networks unless they are named.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from waypost.cli.options import split_values
from waypost.cli.output import Printer, sanitize
from waypost.cli.session import Session
from waypost.domains.organisation_index import OrganisationReader
from waypost.domains.resolver import DomainResolver, ResolveOptions
from waypost.model.resolution import AgentEndpoint, Depth, OrganisationIndex, Resolution, ResolutionStep
from waypost.model.verdict import Verdict
from waypost.net.clock import SystemClock
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.settings import Settings, load_settings

_LOOKUP_FLAGS = ("resolver", "trust_anchors", "legacy_names", "fetch_ca", "trust_ad")


class LookupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, and what may be connected to; None is what the settings say."""

    resolver: str | None = None
    trust_anchors: Path | None = None
    allow_cidrs: tuple[str, ...] | None = None
    legacy_names: bool | None = None
    fetch_ca: Path | None = None
    trust_ad: bool | None = None


def lookup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of `Looking`, which arrive as `looking`."""

    @functools.wraps(function)
    def command(*args: Any, **given: Any) -> Any:
        ranges = split_values(given.pop("allow_cidrs")) or None
        taken = {name: given.pop(name) for name in _LOOKUP_FLAGS}
        return function(*args, looking=LookupOptions(allow_cidrs=ranges, **taken), **given)

    options = (
        click.option("--resolver", metavar="HOST:PORT|URL", help="Who is asked for names, instead of the system's."),
        click.option(
            "--trust-anchors",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Further DS or DNSKEY records that DNSSEC starts from, beside the root's.",
        ),
        click.option(
            "--allow-cidr",
            "--allow-cidrs",
            "allow_cidrs",
            multiple=True,
            metavar="RANGE",
            help="A private range to follow into.",
        ),
        click.option(
            "--fetch-ca",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Further certificate authorities that are trusted; --ca does the same here.",
        ),
        click.option("--trust-ad/--no-trust-ad", default=None, help="Take the resolver's word instead of validating."),
        click.option("--legacy-names/--no-legacy-names", default=None, help="Try the names of the -01 draft too."),
    )
    wrapped: Callable[..., Any] = command
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def resolve(session: Session, looking: LookupOptions, name: str, depth: Depth) -> Resolution:
    """By the service that --server names, else here."""
    if session.server is not None:
        with session.client() as client:
            return client.resolve(name, depth, fresh=True)
    return asyncio.run(make_resolver(session, looking).resolve(name, depth))


def read_organisation(session: Session, looking: LookupOptions, name: str) -> OrganisationIndex:
    """By the service that --server names, else here."""
    if session.server is not None:
        with session.client() as client:
            return client.organisation(name)
    outgoing = make_outgoing(session, looking)
    follow = _settings(session, looking).trust_external_index
    return asyncio.run(OrganisationReader(outgoing, outgoing, SystemClock(), follow_signed=follow).read(name)).told


def make_resolver(session: Session, looking: LookupOptions) -> DomainResolver:
    settings = _settings(session, looking)
    outgoing = make_outgoing(session, looking)
    return DomainResolver(outgoing.dns, outgoing, SystemClock(), ResolveOptions(legacy_names=settings.legacy_names))


def _settings(session: Session, looking: LookupOptions) -> Settings:
    flags = {"data": session.data, **msgspec.structs.asdict(looking), "fetch_ca": looking.fetch_ca or session.ca}
    return load_settings(flags, config=session.config)


def make_outgoing(session: Session, looking: LookupOptions) -> OutboundClient:
    """The way out of this process."""
    return OutboundClient(OutboundOptions.of(_settings(session, looking)))


# ---- A resolution for people: what was asked step by step, the rungs that were reached, and what it took.

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
    for line in resolution_lines(found):
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
    yield Text(sanitize(found.domain), style="bold").append(f"  {sanitize(told)}", style=style)
    for step in found.steps:
        yield _step_line(step)
    if found.entries:
        yield Text("")
    for entry in found.entries:
        parts = (entry.domain or entry.name, entry.protocol, f"({entry.via})", entry.url)
        yield Text("  ").append(sanitize("  ".join(part for part in parts if part)))
    for warning in found.warnings:
        yield _fact_line("warning", warning, "yellow")


def resolution_lines(found: Resolution) -> Iterator[Text]:
    yield _head(found)
    for step in found.steps:
        yield _step_line(step)
    yield Text("")
    for verdict in found.verdicts:
        yield _rung_line(verdict)
    yield Text("")
    yield from _fact_lines(found)


def _head(found: Resolution) -> Text:
    head = Text(sanitize(found.agent), style="bold")
    if found.outcome == "resolved":
        return head.append("  ").append(found.level, style=_LEVELS.get(found.level, "yellow"))
    style = "yellow" if found.outcome == "not_found" else "bold red"
    head.append("  ").append(found.outcome.replace("_", " "), style=style)
    return head.append(f"  {sanitize(found.reason)}", style="default not bold")


def _step_line(step: ResolutionStep) -> Text:
    mark, style = MARKS[step.state]
    line = Text("  ").append(f"{mark} ", style=style).append(f"{sanitize(step.name):<{_NAME_CHARS}}")
    line.append(sanitize(_step_text(step)))
    dnssec = step.evidence.get("dnssec")
    if dnssec in _DNSSEC and "type" in step.evidence:
        line.append(f"  {dnssec}", style=_DNSSEC[dnssec])
    return line.append(_cost_of(step), style="dim")


def _step_text(step: ResolutionStep) -> str:
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


def _cost_of(step: ResolutionStep) -> str:
    queries = f"{_plural(step.queries, 'query', 'queries')}, " if step.queries else ""
    return f"  {queries}{step.took_ms:.1f} ms" if step.took_ms else ""


def _rung_line(verdict: Verdict) -> Text:
    mark, style = MARKS[verdict.state]
    line = Text("  ").append(f"{mark} ", style=style).append(f"{verdict.check:<{_NAME_CHARS}}", style="bold")
    how = verdict.evidence.get("how")
    found = f"found by {how}, DNSSEC {verdict.evidence.get('dnssec')}" if how else verdict.state.replace("_", " ")
    return line.append(sanitize(verdict.reason or found), style="dim" if verdict.state == "not_checked" else "")


def _fact_lines(found: Resolution) -> Iterator[Text]:
    for endpoint in found.endpoints:
        yield _fact_line("endpoint", _endpoint(endpoint))
    if found.document is not None:
        document = found.document
        yield _fact_line(
            "document", f"{document.name or document.url} ({document.dialect or 'no dialect'})  {document.url}"
        )
    if found.capabilities:
        yield _fact_line("capabilities", ", ".join(found.capabilities))
    if found.key is not None:
        yield _fact_line("key", found.key.fingerprint)
    for warning in found.warnings:
        yield _fact_line("warning", warning, "yellow")
    yield _fact_line("cost", _cost(found))


def _endpoint(endpoint: AgentEndpoint) -> str:
    where = endpoint.url or f"{endpoint.host}:{endpoint.port}"
    return "  ".join(part for part in (where, endpoint.protocol, ",".join(endpoint.alpn)) if part)


def _cost(found: Resolution) -> str:
    cost = found.cost
    counts = (_plural(cost.queries, "query", "queries"), _plural(cost.round_trips, "round trip", "round trips"))
    told = f"{', '.join(counts)}, {cost.fetches} fetched, {cost.took_ms:.0f} ms"
    held = f"; holds for {found.ttl_seconds} s" if found.ttl_seconds else ""
    return ("from memory" if found.remembered else told) + held


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _fact_line(label: str, text: Any, style: str = "") -> Text:
    return Text().append(f"  {label:<{_NAME_CHARS + 2}}", style="dim").append(sanitize(str(text)), style=style)
