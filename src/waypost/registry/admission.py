"""How many agents an owner may have at a time. Counted in the process that writes: what it holds, and what is on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec

from waypost import limits
from waypost.errors import ConfusableName, QuotaExceeded
from waypost.model.principal import LAN_VIA, Principal
from waypost.model.registration import Registration
from waypost.registry.announcement_admission import AnnouncementAdmission, CertificateChecker, Decide
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.similar_names import ConfusableNames
from waypost.registry.publication import PendingChange, Publication
from waypost.registry.trust_store import RegistryTrustStore
from waypost.registry.verification import DocumentVerification, has_claims
from waypost.search.ranking.boosts import CONFUSABLE_NAME
from waypost.search.text.lint import lint_record
from waypost.trust.announce.admission import AdmissionPolicy
from waypost.trust.keys.certificates import (
    check_validity_period,
    load_der_certificate,
    subject_alternative_names,
    verify_chain,
)

_NO_LIMIT = nullcontext()


class OwnerQuota:
    """`most` 0 is no limit. Admins have none."""

    def __init__(self, catalogue: Catalog, most: int) -> None:
        self._catalogue = catalogue
        self._most = most
        self._coming: dict[str, set[str]] = {}  # by owner, ids of new agents that are being written

    def place(self, principal: Principal, keys: Sequence[str]) -> AbstractContextManager[None]:
        """Hold a place for the agent of these names while it is written, or refuse. An agent that is there needs none."""
        return self._place(principal, keys) if self._most and not principal.is_admin else _NO_LIMIT

    @contextmanager
    def _place(self, principal: Principal, keys: Sequence[str]) -> Iterator[None]:
        if any(self._catalogue.resolve(key) is not None for key in keys):
            yield
            return
        owner, agent_id = principal.subject or "", keys[0]
        coming = self._coming.setdefault(owner, set())
        self._check(owner, coming - {agent_id})
        coming.add(agent_id)
        try:
            yield
        finally:
            coming.discard(agent_id)
            if not coming:
                self._coming.pop(owner, None)

    def _check(self, owner: str, coming: set[str]) -> None:
        unseen = sum(not self._catalogue.is_alive(agent_id) for agent_id in coming)
        if self._catalogue.count_of_owner(owner) + unseen >= self._most:
            raise QuotaExceeded(
                f"An owner may have {self._most} agents here.",
                path="owner",
                hint="Withdraw some, or ask the operator for a higher agents_per_owner.",
            )


# ---- What a publisher is told of a document that was accepted: texts that try to do more than describe, a name that misleads.
#
# Told, not judged: the document is registered all the same.


def publication_warnings(registration: Registration, lookalikes: ConfusableNames) -> Iterator[str]:
    record = registration.record
    yield from map(str, lint_record(record))
    alike = lookalikes.find(record.name, registration.owner)
    if alike is not None:
        yield (
            f"{CONFUSABLE_NAME}: $.name could be taken for {alike!r}, a verified agent of another owner; "
            "it stands lower until it is verified itself"
        )


def check_name(publication: Publication, catalogue: Catalog) -> None:
    """Where the operator asks for it, a new name must not look like another owner's verified one. An admin may do it."""
    name, by = publication.decoded.record.name, publication.principal
    agent_id = catalogue.resolve(publication.decoded.record.id)
    before = catalogue.find(agent_id) if agent_id is not None else None
    alike = None if by.is_admin else catalogue.lookalikes.find(name, by.subject or "anonymous")
    if alike is not None and (before is None or before.name != name):
        raise ConfusableName(
            f"The name could be taken for {alike!r}, a verified agent of another owner.",
            path="$.name",
            hint="Choose another name, or ask the operator (confusable_names is refuse).",
        )


def pending_warning(waiting: PendingChange) -> str:
    parts = ", ".join(each.part for each in waiting.differences)
    return (
        f"held: the agent is verified and this would change its {parts}, so readers go on seeing what was; "
        f"sign it with the agent's key, or confirm it within {limits.PENDING_CHANGE_SECONDS // 86_400} days"
    )


# ---- What every write passes before its own rules: is the agent revoked, are announcements admitted, do signatures hold?
#
# A document of another dialect without a signature costs one look at an empty set.

_UNPROVEN = ("open", LAN_VIA)  # how a principal came about whom nobody asked for a credential


class AnnouncementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of announcements."""

    trust_mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    legacy_canon: bool = False


class SelfSignedCertificates:
    """Certificates where no authority is known: good for the key in them while their dates are good."""

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        certificate = load_der_certificate(der)
        check_validity_period(certificate, now)
        if chained:
            verify_chain(certificate, (), now)
        return subject_alternative_names(certificate)


class AdmissionControl:
    def __init__(
        self,
        book: RegistryTrustStore,
        options: AnnouncementOptions,
        certificates: CertificateChecker,
        resolve: Callable[[str], str | None],
    ) -> None:
        """`resolve` knows the id of the record behind an id or an alias."""
        self._book = book
        self._resolve = resolve
        self._options = options
        self._certificates = certificates

    def rule(
        self, publication: Publication, publish: Callable[[Publication], Decide], now: float
    ) -> tuple[tuple[str, ...], Decide]:
        """The notes that the decision must see, and the decision."""
        if publication.dialect != "announce":
            decoded = publication.decoded
            self._book.check_id(decoded.record.id, decoded.source_id, *decoded.aliases)
            if not has_claims(publication):
                return (), publish(publication)
            verification = DocumentVerification(publication, self._canonical(publication), self._book.revoked_keys, now)
            return verification.notes, verification.decide(publish)
        admission = AnnouncementAdmission(
            publication,
            self._terms(publication.principal, gated=publication.gated),
            legacy=self._options.legacy_canon,
            certificates=self._certificates,
            now=now,
        )
        return admission.notes, admission.decide(publish)

    def _canonical(self, publication: Publication) -> str:
        """The id of the record that a document would change."""
        decoded = publication.decoded
        names = (decoded.record.id, decoded.source_id, *decoded.aliases)
        return next((found for name in names if (found := self._resolve(name)) is not None), decoded.record.id)

    def _terms(self, principal: Principal, *, gated: bool) -> AdmissionPolicy:
        return AdmissionPolicy(
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
