"""The DNS records of an agent: SVCB, TXT and SRV of ADP, TLSA, and the index of an organisation; their formats and changes.

Records are made from a `ZonePlan`; nothing is looked up here. Values that could end a parameter early are rejected (AID-18), and
so are names that no certificate can contain (AID-4).

Record sets are compared as normalised texts. Some names are shared: `_agent` with AID, the lists of an organisation with its
other agents. There, the agent's own records are replaced, and the others stay.
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
from waypost.protocols.dns_rdata import (
    SrvRecord,
    TlsaRecord,
    is_hostname,
    read_strings,
    write_name,
    write_srv,
    write_text,
    write_tlsa,
)

DEFAULT_PORT = 443

_PRIVATE_KEYS = svcb.AGENT_KEYS

_HEADER_BYTES = 12 + 5  # of a message, and of its question without the name

_RECORD_BYTES = 10  # type, class, TTL and length

_STRING_CHARS = 255  # of one character-string of TXT

SvcParamValues: TypeAlias = dict[int, str | int | Iterable[str]]

RecordSetKey = tuple[str, str]  # name and type

RecordSetState = Literal["same", "missing", "differs", "extra", "unanswered"]

ZONE_FORMATS = ("bind", "managed", "terraform")

PLAIN_FORMATS = frozenset(("managed", "terraform"))  # managed DNS rejects keys without an IANA number (AID-13)

_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")


class ZoneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record: `data` in wire form, `text` in zone file form."""

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
    """Another protocol of the agent at a host and port of its own, with a record of its own (AID-8)."""

    protocol: str
    host: str
    port: int


class ZonePlan(msgspec.Struct, frozen=True, kw_only=True):
    domain: str
    metadata_url: str
    target: str = ""  # the domain itself if empty
    port: int = DEFAULT_PORT
    protocol: str = "a2a"  # the name that ADP uses (ADP-3)
    transports: tuple[str, ...] = ("h2",)
    well_known: str = "agent.json"
    capabilities_url: str | None = None
    capabilities_digest: str | None = None
    fingerprint: str | None = None
    addresses: tuple[str, ...] = ()
    certificates: tuple[TlsaRecord, ...] = ()
    extra_protocols: tuple[ExtraProtocol, ...] = ()
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
    """The records of a plan. Without `private_keys`, for servers that reject them, SVCB has only registered keys."""
    _check_hosts(plan)
    records = [
        *_svcb_records(plan, private_keys=private_keys),
        *_adp_records(plan),
        *_address_records(plan),
        *_tlsa_records(plan),
        *_index_records(plan, private_keys=private_keys),
    ]
    return GeneratedZone(domain=plan.domain, records=tuple(records), warnings=tuple(_warnings(plan, records)))


def _check_hosts(plan: ZonePlan) -> None:
    hosts = [plan.domain, plan.target, plan.index_host or "", plan.organisation or ""]
    hosts += [one.host for one in plan.extra_protocols]
    for host in hosts:
        if host and not is_hostname(host):
            raise InvalidParameter(
                f"{host[:64]!r} is not a host name: no certificate can be issued for it.",
                path="target",
                hint="Use letters, digits and hyphens; no underscores (AID-4).",
            )


def _svcb_records(plan: ZonePlan, *, private_keys: bool) -> Iterable[ZoneRecord]:
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
    # The full name, though "." would mean the same: some DNS-AID clients take "." for no target.
    yield _svcb(plan, plan.domain, 1, plan.host, _published_params(values, private_keys))
    for priority, other in enumerate(plan.extra_protocols, start=2):
        extra_values: SvcParamValues = {
            svcb.MANDATORY: ("alpn", "port"),
            svcb.ALPN: (other.protocol, "h2"),
            svcb.PORT: other.port,
            svcb.BAP: other.protocol,
        }
        yield _svcb(plan, plan.domain, priority, other.host, _published_params(extra_values, private_keys))


def _published_params(values: SvcParamValues, private_keys: bool) -> SvcParamValues:
    """Without private keys only alpn, and the port unless it is the default."""
    present = {key: value for key, value in values.items() if value}
    if private_keys:
        return present
    defaults = {svcb.PORT} if present.get(svcb.PORT) == DEFAULT_PORT else set()
    return {key: value for key, value in present.items() if key not in {*_PRIVATE_KEYS, svcb.MANDATORY, *defaults}}


def _adp_records(plan: ZonePlan) -> Iterable[ZoneRecord]:
    """ADP-15 and ADP-17. SVCB has no key for `pk`, so the TXT record is always present (C-2)."""
    if plan.fingerprint is not None:
        txt = AdpTxt(
            version="ADP1.1",
            fingerprint=plan.fingerprint,
            metadata_url=plan.metadata_url,
            alpn=plan.protocol,
            port=plan.port,
            protocol=plan.protocol,
        )
        yield _txt(plan, f"_agent.{plan.domain}", write_adp_txt(txt))
    srv = SrvRecord(priority=0, weight=0, port=plan.port, target=plan.host)
    text = f"{srv.priority} {srv.weight} {srv.port} {srv.target}."
    yield ZoneRecord(name=f"_agent._tcp.{plan.domain}", type="SRV", ttl=plan.ttl, data=write_srv(srv), text=text)


