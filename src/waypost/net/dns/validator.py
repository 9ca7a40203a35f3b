"""Validating DNS resolver (RFC 4035): each lookup returns the records and how far DNSSEC proves them.

`TrustChain` walks from a trust anchor down to a zone. At each name it queries the DS records, which the parent signs, and the
keys that they identify; queries that are likely to be needed are sent ahead. `ValidatingResolver` validates the answer itself,
or trusts the AD bit of a resolver if the settings say so. The cryptography is in `trust/dnssec`.
"""

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
from dns.rdtypes.ANY.DS import DS
from dns.rdtypes.ANY.RRSIG import RRSIG

from waypost import limits
from waypost.domains.ports import DnsLookup, LookupOutcome, RecordType
from waypost.errors import ConfigurationError
from waypost.net.dns.message import (
    AliasChain,
    DnsFailure,
    DnsMessage,
    dns_failure,
    find_rrset,
    follow_aliases,
    too_many_aliases,
)
from waypost.net.dns.query_cache import QueryBudget, QueryCache, QuerySender, TtlCache, clamp_ttl, negative_ttl
from waypost.trust.dnssec.anchors import TrustAnchors, parse_anchors, parse_domains
from waypost.trust.dnssec.denial import DENIAL_TYPES, DenialProofs
from waypost.trust.dnssec.validation import (
    DEFAULT_POLICY,
    SECURE,
    SecurityStatus,
    SignedRRset,
    ValidatedZone,
    ValidationBudget,
    ValidationPolicy,
    VerifiedRRset,
    bogus,
    insecure,
    validate_zone_keys,
    verify_rrset,
    weakest_status,
)

ChainStep = ValidatedZone | SecurityStatus | None  # the zone below a cut, why it has no proven keys, or no cut

_ANSWERED: Final = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)

_DS: Final = dns.rdatatype.DS

_DNSKEY: Final = dns.rdatatype.DNSKEY

_UNDERSCORE: Final = b"_"

_TRIES: Final = 2  # a bogus answer that rests on cached data is looked up again, once


def load_trust_anchors(path: Path | None, unsigned: Iterable[str] = ()) -> TrustAnchors:
    """The anchors in a file, with the root's own if it names none, and without the domains that are not signed."""
    records = [] if path is None else parse_anchors(_read_anchor_file(path))
    return TrustAnchors(records, unsigned=parse_domains(unsigned, "insecure_domains"))


def _read_anchor_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(limits.DNSSEC_ANCHORS_BYTES + 1)
        if len(data) <= limits.DNSSEC_ANCHORS_BYTES:
            return data.decode("utf-8")
        problem = "the file is too large"
    except OSError as error:
        problem = error.strerror or "the file cannot be opened"
    except UnicodeDecodeError:
        problem = "the file is not UTF-8 text"
    raise ConfigurationError(
        f"Cannot read the trust anchors in {path}: {problem}.",
        path="trust_anchors",
        hint="Name a file with DS or DNSKEY records.",
    )


class LookupState:
    """The costs of one lookup and the names that it visited."""

    def __init__(self, budget: QueryBudget) -> None:
        self.budget = budget
        self.validation = ValidationBudget()
        self.visited: set[dns.name.Name] = set()


