"""rtfs.md §4: JSON-RPC over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.rtfs import Rpc, card
from support.service import Bench, service


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as started:
        yield started


@pytest.fixture
def rpc(bench: Bench) -> Rpc:
    return Rpc(bench.as_("alice"))


def call(method: str, params: Any = None, **members: Any) -> dict[str, Any]:
    made = {"jsonrpc": "2.0", "method": f"rtfs.registry.{method}", **members}
    return made if params is None else made | {"params": params}


@pytest.mark.req("RTFS-30")
@pytest.mark.parametrize("path", ["/rtfs", "/rtfs/", "/rtfs/register", "/rtfs/discover"])
async def test_calls_are_posted_to_rtfs_and_its_aliases(bench: Bench, path: str) -> None:
    rpc = Rpc(bench.as_("alice"), path)
    assert (await rpc.register(card()))["status"] == "registered"
    assert await rpc.found(agent_id="weather") == ["weather"]


@pytest.mark.req("RTFS-30")
async def test_calls_are_answered_where_announcements_are_posted_too(bench: Bench) -> None:
    rpc = Rpc(bench.as_("alice"), "/agents")
    assert (await rpc.register(card()))["status"] == "registered"
    assert await rpc.found(agent_id="weather") == ["weather"]
    announced = await rpc.post({"protocol_version": "v1.0", "jsonrpc": "2.0", "query": {"capability": "*"}})
    assert "agents" in announced.json()


@pytest.mark.req("RTFS-30")
async def test_a_request_that_is_not_version_2_is_refused(rpc: Rpc) -> None:
    for body in ({"method": "m", "id": 1}, {"jsonrpc": "1.0", "method": "m", "id": 1}):
        response = await rpc.post(body)
        assert response.json()["error"]["code"] == -32600
        assert response.json()["id"] == 1


@pytest.mark.req("RTFS-31")
@pytest.mark.parametrize("written", ["1", '"1"', "null", "1.50", "12345678901234567890123"])
async def test_an_id_is_echoed_exactly(rpc: Rpc, written: str) -> None:
    body = f'{{"jsonrpc":"2.0","method":"rtfs.registry.discover","params":{{"agent_id":"x"}},"id":{written}}}'
    response = await rpc.post(body)
    assert response.text.endswith(f'"id":{written}}}')
    assert response.json()["result"]["agents"] == []


@pytest.mark.req("RTFS-31")
async def test_an_id_of_another_type_is_refused_with_null(rpc: Rpc) -> None:
    answer = (await rpc.post(call("discover", {"agent_id": "x"}, id=[1]))).json()
    assert (answer["error"]["code"], answer["id"]) == (-32600, None)


@pytest.mark.req("RTFS-31")
async def test_a_notification_is_executed_and_never_answered(rpc: Rpc) -> None:
    response = await rpc.post(call("register", {"agent_card": card()}))
    assert (response.status_code, response.content) == (204, b"")
    assert await rpc.found(agent_id="weather") == ["weather"]
    for bad in (call("register", {"agent_card": {}}), call("nonsense", {}), call("discover", [1])):
        assert (await rpc.post(bad)).status_code == 204


@pytest.mark.req("RTFS-32")
async def test_calls_of_a_batch_are_independent_and_answered_in_order(rpc: Rpc) -> None:
    response = await rpc.post(
        [
            call("register", {"agent_card": card("a")}, id="first"),
            1,
            call("register", {"agent_card": card("b")}),
            {"foo": "boo"},
            call("nonsense", {}, id=5),
            call("discover", {"discovery_tags": ["weather"]}, id="last"),
        ]
    )
    answers = response.json()
    assert [answer["id"] for answer in answers] == ["first", None, None, 5, "last"]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, -32600, -32600, -32601, None]
    assert [agent["agent_id"] for agent in answers[-1]["result"]["agents"]] == ["a", "b"]


@pytest.mark.req("RTFS-32")
async def test_a_batch_is_not_empty_and_has_at_most_100_calls(rpc: Rpc) -> None:
    empty = (await rpc.post("[]")).json()
    assert (empty["error"]["code"], empty["id"]) == (-32600, None)
    taken = (await rpc.post([call("discover", {"agent_id": "x"}, id=at) for at in range(100)])).json()
    assert [answer["id"] for answer in taken] == list(range(100))
    refused = (await rpc.post([call("discover", {"agent_id": "x"}, id=at) for at in range(101)])).json()
    assert refused["error"]["code"] == -32600
    assert refused["error"]["data"]["reason"] == "batch_too_large"


@pytest.mark.req("RTFS-32")
async def test_a_batch_of_notifications_has_no_answer(rpc: Rpc) -> None:
    response = await rpc.post([call("register", {"agent_card": card("a")}), call("nonsense", {})])
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.req("RTFS-33")
async def test_parameters_are_given_by_name(rpc: Rpc) -> None:
    assert (await rpc.answer("rtfs.registry.discover", ["weather"]))["error"]["code"] == -32602


@pytest.mark.req("RTFS-33")
async def test_unknown_parameters_are_ignored_with_a_warning(rpc: Rpc) -> None:
    result = await rpc.register(card(), colour="red")
    assert any("colour" in warning for warning in result["warnings"])
    assert "colour" in (await rpc.call("discover", agent_id="weather", colour=1))["warnings"][0]
    assert "colour" in (await rpc.call("heartbeat", agent_id="weather", colour=1))["warnings"][0]
    assert "colour" in (await rpc.call("deregister", agent_id="weather", colour=1))["warnings"][0]


@pytest.mark.req("RTFS-33")
@pytest.mark.parametrize("method", ["rpc.discover", "rtfs.registry.unknown", "", "discover"])
async def test_an_unknown_method_is_reported(rpc: Rpc, method: str) -> None:
    assert (await rpc.answer(method))["error"]["code"] == -32601
    assert (await rpc.answer(method, [1, 2]))["error"]["code"] == -32601


@pytest.mark.req("RTFS-34")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_other_http_methods_are_refused_with_allow(rpc: Rpc, method: str) -> None:
    response = await rpc.client.request(method, "/rtfs")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["code"] == -32601


@pytest.mark.req("RTFS-34")
async def test_a_browser_gets_a_short_description(bench: Bench) -> None:
    response = await bench.anonymous().get("/rtfs", headers={"accept": "text/html"})
    assert response.status_code == 200
    assert "rtfs.registry.register" in response.text
    assert (await bench.anonymous().get("/rtfs/health")).json() == {"status": "ok"}


@pytest.mark.req("RTFS-34")
async def test_a_body_of_more_than_a_mebibyte_or_another_type_is_refused(rpc: Rpc) -> None:
    assert (await rpc.post(b" " * (2**20 + 1))).status_code == 413
    for media_type in ("text/plain", "application/xml", ""):
        response = await rpc.client.post("/rtfs", content=b"{}", headers={"content-type": media_type})
        assert response.status_code == 415
    body = json.dumps(call("discover", {"agent_id": "x"}, id=1))
    for media_type in ("application/json; charset=utf-8", "application/json-rpc", "Application/JSON"):
        response = await rpc.client.post("/rtfs", content=body, headers={"content-type": media_type})
        assert response.status_code == 200


@pytest.mark.req("RTFS-34")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":NaN},"id":1}', -32700),
        (b"[" * 65 + b"]" * 65, -32700),
        (b'{"jsonrpc":"2.0","method":"m","id":1,"id":1}', -32600),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":{"x":1,"x":2}},"id":1}', -32600),
    ],
)
async def test_an_invalid_call_is_answered_with_200_and_a_null_id(rpc: Rpc, body: bytes, code: int) -> None:
    response = await rpc.post(body)
    assert response.status_code == 200
    assert response.json()["error"]["code"] == code
    assert response.json()["id"] is None


@pytest.mark.req("RTFS-34")
async def test_a_caller_without_a_credential_is_refused_before_the_call_is_read(bench: Bench) -> None:
    response = await Rpc(bench.anonymous()).post("not even JSON")
    assert response.status_code == 401
    assert response.json()["error"]["code"] == -32008
    assert response.json()["error"]["data"]["code"] == "unauthorized"
    broken = await Rpc(bench.client("no-token")).post(call("discover", {"agent_id": "x"}, id=1))
    assert (broken.status_code, broken.json()["error"]["code"]) == (401, -32008)


@pytest.mark.req("RTFS-34")
async def test_each_call_needs_its_own_scope(bench: Bench) -> None:
    reader = Rpc(bench.as_("rita", "discover:read"))
    assert await reader.code("register", agent_card=card()) == -32003
    assert await reader.code("deregister", agent_id="weather") == -32003
    assert await reader.found(agent_id="weather") == []
    writer = Rpc(bench.as_("walt", "discover:write"))
    assert (await writer.register(card()))["outcome"] == "created"
    assert await writer.code("discover", agent_id="weather") == -32003


@pytest.mark.req("RTFS-34")
async def test_anonymous_read_allows_search_and_no_write(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        await Rpc(bench.as_("alice")).register(card())
        anybody = Rpc(bench.anonymous())
        assert await anybody.found(agent_id="weather") == ["weather"]
        assert await anybody.code("register", agent_card=card("other")) == -32008
        assert await anybody.code("deregister", agent_id="weather") == -32008
