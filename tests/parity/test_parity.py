"""Every API returns the same records, search results and lists."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.apis import ServedApis, serve_apis
from support.rtfs import card
from support.service import profile
from waypost.model.json import dump_json
from waypost.model.registration import Registration
from waypost.server.auth.authenticator import ADMIN

AGENT: dict[str, Any] = profile(
    "https://agents.example.net/id/parity",
    name="Parity Agent",
    tags=["finance", "Translation"],
    examples=[{"id": "e1", "text": "Translate this invoice.", "tags": ["invoice"]}],
    status="testing",
    version="1.4.0",
    updated_at="2026-05-08T00:00:00Z",
    **{"com.example.unknown": {"deep": [1, "é"]}},
)


def essence(registration: Registration) -> dict[str, Any]:
    """Everything except what must differ: revision, the generated announce id, and the API it came by."""
    return {
        "record": registration.record,
        "owner": registration.owner,
        "visibility": registration.visibility,
        "etag": registration.etag,
        "lease": (registration.ttl_seconds, registration.lease_expires_at),
        "times": (registration.created_at, registration.changed_at, registration.renewed_at),
        "aliases": registration.aliases,
        "hosted": registration.hosted,
        "sources": [
            (source.dialect, source.document, source.id, source.subject, source.sequence, source.updated_at)
            for source in registration.sources
        ],
    }


async def held(apis: ServedApis, agent_id: str) -> dict[str, Any]:
    """The record in the registry, which is then withdrawn for the next API."""
    registration = await apis.bench.registry.get(ADMIN, agent_id)
    await apis.bench.registry.withdraw(ADMIN, agent_id)
    return essence(registration)


async def written_through_every_face(apis: ServedApis, agent_id: str, document: bytes) -> dict[str, dict[str, Any]]:
    """The record of each API that takes a document of any dialect."""
    alice = apis.subject("alice")
    written: dict[str, dict[str, Any]] = {}
    file = apis.shell.write("agent.json", document)

    assert (await alice.http.post("/api/v1/agents", content=document)).status_code == 201
    written["POST /api/v1/agents"] = await held(apis, agent_id)
    batch = await alice.http.post("/api/v1/agents:batch", content=document)
    assert batch.json()["outcome"] == "created"
    written["POST /api/v1/agents:batch"] = await held(apis, agent_id)
    async with alice.client() as client:
        assert (await client.register(document)).outcome == "created"
        written["Client.register"] = await held(apis, agent_id)
        assert [item.outcome async for item in client.register_many([document])] == ["created"]
        written["Client.register_many"] = await held(apis, agent_id)
    with alice.sync_client() as sync:
        assert (await asyncio.to_thread(sync.register, document)).outcome == "created"
    written["SyncClient.register"] = await held(apis, agent_id)
    for command in (("register", file), ("import", file)):
        ran = await alice.run(*command)
        assert ran.code == 0, ran.err
        written[f"waypost {command[0]}"] = await held(apis, agent_id)
    return written


async def test_an_agent_is_the_same_record_whichever_api_registered_it(tmp_path: Path) -> None:
    document = dump_json(AGENT)
    async with serve_apis(tmp_path) as apis:
        written = await written_through_every_face(apis, AGENT["id"], document)
        path = "/profile/v1/agents/https%3A%2F%2Fagents.example.net%2Fid%2Fparity"
        assert (await apis.subject("alice").http.put(path, content=document)).status_code == 201
        written["PUT /profile/v1/agents/{id}"] = await held(apis, AGENT["id"])
    expected = written["POST /api/v1/agents"]
    assert {face: found for face, found in written.items() if found != expected} == {}


async def test_a_card_is_the_same_record_by_rtfs_call_as_by_any_other_api(tmp_path: Path) -> None:
    document = card("parity-card", discovery_tags=["finance"], metadata={"owner": "acme", "updated_at": None})
    async with serve_apis(tmp_path) as apis:
        written = await written_through_every_face(apis, "parity-card", dump_json(document))
        result = await apis.subject("alice").rpc.register(document)
        assert result["outcome"] == "created"
        written["rtfs.registry.register"] = await held(apis, "parity-card")
    expected = written["POST /api/v1/agents"]
    assert expected["lease"][0] == 3600
    assert {face: found for face, found in written.items() if found != expected} == {}


async def test_write_options_have_the_same_effect_in_every_api(tmp_path: Path) -> None:
    document = card("leased")
    async with serve_apis(tmp_path) as apis:
        alice = apis.subject("alice")
        file = apis.shell.write("leased.json", document)
        leases: dict[str, tuple[Any, ...]] = {}

        async def note(face: str, answer: dict[str, Any]) -> None:
            now = await apis.bench.registry.get(ADMIN, "leased")
            leases[face] = (now.visibility, now.ttl_seconds, answer["ttl_seconds"], answer["expires_at"])
            await apis.bench.registry.withdraw(ADMIN, "leased")

        params, headers = {"ttl_seconds": "100000"}, {"Waypost-Visibility": "internal"}
        own = await alice.http.post("/api/v1/agents", json=document, params=params, headers=headers)
        await note("POST /api/v1/agents", own.json())
        call = {"method": "rtfs.registry.register", "params": {"agent_card": document, "ttl_seconds": 100000}}
        rpc = await alice.http.post("/rtfs", json={"jsonrpc": "2.0", "id": 1, **call}, headers=headers)
        await note("rtfs", rpc.json()["result"])
        async with alice.client() as client:
            receipt = await client.register(document, ttl_seconds=100000, visibility="internal")
        await note("Client", {"ttl_seconds": receipt.ttl_seconds, "expires_at": receipt.expires_at})
        ran = await alice.run("register", file, "--ttl", "100000", "--visibility", "internal", "-o", "json")
        await note("command", ran.json)
    assert set(leases.values()) == {("internal", 86_400, 86_400, "2026-05-29T20:26:40Z")}


@pytest.fixture
def population() -> list[dict[str, Any]]:
    """Agents of several dialects, owners' cases and scripts; `zebrafish` marks some, `parity` all."""
    return [
        profile("https://a.example/one", name="alpha zebrafish", tags=["parity", "Blue"]),
        profile("two", name="Beta", description="Feeds a zebrafish.", tags=["parity"], status="deprecated"),
        profile("three", name="beta", tags=["parity", "blue"], status="testing"),
        profile("urn:uuid:8d1ff6f3-0d6e-4c02-a5b1-2f6cf4d6f6c4", name="Ärger", tags=["parity"]),
        profile("hidden-by-status", name="Sleeper", tags=["parity", "blue"], status="inactive"),
        card("gamma-card", name="Gamma", description="Counts zebrafish.", discovery_tags=["parity", "BLUE"]),
        profile("u-strange", name="délta", tags=["parity"]),
    ]


