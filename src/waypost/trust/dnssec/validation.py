"""DNSSEC validation: security status, policy and budget, one RRset and its signatures, one delegation.

dnspython verifies a single signature, except Ed25519 (`ed25519.py`); this module decides whether the signature counts.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import dns.dnssec
import dns.exception
import dns.name
import dns.rdatatype
import dns.rrset
import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from dns.dnssecalgs import get_algorithm_cls_from_dnskey
from dns.dnssectypes import Algorithm, DSDigest
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.DS import DS
from dns.rdtypes.ANY.RRSIG import RRSIG
from dns.rdtypes.dnskeybase import Flag

from waypost import limits
from waypost.trust.keys import ed25519

Security = Literal["secure", "insecure", "bogus", "indeterminate"]  # RFC 4035 §4.3
_WEAKEST_FIRST: Final[tuple[Security, ...]] = ("bogus", "indeterminate", "insecure", "secure")


class SecurityStatus(msgspec.Struct, frozen=True):
    security: Security
    reason: str = ""

    @property
    def is_secure(self) -> bool:
        return self.security == "secure"


SECURE: Final = SecurityStatus("secure")


def insecure(reason: str) -> SecurityStatus:
    return SecurityStatus("insecure", reason)


def bogus(reason: str) -> SecurityStatus:
    return SecurityStatus("bogus", reason)


def weakest_status(*statuses: SecurityStatus) -> SecurityStatus:
    """Return the weakest status; the first of equals."""
    return min(statuses, key=lambda status: _WEAKEST_FIRST.index(status.security), default=SECURE)


# --- Policy and budget (D13) ----------------------------------------------------------------------

RSASHA256, RSASHA512, ECDSAP256, ECDSAP384, ED25519, ED448 = 8, 10, 13, 14, 15, 16
SHA1, SHA256, SHA384 = 1, 2, 4


class ValidationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Supported algorithms and limits. A zone with unsupported algorithms only counts as unsigned (RFC 4035 §5.2)."""

    algorithms: frozenset[int] = frozenset((RSASHA256, RSASHA512, ECDSAP256, ECDSAP384, ED25519, ED448))
    digests: frozenset[int] = frozenset((SHA1, SHA256, SHA384))
    signatures: int = limits.DNSSEC_SIGNATURES
    signatures_seen: int = limits.DNSSEC_SIGNATURES_READ
    keys: int = limits.DNSSEC_KEYS
    colliding_keys: int = limits.DNSSEC_COLLIDING_KEYS
    iterations: int = limits.DNSSEC_NSEC3_ITERATIONS
    denials: int = limits.DNSSEC_DENIALS


DEFAULT_POLICY: Final = ValidationPolicy()


class ValidationBudget:
    """The remaining work for one look-up."""

    def __init__(
        self, signatures: int = limits.DNSSEC_SIGNATURES_PER_LOOKUP, hashes: int = limits.DNSSEC_NSEC3_HASHES
    ) -> None:
        self.signatures = signatures
        self.hashes = hashes

    def spend_signature(self) -> bool:
        """Return whether one more signature may be verified."""
        self.signatures -= 1
        return self.signatures >= 0

    def spend_hash(self) -> bool:
        """Return whether one more name may be hashed."""
        self.hashes -= 1
        return self.hashes >= 0


# --- One RRset and its signatures (RFC 4035 §5.3) -------------------------------------------------

_ZONE_PROTOCOL: Final = 3
_SERIAL_HALF: Final = 2**31


class SignedRRset(msgspec.Struct, frozen=True, kw_only=True):
    """An RRset with the signatures that claim to cover it."""

    rrset: dns.rrset.RRset
    signatures: tuple[RRSIG, ...] = ()


class VerifiedRRset(msgspec.Struct, frozen=True, kw_only=True):
    """An RRset with a valid signature. `encloser` is the parent of the wildcard that it was expanded from, or None."""

    ttl: int
    encloser: dns.name.Name | None = None


class SigningZone(msgspec.Struct, frozen=True, kw_only=True):
    """A zone with validated keys, by algorithm and tag."""

    name: dns.name.Name
    keys: dict[tuple[int, int], tuple[DNSKEY, ...]]


