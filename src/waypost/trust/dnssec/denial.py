"""Authenticated denial of existence: NSEC (RFC 4035 §5.4) and NSEC3 (RFC 5155 §8)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import dns.name
import dns.rdatatype
import dns.rrset
import msgspec
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.NSEC3 import NSEC3

from waypost.trust.dnssec.validation import (
    SECURE,
    SecurityStatus,
    SignedRRset,
    SigningZone,
    ValidationBudget,
    ValidationPolicy,
    VerifiedRRset,
    bogus,
    insecure,
    verify_rrset,
)

TypeBitmap = Iterable[tuple[int, bytes]]


def has_type(windows: TypeBitmap, kind: RdataType) -> bool:
    window, bit = divmod(int(kind), 256)
    place, mask = bit // 8, 0x80 >> bit % 8
    return any(number == window and place < len(bits) and bits[place] & mask for number, bits in windows)


def is_delegation_bitmap(windows: TypeBitmap) -> bool:
    """Return whether the bitmap is that of the parent side of a zone cut."""
    return has_type(windows, dns.rdatatype.NS) and not has_type(windows, dns.rdatatype.SOA)


def find_nodata_error(windows: TypeBitmap, name: dns.name.Name, kind: RdataType) -> str | None:
    """Return why a bitmap at a name does not prove that there is no such type, or None."""
    type_name = dns.rdatatype.to_text(kind)
    if has_type(windows, kind):
        return f"the zone states that {name} has {type_name}"
    if has_type(windows, dns.rdatatype.CNAME):
        return f"the zone states that {name} is an alias"
    if kind == dns.rdatatype.DS:
        if has_type(windows, dns.rdatatype.SOA) and name != dns.name.root:
            return f"the child states that {name} has no DS, which only its parent can state"
        return None
    if is_delegation_bitmap(windows):
        return f"the parent states that {name} has no {type_name}, which only the child can state"
    return None


# --- NSEC: names in canonical order, each with the next name and its own types --------------------

NsecRecord = tuple[dns.name.Name, NSEC]


class NsecProofs:
    """NSEC records of one zone with valid signatures."""

    def __init__(self, zone: dns.name.Name, rows: Iterable[NsecRecord]) -> None:
        self._zone = zone
        self._rows = [(owner, row) for owner, row in rows if owner.is_subdomain(zone) and row.next.is_subdomain(zone)]

    def nodata(self, name: dns.name.Name, kind: RdataType) -> SecurityStatus:
        match = self._match(name)
        if match is not None:
            error = find_nodata_error(match.windows, name, kind)
            return SECURE if error is None else bogus(error)
        for owner, row in self._covering(name):
            if row.next.is_subdomain(name):  # an empty non-terminal
                return SECURE
            if self._wildcard_lacks(_wildcard_of(_closest_encloser(name, owner, row)), name, kind):
                return SECURE
        return bogus(f"nothing proves that {name} has no {dns.rdatatype.to_text(kind)}")

    def nxdomain(self, name: dns.name.Name) -> SecurityStatus:
        for owner, row in self._covering(name):
            if row.next.is_subdomain(name):
                continue
            if any(self._covering(_wildcard_of(_closest_encloser(name, owner, row)))):
                return SECURE
        return bogus(f"nothing proves that {name} does not exist")

    def expansion(self, name: dns.name.Name, encloser: dns.name.Name) -> SecurityStatus:
        """Prove that a wildcard applies to the name: no closer name exists."""
        if any(_closest_encloser(name, owner, row) == encloser for owner, row in self._covering(name)):
            return SECURE
        return bogus(f"nothing proves that a wildcard applies to {name}")

    def is_delegation(self, name: dns.name.Name) -> bool:
        match = self._match(name)
        return match is not None and is_delegation_bitmap(match.windows)

    def _wildcard_lacks(self, wildcard: dns.name.Name, name: dns.name.Name, kind: RdataType) -> bool:
        """Return whether the wildcard exists without the type, or is an empty non-terminal."""
        match = self._match(wildcard)
        if match is not None:
            return find_nodata_error(match.windows, name, kind) is None
        return any(row.next.is_subdomain(wildcard) for _, row in self._covering(wildcard))

    def _match(self, name: dns.name.Name) -> NSEC | None:
        return next((row for owner, row in self._rows if owner == name), None)

    def _covering(self, name: dns.name.Name) -> Iterator[NsecRecord]:
        """Yield records that cover the name. A parent's record covers nothing below a zone cut (RFC 6840 §4.1)."""
        for owner, row in self._rows:
            if not name.is_subdomain(self._zone) or not _is_name_between(owner, name, row.next, self._zone):
                continue
            ends_zone = is_delegation_bitmap(row.windows) or has_type(row.windows, dns.rdatatype.DNAME)
            if not (ends_zone and name.is_subdomain(owner)):
                yield owner, row


