"""Liveness by default: public https endpoints are checked gently, dead agents are ranked last and called dead."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.agent_endpoints import DeadEndpoints, check, make_checks
from support.server import running_server
from support.service import Bench, profile, service
from waypost import limits
from waypost.errors import AddressDenied, EndpointRejected, WaypostError
from waypost.registry.jobs.health_checks import HealthChecks
from waypost.registry.ports import EndpointProber

WEATHER = "Tells the weather of a place."


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as made:
        yield made


def gentle(bench: Bench, prober: EndpointProber) -> HealthChecks:
    return make_checks(
        bench, prober, delists=False, is_gentle=True, seconds=limits.HEALTH_GENTLE_SECONDS, evict_seconds=86_400
    )


async def register(bench: Bench, agent_id: str, endpoint: str | None = None, **members: Any) -> None:
    binding = {"protocol": "https", "endpoint": endpoint or f"https://{agent_id}.example/"}
    headers = {"Waypost-Visibility": members.pop("visibility", "public")}
    document = profile(agent_id, **{"name": agent_id, "description": WEATHER, "bindings": [binding], **members})
    answered = await bench.as_("alice").post("/api/v1/agents", json=document, headers=headers)
    assert answered.status_code in (200, 201), answered.text


async def find(bench: Bench, **members: Any) -> dict[str, Any]:
    answer = await bench.as_("bob").post("/profile/v1/discover", json={"query": "weather", **members})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ids(found: dict[str, Any]) -> list[str]:
    return [candidate["id"] for candidate in found["candidates"]]


async def die(bench: Bench, checks: HealthChecks, rounds: int = limits.HEALTH_FAILURES) -> None:
    await check(bench, checks, rounds, seconds=limits.HEALTH_GENTLE_SECONDS * 1.2)


async def test_only_public_agents_with_https_endpoints_are_checked(bench: Bench) -> None:
    prober = DeadEndpoints()
    checks = gentle(bench, prober)
    await register(bench, "public")
    await register(bench, "internal", visibility="internal")
    await register(bench, "private", visibility="private")
    await register(bench, "plain", "http://plain.example/")
    await register(bench, "socket", "wss://socket.example/")
    await register(bench, "bare", "grpc://bare.example:443")
    await die(bench, checks, 1)
    assert set(prober.asked) == {"https://public.example/"}
    await register(bench, "public", visibility="private")
    await die(bench, checks, 2)
    assert prober.asked["https://public.example/"] == 1, "it is not public any more"


async def test_a_dead_agent_is_ranked_last_and_called_dead(bench: Bench) -> None:
    prober = DeadEndpoints()
    prober.alive = {f"https://good-{number}.example/" for number in range(5)}
    checks = gentle(bench, prober)
    await register(bench, "weather", tags=["weather"])
    for number in range(5):
        await register(bench, f"good-{number}")
    before = await find(bench)
    assert ids(before)[0] == "weather"
    assert "health" not in before["candidates"][0], "never checked"
    await die(bench, checks, 1)
    suspect = await find(bench)
    assert ids(suspect)[0] == "weather"
    assert suspect["candidates"][0]["health"]["state"] == "suspect", "unreachable, not dead yet"
    await die(bench, checks, 2)
    dead = await find(bench)
    assert ids(dead)[-1] == "weather"
    assert len(ids(dead)) == 6
    assert dead["candidates"][-1]["health"]["state"] == "dead"
    assert [text for text in dead["warnings"] if "dead" in text] == [
        "One of these agents is dead: the endpoint failed at least 3 checks in a row. Dead agents are ranked last."
    ]
    assert "weather" not in ids(await find(bench, limit=5)), "live agents come first, whatever the limit"
    assert ids(await find(bench, required_tags=["weather"])) == ["weather"], "it can be found"
    context = {"client_context": {"locale": "en"}}
    assert ids(await find(bench, **context))[-1] == "weather", "also with preferences"
    client = bench.as_("bob")
    assert (await client.get("/api/v1/agents/weather")).headers["waypost-health"] == "dead"
    assert (await client.get("/api/v1/agents/weather:health")).json()["status"] == "active", "it is still listed"
    assert "weather" in [agent["id"] for agent in (await client.get("/api/v1/agents")).json()["agents"]]
    page = await bench.client(Accept="text/html").get("/a/weather")
    assert re.search("dead <time [^>]*>since ", page.text)
    prober.alive.add("https://weather.example/")
    await die(bench, checks, 2 * limits.HEALTH_BACKOFF)
    recovered = await find(bench)
    assert ids(recovered)[0] == "weather"
    assert "warnings" not in recovered


async def test_writes_do_not_hasten_death(bench: Bench) -> None:
    prober = DeadEndpoints()
    checks = gentle(bench, prober)
    client = bench.as_("bob")
    for number in range(6):
        await register(bench, f"agent-{number}", "https://shared.example/")
        await check(bench, checks, seconds=limits.FETCH_HEALTH_PAUSE_SECONDS + 1)
    assert prober.asked["https://shared.example/"] == 6, "each registration triggers a check"
    assert (await client.get("/api/v1/agents/agent-0:health")).json()["state"] == "suspect"
    await die(bench, checks, limits.HEALTH_FAILURES - 1)
    assert (await client.get("/api/v1/agents/agent-0:health")).json()["state"] == "dead"


async def test_a_dead_agent_is_last_in_every_search(bench: Bench) -> None:
    prober = DeadEndpoints()
    prober.alive = {"https://good.example/"}
    checks = gentle(bench, prober)
    await register(bench, "weather", tags=["weather"])
    await register(bench, "good")
    await die(bench, checks)
    client = bench.as_("bob")
    found = (await client.post("/ard/search", json={"query": {"text": "weather"}})).json()
    names = [row["displayName"] for row in found["results"]]
    assert (names[-1], len(names)) == ("weather", 2)


@pytest.mark.req("ARD-24", "ARD-25")
async def test_scores_of_ard_results_descend_and_pages_are_complete_with_dead_agents(bench: Bench) -> None:
    prober = DeadEndpoints()
    prober.alive = {f"https://good-{number}.example/" for number in range(3)}
    checks = gentle(bench, prober)
    for number in range(3):
        await register(bench, f"good-{number}", description="Tells, among much else, the weather of some places.")
        await register(bench, f"weather-{number}", tags=["weather"])
    await die(bench, checks)
    client = bench.as_("bob")
    question: dict[str, Any] = {"query": {"text": "weather"}, "pageSize": 2}
    pages = []
    while not pages or "pageToken" in pages[-1]:
        token = {"pageToken": pages[-1]["pageToken"]} if pages else {}
        pages.append((await client.post("/ard/search", json=question | token)).json())
    found = [row for page in pages for row in page["results"]]
    scores = [row["score"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert {row["displayName"] for row in found[:2]} < {"good-0", "good-1", "good-2"}
    assert sorted(row["displayName"] for row in found) == [
        *(f"good-{n}" for n in range(3)),
        *(f"weather-{n}" for n in range(3)),
    ]


async def test_a_dead_agent_is_not_removed_by_default(bench: Bench) -> None:
    checks = gentle(bench, DeadEndpoints())
    await register(bench, "weather")
    await die(bench, checks)
    bench.clock.advance(30 * 86_400)
    await die(bench, checks)
    answer = await bench.client(bench.token("bob")).get("/api/v1/agents/weather")
    assert (answer.status_code, answer.headers["waypost-health"]) == (200, "dead")


@pytest.mark.parametrize(
    "error", [AddressDenied("no", details={"reason": "private"}), EndpointRejected("a port that is never called")]
)
async def test_a_denied_address_is_left_alone_and_counts_as_never_checked(bench: Bench, error: WaypostError) -> None:
    class Denied(DeadEndpoints):
        async def probe(self, endpoint: str) -> int | None:
            self.asked[endpoint] += 1
            raise error

    prober = Denied()
    checks = gentle(bench, prober)
    await register(bench, "laptop", "https://10.0.0.7/")
    await die(bench, checks, 4)
    assert prober.asked["https://10.0.0.7/"] == 1
    answer = await bench.as_("bob").get("/api/v1/agents/laptop:health")
    assert answer.json()["state"] == "unknown"


async def test_an_agent_that_is_no_longer_checked_is_not_dead_for_good(bench: Bench) -> None:
    checks = gentle(bench, DeadEndpoints())
    await register(bench, "weather")
    await die(bench, checks)
    owner = bench.client(bench.token("alice", ttl_seconds=86_400))
    assert (await owner.get("/api/v1/agents/weather:health")).json()["state"] == "dead"
    await register(bench, "weather", "http://weather.example/")
    await checks.check_due()
    assert (await owner.get("/api/v1/agents/weather:health")).json()["state"] == "unknown"


async def test_a_service_without_a_way_out_declares_nobody_dead(bench: Bench) -> None:
    checks = gentle(bench, DeadEndpoints())
    for number in range(limits.OUTAGE_MIN_ENDPOINTS + 5):
        await register(bench, f"agent-{number}")
    await die(bench, checks, 5)
    states = (await bench.admin().get("/api/v1/agents", params={"limit": 200})).json()["health"]
    assert set(states.values()) == {"suspect"}


async def test_health_survives_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        checks = gentle(bench, DeadEndpoints())
        await register(bench, "weather", tags=["weather"])
        await die(bench, checks)
        await register(bench, "good")
    async with service(tmp_path, store="sqlite", clock=bench.clock) as bench:
        found = await find(bench)
        assert (ids(found)[-1], len(ids(found))) == ("weather", 2)
        assert found["candidates"][-1]["health"]["state"] == "dead"


async def test_checks_are_on_by_default_and_registration_accepts_any_address(tmp_path: Path) -> None:
    async with service(tmp_path, health_checks=None) as bench:
        metrics = (await bench.admin().get("/metrics")).text
        assert "waypost_health_watched 0" in metrics
        await register(bench, "laptop", "https://127.0.0.1:1/")
    async with service(tmp_path / "off", health_checks=False) as bench:
        assert "waypost_health_watched" not in (await bench.admin().get("/metrics")).text


def test_checks_are_off_in_the_demo() -> None:
    with running_server(command="demo", environment={"WAYPOST_HEALTH_CHECKS": "true"}) as server:
        assert "waypost_health_watched" not in httpx2.get(f"{server.url}/metrics", timeout=60).text
