"""`waypost renew ID`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.text import Text

from waypost.cli.options import example, parse_duration_option, split_values
from waypost.cli.output import Printer, report_error, sanitize
from waypost.cli.session import Session, with_session
from waypost.cli.views import show_receipt
from waypost.client.results import PendingChangeView, PendingDifference
from waypost.errors import Unauthorized, Unavailable, WaypostError, error_codes


@click.command(epilog=example("waypost renew weather-reporter", "waypost renew weather-reporter --ttl 1h"))
@click.argument("id")
@click.option("--ttl", type=parse_duration_option, metavar="DURATION", help="How long from now, e.g. 90s, 15m, 1h.")
@with_session
def renew(session: Session, id: str, ttl: int | None) -> None:  # noqa: A002
    """Prolong the lease of an agent."""
    with session.client() as client:
        show_receipt(session.printer(), client.renew(id, ttl))


# ---- `waypost share ID`.


@click.command(
    epilog=example("waypost share salary-bot --add alice --add bob", "waypost share salary-bot --remove bob")
)
@click.argument("id")
@click.option("--add", multiple=True, metavar="NAME", help="Let this subject see the agent. May be repeated.")
@click.option("--remove", multiple=True, metavar="NAME", help="Let it no longer see it. May be repeated.")
@with_session
def share(session: Session, id: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:  # noqa: A002
    """Choose who besides its owner sees a private agent; without options, show who does."""
    printer = session.printer()
    with session.client() as client:
        receipt = client.share(id, add=split_values(add), remove=split_values(remove))
    show_receipt(printer, receipt)
    if printer.is_human:
        printer.line("shared with " + (", ".join(map(sanitize, receipt.invitees or ())) or "nobody"))


# ---- `waypost confirm ID`.


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
def confirm(session: Session, id: str, reject: bool, show: bool, etag: str | None) -> None:  # noqa: A002
    """Show the change of a verified agent that waits, and let it pass.

    A new endpoint, key or way to authenticate of a verified agent is held until its owner, or admin, confirms it; readers see
    what was. A change that is signed with the agent's own key never waits.
    """
    printer = session.printer()
    with session.client() as client:
        waiting = client.held(id)
        if show:
            _show_pending(printer, waiting, id)
            return
        if etag is None:
            etag = _ask_confirmation(printer, waiting, id, reject=reject)
        show_receipt(printer, client.reject(id, etag) if reject else client.confirm(id, etag))


def _ask_confirmation(printer: Printer, waiting: PendingChangeView, agent_id: str, *, reject: bool) -> str:
    """A confirmation is a person's, or names what it confirms."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        verb = "confirm ID --reject" if reject else "confirm ID"
        raise click.UsageError(f"Without a terminal, name the change: `waypost {verb} --etag {waiting.etag}`.")
    for line in _pending_lines(waiting, agent_id):
        printer.notes.print(line, soft_wrap=True)
    click.confirm("Reject it?" if reject else "Let it pass?", abort=True, err=True)
    return waiting.etag


def _show_pending(printer: Printer, waiting: PendingChangeView, agent_id: str) -> None:
    if not printer.is_human:
        printer.value(waiting.document)
        return
    for line in _pending_lines(waiting, agent_id):
        printer.line(line)


def _pending_lines(waiting: PendingChangeView, agent_id: str) -> Iterator[Text]:
    yield Text(
        f"{sanitize(agent_id)}: sent by {sanitize(waiting.subject or '?')} on {waiting.at}, waits until {waiting.expires_at}"
    )
    for change in waiting.changes:
        yield Text(f"  {sanitize(change.part)}", style="bold")
        for side, mark, style in (
            (_difference_values(change, "before"), "-", "red"),
            (_difference_values(change, "after"), "+", "green"),
        ):
            for value in side:
                yield Text(f"    {mark} {sanitize(value)}", style=style)
    yield Text(f"  etag {waiting.etag}", style="dim")


def _difference_values(change: PendingDifference, side: str) -> list[str]:
    """What only this side has, where both are lists."""
    own, other = (change.before, change.after) if side == "before" else (change.after, change.before)
    if isinstance(own, list) and isinstance(other, list):
        return [_value_text(item) for item in own if item not in other]
    return [] if own is None else [_value_text(own)]


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


# ---- `waypost withdraw ID…`.


@click.command(
    epilog=example("waypost withdraw weather-reporter", "waypost list --tag old | cut -f1 | xargs waypost withdraw")
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--if-match", metavar="ETAG", help="Only if this is still the version that is held.")
@with_session
def withdraw(session: Session, ids: tuple[str, ...], if_match: str | None) -> int:
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
                code = code or error_codes(error).exit
            else:
                done.append({"id": agent_id, "outcome": "withdrawn"})
    if printer.is_human:
        for item in done:
            printer.line(f"withdrawn  {sanitize(item['id'])}")
    else:
        printer.values(done)
    return code
