"""`waypost renew`, `share`, `confirm` and `withdraw`: change or end a registration."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click
from rich.text import Text

from waypost.cli.completion import complete_agent
from waypost.cli.options import example, parse_duration_option, split_values
from waypost.cli.output import Printer, report_error, sanitize
from waypost.cli.session import Session, use_agent, with_session
from waypost.cli.views import show_receipt
from waypost.errors import Unauthorized, Unavailable, WaypostError, error_codes
from waypost.responses.agents import PendingChangeView, PendingDifference


@click.command(epilog=example("waypost renew weather-reporter", "waypost renew weather-reporter --ttl 1h"))
@click.argument("id", shell_complete=complete_agent)
@click.option(
    "--ttl", type=parse_duration_option, metavar="DURATION", help="The new lease from now on, e.g. 90s, 15m, 1h."
)
@with_session
def renew(session: Session, id: str, ttl: int | None) -> None:  # noqa: A002
    """Renew the lease of an agent."""
    with session.client() as client:
        show_receipt(session.printer(), use_agent(client, id, lambda agent: client.renew(agent, ttl)))


@click.command(
    epilog=example("waypost share salary-bot --add alice --add bob", "waypost share salary-bot --remove bob")
)
@click.argument("id", shell_complete=complete_agent)
@click.option("--add", multiple=True, metavar="NAME", help="Share with this subject. Repeatable.")
@click.option("--remove", multiple=True, metavar="NAME", help="Stop sharing with this subject. Repeatable.")
@with_session
def share(session: Session, id: str, add: tuple[str, ...], remove: tuple[str, ...]) -> None:  # noqa: A002
    """Share a private agent with subjects; without options, list them."""
    printer = session.printer()
    with session.client() as client:
        receipt = use_agent(
            client, id, lambda agent: client.share(agent, add=split_values(add), remove=split_values(remove))
        )
    show_receipt(printer, receipt)
    if printer.is_human:
        printer.line("shared with " + (", ".join(map(sanitize, receipt.invitees or ())) or "nobody"))


@click.command(
    epilog=example(
        "waypost confirm agent:alice.example.com",
        "waypost confirm agent:alice.example.com --reject",
        "waypost confirm agent:alice.example.com --show -o json | jq .changes",
    )
)
@click.argument("id", shell_complete=complete_agent)
@click.option("--reject", is_flag=True, help="Reject the change.")
@click.option("--show", is_flag=True, help="Only show the pending change.")
@click.option("--etag", metavar="ETAG", help="Confirm or reject without asking, if the pending change has this etag.")
@with_session
def confirm(session: Session, id: str, reject: bool, show: bool, etag: str | None) -> None:  # noqa: A002
    """Show the pending change of a verified agent, then confirm or reject it.

    A change of the endpoint, key or authentication of a verified agent takes effect when its owner or an admin confirms it.
    A change that is signed with the agent's own key takes effect at once.
    """
    printer = session.printer()
    with session.client() as client:
        id, pending = use_agent(client, id, lambda agent: (agent, client.held(agent)))  # noqa: A001
        if show:
            _show_pending(printer, pending, id)
            return
        if etag is None:
            etag = _ask_confirmation(printer, pending, id, reject=reject)
        show_receipt(printer, client.reject(id, etag) if reject else client.confirm(id, etag))


def _ask_confirmation(printer: Printer, pending: PendingChangeView, agent_id: str, *, reject: bool) -> str:
    """Ask on the terminal. Without one, --etag has to name the change."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        verb = "confirm ID --reject" if reject else "confirm ID"
        raise click.UsageError(f"Without a terminal, --etag is required: `waypost {verb} --etag {pending.etag}`.")
    for line in _pending_lines(pending, agent_id):
        printer.notes.print(line, soft_wrap=True)
    click.confirm("Reject it?" if reject else "Confirm it?", abort=True, err=True)
    return pending.etag


def _show_pending(printer: Printer, pending: PendingChangeView, agent_id: str) -> None:
    if not printer.is_human:
        printer.value(pending.document)
        return
    for line in _pending_lines(pending, agent_id):
        printer.line(line)


def _pending_lines(pending: PendingChangeView, agent_id: str) -> Iterator[Text]:
    yield Text(
        f"{sanitize(agent_id)}: sent by {sanitize(pending.subject or '?')} on {pending.at}, pending until {pending.expires_at}"
    )
    for change in pending.changes:
        yield Text(f"  {sanitize(change.part)}", style="bold")
        for side, mark, style in (
            (_difference_values(change, "before"), "-", "red"),
            (_difference_values(change, "after"), "+", "green"),
        ):
            for value in side:
                yield Text(f"    {mark} {sanitize(value)}", style=style)
    yield Text(f"  etag {pending.etag}", style="dim")


def _difference_values(change: PendingDifference, side: str) -> list[str]:
    """The values of one side; of two lists, the items that only this side has."""
    own, other = (change.before, change.after) if side == "before" else (change.after, change.before)
    if isinstance(own, list) and isinstance(other, list):
        return [_value_text(item) for item in own if item not in other]
    return [] if own is None else [_value_text(own)]


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


@click.command(
    epilog=example("waypost withdraw weather-reporter", "waypost list --tag old | cut -f1 | xargs waypost withdraw")
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=complete_agent)
@click.option("--if-match", metavar="ETAG", help="Only if this is the current version.")
@with_session
def withdraw(session: Session, ids: tuple[str, ...], if_match: str | None) -> int:
    """Remove agents. Only their owner or an admin may do so."""
    printer = session.printer()
    withdrawn: list[dict[str, str]] = []
    code = 0
    with session.client() as client:

        def withdraw_one(agent_id: str) -> str:
            client.withdraw(agent_id, if_match)
            return agent_id

        for agent_id in ids:
            try:
                agent_id = use_agent(client, agent_id, withdraw_one)
            except (Unauthorized, Unavailable):
                raise
            except WaypostError as error:
                report_error(error, agent_id)
                code = code or error_codes(error).exit
            else:
                withdrawn.append({"id": agent_id, "outcome": "withdrawn"})
    if printer.is_human:
        for item in withdrawn:
            printer.line(f"withdrawn  {sanitize(item['id'])}")
    else:
        printer.values(withdrawn)
    return code
