"""DNS messages: write queries, parse responses, follow aliases within a response. No I/O.

dnspython rejects a whole message for one record that it cannot parse. Here, a record of a type that only the caller interprets
stays in wire form: a malformed SVCB record is skipped by the code that reads SVCB, and signatures cover the bytes as sent.
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

_ERROR_RCODES: Final = (dns.rcode.FORMERR, dns.rcode.SERVFAIL, dns.rcode.NOTIMP, dns.rcode.REFUSED)

_DO: Final = 0x8000
# Types that DNSSEC validation reads, or whose names are compressed or lower-cased (RFC 4034 §6.2).
_STRUCTURED_TYPES: Final = (
    "A AAAA NS CNAME DNAME SOA PTR MX SRV NAPTR RP AFSDB RT PX KX TXT DS DNSKEY RRSIG NSEC NSEC3 NSEC3PARAM"
)

_STRUCTURED: Final = frozenset(map(dns.rdatatype.from_text, _STRUCTURED_TYPES.split()))


class DnsFailure(FetchFailed):
    """No usable answer: a timeout, a refusal or a malformed message. Nothing may be concluded from it."""

    def copy(self) -> DnsFailure:
        """For another caller: raising the same object twice would add to its traceback."""
        return DnsFailure(self.message, path=self.path, hint=self.hint, details=self.details)


def dns_failure(message: str, reason: str, hint: str | None = None) -> DnsFailure:
    return DnsFailure(message, path="resolver", hint=hint, details={"reason": reason})


class DnsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`checking_disabled` (CD) asks the resolver for data that it considers bogus too: the caller validates it."""

    name: dns.name.Name
    type: RdataType
    signatures: bool = True
    checking_disabled: bool = True
    edns: bool = True

    def wire(self, query_id: int) -> bytes:
        flags = dns.flags.RD | (dns.flags.CD if self.checking_disabled else 0)
        head = (
            query_id.to_bytes(2, "big") + int(flags).to_bytes(2, "big") + bytes((0, 1, 0, 0, 0, 0, 0, int(self.edns)))
        )
        type_and_class = int(self.type).to_bytes(2, "big") + int(IN).to_bytes(2, "big")
        return head + self.name.to_digestable() + type_and_class + (self._opt_record() if self.edns else b"")

    def _opt_record(self) -> bytes:
        flags = _DO if self.signatures else 0
        size = limits.DNS_UDP_BYTES.to_bytes(2, "big")
        return b"\0" + int(_OPT).to_bytes(2, "big") + size + b"\0\0" + flags.to_bytes(2, "big") + b"\0\0"


class DnsMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A response as record sets. Signatures are sets of their own."""

    id: int
    flags: int
    rcode: int
    name: dns.name.Name | None  # None if a server refuses without repeating the question
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

    def answers(self, query: DnsQuery) -> bool:
        if self.name is None:
            return bool(self.flags & dns.flags.QR)
        return bool(self.flags & dns.flags.QR) and self.name == query.name and self.type == query.type


def parse_message(data: bytes) -> DnsMessage:
    """Raises DnsFailure for anything malformed."""
    try:
        return _parse_message(data)
    except (dns.exception.DNSException, ValueError, IndexError, OverflowError):
        raise dns_failure("The answer of the resolver is malformed.", "malformed") from None


def _parse_message(data: bytes) -> DnsMessage:
    if not _HEADER <= len(data) <= limits.DNS_MESSAGE_BYTES:
        raise ValueError
    parser = dns.wire.Parser(data)
    message_id, flags, questions, answers, authorities, others = parser.get_struct("!HHHHHH")
    rcode = flags & 0xF
    if questions != 1 and (questions or rcode not in _ERROR_RCODES):
        raise ValueError
    if answers + authorities + others > limits.DNS_RECORDS:
        raise ValueError
    name = parser.get_name(decompress=True) if questions else None
    kind = parser.get_struct("!HH")[0] if questions else dns.rdatatype.NONE
    truncated = bool(flags & dns.flags.TC)
    answer: tuple[dns.rrset.RRset, ...] = ()
    authority: tuple[dns.rrset.RRset, ...] = ()
    if not truncated:  # a truncated answer is requested again over TCP
        answer = _read_rrsets(parser, answers)
        authority = _read_rrsets(parser, authorities)
        rcode |= _extended_rcode(parser, others)
    return DnsMessage(
        id=message_id,
        flags=flags,
        rcode=rcode,
        name=name,
        type=RdataType.make(kind),
        answer=answer,
        authority=authority,
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


def _extended_rcode(parser: dns.wire.Parser, count: int) -> int:
    """The upper bits of the rcode are in the OPT record, at any position of the additional section."""
    code = 0
    for _ in range(count):
        parser.get_name(decompress=True)
        kind, _, ttl, length = parser.get_struct("!HHIH")
        parser.get_bytes(length)
        if kind == _OPT:
            code = (ttl >> 24) << 4
    return code


class AliasChain(msgspec.Struct, frozen=True, kw_only=True):
    """The CNAME and DNAME sets that were followed, each with the name before it; where they end, and the records there."""

    links: tuple[tuple[dns.name.Name, dns.rrset.RRset], ...] = ()
    owner: dns.name.Name
    rrset: dns.rrset.RRset | None = None


def follow_aliases(message: DnsMessage, name: dns.name.Name) -> AliasChain:
    """Raises DnsFailure for a chain that is too long or loops (D1)."""
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
        "The chain of aliases is too long or loops.", "alias_limit", "Shorten the chain of CNAME records."
    )


def _next_link(message: DnsMessage, name: dns.name.Name) -> tuple[dns.rrset.RRset, dns.name.Name] | None:
    """A DNAME above the name comes first: the CNAME that accompanies it is synthesized and unsigned (RFC 6672 §5.3.1)."""
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
        raise dns_failure("The name that a DNAME produces is too long.", "alias_limit") from None
