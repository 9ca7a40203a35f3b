"""The file of trust anchors that the settings name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import dns.exception
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import msgspec
from dns.rdatatype import RdataType

from waypost import limits
from waypost.domains.ports import DnsLookup, LookupOutcome, RecordType
from waypost.errors import ConfigurationError
from waypost.net.dns.chain import LookupWork, TrustChain, denial_rrsets, find_signer, signed_rrset
from waypost.net.dns.message import AliasChain, DnsFailure, DnsMessage, dns_failure, follow_aliases, too_many_aliases
from waypost.net.dns.query_cache import QueryBudget, QueryCache, QuerySender, TtlCache, clamp_ttl, negative_ttl
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors, parse_domains
from waypost.trust.dnssec.denial import DenialProofs
from waypost.trust.dnssec.validation import (
    DEFAULT_POLICY,
    SECURE,
    SecurityStatus,
    ValidatedZone,
    ValidationPolicy,
    bogus,
    insecure,
    verify_rrset,
    weakest_status,
)


def load_trust_anchors(path: Path | None, unsigned: Iterable[str] = ()) -> TrustAnchors:
    """Those of the file, with the root's own where it names none, and without the domains that are not signed."""
    records = [] if path is None else parse_anchors(_read_anchor_file(path))
    return TrustAnchors(records, unsigned=parse_domains(unsigned, "insecure_domains"))


def _read_anchor_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(limits.DNSSEC_ANCHORS_BYTES + 1)
        if len(data) <= limits.DNSSEC_ANCHORS_BYTES:
            return data.decode("utf-8")
        told = "it is too large"
    except OSError as error:
        told = error.strerror or "it cannot be opened"
    except UnicodeDecodeError:
        told = "it is not text"
    raise ConfigurationError(
        f"The trust anchors in {path} cannot be read: {told}.",
        path="trust_anchors",
        hint="Name a file with DS or DNSKEY records.",
    )


# ---- One question to the DNS, answered with how far the answer is proven: by our own validation from a trust anchor on, or, when
# the settings say so, by the word of a resolver at the end of a path that nobody else is on.

_TRIES: Final = 2  # a bogus answer that rests on something remembered is asked for anew, once


class DnsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a look-up."""

    outcome: LookupOutcome
    judgement: SecurityStatus
    ttl: int
    owner: dns.name.Name
    rrset: dns.rrset.RRset | None = None
    server: str = ""


class ValidatingResolver:
    """`Dns` of domains/ports.py. `trust_ad` takes the resolver's word for it (D4: see that its path is trusted)."""

    def __init__(
        self,
        upstreams: QuerySender,
        anchors: TrustAnchors,
        *,
        clock: Callable[[], float],
        trust_ad: bool = False,
        rules: ValidationPolicy = DEFAULT_POLICY,
        seconds: float = limits.DNS_SECONDS,
    ) -> None:
        self._upstreams = upstreams
        self._seconds = seconds
        self._clock = clock
        self._trust_ad = trust_ad
        self._rules = rules
        self._exchange = QueryCache(upstreams, clock, checking=not trust_ad)
        self._chain = TrustChain(self._exchange, anchors, clock, rules)
        self._places = asyncio.Semaphore(limits.DNS_LOOKUPS_AT_ONCE)
        self._found: TtlCache[tuple[dns.name.Name, RdataType], DnsAnswer] = TtlCache(clock)

    async def lookup(self, name: str, kind: RecordType) -> DnsLookup:
        begun = time.perf_counter()
        account = QueryBudget()
        asked = name.rstrip(".").lower()
        try:
            owner, type_ = dns.name.from_text(asked or "."), dns.rdatatype.from_text(kind)
            kept = self._found.find((owner, type_))
            found, left = kept if kept is not None else (await self._find(owner, type_, account), None)
        except dns.exception.DNSException:
            found, left = _failed_answer(dns.name.root, SecurityStatus("indeterminate", "it is no name")), None
        return DnsLookup(
            name=asked,
            type=kind,
            outcome=found.outcome,
            security=found.judgement.security,
            reason=found.judgement.reason,
            records=tuple(rdata.to_wire() or b"" for rdata in found.rrset or ()),
            owner=found.owner.to_text(omit_final_dot=True).lower() if found.rrset is not None else asked,
            ttl=clamp_ttl(found.ttl) if left is None else left,
            server=account.server or found.server,
            queries=account.queries,
            round_trips=account.round_trips,
            took_ms=(time.perf_counter() - begun) * 1000,
            validated=not self._trust_ad,
        )

    async def aclose(self) -> None:
        await self._exchange.aclose()
        await self._upstreams.aclose()

    async def _find(self, name: dns.name.Name, kind: RdataType, account: QueryBudget) -> DnsAnswer:
        """Within the time that one look-up may take; remembered as long as it may be."""
        try:
            async with self._places, asyncio.timeout(self._seconds):
                found = await self._find_fresh(name, kind, account)
        except TimeoutError:
            found = _failed_answer(name, SecurityStatus("indeterminate", "it took too long to prove the answer"))
        except DnsFailure as error:
            found = _failed_answer(name, SecurityStatus("indeterminate", error.message))
        found = msgspec.structs.replace(found, server=account.server)
        self._found.keep((name, kind), found, found.ttl)
        return found

    async def _find_fresh(self, name: dns.name.Name, kind: RdataType, account: QueryBudget) -> DnsAnswer:
        for _ in range(_TRIES):
            work = LookupWork(account)
            found = await self._follow(name, kind, work)
            if found.judgement.security != "bogus":
                return found
            self._chain.forget(work)
            if not account.remembered:
                break
            account.reset()
        return _failed_answer(name, found.judgement)

    async def _follow(self, name: dns.name.Name, kind: RdataType, work: LookupWork) -> DnsAnswer:
        """From alias to alias; an answer is as good as the weakest of the links that led to it. What one message says of
        other names is used as far as it is proven there; for the rest they are asked for themselves."""
        judged: list[tuple[SecurityStatus, int]] = []
        for _ in range(limits.DNS_ALIASES + 1):
            message = await self._ask(name, kind, work)
            path = follow_aliases(message, name)
            ask_next = await self._judge_links(message, path, judged, work)
            if ask_next is None and (path.rrset is not None or not path.links):
                end = await self._judge_end(message, path, work)
                if end[0].security != "bogus" or not path.links:
                    return _make_answer(message, path, [*judged, end])
            name = path.owner if ask_next is None else ask_next
            if len(judged) > limits.DNS_ALIASES:
                break
        raise too_many_aliases()

    async def _judge_links(
        self, message: DnsMessage, path: AliasChain, judged: list[tuple[SecurityStatus, int]], work: LookupWork
    ) -> dns.name.Name | None:
        """The name to be asked for itself, where the message does not prove its link."""
        for number, (place, link) in enumerate(path.links):
            judgement, ttl = await self._judge_set(message, link, work)
            if judgement.security == "bogus" and number:
                return place
            judged.append((judgement, ttl))
        return None

    async def _ask(self, name: dns.name.Name, kind: RdataType, work: LookupWork) -> DnsMessage:
        if not self._trust_ad:
            self._chain.prefetch(name, work)
        message = await self._exchange.ask(name, kind, work.account)
        if message.rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            asked = name.to_text(omit_final_dot=True)
            raise dns_failure(f"The resolver answers {_rcode_text(message)} for {asked}.", "status", "Try again later.")
        return message

    async def _judge_end(self, message: DnsMessage, path: AliasChain, work: LookupWork) -> tuple[SecurityStatus, int]:
        if path.rrset is not None:
            return await self._judge_set(message, path.rrset, work)
        return await self._judge_absence(message, path.owner, work), negative_ttl(message.authority)

    async def _judge_set(
        self, message: DnsMessage, rrset: dns.rrset.RRset, work: LookupWork
    ) -> tuple[SecurityStatus, int]:
        if self._trust_ad:
            return _ad_status(message), rrset.ttl
        signed = signed_rrset(message.answer, rrset)
        above = rrset.rdtype == dns.rdatatype.DS
        signer = find_signer([signed], rrset.name, above=above)
        zone = await self._signing_zone(signer, rrset.name, above, work)
        if isinstance(zone, SecurityStatus):
            return zone, rrset.ttl
        if signer is None:
            return bogus(f"{rrset.name} is not signed, though {zone.name} is"), 0
        proven = verify_rrset(signed, zone, self._clock(), work.effort, self._rules)
        if isinstance(proven, SecurityStatus):
            return proven, 0
        if proven.encloser is None:
            return SECURE, proven.ttl
        return self._denial(message, zone, work).expansion(rrset.name, proven.encloser), proven.ttl

    async def _judge_absence(self, message: DnsMessage, name: dns.name.Name, work: LookupWork) -> SecurityStatus:
        if self._trust_ad:
            return _ad_status(message)
        above = message.type == dns.rdatatype.DS
        signer = find_signer(denial_rrsets(message.authority), name, above=above)
        zone = await self._signing_zone(signer, name, above, work)
        if isinstance(zone, SecurityStatus):
            return zone
        if signer is None:
            return bogus(f"nothing proves what {zone.name} does not have at {name}")
        denial = self._denial(message, zone, work)
        return denial.nxdomain(name) if message.rcode == dns.rcode.NXDOMAIN else denial.nodata(name, message.type)

    async def _signing_zone(
        self, signer: dns.name.Name | None, name: dns.name.Name, above: bool, work: LookupWork
    ) -> ValidatedZone | SecurityStatus:
        """The zone that signs for a name; without a signer the zone that should have."""
        place = name.parent() if above and name != dns.name.root else name
        zone = await self._chain.zone(signer if signer is not None else place, work)
        if isinstance(zone, ValidatedZone) and signer is not None and zone.name != signer:
            return bogus(f"{signer}, which is said to sign {name}, is no zone")
        return zone

    def _denial(self, message: DnsMessage, zone: ValidatedZone, work: LookupWork) -> DenialProofs:
        return DenialProofs(zone, denial_rrsets(message.authority), self._clock(), work.effort, self._rules)


def _make_answer(message: DnsMessage, path: AliasChain, judged: list[tuple[SecurityStatus, int]]) -> DnsAnswer:
    absent: LookupOutcome = "nxdomain" if message.rcode == dns.rcode.NXDOMAIN else "nodata"
    return DnsAnswer(
        outcome=absent if path.rrset is None else "found",
        judgement=weakest_status(*(judgement for judgement, _ in judged)),
        ttl=min(ttl for _, ttl in judged),
        owner=path.owner,
        rrset=path.rrset,
    )


def _ad_status(message: DnsMessage) -> SecurityStatus:
    return SECURE if message.is_authenticated else insecure("the resolver does not vouch for it")


def _failed_answer(name: dns.name.Name, judgement: SecurityStatus) -> DnsAnswer:
    return DnsAnswer(outcome="failed", judgement=judgement, ttl=limits.DNS_TTL_LEAST, owner=name)


def _rcode_text(message: DnsMessage) -> str:
    return dns.rcode.to_text(dns.rcode.Rcode.make(message.rcode))
