"""Sharing a private agent with subjects changes lists, searches, facets and watches at once, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.apis import serve_apis
from support.service import Bench, profile, service
from waypost import limits
from waypost.model.principal import Principal
from waypost.registry.change_log import WatchEvent

PRIVATE = {"Waypost-Visibility": "private"}
SECRET = profile("secret", name="Secret falcon", tags=["hush"], description="Knows falcons.")


async def seen(client: httpx2.AsyncClient) -> dict[str, Any]:
    """What a caller sees of the agent through each API."""
    found = await client.post("/profile/v1/discover", json={"query": "falcon", "facets": ["tag"]})
    rtfs = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": {"discovery_tags": ["hush"]}}
    return {
        "get": (await client.get("/api/v1/agents/secret")).status_code == 200,
        "list": "secret" in (await client.get("/api/v1/agents")).text,
        "profile": "secret" in (await client.get("/profile/v1/agents")).text,
        "af": "secret" in (await client.get("/.well-known/agentframework/v1/agents")).text,
        "announce": "falcon" in (await client.get("/agents")).text,
        "export": "secret" in (await client.get("/api/v1/agents:export")).text,
        "find": [hit["id"] for hit in found.json()["candidates"]] == ["secret"],
        "facets": "hush" in (await client.get("/api/v1/facets")).text,
        "stats": (await client.get("/api/v1/stats")).json()["agents"] == 1,
        "rtfs": (await client.post("/rtfs", json=rtfs)).json()["result"]["total"] == 1,
    }


async def share(bench: Bench, caller: str = "alice", **asked: Any) -> httpx2.Response:
    return await bench.as_(caller).post("/api/v1/agents/secret:share", json=asked)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_an_invitee_sees_the_agent_everywhere_until_uninvited(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as bench:
        alice, bob, carol = (bench.as_(name) for name in ("alice", "bob", "carol"))
        await alice.post("/api/v1/agents", json=SECRET, headers=PRIVATE)
        assert not any((await seen(bob)).values())
        receipt = (await share(bench, add=["bob"])).json()
        assert (receipt["outcome"], receipt["invitees"]) == ("updated", ["bob"])
        assert all((await seen(bob)).values()), await seen(bob)
        assert all((await seen(alice)).values())
        assert not any((await seen(carol)).values())
        assert (await share(bench, remove=["bob"])).json()["invitees"] == []
        assert not any((await seen(bob)).values())


async def test_invitees_outlive_an_update_and_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        await bench.as_("alice").post("/api/v1/agents", json=SECRET, headers=PRIVATE)
        await share(bench, add=["bob"])
        await bench.as_("alice").post("/api/v1/agents", json=SECRET | {"name": "Still secret falcon"})
        assert all((await seen(bench.as_("bob"))).values())
    async with service(tmp_path, store="sqlite") as bench:
        await bench.registry.searchable()
        assert all((await seen(bench.as_("bob"))).values())
        assert not any((await seen(bench.as_("carol"))).values())


async def test_watchers_see_agents_appear_and_disappear(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.as_("alice").post("/api/v1/agents", json=SECRET, headers=PRIVATE)
        streams = {name: await bench.registry.watch(Principal(subject=name)) for name in ("alice", "bob", "carol")}
        first = await share(bench, add=["bob"])
        await share(bench, remove=["bob"])
        await bench.as_("alice").post("/api/v1/agents", json=profile("public"))
        told = {name: await until_public(stream) for name, stream in streams.items()}
        assert [kind for kind, _, _ in told["alice"]] == ["updated", "updated", "registered"]
        assert [kind for kind, _, _ in told["bob"]] == ["registered", "withdrawn", "registered"]
        assert [name for _, name, _ in told["carol"]] == ["public"]
        assert told["bob"][0][2] == told["bob"][1][2] == first.json()["etag"], "the end bears the tag that bob saw"


async def until_public(stream: AsyncIterator[Any]) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    async with asyncio.timeout(60):
        async for item in stream:
            if isinstance(item, WatchEvent):
                etag = item.event.shown_before if item.type == "withdrawn" else item.event.shown or item.event.etag
                found.append((item.type, item.event.id, etag or ""))
                if item.event.id == "public":
                    return found
    raise AssertionError("the stream ended")


async def test_only_the_owner_and_admins_share(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.as_("alice").post("/api/v1/agents", json=SECRET, headers=PRIVATE)
        assert (await share(bench, "bob", add=["bob"])).status_code == 404
        await share(bench, add=["bob"])
        assert (await share(bench, "bob", add=["carol"])).status_code == 403
        admin = await bench.admin().post("/api/v1/agents/secret:share", json={"add": ["carol"], "remove": ["bob"]})
        assert admin.json()["invitees"] == ["carol"]
        assert "invitees" not in (await bench.as_("carol").get("/api/v1/agents/secret")).text


@pytest.mark.parametrize(
    "asked",
    [
        {"add": "bob"}, {"add": [""]}, {"add": [1]}, {"add": ["a\nb"]}, {"add": ["x" * 257]}, {"remove": {}},
        {"add": [f"s{number}" for number in range(limits.INVITEES + 1)]},
    ],
)  # fmt: skip
async def test_an_invalid_list_of_subjects_is_refused_with_its_path(tmp_path: Path, asked: dict[str, Any]) -> None:
    async with service(tmp_path) as bench:
        await bench.as_("alice").post("/api/v1/agents", json=SECRET, headers=PRIVATE)
        answer = await share(bench, **asked)
        assert (answer.status_code, answer.json()["path"][:3]) == (400, "$.a" if "add" in asked else "$.r")


async def test_the_number_of_subjects_an_agent_is_shared_with_is_limited(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.as_("alice").post("/api/v1/agents", json=SECRET, headers=PRIVATE)
        names = [f"s{number}" for number in range(limits.INVITEES)]
        assert len((await share(bench, add=names)).json()["invitees"]) == limits.INVITEES
        assert (await share(bench, add=["one-more"])).status_code == 400
        assert (await share(bench, add=["one-more"], remove=["s0"])).status_code == 200
        again = (await share(bench, add=["one-more"])).json()
        assert again["outcome"] == "unchanged"


async def test_sharing_an_agent_that_is_not_private_gives_a_warning(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.as_("alice").post("/api/v1/agents", json=SECRET)
        assert "public" in (await share(bench, add=["bob"])).json()["warnings"][-1]


async def test_http_clients_and_command_share_alike(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        alice = apis.subject("alice")
        await alice.http.post("/api/v1/agents", json=SECRET, headers=PRIVATE)
        async with alice.client() as client:
            assert (await client.share("secret", add=["bob"])).invitees == ("bob",)
        with alice.sync_client() as sync:
            shared = await asyncio.to_thread(sync.share, "secret", add=["carol"])
            assert shared.invitees == ("bob", "carol")
        ran = await alice.run("share", "secret", "--add", "dave,erin", "--remove", "bob", "-o", "json")
        assert ran.json["invitees"] == ["carol", "dave", "erin"]
        shown = await alice.run("share", "secret")
        assert "carol, dave, erin" in shown.out
        refused = await apis.subject("bob").run("share", "secret", "--add", "bob")
        assert refused.code == 1
