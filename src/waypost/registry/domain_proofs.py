"""What a proven domain changes: the verdict `domain` of an agent, and whether the service hosts it under the domain.

The id of an agent decides which domain counts. If the id names none, the domains of all endpoints must be proven; otherwise the
owner of one domain could vouch for an id of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.model.names import domain_of
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration, SourceDocument, verdicts_of
from waypost.model.times import to_rfc3339
from waypost.model.verdict import Verdict
from waypost.registry import write_rules
from waypost.registry.ports import AuditEntry, Decision, RegistrationChange, Rule, Store, StoreState
from waypost.registry.publication import Publication
from waypost.trust.domain_claims import (
    NOTE_PREFIX,
    OwnershipClaim,
    OwnershipClaims,
    claims_key,
    find_covering_claim,
    load_claims,
    parent_domains,
)

CHECK = "domain"


class DomainProofs:
    """The claims in memory, updated by each commit. Only the process that writes needs them."""

    def __init__(self) -> None:
        self._notes: dict[str, OwnershipClaims] = {}
        self._proven: dict[str, dict[str, OwnershipClaim]] = {}  # by subject, by domain

    async def load(self, store: Store) -> None:
        self.apply_notes(dict(await store.notes(NOTE_PREFIX)))

    def apply_notes(self, notes: Mapping[str, bytes | None]) -> None:
        for name, value in notes.items():
            if name.startswith(NOTE_PREFIX):
                self._put(name.removeprefix(NOTE_PREFIX), load_claims(value))

    def _put(self, domain: str, note: OwnershipClaims) -> None:
        for subject in self._notes.get(domain, OwnershipClaims()).claims:
            self._proven.get(subject, {}).pop(domain, None)
        self._notes[domain] = note
        if not note.claims:
            del self._notes[domain]
        for subject, claim in note.claims.items():
            if claim.state == "proven":
                self._proven.setdefault(subject, {})[domain] = claim

    def proven_domains(self, subject: str) -> tuple[OwnershipClaim, ...]:
        return tuple(self._proven.get(subject, {}).values())

    def claims(self) -> Iterable[OwnershipClaim]:
        return [claim for note in self._notes.values() for claim in note.claims.values()]

    @property
    def domains(self) -> Mapping[str, OwnershipClaims]:
        """The domains with claims."""
        return self._notes

    def rule(
        self, publication: Publication, owner: str | None, publish: Callable[[Publication], Rule], now: float
    ) -> tuple[tuple[str, ...], Callable[[Publication], Rule]]:
        """The notes that the rule of a write must see, and that rule. `owner` is that of the agent, if it exists."""
        subject = owner or publication.principal.subject or ""
        if not self._proven.get(subject):
            return (), publish

        def with_proof(given: Publication) -> Rule:
            def decide(state: StoreState) -> Decision:
                current = write_rules.find_current(given, state)
                proven = _with_proof(given, current.owner if current is not None else subject, state.notes, now)
                return publish(proven)(state)

            return decide

        return proof_notes(publication.decoded.record, publication.decoded.source_id), with_proof


def proof_notes(record: AgentRecord, *ids: str) -> tuple[str, ...]:
    """The notes with claims of the domains of these ids and of the record."""
    domains = [domain for agent_id in ids if (domain := domain_of(agent_id)) is not None]
    names = dict.fromkeys(
        claims_key(name) for domain in (*domains, *domains_of(record)) for name in parent_domains(domain)
    )
    return tuple(names)[: limits.PROOF_DOMAINS_PER_WRITE]


def domains_of(record: AgentRecord) -> tuple[str, ...]:
    """The domains that the owner of a record must prove: that of its id, else those of all its endpoints."""
    domain = domain_of(record.id)
    if domain is not None:
        return (domain,)
    hosts = [_host_of(binding.endpoint) for binding in record.bindings]
    return () if None in hosts else tuple(dict.fromkeys(host for host in hosts if host is not None))


def check_domain_proof(owner: str, record: AgentRecord, notes: Mapping[str, bytes], now: float) -> Verdict | None:
    """A passed verdict with its claims as evidence; None if a domain is not proven, which is no failure."""
    domains = domains_of(record)
    claims = [find_covering_claim(owner, domain, notes) for domain in domains]
    found = [claim for claim in claims if claim is not None]
    if not domains or len(found) < len(domains):
        return None
    evidence = {
        "domains": list(domains),
        "proven": [
            {"domain": claim.domain, "method": claim.method, "since": to_rfc3339(claim.proven_at or 0)}
            for claim in {claim.domain: claim for claim in found}.values()
        ],
    }
    return Verdict(
        check=CHECK, state="passed", reason="its owner proved the domain", evidence=evidence, at=to_rfc3339(now)
    )


def _with_proof(publication: Publication, owner: str, notes: Mapping[str, bytes], now: float) -> Publication:
    verdict = check_domain_proof(owner, publication.decoded.record, notes, now)
    verdicts = publication.verdicts if verdict is None else (*publication.verdicts, verdict)
    domain = domain_of(publication.decoded.source_id) if publication.dialect == "adp" else None
    proven = domain is not None and find_covering_claim(owner, domain, notes) is not None
    return msgspec.structs.replace(publication, verdicts=verdicts, proven_host=domain if proven else None)


def recheck_domain_proof(agent_id: str, owner: str, domain: str, now: float) -> Rule:
    """Update one agent after a domain was proven or its proof ended."""

    def decide(state: StoreState) -> Decision:
        current = state.registrations.get(agent_id)
        if current is None or current.owner != owner:
            return Decision(outcome="unchanged", registration=current)
        after = _recheck(current, domain, state.notes, now)
        if _domain_state(after) == _domain_state(current):
            return Decision(outcome="unchanged", registration=current)
        change = RegistrationChange(type="updated", at=now, registration=after, before=current.scopes)
        outcome = "proven" if any(each.check == CHECK for each in verdicts_of(after)) else "unproven"
        entry = AuditEntry(
            at=now, action="judge", subject="", object=agent_id, outcome=outcome, via="domain", etag=after.etag
        )
        return Decision(outcome="judged", change=change, audit=(entry,))

    return decide


def _recheck(current: Registration, domain: str, notes: Mapping[str, bytes], now: float) -> Registration:
    verdict = check_domain_proof(current.owner, current.record, notes, now)
    return msgspec.structs.replace(
        current,
        sources=tuple(_with_verdict(source, verdict) for source in current.sources),
        hosted=_host(current, domain, notes),
        changed_at=now,
    )


def _with_verdict(source: SourceDocument, verdict: Verdict | None) -> SourceDocument:
    others = tuple(each for each in source.verdicts if each.check != CHECK)
    return msgspec.structs.replace(source, verdicts=others if verdict is None else (*others, verdict))


def _host(current: Registration, changed: str, notes: Mapping[str, bytes]) -> str | None:
    """Host an ADP document under its domain while that is proven. A domain that an admin assigned stays."""
    source = current.source("adp")
    domain = domain_of(source.id) if source is not None else None
    if domain is None or changed not in parent_domains(domain) or current.hosted not in (None, domain):
        return current.hosted
    return domain if find_covering_claim(current.owner, domain, notes) is not None else None


def _domain_state(registration: Registration) -> tuple[str | None, list[list[Verdict]]]:
    verdicts = [
        [msgspec.structs.replace(each, at=None) for each in source.verdicts if each.check == CHECK]
        for source in registration.sources
    ]
    return registration.hosted, verdicts


def _host_of(endpoint: str) -> str | None:
    try:
        return urlsplit(endpoint).hostname
    except ValueError:
        return None
