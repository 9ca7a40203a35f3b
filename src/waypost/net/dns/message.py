"""Messages of the DNS as bytes: questions written, answers read. Knows no socket.

dnspython reads a message as a whole, and refuses it for one record that it cannot parse. Here a record of a type whose form
matters to nobody but the caller is kept as it came, so that a bad SVCB record is skipped by who reads SVCB, and the bytes that
a signature covers are those that were sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import dns.exception
import dns.flags
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.wire
import msgspec
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.DNAME import DNAME

from waypost import limits
from waypost.errors import FetchFailed

IN: Final = dns.rdataclass.IN

_HEADER: Final = 12

_OPT: Final = dns.rdatatype.OPT

_REFUSALS: Final = (dns.rcode.FORMERR, dns.rcode.SERVFAIL, dns.rcode.NOTIMP, dns.rcode.REFUSED)

_DO: Final = 0x8000
# Types whose form the chain of trust depends on, or whose names are compressed or made lower case (RFC 4034 §6.2).
_STRUCTURED_TYPES: Final = (
    "A AAAA NS CNAME DNAME SOA PTR MX SRV NAPTR RP AFSDB RT PX KX TXT DS DNSKEY RRSIG NSEC NSEC3 NSEC3PARAM"
)

_STRUCTURED: Final = frozenset(map(dns.rdatatype.from_text, _STRUCTURED_TYPES.split()))


class DnsFailure(FetchFailed):
    """No answer that anything follows from: a timeout, a refusal, bytes that are no message."""

    def again(self) -> DnsFailure:
        """For somebody else: what is raised twice would drag the frames of the first along."""
        return DnsFailure(self.message, path=self.path, hint=self.hint, details=self.details)


def dns_failure(message: str, reason: str, hint: str | None = None) -> DnsFailure:
    return DnsFailure(message, path="resolver", hint=hint, details={"reason": reason})


class DnsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`checking` asks for signatures, and for the answer even where the resolver holds it for bogus: we judge it ourselves."""

    name: dns.name.Name
    type: RdataType
    signatures: bool = True
    checking: bool = True
    extended: bool = True

    def wire(self, number: int) -> bytes:
        flags = dns.flags.RD | (dns.flags.CD if self.checking else 0)
        head = (
            number.to_bytes(2, "big") + int(flags).to_bytes(2, "big") + bytes((0, 1, 0, 0, 0, 0, 0, int(self.extended)))
        )
        wanted = int(self.type).to_bytes(2, "big") + int(IN).to_bytes(2, "big")
        return head + self.name.to_digestable() + wanted + (self._option() if self.extended else b"")

    def _option(self) -> bytes:
        flags = _DO if self.signatures else 0
        size = limits.DNS_UDP_BYTES.to_bytes(2, "big")
        return b"\0" + int(_OPT).to_bytes(2, "big") + size + b"\0\0" + flags.to_bytes(2, "big") + b"\0\0"


class DnsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said. Sets of records, signatures apart from what they cover."""

    id: int
    flags: int
    rcode: int
    name: dns.name.Name | None  # None where a server refuses without repeating the question
    type: RdataType
    answer: tuple[dns.rrset.RRset, ...] = ()
    authority: tuple[dns.rrset.RRset, ...] = ()
    server: str = ""
    round_trips: int = 1
    queries: int = 1

    @property
    def is_truncated(self) -> bool:
        return bool(self.flags & dns.flags.TC)

    @property
    def is_authenticated(self) -> bool:
        return bool(self.flags & dns.flags.AD)

    def answers(self, question: DnsQuery) -> bool:
        if self.name is None:
            return bool(self.flags & dns.flags.QR)
        return bool(self.flags & dns.flags.QR) and self.name == question.name and self.type == question.type


def parse_message(data: bytes) -> DnsMessage:
    """DnsFailure for what is no message, whatever is wrong with it."""
    try:
        return _parse_message(data)
    except (dns.exception.DNSException, ValueError, IndexError, OverflowError):
        raise dns_failure("The answer of the resolver cannot be read.", "malformed") from None


def _parse_message(data: bytes) -> DnsMessage:
    if not _HEADER <= len(data) <= limits.DNS_MESSAGE_BYTES:
        raise ValueError
    parser = dns.wire.Parser(data)
    number, flags, questions, answers, authorities, others = parser.get_struct("!HHHHHH")
    rcode = flags & 0xF
    if questions != 1 and (questions or rcode not in _REFUSALS):
        raise ValueError
    if answers + authorities + others > limits.DNS_RECORDS:
        raise ValueError
    name = parser.get_name(decompress=True) if questions else None
    kind = parser.get_struct("!HH")[0] if questions else dns.rdatatype.NONE
    truncated = bool(flags & dns.flags.TC)
    answer: tuple[dns.rrset.RRset, ...] = ()
    authority: tuple[dns.rrset.RRset, ...] = ()
    if not truncated:  # what is cut off is asked for again
        answer = _read_rrsets(parser, answers)
        authority = _read_rrsets(parser, authorities)
        rcode |= _extended_code(parser, others)
    return DnsMessage(
        id=number, flags=flags, rcode=rcode, name=name, type=RdataType.make(kind), answer=answer, authority=authority
    )


def _read_rrsets(parser: dns.wire.Parser, count: int) -> tuple[dns.rrset.RRset, ...]:
    found: dict[tuple[dns.name.Name, RdataType, RdataType], dns.rrset.RRset] = {}
    for name, rdata, ttl in _read_records(parser, count):
        covers = rdata.covers()
        key = (name, rdata.rdtype, covers)
        if key not in found:
            found[key] = dns.rrset.RRset(name, IN, rdata.rdtype, covers)
            found[key].ttl = ttl
        found[key].add(rdata, min(ttl, found[key].ttl))
    return tuple(found.values())


def _read_records(parser: dns.wire.Parser, count: int) -> Iterator[tuple[dns.name.Name, dns.rdata.Rdata, int]]:
    for _ in range(count):
        name = parser.get_name(decompress=True)
        kind, rdclass, ttl, length = parser.get_struct("!HHIH")
        with parser.restrict_to(length):
            if rdclass != IN or kind == _OPT:
                parser.get_remaining()
                continue
            yield name, _read_rdata(parser, RdataType.make(kind)), ttl if ttl < 2**31 else 0


def _read_rdata(parser: dns.wire.Parser, kind: RdataType) -> dns.rdata.Rdata:
    if kind in _STRUCTURED:
        return dns.rdata.from_wire_parser(IN, kind, parser)
    return dns.rdata.GenericRdata(IN, kind, parser.get_remaining())


def _extended_code(parser: dns.wire.Parser, count: int) -> int:
    """The upper bits of the code are in the OPT record, which may stand anywhere among the others."""
    code = 0
    for _ in range(count):
        parser.get_name(decompress=True)
        kind, _, ttl, length = parser.get_struct("!HHIH")
        parser.get_bytes(length)
        if kind == _OPT:
            code = (ttl >> 24) << 4
    return code


# ---- Where an answer leads: CNAME and DNAME links from the name that was asked to the records, within one message.


class AliasChain(msgspec.Struct, frozen=True, kw_only=True):
    """The links that were followed, each with the name that it was followed from, where they end, and what is there."""

    links: tuple[tuple[dns.name.Name, dns.rrset.RRset], ...] = ()
    owner: dns.name.Name
    rrset: dns.rrset.RRset | None = None


def follow_aliases(message: DnsMessage, name: dns.name.Name) -> AliasChain:
    """DnsFailure for a chain that is too long or comes back to itself (D1)."""
    links: list[tuple[dns.name.Name, dns.rrset.RRset]] = []
    seen = {name}
    while (rrset := find_rrset(message.answer, name, message.type)) is None:
        step = _next_link(message, name)
        if step is None:
            break
        links.append((name, step[0]))
        name = step[1]
        if name in seen or len(links) > limits.DNS_ALIASES:
            raise too_many_aliases()
        seen.add(name)
    return AliasChain(links=tuple(links), owner=name, rrset=rrset)


def find_rrset(
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
    return dns_failure(
        "The name is an alias of an alias, and so on.", "alias_limit", "Shorten the chain of CNAME records."
    )


def _next_link(message: DnsMessage, name: dns.name.Name) -> tuple[dns.rrset.RRset, dns.name.Name] | None:
    """A DNAME above the name comes first: the CNAME beside it is made of it, and signed by nobody (RFC 6672 §5.3.1)."""
    for rrset in message.answer:
        if rrset.rdtype == dns.rdatatype.DNAME and name != rrset.name and name.is_subdomain(rrset.name):
            row = _single_record(rrset)
            if isinstance(row, DNAME):
                return rrset, _apply_dname(name, rrset.name, row.target)
    cname = find_rrset(message.answer, name, dns.rdatatype.CNAME)
    row = None if cname is None else _single_record(cname)
    return (cname, row.target) if cname is not None and isinstance(row, CNAME) else None


def _single_record(rrset: dns.rrset.RRset) -> object:
    return rrset[0] if len(rrset) == 1 else None


def _apply_dname(name: dns.name.Name, owner: dns.name.Name, target: dns.name.Name) -> dns.name.Name:
    try:
        return name.relativize(owner).derelativize(target)
    except dns.exception.DNSException:
        raise dns_failure("The name that a DNAME makes is too long.", "alias_limit") from None
