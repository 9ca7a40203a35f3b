"""`GET /api/v1/resolve`: results, access, rate limits, and what is never revealed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.certificates import Authority
from support.fake_dns import Identity, Site, site
from support.fake_dns_server import DnsServer, dns_server
from support.ports import free_port
from support.service import Bench, service
from waypost import limits

RESOLVE = "/api/v1/resolve"
DOMAIN = "alice.example.com"


@pytest.fixture
async def names() -> AsyncIterator[DnsServer]:
    async with dns_server() as server:
        yield server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def web(authority: Authority) -> AsyncIterator[Site]:
    async with site(authority.server_context(DOMAIN)) as running:
        yield running


@pytest.fixture
async def bench(tmp_path: Path, names: DnsServer, authority: Authority) -> AsyncIterator[Bench]:
    async with service(
        tmp_path, allow_cidrs=("127.0.0.1/32",), resolver=names.address, fetch_ca=authority.certificate
    ) as made:
        yield made


def publish(names: DnsServer, web: Site) -> None:
    url = f"https://{DOMAIN}:{web.port}/.well-known/agent.json"
    names.set(DOMAIN, "SVCB", [f"1 . alpn=a2a port={web.port}"])
    names.set(DOMAIN, "A", ["127.0.0.1"])
    names.set(f"_agent.{DOMAIN}", "TXT", [Identity(DOMAIN).txt(url)])
    web.put("/.well-known/agent.json", Identity(DOMAIN).document())


async def test_a_domain_is_resolved_step_by_step(bench: Bench, names: DnsServer, web: Site) -> None:
    publish(names, web)
    answer = await bench.as_("reader", "discover:read").get(RESOLVE, params={"name": f"agent:{DOMAIN}"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json()
    assert (found["outcome"], found["level"], found["how"]) == ("resolved", "key-verified", "svcb")
    assert found["document"]["dialect"] == "adp"
    assert [step["name"] for step in found["steps"]] == ["svcb", "txt", "tlsa", "document", "identity", "key"]


async def test_the_depth_is_the_callers_choice(bench: Bench, names: DnsServer, web: Site) -> None:
    publish(names, web)
    found = (await bench.admin().get(RESOLVE, params={"name": DOMAIN, "until": "dns"})).json()
    assert (found["level"], found["document"], found["cost"]["fetches"]) == ("dns-verified", None, 0)
    assert web.connections == 0


async def test_a_cached_resolution_is_marked_and_can_be_refreshed(bench: Bench, names: DnsServer, web: Site) -> None:
    publish(names, web)
    client = bench.admin()
    assert not (await client.get(RESOLVE, params={"name": DOMAIN})).json()["remembered"]
    assert (await client.get(RESOLVE, params={"name": DOMAIN})).json()["remembered"]
    assert not (await client.get(RESOLVE, params={"name": DOMAIN, "fresh": "true"})).json()["remembered"]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "com"}, "name"),
        ({"name": "127.0.0.1"}, "name"),
        ({"name": "http://alice.example.com/"}, "name"),
        ({"name": DOMAIN, "until": "heaven"}, "until"),
        ({"name": DOMAIN, "fresh": "perhaps"}, "fresh"),
    ],
)
async def test_invalid_resolve_parameters_are_refused_with_their_names(
    bench: Bench, params: dict[str, str], path: str
) -> None:
    answer = await bench.admin().get(RESOLVE, params=params)
    assert (answer.status_code, answer.json()["path"]) == (400, path)


async def test_it_needs_the_right_to_read_and_does_not_answer_another_registry(bench: Bench) -> None:
    assert (await bench.anonymous().get(RESOLVE, params={"name": DOMAIN})).status_code == 401
    hop = bench.client(bench.admin_token, **{"X-Discovery-Hop": "1"})
    assert (await hop.get(RESOLVE, params={"name": DOMAIN})).status_code == 508


async def test_closed_and_denied_look_alike_without_admin(bench: Bench, names: DnsServer) -> None:
    face = next(route for route in bench.application.http_app.router.routes if route.path == RESOLVE).handler
    face.__self__.discreet_seconds = 0.1  # type: ignore[union-attr]
    seen = []
    for number, (address, port) in enumerate((("127.0.0.1", free_port()), ("10.0.0.1", 443), ("169.254.169.254", 443))):
        domain = f"a{number}.example.com"
        names.set(domain, "SVCB", [f'1 . alpn=a2a port={port} key65409="agent.json"'])
        names.set(domain, "A", [address])
        found = (await bench.as_("reader").get(RESOLVE, params={"name": domain})).json()
        step = next(each for each in found["steps"] if each["name"] == "document")
        seen.append((step["code"], step["state"], step["reason"], found["code"], found["level"]))
    assert len(set(seen)) == 1
    assert seen[0][0] == "unreachable"
    told = (await bench.admin().get(RESOLVE, params={"name": "a1.example.com", "fresh": "true"})).json()
    assert next(each for each in told["steps"] if each["name"] == "document")["code"] == "denied"


async def test_an_organisation_lists_its_agents(bench: Bench, names: DnsServer) -> None:
    names.set("_agents.example.com", "SVCB", ["0 alice.example.com.", "0 bob.example.com."])
    answer = await bench.as_("reader", "discover:read").get("/api/v1/organisation", params={"name": "example.com"})
    assert answer.status_code == 200, answer.text
    assert [entry["name"] for entry in answer.json()["entries"]] == ["alice", "bob"]
    assert (await bench.admin().get("/api/v1/organisation", params={"name": "com"})).status_code == 400
    assert (await bench.anonymous().get("/api/v1/organisation", params={"name": "example.com"})).status_code == 401


async def test_asking_others_costs_more_than_reading(tmp_path: Path, names: DnsServer) -> None:
    async with service(tmp_path, resolver=names.address, rate_limit_reads=2 * limits.RESOLVE_COST) as bench:
        reader = bench.as_("reader")
        codes = [(await reader.get(RESOLVE, params={"name": DOMAIN, "until": "dns"})).status_code for _ in range(3)]
        assert codes[0] == 200
        assert codes[-1] == 429
