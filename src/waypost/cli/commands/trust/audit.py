"""`waypost audit`."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import msgspec
from rich.table import Column
from rich.text import Text

from waypost import limits
from waypost.cli.options import WholeNumber, example
from waypost.cli.output import Printer, sanitize
from waypost.cli.session import Session, with_session
from waypost.client.sync.client import SyncClient
from waypost.model.events import AuditRecord

_DEFAULT_ENTRIES = 50
_POLL_SECONDS = 1.0


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    subject: str | None
    object: str | None
    action: str | None


@click.command(
    epilog=example(
        "waypost audit", "waypost audit --object urn:agent:1", "waypost audit --after 1200 -o jsonl", "waypost audit -f"
    )
)
@click.option(
    "--after",
    type=WholeNumber(min=0),
    metavar="NUMBER",
    help="Only entries after this number.  [default: the last 50]",
)
@click.option("-n", "--limit", type=WholeNumber(min=1), help="The maximum number of entries.")
@click.option("--subject", metavar="NAME", help="Only entries of this subject.")
@click.option("--object", "about", metavar="ID", help="Only entries about this agent, key, rule or domain.")
@click.option("--action", metavar="NAME", help="Only this action: register, update, withdraw, expire, allow, revoke, …")
@click.option("-f", "--follow", is_flag=True, help="Follow new entries until stopped.")
@with_session
def audit(
    session: Session,
    after: int | None,
    limit: int | None,
    subject: str | None,
    about: str | None,
    action: str | None,
    *,
    follow: bool,
) -> None:
    """Show the audit trail: who changed what, when, from where and with which credential. For admins."""
    printer = session.printer()
    options = AuditOptions(subject=subject, object=about, action=action)
    with session.client() as client:
        start = after if after is not None else _start(client, options, limit)
        found = _entries(client, options, start, follow=follow)
        shown = found if limit is None else _first(found, limit)
        if printer.is_terminal and not follow:
            _table(printer, list(shown))
        elif printer.is_human:
            printer.rows(_cells(entry) for entry in shown)
        else:
            printer.values(shown)


def _start(client: SyncClient, options: AuditOptions, limit: int | None) -> int:
    """Start with the newest entries; with a filter, with the first."""
    if options.subject or options.object or options.action:
        return 0
    return max(0, client.audit(limit=1).size - (limit or _DEFAULT_ENTRIES))


def _entries(client: SyncClient, options: AuditOptions, after: int, *, follow: bool) -> Iterator[AuditRecord]:
    while True:
        page = client.audit(
            after, limit=limits.AUDIT_PAGE_MAX, subject=options.subject, object=options.object, action=options.action
        )
        yield from page.entries
        if page.next_after is not None:
            after = page.next_after
        elif follow:
            after = page.size
            time.sleep(_POLL_SECONDS)
        else:
            return


def _first(entries: Iterator[AuditRecord], limit: int) -> Iterator[AuditRecord]:
    for _ in range(limit):
        entry = next(entries, None)
        if entry is None:
            return
        yield entry


def _cells(entry: AuditRecord) -> tuple[str, ...]:
    cells = (entry.at, entry.action, entry.object, entry.subject, entry.outcome, entry.address, entry.credential)
    return str(entry.number), *map(sanitize, cells)


def _table(printer: Printer, entries: list[AuditRecord]) -> None:
    if not entries:
        printer.note("No entries.")
        return
    columns = [
        Column("#", justify="right", style="dim"),
        Column("AT", no_wrap=True),
        Column("ACTION", style="bold", no_wrap=True),
        Column("OBJECT", style="cyan", overflow="fold"),
        Column("SUBJECT", overflow="fold"),
        Column("OUTCOME"),
        Column("FROM", style="dim"),
        Column("WITH", style="dim", overflow="fold"),
    ]
    printer.table(columns, [tuple(map(Text, _cells(entry))) for entry in entries])
