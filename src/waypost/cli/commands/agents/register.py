"""`waypost register FILE|URL|DOMAIN|-…`.

The service fetches a document at an address, and on a terminal the command shows it and asks before it is registered. With
--local the command fetches it, for networks that the service cannot reach.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from waypost import limits
from waypost.cli.completion import complete_dialect
from waypost.cli.local_fetch import fetch_locally, find_loopback_url
from waypost.cli.options import example, parse_duration_option
from waypost.cli.output import Printer, report_error, sanitize
from waypost.cli.session import Session, with_session
from waypost.cli.views import agent_card, receipt_value, show_receipt, show_warnings, trust_word
from waypost.client.keep import KeptAgent
from waypost.client.requests import WriteOptions
from waypost.client.sync.client import SyncClient
from waypost.domains.target import is_domain
from waypost.errors import (
    AddressDenied,
    FetchFailed,
    InvalidRequest,
    Unauthorized,
    Unavailable,
    WaypostError,
    error_codes,
)
from waypost.model.verdict import TrustSummary
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.responses.agents import Agent, FetchedAgent, FetchResult, Receipt

_FILES = (".json", ".jsonl", ".ndjson", ".rtfs", ".txt", ".yaml", ".yml", ".toml", ".pem")

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

_STATES = {"passed": "green", "failed": "red", "unknown": "yellow", "not_checked": "dim"}

_CARDS_SHOWN = 5  # of a catalog; the others are shown as lines


class FetchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with the fetched documents: `dry_run` never registers, `yes` never asks."""

    yes: bool = False
    dry_run: bool = False
    dialect: str | None = None
    visibility: str | None = None
    ttl_seconds: int | None = None
    organisation: bool = False  # all agents that the domain lists


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def is_address(name: str) -> bool:
    """Whether it is a URL, a domain or an agent URI, and neither a file nor named like one."""
    if is_url(name) or name.lower().startswith("agent:"):
        return True
    return not name.lower().endswith(_FILES) and not Path(name).exists() and is_domain(name)


def register_url(client: SyncClient, printer: Printer, url: str, choice: FetchOptions) -> FetchResult | None:
    """Fetch, show and register; None if the user declined or `dry_run` is set."""
    is_interactive = printer.is_terminal and sys.stdin.isatty() and not choice.yes
    if not choice.dry_run and not is_interactive:
        found = _fetch(client, url, choice, save=True)
        for agent in found.agents:
            if agent.error is None:
                printer.note(f"found: {agent.dialect} {agent.name!r} at {found.url}")
        return found
    found = _fetch(client, url, choice, save=False)
    show_fetched(printer, found)
    if choice.dry_run or not click.confirm("Register?", default=True, err=True):
        return None
    return _fetch(client, url, choice, save=True, digest=found.digest)


def _fetch(client: SyncClient, url: str, choice: FetchOptions, *, save: bool, digest: str | None = None) -> FetchResult:
    return client.fetch(
        url,
        save,
        dialect=choice.dialect,
        visibility=choice.visibility if save else None,
        ttl_seconds=choice.ttl_seconds if save else None,
        digest=digest,
        organisation=choice.organisation and not is_url(url),
    )


def show_fetched(printer: Printer, found: FetchResult) -> None:
    if not printer.is_human:
        printer.value(found.document)
        return
    for number, agent in enumerate(found.agents):
        if agent.error is not None:
            report_error(agent.error.to_error(), f"{found.url}[{number}]")
        elif number < _CARDS_SHOWN and printer.is_terminal:
            printer.console.print(agent_card(Agent.from_document(agent.agent or {})))
            for line in _agent_lines(agent):
                printer.line(line)
        else:
            printer.line(f"found  {sanitize(agent.id)}  ({sanitize(agent.dialect)})  {sanitize(agent.name)}")
            for line in _agent_lines(agent):
                printer.line(line)


def _agent_lines(agent: FetchedAgent) -> Iterator[Text]:
    yield _labelled("found at", f"{agent.url} ({agent.dialect})")
    trust = agent.trust or TrustSummary(level="self_asserted")
    for check in trust.checks or ():
        reason = f": {check.reason}" if check.reason else ""
        yield _labelled(check.check, f"{check.state}{reason}", _STATES.get(check.state, ""))
    yield _labelled("trust", trust_word(trust.level))
    for loss in agent.losses or ():
        yield _labelled("lost", f"{loss.path} ({loss.reason})")
    for warning in agent.warnings or ():
        yield _labelled("warning", warning, "yellow")
    if agent.existing is not None:
        whose = "yours" if agent.existing.yours else "another owner's"
        yield _labelled("registered", f"already, {whose}", "" if agent.existing.yours else "yellow")


