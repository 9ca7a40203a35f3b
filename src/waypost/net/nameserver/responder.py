"""Answers to queries (RFC 1034 §4.3.2, RFC 4035 §3.1) and dynamic updates (RFC 2136) of zones. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdataset
import dns.rrset
import dns.update
import dns.zone
from dns.rdatatype import RdataType

from waypost import limits
from waypost.net.nameserver.signed_zone import SignedZone, parse_zone

_WILDCARD = dns.name.from_text("*", None)

_REFUSED_TYPES = frozenset((RdataType.AXFR, RdataType.IXFR, RdataType.MAILA, RdataType.MAILB))

_PROTECTED_TYPES = (RdataType.SOA, RdataType.NS)  # cannot be deleted at the apex


class ZoneSet:
    """The zones of one server. The zone with the longest matching name answers a query."""

    def __init__(self, zones: Iterable[SignedZone] = ()) -> None:
        self._zones = {zone.origin: zone for zone in zones}

    def __iter__(self) -> Iterator[SignedZone]:
        return iter(self._zones.values())

    def get(self, name: dns.name.Name) -> SignedZone | None:
        return self._zones.get(name)

    def find(self, name: dns.name.Name, kind: RdataType) -> SignedZone | None:
        """The DS records of a zone belong to its parent, if that is served here too."""
        above = name.parent() if kind == RdataType.DS and name != dns.name.root else name
        while True:
            zone = self._zones.get(above)
            if zone is not None:
                return zone
            if above == dns.name.root:
                return self._zones.get(name)
            above = above.parent()


def answer_query(zones: ZoneSet, query: dns.message.Message) -> dns.message.Message:
    response = dns.message.make_response(query, our_payload=limits.DNS_UDP_BYTES)
    if query.opcode() != dns.opcode.QUERY:
        response.set_rcode(dns.rcode.NOTIMP)
    elif len(query.question) != 1:
        response.set_rcode(dns.rcode.FORMERR)
    elif query.question[0].rdclass != dns.rdataclass.IN or query.question[0].rdtype in _REFUSED_TYPES:
        response.set_rcode(dns.rcode.REFUSED)
    else:
        _AnswerBuilder(response, signed=bool(query.ednsflags & dns.flags.DO)).build(
            zones, query.question[0].name, RdataType(query.question[0].rdtype)
        )
    return response


class _AnswerBuilder:
    def __init__(self, response: dns.message.Message, *, signed: bool) -> None:
        self._response = response
        self._signed = signed

    def build(self, zones: ZoneSet, name: dns.name.Name, kind: RdataType) -> None:
        zone = zones.find(name, kind)
        if zone is None:
            self._response.set_rcode(dns.rcode.REFUSED)
            return
        self._response.flags |= dns.flags.AA
        for _ in range(limits.DNS_ALIASES + 1):
            alias = self._add_name(zone, name, kind)
            if alias is None or zones.find(alias, kind) is not zone:
                return
            name = alias

    def _add_name(self, zone: SignedZone, name: dns.name.Name, kind: RdataType) -> dns.name.Name | None:
        """Add the records of one name; returns the target of an alias."""
        cut = zone.cut_above(name)
        if cut is not None and not (cut == name and kind == RdataType.DS):
            self._refer(zone, cut)
            return None
        kinds = zone.kinds_at(name)
        if kinds is not None:
            return self._add_existing(zone, name, name, kinds, kind)
        encloser = zone.encloser(name)
        wildcard = _WILDCARD.derelativize(encloser)
        kinds = zone.kinds_at(wildcard)
        if kinds is None:
            self._deny(zone, name, wildcard)
            self._response.set_rcode(dns.rcode.NXDOMAIN)
            return None
        self._prove(zone, name)
        return self._add_existing(zone, name, wildcard, kinds, kind)

    def _add_existing(
        self, zone: SignedZone, owner: dns.name.Name, name: dns.name.Name, kinds: set[RdataType], kind: RdataType
    ) -> dns.name.Name | None:
        if kind == RdataType.ANY:
            kind = next((each for each in sorted(kinds) if each not in (RdataType.RRSIG, RdataType.NSEC)), kind)
        if kind in kinds:
            self._response.answer += zone.find_as(owner, name, kind, signed=self._signed)
            return None
        if RdataType.CNAME in kinds:
            found = zone.find_as(owner, name, RdataType.CNAME, signed=self._signed)
            self._response.answer += found
            target: dns.name.Name = found[0][0].target
            return target
        self._deny(zone, name)
        return None

    def _refer(self, zone: SignedZone, cut: dns.name.Name) -> None:
        """Add a referral: the nameservers of the delegated zone, and its DS records or the proof that there are none."""
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
            authority = self._response.authority
            authority += [rrset for rrset in zone.denial(name) if rrset not in authority]


class UpdateRefused(Exception):
    """An update is rejected with an rcode."""

    def __init__(self, rcode: dns.rcode.Rcode) -> None:
        super().__init__(rcode.name)
        self.rcode = rcode


def apply_update(
    zones: ZoneSet, message: dns.update.UpdateMessage, now: float
) -> tuple[dns.message.Message, SignedZone | None]:
    """The response, and the zone if it changed. An update needs a valid TSIG, and is made completely or not at all."""
    response = dns.message.make_response(message)
    try:
        return response, _apply_changes(zones, message, now)
    except UpdateRefused as refused:
        response.set_rcode(refused.rcode)
        return response, None


def _apply_changes(zones: ZoneSet, message: dns.update.UpdateMessage, now: float) -> SignedZone | None:
    if not message.had_tsig:
        raise UpdateRefused(dns.rcode.REFUSED)
    if len(message.zone) != 1 or message.zone[0].rdtype != RdataType.SOA:
        raise UpdateRefused(dns.rcode.FORMERR)
    zone = zones.get(message.zone[0].name)
    if zone is None:
        raise UpdateRefused(dns.rcode.NOTAUTH)
    for rrset in (*message.prerequisite, *message.update):
        if not rrset.name.is_subdomain(zone.origin):
            raise UpdateRefused(dns.rcode.NOTZONE)
    _check_prerequisites(zone.plain, message.prerequisite)
    before = zone.text()
    changed = parse_zone(zone.name, before)
    for change in message.update:
        _apply_change(changed, zone.origin, change)
    if sum(len(node) for node in changed.nodes.values()) > limits.ZONE_SETS:
        raise UpdateRefused(dns.rcode.REFUSED)
    zone.plain = changed
    if zone.text() == before:
        return None
    zone.resign(now)
    return zone


def _check_prerequisites(zone: dns.zone.Zone, prerequisites: list[dns.rrset.RRset]) -> None:
    """RFC 2136 §3.2."""
    exact: dict[tuple[dns.name.Name, RdataType], set[bytes]] = {}
    for rrset in prerequisites:
        kind = RdataType(rrset.rdtype)
        if rrset.deleting == dns.rdataclass.ANY:
            _require_present(zone, rrset.name, kind)
        elif rrset.deleting == dns.rdataclass.NONE:
            _require_absent(zone, rrset.name, kind)
        else:
            exact.setdefault((rrset.name, kind), set()).update(_rdata_wires(rrset))
    for (name, kind), wires in exact.items():
        current = zone.get_rdataset(name, kind)
        if current is None or set(_rdata_wires(current)) != wires:
            raise UpdateRefused(dns.rcode.NXRRSET)


def _require_present(zone: dns.zone.Zone, name: dns.name.Name, kind: RdataType) -> None:
    if kind == RdataType.ANY:
        if zone.get_node(name) is None:
            raise UpdateRefused(dns.rcode.NXDOMAIN)
    elif zone.get_rdataset(name, kind) is None:
        raise UpdateRefused(dns.rcode.NXRRSET)


def _require_absent(zone: dns.zone.Zone, name: dns.name.Name, kind: RdataType) -> None:
    if kind == RdataType.ANY:
        if zone.get_node(name) is not None:
            raise UpdateRefused(dns.rcode.YXDOMAIN)
    elif zone.get_rdataset(name, kind) is not None:
        raise UpdateRefused(dns.rcode.YXRRSET)


def _rdata_wires(rdataset: dns.rdataset.Rdataset) -> list[bytes]:
    return [rdata.to_digestable() for rdata in rdataset]


def _apply_change(zone: dns.zone.Zone, origin: dns.name.Name, change: dns.rrset.RRset) -> None:
    kind = RdataType(change.rdtype)
    if change.deleting == dns.rdataclass.ANY:
        _remove_sets(zone, origin, change.name, kind)
    elif change.deleting == dns.rdataclass.NONE:
        _remove(zone, origin, change)
    else:
        _add(zone, change, kind)
    node = zone.get_node(change.name)
    if node is not None and not len(node):
        zone.delete_node(change.name)


def _add(zone: dns.zone.Zone, change: dns.rrset.RRset, kind: RdataType) -> None:
    if kind == RdataType.SOA:
        return  # this server increments the serial itself
    node = zone.get_node(change.name)
    kinds = {rdataset.rdtype for rdataset in node} if node is not None else set()
    if (kind == RdataType.CNAME and kinds - {RdataType.CNAME}) or (
        kind != RdataType.CNAME and RdataType.CNAME in kinds
    ):
        return  # RFC 2136 §3.4.2.2: ignored silently
    current = zone.get_rdataset(change.name, kind)
    records = [] if current is None or kind == RdataType.CNAME else [each for each in current if each not in change]
    zone.replace_rdataset(change.name, dns.rdataset.from_rdata_list(change.ttl, [*records, *change]))


def _remove_sets(zone: dns.zone.Zone, origin: dns.name.Name, name: dns.name.Name, kind: RdataType) -> None:
    node = zone.get_node(name)
    if node is None:
        return
    for rdataset in list(node):
        if kind in (RdataType.ANY, rdataset.rdtype) and not (name == origin and rdataset.rdtype in _PROTECTED_TYPES):
            zone.delete_rdataset(name, rdataset.rdtype, rdataset.covers)


def _remove(zone: dns.zone.Zone, origin: dns.name.Name, change: dns.rrset.RRset) -> None:
    current = zone.get_rdataset(change.name, change.rdtype)
    if current is None or (change.name == origin and change.rdtype in _PROTECTED_TYPES):
        return
    remaining = [each for each in current if each not in change]
    if remaining:
        zone.replace_rdataset(change.name, dns.rdataset.from_rdata_list(current.ttl, remaining))
    else:
        zone.delete_rdataset(change.name, change.rdtype)
