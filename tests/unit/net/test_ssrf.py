"""However a denied address is written, hidden or reached, no connection is opened (P6, S1-S6): a canary counts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from support.certificates import Authority
from support.external_server import ExternalServer, answer, external_server
from support.fake_dns_server import DnsServer
from support.vectors import load_own_vectors
from unit.net.conftest import MakeFetcher
from waypost.errors import AddressDenied, FetchFailed, InvalidParameter
from waypost.net.address_policy import AddressPolicy
from waypost.net.dns.upstreams import StubResolver
from waypost.net.fetcher import SafeFetcher
from waypost.net.url import origin_of

VECTORS = load_own_vectors("ssrf_targets")
ADDRESSES = [text for text in VECTORS["deny_ips"] if "%" not in text]
REFUSALS = (AddressDenied, InvalidParameter)


@pytest.fixture
async def canary() -> AsyncIterator[ExternalServer]:
    """Listens on every address of this machine, so that every connection to it is noticed."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(external_server("0.0.0.0"))
        server = await asyncio.start_server(made.serve, "::1", made.port)
        stack.callback(
            server.close
        )  # from Python 3.12 on, wait_closed() would wait for clients that keep their connection
        yield made


@pytest.fixture
def fetcher(make_fetcher: MakeFetcher) -> SafeFetcher:
    return make_fetcher(allow=())


def literal(text: str, port: int) -> str:
    return f"http://[{text}]:{port}/" if ":" in text else f"http://{text}:{port}/"


def kind(text: str) -> str:
    return "AAAA" if ":" in text else "A"


async def test_the_canary_counts_a_connection(canary: ExternalServer, make_fetcher: MakeFetcher) -> None:
    fetcher = make_fetcher(allow=("127.0.0.0/8", "::1/128"))
    for host in ("127.0.0.1", "127.3.2.1", "[::1]", "localhost"):
        assert (await fetcher.fetch(f"http://{host}:{canary.port}/", "card")).status == 404
    assert canary.connections == 4


@pytest.mark.parametrize("text", ADDRESSES)
async def test_a_denied_address_written_out(canary: ExternalServer, fetcher: SafeFetcher, text: str) -> None:
    """S1, S2."""
    with pytest.raises(REFUSALS):
        await fetcher.fetch(literal(text, canary.port), "card")
    assert canary.connections == 0


@pytest.mark.parametrize("text", ADDRESSES)
async def test_a_denied_address_behind_a_name(
    canary: ExternalServer, fetcher: SafeFetcher, names: DnsServer, text: str
) -> None:
    """S1, S2, D7."""
    names.set("target.test", kind(text), [text])
    with pytest.raises(AddressDenied):
        await fetcher.fetch(f"http://target.test:{canary.port}/", "health")
    assert canary.connections == 0


@pytest.mark.parametrize("text", ADDRESSES)
async def test_a_denied_address_among_public_ones(
    canary: ExternalServer, fetcher: SafeFetcher, names: DnsServer, text: str
) -> None:
    """S5: one spoils all."""
    answers = {"A": ["93.184.215.14"], "AAAA": ["2606:4700::1111"]}
    answers[kind(text)].append(text)
    for record, addresses in answers.items():
        names.set("target.test", record, addresses)
    with pytest.raises(AddressDenied):
        await fetcher.fetch(f"http://target.test:{canary.port}/", "card")
    assert canary.connections == 0


@pytest.mark.parametrize("host", VECTORS["deny_hosts_text"])
async def test_a_denied_address_in_odd_words(
    canary: ExternalServer, fetcher: SafeFetcher, names: DnsServer, host: str
) -> None:
    """S3. Names that only a hosts file or a cloud's resolver knows lead there when DNS says so, or nowhere."""
    names.set("metadata.google.internal", "A", ["169.254.169.254"])
    with pytest.raises((*REFUSALS, FetchFailed)):
        await fetcher.fetch(f"http://{host}:{canary.port}/", "card")
    assert canary.connections == 0


@pytest.mark.parametrize("url", VECTORS["deny_urls"])
async def test_an_address_that_two_readers_read_differently(
    canary: ExternalServer, fetcher: SafeFetcher, url: str
) -> None:
    """S3."""
    with pytest.raises(InvalidParameter):
        await fetcher.fetch(url, "card")
    assert canary.connections == 0


@pytest.mark.parametrize("text", ["127.0.0.2", "::1", "169.254.169.254", "10.0.0.1", "0.0.0.0", "::ffff:7f00:2"])
@pytest.mark.parametrize("named", [True, False])
async def test_a_redirect_to_a_denied_address(
    canary: ExternalServer, make_fetcher: MakeFetcher, names: DnsServer, authority: Authority, text: str, named: bool
) -> None:
    """S6: each hop is checked, also below the same site."""
    names.set("ok.test", "A", ["127.0.0.1"])
    names.set("inner.ok.test", kind(text), [text])
    there = f"https://inner.ok.test:{canary.port}/" if named else literal(text, canary.port).replace("http:", "https:")
    async with external_server(tls=authority.server_context("ok.test")) as site:
        site.pages["/"] = answer(b"", status="302 Found", location=there)
        fetcher = make_fetcher(ca_file=authority.certificate)
        with pytest.raises((AddressDenied, FetchFailed, InvalidParameter)):
            await fetcher.fetch(f"https://ok.test:{site.port}/", "card")
        assert site.connections == 1
    assert canary.connections == 0


async def test_a_name_that_changes_its_mind(
    canary: ExternalServer, site: ExternalServer, names: DnsServer, make_fetcher: MakeFetcher
) -> None:
    """S4: one lookup per request; a different second answer has no effect."""
    site.pages["/"] = answer(b"{}")
    names.set("rebind.test", "A", ["127.0.0.1"], ["127.0.0.2"])
    fetched = await make_fetcher().fetch(f"http://rebind.test:{site.port}/", "card")
    assert fetched.body == b"{}"
    assert names.count("rebind.test", "A") == 1
    with pytest.raises(AddressDenied):
        await make_fetcher().fetch(f"http://rebind.test:{canary.port}/", "card")
    assert canary.connections == 0


async def test_proxies_of_the_environment_are_not_used(
    canary: ExternalServer, site: ExternalServer, make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S11."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    assert (await make_fetcher().fetch(f"http://127.0.0.1:{site.port}/", "card")).status == 404
    assert canary.connections == 0


async def test_the_service_does_not_fetch_from_itself(canary: ExternalServer, names: DnsServer) -> None:
    """S10."""
    names.set("me.test", "A", ["127.0.0.1"])
    policy = AddressPolicy(["127.0.0.0/8"], own=[("0.0.0.0", canary.port)])
    fetcher = SafeFetcher(policy, StubResolver(names.address))
    for host in ("127.0.0.1", "127.0.0.9", "me.test", "localhost"):
        with pytest.raises(AddressDenied):
            await fetcher.fetch(f"http://{host}:{canary.port}/", "card")
    assert canary.connections == 0


async def test_the_service_does_not_check_itself_under_its_public_name(
    site: ExternalServer, names: DnsServer, make_fetcher: MakeFetcher
) -> None:
    """S10: behind a proxy its address is another one."""
    names.set("registry.test", "A", ["127.0.0.1"])
    fetcher = make_fetcher(own_origin=origin_of(f"http://Registry.test:{site.port}/base"))
    with pytest.raises(AddressDenied):
        await fetcher.fetch(f"http://registry.test:{site.port}/.well-known/agent.json", "card")
    assert site.connections == 0
