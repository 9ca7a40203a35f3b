"""`waypost chat AGENT`: a conversation on a terminal, or of lines in a pipe."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import click
from rich.text import Text

from waypost import limits
from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize_lines, without_none
from waypost.cli.resolution import LookupOptions, lookup_options, make_resolver
from waypost.cli.session import Session, with_session
from waypost.client.chat import ChatMessage
from waypost.client.contacts import DomainContacts
from waypost.client.identity import make_key, read_key, write_key
from waypost.client.peer_connection import PeerConnectionEvent
from waypost.errors import NotFound, Timeout, Unavailable, WaypostError
from waypost.live import LiveAgent
from waypost.model.verdict import Verdict
from waypost.net.address_policy import AddressPolicy
from waypost.trust.keys.private_key import PrivateKey

KEY_FILE = "keys/chat.pem"
_KEY_ONLY_SUFFIX = ".key.invalid"  # a name that nobody can have (RFC 2606): who has none is known by a key alone
_PROMPT = "you> "


@click.command(
    epilog=example(
        "waypost chat agent:127.0.0.1",
        "waypost chat alice.example.com --as agent:me.example.com --key me.pem",
        "waypost chat agent:bob.example.com --url wss://bob.example.com/agent/chat --fingerprint ed25519:Vkda…",
        "echo 'translate an invoice' | waypost chat agent:127.0.0.1 -o jsonl",
    )
)
@click.argument("agent", metavar="AGENT")
@click.option("--as", "speaker", metavar="AGENT-URI", help="Who you are, where you have a name of your own.")
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Your Ed25519 key.")
@click.option("--url", metavar="WSS-URL", help="Where the agent is, instead of what its document says.")
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
    looking: LookupOptions,
) -> None:
    """Talk to an agent. Who is there, and how that is known, is told first; Ctrl-D ends.

    Lines of a pipe are asked one by one. Answers go to stdout, all else to stderr. The agent's key is taken from its domain,
    from --fingerprint, or from the registry; your own key is made on first use and kept in the data folder.
    """
    printer, connection = session.printer(), session.connection()
    settings = session.settings()
    own = read_key(key) if key is not None else _own_key(settings.data)
    name = speaker or f"agent:{_name_of(own)}"
    live = LiveAgent(
        name,
        own,
        registry=connection.base_url,
        token=connection.token,
        ca=connection.ca or settings.fetch_ca,
        contacts=(
            DomainContacts(
                make_resolver(session, looking), _address_check(looking.allow_cidrs or settings.allow_cidrs)
            ),
        ),
        news=ConnectionReporter(printer),
    )
    try:
        asyncio.run(_converse(printer, live, session, agent, url, fingerprint))
    except KeyboardInterrupt:
        printer.note("")


async def _converse(
    printer: Printer, live: LiveAgent, session: Session, wanted: str, url: str | None, fingerprint: str | None
) -> None:
    async with live:
        peer = _agent_of(session, wanted)
        if url is not None or fingerprint is not None:
            live.knows(peer, url=url, fingerprint=fingerprint)
        await live.talk(peer)
        said: list[ChatMessage] = []
        async for line in _lines(printer):
            try:
                await _ask(printer, live, peer, line, session.timeout or limits.AGP_ANSWER_SECONDS, said)
            except Timeout as error:
                printer.note(str(error), style="yellow")
        if printer.output == "json":
            printer.value([_value(message) for message in said])


async def _ask(
    printer: Printer, live: LiveAgent, peer: str, line: str, seconds: float, said: list[ChatMessage]
) -> None:
    is_first = True
    async for message in live.stream(peer, line, timeout=seconds):
        if printer.output == "jsonl":
            printer.value(_value(message))
        elif printer.output == "json":
            said.append(message)
        elif message.text:
            _show(printer, message, is_first)
            is_first = False
    if printer.is_human and not is_first:
        printer.console.print("")


def _show(printer: Printer, message: ChatMessage, is_first: bool) -> None:
    """Parts of one answer go on where the last one ended."""
    text = Text()
    if is_first and printer.is_terminal:
        text.append(message.sender.removeprefix("agent:") + "> ", style="bold cyan")
    text.append(sanitize_lines(message.text))
    printer.console.print(text, end="", soft_wrap=True)


async def _lines(printer: Printer) -> AsyncIterator[str]:
    """What is typed, or what is in the pipe, line by line. A thread waits for it, and for nothing else."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    turn = threading.Semaphore(1)

    def read() -> None:
        while True:
            turn.acquire()
            line = _read_line(printer)
            loop.call_soon_threadsafe(queue.put_nowait, line)
            if line is None:
                return

    threading.Thread(target=read, daemon=True).start()
    while (line := await queue.get()) is not None:
        if line.strip():
            yield line.strip()
        turn.release()


def _read_line(printer: Printer) -> str | None:
    try:
        if sys.stdin.isatty():
            return input(_PROMPT if printer.is_human else "")
        return sys.stdin.readline() or None
    except (EOFError, ValueError):
        return None


class ConnectionReporter:
    """What becomes of the line, told once for each change: while it is tried again and again there is nothing to tell."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._last = ""

    def __call__(self, news: PeerConnectionEvent) -> None:
        peer, again = news.peer.removeprefix("agent:"), self._last in ("lost", "kept")
        if news.event == "open":
            there = f"{peer} is back" if again else f"{peer} is there"
            self._printer.note(f"{there}: {_verdict_text(news.verdict)}. Ctrl-D ends.", style="green")
        elif news.event == "lost" and not again:
            self._printer.note(f"The line to {peer} is lost ({news.reason}); it is opened again …", style="yellow")
        elif news.event == "kept":
            self._printer.note(f"{peer}: {news.reason}.", style="yellow")
        self._last = news.event


def _verdict_text(verdict: Verdict | None) -> str:
    if verdict is None or verdict.state != "passed":
        return "its key is known, but not that it is there now (an older handshake)"
    by = {
        "domain": "its domain",
        "pin": "a pin",
        "registry": "the registry's verified document",
        "invitation": "an invitation",
        "given": "the fingerprint that you gave",
        "token": "a token",
    }[verdict.evidence["key_by"]]
    return f"peer-verified, its key is known by {by} ({verdict.evidence['fingerprint'][:19]}…)"


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


def _agent_of(session: Session, wanted: str) -> str:
    """An Agent URI, a domain, or the id of an agent in the registry."""
    if wanted.startswith("agent:"):
        return wanted
    try:
        with session.client() as client:
            found = client.document(wanted, "adp").body["identity"]
            if found["id"] != f"agent:{urlsplit(session.connection().base_url).hostname}":
                return str(found["id"])
            raise Unavailable(
                f"{wanted} has no domain, so nobody can talk to it.",
                path="agent",
                hint="Give it one with `waypost host DOMAIN AGENT`; the service itself is talked to by its Agent URI.",
            )
    except NotFound:
        pass
    except WaypostError:
        if "/" in wanted or ":" in wanted:
            raise
    return f"agent:{wanted}"


def _address_check(allowed: Iterable[str]) -> Callable[[str, int], None]:
    """Where a stranger's DNS leads is not followed into private networks unless they are named."""
    policy = AddressPolicy(allowed)
    return lambda address, port: policy.check(ipaddress.ip_address(address), port)


def _own_key(data: Path) -> PrivateKey:
    path = data / KEY_FILE
    if not path.exists():
        write_key(path, make_key("ed25519"))
    return read_key(path)


def _name_of(key: PrivateKey) -> str:
    return key.public.key_id.removeprefix("sha256:")[:16] + _KEY_ONLY_SUFFIX
