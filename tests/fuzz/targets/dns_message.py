"""Answers of resolvers: parsed within bounds, or DnsFailure."""

from __future__ import annotations

from waypost import limits
from waypost.errors import WaypostError
from waypost.net.dns.message import follow_aliases, parse_message


def fuzz(data: bytes) -> None:
    try:
        message = parse_message(data)
        records = sum(map(len, message.answer)) + sum(map(len, message.authority))
        assert records <= limits.DNS_RECORDS
        if message.name is not None:
            follow_aliases(message, message.name)
    except WaypostError:
        return
