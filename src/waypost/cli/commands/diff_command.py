"""`waypost diff ID [FROM [TO]]`."""

from __future__ import annotations

import click

from waypost.cli.history import show_comparison
from waypost.cli.options import example
from waypost.cli.session import Session, with_session


@click.command(
    epilog=example(
        "waypost diff weather-reporter",
        "waypost get weather-reporter --history",
        "waypost diff weather-reporter xWwHLg2AbNZEMz31pcO7MR -o json",
    )
)
@click.argument("id")
@click.argument("from_", metavar="[FROM]", required=False)
@click.argument("to", required=False)
@with_session
def command(session: Session, id: str, from_: str | None, to: str | None) -> None:  # noqa: A002
    """Show how two versions of an agent differ.

    FROM and TO are etags as `waypost get ID --history` lists them. Without TO it is the current version, without FROM the one
    before that. Put -- before an etag that begins with a dash.
    """
    with session.client() as client:
        show_comparison(session.printer(), client.diff(id, from_, to))
