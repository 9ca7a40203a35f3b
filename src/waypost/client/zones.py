"""The DNS records of an agent, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ZoneLine(msgspec.Struct, frozen=True, kw_only=True):
    """One record: `data` is written as zone files have it, `name` is without its final dot."""

    name: str
    type: str
    ttl: int
    data: str


class AgentZone(msgspec.Struct, frozen=True, kw_only=True):
    """What leads to an agent from its domain. `text` is the zone in `format`; `warnings` say what is missing, and for what."""

    id: str
    domain: str
    format: str
    text: str
    records: tuple[ZoneLine, ...] = ()
    warnings: tuple[str, ...] = ()
    document: dict[str, Any] = msgspec.field(default_factory=dict)


def zone_of(document: Mapping[str, Any]) -> AgentZone:
    return msgspec.structs.replace(msgspec.convert(document, AgentZone), document=dict(document))
