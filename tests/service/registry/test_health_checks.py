"""Health checks through the registry: concurrency, stored states, notifications, and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from support.agent_endpoints import ROUND, DeadEndpoints, check, make_checks, serve
from support.external_server import ExternalServer, external_server
from support.fake_dns_server import dns_server
from support.ports import free_port
from support.rtfs import Rpc, card
from support.service import Bench, profile, service
from waypost import limits
from waypost.model.health import EndpointHealth, Health
from waypost.registry.jobs.health_checks import HealthSchedule
from waypost.registry.ports import AuditQuery

MANY = 5000


@pytest.fixture
async def site() -> AsyncIterator[ExternalServer]:
    async with external_server() as made:
        yield made


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as made:
        yield made


def agent(agent_id: str, endpoint: str) -> dict[str, Any]:
    return profile(agent_id, name=agent_id, bindings=[{"protocol": "http", "endpoint": endpoint}])


async def register(client: httpx2.AsyncClient, *documents: dict[str, Any], **headers: str) -> None:
    for document in documents:
        answered = await client.post("/api/v1/agents", json=document, headers=headers)
        assert answered.status_code in (200, 201), answered.text


async def register_many(bench: Bench, count: int, *, endpoint: str = "https://agent-{}.example/") -> None:
    documents = [agent(f"agent-{number}", endpoint.format(number)) for number in range(count)]
    body = b"\n".join(map(msgspec.json.encode, documents))
    answered = await bench.admin().post("/api/v1/agents:batch", content=body)
    assert answered.text.count('"outcome":"created"') == count


def events(bench: Bench, agent_id: str) -> list[str]:
    return [event.type for event in bench.registry.changes._recent if event.id == agent_id]


async def health(client: httpx2.AsyncClient, agent_id: str) -> dict[str, Any]:
    return dict((await client.get(f"/api/v1/agents/{agent_id}:health")).json())


# --- Many ------------------------------------------------------------------------------------------


async def test_five_thousand_dead_endpoints_are_checked_once_per_round_with_bounded_concurrency(bench: Bench) -> None:
    """F13: counted, not timed. Who is dead costs two changes, however long it stays so, and is asked ever more seldom."""
    prober = DeadEndpoints()
    checks = make_checks(bench, prober)
    await register_many(bench, MANY)
    revision = bench.registry.changes.revision
    await check(bench, checks, seconds=0)
    assert len(prober.asked) == prober.asked.total() == MANY
    assert prober.most_at_once <= limits.HEALTH_CONCURRENCY
    await check(bench, checks, 2)
    assert prober.asked.total() == 3 * MANY
    assert bench.registry.changes.revision == revision + 2 * MANY, "suspect, then unhealthy"
    assert (await bench.admin().get("/api/v1/stats")).json()["by_status"] == {"suspended": MANY}
    await check(bench, checks, 20)
    assert bench.registry.changes.revision == revision + 2 * MANY
    assert prober.asked.total() <= 9 * MANY, "twenty rounds later"


async def test_while_endpoints_do_not_answer_everything_else_does(bench: Bench) -> None:
    prober = DeadEndpoints(waits=True)
    checks = make_checks(bench, prober)
    await register_many(bench, limits.HEALTH_CONCURRENCY + 50)
    bench.clock.advance(ROUND)
    going = asyncio.create_task(checks.check_due())
    async with asyncio.timeout(60):
        while prober.at_once < limits.HEALTH_CONCURRENCY:
            await asyncio.sleep(0)
        client = bench.admin()
        await register(client, agent("late", "https://late.example/"))
        assert (await client.get("/api/v1/agents/late")).status_code == 200
        found = await client.post("/profile/v1/discover", json={"query": "answers questions", "limit": 5})
        assert len(found.json()["candidates"]) == 5
        assert prober.at_once == limits.HEALTH_CONCURRENCY
        prober.let_go.set()
        await going
    assert len(prober.asked) == limits.HEALTH_CONCURRENCY + 51


async def test_agents_of_one_endpoint_share_its_checks(bench: Bench, site: ExternalServer) -> None:
    checks = make_checks(bench)
    endpoint = serve(site, "/", 500)
    await register(bench.admin(), *(agent(f"agent-{number}", endpoint) for number in range(20)))
    await check(bench, checks, 3)
    assert len(site.requests) == 3
    assert (await bench.admin().get("/api/v1/stats")).json()["by_status"] == {"suspended": 20}


async def test_while_the_health_of_many_agents_of_one_endpoint_is_stored_other_work_goes_on(bench: Bench) -> None:
    """The memory store waits for nothing, so that only the checks themselves let others run."""
    checks = make_checks(bench, DeadEndpoints(), evict_seconds=1)
    await register_many(bench, 1000, endpoint="https://gateway.example/")
    revisions = [bench.registry.changes.revision]

    async def look_on() -> None:
        while True:
            revisions.append(bench.registry.changes.revision)
            await asyncio.sleep(0)

    looking = asyncio.create_task(look_on())
    await check(bench, checks, 10)
    looking.cancel()
    assert (await bench.admin().get("/api/v1/stats")).json()["agents"] == 0, "suspect, unhealthy, evicted"
    assert revisions[-1] - revisions[0] == 3 * 1000
    assert max(after - before for before, after in pairwise(revisions)) < 1000


async def test_different_paths_of_one_server_take_turns(bench: Bench, site: ExternalServer) -> None:
    """S8: one check of an address and port in ten seconds; whose turn it is not stays as it was."""
    checks = make_checks(bench)
    await register(bench.admin(), *(agent(f"agent-{number}", serve(site, f"/{number}", 200)) for number in range(3)))
    await check(bench, checks, seconds=0)
    assert len(site.requests) == 1
    for _ in range(20):
        await check(bench, checks, seconds=11)
    listed = (await bench.admin().get("/api/v1/agents")).json()["health"]
    assert listed == {f"agent-{number}": "healthy" for number in range(3)}


async def test_if_more_than_half_fail_at_once_no_agent_is_delisted_for_an_hour(bench: Bench) -> None:
    """The fault may be in our own network. Endpoints that never answered are still marked."""
    prober = DeadEndpoints()
    checks = make_checks(bench, prober)
    await register_many(bench, 120)
    lived = {f"https://agent-{number}.example/" for number in range(100)}
    prober.alive = set(lived)
    await check(bench, checks)
    prober.alive = set()
    await check(bench, checks, 5)
    stats = (await bench.admin().get("/api/v1/stats")).json()["by_status"]
    assert stats == {"active": 100, "suspended": 20}
    prober.alive = set(sorted(lived)[:60])
    await check(bench, checks)
    assert (await bench.admin().get("/api/v1/stats")).json()["by_status"]["active"] == 60, "it was not us"
    prober.alive = set()
    await check(bench, checks, 5)
    assert (await bench.admin().get("/api/v1/stats")).json()["by_status"]["active"] == 60
    await check(bench, checks, 2, seconds=limits.OUTAGE_HOLD_SECONDS)
    assert (await bench.admin().get("/api/v1/stats")).json()["by_status"] == {"suspended": 120}


def test_checks_are_spread_and_dead_endpoints_are_checked_less_often() -> None:
    draws = iter((0.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5))
    schedule = HealthSchedule(60.0, lambda: next(draws))
    schedule.watch("a", "https://a.example/", None, 0.0)
    pauses = []
    now = 0.0
    for failures in (0, 0, 3, 4, 5, 6, 7):
        watched = schedule.take(now)
        assert watched is not None
        state = "unhealthy" if failures else "healthy"
        schedule.done(watched, EndpointHealth(state=state, failures=failures), now)  # type: ignore[arg-type]
        pauses.append(watched.due - now)
        now = watched.due
    assert pauses == pytest.approx([48, 72, 60, 120, 240, 480, 480])


def test_a_schedule_drops_withdrawn_agents_and_follows_changed_endpoints() -> None:
    schedule = HealthSchedule(60.0, lambda: 0.5)
    schedule.watch("a", "https://one.example/", None, 0.0)
    schedule.watch("b", "https://one.example/", None, 0.0)
    schedule.watch("a", "https://two.example/", Health("unhealthy", 0.0), 5.0)
    assert {watched.endpoint: watched.agents for watched in schedule} == {
        "https://one.example/": {"b"}, "https://two.example/": {"a"}
    }  # fmt: skip
    schedule.forget("b")
    assert schedule.take(4.0) is None
    assert len(schedule) == 1
    moved = schedule.take(5.0)
    assert moved is not None
    assert moved.standing.state == "unhealthy", "a new address clears nothing by itself"
    schedule.watch("a", None, None, 6.0)
    schedule.done(moved, EndpointHealth(), 6.0)
    assert schedule.take(1e9) is None


# --- Reports ----------------------------------------------------------------------------------------


async def test_watchers_see_delisting_and_relisting_only(bench: Bench, site: ExternalServer) -> None:
    checks = make_checks(bench)
    await register(bench.as_("alice"), agent("a", serve(site, "/", 200)))
    await check(bench, checks, 3)
    assert events(bench, "a") == ["registered", "renewed"], "healthy, once"
    serve(site, "/", 500)
    await check(bench, checks, 5)
    assert events(bench, "a") == ["registered", "renewed", "renewed", "updated"]
    serve(site, "/", 200)
    await check(bench, checks, 9)
    assert events(bench, "a") == ["registered", "renewed", "renewed", "updated", "updated"]
    trail = await bench.application.store.audit(AuditQuery(object="a", action="check"))
    assert [b"unhealthy" in leaf for leaf in trail.leaves] == [True, False]


async def test_a_dead_endpoint_is_no_change_of_content(bench: Bench, site: ExternalServer) -> None:
    """An owner's If-Match holds, the document comes back as it was sent, and caches see that the answer is another one."""
    checks = make_checks(bench)
    client = bench.client(bench.token("alice", ttl_seconds=86_400))
    document = agent("a", serve(site, "/", 500))
    sent = await client.post("/api/v1/agents", json=document)
    before = await client.get("/api/v1/agents/a")
    others = await client.get("/api/v1/agents/a?as=a2a")
    listed = await client.get("/.well-known/agentframework/v1/agents")
    await check(bench, checks, 3)
    after = await client.get("/api/v1/agents/a", headers={"if-none-match": before.headers["etag"]})
    assert (after.status_code, after.json(), after.headers["waypost-health"]) == (200, document, "unhealthy")
    assert (await client.get("/api/v1/agents/a?as=a2a")).headers["etag"] != others.headers["etag"]
    again = await client.get("/.well-known/agentframework/v1/agents", headers={"if-none-match": listed.headers["etag"]})
    assert (again.status_code, again.json()) == (200, {"agents": []})
    changed = await client.post(
        "/api/v1/agents", json={**document, "name": "B"}, headers={"if-match": sent.headers["etag"]}
    )
    assert changed.status_code == 200
    assert (await health(client, "a"))["state"] == "unhealthy", "an update clears nothing by itself"


