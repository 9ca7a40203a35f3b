"""`waypost dns publish`: put the records of an agent into a zone by dynamic update, show the changes, and undo them.

A journal in the data folder keeps one file per update, with the record sets before and after it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from waypost import limits
from waypost.cli.commands.network.dns.zone import ZoneOptions, fetch_zone, zone_options
from waypost.cli.commands.network.resolve import LookupOptions, lookup_options, make_outgoing
from waypost.cli.completion import complete_agent
from waypost.cli.options import example
from waypost.cli.output import Printer
from waypost.cli.session import Session, with_session
from waypost.client.identity import read_text
from waypost.domains.zone import RecordSet, RecordSetChange, RecordSetKey, plan_changes, plan_withdrawal
from waypost.errors import ConfigurationError, Conflict, FetchFailed, NotFound, WaypostError
from waypost.files import write_atomic
from waypost.model.times import to_rfc3339
from waypost.net.dns.resolver_config import DnsServer, parse_resolvers
from waypost.net.dns.zone_client import (
    ZoneClient,
    find_server_addresses,
    find_zone,
    parse_record_sets,
    parse_tsig,
    update_key_path,
)
from waypost.responses.agents import AgentZone

JOURNAL_FOLDER = "dns/published"

_UNDONE_SUFFIX = ".undone"


class ZoneUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """One update; `changes` hold the record sets before and after it."""

    agent: str
    zone: str
    nameserver: str
    at: str
    changes: tuple[RecordSetChange, ...]


class ZoneJournal:
    def __init__(self, data: Path, agent: str) -> None:
        self._folder = data / JOURNAL_FOLDER / agent

    def add(self, published: ZoneUpdate) -> Path:
        """Call this before the update is sent, so that it can be undone whatever happens."""
        path = self._folder / f"{time.time_ns():020d}.json"
        write_atomic(path, msgspec.json.format(msgspec.json.encode(published), indent=2))
        for old in self._files()[: -limits.ZONE_JOURNAL]:
            old.unlink(missing_ok=True)
        return path

    def last(self) -> tuple[Path, ZoneUpdate]:
        files = self._files()
        if not files:
            raise NotFound(
                "No update of this agent was made with this data folder.",
                path="data",
                hint="Use the --data folder of that update.",
            )
        try:
            return files[-1], msgspec.json.decode(files[-1].read_bytes(), type=ZoneUpdate)
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigurationError(f"{files[-1]} cannot be read: {error}.", path="data") from None

    def mark_undone(self, path: Path) -> None:
        path.rename(path.with_suffix(_UNDONE_SUFFIX))

    def remove(self, path: Path) -> None:
        """Remove an update that was not made."""
        path.unlink(missing_ok=True)

    def stale(self, wanted: set[RecordSetKey]) -> list[RecordSetChange]:
        """Record sets of earlier updates that the agent no longer needs."""
        left: dict[RecordSetKey, RecordSetChange] = {}
        for path in self._files():
            try:
                published = msgspec.json.decode(path.read_bytes(), type=ZoneUpdate)
            except (OSError, msgspec.DecodeError):
                continue
            for change in published.changes:
                left[change.name, change.type] = change
        return [change for key, change in left.items() if key not in wanted and change.after is not None]

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))


class PublishOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and where."""

    nameserver: str | None = None
    zone: str | None = None
    key: Path | None = None
    dry_run: bool = False
    withdraw: bool = False
    rollback: bool = False


