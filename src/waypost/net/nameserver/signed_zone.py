"""One zone, signed: what is there, what is not, and the proof of either.

It is signed whole whenever it changes: a zone for development has hundreds of names, not millions. Denial is by NSEC, because
nobody walks a zone that is there to be looked at.
"""

from __future__ import annotations

import bisect
import datetime
from pathlib import Path

import dns.dnssec
import dns.exception
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.zone
import dns.zonefile
from dns.rdatatype import RdataType

from waypost.errors import InvalidDocument
from waypost.model.names import parse_domain
from waypost.net.dns.key_files import SigningKey, dnskey_of, load_signing_key, load_update_key, unusable_file
from waypost.private_files import write_atomic

SIGNED_SECONDS = 14 * 86_400

_EARLIER_SECONDS = 3600  # for clocks that are behind

_SIGNATURES = (RdataType.RRSIG, RdataType.NSEC, RdataType.DNSKEY, RdataType.NSEC3, RdataType.NSEC3PARAM)

_SOA = "{name} 60 IN SOA ns.{name} hostmaster.{name} 1 3600 600 86400 60\n"

_NS = "{name} 3600 IN NS ns.{name}\nns.{name} 3600 IN A 127.0.0.1\n"


class SignedZone:
    def __init__(self, plain: dns.zone.Zone, key: SigningKey | None, now: float) -> None:
        self.plain = plain
        self.key = key
        self.origin = _origin(plain)
        self._sign(now)

    @property
    def name(self) -> str:
        return self.origin.to_text()

    @property
    def serial(self) -> int:
        return int(self._soa()[0].serial)

    def anchor(self) -> str | None:
        """The DS record that a validator takes for a trust anchor."""
        if self.key is None:
            return None
        ds = dns.dnssec.make_ds(self.origin, dnskey_of(self.key), "SHA256")
        return f"{self.name} 3600 IN DS {ds.to_text()}"

    def is_stale(self, now: float) -> bool:
        return self.key is not None and now > self._signed_at + SIGNED_SECONDS / 2

    def resign(self, now: float) -> None:
        """Sign anew what is there, under a new serial."""
        self._raise_serial()
        self._sign(now)

    def text(self) -> str:
        """What is there, without what was made by signing."""
        return str(self.plain.to_text(relativize=False, want_origin=True))

    # --- Looking ----------------------------------------------------------------------------------

    def find(self, name: dns.name.Name, kind: RdataType, *, signed: bool) -> list[dns.rrset.RRset]:
        """The records of a name and type, and their signatures."""
        return self.under(name, name, kind, signed=signed)

    def under(
        self, shown: dns.name.Name, name: dns.name.Name, kind: RdataType, *, signed: bool
    ) -> list[dns.rrset.RRset]:
        """The same as of another name: a wildcard answers under the name that was asked for."""
        node = self._signed.get_node(name)
        found = None if node is None else node.get_rdataset(dns.rdataclass.IN, kind)
        if node is None or found is None:
            return []
        sets = [_rrset(shown, found)]
        signatures = node.get_rdataset(dns.rdataclass.IN, RdataType.RRSIG, kind) if signed else None
        return sets if signatures is None else [*sets, _rrset(shown, signatures)]

    def kinds_at(self, name: dns.name.Name) -> set[RdataType] | None:
        """The types of a name; empty where it only lies on the way to others, None where nothing is."""
        node = self._signed.get_node(name)
        if node is not None:
            return {held.rdtype for held in node}
        return set() if self._is_between(name) else None

    def soa(self, *, signed: bool) -> list[dns.rrset.RRset]:
        """For answers about what is not there: they may be remembered as long as its minimum says."""
        sets = self.find(self.origin, RdataType.SOA, signed=signed)
        least = min(sets[0].ttl, sets[0][0].minimum)
        for each in sets:
            each.ttl = least
        return sets

    def denial(self, name: dns.name.Name) -> list[dns.rrset.RRset]:
        """The NSEC of the name, or of the one before the gap where it would be."""
        if not self._covering:
            return []
        at = bisect.bisect_right(self._covering, name) - 1
        return self.find(self._covering[at], RdataType.NSEC, signed=True)

    def cut_above(self, name: dns.name.Name) -> dns.name.Name | None:
        """Where the zone ends on the way to a name: it is delegated."""
        for depth in range(len(self.origin) + 1, len(name) + 1):
            above = name.split(depth)[1]
            node = self.plain.get_node(above)
            if node is not None and node.get_rdataset(dns.rdataclass.IN, RdataType.NS) is not None:
                return above
        return None

    def encloser(self, name: dns.name.Name) -> dns.name.Name:
        """The longest name above that exists."""
        above = name
        while above != self.origin and self.kinds_at(above) is None:
            above = above.parent()
        return above

    def _is_between(self, name: dns.name.Name) -> bool:
        at = bisect.bisect_right(self._names, name)
        return at < len(self._names) and self._names[at].is_subdomain(name)

    # --- Signing ----------------------------------------------------------------------------------

    def _sign(self, now: float) -> None:
        self._signed_at = now
        signed = _copy(self.plain)
        if self.key is not None:
            begin = datetime.datetime.fromtimestamp(now - _EARLIER_SECONDS, datetime.UTC)
            dns.dnssec.sign_zone(
                signed,
                keys=[(self.key, dnskey_of(self.key))],
                inception=begin,
                lifetime=SIGNED_SECONDS + _EARLIER_SECONDS,
                dnskey_ttl=3600,
            )
        self._signed = signed
        self._names = sorted(signed.nodes)
        self._covering = [name for name in self._names if signed.get_rdataset(name, RdataType.NSEC) is not None]

    def _soa(self) -> dns.rdataset.Rdataset:
        return self.plain.find_rdataset(self.origin, RdataType.SOA)

    def _raise_serial(self) -> None:
        held = self._soa()
        fresh = held[0].replace(serial=(held[0].serial + 1) % 2**32 or 1)
        self.plain.replace_rdataset(self.origin, dns.rdataset.from_rdata(held.ttl, fresh))