def _is_name_between(owner: dns.name.Name, name: dns.name.Name, after: dns.name.Name, zone: dns.name.Name) -> bool:
    return bool(owner < name and (name < after or after == zone))


def _closest_encloser(name: dns.name.Name, owner: dns.name.Name, row: NSEC) -> dns.name.Name:
    """Return the longest existing parent of the name, by its neighbours."""
    shared = max(_common_labels(name, owner), _common_labels(name, row.next))
    return name.split(shared)[1]


def _common_labels(one: dns.name.Name, other: dns.name.Name) -> int:
    return one.fullcompare(other)[2]


def _wildcard_of(name: dns.name.Name) -> dns.name.Name:
    labels: Sequence[bytes] = (b"*", *name.labels)
    return dns.name.Name(labels)


# --- NSEC3: hashed names in order. A zone with too many iterations counts as unsigned -------------

Nsec3Record = tuple[dns.name.Name, NSEC3]

_NSEC3_SHA1: Final = 1

_OPT_OUT: Final = 1


class _ClosestEncloser(msgspec.Struct, frozen=True, kw_only=True):
    """The closest existing parent, and whether the record that covers the next closer name has opt-out."""

    name: dns.name.Name
    opt_out: bool


class Nsec3Proofs:
    """NSEC3 records of one zone with valid signatures."""

    def __init__(
        self, zone: dns.name.Name, rows: Iterable[Nsec3Record], budget: ValidationBudget, policy: ValidationPolicy
    ) -> None:
        self._zone = zone
        self._budget = budget
        self._hashes: dict[dns.name.Name, bytes] = {}
        known = [(_owner_hash(owner, zone), row) for owner, row in rows if _is_supported_nsec3(row)]
        self._too_costly = any(row.iterations > policy.iterations for _, row in known)
        alike = [(place, row) for place, row in known if place and _parameters(row) == _parameters(known[0][1])]
        self._rows = [] if self._too_costly else alike

    def nodata(self, name: dns.name.Name, kind: RdataType) -> SecurityStatus:
        match = self._match(name)
        if match is not None:
            error = find_nodata_error(match.windows, name, kind)
            return SECURE if error is None else bogus(error)
        encloser = self._closest_encloser(name)
        if encloser is not None and encloser.opt_out:
            return _opted_out(name)  # regardless of a wildcard (RFC 5155 §9.2)
        if encloser is not None:
            wildcard = self._match(_wildcard_below(encloser.name))
            if wildcard is not None and find_nodata_error(wildcard.windows, name, kind) is None:
                return SECURE
        return self._unproven(f"nothing proves that {name} has no {dns.rdatatype.to_text(kind)}")

    def nxdomain(self, name: dns.name.Name) -> SecurityStatus:
        encloser = self._closest_encloser(name)
        if encloser is None or self._cover(_wildcard_below(encloser.name)) is None:
            return self._unproven(f"nothing proves that {name} does not exist")
        return _opted_out(name) if encloser.opt_out else SECURE

    def expansion(self, name: dns.name.Name, encloser: dns.name.Name) -> SecurityStatus:
        """Prove that a wildcard applies to the name: no closer name exists."""
        cover = self._cover(name.split(len(encloser) + 1)[1])
        if cover is None:
            return self._unproven(f"nothing proves that a wildcard applies to {name}")
        return _opted_out(name) if cover.flags & _OPT_OUT else SECURE

    def is_delegation(self, name: dns.name.Name) -> bool:
        match = self._match(name)
        return match is not None and is_delegation_bitmap(match.windows)

    def _unproven(self, reason: str) -> SecurityStatus:
        if self._too_costly:
            return insecure(f"{self._zone} uses too many NSEC3 iterations (RFC 9276)")
        return bogus(reason)

    def _closest_encloser(self, name: dns.name.Name) -> _ClosestEncloser | None:
        for depth in range(len(name) - 1, len(self._zone) - 1, -1):
            candidate = name.split(depth)[1]
            match = self._match(candidate)
            if match is None:
                continue
            if is_delegation_bitmap(match.windows) or has_type(match.windows, dns.rdatatype.DNAME):
                return None  # this zone cannot deny names below the cut (RFC 5155 §8.3)
            cover = self._cover(name.split(depth + 1)[1])
            return None if cover is None else _ClosestEncloser(name=candidate, opt_out=bool(cover.flags & _OPT_OUT))
        return None

    def _match(self, name: dns.name.Name) -> NSEC3 | None:
        hashed = self._hash(name)
        return next((row for place, row in self._rows if place == hashed), None)

    def _cover(self, name: dns.name.Name) -> NSEC3 | None:
        hashed = self._hash(name)
        return next((row for place, row in self._rows if hashed and _is_hash_between(place, hashed, row.next)), None)

    def _hash(self, name: dns.name.Name) -> bytes:
        """Return the hash of a name; empty if the budget is spent or there is nothing to compare with."""
        if name not in self._hashes:
            possible = self._rows and name.is_subdomain(self._zone) and self._budget.spend_hash()
            self._hashes[name] = _nsec3_hash(name, self._rows[0][1]) if possible else b""
        return self._hashes[name]


