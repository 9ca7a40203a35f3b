"""From a client certificate to a principal: by the operator's table, else by the one agent that it names.

That it leads to an authority of `client_ca` was checked by TLS. Whether it may be used, and still may, is checked here at
each request: a connection may outlive a certificate.
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
from waypost.model.credentials import ClientSubject, normalize_fingerprint
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.server.http.asgi import Scope
from waypost.server.watched_file import WatchedFile
from waypost.trust.keys.certificates import (
    ClientCertificate,
    RevocationList,
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
    """`is_revoked` is asked for serials that were revoked by hand."""

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
        self._by_print = {
            normalize_fingerprint(row.fingerprint): row for row in subjects if row.fingerprint is not None
        }
        authorities = WatchedFile(client_ca, "client_ca", load_authorities, now)
        self._revocations: WatchedFile[RevocationList] | None = None
        if crl is not None:
            self._revocations = WatchedFile(
                crl, "crl", lambda data: parse_revocation_lists(data, authorities.value()), now
            )
        self._known: LruCache[str, _CachedCertificate] = LruCache(limits.CERTIFICATE_CACHE)

    def find_principal(self, scope: Scope) -> Principal | None:
        """Whom the certificate of a request stands for; None where none was shown."""
        shown = peer_certificate(scope)
        if shown is None:
            return None
        known = self._known.get(shown)
        if known is None:
            known = self._learn(shown)
            self._known.put(shown, known)
        self._check(known.certificate)
        if known.principal is None:
            raise _certificate_refused(
                "it names nobody who is known here",
                "Give it the name urn:uuid:AGENT_ID, or map it to a subject in client_subjects.",
            )
        return known.principal

    def _learn(self, pem: str) -> _CachedCertificate:
        try:
            certificate = parse_client_certificate(pem.encode())
        except ValueError:
            raise _certificate_refused("it cannot be read", "Have it issued anew.") from None
        return _CachedCertificate(certificate, self._principal(certificate))

    def _principal(self, certificate: ClientCertificate) -> Principal | None:
        credential = f"cert:{certificate.fingerprint[:12]}"
        rows = [self._by_name[name] for name in certificate.names if name in self._by_name]
        row = self._by_print.get(certificate.fingerprint) or (
            rows[0] if len({row.subject for row in rows}) == 1 else None
        )
        if row is not None:
            return Principal(subject=row.subject, scopes=frozenset(row.scopes), via=VIA_MTLS, credential=credential)
        agents = set(certificate.agent_ids)
        if rows or len(agents) != 1:
            return None  # two names of two subjects name nobody
        agent_id = agents.pop()
        scopes = frozenset((SCOPE_READ, SCOPE_WRITE))
        return Principal(subject=agent_id, scopes=scopes, via=VIA_MTLS, credential=credential, only=agent_id)

    def _check(self, certificate: ClientCertificate) -> None:
        now = self._now()
        if not certificate.is_for_clients:
            raise _certificate_refused("its extended key usage lacks clientAuth", "Have it issued for clients.")
        if not certificate.not_before <= now <= certificate.not_after:
            raise _certificate_refused("it is out of date", "Have it issued anew.")
        if self._is_revoked(certificate.serial):
            raise _certificate_refused("it was revoked", "Have it issued anew.")
        if self._revocations is None:
            return
        listed = self._revocations.value()
        if listed.includes(certificate):
            raise _certificate_refused("it was revoked", "Have it issued anew.")
        if not listed.is_current(now):
            raise _certificate_refused(
                "the revocation list is out of date", "The operator has to replace the file of crl."
            )


def peer_certificate(scope: Scope) -> str | None:
    """The certificate of a connection, by the ASGI extension `tls`. No header is ever asked."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain")
    return chain[0] if chain else None


def _san_name(san: str) -> str:
    kind, _, value = san.partition(":")
    return f"{kind.lower()}:{value.lower() if kind.lower() == 'dns' or value[:9].lower() == 'urn:uuid:' else value}"


def _certificate_refused(why: str, hint: str) -> Unauthorized:
    return Unauthorized(f"The client certificate does not hold: {why}.", path="certificate", hint=hint)


# ---- Certificates that agents announce as their keys: in force, not revoked, and, in the mode `ca`, of a known authority.
#
# The same files as for client certificates (`client_ca`, `crl`), and the same serials that were revoked by hand.

_KEY_PATH = "$.agent.public_key"


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
        listed = self._revocations.value() if self._revocations is not None else None
        if self._is_revoked("serial", certificate.serial) or (listed is not None and listed.includes(certificate)):
            raise Revoked(
                "The certificate was revoked.",
                path=_KEY_PATH,
                hint="Have it issued anew, with a new key.",
                details={"reason": "revoked"},
            )
        if listed is not None and not listed.is_current(now):
            raise BadSignature(
                "Whether the certificate was revoked cannot be told: the revocation list is out of date.",
                path=_KEY_PATH,
                hint="The operator has to replace the file of crl.",
                details={"reason": "certificate"},
            )


def _parse_certificate(certificate: x509.Certificate) -> ClientCertificate:
    try:
        return parse_client_certificate(certificate.public_bytes(Encoding.PEM))
    except ValueError:
        raise InvalidKey(
            "The certificate cannot be read.", path=_KEY_PATH, hint="Send one X.509 certificate."
        ) from None