@click.command(
    "publish",
    epilog=example(
        "waypost dns publish alice.example.com --nameserver 192.0.2.53 --key update.key --dry-run",
        "waypost dns publish alice.example.com --nameserver 192.0.2.53 --key update.key",
        "waypost dns publish alice.example.com --rollback --key update.key",
    ),
)
@click.argument("agent", metavar="AGENT|DOMAIN", shell_complete=complete_agent)
@click.option(
    "--nameserver", metavar="HOST[:PORT]", help="The server to update.  [default: the primary of the zone's SOA]"
)
@click.option("--zone", metavar="DOMAIN", help="The zone.  [default: the one of the agent's name]")
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The TSIG key, as tsig-keygen writes it.  [default: DATA/dns/update.key, of `waypost dns serve`]",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@click.option("--withdraw", is_flag=True, help="Remove the agent's records.")
@click.option("--rollback", is_flag=True, help="Undo the last update made with this data folder.")
@zone_options
@lookup_options
@with_session
def publish(session: Session, agent: str, options: ZoneOptions, lookup: LookupOptions, **given: Any) -> None:
    """Put the records of an agent into its zone by RFC 2136 with TSIG, atomically.

    Existing records are left alone, so that a second run changes nothing; records of others at the same names stay. The
    state before the update is kept in DATA/dns/published for --rollback.
    """
    task = PublishOptions(**given)
    if task.rollback and task.withdraw:
        raise click.UsageError("--rollback and --withdraw cannot be combined.")
    if task.rollback:
        asyncio.run(_rollback(session, lookup, agent, task))
    else:
        asyncio.run(_publish(session, lookup, fetch_zone(session, agent, options), task))


async def _publish(session: Session, lookup: LookupOptions, found: AgentZone, task: PublishOptions) -> None:
    server, zone = await locate_zone(session, lookup, found.domain, task.nameserver, task.zone)
    wanted = record_sets_in_zone(session.printer(), found, zone)
    journal = ZoneJournal(session.settings().data, found.domain)
    stale = journal.stale({each.key for each in wanted})
    live = await read_record_sets(server, [*(each.key for each in wanted), *((each.name, each.type) for each in stale)])
    if task.withdraw:
        changes = plan_withdrawal(wanted, live, found.domain)
    else:
        left = [each.after for each in stale if each.after is not None and live[each.name, each.type] == each.after]
        changes = [*plan_changes(wanted, live), *plan_withdrawal(left, live, found.domain)]
    outcome = (
        "unchanged" if not changes else "planned" if task.dry_run else "withdrawn" if task.withdraw else "published"
    )
    if changes and not task.dry_run:
        await _send(session, journal, server, changes, found.domain, zone, task)
    _show(session.printer(), outcome, server, zone, changes)


async def _send(
    session: Session,
    journal: ZoneJournal,
    server: ZoneClient,
    changes: list[RecordSetChange],
    agent: str,
    zone: str,
    task: PublishOptions,
) -> None:
    published = ZoneUpdate(
        agent=agent, zone=zone, nameserver=str(server.server), at=to_rfc3339(time.time()), changes=tuple(changes)
    )
    key = read_tsig(session, task.key)
    path = journal.add(published)
    try:
        await server.change(zone, changes, key)
    except FetchFailed:
        raise  # the update may have been made: keep the file
    except WaypostError:
        journal.remove(path)
        raise


async def _rollback(session: Session, lookup: LookupOptions, agent: str, task: PublishOptions) -> None:
    domain = agent.removeprefix("agent:").lower().rstrip(".")
    journal = ZoneJournal(session.settings().data, domain)
    path, last = journal.last()
    server = ZoneClient(parse_nameserver(task.nameserver or last.nameserver))
    changes = [change.reversed() for change in last.changes]
    live = await read_record_sets(server, [(change.name, change.type) for change in changes])
    moved = [f"{each.name} {each.type}" for each in changes if not _same_data(live[each.name, each.type], each.before)]
    if moved:
        raise Conflict(
            f"{', '.join(moved)} changed since the update of {last.at}; nothing was undone.",
            path="zone",
            hint="`waypost dns check` shows the current records; publish again, or edit the zone by hand.",
        )
    changes = [msgspec.structs.replace(each, before=live[each.name, each.type]) for each in changes]
    if not task.dry_run:
        await server.change(last.zone, changes, read_tsig(session, task.key))
        journal.mark_undone(path)
    _show(session.printer(), "planned" if task.dry_run else "rolled back", server, last.zone, changes)


