"""Who answers for a name: its zone, the server that takes updates for it, and all that are asked for it."""

from __future__ import annotations

from typing import Any

import dns.rdata
import dns.rdataclass
import dns.rdatatype

from waypost.domains.ports import Dns, Lookup, RecordType
from waypost.domains.zone_changes import RecordSet
from waypost.errors import FetchFailed
from waypost.net.servers import Server, plain_server
from waypost.net.zone_server import record_set


async def find_zone(lookups: Dns, name: str) -> tuple[str, str]:
    """The zone of a name, and the name of the server that its SOA calls the first one."""
    above = name
    while "." in above:
        found = await lookups.lookup(above, "SOA")
        if found.outcome == "failed":
            raise FetchFailed(
                f"{above} cannot be looked up: {found.reason}.", path="resolver", hint="Name --nameserver."
            )
        for rdata in records_of(found):
            return above, str(rdata.mname.to_text(omit_final_dot=True)).lower()
        above = above.partition(".")[2]
    raise FetchFailed(f"No zone was found above {name}.", path="resolver", hint="Name --nameserver and --zone.")


async def find_servers(lookups: Dns, zone: str) -> list[Server]:
    """The addresses of all nameservers of a zone."""
    found = await lookups.lookup(zone, "NS")
    names = [str(rdata.target.to_text(omit_final_dot=True)).lower() for rdata in records_of(found)]
    servers: list[Server] = []
    for name in sorted(names):
        servers += await find_addresses(lookups, name)
    return servers


async def find_addresses(lookups: Dns, host: str) -> list[Server]:
    kinds: tuple[RecordType, ...] = ("A", "AAAA")
    return [
        plain_server(str(rdata.address)) for kind in kinds for rdata in records_of(await lookups.lookup(host, kind))
    ]


def set_of(found: Lookup) -> RecordSet | None:
    """What a resolver tells of a name and type; None when it tells that there is nothing."""
    held = records_of(found)
    return record_set(found.name, found.type, found.ttl, held) if held else None


def records_of(found: Lookup) -> list[Any]:
    """As values of dnspython, each type with members of its own."""
    kind = dns.rdatatype.from_text(found.type)
    return [dns.rdata.from_wire(dns.rdataclass.IN, kind, data, 0, len(data)) for data in found.records]
