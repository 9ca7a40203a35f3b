"""What is not there, by NSEC3: hashes of names in their order (RFC 5155 §8). More rounds than make sense count as not signed."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Final

import dns.name
import dns.rdatatype
import msgspec
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.NSEC3 import NSEC3

from waypost.trust.dnssec.judgement import SECURE, Judgement, bogus, insecure
from waypost.trust.dnssec.rules import Effort, Rules
from waypost.trust.dnssec.typemap import absence_fault, has_type, is_delegation

Row = tuple[dns.name.Name, NSEC3]
_SHA1: Final = 1
_OPT_OUT: Final = 1


class _Encloser(msgspec.Struct, frozen=True, kw_only=True):
    """The closest name above that is there, and the record over the next one below, which is not."""

    name: dns.name.Name
    opt_out: bool


class Nsec3Proofs:
    """NSEC3 records of one zone whose signatures hold."""

    def __init__(self, zone: dns.name.Name, rows: Iterable[Row], effort: Effort, rules: Rules) -> None:
        self._zone = zone
        self._effort = effort
        self._hashes: dict[dns.name.Name, bytes] = {}
        known = [(_owner_hash(owner, zone), row) for owner, row in rows if _is_known(row)]
        self._too_costly = any(row.iterations > rules.iterations for _, row in known)
        alike = [(place, row) for place, row in known if place and _parameters(row) == _parameters(known[0][1])]
        self._rows = [] if self._too_costly else alike

    def nodata(self, name: dns.name.Name, kind: RdataType) -> Judgement:
        match = self._match(name)
        if match is not None:
            fault = absence_fault(match.windows, name, kind)
            return SECURE if fault is None else bogus(fault)
        encloser = self._closest_encloser(name)
        if encloser is not None and encloser.opt_out:
            return _opted_out(name)  # whatever a wildcard says (RFC 5155 §9.2)
        if encloser is not None:
            wildcard = self._match(_wildcard(encloser.name))
            if wildcard is not None and absence_fault(wildcard.windows, name, kind) is None:
                return SECURE
        return self._unproven(f"nothing proves that {name} has no {dns.rdatatype.to_text(kind)}")

    def nxdomain(self, name: dns.name.Name) -> Judgement:
        encloser = self._closest_encloser(name)
        if encloser is None or self._cover(_wildcard(encloser.name)) is None:
            return self._unproven(f"nothing proves that {name} does not exist")
        return _opted_out(name) if encloser.opt_out else SECURE

    def expansion(self, name: dns.name.Name, encloser: dns.name.Name) -> Judgement:
        """That a wildcard may stand for the name: nothing closer is there."""
        cover = self._cover(name.split(len(encloser) + 1)[1])
        if cover is None:
            return self._unproven(f"nothing proves that {name} may come from a wildcard")
        return _opted_out(name) if cover.flags & _OPT_OUT else SECURE

    def is_delegation(self, name: dns.name.Name) -> bool:
        match = self._match(name)
        return match is not None and is_delegation(match.windows)

    def _unproven(self, reason: str) -> Judgement:
        if self._too_costly:
            return insecure(f"{self._zone} hashes its names more often than is followed (RFC 9276)")
        return bogus(reason)

    def _closest_encloser(self, name: dns.name.Name) -> _Encloser | None:
        for depth in range(len(name) - 1, len(self._zone) - 1, -1):
            candidate = name.split(depth)[1]
            match = self._match(candidate)
            if match is None:
                continue
            if is_delegation(match.windows) or has_type(match.windows, dns.rdatatype.DNAME):
                return None  # what is below is not this zone's to deny (RFC 5155 §8.3)
            cover = self._cover(name.split(depth + 1)[1])
            return None if cover is None else _Encloser(name=candidate, opt_out=bool(cover.flags & _OPT_OUT))
        return None

    def _match(self, name: dns.name.Name) -> NSEC3 | None:
        hashed = self._hash(name)
        return next((row for place, row in self._rows if place == hashed), None)

    def _cover(self, name: dns.name.Name) -> NSEC3 | None:
        hashed = self._hash(name)
        return next((row for place, row in self._rows if hashed and _is_between(place, hashed, row.next)), None)

    def _hash(self, name: dns.name.Name) -> bytes:
        """Empty, which is no hash of any name, where too many were asked for, or there is nothing to compare with."""
        if name not in self._hashes:
            possible = self._rows and name.is_subdomain(self._zone) and self._effort.spend_hash()
            self._hashes[name] = _hashed(name, self._rows[0][1]) if possible else b""
        return self._hashes[name]


def _hashed(name: dns.name.Name, row: NSEC3) -> bytes:
    salt = row.salt or b""
    value = hashlib.sha1(name.to_digestable() + salt, usedforsecurity=False).digest()
    for _ in range(row.iterations):
        value = hashlib.sha1(value + salt, usedforsecurity=False).digest()
    return value


def _is_known(row: NSEC3) -> bool:
    return bool(row.algorithm == _SHA1 and row.flags & ~_OPT_OUT == 0)


def _parameters(row: NSEC3) -> tuple[int, bytes]:
    return row.iterations, row.salt or b""


def _owner_hash(owner: dns.name.Name, zone: dns.name.Name) -> bytes:
    if len(owner) != len(zone) + 1 or not owner.is_subdomain(zone):
        return b""
    try:
        return base64.b32hexdecode(owner.labels[0].upper())
    except (binascii.Error, ValueError):
        return b""


def _is_between(owner: bytes, name: bytes, after: bytes) -> bool:
    if owner < after:
        return owner < name < after
    return name > owner or name < after


def _wildcard(name: dns.name.Name) -> dns.name.Name:
    return dns.name.Name((b"*", *name.labels))


def _opted_out(name: dns.name.Name) -> Judgement:
    return insecure(f"the zone leaves open what there is at {name} (opt-out)")
