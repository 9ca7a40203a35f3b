"""Who is asked for names, and what becomes of the answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dns.rcode
import pytest

from support.dns_server import DnsServer
from waypost.errors import ConfigurationError, FetchFailed
from waypost.net.outgoing import Outgoing, OutgoingOptions
from waypost.net.resolution import Resolver


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "127.0.0.1:5353", "[::1]", "[::1]:5353", "127.0.0.1:53,127.0.0.2:53", "system"]
)
def test_a_resolver_is_an_address_with_or_without_a_port(text: str) -> None:
    Resolver(text)


@pytest.mark.parametrize("text", ["", "dns.example.com", "dns.example.com:53", "127.0.0.1:x", "127.0.0.1:53,", "1.2.3"])
def test_anything_else_is_a_mistake_of_the_settings(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Resolver(text)
    assert refusal.value.path == "resolver"


async def test_addresses_of_both_kinds_come_from_one_look_up(names: DnsServer) -> None:
    names.set("both.test", "A", ["8.8.8.8"])
    names.set("both.test", "AAAA", ["2606:4700::1111"])
    resolver = Resolver(names.address)
    assert set(map(str, await resolver.addresses("both.test"))) == {"8.8.8.8", "2606:4700::1111"}
    assert sorted(names.queries) == [("both.test", "A"), ("both.test", "AAAA")]


async def test_a_name_is_never_completed(names: DnsServer) -> None:
    """A search list would make another name of it."""
    with pytest.raises(FetchFailed):
        await Resolver(names.address).addresses("agents")
    assert {name for name, _ in names.queries} == {"agents"}


async def test_a_missing_text_is_an_answer_and_a_failing_resolver_is_not(names: DnsServer) -> None:
    resolver = Resolver(names.address, timeout_seconds=0.3)
    assert await resolver.texts("nothing.test") == []
    names.set("nothing.test", "A", ["8.8.8.8"])
    assert await resolver.texts("nothing.test") == []
    names.rcode = dns.rcode.SERVFAIL
    with pytest.raises(FetchFailed):
        await resolver.texts("nothing.test")


async def test_the_strings_of_one_record_are_joined_and_records_are_not(names: DnsServer) -> None:
    """D11."""
    names.set("text.test", "TXT", ['"one " "two"', '"three"'])
    assert sorted(await Resolver(names.address).texts("text.test")) == [b"one two", b"three"]


async def test_an_answer_that_does_not_fit_is_asked_for_over_tcp(names: DnsServer) -> None:
    names.truncate = True
    names.set("long.test", "TXT", [f'"{"x" * 200}"'] * 1, [f'"{"y" * 200}"'])
    assert await Resolver(names.address).texts("long.test") == [b"y" * 200]
    assert names.count("long.test", "TXT") == 2


def test_what_asks_nobody_loads_nothing_for_it() -> None:
    """A service starts sooner without what it may never need; a mistake in the settings is told at the start all the same."""
    program = (
        "import sys, waypost.app\n"
        "from waypost.net.outgoing import Outgoing, OutgoingOptions\n"
        "Outgoing(OutgoingOptions(resolver='127.0.0.1:53'))\n"
        "assert not {'dns', 'httpcore', 'certifi'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    for options in ({"resolver": "nobody"}, {"ca_file": Path("/nowhere.pem")}):
        with pytest.raises(ConfigurationError):
            Outgoing(OutgoingOptions(**options))
