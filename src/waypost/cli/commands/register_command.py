"""`waypost register FILE|URL|-…`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from waypost.cli.durations import duration
from waypost.cli.fetching import fetch
from waypost.cli.options import example
from waypost.cli.output import Printer
from waypost.cli.receipts import receipt_value, show_receipt, tell_remarks
from waypost.cli.report import report_error
from waypost.cli.session import Session, with_session
from waypost.client.calls import Writing
from waypost.client.results import Receipt
from waypost.client.sync.client import SyncClient
from waypost.errors import Unauthorized, Unavailable, WaypostError, codes_of

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


@click.command(
    epilog=example(
        "waypost register agent.json",
        "waypost register card.json server.json --visibility internal",
        "waypost register https://agents.example.net/.well-known/agent-card.json",
        "generate-card | waypost register -",
    )
)
@click.argument("files", nargs=-1, required=True, metavar="FILE|URL|-...")
@click.option("--dialect", metavar="NAME", help="Read it as this dialect, whatever its content says.")
@click.option("--visibility", type=click.Choice(("public", "internal", "private")), help="Who may see it.")
@click.option("--ttl", type=duration, metavar="DURATION", help="Let it expire after so long, e.g. 15m, 1h.")
@click.option("--if-match", metavar="ETAG", help="Only if this is still the version that is held.")
@click.option("--base", metavar="URL", help="The origin that relative references in the document belong to.")
@with_session
def command(session: Session, files: tuple[str, ...], ttl: int | None, **how: str | None) -> int:
    """Register agents from files, from addresses, or from standard input (-).

    A document at an address is fetched by this command, not by the service. The dialect of each document is recognised
    from its content. To register many documents at once, use import.
    """
    printer = session.printer()
    writing = Writing(ttl_seconds=ttl, **how)
    receipts: list[Receipt] = []
    code = 0
    with session.client() as client:
        for name in files:
            try:
                receipt = _register(client, name, writing, session.connection().timeout)
            except (Unauthorized, Unavailable):
                raise
            except WaypostError as error:
                report_error(error, name if len(files) > 1 else None)
                code = code or codes_of(error).exit
            else:
                receipts.append(receipt)
                _tell(printer, receipt, name if len(files) > 1 else None)
    _show(printer, receipts, single=len(files) == 1)
    return code


def _register(client: SyncClient, name: str, writing: Writing, timeout: float) -> Receipt:
    content: bytes | Path
    fetched_from = None
    if _URL.match(name):
        content, fetched_from = fetch(name, timeout)
    else:
        content = sys.stdin.buffer.read() if name == "-" else Path(name)
    return client.register(
        content,
        dialect=writing.dialect,
        visibility=writing.visibility,
        ttl_seconds=writing.ttl_seconds,
        if_match=writing.if_match,
        base=writing.base,
        fetched_from=fetched_from,
    )


def _tell(printer: Printer, receipt: Receipt, subject: str | None) -> None:
    if printer.is_human:
        show_receipt(printer, receipt, subject)
    else:
        tell_remarks(printer, receipt, subject)


def _show(printer: Printer, receipts: list[Receipt], *, single: bool) -> None:
    if printer.is_human:
        return
    values = [receipt_value(receipt) for receipt in receipts]
    if not single:
        printer.values(values)
    elif values:
        printer.value(values[0])