def _address_records(plan: ZonePlan) -> Iterable[ZoneRecord]:
    for text in plan.addresses:
        address = ipaddress.ip_address(text)
        kind = "A" if address.version == 4 else "AAAA"
        yield ZoneRecord(name=plan.host, type=kind, ttl=plan.ttl, data=address.packed, text=str(address))


def _tlsa_records(plan: ZonePlan) -> Iterable[ZoneRecord]:
    """At the target, which clients connect to (ADP-9, AID-23)."""
    owner = f"_{plan.port}._tcp.{plan.host}"
    for tlsa in dict.fromkeys(plan.certificates):
        yield ZoneRecord(name=owner, type="TLSA", ttl=plan.ttl, data=write_tlsa(tlsa), text=str(tlsa))


def _index_records(plan: ZonePlan, *, private_keys: bool) -> Iterable[ZoneRecord]:
    """The aliases of ADP, the names of DNS-AID, and its index with the equivalent TXT list."""
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
    """The label of an agent directly below its organisation; None if it is not."""
    if not domain.endswith(f".{organisation}"):
        return None
    label = domain.removesuffix(f".{organisation}")
    return None if "." in label else label


def _svcb(plan: ZonePlan, name: str, priority: int, target: str, values: SvcParamValues) -> ZoneRecord:
    binding = ServiceBinding(priority=priority, target=target, params=encode_params(values))
    return ZoneRecord(name=name, type="SVCB", ttl=plan.ttl, data=write_svcb(binding), text=to_presentation(binding))


def _txt(plan: ZonePlan, name: str, text: str) -> ZoneRecord:
    data = write_text(text)
    presentation = " ".join(f'"{part.decode("ascii", "backslashreplace")}"' for part in read_strings(data))
    return ZoneRecord(name=name, type="TXT", ttl=plan.ttl, data=data, text=presentation)


def response_bytes(records: Iterable[ZoneRecord]) -> int:
    """The size of a response with these records, with name compression, without signatures."""
    rrset = list(records)
    if not rrset:
        return 0
    size = _HEADER_BYTES + len(write_name(rrset[0].name))
    return size + sum(2 + _RECORD_BYTES + len(record.data) for record in rrset)


def group_records(records: Iterable[ZoneRecord]) -> dict[tuple[str, str], list[ZoneRecord]]:
    """Records by name and type (record sets)."""
    groups: dict[tuple[str, str], list[ZoneRecord]] = {}
    for record in records:
        groups.setdefault((record.name, record.type), []).append(record)
    return groups


def _warnings(plan: ZonePlan, records: list[ZoneRecord]) -> Iterable[str]:
    for (name, kind), rrset in group_records(records).items():
        size = response_bytes(rrset)
        if size > limits.ZONE_SET_BYTES:
            yield (
                f"{name} {kind}: a response of {size} bytes exceeds {limits.ZONE_SET_BYTES} and needs TCP (AID-12). "
                "Shorten the URLs in it, or publish fewer records at this name."
            )
    if plan.fingerprint is None:
        yield (
            "No key: the agent is unpinned and cannot be key-verified. "
            f"Create one with `waypost keys new --domain {plan.domain}`."
        )
    if not plan.certificates:
        yield "No TLSA: the agent cannot be dane-verified. Name the certificate with --tlsa-cert FILE, or use --live."
    if plan.certificates:
        yield "TLSA counts only in a DNSSEC-signed zone (ADP-13)."


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
    """Route 53 resources: its provider supports all of these record types."""
    parts = ['variable "zone_id" {\n  type        = string\n  description = "The hosted zone of the domain"\n}\n']
    parts += [f"# {warning}\n" for warning in zone.warnings]
    parts += [_terraform_resource(name, kind, rrset) for (name, kind), rrset in group_records(zone.records).items()]
    return "\n".join(parts)


def _terraform_resource(name: str, kind: str, rrset: list[ZoneRecord]) -> str:
    label = _NOT_ALPHANUMERIC.sub("_", f"{name}_{kind}".lower()).strip("_")
    values = ",\n".join(f"    {_literal(_terraform_value(record))}" for record in rrset)
    return (
        f'resource "aws_route53_record" "{label}" {{\n'
        "  zone_id = var.zone_id\n"
        f"  name    = {_literal(name)}\n"
        f"  type    = {_literal(kind)}\n"
        f"  ttl     = {rrset[0].ttl}\n"
        f"  records = [\n{values},\n  ]\n"
        "}\n"
    )


