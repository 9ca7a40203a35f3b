"""`waypost chat AGENT`: a conversation on a terminal, or line by line in a pipe."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import click
from rich.text import Text

from waypost import limits
from waypost.cli.commands.network.resolve import LookupOptions, lookup_options, make_resolver
from waypost.cli.completion import complete_agent
from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize_lines, without_none
from waypost.cli.session import Session, find_agent_uri, with_session
from waypost.client.chat import ChatMessage
from waypost.client.contacts import DomainContacts
from waypost.client.identity import key_only_agent, load_chat_key, read_key
from waypost.client.peer_connection import PeerConnectionEvent
from waypost.errors import Timeout
from waypost.live import LiveAgent
from waypost.model.verdict import Verdict
from waypost.net.address_policy import AddressPolicy

_PROMPT = "you> "


@click.command(
    epilog=example(
        "waypost chat agent:127.0.0.1",
        "waypost chat alice.example.com --as agent:me.example.com --key me.pem",
        "waypost chat agent:bob.example.com --url wss://bob.example.com/agent/chat --fingerprint ed25519:Vkda…",
        "echo 'translate an invoice' | waypost chat agent:127.0.0.1 -o jsonl",
    )
)
@click.argument("agent", metavar="AGENT", shell_complete=complete_agent)
@click.option("--as", "speaker", metavar="AGENT-URI", help="Your own Agent URI, if you have one.")
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Your Ed25519 key.")
@click.option("--url", metavar="WSS-URL", help="The address of the agent, instead of the one in its document.")
@click.option("--fingerprint", metavar="ed25519:…", help="The key that the agent must have.")
@lookup_options
@with_session
def chat(
    session: Session,
    agent: str,
    speaker: str | None,
    key: Path | None,
    url: str | None,
    fingerprint: str | None,
    lookup: LookupOptions,
) -> None:
    """Talk to an agent. The verification of the agent is shown first; Ctrl-D ends the chat.

    Lines of a pipe are sent one by one. Answers go to stdout, all else to stderr. The agent's key comes from its domain,
    --fingerprint or the registry; your own key is created on first use and stored in the data folder.
    """
    printer = session.printer()
    live = make_live_agent(session, lookup, speaker=speaker, key=key, news=ConnectionReporter(printer))
    try:
        asyncio.run(_converse(printer, live, session, agent, url, fingerprint))
    except KeyboardInterrupt:
        printer.note("")


def make_live_agent(
    session: Session,
    lookup: LookupOptions,
    *,
    speaker: str | None = None,
    key: Path | None = None,
    news: Callable[[PeerConnectionEvent], None] | None = None,
) -> LiveAgent:
    """The user as an agent: with the given name and key, else with a key of the data folder, which is created on first use."""
    connection, settings = session.connection(), session.settings()
    own = read_key(key) if key is not None else load_chat_key(settings.data)
    return LiveAgent(
        speaker or key_only_agent(own),
        own,
        registry=connection.base_url,
        token=connection.token,
        ca=connection.ca or settings.fetch_ca,
        contacts=(
            DomainContacts(make_resolver(session, lookup), _address_check(lookup.allow_cidrs or settings.allow_cidrs)),
        ),
        news=news,
    )


async def _converse(
    printer: Printer, live: LiveAgent, session: Session, agent: str, url: str | None, fingerprint: str | None
) -> None:
    async with live:
        peer = find_agent_uri(session, agent)
        if url is not None or fingerprint is not None:
            live.knows(peer, url=url, fingerprint=fingerprint)
        await live.talk(peer)
        messages: list[ChatMessage] = []
        async for line in _lines(printer):
            try:
                await _ask(printer, live, peer, line, session.timeout or limits.AGP_ANSWER_SECONDS, messages)
            except Timeout as error:
                printer.note(str(error), style="yellow")
        if printer.output == "json":
            printer.value([_value(message) for message in messages])


async def _ask(
    printer: Printer, live: LiveAgent, peer: str, line: str, seconds: float, messages: list[ChatMessage]
) -> None:
    is_first = True
    async for message in live.stream(peer, line, timeout=seconds):
        if printer.output == "jsonl":
            printer.value(_value(message))
        elif printer.output == "json":
            messages.append(message)
        elif message.text:
            _show(printer, message, is_first)
            is_first = False
    if printer.is_human and not is_first:
        printer.console.print("")


def _show(printer: Printer, message: ChatMessage, is_first: bool) -> None:
    """Parts of one answer are printed without line breaks between them."""
    text = Text()
    if is_first and printer.is_terminal:
        text.append(message.sender.removeprefix("agent:") + "> ", style="bold cyan")
    text.append(sanitize_lines(message.text))
    printer.console.print(text, end="", soft_wrap=True)


async def _lines(printer: Printer) -> AsyncIterator[str]:
    """Lines typed or piped in. A thread reads them, because reading blocks."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    permit = threading.Semaphore(1)

    def read() -> None:
        while True:
            permit.acquire()
            line = _read_line(printer)
            loop.call_soon_threadsafe(queue.put_nowait, line)
            if line is None:
                return

    threading.Thread(target=read, daemon=True).start()
    while (line := await queue.get()) is not None:
        if line.strip():
            yield line.strip()
        permit.release()


def _read_line(printer: Printer) -> str | None:
    try:
        if sys.stdin.isatty():
            return input(_PROMPT if printer.is_human else "")
        return sys.stdin.readline() or None
    except (EOFError, ValueError):
        return None


class ConnectionReporter:
    """Reports changes of the connection, but not repeated attempts to reconnect."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._last = ""

    def __call__(self, news: PeerConnectionEvent) -> None:
        peer, is_reconnect = news.peer.removeprefix("agent:"), self._last in ("lost", "kept")
        if news.event == "open":
            state = f"Reconnected to {peer}" if is_reconnect else f"Connected to {peer}"
            self._printer.note(f"{state}: {_verdict_text(news.verdict)}. Ctrl-D ends the chat.", style="green")
        elif news.event == "lost" and not is_reconnect:
            self._printer.note(f"Lost the connection to {peer} ({news.reason}); reconnecting …", style="yellow")
        elif news.event == "kept":
            self._printer.note(f"{peer}: {news.reason}.", style="yellow")
        self._last = news.event


def _verdict_text(verdict: Verdict | None) -> str:
    if verdict is None or verdict.state != "passed":
        return "its key is known, but it did not prove that it holds it (older handshake)"
    source = {
        "domain": "its domain",
        "pin": "a pin",
        "registry": "its verified document in the registry",
        "invitation": "an invitation",
        "given": "--fingerprint",
        "token": "a token",
    }[verdict.evidence["key_by"]]
    return f"peer-verified, key from {source} ({verdict.evidence['fingerprint'][:19]}…)"


def _value(message: ChatMessage) -> dict[str, object]:
    return without_none(
        {
            "from": message.sender,
            "id": message.id,
            "reply_to": message.reply_to,
            "text": message.text,
            "content_type": message.content_type,
            "more": message.more or None,
            "verified": message.verified,
        }
    )


def _address_check(allowed: Iterable[str]) -> Callable[[str, int], None]:
    """DNS records of strangers are not followed into private networks, unless these are named."""
    policy = AddressPolicy(allowed)
    return lambda address, port: policy.check(ipaddress.ip_address(address), port)
