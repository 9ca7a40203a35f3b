"""SVCB, SRV and TLSA records: parsed or refused, written back to the same record, shown on one line."""

from __future__ import annotations

from contextlib import suppress

from waypost.errors import WaypostError
from waypost.protocols.dns_aid import svcb
from waypost.protocols.dns_rdata import parse_srv, parse_tlsa, write_srv, write_tlsa


def fuzz(data: bytes) -> None:
    with suppress(WaypostError):
        binding = svcb.parse_svcb(data)
        assert svcb.parse_svcb(svcb.write_svcb(binding)) == binding
        assert "\n" not in svcb.to_presentation(binding)
        assert binding.alpn is not None
        assert all('"' not in str(binding.text(key)) for key in svcb.AGENT_KEYS)
    with suppress(WaypostError):
        record = parse_srv(data)
        assert parse_srv(write_srv(record)) == record
    with suppress(WaypostError):
        assert write_tlsa(parse_tlsa(data)) == data
