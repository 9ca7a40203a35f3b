"""`waypost renew ID`."""

from __future__ import annotations

import click

from waypost.cli.durations import duration
from waypost.cli.options import example
from waypost.cli.receipts import show_receipt
from waypost.cli.session import Session, with_session


@click.command(epilog=example("waypost renew weather-reporter", "waypost renew weather-reporter --ttl 1h"))
@click.argument("id")
@click.option("--ttl", type=duration, metavar="DURATION", help="How long from now, e.g. 90s, 15m, 1h.")
@with_session
def command(session: Session, id: str, ttl: int | None) -> None:  # noqa: A002
    """Prolong the lease of an agent."""
    with session.client() as client:
        show_receipt(session.printer(), client.renew(id, ttl))
