"""SRV records (RFC 2782): rdata to values and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from waypost.errors import InvalidDocument
from waypost.wire.dns_data import malformed, read_name, write_name


class Srv(msgspec.Struct, frozen=True, kw_only=True):
    priority: int
    weight: int
    port: int
    target: str  # empty for ".": the service is decidedly not there


def parse_srv(data: bytes) -> Srv:
    if len(data) < 7:
        raise malformed("SRV", "it is too short")
    priority, weight, port = struct.unpack_from("!HHH", data)
    target, end = read_name("SRV", data, 6)
    if end != len(data):
        raise malformed("SRV", "something follows the name")
    return Srv(priority=priority, weight=weight, port=port, target=target)


def write_srv(record: Srv) -> bytes:
    return struct.pack("!HHH", record.priority, record.weight, record.port) + write_name(record.target)


def first_srv(records: Iterable[bytes]) -> Srv | None:
    """The one to use first: lowest priority, then largest weight. A choice by chance would change answers between two looks."""
    found = []
    for data in records:
        try:
            found.append(parse_srv(data))
        except InvalidDocument:
            continue
    return min(found, key=lambda one: (one.priority, -one.weight, one.target, one.port), default=None)
