"""`waypost browse`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from waypost.cli.commands.network.transports import TransportFactory, TransportOptions, transport_options
from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize, truncate, without_none
from waypost.cli.session import Session, with_session
from waypost.cli.views import trust_badge, trust_word
from waypost.client.announcer import WallClock
from waypost.client.identity import TrustFile
from waypost.errors import InvalidParameter, WaypostError
from waypost.model.json import JsonObject
from waypost.model.times import to_rfc3339
from waypost.model.verdict import level_of
from waypost.transports.factory import has_mdns
from waypost.transports.port import Sighting, Transport

TRUST_FILE = "announced/trust.json"  # in the data folder
_KEEP_SECONDS = 5.0
_GONE = ("removed", "expired")
STYLES = {"added": "green", "updated": "cyan", "rotated": "magenta", "suspect": "yellow"}


@click.command(
    epilog=example("waypost browse", "waypost browse --timeout 5 -o jsonl", "waypost browse --udp --interface eth0")
)
@transport_options
@with_session
def browse(session: Session, **carriers: Any) -> None:
    """Show the agents on the LAN as they come and go, and how far each is verified, until interrupted.

    With --timeout it ends by itself after so many seconds. Keys are bound on first use, and kept: another key under an
    agent_id that was ever seen is not believed, and not shown, unless the first one vouches for it.
    """
    settings, chosen = session.settings(), TransportOptions(**carriers)
    named = chosen.is_named
    trust = TrustFile(settings.data / TRUST_FILE)
    addresses = chosen.addresses(session) if chosen.registry else []
    made = TransportFactory(carriers=chosen, settings=settings, clock=WallClock(), addresses=addresses, trust=trust)
    transports = made.transports(mdns=not named and has_mdns(), udp=not named)
    asyncio.run(_browse(session.printer(), transports, trust, session.timeout))


async def _browse(printer: Printer, transports: list[Transport], trust: TrustFile, seconds: float | None) -> None:
    around = SightingTable(printer)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, ended.set)
    opened = await _open(printer, transports)
    with around:
        for transport in opened:
            await transport.subscribe(around.take)
        keeping = asyncio.create_task(_save_trust(trust))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()
        keeping.cancel()
    for transport in opened:
        await transport.close()
    trust.keep()
    around.end()


async def _save_trust(trust: TrustFile) -> None:
    while True:
        await asyncio.sleep(_KEEP_SECONDS)
        trust.keep()


async def _open(printer: Printer, transports: list[Transport]) -> list[Transport]:
    """What cannot be opened is told, and left out."""
    opened: list[Transport] = []
    failures: list[WaypostError] = []
    for transport in transports:
        try:
            await transport.open()
            opened.append(transport)
        except WaypostError as error:
            failures.append(error)
            printer.note(f"{transport.name}: {error.message}", style="yellow")
    if not opened:
        raise (
            failures[0]
            if failures
            else InvalidParameter(
                "There is nothing to listen on.", path="--udp", hint="Leave --no-mdns and --no-udp out."
            )
        )
    return opened


class SightingTable:
    """The agents that are there, by transport, and how they are shown: a live table, lines, or values."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._seen: dict[str, dict[str, Sighting]] = {}
        self._live = Live(console=printer.console, auto_refresh=False) if printer.is_terminal else None

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()
            self._refresh()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def take(self, sighting: Sighting) -> None:
        seen = self._seen.setdefault(sighting.agent_id, {})
        if sighting.kind in _GONE:
            seen.pop(sighting.transport, None)
        else:
            seen[sighting.transport] = sighting
        if not seen:
            del self._seen[sighting.agent_id]
        if self._live is not None:
            self._refresh()
        elif self._printer.is_human:
            self._printer.rows([(sighting.kind, *_columns(sighting))])
        elif self._printer.output == "jsonl":
            self._printer.value(_value(sighting))

    def end(self) -> None:
        """One array has an end at which it can be told."""
        if self._printer.output == "json":
            self._printer.value([_value(next(iter(seen.values()))) for seen in self._seen.values()])

    def _refresh(self) -> None:
        if self._live is None:
            return
        table = Table(box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0))
        for name in ("agent", "id", "capabilities", "trust", "via", "from"):
            table.add_column(name, overflow="ellipsis", no_wrap=True)
        for seen in self._seen.values():
            table.add_row(*_row(list(seen.values())))
        count = f"{len(self._seen)} agents; Ctrl-C ends."
        self._live.update(Group(table, Text(count, style="dim")), refresh=True)


def _row(sightings: list[Sighting]) -> list[Text]:
    last = sightings[-1]
    agent = _agent(last)
    name = Text(truncate(agent.get("agent_name") or last.agent_id[:8], 32), style=STYLES.get(last.kind, ""))
    via = ",".join(sorted(sighting.transport for sighting in sightings))
    return [
        name,
        Text(last.agent_id, style="dim"),
        Text(truncate(", ".join(_capabilities(agent)), 40)),
        trust_badge(level_of(last.verdicts)),
        Text(via),
        Text(sanitize(last.source), style="dim"),
    ]


def _columns(sighting: Sighting) -> tuple[str, ...]:
    agent = _agent(sighting)
    return (
        sighting.agent_id,
        sanitize(agent.get("agent_name") or ""),
        sanitize(",".join(_capabilities(agent))),
        trust_word(level_of(sighting.verdicts)),
        sighting.transport,
        sanitize(sighting.source),
    )


def _agent(sighting: Sighting) -> JsonObject:
    agent = sighting.message.get("agent") if sighting.message is not None else None
    return agent if isinstance(agent, dict) else {}


def _capabilities(agent: JsonObject) -> list[str]:
    told = agent.get("capabilities")
    return [str(name) for name in told] if isinstance(told, dict) else []


def _value(sighting: Sighting) -> dict[str, Any]:
    return without_none(
        {
            "type": sighting.kind,
            "agent_id": sighting.agent_id,
            "at": to_rfc3339(sighting.at),
            "via": sighting.transport,
            "source": sighting.source,
            "ttl": sighting.ttl,
            "trust": level_of(sighting.verdicts),
            "agent": _agent(sighting) or None,
        }
    )
