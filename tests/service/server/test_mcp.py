"""MCP over streamable HTTP: both generations of the protocol, the tools, and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from support.service import Bench, profile, service
from waypost.protocols.mcp.messages import HANDSHAKE, MODERN, routing_headers

pytestmark = pytest.mark.asyncio(loop_scope="module")

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN[-1],
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with service(tmp_path_factory.mktemp("mcp")) as made:
        agent = profile("rain", name="Rain", description="Weather forecast for a town.", tags=["weather"])
        assert (await made.admin().post("/api/v1/agents", json=agent)).status_code == 201
        yield made


@pytest.fixture
def caller(bench: Bench) -> httpx2.AsyncClient:
    return bench.as_("caller", "discover:read", "discover:write")


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def ask(caller: httpx2.AsyncClient, method: str, **params: Any) -> dict[str, Any]:
    answer = await caller.post("/mcp", json=message(method, **params))
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


def modern_request(method: str, **params: Any) -> dict[str, Any]:
    said = message(method, _meta=META, **params)
    return {"json": said, "headers": routing_headers(said)}


async def ask_modern(caller: httpx2.AsyncClient, method: str, **params: Any) -> dict[str, Any]:
    answer = await caller.post("/mcp", **modern_request(method, **params))
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    assert result["resultType"] == "complete"
    return result


async def call(caller: httpx2.AsyncClient, tool: str, **arguments: Any) -> tuple[bool, Any]:
    result = await ask(caller, "tools/call", name=tool, arguments=arguments)
    assert result["content"][0]["type"] == "text"
    return result["isError"], result["structuredContent"]


# --- The protocol ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offered", HANDSHAKE)
async def test_a_handshake_takes_the_revision_that_is_offered(caller: httpx2.AsyncClient, offered: str) -> None:
    result = await ask(
        caller, "initialize", protocolVersion=offered, capabilities={}, clientInfo={"name": "t", "version": "1"}
    )
    assert result["protocolVersion"] == offered
    assert result["serverInfo"]["name"] == "waypost"
    assert "tools" in result["capabilities"]


async def test_an_unknown_revision_is_answered_with_the_newest_of_the_era(caller: httpx2.AsyncClient) -> None:
    assert (await ask(caller, "initialize", protocolVersion="1999-01-01"))["protocolVersion"] == HANDSHAKE[-1]


async def test_a_peer_without_a_handshake_gets_the_supported_versions(caller: httpx2.AsyncClient) -> None:
    found = await ask_modern(caller, "server/discover")
    assert set(found["supportedVersions"]) == {*MODERN, *HANDSHAKE}
    assert found["cacheScope"] == "public"


async def test_a_notification_is_taken_and_not_answered(caller: httpx2.AsyncClient) -> None:
    answer = await caller.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (answer.status_code, answer.content) == (202, b"")


async def test_the_tools_are_those_of_the_surface_in_both_eras(caller: httpx2.AsyncClient) -> None:
    old, new = await ask(caller, "tools/list"), await ask_modern(caller, "tools/list")
    assert [tool["name"] for tool in old["tools"]] == ["find_agents", "get_agent", "register_agent", "ard_search"]
    assert new["tools"] == old["tools"]
    assert "resultType" not in old
    find = old["tools"][0]["inputSchema"]
    assert set(find["properties"]) == {
        "query", "required_tags", "preferred_tags", "excluded_tags", "protocols", "limit", "min_match", "include_evidence",
    }  # fmt: skip
    assert find["required"] == ["query"]


async def test_ping_belongs_to_the_revisions_with_a_session(caller: httpx2.AsyncClient) -> None:
    assert await ask(caller, "ping") == {}
    answer = await caller.post("/mcp", **modern_request("ping"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


async def test_whitespace_around_a_header_is_not_part_of_its_value(caller: httpx2.AsyncClient) -> None:
    request = modern_request("tools/call", name="find_agents", arguments={"query": "weather"})
    request["headers"] = {name: f"\t {value} \t" for name, value in request["headers"].items()}
    answer = await caller.post("/mcp", **request)
    assert (answer.status_code, "result" in answer.json()) == (200, True)


# --- The tools ------------------------------------------------------------------------------------


async def test_structured_content_fits_the_output_schema_of_its_tool(caller: httpx2.AsyncClient) -> None:
    """Also that of an error: some clients check it."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("find_agents", {"query": "weather"}),
        ("find_agents", {"query": "weather", "include_evidence": True}),
        ("find_agents", {"query": "weather", "min_match": "perfect"}),
        ("get_agent", {"id": "rain"}),
        ("get_agent", {"id": "rain", "as": "a2a"}),
        ("get_agent", {"id": "nobody"}),
        ("register_agent", {"document": profile("another")}),
        ("register_agent", {"document": {}}),
        ("ard_search", {"query": {"text": "weather"}}),
        ("ard_search", {"query": {}}),
    ]
    tools = {tool["name"]: tool["outputSchema"] for tool in (await ask(caller, "tools/list"))["tools"]}
    for schema in tools.values():
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    for name, arguments in calls:
        result = await ask(caller, "tools/call", name=name, arguments=arguments)
        Draft202012Validator(tools[name]).validate(result["structuredContent"])


