"""Dynamic updates (RFC 2136): only by whoever holds the key, all of them or none."""

from __future__ import annotations

import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdataset
import dns.rrset
import dns.update
import dns.zone
from dns.rdatatype import RdataType

from waypost import limits
from waypost.net.nameserver.answers import Zones
from waypost.net.nameserver.zone import SignedZone, read_zone

_KEPT = (RdataType.SOA, RdataType.NS)  # of the zone itself: without them it is none


class Refused(Exception):
    """An update that is not made, and the code that says why."""

    def __init__(self, rcode: dns.rcode.Rcode) -> None:
        super().__init__(rcode.name)
        self.rcode = rcode


def update(
    zones: Zones, message: dns.update.UpdateMessage, now: float
) -> tuple[dns.message.Message, SignedZone | None]:
    """The answer to an update, and the zone that it changed."""
    response = dns.message.make_response(message)
    try:
        return response, _apply(zones, message, now)
    except Refused as refused:
        response.set_rcode(refused.rcode)
        return response, None


def _apply(zones: Zones, message: dns.update.UpdateMessage, now: float) -> SignedZone | None:
    if not message.had_tsig:
        raise Refused(dns.rcode.REFUSED)
    if len(message.zone) != 1 or message.zone[0].rdtype != RdataType.SOA:
        raise Refused(dns.rcode.FORMERR)
    zone = zones.at(message.zone[0].name)
    if zone is None:
        raise Refused(dns.rcode.NOTAUTH)
    for wanted in (*message.prerequisite, *message.update):
        if not wanted.name.is_subdomain(zone.origin):
            raise Refused(dns.rcode.NOTZONE)
    _check(zone.plain, message.prerequisite)
    fresh = read_zone(zone.name, zone.text())
    before = zone.text()
    for change in message.update:
        _change(fresh, zone.origin, change)
    if sum(len(node) for node in fresh.nodes.values()) > limits.ZONE_SETS:
        raise Refused(dns.rcode.REFUSED)
    zone.plain = fresh
    if zone.text() == before:
        return None
    zone.resign(now)
    return zone


# --- What must be so first ------------------------------------------------------------------------


def _check(zone: dns.zone.Zone, wanted: list[dns.rrset.RRset]) -> None:
    exact: dict[tuple[dns.name.Name, RdataType], set[bytes]] = {}
    for each in wanted:
        kind = RdataType(each.rdtype)
        if each.deleting == dns.rdataclass.ANY:
            _need(zone, each.name, kind)
        elif each.deleting == dns.rdataclass.NONE:
            _need_none(zone, each.name, kind)
        else:
            exact.setdefault((each.name, kind), set()).update(_data(each))
    for (name, kind), data in exact.items():
        held = zone.get_rdataset(name, kind)
        if held is None or set(_data(held)) != data:
            raise Refused(dns.rcode.NXRRSET)


def _need(zone: dns.zone.Zone, name: dns.name.Name, kind: RdataType) -> None:
    if kind == RdataType.ANY:
        if zone.get_node(name) is None:
            raise Refused(dns.rcode.NXDOMAIN)
    elif zone.get_rdataset(name, kind) is None:
        raise Refused(dns.rcode.NXRRSET)


def _need_none(zone: dns.zone.Zone, name: dns.name.Name, kind: RdataType) -> None:
    if kind == RdataType.ANY:
        if zone.get_node(name) is not None:
            raise Refused(dns.rcode.YXDOMAIN)
    elif zone.get_rdataset(name, kind) is not None:
        raise Refused(dns.rcode.YXRRSET)


def _data(held: dns.rdataset.Rdataset) -> list[bytes]:
    return [rdata.to_digestable() for rdata in held]


# --- What is changed ------------------------------------------------------------------------------


def _change(zone: dns.zone.Zone, origin: dns.name.Name, change: dns.rrset.RRset) -> None:
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
