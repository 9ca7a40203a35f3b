"""Answers out of zones (RFC 1034 §4.3.2, RFC 4035 §3.1): what is there, what is not with its proof, and what lies elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
from dns.rdatatype import RdataType

from waypost import limits
from waypost.net.nameserver.zone import SignedZone

_WILDCARD = dns.name.from_text("*", None)
_REFUSED_TYPES = frozenset((RdataType.AXFR, RdataType.IXFR, RdataType.MAILA, RdataType.MAILB))


class Zones:
    """The zones of one server; a question belongs to the longest name that holds it."""

    def __init__(self, zones: Iterable[SignedZone] = ()) -> None:
        self._zones = {zone.origin: zone for zone in zones}

    def __iter__(self) -> Iterator[SignedZone]:
        return iter(self._zones.values())

    def at(self, name: dns.name.Name) -> SignedZone | None:
        return self._zones.get(name)

    def holding(self, name: dns.name.Name, kind: RdataType) -> SignedZone | None:
        """The DS of a zone is its parent's to tell, where that is here too."""
        above = name.parent() if kind == RdataType.DS and name != dns.name.root else name
        while True:
            zone = self._zones.get(above)
            if zone is not None:
                return zone
            if above == dns.name.root:
                return self._zones.get(name)
            above = above.parent()


def answer(zones: Zones, query: dns.message.Message) -> dns.message.Message:
    response = dns.message.make_response(query, our_payload=limits.DNS_UDP_BYTES)
    if query.opcode() != dns.opcode.QUERY:
        response.set_rcode(dns.rcode.NOTIMP)
    elif len(query.question) != 1:
        response.set_rcode(dns.rcode.FORMERR)
    elif query.question[0].rdclass != dns.rdataclass.IN or query.question[0].rdtype in _REFUSED_TYPES:
        response.set_rcode(dns.rcode.REFUSED)
    else:
        _Answer(response, signed=bool(query.ednsflags & dns.flags.DO)).of(
            zones, query.question[0].name, RdataType(query.question[0].rdtype)
        )
    return response


class _Answer:
    """One answer as it is put together."""

    def __init__(self, response: dns.message.Message, *, signed: bool) -> None:
        self._response = response
        self._signed = signed

    def of(self, zones: Zones, name: dns.name.Name, kind: RdataType) -> None:
        zone = zones.holding(name, kind)
        if zone is None:
            self._response.set_rcode(dns.rcode.REFUSED)
            return
        self._response.flags |= dns.flags.AA
        for _ in range(limits.DNS_ALIASES + 1):
            alias = self._in(zone, name, kind)
            if alias is None or zones.holding(alias, kind) is not zone:
                return
            name = alias

    def _in(self, zone: SignedZone, name: dns.name.Name, kind: RdataType) -> dns.name.Name | None:
        """Add what one name has to tell; the name to go on with, when it is an alias."""
        cut = zone.cut_above(name)
        if cut is not None and not (cut == name and kind == RdataType.DS):
            self._refer(zone, cut)
            return None
        kinds = zone.kinds_at(name)
        if kinds is not None:
            return self._existing(zone, name, name, kinds, kind)
        encloser = zone.encloser(name)
        wildcard = _WILDCARD.derelativize(encloser)
        kinds = zone.kinds_at(wildcard)
        if kinds is None:
            self._deny(zone, name, wildcard)
            self._response.set_rcode(dns.rcode.NXDOMAIN)
            return None
        self._prove(zone, name)
        return self._existing(zone, name, wildcard, kinds, kind)

    def _existing(
        self, zone: SignedZone, shown: dns.name.Name, name: dns.name.Name, kinds: set[RdataType], kind: RdataType
    ) -> dns.name.Name | None:
        if kind == RdataType.ANY:
            kind = next((each for each in sorted(kinds) if each not in (RdataType.RRSIG, RdataType.NSEC)), kind)
        if kind in kinds:
            self._response.answer += zone.under(shown, name, kind, signed=self._signed)
            return None
        if RdataType.CNAME in kinds:
            found = zone.under(shown, name, RdataType.CNAME, signed=self._signed)
            self._response.answer += found
            target: dns.name.Name = found[0][0].target
            return target
        self._deny(zone, name)
        return None

    def _refer(self, zone: SignedZone, cut: dns.name.Name) -> None:
        """The zone ends here: who goes on, and whether its keys are vouched for."""
        self._response.flags &= ~dns.flags.AA
        self._response.authority += zone.find(cut, RdataType.NS, signed=False)
        if self._signed:
            self._response.authority += zone.find(cut, RdataType.DS, signed=True) or zone.denial(cut)

    def _deny(self, zone: SignedZone, *names: dns.name.Name) -> None:
        self._response.authority += zone.soa(signed=self._signed)
        for name in names:
            self._prove(zone, name)

    def _prove(self, zone: SignedZone, name: dns.name.Name) -> None:
        if self._signed:
            held = self._response.authority
            held += [each for each in zone.denial(name) if each not in held]
