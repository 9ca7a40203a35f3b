"""The quota of agents per owner: at the limit and one past it, also for concurrent requests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from support.service import profile, service
from waypost import limits


async def test_one_agent_past_the_quota_is_refused_until_another_is_withdrawn(tmp_path: Path) -> None:
    async with service(tmp_path, agents_per_owner=3) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        answers = [await alice.post("/api/v1/agents", json=profile(f"a{number}")) for number in range(4)]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
        problem = answers[-1].json()
        assert (problem["title"], problem["code"]) == ("Quota exceeded", "rate_limited")
        assert "agents_per_owner" in problem["hint"]
        assert (await alice.post("/api/v1/agents", json=profile("a1", name="Other"))).status_code == 200
        assert (await bob.post("/api/v1/agents", json=profile("b"))).status_code == 201
        assert (await alice.delete("/api/v1/agents/a0")).status_code == 204
        assert (await alice.post("/api/v1/agents", json=profile("a3"))).status_code == 201
        assert (await bench.admin().post("/api/v1/agents", json=profile("admins"))).status_code == 201


async def test_many_at_once_do_not_slip_past(tmp_path: Path) -> None:
    async with service(tmp_path, agents_per_owner=10, store="sqlite") as bench:
        alice = bench.as_("alice")
        answers = await asyncio.gather(*(alice.post("/api/v1/agents", json=profile(f"a{n}")) for n in range(40)))
        assert sorted(answer.status_code for answer in answers) == [201] * 10 + [429] * 30
        lines = "\n".join(httpx2.Response(200, json=profile(f"b{n}")).text for n in range(20)).encode()
        bob = await bench.as_("bob").post("/api/v1/agents:batch", content=lines)
        assert (bob.text.count('"created"'), bob.text.count("rate_limited")) == (10, 10)


async def test_an_expired_agent_frees_its_quota(tmp_path: Path) -> None:
    async with service(tmp_path, agents_per_owner=1) as bench:
        alice = bench.as_("alice")
        await alice.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": 10})
        assert (await alice.post("/api/v1/agents", json=profile("b"))).status_code == 429
        bench.clock.advance(11)
        assert (await alice.post("/api/v1/agents", json=profile("b"))).status_code == 201


async def test_the_default_is_a_thousand_and_zero_is_no_limit(tmp_path: Path) -> None:
    lines = "\n".join(httpx2.Response(200, json=profile(f"a{n}")).text for n in range(limits.AGENTS_PER_OWNER + 1))
    for settings, created in (({}, limits.AGENTS_PER_OWNER), ({"agents_per_owner": 0}, limits.AGENTS_PER_OWNER + 1)):
        async with service(tmp_path / str(created), **settings) as bench:
            answer = await bench.as_("alice").post("/api/v1/agents:batch", content=lines.encode())
            assert answer.text.count('"created"') == created
