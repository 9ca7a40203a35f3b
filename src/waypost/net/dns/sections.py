"""Sets of records in a section of a message, each with the signatures that claim to cover it."""

from __future__ import annotations

from collections.abc import Iterable

import dns.name
import dns.rdatatype
import dns.rrset
from dns.rdtypes.ANY.RRSIG import RRSIG

from waypost.net.dns.aliases import find_set
from waypost.trust.dnssec.denial import DENIAL_TYPES
from waypost.trust.dnssec.signatures import Signed

Section = tuple[dns.rrset.RRset, ...]


def signed_set(section: Section, rrset: dns.rrset.RRset) -> Signed:
    found = find_set(section, rrset.name, dns.rdatatype.RRSIG, rrset.rdtype)
    return Signed(rrset=rrset, signatures=tuple(row for row in found or () if isinstance(row, RRSIG)))


def denial_sets(section: Section) -> list[Signed]:
    return [signed_set(section, rrset) for rrset in section if rrset.rdtype in DENIAL_TYPES]


def find_signer(sets: Iterable[Signed], name: dns.name.Name, *, above: bool = False) -> dns.name.Name | None:
    """The zone that claims to sign for a name: the lowest, where several do. `above` is for what only a parent can say."""
    signers = {signature.signer for signed in sets for signature in signed.signatures}
    possible = [
        signer
        for signer in signers
        if name.is_subdomain(signer) and not (above and signer == name and name != dns.name.root)
    ]
    return max(possible, key=len, default=None)
