"""What proven domains change: the verdict `domain` of a record, and whether the service answers under its domain.

A record's id decides which domain counts. Only an id that names none is judged by its endpoints, all of which must then be
proven; else whoever proved one domain could vouch for an id of another.
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
from waypost.registry.ports import AuditEntry, Decision, RegistrationChange, Store, StoreState
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
Decide = Callable[[StoreState], Decision]


class DomainProofs:
    """The claims in memory, told of each commit. Only the process that writes relies on it."""

    def __init__(self) -> None:
        self._notes: dict[str, OwnershipClaims] = {}
        self._proven: dict[str, dict[str, OwnershipClaim]] = {}  # by subject, by domain

    async def load(self, store: Store) -> None:
        self.take_in(dict(await store.notes(NOTE_PREFIX)))

    def take_in(self, notes: Mapping[str, bytes | None]) -> None:
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
        """What a subject has proven, as of now."""
        return tuple(self._proven.get(subject, {}).values())

    def claims(self) -> Iterable[OwnershipClaim]:
        return [claim for note in self._notes.values() for claim in note.claims.values()]

    # --- Writing ---------------------------------------------------------------------------------

    def rule(
        self, publication: Publication, owner: str | None, publish: Callable[[Publication], Decide], now: float
    ) -> tuple[tuple[str, ...], Callable[[Publication], Decide]]:
        """The notes that a registration must see, and the rule of its write. `owner` is that of the record, if there is one."""
        who = owner or publication.principal.subject or ""
        if not self._proven.get(who):
            return (), publish

        def with_proof(given: Publication) -> Decide:
            def decide(held: StoreState) -> Decision:
                current = write_rules.find_current(given, held)
                proven = _with_proof(given, current.owner if current is not None else who, held.notes, now)
                return publish(proven)(held)

            return decide

        return proof_notes(publication.decoded.record, publication.decoded.source_id), with_proof


def proof_notes(record: AgentRecord, *ids: str) -> tuple[str, ...]:
    wanted = [domain for agent_id in ids if (domain := domain_of(agent_id)) is not None]
    names = dict.fromkeys(
        claims_key(name) for domain in (*wanted, *domains_of(record)) for name in parent_domains(domain)
    )
    return tuple(names)[: limits.PROOF_DOMAINS_PER_WRITE]


def domains_of(record: AgentRecord) -> tuple[str, ...]:
    """The domains whose proof makes a record its owner's: that of its id, else those of all its endpoints."""
    domain = domain_of(record.id)
    if domain is not None:
        return (domain,)
    hosts = [_host_of(binding.endpoint) for binding in record.bindings]
    return () if None in hosts else tuple(dict.fromkeys(host for host in hosts if host is not None))


def check_domain_proof(owner: str, record: AgentRecord, notes: Mapping[str, bytes], now: float) -> Verdict | None:
    """Passed, with the claims that say so; None where nothing is proven: that is not a failure."""
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


def recheck_domain_proof(agent_id: str, owner: str, domain: str, now: float) -> Decide:
    """The rule that takes over what the proof of a domain, or its end, changes of one record."""

    def decide(held: StoreState) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None or current.owner != owner:
            return Decision(outcome="unchanged", registration=current)
        judged = _rechecked_sources(current, domain, held.notes, now)
        if _find_domain_verdict(judged) == _find_domain_verdict(current):
            return Decision(outcome="unchanged", registration=current)
        change = RegistrationChange(type="updated", at=now, registration=judged, before=current.scopes)
        outcome = "proven" if any(each.check == CHECK for each in verdicts_of(judged)) else "unproven"
        entry = AuditEntry(
            at=now, action="judge", subject="", object=agent_id, outcome=outcome, via="domain", etag=judged.etag
        )
        return Decision(outcome="judged", change=change, audit=(entry,))

    return decide


def _rechecked_sources(current: Registration, domain: str, notes: Mapping[str, bytes], now: float) -> Registration:
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
    """A proof opens the domain of an ADP document, and its end closes it. Other hosts were given by an admin, and stay."""
    source = current.source("adp")
    domain = domain_of(source.id) if source is not None else None
    if domain is None or changed not in parent_domains(domain) or current.hosted not in (None, domain):
        return current.hosted
    return domain if find_covering_claim(current.owner, domain, notes) is not None else None


def _find_domain_verdict(registration: Registration) -> tuple[str | None, list[list[Verdict]]]:
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