async def registered(apis: ServedApis, population: list[dict[str, Any]]) -> None:
    for document in population:
        answer = await apis.subject("alice").http.post("/api/v1/agents", json=document)
        assert answer.status_code == 201, answer.text


def one_answer(answers: dict[str, Any], expected: Any) -> None:
    assert {face: answer for face, answer in answers.items() if answer != expected} == {}


async def test_an_agent_is_found_by_words_and_tags_through_every_api(
    tmp_path: Path, population: list[dict[str, Any]]
) -> None:
    async with serve_apis(tmp_path) as apis:
        await registered(apis, population)
        reader = apis.subject("bob", "discover:read")
        one_answer(await reader.found("zebrafish"), {"https://a.example/one", "two", "gamma-card"})
        for tags in (("blue",), ("bLUE", "parity")):
            ranked = await reader.ranked("zebrafish", *tags, command=len(tags) == 1)
            # A ranked search goes on with agents that only have the tags; the others end where the word ends.
            one_answer({face: set(ids[:2]) for face, ids in ranked.items()}, {"https://a.example/one", "gamma-card"})
            assert {len(ranked["rtfs"]), len(ranked["AF q"])} == {2}
        one_answer(await reader.found("xylophone"), set())
        one_answer(await reader.tagged("Blue"), {"https://a.example/one", "three", "gamma-card"})
        one_answer(await reader.tagged("purple", command=False), set())


LISTED = {
    "https://a.example/one",
    "two",
    "three",
    "urn:uuid:8d1ff6f3-0d6e-4c02-a5b1-2f6cf4d6f6c4",
    "gamma-card",
    "u-strange",
}


async def test_lists_agree_in_content_and_order(tmp_path: Path, population: list[dict[str, Any]]) -> None:
    async with serve_apis(tmp_path) as apis:
        await registered(apis, population)
        lists = await apis.subject("bob", "discover:read").listed()
        exports = {name: ids for name, ids in lists.items() if "export" in name}
        one_answer({name: set(ids) for name, ids in exports.items()}, {*LISTED, "hidden-by-status"})
        one_answer({name: ids for name, ids in lists.items() if name not in exports}, lists["/api/v1/agents"])
        assert set(lists["/api/v1/agents"]) == LISTED
        assert apis.bench.registry.stats(ADMIN).agents == len(LISTED) + 1


