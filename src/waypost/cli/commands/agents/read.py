"""`waypost get`, `diff`, `list` and `watch`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TypeAlias

import click
from rich.table import Column
from rich.text import Text

from waypost.cli.completion import complete_agent, complete_dialect
from waypost.cli.options import WholeNumber, example, filter_options, split_values
from waypost.cli.output import Printer, sanitize
from waypost.cli.session import Session, use_agent, with_session
from waypost.cli.views import MATCH_STYLES, agent_card, show_diff, show_health, show_history, trust_word
from waypost.client.requests import Document
from waypost.model.query import MATCHES, Match
from waypost.responses.agents import Agent, Change


@click.command(
    epilog=example(
        "waypost get https://agents.example.net/translator",
        "waypost get weather-reporter --as a2a > agent-card.json",
        "waypost get weather-reporter --as a2a --form 0.3",
        "waypost get weather-reporter --as rtfs --form profile > weather.rtfs",
        "waypost get weather-reporter -o json | jq .bindings",
        "waypost get weather-reporter --history",
        "waypost get weather-reporter --health",
    )
)
@click.argument("id", shell_complete=complete_agent)
@click.option(
    "--as",
    "as_",
    metavar="DIALECT",
    shell_complete=complete_dialect,
    help="profile, af, rtfs, announce, adp, a2a, ard, mcp or oasf.",
)
@click.option(
    "--form",
    type=click.Choice(("card", "profile", "current", "0.3")),
    help="With --as rtfs: card, or profile for the (agent-profile …) text. With --as a2a or mcp: current. With --as a2a: "
    "0.3.",
)
@click.option("--history", is_flag=True, help="List its stored versions, newest first.")
@click.option("--health", is_flag=True, help="Show the health of its endpoint, if the service checks it.")
@with_session
def get(session: Session, id: str, as_: str | None, form: str | None, *, history: bool, health: bool) -> None:  # noqa: A002
    """Show the agent with this id, alias or short name: the last part of its id, or its name, if it is unique.

    --as shows its document in that dialect; in the dialect of its registration, as it was received.
    """
    printer = session.printer()
    if form is not None and as_ is None:
        raise click.UsageError("--form needs --as rtfs, a2a or mcp.")
    if history or health:
        if as_ is not None or (history and health):
            raise click.UsageError("--history, --health and --as cannot be combined.")
        with session.client() as client:
            if history:
                show_history(printer, use_agent(client, id, client.history))
            else:
                show_health(printer, use_agent(client, id, client.agent_health))
        return
    with session.client() as client:
        document = use_agent(client, id, lambda agent: client.document(agent, as_ or "profile", form))
    _show_document(printer, document, card=as_ is None)
    if printer.is_human and document.trust is not None:
        printer.note(f"trust: {trust_word(document.trust)}  (`waypost verify ID` explains it)")
    if printer.is_human and document.health is not None:
        printer.note(f"health: {document.health}  (details: `waypost get ID --health`)")
    for loss in document.losses:
        printer.note(f"lost in {document.dialect}: {loss.path} ({loss.reason})")


def _show_document(printer: Printer, document: Document, *, card: bool) -> None:
    if not printer.is_human:
        printer.value(document.body or document.content.decode())
    elif not printer.is_terminal or not document.body:
        printer.raw(document.content)
    elif card:
        printer.console.print(agent_card(Agent.from_document(document.body), document.trust))
    else:
        printer.value(document.body)


@click.command(
    epilog=example(
        "waypost diff weather-reporter",
        "waypost get weather-reporter --history",
        "waypost diff weather-reporter xWwHLg2AbNZEMz31pcO7MR -o json",
    )
)
@click.argument("id", shell_complete=complete_agent)
@click.argument("from_", metavar="[FROM]", required=False)
@click.argument("to", required=False)
@with_session
def diff(session: Session, id: str, from_: str | None, to: str | None) -> None:  # noqa: A002
    """Show how two versions of an agent differ.

    FROM and TO are etags of `waypost get ID --history`. TO defaults to the current version, FROM to the one before. Put --
    before an etag that begins with a dash.
    """
    with session.client() as client:
        show_diff(session.printer(), use_agent(client, id, lambda agent: client.diff(agent, from_, to)))


HEALTH_STATUSES = ("suspect", "dead", "unhealthy")  # shown instead of the status that the agent declares

TERMINAL_ROWS = 100

GAP = 2  # between columns

MIN_TAG_WIDTH = 14  # a narrower column of tags is useless

_NO_AGENTS = "No agents. Register one with `waypost register FILE`."
_NONE_MATCH = "No agent matches these filters. `waypost facets` shows the tags, protocols, statuses and owners in use."

Cells: TypeAlias = tuple[str, str, str, str, str]  # id, name, protocols, tags, status


@click.command(
    epilog=example("waypost list", "waypost list --tag finance --protocol https", "waypost list -o jsonl | jq -r .id")
)
@filter_options
@click.option("-n", "--limit", type=WholeNumber(min=1), help="The maximum number.  [default: all; 100 on a terminal]")
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
            rows = limit or (TERMINAL_ROWS if printer.is_terminal else None)
            is_filtered = bool(tags or protocol or status or owner)
            _show_page(printer, agents, rows, is_limited=limit is not None, is_filtered=is_filtered)
        if tags and not first:
            for warning in client.facets("status", tags=split_values(tags)).warnings:
                printer.note(f"warning: {warning}", style="yellow")


def _show_page(
    printer: Printer, agents: Iterator[Agent], limit: int | None, *, is_limited: bool, is_filtered: bool
) -> None:
    chosen = islice(agents, limit)
    none = _NONE_MATCH if is_filtered else _NO_AGENTS
    if not printer.is_terminal:
        first = next(chosen, None)
        if first is None:
            printer.note(none)
        else:
            printer.rows(_cells(agent) for agent in chain((first,), chosen))
        return
    shown = [_cells(agent) for agent in chosen]
    if not shown:
        printer.note(none)
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


CHANGE_STYLES = {"registered": "green", "updated": "cyan", "renewed": "dim", "withdrawn": "red", "expired": "yellow"}


@click.command(
    epilog=example(
        "waypost watch",
        'waypost watch --query "translate an invoice"',
        "waypost watch --from 0 --agents -o jsonl",
        "waypost watch --count 1 --from CURSOR",
    )
)
@click.option("--from", "cursor", metavar="CURSOR", help="Start after this cursor; 0 is the beginning.  [default: now]")
@click.option("--query", metavar="TEXT", help="Only agents that fit this task.")
@click.option(
    "--min-match", type=click.Choice(MATCHES), help="With --query, the weakest match to show.  [default: possible]"
)
@click.option("--renewals", is_flag=True, help="Include lease renewals.")
@click.option("--agents", is_flag=True, help="Include the agent in each change.")
@click.option("-n", "--count", type=WholeNumber(min=1), help="Exit after this many changes.")
@with_session
def watch(
    session: Session,
    cursor: str | None,
    query: str | None,
    min_match: Match | None,
    renewals: bool,
    agents: bool,
    count: int | None,
) -> None:
    """Follow the changes of the registry until interrupted.

    With --query only agents that fit a task are shown, when they are registered or changed.

    JSON output includes the cursor of each change, from which a later watch can resume.
    """
    printer = session.printer()
    with session.client() as client:
        if printer.is_terminal and cursor is None:
            printer.note("Watching; press Ctrl-C to stop.")
        try:
            changes = client.watch(cursor, query=query, min_match=min_match, renewals=renewals, include_agent=agents)
            for change in islice(changes, count):
                _show_change(printer, change)
        except KeyboardInterrupt:
            return


def _show_change(printer: Printer, change: Change) -> None:
    if not printer.is_human:
        printer.output = "jsonl"  # a stream has no end, so it cannot be an array
        printer.value({**change.document, "cursor": change.cursor})
        return
    line = Text().append(f"{sanitize(change.at)}  ", style="dim")
    line.append(f"{change.type:<10}", style=CHANGE_STYLES.get(change.type, ""))
    if change.match is not None:
        line.append(f"  {sanitize(change.match):<8}", style=MATCH_STYLES.get(change.match, ""))
    line.append(f"  {sanitize(change.id)}")
    if change.agent is not None:
        line.append(f"  {sanitize(change.agent.get('name', ''))}", style="dim")
    printer.line(line)
