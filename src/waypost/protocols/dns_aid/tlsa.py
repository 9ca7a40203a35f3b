"""TLSA records (RFC 6698, RFC 7671): rdata to values and back, and whether a certificate is the one that they name.

PKIX is not judged here: Waypost demands it in addition (ADP-54), so names and dates are looked at elsewhere, whatever
the usage.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost.protocols.dns_rdata import malformed_record

PKIX_TA, PKIX_EE, DANE_TA, DANE_EE = range(4)
FULL, SPKI = 0, 1
EXACT, SHA256, SHA512 = range(3)
_DIGESTS: Final = {SHA256: hashlib.sha256, SHA512: hashlib.sha512}
_SIZES: Final = {SHA256: 32, SHA512: 64}

TlsaMatch = Literal["match", "mismatch", "unusable"]


class TlsaRecord(msgspec.Struct, frozen=True, kw_only=True):
    usage: int
    selector: int
    matching: int
    data: bytes

    def __str__(self) -> str:
        return f"{self.usage} {self.selector} {self.matching} {self.data.hex()}"

    @property
    def is_usable(self) -> bool:
        """Whether its parameters are known and its data can be what they say (D5)."""
        known = self.usage <= DANE_EE and self.selector <= SPKI and self.matching <= SHA512
        return known and bool(self.data) and len(self.data) == _SIZES.get(self.matching, len(self.data))


def parse_tlsa(data: bytes) -> TlsaRecord:
    if len(data) < 3:
        raise malformed_record("TLSA", "it is too short")
    return TlsaRecord(usage=data[0], selector=data[1], matching=data[2], data=data[3:])


def write_tlsa(record: TlsaRecord) -> bytes:
    return bytes((record.usage, record.selector, record.matching)) + record.data


def tlsa_of(certificate: bytes, *, usage: int = DANE_EE, selector: int = SPKI, matching: int = SHA256) -> TlsaRecord:
    """The record of a certificate in DER; without more words in the form that ADP-10 recommends."""
    return TlsaRecord(usage=usage, selector=selector, matching=matching, data=_matched(certificate, selector, matching))


def match_tlsa(record: TlsaRecord, chain: Sequence[bytes]) -> TlsaMatch:
    """`chain` is in DER, leaf first. Usages of an authority need what comes after the leaf; without it they are
    unusable."""
    if not record.is_usable or not chain:
        return "unusable"
    of_leaf = record.usage in (PKIX_EE, DANE_EE)
    candidates = chain[:1] if of_leaf else chain[1:]
    if not candidates:
        return "unusable"
    found = any(hmac.compare_digest(_matched(one, record.selector, record.matching), record.data) for one in candidates)
    return "match" if found else "mismatch"


def match_any(records: Iterable[TlsaRecord], chain: Sequence[bytes]) -> tuple[TlsaMatch, TlsaRecord | None]:
    """One that matches is enough, so that keys can be exchanged; all that can be compared failing is a failure
    (AID-24)."""
    results = [(match_tlsa(record, chain), record) for record in records]
    for wanted in ("match", "mismatch"):
        for result, record in results:
            if result == wanted:
                return result, record
    return "unusable", None


def _matched(certificate: bytes, selector: int, matching: int) -> bytes:
    data = certificate if selector == FULL else _spki(certificate)
    digest = _DIGESTS.get(matching)
    return data if digest is None else digest(data).digest()


def _spki(certificate: bytes) -> bytes:
    key = x509.load_der_x509_certificate(certificate).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
