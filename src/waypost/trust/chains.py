"""Whether a certificate that an agent announces leads to a known authority (announce.md P-11, mode `ca`).

The path is built and checked by the library (RFC 5280); here is only what may be used for what. No clock: the time is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from waypost.errors import BadSignature, InvalidKey
from waypost.late import x509

_PATH = "$.agent.public_key"


def check_dates(certificate: x509.Certificate, now: float) -> None:
    if not certificate.not_valid_before_utc.timestamp() <= now <= certificate.not_valid_after_utc.timestamp():
        raise BadSignature(
            "The certificate is out of date.",
            path=_PATH,
            hint="Have it issued anew.",
            retry_after=30,
            details={"reason": "certificate"},
        )


def load_certificate(der: bytes) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        raise InvalidKey("The certificate cannot be read.", path=_PATH, hint="Send one X.509 certificate.") from None


def check_chain(certificate: x509.Certificate, authorities: Sequence[x509.Certificate], now: float) -> None:
    """Raises when no path leads from the certificate to one of the authorities."""
    if not authorities:
        raise BadSignature(
            "This service knows no authority for certificates.",
            path=_PATH,
            hint="Name the file of authorities with client_ca.",
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
            f"The certificate is not one of a known authority: {str(error)[:160]}.",
            path=_PATH,
            hint="Use a certificate for clients that an authority of client_ca has signed.",
            retry_after=30,
            details={"reason": "certificate"},
        ) from None


def names_in(certificate: x509.Certificate) -> tuple[str, ...]:
    """The alternative names, without their kinds; a UUID in lower case."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return ()
    return (
        *(name.lower() for name in found.get_values_for_type(x509.DNSName)),
        *(
            name.lower() if name[:9].lower() == "urn:uuid:" else name
            for name in found.get_values_for_type(x509.UniformResourceIdentifier)
        ),
        *found.get_values_for_type(x509.RFC822Name),
    )
