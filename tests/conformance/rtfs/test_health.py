"""rtfs.md §5: endpoints are probed, and every API shows the result (RTFS-45)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.agent_endpoints import ROUND, check, make_checks, serve
from support.external_server import ExternalServer, external_server
from support.rtfs import Rpc, card
from support.service import NOW, Bench, service
from waypost.model.times import to_rfc3339
from waypost.registry.jobs.health_checks import HealthChecks
from waypost.registry.ports import AuditQuery

DAY = 86_400.0


@pytest.fixture
async def site() -> AsyncIterator[ExternalServer]:
    async with external_server() as made:
        yield made


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as made:
        yield made


@pytest.fixture
def checks(bench: Bench) -> HealthChecks:
    return make_checks(bench)


@pytest.fixture
def rpc(bench: Bench) -> Rpc:
    return Rpc(owner(bench))


def owner(bench: Bench) -> httpx2.AsyncClient:
    """A client whose token is valid for a day."""
    return bench.client(bench.token("alice", ttl_seconds=int(DAY)))


def at(endpoint: str) -> dict[str, Any]:
    return {"communication": {"endpoints": [{"protocol": "http", "uri": endpoint}]}}


async def health(rpc: Rpc, agent_id: str = "weather") -> str:
    """The health that the registry shows for a listed agent; `-` for one that is not listed."""
    found = (await rpc.call("discover", agent_id=agent_id))["agents"]
    return str(found[0]["registry"]["health"]) if found else "-"


@pytest.mark.req("RTFS-45")
async def test_an_endpoint_that_answers_fails_three_times_and_answers_twice(
    bench: Bench, checks: HealthChecks, site: ExternalServer, rpc: Rpc
) -> None:
    endpoint = serve(site, "/", 200)
    await rpc.register(card(**at(endpoint)), ttl_seconds=86_400)
    assert await health(rpc) == "unknown"
    seen: list[str] = []
    for code in (200, 500, 500, 500, 500, 200, 500, 200, 200):
        serve(site, "/", code)
        await check(bench, checks, seconds=8 * ROUND)
        seen.append(await health(rpc))
    assert seen == ["healthy", "suspect", "suspect", "-", "-", "-", "-", "-", "healthy"]


@pytest.mark.req("RTFS-45")
@pytest.mark.parametrize(
    ("code", "state"), [(204, "healthy"), (302, "healthy"), (401, "healthy"), (405, "healthy"),
                        (404, "suspect"), (410, "-"), (500, "suspect"), (503, "suspect")]
)  # fmt: skip
async def test_any_status_but_404_410_and_5xx_is_a_sign_of_life(
    bench: Bench, checks: HealthChecks, site: ExternalServer, rpc: Rpc, code: int, state: str
) -> None:
    """410 is permanent and also means that probes are not wanted, so one response is enough."""
    await rpc.register(card(**at(serve(site, "/", code))))
    await check(bench, checks)
    assert await health(rpc) == state


@pytest.mark.req("RTFS-45")
async def test_sockets_are_upgraded_bare_ports_connected_to_and_others_left_alone(
    bench: Bench, checks: HealthChecks, site: ExternalServer, rpc: Rpc
) -> None:
    await rpc.register(card("socket", **at(f"ws://127.0.0.1:{site.port}/nothing")))
    await check(bench, checks)
    await rpc.register(card("bare", **at(f"grpc://127.0.0.1:{site.port}")))
    await check(bench, checks)
    await rpc.register(card("mail", **at("mailto:agent@example.com")))
    await check(bench, checks)
    assert [await health(rpc, name) for name in ("socket", "bare", "mail")] == ["healthy", "healthy", "unknown"]
    assert b"Upgrade: websocket" in site.requests[0]


@pytest.mark.req("RTFS-45")
async def test_the_first_check_comes_at_once_and_the_next_after_a_minute_more_or_less(
    bench: Bench, checks: HealthChecks, site: ExternalServer, rpc: Rpc
) -> None:
    await rpc.register(card(**at(serve(site, "/", 200))))
    await check(bench, checks, seconds=0)
    assert len(site.requests) == 1
    await check(bench, checks, seconds=59)
    assert len(site.requests) == 1
    await check(bench, checks, seconds=1)
    assert len(site.requests) == 2, "chance is in the middle: after sixty seconds exactly"


@pytest.mark.req("RTFS-45")
async def test_a_heartbeat_brings_one_check_and_clears_nothing_by_itself(
    bench: Bench, checks: HealthChecks, site: ExternalServer, rpc: Rpc
) -> None:
    await rpc.register(card(**at(serve(site, "/", 500))))
    await check(bench, checks, 3)
    assert await health(rpc) == "-"
    asked = len(site.requests)
    serve(site, "/", 200)
    for _ in range(2):
        bench.clock.advance(11)
        await rpc.call("heartbeat", agent_id="weather")
        assert await health(rpc) == "-", "until it was asked"
        await checks.check_due()
        await checks.check_due()
    assert await health(rpc) == "healthy"
    assert len(site.requests) == asked + 2, "one check for each, long before the usual time"
    await rpc.call("heartbeat", agent_id="weather")
    await checks.check_due()
    assert len(site.requests) == asked + 2, "and never one within ten seconds of the last"


@pytest.mark.req("RTFS-45")
async def test_unhealthy_is_suspended_and_listed_nowhere_but_kept(
    bench: Bench, checks: HealthChecks, site: ExternalServer, rpc: Rpc
) -> None:
    await rpc.register(card(name="Barometer", **at(serve(site, "/", 200))))
    client, anybody = bench.as_("alice"), bench.as_("bob")
    await check(bench, checks)
    found = (await anybody.post("/profile/v1/discover", json={"query": "weather of a place"})).json()
    assert found["candidates"][0]["health"] == {"state": "healthy", "since": to_rfc3339(NOW + ROUND)}
    assert (await anybody.get("/api/v1/agents")).json()["health"] == {"weather": "healthy"}
    serve(site, "/", 503)
    await check(bench, checks, 3)

    assert (await anybody.post("/profile/v1/discover", json={"query": "weather"})).json()["candidates"] == []
    assert (await anybody.get("/api/v1/agents")).json() == {"agents": []}
    assert (await anybody.get("/profile/v1/agents")).json() == {"agents": []}
    assert (await anybody.get("/agents")).json()["agents"] == []
    assert (await anybody.get("/.well-known/agentframework/v1/agents")).json() == {"agents": []}
    suspended = (await anybody.get("/api/v1/agents?status=suspended&as=rtfs")).json()
    assert [agent["agent_id"] for agent in suspended["agents"]] == ["weather"]
    assert suspended["health"] == {"weather": "unhealthy"}

    read = await anybody.get("/api/v1/agents/weather")
    assert (read.status_code, read.json()["status"], read.headers["waypost-health"]) == (200, "suspended", "unhealthy")
    told = (await anybody.get("/api/v1/agents/weather:health")).json()
    assert told == {
        "id": "weather", "state": "unhealthy", "status": "suspended", "since": to_rfc3339(NOW + 4 * ROUND),
        "endpoint": f"http://127.0.0.1:{site.port}/",
    }  # fmt: skip
    assert (await client.get("/api/v1/agents/weather:health")).json() == {**told, "reason": "status_503"}
    page = (await client.get("/a/weather", headers={"accept": "text/html"})).text
    assert "unhealthy" in page


@pytest.mark.req("RTFS-45")
async def test_a_day_of_silence_on_both_sides_removes_the_agent(
    bench: Bench, checks: HealthChecks, site: ExternalServer, rpc: Rpc
) -> None:
    """A dead endpoint alone does not evict an agent whose owner renews its lease."""
    client = owner(bench)
    endpoint = serve(site, "/", 500)
    for name in ("kept", "gone"):
        document = {
            "id": name,
            "name": name,
            "description": "x",
            "bindings": [{"protocol": "http", "endpoint": endpoint}],
        }
        assert (await client.post("/api/v1/agents", json=document)).status_code == 201
    await check(bench, checks, 3)
    await check(bench, checks, seconds=DAY / 2)
    await client.post("/api/v1/agents/kept:renew", json={"ttl_seconds": 86_400})
    await check(bench, checks, seconds=DAY / 2 + ROUND)
    client = bench.as_("alice")
    assert (await client.get("/api/v1/agents/gone")).status_code == 404
    assert (await client.get("/api/v1/agents/kept:health")).json()["state"] == "unhealthy"
    assert await bench.application.store.tombstone("gone") is not None
    trail = await bench.application.store.audit(AuditQuery(object="gone"))
    assert b'"outcome":"evicted"' in trail.leaves[-1]
    document = {"id": "gone", "name": "x", "description": "x", "bindings": [{"protocol": "http", "endpoint": endpoint}]}
    assert (await bench.as_("bob").post("/api/v1/agents", json=document)).status_code == 409, (
        "its id is held for its owner"
    )
    assert (await client.post("/api/v1/agents", json=document)).status_code == 201


@pytest.mark.req("RTFS-45")
async def test_delisting_can_be_turned_off(bench: Bench, site: ExternalServer, rpc: Rpc) -> None:
    checks = make_checks(bench, evict_seconds=0)
    client = bench.as_("alice")
    document = {
        "id": "a",
        "name": "a",
        "description": "x",
        "bindings": [{"protocol": "http", "endpoint": serve(site, "/", 500)}],
    }
    await client.post("/api/v1/agents", json=document)
    await check(bench, checks, 3)
    await check(bench, checks, 3, seconds=2 * DAY)
    assert (await bench.as_("alice").get("/api/v1/agents/a")).status_code == 200


@pytest.mark.req("RTFS-45")
async def test_a_service_without_health_checks_probes_no_endpoint(bench: Bench, site: ExternalServer, rpc: Rpc) -> None:
    await rpc.register(card(**at(serve(site, "/", 200))))
    assert await health(rpc) == "unknown"
    assert (await bench.as_("bob").get("/api/v1/agents/weather")).headers.get("waypost-health") is None
    assert site.connections == 0