async def test_finding_over_mcp_is_the_discovery_response(caller: httpx2.AsyncClient) -> None:
    failed, found = await call(caller, "find_agents", query="weather forecast", include_evidence=True)
    plain = (
        await caller.post("/profile/v1/discover", json={"query": "weather forecast", "include_evidence": True})
    ).json()
    assert not failed
    assert found["candidates"] == plain["candidates"]
    modern = await ask_modern(caller, "tools/call", name="find_agents", arguments={"query": "weather forecast"})
    (brief,) = modern["structuredContent"]["candidates"]
    named = ("id", "name", "description", "match", "reason", "score", "tags")
    assert {name: brief[name] for name in named} == {name: plain["candidates"][0][name] for name in named}
    assert not {"bindings", "freshness", "score_components"} & set(brief)
    assert (brief["protocols"], brief["endpoint"]) == (
        [each["protocol"] for each in plain["candidates"][0]["bindings"]],
        plain["candidates"][0]["bindings"][0]["endpoint"],
    )
    failed, error = await call(caller, "find_agents", query="weather", min_match="good")
    assert failed
    assert "strong, possible, weak" in str(error)
    assert modern["structuredContent"]["candidates"][0]["id"] == "rain"


async def test_an_agent_is_read_in_any_dialect(caller: httpx2.AsyncClient) -> None:
    assert (await call(caller, "get_agent", id="rain"))[1]["id"] == "rain"
    failed, card = await call(caller, "get_agent", id="rain", **{"as": "a2a"})
    assert not failed
    assert card == (await caller.get("/api/v1/agents/rain?as=a2a")).json()


async def test_an_agent_is_registered_from_a_document_or_its_text(caller: httpx2.AsyncClient) -> None:
    failed, receipt = await call(caller, "register_agent", document=profile("by-mcp"))
    assert (failed, receipt["outcome"], receipt["dialect"]) == (False, "created", "profile")
    text = '{"name": "com.example/x", "description": "d", "version": "1.0.0", "remotes": [{"type": "sse", "url": "https://x.example.com"}]}'
    failed, receipt = await call(caller, "register_agent", document=text)
    assert (failed, receipt["dialect"]) == (False, "mcp")
    assert (await caller.get("/api/v1/agents/by-mcp")).status_code == 200


