"""Paths, methods, versions and CORS (agentframework.md §1, §2)."""

from __future__ import annotations

import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, BASE, FAQ, Opener, application, links_of

SUMMARIES = [{name: agent[name] for name in ("id", "name", "version", "summary", "tags")} for agent in (FAQ, ANNOTATOR)]


@pytest.mark.req("AF-5")
async def test_the_list_has_the_shape_of_the_sample(opened: Opener) -> None:
    async with opened([ANNOTATOR, FAQ]) as served:
        answer = await served.client.get(AGENTS)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"agents": SUMMARIES}


@pytest.mark.req("AF-6")
async def test_the_item_has_the_shape_of_the_sample_and_an_unknown_id_is_a_problem(opened: Opener) -> None:
    async with opened([ANNOTATOR, FAQ]) as served:
        found = await served.client.get(f"{AGENTS}/image-annotator", headers=ALICE)
        unknown = await served.client.get(f"{AGENTS}/nobody", headers=ALICE)
    assert found.status_code == 200
    assert found.json() == ANNOTATOR
    assert unknown.status_code == 404
    assert unknown.headers["content-type"] == "application/problem+json"
    assert unknown.json()["code"] == "not_found"


@pytest.mark.req("AF-1")
async def test_nothing_can_be_registered_through_the_surface(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        for method, path in (("POST", AGENTS), ("PUT", f"{AGENTS}/x"), ("DELETE", f"{AGENTS}/image-annotator")):
            answer = await served.client.request(method, path, json=FAQ, headers=ALICE)
            assert answer.status_code == 405
        assert len((await served.client.get(AGENTS)).json()["agents"]) == 1


@pytest.mark.req("AF-2", "AF-3")
async def test_the_version_is_in_the_path_and_an_unknown_one_names_those_there_are(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        other = await served.client.get("/.well-known/agentframework/v2/agents")
        index = await served.client.get("/.well-known/agentframework")
        version = await served.client.get(BASE)
    links = {"agents": AGENTS, "schema": f"{BASE}/schema.json"}
    assert other.status_code == 404
    assert other.json()["supported_versions"] == ["v1"]
    assert index.json() == {"versions": ["v1"], "links": links}
    assert version.json() == {"links": links}


@pytest.mark.req("AF-3")
async def test_unknown_members_are_ignored_and_preserved(opened: Opener) -> None:
    async with opened([{**FAQ, "mood": "calm", "owner": {"name": "Team", "room": 7}}]) as served:
        answer = await served.client.get(f"{AGENTS}/faq-search", headers=ALICE)
    assert answer.json()["mood"] == "calm"
    assert answer.json()["owner"] == {"name": "Team", "room": 7}


@pytest.mark.req("AF-4")
async def test_only_the_conventional_prefix_is_taken() -> None:
    async with application([ANNOTATOR]) as served:
        for path in ("/.well-known/agentframeworks", "/.well-known/agentframework-x/v1/agents", "/.well-known/agent"):
            assert (await served.client.get(path)).json()["detail"] == "Nothing is served at this path."


@pytest.mark.req("AF-7")
async def test_the_alias_serves_the_same_bytes_and_points_to_the_canonical_address(opened: Opener) -> None:
    async with opened([ANNOTATOR, FAQ]) as served:
        for path in ("agents", "agents?tag=vision&view=full", "agents/image-annotator", "schema.json"):
            canonical = await served.client.get(f"{BASE}/{path}")
            alias = await served.client.get(f"/.agent-framework/v1/{path}")
            assert alias.status_code == 200
            assert alias.content == canonical.content
            assert alias.headers["etag"] == canonical.headers["etag"]
            assert links_of(alias)["canonical"] == f"{BASE}/{path}"
            assert "canonical" not in links_of(canonical)


@pytest.mark.req("AF-8")
@pytest.mark.parametrize(
    ("asked", "location"),
    [
        ("/v1/agents", AGENTS),
        ("/v1/agents?tag=a&tag=b%20c&q=%22x+y%22", f"{AGENTS}?tag=a&tag=b%20c&q=%22x+y%22"),
        ("/v1/agents/image-annotator?view=summary", f"{AGENTS}/image-annotator?view=summary"),
        ("/v1/agents/https%3A%2F%2Fh%2Fa", f"{AGENTS}/https%3A%2F%2Fh%2Fa"),
    ],
)
async def test_legacy_paths_redirect_for_good_with_the_query_as_it_was(
    opened: Opener, asked: str, location: str
) -> None:
    async with opened([ANNOTATOR]) as served:
        answer = await served.client.get(asked)
    assert answer.status_code == 308
    assert answer.headers["location"] == location
    assert answer.headers["cache-control"] == "max-age=86400"


@pytest.mark.req("AF-8")
async def test_legacy_paths_are_off_unless_an_application_asks_for_them() -> None:
    async with application([ANNOTATOR], legacy=False) as served:
        assert (await served.client.get("/v1/agents")).status_code == 404


@pytest.mark.req("AF-9")
@pytest.mark.parametrize("path", [AGENTS, f"{AGENTS}/image-annotator", f"{BASE}/schema.json", "/.agent-framework/v1"])
async def test_head_is_get_without_its_body(opened: Opener, path: str) -> None:
    async with opened([ANNOTATOR]) as served:
        got = await served.client.get(path)
        head = await served.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == got.headers
    assert int(head.headers["content-length"]) == len(got.content)


@pytest.mark.req("AF-9")
async def test_options_and_405_list_the_allowed_methods(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        options = await served.client.options(AGENTS)
        wrong = await served.client.patch(f"{AGENTS}/image-annotator")
    assert (options.status_code, options.content) == (204, b"")
    assert options.headers["allow"] == wrong.headers["allow"] == "GET, HEAD, OPTIONS"
    assert wrong.status_code == 405
    assert wrong.headers["content-type"] == "application/problem+json"


@pytest.mark.req("AF-9")
async def test_a_trailing_slash_is_redirected_away_and_a_body_on_get_ignored(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        slashed = await served.client.get(f"{AGENTS}/?tag=vision")
        item = await served.client.get("/.agent-framework/v1/agents/image-annotator/")
        with_body = await served.client.request("GET", AGENTS, content=b"not json at all")
    assert (slashed.status_code, slashed.headers["location"]) == (308, f"{AGENTS}?tag=vision")
    assert item.headers["location"] == "/.agent-framework/v1/agents/image-annotator"
    assert with_body.status_code == 200


@pytest.mark.req("AF-10")
async def test_any_origin_may_read_public_agents(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        anonymous = await served.client.get(AGENTS, headers={"Origin": "https://elsewhere.example"})
        known = await served.client.get(AGENTS, headers={"Origin": "https://elsewhere.example", **ALICE})
    assert anonymous.headers["access-control-allow-origin"] == "*"
    assert {"ETag", "Link", "X-Total-Count"} <= set(anonymous.headers["access-control-expose-headers"].split(", "))
    assert "access-control-allow-origin" not in known.headers


@pytest.mark.req("AF-10")
async def test_listed_origins_are_echoed_for_callers_with_credentials(opened: Opener) -> None:
    async with opened([ANNOTATOR], allowed_origins=frozenset(("https://ui.example",))) as served:
        listed = await served.client.get(AGENTS, headers={"Origin": "https://ui.example", **ALICE})
        other = await served.client.get(AGENTS, headers={"Origin": "https://evil.example", **ALICE})
        preflight = await served.client.options(
            AGENTS, headers={"Origin": "https://ui.example", "Access-Control-Request-Method": "GET"}
        )
    assert listed.headers["access-control-allow-origin"] == "https://ui.example"
    assert "Origin" in listed.headers["vary"]
    assert "access-control-allow-origin" not in other.headers
    assert preflight.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS"
    assert "If-None-Match" in preflight.headers["access-control-allow-headers"]
