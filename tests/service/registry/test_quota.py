"""The quotas of an owner (agents, stored bytes, bytes of changes), also for concurrent requests, and the bounds of the log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.announce import announcement, key
from support.rtfs import Rpc, card
from support.service import NOW, profile, service
from waypost import limits
from waypost.net.clock import ManualClock


async def test_one_agent_past_the_quota_is_refused_until_another_is_withdrawn(tmp_path: Path) -> None:
    async with service(tmp_path, agents_per_owner=3) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        answers = [await alice.post("/api/v1/agents", json=profile(f"a{number}")) for number in range(4)]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 403]
        problem = answers[-1].json()
        assert (problem["title"], problem["code"]) == ("Over quota", "forbidden")
        assert "retry-after" not in answers[-1].headers  # waiting does not help
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
        assert sorted(answer.status_code for answer in answers) == [201] * 10 + [403] * 30
        lines = "\n".join(httpx2.Response(200, json=profile(f"b{n}")).text for n in range(20)).encode()
        bob = await bench.as_("bob").post("/api/v1/agents:batch", content=lines)
        assert (bob.text.count('"created"'), bob.text.count("forbidden")) == (10, 10)


async def test_an_expired_agent_frees_its_quota(tmp_path: Path) -> None:
    async with service(tmp_path, agents_per_owner=1) as bench:
        alice = bench.as_("alice")
        await alice.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": 10})
        assert (await alice.post("/api/v1/agents", json=profile("b"))).status_code == 403
        bench.clock.advance(11)
        assert (await alice.post("/api/v1/agents", json=profile("b"))).status_code == 201


async def test_the_default_is_a_thousand_and_zero_is_no_limit(tmp_path: Path) -> None:
    lines = "\n".join(httpx2.Response(200, json=profile(f"a{n}")).text for n in range(limits.AGENTS_PER_OWNER + 1))
    for settings, created in (({}, limits.AGENTS_PER_OWNER), ({"agents_per_owner": 0}, limits.AGENTS_PER_OWNER + 1)):
        async with service(tmp_path / str(created), **settings) as bench:
            answer = await bench.as_("alice").post("/api/v1/agents:batch", content=lines.encode())
            assert answer.text.count('"created"') == created


# --- Stored bytes ---------------------------------------------------------------------------------


def document(agent_id: str, size: int, **members: Any) -> bytes:
    """A profile document of exactly `size` bytes."""
    empty = json.dumps(profile(agent_id, x_notes="", **members))
    return json.dumps(profile(agent_id, x_notes="x" * (size - len(empty)), **members)).encode()


async def put(client: httpx2.AsyncClient, content: bytes, **options: Any) -> int:
    return (await client.post("/api/v1/agents", content=content, **options)).status_code


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_the_documents_of_an_owner_are_bounded_in_bytes(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, stored_bytes_per_owner=10_000, store=store) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        assert [await put(alice, document(name, 5_000)) for name in ("a", "b")] == [201, 201]
        refused = await alice.post("/api/v1/agents", content=document("c", 1_000))
        problem = refused.json()
        assert (refused.status_code, problem["title"], problem["code"]) == (403, "Over quota", "forbidden")
        assert "retry-after" not in refused.headers
        assert "10000 bytes" in problem["message"]
        assert "Withdraw agents" in problem["hint"]
        assert "stored_bytes_per_owner" in problem["hint"]
        assert await put(alice, document("a", 5_001)) == 403
        assert await put(alice, document("a", 5_000, name="As long")) == 200
        assert await put(alice, document("a", 4_000)) == 200
        assert await put(alice, document("b", 6_000)) == 200
        assert await put(bob, document("of-bob", 9_000)) == 201
        assert await put(bench.admin(), document("of-the-admin", 20_000)) == 201
        assert await put(bench.admin(), document("a", 9_000)) == 200  # an admin changes it; it is still that of alice
        assert await put(alice, document("a", 8_999)) == 200  # less than before always passes
        assert await put(alice, document("c", 1_000)) == 403
        assert (await alice.delete("/api/v1/agents/a")).status_code == 204
        assert await put(alice, document("c", 4_000)) == 201


async def test_the_doctor_names_owners_that_are_nearly_full(tmp_path: Path) -> None:
    async with service(tmp_path, stored_bytes_per_owner=10_000) as bench:
        for subject, size in (("alice", 9_500), ("bob", 5_000)):
            assert await put(bench.as_(subject), document(f"of-{subject}", size)) == 201
        assert await put(bench.admin(), document("of-the-admin", 9_999)) == 201
        findings = (await bench.admin().get("/api/v1/doctor")).json()["findings"]
        (told,) = [each for each in findings if each.get("setting") == "stored_bytes_per_owner"]
        assert (told["severity"], told["layer"]) == ("warning", "quotas")
        assert told["message"].startswith("The documents of alice use more than 90%")


async def test_bytes_are_counted_exactly_for_concurrent_requests_and_batches(tmp_path: Path) -> None:
    async with service(tmp_path, stored_bytes_per_owner=10_000, store="sqlite") as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        statuses = await asyncio.gather(*(put(alice, document(f"a{number}", 1_000)) for number in range(30)))
        assert sorted(statuses) == [201] * 10 + [403] * 20
        lines = b"\n".join(document(f"b{number}", 1_000) for number in range(30))
        answer = await bob.post("/api/v1/agents:batch", content=lines)
        assert (answer.text.count('"created"'), answer.text.count('"forbidden"')) == (10, 20)
        # Updates of equal size, beside each other and in one batch, need no room.
        updates = [document(f"b{number}", 1_000, name="Other") for number in range(10)]
        answer = await bob.post("/api/v1/agents:batch", content=b"\n".join(updates))
        assert answer.text.count('"updated"') == 10
        statuses = await asyncio.gather(*(put(bob, document(f"b{n}", 1_000, name="Third")) for n in range(10)))
        assert statuses == [200] * 10


async def test_stored_bytes_are_counted_again_after_a_restart_and_given_back_at_the_end_of_a_lease(
    tmp_path: Path,
) -> None:
    clock = ManualClock(NOW)
    options: dict[str, Any] = {"stored_bytes_per_owner": 10_000, "store": "sqlite", "clock": clock}
    async with service(tmp_path, **options) as bench:
        alice = bench.as_("alice")
        assert await put(alice, document("short", 6_000), params={"ttl_seconds": 60}) == 201
        assert await put(alice, document("long", 4_000)) == 201
    for _ in range(2):  # the second start reads the snapshot of the first one
        async with service(tmp_path, **options) as bench:
            assert await put(bench.as_("alice"), document("more", 500)) == 403
            own = (await bench.as_("alice").get("/api/v1/stats")).json()["own"]
            assert own == {"agents": 2, "agents_limit": 1000, "stored_bytes": 10_000, "stored_bytes_limit": 10_000}
    async with service(tmp_path, **options) as bench:
        clock.advance(61)
        alice = bench.as_("alice")
        assert await put(alice, document("short", 7_000)) == 403  # the store may still have the expired one
        assert await put(alice, document("more", 6_000)) == 201
        own = (await alice.get("/api/v1/stats")).json()["own"]
        assert (own["agents"], own["stored_bytes"]) == (2, 10_000)


async def test_stored_bytes_are_bounded_through_every_api(tmp_path: Path) -> None:
    async with service(tmp_path, stored_bytes_per_owner=100) as bench:
        alice = bench.as_("alice")
        plain = profile("a")
        await bench.admin().post("/api/v1/allow", json={"rule": "*"})
        announced = announcement(key("alice"), seq=1, at=NOW)
        tool = {"name": "register_agent", "arguments": {"document": plain}}
        sent = {
            "rest": await alice.post("/api/v1/agents", json=plain),
            "profile": await alice.put("/profile/v1/agents/a", json=plain),
            "announce": await alice.post("/agents", json=announced),
        }
        assert {name: answer.status_code for name, answer in sent.items()} == dict.fromkeys(sent, 403)
        assert sent["announce"].json()["error"]["code"] == "ErrForbidden"
        rpc = await Rpc(alice).error("register", agent_card=card())
        assert rpc["code"] == -32010
        assert "stored_bytes_per_owner" in json.dumps(rpc)
        mcp = await alice.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool})
        assert mcp.json()["result"]["isError"]
        assert "stored_bytes_per_owner" in mcp.text
        batch = await alice.post("/api/v1/agents:batch", content=json.dumps(plain).encode())
        assert json.loads(batch.text)["error"]["code"] == "forbidden"
        assert (await bench.admin().get("/api/v1/stats")).json()["agents"] == 0


# --- Bytes of changes -----------------------------------------------------------------------------


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
