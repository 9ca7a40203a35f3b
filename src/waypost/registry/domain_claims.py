"""Proofs of domain ownership: claim a domain, publish a line, have it checked, and rechecks while the proof is in use.

`trust/domain_claims.py` defines a claim and its states, `domain_proofs.py` what it changes. Each step is a note in the store
with an entry in the audit trail.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from waypost import limits
from waypost.errors import (
    AddressDenied,
    Conflict,
    FetchFailed,
    InvalidParameter,
    NotFound,
    OverQuota,
    ProofMissing,
    QuotaExceeded,
)
from waypost.model.principal import Principal
from waypost.registry.audit_trail import audit_entry_by
from waypost.registry.domain_proofs import proof_notes, recheck_domain_proof
from waypost.registry.ports import AuditEntry, Command, Decision, Rule, StoreState
from waypost.registry.registry import Registry
from waypost.trust.domain_claims import (
    NOTE_PREFIX,
    OwnershipClaim,
    OwnershipClaims,
    ProofMethod,
    claims_key,
    dump_claims,
    has_proof_line,
    load_claims,
    make_nonce,
    mark_missed,
    mark_proven,
)

log = logging.getLogger("waypost.domains")

_PERSPECTIVES = (0, 1)  # both resolvers must see the line


class ProofLookup(Protocol):
    async def lines(self, domain: str, method: ProofMethod, perspective: int) -> list[str]:
        """The lines published at the place of a proof. Raises FetchFailed or AddressDenied if it cannot be read."""
        ...


class DomainClaimOptions(msgspec.Struct, frozen=True, kw_only=True):
    service: str  # the name of the service in a line
    recheck_seconds: float = limits.PROOF_RECHECK_SECONDS
    discreet_seconds: float = limits.FETCH_DISCREET_SECONDS


class DomainClaims:
    def __init__(
        self,
        registry: Registry,
        lookup: ProofLookup,
        options: DomainClaimOptions,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._lookup = lookup
        self._options = options
        self._chance = chance

    # --- Operations ------------------------------------------------------------------------------

    async def list(self, principal: Principal) -> list[OwnershipClaim]:
        """The claims of the caller; an admin sees all."""
        notes = [load_claims(value) for _, value in await self._registry.notes(NOTE_PREFIX)]
        claims = [claim for note in notes for claim in note.claims.values()]
        return [claim for claim in claims if principal.is_admin or claim.subject == principal.subject]

    async def prove(self, principal: Principal, domain: str, method: ProofMethod) -> OwnershipClaim:
        """Claim a domain. Repeating a claim returns the same line until it expires."""
        subject, now = _subject(principal), self._clock.now()
        nonce = make_nonce(secrets.token_bytes(32), service=self._options.service, domain=domain, subject=subject)
        fresh = OwnershipClaim(
            domain=domain,
            subject=subject,
            method=method,
            nonce=nonce,
            state="pending",
            claimed_at=now,
            expires_at=now + limits.PROOF_TTL_SECONDS,
        )
        self._check_quota(subject, domain)
        made = [fresh]

        def decide(state: StoreState) -> Decision:
            note = load_claims(state.notes.get(claims_key(domain))).without_expired(now)
            known = note.claims.get(subject)
            if known is not None and known.method == method:
                made[0] = known
                return Decision(outcome="unchanged")
            if known is not None and known.state == "proven":
                raise Conflict(
                    f"{domain} is proven already, by {known.method}.",
                    path="$.method",
                    hint="Remove that proof first to use the other method.",
                )
            if known is None and len(note.claims) >= limits.PROOF_CLAIMS:
                raise QuotaExceeded("Too many subjects claim this domain.", path="$.domain")
            made[0] = fresh
            entry = audit_entry_by(principal, "claim", now=now, object=domain, outcome="pending", detail=method)
            return _write(domain, note.with_claim(fresh), "pending", entry)

        await self._execute(domain, decide)
        return made[0]

    async def check(self, principal: Principal, domain: str) -> OwnershipClaim:
        """Look for the line. ProofMissing names the place that was checked."""
        subject = _subject(principal)
        claim = await self._find(subject, domain)
        if claim is None or claim.is_over(self._clock.now()):
            raise NotFound(
                f"You have no open claim of {domain}.", path="$.domain", hint="Claim it, then publish the line."
            )
        began = time.monotonic()
        try:
            found = await self._is_published(claim)
        except (FetchFailed, AddressDenied) as error:
            if principal.is_admin:
                raise
            log.debug("%s: %s", domain, error)
            await asyncio.sleep(max(0.0, began + self._options.discreet_seconds - time.monotonic()))
            found = False
        if not found:
            raise _missing(claim)
        return await self._grant(principal, claim)

    async def remove(self, principal: Principal, domain: str, subject: str | None = None) -> None:
        """Remove a claim; an admin may name its subject."""
        claimant, now = subject or _subject(principal), self._clock.now()
        if claimant != principal.subject and not principal.is_admin:
            raise NotFound(f"You do not claim {domain}.", path="domain")

        def decide(state: StoreState) -> Decision:
            note = load_claims(state.notes.get(claims_key(domain)))
            if claimant not in note.claims:
                raise NotFound(f"This subject does not claim {domain}.", path="domain")
            entry = audit_entry_by(principal, "unclaim", now=now, object=domain, outcome="removed", detail=claimant)
            return _write(domain, note.without(claimant), "removed", entry)

        await self._execute(domain, decide)
        await self._update_agents(claimant, domain)

    # --- Rechecks --------------------------------------------------------------------------------

    async def recheck(self) -> None:
        """Check the claims that are due again. One failure may be an outage; three end the proof."""
        now = self._clock.now()
        due = [claim for claim in self._registry.proofs.claims() if _is_due(claim, now)]
        for start in range(0, len(due), limits.PROOF_CONCURRENT_RECHECKS):
            part = due[start : start + limits.PROOF_CONCURRENT_RECHECKS]
            await asyncio.gather(*(self._recheck_claim(claim, now) for claim in part))

    async def _recheck_claim(self, claim: OwnershipClaim, now: float) -> None:
        try:
            found = has_proof_line(claim, await self._lookup.lines(claim.domain, claim.method, _PERSPECTIVES[0]))
        except (FetchFailed, AddressDenied):
            if claim.method == "dns" and not self._is_outage_over(claim, now):
                await self._replace(
                    claim, msgspec.structs.replace(claim, next_check_at=self._retry_at(now)), "unanswered", now
                )
                return
            found = False
        if found:
            await self._replace(claim, mark_proven(claim, now, self._next_check(now)), "seen", now)
            return
        after = mark_missed(claim, self._retry_at(now))
        await self._replace(claim, after, after.state if after.state == "lapsed" else "missed", now)
        if after.state == "lapsed":
            log.warning("the proof of %s for %s has lapsed", claim.domain, claim.subject)
            await self._update_agents(claim.subject, claim.domain)

    def _is_outage_over(self, claim: OwnershipClaim, now: float) -> bool:
        """A failing resolver says nothing about the domain, but not without a limit."""
        return now - (claim.checked_at or now) > limits.PROOF_UNANSWERED_PERIODS * self._options.recheck_seconds

    def _next_check(self, now: float) -> float:
        """With jitter, so that domains proven together are not rechecked together."""
        return now + self._options.recheck_seconds * (0.9 + 0.2 * self._chance())

    def _retry_at(self, now: float) -> float:
        return now + self._options.recheck_seconds / limits.PROOF_RETRY_DIVISOR * (0.9 + 0.2 * self._chance())

    # --- Writes ----------------------------------------------------------------------------------

    async def _is_published(self, claim: OwnershipClaim) -> bool:
        for perspective in _PERSPECTIVES:
            if not has_proof_line(claim, await self._lookup.lines(claim.domain, claim.method, perspective)):
                return False
        return True

    async def _grant(self, principal: Principal, claim: OwnershipClaim) -> OwnershipClaim:
        now = self._clock.now()
        granted = mark_proven(claim, now, self._next_check(now))

        def decide(state: StoreState) -> Decision:
            note = load_claims(state.notes.get(claims_key(claim.domain)))
            known = note.claims.get(claim.subject)
            if known is None or known.nonce != claim.nonce or known.is_over(now):
                raise _missing(claim)
            entry = audit_entry_by(
                principal, "prove", now=now, object=claim.domain, outcome="proven", detail=claim.method
            )
            return _write(claim.domain, note.with_claim(granted), "proven", entry)

        await self._execute(claim.domain, decide)
        await self._update_agents(claim.subject, claim.domain)
        return granted

    async def _replace(self, before: OwnershipClaim, after: OwnershipClaim, outcome: str, now: float) -> None:
        """Store the result of a recheck. Only a change of state gets an audit entry."""

        def decide(state: StoreState) -> Decision:
            note = load_claims(state.notes.get(claims_key(before.domain)))
            if note.claims.get(before.subject) != before:
                return Decision(outcome="unchanged")
            entry = AuditEntry(
                at=now, action="recheck", subject="", object=before.domain, outcome=outcome, detail=before.subject
            )
            entries = () if outcome in ("seen", "unanswered") else (entry,)
            return _write(before.domain, note.with_claim(after), outcome, *entries)

        await self._execute(before.domain, decide)

    async def _update_agents(self, subject: str, domain: str) -> None:
        """Update the verdict `domain` of all agents of a subject."""
        ids = [entry.id for entry in self._registry.entries if entry.owner == subject]
        now = self._clock.now()
        for start in range(0, len(ids), limits.GROUP_SLICE):
            part = await self._registry.registrations(ids[start : start + limits.GROUP_SLICE])
            commands = [
                Command(
                    keys=(each.id,),
                    notes=proof_notes(each.record, *(source.id for source in each.sources)),
                    decide=recheck_domain_proof(each.id, subject, domain, now),
                )
                for each in part
            ]
            await asyncio.gather(*map(self._registry.execute, commands))

    async def _find(self, subject: str, domain: str) -> OwnershipClaim | None:
        notes = dict(await self._registry.notes(claims_key(domain)))
        return load_claims(notes.get(claims_key(domain))).claims.get(subject)

    async def _execute(self, domain: str, decide: Rule) -> None:
        await self._registry.execute(Command(keys=(), notes=(claims_key(domain),), decide=decide))

    def _check_quota(self, subject: str, domain: str) -> None:
        claims = [claim for claim in self._registry.proofs.claims() if claim.subject == subject]
        if len(claims) >= limits.PROOF_DOMAINS and all(claim.domain != domain for claim in claims):
            raise OverQuota(
                f"You claim {len(claims)} domains; the limit is {limits.PROOF_DOMAINS}.",
                path="$.domain",
                hint="Remove claims that you do not need.",
            )


def _write(domain: str, note: OwnershipClaims, outcome: str, *audit: AuditEntry) -> Decision:
    return Decision(outcome=outcome, notes={claims_key(domain): dump_claims(note)}, audit=audit)


def _is_due(claim: OwnershipClaim, now: float) -> bool:
    return claim.state == "proven" and claim.next_check_at is not None and claim.next_check_at <= now


def _subject(principal: Principal) -> str:
    if principal.subject is None:
        raise InvalidParameter("A claim needs a subject.", path="Authorization", hint="Send a token.")
    return principal.subject


def _missing(claim: OwnershipClaim) -> ProofMissing:
    where = f"a TXT record at {claim.place}" if claim.method == "dns" else f"a file at {claim.place}"
    return ProofMissing(
        f"The line that proves {claim.domain} was not found.",
        path="$.domain",
        hint=f"Publish it as {where}: {claim.line}. It may take a while until a change is visible.",
        details={"place": claim.place, "line": claim.line},
    )
