"""Proofs of absence in one answer, of either kind, as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dns.name
import dns.rdatatype
import dns.rrset
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.NSEC3 import NSEC3

from waypost.trust.dnssec.judgement import Judgement, bogus
from waypost.trust.dnssec.nsec import NsecProofs
from waypost.trust.dnssec.nsec3 import Nsec3Proofs
from waypost.trust.dnssec.rules import Effort, Rules
from waypost.trust.dnssec.signatures import Proven, Signed, Zone, verify

DENIAL_TYPES = (dns.rdatatype.NSEC, dns.rdatatype.NSEC3)
Proofs = NsecProofs | Nsec3Proofs


class Denial:
    """What the records of one answer prove to be absent. One whose signature does not hold spoils them all: it was meant to
    be part of the proof."""

    def __init__(self, zone: Zone, signed: Sequence[Signed], now: float, effort: Effort, rules: Rules) -> None:
        self._fault = ""
        own = [one for one in signed if _is_of(one, zone.name)]
        sets = [one.rrset for one in own[: rules.denials] if self._holds(one, zone, now, effort, rules)]
        nsec = [(rrset.name, row) for rrset in sets for row in rrset if isinstance(row, NSEC)]
        nsec3 = [(rrset.name, row) for rrset in sets for row in rrset if isinstance(row, NSEC3)]
        self._proofs: list[Proofs] = []
        if nsec:
            self._proofs.append(NsecProofs(zone.name, nsec))
        if nsec3:
            self._proofs.append(Nsec3Proofs(zone.name, nsec3, effort, rules))

    def nodata(self, name: dns.name.Name, kind: RdataType) -> Judgement:
        return self._any(lambda proofs: proofs.nodata(name, kind))

    def nxdomain(self, name: dns.name.Name) -> Judgement:
        return self._any(lambda proofs: proofs.nxdomain(name))

    def expansion(self, name: dns.name.Name, encloser: dns.name.Name) -> Judgement:
        return self._any(lambda proofs: proofs.expansion(name, encloser))

    def is_delegation(self, name: dns.name.Name) -> bool:
        return any(proofs.is_delegation(name) for proofs in self._proofs)

    def _any(self, prove: Callable[[Proofs], Judgement]) -> Judgement:
        if self._fault:
            return bogus(self._fault)
        result = bogus("nothing proves that it is not there")
        for proofs in self._proofs:
            result = prove(proofs)
            if result.security != "bogus":
                return result
        return result

    def _holds(self, signed: Signed, zone: Zone, now: float, effort: Effort, rules: Rules) -> bool:
        """What a wildcard was expanded to denies nothing: anybody could have made the name."""
        proven = verify(signed, zone, now, effort, rules)
        if isinstance(proven, Proven):
            return proven.encloser is None
        self._fault = proven.reason
        return False


def _is_of(signed: Signed, zone: dns.name.Name) -> bool:
    """An answer may bring proofs of several zones, one for each alias; unsigned ones are of the zone that they lie in."""
    if not signed.rrset.name.is_subdomain(zone):
        return False
    return not signed.signatures or any(signature.signer == zone for signature in signed.signatures)
