"""`waypost confirm ID`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.text import Text

from waypost.cli.options import example
from waypost.cli.output import Printer
from waypost.cli.receipts import show_receipt
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean
from waypost.client.results import Difference, HeldChange


@click.command(
    epilog=example(
        "waypost confirm agent:alice.example.com",
        "waypost confirm agent:alice.example.com --reject",
        "waypost confirm agent:alice.example.com --show -o json | jq .changes",
    )
)
@click.argument("id")
@click.option("--reject", is_flag=True, help="Forget the change instead.")
@click.option("--show", is_flag=True, help="Only show what waits.")
@click.option("--etag", metavar="ETAG", help="Do it without a question, if this is the change that waits.")
@with_session
def command(session: Session, id: str, reject: bool, show: bool, etag: str | None) -> None:  # noqa: A002
    """Show the change of a verified agent that waits, and let it pass.

    A new endpoint, key or way to authenticate of a verified agent is held until its owner, or admin, confirms it; readers see
    what was. A change that is signed with the agent's own key never waits.
    """
    printer = session.printer()
    with session.client() as client:
        waiting = client.held(id)
        if show:
            _show(printer, waiting, id)
            return
        if etag is None:
            etag = _ask(printer, waiting, id, reject=reject)
        show_receipt(printer, client.reject(id, etag) if reject else client.confirm(id, etag))


def _ask(printer: Printer, waiting: HeldChange, agent_id: str, *, reject: bool) -> str:
    """A confirmation is a person's, or names what it confirms."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        verb = "confirm ID --reject" if reject else "confirm ID"
        raise click.UsageError(f"Without a terminal, name the change: `waypost {verb} --etag {waiting.etag}`.")
    for line in _lines(waiting, agent_id):
        printer.notes.print(line, soft_wrap=True)
    click.confirm("Reject it?" if reject else "Let it pass?", abort=True, err=True)
    return waiting.etag


def _show(printer: Printer, waiting: HeldChange, agent_id: str) -> None:
    if not printer.is_human:
        printer.value(waiting.document)
        return
    for line in _lines(waiting, agent_id):
        printer.line(line)


def _lines(waiting: HeldChange, agent_id: str) -> Iterator[Text]:
    yield Text(
        f"{clean(agent_id)}: sent by {clean(waiting.subject or '?')} on {waiting.at}, waits until {waiting.expires_at}"
    )
    for change in waiting.changes:
        yield Text(f"  {clean(change.part)}", style="bold")
        for side, mark, style in ((_values(change, "before"), "-", "red"), (_values(change, "after"), "+", "green")):
            for value in side:
                yield Text(f"    {mark} {clean(value)}", style=style)
    yield Text(f"  etag {waiting.etag}", style="dim")


def _values(change: Difference, side: str) -> list[str]:
    """What only this side has, where both are lists."""
    own, other = (change.before, change.after) if side == "before" else (change.after, change.before)
    if isinstance(own, list) and isinstance(other, list):
        return [_text(item) for item in own if item not in other]
    return [] if own is None else [_text(own)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
