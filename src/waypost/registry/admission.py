"""What a write must pass before its own rules: quota, names, revocations, signatures, announcement policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec

from waypost import limits
from waypost.errors import ConfusableName, QuotaExceeded
from waypost.model.principal import LAN_VIA, Principal
from waypost.model.registration import Registration
from waypost.registry.announcement_admission import AnnouncementAdmission, CertificateChecker
from waypost.registry.catalog.catalog import Catalog
from waypost.registry.catalog.similar_names import ConfusableNames
from waypost.registry.ports import Rule
from waypost.registry.publication import PendingChange, Publication
from waypost.registry.trust_store import RegistryTrustStore
from waypost.registry.verification import DocumentVerification, has_claims
from waypost.search.ranking.boosts import CONFUSABLE_NAME
from waypost.search.text.spam import lint_record
from waypost.trust.announce.admission import AdmissionPolicy
from waypost.trust.keys.certificates import (
    check_validity_period,
    load_der_certificate,
    subject_alternative_names,
    verify_chain,
)

_NO_LIMIT = nullcontext()


class OwnerQuota:
    """How many agents an owner may have; 0 is no limit, and admins have none. The process that writes counts the agents in
    the catalog and those that are being written."""

    def __init__(self, catalog: Catalog, limit: int) -> None:
        self._catalog = catalog
        self._limit = limit
        self._reserved: dict[str, set[str]] = {}  # by owner, ids of new agents that are being written

    def reserve(self, principal: Principal, keys: Sequence[str]) -> AbstractContextManager[None]:
        """Count the agent of these names while it is written, or refuse. An agent that exists needs no reservation."""
        return self._reserve(principal, keys) if self._limit and not principal.is_admin else _NO_LIMIT

    @contextmanager
    def _reserve(self, principal: Principal, keys: Sequence[str]) -> Iterator[None]:
        if any(self._catalog.resolve(key) is not None for key in keys):
            yield
            return
        owner, agent_id = principal.subject or "", keys[0]
        reserved = self._reserved.setdefault(owner, set())
        self._check(owner, reserved - {agent_id})
        reserved.add(agent_id)
        try:
            yield
        finally:
            reserved.discard(agent_id)
            if not reserved:
                self._reserved.pop(owner, None)

    def _check(self, owner: str, reserved: set[str]) -> None:
        uncommitted = sum(not self._catalog.is_alive(agent_id) for agent_id in reserved)
        if self._catalog.count_of_owner(owner) + uncommitted >= self._limit:
            raise QuotaExceeded(
                f"An owner may have {self._limit} agents here.",
                path="owner",
                hint="Withdraw some, or ask the operator for a higher agents_per_owner.",
            )


def publication_warnings(registration: Registration, names: ConfusableNames) -> Iterator[str]:
    """Warnings about an accepted document: texts that address a reader or a model, a name that looks like another's."""
    record = registration.record
    yield from map(str, lint_record(record))
    similar = names.find(record.name, registration.owner)
    if similar is not None:
        yield (
            f"{CONFUSABLE_NAME}: $.name could be mistaken for {similar!r}, a verified agent of another owner; "
            "it ranks lower until it is verified itself"
        )


def check_name(publication: Publication, catalog: Catalog) -> None:
    """Refuse a new name that looks like that of another owner's verified agent. Admins may use it."""
    name, principal = publication.decoded.record.name, publication.principal
    agent_id = catalog.resolve(publication.decoded.record.id)
    before = catalog.find(agent_id) if agent_id is not None else None
    similar = None if principal.is_admin else catalog.confusable_names.find(name, principal.subject or "anonymous")
    if similar is not None and (before is None or before.name != name):
        raise ConfusableName(
            f"The name could be mistaken for {similar!r}, a verified agent of another owner.",
            path="$.name",
            hint="Choose another name, or ask the operator (confusable_names is refuse).",
        )


def pending_warning(change: PendingChange) -> str:
    parts = ", ".join(each.part for each in change.differences)
    return (
        f"held: the agent is verified and this would change its {parts}, so readers still see the previous version; "
        f"sign it with the agent's key, or confirm it within {limits.PENDING_CHANGE_SECONDS // 86_400} days"
    )


_UNAUTHENTICATED = ("open", LAN_VIA)  # principals that showed no credential


class AnnouncementOptions(msgspec.Struct, frozen=True, kw_only=True):
    trust_mode: str = "allowlist-tofu"
    unsigned: str = "reject"
    bind_subject: bool = False
    legacy_canon: bool = False


class SelfSignedCertificates:
    """Without configured authorities, a certificate is accepted for its own key within its validity period."""

    def names_of(self, der: bytes, now: float, *, chained: bool) -> tuple[str, ...]:
        certificate = load_der_certificate(der)
        check_validity_period(certificate, now)
        if chained:
            verify_chain(certificate, (), now)
        return subject_alternative_names(certificate)


class AdmissionControl:
    """Revocations, signatures and the announcement policy. An unsigned document of another dialect costs one lookup in an
    empty set."""

    def __init__(
        self,
        trust: RegistryTrustStore,
        options: AnnouncementOptions,
        certificates: CertificateChecker,
        resolve: Callable[[str], str | None],
    ) -> None:
        """`resolve` returns the canonical id of an id or an alias."""
        self._trust = trust
        self._resolve = resolve
        self._options = options
        self._certificates = certificates

    def rule(
        self, publication: Publication, publish: Callable[[Publication], Rule], now: float
    ) -> tuple[tuple[str, ...], Rule]:
        """The notes that the rule must see, and the rule of the write."""
        if publication.dialect != "announce":
            decoded = publication.decoded
            self._trust.check_id(decoded.record.id, decoded.source_id, *decoded.aliases)
            if not has_claims(publication):
                return (), publish(publication)
            verification = DocumentVerification(
                publication, self._canonical(publication), self._trust.revoked_keys, now
            )
            return verification.notes, verification.decide(publish)
        admission = AnnouncementAdmission(
            publication,
            self._policy(publication.principal, gated=publication.gated),
            legacy=self._options.legacy_canon,
            certificates=self._certificates,
            now=now,
        )
        return admission.notes, admission.decide(publish)

    def _canonical(self, publication: Publication) -> str:
        """The id of the agent that a document would change."""
        decoded = publication.decoded
        names = (decoded.record.id, decoded.source_id, *decoded.aliases)
        return next((found for name in names if (found := self._resolve(name)) is not None), decoded.record.id)

    def _policy(self, principal: Principal, *, gated: bool) -> AdmissionPolicy:
        return AdmissionPolicy(
            mode=self._options.trust_mode,
            unsigned=self._options.unsigned,
            bind_subject=self._options.bind_subject and principal.via != LAN_VIA,  # it is about tokens
            rules=self._trust.rules,
            revoked_keys=self._trust.revoked_keys,
            revoked_agents=self._trust.revoked_agents,
            gated=gated,
            authenticated=not principal.is_anonymous and principal.via not in _UNAUTHENTICATED,
            admin=principal.is_admin,
            subject=principal.subject,
        )