def parse_zone(name: str, text: str = "", file: str = "zone") -> dns.zone.Zone:
    """A zone from its text. What a zone must have at its top is added where it is missing."""
    origin = dns.name.from_text(name)
    try:
        zone = dns.zone.from_text(text, origin=origin, relativize=False, check_origin=False, allow_include=False)
    except (dns.exception.DNSException, ValueError) as error:
        raise InvalidDocument(
            f"{file} is not a zone: {error}.", path=file, hint="`waypost dns zone` writes one that can be read."
        ) from None
    for kinds, lines in ((RdataType.SOA, _SOA), (RdataType.NS, _NS)):
        if zone.get_rdataset(origin, kinds) is None:
            add_records(zone, lines.format(name=origin.to_text()))
    for held in list(zone.nodes):
        for kind in _SIGNATURES:
            for rdataset in [each for each in zone.nodes[held] if each.rdtype == kind]:
                zone.delete_rdataset(held, kind, rdataset.covers)
    return zone


def add_records(zone: dns.zone.Zone, text: str) -> None:
    """Add records in their text form. Names outside the zone are left out: they are not its to tell."""
    origin = _origin(zone)
    for rrset in dns.zonefile.read_rrsets(text, rdclass=None, origin=origin, relativize=False):
        if rrset.name.is_subdomain(origin):
            held = zone.find_rdataset(rrset.name, rrset.rdtype, create=True)
            for rdata in rrset:
                held.add(rdata, rrset.ttl)


def _origin(zone: dns.zone.Zone) -> dns.name.Name:
    if zone.origin is None:
        raise InvalidDocument("The zone has no name.", path="zone")
    return zone.origin


def _copy(zone: dns.zone.Zone) -> dns.zone.Zone:
    made = dns.zone.Zone(_origin(zone), relativize=False)
    for name, held in zone.iterate_rdatasets():
        made.replace_rdataset(name, dns.rdataset.from_rdata_list(held.ttl, list(held)))
    return made


def _rrset(name: dns.name.Name, held: dns.rdataset.Rdataset) -> dns.rrset.RRset:
    return dns.rrset.from_rdata_list(name, held.ttl, list(held))


# ---- The nameserver's folder: its zones as text, the keys that sign them, the key for updates, and the anchors to trust.

FOLDER = "dns"


class ZoneFolder:
    def __init__(self, data: Path) -> None:
        self.path = data / FOLDER

    @property
    def anchors(self) -> Path:
        """What `trust_anchors` takes, and unbound's `trust-anchor-file`."""
        return self.path / "trust-anchors"

    @property
    def update_key(self) -> Path:
        return self.path / "update.key"

    def tsig(self) -> dns.tsig.Key:
        return load_update_key(self.update_key)

    def open(self, name: str, algorithm: str, now: float, *, text: str | None = None, more: str = "") -> SignedZone:
        """A zone as it was left, or as `text` has it; with `more` records in any case."""
        name = parse_domain(name, "zone")
        plain = parse_zone(name, self._kept(name) if text is None else text, f"{name}.zone")
        add_records(plain, more)
        key = None if algorithm == "none" else load_signing_key(self.path / f"{name}.{algorithm}.pem", algorithm)
        zone = SignedZone(plain, key, now)
        self.keep(zone)
        return zone

    def keep(self, zone: SignedZone) -> None:
        write_atomic(self.path / f"{zone.name.rstrip('.')}.zone", zone.text().encode())

    def keep_anchors(self, zones: list[SignedZone]) -> None:
        lines = [line for zone in zones if (line := zone.anchor()) is not None]
        write_atomic(self.anchors, "".join(f"{line}\n" for line in lines).encode())

    def _kept(self, name: str) -> str:
        path = self.path / f"{name}.zone"
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise unusable_file(path, error) from None
