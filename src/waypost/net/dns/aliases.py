"""Where an answer leads: CNAME and DNAME links from the name that was asked to the records, within one message."""

from __future__ import annotations

import dns.exception
import dns.name
import dns.rdatatype
import dns.rrset
import msgspec
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.DNAME import DNAME

from waypost import limits
from waypost.net.dns.packet import Message, failure


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """The links that were followed, each with the name that it was followed from, where they end, and what is there."""

    links: tuple[tuple[dns.name.Name, dns.rrset.RRset], ...] = ()
    owner: dns.name.Name
    rrset: dns.rrset.RRset | None = None


def follow(message: Message, name: dns.name.Name) -> Path:
    """DnsFailure for a chain that is too long or comes back to itself (D1)."""
    links: list[tuple[dns.name.Name, dns.rrset.RRset]] = []
    seen = {name}
    while (rrset := find_set(message.answer, name, message.type)) is None:
        step = _next_link(message, name)
        if step is None:
            break
        links.append((name, step[0]))
        name = step[1]
        if name in seen or len(links) > limits.DNS_ALIASES:
            raise too_many_aliases()
        seen.add(name)
    return Path(links=tuple(links), owner=name, rrset=rrset)


def find_set(
    section: tuple[dns.rrset.RRset, ...],
    name: dns.name.Name,
    kind: RdataType,
    covers: RdataType = dns.rdatatype.NONE,
) -> dns.rrset.RRset | None:
    for rrset in section:
        if rrset.rdtype == kind and rrset.covers == covers and rrset.name == name:
            return rrset
    return None


def too_many_aliases() -> Exception:
    return failure("The name is an alias of an alias, and so on.", "alias_limit", "Shorten the chain of CNAME records.")


def _next_link(message: Message, name: dns.name.Name) -> tuple[dns.rrset.RRset, dns.name.Name] | None:
    """A DNAME above the name comes first: the CNAME beside it is made of it, and signed by nobody (RFC 6672 §5.3.1)."""
    for rrset in message.answer:
        if rrset.rdtype == dns.rdatatype.DNAME and name != rrset.name and name.is_subdomain(rrset.name):
            row = _only(rrset)
            if isinstance(row, DNAME):
                return rrset, _substituted(name, rrset.name, row.target)
    cname = find_set(message.answer, name, dns.rdatatype.CNAME)
    row = None if cname is None else _only(cname)
    return (cname, row.target) if cname is not None and isinstance(row, CNAME) else None


def _only(rrset: dns.rrset.RRset) -> object:
    return rrset[0] if len(rrset) == 1 else None


def _substituted(name: dns.name.Name, owner: dns.name.Name, target: dns.name.Name) -> dns.name.Name:
    try:
        return name.relativize(owner).derelativize(target)
    except dns.exception.DNSException:
        raise failure("The name that a DNAME makes is too long.", "alias_limit") from None
