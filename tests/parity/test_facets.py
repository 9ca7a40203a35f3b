"""Counts, suggestions, floors and reasons are the same over HTTP, in the SDK and in the command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from support.apis import Caller, ServedApis, serve_apis
from support.service import profile

AGENTS = (
    profile("one", description="Feeds okapis.", tags=["okapi", "feeding"], constraints={"region": "eu"}),
    profile("two", description="Washes okapis.", tags=["okapi"], status="testing"),
    profile("three", description="Asleep.", tags=["okapi"], status="inactive"),
    profile("hidden", description="An okapi nobody sees.", tags=["okapi", "secret"]),
)


async def registered(apis: ServedApis) -> None:
    alice = apis.subject("alice")
    for document in AGENTS:
        visibility = "private" if document["id"] == "hidden" else "public"
        headers = {"Waypost-Visibility": visibility}
        assert (await alice.http.post("/api/v1/agents", json=document, headers=headers)).status_code == 201


async def overviews(caller: Caller, **filters: Any) -> list[dict[str, Any]]:
    params = {name: value for name, value in filters.items() if value}
    by_http = (await caller.http.get("/api/v1/facets", params=params)).json()
    asked = {"tags": filters.get("tag", ()), "status": filters.get("status")}
    async with caller.client() as client:
        by_client = (await client.facets(**asked)).document
    with caller.sync_client() as sync:
        by_sync = (await asyncio.to_thread(sync.facets, **asked)).document
    flags = [part for tag in filters.get("tag", ()) for part in ("--tag", tag)]
    flags += ["--status", filters["status"]] if filters.get("status") else []
    by_command = (await caller.run("facets", "-o", "json", *flags)).json
    return [by_http, by_client, by_sync, by_command]


async def test_facets_agree_and_count_only_visible_agents(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        await registered(apis)
        first, *others = await overviews(apis.subject("bob"))
        assert others == [first] * 3
        assert first == {
            "total": 2,
            "facets": {
                "tag": [{"value": "okapi", "count": 2}, {"value": "feeding", "count": 1}],
                "protocol": [{"value": "https", "count": 2}],
                "status": [{"value": "active", "count": 1}, {"value": "testing", "count": 1}],
                "owner": [],
            },
        }
        owner, *_ = await overviews(apis.subject("alice"))
        assert owner["total"] == 3
        assert {"value": "secret", "count": 1} in owner["facets"]["tag"]
        assert owner["facets"]["owner"] == [{"value": "alice", "count": 3}]
        for answer in await overviews(apis.admin, tag=["okapi"], status="inactive"):
            assert answer["total"] == 1


async def test_a_misspelt_tag_brings_the_same_suggestion_everywhere_and_never_a_hidden_tag(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        await registered(apis)
        bob = apis.subject("bob")
        expected = {"tags": {"okpai": ["okapi"]}}
        assert [answer["suggestions"] for answer in await overviews(bob, tag=["okpai"])] == [expected] * 4
        assert (await bob.http.get("/api/v1/agents", params={"tag": "okpai"})).json()["suggestions"] == expected
        async with bob.client() as client:
            assert (await client.page(tags=["okpai"])).suggestions == {"tags": {"okpai": ("okapi",)}}
            found = await client.find("okapi", tags=["okpai"])
            assert found.suggestions == {"tags": {"okpai": ("okapi",)}}
            assert (await client.find("okapi", tags=["secrte"])).suggestions == {}
        assert "'okapi'" in (await bob.run("list", "--tag", "okpai")).err
        assert "'okapi'" in (await bob.run("find", "okapi", "--tag", "okpai")).err
        warnings = (await bob.rpc.call("discover", discovery_tags=["okpai"]))["warnings"]
        assert any("'okapi'" in warning for warning in warnings)
        alice = apis.subject("alice")
        async with alice.client() as client:
            assert (await client.find("okapi", tags=["secrte"])).suggestions == {"tags": {"secrte": ("secret",)}}


async def test_floor_context_constraints_and_reasons_agree(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        await registered(apis)
        bob = apis.subject("bob")
        asked = {
            "query": "okapi",
            "constraints": {"region": "us"},
            "client_context": {"locale": "de"},
            "min_score": 0.1,
        }
        by_http = (await bob.http.post("/profile/v1/discover", json=asked)).json()
        async with bob.client() as client:
            by_client = await client.find(
                "okapi", constraints={"region": "us"}, context={"locale": "de"}, min_score=0.1
            )
        ran = await bob.run(
            "find", "okapi", "-o", "json", "-c", "region=us", "--context", "locale=de", "--min-score", "0.1"
        )  # fmt: skip
        told = ("empty", "rejected_constraints", "applied_filters", "warnings")
        answers = [{name: answer[name] for name in told} for answer in (by_http, by_client.document, ran.json)]
        assert answers[1:] == answers[:1] * 2
        assert by_client.empty is not None
        assert (by_client.empty.reason, by_client.empty.visible) == ("filtered", 2)
        assert by_client.empty.filters[0].filter == "constraints.region"
        assert by_client.rejected_constraints == {"region": 2}


async def test_the_command_helps_where_nothing_is_found(tmp_path: Path) -> None:
    async with serve_apis(tmp_path) as apis:
        bob = apis.subject("bob")
        assert "waypost register" in (await bob.run("find", "okapi")).err
        await registered(apis)
        assert "other words" in (await bob.run("find", "xylophone")).err
        assert "--min-score" in (await bob.run("find", "okapi", "--min-score", "1")).err
        explained = await bob.run("find", "okapi", "-c", "region=eu", "--explain")
        assert "region excluded 1 agent " in explained.err
        rows = (await bob.run("facets", "--by", "status")).out.splitlines()
        assert rows == ["status\tactive\t1", "status\ttesting\t1"]
        counted = (await bob.run("find", "okapi", "--facets", "-o", "json")).json["facets"]
        assert counted["tag"][0] == {"value": "okapi", "count": 2}
