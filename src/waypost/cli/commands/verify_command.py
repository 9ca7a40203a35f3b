"""`waypost verify`."""

from __future__ import annotations

import click

from waypost.cli.commands.verify_log import ENTRIES, verify_log
from waypost.cli.options import example
from waypost.cli.session import Session, with_session


@click.command(epilog=example("waypost verify --log", "waypost verify --log --entries 200 -o json"))
@click.option("--log", is_flag=True, help="Check the audit trail of the service against what was seen before.")
@click.option(
    "--entries",
    type=click.IntRange(min=0),
    default=ENTRIES,
    show_default=True,
    help="With --log: how many of the newest entries are proved to be in it.",
)
@with_session
def command(session: Session, entries: int, *, log: bool) -> int:
    """Check what a service says. Exits with 1 when a check fails."""
    if not log:
        raise click.UsageError("Say what to check: --log.")
    return verify_log(session, entries)
