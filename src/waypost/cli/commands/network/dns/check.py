"""`waypost dns check`: compare the published records of an agent with the expected ones, at each nameserver and the resolver."""

from __future__ import annotations

import asyncio

import click
import msgspec
from rich.table import Column
from rich.text import Text

from waypost.cli.commands.network.dns.publish import parse_nameserver, record_sets_in_zone
from waypost.cli.commands.network.dns.zone import ZoneOptions, fetch_zone, zone_options
from waypost.cli.commands.network.resolve import LookupOptions, lookup_options, make_outgoing
from waypost.cli.completion import complete_agent
from waypost.cli.options import example
from waypost.cli.output import Printer, sanitize, without_none
from waypost.cli.session import Session, with_session
from waypost.domains.ports import DnsResolver, RecordType
from waypost.domains.zone import RecordSet, RecordSetState, compare_record_sets
from waypost.errors import FetchFailed
from waypost.net.dns.zone_client import ZoneClient, find_servers, find_zone, lookup_record_set
from waypost.responses.agents import AgentZone

EXIT_DIFFERS = 1
_ADVICE: dict[RecordSetState, str] = {
    "same": "",
    "missing": "publish it: waypost dns publish",
    "differs": "publish it again: waypost dns publish",
    "extra": "remove the records that are not in the agent's zone",
    "unanswered": "try again; is the server up?",
}
_STYLES: dict[str, str] = {
    "same": "green",
    "missing": "red",
    "differs": "red",
    "extra": "red",
    "unanswered": "yellow",
}


class RecordCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One record set at one server."""

    server: str
    name: str
    type: str
    state: RecordSetState
    advice: str = ""
    wanted: tuple[str, ...] = ()
    live: tuple[str, ...] | None = None
    security: str | None = None  # DNSSEC status of the resolver's answer
    reason: str | None = None


@click.command(
    "check",
    epilog=example(
        "waypost dns check alice.example.com",
        "waypost dns check alice.example.com --nameserver 127.0.0.1:5335 --resolver 127.0.0.1:5335 -o json",
    ),
)
@click.argument("agent", metavar="AGENT|DOMAIN", shell_complete=complete_agent)
@click.option(
    "--nameserver",
    "nameservers",
    multiple=True,
    metavar="ADDRESS[:PORT]",
    help="A nameserver to query. Repeatable.  [default: those of the zone's NS records]",
)
@click.option("--zone", metavar="DOMAIN", help="The zone.  [default: the one of the agent's name]")
@zone_options
@lookup_options
@with_session
def check(
    session: Session,
    agent: str,
    nameservers: tuple[str, ...],
    zone: str | None,
    options: ZoneOptions,
    lookup: LookupOptions,
) -> int:
    """Compare the published records with the expected ones, at every authoritative server and the resolver.

    Exits with 1 if anything differs, and says what to do.
    """
    printer = session.printer()
    rows = asyncio.run(_check_records(session, lookup, fetch_zone(session, agent, options), nameservers, zone))
    if printer.is_human:
        _show(printer, rows)
    else:
        printer.values(without_none(msgspec.to_builtins(row)) for row in rows)
    return 0 if all(row.state == "same" for row in rows) else EXIT_DIFFERS


async def _check_records(
    session: Session, lookup: LookupOptions, found: AgentZone, nameservers: tuple[str, ...], zone: str | None
) -> list[RecordCheck]:
    lookups = make_outgoing(session, lookup).dns
    servers = [ZoneClient(parse_nameserver(text)) for text in nameservers]
    if servers:
        zone = zone or await servers[0].zone_of(found.domain) or found.domain
    else:
        zone = zone or (await find_zone(lookups, found.domain))[0]
        servers = [ZoneClient(server) for server in await find_servers(lookups, zone)]
    wanted = record_sets_in_zone(session.printer(), found, zone)
    checks = [_check_server(server, each) for server in servers for each in wanted]
    return list(await asyncio.gather(*checks, *(_check_resolver(lookups, each) for each in wanted)))


async def _check_server(server: ZoneClient, wanted: RecordSet) -> RecordCheck:
    try:
        live = await server.read(wanted.name, wanted.type)
    except FetchFailed as error:
        return _record_check(str(server.server), wanted, "unanswered", reason=error.message)
    return _record_check(str(server.server), wanted, compare_record_sets(wanted, live), live=live)


async def _check_resolver(lookups: DnsResolver, wanted: RecordSet) -> RecordCheck:
    kind: RecordType = wanted.type  # type: ignore[assignment]  # every type of a zone can be looked up
    found = await lookups.lookup(wanted.name, kind)
    if found.outcome == "failed":
        return _record_check("resolver", wanted, "unanswered", security=found.security, reason=found.reason)
    live = lookup_record_set(found)
    return _record_check(
        "resolver",
        wanted,
        compare_record_sets(wanted, live),
        live=live,
        security=found.security,
        reason=found.reason or None,
    )


def _record_check(
    server: str,
    wanted: RecordSet,
    state: RecordSetState,
    *,
    live: RecordSet | None = None,
    security: str | None = None,
    reason: str | None = None,
) -> RecordCheck:
    return RecordCheck(
        server=server,
        name=wanted.name,
        type=wanted.type,
        state=state,
        advice=_ADVICE[state],
        wanted=wanted.data,
        live=None if live is None else live.data,
        security=security,
        reason=reason,
    )


def _show(printer: Printer, rows: list[RecordCheck]) -> None:
    cells = [
        (row.server, row.name, row.type, row.state, row.security or "", sanitize(row.reason or row.advice))
        for row in rows
    ]
    if printer.is_terminal:
        columns = [Column(name) for name in ("server", "name", "type", "state", "dnssec", "what to do")]
        printer.table(columns, ([Text(text, style=_STYLES.get(text, "")) for text in line] for line in cells))
    else:
        printer.rows(cells)
    wrong = [row for row in rows if row.state in ("differs", "extra")]
    for row in wrong:
        printer.note(f"{row.name} {row.type} at {row.server}")
        for sign, data in (("is", row.live or ()), ("should be", row.wanted)):
            for text in data:
                printer.note(f"  {sign}: {text}")
