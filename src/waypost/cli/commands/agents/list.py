"""`waypost list`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TypeAlias

import click
from rich.table import Column
from rich.text import Text

from waypost.cli.options import example, split_values
from waypost.cli.output import Printer, sanitize
from waypost.cli.session import Session, with_session
from waypost.responses.agents import Agent

HEALTH_STATUSES = ("suspect", "unhealthy")  # shown instead of the status that the agent declares
TERMINAL_ROWS = 100
GAP = 2  # between columns
MIN_TAG_WIDTH = 14  # a narrower column of tags is useless

Cells: TypeAlias = tuple[str, str, str, str, str]  # id, name, protocols, tags, status


@click.command(
    epilog=example("waypost list", "waypost list --tag finance --protocol https", "waypost list -o jsonl | jq -r .id")
)
@click.option("-t", "--tag", "tags", multiple=True, metavar="TAG", help="Only agents with this tag. Repeatable.")
@click.option("-p", "--protocol", metavar="NAME", help="Only agents that speak this protocol.")
@click.option("--status", metavar="STATUS", help="active, inactive, suspended, deprecated or testing.")
@click.option("--owner", metavar="SUBJECT", help="Only agents of this owner.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), help="The maximum number.  [default: all; 100 on a terminal]"
)
@with_session
def list_agents(
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
        listed = client.list(tags=split_values(tags), protocol=protocol, status=status, owner=owner)
        first = list(islice(listed, 1))
        agents = chain(first, listed)
        if not printer.is_human:
            printer.values(islice(agents, limit))
        else:
            _show(
                printer, agents, limit or (TERMINAL_ROWS if printer.is_terminal else None), is_limited=limit is not None
            )
        if tags and not first:
            for warning in client.facets("status", tags=split_values(tags)).warnings:
                printer.note(f"warning: {warning}", style="yellow")


def _show(printer: Printer, agents: Iterator[Agent], limit: int | None, *, is_limited: bool) -> None:
    chosen = islice(agents, limit)
    if not printer.is_terminal:
        printer.rows(_cells(agent) for agent in chosen)
        return
    shown = [_cells(agent) for agent in chosen]
    if not shown:
        printer.note("No agents. Register one with `waypost register FILE`.")
        return
    columns = _columns(shown, printer.console.width)
    printer.table([column for column, _ in columns], [_row(cells, [index for _, index in columns]) for cells in shown])
    if not is_limited and next(agents, None) is not None:
        printer.note(f"Only the first {len(shown)} are shown; --limit N shows more.")


def _cells(agent: Agent) -> Cells:
    return (
        sanitize(agent.id),
        sanitize(agent.name),
        sanitize(", ".join(agent.protocols)),
        sanitize(", ".join(agent.tags)),
        sanitize(agent.health if agent.health in HEALTH_STATUSES else agent.status),
    )


def _columns(rows: list[Cells], width: int) -> list[tuple[Column, int]]:
    """Columns with their index in the cells. Ids are never truncated, because people copy them; protocols and tags are."""
    longest = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    ids, names, protocols = min(longest[0], 64), min(longest[1], 32), max(9, min(longest[2], 16))
    columns = [
        (Column("NAME", style="bold", no_wrap=True, overflow="ellipsis", max_width=names), 1),
        (Column("ID", style="cyan", overflow="fold", max_width=ids), 0),
    ]
    room = width - names - ids - max(6, longest[4]) - 3 * GAP
    if room >= protocols:
        columns.append((Column("PROTOCOLS", no_wrap=True, overflow="ellipsis", max_width=protocols), 2))
        room -= protocols + GAP
    if room >= MIN_TAG_WIDTH:
        columns.append((Column("TAGS", style="dim", no_wrap=True, overflow="ellipsis", max_width=room - GAP), 3))
    return [*columns, (Column("STATUS", no_wrap=True), 4)]


def _row(cells: Cells, places: list[int]) -> tuple[Text, ...]:
    status = "green" if cells[4] == "active" else "yellow"
    return tuple(Text(cells[place], style=status if place == 4 else "") for place in places)
