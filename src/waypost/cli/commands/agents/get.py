"""`waypost get ID` and `waypost diff ID [FROM [TO]]`."""

from __future__ import annotations

import click

from waypost.cli.options import example
from waypost.cli.output import Printer
from waypost.cli.session import Session, with_session
from waypost.cli.views import agent_card, show_diff, show_health, show_history, trust_word
from waypost.client.requests import Document
from waypost.responses.agents import Agent


@click.command(
    epilog=example(
        "waypost get https://agents.example.net/translator",
        "waypost get weather-reporter --as a2a > agent-card.json",
        "waypost get weather-reporter --as rtfs --form profile > weather.rtfs",
        "waypost get weather-reporter -o json | jq .bindings",
        "waypost get weather-reporter --history",
        "waypost get weather-reporter --health",
    )
)
@click.argument("id")
@click.option("--as", "as_", metavar="DIALECT", help="profile, af, rtfs, announce, adp, a2a, ard, mcp or oasf.")
@click.option(
    "--form",
    type=click.Choice(("card", "profile", "current")),
    help="With --as rtfs: card, or profile for the (agent-profile …) text. With --as a2a or mcp: current.",
)
@click.option("--history", is_flag=True, help="List its stored versions, newest first.")
@click.option("--health", is_flag=True, help="Show the health of its endpoint, if the service checks it.")
@with_session
def get(session: Session, id: str, as_: str | None, form: str | None, *, history: bool, health: bool) -> None:  # noqa: A002
    """Show the agent with this id or alias.

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
                show_history(printer, client.history(id))
            else:
                show_health(printer, client.agent_health(id))
        return
    with session.client() as client:
        document = client.document(id, as_ or "profile", form)
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
@click.argument("id")
@click.argument("from_", metavar="[FROM]", required=False)
@click.argument("to", required=False)
@with_session
def diff(session: Session, id: str, from_: str | None, to: str | None) -> None:  # noqa: A002
    """Show how two versions of an agent differ.

    FROM and TO are etags of `waypost get ID --history`. TO defaults to the current version, FROM to the one before. Put --
    before an etag that begins with a dash.
    """
    with session.client() as client:
        show_diff(session.printer(), client.diff(id, from_, to))
