"""AgentMetadata as it is served (agentframework.md §4)."""

from __future__ import annotations

import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, BASE_URL, FAQ, Opener, numbered

ORDER = ["id", "name", "version", "summary", "description", "tags", "owner", "endpoints", "capabilities"]
ORDER += ["created_at", "updated_at", "metadata"]


@pytest.mark.req("AF-16", "AF-17")
async def test_bindings_on_the_same_host_are_endpoints_and_others_metadata(opened: Opener) -> None:
    agent = {
        **numbered(1)[0],
        "bindings": [
            {"protocol": "https", "endpoint": f"{BASE_URL}/v1/tasks/{{id}}"},
            {"protocol": "https", "endpoint": "https://elsewhere.example/v1/x"},
            {"protocol": "https", "endpoint": f"{BASE_URL}/v1/y?query=1"},
            {"protocol": "nats", "endpoint": "nats://bus.example/subject"},
        ],
    }
    async with opened([agent]) as served:
        item = (await served.client.get(f"{AGENTS}/agent-0000", headers=ALICE)).json()
    assert item["endpoints"] == [{"method": "POST", "path": "/v1/tasks/{id}"}]
    assert [binding["endpoint"] for binding in item["metadata"]["bindings"]] == [
        "https://elsewhere.example/v1/x",
        f"{BASE_URL}/v1/y?query=1",
        "nats://bus.example/subject",
    ]


@pytest.mark.req("AF-17")
async def test_an_endpoint_of_another_transport_is_read_over_and_kept(opened: Opener) -> None:
    odd = {"transport": "grpc", "service": "Ask"}
    async with opened([{**FAQ, "endpoints": [odd, {"method": "post", "path": "/v1/ask"}]}]) as served:
        item = (await served.client.get(f"{AGENTS}/faq-search", headers=ALICE)).json()
    assert item["endpoints"] == [{"method": "POST", "path": "/v1/ask"}, odd]


@pytest.mark.req("AF-18")
async def test_neither_authentication_nor_visibility_is_a_member(opened: Opener) -> None:
    async with opened([{**numbered(1)[0], "auth": {"scheme": "oauth2"}, "visibility": "public"}]) as served:
        item = (await served.client.get(f"{AGENTS}/agent-0000", headers=ALICE)).json()
    assert not {"auth", "visibility"} & set(item)
    assert item["metadata"]["auth"] == {"scheme": "oauth2"}


@pytest.mark.req("AF-19")
async def test_members_come_in_table_order_and_absent_ones_are_left_out(opened: Opener) -> None:
    shuffled = dict(sorted(ANNOTATOR.items(), reverse=True))
    empty = {"id": "bare", "name": None, "summary": "Bare.", "owner": None, "version": None, "metadata": None}
    async with opened([shuffled, empty]) as served:
        item = (await served.client.get(f"{AGENTS}/image-annotator", headers=ALICE)).json()
        listed = (await served.client.get(f"{AGENTS}?view=full", headers=ALICE)).json()["agents"]
    assert list(item) == ORDER
    bare = next(agent for agent in listed if agent["summary"] == "Bare.")
    assert bare["name"] in ("bare", bare["id"])
    assert not {"owner", "version"} & set(bare)
    assert None not in bare.values()
    assert bare["tags"] == []


@pytest.mark.req("AF-20")
async def test_the_summary_is_truncated_to_200_characters(opened: Opener) -> None:
    agent = {**numbered(1)[0], "description": "word " * 800, "version": "not a semver"}
    async with opened([agent]) as served:
        item = (await served.client.get(f"{AGENTS}/agent-0000", headers=ALICE)).json()
    assert len(item["summary"]) <= 200
    assert item["summary"].endswith("word…")
    assert item["version"] == "not a semver"
