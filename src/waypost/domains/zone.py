"""What is written into a zone for an agent: SVCB, the TXT and SRV of ADP, TLSA, and the index of an organisation.

Records are made from a `ZonePlan`, which somebody else filled in; nothing is looked up here. Values that could end a parameter
early are refused (AID-18), and so are names that no certificate can hold (AID-4).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from waypost import limits
from waypost.errors import InvalidParameter
from waypost.protocols.adp.txt_record import AdpTxt, write_adp_txt
from waypost.protocols.dns_aid import svcb
from waypost.protocols.dns_aid.svcb import ServiceBinding, encode_params, to_presentation, write_svcb
from waypost.protocols.dns_aid.tlsa import TlsaRecord, write_tlsa
from waypost.protocols.dns_rdata import SrvRecord, is_hostname, read_strings, write_name, write_srv, write_text

DEFAULT_PORT = 443

_PRIVATE_KEYS = svcb.AGENT_KEYS

_HEADER_BYTES = 12 + 5  # of a message, and of the question beside its name

SvcParamValues: TypeAlias = dict[int, str | int | Iterable[str]]

_RECORD_BYTES = 10  # type, class, TTL and length


class ZoneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record: `data` as it is on the wire, `text` as a zone file holds it."""

    name: str  # lower case, without a final dot
    type: str
    ttl: int
    data: bytes
    text: str


class ZoneIndexEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in the index of an organisation."""

    domain: str
    protocol: str


class ExtraProtocol(msgspec.Struct, frozen=True, kw_only=True):
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
    certificates: tuple[TlsaRecord, ...] = ()
    further: tuple[ExtraProtocol, ...] = ()
    organisation: str | None = None
    index: tuple[ZoneIndexEntry, ...] = ()
    index_host: str | None = None
    ttl: int = 3600

    @property
    def host(self) -> str:
        return self.target or self.domain


class GeneratedZone(msgspec.Struct, frozen=True, kw_only=True):
    domain: str
    records: tuple[ZoneRecord, ...]
    warnings: tuple[str, ...] = ()


def make_zone(plan: ZonePlan, *, private_keys: bool = True) -> GeneratedZone:
    """The records of a plan. Without `private_keys` for servers that refuse them: SVCB says what has a name, TXT the rest."""
    _check_hosts(plan)
    records = [
        *_bindings(plan, private_keys=private_keys),
        *_adp_records(plan),
        *_addresses(plan),
        *_certificates(plan),
        *_index(plan, private_keys=private_keys),
    ]
    return GeneratedZone(domain=plan.domain, records=tuple(records), warnings=tuple(_warnings(plan, records)))


def _check_hosts(plan: ZonePlan) -> None:
    hosts = [plan.domain, plan.target, plan.index_host or "", plan.organisation or ""]
    hosts += [one.host for one in plan.further]
    for host in hosts:
        if host and not is_hostname(host):
            raise InvalidParameter(
                f"{host[:64]!r} is no name of a host: no certificate can be given for it.",
                path="target",
                hint="Use letters, digits and hyphens; no underscores (AID-4).",
            )


# --- The agent itself -----------------------------------------------------------------------------


def _bindings(plan: ZonePlan, *, private_keys: bool) -> Iterable[ZoneRecord]:
    values: SvcParamValues = {
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
    yield _svcb(plan, plan.domain, 1, plan.host, _published_params(values, private_keys))
    for priority, other in enumerate(plan.further, start=2):
        more: SvcParamValues = {
            svcb.MANDATORY: ("alpn", "port"),
            svcb.ALPN: (other.protocol, "h2"),
            svcb.PORT: other.port,
            svcb.BAP: other.protocol,
        }
        yield _svcb(plan, plan.domain, priority, other.host, _published_params(more, private_keys))


def _published_params(values: SvcParamValues, private_keys: bool) -> SvcParamValues:
    """For managed DNS the least that says it: alpn, and a port that is not the usual one."""
    told = {key: value for key, value in values.items() if value}
    if private_keys:
        return told
    usual = {svcb.PORT} if told.get(svcb.PORT) == DEFAULT_PORT else set()
    return {key: value for key, value in told.items() if key not in {*_PRIVATE_KEYS, svcb.MANDATORY, *usual}}


def _adp_records(plan: ZonePlan) -> Iterable[ZoneRecord]:
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
    srv = SrvRecord(priority=0, weight=0, port=plan.port, target=plan.host)
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
        values: SvcParamValues = {
            svcb.MANDATORY: ("alpn", "port"),
            svcb.ALPN: plan.transports,
            svcb.PORT: plan.port,
            svcb.WELL_KNOWN: "ai-catalog.json",
        }
        yield _svcb(plan, owner, 1, plan.index_host, _published_params(values, private_keys))
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


def _svcb(plan: ZonePlan, name: str, priority: int, target: str, values: SvcParamValues) -> ZoneRecord:
    binding = ServiceBinding(priority=priority, target=target, params=encode_params(values))
    return ZoneRecord(name=name, type="SVCB", ttl=plan.ttl, data=write_svcb(binding), text=to_presentation(binding))


def _txt(plan: ZonePlan, name: str, text: str) -> ZoneRecord:
    data = write_text(text)
    shown = " ".join(f'"{part.decode("ascii", "backslashreplace")}"' for part in read_strings(data))
    return ZoneRecord(name=name, type="TXT", ttl=plan.ttl, data=data, text=shown)


def response_bytes(records: Iterable[ZoneRecord]) -> int:
    """How large an answer with these records is, names compressed as servers do, without signatures."""
    held = list(records)
    if not held:
        return 0
    size = _HEADER_BYTES + len(write_name(held[0].name))
    return size + sum(2 + _RECORD_BYTES + len(record.data) for record in held)


def group_records(records: Iterable[ZoneRecord]) -> dict[tuple[str, str], list[ZoneRecord]]:
    """Records by name and type: what DNS answers, signs and replaces as one."""
    found: dict[tuple[str, str], list[ZoneRecord]] = {}
    for record in records:
        found.setdefault((record.name, record.type), []).append(record)
    return found


def _warnings(plan: ZonePlan, records: list[ZoneRecord]) -> Iterable[str]:
    for (name, kind), held in group_records(records).items():
        size = response_bytes(held)
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


# ---- A zone as text: for BIND and whoever reads its files, for forms of managed DNS, and as Terraform.

ZONE_FORMATS = ("bind", "managed", "terraform")
# Managed DNS takes no keys without a number of IANA (AID-13); Terraform's providers are managed DNS.
PLAIN_FORMATS = frozenset(("managed", "terraform"))

_NOT_A_WORD = re.compile(r"[^a-z0-9]+")


def format_zone(zone: GeneratedZone, form: str) -> str:
    if form == "terraform":
        return _format_terraform(zone)
    return _format_master_file(zone)


def _format_master_file(zone: GeneratedZone) -> str:
    lines = [f"; {zone.domain}"]
    lines += [f"; {warning}" for warning in zone.warnings]
    lines += [format_record(record) for record in zone.records]
    return "\n".join(lines) + "\n"


def format_record(record: ZoneRecord) -> str:
    return f"{record.name}. {record.ttl} IN {record.type} {record.text}"


def _format_terraform(zone: GeneratedZone) -> str:
    """Resources of Route 53: its provider writes every type that a zone of ours has."""
    parts = ['variable "zone_id" {\n  type        = string\n  description = "The hosted zone of the domain"\n}\n']
    parts += [f"# {warning}\n" for warning in zone.warnings]
    parts += [_resource(name, kind, held) for (name, kind), held in group_records(zone.records).items()]
    return "\n".join(parts)


def _resource(name: str, kind: str, held: list[ZoneRecord]) -> str:
    label = _NOT_A_WORD.sub("_", f"{name}_{kind}".lower()).strip("_")
    values = ",\n".join(f"    {_literal(_value(record))}" for record in held)
    return (
        f'resource "aws_route53_record" "{label}" {{\n'
        "  zone_id = var.zone_id\n"
        f"  name    = {_literal(name)}\n"
        f"  type    = {_literal(kind)}\n"
        f"  ttl     = {held[0].ttl}\n"
        f"  records = [\n{values},\n  ]\n"
        "}\n"
    )


def _value(record: ZoneRecord) -> str:
    """The provider puts the quotes around a TXT value itself; between its strings they stay."""
    if record.type != "TXT":
        return record.text
    return record.text[1:-1].replace('" "', '""')


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "$${").replace("%{", "%%{")
    return f'"{escaped}"'


# ---- What is to be changed in a zone so that it holds what it should, and what is not ours to touch in it.
#
# Sets of records are compared as texts in one spelling, which whoever reads and writes them gives them. Some names are shared:
# `_agent` with AID, the lists of an organisation with its other agents. There, what is ours is replaced and the rest stays.

RecordSetKey = tuple[str, str]  # name and type

_STRING_CHARS = 255  # of one character-string of TXT

RecordSetState = Literal["same", "missing", "differs", "extra", "unanswered"]


class RecordSet(msgspec.Struct, frozen=True, kw_only=True):
    """All records of a name and type. `data` is sorted."""

    name: str
    type: str
    ttl: int
    data: tuple[str, ...]

    @property
    def key(self) -> RecordSetKey:
        return self.name, self.type


class RecordSetChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was there, and what will be; None is nothing."""

    name: str
    type: str
    before: RecordSet | None = None
    after: RecordSet | None = None

    def reversed(self) -> RecordSetChange:
        return RecordSetChange(name=self.name, type=self.type, before=self.after, after=self.before)


