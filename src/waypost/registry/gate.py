"""What every write passes before its own rules: is the agent revoked, are announcements admitted, do signatures hold?

A document of another dialect without a signature costs one look at an empty set.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from waypost.model.principal import LAN_VIA, Principal
from waypost.registry.announcing import Admission, Certificates, Decide
from waypost.registry.publication import Publication
from waypost.registry.trustbook import TrustBook
from waypost.registry.verification import Verification, has_claims
from waypost.trust.admission import Terms
from waypost.trust.chains import check_chain, check_dates, load_certificate, names_in

_UNPROVEN = ("open", LAN_VIA)  # how a principal came about whom nobody asked for a credential


class GateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of announcements."""

    trust_mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    legacy_canon: bool = False


class NoAuthorities:
    """Certificates where no authority is known: good for the key in them while their dates are good."""

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        certificate = load_certificate(der)
        check_dates(certificate, now)
        if chained:
            check_chain(certificate, (), now)
        return names_in(certificate)


class Gate:
    def __init__(
        self, book: TrustBook, options: GateOptions, certificates: Certificates, resolve: Callable[[str], str | None]
    ) -> None:
        """`resolve` knows the id of the record behind an id or an alias."""
        self._book = book
        self._resolve = resolve
        self._options = options
        self.certificates = certificates

    def rule(
        self, publication: Publication, publish: Callable[[Publication], Decide], now: float
    ) -> tuple[tuple[str, ...], Decide]:
        """The notes that the decision must see, and the decision."""
        if publication.dialect != "announce":
            decoded = publication.decoded
            self._book.check_id(decoded.record.id, decoded.source_id, *decoded.aliases)
            if not has_claims(publication):
                return (), publish(publication)
            verification = Verification(publication, self._canonical(publication), self._book.revoked_keys, now)
            return verification.notes, verification.decide(publish)
        admission = Admission(
            publication,
            self._terms(publication.principal, gated=publication.gated),
            legacy=self._options.legacy_canon,
            certificates=self.certificates,
            now=now,
        )
        return admission.notes, admission.decide(publish)

    def _canonical(self, publication: Publication) -> str:
        """The id of the record that a document would change."""
        decoded = publication.decoded
        names = (decoded.record.id, decoded.source_id, *decoded.aliases)
        return next((found for name in names if (found := self._resolve(name)) is not None), decoded.record.id)

    def _terms(self, principal: Principal, *, gated: bool) -> Terms:
        return Terms(
            mode=self._options.trust_mode,
            unsigned=self._options.unsigned,
            bind_subject=self._options.bind_subject and principal.via != LAN_VIA,  # it holds tokens to their agent
            rules=self._book.rules,
            revoked_keys=self._book.revoked_keys,
            revoked_agents=self._book.revoked_agents,
            gated=gated,
            authenticated=not principal.is_anonymous and principal.via not in _UNPROVEN,
            admin=principal.is_admin,
            subject=principal.subject,
        )
