"""The address policy: denied addresses, and what `allow_cidrs` allows."""

from __future__ import annotations

import ipaddress

import pytest

from support.vectors import load_own_vectors
from waypost.errors import AddressDenied
from waypost.net.address_policy import AddressPolicy

VECTORS = load_own_vectors("ssrf_targets")
DENIED = [text for text in VECTORS["deny_ips"] if "%" not in text]  # a zone is no address; the URL parser refuses it


def reason(policy: AddressPolicy, text: str) -> str | None:
    return policy.find_reason(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", DENIED)
def test_special_addresses_are_denied(text: str) -> None:
    """S1, S2."""
    assert reason(AddressPolicy(), text) is not None


@pytest.mark.parametrize("text", [*VECTORS["allow_ips"], "64:ff9b::808:808"])
def test_public_addresses_are_allowed(text: str) -> None:
    assert reason(AddressPolicy(), text) is None


@pytest.mark.parametrize(
    "text",
    [
        "2002:0a00:0001::1",  # 6to4 of 10.0.0.1
        "2001:0:808:808:0:0:f5ff:fffe",  # Teredo, whose client is 10.0.0.1
        "2a00:1450:4001:81b:0:5efe:10.0.0.1",  # ISATAP below a public prefix
        "::ffff:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1:a00:0:100::",  # RFC 6052 with 48 bits
        "2000:db8::",
    ],
)
def test_an_address_inside_another_is_judged_too(text: str) -> None:
    """S2."""
    expected = None if text.startswith("2000:") else "private"
    assert reason(AddressPolicy(), text) == expected


def test_private_ranges_can_be_lifted() -> None:
    """S12."""
    policy = AddressPolicy(["10.0.0.0/8", "fd00::/8"])
    assert reason(policy, "10.1.2.3") is None
    assert reason(policy, "::ffff:10.1.2.3") is None
    assert reason(policy, "fd12::1") is None
    assert reason(policy, "192.168.0.1") == "private"
    assert reason(policy, "172.16.0.1") == "private"


@pytest.mark.parametrize(
    "text", ["169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"]
)
def test_metadata_services_are_never_lifted(text: str) -> None:
    """S12."""
    network = ipaddress.ip_network(text)
    policy = AddressPolicy(["0.0.0.0/0", "::/0", str(network), "169.254.0.0/16", "100.64.0.0/10"])
    assert reason(policy, text) == "metadata"
    if network.version == 4:
        assert reason(policy, f"::ffff:{text}") == "metadata"
        assert reason(policy, f"64:ff9b::{text}") == "metadata"
        assert reason(policy, f"64:ff9b:1::{text}") == "metadata"


@pytest.mark.parametrize(
    "text", ["0.0.0.0", "0.1.2.3", "::", "224.0.0.251", "ff02::fb", "255.255.255.255", "240.0.0.1"]
)
def test_unspecified_multicast_and_reserved_addresses_cannot_be_allowed(text: str) -> None:
    assert reason(AddressPolicy(["0.0.0.0/0", "::/0", f"{text}"]), text) == "reserved"


def test_loopback_is_lifted_only_when_it_is_named() -> None:
    """S12."""
    assert reason(AddressPolicy(["0.0.0.0/0", "::/0"]), "127.0.0.1") == "loopback"
    assert reason(AddressPolicy(["0.0.0.0/0", "::/0"]), "::1") == "loopback"
    named = AddressPolicy(["127.0.0.1/32"])
    assert reason(named, "127.0.0.1") is None
    assert reason(named, "127.0.0.2") == "loopback"
    assert reason(named, "::1") == "loopback"
    assert list(map(str, named.loopback())) == ["127.0.0.1"]
    assert list(map(str, AddressPolicy(["::1/128"]).loopback())) == ["::1"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_the_service_does_not_check_itself(host: str) -> None:
    """S10."""
    policy = AddressPolicy(["127.0.0.0/8"], own=[(host, 8440)])
    loopback = ipaddress.ip_address("127.0.0.1")
    policy.check(loopback, 8441)
    with pytest.raises(AddressDenied) as refusal:
        policy.check(loopback, 8440)
    assert refusal.value.details == {"reason": "own"}


def test_a_refusal_names_the_setting_that_would_lift_it() -> None:
    with pytest.raises(AddressDenied, match="allow_cidrs"):
        AddressPolicy().check(ipaddress.ip_address("10.0.0.1"), 80)
    with pytest.raises(AddressDenied) as refusal:
        AddressPolicy().check(ipaddress.ip_address("169.254.169.254"), 80)
    assert "allow_cidrs" not in str(refusal.value)
