"""The choice of resolvers and the handling of their answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dns.rcode
import pytest

from support.fake_dns_server import DnsServer
from support.ports import free_port
from waypost.errors import ConfigurationError, FetchFailed
from waypost.net.dns.resolver_config import parse_resolvers
from waypost.net.dns.upstreams import StubResolver
from waypost.net.outbound import OutboundClient, OutboundOptions


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.0.0.1:5353",
        "[::1]",
        "[::1]:5353",
        "127.0.0.1:53,127.0.0.2:53",
        "system",
        "tls://192.0.2.53",
        "tls://192.0.2.53:8853#dns.test",
        "tls://[2001:db8::1]:853#dns.test",
        "tls://dns.test",
        "https://dns.test/dns-query",
        "https://dns.test",
        "https://192.0.2.53:8443/x",
        "192.0.2.53, tls://192.0.2.54",
    ],
)
def test_a_resolver_is_an_address_with_or_without_a_port(text: str) -> None:
    StubResolver(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dns.example.com",
        "dns.example.com:53",
        "127.0.0.1:x",
        "127.0.0.1:53,",
        "1.2.3",
        "tls://",
        "tls://192.0.2.53:0",
        "tls://192.0.2.53#not a name",
        "tls://a_b.test",
        "http://dns.test",
        "udp://192.0.2.53",
        "https://",
        "https://user@dns.test/",
        "https://dns.test/x?y",
        "https://dns.test:x/",
    ],
)
def test_anything_else_is_a_mistake_of_the_settings(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        StubResolver(text)
    assert refusal.value.path == "resolver"


async def test_addresses_of_both_kinds_come_from_one_look_up(names: DnsServer) -> None:
    names.set("both.test", "A", ["8.8.8.8"])
    names.set("both.test", "AAAA", ["2606:4700::1111"])
    resolver = StubResolver(names.address)
    assert set(map(str, await resolver.addresses("both.test"))) == {"8.8.8.8", "2606:4700::1111"}
    assert sorted(names.queries) == [("both.test", "A"), ("both.test", "AAAA")]


async def test_a_name_is_never_completed(names: DnsServer) -> None:
    """A search list would make another name of it."""
    with pytest.raises(FetchFailed):
        await StubResolver(names.address).addresses("agents")
    assert {name for name, _ in names.queries} == {"agents"}


async def test_a_missing_text_is_an_answer_and_a_failing_resolver_is_not(names: DnsServer) -> None:
    resolver = StubResolver(names.address, timeout_seconds=20.0)
    assert await resolver.texts("nothing.test") == []
    names.set("nothing.test", "A", ["8.8.8.8"])
    assert await resolver.texts("nothing.test") == []
    names.rcode = dns.rcode.SERVFAIL
    with pytest.raises(FetchFailed):
        await resolver.texts("nothing.test")


async def test_a_resolver_that_is_silent_is_told_from_a_name_without_addresses(names: DnsServer) -> None:
    for rcode in (dns.rcode.NXDOMAIN, dns.rcode.SERVFAIL):  # of servers of the name, as often as of the resolver
        names.rcode = rcode
        with pytest.raises(FetchFailed) as refusal:
            await StubResolver(names.address, timeout_seconds=20.0).addresses("gone.test")
        assert refusal.value.details["reason"] == "no_address"
    with pytest.raises(FetchFailed) as refusal:
        await StubResolver("127.0.0.1:9", timeout_seconds=0.5).addresses("gone.test")
    assert refusal.value.details["reason"] == "dns_failed"
    assert "did not answer" in refusal.value.message


async def test_the_strings_of_one_record_are_joined_and_records_are_not(names: DnsServer) -> None:
    """D11."""
    names.set("text.test", "TXT", ['"one " "two"', '"three"'])
    assert sorted(await StubResolver(names.address).texts("text.test")) == [b"one two", b"three"]


async def test_a_truncated_answer_is_queried_again_over_tcp(names: DnsServer) -> None:
    names.truncate = True
    names.set("long.test", "TXT", [f'"{"x" * 200}"'] * 1, [f'"{"y" * 200}"'])
    assert await StubResolver(names.address).texts("long.test") == [b"y" * 200]
    assert names.count("long.test", "TXT") == 2


@pytest.mark.parametrize(
    ("text", "shown", "trusted"),
    [
        ("192.0.2.53", "192.0.2.53:53", False),
        ("127.0.0.1:5353", "127.0.0.1:5353", True),
        ("::1", "[::1]:53", True),
        ("tls://192.0.2.53#dns.test", "tls://192.0.2.53:853#dns.test", True),
        ("https://DNS.test", "https://dns.test:443/dns-query", True),
    ],
)
def test_a_resolver_path_is_trusted_if_no_one_else_can_inject_answers(text: str, shown: str, trusted: bool) -> None:
    [server] = parse_resolvers(text) or ()
    assert (str(server), server.is_trusted_path) == (shown, trusted)


@pytest.mark.parametrize("resolver", ["system", "192.0.2.53", "127.0.0.1:53,192.0.2.53"])
def test_trust_ad_is_refused_for_a_resolver_on_an_untrusted_path(resolver: str) -> None:
    """D4."""
    with pytest.raises(ConfigurationError) as refusal:
        OutboundClient(OutboundOptions(resolver=resolver, trust_ad=True))
    assert refusal.value.path == "trust_ad"


@pytest.mark.parametrize(
    "resolver", ["127.0.0.1:53", "[::1]:53", "tls://192.0.2.53#dns.test", "https://dns.test/dns-query"]
)
def test_trust_ad_is_accepted_for_a_resolver_on_a_trusted_path(resolver: str) -> None:
    OutboundClient(OutboundOptions(resolver=resolver, trust_ad=True))


def test_unreadable_trust_anchors_are_reported_at_start_up(tmp_path: Path) -> None:
    for name, data in (("missing", None), ("empty", b""), ("binary", b"\xff\xfe"), ("large", b"; " + b"x" * 300_000)):
        file = tmp_path / name
        if data is not None:
            file.write_bytes(data)
        with pytest.raises(ConfigurationError) as refusal:
            OutboundClient(OutboundOptions(trust_anchors=file))
        assert refusal.value.path == "trust_anchors"


async def test_a_name_of_several_aliases_has_the_addresses_at_their_end(names: DnsServer) -> None:
    names.set_alias("alias.test", "real.test", "A", ["8.8.8.8"])
    assert list(map(str, await StubResolver(names.address).addresses("alias.test"))) == ["8.8.8.8"]


def test_unused_network_libraries_are_not_imported() -> None:
    """Lazy imports speed up the start; settings are still checked at the start."""
    program = (
        "import sys, waypost.app\n"
        "from waypost.net.outbound import OutboundClient, OutboundOptions\n"
        "OutboundClient(OutboundOptions(resolver='127.0.0.1:53'))\n"
        "assert not {'dns', 'httpcore2', 'certifi'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    for options in ({"resolver": "nobody"}, {"ca_file": Path("/nowhere.pem")}):
        with pytest.raises(ConfigurationError):
            OutboundClient(OutboundOptions(**options))


def test_the_event_loop_does_not_wait_for_the_import_of_the_http_client() -> None:
    """Neither when an endpoint is registered nor when one is checked for the first time. That took a tenth of a second."""
    program = f"""
import asyncio, sys, threading
import waypost.app
from waypost.errors import FetchFailed
from waypost.net.outbound import OutboundClient, OutboundOptions

imported = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        imported.append((name, threading.current_thread() is threading.main_thread()))

async def main():
    client = OutboundClient(OutboundOptions(resolver="127.0.0.1:53", allow_cidrs=("127.0.0.0/8",)))
    sys.meta_path.insert(0, Finder())
    client.check_endpoint("https://127.0.0.1:8443/")
    assert not imported, imported
    try:
        await client.probe("http://127.0.0.1:{free_port()}/")
    except FetchFailed:
        pass
    assert "httpcore2" in dict(imported), imported
    assert not any(dict(imported).values()), imported

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
