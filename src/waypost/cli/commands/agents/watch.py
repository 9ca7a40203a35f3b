"""`waypost watch`."""

from __future__ import annotations

from itertools import islice

import click
from rich.text import Text

from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize
from waypost.cli.session import Session, with_session
from waypost.responses.agents import Change

STYLES = {"registered": "green", "updated": "cyan", "renewed": "dim", "withdrawn": "red", "expired": "yellow"}


@click.command(
    epilog=example("waypost watch", "waypost watch --from 0 --agents -o jsonl", "waypost watch --count 1 --from CURSOR")
)
@click.option("--from", "cursor", metavar="CURSOR", help="Start after this cursor; 0 is the beginning.  [default: now]")
@click.option("--renewals", is_flag=True, help="Include lease renewals.")
@click.option("--agents", is_flag=True, help="Include the agent in each change.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Exit after this many changes.")
@with_session
def watch(session: Session, cursor: str | None, renewals: bool, agents: bool, count: int | None) -> None:
    """Follow the changes of the registry until interrupted.

    JSON output includes the cursor of each change, from which a later watch can resume.
    """
    printer = session.printer()
    with session.client() as client:
        if printer.is_terminal and cursor is None:
            printer.note("Watching; press Ctrl-C to stop.")
        try:
            for change in islice(client.watch(cursor, renewals=renewals, include_agent=agents), count):
                _show(printer, change)
        except KeyboardInterrupt:
            return


def _show(printer: Printer, change: Change) -> None:
    if not printer.is_human:
        printer.output = "jsonl"  # a stream has no end, so it cannot be an array
        printer.value({**change.document, "cursor": change.cursor})
        return
    line = Text().append(f"{sanitize(change.at)}  ", style="dim")
    line.append(f"{change.type:<10}", style=STYLES.get(change.type, ""))
    line.append(f"  {sanitize(change.id)}")
    if change.agent is not None:
        line.append(f"  {sanitize(change.agent.get('name', ''))}", style="dim")
    printer.line(line)