async def test_only_the_owner_learns_why_an_endpoint_fails(tmp_path: Path, site: ExternalServer) -> None:
    """S1: denied, closed and missing look alike to everybody else."""
    async with dns_server() as names, service(tmp_path) as bench:
        names.set("inside.test", "A", ["10.0.0.7"])
        names.set("closed.test", "A", ["127.0.0.1"])
        checks = make_checks(bench, allow=("127.0.0.1/32",), resolver=names.address)
        places = {
            "denied": "http://inside.test/",
            "closed": f"http://closed.test:{free_port()}/",
            "missing": "http://no.test/",
        }
        await register(bench.as_("alice"), *(agent(name, place) for name, place in places.items()))
        await check(bench, checks, 3)
        told = {name: await health(bench.as_("bob"), name) for name in places}
        assert {name: told[name].pop("endpoint") for name in places} == places
        assert {tuple(each.items())[1:] for each in told.values()} == {tuple(told["closed"].items())[1:]}
        assert "reason" not in told["denied"]
        reasons = {name: (await health(bench.as_("alice"), name))["reason"] for name in places}
        assert reasons == {"denied": "address_denied", "closed": "refused", "missing": "no_address"}
        shown = await bench.as_("bob").get("/a/denied", headers={"accept": "text/html"})
        assert "address_denied" not in shown.text
        assert "address_denied" in (await bench.admin().get("/api/v1/agents/denied:health")).text


