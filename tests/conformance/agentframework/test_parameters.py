"""Query parameters of list and item (agentframework.md §5)."""

from __future__ import annotations

from typing import Any

import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, FAQ, Opener, application, links_of, numbered, service

TRANSLATOR: dict[str, Any] = {
    "id": "translator",
    "name": "Übersetzer für Rechnungen",
    "description": "Translates invoices.\nKeeps the layout of each page.",
    "tags": ["Finance", "a,b", "Straße"],
    "bindings": [{"protocol": "https", "endpoint": "https://t.example/x"}],
}
AGENTS_HELD = [ANNOTATOR, FAQ, TRANSLATOR]


async def ids_of(served: Any, query: str) -> list[str]:
    answer = await served.client.get(f"{AGENTS}?{query}", headers=ALICE)
    assert answer.status_code == 200, answer.text
    return [agent["id"] for agent in answer.json()["agents"]]


@pytest.mark.req("AF-21")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=images", ["image-annotator"]),
        ("q=IMAGES+labels", ["image-annotator"]),
        ("q=images+invoices", []),
        ("q=handbook", ["faq-search"]),  # only in the description
        ("q=visio", ["image-annotator"]),  # part of a tag
        ("q=%C3%BCBERSETZER", ["translator"]),
        ("q=strasse", ["translator"]),
        ("q=%22semantic+search%22", ["faq-search"]),
        ("q=%22search+semantic%22", []),
        ("q=%22invoices.+keeps%22", ["translator"]),  # across a line end
        ("q=%22FAQ+Search+Semantic%22", []),  # not across fields
        ("q=%EF%BC%A6AQ", ["faq-search"]),  # full width F
        ("q=", ["faq-search", "image-annotator", "translator"]),
        ("q=+++", ["faq-search", "image-annotator", "translator"]),
        ("q=%22%22", ["faq-search", "image-annotator", "translator"]),
        ("q=search&tag=vision", []),
    ],
)
async def test_q_wants_every_term_in_one_of_the_fields(opened: Opener, query: str, found: list[str]) -> None:
    async with opened(AGENTS_HELD) as served:
        assert await ids_of(served, query) == found


@pytest.mark.req("AF-21")
async def test_q_has_bounds(opened: Opener) -> None:
    async with opened(AGENTS_HELD) as served:
        for text, status in (
            ("x" * 256, 200),
            ("x" * 257, 400),
            (" ".join(map(str, range(16))), 200),
            (" ".join(map(str, range(17))), 400),
        ):
            answer = await served.client.get(AGENTS, params={"q": text}, headers=ALICE)
            assert answer.status_code == status


@pytest.mark.req("AF-21")
async def test_sort_by_relevance_uses_the_ranker() -> None:
    near = {**FAQ, "id": "b", "name": "B", "description": "invoice invoice invoice", "summary": "invoice"}
    far = {**FAQ, "id": "a", "name": "A", "description": "A long text " * 20 + " invoice.", "summary": "Other things."}
    near["metadata"], far["metadata"] = {"canonical_id": "b"}, {"canonical_id": "a"}
    async with service([near, far]) as served:
        assert await ids_of(served, "q=invoice") == ["a", "b"]
        assert await ids_of(served, "q=invoice&sort=relevance") == ["b", "a"]
        assert (await served.client.get(f"{AGENTS}?sort=colour")).status_code == 400
    async with application(AGENTS_HELD) as plain:  # without a ranker, `sort` is an unknown parameter
        assert (await plain.client.get(f"{AGENTS}?sort=colour")).status_code == 200


@pytest.mark.req("AF-22")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tag=vision", ["image-annotator"]),
        ("tag=VISION&tag=annotation", ["image-annotator"]),
        ("tag=vision&tag=search", []),
        ("tag=vis", []),
        ("tag=a%2Cb", ["translator"]),
        ("tag=STRASSE", ["translator"]),
    ],
)
async def test_all_tags_must_match_whole(opened: Opener, query: str, found: list[str]) -> None:
    async with opened(AGENTS_HELD) as served:
        assert await ids_of(served, query) == found


SUMMARY = {"id", "name", "version", "summary", "tags"}


