"""X.509 certificates as credentials: of clients (mutual TLS), and of agents that announce one as their key.

TLS has verified the chain of a client certificate to `client_ca`. Usage, validity and revocation are checked at each
request, because a connection can outlive its certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import BadSignature, InvalidKey, Revoked, Unauthorized
from waypost.files import WatchedFile
from waypost.model.credentials import ClientSubject, normalize_fingerprint
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.server.http.asgi import Scope
from waypost.trust.keys.certificates import (
    CertificateRevocationList,
    ClientCertificate,
    check_validity_period,
    load_authorities,
    load_der_certificate,
    parse_client_certificate,
    parse_revocation_lists,
    subject_alternative_names,
    verify_chain,
)

VIA_MTLS = "mtls"


class _CachedCertificate(NamedTuple):
    certificate: ClientCertificate
    principal: Principal | None


class ClientCertificates:
    """Maps a client certificate to a principal: by the operator's table, else by the one agent it names.

    `is_revoked` takes a serial and knows those that were revoked by hand.
    """

    def __init__(
        self,
        client_ca: Path,
        crl: Path | None,
        subjects: Sequence[ClientSubject],
        now: Callable[[], float],
        *,
        is_revoked: Callable[[str], bool] = lambda serial: False,
    ) -> None:
        self._now = now
        self._is_revoked = is_revoked
        self._by_name = {_san_name(row.san): row for row in subjects if row.san is not None}
        self._by_fingerprint = {
            normalize_fingerprint(row.fingerprint): row for row in subjects if row.fingerprint is not None
        }
        authorities = WatchedFile(client_ca, "client_ca", load_authorities, now)
        self._revocations: WatchedFile[CertificateRevocationList] | None = None
        if crl is not None:
            self._revocations = WatchedFile(
                crl, "crl", lambda data: parse_revocation_lists(data, authorities.value()), now
            )
        self._cache: LruCache[str, _CachedCertificate] = LruCache(limits.CERTIFICATE_CACHE)

    def find_principal(self, scope: Scope) -> Principal | None:
        """The principal of the client certificate; None if the client sent no certificate."""
        pem = peer_certificate(scope)
        if pem is None:
            return None
        cached = self._cache.get(pem)
        if cached is None:
            cached = self._parse(pem)
            self._cache.put(pem, cached)
        self._check(cached.certificate)
        if cached.principal is None:
            raise _invalid_certificate(
                "it names no known subject",
                "Give it the name urn:uuid:AGENT_ID, or map it to a subject in client_subjects.",
            )
        return cached.principal

    def _parse(self, pem: str) -> _CachedCertificate:
        try:
            certificate = parse_client_certificate(pem.encode())
        except ValueError:
            raise _invalid_certificate("it cannot be parsed", "Get a new one.") from None
        return _CachedCertificate(certificate, self._principal(certificate))

    def _principal(self, certificate: ClientCertificate) -> Principal | None:
        credential = f"cert:{certificate.fingerprint[:12]}"
        rows = [self._by_name[name] for name in certificate.names if name in self._by_name]
        row = self._by_fingerprint.get(certificate.fingerprint) or (
            rows[0] if len({row.subject for row in rows}) == 1 else None
        )
        if row is not None:
            return Principal(subject=row.subject, scopes=frozenset(row.scopes), via=VIA_MTLS, credential=credential)
        agents = set(certificate.agent_ids)
        if rows or len(agents) != 1:
            return None  # ambiguous
        agent_id = agents.pop()
        scopes = frozenset((SCOPE_READ, SCOPE_WRITE))
        return Principal(subject=agent_id, scopes=scopes, via=VIA_MTLS, credential=credential, only=agent_id)

    def _check(self, certificate: ClientCertificate) -> None:
        now = self._now()
        if not certificate.is_for_clients:
            raise _invalid_certificate("its extended key usage lacks clientAuth", "Get one that is issued for clients.")
        if not certificate.not_before <= now <= certificate.not_after:
            raise _invalid_certificate("it is expired or not valid yet", "Get a new one.")
        if self._is_revoked(certificate.serial):
            raise _invalid_certificate("it was revoked", "Get a new one.")
        if self._revocations is None:
            return
        revocations = self._revocations.value()
        if revocations.includes(certificate):
            raise _invalid_certificate("it was revoked", "Get a new one.")
        if not revocations.is_current(now):
            raise _invalid_certificate(
                "the revocation list is out of date", "Ask the operator to replace the crl file."
            )


def peer_certificate(scope: Scope) -> str | None:
    """The client certificate of the connection, from the ASGI extension `tls`; never from a header."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain")
    return chain[0] if chain else None


def _san_name(san: str) -> str:
    kind, _, value = san.partition(":")
    return f"{kind.lower()}:{value.lower() if kind.lower() == 'dns' or value[:9].lower() == 'urn:uuid:' else value}"


def _invalid_certificate(reason: str, hint: str) -> Unauthorized:
    return Unauthorized(f"Invalid client certificate: {reason}.", path="certificate", hint=hint)


_KEY_PATH = "$.agent.public_key"


class AnnouncedCertificates:
    """Checks certificates that agents announce as their keys: valid now, not revoked and, in the mode `ca`, signed by a
    known authority. It uses the files of client certificates (`client_ca`, `crl`) and the same revoked serials."""

    def __init__(
        self,
        client_ca: Path | None,
        crl: Path | None,
        now: Callable[[], float],
        *,
        is_revoked: Callable[[str, str], bool],
    ) -> None:
        """`is_revoked` takes a kind, `serial`, and a name."""
        self._is_revoked = is_revoked
        self._authorities: WatchedFile[list[x509.Certificate]] | None = None
        self._revocations: WatchedFile[CertificateRevocationList] | None = None
        if client_ca is not None:
            authorities = self._authorities = WatchedFile(client_ca, "client_ca", load_authorities, now)
            if crl is not None:
                self._revocations = WatchedFile(
                    crl, "crl", lambda data: parse_revocation_lists(data, authorities.value()), now
                )

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        certificate = load_der_certificate(der)
        check_validity_period(certificate, now)
        self._check_revoked(_parse_certificate(certificate), now)
        if chained:
            verify_chain(certificate, self._authorities.value() if self._authorities is not None else (), now)
        return subject_alternative_names(certificate)

    def _check_revoked(self, certificate: ClientCertificate, now: float) -> None:
        revocations = self._revocations.value() if self._revocations is not None else None
        if self._is_revoked("serial", certificate.serial) or (
            revocations is not None and revocations.includes(certificate)
        ):
            raise Revoked(
                "The certificate was revoked.",
                path=_KEY_PATH,
                hint="Get a new one, with a new key.",
                details={"reason": "revoked"},
            )
        if revocations is not None and not revocations.is_current(now):
            raise BadSignature(
                "Cannot check whether the certificate was revoked: the revocation list is out of date.",
                path=_KEY_PATH,
                hint="Ask the operator to replace the crl file.",
                details={"reason": "certificate"},
            )


def _parse_certificate(certificate: x509.Certificate) -> ClientCertificate:
    try:
        return parse_client_certificate(certificate.public_bytes(Encoding.PEM))
    except ValueError:
        raise InvalidKey(
            "The certificate cannot be parsed.", path=_KEY_PATH, hint="Send one X.509 certificate."
        ) from None
