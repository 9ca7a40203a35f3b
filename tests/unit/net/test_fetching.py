"""The fetcher: what it sends, what it reads, and its limits (S6-S9)."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from support.certificates import Authority
from support.external_server import ExternalServer, answer, external_server
from support.fake_dns_server import DnsServer
from support.ports import free_port
from unit.net.conftest import MakeFetcher
from waypost import limits
from waypost.errors import ConfigurationError, FetchFailed, InvalidParameter, RateLimited
from waypost.net.fetcher import FETCH_LIMITS, SafeFetcher
from waypost.net.ssrf import Cooldown
from waypost.registry.ports import FetchPurpose


def reason(refusal: pytest.ExceptionInfo[FetchFailed]) -> str:
    return str(refusal.value.details["reason"])


async def failing(fetcher: SafeFetcher, url: str, purpose: FetchPurpose = "card") -> str:
    with pytest.raises(FetchFailed) as refusal:
        await fetcher.fetch(url, purpose)
    return reason(refusal)


async def test_a_document_is_fetched_with_our_name_and_nothing_of_anybodys(
    site: ExternalServer, names: DnsServer, make_fetcher: MakeFetcher
) -> None:
    """S8, S10."""
    names.set("agents.test", "A", ["127.0.0.1"])
    site.json("/card.json", {"name": "x"})
    fetched = await make_fetcher().fetch(f"http://agents.test:{site.port}/card.json", "card")
    assert fetched.status == 200
    assert fetched.is_success
    assert fetched.body == b'{"name":"x"}'
    assert fetched.headers["content-type"] == "application/json"
    lines = site.requests[0].decode().lower().split("\r\n")
    assert lines[0] == "get /card.json http/1.1"
    sent = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert sent["host"] == f"agents.test:{site.port}"
    assert sent["user-agent"].startswith("waypost/")
    assert "opt out" in sent["user-agent"]
    assert sent["accept-encoding"] == "identity"
    assert sent["x-discovery-hop"] == "1"
    assert set(sent) == {"host", "user-agent", "accept", "accept-encoding", "x-discovery-hop", "connection"}


async def test_an_address_inside_another_is_reached_where_it_is_allowed(
    site: ExternalServer, make_fetcher: MakeFetcher
) -> None:
    site.json("/", {})
    assert (await make_fetcher().fetch(f"http://[::ffff:7f00:1]:{site.port}/", "card")).status == 200


async def test_the_body_of_an_answer_that_is_no_success_is_not_read(
    site: ExternalServer, make_fetcher: MakeFetcher
) -> None:
    """S9."""
    site.pages["/"] = answer(b"secret", status="500 Broken")
    fetched = await make_fetcher().fetch(f"http://127.0.0.1:{site.port}/", "card")
    assert (fetched.status, fetched.body) == (500, b"")


async def test_names_without_an_address_and_closed_ports_fail_with_a_reason(
    site: ExternalServer, names: DnsServer, make_fetcher: MakeFetcher
) -> None:
    names.set("empty.test", "TXT", ['"x"'])
    fetcher = make_fetcher()
    assert await failing(fetcher, "http://nobody.test/") == "no_address"
    assert await failing(fetcher, "http://empty.test/") == "no_address"
    assert await failing(fetcher, f"http://127.0.0.1:{free_port()}/") == "refused"
    names.silent = True
    assert await failing(fetcher, "http://agents.test/") == "dns_failed"


async def test_a_name_with_too_many_addresses_is_refused(names: DnsServer, make_fetcher: MakeFetcher) -> None:
    names.set("many.test", "A", [f"8.8.8.{number}" for number in range(limits.FETCH_ADDRESSES + 1)])
    assert await failing(make_fetcher(), "http://many.test/") == "no_address"


async def test_the_next_address_is_tried_when_the_first_does_not_answer(
    site: ExternalServer, names: DnsServer, make_fetcher: MakeFetcher
) -> None:
    names.set("two.test", "A", ["127.0.0.2", "127.0.0.1"])
    site.pages["/"] = answer(b"{}")
    fetcher = make_fetcher(allow=("127.0.0.0/8",))
    assert (await fetcher.fetch(f"http://two.test:{site.port}/", "card")).body == b"{}"


# --- Bombs and drips ------------------------------------------------------------------------------


async def test_a_compressed_answer_is_refused_unread(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    """S7."""
    bomb = gzip.compress(bytes(50 * limits.MIB))
    site.pages["/"] = answer(bomb, content_encoding="gzip")
    site.pages["/br"] = answer(b"x", content_encoding="br")
    fetcher = make_fetcher()
    before = psutil.Process().memory_info().rss
    results = await asyncio.gather(
        *(failing(fetcher, f"http://127.0.0.1:{site.port}{path}") for path in ["/", "/br"] * 10)
    )
    assert set(results) == {"encoding"}
    assert psutil.Process().memory_info().rss - before < 8 * limits.MIB


@pytest.mark.parametrize(
    ("purpose", "most"),
    [("card", limits.FETCH_CARD_BYTES), ("health", limits.FETCH_SMALL_BYTES), ("peer", limits.FETCH_PAGE_BYTES)],
)
async def test_a_body_is_read_to_its_bound_and_not_past_it(
    site: ExternalServer, make_fetcher: MakeFetcher, purpose: FetchPurpose, most: int
) -> None:
    site.pages["/at"] = answer(b"x" * most)
    site.pages["/past"] = answer(b"x" * (most + 1))
    at, past = (f"http://127.0.0.1:{site.port}/{name}" for name in ("at", "past"))
    assert len((await make_fetcher().fetch(at, purpose)).body) == most
    assert await failing(make_fetcher(), past, purpose) == "too_large"


async def test_a_body_without_end_ends(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    """S7: without a length, with one byte to a chunk, with a length that lies."""

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    async def chunks(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1;" + b"e" * 200 + b"\r\nx\r\n")
            await writer.drain()

    site.pages["/endless"], site.pages["/chunks"] = endless, chunks
    fetcher = make_fetcher(hurried=True)
    before = psutil.Process().memory_info().rss
    for path in ("/endless", "/chunks"):
        url = f"http://127.0.0.1:{site.port}{path}"
        reasons = await asyncio.gather(*(failing(fetcher, url) for _ in range(8)))
        assert set(reasons) <= {"too_large", "timed_out"}
    assert psutil.Process().memory_info().rss - before < 16 * limits.MIB


async def test_a_drip_is_given_up_at_the_deadline(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    """S7."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async def informs(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    site.pages.update({"/drip": drip, "/silence": silence, "/informs": informs})
    fetcher = make_fetcher(hurried=True)
    for path in ("/drip", "/silence", "/informs"):
        assert await failing(fetcher, f"http://127.0.0.1:{site.port}{path}") in ("timed_out", "too_large")


