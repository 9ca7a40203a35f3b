"""Agents that were registered by their domain are looked up again from time to time: what changed goes the way of every
change, what no longer holds is told, and what could not be asked is asked again sooner.

What is remembered of a domain is a note in the store; each check draws its next time, so that many are spread.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from waypost import limits
from waypost.domains.resolver import DomainResolution, DomainResolver
from waypost.errors import WaypostError
from waypost.model.principal import SCOPE_WRITE, Principal
from waypost.model.registration import Registration, SourceDocument
from waypost.model.resolution import VERIFIED_LEVELS
from waypost.model.verdict import Verdict, states_of
from waypost.registry.ports import AuditEntry, Command, Decision, RegistrationChange, StoreState
from waypost.registry.publication import DOMAIN_VIA, Publication
from waypost.registry.record_linkage import RecordLinker
from waypost.registry.registry import Registry

log = logging.getLogger("waypost.domains")

NOTE_PREFIX: Final = "resolved:"


class WatchedDomain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A domain whose agents are held here."""

    domain: str
    subject: str
    agents: tuple[str, ...]
    checked_at: float
    next_at: float
    failures: int = 0


class MakePublications(Protocol):
    def __call__(self, registry: Registry, principal: Principal, found: DomainResolution) -> list[Publication]: ...


class DomainRechecks:
    def __init__(
        self,
        registry: Registry,
        resolver: DomainResolver,
        publications: MakePublications,
        *,
        seconds: float = limits.RECHECK_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._registry = registry
        self._resolver = resolver
        self._publications = publications
        self._joining = RecordLinker(registry)
        self._seconds = seconds
        self._chance = chance

    async def remember(self, domain: str, subject: str, agents: Sequence[str]) -> None:
        now = self._registry.clock.now()
        ids = tuple(dict.fromkeys(agents))
        await self._keep(
            WatchedDomain(domain=domain, subject=subject, agents=ids, checked_at=now, next_at=self._later(now))
        )

    async def watched(self) -> list[WatchedDomain]:
        return [_load_watched(value) for _, value in await self._registry.notes(NOTE_PREFIX)]

    async def recheck(self) -> None:
        """Look again at what is due."""
        now = self._registry.clock.now()
        due = [each for each in await self.watched() if each.next_at <= now]
        for start in range(0, len(due), limits.CONCURRENT_RECHECKS):
            part = due[start : start + limits.CONCURRENT_RECHECKS]
            await asyncio.gather(*(self._look_again(each, now) for each in part))

    async def _look_again(self, watched: WatchedDomain, now: float) -> None:
        held = await self._registry.registrations(list(watched.agents))
        if not any(_domain_source(each) is not None for each in held):
            await self._forget(watched)
            return
        found = await self._resolver.find(watched.domain)
        told = found.resolution
        if told.is_resolved:
            await self._publish(watched, found)
            after = msgspec.structs.replace(watched, checked_at=now, next_at=self._later(now), failures=0)
        else:
            fallen = [each for each in told.verdicts if each.state == "failed"]
            if told.outcome == "not_found":
                fallen = [_gone_verdict(told.reason, told.at)]
            for each in held if fallen else ():
                await self._judge(each.id, tuple(fallen), now)
            after = msgspec.structs.replace(watched, next_at=self._soon(now), failures=watched.failures + 1)
        await self._keep(after)

    async def _publish(self, watched: WatchedDomain, found: DomainResolution) -> None:
        """As the owner would: a change of a verified agent waits for its owner, whoever brings it."""
        principal = Principal(subject=watched.subject, scopes=frozenset((SCOPE_WRITE,)), via=DOMAIN_VIA)
        made = self._publications(self._registry, principal, found)
        joined = await self._joining.link_domain_documents(found.resolution.domain, made)
        for publication in joined.publications:
            try:
                await self._registry.publish(publication)
            except WaypostError as error:
                log.warning("the agent of %s could not be taken over: %s", watched.domain, error.message)

    async def _judge(self, agent_id: str, fallen: tuple[Verdict, ...], now: float) -> None:
        await self._registry.execute(Command(keys=(agent_id,), notes=(), decide=_replace_levels(agent_id, fallen, now)))

    # --- Remembering -----------------------------------------------------------------------------

    async def _keep(self, watched: WatchedDomain) -> None:
        await self._write(watched.domain, msgspec.json.encode(watched))

    async def _forget(self, watched: WatchedDomain) -> None:
        await self._write(watched.domain, None)

    async def _write(self, domain: str, note: bytes | None) -> None:
        name = f"{NOTE_PREFIX}{domain}"
        decision = Decision(outcome="noted", notes={name: note})
        await self._registry.execute(Command(keys=(), notes=(name,), decide=lambda held: decision))

    def _later(self, now: float) -> float:
        """With jitter: what was registered together is not looked at together."""
        return now + self._seconds * (0.9 + 0.2 * self._chance())

    def _soon(self, now: float) -> float:
        return now + self._seconds / limits.PROOF_RETRY_DIVISOR * (0.9 + 0.2 * self._chance())


def _load_watched(value: bytes) -> WatchedDomain:
    return msgspec.json.decode(value, type=WatchedDomain)


def _domain_source(registration: Registration) -> SourceDocument | None:
    return next((source for source in registration.sources if source.via == DOMAIN_VIA), None)


def _gone_verdict(reason: str, at: str) -> Verdict:
    return Verdict(check=VERIFIED_LEVELS[0], state="failed", reason=f"the domain no longer names it: {reason}", at=at)


def _replace_levels(agent_id: str, fallen: tuple[Verdict, ...], now: float) -> Callable[[StoreState], Decision]:
    """The rule that replaces the rungs of what came by the domain."""

    def decide(held: StoreState) -> Decision:
        current = held.registrations.get(agent_id)
        if current is None:
            return Decision(outcome="gone")
        sources = tuple(
            _with_levels(source, fallen) if source.via == DOMAIN_VIA else source for source in current.sources
        )
        if [states_of(each.verdicts) for each in sources] == [states_of(each.verdicts) for each in current.sources]:
            return Decision(outcome="unchanged", registration=current)
        judged = msgspec.structs.replace(current, sources=sources, changed_at=now)
        change = RegistrationChange(type="updated", at=now, registration=judged, before=current.scopes)
        entry = AuditEntry(
            at=now, action="judge", subject="", object=agent_id, outcome="failed", via=DOMAIN_VIA, etag=judged.etag
        )
        return Decision(outcome="judged", change=change, audit=(entry,))

    return decide


def _with_levels(source: SourceDocument, fallen: tuple[Verdict, ...]) -> SourceDocument:
    others = tuple(verdict for verdict in source.verdicts if verdict.check not in VERIFIED_LEVELS)
    return msgspec.structs.replace(source, verdicts=(*fallen, *others))