@pytest.mark.req("AF-23", "AF-24")
@pytest.mark.parametrize(
    ("query", "members"),
    [
        ("", SUMMARY),
        ("view=summary", SUMMARY),
        ("include=endpoints", SUMMARY | {"endpoints"}),
        ("include=capabilities,endpoints", SUMMARY | {"capabilities", "endpoints"}),
        (
            "include=owner&include=+description+,,timestamps",
            {*SUMMARY, "owner", "description", "created_at", "updated_at"},
        ),
        ("include=summary", SUMMARY),
        ("include=metadata", SUMMARY | {"metadata"}),
        ("include=", SUMMARY),
        ("include=all", set(ANNOTATOR)),
        ("view=full", set(ANNOTATOR)),
        ("view=full&include=owner", set(ANNOTATOR)),
    ],
)
async def test_view_and_include_on_list_and_item(opened: Opener, query: str, members: set[str]) -> None:
    async with opened([ANNOTATOR]) as served:
        listed = (await served.client.get(f"{AGENTS}?{query}", headers=ALICE)).json()["agents"]
        explicit = query if "view=" in query else f"view=summary&{query}"
        item = (await served.client.get(f"{AGENTS}/image-annotator?{explicit}", headers=ALICE)).json()
    assert set(listed[0]) == set(item) == members
    assert listed[0] == item == {name: ANNOTATOR[name] for name in members}


@pytest.mark.req("AF-24")
async def test_the_item_is_full_by_default(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        plain = await served.client.get(f"{AGENTS}/image-annotator", headers=ALICE)
        included = await served.client.get(f"{AGENTS}/image-annotator?include=endpoints", headers=ALICE)
    assert plain.json() == included.json() == ANNOTATOR


@pytest.mark.req("AF-21", "AF-22", "AF-23", "AF-24", "AF-25")
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("q=" + "x" * 257, "q"),
        ("q=a&q=b", "q"),
        ("q=%FF", "q"),
        ("q=a%00b", "q"),
        ("q=a%0Ab", "q"),
        ("tag=", "tag"),
        ("tag=a&tag=+", "tag"),
        ("&".join(f"tag=t{number}" for number in range(33)), "tag"),
        ("tag=%C3", "tag"),
        ("include=colour", "include"),
        ("include=owner,Endpoints", "include"),
        ("view=fat", "view"),
        ("view=", "view"),
        ("view=Full", "view"),
        ("view=full&view=full", "view"),
        ("page=0", "page"),
        ("page=-1", "page"),
        ("page=1.5", "page"),
        ("page=one", "page"),
        ("page=", "page"),
        ("page=+1", "page"),
        ("page=1000001", "page"),
        ("page=" + "9" * 5000, "page"),
        ("page=%D9%A1", "page"),
        ("page=1&page=2", "page"),
        ("per_page=0", "per_page"),
        ("per_page=x", "per_page"),
        ("per_page=1&per_page=1", "per_page"),
        ("id=", "id"),
        ("id=a&id=b", "id"),
        ("id=" + "x" * 1025, "id"),
        ("strict=1&colour=red", "colour"),
        ("strict=1&Page=1", "Page"),
    ],
)
async def test_every_bad_value_is_refused_and_its_parameter_named(opened: Opener, query: str, name: str) -> None:
    async with opened([ANNOTATOR]) as served:
        answer = await served.client.get(f"{AGENTS}?{query}", headers=ALICE)
    problem = answer.json()
    assert answer.status_code == 400
    assert problem["code"] == "invalid_request"
    assert name in [wrong["name"] for wrong in problem["invalid_params"]]
    assert all(wrong["reason"] for wrong in problem["invalid_params"])


