"""TLSA records (RFC 6698, RFC 7671): rdata to values and back, and matching of certificates.

PKIX is required in addition (ADP-54) and checked elsewhere, whatever the usage.
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

_PKIX_EE, DANE_EE = 1, 3  # 0 and 2 name an authority
_FULL, SPKI = 0, 1
SHA256, _SHA512 = 1, 2  # 0 is an exact match
_DIGESTS: Final = {SHA256: hashlib.sha256, _SHA512: hashlib.sha512}
_SIZES: Final = {SHA256: 32, _SHA512: 64}

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
        """Whether its parameters are known and its data has the right length (D5)."""
        known = self.usage <= DANE_EE and self.selector <= SPKI and self.matching <= _SHA512
        return known and bool(self.data) and len(self.data) == _SIZES.get(self.matching, len(self.data))


def parse_tlsa(data: bytes) -> TlsaRecord:
    if len(data) < 3:
        raise malformed_record("TLSA", "it is too short")
    return TlsaRecord(usage=data[0], selector=data[1], matching=data[2], data=data[3:])


def write_tlsa(record: TlsaRecord) -> bytes:
    return bytes((record.usage, record.selector, record.matching)) + record.data


def tlsa_of(certificate: bytes, *, usage: int = DANE_EE, selector: int = SPKI, matching: int = SHA256) -> TlsaRecord:
    """Make the record of a DER certificate; by default in the form that ADP-10 recommends."""
    return TlsaRecord(usage=usage, selector=selector, matching=matching, data=_matched(certificate, selector, matching))


def match_tlsa(record: TlsaRecord, chain: Sequence[bytes]) -> TlsaMatch:
    """Match a DER chain, leaf first. Usages that name an authority need the rest of the chain; without it they are
    unusable."""
    if not record.is_usable or not chain:
        return "unusable"
    candidates = chain[:1] if record.usage in (_PKIX_EE, DANE_EE) else chain[1:]
    if not candidates:
        return "unusable"
    found = any(hmac.compare_digest(_matched(one, record.selector, record.matching), record.data) for one in candidates)
    return "match" if found else "mismatch"


def match_any(records: Iterable[TlsaRecord], chain: Sequence[bytes]) -> tuple[TlsaMatch, TlsaRecord | None]:
    """One match suffices, so that keys can be rotated; it is a mismatch if all usable records fail (AID-24)."""
    results = [(match_tlsa(record, chain), record) for record in records]
    for expected in ("match", "mismatch"):
        for result, record in results:
            if result == expected:
                return result, record
    return "unusable", None


def _matched(certificate: bytes, selector: int, matching: int) -> bytes:
    data = certificate if selector == _FULL else _spki(certificate)
    digest = _DIGESTS.get(matching)
    return data if digest is None else digest(data).digest()


def _spki(certificate: bytes) -> bytes:
    key = x509.load_der_x509_certificate(certificate).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
