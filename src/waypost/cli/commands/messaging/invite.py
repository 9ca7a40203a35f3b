"""`waypost invite AGENT`, and `invite list|revoke|redeem`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from waypost.cli.completion import complete_agent
from waypost.cli.options import example, parse_duration_option
from waypost.cli.output import sanitize, without_none
from waypost.cli.session import Session, use_agent, with_session
from waypost.model.json import parse_object
from waypost.responses.messaging import InvitationView

_MAKE = "make"


class _InviteGroup(click.Group):
    """`waypost invite AGENT` is `waypost invite make AGENT`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_MAKE, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_InviteGroup,
    epilog=example(
        "waypost invite agent:alice.example.com > invitation.json",
        "waypost invite agent:alice.example.com --uses 5 --ttl 1d",
        "waypost invite redeem invitation.json",
    ),
)
def invite() -> None:
    """Invite others to a private agent, and redeem invitations.

    AGENT is one of your agents; `invite AGENT` is short for `invite make AGENT`.
    """


@invite.command(_MAKE, epilog=example("waypost invite make agent:alice.example.com --uses 5 --ttl 1d"))
@click.argument("agent", shell_complete=complete_agent)
@click.option("--uses", type=int, default=1, show_default=True, help="How often it can be redeemed.")
@click.option("--ttl", type=parse_duration_option, metavar="TIME", help="How long it is valid.  [default: 7d]")
@with_session
def make(session: Session, agent: str, uses: int, ttl: int | None) -> None:
    """Create an invitation to AGENT and print it. Its code is shown only once."""
    printer = session.printer()
    with session.client() as client:
        invitation = use_agent(client, agent, lambda agent_id: client.invite(agent_id, uses=uses, ttl_seconds=ttl))
    if not printer.is_human:
        printer.value(_value(invitation))
        return
    printer.value(invitation.invitation)
    times = "once" if invitation.uses == 1 else f"{invitation.uses} times"
    printer.note(f"Send this to the invitee. It can be redeemed {times}, until {invitation.expires}.")
    printer.note(f"Revoke it with: waypost invite revoke {invitation.id}")


@invite.command("list", epilog=example("waypost invite list", "waypost invite list --agent agent:alice.example.com"))
@click.option("--agent", metavar="AGENT", shell_complete=complete_agent, help="Only those to this agent.")
@with_session
def list_invitations(session: Session, agent: str | None) -> None:
    """List your invitations."""
    printer = session.printer()
    with session.client() as client:
        found = client.list_invitations(agent=agent)
    if not printer.is_human:
        printer.values(_value(invitation) for invitation in found)
        return
    for each in found:
        printer.line(
            f"{each.state:<8}  {each.id}  {each.used}/{each.uses}  until {each.expires}  {sanitize(each.agent)}"
        )
    if not found:
        printer.note("No invitations. Make one with `waypost invite AGENT`.")


@invite.command("revoke", epilog=example("waypost invite revoke 4d2f6a1b9c3e8f70"))
@click.argument("id")
@with_session
def revoke(session: Session, id: str) -> None:  # noqa: A002
    """Revoke an invitation: it cannot be redeemed any more."""
    with session.client() as client:
        client.revoke_invitation(id)


@invite.command("redeem", epilog=example("waypost invite redeem invitation.json", "waypost invite redeem CODE"))
@click.argument("invitation")
@with_session
def redeem(session: Session, invitation: str) -> None:
    """Redeem an INVITATION: a file, - for stdin, or the code of an invitation of this service.

    The agent's document must contain the key that the invitation names; that key is pinned.
    """
    printer = session.printer()
    with session.client() as client:
        redeemed = client.redeem(_parse_invitation(invitation))
    if not printer.is_human:
        printer.value(without_none(msgspec.to_builtins(redeemed)))
        return
    printer.line(f"{sanitize(redeemed.agent)}  {sanitize(redeemed.fingerprint or '')}")
    if redeemed.shared:
        printer.note(f"You can now read the agent: waypost get {redeemed.id}")
    if redeemed.pinned:
        printer.note("Its key is pinned: this agent is accepted with that key only.")


def _parse_invitation(text: str) -> dict[str, Any] | str:
    if text == "-":
        return _strip_envelope(parse_object(sys.stdin.buffer.read()))
    path = Path(text)
    if path.is_file():
        return _strip_envelope(parse_object(path.read_bytes()))
    if not text.isalnum():  # codes have no dots or slashes
        raise click.UsageError(f"{text} is neither a file nor an invitation code.")
    return text


def _strip_envelope(document: dict[str, Any]) -> dict[str, Any]:
    """The invitation itself, also inside the output of `invite make -o json`."""
    inner = document.get("invitation")
    return inner if isinstance(inner, dict) and "invite" not in document else document


def _value(invitation: InvitationView) -> dict[str, Any]:
    return without_none(msgspec.to_builtins(invitation))
