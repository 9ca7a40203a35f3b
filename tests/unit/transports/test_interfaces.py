"""Network interfaces: names, addresses and neighbours."""

from __future__ import annotations

import ipaddress
import socket
import subprocess

import msgspec
import pytest

from support.netns import INTERFACE, lan
from waypost.errors import ConfigurationError
from waypost.transports.interfaces import Interface, find_interface, find_interfaces, find_multicast_interfaces

ETH = Interface(
    name="eth0",
    address=ipaddress.IPv4Address("192.168.7.5"),
    network=ipaddress.IPv4Network("192.168.7.0/24"),
    v6=(ipaddress.IPv6Address("2001:db8::5"),),
)


@pytest.mark.parametrize("text", ["lo", "127.0.0.1", "127.0.0.1/8"])
def test_an_interface_is_found_by_name_and_by_address(text: str) -> None:
    found = find_interface(text)
    assert (found.name, str(found.address), found.broadcast) == ("lo", "127.0.0.1", "127.255.255.255")


def test_an_address_with_its_prefix_is_enough_where_the_system_does_not_tell() -> None:
    found = find_interface("198.51.100.9/25")
    assert (found.name, found.broadcast) == ("", "198.51.100.127")


@pytest.mark.parametrize("text", ["no-such0", "198.51.100.9", "", "lo;reboot", "x" * 300, "::1"])
def test_an_unknown_interface_is_refused_with_a_list_of_interfaces(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        find_interface(text)
    assert "lo" in str(refused.value.hint)


def test_at_least_one_must_be_named() -> None:
    with pytest.raises(ConfigurationError):
        find_interfaces([])


@pytest.mark.parametrize(
    ("source", "is_neighbour"),
    [
        ("192.168.7.200", True),
        ("192.168.8.1", False),
        ("8.8.8.8", False),
        ("127.0.0.1", False),
        ("fe80::1%eth0", True),
        ("2001:db8::5", True),
        ("2001:db8::6", False),
        ("::ffff:192.168.7.9", True),
        ("::ffff:192.168.8.9", False),
        ("nonsense", False),
    ],
)
def test_only_sources_of_the_link_are_neighbours(source: str, is_neighbour: bool) -> None:
    """L2."""
    assert ETH.is_on_link(source) is is_neighbour


def test_a_real_interface_tells_its_network_and_both_kinds_of_address() -> None:
    with lan(1) as net, net.entered(0):
        found = find_interface(INTERFACE)
        assert (str(found.address), str(found.network), found.broadcast) == ("10.77.0.1", "10.77.0.0/24", "10.77.0.255")
        assert [str(address) for address in found.v6] == ["fe80::1"]
        assert found.index > 0


def test_a_link_that_is_up_carries_and_one_that_is_gone_does_not() -> None:
    loopback = find_interface("lo")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        assert loopback.is_up(asked.fileno())
        assert not msgspec.structs.replace(loopback, name="gone0").is_up(asked.fileno())
        assert msgspec.structs.replace(loopback, name="").is_up(asked.fileno()), "nobody can tell"


def test_all_interfaces_that_are_up_and_can_multicast_are_used_by_default() -> None:
    with lan(1, backbone=True) as net, net.entered(0):
        assert find_multicast_interfaces() == ("eth0", "eth1")
        subprocess.run(["ip", "link", "set", "eth1", "multicast", "off"], check=True, timeout=60)
        assert find_multicast_interfaces() == ("eth0",)
        subprocess.run(["ip", "link", "set", "eth0", "down"], check=True, timeout=60)
        assert len(find_multicast_interfaces()) == 1  # of the default route, if there is one
        assert "/" in find_multicast_interfaces()[0]
