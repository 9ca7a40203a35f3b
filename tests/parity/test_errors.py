"""Every API reports an error as the error table says, with message, path and hint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.apis import AF_AGENTS, Caller, ServedApis, problem_of, serve_apis
from support.rtfs import card
from support.service import profile
from waypost import errors
from waypost.errors import ERROR_CODES, WaypostError
from waypost.registry.operations import OPERATIONS

HELD = profile("held", version="2.0.0", updated_at="2026-05-20T00:00:00Z")
HELD_CARD = card("held-card", version="2.0.0")
OLDER = {**HELD, "name": "Older", "updated_at": "2026-05-01T00:00:00Z"}
OLDER_CARD = {**HELD_CARD, "name": "Older", "version": "1.0.0"}
FOREIGN = {**HELD, "name": "Foreign", "updated_at": "2026-05-27T00:00:00Z"}
FOREIGN_CARD = {**HELD_CARD, "name": "Foreign", "version": "3.0.0"}


@pytest.fixture
async def apis(tmp_path: Path) -> AsyncIterator[ServedApis]:
    """A service that holds two agents of alice."""
    async with serve_apis(tmp_path) as made:
        alice = made.subject("alice")
        assert (await alice.http.post("/api/v1/agents", json=HELD)).status_code == 201
        await alice.rpc.register(HELD_CARD)
        yield made


# --- What each API must say ----------------------------------------------------------------------


def told_by_http(response: httpx2.Response, kind: type[WaypostError]) -> None:
    row = ERROR_CODES[kind]
    problem = problem_of(response)
    assert (problem["status"], problem["code"], problem["title"]) == (row.http, kind.code, row.title)
    assert problem["message"]
    assert problem["correlation_id"] == response.headers["x-request-id"]
    assert problem.get("hint") or problem.get("path"), problem


def told_by_rpc(error: dict[str, Any], kind: type[WaypostError]) -> None:
    assert (error["code"], error["data"]["code"]) == (ERROR_CODES[kind].jsonrpc, kind.code)
    assert error["message"]
    assert error["data"].get("hint") or error["data"].get("errors"), error


async def tool_error(caller: Caller, tool: str, **arguments: Any) -> dict[str, Any]:
    """The error that a tool of MCP reports."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    answer = await caller.http.post("/mcp", json=call, headers={"Accept": "application/json, text/event-stream"})
    error: dict[str, Any] = answer.json()["result"]["structuredContent"]["error"]
    return error


async def told_by_clients(caller: Caller, kind: type[WaypostError], ask: Callable[[Any], Any]) -> None:
    """The same error class from the async and the sync client."""
    async with caller.client() as client:
        with pytest.raises(WaypostError) as raised:
            await ask(client)
        assert type(raised.value) is kind
    with caller.sync_client() as sync, pytest.raises(WaypostError) as raised_too:
        await asyncio.to_thread(ask, sync)
    assert type(raised_too.value) is kind
    assert (raised_too.value.message, raised_too.value.hint) == (raised.value.message, raised.value.hint)


async def told_by_command(caller: Caller, kind: type[WaypostError], *arguments: str, stdin: bytes = b"") -> None:
    ran = await caller.run(*arguments, stdin=stdin)
    assert ran.code == ERROR_CODES[kind].exit, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "where: " in ran.err or "hint: " in ran.err
    assert "Traceback" not in ran.err


def belongs_to(kind: type[WaypostError], *operations: str) -> None:
    """The table of operations names the error."""
    for name in operations:
        assert kind in OPERATIONS[name].errors, f"{name} does not name {kind.__name__}"


async def batch_error(caller: Caller, document: Any) -> dict[str, Any]:
    content = document if isinstance(document, bytes) else httpx2.Request("POST", "http://x", json=document).content
    answer = await caller.http.post("/api/v1/agents:batch", content=content)
    assert answer.status_code == 200
    error: dict[str, Any] = answer.json()["error"]
    assert error["message"]
    return error


