"""Trust anchors: DS records of zones that are known in advance. Those of the root are built in; a file adds or replaces
some.

A file holds DS or DNSKEY records in presentation form, or BIND's `trust-anchors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.DS import DS

from waypost.errors import ConfigurationError
from waypost.trust.dnssec.validation import SHA256, make_ds, zone_keys

# The key signing keys of the root, of 2017 and 2024 (https://data.iana.org/root-anchors/root-anchors.xml).
_ROOT: Final = """
. IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D
. IN DS 38696 8 2 683D2D0ACB8C9B712A1948B27F741219298D0A450D612C483AF444A4C0FB2B16
"""
_PRIVATE: Final = dns.name.from_text("internal.")  # reserved for private networks: the root denies it
_STATEMENT: Final = re.compile(r"(?:trust-anchors|managed-keys|trusted-keys)\s*\{(.*?)\}\s*;", re.DOTALL)
_COMMENT: Final = re.compile(r'"[^"]*"|;[^\n]*|^\s*(?://|\#)[^\n]*', re.MULTILINE)
_COMMENT_IN_STATEMENT: Final = re.compile(r'"[^"]*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_RECORD: Final = re.compile(
    r"(?P<name>\S+)(?:\s+\d+\w?)?(?:\s+IN)?(?:\s+\d+\w?)?\s+(?P<kind>DS|DNSKEY)\s+(?P<rest>.+)", re.IGNORECASE
)
_IGNORED_LINE: Final = re.compile(r"\$TTL\s.*|\S+\s.*\sRRSIG\s.*", re.IGNORECASE)  # as signers and `dig` write them
_BIND_ENTRY: Final = re.compile(
    r'"?(?P<name>[^\s"]+)"?\s+(?:(?P<how>static-ds|initial-ds|static-key|initial-key)\s+)?(?P<rest>.+)', re.DOTALL
)


class TrustAnchors:
    """Trust anchors by name; the chain of a name starts at the closest one above it.

    Configured anchors are required: their zones must be reachable. The built-in root may be unreachable, if a resolver
    serves only a zone of its own. `unsigned` domains are not validated (RFC 7646), unless an anchor is closer.
    """

    def __init__(
        self,
        records: Iterable[tuple[dns.name.Name, DS]] = (),
        *,
        root: bool = True,
        unsigned: Iterable[dns.name.Name] = (),
    ) -> None:
        self._unsigned = frozenset((*unsigned, _PRIVATE))
        self._records: dict[dns.name.Name, list[DS]] = {}
        for name, row in records:
            self._records.setdefault(name, []).append(row)
        self._required = frozenset(self._records)
        if root and dns.name.root not in self._records:
            self._records[dns.name.root] = [row for _, row in _parse_records(_ROOT)]

    def above(self, name: dns.name.Name) -> dns.name.Name | None:
        for depth in range(len(name), 0, -1):
            candidate = name.split(depth)[1]
            if candidate in self._records:
                return candidate
            if candidate in self._unsigned:
                return None
        return None

    def records(self, name: dns.name.Name) -> tuple[DS, ...]:
        return tuple(self._records.get(name, ()))

    def is_required(self, name: dns.name.Name) -> bool:
        return name in self._required


def parse_anchors(text: str, path: str = "trust_anchors") -> list[tuple[dns.name.Name, DS]]:
    """Parse a file of anchors; raises ConfigurationError if it has none, or an invalid one."""
    try:
        found = [*_parse_bind_statements(text)] if _STATEMENT.search(text) else [*_parse_records(text)]
    except (dns.exception.DNSException, ValueError, IndexError):
        found = []
    if not found:
        raise ConfigurationError(
            "The trust anchors cannot be parsed.",
            path=path,
            hint="Write one DS or DNSKEY record per line, `example.com. IN DS 12345 13 2 …`, or BIND's trust-anchors { … };.",
        )
    return found


def parse_domains(texts: Iterable[str], path: str) -> list[dns.name.Name]:
    """Parse domain names; raises ConfigurationError."""
    try:
        return [dns.name.from_text(text).canonicalize() for text in texts]
    except dns.exception.DNSException:
        raise ConfigurationError(
            "One of the domains is not a valid name.", path=path, hint="Write them like corp.example.com."
        ) from None


def _parse_records(text: str) -> Iterator[tuple[dns.name.Name, DS]]:
    bare = _strip_comments(_COMMENT, text)
    joined = re.sub(r"\(([^)]*)\)", lambda inside: " ".join(inside[1].split()), bare)
    for line in filter(None, map(str.strip, joined.splitlines())):
        if _IGNORED_LINE.fullmatch(line):
            continue
        record = _RECORD.fullmatch(line)
        if record is None:
            raise ValueError(line)
        yield _parse_anchor(record["name"], record["kind"].upper(), record["rest"])


def _parse_bind_statements(text: str) -> Iterator[tuple[dns.name.Name, DS]]:
    for statement in _STATEMENT.finditer(_strip_comments(_COMMENT_IN_STATEMENT, text)):
        for entry in filter(None, map(str.strip, statement[1].split(";"))):
            parts = _BIND_ENTRY.fullmatch(entry)
            if parts is None:
                raise ValueError(entry)
            kind = "DS" if (parts["how"] or "").endswith("ds") else "DNSKEY"
            yield _parse_anchor(parts["name"], kind, parts["rest"].replace('"', " "))


def _parse_anchor(owner: str, kind: str, rest: str) -> tuple[dns.name.Name, DS]:
    name = dns.name.from_text(owner).canonicalize()
    fields = rest.split(None, 3)
    text = " ".join((*fields[:3], "".join(fields[3].split())))
    row = dns.rdata.from_text(dns.rdataclass.IN, dns.rdatatype.from_text(kind), text)
    if isinstance(row, DNSKEY) and zone_keys([row]):
        row = make_ds(name, row, SHA256)
    if not isinstance(row, DS):
        raise ValueError(rest)
    return name, row


def _strip_comments(comment: re.Pattern[str], text: str) -> str:
    return comment.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
