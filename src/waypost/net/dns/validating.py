"""One question to the DNS, answered with how far the answer is proven: by our own validation from a trust anchor on, or, when
the settings say so, by the word of a resolver at the end of a path that nobody else is on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import dns.exception
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import msgspec
from dns.rdatatype import RdataType

from waypost import limits
from waypost.domains.ports import Lookup, Outcome, RecordType
from waypost.net.dns.aliases import Path, follow, too_many_aliases
from waypost.net.dns.chain import Chain, Work
from waypost.net.dns.exchange import Account, Asking, Exchange, negative_ttl
from waypost.net.dns.memory import Memory, clamp
from waypost.net.dns.packet import DnsFailure, Message, failure
from waypost.net.dns.sections import denial_sets, find_signer, signed_set
from waypost.trust.dnssec.anchors import TrustAnchors
from waypost.trust.dnssec.delegation import Entry
from waypost.trust.dnssec.denial import Denial
from waypost.trust.dnssec.judgement import SECURE, Judgement, bogus, insecure, weakest
from waypost.trust.dnssec.rules import RULES, Rules
from waypost.trust.dnssec.signatures import verify

_TRIES: Final = 2  # a bogus answer that rests on something remembered is asked for anew, once


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a look-up."""

    outcome: Outcome
    judgement: Judgement
    ttl: int
    owner: dns.name.Name
    rrset: dns.rrset.RRset | None = None
    server: str = ""