async def rpc_error(caller: Caller, method: str, **params: Any) -> dict[str, Any]:
    return await caller.rpc.error(method, **params)


# --- What goes wrong --------------------------------------------------------------------------------


async def test_malformed_json(apis: ServedApis) -> None:
    kind, caller = errors.MalformedJson, apis.subject("bob")
    broken = b'{"id": "x",, }'
    told_by_http(await caller.http.post("/api/v1/agents", content=broken), kind)
    told_by_http(await caller.http.put("/profile/v1/agents/x", content=broken), kind)
    told_by_http(await caller.http.post("/profile/v1/discover", content=broken), kind)
    told_by_http(await caller.http.post("/api/v1/agents/held:renew", content=broken), kind)
    told_by_http(await apis.admin.http.post("/api/v1/tokens", content=broken), kind)
    assert (await batch_error(caller, broken))["code"] == kind.code
    answer = await caller.rpc.post(broken)
    assert answer.json()["id"] is None
    told_by_rpc(answer.json()["error"], kind)
    await told_by_clients(caller, kind, lambda client: client.register(broken))
    await told_by_command(caller, kind, "register", "-", stdin=broken)
    belongs_to(kind, "register", "register_many", "find", "renew", "mint_token")


async def test_a_document_that_breaks_a_rule_of_its_dialect(apis: ServedApis) -> None:
    kind, caller = errors.InvalidDocument, apis.subject("bob")
    wrong = profile("wrong", name=3)
    told_by_http(await caller.http.post("/api/v1/agents", json=wrong), kind)
    told_by_http(await caller.http.put("/profile/v1/agents/wrong", json=wrong), kind)
    assert (await batch_error(caller, wrong))["path"] == "$.name"
    told_by_rpc(await rpc_error(caller, "register", agent_card=card("wrong", name=3)), kind)
    await told_by_clients(caller, kind, lambda client: client.register(wrong))
    await told_by_command(caller, kind, "register", apis.shell.write("wrong.json", wrong))
    belongs_to(kind, "register", "register_many")


async def test_an_unknown_id(apis: ServedApis) -> None:
    kind, caller = errors.NotFound, apis.subject("bob")
    for path in ("/api/v1/agents/nobody", "/profile/v1/agents/nobody", f"{AF_AGENTS}/nobody"):
        told_by_http(await caller.http.get(path), kind)
    told_by_http(await caller.http.get("/.well-known/agent-card.json", params={"agent": "nobody"}), kind)
    told_by_http(await caller.http.get("/.well-known/agent-card", params={"agent": "nobody"}), kind)
    told_by_http(await caller.http.delete("/api/v1/agents/nobody"), kind)
    told_by_http(await caller.http.delete("/profile/v1/agents/nobody"), kind)
    told_by_http(await caller.http.post("/api/v1/agents/nobody:renew"), kind)
    told_by_rpc(await rpc_error(caller, "heartbeat", agent_id="nobody"), kind)
    told_by_rpc(await rpc_error(caller, "deregister", agent_id="nobody"), kind)
    for ask in (
        lambda client: client.get("nobody"),
        lambda client: client.document("nobody", "a2a"),
        lambda client: client.renew("nobody"),
        lambda client: client.withdraw("nobody"),
    ):
        await told_by_clients(caller, kind, ask)
    for command in ("get", "renew", "withdraw"):
        await told_by_command(caller, kind, command, "nobody")
    belongs_to(kind, "get", "renew", "withdraw", "document")


async def test_an_id_that_another_owner_holds(apis: ServedApis) -> None:
    kind, caller = errors.OwnerConflict, apis.subject("bob")
    told_by_http(await caller.http.post("/api/v1/agents", json=FOREIGN), kind)
    told_by_http(await caller.http.put("/profile/v1/agents/held", json=FOREIGN), kind)
    assert (await batch_error(caller, FOREIGN))["code"] == kind.code
    told_by_rpc(await rpc_error(caller, "register", agent_card=FOREIGN_CARD), kind)
    await told_by_clients(caller, kind, lambda client: client.register(FOREIGN))
    await told_by_command(caller, kind, "register", apis.shell.write("foreign.json", FOREIGN))
    belongs_to(kind, "register", "register_many")


