"""A zone as text: for BIND and whoever reads its files, for forms of managed DNS, and as Terraform."""

from __future__ import annotations

import re
from collections.abc import Iterable

from waypost.domains.zone import Zone, ZoneRecord, sets_of

FORMATS = ("bind", "managed", "terraform")
# Managed DNS takes no keys without a number of IANA (AID-13); Terraform's providers are managed DNS.
PLAIN_FORMATS = frozenset(("managed", "terraform"))
_NOT_A_WORD = re.compile(r"[^a-z0-9]+")


def zone_text(zone: Zone, form: str) -> str:
    if form == "terraform":
        return _terraform(zone)
    return _master_file(zone)


def _master_file(zone: Zone) -> str:
    lines = [f"; {zone.domain}"]
    lines += [f"; {warning}" for warning in zone.warnings]
    lines += [line_of(record) for record in zone.records]
    return "\n".join(lines) + "\n"


def line_of(record: ZoneRecord) -> str:
    return f"{record.name}. {record.ttl} IN {record.type} {record.text}"


def _terraform(zone: Zone) -> str:
    """Resources of Route 53: its provider writes every type that a zone of ours has."""
    parts = ['variable "zone_id" {\n  type        = string\n  description = "The hosted zone of the domain"\n}\n']
    parts += [f"# {warning}\n" for warning in zone.warnings]
    parts += [_resource(name, kind, held) for (name, kind), held in sets_of(zone.records).items()]
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


def rows_of(records: Iterable[ZoneRecord]) -> list[dict[str, str | int]]:
    """The records as values, for whoever writes them elsewhere."""
    return [{"name": one.name, "type": one.type, "ttl": one.ttl, "data": one.text} for one in records]
