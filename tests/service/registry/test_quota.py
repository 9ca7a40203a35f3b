"""The quotas of an owner (agents, and bytes of changes), also for concurrent requests, and the bounds of the change log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

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


# --- Bytes ----------------------------------------------------------------------------------------


def large(agent_id: str, version: int) -> dict[str, Any]:
    return profile(agent_id, x_notes=f"{version:06d}" + "x" * 50_000)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_an_owner_that_changes_a_record_again_and_again_is_refused(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, hourly_bytes_per_owner=1_000_000, store=store) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        answers = [await alice.post("/api/v1/agents", json=large("a", version)) for version in range(30)]
        statuses = [answer.status_code for answer in answers]
        assert 15 <= sum(status < 300 for status in statuses) <= 20
        assert statuses[-1] == 429
        problem = answers[-1].json()
        assert (problem["title"], problem["code"]) == ("Quota exceeded", "rate_limited")
        assert "hourly_bytes_per_owner" in problem["hint"]
        assert int(answers[-1].headers["retry-after"]) == problem["retry_after"]
        assert (await bob.post("/api/v1/agents", json=large("b", 0))).status_code == 201
        assert (await bench.admin().post("/api/v1/agents", json=large("c", 0))).status_code == 201
        bench.clock.advance(600)
        assert (await alice.post("/api/v1/agents", json=large("a", 99))).status_code == 200


async def test_an_owner_past_its_bytes_still_renews_and_withdraws(tmp_path: Path) -> None:
    async with service(tmp_path, hourly_bytes_per_owner=100_000) as bench:
        alice = bench.as_("alice")
        for version in range(3):
            await alice.post("/api/v1/agents", json=large("a", version), params={"ttl_seconds": 60})
        assert (await alice.post("/api/v1/agents", json=large("a", 9))).status_code == 429
        current = (await alice.get("/api/v1/agents/a", params={"as": "profile"})).content
        assert (await alice.post("/api/v1/agents", content=current)).json()["outcome"] == "refreshed"
        assert (await alice.post("/api/v1/agents/a:renew", json={"ttl_seconds": 60})).status_code == 200
        assert (await alice.post("/api/v1/agents/a:share", json={"add": ["bob"]})).status_code == 429
        assert (await alice.delete("/api/v1/agents/a")).status_code == 204


async def test_the_log_of_changes_is_bounded_in_bytes(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite", watch_keep_bytes=limits.MIB) as bench:
        alice, changes = bench.as_("alice"), bench.registry.changes
        for version in range(40):
            await alice.post("/api/v1/agents", json=large("a", version))
        first = changes.cursor(1)
        await bench.registry.leader.prune()
        gone = await alice.get("/api/v1/watch", params={"from": first})
        assert (gone.status_code, gone.json()["code"]) == (410, "stale_metadata")
        changes.forget_recent()
        kept = await bench.registry.changes.parse_cursor("0")
        assert 15 <= changes.revision - kept <= 21


async def test_events_in_memory_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATCH_RECENT_BYTES", 200_000)
    async with service(tmp_path) as bench:
        for version in range(10):
            await bench.as_("alice").post("/api/v1/agents", json=large("a", version))
        after, seen = await bench.registry.changes.parse_cursor("0"), []
        async for item in bench.registry.changes.follow(after, None):  # older events come from the store
            seen.append(item)
            if len(seen) == 10:
                break
        assert len({item.cursor for item in seen}) == 10
        assert bench.registry.changes.recent_bytes <= 200_000