async def test_a_foreign_agent_is_neither_renewed_nor_withdrawn(apis: ServedApis) -> None:
    kind, caller = errors.NotOwner, apis.subject("bob")
    told_by_http(await caller.http.delete("/api/v1/agents/held"), kind)
    told_by_http(await caller.http.delete("/profile/v1/agents/held"), kind)
    told_by_http(await caller.http.post("/api/v1/agents/held:renew"), kind)
    told_by_rpc(await rpc_error(caller, "heartbeat", agent_id="held-card"), kind)
    told_by_rpc(await rpc_error(caller, "deregister", agent_id="held-card"), kind)
    await told_by_clients(caller, kind, lambda client: client.renew("held"))
    await told_by_clients(caller, kind, lambda client: client.withdraw("held"))
    await told_by_command(caller, kind, "renew", "held")
    await told_by_command(caller, kind, "withdraw", "held")
    belongs_to(kind, "renew", "withdraw")


async def test_stale_metadata_is_refused(apis: ServedApis) -> None:
    kind, caller = errors.StaleMetadata, apis.subject("alice")
    told_by_http(await caller.http.post("/api/v1/agents", json=OLDER), kind)
    told_by_http(await caller.http.put("/profile/v1/agents/held", json=OLDER), kind)
    assert (await batch_error(caller, OLDER))["code"] == kind.code
    told_by_rpc(await rpc_error(caller, "register", agent_card=OLDER_CARD), kind)
    told_by_http(await caller.http.post("/api/v1/agents", json=OLDER_CARD), kind)
    assert (await tool_error(caller, "register_agent", document=OLDER))["code"] == kind.code
    await told_by_clients(caller, kind, lambda client: client.register(OLDER))
    await told_by_command(caller, kind, "register", apis.shell.write("older.json", OLDER))
    belongs_to(kind, "register", "register_many")
    assert (await caller.http.get("/api/v1/agents/held")).json() == HELD


async def test_a_token_without_the_scope_to_write(apis: ServedApis) -> None:
    kind, caller = errors.MissingScope, apis.subject("bob", "discover:read")
    new = profile("new")
    told_by_http(await caller.http.post("/api/v1/agents", json=new), kind)
    told_by_http(await caller.http.post("/api/v1/agents:batch", json=new), kind)
    told_by_http(await caller.http.put("/profile/v1/agents/new", json=new), kind)
    told_by_http(await caller.http.delete("/api/v1/agents/held"), kind)
    told_by_http(await caller.http.post("/api/v1/agents/held:renew"), kind)
    told_by_http(await caller.http.post("/api/v1/tokens", json={"sub": "bob", "scopes": ["admin"]}), kind)
    for method, params in (
        ("register", {"agent_card": card("new")}),
        ("heartbeat", {"agent_id": "held-card"}),
        ("deregister", {"agent_id": "held-card"}),
    ):
        told_by_rpc(await rpc_error(caller, method, **params), kind)
    await told_by_clients(caller, kind, lambda client: client.register(new))
    await told_by_clients(caller, kind, lambda client: client.mint_token("bob", ["admin"]))
    await told_by_command(caller, kind, "register", apis.shell.write("new.json", new))
    await told_by_command(caller, kind, "import", "new.json")
    await told_by_command(caller, kind, "withdraw", "held")
    await told_by_command(caller, kind, "token", "mint", "--sub", "bob", "--scope", "admin")
    belongs_to(kind, "register", "register_many", "renew", "withdraw", "mint_token")


READS: tuple[str, ...] = (
    "/api/v1/agents",
    "/api/v1/agents/held",
    "/api/v1/agents:export",
    "/api/v1/stats",
    "/api/v1/watch",
    "/api/v1/operations",
    "/profile/v1",
    "/profile/v1/agents",
    "/profile/v1/agents/held",
    AF_AGENTS,
    f"{AF_AGENTS}/held",
    "/metrics",
)


