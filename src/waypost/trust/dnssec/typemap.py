"""The bitmap of types that NSEC and NSEC3 share (RFC 4034 §4.1.2), and what a missing bit means where."""

from __future__ import annotations

from collections.abc import Iterable

import dns.name
import dns.rdatatype
from dns.rdatatype import RdataType

Windows = Iterable[tuple[int, bytes]]


def has_type(windows: Windows, kind: RdataType) -> bool:
    window, bit = divmod(int(kind), 256)
    place, mask = bit // 8, 0x80 >> bit % 8
    return any(number == window and place < len(bits) and bits[place] & mask for number, bits in windows)


def is_delegation(windows: Windows) -> bool:
    """The parent's side of a cut."""
    return has_type(windows, dns.rdatatype.NS) and not has_type(windows, dns.rdatatype.SOA)


def absence_fault(windows: Windows, name: dns.name.Name, kind: RdataType) -> str | None:
    """Why a record at a name does not prove that there is no such type; None where it does."""
    told = dns.rdatatype.to_text(kind)
    if has_type(windows, kind):
        return f"the zone says that {name} has {told}"
    if has_type(windows, dns.rdatatype.CNAME):
        return f"the zone says that {name} is an alias"
    if kind == dns.rdatatype.DS:
        if has_type(windows, dns.rdatatype.SOA) and name != dns.name.root:
            return f"the child says that {name} has no DS, which only its parent knows"
        return None
    if is_delegation(windows):
        return f"the parent says that {name} has no {told}, which only the child knows"
    return None
