"""`waypost dns serve`: a nameserver with signed zones on this machine, to try the resolution of agents."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from pathlib import Path

import click

from waypost.cli.commands.network.dns.zone import ZoneOptions, fetch_zone
from waypost.cli.completion import complete_agent
from waypost.cli.options import WholeNumber, example
from waypost.cli.session import Session, with_session
from waypost.client.identity import read_text
from waypost.net.nameserver.responder import ZoneSet
from waypost.net.nameserver.server import Nameserver
from waypost.net.nameserver.signed_zone import SignedZone, ZoneFolder

_ALGORITHMS = ("ed25519", "ecdsa", "none")

_REFRESH_SECONDS = 3600.0


@click.command(
    "serve",
    epilog=example(
        "waypost dns serve example.test",
        "waypost dns serve example.test --agent alice.example.test --port 5300",
        "waypost dns serve example.test --file example.test.zone --algorithm ecdsa",
    ),
)
@click.argument("zones", metavar="ZONE...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=5335,
    show_default=True,
    help="The port for UDP and TCP; 0 picks a free one.",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A zone file to use instead of the stored records.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="AGENT|DOMAIN",
    shell_complete=complete_agent,
    help="Add the records of this agent. Repeatable.",
)
@click.option(
    "--algorithm",
    type=click.Choice(_ALGORITHMS),
    default="ed25519",
    show_default=True,
    help="The DNSSEC algorithm.",
)
@with_session
def serve(
    session: Session,
    zones: tuple[str, ...],
    host: str,
    port: int,
    file: Path | None,
    agents: tuple[str, ...],
    algorithm: str,
) -> None:
    """Serve zones as a nameserver: signed with DNSSEC, over UDP and TCP, with TSIG updates.

    For development, not for the internet. Zones, keys and the file of trust anchors are stored in DATA/dns; `waypost dns
    publish` finds the key there.
    """
    if file is not None and len(zones) != 1:
        raise click.UsageError("--file needs exactly one ZONE.")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    folder = ZoneFolder(session.settings().data)
    text = None if file is None else read_text(file)
    more = "".join(fetch_zone(session, agent, ZoneOptions()).text for agent in agents)
    opened = [folder.open(name, algorithm, time.time(), text=text, more=more) for name in zones]
    folder.save_anchors(opened)
    server = Nameserver(ZoneSet(opened), folder.load_update_key(), time.time, folder.save)
    asyncio.run(_run(session, server, folder, opened, (host, port)))


async def _run(
    session: Session, server: Nameserver, folder: ZoneFolder, opened: list[SignedZone], where: tuple[str, int]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start(*where)
    _print_ready(session, f"{where[0]}:{server.port}", folder, opened)
    try:
        while not stopped.is_set():
            try:
                await asyncio.wait_for(stopped.wait(), _REFRESH_SECONDS)
            except TimeoutError:
                server.refresh()
    finally:
        await server.stop()


def _print_ready(session: Session, address: str, folder: ZoneFolder, opened: list[SignedZone]) -> None:
    printer = session.printer()
    if not printer.is_human:
        names = [zone.name.rstrip(".") for zone in opened]
        files = {"trust_anchors": str(folder.anchors), "update_key": str(folder.update_key)}
        printer.value({"address": address, "zones": names, **files})
        return
    printer.line(f"waypost dns ready {address}")
    for zone in opened:
        printer.note(f"{zone.name} serial {zone.serial}")
    printer.note(f"Trust anchors: {folder.anchors}")
    printer.note(f"Update key: {folder.update_key}")