class ValidatingDns:
    """`Dns` of domains/ports.py. `trust_ad` takes the resolver's word for it (D4: see that its path is trusted)."""

    def __init__(
        self,
        upstreams: Asking,
        anchors: TrustAnchors,
        *,
        clock: Callable[[], float],
        trust_ad: bool = False,
        rules: Rules = RULES,
        seconds: float = limits.DNS_SECONDS,
    ) -> None:
        self._upstreams = upstreams
        self._seconds = seconds
        self._clock = clock
        self._trust_ad = trust_ad
        self._rules = rules
        self._exchange = Exchange(upstreams, clock, checking=not trust_ad)
        self._chain = Chain(self._exchange, anchors, clock, rules)
        self._places = asyncio.Semaphore(limits.DNS_LOOKUPS_AT_ONCE)
        self._found: Memory[tuple[dns.name.Name, RdataType], Found] = Memory(clock)

    async def lookup(self, name: str, kind: RecordType) -> Lookup:
        begun = time.perf_counter()
        account = Account()
        asked = name.rstrip(".").lower()
        try:
            owner, type_ = dns.name.from_text(asked or "."), dns.rdatatype.from_text(kind)
            kept = self._found.find((owner, type_))
            found, left = kept if kept is not None else (await self._find(owner, type_, account), None)
        except dns.exception.DNSException:
            found, left = _failed(dns.name.root, Judgement("indeterminate", "it is no name")), None
        return Lookup(
            name=asked,
            type=kind,
            outcome=found.outcome,
            security=found.judgement.security,
            reason=found.judgement.reason,
            records=tuple(rdata.to_wire() or b"" for rdata in found.rrset or ()),
            owner=found.owner.to_text(omit_final_dot=True).lower() if found.rrset is not None else asked,
            ttl=clamp(found.ttl) if left is None else left,
            server=account.server or found.server,
            queries=account.queries,
            round_trips=account.round_trips,
            took_ms=(time.perf_counter() - begun) * 1000,
            validated=not self._trust_ad,
        )

    async def aclose(self) -> None:
        await self._exchange.aclose()
        await self._upstreams.aclose()

    async def _find(self, name: dns.name.Name, kind: RdataType, account: Account) -> Found:
        """Within the time that one look-up may take; remembered as long as it may be."""
        try:
            async with self._places, asyncio.timeout(self._seconds):
                found = await self._find_fresh(name, kind, account)
        except TimeoutError:
            found = _failed(name, Judgement("indeterminate", "it took too long to prove the answer"))
        except DnsFailure as error:
            found = _failed(name, Judgement("indeterminate", error.message))
        found = msgspec.structs.replace(found, server=account.server)
        self._found.keep((name, kind), found, found.ttl)
        return found

    async def _find_fresh(self, name: dns.name.Name, kind: RdataType, account: Account) -> Found:
        for _ in range(_TRIES):
            work = Work(account)
            found = await self._follow(name, kind, work)
            if found.judgement.security != "bogus":
                return found
            self._chain.forget(work)
            if not account.remembered:
                break
            account.start_anew()
        return _failed(name, found.judgement)

    async def _follow(self, name: dns.name.Name, kind: RdataType, work: Work) -> Found:
        """From alias to alias; an answer is as good as the weakest of the links that led to it. What one message says of
        other names is used as far as it is proven there; for the rest they are asked for themselves."""
        judged: list[tuple[Judgement, int]] = []
        for _ in range(limits.DNS_ALIASES + 1):
            message = await self._ask(name, kind, work)
            path = follow(message, name)
            ask_next = await self._judge_links(message, path, judged, work)
            if ask_next is None and (path.rrset is not None or not path.links):
                end = await self._judge_end(message, path, work)
                if end[0].security != "bogus" or not path.links:
                    return _result(message, path, [*judged, end])
            name = path.owner if ask_next is None else ask_next
            if len(judged) > limits.DNS_ALIASES:
                break
        raise too_many_aliases()

    async def _judge_links(
        self, message: Message, path: Path, judged: list[tuple[Judgement, int]], work: Work
    ) -> dns.name.Name | None:
        """The name to be asked for itself, where the message does not prove its link."""
        for number, (place, link) in enumerate(path.links):
            judgement, ttl = await self._judge_set(message, link, work)
            if judgement.security == "bogus" and number:
                return place
            judged.append((judgement, ttl))
        return None

    async def _ask(self, name: dns.name.Name, kind: RdataType, work: Work) -> Message:
        if not self._trust_ad:
            self._chain.ask_ahead(name, work)
        message = await self._exchange.ask(name, kind, work.account)
        if message.rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            asked = name.to_text(omit_final_dot=True)
            raise failure(f"The resolver answers {_code(message)} for {asked}.", "status", "Try again later.")
        return message

    async def _judge_end(self, message: Message, path: Path, work: Work) -> tuple[Judgement, int]:
        if path.rrset is not None:
            return await self._judge_set(message, path.rrset, work)
        return await self._judge_absence(message, path.owner, work), negative_ttl(message.authority)

    async def _judge_set(self, message: Message, rrset: dns.rrset.RRset, work: Work) -> tuple[Judgement, int]:
        if self._trust_ad:
            return _vouched(message), rrset.ttl
        signed = signed_set(message.answer, rrset)
        above = rrset.rdtype == dns.rdatatype.DS
        signer = find_signer([signed], rrset.name, above=above)
        zone = await self._signing_zone(signer, rrset.name, above, work)
        if isinstance(zone, Judgement):
            return zone, rrset.ttl
        if signer is None:
            return bogus(f"{rrset.name} is not signed, though {zone.name} is"), 0
        proven = verify(signed, zone, self._clock(), work.effort, self._rules)
        if isinstance(proven, Judgement):
            return proven, 0
        if proven.encloser is None:
            return SECURE, proven.ttl
        return self._denial(message, zone, work).expansion(rrset.name, proven.encloser), proven.ttl

    async def _judge_absence(self, message: Message, name: dns.name.Name, work: Work) -> Judgement:
        if self._trust_ad:
            return _vouched(message)
        above = message.type == dns.rdatatype.DS
        signer = find_signer(denial_sets(message.authority), name, above=above)
        zone = await self._signing_zone(signer, name, above, work)
        if isinstance(zone, Judgement):
            return zone
        if signer is None:
            return bogus(f"nothing proves what {zone.name} does not have at {name}")
        denial = self._denial(message, zone, work)
        return denial.nxdomain(name) if message.rcode == dns.rcode.NXDOMAIN else denial.nodata(name, message.type)

    async def _signing_zone(
        self, signer: dns.name.Name | None, name: dns.name.Name, above: bool, work: Work
    ) -> Entry | Judgement:
        """The zone that signs for a name; without a signer the zone that should have."""
        place = name.parent() if above and name != dns.name.root else name
        zone = await self._chain.zone(signer if signer is not None else place, work)
        if isinstance(zone, Entry) and signer is not None and zone.name != signer:
            return bogus(f"{signer}, which is said to sign {name}, is no zone")
        return zone

    def _denial(self, message: Message, zone: Entry, work: Work) -> Denial:
        return Denial(zone, denial_sets(message.authority), self._clock(), work.effort, self._rules)


def _result(message: Message, path: Path, judged: list[tuple[Judgement, int]]) -> Found:
    absent: Outcome = "nxdomain" if message.rcode == dns.rcode.NXDOMAIN else "nodata"
    return Found(
        outcome=absent if path.rrset is None else "found",
        judgement=weakest(*(judgement for judgement, _ in judged)),
        ttl=min(ttl for _, ttl in judged),
        owner=path.owner,
        rrset=path.rrset,
    )


def _vouched(message: Message) -> Judgement:
    return SECURE if message.is_authenticated else insecure("the resolver does not vouch for it")


def _failed(name: dns.name.Name, judgement: Judgement) -> Found:
    return Found(outcome="failed", judgement=judgement, ttl=limits.DNS_TTL_LEAST, owner=name)


def _code(message: Message) -> str:
    return dns.rcode.to_text(dns.rcode.Rcode.make(message.rcode))
