"""What is written into a zone for an agent: SVCB, the TXT and SRV of ADP, TLSA, and the index of an organisation.

Records are made from a `ZonePlan`, which somebody else filled in; nothing is looked up here. Values that could end a parameter
early are refused (AID-18), and so are names that no certificate can hold (AID-4).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.wire import svcb
from waypost.wire.adp_txt import AdpTxt, write_adp_txt
from waypost.wire.dns_data import is_host, read_strings, write_name, write_text
from waypost.wire.srv import Srv, write_srv
from waypost.wire.svcb import ServiceBinding, make_params, to_presentation, write_svcb
from waypost.wire.tlsa import Tlsa, write_tlsa

DEFAULT_PORT = 443
_PRIVATE_KEYS = svcb.AGENT_KEYS
_HEADER_BYTES = 12 + 5  # of a message, and of the question beside its name
Values: TypeAlias = dict[int, str | int | Iterable[str]]
_RECORD_BYTES = 10  # type, class, TTL and length


class ZoneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record: `data` as it is on the wire, `text` as a zone file holds it."""

    name: str  # lower case, without a final dot
    type: str
    ttl: int
    data: bytes
    text: str


class IndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in the index of an organisation."""

    domain: str
    protocol: str


class Further(msgspec.Struct, frozen=True, kw_only=True):
    """One more protocol of the same agent, at a place of its own: a record of its own (AID-8)."""

    protocol: str
    host: str
    port: int


class ZonePlan(msgspec.Struct, frozen=True, kw_only=True):
    domain: str
    metadata_url: str
    target: str = ""  # empty: the domain itself
    port: int = DEFAULT_PORT
    protocol: str = "a2a"  # what ADP calls its own (ADP-3)
    transports: tuple[str, ...] = ("h2",)
    well_known: str = "agent.json"
    capabilities_url: str | None = None
    capabilities_digest: str | None = None
    fingerprint: str | None = None
    addresses: tuple[str, ...] = ()
    certificates: tuple[Tlsa, ...] = ()
    further: tuple[Further, ...] = ()
    organisation: str | None = None
    index: tuple[IndexEntry, ...] = ()
    index_host: str | None = None
    ttl: int = 3600

    @property
    def host(self) -> str:
        return self.target or self.domain


class Zone(msgspec.Struct, frozen=True, kw_only=True):
    domain: str
    records: tuple[ZoneRecord, ...]
    warnings: tuple[str, ...] = ()


def make_zone(plan: ZonePlan, *, private_keys: bool = True) -> Zone:
    """The records of a plan. Without `private_keys` for servers that refuse them: SVCB says what has a name, TXT the rest."""
    _check(plan)
    records = [
        *_bindings(plan, private_keys=private_keys),
        *_fallback(plan),
        *_addresses(plan),
        *_certificates(plan),
        *_index(plan, private_keys=private_keys),
    ]
    return Zone(domain=plan.domain, records=tuple(records), warnings=tuple(_warnings(plan, records)))


def _check(plan: ZonePlan) -> None:
    hosts = [plan.domain, plan.target, plan.index_host or "", plan.organisation or ""]
    hosts += [one.host for one in plan.further]
    for host in hosts:
        if host and not is_host(host):
            raise InvalidParameter(
                f"{host[:64]!r} is no name of a host: no certificate can be given for it.",
                path="target",
                hint="Use letters, digits and hyphens; no underscores (AID-4).",
            )


# --- The agent itself -----------------------------------------------------------------------------


def _bindings(plan: ZonePlan, *, private_keys: bool) -> Iterable[ZoneRecord]:
    values: Values = {
        svcb.MANDATORY: ("alpn", "port"),
        svcb.ALPN: (plan.protocol, *plan.transports),
        svcb.PORT: plan.port,
        svcb.IPV4HINT: [text for text in plan.addresses if ":" not in text],
        svcb.IPV6HINT: [text for text in plan.addresses if ":" in text],
        svcb.CAP: plan.capabilities_url or "",
        svcb.CAP_SHA256: plan.capabilities_digest or "",
        svcb.BAP: plan.protocol,
        svcb.WELL_KNOWN: plan.well_known,
    }
    # The owner's name in full, where "." would say the same: some readers of DNS-AID take "." for no target at all.
    yield _svcb(plan, plan.domain, 1, plan.host, _told(values, private_keys))
    for priority, other in enumerate(plan.further, start=2):
        more: Values = {
            svcb.MANDATORY: ("alpn", "port"),
            svcb.ALPN: (other.protocol, "h2"),
            svcb.PORT: other.port,
            svcb.BAP: other.protocol,
        }
        yield _svcb(plan, plan.domain, priority, other.host, _told(more, private_keys))


def _told(values: Values, private_keys: bool) -> Values:
    """For managed DNS the least that says it: alpn, and a port that is not the usual one."""
    told = {key: value for key, value in values.items() if value}
    if private_keys:
        return told
    usual = {svcb.PORT} if told.get(svcb.PORT) == DEFAULT_PORT else set()
    return {key: value for key, value in told.items() if key not in {*_PRIVATE_KEYS, svcb.MANDATORY, *usual}}


def _fallback(plan: ZonePlan) -> Iterable[ZoneRecord]:
    """ADP-15 and ADP-17. `pk` is in no key of SVCB, so the TXT record is there beside it as well (C-2)."""
    if plan.fingerprint is not None:
        told = AdpTxt(
            version="ADP1.1",
            fingerprint=plan.fingerprint,
            metadata_url=plan.metadata_url,
            alpn=plan.protocol,
            port=plan.port,
            protocol=plan.protocol,
        )
        yield _txt(plan, f"_agent.{plan.domain}", write_adp_txt(told))
    srv = Srv(priority=0, weight=0, port=plan.port, target=plan.host)
    text = f"{srv.priority} {srv.weight} {srv.port} {srv.target}."
    yield ZoneRecord(name=f"_agent._tcp.{plan.domain}", type="SRV", ttl=plan.ttl, data=write_srv(srv), text=text)


def _addresses(plan: ZonePlan) -> Iterable[ZoneRecord]:
    for text in plan.addresses:
        address = ipaddress.ip_address(text)
        kind = "A" if address.version == 4 else "AAAA"
        yield ZoneRecord(name=plan.host, type=kind, ttl=plan.ttl, data=address.packed, text=str(address))


def _certificates(plan: ZonePlan) -> Iterable[ZoneRecord]:
    """At the target, where the connection goes (ADP-9, AID-23)."""
    owner = f"_{plan.port}._tcp.{plan.host}"
    for tlsa in dict.fromkeys(plan.certificates):
        yield ZoneRecord(name=owner, type="TLSA", ttl=plan.ttl, data=write_tlsa(tlsa), text=str(tlsa))


# --- The organisation -----------------------------------------------------------------------------


def _index(plan: ZonePlan, *, private_keys: bool) -> Iterable[ZoneRecord]:
    """ADP's list of aliases, DNS-AID's walkable names, and its index with the text that stands in for it."""
    if plan.organisation is None:
        return
    for entry in plan.index:
        yield _svcb(plan, f"_agents.{plan.organisation}", 0, entry.domain, {})
    named = [(_label(entry.domain, plan.organisation), entry) for entry in plan.index]
    for label, entry in named:
        if label:
            yield _svcb(plan, f"{label}._agents.{plan.organisation}", 0, entry.domain, {})
    owner = f"_index._agents.{plan.organisation}"
    if plan.index_host is not None:
        values: Values = {
            svcb.MANDATORY: ("alpn", "port"),
            svcb.ALPN: plan.transports,
            svcb.PORT: plan.port,
            svcb.WELL_KNOWN: "ai-catalog.json",
        }
        yield _svcb(plan, owner, 1, plan.index_host, _told(values, private_keys))
    listed = ",".join(f"{label}:{entry.protocol}" for label, entry in named if label)
    if listed:
        yield _txt(plan, owner, f"agents={listed}")


def _label(domain: str, organisation: str) -> str | None:
    """The name of an agent inside its organisation; None when it is not one label below it."""
    if not domain.endswith(f".{organisation}"):
        return None
    label = domain.removesuffix(f".{organisation}")
    return None if "." in label else label


# --- Records --------------------------------------------------------------------------------------


def _svcb(plan: ZonePlan, name: str, priority: int, target: str, values: Values) -> ZoneRecord:
    binding = ServiceBinding(priority=priority, target=target, params=make_params(values))
    return ZoneRecord(name=name, type="SVCB", ttl=plan.ttl, data=write_svcb(binding), text=to_presentation(binding))


def _txt(plan: ZonePlan, name: str, text: str) -> ZoneRecord:
    data = write_text(text)
    shown = " ".join(f'"{part.decode("ascii", "backslashreplace")}"' for part in read_strings(data))
    return ZoneRecord(name=name, type="TXT", ttl=plan.ttl, data=data, text=shown)


def set_bytes(records: Iterable[ZoneRecord]) -> int:
    """How large an answer with these records is, names compressed as servers do, without signatures."""
    held = list(records)
    if not held:
        return 0
    size = _HEADER_BYTES + len(write_name(held[0].name))
    return size + sum(2 + _RECORD_BYTES + len(record.data) for record in held)


def sets_of(records: Iterable[ZoneRecord]) -> dict[tuple[str, str], list[ZoneRecord]]:
    """Records by name and type: what DNS answers, signs and replaces as one."""
    found: dict[tuple[str, str], list[ZoneRecord]] = {}
    for record in records:
        found.setdefault((record.name, record.type), []).append(record)
    return found


def _warnings(plan: ZonePlan, records: list[ZoneRecord]) -> Iterable[str]:
    for (name, kind), held in sets_of(records).items():
        size = set_bytes(held)
        if size > limits.ZONE_SET_BYTES:
            yield (
                f"{name} {kind}: an answer of {size} bytes is over {limits.ZONE_SET_BYTES} and needs TCP (AID-12). "
                "Shorten the addresses in it, or publish fewer records at this name."
            )
    if plan.fingerprint is None:
        yield (
            "No key: the agent stays unpinned, and nobody gets to key-verified. "
            f"Make one with `waypost keys new --domain {plan.domain}`."
        )
    if not plan.certificates:
        yield "No TLSA: nobody gets to dane-verified. Name the certificate with --tlsa-cert FILE, or --live to ask the host."
    if plan.certificates:
        yield "TLSA counts only in a zone that is signed with DNSSEC (ADP-13)."
