"""A name server in memory: it answers from signed zones, with all proofs of absence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.zone
import msgspec
from dns.rdatatype import RdataType

from support.signed_zones import SignedZone
from waypost.net.dns.message import DnsMessage, DnsQuery, dns_failure, parse_message

_DENIALS = (dns.rdatatype.NSEC, dns.rdatatype.NSEC3, dns.rdatatype.SOA)


class ZoneBook:
    """Answers queries. `fail` lists queries without an answer; `before` is called for each query."""

    def __init__(self, *zones: SignedZone) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.fail: set[tuple[str, str]] = set()
        self.code: dns.rcode.Rcode | None = None
        self.flags = dns.flags.Flag(0)
        self.before: Callable[[DnsQuery], None] = lambda question: None
        self._zones: dict[dns.name.Name, dns.zone.Zone] = {}
        for zone in zones:
            self.serve(zone)

    def serve(self, zone: SignedZone) -> None:
        self._zones[zone.origin] = dns.zone.from_text(
            zone.text(), origin=zone.origin, relativize=False, check_origin=False
        )

    async def send(self, question: DnsQuery) -> DnsMessage:
        place = (question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.type))
        self.asked[place] += 1
        self.before(question)
        if place in self.fail:
            raise dns_failure("The resolver gives no answer.", "timed_out")
        return msgspec.structs.replace(parse_message(self.wire(self.response(question))), server="book")

    async def aclose(self) -> None: ...

    def response(self, question: DnsQuery) -> dns.message.Message:
        response = dns.message.make_response(dns.message.make_query(question.name, question.type))
        response.flags |= self.flags
        if self.code is not None:
            response.set_rcode(self.code)
        else:
            self._fill(response, question)
        return response

    def wire(self, response: dns.message.Message) -> bytes:
        return response.to_wire(max_size=65535)

    def _fill(self, response: dns.message.Message, question: DnsQuery) -> None:
        zone = self._find_zone(question)
        if zone is None or zone.origin is None:
            response.set_rcode(dns.rcode.REFUSED)
            return
        found = _sets(zone, question.name, question.type) or _sets(zone, question.name, dns.rdatatype.CNAME)
        if found:
            response.answer = found
            return
        if not any(name.is_subdomain(question.name) for name in zone.nodes):
            response.answer = _expanded(zone, question)
            response.set_rcode(dns.rcode.NOERROR if response.answer else dns.rcode.NXDOMAIN)
        response.authority = [rrset for name in zone.nodes for kind in _DENIALS for rrset in _sets(zone, name, kind)]

    def _find_zone(self, question: DnsQuery) -> dns.zone.Zone | None:
        name = question.name
        if question.type == dns.rdatatype.DS and name != dns.name.root:
            name = name.parent()
        while name not in self._zones:
            if name == dns.name.root:
                return None
            name = name.parent()
        return self._zones[name]


def _sets(zone: dns.zone.Zone, name: dns.name.Name, kind: RdataType) -> list[dns.rrset.RRset]:
    """The record set and its signatures."""
    found = [zone.get_rrset(name, kind), zone.get_rrset(name, dns.rdatatype.RRSIG, kind)]
    return [rrset for rrset in found if rrset is not None] if found[0] is not None else []


def _expanded(zone: dns.zone.Zone, question: DnsQuery) -> list[dns.rrset.RRset]:
    """Records synthesised from a wildcard."""
    found = _sets(zone, dns.name.Name((b"*", *question.name.labels[1:])), question.type)
    for rrset in found:
        rrset.name = question.name
    return found
