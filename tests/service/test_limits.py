"""Every limit that a caller can reach: a request at the limit is served, one past it is refused with the reason."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from support.apis import AF_AGENTS
from support.rtfs import Rpc, card
from support.service import NOW, Bench, profile, service
from waypost import limits
from waypost.model.times import to_rfc3339


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as made:
        yield made


@pytest.fixture
def admin(bench: Bench) -> httpx2.AsyncClient:
    return bench.admin()


def refused(answer: httpx2.Response, status: int, path: str | None = None) -> None:
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert problem["code"] == "invalid_request"
    assert problem["message"]
    if path is not None:
        assert problem["path"] == path


def padded(document: dict[str, Any], size: int) -> bytes:
    """The document as exactly so many bytes."""
    content = json.dumps({**document, "com.example.padding": ""}).encode()
    return content.replace(b'padding": ""', b'padding": "' + b"x" * (size - len(content)) + b'"')


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# --- Documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/agents"), ("PUT", "/profile/v1/agents/a")])
async def test_bytes_of_a_document(admin: httpx2.AsyncClient, method: str, path: str) -> None:
    at, past = (padded(profile("a"), limits.DOCUMENT_BYTES + more) for more in (0, 1))
    assert (await admin.request(method, path, content=at)).status_code == 201
    refused(await admin.request(method, path, content=past), 413, "$")


async def test_bytes_of_a_document_that_does_not_say_its_length(admin: httpx2.AsyncClient) -> None:
    async def pieces(content: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(content), 10_000):
            yield content[start : start + 10_000]

    at, past = (padded(profile("a"), limits.DOCUMENT_BYTES + more) for more in (0, 1))
    assert (await admin.post("/api/v1/agents", content=pieces(at))).status_code == 201
    refused(await admin.post("/api/v1/agents", content=pieces(past)), 413, "$")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
async def test_bytes_of_a_line_of_a_batch(admin: httpx2.AsyncClient, end: bytes) -> None:
    at, past = (padded(profile(f"b{more}"), limits.DOCUMENT_BYTES + more) for more in (0, 1))
    answer = await admin.post("/api/v1/agents:batch", content=(end or b"\n").join((at, past, at + end)))
    first, second, third = (json.loads(line) for line in answer.text.splitlines())
    assert (first["outcome"], third["outcome"]) == ("created", "unchanged")
    assert (second["error"]["code"], second["error"]["path"]) == ("invalid_request", "$")


async def test_bytes_of_a_line_whose_end_comes_late(admin: httpx2.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield padded(profile("late"), limits.DOCUMENT_BYTES) + b"\r"
        yield b"\n" + padded(profile("later"), limits.DOCUMENT_BYTES + 1)
        yield b"\r\n"

    answer = await admin.post("/api/v1/agents:batch", content=pieces())
    first, second = (json.loads(line) for line in answer.text.splitlines())
    assert first["outcome"] == "created"
    assert second["error"]["path"] == "$"


async def test_bytes_of_a_request_that_is_no_document(admin: httpx2.AsyncClient) -> None:
    for path, asked in (
        ("/profile/v1/discover", {"query": "facts"}),
        ("/api/v1/tokens", {"sub": "a", "scopes": ["discover:read"]}),
    ):
        at, past = (padded(asked, limits.REQUEST_BYTES + more) for more in (0, 1))
        assert (await admin.post(path, content=at)).status_code in (200, 201)
        refused(await admin.post(path, content=past), 413, "$")


MEMBERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "id": ({"id": "i" * 1024}, {"id": "i" * 1025}, "$.id"),
    "name": ({"name": "n" * 512}, {"name": "n" * 513}, "$.name"),
    "name in characters, not bytes": ({"name": "ñ" * 512}, {"name": "ñ" * 513}, "$.name"),
    "description": ({"description": "d" * 65536}, {"description": "d" * 65537}, "$.description"),
    "version": ({"version": "1" * 255}, {"version": "1" * 256}, "$.version"),
    "tags": ({"tags": [f"t{n}" for n in range(128)]}, {"tags": [f"t{n}" for n in range(129)]}, "$.tags"),
    "tag": ({"tags": ["t" * 64]}, {"tags": ["a", "t" * 65]}, "$.tags[1]"),
    "examples": ({"examples": [{"text": "x"}] * 32}, {"examples": [{"text": "x"}] * 33}, "$.examples"),
    "example": ({"examples": [{"text": "x" * 2048}]}, {"examples": [{"text": "x" * 2049}]}, "$.examples[0].text"),
    "tags of an example": (
        {"examples": [{"text": "x", "tags": ["t"] * 128}]},
        {"examples": [{"text": "x", "tags": ["t"] * 129}]},
        "$.examples[0].tags",
    ),
    "bindings": (
        {"bindings": [{"protocol": "https", "endpoint": "https://a"}] * 32},
        {"bindings": [{"protocol": "https", "endpoint": "https://a"}] * 33},
        "$.bindings",
    ),
    "endpoint": (
        {"bindings": [{"protocol": "https", "endpoint": "https://" + "a" * 2040}]},
        {"bindings": [{"protocol": "https", "endpoint": "https://" + "a" * 2041}]},
        "$.bindings[0].endpoint",
    ),
    "updated_at ahead of the clock": (
        {"updated_at": to_rfc3339(NOW + 300)},
        {"updated_at": to_rfc3339(NOW + 301)},
        "$.updated_at",
    ),
    "expires_at": ({"expires_at": to_rfc3339(NOW + 1)}, {"expires_at": to_rfc3339(NOW)}, "$.expires_at"),
}


@pytest.mark.parametrize("name", MEMBERS)
async def test_members_of_a_record(admin: httpx2.AsyncClient, name: str) -> None:
    at, past, path = MEMBERS[name]
    refused(await admin.post("/api/v1/agents", json=profile("a") | past), 400, path)
    assert (await admin.post("/api/v1/agents", json=profile("a") | at)).status_code == 201


def test_the_numbers_in_these_tests_are_those_of_limits() -> None:
    """The tests use literal numbers, as callers see them; this compares them with `limits`."""
    assert (limits.ID_CHARS, limits.NAME_CHARS, limits.DESCRIPTION_CHARS, limits.VERSION_CHARS) == (
        1024,
        512,
        65_536,
        255,
    )
    assert (limits.TAGS, limits.TAG_CHARS, limits.EXAMPLES, limits.EXAMPLE_CHARS) == (128, 64, 32, 2048)
    assert (limits.BINDINGS, limits.ENDPOINT_CHARS, limits.FUTURE_SKEW_SECONDS) == (32, 2048, 300)
    assert (limits.JSON_DEPTH, limits.JSON_OBJECT_KEYS, limits.JSON_ARRAY_ITEMS) == (32, 256, 1000)
    assert (limits.TTL_MIN_SECONDS, limits.TTL_MAX_SECONDS, limits.RPC_BATCH_CALLS) == (10, 86_400, 100)
    assert (limits.PAGE_MAX, limits.DISCOVER_LIMIT_MAX, limits.QUERY_CHARS, limits.FILTER_VALUES) == (
        200,
        100,
        2000,
        64,
    )
    assert (limits.AF_QUERY_CHARS, limits.AF_QUERY_TERMS, limits.AF_TAGS) == (256, 16, 32)
    assert (limits.QUERY_STRING_BYTES, limits.IDEMPOTENCY_KEY_CHARS, limits.REQUEST_ID_CHARS) == (8192, 255, 128)
    assert (limits.DOCUMENT_BYTES, limits.BATCH_BYTES) == (256 * 1024, 64 * 1024 * 1024)


SHAPES: dict[str, tuple[Any, Any, str]] = {
    "depth": (nested(31), nested(32), "$"),
    "depth of objects": (json.loads('{"a":' * 31 + "1" + "}" * 31), json.loads('{"a":' * 32 + "1" + "}" * 32), "$"),
    "keys": ({f"k{n}": n for n in range(256)}, {f"k{n}": n for n in range(257)}, "$['x-any']"),
    "items": ([0] * 1000, [0] * 1001, "$['x-any']"),
    "items of objects": ([{}] * 1000, [{}] * 1001, "$['x-any']"),
}


@pytest.mark.parametrize("name", SHAPES)
async def test_shapes_of_json(admin: httpx2.AsyncClient, name: str) -> None:
    at, past, path = SHAPES[name]
    assert (await admin.post("/api/v1/agents", json=profile("a", **{"x-any": at}))).status_code == 201
    refused(await admin.post("/api/v1/agents", json=profile("a", **{"x-any": past})), 400, path)


async def test_whole_numbers(admin: httpx2.AsyncClient) -> None:
    for sign in (1, -1):
        at, past = sign * (2**53 - 1), sign * 2**53
        assert (await admin.post("/api/v1/agents", json=profile("a", x=at))).status_code in (200, 201)
        refused(await admin.post("/api/v1/agents", json=profile("a", x=past)), 400, "$.x")


# --- Leases ---------------------------------------------------------------------------------------

CLAMPED = [(1, 10), (9, 10), (10, 10), (11, 11), (86_399, 86_399), (86_400, 86_400), (86_401, 86_400), (2**31, 86_400)]


@pytest.mark.parametrize(("asked", "granted"), CLAMPED)
async def test_a_lease_is_granted_within_its_bounds(admin: httpx2.AsyncClient, asked: int, granted: int) -> None:
    answer = await admin.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": asked})
    assert (answer.json()["ttl_seconds"], answer.json()["expires_at"]) == (granted, to_rfc3339(NOW + granted))
    renewed = await admin.post("/api/v1/agents/a:renew", json={"ttl_seconds": asked})
    assert renewed.json()["ttl_seconds"] == granted
    rpc = Rpc(admin)
    assert (await rpc.register(card("c"), ttl_seconds=asked))["ttl_seconds"] == granted
    assert (await rpc.call("heartbeat", agent_id="c", ttl_seconds=asked))["ttl_seconds"] == granted


@pytest.mark.parametrize("asked", ["0", "-1", "1.5", "2147483649", "9" * 5000, "ten", ""])
async def test_a_lease_that_is_no_time_is_refused(admin: httpx2.AsyncClient, asked: str) -> None:
    refused(await admin.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": asked}), 400, "ttl_seconds")


# --- Pages and questions --------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/agents", "/profile/v1/agents"])
async def test_agents_on_a_page(admin: httpx2.AsyncClient, path: str) -> None:
    for limit in ("1", "200", "0200"):
        assert (await admin.get(path, params={"limit": limit})).status_code == 200
    for limit in ("0", "201", "-1", "1e1", "٣", "", "00000000011", "0000000001" + "9" * 4999):
        refused(await admin.get(path, params={"limit": limit}), 400, "limit")


async def test_agents_on_a_page_of_the_af_surface(admin: httpx2.AsyncClient) -> None:
    for asked, given in (("1", 1), ("200", 200), ("201", 200), ("9" * 5000, 200)):
        answer = await admin.get(AF_AGENTS, params={"page": "1", "per_page": asked})
        assert answer.json()["per_page"] == given
    assert (await admin.get(AF_AGENTS, params={"page": limits.AF_PAGE_NUMBER_MAX})).status_code == 200
    for params in ({"page": limits.AF_PAGE_NUMBER_MAX + 1}, {"page": "9" * 5000}, {"page": "0"}, {"per_page": "0"}):
        refused(await admin.get(AF_AGENTS, params=params), 400, next(iter(params)))  # type: ignore[arg-type]


async def test_candidates_of_a_search(admin: httpx2.AsyncClient) -> None:
    for number in range(101):
        await admin.post("/api/v1/agents", json=profile(f"a{number}"))

    async def found(limit: Any) -> httpx2.Response:
        return await admin.post("/profile/v1/discover", json={"query": "facts factual", "limit": limit})

    assert len((await found(100)).json()["candidates"]) == 100
    past = (await found(101)).json()
    assert len(past["candidates"]) == 100
    assert "101" in past["warnings"][0]
    for limit in (0, -1, 1.5, "10", True):
        refused(await found(limit), 400, "$.limit")
    rpc = Rpc(admin)
    for limit, shown in ((100, 100), (101, 100)):
        agents = (await rpc.call("discover", discovery_query={"text_search": "minimal"}, limit=limit))["agents"]
        assert len(agents) == shown


async def test_characters_of_a_question(admin: httpx2.AsyncClient) -> None:
    rpc = Rpc(admin)
    for text in ("q" * 2000, "q " * 1000, "ß" * 2000):
        assert (await admin.post("/profile/v1/discover", json={"query": text})).status_code == 200
        await rpc.call("discover", discovery_query={"text_search": text})
    refused(await admin.post("/profile/v1/discover", json={"query": "q" * 2001}), 400, "$.query")
    error = await rpc.error("discover", discovery_query={"text_search": "q" * 2001})
    assert error["data"]["errors"][0]["path"] == "discovery_query.text_search"


@pytest.mark.parametrize("name", ["required_tags", "preferred_tags", "excluded_tags", "protocols"])
async def test_values_of_a_filter(admin: httpx2.AsyncClient, name: str) -> None:
    async def asked(values: list[str]) -> httpx2.Response:
        return await admin.post("/profile/v1/discover", json={"query": "facts", name: values})

    assert (await asked([f"v{n}" for n in range(64)])).status_code == 200
    refused(await asked([f"v{n}" for n in range(65)]), 400, f"$.{name}")
    assert (await asked(["v" * 256])).status_code == 200
    refused(await asked(["ok", "v" * 257]), 400, f"$.{name}[1]")
    refused(await asked([" "]), 400, f"$.{name}[0]")


AF_BOUNDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "characters": ({"q": "q" * 256}, {"q": "q" * 257}, "q"),
    "terms": ({"q": " ".join(f"w{n}" for n in range(16))}, {"q": " ".join(f"w{n}" for n in range(17))}, "q"),
    "equal terms": ({"q": " ".join(["w"] * 16)}, {"q": " ".join(["w"] * 17)}, "q"),
    "tags": ({"tag": [f"t{n}" for n in range(32)]}, {"tag": [f"t{n}" for n in range(33)]}, "tag"),
    "id": ({"id": "i" * 1024}, {"id": "i" * 1025}, "id"),
}


@pytest.mark.parametrize("name", AF_BOUNDS)
async def test_questions_of_the_af_surface(admin: httpx2.AsyncClient, name: str) -> None:
    at, past, path = AF_BOUNDS[name]
    assert (await admin.get(AF_AGENTS, params=at)).status_code == 200
    refused(await admin.get(AF_AGENTS, params=past), 400, path)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/agents",
        "/api/v1/agents/a",
        "/profile/v1/agents",
        AF_AGENTS,
        f"{AF_AGENTS}/a",
        "/.well-known/agent-card",
    ],
)
async def test_bytes_of_a_query_string(admin: httpx2.AsyncClient, path: str) -> None:
    await admin.post("/api/v1/agents", json=profile("a"))
    assert (await admin.get(f"{path}?x={'x' * 8190}")).status_code == 200
    refused(await admin.get(f"{path}?x={'x' * 8191}"), 414)


async def test_characters_of_an_id_in_a_path(admin: httpx2.AsyncClient) -> None:
    longest = "🧭" * 1024
    assert (await admin.post("/api/v1/agents", json=profile(longest))).status_code == 201
    ascii_id = "i" * 1024
    assert (await admin.post("/api/v1/agents", json=profile(ascii_id))).status_code == 201
    for base in ("/api/v1/agents/", "/profile/v1/agents/", f"{AF_AGENTS}/"):
        assert (await admin.get(base + ascii_id)).status_code == 200
        past = await admin.get(base + "i" * 1025)
        assert past.status_code in (400, 404)
        assert (await admin.get(base + "i" * 8000)).status_code in (400, 404)
    assert (await admin.get("/api/v1/agents/" + quote(longest))).status_code == 200
    refused(await admin.get("/api/v1/agents/" + "i" * (limits.PATH_SEGMENT_BYTES + 1)), 400, "id")


# --- Calls ----------------------------------------------------------------------------------------


def call(number: int) -> dict[str, Any]:
    params = {"agent_id": f"a{number}"}
    return {"jsonrpc": "2.0", "id": number, "method": "rtfs.registry.discover", "params": params}


async def test_calls_of_a_batch(admin: httpx2.AsyncClient) -> None:
    rpc = Rpc(admin)
    at = (await rpc.post([call(number) for number in range(100)])).json()
    assert [reply["id"] for reply in at] == list(range(100))
    assert all(reply["result"]["total"] == 0 for reply in at)
    for size in (101, 1001):
        past = (await rpc.post([call(number) for number in range(size)])).json()
        assert (past["id"], past["error"]["code"]) == (None, -32600)
        assert past["error"]["data"]["reason"] == "batch_too_large"


async def test_bytes_of_calls(admin: httpx2.AsyncClient) -> None:
    rpc = Rpc(admin)
    at, past = (json.dumps(call(1)).encode().ljust(limits.RPC_BYTES + more) for more in (0, 1))
    assert (await rpc.post(at)).json()["result"]["total"] == 0
    answer = await rpc.post(past)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, -32600)


def capabilities(number: int) -> list[dict[str, str]]:
    return [{"capability_id": f"c{n}", "description": "Does it."} for n in range(number)]


def endpoints(number: int) -> dict[str, Any]:
    return {"endpoints": [{"protocol": "http", "uri": f"https://e{n}.example/"} for n in range(number)]}


CARDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "id": ({"agent_id": "i" * limits.RTFS_ID_CHARS}, {"agent_id": "i" * (limits.RTFS_ID_CHARS + 1)}),
    "tags": (
        {"discovery_tags": [f"t{n}" for n in range(limits.RTFS_TAGS)]},
        {"discovery_tags": [f"t{n}" for n in range(limits.RTFS_TAGS + 1)]},
    ),
    "capabilities": (
        {"capabilities": capabilities(limits.RTFS_CAPABILITIES)},
        {"capabilities": capabilities(limits.RTFS_CAPABILITIES + 1)},
    ),
    "endpoints": (
        {"communication": endpoints(limits.RTFS_ENDPOINTS)},
        {"communication": endpoints(limits.RTFS_ENDPOINTS + 1)},
    ),
}


@pytest.mark.parametrize("name", CARDS)
async def test_members_of_a_card(admin: httpx2.AsyncClient, name: str) -> None:
    at, past = CARDS[name]
    rpc = Rpc(admin)
    assert (await rpc.error("register", agent_card=card("a") | past))["data"]["code"] == "invalid_request"
    assert (await admin.post("/api/v1/agents", json=card("a") | past)).status_code in (400, 413)
    assert (await rpc.register(card("a") | at))["outcome"] == "created"
    assert (await admin.post("/api/v1/agents", json=card("a") | at)).json()["outcome"] == "refreshed"


async def test_bytes_of_a_card(admin: httpx2.AsyncClient) -> None:
    rpc = Rpc(admin)
    size = len(json.dumps(card("a", x=""), separators=(",", ":")))
    at, past = (card("a", x="y" * (limits.RTFS_CARD_BYTES - size + more)) for more in (0, 1))
    assert (await rpc.register(at))["outcome"] == "created"
    assert (await rpc.error("register", agent_card=past))["data"]["code"] == "invalid_request"
    assert (await admin.post("/api/v1/agents", json=past)).status_code in (400, 413)


async def test_keys_and_depth_of_a_card_query(admin: httpx2.AsyncClient) -> None:
    rpc = Rpc(admin)
    at, past = ({f"metadata.k{n}": n for n in range(limits.RTFS_QUERY_KEYS + more)} for more in (0, 1))
    await rpc.call("discover", discovery_query=at)
    assert (await rpc.error("discover", discovery_query=past))["data"]["code"] == "invalid_request"

    def deep(depth: int) -> dict[str, Any]:
        value: Any = 1
        for _ in range(depth):
            value = {"metadata": value}
        return value  # type: ignore[no-any-return]

    await rpc.call("discover", discovery_query=deep(limits.RTFS_QUERY_DEPTH - 1))
    error = await rpc.error("discover", discovery_query=deep(limits.RTFS_QUERY_DEPTH + 1))
    assert error["data"]["code"] == "invalid_request"


# --- Names that callers give ----------------------------------------------------------------------


async def test_characters_of_an_idempotency_key(admin: httpx2.AsyncClient) -> None:
    for key in ("k", "k" * 255):
        answer = await admin.post("/api/v1/agents", json=profile("a"), headers={"Idempotency-Key": key})
        assert answer.status_code in (200, 201)
    for key in ("", "k" * 256):
        answer = await admin.post("/api/v1/agents", json=profile("a"), headers={"Idempotency-Key": key})
        refused(answer, 400, "Idempotency-Key")


async def test_characters_of_a_request_id(admin: httpx2.AsyncClient) -> None:
    for path in ("/api/v1/agents", AF_AGENTS):
        at = await admin.get(path, headers={"X-Request-Id": "r" * 128})
        assert at.headers["x-request-id"] == "r" * 128
        past = await admin.get(path, headers={"X-Request-Id": "r" * 129})
        assert "r" * 10 not in past.headers["x-request-id"]


async def test_time_and_subject_of_a_token(admin: httpx2.AsyncClient) -> None:
    async def minted(**asked: Any) -> httpx2.Response:
        return await admin.post("/api/v1/tokens", json={"sub": "a", "scopes": ["discover:read"], **asked})

    assert (await minted(ttl_seconds=limits.TOKEN_TTL_MAX_SECONDS)).status_code == 201
    refused(await minted(ttl_seconds=limits.TOKEN_TTL_MAX_SECONDS + 1), 400, "ttl_seconds")
    assert (await minted(sub="s" * 256)).status_code == 201
    refused(await minted(sub="s" * 257), 400, "sub")


async def test_times_of_a_token(bench: Bench) -> None:
    client = bench.client(bench.token("a", ttl_seconds=60))
    bench.clock.advance(59)
    assert (await client.get("/api/v1/agents")).status_code == 200
    bench.clock.advance(1)
    assert (await client.get("/api/v1/agents")).status_code == 401


async def test_an_owner_keeps_an_id_for_as_long_as_the_lease_ran_but_no_longer_than_an_hour(bench: Bench) -> None:
    alice, bob = bench.as_("alice"), bench.client(bench.token("bob", ttl_seconds=86_400))
    await alice.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": 60})
    bench.clock.advance(119)
    assert (await bob.post("/api/v1/agents", json=profile("a"))).status_code == 409
    bench.clock.advance(1)
    assert (await bob.post("/api/v1/agents", json=profile("a"))).status_code == 201
    await alice.post("/api/v1/agents", json=profile("b"), params={"ttl_seconds": 7200})
    bench.clock.advance(7200 + 3599)
    assert (await bob.post("/api/v1/agents", json=profile("b"))).status_code == 409
    bench.clock.advance(1)
    assert (await bob.post("/api/v1/agents", json=profile("b"))).status_code == 201


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
@pytest.mark.parametrize("member", ["updated_at", "expires_at"])
async def test_a_time_in_no_year_of_utc_is_refused_and_breaks_no_list(bench: Bench, member: str, text: str) -> None:
    refused(await bench.as_("alice").post("/api/v1/agents", json={**profile("p"), member: text}), 400, f"$.{member}")
    for path in ("/agents", "/api/v1/agents", AF_AGENTS, "/ard/agents"):
        assert (await bench.admin().get(path)).status_code == 200