async def refused_to_read(caller: Caller, kind: type[WaypostError]) -> None:
    for path in READS:
        told_by_http(await caller.http.get(path), kind)
    told_by_http(await caller.http.post("/profile/v1/discover", json={"query": "facts"}), kind)
    for ask in (lambda client: client.get("held"), lambda client: client.find("facts"), lambda client: client.page()):
        await told_by_clients(caller, kind, ask)
    for command in (("get", "held"), ("list",), ("find", "facts"), ("export",), ("watch", "--count", "1")):
        await told_by_command(caller, kind, *command)
    belongs_to(kind, "get", "list", "find", "export", "watch", "stats", "metrics", "describe")


async def test_a_token_without_the_scope_to_read(apis: ServedApis) -> None:
    kind, caller = errors.MissingScope, apis.subject("bob", "discover:write")
    await refused_to_read(caller, kind)
    told_by_rpc(await rpc_error(caller, "discover", discovery_tags=["weather"]), kind)


async def test_a_token_that_does_not_hold(apis: ServedApis) -> None:
    kind, caller = errors.Unauthorized, apis.caller("not.a.token")
    await refused_to_read(caller, kind)
    answer = await caller.rpc.post({"jsonrpc": "2.0", "method": "rtfs.registry.discover", "params": {}, "id": 1})
    assert answer.status_code == ERROR_CODES[kind].http
    told_by_rpc(answer.json()["error"], kind)
    for response in (answer, await caller.http.get("/api/v1/agents"), await caller.http.get(AF_AGENTS)):
        assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_caller_without_a_token(apis: ServedApis) -> None:
    kind, caller = errors.Unauthorized, apis.caller(None)
    for path in READS:
        told_by_http(await caller.http.get(path), kind)
    told_by_http(await caller.http.post("/api/v1/agents", json=profile("new")), kind)
    answer = await caller.rpc.post({"jsonrpc": "2.0", "method": "rtfs.registry.discover", "params": {}, "id": 1})
    assert answer.status_code == 401
    told_by_rpc(answer.json()["error"], kind)
    await told_by_clients(caller, kind, lambda client: client.get("held"))
    await told_by_command(caller, kind, "list")


async def test_a_failed_precondition(apis: ServedApis) -> None:
    kind, caller = errors.PreconditionFailed, apis.subject("alice")
    newer = {**HELD, "version": "3.0.0", "updated_at": "2026-05-27T00:00:00Z"}
    guard = {"If-Match": '"another"'}
    told_by_http(await caller.http.post("/api/v1/agents", json=newer, headers=guard), kind)
    told_by_http(await caller.http.put("/profile/v1/agents/held", json=newer, headers=guard), kind)
    told_by_http(await caller.http.delete("/api/v1/agents/held", headers=guard), kind)
    told_by_http(await caller.http.delete("/profile/v1/agents/held", headers=guard), kind)
    told_by_http(await caller.http.post("/api/v1/agents", json=newer, headers={"If-None-Match": "*"}), kind)
    await told_by_clients(caller, kind, lambda client: client.register(newer, if_match="another"))
    await told_by_clients(caller, kind, lambda client: client.withdraw("held", if_match="another"))
    file = apis.shell.write("newer.json", newer)
    await told_by_command(caller, kind, "register", file, "--if-match", "another")
    await told_by_command(caller, kind, "withdraw", "held", "--if-match", "another")
    belongs_to(kind, "register", "withdraw")


async def test_a_key_that_was_used_for_another_request(apis: ServedApis) -> None:
    kind, caller = errors.IdempotencyConflict, apis.subject("alice")
    key = {"Idempotency-Key": "k"}
    assert (await caller.http.post("/api/v1/agents", json=profile("first"), headers=key)).status_code == 201
    told_by_http(await caller.http.post("/api/v1/agents", json=profile("second"), headers=key), kind)
    told_by_http(await caller.http.put("/profile/v1/agents/second", json=profile("second"), headers=key), kind)
    await told_by_clients(caller, kind, lambda client: client.register(profile("second"), idempotency_key="k"))
    belongs_to(kind, "register")


