"""`waypost withdraw ID…`."""

from __future__ import annotations

import click

from waypost.cli.options import example
from waypost.cli.report import report_error
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean
from waypost.errors import Unauthorized, Unavailable, WaypostError, codes_of


@click.command(
    epilog=example("waypost withdraw weather-reporter", "waypost list --tag old | cut -f1 | xargs waypost withdraw")
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--if-match", metavar="ETAG", help="Only if this is still the version that is held.")
@with_session
def command(session: Session, ids: tuple[str, ...], if_match: str | None) -> int:
    """Remove agents. Only their owner, or admin, may."""
    printer = session.printer()
    done: list[dict[str, str]] = []
    code = 0
    with session.client() as client:
        for agent_id in ids:
            try:
                client.withdraw(agent_id, if_match)
            except (Unauthorized, Unavailable):
                raise
            except WaypostError as error:
                report_error(error, agent_id)
                code = code or codes_of(error).exit
            else:
                done.append({"id": agent_id, "outcome": "withdrawn"})
    if printer.is_human:
        for item in done:
            printer.line(f"withdrawn  {clean(item['id'])}")
    else:
        printer.values(done)
    return code