def _nsec3_hash(name: dns.name.Name, row: NSEC3) -> bytes:
    salt = row.salt or b""
    value = hashlib.sha1(name.to_digestable() + salt, usedforsecurity=False).digest()
    for _ in range(row.iterations):
        value = hashlib.sha1(value + salt, usedforsecurity=False).digest()
    return value


def _is_supported_nsec3(row: NSEC3) -> bool:
    return bool(row.algorithm == _NSEC3_SHA1 and row.flags & ~_OPT_OUT == 0)


def _parameters(row: NSEC3) -> tuple[int, bytes]:
    return row.iterations, row.salt or b""


def _owner_hash(owner: dns.name.Name, zone: dns.name.Name) -> bytes:
    if len(owner) != len(zone) + 1 or not owner.is_subdomain(zone):
        return b""
    try:
        return base64.b32hexdecode(owner.labels[0].upper())
    except (binascii.Error, ValueError):
        return b""


def _is_hash_between(owner: bytes, name: bytes, after: bytes) -> bool:
    if owner < after:
        return owner < name < after
    return name > owner or name < after


def _wildcard_below(name: dns.name.Name) -> dns.name.Name:
    return dns.name.Name((b"*", *name.labels))


def _opted_out(name: dns.name.Name) -> SecurityStatus:
    return insecure(f"the zone does not state whether {name} exists (opt-out)")


# --- All proofs of one response -------------------------------------------------------------------

DENIAL_TYPES = (dns.rdatatype.NSEC, dns.rdatatype.NSEC3)

NsecOrNsec3Proofs = NsecProofs | Nsec3Proofs


class DenialProofs:
    """The denial records of one response. One invalid signature invalidates all: the record was meant as part of the
    proof."""

    def __init__(
        self,
        zone: SigningZone,
        signed: Sequence[SignedRRset],
        now: float,
        budget: ValidationBudget,
        policy: ValidationPolicy,
    ) -> None:
        self._error = ""
        own = [one for one in signed if _is_in_zone(one, zone.name)]
        sets = [one.rrset for one in own[: policy.denials] if self._is_valid(one, zone, now, budget, policy)]
        nsec = [(rrset.name, row) for rrset in sets for row in rrset if isinstance(row, NSEC)]
        nsec3 = [(rrset.name, row) for rrset in sets for row in rrset if isinstance(row, NSEC3)]
        self._proofs: list[NsecOrNsec3Proofs] = []
        if nsec:
            self._proofs.append(NsecProofs(zone.name, nsec))
        if nsec3:
            self._proofs.append(Nsec3Proofs(zone.name, nsec3, budget, policy))

    def nodata(self, name: dns.name.Name, kind: RdataType) -> SecurityStatus:
        return self._any(lambda proofs: proofs.nodata(name, kind))

    def nxdomain(self, name: dns.name.Name) -> SecurityStatus:
        return self._any(lambda proofs: proofs.nxdomain(name))

    def expansion(self, name: dns.name.Name, encloser: dns.name.Name) -> SecurityStatus:
        return self._any(lambda proofs: proofs.expansion(name, encloser))

    def is_delegation(self, name: dns.name.Name) -> bool:
        return any(proofs.is_delegation(name) for proofs in self._proofs)

    def _any(self, prove: Callable[[NsecOrNsec3Proofs], SecurityStatus]) -> SecurityStatus:
        if self._error:
            return bogus(self._error)
        result = bogus("nothing proves that the name does not exist")
        for proofs in self._proofs:
            result = prove(proofs)
            if result.security != "bogus":
                return result
        return result

    def _is_valid(
        self, signed: SignedRRset, zone: SigningZone, now: float, budget: ValidationBudget, policy: ValidationPolicy
    ) -> bool:
        """A record expanded from a wildcard denies nothing: anyone can choose its name."""
        proven = verify_rrset(signed, zone, now, budget, policy)
        if isinstance(proven, VerifiedRRset):
            return proven.encloser is None
        self._error = proven.reason
        return False


def _is_in_zone(signed: SignedRRset, zone: dns.name.Name) -> bool:
    """A response may have proofs of several zones, one per alias; unsigned records belong to the zone that contains
    them."""
    if not signed.rrset.name.is_subdomain(zone):
        return False
    return not signed.signatures or any(signature.signer == zone for signature in signed.signatures)