def _same_data(one: RecordSet | None, other: RecordSet | None) -> bool:
    return (None if one is None else one.data) == (None if other is None else other.data)


# --- Servers and zones ----------------------------------------------------------------------------


async def locate_zone(
    session: Session, lookup: LookupOptions, domain: str, nameserver: str | None, zone: str | None
) -> tuple[ZoneClient, str]:
    """The server of the zone of a domain, and the zone's name."""
    if zone is not None and not is_inside(domain, zone):
        raise Conflict(
            f"{domain} is not in the zone {zone}.", path="zone", hint="Leave --zone out, or name a parent zone."
        )
    if nameserver is not None:
        server = ZoneClient(parse_nameserver(nameserver))
        served = zone or await server.zone_of(domain)
        if served is None:
            raise Conflict(
                f"{server.server} is not authoritative for {domain}.",
                path="nameserver",
                hint="Name another, or --zone.",
            )
        return server, served.lower().rstrip(".")
    lookups = make_outgoing(session, lookup).dns
    served, primary = await find_zone(lookups, domain)
    servers = await find_server_addresses(lookups, primary)
    if not servers:
        raise FetchFailed(
            f"{primary}, the primary nameserver of {served}, has no address.",
            path="nameserver",
            hint="Use --nameserver.",
        )
    return ZoneClient(servers[0]), zone or served


def is_inside(name: str, zone: str) -> bool:
    zone = zone.lower().rstrip(".")
    return name == zone or name.endswith(f".{zone}")


def parse_nameserver(text: str) -> DnsServer:
    servers = parse_resolvers(text)
    if servers is None or len(servers) != 1 or servers[0].kind != "plain":
        raise ConfigurationError(
            f"{text!r} is not a nameserver.", path="nameserver", hint="Write ADDRESS or ADDRESS:PORT."
        )
    return servers[0]


def record_sets_in_zone(printer: Printer, found: AgentZone, zone: str) -> list[RecordSet]:
    """The record sets in the zone; a note names those that belong to other zones."""
    sets = parse_record_sets((line.name, line.type, line.ttl, line.data) for line in found.records)
    inside = [each for each in sets if is_inside(each.name, zone)]
    for each in sets:
        if each not in inside:
            printer.note(f"{each.name} {each.type} is not in {zone}: publish it in its own zone.", style="yellow")
    return inside


async def read_record_sets(server: ZoneClient, keys: list[RecordSetKey]) -> dict[RecordSetKey, RecordSet | None]:
    found = await asyncio.gather(*(server.read(name, kind) for name, kind in dict.fromkeys(keys)))
    return dict(zip(dict.fromkeys(keys), found, strict=True))


def read_tsig(session: Session, path: Path | None) -> Any:
    path = path or update_key_path(session.settings().data)
    return parse_tsig(read_text(path, hint="Use --key with the TSIG key of the server."), str(path))


# --- Output ---------------------------------------------------------------------------------------


def _show(printer: Printer, outcome: str, server: ZoneClient, zone: str, changes: list[RecordSetChange]) -> None:
    if not printer.is_human:
        values = [msgspec.to_builtins(change) for change in changes]
        printer.value({"outcome": outcome, "zone": zone, "nameserver": str(server.server), "changes": values})
        return
    for change in changes:
        for sign, style, records in (("-", "red", change.before), ("+", "green", change.after)):
            for data in records.data if records is not None else ():
                line = f"{sign} {change.name}. {records.ttl if records else 0} {change.type} {data}"
                printer.line(Text(line, style=style) if printer.is_terminal else line)
    sets = "1 record set" if len(changes) == 1 else f"{len(changes)} record sets"
    printer.line(f"{outcome:<9}  {zone}  {sets} at {server.server}")
