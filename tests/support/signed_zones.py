"""Zones signed by the test, valid or broken: keys, NSEC or NSEC3, times, and edits after signing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdataset
import dns.rdatatype
import dns.zone
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from dns.rdtypes.ANY.DNSKEY import DNSKEY

DAY = 86_400
NOW = 1_767_225_600.0  # the hour of every test that does not ask a real server for its own
TTL = 300
_IN = dns.rdataclass.IN
_NS, _DS, _SOA = dns.rdatatype.NS, dns.rdatatype.DS, dns.rdatatype.SOA


_made = count()


def _bytes(seed: str, length: int) -> bytes:
    return hashlib.shake_256(seed.encode()).digest(length)


@dataclass(frozen=True)
class ZoneKey:
    private: Any
    record: DNSKEY

    @property
    def tag(self) -> int:
        return dns.dnssec.key_id(self.record)

    def ds(self, zone: str, digest: int = 2) -> str:
        made = dns.dnssec.make_ds(zone, self.record, dns.dnssec.DSDigest(digest), policy=dns.dnssec.allow_all_policy)  # type: ignore[attr-defined]
        return made.to_text()


def new_key(algorithm: int = 13, flags: int = 257, which: str | None = None) -> ZoneKey:
    """A new key, or with a seed a deterministic one (except RSA)."""
    private: Any
    seed = f"{algorithm} {next(_made) if which is None else which}"
    if algorithm in (5, 7, 8, 10):
        private = rsa.generate_private_key(65537, 1024 if algorithm in (5, 7) else 2048)
    elif algorithm == 15:
        private = ed25519.Ed25519PrivateKey.from_private_bytes(_bytes(seed, 32))
    elif algorithm == 16:
        private = ed448.Ed448PrivateKey.from_private_bytes(_bytes(seed, 57))
    else:
        number = int.from_bytes(_bytes(seed, 31))  # one byte less than the order of the smaller group
        private = ec.derive_private_key(number, ec.SECP384R1() if algorithm == 14 else ec.SECP256R1())
    return ZoneKey(private, dns.dnssec.make_dnskey(private.public_key(), dns.dnssec.Algorithm(algorithm), flags))  # type: ignore[attr-defined]


@lru_cache
def key(algorithm: int = 13, which: str = "") -> ZoneKey:
    """A cached key: generating keys is slow."""
    return new_key(algorithm, which=which)


@dataclass(frozen=True)
class Nsec3:
    iterations: int = 0
    salt: bytes = b""
    opt_out: bool = False


@dataclass
class SignedZone:
    """`body` holds records in presentation form with relative names; SOA and NS are added."""

    name: str
    body: str
    keys: Sequence[ZoneKey] = ()  # all that are shown
    signers: Sequence[ZoneKey] | None = None  # of all records but the keys; by default all
    key_signers: Sequence[ZoneKey] | None = None
    ds: str | None = None  # a wrong answer of the parent; "" for none
    digest: int = 2
    nsec3: Nsec3 | None = None
    inception: float = NOW - 10 * DAY
    expiration: float = NOW + 20 * DAY
    edit: Callable[[str], str] = field(default=lambda text: text)
    minimum: int = 60

    @property
    def origin(self) -> dns.name.Name:
        return dns.name.from_text(self.name)

    def ds_lines(self) -> list[str]:
        if self.ds is not None:
            return self.ds.splitlines()
        return [key.ds(self.name, self.digest) for key in self.keys[:1]]

    def delegation(self) -> str:
        """The delegation records of the parent."""
        lines = [f"{self.name} {TTL} IN NS ns.test."]
        return "\n".join(lines + [f"{self.name} {TTL} IN DS {ds}" for ds in self.ds_lines()])

    def text(self) -> str:
        return self.edit("\n".join(self._lines()) + "\n")

    def _zone(self) -> dns.zone.Zone:
        head = f"@ {TTL} IN SOA ns.test. admin.test. 1 3600 900 604800 {self.minimum}\n@ {TTL} IN NS ns.test.\n"
        text = f"$TTL {TTL}\n{head}{self.body}\n"
        return dns.zone.from_text(text, origin=self.origin, relativize=False, check_origin=False)

    def _lines(self) -> Iterator[str]:
        zone = self._zone()
        if self.keys:
            rows = [key.record for key in self.keys]
            zone.replace_rdataset(self.origin, dns.rdataset.from_rdata_list(TTL, rows))
            self._deny(zone)
        for name, node in sorted(zone.nodes.items()):
            for rdataset in node:
                yield from _shown(name, rdataset)
                if self.keys and self._is_signed(zone, name, rdataset):
                    yield from self._signatures(name, rdataset)

    def _is_signed(self, zone: dns.zone.Zone, name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> bool:
        if _is_below_cut(zone, name, self.origin):
            return False
        own = (_DS, dns.rdatatype.NSEC)
        return not _is_cut(zone, name, self.origin) or rdataset.rdtype in own

    def _signatures(self, name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> Iterator[str]:
        signers = self.key_signers if rdataset.rdtype == dns.rdatatype.DNSKEY else self.signers
        for key in self.keys if signers is None else signers:
            made = dns.dnssec.sign(
                (name, rdataset),
                key.private,
                self.origin,
                key.record,
                inception=int(self.inception),
                expiration=int(self.expiration),
                policy=dns.dnssec.allow_all_policy,
                deterministic=False,
            )
            yield from _shown(name, dns.rdataset.from_rdata(rdataset.ttl, made))

    def _deny(self, zone: dns.zone.Zone) -> None:
        names = [name for name in sorted(zone.nodes) if not _is_below_cut(zone, name, self.origin)]
        if self.nsec3 is None:
            for name, after in zip(names, [*names[1:], self.origin], strict=True):
                types = [*_types(zone, name, self.origin), "RRSIG", "NSEC"]
                _put(zone, name, "NSEC", f"{after} {' '.join(types)}", self.minimum)
            return
        self._deny_hashed(zone, names, self.nsec3)

    def _deny_hashed(self, zone: dns.zone.Zone, names: list[dns.name.Name], nsec3: Nsec3) -> None:
        parameters = f"1 0 {nsec3.iterations} {nsec3.salt.hex() or '-'}"
        _put(zone, self.origin, "NSEC3PARAM", parameters, 0)
        hashed: dict[str, str] = {}
        for name in names:
            if nsec3.opt_out and _is_cut(zone, name, self.origin) and zone.get_rdataset(name, _DS) is None:
                continue
            types = _types(zone, name, self.origin)
            signed = not _is_cut(zone, name, self.origin) or "DS" in types
            hashed[self._hash(name, nsec3)] = " ".join([*types, *(["RRSIG"] if signed else [])])
            while (name := name.parent()) != self.origin and name.is_subdomain(self.origin):
                hashed.setdefault(self._hash(name, nsec3), "")
        order = sorted(hashed)
        for one, after in zip(order, [*order[1:], order[0]], strict=True):
            text = f"1 {int(nsec3.opt_out)} {nsec3.iterations} {nsec3.salt.hex() or '-'} {after} {hashed[one]}"
            _put(zone, dns.name.from_text(one, self.origin), "NSEC3", text, self.minimum)

    def _hash(self, name: dns.name.Name, nsec3: Nsec3) -> str:
        return dns.dnssec.nsec3_hash(name, nsec3.salt, nsec3.iterations, 1).lower()


def _shown(name: dns.name.Name, rdataset: dns.rdataset.Rdataset) -> Iterator[str]:
    for rdata in rdataset:
        yield f"{name} {rdataset.ttl} IN {dns.rdatatype.to_text(rdata.rdtype)} {rdata.to_text()}"


def _put(zone: dns.zone.Zone, name: dns.name.Name, kind: str, text: str, ttl: int) -> None:
    rdata = dns.rdata.from_text(_IN, kind, text, origin=dns.name.root, relativize=False)
    zone.replace_rdataset(name, dns.rdataset.from_rdata(ttl, rdata))


def _types(zone: dns.zone.Zone, name: dns.name.Name, origin: dns.name.Name) -> list[str]:
    kinds = [rdataset.rdtype for rdataset in zone.get_node(name) or ()]
    if _is_cut(zone, name, origin):
        kinds = [kind for kind in kinds if kind in (_NS, _DS)]
    return [dns.rdatatype.to_text(kind) for kind in kinds]


def _is_cut(zone: dns.zone.Zone, name: dns.name.Name, origin: dns.name.Name) -> bool:
    return name != origin and zone.get_rdataset(name, _NS) is not None


def _is_below_cut(zone: dns.zone.Zone, name: dns.name.Name, origin: dns.name.Name) -> bool:
    while name != origin:
        name = name.parent()
        if name != origin and _is_cut(zone, name, origin):
            return True
    return False


def tampered(old: str, new: str) -> Callable[[str], str]:
    """Change one record after signing."""

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return edit


def without_signatures(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if " RRSIG " not in line) + "\n"
