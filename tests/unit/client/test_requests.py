"""The requests of the client, retries, and results. The server is a scripted transport."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from waypost import Agent, Client, Failure, Receipt, Retry, SyncClient, errors, limits
from waypost.server.http.problems import problem_json

RECEIPT = {
    "id": "a",
    "aliases": [],
    "dialect": "profile",
    "outcome": "created",
    "etag": "e1",
    "losses": [],
    "warnings": [],
    "trust": {"level": "self_asserted", "checks": []},
}
STATS = {"agents": 3, "by_status": {}, "by_visibility": {}}
QUICK = Retry(base_seconds=0.0)


class Script:
    """Answers requests from a list and records them. The last answer is repeated."""

    def __init__(self, *answers: httpx2.Response | errors.WaypostError | httpx2.TransportError) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, httpx2.TransportError):
            raise answer
        if isinstance(answer, errors.WaypostError):
            problem = problem_json(answer, instance="/x", correlation_id="c")
            return httpx2.Response(problem["status"], json=problem | {"retry_after": 0})  # no test waits
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def client(self, **given: Any) -> Client:
        return Client("http://127.0.0.1:1", retry=QUICK, transport=httpx2.MockTransport(self), **given)

    @property
    def last(self) -> httpx2.Request:
        return self.requests[-1]


def ok(value: Any, **headers: str) -> httpx2.Response:
    return httpx2.Response(200, json=value, headers={name.replace("_", "-"): text for name, text in headers.items()})


def lines(*values: Any) -> httpx2.Response:
    return httpx2.Response(200, content=b"".join(json.dumps(value).encode() + b"\n" for value in values))


def stream(*frames: str) -> httpx2.Response:
    return httpx2.Response(200, content="".join(frames).encode())


def frame(kind: str, cursor: str, agent: str = "a") -> str:
    data = json.dumps({"type": kind, "id": agent, "at": "2026-01-01T00:00:00Z", "etag": "e"})
    return f"id: {cursor}\nevent: {kind}\ndata: {data}\n\n"


# --- Addresses and credentials -----------------------------------------------------------------------------------------


async def test_the_token_is_sent_with_each_request() -> None:
    script = Script(ok(STATS))
    async with script.client(token="secret") as client:
        await client.stats()
    assert script.last.headers["authorization"] == "Bearer secret"


async def test_the_admin_token_of_this_machine_is_found(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("found\n")
    script = Script(ok(STATS))
    async with script.client(data=tmp_path) as client:
        await client.stats()
    assert script.last.headers["authorization"] == "Bearer found"


@pytest.mark.parametrize(
    ("agent_id", "path"),
    [
        ("plain", "/api/v1/agents/plain"),
        ("https://a.example/x?y#z", "/api/v1/agents/https%3A%2F%2Fa.example%2Fx%3Fy%23z"),
        ("50%", "/api/v1/agents/50%25"),
        ("a%2Fb", "/api/v1/agents/a%252Fb"),
        ("..", "/api/v1/agents/%2E%2E"),
        ("übersetzer", "/api/v1/agents/%C3%BCbersetzer"),
    ],
)
async def test_any_id_fits_one_segment_of_the_path(agent_id: str, path: str) -> None:
    script = Script(ok({"id": agent_id, "name": "A"}))
    async with script.client() as client:
        await client.get(agent_id)
    assert script.last.url.raw_path.decode().split("?")[0] == path


# --- Registering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [dict, lambda it: json.dumps(it, indent=1).encode(), json.dumps, Agent.from_document])
async def test_a_document_may_be_a_mapping_bytes_a_text_or_an_agent(make: Callable[[Any], Any]) -> None:
    document = {"id": "a", "name": "A", "description": "d", "bindings": []}
    script = Script(ok(RECEIPT))
    async with script.client() as client:
        receipt = await client.register(make(document))
    assert json.loads(script.last.content) == document
    assert (receipt.id, receipt.outcome, receipt.etag) == ("a", "created", "e1")


async def test_a_file_is_sent_byte_for_byte(tmp_path: Path) -> None:
    content = b'{ "id" : "a",\n\t"name": "A" }\n'
    (tmp_path / "a.json").write_bytes(content)
    script = Script(ok(RECEIPT))
    async with script.client() as client:
        await client.register(tmp_path / "a.json")
        await client.register(str(tmp_path / "a.json"))
    assert [request.content for request in script.requests] == [content, content]


async def test_how_to_register_goes_into_headers_and_parameters() -> None:
    script = Script(ok(RECEIPT))
    async with script.client() as client:
        await client.register(
            b"{}",
            dialect="a2a",
            visibility="private",
            ttl_seconds=60,
            if_match="e0",
            idempotency_key="k",
            base="https://a.example",
        )
    assert dict(script.last.url.params) == {"dialect": "a2a", "ttl_seconds": "60", "base": "https://a.example"}
    headers = script.last.headers
    assert (headers["waypost-visibility"], headers["if-match"], headers["idempotency-key"]) == ("private", '"e0"', "k")


async def test_a_document_that_is_too_large_is_not_sent() -> None:
    script = Script(ok(RECEIPT))
    async with script.client() as client:
        with pytest.raises(errors.TooLarge):
            await client.register(b" " * (limits.DOCUMENT_BYTES + 1))
    assert script.requests == []


async def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    async with Script(ok(RECEIPT)).client() as client:
        with pytest.raises(errors.InvalidRequest, match=r"none\.json"):
            await client.register(tmp_path / "none.json")


async def test_a_request_whose_answer_was_lost_is_repeated_with_the_same_idempotency_key() -> None:
    script = Script(httpx2.ReadError("reset"), errors.Unavailable("busy"), ok(RECEIPT))
    async with script.client() as client:
        assert (await client.register(b"{}")).outcome == "created"
    keys = {request.headers["idempotency-key"] for request in script.requests}
    assert len(script.requests) == 3
    assert len(keys) == 1


async def test_many_documents_go_in_batches_and_come_back_in_order() -> None:
    count = limits.CLIENT_BATCH_LINES + 2

    def answer(request: httpx2.Request) -> httpx2.Response:
        documents = [json.loads(line) for line in request.content.splitlines()]
        return lines(*({"id": item["id"], "outcome": "created", "etag": "e"} for item in documents))

    async with Client("http://127.0.0.1:1", transport=httpx2.MockTransport(answer)) as client:
        results = [result async for result in client.register_many({"id": str(n)} for n in range(count))]
    assert [result.id for result in results if isinstance(result, Receipt)] == [str(n) for n in range(count)]


async def test_a_line_that_was_refused_does_not_stop_the_others() -> None:
    refused = {"error": {"code": "invalid_request", "message": "No name.", "path": "$.name"}}
    script = Script(lines({"id": "a", "outcome": "created", "etag": "e"}, refused, {"id": "c", "outcome": "unchanged"}))
    async with script.client() as client:
        results = [item async for item in client.register_many([b'{\n"id":\r\n"a"}', {"id": "b"}, {"id": "c"}])]
    assert [result.outcome for result in results] == ["created", "failed", "unchanged"]
    assert isinstance(results[1], Failure)
    assert results[1].error.path == "$.name"
    assert len(script.last.content.splitlines()) == 3


# --- Trying again ------------------------------------------------------------------------------------------------------


async def test_a_dead_service_is_unavailable_after_a_bounded_number_of_attempts() -> None:
    script = Script(httpx2.ConnectError("refused"))
    async with script.client() as client:
        with pytest.raises(errors.Unavailable, match="Cannot connect"):
            await client.stats()
    assert len(script.requests) == limits.CLIENT_ATTEMPTS


async def test_a_refusal_is_final() -> None:
    script = Script(errors.NotFound("Not here.", path="id"))
    async with script.client() as client:
        with pytest.raises(errors.NotFound, match="Not here"):
            await client.get("a")
    assert len(script.requests) == 1


async def test_a_withdrawal_whose_answer_got_lost_is_not_repeated() -> None:
    script = Script(httpx2.ReadError("reset"), httpx2.Response(204))
    async with script.client() as client:
        with pytest.raises(errors.Unavailable):
            await client.withdraw("a")
    assert len(script.requests) == 1


async def test_a_withdrawal_may_be_guarded() -> None:
    script = Script(httpx2.Response(204))
    async with script.client() as client:
        await client.withdraw("a", if_match="e1")
    assert (script.last.method, script.last.headers["if-match"]) == ("DELETE", '"e1"')


# --- Reading -----------------------------------------------------------------------------------------------------------


async def test_a_document_keeps_its_bytes_and_tells_its_losses() -> None:
    content = b'{ "name": "A" }'
    losses = '[{"path":"$.tags","reason":"no place"}]'
    answer = httpx2.Response(200, content=content, headers={"etag": '"e1"', "waypost-losses": losses})
    async with Script(answer).client() as client:
        document = await client.document("a", "a2a")
    assert (document.content, document.body, document.etag) == (content, {"name": "A"}, "e1")
    assert [(loss.path, loss.reason) for loss in document.losses] == [("$.tags", "no place")]


async def test_a_list_goes_on_to_the_last_page() -> None:
    one, two = {"id": "1", "name": "A"}, {"id": "2", "name": "B"}
    script = Script(ok({"agents": [one], "next_cursor": "n"}), ok({"agents": [two]}))
    async with script.client() as client:
        assert [agent.id async for agent in client.list(tags=["x", "y"])] == ["1", "2"]
    assert script.requests[0].url.params.get_list("tag") == ["x", "y"]
    assert script.last.url.params["cursor"] == "n"


async def test_search_results_are_typed_and_carry_reasons() -> None:
    candidate = {
        "id": "a",
        "name": "A",
        "bindings": [{"protocol": "https", "endpoint": "https://a"}],
        "score": 0.9,
        "score_components": {"tag": 1.0},
        "matched_tags": ["hr"],
        "matched_examples": [{"text": "t", "score": 0.5, "new": 1}],
        "new_member": True,
    }
    script = Script(ok({"request_id": "r", "candidates": [candidate], "unsupported_filters": ["x"], "new": 1}))
    async with script.client() as client:
        found = await client.find("onboard", tags=["hr"], limit=5, explain=True, constraints={"region": "apac"})
    asked = json.loads(script.last.content)
    assert asked == {
        "query": "onboard",
        "required_tags": ["hr"],
        "constraints": {"region": "apac"},
        "limit": 5,
        "detail": "summary",
        "include_evidence": True,
    }
    (hit,) = found.candidates
    assert (hit.id, hit.score, hit.score_components, hit.matched_tags) == ("a", 0.9, {"tag": 1.0}, ("hr",))
    assert hit.matched_examples[0].score == 0.5
    assert hit.document["new_member"] is True
    assert found.unsupported_filters == ("x",)


async def test_an_export_is_read_line_by_line() -> None:
    script = Script(lines({"id": "1", "t": "\u2028"}, {"id": "2"}))
    async with script.client() as client:
        assert [item["id"] async for item in client.export("source")] == ["1", "2"]
    assert script.last.url.params["as"] == "source"


async def test_a_server_that_is_not_waypost_is_recognised() -> None:
    async with Script(httpx2.Response(200, content=b"<html>")).client() as client:
        with pytest.raises(errors.WaypostError, match="not JSON"):
            await client.stats()


async def test_a_token_is_minted() -> None:
    script = Script(ok({"token": "t", "expires_at": "2026-01-01T00:00:00Z"}))
    async with script.client() as client:
        assert (await client.mint_token("alice", ["admin"], 60)).token == "t"
    assert json.loads(script.last.content) == {"sub": "alice", "scopes": ["admin"], "ttl_seconds": 60}


# --- Watching ----------------------------------------------------------------------------------------------------------


async def test_a_watch_takes_up_where_it_broke() -> None:
    script = Script(
        stream(": watching\n\n", frame("registered", "c1", "a"), "id: c2\nevent: bookmark\ndata: {}\n\n"),
        errors.Unavailable("restarting"),
        stream(frame("updated", "c3", "a"), frame("withdrawn", "c4", "a")),
    )
    seen = []
    async with script.client() as client:
        async for change in client.watch("0", renewals=True, include_agent=True):
            seen.append((change.type, change.cursor))
            if change.type == "withdrawn":
                break
    assert seen == [("registered", "c1"), ("updated", "c3"), ("withdrawn", "c4")]
    first, last = script.requests[0], script.requests[-1]
    assert dict(first.url.params) == {"renewals": "true", "include": "agent", "from": "0"}
    assert (last.headers["last-event-id"], last.url.params["from"]) == ("c2", "c2")


async def test_a_cursor_that_is_too_old_ends_the_watch() -> None:
    script = Script(stream(frame("registered", "c1")), errors.CursorTooOld("Too old."))
    async with script.client() as client:
        with pytest.raises(errors.CursorTooOld):
            _ = [change async for change in client.watch("0")]


async def test_a_watch_that_never_stood_fails_at_once() -> None:
    script = Script(httpx2.ConnectError("refused"))
    async with script.client() as client:
        with pytest.raises(errors.Unavailable):
            _ = [change async for change in client.watch("0")]
    assert len(script.requests) == limits.CLIENT_ATTEMPTS


async def test_a_watch_without_a_cursor_does_not_skip_silently() -> None:
    script = Script(stream(": watching\n\n"))
    async with script.client() as client:
        with pytest.raises(errors.Unavailable):
            _ = [change async for change in client.watch()]
    assert len(script.requests) == 1


# --- The sync client ---------------------------------------------------------------------------------------------------


def test_the_sync_client_does_the_same_without_await() -> None:
    script = Script(httpx2.ReadError("reset"), ok(RECEIPT))
    with SyncClient("http://127.0.0.1:1", retry=QUICK, transport=httpx2.MockTransport(script)) as client:
        assert client.register(b"{}").outcome == "created"
    assert len(script.requests) == 2


def test_the_sync_client_lists_and_watches_with_plain_loops() -> None:
    script = Script(ok({"agents": [{"id": "1", "name": "A"}]}))
    with SyncClient("http://127.0.0.1:1", retry=QUICK, transport=httpx2.MockTransport(script)) as client:
        assert [agent.id for agent in client.list()] == ["1"]
    script = Script(stream(frame("registered", "c1")), stream(frame("expired", "c2")))
    with SyncClient("http://127.0.0.1:1", retry=QUICK, transport=httpx2.MockTransport(script)) as client:
        changes = client.watch("0")
        assert [next(changes).type, next(changes).type] == ["registered", "expired"]
