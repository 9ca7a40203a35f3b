"""Path-safe ids and the ways to name an agent (agentframework.md §3)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, Opener, numbered
from waypost.model.names import hash_slug, slug

PATH_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}\Z")
URI = "https://h.example/a?b=1"
LONG = "https://h.example/" + "x" * 200
IDS = (URI, LONG, "plain", "u-plain", "h-plain", "agent:h.example", "Ünïcode/Ä", "did:web:h.example")


def with_id(agent_id: str) -> dict[str, Any]:
    return {**numbered(1)[0], "id": agent_id, "name": f"Named {agent_id}"[:100]}


@pytest.mark.req("AF-11", "AF-12")
async def test_every_published_id_is_a_path_safe_string_and_stays_the_same(opened: Opener) -> None:
    for _ in range(2):  # a new process would publish the same
        async with opened([with_id(agent_id) for agent_id in IDS]) as served:
            listed = (await served.client.get(AGENTS, headers=ALICE)).json()["agents"]
        assert {agent["id"] for agent in listed} == {slug(agent_id) for agent_id in IDS}
        assert all(PATH_SAFE.match(agent["id"]) for agent in listed)


@pytest.mark.req("AF-12")
async def test_ids_are_compared_by_case_after_decoding_one_segment(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        for path, status in (("image%2Dannotator", 200), ("Image-Annotator", 404), ("image-annotator/x", 404)):
            assert (await served.client.get(f"{AGENTS}/{path}", headers=ALICE)).status_code == status


@pytest.mark.req("AF-13")
async def test_other_ids_are_published_as_slugs_beside_their_canonical_form(opened: Opener) -> None:
    async with opened([with_id(agent_id) for agent_id in IDS]) as served:
        published = {}
        for agent_id in IDS:
            item = (await served.client.get(f"{AGENTS}/{slug(agent_id)}", headers=ALICE)).json()
            assert item["metadata"]["canonical_id"] == agent_id
            published[agent_id] = item["id"]
    assert published[URI].startswith("u-")
    assert published[LONG] == hash_slug(LONG)
    assert len(published[LONG]) == 54
    assert published["u-plain"] not in ("u-plain", published["plain"])
    assert len(set(published.values())) == len(IDS)


@pytest.mark.req("AF-14")
@pytest.mark.parametrize("agent_id", [URI, LONG, "u-plain", "Ünïcode/Ä"])
async def test_a_uri_id_is_found_by_slug_by_encoded_segment_by_hash_and_by_filter(
    opened: Opener, agent_id: str
) -> None:
    async with opened([with_id(agent_id), ANNOTATOR]) as served:
        by_slug = await served.client.get(f"{AGENTS}/{slug(agent_id)}", headers=ALICE)
        by_segment = await served.client.get(f"{AGENTS}/{quote(agent_id, safe='')}", headers=ALICE)
        by_filter = await served.client.get(AGENTS, params={"id": agent_id}, headers=ALICE)
        none = await served.client.get(AGENTS, params={"id": agent_id + "x"}, headers=ALICE)
    assert by_slug.status_code == by_segment.status_code == 200
    assert by_slug.content == by_segment.content
    assert "content-location" not in by_slug.headers
    assert by_segment.headers["content-location"] == f"{AGENTS}/{slug(agent_id)}"
    assert [agent["id"] for agent in by_filter.json()["agents"]] == [slug(agent_id)]
    assert none.json() == {"agents": []}


@pytest.mark.req("AF-14")
async def test_the_published_form_of_one_agent_wins_over_the_id_of_another(opened: Opener) -> None:
    twin = slug(URI)  # an agent whose own id looks like the slug of the first
    async with opened([with_id(URI), with_id(twin)]) as served:
        first = (await served.client.get(f"{AGENTS}/{twin}", headers=ALICE)).json()
        second = (await served.client.get(f"{AGENTS}/{slug(twin)}", headers=ALICE)).json()
    assert first["metadata"]["canonical_id"] == URI
    assert second["metadata"]["canonical_id"] == twin


@pytest.mark.req("AF-15")
@pytest.mark.parametrize(
    "segment", ["%zz", "%4", "%", "%ff", "a%00b", "a%0Ab", "%7f", "x" * 1025, "%C3%A4" * 600, "%+1"]
)
async def test_a_malformed_segment_is_a_bad_request(opened: Opener, segment: str) -> None:
    async with opened([ANNOTATOR]) as served:
        transport_safe = served.client.build_request("GET", f"{AGENTS}/x", headers=ALICE)
        transport_safe.url = transport_safe.url.copy_with(raw_path=f"{AGENTS}/{segment}".encode())
        answer = await served.client.send(transport_safe)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_request"
    assert answer.json()["invalid_params"][0]["name"] == "id"


@pytest.mark.req("AF-15")
async def test_a_segment_at_the_bound_is_looked_up(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        assert (await served.client.get(f"{AGENTS}/{'x' * 1024}", headers=ALICE)).status_code == 404
