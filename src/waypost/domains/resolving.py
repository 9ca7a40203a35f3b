"""From a name to an agent: where it is, what it says, and how far that is proven, no further than was asked for.

Puts the parts together: `locating` asks the DNS, `describing` fetches, `ladder` judges. Answers are kept for as long as
they hold; nothing else is remembered.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from waypost import limits
from waypost.domains.describing import Describer
from waypost.domains.descriptors import Descriptor
from waypost.domains.journal import Journal, Refusal
from waypost.domains.ladder import DANE, KEY, PEER, dns_rung, key_rung, refused, unreached, with_public_key
from waypost.domains.locating import Located, Locator
from waypost.domains.naming import Asked, parse_asked
from waypost.domains.ports import Dns, DomainFetcher
from waypost.model.resolution import Cost, Depth, How, Outcome, Resolution, level_of_rungs
from waypost.model.verdict import Verdict
from waypost.registry.lru import Lru
from waypost.registry.ports import Clock

log = logging.getLogger("waypost.domains")


class ResolveOptions(msgspec.Struct, frozen=True, kw_only=True):
    legacy_names: bool = False  # those of the -01 draft of DNS-AID, where the others are not there


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A resolution with the documents that it rests on, byte for byte."""

    resolution: Resolution
    documents: tuple[Descriptor, ...] = ()
    located: Located | None = None


class DomainResolver:
    """One for a process: it holds what was found, while it holds."""

    def __init__(self, dns: Dns, fetcher: DomainFetcher, clock: Clock, options: ResolveOptions | None = None) -> None:
        self.dns = dns
        self.fetcher = fetcher
        self.clock = clock
        self._options = options or ResolveOptions()
        self._places = asyncio.Semaphore(limits.RESOLUTIONS_AT_ONCE)
        self._kept: Lru[tuple[str, Depth], tuple[float, Resolution]] = Lru(limits.RESOLUTIONS_KEPT)

    async def resolve(self, name: str, depth: Depth = "key", *, fresh: bool = False) -> Resolution:
        """Raises InvalidParameter for what is no name of an agent; whatever else there is, is told in the answer."""
        asked = parse_asked(name)
        kept = None if fresh else self._remembered(asked, depth)
        if kept is not None:
            return kept
        told = (await self.find(name, depth)).resolution
        if told.is_resolved and told.ttl_seconds:
            self._kept.put((asked.text, depth), (self.clock.now() + told.ttl_seconds, told))
        return told

    async def find(self, name: str, depth: Depth = "key") -> Found:
        """With the documents, and never from memory."""
        asked = parse_asked(name)
        async with self._places:
            return await self._find(asked, depth)

    def _remembered(self, asked: Asked, depth: Depth) -> Resolution | None:
        ends, told = self._kept.get((asked.text, depth)) or (0.0, None)
        left = int(ends - self.clock.now())
        if told is None or left <= 0:
            return None
        return msgspec.structs.replace(told, remembered=True, ttl_seconds=left, cost=Cost())

    async def _find(self, asked: Asked, depth: Depth) -> Found:
        journal = Journal(self.dns, self.clock)
        reached: list[Verdict] = []
        located: Located | None = None
        try:
            located = await Locator(journal, legacy=self._options.legacy_names).locate(asked, depth)
            reached.append(dns_rung(located, journal))
            if depth == "dns":
                verdicts = [*reached, *unreached(journal, DANE, KEY, PEER)]
                return Found(resolution=_told(asked, depth, located, journal, verdicts), located=located)
            return await self._described(asked, depth, located, journal, reached)
        except Refusal as refusal:
            log.info("refused: %s", refusal.code)
            verdicts = refused(refusal, reached, journal)
            return Found(resolution=_told(asked, depth, located, journal, verdicts, refusal=refusal), located=located)

    async def _described(
        self, asked: Asked, depth: Depth, located: Located, journal: Journal, reached: list[Verdict]
    ) -> Found:
        describer = Describer(journal, self.fetcher, self.clock, located)
        try:
            documents = await describer.describe(asked)
        finally:
            reached.append(describer.verdict())
        key = unreached(journal, KEY)[0]
        if depth == "key":
            key = key_rung(located, documents, journal, self.clock.now())
        verdicts = [*reached, key, *unreached(journal, PEER)]
        proven = msgspec.structs.replace(located, key=with_public_key(located.key, documents, key))
        told = _told(asked, depth, proven, journal, verdicts, documents)
        return Found(resolution=told, documents=tuple(documents), located=proven)


def _told(
    asked: Asked,
    depth: Depth,
    located: Located | None,
    journal: Journal,
    verdicts: list[Verdict],
    documents: list[Descriptor] | None = None,
    *,
    refusal: Refusal | None = None,
) -> Resolution:
    place = located or Located(domain=asked.domain)
    told = [each.told for each in documents or ()]
    how: How | None = "url" if asked.url and told else place.how or ("well-known" if told else None)
    outcome, code, reason = _outcome(how, verdicts, refusal)
    best = next((each.told for each in documents or () if each.is_agent), told[0] if told else None)
    return Resolution(
        name=asked.text,
        domain=place.domain,
        agent=f"agent:{place.domain}",
        outcome=outcome,
        level=level_of_rungs(verdicts)
        if outcome == "resolved" or (refusal and refusal.state != "failed")
        else "unverified",
        verdicts=tuple(verdicts),
        reason=reason,
        code=code,
        how=how,
        depth=depth,
        dnssec="bogus" if code == "bogus" else place.security,
        endpoints=place.endpoints,
        document=best,
        documents=tuple(told),
        key=place.key,
        steps=tuple(journal.steps),
        warnings=tuple(journal.warnings),
        ttl_seconds=_ttl(place, [each.max_age_seconds for each in told]) if outcome == "resolved" else 0,
        cost=journal.cost(),
        at=journal.at,
    )


def _outcome(how: How | None, verdicts: list[Verdict], refusal: Refusal | None) -> tuple[Outcome, str, str]:
    if refusal is not None and refusal.code != "not_offered":
        return "failed", refusal.code, refusal.reason
    fallen = next((verdict for verdict in verdicts if verdict.state == "failed"), None)
    if fallen is not None:
        return "failed", str(fallen.evidence.get("code", "")), fallen.reason
    if how is None:
        reason = refusal.reason if refusal is not None else "there is no agent of this name"
        return "not_found", refusal.code if refusal is not None else "no_agent", reason
    return "resolved", "", ""


def _ttl(located: Located, ages: list[int]) -> int:
    return min([*([located.ttl] if located.how is not None else []), *ages], default=0)
