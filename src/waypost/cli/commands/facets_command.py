"""`waypost facets`."""

from __future__ import annotations

import click

from waypost.cli.facets import show_facets
from waypost.cli.options import example, texts
from waypost.cli.session import Session, with_session
from waypost.model.query import FACETS


@click.command(epilog=example("waypost facets", "waypost facets --by tag --protocol a2a", "waypost facets -o json"))
@click.option("--by", "names", multiple=True, type=click.Choice(FACETS), help="Count by this; repeat for more.  [all]")
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Only agents with this tag; repeat for more.")
@click.option("-p", "--protocol", metavar="NAME", help="Only agents that speak this protocol.")
@click.option("--status", metavar="STATUS", help="active, inactive, suspended, deprecated or testing.")
@click.option("--owner", metavar="SUBJECT", help="Only agents of this owner.")
@with_session
def command(
    session: Session,
    names: tuple[str, ...],
    tags: tuple[str, ...],
    protocol: str | None,
    status: str | None,
    owner: str | None,
) -> None:
    """Count the agents that you may see, by tag, protocol, status and owner."""
    printer = session.printer()
    with session.client() as client:
        overview = client.facets(*names, tags=texts(tags), protocol=protocol, status=status, owner=owner)
    if not printer.is_human:
        printer.value(overview.document)
        return
    show_facets(printer, overview.facets)
    printer.note(f"{overview.total} agents in all." if overview.total != 1 else "1 agent in all.")
    for warning in overview.warnings:
        printer.note(f"warning: {warning}", style="yellow")
