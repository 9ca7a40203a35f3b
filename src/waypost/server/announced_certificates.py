"""Certificates that agents announce as their keys: in force, not revoked, and, in the mode `ca`, of a known authority.

The same files as for client certificates (`client_ca`, `crl`), and the same serials that were revoked by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from waypost.errors import BadSignature, InvalidKey, Revoked
from waypost.late import x509
from waypost.server.files import WatchedFile
from waypost.trust.certificates import (
    ClientCertificate,
    RevocationList,
    load_authorities,
    parse_certificate,
    parse_revocations,
)
from waypost.trust.chains import check_chain, check_dates, load_certificate, names_in

_PATH = "$.agent.public_key"


class AnnouncedCertificates:
    def __init__(
        self,
        client_ca: Path | None,
        crl: Path | None,
        now: Callable[[], float],
        *,
        is_revoked: Callable[[str, str], bool],
    ) -> None:
        """`is_revoked` is asked for a kind, `serial`, and a name."""
        self._is_revoked = is_revoked
        self._authorities: WatchedFile[list[x509.Certificate]] | None = None
        self._revocations: WatchedFile[RevocationList] | None = None
        if client_ca is not None:
            authorities = self._authorities = WatchedFile(client_ca, "client_ca", load_authorities, now)
            if crl is not None:
                self._revocations = WatchedFile(
                    crl, "crl", lambda data: parse_revocations(data, authorities.value()), now
                )

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        certificate = load_certificate(der)
        check_dates(certificate, now)
        self._check_revoked(_read(certificate), now)
        if chained:
            check_chain(certificate, self._authorities.value() if self._authorities is not None else (), now)
        return names_in(certificate)

    def _check_revoked(self, certificate: ClientCertificate, now: float) -> None:
        listed = self._revocations.value() if self._revocations is not None else None
        if self._is_revoked("serial", certificate.serial) or (listed is not None and listed.names(certificate)):
            raise Revoked(
                "The certificate was revoked.",
                path=_PATH,
                hint="Have it issued anew, with a new key.",
                details={"reason": "revoked"},
            )
        if listed is not None and not listed.is_current(now):
            raise BadSignature(
                "Whether the certificate was revoked cannot be told: the revocation list is out of date.",
                path=_PATH,
                hint="The operator has to replace the file of crl.",
                details={"reason": "certificate"},
            )


def _read(certificate: x509.Certificate) -> ClientCertificate:
    try:
        return parse_certificate(certificate.public_bytes(Encoding.PEM))
    except ValueError:
        raise InvalidKey("The certificate cannot be read.", path=_PATH, hint="Send one X.509 certificate.") from None
