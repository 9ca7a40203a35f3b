"""Publishing, refreshing and withdrawing Agent Metadata over HTTP (profile.md §4, §9)."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from support.service import profile, service

MINIMAL = {
    "id": "https://example.net/agents/minimal",
    "name": "Minimal Agent",
    "description": "Answers short factual questions.",
    "bindings": [{"protocol": "https", "endpoint": "https://example.net/agent/invoke"}],
}


def path_of(agent_id: str) -> str:
    return f"/profile/v1/agents/{quote(agent_id, safe='')}"


@pytest.mark.req("PRO-1", "PRO-51")
async def test_the_minimal_vector_is_accepted_and_comes_back_byte_for_byte(tmp_path: Path) -> None:
    body = json.dumps(MINIMAL, indent=3).encode()
    async with service(tmp_path) as bench:
        written = await bench.admin().put(path_of(MINIMAL["id"]), content=body)
        assert written.status_code == 201
        assert written.json()["outcome"] == "created"
        read = await bench.admin().get(written.headers["location"])
        assert read.content == body
        assert read.headers["content-type"].startswith("application/json")
        assert read.headers["etag"] == written.headers["etag"]


@pytest.mark.req("PRO-10")
async def test_an_agent_is_read_by_its_id_and_by_its_path_safe_id_for_as_long_as_it_is_registered(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        for agent_id in ("https://a.example/x?y#z", "urn:uuid:6f0c", "plain-name", "dns:_agent.example", "名前"):
            assert (await admin.put(path_of(agent_id), json=profile(agent_id))).status_code == 201
            answer = await admin.put(path_of(agent_id), json=profile(agent_id, version="2.0.0"))
            assert answer.json()["id"] == agent_id
            assert (await admin.get(answer.headers["location"])).json()["id"] == agent_id


@pytest.mark.req("PRO-11")
async def test_two_agents_may_have_the_same_name(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        for agent_id in ("one", "two"):
            assert (await admin.put(path_of(agent_id), json=profile(agent_id, name="Same"))).status_code == 201
        listed = (await admin.get("/profile/v1/agents")).json()["agents"]
        assert [agent["id"] for agent in listed] == ["one", "two"]


@pytest.mark.req("PRO-17", "PRO-21", "PRO-41")
@pytest.mark.parametrize(
    ("held", "stale"),
    [
        ({"updated_at": "2026-05-08T00:00:00Z"}, {"updated_at": "2026-05-07T23:59:59Z"}),
        ({"version": "2.0.0"}, {"version": "1.9.9"}),
        ({"version": "2.0.0", "updated_at": "2026-05-08T00:00:00Z"}, {"version": "1.0.0"}),
        (
            {"version": "1.0.0", "updated_at": "2026-05-08T00:00:00Z"},
            {"version": "9.0.0", "updated_at": "2026-05-01T00:00:00Z"},
        ),
    ],
)
async def test_stale_metadata_never_replaces_newer(tmp_path: Path, held: dict[str, str], stale: dict[str, str]) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        newer = profile("a", **held)
        assert (await admin.put(path_of("a"), json=newer)).status_code == 201
        refused = await admin.put(path_of("a"), json=profile("a", description="Old news.", **stale))
        assert refused.status_code == 409
        assert refused.json()["code"] == "stale_metadata"
        assert (await admin.get(path_of("a"))).json() == newer


@pytest.mark.req("PRO-40", "PRO-42")
async def test_equal_content_changes_nothing_and_newer_content_is_an_update(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        first = await admin.put(path_of("a"), json=profile("a", version="1.0.0"))
        again = await admin.put(path_of("a"), json=profile("a", version="1.0.0"))
        assert (again.status_code, again.json()["outcome"]) == (200, "unchanged")
        assert again.headers["etag"] == first.headers["etag"]
        newer = await admin.put(path_of("a"), json=profile("a", version="1.1.0"))
        assert (newer.status_code, newer.json()["outcome"]) == (200, "updated")
        assert newer.headers["etag"] != first.headers["etag"]


@pytest.mark.req("PRO-40")
async def test_if_match_guards_an_update(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        etag = (await admin.put(path_of("a"), json=profile("a"))).headers["etag"]
        changed = profile("a", description="Changed.")
        assert (await admin.put(path_of("a"), json=changed, headers={"If-Match": etag})).status_code == 200
        late = await admin.put(path_of("a"), json=profile("a", description="Late."), headers={"If-Match": etag})
        assert late.status_code == 412
        assert (await admin.get(path_of("a"))).json() == changed


@pytest.mark.req("PRO-40", "PRO-42")
@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), ([1], [1.0]), ({"a": 0}, {"a": -0.0})])
async def test_a_member_that_only_python_takes_for_the_same_is_an_update(
    tmp_path: Path, before: object, after: object
) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.put(path_of("one"), json=profile("one", **{"com.example.member": before}))
        written = await admin.put(path_of("one"), json=profile("one", **{"com.example.member": after}))
        assert written.json()["outcome"] == "updated"
        read = (await admin.get(path_of("one"))).content
        assert json.dumps({"com.example.member": after}, separators=(",", ":")).strip("{}").encode() in read


@pytest.mark.req("PRO-42")
async def test_the_same_id_of_another_owner_is_a_conflict(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        assert (await alice.put(path_of("a"), json=profile("a"))).status_code == 201
        refused = await bob.put(path_of("a"), json=profile("a", description="Mine now."))
        assert refused.status_code == 409
        assert refused.json()["code"] == "conflict"
        removed = await bob.delete(path_of("a"))
        assert removed.status_code == 403
        assert (await alice.delete(path_of("a"))).status_code == 204


@pytest.mark.req("PRO-39")
@pytest.mark.parametrize(
    "change",
    [
        {"bindings": [{"protocol": "https", "endpoint": "https://example.net/v2/invoke"}]},
        {"tags": ["facts"]},
        {"examples": [{"id": "ex-1", "text": "Who wrote Faust?"}]},
        {"status": "deprecated"},
    ],
)
async def test_an_incremental_change_is_seen_by_the_next_reader(tmp_path: Path, change: dict[str, object]) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.put(path_of("a"), json=profile("a"))
        assert (await admin.put(path_of("a"), json=profile("a", **change))).json()["outcome"] == "updated"
        read = (await admin.get(path_of("a"))).json()
        assert {name: read[name] for name in change} == change
        found = await admin.post("/profile/v1/discover", json={"query": "factual questions", "detail": "full"})
        assert {name: found.json()["candidates"][0][name] for name in change} == change


@pytest.mark.req("PRO-22")
async def test_a_record_is_not_returned_after_its_expires_at(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.put(path_of("a"), json=profile("a", expires_at="2026-05-28T20:27:00Z"))  # 20 s ahead
        bench.clock.advance(19)
        assert (await admin.get(path_of("a"))).status_code == 200
        bench.clock.advance(1)
        assert (await admin.get(path_of("a"))).status_code == 404
        assert (await admin.get("/profile/v1/agents")).json()["agents"] == []
        found = await admin.post("/profile/v1/discover", json={"query": "short factual questions"})
        assert found.json()["candidates"] == []


@pytest.mark.req("PRO-63")
async def test_a_withdrawn_agent_is_gone_from_every_answer(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.put(path_of("a"), json=profile("a"))
        assert (await admin.delete(path_of("a"))).status_code == 204
        assert (await admin.get(path_of("a"))).status_code == 404
        assert (await admin.get("/profile/v1/agents")).json() == {"agents": []}
        found = await admin.post("/profile/v1/discover", json={"query": "short factual questions"})
        assert found.json()["candidates"] == []
        assert (await admin.delete(path_of("a"))).status_code == 404


@pytest.mark.req("PRO-10")
async def test_the_path_and_the_document_must_name_the_same_agent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        refused = await bench.admin().put(path_of("b"), json=profile("a"))
        assert refused.status_code == 400
        assert refused.json()["path"] == "$.id"


@pytest.mark.req("PRO-10")
async def test_the_path_may_name_the_agent_by_an_alias(tmp_path: Path) -> None:
    identifier, agent_id = "urn:air:acme.com:agent:planner", "https://acme.com/planner"
    entry = {
        "identifier": identifier,
        "displayName": "Planner",
        "type": "application/a2a-agent-card+json",
        "url": "https://acme.com/card.json",
        "metadata": {"org.agentdiscovery.id": agent_id},
    }
    async with service(tmp_path) as bench:
        admin = bench.admin()
        written = await admin.post("/api/v1/agents", json=entry)
        assert (written.json()["id"], written.json()["aliases"]) == (agent_id, [identifier])
        path = f"/profile/v1/agents/{quote(identifier, safe='')}"
        updated = await admin.put(path, json=profile(agent_id))
        assert (updated.status_code, updated.json()["id"], updated.json()["outcome"]) == (200, agent_id, "updated")
        assert (await admin.put(path, json=profile("https://acme.com/other"))).status_code == 400
        assert (await admin.delete(path)).status_code == 204
        assert (await admin.get(f"/profile/v1/agents/{quote(agent_id, safe='')}")).status_code == 404


@pytest.mark.req("PRO-22")
@pytest.mark.parametrize(("asked", "granted"), [("5", 10), ("60", 60), ("86401", 86_400)])
async def test_a_lease_is_granted_within_its_limits(tmp_path: Path, asked: str, granted: int) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        for _ in range(2):  # a new agent, then a renewal
            answer = await admin.put("/profile/v1/agents/a", json=profile("a"), params={"ttl_seconds": asked})
            assert answer.json()["ttl_seconds"] == granted
        refused = await admin.put("/profile/v1/agents/a", json=profile("a"), params={"ttl_seconds": "0"})
        assert (refused.status_code, refused.json()["path"]) == (400, "ttl_seconds")


@pytest.mark.req("PRO-26")
async def test_a_list_is_walked_by_an_opaque_cursor_that_fits_only_its_caller(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        for number in range(7):
            await alice.put(path_of(f"a{number}"), json=profile(f"a{number}", name=f"Agent {number}"))
        seen: list[str] = []
        answer = (await alice.get("/profile/v1/agents", params={"limit": 3})).json()
        first_cursor = answer["next_cursor"]
        while True:
            seen += [agent["id"] for agent in answer["agents"]]
            if "next_cursor" not in answer:
                break
            answer = (
                await alice.get("/profile/v1/agents", params={"limit": 3, "cursor": answer["next_cursor"]})
            ).json()
        assert seen == [f"a{number}" for number in range(7)]
        assert (await bob.get("/profile/v1/agents", params={"cursor": first_cursor})).status_code == 400
        assert (await alice.get("/profile/v1/agents", params={"cursor": "AAAAAAAAAAAAAAAAAAAAAAAA"})).status_code == 400
        assert (await alice.get("/profile/v1/agents", params={"limit": "201"})).status_code == 400
