"""`Discovery` in an ASGI application (agentframework.md §12). tests/interop has real frameworks."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.agent_framework import AGENTS, ANNOTATOR, BASE, BASE_URL, FAQ, client_of, links_of, numbered
from waypost import Agent
from waypost.errors import ConfigurationError, InvalidDocument
from waypost.model.json import dump_json
from waypost.model.principal import Principal
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.server.api.agent_framework.middleware import Discovery, DiscoveryOptions, discovery_app
from waypost.server.api.agent_framework.providers import CallableProvider, DatabaseProvider, Listing
from waypost.server.http.asgi import Message, Receive, Scope, Send

URI_SLUG = "u-aHR0cHM6Ly9oLmV4YW1wbGUvYQ"  # https://h.example/a


class Rows:
    """A provider as an application implements it."""

    def __init__(self, agents: Iterable[Any]) -> None:
        self.agents = {agent["id"]: agent for agent in agents}

    async def list(self, principal: Principal | None) -> Listing:
        return self.agents.values(), 7, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    async def get(self, principal: Principal | None, agent_id: str) -> Any:
        return self.agents.get(agent_id)


@pytest.mark.req("AF-70")
async def test_a_provider_is_served_as_a_plain_asgi_application() -> None:
    async with client_of(discovery_app(Rows(numbered(3)))) as client:
        listed = await client.get(AGENTS)
        item = await client.get(f"{AGENTS}/agent-0001")
        unknown = await client.get(f"{AGENTS}/agent-0009")
    assert len(listed.json()["agents"]) == 3
    assert listed.headers["af-generation"] == "7"
    assert listed.headers["last-modified"] == "Fri, 02 Jan 2026 03:04:05 GMT"
    assert item.json()["name"] == "Agent 0001"
    assert unknown.status_code == 404


@pytest.mark.req("AF-70")
async def test_agents_may_be_records_documents_of_any_dialect_or_their_text() -> None:
    profile = numbered(1)[0]
    record = decode_document(dump_json({**profile, "id": "as-record"}), None, DecodeContext(now=1e9))[2].record
    text = dump_json({**profile, "id": "as-text"}).decode()
    card = {"name": "As Card", "description": "d", "version": "1", "url": "https://c.example/a2a", "skills": []}
    card |= {"protocolVersion": "0.3.0", "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": []}
    async with client_of(Discovery(agents=[ANNOTATOR, profile, record, text, card])) as client:
        listed = (await client.get(AGENTS)).json()["agents"]
    assert {"image-annotator", "agent-0000", "as-record", "as-text"} < {agent["id"] for agent in listed}
    assert "As Card" in {agent["name"] for agent in listed}


@pytest.mark.req("AF-70")
@pytest.mark.parametrize(
    ("document", "summary"),
    [
        ({"id": "x"}, {"id": "x", "name": "x", "summary": "x", "tags": []}),
        ({"id": "x", "name": "X", "tags": ["a"]}, {"id": "x", "name": "X", "summary": "X", "tags": ["a"]}),
        (
            {"id": "x", "name": "X", "description": "Does x.", "version": "1.0.0"},
            {"id": "x", "name": "X", "version": "1.0.0", "summary": "Does x.", "tags": []},
        ),
        (Agent("x", "X", "Does x."), {"id": "x", "name": "X", "summary": "Does x.", "tags": []}),
        (Agent("x", "X", "Does x.", examples=["Do x."]), {"id": "x", "name": "X", "summary": "Does x.", "tags": []}),
        ({"id": "https://h.example/a", "name": "X"}, {"id": URI_SLUG, "name": "X", "summary": "X", "tags": []}),
    ],
)
async def test_an_agent_of_the_application_needs_only_an_id(document: Any, summary: Any) -> None:
    async with client_of(Discovery(agents=[document])) as client:
        assert (await client.get(AGENTS)).json() == {"agents": [summary]}
        item = (await client.get(f"{AGENTS}/{summary['id']}")).json()
    assert item["endpoints"] == []
    assert item["metadata"].get("examples", []) == list(document.get("examples", []))
    assert item["metadata"].get("canonical_id", document["id"]) == document["id"]


@pytest.mark.req("AF-20")
@pytest.mark.parametrize(
    ("member", "given", "shown"),
    [
        ("name", "n" * 257, "n" * 256),
        ("summary", "s" * 513, "s" * 512),
        ("description", "é" * 8193, "é" * 8192),
        ("tags", [f"t{number}" for number in range(65)], [f"t{number}" for number in range(64)]),
        ("tags", ["t" * 65], ["t" * 64]),
        (
            "endpoints",
            [{"method": "get", "path": f"/{number}"} for number in range(129)],
            [{"method": "GET", "path": f"/{number}"} for number in range(128)],
        ),
    ],
)
async def test_long_members_of_an_application_are_truncated_to_the_limits(member: str, given: Any, shown: Any) -> None:
    within = {"id": "within", "name": "N", "summary": "S", member: [*shown] if isinstance(shown, list) else shown}
    async with client_of(Discovery(agents=[within, {**within, "id": "beyond", member: given}])) as client:
        kept = (await client.get(f"{AGENTS}/within")).json()
        cut = (await client.get(f"{AGENTS}/beyond")).json()
    assert kept[member] == cut[member] == shown
    assert "truncated" not in kept["metadata"]
    assert cut["metadata"]["truncated"] == [member]


@pytest.mark.req("AF-17", "AF-20", "AF-22")
async def test_members_beyond_the_record_limits_are_checked_and_found() -> None:
    tags = [f"t{number}" for number in range(40)]
    endpoints: list[Any] = [{"method": "GET", "path": f"/{number}"} for number in range(20)]
    wide = {"id": "wide", "summary": "S", "description": "d " * 3000 + "needle", "tags": tags, "endpoints": endpoints}
    async with client_of(Discovery(agents=[wide])) as client:
        for question in ("tag=t39", "q=needle"):
            assert [agent["id"] for agent in (await client.get(f"{AGENTS}?{question}")).json()["agents"]] == ["wide"]
    for member, wrong, path in (
        ("tags", [*tags, 5], "$.tags[40]"),
        ("endpoints", [*endpoints, {"method": "GET", "path": "//h"}], "$.endpoints[20].path"),
    ):
        with pytest.raises(InvalidDocument) as refused:
            Discovery(agents=[{**wide, member: wrong}])
        assert refused.value.path == path


@pytest.mark.req("AF-70")
async def test_a_callable_provider_is_called_for_every_request() -> None:
    agents = [ANNOTATOR]

    async def current() -> list[Any]:
        return agents

    for source in (lambda: agents, current):
        async with client_of(Discovery(provider=CallableProvider(source))) as client:
            before = await client.get(AGENTS)
            agents.append(FAQ)
            after = await client.get(AGENTS)
            assert (await client.get(f"{AGENTS}/faq-search")).status_code == 200
        assert len(after.json()["agents"]) == len(before.json()["agents"]) + 1
        assert after.headers["af-generation"] != before.headers["af-generation"]
        agents.pop()


@pytest.mark.req("AF-70")
async def test_a_database_is_an_adapter_away(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "agents.db")

    with connect() as connection:
        connection.execute("CREATE TABLE agents (document TEXT)")
        connection.executemany(
            "INSERT INTO agents VALUES (?)", [(dump_json(agent).decode(),) for agent in (ANNOTATOR, FAQ)]
        )
    connection.close()
    async with client_of(Discovery(provider=DatabaseProvider(connect))) as client:
        assert len((await client.get(AGENTS)).json()["agents"]) == 2
        assert (await client.get(f"{AGENTS}/faq-search")).json()["name"] == "FAQ Search"


@pytest.mark.req("AF-70")
def test_invalid_agents_and_options_are_refused_at_construction() -> None:
    with pytest.raises(ConfigurationError, match="Two agents"):
        Discovery(agents=[ANNOTATOR, ANNOTATOR])
    with pytest.raises(ConfigurationError, match="not both"):
        Discovery(agents=[ANNOTATOR], provider=Rows([]))
    with pytest.raises(ConfigurationError, match="Did you mean 'legacy'"):
        Discovery(options={"legasy": True})
    with pytest.raises(InvalidDocument):
        Discovery(agents=[42])  # type: ignore[list-item]
    with pytest.raises(InvalidDocument) as refused:
        Discovery(agents=[{"id": "a b", "name": "X"}])
    assert refused.value.path == "$.id"


class Recorder:
    """An application with routes of its own. It records the requests that it gets."""

    def __init__(self, *routes: str) -> None:
        self.routes = routes
        self.seen: list[tuple[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append((scope["type"], scope.get("path", "")))
        if scope["type"] == "http":
            found = scope["path"] in self.routes
            body = b"the user's own" if found else b"the user's 404"
            await send({"type": "http.response.start", "status": 200 if found else 404, "headers": []})
            await send({"type": "http.response.body", "body": body})


@pytest.mark.req("AF-71")
async def test_the_middleware_claims_its_prefixes_and_nothing_else() -> None:
    user = Recorder("/mine", "/.well-known/agentframeworks", "/.agent-frameworks/v1")
    async with client_of(Discovery(user, agents=[ANNOTATOR])) as client:
        for path in (AGENTS, "/.agent-framework/v1/agents", "/.well-known/agent-card", f"{BASE}/nothing"):
            await client.get(path)
        assert user.seen == []
        for path in user.routes:
            assert (await client.get(path)).text == "the user's own"
        for path in ("/", "/v1/agents", "/v1/agents/x", "/.well-known/other", "/agents"):
            assert (await client.post(path)).text == "the user's 404"


@pytest.mark.req("AF-71", "AF-8")
async def test_a_route_of_the_user_wins_at_legacy_paths() -> None:
    for routes, redirected in ((("/v1/agents",), False), ((), True)):
        app = Discovery(Recorder(*routes), agents=[ANNOTATOR], options={"legacy": True})
        async with client_of(app) as client:
            answer = await client.get("/v1/agents?tag=x")
        assert (answer.status_code == 308) is redirected
    card = Discovery(Recorder("/v1/card"), agents=[ANNOTATOR])
    async with client_of(card) as client:
        assert (await client.get("/v1/card")).text == "the user's own"


@pytest.mark.req("AF-71")
@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_other_scopes_pass_untouched(kind: str) -> None:
    user = Recorder()
    given: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        given.extend((scope, receive, send))
        await user(scope, receive, send)

    async def receive() -> Message:
        return {"type": f"{kind}.connect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    scope: Scope = {"type": kind, "path": AGENTS}
    await Discovery(app, agents=[ANNOTATOR])(scope, receive, send)
    assert given == [scope, receive, send]


@pytest.mark.req("AF-71")
async def test_standing_alone_it_answers_lifespan_and_refuses_websockets() -> None:
    sent: list[str] = []
    incoming = iter(["lifespan.startup", "lifespan.shutdown", "websocket.connect"])

    async def receive() -> Message:
        return {"type": next(incoming)}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    app = Discovery(agents=[ANNOTATOR])
    await app({"type": "lifespan"}, receive, send)
    await app({"type": "websocket", "path": AGENTS}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


@pytest.mark.req("AF-72", "AF-8")
@pytest.mark.parametrize("in_path", [True, False], ids=["path holds the root", "path without the root"])
async def test_under_a_sub_mount_every_link_has_the_root_path(in_path: bool, caplog: pytest.LogCaptureFixture) -> None:
    uri = {**numbered(1)[0], "id": "https://h.example/a"}
    app = Discovery(agents=[ANNOTATOR, uri], options={"legacy": True, "base_url": BASE_URL})
    root = "/sub" if in_path else ""
    with caplog.at_level(logging.WARNING, "waypost.discovery"):
        async with client_of(app, root_path="/sub") as client:
            listed = await client.get(f"{root}{AGENTS}?per_page=1")
            alias = await client.get(f"{root}/.agent-framework/v1/agents")
            moved = await client.get(f"{root}/v1/agents?q=x")
            slashed = await client.get(f"{root}{AGENTS}/")
            encoded = await client.get(f"{root}{AGENTS}/https%3A%2F%2Fh.example%2Fa")
            index = await client.get(f"{root}{BASE}")
            missing = await client.get(f"{root}{AGENTS}/x")
            schema = await client.get(f"{root}{BASE}/schema.json")
    links = links_of(listed)
    assert links["next"] == f"/sub{AGENTS}?page=2&per_page=1"
    assert links["describedby"] == f"/sub{BASE}/schema.json"
    assert links_of(alias)["canonical"] == f"/sub{AGENTS}"
    assert moved.headers["location"] == f"/sub{AGENTS}?q=x"
    assert slashed.headers["location"] == f"/sub{AGENTS}"
    assert encoded.headers["content-location"].startswith(f"/sub{AGENTS}/u-")
    assert index.json()["links"]["agents"] == f"/sub{AGENTS}"
    assert missing.json()["type"] == f"{BASE_URL}/sub{BASE}/problems/not_found"
    assert schema.json()["$id"] == f"{BASE_URL}/sub{BASE}/schema.json"
    assert [record.message for record in caplog.records if "/sub" in record.message] == [
        "Discovery is mounted under /sub: clients look for well-known paths at the root of the origin (AF-72)."
    ]


async def request_status(app: Discovery, scope: dict[str, Any]) -> int:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http", "method": "GET", "headers": [], "query_string": b"", **scope}, receive, send)
    return int(sent[0]["status"])


@pytest.mark.req("AF-72")
async def test_without_a_raw_path_only_slugs_work() -> None:
    app = Discovery(agents=[{**numbered(1)[0], "id": "https://h.example/a"}])
    assert await request_status(app, {"path": f"{AGENTS}/u-aHR0cHM6Ly9oLmV4YW1wbGUvYQ"}) == 200
    assert await request_status(app, {"path": f"{AGENTS}/https://h.example/a"}) == 404


class Somebody:
    """A user object as frameworks put it into the scope."""

    def __init__(self, name: str, known: bool) -> None:
        self.display_name = name
        self.is_authenticated = known


@pytest.mark.req("AF-73", "AF-50")
@pytest.mark.parametrize(
    ("scope", "whole"),
    [
        ({"user": Somebody("alice", True)}, True),
        ({"user": Somebody("", False)}, False),
        ({"user": None}, False),
        ({"user": "alice"}, True),
        ({"user": {"sub": "alice"}}, True),
        ({"state": {"user": "alice"}}, True),
        ({"state": {"user": None}}, False),
        ({}, True),  # no authentication: everything is visible
    ],
)
async def test_the_principal_comes_from_the_applications_authentication(scope: Any, whole: bool) -> None:
    inner = Discovery(agents=[ANNOTATOR])

    async def app(given: Scope, receive: Receive, send: Send) -> None:
        await inner({**given, **scope}, receive, send)

    async with client_of(app) as client:
        item = (await client.get(f"{AGENTS}/image-annotator")).json()
    assert ("endpoints" in item) is whole


@pytest.mark.req("AF-73")
async def test_the_extractor_is_pluggable_and_may_wait() -> None:
    async def principal(scope: Scope) -> str | None:
        return dict(scope["headers"]).get(b"x-user", b"").decode() or None

    async with client_of(Discovery(agents=[ANNOTATOR], options=DiscoveryOptions(principal=principal))) as client:
        known = await client.get(f"{AGENTS}/image-annotator", headers={"X-User": "alice"})
        unknown = await client.get(f"{AGENTS}/image-annotator")
    assert known.json()["owner"] == ANNOTATOR["owner"]
    assert known.headers["cache-control"] == "private, no-cache"
    assert unknown.json()["metadata"] == {"redacted": True}


@pytest.mark.req("AF-73")
async def test_no_address_is_made_of_the_host_header() -> None:
    for options in ({}, {"base_url": BASE_URL}):
        async with client_of(Discovery(agents=[ANNOTATOR], options=options)) as client:
            for path in (AGENTS, f"{AGENTS}/x", f"{AGENTS}/", f"{BASE}/schema.json", BASE):
                answer = await client.get(path, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"})
                assert "evil.example" not in answer.text + str(answer.headers)


@pytest.mark.req("AF-74")
def test_it_loads_no_framework() -> None:
    names = "('starlette', 'fastapi', 'litestar', 'uvicorn', 'httpx2', 'numpy', 'pyroaring', 'cryptography')"
    code = f"import sys, waypost; waypost.Discovery; print([m for m in sys.modules if m in {names}])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
