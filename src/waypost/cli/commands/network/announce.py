"""`waypost announce FILE`."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from waypost.cli.commands.network.transports import (
    TransportFactory,
    TransportOptions,
    note_interfaces,
    transport_options,
    uses_mdns_by_default,
)
from waypost.cli.options import example, parse_duration_option
from waypost.cli.output import Printer, report_error, sanitize, without_none
from waypost.cli.session import Session, with_session
from waypost.client.announcer import Announcer, TransportState
from waypost.client.clock import WallClock
from waypost.client.identity import ANNOUNCED_FOLDER, IDS_FILE, KEY_FILE, Identity, load_identity, read_agent
from waypost.errors import InvalidParameter, InvalidRequest, WaypostError
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.messages import Suppress
from waypost.transports.port import Transport

_POLL_SECONDS = 1.0


class AnnounceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The agent to announce, and how."""

    file: str
    file_version: tuple[int, int] | None  # from before the file was read
    identity: Identity
    ids: Path
    transports: list[Transport]
    ttl: int | None
    suppress: Suppress
    legacy_salt: bool


@click.command(
    epilog=example(
        "waypost announce agent.json",
        "waypost announce card.json --udp --interface eth0",
        "waypost announce agent.json --mdns --registry https://agents.example.net --token TOKEN",
        "waypost announce agent.json --registry wss://agents.example.net",
    )
)
@click.argument("file", metavar="FILE|-")
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help=f"The private key to sign with.  [default: DATA/{KEY_FILE}, created if absent]",
)
@click.option(
    "--ttl",
    type=parse_duration_option,
    metavar="DURATION",
    help="The lifetime of an announcement.  [default: 10s, registry 2m]",
)
@click.option(
    "--suppress",
    type=click.Choice(("keepalive", "strict")),
    default="keepalive",
    show_default=True,
    help="The registry's entry while the LAN transport works: keep it alive, or remove it.",
)
@click.option(
    "--legacy-salt", is_flag=True, help="Use the RSA-PSS salt length of the first implementation of the protocol."
)
@transport_options
@with_session
def announce(
    session: Session,
    file: str,
    key: Path | None,
    ttl: int | None,
    suppress: Suppress,
    legacy_salt: bool,
    **given: Any,
) -> None:
    """Announce the agent in FILE (any dialect, or a bare agent object), signed, until interrupted.

    Without options it announces by mDNS, and to the registry on this machine if there is one. Changes of FILE are announced.
    At the end the agent is withdrawn.
    """
    settings = session.settings()
    data, chosen = settings.data, TransportOptions(**given)
    factory = TransportFactory(
        options=chosen, settings=settings, clock=WallClock(), addresses=chosen.addresses(session)
    )
    transports = factory.transports(mdns=uses_mdns_by_default(chosen), udp=False)
    if not transports:
        raise InvalidParameter(
            "No transport to announce on: no registry answers, and mDNS is not installed.",
            path="--mdns",
            hint="Use --udp or --registry, or install `waypost[lan]`.",
        )
    note_interfaces(session.printer(), chosen, transports)
    file_version = _file_version(Path(file))  # before it is read: a later write is a change
    plan = AnnounceOptions(
        file=file,
        file_version=file_version,
        identity=load_identity(_read(file), data, key=key),
        ids=data / ANNOUNCED_FOLDER / IDS_FILE,
        transports=transports,
        ttl=ttl,
        suppress=suppress,
        legacy_salt=legacy_salt,
    )
    asyncio.run(_announce(session.printer(), plan))


async def _announce(printer: Printer, plan: AnnounceOptions) -> None:
    announcer: Announcer = Announcer.of(
        plan.identity,
        plan.transports,
        ttl=plan.ttl,
        suppress=plan.suppress,
        legacy_salt=plan.legacy_salt,
        on_state=lambda state: _show(printer, announcer, state),
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, ended.set)
    if printer.is_human:
        printer.line(f"{announcer.agent_id}  {sanitize(plan.identity.agent.get('agent_name') or '')}")
        printer.note(f"key {plan.identity.key.public.key_id}; press Ctrl-C to stop.")
    async with announcer:
        watcher = asyncio.create_task(_watch_file(announcer, plan))
        await ended.wait()
        watcher.cancel()


async def _watch_file(announcer: Announcer, plan: AnnounceOptions) -> None:
    """Announce changes of the file. If it cannot be read, the last version stays announced."""
    if plan.file == "-":
        return
    path, known = Path(plan.file), plan.file_version
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        current = _file_version(path)
        if current in (known, None):
            continue
        known = current
        try:
            announcer.change(read_agent(_read(plan.file), plan.ids, time.time()))
        except WaypostError as error:
            report_error(error, plan.file)


def _file_version(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        hint = "Name the file that describes the agent, or - for standard input."
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.", path=file, hint=hint) from None


def _show(printer: Printer, announcer: Announcer, state: TransportState) -> None:
    if printer.is_human:
        reason = f"  {sanitize(state.reason)}" if state.reason else ""
        printer.line(f"{state.state:<9}  {state.transport}{reason}")
        return
    printer.output = "jsonl"  # a stream has no end, so it cannot be an array
    printer.value(
        without_none(
            {
                "agent_id": announcer.agent_id,
                "transport": state.transport,
                "state": state.state,
                "at": to_rfc3339(state.at),
                "expires_at": None if state.expires_at is None else to_rfc3339(state.expires_at),
                "reason": state.reason or None,
            }
        )
    )
