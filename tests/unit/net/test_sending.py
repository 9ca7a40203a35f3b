"""Outgoing messages use the same SSRF guard as fetches (S1-S11), without redirects."""

from __future__ import annotations

import pytest

from support.certificates import Authority
from support.external_server import external_server
from support.fake_dns_server import DnsServer
from support.receiver import receiver
from support.vectors import load_own_vectors
from unit.net.conftest import MakeFetcher
from waypost.errors import AddressDenied, FetchFailed, InvalidParameter

VECTORS = load_own_vectors("ssrf_targets")


async def test_a_message_arrives_with_our_headers_only(
    names: DnsServer, make_fetcher: MakeFetcher, authority: Authority
) -> None:
    names.set("bob.test", "A", ["127.0.0.1"])
    async with receiver(authority.server_context("bob.test")) as taking:
        taking.answers = [("200 OK", b"taken")]
        url = f"https://bob.test:{taking.port}/hook?x=1"
        answer = await make_fetcher(ca_file=authority.certificate).send(
            url,
            "webhook",
            body=b'{"n":1}',
            headers=[("Content-Type", "application/json"), ("ADP-Agent", "agent:a.test")],
        )
        (taken,) = taking.taken
    assert (answer.status, answer.body) == (200, b"taken")
    assert (taken.method, taken.path, taken.body) == ("POST", "/hook?x=1", b'{"n":1}')
    assert set(taken.headers) == {
        "host", "user-agent", "accept", "accept-encoding", "x-discovery-hop", "connection", "content-length",
        "content-type", "adp-agent",
    }  # fmt: skip


async def test_a_redirect_is_an_answer_and_is_not_followed(
    names: DnsServer, make_fetcher: MakeFetcher, authority: Authority
) -> None:
    """S6."""
    names.set("bob.test", "A", ["127.0.0.1"])
    for status in ("301 Moved", "302 Found", "307 Temporary", "308 Permanent"):
        async with receiver(authority.server_context("bob.test")) as taking:
            taking.answers = [(status, b"")]
            answer = await make_fetcher(ca_file=authority.certificate).send(
                f"https://bob.test:{taking.port}/", "webhook"
            )
            assert not answer.is_success
            assert len(taking.taken) == 1


async def test_nothing_is_sent_to_a_denied_address(names: DnsServer, make_fetcher: MakeFetcher) -> None:
    """S1, S2, S5: written out, behind a name, and among public ones; a canary counts who comes."""
    fetcher = make_fetcher(allow=())
    async with external_server("0.0.0.0") as canary:
        for number, text in enumerate(text for text in VECTORS["deny_ips"] if "%" not in text):
            kind, host = ("AAAA", f"[{text}]") if ":" in text else ("A", text)
            with pytest.raises((AddressDenied, InvalidParameter)):
                fetcher.check(f"https://{host}:{canary.port}/", "webhook")
            with pytest.raises((AddressDenied, InvalidParameter)):
                await fetcher.send(f"https://{host}:{canary.port}/", "webhook")
            names.set(f"t{number}.test", kind, [text])
            with pytest.raises(AddressDenied):
                await fetcher.send(f"https://t{number}.test:{canary.port}/", "webhook")
            names.set(f"u{number}.test", kind, ["2606:4700::1111" if kind == "AAAA" else "1.1.1.1", text])
            with pytest.raises(AddressDenied):
                await fetcher.send(f"https://u{number}.test:{canary.port}/", "task")
        assert canary.connections == 0


@pytest.mark.parametrize("url", [*VECTORS["deny_urls"], "http://bob.test/", "ftp://bob.test/", "https://u@bob.test/"])
async def test_an_address_that_is_no_plain_https_is_refused(make_fetcher: MakeFetcher, url: str) -> None:
    """S3, P-5."""
    fetcher = make_fetcher()
    with pytest.raises((InvalidParameter, AddressDenied)):
        fetcher.check(url, "webhook")
    with pytest.raises((InvalidParameter, AddressDenied)):
        await fetcher.send(url, "webhook")


async def test_a_rebinding_name_is_resolved_once(
    names: DnsServer, make_fetcher: MakeFetcher, authority: Authority
) -> None:
    """S4."""
    names.set("rebind.test", "A", ["127.0.0.1"], ["127.0.0.2"])
    async with receiver(authority.server_context("rebind.test")) as taking:
        fetcher = make_fetcher(ca_file=authority.certificate)
        assert (await fetcher.send(f"https://rebind.test:{taking.port}/", "webhook")).status == 204
        with pytest.raises(AddressDenied):
            await fetcher.send(f"https://rebind.test:{taking.port}/", "webhook")
        assert len(taking.taken) == 1


async def test_our_own_address_is_sent_nothing(make_fetcher: MakeFetcher) -> None:
    """S10."""
    fetcher = make_fetcher(own_origin="https://registry.example.com")
    with pytest.raises(AddressDenied):
        fetcher.check("https://registry.example.com/agent/webhook", "webhook")
    with pytest.raises(AddressDenied):
        await fetcher.send("https://registry.example.com/agent/webhook", "webhook")


async def test_a_server_without_a_good_certificate_is_sent_nothing(
    names: DnsServer, make_fetcher: MakeFetcher, authority: Authority
) -> None:
    names.set("bob.test", "A", ["127.0.0.1"])
    async with receiver(authority.server_context("carol.test")) as taking:
        with pytest.raises(FetchFailed):
            await make_fetcher(ca_file=authority.certificate).send(
                f"https://bob.test:{taking.port}/", "webhook", body=b"x"
            )
        assert taking.taken == []
