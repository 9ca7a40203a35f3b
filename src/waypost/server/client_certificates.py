"""From a client certificate to a principal: by the operator's table, else by the one agent that it names.

That it leads to an authority of `client_ca` was checked by TLS. Whether it may be used, and still may, is checked here at
each request: a connection may outlive a certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from waypost import limits
from waypost.errors import Unauthorized
from waypost.model.credentials import ClientSubject, plain_fingerprint
from waypost.model.principal import SCOPE_READ, SCOPE_WRITE, Principal
from waypost.registry.lru import Lru
from waypost.server.asgi import Scope
from waypost.server.files import WatchedFile
from waypost.trust.certificates import (
    ClientCertificate,
    RevocationList,
    load_authorities,
    parse_certificate,
    parse_revocations,
)

VIA = "mtls"


class _Known(NamedTuple):
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
        self._by_name = {_name(row.san): row for row in subjects if row.san is not None}
        self._by_print = {plain_fingerprint(row.fingerprint): row for row in subjects if row.fingerprint is not None}
        authorities = WatchedFile(client_ca, "client_ca", load_authorities, now)
        self._revocations: WatchedFile[RevocationList] | None = None
        if crl is not None:
            self._revocations = WatchedFile(crl, "crl", lambda data: parse_revocations(data, authorities.value()), now)
        self._known: Lru[str, _Known] = Lru(limits.CERTIFICATE_CACHE)

    def find_principal(self, scope: Scope) -> Principal | None:
        """Whom the certificate of a request stands for; None where none was shown."""
        shown = shown_certificate(scope)
        if shown is None:
            return None
        known = self._known.get(shown)
        if known is None:
            known = self._learn(shown)
            self._known.put(shown, known)
        self._check(known.certificate)
        if known.principal is None:
            raise _refused(
                "it names nobody who is known here",
                "Give it the name urn:uuid:AGENT_ID, or map it to a subject in client_subjects.",
            )
        return known.principal

    def _learn(self, pem: str) -> _Known:
        try:
            certificate = parse_certificate(pem.encode())
        except ValueError:
            raise _refused("it cannot be read", "Have it issued anew.") from None
        return _Known(certificate, self._principal(certificate))

    def _principal(self, certificate: ClientCertificate) -> Principal | None:
        credential = f"cert:{certificate.fingerprint[:12]}"
        rows = [self._by_name[name] for name in certificate.names if name in self._by_name]
        row = self._by_print.get(certificate.fingerprint) or (
            rows[0] if len({row.subject for row in rows}) == 1 else None
        )
        if row is not None:
            return Principal(subject=row.subject, scopes=frozenset(row.scopes), via=VIA, credential=credential)
        agents = set(certificate.agent_ids)
        if rows or len(agents) != 1:
            return None  # two names of two subjects name nobody
        agent_id = agents.pop()
        scopes = frozenset((SCOPE_READ, SCOPE_WRITE))
        return Principal(subject=agent_id, scopes=scopes, via=VIA, credential=credential, only=agent_id)

    def _check(self, certificate: ClientCertificate) -> None:
        now = self._now()
        if not certificate.is_for_clients:
            raise _refused("its extended key usage lacks clientAuth", "Have it issued for clients.")
        if not certificate.not_before <= now <= certificate.not_after:
            raise _refused("it is out of date", "Have it issued anew.")
        if self._is_revoked(certificate.serial):
            raise _refused("it was revoked", "Have it issued anew.")
        if self._revocations is None:
            return
        listed = self._revocations.value()
        if listed.names(certificate):
            raise _refused("it was revoked", "Have it issued anew.")
        if not listed.is_current(now):
            raise _refused("the revocation list is out of date", "The operator has to replace the file of crl.")


def shown_certificate(scope: Scope) -> str | None:
    """The certificate of a connection, by the ASGI extension `tls`. No header is ever asked."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain")
    return chain[0] if chain else None


def _name(san: str) -> str:
    kind, _, value = san.partition(":")
    return f"{kind.lower()}:{value.lower() if kind.lower() == 'dns' or value[:9].lower() == 'urn:uuid:' else value}"


def _refused(why: str, hint: str) -> Unauthorized:
    return Unauthorized(f"The client certificate does not hold: {why}.", path="certificate", hint=hint)