class TrustChain:
    """The chain of trust from an anchor to a zone. Steps are cached."""

    def __init__(
        self, queries: QueryCache, anchors: TrustAnchors, clock: Callable[[], float], policy: ValidationPolicy
    ) -> None:
        self._queries = queries
        self._anchors = anchors
        self._clock = clock
        self._policy = policy
        self._steps: TtlCache[dns.name.Name, ChainStep] = TtlCache(clock)
        self._reached: set[dns.name.Name] = set()  # anchors that were found once must be found from then on

    async def zone(self, name: dns.name.Name, state: LookupState) -> ValidatedZone | SecurityStatus:
        """The closest zone at or above a name with its proven keys, or why there is no proof."""
        anchor = self._anchors.above(name)
        if anchor is None:
            return insecure(f"there is no trust anchor above {name}, or the settings name it as unsigned")
        if len(name) - len(anchor) > limits.DNS_LABELS:
            raise dns_failure("The name has too many labels.", "too_many")
        current = await self._anchor_zone(anchor, state)
        for depth in range(len(anchor) + 1, len(name) + 1):
            if isinstance(current, SecurityStatus):
                return current
            step = await self._step(current, name.split(depth)[1], state)
            current = current if step is None else step
        return current

    def prefetch(self, name: dns.name.Name, state: LookupState) -> None:
        """Send the queries that the walk is likely to need. Names with an underscore are rarely zones (RFC 8552)."""
        anchor = self._anchors.above(name)
        if anchor is None:
            return
        zones = [name.split(depth)[1] for depth in range(len(anchor), len(name) + 1)]
        likely = [zone for zone in zones if not any(label.startswith(_UNDERSCORE) for label in zone.labels)]
        for zone in likely[: limits.DNS_PREFETCH_ZONES]:
            cached = self._steps.find(zone)
            if not state.budget.has_room or (cached is not None and isinstance(cached[0], SecurityStatus)):
                return  # the walk ends here
            if cached is not None:
                continue
            if zone != anchor:
                self._queries.prefetch(zone, _DS, state.budget)
            self._queries.prefetch(zone, _DNSKEY, state.budget)

    def evict(self, state: LookupState) -> None:
        """Drop everything that a bogus answer was validated with from the caches (RFC 4035 §4.7)."""
        for name in state.visited:
            self._steps.remove(name)
            self._queries.remove(((name, _DS), (name, _DNSKEY)))
        self._queries.remove(state.budget.keys)

    def denial(self, message: DnsMessage, zone: ValidatedZone, state: LookupState) -> DenialProofs:
        return DenialProofs(zone, _denial_rrsets(message.authority), self._clock(), state.validation, self._policy)

    async def _anchor_zone(self, anchor: dns.name.Name, state: LookupState) -> ValidatedZone | SecurityStatus:
        state.visited.add(anchor)
        cached = self._steps.find(anchor)
        if cached is not None and cached[0] is not None:
            state.budget.used_cache = True
            return cached[0]
        zone = await self._load_anchor_zone(anchor, state)
        self._steps.put(anchor, zone, zone.ttl if isinstance(zone, ValidatedZone) else 0)
        if isinstance(zone, ValidatedZone):
            self._reached.add(anchor)
        return zone

    async def _load_anchor_zone(self, anchor: dns.name.Name, state: LookupState) -> ValidatedZone | SecurityStatus:
        """The built-in root anchor may be unreachable, e.g. through a server of one private zone: then the answer is
        indeterminate (RFC 4035 §4.3). An anchor that was configured, or reached before, is required: withholding answers must
        not disable validation (D3)."""
        required = self._anchors.is_required(anchor) or anchor in self._reached
        try:
            zone = await self._zone_keys(anchor, self._anchors.records(anchor), state)
        except DnsFailure:
            if required:
                raise
            return _unreachable_anchor(anchor)
        if zone is None:
            return bogus(f"{anchor} has no signed keys") if required else _unreachable_anchor(anchor)
        return zone

    async def _step(self, zone: ValidatedZone, name: dns.name.Name, state: LookupState) -> ChainStep:
        state.visited.add(name)
        cached = self._steps.find(name)
        if cached is not None:
            state.budget.used_cache = True
            return cached[0]
        message = await self._query(name, _DS, state)
        step, ttl = await self._validate_step(zone, name, message, state)
        self._steps.put(name, step, ttl)
        return step

    async def _validate_step(
        self, zone: ValidatedZone, name: dns.name.Name, message: DnsMessage, state: LookupState
    ) -> tuple[ChainStep, int]:
        records = find_rrset(message.answer, name, _DS)
        if records is None:
            step = self._validate_missing_ds(zone, name, message, state)
            is_bogus = isinstance(step, SecurityStatus) and step.security == "bogus"
            return step, 0 if is_bogus else negative_ttl(message.authority)
        proven = self.verify(_signed_rrset(message.answer, records), zone, state)
        if isinstance(proven, SecurityStatus):
            return proven, 0
        if proven.encloser is not None:
            return bogus(f"the DS records of {name} come from a wildcard"), 0
        child = await self._zone_keys(name, tuple(rdata for rdata in records if isinstance(rdata, DS)), state)
        if child is None:
            return bogus(f"{name} has no signed keys, though its parent has DS records for it"), 0
        return child, min(proven.ttl, child.ttl) if isinstance(child, ValidatedZone) else 0

    def _validate_missing_ds(
        self, zone: ValidatedZone, name: dns.name.Name, message: DnsMessage, state: LookupState
    ) -> ChainStep:
        """No DS records: an alias, no zone cut, or a delegation to an unsigned zone."""
        for alias in message.answer:
            if alias.rdtype in (dns.rdatatype.CNAME, dns.rdatatype.DNAME) and name.is_subdomain(alias.name):
                return self._validate_alias(zone, name, message, alias, state)
        denial = self.denial(message, zone, state)
        status = denial.nxdomain(name) if message.rcode == dns.rcode.NXDOMAIN else denial.nodata(name, _DS)
        if status.is_secure and denial.is_delegation(name):
            return insecure(f"{name} is not signed: {zone.name} has no DS records for it")
        return None if status.is_secure else status

    def _validate_alias(
        self, zone: ValidatedZone, name: dns.name.Name, message: DnsMessage, alias: dns.rrset.RRset, state: LookupState
    ) -> SecurityStatus | None:
        """An alias is no zone cut (RFC 2181 §10.1). One from a wildcard needs a proof that the wildcard applies."""
        proven = self.verify(_signed_rrset(message.answer, alias), zone, state)
        if isinstance(proven, SecurityStatus) or proven.encloser is None:
            return proven if isinstance(proven, SecurityStatus) else None
        status = self.denial(message, zone, state).expansion(name, proven.encloser)
        return None if status.is_secure else status

    def verify(self, signed: SignedRRset, zone: ValidatedZone, state: LookupState) -> VerifiedRRset | SecurityStatus:
        return verify_rrset(signed, zone, self._clock(), state.validation, self._policy)

    async def _zone_keys(
        self, name: dns.name.Name, records: tuple[DS, ...], state: LookupState
    ) -> ValidatedZone | SecurityStatus | None:
        """None if the zone has no keys with a signature."""
        message = await self._query(name, _DNSKEY, state)
        keys = find_rrset(message.answer, name, _DNSKEY)
        signed = None if keys is None else _signed_rrset(message.answer, keys)
        if signed is None or not signed.signatures:
            return None
        return validate_zone_keys(name, records, signed, self._clock(), state.validation, self._policy)

    async def _query(self, name: dns.name.Name, kind: RdataType, state: LookupState) -> DnsMessage:
        message = await self._queries.query(name, kind, state.budget)
        if message.rcode not in _ANSWERED:
            kind_text = dns.rdatatype.to_text(kind)
            raise dns_failure(f"The resolver answered {_rcode_text(message)} for {kind_text} of {name}.", "status")
        return message


class CachedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The cached result of a lookup."""

    outcome: LookupOutcome
    status: SecurityStatus
    ttl: int
    owner: dns.name.Name
    rrset: dns.rrset.RRset | None = None
    server: str = ""


class ValidatingResolver:
    """`DnsResolver` of domains/ports.py. With `trust_ad` the resolver validates; its path must be trusted (D4)."""

    def __init__(
        self,
        sender: QuerySender,
        anchors: TrustAnchors,
        *,
        clock: Callable[[], float],
        trust_ad: bool = False,
        policy: ValidationPolicy = DEFAULT_POLICY,
        seconds: float = limits.DNS_SECONDS,
    ) -> None:
        self._sender = sender
        self._seconds = seconds
        self._trust_ad = trust_ad
        self._queries = QueryCache(sender, clock, checking_disabled=not trust_ad)
        self._chain = TrustChain(self._queries, anchors, clock, policy)
        self._slots = asyncio.Semaphore(limits.DNS_CONCURRENT_LOOKUPS)
        self._answers: TtlCache[tuple[dns.name.Name, RdataType], CachedAnswer] = TtlCache(clock)

    async def lookup(self, name: str, kind: RecordType) -> DnsLookup:
        started_at = time.perf_counter()
        budget = QueryBudget()
        queried_name = name.rstrip(".").lower()
        try:
            owner, type_ = dns.name.from_text(queried_name or "."), dns.rdatatype.from_text(kind)
            cached = self._answers.find((owner, type_))
            answer, ttl = cached if cached is not None else (await self._resolve(owner, type_, budget), None)
        except dns.exception.DNSException:
            answer, ttl = _failed_answer(dns.name.root, SecurityStatus("indeterminate", "it is not a valid name")), None
        return DnsLookup(
            name=queried_name,
            type=kind,
            outcome=answer.outcome,
            security=answer.status.security,
            reason=answer.status.reason,
            records=tuple(rdata.to_wire() or b"" for rdata in answer.rrset or ()),
            owner=answer.owner.to_text(omit_final_dot=True).lower() if answer.rrset is not None else queried_name,
            ttl=clamp_ttl(answer.ttl) if ttl is None else ttl,
            server=budget.server or answer.server,
            queries=budget.queries,
            round_trips=budget.round_trips,
            took_ms=(time.perf_counter() - started_at) * 1000,
            validated=not self._trust_ad,
        )

    async def aclose(self) -> None:
        await self._queries.aclose()
        await self._sender.aclose()

    async def _resolve(self, name: dns.name.Name, kind: RdataType, budget: QueryBudget) -> CachedAnswer:
        """Resolve within the time limit of a lookup, and cache the answer."""
        try:
            async with self._slots, asyncio.timeout(self._seconds):
                answer = await self._resolve_fresh(name, kind, budget)
        except TimeoutError:
            answer = _failed_answer(name, SecurityStatus("indeterminate", "the DNSSEC validation took too long"))
        except DnsFailure as error:
            answer = _failed_answer(name, SecurityStatus("indeterminate", error.message))
        answer = msgspec.structs.replace(answer, server=budget.server)
        self._answers.put((name, kind), answer, answer.ttl)
        return answer

    async def _resolve_fresh(self, name: dns.name.Name, kind: RdataType, budget: QueryBudget) -> CachedAnswer:
        for _ in range(_TRIES):
            state = LookupState(budget)
            answer = await self._follow_aliases(name, kind, state)
            if answer.status.security != "bogus":
                return answer
            self._chain.evict(state)
            if not budget.used_cache:
                break
            budget.restart()
        return _failed_answer(name, answer.status)

    async def _follow_aliases(self, name: dns.name.Name, kind: RdataType, state: LookupState) -> CachedAnswer:
        """An answer is as secure as the weakest alias that led to it. What a message says about other names is used as far as
        it is proven there; the rest is queried separately."""
        statuses: list[tuple[SecurityStatus, int]] = []
        for _ in range(limits.DNS_ALIASES + 1):
            message = await self._query(name, kind, state)
            path = follow_aliases(message, name)
            unproven = await self._validate_links(message, path, statuses, state)
            if unproven is None and (path.rrset is not None or not path.links):
                end = await self._validate_end(message, path, state)
                if end[0].security != "bogus" or not path.links:
                    return _make_answer(message, path, [*statuses, end])
            name = path.owner if unproven is None else unproven
            if len(statuses) > limits.DNS_ALIASES:
                break
        raise too_many_aliases()

    async def _validate_links(
        self, message: DnsMessage, path: AliasChain, statuses: list[tuple[SecurityStatus, int]], state: LookupState
    ) -> dns.name.Name | None:
        """The name to query separately, if the message does not prove its link."""
        for index, (name, link) in enumerate(path.links):
            status, ttl = await self._validate_rrset(message, link, state)
            if status.security == "bogus" and index:
                return name
            statuses.append((status, ttl))
        return None

    async def _query(self, name: dns.name.Name, kind: RdataType, state: LookupState) -> DnsMessage:
        if not self._trust_ad:
            self._chain.prefetch(name, state)
        message = await self._queries.query(name, kind, state.budget)
        if message.rcode not in _ANSWERED:
            name_text = name.to_text(omit_final_dot=True)
            raise dns_failure(
                f"The resolver answered {_rcode_text(message)} for {name_text}.", "status", "Try again later."
            )
        return message

    async def _validate_end(
        self, message: DnsMessage, path: AliasChain, state: LookupState
    ) -> tuple[SecurityStatus, int]:
        if path.rrset is not None:
            return await self._validate_rrset(message, path.rrset, state)
        return await self._validate_absence(message, path.owner, state), negative_ttl(message.authority)

    async def _validate_rrset(
        self, message: DnsMessage, rrset: dns.rrset.RRset, state: LookupState
    ) -> tuple[SecurityStatus, int]:
        if self._trust_ad:
            return _ad_status(message), rrset.ttl
        signed = _signed_rrset(message.answer, rrset)
        in_parent = rrset.rdtype == _DS
        signer = _find_signer([signed], rrset.name, in_parent=in_parent)
        zone = await self._signing_zone(signer, rrset.name, in_parent, state)
        if isinstance(zone, SecurityStatus):
            return zone, rrset.ttl
        if signer is None:
            return bogus(f"{rrset.name} is not signed, though {zone.name} is"), 0
        proven = self._chain.verify(signed, zone, state)
        if isinstance(proven, SecurityStatus):
            return proven, 0
        if proven.encloser is None:
            return SECURE, proven.ttl
        return self._chain.denial(message, zone, state).expansion(rrset.name, proven.encloser), proven.ttl

    async def _validate_absence(self, message: DnsMessage, name: dns.name.Name, state: LookupState) -> SecurityStatus:
        if self._trust_ad:
            return _ad_status(message)
        in_parent = message.type == _DS
        signer = _find_signer(_denial_rrsets(message.authority), name, in_parent=in_parent)
        zone = await self._signing_zone(signer, name, in_parent, state)
        if isinstance(zone, SecurityStatus):
            return zone
        if signer is None:
            return bogus(f"{zone.name} does not prove that {name} has no such records")
        denial = self._chain.denial(message, zone, state)
        return denial.nxdomain(name) if message.rcode == dns.rcode.NXDOMAIN else denial.nodata(name, message.type)

    async def _signing_zone(
        self, signer: dns.name.Name | None, name: dns.name.Name, in_parent: bool, state: LookupState
    ) -> ValidatedZone | SecurityStatus:
        """The zone that signs for a name; without a signer, the zone that should have signed."""
        enclosing = name.parent() if in_parent and name != dns.name.root else name
        zone = await self._chain.zone(signer if signer is not None else enclosing, state)
        if isinstance(zone, ValidatedZone) and signer is not None and zone.name != signer:
            return bogus(f"{signer}, the signer of {name}, is not a zone")
        return zone


def _signed_rrset(section: tuple[dns.rrset.RRset, ...], rrset: dns.rrset.RRset) -> SignedRRset:
    found = find_rrset(section, rrset.name, dns.rdatatype.RRSIG, rrset.rdtype)
    return SignedRRset(rrset=rrset, signatures=tuple(rdata for rdata in found or () if isinstance(rdata, RRSIG)))


def _denial_rrsets(section: tuple[dns.rrset.RRset, ...]) -> list[SignedRRset]:
    return [_signed_rrset(section, rrset) for rrset in section if rrset.rdtype in DENIAL_TYPES]


def _find_signer(sets: Iterable[SignedRRset], name: dns.name.Name, *, in_parent: bool) -> dns.name.Name | None:
    """The lowest zone that claims to sign for a name. `in_parent` is for records that only the parent zone has."""
    signers = {signature.signer for signed in sets for signature in signed.signatures}
    possible = [
        signer
        for signer in signers
        if name.is_subdomain(signer) and not (in_parent and signer == name and name != dns.name.root)
    ]
    return max(possible, key=len, default=None)


def _make_answer(message: DnsMessage, path: AliasChain, statuses: list[tuple[SecurityStatus, int]]) -> CachedAnswer:
    absent: LookupOutcome = "nxdomain" if message.rcode == dns.rcode.NXDOMAIN else "nodata"
    return CachedAnswer(
        outcome=absent if path.rrset is None else "found",
        status=weakest_status(*(status for status, _ in statuses)),
        ttl=min(ttl for _, ttl in statuses),
        owner=path.owner,
        rrset=path.rrset,
    )


def _ad_status(message: DnsMessage) -> SecurityStatus:
    return SECURE if message.is_authenticated else insecure("the resolver did not set the AD bit")


def _failed_answer(name: dns.name.Name, status: SecurityStatus) -> CachedAnswer:
    return CachedAnswer(outcome="failed", status=status, ttl=limits.DNS_TTL_MIN_SECONDS, owner=name)


def _unreachable_anchor(anchor: dns.name.Name) -> SecurityStatus:
    zone = "the root zone" if anchor == dns.name.root else str(anchor)
    return SecurityStatus("indeterminate", f"the resolver returns no signed keys of {zone}, the trust anchor")


def _rcode_text(message: DnsMessage) -> str:
    return dns.rcode.to_text(dns.rcode.Rcode.make(message.rcode))
