"""A DNSSEC-signed zone in memory, and the folder that stores zones and keys.

The whole zone is signed again whenever it changes: a development zone has hundreds of names, not millions. Denial is by NSEC:
hiding names from zone walking is of no use here.
"""

from __future__ import annotations

import base64
import bisect
import datetime
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

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
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from dns.dnssectypes import Algorithm
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.dnskeybase import Flag

from waypost.errors import ConfigurationError, InvalidDocument
from waypost.files import write_atomic
from waypost.model.names import parse_domain
from waypost.net.dns.zone_client import DEFAULT_TSIG_ALGORITHM, NAMESERVER_FOLDER, parse_tsig, update_key_path

SigningKey: TypeAlias = Ed25519PrivateKey | EllipticCurvePrivateKey

SIGNED_SECONDS = 14 * 86_400

_BACKDATED_SECONDS = 3600  # for validators whose clock is slow

_UPDATE_KEY_NAME = "waypost-update"

_UPDATE_SECRET_BYTES = 32

_DNSSEC_TYPES = (RdataType.RRSIG, RdataType.NSEC, RdataType.DNSKEY, RdataType.NSEC3, RdataType.NSEC3PARAM)

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
        """The DS record that a validator can use as a trust anchor."""
        if self.key is None:
            return None
        ds = dns.dnssec.make_ds(self.origin, _dnskey(self.key), "SHA256")
        return f"{self.name} 3600 IN DS {ds.to_text()}"

    def is_stale(self, now: float) -> bool:
        return self.key is not None and now > self._signed_at + SIGNED_SECONDS / 2

    def resign(self, now: float) -> None:
        """Sign the zone again, with a new serial."""
        self._increment_serial()
        self._sign(now)

    def text(self) -> str:
        """The zone file, without the records that signing adds."""
        return str(self.plain.to_text(relativize=False, want_origin=True))

    def find(self, name: dns.name.Name, kind: RdataType, *, signed: bool) -> list[dns.rrset.RRset]:
        """The records of a name and type, and their signatures."""
        return self.find_as(name, name, kind, signed=signed)

    def find_as(
        self, owner: dns.name.Name, name: dns.name.Name, kind: RdataType, *, signed: bool
    ) -> list[dns.rrset.RRset]:
        """The records of `name` with another owner name: a wildcard is returned under the queried name."""
        node = self._signed.get_node(name)
        found = None if node is None else node.get_rdataset(dns.rdataclass.IN, kind)
        if node is None or found is None:
            return []
        sets = [_rrset(owner, found)]
        signatures = node.get_rdataset(dns.rdataclass.IN, RdataType.RRSIG, kind) if signed else None
        return sets if signatures is None else [*sets, _rrset(owner, signatures)]

    def kinds_at(self, name: dns.name.Name) -> set[RdataType] | None:
        """The types of a name; empty for an empty non-terminal, None if the name does not exist."""
        node = self._signed.get_node(name)
        if node is not None:
            return {rdataset.rdtype for rdataset in node}
        return set() if self._is_empty_non_terminal(name) else None

    def soa(self, *, signed: bool) -> list[dns.rrset.RRset]:
        """For negative answers: the TTL is the SOA minimum."""
        sets = self.find(self.origin, RdataType.SOA, signed=signed)
        ttl = min(sets[0].ttl, sets[0][0].minimum)
        for rrset in sets:
            rrset.ttl = ttl
        return sets

    def denial(self, name: dns.name.Name) -> list[dns.rrset.RRset]:
        """The NSEC record of the name, or the one that covers the gap."""
        if not self._nsec_names:
            return []
        at = bisect.bisect_right(self._nsec_names, name) - 1
        return self.find(self._nsec_names[at], RdataType.NSEC, signed=True)

    def cut_above(self, name: dns.name.Name) -> dns.name.Name | None:
        """The delegation at or above a name, if there is one."""
        for depth in range(len(self.origin) + 1, len(name) + 1):
            above = name.split(depth)[1]
            node = self.plain.get_node(above)
            if node is not None and node.get_rdataset(dns.rdataclass.IN, RdataType.NS) is not None:
                return above
        return None

    def encloser(self, name: dns.name.Name) -> dns.name.Name:
        """The closest encloser (RFC 4592 §3.3.1)."""
        above = name
        while above != self.origin and self.kinds_at(above) is None:
            above = above.parent()
        return above

    def _is_empty_non_terminal(self, name: dns.name.Name) -> bool:
        at = bisect.bisect_right(self._names, name)
        return at < len(self._names) and self._names[at].is_subdomain(name)

    def _sign(self, now: float) -> None:
        self._signed_at = now
        signed = _copy(self.plain)
        if self.key is not None:
            begin = datetime.datetime.fromtimestamp(now - _BACKDATED_SECONDS, datetime.UTC)
            dns.dnssec.sign_zone(
                signed,
                keys=[(self.key, _dnskey(self.key))],
                inception=begin,
                lifetime=SIGNED_SECONDS + _BACKDATED_SECONDS,
                dnskey_ttl=3600,
            )
        self._signed = signed
        self._names = sorted(signed.nodes)
        self._nsec_names = [name for name in self._names if signed.get_rdataset(name, RdataType.NSEC) is not None]

    def _soa(self) -> dns.rdataset.Rdataset:
        return self.plain.find_rdataset(self.origin, RdataType.SOA)

    def _increment_serial(self) -> None:
        soa = self._soa()
        incremented = soa[0].replace(serial=(soa[0].serial + 1) % 2**32 or 1)
        self.plain.replace_rdataset(self.origin, dns.rdataset.from_rdata(soa.ttl, incremented))


