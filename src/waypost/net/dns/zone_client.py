"""A nameserver as whoever keeps a zone there meets it: what it holds, which zone that is, and updates by TSIG (RFC 2136).

It is asked over TCP, so that no answer is cut, and without recursion, so that it speaks for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.update

from waypost import limits
from waypost.domains.ports import DnsLookup, DnsResolver, RecordType
from waypost.domains.zone import RecordSet, RecordSetChange
from waypost.errors import Conflict, FetchFailed, Forbidden, InvalidDocument, Unauthorized
from waypost.net.dns.resolver_config import DnsServer, make_plain_server

_NOT_SIGNED = (dns.exception.FormError, dns.message.UnknownTSIGKey, dns.tsig.BadSignature, dns.tsig.BadTime)

_LOST_RACE = (dns.rcode.NXRRSET, dns.rcode.YXRRSET, dns.rcode.NXDOMAIN, dns.rcode.YXDOMAIN)


class ZoneClient:
    def __init__(self, server: DnsServer) -> None:
        self.server = server

    async def zone_of(self, name: str) -> str | None:
        """The zone that holds a name, as this server tells it; None when it does not answer for one."""
        response = await self._ask(name, "SOA")
        for rrset in (*response.answer, *response.authority):
            if rrset.rdtype == dns.rdatatype.SOA and response.flags & dns.flags.AA:
                return rrset.name.to_text(omit_final_dot=True).lower()
        return None

    async def read(self, name: str, kind: str) -> RecordSet | None:
        """The records of a name and type, of this very name: no alias is followed."""
        response = await self._ask(name, kind)
        if response.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            raise self._failed(f"answers {dns.rcode.to_text(response.rcode())} for {name} {kind}")
        owner, wanted = dns.name.from_text(name), dns.rdatatype.from_text(kind)
        for rrset in response.answer:
            if rrset.name == owner and rrset.rdtype == wanted:
                return make_record_set(name, kind, rrset.ttl, rrset)
        return None

    async def change(self, zone: str, changes: Iterable[RecordSetChange], key: dns.tsig.Key) -> None:
        """Make all changes or none: they are made only while everything is as it was before them."""
        message = dns.update.UpdateMessage(zone, keyring={key.name: key}, keyname=key.name, keyalgorithm=key.algorithm)
        for change in changes:
            _require(message, change)
        for change in changes:
            _replace(message, change)
        try:
            response = await dns.asyncquery.tcp(
                message, self.server.host, port=self.server.port, timeout=limits.DNS_UPDATE_SECONDS
            )
        except (*_NOT_SIGNED, dns.tsig.PeerError) as error:
            raise _key_refused(str(error)) from None
        except (OSError, EOFError, dns.exception.DNSException) as error:
            raise self._failed(f"did not take the update: {str(error) or type(error).__name__}") from None
        self._judge(response.rcode(), zone)

    async def _ask(self, name: str, kind: str) -> dns.message.Message:
        query = dns.message.make_query(name, kind, flags=0, use_edns=0)
        try:
            return await dns.asyncquery.tcp(query, self.server.host, port=self.server.port, timeout=limits.DNS_SECONDS)
        except (OSError, EOFError, dns.exception.DNSException) as error:
            raise self._failed(f"gives no answer: {str(error) or type(error).__name__}") from None

    def _judge(self, code: dns.rcode.Rcode, zone: str) -> None:
        if code == dns.rcode.NOERROR:
            return
        if code in _LOST_RACE:
            raise Conflict(
                "The zone was changed by somebody else meanwhile; nothing of this update was made.",
                path="zone",
                hint="Run the command again: it starts from what is there now.",
            )
        if code == dns.rcode.NOTAUTH:
            raise _key_refused(f"{self.server} does not answer for {zone}, or does not know the key")
        if code == dns.rcode.REFUSED:
            raise Forbidden(
                f"{self.server} refuses the update of {zone}.",
                path="key",
                hint="Allow updates by this key in the server's configuration, or name another with --key.",
            )
        raise self._failed(f"answers {dns.rcode.to_text(code)} to the update")

    def _failed(self, what: str) -> FetchFailed:
        return FetchFailed(
            f"The nameserver {self.server} {what.rstrip('.')}.",
            path="nameserver",
            hint="Does it run, and at this port?",
        )


def make_record_set(name: str, kind: str, ttl: int, records: Iterable[dns.rdata.Rdata]) -> RecordSet:
    texts = sorted({rdata.to_text() for rdata in records})
    return RecordSet(name=name.lower().rstrip("."), type=kind, ttl=ttl, data=tuple(texts))


def parse_record_sets(lines: Iterable[tuple[str, str, int, str]]) -> list[RecordSet]:
    """Records in text (name, type, TTL, data), by name and type, in the one spelling in which sets are compared."""
    held: dict[tuple[str, str], tuple[int, list[dns.rdata.Rdata]]] = {}
    for name, kind, ttl, data in lines:
        try:
            rdata = dns.rdata.from_text("IN", kind, data, relativize=False)
        except dns.exception.DNSException as error:
            raise InvalidDocument(f"{name} {kind} cannot be read: {error}.", path="zone") from None
        held.setdefault((name, kind), (ttl, []))[1].append(rdata)
    return [make_record_set(name, kind, ttl, records) for (name, kind), (ttl, records) in held.items()]


def _require(message: dns.update.UpdateMessage, change: RecordSetChange) -> None:
    if change.before is None:
        message.absent(_name(change), change.type)
    else:
        message.present(_name(change), _rdataset(change.before, 0))  # RFC 2136 §2.4.2: what must be there has no TTL


def _replace(message: dns.update.UpdateMessage, change: RecordSetChange) -> None:
    message.delete(_name(change), change.type)
    if change.after is not None:
        message.add(_name(change), _rdataset(change.after, change.after.ttl))


def _name(change: RecordSetChange) -> dns.name.Name:
    return dns.name.from_text(change.name)


def _rdataset(held: RecordSet, ttl: int) -> dns.rdataset.Rdataset:
    records = [dns.rdata.from_text("IN", held.type, text, relativize=False) for text in held.data]
    return dns.rdataset.from_rdata_list(ttl, records)


def _key_refused(why: str) -> Unauthorized:
    return Unauthorized(
        f"The update was not taken: {why.rstrip('.')}.",
        path="key",
        hint="Name the server's own TSIG key with --key, and let both clocks agree.",
    )


# ---- Who answers for a name: its zone, the server that takes updates for it, and all that are asked for it.


async def find_zone(lookups: DnsResolver, name: str) -> tuple[str, str]:
    """The zone of a name, and the name of the server that its SOA calls the first one."""
    above = name
    while "." in above:
        found = await lookups.lookup(above, "SOA")
        if found.outcome == "failed":
            raise FetchFailed(
                f"{above} cannot be looked up: {found.reason}.", path="resolver", hint="Name --nameserver."
            )
        for rdata in parse_lookup_records(found):
            return above, str(rdata.mname.to_text(omit_final_dot=True)).lower()
        above = above.partition(".")[2]
    raise FetchFailed(f"No zone was found above {name}.", path="resolver", hint="Name --nameserver and --zone.")


async def find_servers(lookups: DnsResolver, zone: str) -> list[DnsServer]:
    """The addresses of all nameservers of a zone."""
    found = await lookups.lookup(zone, "NS")
    names = [str(rdata.target.to_text(omit_final_dot=True)).lower() for rdata in parse_lookup_records(found)]
    servers: list[DnsServer] = []
    for name in sorted(names):
        servers += await find_server_addresses(lookups, name)
    return servers


async def find_server_addresses(lookups: DnsResolver, host: str) -> list[DnsServer]:
    kinds: tuple[RecordType, ...] = ("A", "AAAA")
    return [
        make_plain_server(str(rdata.address))
        for kind in kinds
        for rdata in parse_lookup_records(await lookups.lookup(host, kind))
    ]


def lookup_record_set(found: DnsLookup) -> RecordSet | None:
    """What a resolver tells of a name and type; None when it tells that there is nothing."""
    held = parse_lookup_records(found)
    return make_record_set(found.name, found.type, found.ttl, held) if held else None


def parse_lookup_records(found: DnsLookup) -> list[Any]:
    """As values of dnspython, each type with members of its own."""
    kind = dns.rdatatype.from_text(found.type)
    return [dns.rdata.from_wire(dns.rdataclass.IN, kind, data, 0, len(data)) for data in found.records]
