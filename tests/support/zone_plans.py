"""Zone plans for tests, and their text parsed by dnspython."""

from __future__ import annotations

from typing import Any

import dns.rdata
import dns.zone

from waypost.domains.zone import GeneratedZone, ZonePlan, format_zone, make_zone
from waypost.protocols.dns_rdata import TlsaRecord

FINGERPRINT = "ed25519:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"
DIGEST = "Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"
APEX = "@ 60 IN SOA ns hostmaster 1 3600 600 86400 60\n@ 60 IN NS ns\nns 60 IN A 127.0.0.1\n"


def plan(**members: Any) -> ZonePlan:
    usual: dict[str, Any] = {
        "domain": "alice.example.com",
        "metadata_url": "https://alice.example.com/.well-known/agent.json",
        "capabilities_url": "https://alice.example.com/.well-known/agent-capabilities.json",
        "capabilities_digest": DIGEST,
        "fingerprint": FINGERPRINT,
        "certificates": (TlsaRecord(usage=3, selector=1, matching=1, data=bytes(range(32))),),
    }
    return ZonePlan(**(usual | members))


def whole_zone(zone: GeneratedZone, form: str = "bind", origin: str = "example.com") -> str:
    """The records of an agent inside a zone that a server can load."""
    return f"$ORIGIN {origin}.\n{APEX}{format_zone(zone, form)}"


def read_zone(zone: GeneratedZone, form: str = "bind", origin: str = "example.com") -> dict[tuple[str, str], list[Any]]:
    """The zone parsed by dnspython: rdata by name and type."""
    found = dns.zone.from_text(whole_zone(zone, form, origin), origin=f"{origin}.", relativize=False)
    records: dict[tuple[str, str], list[Any]] = {}
    for name, _, rdata in found.iterate_rdatas():
        records.setdefault((name.to_text(omit_final_dot=True), rdata.rdtype.name), []).append(rdata)
    return records


def zone_of(**members: Any) -> GeneratedZone:
    return make_zone(plan(**members))


def params_of(rdata: Any) -> dict[int, str]:
    """The parameters of an SVCB record as text, by number."""
    return {int(key): "" if value is None else value.to_text().strip('"') for key, value in rdata.params.items()}