async def test_an_endpoint_at_a_denied_number_is_refused_when_it_is_registered(tmp_path: Path) -> None:
    """S1: a name is not looked up for it."""
    async with service(tmp_path, health_checks=True) as bench:
        client = bench.as_("alice")
        for endpoint in ("http://169.254.169.254/", "http://10.0.0.7/", "ws://[::1]:9000/", "tcp://192.168.1.1:7000"):
            answered = await client.post("/api/v1/agents", json=agent("a", endpoint))
            assert answered.status_code == 422, endpoint
        assert "allow_cidrs" in (await client.post("/api/v1/agents", json=agent("a", "http://10.0.0.7/"))).text
        refused = await Rpc(client).error("register", agent_card=card(), endpoint_url="http://10.0.0.7/")
        assert refused["code"] == -32005
        await register(client, agent("b", "https://inside.test/"))


async def test_the_health_of_a_hidden_agent_is_not_shown(bench: Bench, site: ExternalServer) -> None:
    checks = make_checks(bench)
    alice, bob = bench.as_("alice"), bench.as_("bob")
    await register(alice, agent("hidden", serve(site, "/", 200)), **{"Waypost-Visibility": "private"})
    before = {path: (await bob.get(path)).content for path in ("/api/v1/agents", "/api/v1/stats", "/agents")}
    await check(bench, checks, 2)
    assert (await health(alice, "hidden"))["state"] == "healthy"
    serve(site, "/", 500)
    await check(bench, checks, 3)
    assert (await bob.get("/api/v1/agents/hidden:health")).status_code == 404
    assert {path: (await bob.get(path)).content for path in before} == before


