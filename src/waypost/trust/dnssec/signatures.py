"""One set of records and its signatures (RFC 4035 §5.3). The cryptography of one signature is dnspython's, or `ed25519.py`'s;
everything that makes it count is here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import dns.dnssec
import dns.exception
import dns.name
import dns.rdatatype
import dns.rrset
import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from dns.dnssecalgs import get_algorithm_cls_from_dnskey
from dns.dnssectypes import Algorithm
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.RRSIG import RRSIG
from dns.rdtypes.dnskeybase import Flag

from waypost.trust import ed25519
from waypost.trust.dnssec.judgement import Judgement, bogus
from waypost.trust.dnssec.rules import Effort, Rules

_ZONE_PROTOCOL: Final = 3
_HALF: Final = 2**31


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A set of records with the signatures that claim to cover it."""

    rrset: dns.rrset.RRset
    signatures: tuple[RRSIG, ...] = ()


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """A set whose signature holds. `encloser` is above the wildcard that it was made of; None for one that stands as it is."""

    ttl: int
    encloser: dns.name.Name | None = None


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    """A zone whose keys are proven, by algorithm and tag."""

    name: dns.name.Name
    keys: dict[tuple[int, int], tuple[DNSKEY, ...]]


def verify(signed: Signed, zone: Zone, now: float, effort: Effort, rules: Rules) -> Proven | Judgement:
    """Proven by any one signature of the zone; else a bogus judgement with the most telling reason."""
    name = _text(signed.rrset)
    reason = f"{name} is not signed by its zone"
    tried = 0
    for signature in signed.signatures[: rules.signatures_seen]:
        if signature.signer != zone.name:
            continue
        fault = _fault(signed.rrset, signature, now, rules)
        if fault is not None:
            reason = f"{name}: {fault}"
            continue
        candidates = zone.keys.get((int(signature.algorithm), signature.key_tag), ())
        if not candidates:
            reason = f"{name}: no key of the zone has the signature's tag {signature.key_tag}"
            continue
        if len(candidates) > rules.colliding_keys:
            reason = f"{name}: too many keys share the tag {signature.key_tag}"
            continue
        for key in candidates:
            tried += 1
            if tried > rules.signatures or not effort.spend_signature():
                return bogus(f"{name}: more signatures to try than any zone needs")
            if _holds(signed.rrset, signature, key):
                return _proven(signed.rrset, signature, now)
        reason = f"{name}: the signature does not hold"
    return bogus(reason)


def zone_keys(keys: Iterable[object]) -> tuple[DNSKEY, ...]:
    """Those that may sign records of a zone: neither revoked nor meant for something else (RFC 4034 §2.1, RFC 5011 §2.1)."""
    return tuple(
        key
        for key in keys
        if isinstance(key, DNSKEY)
        and key.flags & Flag.ZONE
        and not key.flags & Flag.REVOKE
        and key.protocol == _ZONE_PROTOCOL
    )


def by_tag(keys: Iterable[DNSKEY]) -> dict[tuple[int, int], tuple[DNSKEY, ...]]:
    found: dict[tuple[int, int], tuple[DNSKEY, ...]] = {}
    for key in keys:
        place = (int(key.algorithm), dns.dnssec.key_id(key))
        found[place] = (*found.get(place, ()), key)
    return found


def owner_labels(name: dns.name.Name) -> int:
    """Labels as a signature counts them: without the root and a leading wildcard (RFC 4034 §3.1.3)."""
    return len(name) - 1 - int(name.is_wild())


def _fault(rrset: dns.rrset.RRset, signature: RRSIG, now: float, rules: Rules) -> str | None:
    if signature.type_covered != rrset.rdtype or not rrset.name.is_subdomain(signature.signer):
        return "the signature is for something else"
    if signature.labels > owner_labels(rrset.name) or signature.labels < len(signature.signer) - 1:
        return "the signature counts more labels than the name has"
    if rrset.name.is_wild() and signature.labels < owner_labels(rrset.name):
        return "it is made of a wildcard, and named like one itself"  # refused by decision, not by RFC 4035: see 0017
    if signature.algorithm not in rules.algorithms:
        return f"the signature is of an unknown algorithm ({int(signature.algorithm)})"
    if _is_later(int(now), signature.expiration):
        return "the signature has expired"
    if _is_later(signature.inception, now):
        return "the signature is not valid yet"
    return None


def _is_later(one: float, other: float) -> bool:
    """By serial arithmetic: the clock of signatures turns over in 2106 (RFC 4034 §3.1.5)."""
    difference = (int(one) - int(other)) % 2**32
    return 0 < difference < _HALF


def _holds(rrset: dns.rrset.RRset, signature: RRSIG, key: DNSKEY) -> bool:
    if key.algorithm == Algorithm.ED25519:
        return ed25519.verify(key.key, signature.signature, _covered(rrset, signature))
    try:
        public = get_algorithm_cls_from_dnskey(key).public_cls.from_dnskey(key)
        public.verify(signature.signature, _covered(rrset, signature))
    except (InvalidSignature, UnsupportedAlgorithm, dns.exception.DNSException, ValueError, struct.error):
        return False
    return True


def _covered(rrset: dns.rrset.RRset, signature: RRSIG) -> bytes:
    """The bytes that are signed (RFC 4034 §3.1.8.1), with the original time to live and the wildcard's own name."""
    head = signature.to_wire() or b""
    name = rrset.name
    if signature.labels < owner_labels(name):
        name = dns.name.Name((b"*", *_last(name, signature.labels).labels))
    owner = name.to_digestable()
    fixed = struct.pack("!HHI", rrset.rdtype, rrset.rdclass, signature.original_ttl)
    rows = sorted({rdata.to_digestable() for rdata in rrset})
    body = b"".join(owner + fixed + struct.pack("!H", len(row)) + row for row in rows)
    return head[:18] + signature.signer.to_digestable() + body


def _proven(rrset: dns.rrset.RRset, signature: RRSIG, now: float) -> Proven:
    left = (signature.expiration - int(now)) % 2**32
    encloser = _last(rrset.name, signature.labels) if signature.labels < owner_labels(rrset.name) else None
    return Proven(ttl=min(rrset.ttl, signature.original_ttl, left), encloser=encloser)


def _last(name: dns.name.Name, labels: int) -> dns.name.Name:
    return name.split(labels + 1)[1]


def _text(rrset: dns.rrset.RRset) -> str:
    return f"{dns.rdatatype.to_text(rrset.rdtype)} of {rrset.name}"
