"""Resolves a name to an agent: where it is (`dns_lookup`), what its documents say (`descriptor`), and its trust level.

Resolutions are cached for their TTL.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.domains.descriptor import Descriptor, DescriptorFetcher
from waypost.domains.dns_lookup import AgentLocation, AgentLocator
from waypost.domains.ports import DnsResolver, DomainFetcher
from waypost.domains.record_checks import ZoneKeyFetcher, has_signed_records, verify_record_signatures
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
from waypost.model.json import memory_size
from waypost.model.resolution import Depth, LookupMethod, Outcome, Resolution, ResolutionCost, TrustLevel, highest_level
from waypost.model.verdict import Verdict
from waypost.protocols.dns_aid.txt_records import AidRecord
from waypost.registry.ports import Clock

log = logging.getLogger("waypost.domains")


class DomainResolution(msgspec.Struct, frozen=True, kw_only=True):
    """A resolution with its documents, byte for byte."""

    resolution: Resolution
    documents: tuple[Descriptor, ...] = ()
    location: AgentLocation | None = None


class ResolutionState(msgspec.Struct, kw_only=True):
    """The progress of a resolution. `refusal` is set if it ended early."""

    target: ResolveTarget
    depth: Depth
    trace: ResolutionTrace
    location: AgentLocation | None = None
    verdicts: list[Verdict] = []
    documents: list[Descriptor] = []
    refusal: ResolutionRefused | None = None
    signature: Verdict | None = None  # of the DNS record, if it is signed

    def result(self) -> DomainResolution:
        return DomainResolution(resolution=self._resolution(), documents=tuple(self.documents), location=self.location)

    def _resolution(self) -> Resolution:
        location = self.location or AgentLocation(domain=self.target.domain)
        summaries = [each.summary for each in self.documents]
        outcome, code, reason = self._outcome()
        return Resolution(
            name=self.target.text,
            domain=location.domain,
            agent=f"agent:{location.domain}",
            outcome=outcome,
            level=self._level(outcome),
            verdicts=(*self.verdicts, *(() if self.signature is None else (self.signature,))),
            reason=reason,
            code=code,
            how=self._how(),
            depth=self.depth,
            dnssec="bogus" if code == "bogus" else location.security,
            endpoints=location.endpoints,
            document=next(
                (each.summary for each in self.documents if each.is_agent), summaries[0] if summaries else None
            ),
            documents=tuple(summaries),
            capabilities=self._capabilities(location),
            key=location.key,
            steps=tuple(self.trace.steps),
            warnings=tuple(self.trace.warnings),
            ttl_seconds=self._ttl() if outcome == "resolved" else 0,
            cost=self.trace.cost(),
            at=self.trace.at,
        )

    def _capabilities(self, location: AgentLocation) -> tuple[str, ...]:
        """From the document that describes the agent, else from the DNS (AID-17)."""
        described = next((each for each in self.documents if each.is_agent), None)
        if described is not None:
            return described.capabilities()
        return location.companion.capabilities if location.companion is not None else ()

    def _how(self) -> LookupMethod | None:
        if self.target.url and self.documents:
            return "url"
        dns_method = self.location.how if self.location is not None else None
        return dns_method or ("well-known" if self.documents else None)

    def _outcome(self) -> tuple[Outcome, str, str]:
        refusal = self.refusal
        if refusal is not None and refusal.code == "not_offered":
            return "not_found", refusal.code, refusal.reason
        if refusal is not None:
            return "failed", refusal.code, refusal.reason
        failed = next((verdict for verdict in self.verdicts if verdict.state == "failed"), None)
        if failed is not None:
            return "failed", str(failed.evidence.get("code", "")), failed.reason
        if self._how() is None:
            return "not_found", "no_agent", "no agent has this name"
        return "resolved", "", ""

    def _level(self, outcome: Outcome) -> TrustLevel:
        """A failed resolution has no level; one that ended early keeps the levels below."""
        has_level = outcome == "resolved" or (self.refusal is not None and self.refusal.state != "failed")
        return highest_level(self.verdicts) if has_level else "unverified"

    def _ttl(self) -> int:
        """The lowest TTL of its records and documents."""
        ttls = [each.summary.max_age_seconds for each in self.documents]
        if self.location is not None and self.location.how is not None:
            ttls.append(self.location.ttl)
        return min(ttls, default=0)


class ResolveOptions(msgspec.Struct, frozen=True, kw_only=True):
    legacy_names: bool = False  # try the names of the -01 draft of DNS-AID if the current ones do not exist


class DomainResolver:
    def __init__(
        self, dns: DnsResolver, fetcher: DomainFetcher, clock: Clock, options: ResolveOptions | None = None
    ) -> None:
        self.dns = dns
        self.fetcher = fetcher
        self.clock = clock
        self._options = options or ResolveOptions()
        self._slots = asyncio.Semaphore(limits.CONCURRENT_RESOLUTIONS)
        self._cache: LruCache[tuple[str, Depth], tuple[float, Resolution]] = LruCache(
            limits.RESOLUTION_CACHE_BYTES, memory_size, max_entries=limits.RESOLUTION_CACHE
        )

    async def resolve(self, name: str, depth: Depth = "key", *, fresh: bool = False) -> Resolution:
        """Raises InvalidParameter for an invalid name; other failures are in the result."""
        target = parse_target(name)
        cached = None if fresh else self._find_cached(target, depth)
        if cached is not None:
            return cached
        resolution = (await self.find(name, depth)).resolution
        if resolution.is_resolved and resolution.ttl_seconds:
            self._cache.put((target.text, depth), (self.clock.now() + resolution.ttl_seconds, resolution))
        return resolution

    async def find(self, name: str, depth: Depth = "key") -> DomainResolution:
        """Resolve with documents, without the cache."""
        target = parse_target(name)
        async with self._slots:
            return await self._find(target, depth)

    def _find_cached(self, target: ResolveTarget, depth: Depth) -> Resolution | None:
        expires_at, resolution = self._cache.get((target.text, depth)) or (0.0, None)
        ttl_seconds = int(expires_at - self.clock.now())
        if resolution is None or ttl_seconds <= 0:
            return None
        return msgspec.structs.replace(resolution, remembered=True, ttl_seconds=ttl_seconds, cost=ResolutionCost())

    async def _find(self, target: ResolveTarget, depth: Depth) -> DomainResolution:
        trace = ResolutionTrace(self.dns, self.clock)
        state = ResolutionState(target=target, depth=depth, trace=trace)
        try:
            locator = AgentLocator(trace, legacy=self._options.legacy_names)
            state.location = location = await locator.locate(target, depth)
            state.verdicts.append(check_dns_level(location, trace))
            if depth == "dns":
                state.verdicts += unreached_levels(trace, DANE_LEVEL, KEY_LEVEL, PEER_LEVEL)
            else:
                await self._check_signature(state, location)
                await self._describe(state, location)
                if not state.documents and location.services:
                    state.location = await locator.add_companion(state.location)
        except ResolutionRefused as refusal:
            log.info("refused: %s", refusal.code)
            state.verdicts = levels_after_refusal(refusal, state.verdicts, trace)
            state.refusal = refusal
        return state.result()

    async def _check_signature(self, state: ResolutionState, location: AgentLocation) -> None:
        """A record with an invalid signature is not followed."""
        if not has_signed_records(location):
            return
        keys = ZoneKeyFetcher(state.trace, self.fetcher)
        state.signature = await verify_record_signatures(location, state.trace, keys, self.clock.now())
        if state.signature.state == "failed":
            raise ResolutionRefused(str(state.signature.evidence.get("code")), state.signature.reason)

    async def _describe(self, state: ResolutionState, location: AgentLocation) -> None:
        fetcher = DescriptorFetcher(state.trace, self.fetcher, self.clock, location)
        try:
            documents = await fetcher.fetch_documents(state.target)
        finally:
            state.verdicts.append(fetcher.verdict())
        state.documents = documents
        key = unreached_levels(state.trace, KEY_LEVEL)[0]
        if state.depth == "key" and location.aid is not None:
            key, state.location = await self._verify_aid_key(state, location, location.aid)
        elif state.depth == "key":
            key = check_key_level(location, documents, state.trace, self.clock.now())
            state.location = msgspec.structs.replace(location, key=with_public_key(location.key, documents, key))
        state.verdicts += [key, *unreached_levels(state.trace, PEER_LEVEL)]

    async def _verify_aid_key(
        self, state: ResolutionState, location: AgentLocation, aid: AidRecord
    ) -> tuple[Verdict, AgentLocation]:
        """AID has no document: its server proves the key."""
        verdict, updated = await verify_aid_key(location, aid, state.trace, self.fetcher, self.clock.now())
        evidence = {name: value for name, value in verdict.evidence.items() if name != "code"}
        code = str(verdict.evidence.get("code", ""))
        state.trace.add_step("key", verdict.state, verdict.reason, code=code, **evidence)
        return verdict, updated
