"""Client of an authoritative nameserver: read records, and update zones with a TSIG key (RFC 2136).

Queries go over TCP, so that no answer is truncated, and without recursion, so that the server answers from its own data.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.update

from waypost import limits
from waypost.domains.ports import DnsLookup, DnsResolver, RecordType
from waypost.domains.zone import RecordSet, RecordSetChange
from waypost.errors import ConfigurationError, Conflict, FetchFailed, Forbidden, InvalidDocument, Unauthorized
from waypost.net.dns.resolver_config import DnsServer, make_plain_server

NAMESERVER_FOLDER = "dns"  # below the data folder: the zones and keys of `waypost dns serve`
DEFAULT_TSIG_ALGORITHM = "hmac-sha256"
_TSIG_ALGORITHMS = ("hmac-sha256", "hmac-sha384", "hmac-sha512", "hmac-sha224", "hmac-sha1")
_TSIG_STATEMENT = re.compile(
    r'\s*key\s+"?(?P<name>[A-Za-z0-9._-]+)"?\s*\{\s*'
    r'algorithm\s+"?(?P<algorithm>[A-Za-z0-9.-]+)"?\s*;\s*secret\s+"(?P<secret>[A-Za-z0-9+/=]+)"\s*;\s*\}\s*;?\s*\Z'
)
_TSIG_LINE = re.compile(r"(?:(?P<algorithm>[a-z0-9-]+):)?(?P<name>[A-Za-z0-9._-]+):(?P<secret>[A-Za-z0-9+/=]+)\s*\Z")

_BAD_SIGNATURE = (dns.exception.FormError, dns.message.UnknownTSIGKey, dns.tsig.BadSignature, dns.tsig.BadTime)

_LOST_RACE = (dns.rcode.NXRRSET, dns.rcode.YXRRSET, dns.rcode.NXDOMAIN, dns.rcode.YXDOMAIN)


class ZoneClient:
    def __init__(self, server: DnsServer) -> None:
        self.server = server

    async def zone_of(self, name: str) -> str | None:
        """The zone of a name on this server; None if the server is not authoritative for it."""
        response = await self._ask(name, "SOA")
        for rrset in (*response.answer, *response.authority):
            if rrset.rdtype == dns.rdatatype.SOA and response.flags & dns.flags.AA:
                return rrset.name.to_text(omit_final_dot=True).lower()
        return None

    async def read(self, name: str, kind: str) -> RecordSet | None:
        """The records of a name and type. Aliases are not followed."""
        response = await self._ask(name, kind)
        if response.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            raise self._failed(f"answered {dns.rcode.to_text(response.rcode())} for {name} {kind}")
        owner, type_ = dns.name.from_text(name), dns.rdatatype.from_text(kind)
        for rrset in response.answer:
            if rrset.name == owner and rrset.rdtype == type_:
                return make_record_set(name, kind, rrset.ttl, rrset)
        return None

    async def change(self, zone: str, changes: Iterable[RecordSetChange], key: dns.tsig.Key) -> None:
        """Make all changes or none. The server rejects them if the records before the change are not the expected ones."""
        message = dns.update.UpdateMessage(zone, keyring={key.name: key}, keyname=key.name, keyalgorithm=key.algorithm)
        for change in changes:
            _require(message, change)
        for change in changes:
            _replace(message, change)
        try:
            response = await dns.asyncquery.tcp(
                message, self.server.host, port=self.server.port, timeout=limits.DNS_UPDATE_SECONDS
            )
        except (*_BAD_SIGNATURE, dns.tsig.PeerError) as error:
            raise _key_refused(str(error)) from None
        except (OSError, EOFError, dns.exception.DNSException) as error:
            raise self._failed(f"did not accept the update: {str(error) or type(error).__name__}") from None
        self._check_rcode(response.rcode(), zone)

    async def _ask(self, name: str, kind: str) -> dns.message.Message:
        query = dns.message.make_query(name, kind, flags=0, use_edns=0)
        try:
            return await dns.asyncquery.tcp(query, self.server.host, port=self.server.port, timeout=limits.DNS_SECONDS)
        except (OSError, EOFError, dns.exception.DNSException) as error:
            raise self._failed(f"does not answer: {str(error) or type(error).__name__}") from None

    def _check_rcode(self, code: dns.rcode.Rcode, zone: str) -> None:
        if code == dns.rcode.NOERROR:
            return
        if code in _LOST_RACE:
            raise Conflict(
                "The zone was changed by another client in the meantime; this update was not made.",
                path="zone",
                hint="Run the command again: it reads the current records.",
            )
        if code == dns.rcode.NOTAUTH:
            raise _key_refused(f"{self.server} is not authoritative for {zone}, or does not know the key")
        if code == dns.rcode.REFUSED:
            raise Forbidden(
                f"{self.server} refused the update of {zone}.",
                path="key",
                hint="Allow updates with this key in the configuration of the server, or name another key with --key.",
            )
        raise self._failed(f"answered {dns.rcode.to_text(code)} to the update")

    def _failed(self, problem: str) -> FetchFailed:
        return FetchFailed(
            f"The nameserver {self.server} {problem.rstrip('.')}.",
            path="nameserver",
            hint="Check that it is running, and its port.",
        )


def make_record_set(name: str, kind: str, ttl: int, records: Iterable[dns.rdata.Rdata]) -> RecordSet:
    texts = sorted({rdata.to_text() for rdata in records})
    return RecordSet(name=name.lower().rstrip("."), type=kind, ttl=ttl, data=tuple(texts))


def parse_record_sets(lines: Iterable[tuple[str, str, int, str]]) -> list[RecordSet]:
    """Record sets from records in text form (name, type, TTL, data), with normalised data for comparison."""
    grouped: dict[tuple[str, str], tuple[int, list[dns.rdata.Rdata]]] = {}
    for name, kind, ttl, data in lines:
        try:
            rdata = dns.rdata.from_text("IN", kind, data, relativize=False)
        except dns.exception.DNSException as error:
            raise InvalidDocument(f"{name} {kind} is malformed: {error}.", path="zone") from None
        grouped.setdefault((name, kind), (ttl, []))[1].append(rdata)
    return [make_record_set(name, kind, ttl, records) for (name, kind), (ttl, records) in grouped.items()]


def _require(message: dns.update.UpdateMessage, change: RecordSetChange) -> None:
    if change.before is None:
        message.absent(_name(change), change.type)
    else:
        message.present(_name(change), _rdataset(change.before, 0))  # RFC 2136 §2.4.2: prerequisites have TTL 0


def _replace(message: dns.update.UpdateMessage, change: RecordSetChange) -> None:
    message.delete(_name(change), change.type)
    if change.after is not None:
        message.add(_name(change), _rdataset(change.after, change.after.ttl))


def _name(change: RecordSetChange) -> dns.name.Name:
    return dns.name.from_text(change.name)


def _rdataset(record_set: RecordSet, ttl: int) -> dns.rdataset.Rdataset:
    records = [dns.rdata.from_text("IN", record_set.type, text, relativize=False) for text in record_set.data]
    return dns.rdataset.from_rdata_list(ttl, records)


def _key_refused(reason: str) -> Unauthorized:
    return Unauthorized(
        f"The update was rejected: {reason.rstrip('.')}.",
        path="key",
        hint="Name the TSIG key of the server with --key, and check both clocks.",
    )


def update_key_path(data: Path) -> Path:
    """Where `waypost dns serve` keeps its TSIG key."""
    return data / NAMESERVER_FOLDER / "update.key"


def parse_tsig(text: str, path: str = "key") -> dns.tsig.Key:
    """A BIND key statement (`key "name" { algorithm …; secret "…"; };`), or one line `[algorithm:]name:secret`."""
    match = _TSIG_STATEMENT.match(text) or _TSIG_LINE.match(text.strip())
    if match is None:
        raise ConfigurationError(
            f"{path} contains no TSIG key.", path="key", hint="Write the output of `tsig-keygen`, or name:secret."
        )
    algorithm = (match["algorithm"] or DEFAULT_TSIG_ALGORITHM).lower().rstrip(".")
    if algorithm not in _TSIG_ALGORITHMS:
        raise ConfigurationError(
            f"{algorithm[:32]!r} is not a supported TSIG algorithm.",
            path="key",
            hint=f"Use {', '.join(_TSIG_ALGORITHMS)}.",
        )
    try:
        base64.b64decode(match["secret"], validate=True)
    except ValueError:
        raise ConfigurationError(f"The secret in {path} is not base64.", path="key") from None
    return dns.tsig.Key(dns.name.from_text(match["name"]), match["secret"], dns.name.from_text(algorithm))


async def find_zone(resolver: DnsResolver, name: str) -> tuple[str, str]:
    """The zone of a name, and the primary nameserver in its SOA record."""
    above = name
    while "." in above:
        found = await resolver.lookup(above, "SOA")
        if found.outcome == "failed":
            raise FetchFailed(f"Cannot look up {above}: {found.reason}.", path="resolver", hint="Name --nameserver.")
        for rdata in parse_lookup_records(found):
            return above, str(rdata.mname.to_text(omit_final_dot=True)).lower()
        above = above.partition(".")[2]
    raise FetchFailed(f"{name} is in no zone.", path="resolver", hint="Name --nameserver and --zone.")


async def find_servers(resolver: DnsResolver, zone: str) -> list[DnsServer]:
    """All nameservers of a zone, by address."""
    found = await resolver.lookup(zone, "NS")
    names = [str(rdata.target.to_text(omit_final_dot=True)).lower() for rdata in parse_lookup_records(found)]
    servers: list[DnsServer] = []
    for name in sorted(names):
        servers += await find_server_addresses(resolver, name)
    return servers


async def find_server_addresses(resolver: DnsResolver, host: str) -> list[DnsServer]:
    kinds: tuple[RecordType, ...] = ("A", "AAAA")
    return [
        make_plain_server(str(rdata.address))
        for kind in kinds
        for rdata in parse_lookup_records(await resolver.lookup(host, kind))
    ]


def lookup_record_set(lookup: DnsLookup) -> RecordSet | None:
    """The records of a lookup; None if there are none."""
    records = parse_lookup_records(lookup)
    return make_record_set(lookup.name, lookup.type, lookup.ttl, records) if records else None


def parse_lookup_records(lookup: DnsLookup) -> list[Any]:
    """As dnspython values; each type has attributes of its own."""
    kind = dns.rdatatype.from_text(lookup.type)
    return [dns.rdata.from_wire(dns.rdataclass.IN, kind, data, 0, len(data)) for data in lookup.records]
