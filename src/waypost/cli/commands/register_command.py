"""`waypost register FILE|URL|DOMAIN|-…`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from waypost.cli.durations import duration
from waypost.cli.fetching import fetch_here
from waypost.cli.found import Choice, is_address, is_url, take_url
from waypost.cli.options import example
from waypost.cli.output import Printer
from waypost.cli.receipts import receipt_value, show_receipt, tell_remarks
from waypost.cli.report import report_error
from waypost.cli.session import Session, with_session
from waypost.client.calls import Writing
from waypost.client.results import Failure, Receipt
from waypost.client.sync.client import SyncClient
from waypost.errors import AddressDenied, FetchFailed, Unauthorized, Unavailable, WaypostError, codes_of


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How addresses are treated."""

    yes: bool
    dry_run: bool
    local: bool


@click.command(
    epilog=example(
        "waypost register agent.json",
        "waypost register card.json server.json --visibility internal",
        "waypost register https://agents.example.net/.well-known/agent-card.json",
        "waypost register https://agents.example.net --dry-run",
        "waypost register alice.example.com",
        "generate-card | waypost register -",
    )
)
@click.argument("files", nargs=-1, required=True, metavar="FILE|URL|DOMAIN|-...")
@click.option("--dialect", metavar="NAME", help="Read it as this dialect, whatever its content says.")
@click.option("--visibility", type=click.Choice(("public", "internal", "private")), help="Who may see it.")
@click.option("--ttl", type=duration, metavar="DURATION", help="Let it expire after so long, e.g. 15m, 1h.")
@click.option("--if-match", metavar="ETAG", help="Only if this is still the version that is held.")
@click.option("--base", metavar="URL", help="The origin that relative references in the document belong to.")
@click.option("--yes", is_flag=True, help="Register what is at an address without a question.")
@click.option("--dry-run", is_flag=True, help="Show what is at an address, and register nothing.")
@click.option("--local", is_flag=True, help="Fetch addresses from this machine instead of from the service.")
@with_session
def command(
    session: Session, files: tuple[str, ...], ttl: int | None, yes: bool, dry_run: bool, local: bool, **how: str | None
) -> int:
    """Register agents from files, from addresses, or from standard input (-).

    A document at an address is fetched by the service, which reaches public addresses, and private ones that its setting
    allow_cidrs names. An origin alone stands for its well-known documents, a domain for the agent that its DNS names, which
    is looked up again from time to time. On a terminal what was found is shown before it is registered.

    The dialect of each document is recognised from its content. To register many documents at once, use import.
    """
    printer = session.printer()
    writing = Writing(ttl_seconds=ttl, **how)
    receipts: list[Receipt] = []
    code = 0
    with session.client() as client:
        for name in files:
            try:
                for receipt in _register(session, client, name, writing, Manner(yes=yes, dry_run=dry_run, local=local)):
                    receipts.append(receipt)
                    _tell(printer, receipt, name if len(files) > 1 else None)
            except WaypostError as error:
                if isinstance(error, Unauthorized | Unavailable) and not isinstance(error, FetchFailed):
                    raise
                report_error(error, name if len(files) > 1 else None)
                if isinstance(error, AddressDenied) and not local:
                    printer.note("  or:   --local fetches it from this machine.")
                code = code or codes_of(error).exit
    _show(printer, receipts, single=len(files) == 1)
    return code


def _register(session: Session, client: SyncClient, name: str, writing: Writing, manner: Manner) -> Iterator[Receipt]:
    if is_address(name) and not (manner.local and is_url(name)):
        yield from _from_url(session.printer(), client, name, writing, manner)
        return
    if manner.dry_run:
        raise click.UsageError("--dry-run is for addresses that the service fetches.")
    content: bytes | Path
    fetched_from = None
    if is_url(name):
        content, fetched_from = fetch_here(name, session.settings())
    else:
        content = sys.stdin.buffer.read() if name == "-" else Path(name)
    yield client.register(
        content,
        dialect=writing.dialect,
        visibility=writing.visibility,
        ttl_seconds=writing.ttl_seconds,
        if_match=writing.if_match,
        base=writing.base,
        fetched_from=fetched_from,
    )


def _from_url(printer: Printer, client: SyncClient, url: str, writing: Writing, manner: Manner) -> Iterator[Receipt]:
    choice = Choice(
        yes=manner.yes,
        dry_run=manner.dry_run,
        dialect=writing.dialect,
        visibility=writing.visibility,
        ttl_seconds=writing.ttl_seconds,
    )
    found = take_url(client, printer, url, choice)
    for agent in found.agents if found is not None else ():
        if isinstance(agent, Failure):
            raise agent.error
        if agent.receipt is not None:
            yield agent.receipt


def _tell(printer: Printer, receipt: Receipt, subject: str | None) -> None:
    if printer.is_human:
        show_receipt(printer, receipt, subject)
    else:
        tell_remarks(printer, receipt, subject)


def _show(printer: Printer, receipts: list[Receipt], *, single: bool) -> None:
    if printer.is_human:
        return
    values: list[Any] = [receipt_value(receipt) for receipt in receipts]
    if len(values) == 1 and single:
        printer.value(values[0])
    elif values:
        printer.values(values)
