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

from waypost.cli.commands.network.transports import (
    TransportFactory,
    TransportOptions,
    note_interfaces,
    transport_options,
)
from waypost.cli.options import example
from waypost.cli.output import Printer, count_noun, sanitize, truncate, without_none
from waypost.cli.session import Session, with_session
from waypost.cli.views import trust_badge, trust_word
from waypost.client.clock import WallClock
from waypost.client.identity import TrustFile
from waypost.errors import InvalidParameter, WaypostError
from waypost.model.json import JsonObject
from waypost.model.times import to_rfc3339
from waypost.model.verdict import level_of
from waypost.transports.factory import TRANSPORTS
from waypost.transports.port import Sighting, Transport

TRUST_FILE = "announced/trust.json"  # in the data folder
_SAVE_SECONDS = 5.0
_GONE = ("removed", "expired")
STYLES = {"added": "green", "updated": "cyan", "rotated": "magenta", "suspect": "yellow"}


@click.command(
    epilog=example("waypost browse", "waypost browse --timeout 5 -o jsonl", "waypost browse --udp --interface eth0")
)
@transport_options
@with_session
def browse(session: Session, **given: Any) -> None:
    """Show the agents on the LAN as they appear and disappear, with their trust level, until interrupted.

    --timeout ends it after that many seconds. Keys are pinned on first use and stored: an announcement of a known agent_id
    with another key is rejected, and not shown, unless the pinned key signed the rotation.
    """
    settings, chosen = session.settings(), TransportOptions(**given)
    trust = TrustFile(settings.data / TRUST_FILE)
    addresses = chosen.addresses(session) if chosen.registry else []
    factory = TransportFactory(options=chosen, settings=settings, clock=WallClock(), addresses=addresses, trust=trust)
    transports = factory.transports(
        mdns=not chosen.is_named and TRANSPORTS["mdns"].is_installed, udp=not chosen.is_named
    )
    note_interfaces(session.printer(), chosen, transports)
    asyncio.run(_browse(session.printer(), transports, trust, session.timeout))


async def _browse(printer: Printer, transports: list[Transport], trust: TrustFile, seconds: float | None) -> None:
    table = SightingTable(printer)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, ended.set)
    opened = await _open(printer, transports)
    with table:
        for transport in opened:
            await transport.subscribe(table.take)
        saver = asyncio.create_task(_save_trust(trust))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()
        saver.cancel()
    for transport in opened:
        await transport.close()
    trust.save()
    table.end()


async def _save_trust(trust: TrustFile) -> None:
    while True:
        await asyncio.sleep(_SAVE_SECONDS)
        trust.save()


async def _open(printer: Printer, transports: list[Transport]) -> list[Transport]:
    """Open the transports; report those that fail and skip them."""
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
                "All transports are turned off.", path="--udp", hint="Leave --no-mdns or --no-udp out."
            )
        )
    return opened


class SightingTable:
    """The present agents by transport, shown as a live table, lines or JSON."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._sightings: dict[str, dict[str, Sighting]] = {}
        self._live = Live(console=printer.console, auto_refresh=False) if printer.is_terminal else None

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start()
            self._refresh()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def take(self, sighting: Sighting) -> None:
        sightings = self._sightings.setdefault(sighting.agent_id, {})
        if sighting.kind in _GONE:
            sightings.pop(sighting.transport, None)
        else:
            sightings[sighting.transport] = sighting
        if not sightings:
            del self._sightings[sighting.agent_id]
        if self._live is not None:
            self._refresh()
        elif self._printer.is_human:
            self._printer.rows([(sighting.kind, *_columns(sighting))])
        elif self._printer.output == "jsonl":
            self._printer.value(_value(sighting))

    def end(self) -> None:
        """Print the JSON array, which needs an end; say that nothing was found."""
        if self._printer.output == "json":
            self._printer.value([_value(next(iter(sightings.values()))) for sightings in self._sightings.values()])
        elif self._printer.is_human and not self._sightings:
            self._printer.note("No agents were found on the LAN.")

    def _refresh(self) -> None:
        if self._live is None:
            return
        table = Table(box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0))
        for name in ("agent", "id", "capabilities", "trust", "via", "from"):
            table.add_column(name, overflow="ellipsis", no_wrap=True)
        for sightings in self._sightings.values():
            table.add_row(*_row(list(sightings.values())))
        count = f"{count_noun(len(self._sightings), 'agent')}; press Ctrl-C to stop."
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
    capabilities = agent.get("capabilities")
    return [str(name) for name in capabilities] if isinstance(capabilities, dict) else []


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