def _terraform_value(record: ZoneRecord) -> str:
    """The provider adds the outer quotes of a TXT value itself."""
    if record.type != "TXT":
        return record.text
    return record.text[1:-1].replace('" "', '""')


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "$${").replace("%{", "%%{")
    return f'"{escaped}"'


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
    """The record set before and after a change; None if there is none."""

    name: str
    type: str
    before: RecordSet | None = None
    after: RecordSet | None = None

    def reversed(self) -> RecordSetChange:
        return RecordSetChange(name=self.name, type=self.type, before=self.after, after=self.before)


def plan_changes(desired: Iterable[RecordSet], live: Mapping[RecordSetKey, RecordSet | None]) -> list[RecordSetChange]:
    """The changes from `live` to `desired`."""
    changes = []
    for each in desired:
        before = live.get(each.key)
        after = merge_record_sets(each, before)
        if before != after:
            changes.append(RecordSetChange(name=each.name, type=each.type, before=before, after=after))
    return changes


def plan_withdrawal(
    desired: Iterable[RecordSet], live: Mapping[RecordSetKey, RecordSet | None], domain: str
) -> list[RecordSetChange]:
    """The changes that remove an agent, but not records of others: at shared names, of other agents of the organisation, and of
    a provider's host."""
    changes = []
    for each in desired:
        before = live.get(each.key)
        if before is None:
            continue
        remaining = _without(before, domain)
        after = msgspec.structs.replace(before, data=remaining) if remaining else None
        if after != before:
            changes.append(RecordSetChange(name=each.name, type=each.type, before=before, after=after))
    return changes


def _without(current: RecordSet, domain: str) -> tuple[str, ...]:
    """The data of a record set without that of a domain."""
    if current.name == domain or current.name.endswith(f".{domain}"):
        return _others(current, current) if _is_shared(current) else ()
    if current.type == "SVCB":  # the aliases of an organisation; the host of its index stays
        return tuple(data for data in current.data if data != f"0 {domain}.")
    if current.type == "TXT" and current.name.startswith("_index._agents."):
        label = domain.removesuffix(f".{current.name.removeprefix('_index._agents.')}")
        entries = {name: protocol for name, protocol in _list_entries(current).items() if name != label}
        return tuple(sorted({*_list_strings(entries), *_others(current, current)}))
    return current.data


def compare_record_sets(desired: RecordSet, live: RecordSet | None) -> RecordSetState:
    """Compare the records of a server with the desired ones. TTLs are ignored: resolvers count them down."""
    if live is None:
        return "missing"
    after = merge_record_sets(desired, live).data
    if after == live.data:
        return "same"
    return "extra" if set(after) < set(live.data) else "differs"


def merge_record_sets(desired: RecordSet, live: RecordSet | None) -> RecordSet:
    """The desired records, together with those of others at a shared name."""
    if live is None or not _is_shared(desired):
        return desired
    if desired.type == "TXT" and desired.name.startswith("_index."):
        return _merge_lists(desired, live)
    return msgspec.structs.replace(desired, data=tuple(sorted({*desired.data, *_others(desired, live)})))


def _is_shared(desired: RecordSet) -> bool:
    if desired.type == "TXT":
        return desired.name.startswith(("_agent.", "_index._agents."))
    return desired.type == "SVCB" and desired.name.startswith("_agents.")


def _others(desired: RecordSet, live: RecordSet) -> tuple[str, ...]:
    """Records of others at a shared name: texts other than ADP's, aliases of other agents."""
    if desired.type == "TXT" and desired.name.startswith("_agent."):
        return tuple(text for text in live.data if not text.lstrip('"').lower().startswith("v=adp"))
    if desired.type == "TXT":
        return tuple(text for text in live.data if not text.startswith('"agents='))
    return tuple(text for text in live.data if text not in desired.data)


def _merge_lists(desired: RecordSet, live: RecordSet) -> RecordSet:
    """Merge two lists `agents=a:p,b:p`; desired entries take precedence."""
    entries = _list_entries(live) | _list_entries(desired)
    return msgspec.structs.replace(desired, data=tuple(sorted({*_list_strings(entries), *_others(desired, live)})))


def _list_entries(current: RecordSet) -> dict[str, str]:
    return dict(_parse_item(text) for data in current.data for text in _list_items(data))


def _list_strings(entries: Mapping[str, str]) -> tuple[str, ...]:
    """The list as one TXT record of several strings; none if it is empty."""
    if not entries:
        return ()
    text = "agents=" + ",".join(f"{name}:{protocol}" for name, protocol in sorted(entries.items()))
    return (" ".join(f'"{text[at : at + _STRING_CHARS]}"' for at in range(0, len(text), _STRING_CHARS)),)


def _list_items(data: str) -> list[str]:
    text = data.replace('" "', "").strip('"')
    return [item for item in text.removeprefix("agents=").split(",") if item] if text.startswith("agents=") else []


def _parse_item(item: str) -> tuple[str, str]:
    name, _, protocol = item.partition(":")
    return name.strip(), protocol.strip()
