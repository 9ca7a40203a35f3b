"""The ARD registry over HTTP: search, explore, the list, and their errors (ard.md §4–9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import jsonschema
import pytest
import pytest_asyncio

from support.service import Bench, profile, service
from waypost.server.api.ard.api import ARD_ROUTES

pytestmark = pytest.mark.asyncio(loop_scope="module")

MCP = "application/mcp-server-card+json"
A2A = "application/a2a-agent-card+json"
OURS = "application/agent-metadata+json"
SHAPES = {route.path: route.answers[200].schema for route in ARD_ROUTES}


def bound(protocol: str) -> list[dict[str, str]]:
    return [{"protocol": protocol, "endpoint": "https://agents.example.net/x"}]


AGENTS = [
    profile(
        "https://north.example.com/rain",
        name="Rain",
        description="Weather forecast for a town.",
        tags=["Weather"],
        bindings=bound("mcp"),
    ),
    profile(
        "https://north.example.com/storm",
        name="Storm",
        description="Weather warnings of storms.",
        tags=["weather", "alarm"],
        bindings=bound("mcp"),
    ),
    profile(
        "https://south.example.com/sun",
        name="Sun",
        description="Weather and hours of sun.",
        tags=["weather"],
        version="2.0.0",
        bindings=bound("a2a"),
    ),
    profile(
        "https://south.example.com/ledger",
        name="Ledger",
        description="Books invoices.",
        tags=["finance"],
        bindings=bound("https"),
    ),
    {
        "identifier": "urn:air:east.example.com:agent:tide",
        "displayName": "Tide",
        "type": A2A,
        "url": "https://east.example.com/tide.json",
        "description": "Weather at sea.",
        "tags": ["weather"],
        "capabilities": ["tides"],
        "updatedAt": "2025-03-01T00:00:00Z",
        "metadata": {"org.example.depth": 12, "region": "coast"},
    },
    {
        "identifier": "urn:air:east.example.com:registry:main",
        "displayName": "East weather registry",
        "type": "application/ai-registry+json",
        "url": "https://east.example.com/ard/",
        "description": "Weather agents of the east.",
    },
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with service(tmp_path_factory.mktemp("ard")) as made:
        for document in AGENTS:
            assert (await made.admin().post("/api/v1/agents", json=document)).status_code == 201
        yield made


@pytest.fixture
def reader(bench: Bench) -> httpx2.AsyncClient:
    return bench.as_("reader", "discover:read")


async def search(reader: httpx2.AsyncClient, text: str, **members: Any) -> dict[str, Any]:
    query = {"text": text} | ({"filter": members.pop("filter")} if "filter" in members else {})
    answer = await reader.post("/ard/search", json={"query": query, **members})
    assert answer.status_code == 200, answer.text
    jsonschema.validate(answer.json(), SHAPES["/ard/search"])
    found: dict[str, Any] = answer.json()
    return found


async def explore(reader: httpx2.AsyncClient, *facets: dict[str, Any], **members: Any) -> dict[str, Any]:
    answer = await reader.post("/ard/explore", json={"resultType": {"facets": list(facets)}, **members})
    assert answer.status_code == 200, answer.text
    jsonschema.validate(answer.json(), SHAPES["/ard/explore"])
    assert answer.json()["resultType"] == "facets"
    found: dict[str, Any] = answer.json()["facets"]
    return found


async def listed(reader: httpx2.AsyncClient, **parameters: Any) -> dict[str, Any]:
    answer = await reader.get("/ard/agents", params=parameters)
    assert answer.status_code == 200, answer.text
    jsonschema.validate(answer.json(), SHAPES["/ard/agents"])
    found: dict[str, Any] = answer.json()
    return found


def names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["displayName"] for entry in entries]


def values(facet: dict[str, Any]) -> dict[str, int]:
    return {bucket["value"]: bucket["count"] for bucket in facet["buckets"]}


# --- Search ---------------------------------------------------------------------------------------


@pytest.mark.req("ARD-23", "ARD-24")
async def test_a_search_gives_entries_with_score_and_source_best_first(reader: httpx2.AsyncClient) -> None:
    found = (await search(reader, "weather forecast for a town"))["results"]
    assert found[0]["displayName"] == "Rain"
    assert all(entry["source"].endswith("/ard") for entry in found)
    scores = [entry["score"] for entry in found]
    assert scores == sorted(scores, reverse=True)
    assert all(type(score) is int and 1 <= score <= 100 for score in scores)


@pytest.mark.req("ARD-24")
async def test_equal_scores_are_ordered_by_identifier(bench: Bench, reader: httpx2.AsyncClient) -> None:
    for name in ("c", "a", "b"):
        twin = profile(
            f"https://twins.example.com/{name}", name="Twin", description="Counts zebras.", bindings=bound("mcp")
        )
        await bench.admin().put("/profile/v1/agents/" + twin["id"].replace("/", "%2F").replace(":", "%3A"), json=twin)
    found = (await search(reader, "counts zebras", filter={"publisher": "twins.example.com"}))["results"]
    assert len({entry["score"] for entry in found}) == 1
    assert [entry["identifier"] for entry in found] == sorted(entry["identifier"] for entry in found)


@pytest.mark.req("ARD-21", "ARD-22")
@pytest.mark.parametrize(
    ("narrowed", "expected"),
    [
        ({"type": [MCP]}, {"Rain", "Storm"}),
        ({"type": MCP.upper() + "; profile=x"}, {"Rain", "Storm"}),
        ({"type": [MCP, A2A]}, {"Rain", "Storm", "Sun", "Tide"}),
        ({"type": [MCP], "tags": ["ALARM"]}, {"Storm"}),
        ({"publisher": "East.Example.com"}, {"Tide"}),
        ({"displayName": "rain"}, set()),
        ({"capabilities": "tides"}, {"Tide"}),
        ({"version": ["2.0.0", "9"]}, {"Sun"}),
        ({"metadata.org.example.depth": "12"}, {"Tide"}),
        ({"metadata.region": ["coast"], "publisher": "east.example.com"}, {"Tide"}),
        ({"metadata.nowhere": "x"}, set()),
        ({"tags": []}, set()),
    ],
)
async def test_a_filter_takes_any_value_of_a_path_and_every_path(
    reader: httpx2.AsyncClient, narrowed: dict[str, Any], expected: set[str]
) -> None:
    found = (await search(reader, "weather", filter=narrowed))["results"]
    assert set(names(found)) == expected


@pytest.mark.req("ARD-25")
async def test_a_walk_over_pages_gives_each_entry_once(reader: httpx2.AsyncClient) -> None:
    whole = (await search(reader, "weather", pageSize=100))["results"]
    walked, token = [], None
    for _ in range(len(whole) + 1):
        page = await search(reader, "weather", pageSize=1, **({"pageToken": token} if token else {}))
        walked += page["results"]
        token = page.get("pageToken")
        if token is None:
            break
    assert walked == whole
    assert token is None


@pytest.mark.req("ARD-25")
async def test_a_page_token_fits_the_same_question_of_the_same_caller_only(
    bench: Bench, reader: httpx2.AsyncClient
) -> None:
    token = (await search(reader, "weather", pageSize=1))["pageToken"]
    other = bench.as_("other", "discover:read")
    for client, text, given in (
        (reader, "storms", token),
        (other, "weather", token),
        (reader, "weather", token[:-2] + "xx"),
    ):
        answer = await client.post("/ard/search", json={"query": {"text": text}, "pageSize": 1, "pageToken": given})
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_ARGUMENT")
        assert "pageToken" in answer.json()["message"]


@pytest.mark.req("ARD-23")
async def test_a_page_has_ten_results_by_default_and_a_hundred_at_most(reader: httpx2.AsyncClient) -> None:
    assert len((await search(reader, "weather"))["results"]) <= 10
    assert (await search(reader, "weather", pageSize=100_000))["results"]


@pytest.mark.req("ARD-20")
async def test_verification_does_not_change_the_score(reader: httpx2.AsyncClient) -> None:
    found = (await search(reader, "weather"))["results"]
    plain = (
        await reader.post("/profile/v1/discover", json={"query": "weather", "limit": 50, "diversity": False})
    ).json()
    scores = {candidate["name"]: candidate["score"] for candidate in plain["candidates"]}
    assert all(abs(entry["score"] / 100 - scores[entry["displayName"]]) <= 0.0051 for entry in found)


@pytest.mark.req("ARD-27")
async def test_registries_are_referrals_and_no_results(reader: httpx2.AsyncClient) -> None:
    found = await search(reader, "weather registry of the east", federation="referrals")
    assert "East weather registry" not in names(found["results"])
    assert found["referrals"] == [
        {
            "identifier": "urn:air:east.example.com:registry:main",
            "displayName": "East weather registry",
            "type": "application/ai-registry+json",
            "url": "https://east.example.com/ard/",
        }
    ]
    for mode in ("auto", "none"):
        assert "referrals" not in await search(reader, "weather", federation=mode)


# --- Explore --------------------------------------------------------------------------------------


@pytest.mark.req("ARD-28", "ARD-29")
async def test_explore_counts_over_the_whole_registry_without_a_question(reader: httpx2.AsyncClient) -> None:
    total = (await listed(reader, pageSize=100))["total"]
    facets = await explore(reader, {"field": "type"}, {"field": "metadata.region"})
    assert sum(values(facets["type"]).values()) == total
    assert values(facets["metadata.region"]) == {"coast": 1}


@pytest.mark.req("ARD-26", "ARD-29")
async def test_explore_counts_agree_with_the_search_results(reader: httpx2.AsyncClient) -> None:
    found = (await search(reader, "weather", pageSize=100))["results"]
    facets = await explore(reader, {"field": "type"}, {"field": "tags"}, query={"text": "weather"})
    assert values(facets["type"]) == {
        kind: [e["type"] for e in found].count(kind) for kind in {e["type"] for e in found}
    }
    assert values(facets["tags"])["weather"] == sum("weather" in map(str.lower, e["tags"]) for e in found)


@pytest.mark.req("ARD-29")
async def test_buckets_are_ordered_by_count_and_truncation_is_reported(reader: httpx2.AsyncClient) -> None:
    asked = {"query": {"filter": {"tags": "weather"}}}
    whole = (await explore(reader, {"field": "tags"}, **asked))["tags"]
    assert whole["buckets"][0] == {"value": "weather", "count": 4}
    cut = (await explore(reader, {"field": "tags", "limit": 1}, **asked))["tags"]
    assert cut["otherCount"] == sum(bucket["count"] for bucket in whole["buckets"][1:])
    often = (await explore(reader, {"field": "tags", "minCount": 2}, **asked))["tags"]
    assert values(often) == {"weather": 4}
    assert "otherCount" not in often


@pytest.mark.req("ARD-30")
async def test_explore_takes_no_federation(reader: httpx2.AsyncClient) -> None:
    body = {"resultType": {"facets": [{"field": "type"}]}, "federation": "auto"}
    answer = await reader.post("/ard/explore", json=body)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_ARGUMENT")


# --- The list -------------------------------------------------------------------------------------


@pytest.mark.req("ARD-31")
async def test_the_list_comes_in_pages_without_scores_and_can_be_cached(
    bench: Bench, reader: httpx2.AsyncClient
) -> None:
    whole = await listed(reader, pageSize=100)
    assert len(whole["items"]) == whole["total"]
    assert "pageToken" not in whole
    assert not any("score" in entry for entry in whole["items"])
    walked: list[dict[str, Any]] = []
    token = ""
    for _ in range(whole["total"]):
        page = await listed(reader, pageSize=2, **({"pageToken": token} if token else {}))
        walked += page["items"]
        token = page.get("pageToken", "")
        if not token:
            break
    assert walked == whole["items"]
    first = await reader.get("/ard/agents")
    again = await reader.get("/ard/agents", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "Authorization" in first.headers["vary"]


@pytest.mark.req("ARD-32")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (f"type = '{MCP}' AND createdAfter > '2020-01-01' AND publisher=north.example.com", ["Rain", "Storm"]),
        (f'type="{MCP}" and displayName = "rAIN"', ["Rain"]),
        ("publisherId = 'east.example.com,south.example.com'", ["Ledger", "Sun", "Tide"]),
        ("updatedAfter > 2025-02-01T00:00:00Z AND capabilities = tides", ["Tide"]),
        ("updatedAfter = '2026-12-31' AND capabilities = tides", []),
        ("description : 'invoices'", ["Ledger"]),
        ("displayName : 'or' AND tags = weather", ["Storm"]),
        ("version >= '2'", ["Sun"]),
    ],
)
async def test_the_list_is_narrowed_by_clauses(reader: httpx2.AsyncClient, written: str, expected: list[str]) -> None:
    found = await listed(reader, filter=written, orderBy="displayName")
    assert names(found["items"]) == expected
    assert found["total"] == len(expected)


@pytest.mark.req("ARD-32")
async def test_the_list_is_sorted_as_requested(reader: httpx2.AsyncClient) -> None:
    narrowed = "publisher = 'north.example.com,south.example.com,east.example.com'"
    by_name = await listed(reader, filter=narrowed, orderBy="name DESC")
    assert names(by_name["items"]) == ["Tide", "Sun", "Storm", "Rain", "Ledger"]
    by_two = await listed(reader, filter=narrowed, orderBy="publisher, displayName desc")
    assert names(by_two["items"]) == ["Tide", "Storm", "Rain", "Sun", "Ledger"]
    plain = await listed(reader, filter=narrowed)
    identifiers = [entry["identifier"] for entry in plain["items"]]
    assert identifiers == sorted(identifiers)


# --- Errors and access ----------------------------------------------------------------------------

ASKED = {"query": {"text": "a"}}
FACET = {"field": "type"}


@pytest.mark.req("ARD-34")
@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("search", {}, "$.query"),
        ("search", {"query": {}}, "$.query.text"),
        ("search", {"query": {"text": " "}}, "$.query.text"),
        ("search", {"query": {"text": 3}}, "$.query.text"),
        ("search", {"query": {"text": "a" * 4097}}, "$.query.text"),
        ("search", {"query": {"text": "a", "type": "x"}}, "$.query.type"),
        ("search", {**ASKED, "limit": 3}, "$.limit"),
        ("search", {**ASKED, "federation": "all"}, "$.federation"),
        ("search", {**ASKED, "pageSize": 0}, "$.pageSize"),
        ("search", {**ASKED, "pageSize": 1.5}, "$.pageSize"),
        ("search", {**ASKED, "pageToken": 7}, "$.pageToken"),
        ("search", {"query": {"text": "a", "filter": []}}, "$.query.filter"),
        ("search", {"query": {"text": "a", "filter": {"colour": "red"}}}, "colour"),
        ("search", {"query": {"text": "a", "filter": {"tags": ["a", None]}}}, "$.query.filter.tags[1]"),
        ("search", {"query": {"text": "a", "filter": {"tags": {"a": 1}}}}, "$.query.filter.tags"),
        ("search", {"query": {"text": "a", "filter": {"metadata" + ".a" * 9: "x"}}}, "$.query.filter.metadata"),
        ("explore", {}, "$.resultType"),
        ("explore", {"resultType": {"facets": []}}, "$.resultType.facets"),
        ("explore", {"resultType": {"facets": [FACET, FACET]}}, "$.resultType.facets[1].field"),
        ("explore", {"resultType": {"facets": [{"field": "colour"}]}}, "$.resultType.facets[0].field"),
        ("explore", {"resultType": {"facets": [{**FACET, "limit": 1001}]}}, "$.resultType.facets[0].limit"),
        ("explore", {"resultType": {"facets": [{**FACET, "minCount": 0}]}}, "$.resultType.facets[0].minCount"),
    ],
)
async def test_a_wrong_body_is_reported_with_its_path(
    reader: httpx2.AsyncClient, path: str, body: dict[str, Any], place: str
) -> None:
    answer = await reader.post(f"/ard/{path}", json=body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"errorCode", "message"}
    assert answer.json()["errorCode"] == "INVALID_ARGUMENT"
    assert place in answer.json()["message"]


@pytest.mark.req("ARD-32", "ARD-34")
@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"filter": "type == x"}, "column 7"),
        ({"filter": "type = 'x' OR type = 'y'"}, "column 12"),
        ({"filter": "colour = 'red'"}, "'colour'"),
        ({"filter": "createdAfter > yesterday"}, "'yesterday'"),
        ({"filter": "type : card"}, "type takes ="),
        ({"orderBy": "colour"}, "'colour'"),
        ({"orderBy": "name SIDEWAYS"}, "'SIDEWAYS'"),
        ({"pageSize": "0"}, "pageSize"),
        ({"pageSize": "many"}, "pageSize"),
        ({"pageToken": "made-up"}, "pageToken"),
        ({"page": "2"}, "'page'"),
    ],
)
async def test_a_wrong_parameter_is_reported(reader: httpx2.AsyncClient, parameters: dict[str, str], told: str) -> None:
    answer = await reader.get("/ard/agents", params=parameters)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_ARGUMENT")
    assert told in answer.json()["message"]


@pytest.mark.req("ARD-34", "ARD-35")
async def test_each_kind_of_refusal_has_its_code(bench: Bench, reader: httpx2.AsyncClient) -> None:
    anonymous = bench.anonymous()
    writer = bench.as_("writer", "discover:write")
    refusals = [
        (await anonymous.post("/ard/search", json=ASKED), 401, "UNAUTHENTICATED"),
        (await anonymous.get("/ard/agents"), 401, "UNAUTHENTICATED"),
        (await writer.post("/ard/search", json=ASKED), 403, "PERMISSION_DENIED"),
        (await reader.get("/ard/nowhere"), 404, "NOT_FOUND"),
        (await reader.get("/ard/search"), 405, "METHOD_NOT_ALLOWED"),
        (await reader.post("/ard/search", content=b"x" * 70_000), 413, "PAYLOAD_TOO_LARGE"),
        (
            await reader.post("/ard/search", content=b"a=b", headers={"Content-Type": "text/plain"}),
            415,
            "UNSUPPORTED_MEDIA_TYPE",
        ),
        (
            await reader.post("/ard/search", content=b'{"query": ', headers={"Content-Type": "application/json"}),
            400,
            "INVALID_ARGUMENT",
        ),
    ]
    for answer, status, code in refusals:
        assert (answer.status_code, answer.json()["errorCode"]) == (status, code)
        assert answer.headers["content-type"] == "application/json"
        assert set(answer.json()) == {"errorCode", "message"}


@pytest.mark.req("ARD-38")
async def test_the_three_probes_of_the_conformance_tool_pass(reader: httpx2.AsyncClient) -> None:
    assert isinstance((await listed(reader))["items"], list)
    found = await search(reader, "weather forecast tools", filter={"type": [MCP]}, federation="none", pageSize=2)
    assert len(found["results"]) == 2
    assert {entry["type"] for entry in found["results"]} == {MCP}
    assert set(await explore(reader, {"field": "type"}, query={"text": "weather"})) == {"type"}


@pytest.mark.req("ARD-24", "ARD-31")
async def test_withdrawn_and_hidden_agents_are_in_no_response(bench: Bench, reader: httpx2.AsyncClient) -> None:
    secret = profile("secret-weather", name="Secret", description="Weather for friends.", bindings=bound("mcp"))
    owner = bench.as_("owner", "discover:read", "discover:write")
    await owner.post("/api/v1/agents", json=secret, headers={"Waypost-Visibility": "private"})
    assert "Secret" in names((await search(owner, "weather for friends"))["results"])
    assert "Secret" not in names((await search(reader, "weather for friends"))["results"])
    assert "Secret" not in names((await listed(reader, pageSize=100))["items"])
    await owner.delete("/api/v1/agents/secret-weather")
    assert "Secret" not in names((await search(owner, "weather for friends"))["results"])
    assert "Secret" not in names((await listed(owner, pageSize=100))["items"])


@pytest.mark.req("ARD-24", "ARD-26")
async def test_a_deprecated_agent_is_in_no_answer(bench: Bench, reader: httpx2.AsyncClient) -> None:
    old = profile("old-weather", name="Old", description="Weather of last year.", status="deprecated", tags=["antique"])
    owner = bench.as_("owner", "discover:read", "discover:write")
    assert (await owner.post("/api/v1/agents", json=old)).status_code == 201
    assert "Old" not in names((await search(reader, "weather of last year"))["results"])
    assert "Old" not in names((await search(reader, "weather", filter={"tags": ["antique"]}))["results"])
    assert "Old" not in names((await listed(reader, pageSize=100))["items"])
    counts = (await explore(reader, {"field": "tags", "limit": 100}))["tags"]["buckets"]
    assert "antique" not in [bucket["value"] for bucket in counts]
    await owner.delete("/api/v1/agents/old-weather")


@pytest.mark.req("ARD-12")
async def test_the_catalog_has_an_entry_with_the_url_of_the_registry(bench: Bench) -> None:
    entries = (await bench.anonymous().get("/.well-known/ai-catalog.json")).json()["entries"]
    (registry,) = [
        entry
        for entry in entries
        if entry["type"] == "application/ai-registry+json" and "waypost" in entry["identifier"]
    ]
    assert registry["url"].endswith("/ard/")
