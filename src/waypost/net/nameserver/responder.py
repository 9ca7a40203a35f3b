"""Answers out of zones (RFC 1034 §4.3.2, RFC 4035 §3.1): what is there, what is not with its proof, and what lies elsewhere."""

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


class ZoneSet:
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


def answer_query(zones: ZoneSet, query: dns.message.Message) -> dns.message.Message:
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

    def of(self, zones: ZoneSet, name: dns.name.Name, kind: RdataType) -> None:
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


# ---- Dynamic updates (RFC 2136): only by whoever holds the key, all of them or none.

_KEPT = (RdataType.SOA, RdataType.NS)  # of the zone itself: without them it is none


class UpdateRefused(Exception):
    """An update that is not made, and the code that says why."""

    def __init__(self, rcode: dns.rcode.Rcode) -> None:
        super().__init__(rcode.name)
        self.rcode = rcode


def apply_update(
    zones: ZoneSet, message: dns.update.UpdateMessage, now: float
) -> tuple[dns.message.Message, SignedZone | None]:
    """The answer to an update, and the zone that it changed."""
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
    zone = zones.at(message.zone[0].name)
    if zone is None:
        raise UpdateRefused(dns.rcode.NOTAUTH)
    for wanted in (*message.prerequisite, *message.update):
        if not wanted.name.is_subdomain(zone.origin):
            raise UpdateRefused(dns.rcode.NOTZONE)
    _check_prerequisites(zone.plain, message.prerequisite)
    fresh = parse_zone(zone.name, zone.text())
    before = zone.text()
    for change in message.update:
        _apply_change(fresh, zone.origin, change)
    if sum(len(node) for node in fresh.nodes.values()) > limits.ZONE_SETS:
        raise UpdateRefused(dns.rcode.REFUSED)
    zone.plain = fresh
    if zone.text() == before:
        return None
    zone.resign(now)
    return zone


# --- What must be so first ------------------------------------------------------------------------


def _check_prerequisites(zone: dns.zone.Zone, wanted: list[dns.rrset.RRset]) -> None:
    exact: dict[tuple[dns.name.Name, RdataType], set[bytes]] = {}
    for each in wanted:
        kind = RdataType(each.rdtype)
        if each.deleting == dns.rdataclass.ANY:
            _require_present(zone, each.name, kind)
        elif each.deleting == dns.rdataclass.NONE:
            _require_absent(zone, each.name, kind)
        else:
            exact.setdefault((each.name, kind), set()).update(_data(each))
    for (name, kind), data in exact.items():
        held = zone.get_rdataset(name, kind)
        if held is None or set(_data(held)) != data:
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


def _data(held: dns.rdataset.Rdataset) -> list[bytes]:
    return [rdata.to_digestable() for rdata in held]


# --- What is changed ------------------------------------------------------------------------------


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
        return  # the serial is ours to raise
    node = zone.get_node(change.name)
    kinds = {held.rdtype for held in node} if node is not None else set()
    if (kind == RdataType.CNAME and kinds - {RdataType.CNAME}) or (
        kind != RdataType.CNAME and RdataType.CNAME in kinds
    ):
        return  # RFC 2136 §3.4.2.2: silently, one way or the other
    held = zone.get_rdataset(change.name, kind)
    records = [] if held is None or kind == RdataType.CNAME else [each for each in held if each not in change]
    zone.replace_rdataset(change.name, dns.rdataset.from_rdata_list(change.ttl, [*records, *change]))


def _remove_sets(zone: dns.zone.Zone, origin: dns.name.Name, name: dns.name.Name, kind: RdataType) -> None:
    node = zone.get_node(name)
    if node is None:
        return
    for held in list(node):
        if kind in (RdataType.ANY, held.rdtype) and not (name == origin and held.rdtype in _KEPT):
            zone.delete_rdataset(name, held.rdtype, held.covers)


def _remove(zone: dns.zone.Zone, origin: dns.name.Name, change: dns.rrset.RRset) -> None:
    held = zone.get_rdataset(change.name, change.rdtype)
    if held is None or (change.name == origin and change.rdtype in _KEPT):
        return
    left = [each for each in held if each not in change]
    if left:
        zone.replace_rdataset(change.name, dns.rdataset.from_rdata_list(held.ttl, left))
    else:
        zone.delete_rdataset(change.name, change.rdtype)
