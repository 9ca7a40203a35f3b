"""`waypost swarm join|leave|list|members|broadcast|messages`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import httpx2
import msgspec

from waypost.cli.completion import complete_agent
from waypost.cli.options import example, signer_options
from waypost.cli.output import Printer, count_noun, sanitize
from waypost.cli.session import Session, find_agent_uri, use_agent, with_session
from waypost.responses.messaging import SwarmMembership, SwarmMemberView, SwarmMessage, SwarmView


@click.group(epilog=example("waypost swarm join agent:bob.example.com collaborative-analysis"))
def swarm_group() -> None:
    """Manage swarms: agents that work on one task together."""


@swarm_group.command(
    "join",
    epilog=example(
        "waypost swarm join agent:bob.example.com collaborative-analysis",
        "waypost swarm join agent:bob.example.com review --role reviewer --host agent:alice.example.com",
    ),
)
@click.argument("agent", shell_complete=complete_agent)
@click.argument("task")
@click.option("--role", default="participant", show_default=True, help="The role of the agent in the swarm.")
@click.option("--host", metavar="AGENT", help="The agent that hosts the swarm.  [default: the service itself]")
@click.option("--callback", metavar="URL", help="An https URL that receives the broadcasts.")
@signer_options
@with_session
def join(
    session: Session,
    signer: httpx2.Auth | None,
    agent: str,
    task: str,
    role: str,
    host: str | None,
    callback: str | None,
) -> None:
    """Add AGENT to the swarm of TASK."""
    printer = session.printer()
    member = find_agent_uri(session, agent)
    with session.client(signer) as client:

        def join_of(host: str | None) -> SwarmMembership:
            return client.join_swarm(member, task, role, host=host, callback=callback)

        swarm = join_of(None) if host is None else use_agent(client, host, join_of)
    if not printer.is_human:
        printer.value(msgspec.to_builtins(swarm))
        return
    printer.line(swarm.swarm_id)
    _show_members(printer, swarm.members)


@swarm_group.command("leave", epilog=example("waypost swarm leave SWARM agent:bob.example.com"))
@click.argument("swarm")
@click.argument("agent", shell_complete=complete_agent)
@signer_options
@with_session
def leave(session: Session, signer: httpx2.Auth | None, swarm: str, agent: str) -> None:
    """Remove AGENT from a SWARM."""
    member = find_agent_uri(session, agent)
    with session.client(signer) as client:
        _show(session.printer(), client.leave_swarm(swarm, member))


@swarm_group.command("list", epilog=example("waypost swarm list"))
@signer_options
@with_session
def list_swarms(session: Session, signer: httpx2.Auth | None) -> None:
    """List the swarms that your agents are members of."""
    printer = session.printer()
    with session.client(signer) as client:
        found = client.list_swarms()
    if not printer.is_human:
        printer.values(_value(swarm) for swarm in found)
        return
    for swarm in found:
        members = count_noun(len(swarm.members), "member")
        printer.line(f"{swarm.swarm_id}  {sanitize(swarm.task)}  {members}  {sanitize(swarm.host)}")
    if not found:
        printer.note("No swarms. Join one with `waypost swarm join`.")


@swarm_group.command("members", epilog=example("waypost swarm members SWARM"))
@click.argument("swarm")
@signer_options
@with_session
def members(session: Session, signer: httpx2.Auth | None, swarm: str) -> None:
    """Show the members of a SWARM."""
    with session.client(signer) as client:
        _show(session.printer(), client.swarm_members(swarm))


@swarm_group.command("broadcast", epilog=example("waypost swarm broadcast SWARM agent:bob.example.com 'half is done'"))
@click.argument("swarm")
@click.argument("agent", shell_complete=complete_agent)
@click.argument("content")
@click.option("--type", "content_type", default="text/plain", show_default=True, help="The media type of the content.")
@signer_options
@with_session
def broadcast(
    session: Session, signer: httpx2.Auth | None, swarm: str, agent: str, content: str, content_type: str
) -> None:
    """Send a message to all members of a SWARM, as the member AGENT."""
    member = find_agent_uri(session, agent)
    with session.client(signer) as client:
        _show_messages(session.printer(), (client.broadcast(swarm, member, content, content_type),))


@swarm_group.command("messages", epilog=example("waypost swarm messages SWARM --after 12"))
@click.argument("swarm")
@click.option("--after", type=int, default=0, help="Only messages after this number.")
@signer_options
@with_session
def messages(session: Session, signer: httpx2.Auth | None, swarm: str, after: int) -> None:
    """Show the messages of a SWARM."""
    with session.client(signer) as client:
        _show_messages(session.printer(), client.swarm_messages(swarm, after))


def _show(printer: Printer, swarm: SwarmView) -> None:
    if not printer.is_human:
        printer.value(_value(swarm))
        return
    printer.line(f"{swarm.swarm_id}  {sanitize(swarm.task)}  of {sanitize(swarm.host)}")
    _show_members(printer, swarm.members)


def _show_members(printer: Printer, found: Iterable[SwarmMemberView]) -> None:
    for member in found:
        printer.line(f"  {sanitize(member.role)}  {sanitize(member.agent)}{_mark(member.verdict)}")


def _show_messages(printer: Printer, found: Iterable[SwarmMessage]) -> None:
    if not printer.is_human:
        printer.values(msgspec.to_builtins(message) for message in found)
        return
    found = tuple(found)
    if not found:
        printer.note("No messages.")
    for message in found:
        sender = sanitize(message.from_) + _mark(message.verdict)
        printer.line(f"{message.number}  {sender}  {sanitize(message.content)}")


def _mark(verdict: str) -> str:
    """Shown beside a name that is not proven."""
    return "" if verdict in ("", "verified") else f" ({sanitize(verdict)})"


def _value(swarm: SwarmView) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(swarm)
    return value