def parse_zone(name: str, text: str = "", file: str = "zone") -> dns.zone.Zone:
    """Parse a zone file. Missing SOA and NS records are added; DNSSEC records are removed."""
    origin = dns.name.from_text(name)
    try:
        zone = dns.zone.from_text(text, origin=origin, relativize=False, check_origin=False, allow_include=False)
    except (dns.exception.DNSException, ValueError) as error:
        raise InvalidDocument(
            f"{file} is not a zone file: {error}.", path=file, hint="`waypost dns zone` writes a valid one."
        ) from None
    for kind, lines in ((RdataType.SOA, _SOA), (RdataType.NS, _NS)):
        if zone.get_rdataset(origin, kind) is None:
            add_records(zone, lines.format(name=origin.to_text()))
    for name_, node in list(zone.nodes.items()):
        for rdataset in [each for each in node if each.rdtype in _DNSSEC_TYPES]:
            zone.delete_rdataset(name_, rdataset.rdtype, rdataset.covers)
    return zone


def add_records(zone: dns.zone.Zone, text: str) -> None:
    """Add records in text form. Names outside the zone are ignored."""
    origin = _origin(zone)
    for rrset in dns.zonefile.read_rrsets(text, rdclass=None, origin=origin, relativize=False):
        if rrset.name.is_subdomain(origin):
            rdataset = zone.find_rdataset(rrset.name, rrset.rdtype, create=True)
            for rdata in rrset:
                rdataset.add(rdata, rrset.ttl)


def _origin(zone: dns.zone.Zone) -> dns.name.Name:
    if zone.origin is None:
        raise InvalidDocument("The zone has no name.", path="zone")
    return zone.origin


def _copy(zone: dns.zone.Zone) -> dns.zone.Zone:
    copied = dns.zone.Zone(_origin(zone), relativize=False)
    for name, rdataset in zone.iterate_rdatasets():
        copied.replace_rdataset(name, dns.rdataset.from_rdata_list(rdataset.ttl, list(rdataset)))
    return copied


def _rrset(name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> dns.rrset.RRset:
    return dns.rrset.from_rdata_list(name, rdataset.ttl, list(rdataset))


class ZoneFolder:
    """Zone files, signing keys, the TSIG key for updates, and the trust anchors. Readable by the owner alone."""

    def __init__(self, data: Path) -> None:
        self.path = data / NAMESERVER_FOLDER
        self.update_key = update_key_path(data)

    @property
    def anchors(self) -> Path:
        """A file for the setting `trust_anchors`, and for unbound's `trust-anchor-file`."""
        return self.path / "trust-anchors"

    def load_update_key(self) -> dns.tsig.Key:
        """The TSIG key; created if there is none."""
        text = _read_or_create(self.update_key, _new_tsig).decode("utf-8", "replace")
        return parse_tsig(text, str(self.update_key))

    def open(self, name: str, algorithm: str, now: float, *, text: str | None = None, more: str = "") -> SignedZone:
        """The stored zone, or the one in `text`; with the records in `more` added."""
        name = parse_domain(name, "zone")
        plain = parse_zone(name, self._read(name) if text is None else text, f"{name}.zone")
        add_records(plain, more)
        key = None if algorithm == "none" else _load_signing_key(self.path / f"{name}.{algorithm}.pem", algorithm)
        zone = SignedZone(plain, key, now)
        self.save(zone)
        return zone

    def save(self, zone: SignedZone) -> None:
        write_atomic(self.path / f"{zone.name.rstrip('.')}.zone", zone.text().encode())

    def save_anchors(self, zones: list[SignedZone]) -> None:
        lines = [line for zone in zones if (line := zone.anchor()) is not None]
        write_atomic(self.anchors, "".join(f"{line}\n" for line in lines).encode())

    def _read(self, name: str) -> str:
        path = self.path / f"{name}.zone"
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise _unusable_file(path, error) from None


def _dnskey(key: SigningKey) -> DNSKEY:
    """One key signs both the zone and the keys."""
    algorithm = Algorithm.ED25519 if isinstance(key, Ed25519PrivateKey) else Algorithm.ECDSAP256SHA256
    return dns.dnssec.make_dnskey(key.public_key(), algorithm, flags=Flag.ZONE | Flag.SEP)


def _load_signing_key(path: Path, algorithm: str) -> SigningKey:
    """The key in a file; created if there is none."""
    key = load_pem_private_key(_read_or_create(path, lambda: _new_signing_key(algorithm)), None)
    if not isinstance(key, SigningKey):
        raise ConfigurationError(f"{path.name} is not a zone signing key.", path="data", hint="Remove the file.")
    return key


def _new_signing_key(algorithm: str) -> bytes:
    key: SigningKey = Ed25519PrivateKey.generate() if algorithm == "ed25519" else generate_private_key(SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _new_tsig() -> bytes:
    secret = base64.b64encode(secrets.token_bytes(_UPDATE_SECRET_BYTES)).decode()
    fields = f'    algorithm {DEFAULT_TSIG_ALGORITHM};\n    secret "{secret}";\n'
    return f'key "{_UPDATE_KEY_NAME}" {{\n{fields}}};\n'.encode()


def _read_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        write_atomic(path, make())
        return path.read_bytes()
    except OSError as error:
        raise _unusable_file(path, error) from None


def _unusable_file(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Cannot use {path}: {error.strerror}.", path="data", hint="Name a folder of your own with --data."
    )
