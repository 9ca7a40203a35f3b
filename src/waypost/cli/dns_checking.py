"""`waypost dns check`: what the DNS holds of an agent against what it should hold, by each nameserver and by the resolver."""

from __future__ import annotations

import asyncio

import click
import msgspec
from rich.table import Column
from rich.text import Text

from waypost.cli.dns_publishing import in_zone, parse_nameserver
from waypost.cli.options import example
from waypost.cli.output import Printer, without_none
from waypost.cli.resolving import Looking, looking_options, make_outgoing
from waypost.cli.session import Session, with_session
from waypost.cli.text import clean
from waypost.cli.zone_options import Wanted, ask_zone, zone_options
from waypost.client.zones import AgentZone
from waypost.domains.ports import Dns, RecordType
from waypost.domains.zone_changes import RecordSet, State, judge
from waypost.errors import FetchFailed
from waypost.net.zone_finding import find_servers, find_zone, set_of
from waypost.net.zone_server import ZoneServer

EXIT_DIFFERS = 1
_ADVICE: dict[State, str] = {
    "same": "",
    "missing": "publish it: waypost dns publish",
    "differs": "publish it anew: waypost dns publish",
    "extra": "remove what is not in the agent's zone",
    "unanswered": "ask again; is the server up?",
}
_STYLES: dict[str, str] = {
    "same": "green",
    "missing": "red",
    "differs": "red",
    "extra": "red",
    "unanswered": "yellow",
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One set of records at one server."""

    server: str
    name: str
    type: str
    state: State
    advice: str = ""
    wanted: tuple[str, ...] = ()
    live: tuple[str, ...] | None = None
    security: str | None = None  # of the resolver's answer: what we make of its signatures
    reason: str | None = None


@click.command(
    "check",
    epilog=example(
        "waypost dns check alice.example.com",
        "waypost dns check alice.example.com --nameserver 127.0.0.1:5335 --resolver 127.0.0.1:5335 -o json",
    ),
)
@click.argument("agent", metavar="AGENT|DOMAIN")
@click.option(
    "--nameserver",
    "nameservers",
    multiple=True,
    metavar="ADDRESS[:PORT]",
    help="A server to ask. Repeatable.  [default: all that the zone's NS records name]",
)
@click.option("--zone", metavar="DOMAIN", help="The zone.  [default: the one that holds the agent's name]")
@zone_options
@looking_options
@with_session
def check(
    session: Session, agent: str, nameservers: tuple[str, ...], zone: str | None, wanted: Wanted, looking: Looking
) -> int:
    """Compare what is live with what should be, by every authoritative server and by the resolver.

    Exits with 1 when anything differs, and says what to do.
    """
    printer = session.printer()
    rows = asyncio.run(_rows(session, looking, ask_zone(session, agent, wanted), nameservers, zone))
    if printer.is_human:
        _show(printer, rows)
    else:
        printer.values(without_none(msgspec.to_builtins(row)) for row in rows)
    return 0 if all(row.state == "same" for row in rows) else EXIT_DIFFERS


async def _rows(
    session: Session, looking: Looking, found: AgentZone, nameservers: tuple[str, ...], zone: str | None
) -> list[Row]:
    lookups = make_outgoing(session, looking).dns
    servers = [ZoneServer(parse_nameserver(text)) for text in nameservers]
    if servers:
        zone = zone or await servers[0].zone_of(found.domain) or found.domain
    else:
        zone = zone or (await find_zone(lookups, found.domain))[0]
        servers = [ZoneServer(server) for server in await find_servers(lookups, zone)]
    wanted = in_zone(session.printer(), found, zone)
    asked = [_at_server(server, each) for server in servers for each in wanted]
    return list(await asyncio.gather(*asked, *(_by_resolver(lookups, each) for each in wanted)))


async def _at_server(server: ZoneServer, wanted: RecordSet) -> Row:
    try:
        live = await server.read(wanted.name, wanted.type)
    except FetchFailed as error:
        return _row(str(server.server), wanted, "unanswered", reason=error.message)
    return _row(str(server.server), wanted, judge(wanted, live), live=live)


async def _by_resolver(lookups: Dns, wanted: RecordSet) -> Row:
    kind: RecordType = wanted.type  # type: ignore[assignment]  # every type of a zone is one that can be asked for
    found = await lookups.lookup(wanted.name, kind)
    if found.outcome == "failed":
        return _row("resolver", wanted, "unanswered", security=found.security, reason=found.reason)
    live = set_of(found)
    return _row(
        "resolver", wanted, judge(wanted, live), live=live, security=found.security, reason=found.reason or None
    )


def _row(
    server: str,
    wanted: RecordSet,
    state: State,
    *,
    live: RecordSet | None = None,
    security: str | None = None,
    reason: str | None = None,
) -> Row:
    return Row(
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


def _show(printer: Printer, rows: list[Row]) -> None:
    cells = [
        (row.server, row.name, row.type, row.state, row.security or "", clean(row.reason or row.advice)) for row in rows
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
