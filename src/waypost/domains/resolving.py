"""From a name to an agent: where it is, what it says, and how far that is proven, no further than was asked for.

Puts the parts together: `locating` asks the DNS, `describing` fetches, `ladder` judges. Answers are kept for as long as
they hold; nothing else is remembered.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from waypost import limits
from waypost.domains.aid_key import prove_key
from waypost.domains.describing import Describer
from waypost.domains.journal import Journal, Refusal
from waypost.domains.ladder import DANE, KEY, PEER, dns_rung, key_rung, refused, unreached, with_public_key
from waypost.domains.locating import Located, Locator
from waypost.domains.naming import Asked, parse_asked
from waypost.domains.outcome import Found, Way
from waypost.domains.ports import Dns, DomainFetcher
from waypost.domains.signed_records import is_signed, judge_records
from waypost.domains.zone_keys import ZoneKeys
from waypost.model.resolution import Cost, Depth, Resolution
from waypost.model.verdict import Verdict
from waypost.registry.lru import Lru
from waypost.registry.ports import Clock
from waypost.wire.aid import AidRecord

log = logging.getLogger("waypost.domains")


class ResolveOptions(msgspec.Struct, frozen=True, kw_only=True):
    legacy_names: bool = False  # those of the -01 draft of DNS-AID, where the others are not there


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
        way = Way(asked=asked, depth=depth, journal=journal)
        try:
            locator = Locator(journal, legacy=self._options.legacy_names)
            way.located = located = await locator.locate(asked, depth)
            way.verdicts.append(dns_rung(located, journal))
            if depth == "dns":
                way.verdicts += unreached(journal, DANE, KEY, PEER)
            else:
                await self._check_signature(way, located)
                await self._describe(way, located)
                if not way.documents and located.services:
                    way.located = await locator.accompany(way.located)
        except Refusal as refusal:
            log.info("refused: %s", refusal.code)
            way.verdicts = refused(refusal, way.verdicts, journal)
            way.refusal = refusal
        return way.found()

    async def _check_signature(self, way: Way, located: Located) -> None:
        """A record that says it is signed, and is not, leads nowhere: nothing is asked of where it points."""
        if not is_signed(located):
            return
        keys = ZoneKeys(way.journal, self.fetcher)
        way.signature = await judge_records(located, way.journal, keys, self.clock.now())
        if way.signature.state == "failed":
            raise Refusal(str(way.signature.evidence.get("code")), way.signature.reason)

    async def _describe(self, way: Way, located: Located) -> None:
        describer = Describer(way.journal, self.fetcher, self.clock, located)
        try:
            documents = await describer.describe(way.asked)
        finally:
            way.verdicts.append(describer.verdict())
        way.documents = documents
        key = unreached(way.journal, KEY)[0]
        if way.depth == "key" and located.aid is not None:
            key, way.located = await self._prove(way, located, located.aid)
        elif way.depth == "key":
            key = key_rung(located, documents, way.journal, self.clock.now())
            way.located = msgspec.structs.replace(located, key=with_public_key(located.key, documents, key))
        way.verdicts += [key, *unreached(way.journal, PEER)]

    async def _prove(self, way: Way, located: Located, aid: AidRecord) -> tuple[Verdict, Located]:
        """AID has no document: its server proves the key."""
        key, known = await prove_key(located, aid, way.journal, self.fetcher, self.clock.now())
        told = {name: value for name, value in key.evidence.items() if name != "code"}
        way.journal.tell("key", key.state, key.reason, code=str(key.evidence.get("code", "")), **told)
        return key, known