@pytest.mark.parametrize(
    ("tool", "arguments", "path"),
    [
        ("find_agents", {}, "query"),
        ("find_agents", {"query": 3}, "$.query"),
        ("find_agents", {"query": "a", "limit": 0}, "$.limit"),
        ("find_agents", {"query": "a", "qeury": "b"}, "qeury"),
        ("get_agent", {"id": "nobody"}, "id"),
        ("get_agent", {"id": "rain", "as": "nothing"}, "as"),
        ("get_agent", {"id": 7}, "id"),
        ("register_agent", {"document": {"id": "x"}}, None),
        ("register_agent", {"document": 7}, "document"),
        ("register_agent", {"document": "no document"}, None),
    ],
)
async def test_a_tool_error_is_a_result_with_a_hint(
    caller: httpx2.AsyncClient, tool: str, arguments: dict[str, Any], path: str | None
) -> None:
    failed, told = await call(caller, tool, **arguments)
    assert failed
    assert told["error"]["message"]
    if path is not None:
        assert told["error"]["path"] == path


async def test_mcp_tools_need_the_scopes_of_their_operations(bench: Bench) -> None:
    reader, writer = bench.as_("reader", "discover:read"), bench.as_("writer", "discover:write")
    failed, told = await call(reader, "register_agent", document=profile("not-mine"))
    assert (failed, told["error"]["code"]) == (True, "forbidden")
    assert (await call(writer, "find_agents", query="weather"))[0]
    owner = bench.as_("owner", "discover:read", "discover:write")
    await owner.post("/api/v1/agents", json=profile("secret"), headers={"Waypost-Visibility": "private"})
    hidden, absent = [await call(reader, "get_agent", id=name) for name in ("secret", "secres")]
    assert hidden[1]["error"]["code"] == absent[1]["error"]["code"] == "not_found"


# --- What is refused ------------------------------------------------------------------------------


async def test_without_a_token_nothing_is_answered(bench: Bench) -> None:
    answer = await bench.anonymous().post("/mcp", json=message("ping"))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json()["error"]["data"]["code"] == "unauthorized"


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_is_no_stream_and_no_session_to_end(caller: httpx2.AsyncClient, method: str) -> None:
    answer = await caller.request(method, "/mcp")
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"id":1,"method":"ping"}', -32600),
    ],
)
async def test_an_invalid_message_is_reported(caller: httpx2.AsyncClient, body: bytes, number: int) -> None:
    answer = await caller.post("/mcp", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, number)


async def test_other_media_types_are_not_read(caller: httpx2.AsyncClient) -> None:
    answer = await caller.post("/mcp", content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


async def test_an_unknown_method_or_tool_is_reported_with_the_known_ones(caller: httpx2.AsyncClient) -> None:
    answer = await caller.post("/mcp", json=message("resources/list"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32601)
    said = message("resources/list", _meta=META)
    answer = await caller.post("/mcp", json=said, headers=routing_headers(said))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)
    answer = await caller.post("/mcp", json=message("tools/call", name="nothing"))
    assert answer.json()["error"]["code"] == -32602
    assert "find_agents" in answer.json()["error"]["data"]["hint"]


@pytest.mark.parametrize(
    ("changed", "meta", "number"),
    [
        ({"mcp-method": "ping"}, META, -32020),
        ({"mcp-name": "get_agent"}, META, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, META, -32020),
        ({"mcp-name": "=?base64?!?="}, META, -32020),
        ({}, {name: value for name, value in META.items() if "Version" in name}, -32602),
        (
            {"mcp-protocol-version": "2099-01-01"},
            {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"},
            -32022,
        ),
    ],
)
async def test_a_message_of_today_agrees_with_its_headers(
    caller: httpx2.AsyncClient, changed: dict[str, str], meta: dict[str, Any], number: int
) -> None:
    said = message("tools/call", _meta=meta, name="find_agents", arguments={"query": "weather"})
    answer = await caller.post("/mcp", json=said, headers={**routing_headers(said), **changed})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, number)
    if number == -32022:
        assert answer.json()["error"]["data"]["supported"] == [*MODERN, *HANDSHAKE]


async def test_a_header_of_an_unspoken_revision_is_refused(caller: httpx2.AsyncClient) -> None:
    answer = await caller.post("/mcp", json=message("ping"), headers={"MCP-Protocol-Version": "2030-01-01"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
