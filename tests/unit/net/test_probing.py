"""Probing an endpoint: the request, what counts as a response, and limits."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from pathlib import Path

import msgspec
import pytest

from support.external_server import ExternalServer, answer, external_server
from support.ports import free_port
from unit.net.conftest import PATIENT, MakeFetcher
from waypost import limits
from waypost.errors import AddressDenied, FetchFailed, RateLimited
from waypost.net.address_policy import AddressPolicy
from waypost.net.dns.upstreams import StubResolver
from waypost.net.fetcher import SafeFetcher, _tls_context


async def reason(fetcher: SafeFetcher, endpoint: str) -> str:
    with pytest.raises(FetchFailed) as refusal:
        await fetcher.probe(endpoint)
    return str(refusal.value.details["reason"])


async def test_a_status_is_an_answer_and_its_body_is_not_read(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    """S9: whatever it is, and however long."""
    site.pages["/"] = answer(b"x" * (4 * limits.FETCH_SMALL_BYTES), content_encoding="gzip")
    assert await make_fetcher().probe(f"http://127.0.0.1:{site.port}/") == 200
    sent = site.requests[0].decode().lower()
    assert sent.startswith("get / http/1.1")
    assert "authorization" not in sent
    assert "cookie" not in sent


async def test_no_redirect_is_followed(site: ExternalServer, make_fetcher: MakeFetcher) -> None:
    site.pages["/"] = answer(b"", status="302 Found", location="/elsewhere")
    assert await make_fetcher().probe(f"http://127.0.0.1:{site.port}/") == 302
    assert len(site.requests) == 1


@pytest.mark.parametrize("status", ["101 Switching Protocols", "426 Upgrade Required", "404 Not Found"])
async def test_a_plain_request_to_a_websocket_gets_426(
    site: ExternalServer, make_fetcher: MakeFetcher, status: str
) -> None:
    site.pages["/ws"] = f"HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".encode()
    assert await make_fetcher().probe(f"ws://127.0.0.1:{site.port}/ws") == int(status[:3])
    sent = dict(line.split(": ", 1) for line in site.requests[0].decode().split("\r\n")[1:] if line)
    assert (sent["Upgrade"], sent["Connection"], sent["Sec-WebSocket-Version"]) == ("websocket", "Upgrade", "13")
    assert len(base64.b64decode(sent["Sec-WebSocket-Key"])) == 16


@pytest.mark.parametrize("scheme", ["tcp", "grpc", "grpcs"])
async def test_where_no_http_is_spoken_a_connection_is_enough(
    site: ExternalServer, make_fetcher: MakeFetcher, scheme: str
) -> None:
    assert await make_fetcher().probe(f"{scheme}://127.0.0.1:{site.port}") is None
    assert site.requests == []


async def test_closed_and_silent_endpoints_fail_with_a_reason(make_fetcher: MakeFetcher) -> None:
    closed = free_port()
    assert await reason(make_fetcher(), f"http://127.0.0.1:{closed}/") == "refused"
    assert await reason(make_fetcher(), f"tcp://127.0.0.1:{closed}") == "refused"
    assert await reason(make_fetcher(), "https://nobody.test/") == "no_address"

    let_go = asyncio.Event()

    async def never(writer: asyncio.StreamWriter) -> None:
        await let_go.wait()

    async with external_server() as silent:
        silent.pages["/"] = never
        short = {"health": msgspec.structs.replace(PATIENT["health"], total_seconds=0.3)}
        fetcher = SafeFetcher(AddressPolicy(["127.0.0.1/32"]), StubResolver("127.0.0.1:9"), fetch_limits=short)  # type: ignore[arg-type]
        assert await reason(fetcher, f"http://127.0.0.1:{silent.port}/") == "timed_out"
        let_go.set()


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:{}/", "ws://127.0.0.1:{}/", "tcp://127.0.0.1:{}"])
async def test_a_denied_address_is_not_connected_to(
    site: ExternalServer, make_fetcher: MakeFetcher, endpoint: str
) -> None:
    """S1."""
    fetcher = make_fetcher(())
    with pytest.raises(AddressDenied):
        await fetcher.probe(endpoint.format(site.port))
    with pytest.raises(AddressDenied):
        fetcher.check_endpoint(endpoint.format(site.port))
    assert site.connections == 0


def test_endpoints_without_a_denied_literal_address_pass_the_check(make_fetcher: MakeFetcher) -> None:
    for endpoint in ("https://inside.test/", "https://127.1/", "stdio:x", "http://8.8.8.8/"):
        make_fetcher(()).check_endpoint(endpoint)


async def test_one_address_and_port_is_checked_once_in_ten_seconds(
    site: ExternalServer, make_fetcher: MakeFetcher
) -> None:
    """S8: however many agents name it, by whatever scheme."""
    now = [0.0]
    site.pages["/"] = answer(b"")
    fetcher = make_fetcher(clock=lambda: now[0])
    await fetcher.probe(f"http://127.0.0.1:{site.port}/")
    for endpoint in (f"http://127.0.0.1:{site.port}/other", f"tcp://127.0.0.1:{site.port}"):
        with pytest.raises(RateLimited) as refusal:
            await fetcher.probe(endpoint)
        assert refusal.value.retry_after == limits.FETCH_HEALTH_PAUSE_SECONDS + 1
    now[0] = limits.FETCH_HEALTH_PAUSE_SECONDS
    assert await fetcher.probe(f"tcp://127.0.0.1:{site.port}") is None


async def test_endpoints_that_never_answer_take_no_place_of_other_requests(make_fetcher: MakeFetcher) -> None:
    """F13: as many of them as are asked at once, and a document is fetched all the same."""
    let_go = asyncio.Event()
    all_there = asyncio.Event()

    async with external_server("0.0.0.0") as site:  # every address of loopback
        site.json("/card.json", {})

        async def hang(writer: asyncio.StreamWriter) -> None:
            if site.at_once == limits.HEALTH_CONCURRENCY:
                all_there.set()
            await let_go.wait()

        site.pages["/hang"] = hang
        fetcher = make_fetcher(("127.0.0.0/8",))
        addresses = [f"127.0.1.{number}" for number in range(1, limits.HEALTH_CONCURRENCY + 1)]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            asked = [group.create_task(fetcher.probe(f"http://{each}:{site.port}/hang")) for each in addresses]
            await all_there.wait()
            assert (await fetcher.fetch(f"http://127.0.0.1:{site.port}/card.json", "card")).status == 200
            for each in asked:
                each.cancel()
            let_go.set()


async def test_probes_that_start_together_load_the_authorities_once(
    make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = []

    def load(ca_file: Path | None) -> ssl.SSLContext:
        loads.append(ca_file)
        time.sleep(0.05)  # so that others start meanwhile
        return ssl.create_default_context()

    monkeypatch.setattr("waypost.net.fetcher.client_tls_context", load)
    _tls_context.cache_clear()
    fetcher = make_fetcher()
    await asyncio.gather(*(reason(fetcher, f"https://127.0.0.1:{free_port()}/") for _ in range(8)))
    _tls_context.cache_clear()
    assert len(loads) == 1