@pytest.mark.parametrize("size", [limits.FETCH_HEADER_BYTES, 4 * limits.MIB])
async def test_headers_without_end_are_refused(site: ExternalServer, make_fetcher: MakeFetcher, size: int) -> None:
    """S7."""
    lines = "".join(f"x-{number}: {'y' * 100}\r\n" for number in range(size // 100))
    site.pages["/"] = f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode()
    assert await failing(make_fetcher(), f"http://127.0.0.1:{site.port}/") in ("too_large", "protocol")


async def test_a_server_without_http_is_reported(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    site.pages["/"] = b"+PONG\r\n"
    site.pages["/short"] = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nx"
    for path in ("/", "/short"):
        assert await failing(make_fetcher(), f"http://127.0.0.1:{site.port}{path}") == "protocol"


# --- Redirects ------------------------------------------------------------------------------------


async def test_redirects_within_a_site_are_followed_three_times(
    names: DnsServer, make_fetcher: MakeFetcher, authority: Authority
) -> None:
    """S6."""
    for name in ("ok.test", "www.ok.test"):
        names.set(name, "A", ["127.0.0.1"])
    async with external_server(tls=authority.server_context("ok.test", "www.ok.test")) as site:
        for number in range(5):
            there = f"https://www.ok.test:{site.port}/{number + 1}" if number == 0 else f"/{number + 1}"
            site.pages[f"/{number}"] = answer(b"", status="301 Moved", location=there)
        site.pages["/3"] = answer(b"{}")
        fetcher = make_fetcher(ca_file=authority.certificate)
        fetched = await fetcher.fetch(f"https://ok.test:{site.port}/0", "card")
        assert fetched.url == f"https://www.ok.test:{site.port}/3"
        site.pages["/3"] = answer(b"", status="301 Moved", location="/4")
        assert await failing(fetcher, f"https://ok.test:{site.port}/0") == "redirect"
        assert site.connections == 8


@pytest.mark.parametrize(
    "there", ["http://ok.test:{port}/1", "https://other.test:{port}/1", "https://badok.test:{port}/"]
)
async def test_redirects_to_another_site_or_away_from_https_are_not_followed(
    names: DnsServer, make_fetcher: MakeFetcher, authority: Authority, there: str
) -> None:
    """S6."""
    names.set("ok.test", "A", ["127.0.0.1"])
    async with external_server(tls=authority.server_context("ok.test")) as site:
        site.pages["/"] = answer(b"", status="302 Found", location=there.format(port=site.port))
        fetcher = make_fetcher(ca_file=authority.certificate)
        assert await failing(fetcher, f"https://ok.test:{site.port}/") == "redirect"
        assert site.connections == 1


async def test_a_health_check_follows_no_redirect(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    """S6."""
    site.pages["/"] = answer(b"", status="302 Found", location="/there")
    assert (await make_fetcher().fetch(f"http://127.0.0.1:{site.port}/", "health")).status == 302
    assert site.connections == 1


# --- TLS ------------------------------------------------------------------------------------------


async def test_certificates_are_checked_against_the_name(
    names: DnsServer, make_fetcher: MakeFetcher, authority: Authority
) -> None:
    for name in ("ok.test", "wrong.test"):
        names.set(name, "A", ["127.0.0.1"])
    async with external_server(tls=authority.server_context("ok.test", "127.0.0.1")) as site:
        site.pages["/"] = answer(b"{}")
        trusting, usual = make_fetcher(ca_file=authority.certificate), make_fetcher()
        for host in ("ok.test", "127.0.0.1"):
            assert (await trusting.fetch(f"https://{host}:{site.port}/", "card")).body == b"{}"
            assert await failing(usual, f"https://{host}:{site.port}/") == "tls"
        assert await failing(trusting, f"https://wrong.test:{site.port}/") == "tls"


async def test_a_proof_is_fetched_over_https_only(make_fetcher: MakeFetcher) -> None:
    with pytest.raises(InvalidParameter):
        await make_fetcher().fetch("http://ok.test/.well-known/waypost-proof", "proof")


def test_a_file_without_certificates_is_a_mistake_of_the_settings(make_fetcher: MakeFetcher, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(ConfigurationError):
            make_fetcher(ca_file=tmp_path / name)


# --- Manners --------------------------------------------------------------------------------------


async def test_one_address_gets_at_most_four_concurrent_checks(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    """S8."""

    async def slow(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.02)
        writer.write(answer(b"{}"))

    site.pages["/"] = slow
    fetcher = make_fetcher()
    url = f"http://127.0.0.1:{site.port}/"
    fetched = await asyncio.gather(*(fetcher.fetch(url, "card") for _ in range(20)))
    assert [one.status for one in fetched] == [200] * 20
    assert site.most_at_once == limits.FETCH_PER_ADDRESS


async def test_so_many_may_wait_and_no_more(names: DnsServer, make_fetcher: MakeFetcher) -> None:
    """At the limit and one past it: unanswered names occupy all slots."""
    names.silent = True
    fetcher = make_fetcher(hurried=True)
    waiting = [fetcher.fetch(f"http://agent{number}.test/", "card") for number in range(limits.FETCH_WAITING + 1)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    kinds = [type(result) for result in results]
    assert kinds.count(RateLimited) == 1
    assert kinds[-1] is RateLimited
    assert kinds.count(FetchFailed) == limits.FETCH_WAITING
    names.silent = False
    names.set("agent.test", "TXT", ['"x"'])
    assert await failing(fetcher, "http://agent.test/") == "no_address"


def test_the_pace_of_the_last_targets_is_remembered() -> None:
    now, clock = movable_clock()
    pace: Cooldown[int] = Cooldown(2, clock)
    for key in (1, 2, 3):
        pace.start(key, 10)
    assert [pace.remaining_seconds(key) for key in (1, 2, 3)] == [0.0, 10.0, 10.0]
    now[0] += 10
    assert pace.remaining_seconds(3) == 0.0


async def test_an_endpoint_is_checked_once_in_ten_seconds_however_many_agents_name_it(
    site: ExternalServer, names: DnsServer, make_fetcher: MakeFetcher
) -> None:
    """S8."""
    now, clock = movable_clock()
    for number in range(3):
        names.set(f"agent{number}.test", "A", ["127.0.0.1"])
    fetcher = make_fetcher(clock=clock)
    await fetcher.fetch(f"http://agent0.test:{site.port}/", "health")
    for number in range(3):
        with pytest.raises(RateLimited) as refusal:
            await fetcher.fetch(f"http://agent{number}.test:{site.port}/", "health")
        assert refusal.value.retry_after
    assert site.connections == 1
    now[0] += limits.FETCH_HEALTH_PAUSE_SECONDS
    await fetcher.fetch(f"http://agent1.test:{site.port}/", "health")
    assert site.connections == 2


async def test_an_endpoint_that_answers_410_is_not_probed_for_a_day(
    site: ExternalServer, make_fetcher: MakeFetcher
) -> None:
    """S8: the opt-out that the User-Agent names."""
    now, clock = movable_clock()
    site.pages["/"] = answer(b"", status="410 Gone")
    fetcher = make_fetcher(clock=clock)
    url = f"http://127.0.0.1:{site.port}/"
    assert (await fetcher.fetch(url, "health")).status == 410
    now[0] += limits.FETCH_OPT_OUT_SECONDS - 1
    with pytest.raises(RateLimited):
        await fetcher.fetch(url, "health")
    now[0] += 1
    assert (await fetcher.fetch(url, "health")).status == 410


async def test_nothing_is_left_behind(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    """Sockets are closed in every case."""
    site.json("/ok", {})
    site.pages["/gzip"] = answer(b"x", content_encoding="gzip")
    fetcher = make_fetcher()
    process = psutil.Process()
    await fetcher.fetch(f"http://127.0.0.1:{site.port}/ok", "card")
    before = process.num_fds()
    for _ in range(10):
        await fetcher.fetch(f"http://127.0.0.1:{site.port}/ok", "card")
        await failing(fetcher, f"http://127.0.0.1:{site.port}/gzip")
    async with asyncio.timeout(60):
        while process.num_fds() > before + 2:
            await asyncio.sleep(0.01)


def movable_clock() -> tuple[list[float], Callable[[], float]]:
    now = [1000.0]
    return now, lambda: now[0]


def test_every_fetch_ends_within_five_seconds_except_those_that_follow_dns_and_long_polls() -> None:
    longer = {"descriptor": 12.0, "index": 12.0, "crawl": 12.0, "feed": 30.0}  # AID-26; only an admin names a peer
    assert {bounds.total_seconds for purpose, bounds in FETCH_LIMITS.items() if purpose not in longer} == {5.0, 1.5}
    assert {purpose: FETCH_LIMITS[purpose].total_seconds for purpose in longer} == longer  # type: ignore[index]
    assert {bounds.connect_seconds for bounds in FETCH_LIMITS.values()} == {2.0}
    assert msgspec.to_builtins(FETCH_LIMITS["health"])["redirects"] == 0
