"""`waypost call AGENT TEXT…`: call an agent by its own binding, from this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from typing import Any

import click
import msgspec

from waypost import limits
from waypost.cli.commands.messaging.chat import make_live_agent
from waypost.cli.commands.network.resolve import LookupOptions
from waypost.cli.completion import complete_agent
from waypost.cli.local_fetch import ALL_NETWORKS
from waypost.cli.options import example
from waypost.cli.output import sanitize_lines
from waypost.cli.session import Session, find_agent_uri, use_agent, with_session
from waypost.client.binding_policy import BindingPolicy
from waypost.client.calls import AgentAnswer
from waypost.client.sync.client import SyncClient
from waypost.errors import NotFound
from waypost.net.address_policy import AddressPolicy
from waypost.responses.agents import Agent

_AGP = "agp"


@click.command(
    epilog=example(
        "waypost call invoice-translator Translate this invoice to French",
        'waypost call calculator --tool add --arguments \'{"a": 1, "b": 2}\'',
        "waypost call weather -H 'Authorization: Bearer TOKEN' Will it rain in Paris -o json",
        "cat letter.txt | waypost call translator",
    )
)
@click.argument("agent", shell_complete=complete_agent)
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@click.option("--tool", metavar="NAME", help="The tool of an MCP server, if it has several.")
@click.option("--arguments", metavar="JSON", help="The arguments of the tool, if it takes more than one text.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME: VALUE", help="A header for the agent. Repeatable."
)
@with_session
def call(
    session: Session,
    agent: str,
    words: tuple[str, ...],
    tool: str | None,
    arguments: str | None,
    headers: tuple[str, ...],
) -> None:
    """Send TEXT to an agent and print its answer. Without TEXT, standard input is sent.

    The agent is called by its own binding: A2A (JSON-RPC or REST, 1.0 or 0.3), MCP over HTTP, AGP, or plain HTTP. The call goes
    from this machine to the agent, with none of your credentials for the service; agents on this machine can be called, too.
    """
    printer = session.printer()
    text = _read_text(words, is_needed=arguments is None)
    given = None if arguments is None else _parse_arguments(arguments)
    with session.client() as client:
        found = _find_agent(client, agent)
        if found is None or _preferred_protocol(found) == _AGP:
            answer = asyncio.run(_call_by_agp(session, agent if found is None else found.id, text))
        else:
            answer = client.call(
                found.id,
                text,
                tool=tool,
                arguments=given,
                headers=dict(map(_parse_header, headers)),
                policy=BindingPolicy(schemes=("https", "http"), local_addresses=True),
                check_address=_check_address,
            )
    if printer.is_human:
        printer.note(f"{answer.agent_id} answered by {answer.protocol} from {answer.endpoint}")
        printer.raw(sanitize_lines(answer.text).encode())
    else:
        members = {"id": answer.agent_id, "protocol": answer.protocol, "endpoint": answer.endpoint}
        printer.value({**members, "text": answer.text, "data": answer.data})


def _read_text(words: tuple[str, ...], *, is_needed: bool) -> str:
    if words or not is_needed:
        return " ".join(words)
    if sys.stdin.isatty():
        raise click.UsageError("Say what to send: `waypost call AGENT TEXT`.")
    return sys.stdin.buffer.read(limits.DOCUMENT_BYTES).decode("utf-8", "replace").strip()


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--arguments is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise click.UsageError('--arguments is a JSON object, like {"a": 1}.')
    return value


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"{text!r} is not NAME: VALUE.")
    return name.strip(), value.strip()


def _preferred_protocol(agent: Agent) -> str | None:
    bindings = sorted(agent.bindings, key=lambda binding: binding.get("priority") or 0)
    return str(bindings[0].get("protocol")) if bindings else None


def _check_address(address: str, port: int) -> None:
    """The user may connect wherever this machine may, except to addresses that hand out credentials."""
    AddressPolicy(ALL_NETWORKS).check(ipaddress.ip_address(address), port)


def _find_agent(client: SyncClient, name: str) -> Agent | None:
    """The agent in the registry; None for an Agent URI that is not registered: its DNS may know it."""
    try:
        return use_agent(client, name, client.get)
    except NotFound:
        if name.startswith("agent:"):
            return None
        raise


async def _call_by_agp(session: Session, agent: str, text: str) -> AgentAnswer:
    """One message of a conversation, signed with the key of `waypost chat`."""
    peer = find_agent_uri(session, agent)
    async with make_live_agent(session, LookupOptions()) as live:
        reply = await live.chat(peer, text, timeout=session.timeout or limits.AGP_ANSWER_SECONDS)
    return AgentAnswer(reply.text, agent_id=agent, protocol=_AGP, endpoint=peer)
