"""Sets of records in a section of a message, each with the signatures that claim to cover it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.DS import DS
from dns.rdtypes.ANY.RRSIG import RRSIG

from waypost import limits
from waypost.net.dns.message import DnsFailure, DnsMessage, dns_failure, find_rrset
from waypost.net.dns.query_cache import QueryBudget, QueryCache, TtlCache, negative_ttl
from waypost.trust.dnssec.anchors import TrustAnchors
from waypost.trust.dnssec.denial import DENIAL_TYPES, DenialProofs
from waypost.trust.dnssec.validation import (
    SecurityStatus,
    SignedRRset,
    ValidatedZone,
    ValidationBudget,
    ValidationPolicy,
    bogus,
    insecure,
    validate_zone_keys,
    verify_rrset,
)

Section = tuple[dns.rrset.RRset, ...]


def signed_rrset(section: Section, rrset: dns.rrset.RRset) -> SignedRRset:
    found = find_rrset(section, rrset.name, dns.rdatatype.RRSIG, rrset.rdtype)
    return SignedRRset(rrset=rrset, signatures=tuple(row for row in found or () if isinstance(row, RRSIG)))


def denial_rrsets(section: Section) -> list[SignedRRset]:
    return [signed_rrset(section, rrset) for rrset in section if rrset.rdtype in DENIAL_TYPES]


def find_signer(sets: Iterable[SignedRRset], name: dns.name.Name, *, above: bool = False) -> dns.name.Name | None:
    """The zone that claims to sign for a name: the lowest, where several do. `above` is for what only a parent can say."""
    signers = {signature.signer for signed in sets for signature in signed.signatures}
    possible = [
        signer
        for signer in signers
        if name.is_subdomain(signer) and not (above and signer == name and name != dns.name.root)
    ]
    return max(possible, key=len, default=None)


# ---- The walk from a trust anchor down to a zone: at each name below, is there a cut, and who signs beyond it?
#
# Each step asks for the DS records of a name, which its parent signs, and for the keys that they stand for; what is likely to be
# needed is asked for ahead, all at once. Cryptography is `trust/dnssec`.

ChainStep = ValidatedZone | SecurityStatus | None  # the keys beyond a cut, why there are none, or no cut

_ANSWERED: Final = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)

_DS: Final = dns.rdatatype.DS

_DNSKEY: Final = dns.rdatatype.DNSKEY

_UNDERSCORE: Final = b"_"


class LookupWork:
    """What one look-up has asked and spent."""

    def __init__(self, account: QueryBudget) -> None:
        self.account = account
        self.effort = ValidationBudget()
        self.walked: set[dns.name.Name] = set()


class TrustChain:
    """One for a process and a way of asking: it remembers the steps that it took."""

    def __init__(
        self, exchange: QueryCache, anchors: TrustAnchors, clock: Callable[[], float], rules: ValidationPolicy
    ) -> None:
        self._exchange = exchange
        self._anchors = anchors
        self._clock = clock
        self._rules = rules
        self._steps: TtlCache[dns.name.Name, ChainStep] = TtlCache(clock)
        self._reached: set[dns.name.Name] = set()  # anchors that were found once: they must be found from then on

    async def zone(self, name: dns.name.Name, work: LookupWork) -> ValidatedZone | SecurityStatus:
        """The closest zone at or above a name with its proven keys; or why there is no proof."""
        anchor = self._anchors.above(name)
        if anchor is None:
            return insecure(f"no trust anchor lies above {name}, or it is named as not signed")
        if len(name) - len(anchor) > limits.DNS_LABELS:
            raise dns_failure("The name has more labels than are followed.", "too_many")
        current = await self._begin(anchor, work)
        for depth in range(len(anchor) + 1, len(name) + 1):
            if isinstance(current, SecurityStatus):
                return current
            step = await self._step(current, name.split(depth)[1], work)
            current = current if step is None else step
        return current

    def prefetch(self, name: dns.name.Name, work: LookupWork) -> None:
        """Ask for what the walk to a name is likely to need. Names with an underscore are hardly ever zones (RFC 8552)."""
        anchor = self._anchors.above(name)
        if anchor is None:
            return
        zones = [name.split(depth)[1] for depth in range(len(anchor), len(name) + 1)]
        likely = [zone for zone in zones if not any(label.startswith(_UNDERSCORE) for label in zone.labels)]
        for zone in likely[: limits.DNS_AHEAD]:
            kept = self._steps.find(zone)
            if not work.account.has_room or (kept is not None and isinstance(kept[0], SecurityStatus)):
                return  # the walk ends here
            if kept is not None:
                continue
            if zone != anchor:
                self._exchange.begin(zone, _DS, work.account)
            self._exchange.begin(zone, _DNSKEY, work.account)

    def forget(self, work: LookupWork) -> None:
        """What is bogus is not held on to, nor what it was judged by (RFC 4035 §4.7)."""
        for name in work.walked:
            self._steps.forget(name)
            self._exchange.forget(((name, _DS), (name, _DNSKEY)))
        self._exchange.forget(work.account.asked)

    async def _begin(self, anchor: dns.name.Name, work: LookupWork) -> ValidatedZone | SecurityStatus:
        work.walked.add(anchor)
        kept = self._steps.find(anchor)
        if kept is not None and kept[0] is not None:
            work.account.remembered = True
            return kept[0]
        found = await self._reach(anchor, work)
        self._steps.keep(anchor, found, found.ttl if isinstance(found, ValidatedZone) else 0)
        if isinstance(found, ValidatedZone):
            self._reached.add(anchor)
        return found

    async def _reach(self, anchor: dns.name.Name, work: LookupWork) -> ValidatedZone | SecurityStatus:
        """The built-in root may be out of reach: a server of one zone knows nothing of it, and nothing follows from that
        (RFC 4035 §4.3, indeterminate). An anchor that was named, or reached before, must be there: it is not given up because
        somebody keeps answers back (D3)."""
        must = self._anchors.is_required(anchor) or anchor in self._reached
        try:
            found = await self._keys(anchor, self._anchors.records(anchor), work)
        except DnsFailure:
            if must:
                raise
            return _unreachable_anchor(anchor)
        if found is None:
            return bogus(f"{anchor} shows no signed keys") if must else _unreachable_anchor(anchor)
        return found

    async def _step(self, zone: ValidatedZone, name: dns.name.Name, work: LookupWork) -> ChainStep:
        work.walked.add(name)
        kept = self._steps.find(name)
        if kept is not None:
            work.account.remembered = True
            return kept[0]
        message = await self._ask(name, _DS, work)
        step, ttl = await self._judge_step(zone, name, message, work)
        self._steps.keep(name, step, ttl)
        return step

    async def _judge_step(
        self, zone: ValidatedZone, name: dns.name.Name, message: DnsMessage, work: LookupWork
    ) -> tuple[ChainStep, int]:
        records = find_rrset(message.answer, name, _DS)
        if records is None:
            absent = self._judge_absence(zone, name, message, work)
            is_bogus = isinstance(absent, SecurityStatus) and absent.security == "bogus"
            return absent, 0 if is_bogus else negative_ttl(message.authority)
        proven = verify_rrset(signed_rrset(message.answer, records), zone, self._clock(), work.effort, self._rules)
        if isinstance(proven, SecurityStatus):
            return proven, 0
        if proven.encloser is not None:
            return bogus(f"the DS records of {name} come from a wildcard"), 0
        entry = await self._keys(name, tuple(row for row in records if isinstance(row, DS)), work)
        if entry is None:
            return bogus(f"{name} shows no signed keys, though its parent has DS records for it"), 0
        return entry, min(proven.ttl, entry.ttl) if isinstance(entry, ValidatedZone) else 0

    def _judge_absence(
        self, zone: ValidatedZone, name: dns.name.Name, message: DnsMessage, work: LookupWork
    ) -> ChainStep:
        """No DS records: an alias, no cut, or a delegation to a zone that nobody vouches for."""
        now = self._clock()
        for alias in message.answer:
            if alias.rdtype in (dns.rdatatype.CNAME, dns.rdatatype.DNAME) and name.is_subdomain(alias.name):
                return self._judge_alias(zone, name, message, alias, work)
        denial = DenialProofs(zone, denial_rrsets(message.authority), now, work.effort, self._rules)
        denied = denial.nxdomain(name) if message.rcode == dns.rcode.NXDOMAIN else denial.nodata(name, _DS)
        if denied.is_secure and denial.is_delegation(name):
            return insecure(f"{name} is not signed: {zone.name} has no DS records for it")
        return None if denied.is_secure else denied

    def _judge_alias(
        self, zone: ValidatedZone, name: dns.name.Name, message: DnsMessage, alias: dns.rrset.RRset, work: LookupWork
    ) -> SecurityStatus | None:
        """Where an alias is, there is no cut (RFC 2181 §10.1); one from a wildcard must be shown to stand for the name."""
        now = self._clock()
        proven = verify_rrset(signed_rrset(message.answer, alias), zone, now, work.effort, self._rules)
        if isinstance(proven, SecurityStatus) or proven.encloser is None:
            return proven if isinstance(proven, SecurityStatus) else None
        denial = DenialProofs(zone, denial_rrsets(message.authority), now, work.effort, self._rules)
        expanded = denial.expansion(name, proven.encloser)
        return None if expanded.is_secure else expanded

    async def _keys(
        self, name: dns.name.Name, records: tuple[DS, ...], work: LookupWork
    ) -> ValidatedZone | SecurityStatus | None:
        """None where no keys with a signature are shown at all."""
        message = await self._ask(name, _DNSKEY, work)
        keys = find_rrset(message.answer, name, _DNSKEY)
        signed = None if keys is None else signed_rrset(message.answer, keys)
        if signed is None or not signed.signatures:
            return None
        return validate_zone_keys(name, records, signed, self._clock(), work.effort, self._rules)

    async def _ask(self, name: dns.name.Name, kind: RdataType, work: LookupWork) -> DnsMessage:
        message = await self._exchange.ask(name, kind, work.account)
        if message.rcode not in _ANSWERED:
            told = dns.rcode.to_text(dns.rcode.Rcode.make(message.rcode))
            raise dns_failure(f"The resolver answers {told} for {dns.rdatatype.to_text(kind)} of {name}.", "status")
        return message


def _unreachable_anchor(anchor: dns.name.Name) -> SecurityStatus:
    told = "the root" if anchor == dns.name.root else str(anchor)
    return SecurityStatus(
        "indeterminate", f"the resolver shows no signed keys of {told}, where the chain of trust begins"
    )
