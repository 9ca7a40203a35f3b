"""What a way came to: everything that was found, as one resolution. Asks nobody."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.domains.descriptor import Descriptor, DescriptorFetcher
from waypost.domains.dns_lookup import AgentLocation, AgentLocator
from waypost.domains.ports import DnsResolver, DomainFetcher
from waypost.domains.target import ResolveTarget, parse_target
from waypost.domains.trace import ResolutionRefused, ResolutionTrace
from waypost.domains.trust_levels import (
    DANE_LEVEL,
    KEY_LEVEL,
    PEER_LEVEL,
    check_dns_level,
    check_key_level,
    levels_after_refusal,
    unreached_levels,
    verify_aid_key,
    with_public_key,
)
from waypost.domains.zone_signatures import ZoneKeyFetcher, has_signed_records, verify_record_signatures
from waypost.model.resolution import Depth, LookupMethod, Outcome, Resolution, ResolutionCost, TrustLevel, highest_level
from waypost.model.verdict import Verdict
from waypost.protocols.dns_aid.txt_records import AidRecord
from waypost.registry.ports import Clock


class DomainResolution(msgspec.Struct, frozen=True, kw_only=True):
    """A resolution with the documents that it rests on, byte for byte."""

    resolution: Resolution
    documents: tuple[Descriptor, ...] = ()
    located: AgentLocation | None = None


class ResolutionState(msgspec.Struct, kw_only=True):
    """How far one resolution has come. `refusal` is where it ended early."""

    asked: ResolveTarget
    depth: Depth
    journal: ResolutionTrace
    located: AgentLocation | None = None
    verdicts: list[Verdict] = []
    documents: list[Descriptor] = []
    refusal: ResolutionRefused | None = None
    signature: Verdict | None = None  # of the record itself, where it carries one

    def found(self) -> DomainResolution:
        return DomainResolution(resolution=self._told(), documents=tuple(self.documents), located=self.located)

    def _told(self) -> Resolution:
        place = self.located or AgentLocation(domain=self.asked.domain)
        told = [each.told for each in self.documents]
        outcome, code, reason = self._outcome()
        return Resolution(
            name=self.asked.text,
            domain=place.domain,
            agent=f"agent:{place.domain}",
            outcome=outcome,
            level=self._level(outcome),
            verdicts=(*self.verdicts, *(() if self.signature is None else (self.signature,))),
            reason=reason,
            code=code,
            how=self._how(),
            depth=self.depth,
            dnssec="bogus" if code == "bogus" else place.security,
            endpoints=place.endpoints,
            document=next((each.told for each in self.documents if each.is_agent), told[0] if told else None),
            documents=tuple(told),
            capabilities=self._capabilities(place),
            key=place.key,
            steps=tuple(self.journal.steps),
            warnings=tuple(self.journal.warnings),
            ttl_seconds=self._ttl() if outcome == "resolved" else 0,
            cost=self.journal.cost(),
            at=self.journal.at,
        )

    def _capabilities(self, place: AgentLocation) -> tuple[str, ...]:
        """As the document says that describes the agent, else as the DNS does (AID-17)."""
        described = next((each for each in self.documents if each.is_agent), None)
        if described is not None:
            return described.capabilities()
        return place.companion.capabilities if place.companion is not None else ()

    def _how(self) -> LookupMethod | None:
        if self.asked.url and self.documents:
            return "url"
        by_dns = self.located.how if self.located is not None else None
        return by_dns or ("well-known" if self.documents else None)

    def _outcome(self) -> tuple[Outcome, str, str]:
        refusal = self.refusal
        if refusal is not None and refusal.code == "not_offered":
            return "not_found", refusal.code, refusal.reason
        if refusal is not None:
            return "failed", refusal.code, refusal.reason
        fallen = next((verdict for verdict in self.verdicts if verdict.state == "failed"), None)
        if fallen is not None:
            return "failed", str(fallen.evidence.get("code", "")), fallen.reason
        if self._how() is None:
            return "not_found", "no_agent", "there is no agent of this name"
        return "resolved", "", ""

    def _level(self, outcome: Outcome) -> TrustLevel:
        """What failed has no level; what could not be had keeps that of the rungs below."""
        kept = outcome == "resolved" or (self.refusal is not None and self.refusal.state != "failed")
        return highest_level(self.verdicts) if kept else "unverified"

    def _ttl(self) -> int:
        """As long as its records and its documents hold."""
        ages = [each.told.max_age_seconds for each in self.documents]
        if self.located is not None and self.located.how is not None:
            ages.append(self.located.ttl)
        return min(ages, default=0)


# ---- From a name to an agent: where it is, what it says, and how far that is proven, no further than was asked for.
#
# Puts the parts together: `locating` asks the DNS, `describing` fetches, `ladder` judges. Answers are kept for as long as
# they hold; nothing else is remembered.

log = logging.getLogger("waypost.domains")


class ResolveOptions(msgspec.Struct, frozen=True, kw_only=True):
    legacy_names: bool = False  # those of the -01 draft of DNS-AID, where the others are not there


class DomainResolver:
    """One for a process: it holds what was found, while it holds."""

    def __init__(
        self, dns: DnsResolver, fetcher: DomainFetcher, clock: Clock, options: ResolveOptions | None = None
    ) -> None:
        self.dns = dns
        self.fetcher = fetcher
        self.clock = clock
        self._options = options or ResolveOptions()
        self._places = asyncio.Semaphore(limits.CONCURRENT_RESOLUTIONS)
        self._kept: LruCache[tuple[str, Depth], tuple[float, Resolution]] = LruCache(limits.RESOLUTION_CACHE)

    async def resolve(self, name: str, depth: Depth = "key", *, fresh: bool = False) -> Resolution:
        """Raises InvalidParameter for what is no name of an agent; whatever else there is, is told in the answer."""
        asked = parse_target(name)
        kept = None if fresh else self._remembered(asked, depth)
        if kept is not None:
            return kept
        told = (await self.find(name, depth)).resolution
        if told.is_resolved and told.ttl_seconds:
            self._kept.put((asked.text, depth), (self.clock.now() + told.ttl_seconds, told))
        return told

    async def find(self, name: str, depth: Depth = "key") -> DomainResolution:
        """With the documents, and never from memory."""
        asked = parse_target(name)
        async with self._places:
            return await self._find(asked, depth)

    def _remembered(self, asked: ResolveTarget, depth: Depth) -> Resolution | None:
        ends, told = self._kept.get((asked.text, depth)) or (0.0, None)
        left = int(ends - self.clock.now())
        if told is None or left <= 0:
            return None
        return msgspec.structs.replace(told, remembered=True, ttl_seconds=left, cost=ResolutionCost())

    async def _find(self, asked: ResolveTarget, depth: Depth) -> DomainResolution:
        journal = ResolutionTrace(self.dns, self.clock)
        way = ResolutionState(asked=asked, depth=depth, journal=journal)
        try:
            locator = AgentLocator(journal, legacy=self._options.legacy_names)
            way.located = located = await locator.locate(asked, depth)
            way.verdicts.append(check_dns_level(located, journal))
            if depth == "dns":
                way.verdicts += unreached_levels(journal, DANE_LEVEL, KEY_LEVEL, PEER_LEVEL)
            else:
                await self._check_signature(way, located)
                await self._describe(way, located)
                if not way.documents and located.services:
                    way.located = await locator.add_companion(way.located)
        except ResolutionRefused as refusal:
            log.info("refused: %s", refusal.code)
            way.verdicts = levels_after_refusal(refusal, way.verdicts, journal)
            way.refusal = refusal
        return way.found()

    async def _check_signature(self, way: ResolutionState, located: AgentLocation) -> None:
        """A record that says it is signed, and is not, leads nowhere: nothing is asked of where it points."""
        if not has_signed_records(located):
            return
        keys = ZoneKeyFetcher(way.journal, self.fetcher)
        way.signature = await verify_record_signatures(located, way.journal, keys, self.clock.now())
        if way.signature.state == "failed":
            raise ResolutionRefused(str(way.signature.evidence.get("code")), way.signature.reason)

    async def _describe(self, way: ResolutionState, located: AgentLocation) -> None:
        describer = DescriptorFetcher(way.journal, self.fetcher, self.clock, located)
        try:
            documents = await describer.describe(way.asked)
        finally:
            way.verdicts.append(describer.verdict())
        way.documents = documents
        key = unreached_levels(way.journal, KEY_LEVEL)[0]
        if way.depth == "key" and located.aid is not None:
            key, way.located = await self._prove(way, located, located.aid)
        elif way.depth == "key":
            key = check_key_level(located, documents, way.journal, self.clock.now())
            way.located = msgspec.structs.replace(located, key=with_public_key(located.key, documents, key))
        way.verdicts += [key, *unreached_levels(way.journal, PEER_LEVEL)]

    async def _prove(
        self, way: ResolutionState, located: AgentLocation, aid: AidRecord
    ) -> tuple[Verdict, AgentLocation]:
        """AID has no document: its server proves the key."""
        key, known = await verify_aid_key(located, aid, way.journal, self.fetcher, self.clock.now())
        told = {name: value for name, value in key.evidence.items() if name != "code"}
        way.journal.tell("key", key.state, key.reason, code=str(key.evidence.get("code", "")), **told)
        return key, known