def _labelled(label: str, text: str, style: str = "") -> Text:
    return Text().append(f"  {sanitize(label):<18}", style="dim").append(sanitize(text), style=style)


class RegisterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How documents at addresses are fetched and registered."""

    yes: bool
    dry_run: bool
    local: bool


@click.command(
    epilog=example(
        "waypost register agent.json",
        "waypost register card.json server.json --visibility internal",
        "waypost register https://agents.example.net/.well-known/agent-card.json",
        "waypost register https://agents.example.net --dry-run",
        "waypost register http://localhost:9999",
        "waypost register alice.example.com",
        "waypost register agent.json --keep",
        "generate-card | waypost register -",
    )
)
@click.argument("files", nargs=-1, required=True, metavar="FILE|URL|DOMAIN|-...")
@click.option(
    "--dialect",
    metavar="NAME",
    shell_complete=complete_dialect,
    help="The dialect, if it should not be recognised from the content.",
)
@click.option("--visibility", type=click.Choice(("public", "internal", "private")), help="The visibility of the agent.")
@click.option("--ttl", type=parse_duration_option, metavar="DURATION", help="The lease, e.g. 15m, 1h.")
@click.option("--if-match", metavar="ETAG", help="Only if this is the current version.")
@click.option("--base", metavar="URL", help="The base of relative URLs in the document.")
@click.option("--keep", is_flag=True, help="Stay in the foreground, renew the lease, and withdraw the agents on exit.")
@click.option("--yes", is_flag=True, help="Register what an address offers without asking.")
@click.option("--dry-run", is_flag=True, help="Show what an address offers, and register nothing.")
@click.option("--local", is_flag=True, help="Fetch URLs from this machine instead of from the service.")
@with_session
def register(
    session: Session,
    files: tuple[str, ...],
    ttl: int | None,
    yes: bool,
    dry_run: bool,
    local: bool,
    keep: bool,
    **write: str | None,
) -> int:
    """Register agents from files, from addresses, or from standard input (-).

    The service fetches documents at addresses: public ones, and private ones in its setting allow_cidrs. An origin means its
    well-known documents, a domain the agent that its DNS names, which is resolved again regularly. On a terminal the
    documents are shown before they are registered. An address on this machine is fetched by the command itself.

    The dialect of each document is recognised from its content. To register many documents at once, use import.

    With --keep the command runs until it is stopped (Ctrl-C, SIGTERM). If it is killed, the lease (--ttl, default 60s) ends
    by itself.
    """
    printer = session.printer()
    write_options = WriteOptions(ttl_seconds=ttl, **write)
    if keep:
        if dry_run or write_options.if_match is not None:
            raise click.UsageError("--keep cannot be combined with --dry-run or --if-match.")
        return _keep(session, printer, files, write_options, local=local)
    receipts: list[Receipt] = []
    failures: list[tuple[WaypostError, str | None]] = []
    code = 0
    with session.client() as client:
        for name in files:
            try:
                for receipt in _register(
                    session, client, name, write_options, RegisterOptions(yes=yes, dry_run=dry_run, local=local)
                ):
                    receipts.append(receipt)
                    _show_progress(printer, receipt, name if len(files) > 1 else None)
            except WaypostError as error:
                if isinstance(error, Unauthorized | Unavailable) and not isinstance(error, FetchFailed):
                    raise
                failures.append((error, name if len(files) > 1 else None))
                code = code or error_codes(error).exit
                if printer.is_human:
                    _report_failure(failures.pop(), local=local)
    _show_receipts(printer, receipts, single=len(files) == 1)
    for failure in failures:  # JSON: after all warnings
        _report_failure(failure, local=local)
    return code


def _report_failure(failure: tuple[WaypostError, str | None], *, local: bool) -> None:
    error, subject = failure
    if isinstance(error, AddressDenied) and not local:
        error.hint = f"{error.hint or ''} Or use --local to fetch it from this machine.".strip()
    report_error(error, subject)


def _register(
    session: Session, client: SyncClient, name: str, write_options: WriteOptions, options: RegisterOptions
) -> Iterator[Receipt]:
    local_url = find_loopback_url(name) or (name if options.local and is_url(name) else None)
    if local_url is not None:
        yield from _from_this_machine(session, client, local_url, write_options, dry_run=options.dry_run)
        return
    if is_address(name):
        yield from _from_url(session.printer(), client, name, write_options, options)
        return
    if options.dry_run:
        raise click.UsageError("--dry-run is for URLs and domains. `waypost validate FILE` checks a file.")
    if name != "-" and Path(name).is_dir():
        raise InvalidRequest(
            f"{name} is a folder.",
            path=name,
            hint=f"`waypost import {name}` registers the documents in it, `waypost apply {name}` also keeps them up to date.",
        )
    yield _send(client, sys.stdin.buffer.read() if name == "-" else Path(name), write_options)


def _from_this_machine(
    session: Session, client: SyncClient, url: str, write_options: WriteOptions, *, dry_run: bool
) -> Iterator[Receipt]:
    """Fetch the documents here and send them: the service must not connect to addresses that only callers may reach."""
    printer = session.printer()
    found_at, documents = fetch_locally(url, session.settings(), write_options.dialect)
    for document in documents:
        context = DecodeContext(now=time.time(), source_url=found_at, base_url=write_options.base)
        dialect, _, decoded = decode_document(document, write_options.dialect, context)
        if dry_run:
            trust = trust_word(client.verify_document(document, dialect).level)
            printer.line(f"found  {sanitize(decoded.record.id)}  ({dialect})  {sanitize(decoded.record.name)}  {trust}")
            continue
        printer.note(f"found: {dialect} {decoded.record.name!r} at {found_at}")
        yield _send(client, document, msgspec.structs.replace(write_options, fetched_from=found_at))


def _send(client: SyncClient, document: bytes | Path, options: WriteOptions) -> Receipt:
    return client.register(
        document,
        dialect=options.dialect,
        visibility=options.visibility,
        ttl_seconds=options.ttl_seconds,
        if_match=options.if_match,
        base=options.base,
        fetched_from=options.fetched_from,
    )


def _keep(session: Session, printer: Printer, files: tuple[str, ...], options: WriteOptions, *, local: bool) -> int:
    """Keep the agents registered until a signal ends the command, or the service refuses one of them."""
    ended = threading.Event()

    def report(agent: KeptAgent) -> None:
        if agent.is_lost:
            ended.set()
        elif agent.error is not None:
            printer.note(f"{agent.id}: not renewed, trying again: {agent.error.message}", style="yellow")

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: ended.set())
    with session.client() as client, contextlib.ExitStack() as stack:
        agents = []
        for document, found_at in _read_kept(session, files, options, local=local):
            agent = stack.enter_context(
                client.keep(
                    document,
                    dialect=options.dialect,
                    visibility=options.visibility,
                    ttl_seconds=options.ttl_seconds or limits.KEEP_TTL_SECONDS,
                    base=options.base,
                    fetched_from=found_at,
                    on_change=report,
                )
            )
            agents.append(agent)
            _show_progress(printer, agent.receipt, None)
        _show_receipts(printer, [agent.receipt for agent in agents], single=len(files) == 1)
        if printer.is_human:
            printer.note("The lease is renewed until you stop the command (Ctrl-C), which withdraws the agent.")
        ended.wait()
    for agent in agents:
        if agent.is_lost and agent.error is not None:
            raise agent.error
        if printer.is_human:
            printer.line(f"withdrawn  {sanitize(agent.id)}")
    return 0


def _read_kept(
    session: Session, files: tuple[str, ...], options: WriteOptions, *, local: bool
) -> Iterator[tuple[bytes | Path, str | None]]:
    """The documents to keep registered, each with its URL. The service cannot renew what only it has fetched."""
    for name in files:
        url = find_loopback_url(name) or (name if local and is_url(name) else None)
        if url is not None:
            found_at, documents = fetch_locally(url, session.settings(), options.dialect)
            yield from ((document, found_at) for document in documents)
        elif is_address(name):
            raise click.UsageError(
                f"--keep needs the document: {name} is fetched by the service. Add --local, or use a file."
            )
        else:
            yield (sys.stdin.buffer.read() if name == "-" else Path(name)), None


def _from_url(
    printer: Printer, client: SyncClient, url: str, write_options: WriteOptions, options: RegisterOptions
) -> Iterator[Receipt]:
    choice = FetchOptions(
        yes=options.yes,
        dry_run=options.dry_run,
        dialect=write_options.dialect,
        visibility=write_options.visibility,
        ttl_seconds=write_options.ttl_seconds,
    )
    found = register_url(client, printer, url, choice)
    for agent in found.agents if found is not None else ():
        if agent.error is not None:
            raise agent.error.to_error()
        if agent.receipt is not None:
            yield agent.receipt


def _show_progress(printer: Printer, receipt: Receipt, subject: str | None) -> None:
    if printer.is_human:
        show_receipt(printer, receipt, subject)
    else:
        show_warnings(printer, receipt, subject)


def _show_receipts(printer: Printer, receipts: list[Receipt], *, single: bool) -> None:
    if printer.is_human:
        return
    values: list[Any] = [receipt_value(receipt) for receipt in receipts]
    if len(values) == 1 and single:
        printer.value(values[0])
    elif values:
        printer.values(values)