def plan_changes(wanted: Iterable[RecordSet], live: Mapping[RecordSetKey, RecordSet | None]) -> list[RecordSetChange]:
    """What makes `live` hold what is wanted."""
    changes = []
    for each in wanted:
        before = live.get(each.key)
        after = merge_record_sets(each, before)
        if before != after:
            changes.append(RecordSetChange(name=each.name, type=each.type, before=before, after=after))
    return changes


def plan_withdrawal(
    wanted: Iterable[RecordSet], live: Mapping[RecordSetKey, RecordSet | None], domain: str
) -> list[RecordSetChange]:
    """What takes an agent out of a zone, and leaves there what is others': their records at shared names, the other agents of
    an organisation, and the host of a provider."""
    changes = []
    for each in wanted:
        before = live.get(each.key)
        if before is None:
            continue
        rest = _without(before, domain)
        after = msgspec.structs.replace(before, data=rest) if rest else None
        if after != before:
            changes.append(RecordSetChange(name=each.name, type=each.type, before=before, after=after))
    return changes


def _without(held: RecordSet, domain: str) -> tuple[str, ...]:
    """A set without what tells of a domain."""
    if held.name == domain or held.name.endswith(f".{domain}"):
        return _others(held, held) if _is_shared(held) else ()
    if held.type == "SVCB":  # the aliases of an organisation; a host that serves its index stays
        return tuple(data for data in held.data if data != f"0 {domain}.")
    if held.type == "TXT" and held.name.startswith("_index._agents."):
        label = domain.removesuffix(f".{held.name.removeprefix('_index._agents.')}")
        kept = {name: protocol for name, protocol in _all_listed(held).items() if name != label}
        return tuple(sorted({*_list_strings(kept), *_others(held, held)}))
    return held.data


def compare_record_sets(wanted: RecordSet, live: RecordSet | None) -> RecordSetState:
    """Whether a server holds what it should; TTLs count down on the way and are nobody's fault."""
    if live is None:
        return "missing"
    after = merge_record_sets(wanted, live).data
    if after == live.data:
        return "same"
    return "extra" if set(after) < set(live.data) else "differs"


def merge_record_sets(wanted: RecordSet, live: RecordSet | None) -> RecordSet:
    """What is wanted, beside what is others'."""
    if live is None or not _is_shared(wanted):
        return wanted
    if wanted.type == "TXT" and wanted.name.startswith("_index."):
        return _merged_list(wanted, live)
    return msgspec.structs.replace(wanted, data=tuple(sorted({*wanted.data, *_others(wanted, live)})))


def _is_shared(wanted: RecordSet) -> bool:
    if wanted.type == "TXT":
        return wanted.name.startswith(("_agent.", "_index._agents."))
    return wanted.type == "SVCB" and wanted.name.startswith("_agents.")


def _others(wanted: RecordSet, live: RecordSet) -> tuple[str, ...]:
    """Records of a shared name that are not ours: other texts than ADP's, other agents' aliases."""
    if wanted.type == "TXT" and wanted.name.startswith("_agent."):
        return tuple(text for text in live.data if not text.lstrip('"').lower().startswith("v=adp"))
    if wanted.type == "TXT":
        return tuple(text for text in live.data if not text.startswith('"agents='))
    return tuple(text for text in live.data if text not in wanted.data)


def _merged_list(wanted: RecordSet, live: RecordSet) -> RecordSet:
    """`agents=a:p,b:p` of both: ours as they should be, the others' as they are."""
    entries = _all_listed(live) | _all_listed(wanted)
    return msgspec.structs.replace(wanted, data=tuple(sorted({*_list_strings(entries), *_others(wanted, live)})))


def _all_listed(held: RecordSet) -> dict[str, str]:
    return dict(_listed(text) for data in held.data for text in _items(data))


def _list_strings(entries: Mapping[str, str]) -> tuple[str, ...]:
    """The list as one record of as many strings as it takes; none for nobody."""
    if not entries:
        return ()
    text = "agents=" + ",".join(f"{name}:{protocol}" for name, protocol in sorted(entries.items()))
    return (" ".join(f'"{text[at : at + _STRING_CHARS]}"' for at in range(0, len(text), _STRING_CHARS)),)


def _items(data: str) -> list[str]:
    text = data.replace('" "', "").strip('"')
    return [item for item in text.removeprefix("agents=").split(",") if item] if text.startswith("agents=") else []


def _listed(item: str) -> tuple[str, str]:
    name, _, protocol = item.partition(":")
    return name.strip(), protocol.strip()
