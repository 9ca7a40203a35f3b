"""`waypost list`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click
from rich.table import Column
from rich.text import Text

from waypost.cli.options import example, texts
from waypost.cli.output import Printer
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean
from waypost.client.agent import Agent

TERMINAL_ROWS = 100


@click.command(
    epilog=example("waypost list", "waypost list --tag finance --protocol a2a", "waypost list -o jsonl | jq -r .id")
)
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Only agents with this tag; repeat for more.")
@click.option("-p", "--protocol", metavar="NAME", help="Only agents that speak this protocol.")
@click.option("--status", metavar="STATUS", help="active, inactive, suspended, deprecated or testing.")
@click.option("--owner", metavar="SUBJECT", help="Only agents of this owner.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="At most so many.  [default: all; 100 on a terminal]")
@with_session
def command(
    session: Session,
    tags: tuple[str, ...],
    protocol: str | None,
    status: str | None,
    owner: str | None,
    limit: int | None,
) -> None:
    """List the agents that you may see."""
    printer = session.printer()
    with session.client() as client:
        agents = client.list(tags=texts(tags), protocol=protocol, status=status, owner=owner)
        if not printer.is_human:
            printer.values(islice(agents, limit))
        else:
            _show(printer, agents, limit or (TERMINAL_ROWS if printer.is_terminal else None), told=limit is not None)


def _show(printer: Printer, agents: Iterator[Agent], limit: int | None, *, told: bool) -> None:
    chosen = islice(agents, limit)
    if not printer.is_terminal:
        printer.rows(_cells(agent) for agent in chosen)
        return
    shown = [_cells(agent) for agent in chosen]
    if not shown:
        printer.note("No agents. Register one with `waypost register FILE`.")
        return
    columns = (
        Column("NAME", style="bold", max_width=40),
        Column("ID", style="cyan", overflow="fold", min_width=min(64, max(len(cells[0]) for cells in shown))),
        Column("PROTOCOLS", max_width=20),
        Column("TAGS", style="dim", overflow="ellipsis", no_wrap=True, ratio=1),
        Column("STATUS"),
    )
    printer.table(columns, [_row(*cells) for cells in shown])
    if not told and next(agents, None) is not None:
        printer.note(f"The first {len(shown)} are shown; --limit N shows more.")


def _cells(agent: Agent) -> tuple[str, str, str, str, str]:
    return (
        clean(agent.id),
        clean(agent.name),
        clean(", ".join(agent.protocols)),
        clean(", ".join(agent.tags)),
        clean(agent.status),
    )


def _row(agent_id: str, name: str, protocols: str, tags: str, status: str) -> tuple[Text, ...]:
    style = "green" if status == "active" else "yellow"
    return Text(name), Text(agent_id), Text(protocols), Text(tags), Text(status, style=style)