async def test_the_health_that_a_publisher_claims_is_shown_as_self_asserted(bench: Bench) -> None:
    """P11: no claim looks like a result of a check."""
    await register(bench.as_("alice"), profile("a", health={"state": "healthy"}))
    asked = {"query": "answers questions", "detail": "full"}
    (found,) = (await bench.as_("bob").post("/profile/v1/discover", json=asked)).json()["candidates"]
    assert found["self_asserted"] == {"health": {"state": "healthy"}}
    assert "health" not in found
    assert (await health(bench.as_("bob"), "a"))["state"] == "unknown"


# --- Life ------------------------------------------------------------------------------------------


async def test_health_states_survive_a_restart_and_checks_continue_from_them(
    tmp_path: Path, site: ExternalServer
) -> None:
    endpoint = serve(site, "/", 500)
    async with service(tmp_path, store="sqlite") as bench:
        checks = make_checks(bench)
        await register(bench.admin(), agent("dead", endpoint), agent("mail", "mailto:a@b.example"))
        await check(bench, checks, 3)
    async with service(tmp_path, store="sqlite", clock=bench.clock) as bench:
        client = bench.admin()
        assert (await health(client, "dead"))["state"] == "unhealthy"
        assert (await client.get("/api/v1/agents")).json()["agents"][0]["id"] == "mail"
        asked = len(site.requests)
        revision = bench.registry.changes.revision
        checks = make_checks(bench)
        await check(bench, checks, seconds=0)
        await check(bench, checks)
        assert len(site.requests) == asked + 1
        assert bench.registry.changes.revision == revision, "nothing new was found"
        serve(site, "/", 200)
        await check(bench, checks, 2, seconds=8 * ROUND)
        assert (await health(client, "dead"))["state"] == "healthy"


async def test_a_service_with_the_setting_asks_by_itself(tmp_path: Path, site: ExternalServer) -> None:
    """From registration to response without help from the test; the service does not check itself."""
    async with service(tmp_path, health_checks=True, allow_cidrs=("127.0.0.1/32",)) as bench:
        client = bench.admin()
        own = f"{bench.application.base_url}/agent/chat"
        await register(client, agent("a", serve(site, "/", 200)), agent("own", own))
        async with asyncio.timeout(60):
            while (await health(client, "a"))["state"] != "healthy":
                await asyncio.sleep(0.05)
        assert (await health(client, "own"))["state"] == "unknown"
        assert (await client.get("/metrics")).text.count("waypost_health_checks 1") == 1
