"""The walk from a trust anchor down to a zone: at each name below, is there a cut, and who signs beyond it?

Each step asks for the DS records of a name, which its parent signs, and for the keys that they stand for; what is likely to be
needed is asked for ahead, all at once. Cryptography is `trust/dnssec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.DS import DS

from waypost import limits
from waypost.net.dns.aliases import find_set
from waypost.net.dns.exchange import Account, Exchange, negative_ttl
from waypost.net.dns.memory import Memory
from waypost.net.dns.packet import DnsFailure, Message, failure
from waypost.net.dns.sections import denial_sets, signed_set
from waypost.trust.dnssec.anchors import TrustAnchors
from waypost.trust.dnssec.delegation import Entry, enter
from waypost.trust.dnssec.denial import Denial
from waypost.trust.dnssec.judgement import Judgement, bogus, insecure
from waypost.trust.dnssec.rules import Effort, Rules
from waypost.trust.dnssec.signatures import verify

Step = Entry | Judgement | None  # the keys beyond a cut, why there are none, or no cut
_ANSWERED: Final = (dns.rcode.NOERROR, dns.rcode.NXDOMAIN)
_DS: Final = dns.rdatatype.DS
_DNSKEY: Final = dns.rdatatype.DNSKEY
_UNDERSCORE: Final = b"_"


class Work:
    """What one look-up has asked and spent."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.effort = Effort()
        self.walked: set[dns.name.Name] = set()


