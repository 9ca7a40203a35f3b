"""Finding the zone of a name and its servers."""

from __future__ import annotations

import pytest

from support.fake_dns import Zones
from waypost.errors import FetchFailed
from waypost.net.dns.zone_client import find_server_addresses, find_servers, find_zone

SOA = "ns.example.com. hostmaster.example.com. 1 3600 600 86400 60"


def _names() -> Zones:
    names = Zones()
    names.set("example.com", "SOA", SOA)
    names.set("example.com", "NS", "ns.example.com.", "other.example.net.")
    names.set("ns.example.com", "A", "192.0.2.1")
    names.set("ns.example.com", "AAAA", "2001:db8::1")
    names.set("other.example.net", "A", "192.0.2.2")
    return names


async def test_the_zone_of_a_name_is_the_nearest_above_it() -> None:
    assert await find_zone(_names(), "alice.deep.example.com") == ("example.com", "ns.example.com")


async def test_every_nameserver_is_queried_at_every_address() -> None:
    found = await find_servers(_names(), "example.com")
    assert [str(server) for server in found] == ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]
    assert await find_server_addresses(_names(), "nobody.example.com") == []


async def test_a_name_without_a_zone_is_reported() -> None:
    with pytest.raises(FetchFailed):
        await find_zone(_names(), "alice.example.org")
