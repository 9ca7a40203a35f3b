"""Replays the scripts of unbound's own tests (`*.rpl`): the answers of servers at a date, and the result of a validator.

unbound queries server after server; we query one resolver. So an answer in the script takes precedence over a referral.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import dns.dnssecalgs
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import msgspec
from cryptography.exceptions import InvalidSignature
from dns.dnssecalgs.base import GenericPrivateKey
from dns.rdata import GenericRdata
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.DNSKEY import DNSKEY

from waypost.net.dns.message import DnsMessage, DnsQuery, dns_failure, parse_message
from waypost.trust.dnssec.validation import ValidationPolicy

_CODES = {"NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED"}


@dataclass
class Entry:
    """One message of a script."""

    match: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)
    sections: dict[str, list[str]] = field(default_factory=dict)
    raw: str = ""

    @property
    def code(self) -> str:
        return next(iter(self.flags & _CODES), "NOERROR")

    @property
    def question(self) -> tuple[dns.name.Name, RdataType]:
        name, _, kind = self.sections["QUESTION"][0].split()
        return dns.name.from_text(name), dns.rdatatype.from_text(kind)

    def fits(self, name: dns.name.Name, kind: RdataType) -> bool:
        asked, type_ = self.question
        if "subdomain" in self.match:
            return name.is_subdomain(asked)
        return name == asked and kind == type_

    @property
    def is_answer(self) -> bool:
        """Whether this is an answer, not a referral."""
        if self.code == "REFUSED":
            return False
        said = " ".join(self.sections.get("AUTHORITY", ())).split()
        refers = "NS" in said and "SOA" not in said
        return bool(self.raw or self.sections.get("ANSWER")) or not refers

    def wire(self, name: dns.name.Name, kind: RdataType) -> bytes:
        if self.raw:
            return bytes.fromhex(self.raw)
        message = dns.message.make_response(dns.message.make_query(name, kind))
        message.set_rcode(dns.rcode.from_text(self.code))
        message.answer = list(_sets([*self.sections.get("ANSWER", []), *self._stray_signatures(name)]))
        message.authority = list(_sets(self.sections.get("AUTHORITY", [])))
        return message.to_wire()

    def _stray_signatures(self, name: dns.name.Name) -> list[str]:
        """unbound accepts signatures in any section; a resolver returns them beside the records that they cover."""
        return [
            line
            for line in self.sections.get("ADDITIONAL", [])
            if " RRSIG " in line and dns.name.from_text(line.split()[0]) == name
        ]


@dataclass
class Script:
    anchors: list[str]
    date: float
    iterations: int | None
    entries: list[Entry]
    steps: list[tuple[Entry, Entry]]  # the query, and the result of unbound

    async def send(self, question: DnsQuery, perspective: int | None = None) -> DnsMessage:
        """Like `UpstreamResolvers`."""
        for entry in self.entries:
            if entry.is_answer and entry.fits(question.name, question.type):
                return msgspec.structs.replace(parse_message(entry.wire(question.name, question.type)), server="script")
        if question.type == RdataType.DS:
            return parse_message(self._parent(question.name).wire(question.name, question.type))
        raise dns_failure(f"Nobody of the script answers {question.name} {question.type}.", "refused")

    async def aclose(self) -> None: ...

    def _parent(self, name: dns.name.Name) -> Entry:
        """DS records, or proofs that there are none: in the scripts they are part of referrals and earlier answers, because
        unbound does not query for them. We do, so they are returned again."""
        said = [line for entry in self.entries for line in entry.sections.get("AUTHORITY", ())]
        records = [line for line in said if dns.name.from_text(line.split()[0]) == name and " DS " in line]
        zones = [anchor.split()[0] for anchor in self.anchors]
        soa = [f"{zone} 3600 IN SOA . . 1 2 3 4 5" for zone in zones if name.is_subdomain(dns.name.from_text(zone))]
        proofs = [line for line in said if "NSEC" in line]
        sections = {"ANSWER": records} if records else {"AUTHORITY": [*soa, *dict.fromkeys(proofs)]}
        return Entry(flags={"NOERROR"}, sections=sections)

    @property
    def rules(self) -> ValidationPolicy:
        """The rules with the algorithms of the time of the script."""
        usual = ValidationPolicy()
        iterations = usual.iterations if self.iterations is None else self.iterations
        return ValidationPolicy(algorithms=usual.algorithms | {3, 5, 7}, iterations=iterations)


def read_script(path: Path) -> Script:
    text = path.read_text("utf-8")
    config = text[: text.index("CONFIG_END")]
    body = text[text.index("CONFIG_END") :]
    first_step = body.index("\nSTEP")
    date = re.search(r'val-override-date: "(\d+)"', config)
    limit = re.search(r'val-nsec3-keysize-iterations: "1024 (\d+)', config)
    steps = [*_entries(body[first_step:])]
    return Script(
        anchors=re.findall(r'trust-anchor: "([^"]*)"', config),
        date=datetime.strptime(date[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp() if date else 0.0,
        iterations=None if limit is None else int(limit[1]),
        entries=[*_entries(body[:first_step])],
        steps=list(zip(steps[::2], steps[1::2], strict=True)),
    )


def _entries(text: str) -> Iterator[Entry]:
    for block in re.findall(r"ENTRY_BEGIN(.*?)ENTRY_END", text, re.DOTALL):
        entry = Entry()
        section = ""
        for line in map(_bare, block.splitlines()):
            word, _, rest = line.partition(" ")
            if word == "MATCH":
                entry.match = set(rest.split())
            elif word == "REPLY":
                entry.flags = set(rest.split())
            elif word == "SECTION":
                section = rest.strip()
                entry.sections[section] = []
            elif word in ("HEX_ANSWER_BEGIN", "HEX_ANSWER_END"):
                section = "" if word.endswith("END") else "HEX"
            elif section == "HEX":
                entry.raw += line.strip()
            elif section and line:
                entry.sections[section].append(line)
        yield entry


def _bare(line: str) -> str:
    return line.split(";")[0].replace("\t", " ").strip()


def _sets(lines: list[str]) -> Iterator[dns.rrset.RRset]:
    for line in lines:
        name, ttl, kind, rest = re.match(r"(\S+)\s+(?:(\d+)\s+)?(?:IN\s+)?([A-Z0-9]+)\s+(.*)", line).groups()  # type: ignore[union-attr]
        if kind == "RRSIG" and len(rest.split()) == 8:
            rest += " AAAA"  # a signature of no bytes, which dnspython cannot write
        owner, seconds = dns.name.from_text(name), int(ttl or 3600)
        if rest.startswith("\\#"):  # as raw bytes: dnspython would refuse to write it
            data = bytes.fromhex("".join(rest.split()[2:]))
            yield dns.rrset.from_rdata(owner, seconds, GenericRdata(dns.rdataclass.IN, RdataType[kind], data))
        else:
            yield dns.rrset.from_text(owner, seconds, "IN", kind, rest)


# --- Algorithms of 2007, with keys so short that today's libraries refuse them --------------------


class OldDsaKey:
    def __init__(self, key: bytes) -> None:
        size = 64 + key[0] * 8
        self.q = int.from_bytes(key[1:21], "big")
        self.p, self.g, self.y = (int.from_bytes(key[21 + i * size : 21 + (i + 1) * size], "big") for i in range(3))

    @classmethod
    def from_dnskey(cls, key: DNSKEY) -> OldDsaKey:
        return cls(key.key)

    def verify(self, signature: bytes, data: bytes) -> None:
        r, s = _der_integers(signature)
        w = pow(s, -1, self.q)
        digest = int.from_bytes(hashlib.sha1(data).digest(), "big")
        v = pow(self.g, digest * w % self.q, self.p) * pow(self.y, r * w % self.q, self.p) % self.p % self.q
        if v != r:
            raise InvalidSignature


class OldRsaKey:
    def __init__(self, key: bytes) -> None:
        end = 1 + key[0]
        self.e = int.from_bytes(key[1:end], "big")
        self.n = int.from_bytes(key[end:], "big")

    @classmethod
    def from_dnskey(cls, key: DNSKEY) -> OldRsaKey:
        return cls(key.key)

    def verify(self, signature: bytes, data: bytes) -> None:
        size = (self.n.bit_length() + 7) // 8
        kind = bytes.fromhex("3021300906052b0e03021a05000414") + hashlib.sha1(data).digest()
        padded = b"\x00\x01" + b"\xff" * (size - 3 - len(kind)) + b"\x00" + kind
        if pow(int.from_bytes(signature, "big"), self.e, self.n) != int.from_bytes(padded, "big"):
            raise InvalidSignature


def _der_integers(data: bytes) -> tuple[int, int]:
    if len(data) == 41:  # RFC 2536 §3
        return int.from_bytes(data[1:21], "big"), int.from_bytes(data[21:], "big")
    if len(data) < 40:
        raise InvalidSignature
    end = 4 + data[3]
    return int.from_bytes(data[4:end], "big"), int.from_bytes(data[end + 2 : end + 2 + data[end + 1]], "big")


class _OldDsa(GenericPrivateKey):
    public_cls = OldDsaKey  # type: ignore[assignment]


class _OldRsa(GenericPrivateKey):
    public_cls = OldRsaKey  # type: ignore[assignment]


def know_old_algorithms() -> None:
    """dnspython's registry; the product's own rules know nothing of them."""
    dns.dnssecalgs.register_algorithm_cls(3, _OldDsa)
    for number in (5, 7):
        dns.dnssecalgs.register_algorithm_cls(number, _OldRsa)
