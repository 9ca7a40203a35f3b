"""`waypost resolve DOMAIN|AGENT-URI|URL`, and resolution for other commands.

Without --server the command resolves by itself, with the resolver, trust anchors and ranges of flags, variables and the
settings file. DNS records of strangers are not followed into private networks, unless these are named.
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

from waypost.cli.options import example, split_values
from waypost.cli.output import Printer, count_noun, sanitize
from waypost.cli.session import Session, with_session
from waypost.domains.organisation_index import OrganisationReader
from waypost.domains.resolver import DomainResolver, ResolveOptions
from waypost.model.resolution import DEPTHS, AgentEndpoint, Depth, OrganisationIndex, Resolution, ResolutionStep
from waypost.model.verdict import Verdict
from waypost.net.clock import SystemClock
from waypost.net.outbound import OutboundClient, OutboundOptions
from waypost.settings import Settings, load_settings

EXIT_FAILED = 1

_LOOKUP_FLAGS = ("resolver", "trust_anchors", "legacy_names", "fetch_ca", "trust_ad")


class LookupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Resolver, trust anchors and reachable networks; None is the value of the settings."""

    resolver: str | None = None
    trust_anchors: Path | None = None
    allow_cidrs: tuple[str, ...] | None = None
    legacy_names: bool | None = None
    fetch_ca: Path | None = None
    trust_ad: bool | None = None


def lookup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The flags of `LookupOptions`, which the command receives as `lookup`."""

    @functools.wraps(function)
    def command(*args: Any, **given: Any) -> Any:
        ranges = split_values(given.pop("allow_cidrs")) or None
        flags = {name: given.pop(name) for name in _LOOKUP_FLAGS}
        return function(*args, lookup=LookupOptions(allow_cidrs=ranges, **flags), **given)

    options = (
        click.option("--resolver", metavar="HOST:PORT|URL", help="The DNS resolver to use instead of the system's."),
        click.option(
            "--trust-anchors",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Further DNSSEC trust anchors (DS or DNSKEY records) besides the root's.",
        ),
        click.option(
            "--allow-cidr",
            "--allow-cidrs",
            "allow_cidrs",
            multiple=True,
            metavar="RANGE",
            help="A private range that may be connected to.",
        ),
        click.option(
            "--fetch-ca",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Further certificate authorities to trust; the same as --ca.",
        ),
        click.option(
            "--trust-ad/--no-trust-ad", default=None, help="Trust the resolver's AD bit instead of validating."
        ),
        click.option("--legacy-names/--no-legacy-names", default=None, help="Also try the names of the -01 draft."),
    )
    wrapped: Callable[..., Any] = command
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def resolve(session: Session, lookup: LookupOptions, name: str, depth: Depth) -> Resolution:
    """Resolve with the service named by --server, else in this process."""
    if session.server is not None:
        with session.client() as client:
            return client.resolve(name, depth, fresh=True)
    return asyncio.run(make_resolver(session, lookup).resolve(name, depth))


def read_organisation(session: Session, lookup: LookupOptions, name: str) -> OrganisationIndex:
    """Resolve with the service named by --server, else in this process."""
    if session.server is not None:
        with session.client() as client:
            return client.organisation(name)
    outgoing = make_outgoing(session, lookup)
    follow = _settings(session, lookup).trust_external_index
    return asyncio.run(OrganisationReader(outgoing, outgoing, SystemClock(), follow_signed=follow).read(name)).index


def make_resolver(session: Session, lookup: LookupOptions) -> DomainResolver:
    settings = _settings(session, lookup)
    outgoing = make_outgoing(session, lookup)
    return DomainResolver(outgoing.dns, outgoing, SystemClock(), ResolveOptions(legacy_names=settings.legacy_names))


def _settings(session: Session, lookup: LookupOptions) -> Settings:
    flags = {"data": session.data, **msgspec.structs.asdict(lookup), "fetch_ca": lookup.fetch_ca or session.ca}
    return load_settings(flags, config=session.config)


def make_outgoing(session: Session, lookup: LookupOptions) -> OutboundClient:
    return OutboundClient(OutboundOptions.of(_settings(session, lookup)))


# --- The command ---


@click.command(
    epilog=example(
        "waypost resolve alice.example.com",
        "waypost resolve agent:alice.example.com --until dns",
        "waypost resolve example.com --agents",
        "waypost resolve https://alice.example.com/.well-known/agent.json -o json",
        "waypost resolve alice.example.com --resolver 127.0.0.1:5353 --trust-anchors anchors.txt --allow-cidr 127.0.0.0/8",
    )
)
@click.argument("name", metavar="DOMAIN|AGENT-URI|URL")
@click.option("--until", type=click.Choice(DEPTHS), default="key", show_default=True, help="The last check to run.")
@click.option("--agents", is_flag=True, help="List the agents of an organisation.")
@lookup_options
@with_session
def resolve_name(session: Session, name: str, until: Depth, lookup: LookupOptions, *, agents: bool) -> int:
    """Resolve a domain to its agent: endpoint, document and trust level, with every step.

    No service is needed: DNSSEC is validated here, from the root or from --trust-anchors. With --server that service
    resolves instead. Exits with 1 if there is no agent or a check failed, and with 75 if the DNS did not answer.
    """
    printer = session.printer()
    if agents:
        index = read_organisation(session, lookup, name)
        show_organisation(printer, index)
        return 0 if index.outcome == "resolved" else EXIT_FAILED
    found = resolve(session, lookup, name, until)
    show_resolution(printer, found)
    if found.outcome == "not_found":
        printer.note(f"An organisation may list its agents; try: waypost resolve {found.domain} --agents")
    if any(step.code == "denied" for step in found.steps):
        printer.note("The name leads to a private network; allow it with --allow-cidr (setting allow_cidrs).")
    return exit_code(found)


# --- Output ---

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
    """75 (try again) if no DNS server answered, which says nothing about the agent."""
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
    summary = count_noun(len(found.entries), "agent") if found.entries else found.reason or found.outcome
    yield Text(sanitize(found.domain), style="bold").append(f"  {sanitize(summary)}", style=style)
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
        yield _verdict_line(verdict)
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
    """What was looked up, and the result."""
    evidence = step.evidence
    what = str(
        evidence.get("name") or evidence.get("url") or evidence.get("fingerprint") or evidence.get("domain") or ""
    )
    parts = [what]
    if evidence.get("records") and isinstance(evidence["records"], list | tuple):
        parts.append(" | ".join(map(str, evidence["records"][:3])))
    if evidence.get("pk"):
        parts.append(f"pk={evidence['pk']}")
    if evidence.get("dialect"):
        parts.append(f"({evidence['dialect']})")
    if step.reason:
        parts.append(f"— {step.reason}")
    return "  ".join(part for part in parts if part)


def _cost_of(step: ResolutionStep) -> str:
    queries = f"{_plural(step.queries, 'query', 'queries')}, " if step.queries else ""
    return f"  {queries}{step.took_ms:.1f} ms" if step.took_ms else ""


def _verdict_line(verdict: Verdict) -> Text:
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
    spent = f"{', '.join(counts)}, {cost.fetches} fetched, {cost.took_ms:.0f} ms"
    validity = f"; valid for {found.ttl_seconds} s" if found.ttl_seconds else ""
    return ("cached" if found.remembered else spent) + validity


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _fact_line(label: str, text: Any, style: str = "") -> Text:
    return Text().append(f"  {label:<{_NAME_CHARS + 2}}", style="dim").append(sanitize(str(text)), style=style)