def verify_rrset(
    signed: SignedRRset, zone: SigningZone, now: float, budget: ValidationBudget, policy: ValidationPolicy
) -> VerifiedRRset | SecurityStatus:
    """Return the RRset if any signature of the zone is valid; else a bogus status with the last reason."""
    name = _text(signed.rrset)
    reason = f"{name} is not signed by its zone"
    tried = 0
    for signature in signed.signatures[: policy.signatures_seen]:
        if signature.signer != zone.name:
            continue
        error = _find_rrsig_error(signed.rrset, signature, now, policy)
        if error is not None:
            reason = f"{name}: {error}"
            continue
        candidates = zone.keys.get((int(signature.algorithm), signature.key_tag), ())
        if not candidates:
            reason = f"{name}: no key of the zone has the signature's tag {signature.key_tag}"
            continue
        if len(candidates) > policy.colliding_keys:
            reason = f"{name}: too many keys share the tag {signature.key_tag}"
            continue
        for key in candidates:
            tried += 1
            if tried > policy.signatures or not budget.spend_signature():
                return bogus(f"{name}: too many signatures to try")
            if _is_signature_valid(signed.rrset, signature, key):
                return _verified(signed.rrset, signature, now)
        reason = f"{name}: the signature is invalid"
    return bogus(reason)


def zone_keys(keys: Iterable[object]) -> tuple[DNSKEY, ...]:
    """Return the keys that may sign records of a zone: zone keys that are not revoked (RFC 4034 §2.1, RFC 5011
    §2.1)."""
    return tuple(
        key
        for key in keys
        if isinstance(key, DNSKEY)
        and key.flags & Flag.ZONE
        and not key.flags & Flag.REVOKE
        and key.protocol == _ZONE_PROTOCOL
    )


def keys_by_tag(keys: Iterable[DNSKEY]) -> dict[tuple[int, int], tuple[DNSKEY, ...]]:
    by_tag: dict[tuple[int, int], tuple[DNSKEY, ...]] = {}
    for key in keys:
        tag = (int(key.algorithm), dns.dnssec.key_id(key))
        by_tag[tag] = (*by_tag.get(tag, ()), key)
    return by_tag


def owner_labels(name: dns.name.Name) -> int:
    """Count labels as a signature does: without the root and a leading wildcard (RFC 4034 §3.1.3)."""
    return len(name) - 1 - int(name.is_wild())


def _find_rrsig_error(rrset: dns.rrset.RRset, signature: RRSIG, now: float, policy: ValidationPolicy) -> str | None:
    if signature.type_covered != rrset.rdtype or not rrset.name.is_subdomain(signature.signer):
        return "the signature covers another RRset"
    if signature.labels > owner_labels(rrset.name) or signature.labels < len(signature.signer) - 1:
        return "the signature counts more labels than the name has"
    if rrset.name.is_wild() and signature.labels < owner_labels(rrset.name):
        return "it was expanded from a wildcard to a wildcard name"  # rejected by decision 0017, not by RFC 4035
    if signature.algorithm not in policy.algorithms:
        return f"the signature has an unsupported algorithm ({int(signature.algorithm)})"
    if _is_after(int(now), signature.expiration):
        return "the signature has expired"
    if _is_after(signature.inception, now):
        return "the signature is not valid yet"
    return None


def _is_after(one: float, other: float) -> bool:
    """Compare times in serial arithmetic: 32-bit signature times wrap in 2106 (RFC 4034 §3.1.5)."""
    difference = (int(one) - int(other)) % 2**32
    return 0 < difference < _SERIAL_HALF


def _is_signature_valid(rrset: dns.rrset.RRset, signature: RRSIG, key: DNSKEY) -> bool:
    if key.algorithm == Algorithm.ED25519:
        return ed25519.verify(key.key, signature.signature, _signed_data(rrset, signature))
    try:
        public = get_algorithm_cls_from_dnskey(key).public_cls.from_dnskey(key)
        public.verify(signature.signature, _signed_data(rrset, signature))
    except (InvalidSignature, UnsupportedAlgorithm, dns.exception.DNSException, ValueError, struct.error):
        return False
    return True