class Chain:
    """One for a process and a way of asking: it remembers the steps that it took."""

    def __init__(self, exchange: Exchange, anchors: TrustAnchors, clock: Callable[[], float], rules: Rules) -> None:
        self._exchange = exchange
        self._anchors = anchors
        self._clock = clock
        self._rules = rules
        self._steps: Memory[dns.name.Name, Step] = Memory(clock)
        self._reached: set[dns.name.Name] = set()  # anchors that were found once: they must be found from then on

    async def zone(self, name: dns.name.Name, work: Work) -> Entry | Judgement:
        """The closest zone at or above a name with its proven keys; or why there is no proof."""
        anchor = self._anchors.above(name)
        if anchor is None:
            return insecure(f"no trust anchor lies above {name}, or it is named as not signed")
        if len(name) - len(anchor) > limits.DNS_LABELS:
            raise failure("The name has more labels than are followed.", "too_many")
        current = await self._begin(anchor, work)
        for depth in range(len(anchor) + 1, len(name) + 1):
            if isinstance(current, Judgement):
                return current
            step = await self._step(current, name.split(depth)[1], work)
            current = current if step is None else step
        return current

    def ask_ahead(self, name: dns.name.Name, work: Work) -> None:
        """Ask for what the walk to a name is likely to need. Names with an underscore are hardly ever zones (RFC 8552)."""
        anchor = self._anchors.above(name)
        if anchor is None:
            return
        zones = [name.split(depth)[1] for depth in range(len(anchor), len(name) + 1)]
        likely = [zone for zone in zones if not any(label.startswith(_UNDERSCORE) for label in zone.labels)]
        for zone in likely[: limits.DNS_AHEAD]:
            kept = self._steps.find(zone)
            if not work.account.has_room or (kept is not None and isinstance(kept[0], Judgement)):
                return  # the walk ends here
            if kept is not None:
                continue
            if zone != anchor:
                self._exchange.begin(zone, _DS, work.account)
            self._exchange.begin(zone, _DNSKEY, work.account)

    def forget(self, work: Work) -> None:
        """What is bogus is not held on to, nor what it was judged by (RFC 4035 §4.7)."""
        for name in work.walked:
            self._steps.forget(name)
            self._exchange.forget(((name, _DS), (name, _DNSKEY)))
        self._exchange.forget(work.account.asked)

    async def _begin(self, anchor: dns.name.Name, work: Work) -> Entry | Judgement:
        work.walked.add(anchor)
        kept = self._steps.find(anchor)
        if kept is not None and kept[0] is not None:
            work.account.remembered = True
            return kept[0]
        found = await self._reach(anchor, work)
        self._steps.keep(anchor, found, found.ttl if isinstance(found, Entry) else 0)
        if isinstance(found, Entry):
            self._reached.add(anchor)
        return found

    async def _reach(self, anchor: dns.name.Name, work: Work) -> Entry | Judgement:
        """The built-in root may be out of reach: a server of one zone knows nothing of it, and nothing follows from that
        (RFC 4035 §4.3, indeterminate). An anchor that was named, or reached before, must be there: it is not given up because
        somebody keeps answers back (D3)."""
        must = self._anchors.is_required(anchor) or anchor in self._reached
        try:
            found = await self._keys(anchor, self._anchors.records(anchor), work)
        except DnsFailure:
            if must:
                raise
            return _out_of_reach(anchor)
        if found is None:
            return bogus(f"{anchor} shows no signed keys") if must else _out_of_reach(anchor)
        return found

    async def _step(self, zone: Entry, name: dns.name.Name, work: Work) -> Step:
        work.walked.add(name)
        kept = self._steps.find(name)
        if kept is not None:
            work.account.remembered = True
            return kept[0]
        message = await self._ask(name, _DS, work)
        step, ttl = await self._judge_step(zone, name, message, work)
        self._steps.keep(name, step, ttl)
        return step

    async def _judge_step(self, zone: Entry, name: dns.name.Name, message: Message, work: Work) -> tuple[Step, int]:
        records = find_set(message.answer, name, _DS)
        if records is None:
            absent = self._judge_absence(zone, name, message, work)
            is_bogus = isinstance(absent, Judgement) and absent.security == "bogus"
            return absent, 0 if is_bogus else negative_ttl(message.authority)
        proven = verify(signed_set(message.answer, records), zone, self._clock(), work.effort, self._rules)
        if isinstance(proven, Judgement):
            return proven, 0
        if proven.encloser is not None:
            return bogus(f"the DS records of {name} come from a wildcard"), 0
        entry = await self._keys(name, tuple(row for row in records if isinstance(row, DS)), work)
        if entry is None:
            return bogus(f"{name} shows no signed keys, though its parent has DS records for it"), 0
        return entry, min(proven.ttl, entry.ttl) if isinstance(entry, Entry) else 0

    def _judge_absence(self, zone: Entry, name: dns.name.Name, message: Message, work: Work) -> Step:
        """No DS records: an alias, no cut, or a delegation to a zone that nobody vouches for."""
        now = self._clock()
        for alias in message.answer:
            if alias.rdtype in (dns.rdatatype.CNAME, dns.rdatatype.DNAME) and name.is_subdomain(alias.name):
                return self._judge_alias(zone, name, message, alias, work)
        denial = Denial(zone, denial_sets(message.authority), now, work.effort, self._rules)
        denied = denial.nxdomain(name) if message.rcode == dns.rcode.NXDOMAIN else denial.nodata(name, _DS)
        if denied.is_secure and denial.is_delegation(name):
            return insecure(f"{name} is not signed: {zone.name} has no DS records for it")
        return None if denied.is_secure else denied

    def _judge_alias(
        self, zone: Entry, name: dns.name.Name, message: Message, alias: dns.rrset.RRset, work: Work
    ) -> Judgement | None:
        """Where an alias is, there is no cut (RFC 2181 §10.1); one from a wildcard must be shown to stand for the name."""
        now = self._clock()
        proven = verify(signed_set(message.answer, alias), zone, now, work.effort, self._rules)
        if isinstance(proven, Judgement) or proven.encloser is None:
            return proven if isinstance(proven, Judgement) else None
        denial = Denial(zone, denial_sets(message.authority), now, work.effort, self._rules)
        expanded = denial.expansion(name, proven.encloser)
        return None if expanded.is_secure else expanded

    async def _keys(self, name: dns.name.Name, records: tuple[DS, ...], work: Work) -> Entry | Judgement | None:
        """None where no keys with a signature are shown at all."""
        message = await self._ask(name, _DNSKEY, work)
        keys = find_set(message.answer, name, _DNSKEY)
        signed = None if keys is None else signed_set(message.answer, keys)
        if signed is None or not signed.signatures:
            return None
        return enter(name, records, signed, self._clock(), work.effort, self._rules)

    async def _ask(self, name: dns.name.Name, kind: RdataType, work: Work) -> Message:
        message = await self._exchange.ask(name, kind, work.account)
        if message.rcode not in _ANSWERED:
            told = dns.rcode.to_text(dns.rcode.Rcode.make(message.rcode))
            raise failure(f"The resolver answers {told} for {dns.rdatatype.to_text(kind)} of {name}.", "status")
        return message


def _out_of_reach(anchor: dns.name.Name) -> Judgement:
    told = "the root" if anchor == dns.name.root else str(anchor)
    return Judgement("indeterminate", f"the resolver shows no signed keys of {told}, where the chain of trust begins")
