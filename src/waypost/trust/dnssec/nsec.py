"""What is not there, by NSEC: names in their order, each with the next one and its own types (RFC 4035 §5.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import dns.name
import dns.rdatatype
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.NSEC import NSEC

from waypost.trust.dnssec.judgement import SECURE, Judgement, bogus
from waypost.trust.dnssec.typemap import absence_fault, has_type, is_delegation

Row = tuple[dns.name.Name, NSEC]


class NsecProofs:
    """NSEC records of one zone whose signatures hold."""

    def __init__(self, zone: dns.name.Name, rows: Iterable[Row]) -> None:
        self._zone = zone
        self._rows = [(owner, row) for owner, row in rows if owner.is_subdomain(zone) and row.next.is_subdomain(zone)]

    def nodata(self, name: dns.name.Name, kind: RdataType) -> Judgement:
        match = self._match(name)
        if match is not None:
            fault = absence_fault(match.windows, name, kind)
            return SECURE if fault is None else bogus(fault)
        for owner, row in self._covering(name):
            if row.next.is_subdomain(name):  # nothing is here, but something is below
                return SECURE
            if self._wildcard_lacks(_wildcard(_encloser(name, owner, row)), name, kind):
                return SECURE
        return bogus(f"nothing proves that {name} has no {dns.rdatatype.to_text(kind)}")

    def nxdomain(self, name: dns.name.Name) -> Judgement:
        for owner, row in self._covering(name):
            if row.next.is_subdomain(name):
                continue
            if any(self._covering(_wildcard(_encloser(name, owner, row)))):
                return SECURE
        return bogus(f"nothing proves that {name} does not exist")

    def expansion(self, name: dns.name.Name, encloser: dns.name.Name) -> Judgement:
        """That a wildcard may stand for the name: nothing closer is there."""
        if any(_encloser(name, owner, row) == encloser for owner, row in self._covering(name)):
            return SECURE
        return bogus(f"nothing proves that {name} may come from a wildcard")

    def is_delegation(self, name: dns.name.Name) -> bool:
        match = self._match(name)
        return match is not None and is_delegation(match.windows)

    def _wildcard_lacks(self, wildcard: dns.name.Name, name: dns.name.Name, kind: RdataType) -> bool:
        """It is there without the type, or only something below it is. That a record leads to it says nothing of its types."""
        match = self._match(wildcard)
        if match is not None:
            return absence_fault(match.windows, name, kind) is None
        return any(row.next.is_subdomain(wildcard) for _, row in self._covering(wildcard))

    def _match(self, name: dns.name.Name) -> NSEC | None:
        return next((row for owner, row in self._rows if owner == name), None)

    def _covering(self, name: dns.name.Name) -> Iterator[Row]:
        """Records between whose names the name would be. What a parent says ends where a child begins (RFC 6840 §4.1)."""
        for owner, row in self._rows:
            if not name.is_subdomain(self._zone) or not _is_between(owner, name, row.next, self._zone):
                continue
            leaves = is_delegation(row.windows) or has_type(row.windows, dns.rdatatype.DNAME)
            if not (leaves and name.is_subdomain(owner)):
                yield owner, row


def _is_between(owner: dns.name.Name, name: dns.name.Name, after: dns.name.Name, zone: dns.name.Name) -> bool:
    return bool(owner < name and (name < after or after == zone))


def _encloser(name: dns.name.Name, owner: dns.name.Name, row: NSEC) -> dns.name.Name:
    """The longest name above that is known to be there, by the neighbours."""
    shared = max(_shared(name, owner), _shared(name, row.next))
    return name.split(shared)[1]


def _shared(one: dns.name.Name, other: dns.name.Name) -> int:
    return one.fullcompare(other)[2]


def _wildcard(name: dns.name.Name) -> dns.name.Name:
    labels: Sequence[bytes] = (b"*", *name.labels)
    return dns.name.Name(labels)