def _signed_data(rrset: dns.rrset.RRset, signature: RRSIG) -> bytes:
    """Return the signed bytes (RFC 4034 §3.1.8.1), with the original TTL and the wildcard's own name."""
    head = signature.to_wire() or b""
    name = rrset.name
    if signature.labels < owner_labels(name):
        name = dns.name.Name((b"*", *_last_labels(name, signature.labels).labels))
    owner = name.to_digestable()
    fixed = struct.pack("!HHI", rrset.rdtype, rrset.rdclass, signature.original_ttl)
    rows = sorted({rdata.to_digestable() for rdata in rrset})
    body = b"".join(owner + fixed + struct.pack("!H", len(row)) + row for row in rows)
    return head[:18] + signature.signer.to_digestable() + body


def _verified(rrset: dns.rrset.RRset, signature: RRSIG, now: float) -> VerifiedRRset:
    left = (signature.expiration - int(now)) % 2**32
    encloser = _last_labels(rrset.name, signature.labels) if signature.labels < owner_labels(rrset.name) else None
    return VerifiedRRset(ttl=min(rrset.ttl, signature.original_ttl, left), encloser=encloser)


def _last_labels(name: dns.name.Name, labels: int) -> dns.name.Name:
    return name.split(labels + 1)[1]


def _text(rrset: dns.rrset.RRset) -> str:
    return f"{dns.rdatatype.to_text(rrset.rdtype)} of {rrset.name}"


# --- One delegation: DS records signed by the parent, and the keys of the child (RFC 4035 §5.2) ---


class ValidatedZone(SigningZone, frozen=True, kw_only=True):
    """A zone with validated keys, and their TTL."""

    ttl: int


def usable_ds_records(records: Iterable[object], policy: ValidationPolicy) -> tuple[DS, ...]:
    """Return the supported DS records. SHA-1 is ignored beside stronger digests (RFC 4509 §3)."""
    known = [row for row in records if isinstance(row, DS) and _is_supported_ds(row, policy)]
    better = [row for row in known if row.digest_type != SHA1]
    return tuple(better or known)


def validate_zone_keys(
    name: dns.name.Name,
    records: Sequence[DS],
    keys: SignedRRset,
    now: float,
    budget: ValidationBudget,
    policy: ValidationPolicy,
) -> ValidatedZone | SecurityStatus:
    """Validate the keys of a zone by its DS records or trust anchor."""
    followed = usable_ds_records(records, policy)
    if not followed:
        return insecure(f"{name} is signed with unsupported algorithms only")
    if len(keys.rrset) > policy.keys:
        return bogus(f"{name} has too many keys")
    own = zone_keys(keys.rrset)
    matching = tuple(key for key in own if _matches_ds(name, key, followed, policy))
    if not matching:
        return bogus(f"no key of {name} matches its DS records")
    proven = verify_rrset(keys, SigningZone(name=name, keys=keys_by_tag(matching)), now, budget, policy)
    if isinstance(proven, SecurityStatus):
        return proven
    if proven.encloser is not None:
        return bogus(f"the keys of {name} were expanded from a wildcard")
    return ValidatedZone(name=name, keys=keys_by_tag(own), ttl=proven.ttl)


def make_ds(name: dns.name.Name, key: DNSKEY, kind: int) -> DS:
    return dns.dnssec.make_ds(name, key, DSDigest.make(kind), policy=dns.dnssec.allow_all_policy)


def _is_supported_ds(row: DS, policy: ValidationPolicy) -> bool:
    return row.digest_type in policy.digests and row.algorithm in policy.algorithms


def _matches_ds(name: dns.name.Name, key: DNSKEY, records: Sequence[DS], policy: ValidationPolicy) -> bool:
    tag = dns.dnssec.key_id(key)
    close = [row for row in records if row.key_tag == tag and row.algorithm == key.algorithm]
    return any(
        hmac.compare_digest(make_ds(name, key, row.digest_type).digest, row.digest)
        for row in close[: policy.signatures]
    )