async def test_each_caller_sees_the_same_through_every_api(tmp_path: Path) -> None:
    async with serve_apis(tmp_path, anonymous_read=True) as apis:
        alice = apis.subject("alice")
        for visibility in ("public", "internal", "private"):
            document = profile(visibility, name=f"The {visibility} okapi", tags=["parity"])
            headers = {"Waypost-Visibility": visibility}
            assert (await alice.http.post("/api/v1/agents", json=document, headers=headers)).status_code == 201
        for caller, seen in (
            (apis.admin, {"public", "internal", "private"}),
            (alice, {"public", "internal", "private"}),
            (apis.subject("bob"), {"public", "internal"}),
            (apis.caller(None), {"public"}),
        ):
            lists = await caller.listed(command=False)
            one_answer({name: set(ids) for name, ids in lists.items()}, seen)
            one_answer(await caller.found("okapi", command=False), seen)
            one_answer(await caller.tagged("parity", command=False), seen)
            for agent_id in ("public", "internal", "private"):
                one_answer(await caller.reads(agent_id), 200 if agent_id in seen else 404)
            assert (await caller.http.get("/api/v1/stats")).json()["agents"] == len(seen)


async def absent(apis: ServedApis, agent_id: str, *, command: bool) -> None:
    """No trace of the agent is left in any API."""
    caller = apis.admin
    one_answer({name: agent_id in ids for name, ids in (await caller.listed(command=command)).items()}, False)
    one_answer(await caller.found("narwhal", command=command), set())
    one_answer(await caller.tagged("vanishing", command=command), set())
    one_answer(await caller.reads(agent_id), 404)
    for path in ("/.well-known/agent-card.json", "/.well-known/agent-card"):
        assert (await caller.http.get(path, params={"agent": agent_id})).status_code == 404
    catalog = (await caller.http.get("/.well-known/ai-catalog.json")).text
    assert "Narwhal" not in catalog
    assert (await caller.http.get("/api/v1/stats")).json()["agents"] == 0
    assert (await caller.rpc.error("heartbeat", agent_id=agent_id))["data"]["code"] == "not_found"
    if command:
        assert (await caller.run("get", agent_id)).code == 1


VANISHING = profile("https://a.example/vanishing", name="Narwhal", description="Is a narwhal.", tags=["vanishing"])


async def present(apis: ServedApis) -> None:
    caller = apis.admin
    one_answer(await caller.found("narwhal", command=False), {VANISHING["id"]})
    one_answer(await caller.reads(VANISHING["id"]), 200)
    assert "Narwhal" in (await caller.http.get("/.well-known/ai-catalog.json")).text
    await caller.listed(command=False)


@pytest.mark.parametrize("face", ["api", "profile", "rtfs", "client", "command"])
async def test_a_withdrawn_agent_is_gone_from_every_api_at_once(face: str, tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        caller, agent_id = apis.admin, VANISHING["id"]
        await caller.http.post("/api/v1/agents", json=VANISHING)
        await present(apis)
        escaped = "https%3A%2F%2Fa.example%2Fvanishing"
        if face == "api":
            assert (await caller.http.delete(f"/api/v1/agents/{escaped}")).status_code == 204
        elif face == "profile":
            assert (await caller.http.delete(f"/profile/v1/agents/{escaped}")).status_code == 204
        elif face == "rtfs":
            assert (await caller.rpc.call("deregister", agent_id=agent_id))["status"] == "deregistered"
        elif face == "client":
            async with caller.client() as client:
                await client.withdraw(agent_id)
        else:
            assert (await caller.run("withdraw", agent_id)).code == 0
        await absent(apis, agent_id, command=face == "command")


async def test_an_expired_agent_is_gone_from_every_api_at_the_same_moment(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        await apis.admin.http.post("/api/v1/agents", json=VANISHING, params={"ttl_seconds": "60"})
        apis.bench.clock.advance(59)
        await present(apis)
        apis.bench.clock.advance(1)
        await absent(apis, VANISHING["id"], command=True)


async def test_an_agent_whose_own_time_is_over_is_gone_as_well(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        document = {**VANISHING, "expires_at": "2026-05-28T21:26:40Z"}  # an hour from now
        assert (await apis.admin.http.post("/api/v1/agents", json=document)).status_code == 201
        apis.bench.clock.advance(3599)
        await present(apis)
        apis.bench.clock.advance(1)
        await absent(apis, VANISHING["id"], command=False)


async def test_a_change_is_visible_through_every_api_at_once(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        caller = apis.admin
        await caller.http.post("/api/v1/agents", json=VANISHING)
        await present(apis)
        changed = {**VANISHING, "name": "Walrus", "description": "Is a walrus.", "tags": ["staying"]}
        assert (await caller.http.post("/api/v1/agents", json=changed)).json()["outcome"] == "updated"
        one_answer(await caller.found("narwhal", command=False), set())
        one_answer(await caller.tagged("vanishing", command=False), set())
        one_answer(await caller.ranked("walrus", "staying", command=False), [VANISHING["id"]])
        one_answer(await caller.tagged("staying", command=False), {VANISHING["id"]})
        card = await caller.http.get("/.well-known/agent-card.json", params={"agent": VANISHING["id"]})
        assert card.json()["name"] == "Walrus"
        lines = (await caller.http.get("/api/v1/agents:export", params={"as": "af"})).text.splitlines()
        assert json.loads(lines[0])["name"] == "Walrus"
