"""Certificates of announcements (announce.md P-11, mode `ca`), client certificates and revocation lists (RFC 5280).

The library builds and verifies the path of an announced certificate. TLS has verified the path of a client certificate;
here its usage, its names and its revocation are checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from waypost.errors import BadSignature, InvalidKey

_ANNOUNCED_KEY_PATH = "$.agent.public_key"


def check_validity_period(certificate: x509.Certificate, now: float) -> None:
    if not certificate.not_valid_before_utc.timestamp() <= now <= certificate.not_valid_after_utc.timestamp():
        raise BadSignature(
            "The certificate is expired or not yet valid.",
            path=_ANNOUNCED_KEY_PATH,
            hint="Renew the certificate.",
            retry_after=30,
            details={"reason": "certificate"},
        )


def load_der_certificate(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        raise InvalidKey(
            "The certificate cannot be read.", path=_ANNOUNCED_KEY_PATH, hint="Send one X.509 certificate."
        ) from None


def verify_chain(certificate: x509.Certificate, authorities: Sequence[x509.Certificate], now: float) -> None:
    """Raise BadSignature unless a path leads from the certificate to one of the authorities."""
    if not authorities:
        raise BadSignature(
            "This service has no certificate authorities configured.",
            path=_ANNOUNCED_KEY_PATH,
            hint="Set client_ca to a file of authorities.",
            details={"reason": "certificate"},
        )
    verifier = (
        x509.verification.PolicyBuilder()
        .store(x509.verification.Store(list(authorities)))
        .time(datetime.fromtimestamp(now, UTC))
        .build_client_verifier()
    )
    try:
        verifier.verify(certificate, [])
    except x509.verification.VerificationError as error:
        raise BadSignature(
            f"The certificate was not issued by a known authority: {str(error)[:160]}.",
            path=_ANNOUNCED_KEY_PATH,
            hint="Use a client certificate that an authority of client_ca has signed.",
            retry_after=30,
            details={"reason": "certificate"},
        ) from None


def subject_alternative_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the alternative names without their types; UUIDs in lower case."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return ()
    return (
        *(name.lower() for name in found.get_values_for_type(x509.DNSName)),
        *map(_normalize_uri, found.get_values_for_type(x509.UniformResourceIdentifier)),
        *found.get_values_for_type(x509.RFC822Name),
    )


# --- Client certificates --------------------------------------------------------------------------

AGENT_SAN = "uri:urn:uuid:"


class ClientCertificate(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str  # SHA-256 of the certificate, hex
    issuer: bytes  # DER of the issuer name
    serial: str  # hex without leading zeros
    names: tuple[str, ...]  # `dns:…`, `uri:…`, `email:…`
    is_for_clients: bool  # by its extended key usage
    not_before: float
    not_after: float

    @property
    def agent_ids(self) -> tuple[str, ...]:
        """The agents that it names as `urn:uuid:`."""
        return tuple(name.removeprefix(AGENT_SAN) for name in self.names if name.startswith(AGENT_SAN))


def parse_client_certificate(pem: bytes) -> ClientCertificate:
    """Parse a PEM; raises ValueError."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        return ClientCertificate(
            fingerprint=certificate.fingerprint(SHA256()).hex(),
            issuer=certificate.issuer.public_bytes(),
            serial=f"{certificate.serial_number:x}",
            names=_prefixed_names(certificate),
            is_for_clients=_is_for_clients(certificate),
            not_before=certificate.not_valid_before_utc.timestamp(),
            not_after=certificate.not_valid_after_utc.timestamp(),
        )
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from None


def _prefixed_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (
        *(f"dns:{name.lower()}" for name in found.get_values_for_type(x509.DNSName)),
        *(f"uri:{_normalize_uri(name)}" for name in found.get_values_for_type(x509.UniformResourceIdentifier)),
        *(f"email:{name}" for name in found.get_values_for_type(x509.RFC822Name)),
    )


def _normalize_uri(uri: str) -> str:
    return uri.lower() if uri[:9].lower() == "urn:uuid:" else uri


def _is_for_clients(certificate: x509.Certificate) -> bool:
    """A certificate without the extension is rejected, although RFC 5280 allows any use of it."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH in usage


class CertificateRevocationList(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates that the authorities revoked."""

    revoked: frozenset[tuple[bytes, str]]  # issuer and serial
    valid_until: float | None  # the earliest next update of the lists

    def includes(self, certificate: ClientCertificate) -> bool:
        return (certificate.issuer, certificate.serial) in self.revoked

    def is_current(self, now: float) -> bool:
        return self.valid_until is None or now <= self.valid_until


def load_authorities(pem: bytes) -> list[x509.Certificate]:
    """Load the certificates of a PEM file; raises ValueError if there is none."""
    return x509.load_pem_x509_certificates(pem)


def parse_revocation_lists(data: bytes, authorities: Sequence[x509.Certificate]) -> CertificateRevocationList:
    """Parse one or more lists, PEM or DER, each signed by one of the authorities; raises ValueError."""
    lists = [_load_crl(part, authorities) for part in _split_crls(data)]
    if not lists:
        raise ValueError("it contains no revocation list")
    ends = [found.next_update_utc.timestamp() for found in lists if found.next_update_utc is not None]
    return CertificateRevocationList(
        revoked=frozenset(
            (found.issuer.public_bytes(), f"{entry.serial_number:x}") for found in lists for entry in found
        ),
        valid_until=min(ends, default=None),
    )


def _split_crls(data: bytes) -> list[bytes]:
    if b"-----BEGIN" not in data:
        return [data]
    end = b"-----END X509 CRL-----"
    return [part[part.index(b"-----BEGIN") :] + end for part in data.split(end)[:-1]]


def _load_crl(data: bytes, authorities: Sequence[x509.Certificate]) -> x509.CertificateRevocationList:
    load = x509.load_pem_x509_crl if data.startswith(b"-----BEGIN") else x509.load_der_x509_crl
    found = load(data)
    for authority in authorities:
        if authority.subject == found.issuer and _is_signed_by(found, authority):
            return found
    raise ValueError("it is not signed by an authority of client_ca")


def _is_signed_by(found: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    key = authority.public_key()
    try:
        return isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey) and found.is_signature_valid(
            key
        )
    except (InvalidSignature, UnsupportedAlgorithm, TypeError):
        return False