@pytest.mark.req("AF-21", "AF-23")
async def test_all_errors_are_reported_at_once_with_the_valid_groups(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        problem = (await served.client.get(f"{AGENTS}?page=0&view=x&include=colour")).json()
    reasons = {wrong["name"]: wrong["reason"] for wrong in problem["invalid_params"]}
    assert set(reasons) == {"page", "view", "include"}
    assert "description, owner, endpoints, capabilities, timestamps, metadata, summary, all" in reasons["include"]


@pytest.mark.req("AF-21", "AF-28")
async def test_unknown_parameters_are_ignored_unless_strict(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        for path, query, status in (
            (AGENTS, "colour=red", 200),
            (AGENTS, "strict=0&colour=red", 200),
            (AGENTS, "strict=1", 200),
            (f"{AGENTS}/image-annotator", "q=x&tag=&page=0&per_page=x&id=", 200),
            (f"{AGENTS}/image-annotator", "strict=1&page=1", 400),
            (f"{AGENTS}/image-annotator", "view=thin", 400),
            (f"{AGENTS}/image-annotator", "include=x", 400),
        ):
            assert (await served.client.get(f"{path}?{query}", headers=ALICE)).status_code == status, query


@pytest.mark.req("AF-25", "AF-42")
async def test_a_query_string_beyond_its_bound_is_too_long(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        for size, status in ((8192, 200), (8193, 414)):
            answer = await served.client.get(f"{AGENTS}?x={'y' * (size - 2)}")
            assert answer.status_code == status


@pytest.mark.req("AF-25", "AF-26")
async def test_pages_count_from_one_and_tell_of_the_whole(opened: Opener) -> None:
    async with opened(numbered(7)) as served:
        answer = await served.client.get(f"{AGENTS}?q=agent&page=2&per_page=3", headers=ALICE)
    body = answer.json()
    assert [agent["name"] for agent in body["agents"]] == ["Agent 0003", "Agent 0004", "Agent 0005"]
    assert (body["page"], body["per_page"], body["total"]) == (2, 3, 7)
    assert answer.headers["x-total-count"] == "7"
    links = links_of(answer)
    assert links["first"] == f"{AGENTS}?q=agent&page=1&per_page=3" == links["prev"]
    assert links["next"] == f"{AGENTS}?q=agent&page=3&per_page=3" == links["last"]


@pytest.mark.req("AF-25", "AF-26")
async def test_first_last_and_too_large_pages(opened: Opener) -> None:
    async with opened(numbered(3)) as served:
        first = await served.client.get(f"{AGENTS}?page=1")
        clamped = await served.client.get(f"{AGENTS}?per_page=201")
        huge = await served.client.get(f"{AGENTS}?per_page={'9' * 40}")
        past = await served.client.get(f"{AGENTS}?page=1000000&per_page=200")
        empty = await served.client.get(f"{AGENTS}?tag=none&page=1")
    assert (first.json()["per_page"], clamped.json()["per_page"], huge.json()["per_page"]) == (50, 200, 200)
    assert not {"prev", "next"} & set(links_of(first))
    assert (past.status_code, past.json()["agents"], past.json()["total"]) == (200, [], 3)
    assert links_of(past)["prev"] == f"{AGENTS}?page=1&per_page=200"
    assert empty.json() == {"agents": [], "page": 1, "per_page": 50, "total": 0}


@pytest.mark.req("AF-25", "AF-26", "AF-27")
async def test_walking_the_pages_gives_the_unpaged_list(opened: Opener) -> None:
    mixed = [{**agent, "name": name} for agent, name in zip(numbered(9), "bBaACcÄéz", strict=True)]
    async with opened(mixed) as served:
        whole = (await served.client.get(AGENTS)).json()["agents"]
        walked: list[Any] = []
        generations = set()
        url: str | None = f"{AGENTS}?per_page=2"
        while url:
            answer = await served.client.get(url)
            walked += answer.json()["agents"]
            generations.add(answer.headers["af-generation"])
            url = links_of(answer).get("next")
    assert walked == whole
    assert len(whole) == 9
    assert [(agent["name"].casefold(), agent["id"]) for agent in whole] == sorted(
        (agent["name"].casefold(), agent["id"]) for agent in whole
    )
    assert len(generations) == 1


@pytest.mark.req("AF-27")
async def test_the_generation_changes_with_the_set(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        before = (await served.client.get(AGENTS)).headers["af-generation"]
        await served.register(FAQ)
        assert (await served.client.get(AGENTS)).headers["af-generation"] != before


@pytest.mark.req("AF-25")
async def test_a_thousand_agents_are_one_plain_list_and_one_more_is_paged(opened: Opener) -> None:
    agents = numbered(1001)
    async with opened(agents[:1000]) as served:
        plain = (await served.client.get(AGENTS)).json()
        assert len(plain.pop("agents")) == 1000
        assert plain == {}
        await served.register(agents[1000])
        paged = (await served.client.get(AGENTS)).json()
    assert (len(paged["agents"]), paged["page"], paged["per_page"], paged["total"]) == (50, 1, 50, 1001)