async def test_a_value_that_a_parameter_cannot_have(apis: ServedApis) -> None:
    kind, caller = errors.InvalidParameter, apis.subject("bob")
    asked: tuple[tuple[str, dict[str, str]], ...] = (
        ("/api/v1/agents", {"limit": "0"}),
        ("/api/v1/agents", {"status": "asleep"}),
        ("/api/v1/agents/held", {"as": "esperanto"}),
        ("/api/v1/agents:export", {"as": "esperanto"}),
        ("/api/v1/watch", {"renewals": "maybe"}),
        ("/profile/v1/agents", {"limit": "many"}),
        (AF_AGENTS, {"page": "0"}),
        (f"{AF_AGENTS}/held", {"view": "whole"}),
    )
    for path, params in asked:
        told_by_http(await caller.http.get(path, params=params), kind)
    told_by_rpc(await rpc_error(caller, "discover", discovery_tags="weather"), kind)
    await told_by_clients(caller, kind, lambda client: client.document("held", "esperanto"))
    await told_by_clients(caller, kind, lambda client: client.page(limit=0))
    await told_by_command(caller, kind, "get", "held", "--as", "esperanto")
    await told_by_command(caller, kind, "list", "--status", "asleep")
    belongs_to(kind, "get", "list", "export", "watch")


async def test_a_cursor_that_was_never_given(apis: ServedApis) -> None:
    kind, caller = errors.InvalidCursor, apis.subject("bob")
    for path in ("/api/v1/agents", "/profile/v1/agents"):
        told_by_http(await caller.http.get(path, params={"cursor": "made-up"}), kind)
    told_by_http(await caller.http.get("/api/v1/watch", params={"from": "made-up"}), kind)
    told_by_rpc(await rpc_error(caller, "discover", discovery_tags=["weather"], cursor="made-up"), kind)
    await told_by_clients(caller, kind, lambda client: client.page(cursor="made-up"))
    await told_by_command(caller, kind, "watch", "--from", "made-up", "--count", "1")
    belongs_to(kind, "list", "watch")


async def test_a_method_that_is_not_there(apis: ServedApis) -> None:
    kind, caller = errors.MethodNotAllowed, apis.subject("bob")
    for method, path in (("PATCH", "/api/v1/agents/held"), ("DELETE", "/profile/v1/discover"), ("POST", AF_AGENTS)):
        response = await caller.http.request(method, path)
        told_by_http(response, kind)
        assert method not in response.headers["allow"]
    told_by_rpc((await caller.rpc.answer("rtfs.registry.reboot"))["error"], kind)


async def test_a_document_that_no_dialect_recognises(apis: ServedApis) -> None:
    kind, caller = errors.UnknownDialect, apis.subject("bob")
    nothing = {"what": "is this"}
    told_by_http(await caller.http.post("/api/v1/agents", json=nothing), kind)
    assert (await batch_error(caller, nothing))["code"] == kind.code
    await told_by_clients(caller, kind, lambda client: client.register(nothing))
    await told_by_command(caller, kind, "register", "-", stdin=b'{"what": "is this"}')
    belongs_to(kind, "register", "register_many")


async def test_one_request_id_names_the_error_in_every_api(apis: ServedApis) -> None:
    caller = apis.caller("not.a.token")
    for path in ("/api/v1/agents", "/profile/v1/agents", AF_AGENTS, "/nowhere"):
        answer = await caller.http.get(path, headers={"X-Request-Id": "mine-42"})
        assert (answer.json()["correlation_id"], answer.headers["x-request-id"]) == ("mine-42", "mine-42")
    answer = await caller.http.post("/rtfs", content=b"{}", headers={"X-Request-Id": "mine-42"})
    assert answer.headers["x-request-id"] == "mine-42"
