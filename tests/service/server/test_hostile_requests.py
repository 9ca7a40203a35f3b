"""Hostile requests: paths, queries, headers and texts that another layer would interpret (THREATS H5, H6, H8, H12…H15)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from support.service import Bench, profile, service
from support.vectors import naughty_strings
from waypost.app.http import MOUNTED_ROUTES

SYNTAX = ("' OR 1=1 --", '"; DROP TABLE agents; --', "NEAR(a b)", "name:*", "a* AND NOT b", "{a b} : c", "^x", "%", "_")
AF = "/.well-known/agentframework/v1/agents"
INSIDE = ("Traceback", ".py", "sqlite", "SELECT", "/src/", "site-packages", "Error(", "0x")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path, store="sqlite", anonymous_read=True) as made:
        await made.as_("alice").post("/api/v1/agents", json=profile("known", tags=["weather"]))
        yield made


async def ask_raw(bench: Bench, path: bytes, **headers: str) -> httpx2.Response:
    """A path exactly as written: a client would tidy it up first."""
    target, _, query = path.partition(b"?")

    async def as_written(scope: Any, receive: Any, send: Any) -> None:
        told = {"raw_path": target, "path": unquote(target.decode("latin-1")), "query_string": query}
        await bench.application.http_app({**scope, **told}, receive, send)

    given = [(b"Authorization", f"Bearer {bench.admin_token}".encode())]
    given += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(as_written), base_url="http://x") as client:
        return await client.get("/", headers=given)


@pytest.mark.parametrize("text", [*SYNTAX, "NAUGHTY"])
async def test_a_question_is_text_whatever_it_looks_like(bench: Bench, text: str) -> None:
    """H8: through every search API, and as a tag."""
    client = bench.admin()
    for said in naughty_strings() if text == "NAUGHTY" else [text]:
        call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": {"discovery_tags": [said]}}
        answers = [
            await client.get(AF, params={"q": said}),
            await client.post("/profile/v1/discover", json={"query": said, "preferred_tags": [said]}),
            await client.get("/api/v1/agents", params={"tag": said}),
            await client.get("/agents", params={"capability": said}),
            await client.post("/rtfs", json=call),
        ]
        assert [answer.status_code for answer in answers if answer.status_code not in (200, 400)] == [], said
        assert (await client.get("/api/v1/agents/known")).status_code == 200


@pytest.mark.parametrize("face", ["/api/v1/agents", "/profile/v1/agents", AF, "/agents", ""])
@pytest.mark.parametrize(
    "trick",
    ["../admin.token", "..%2fadmin.token", "%2e%2e/admin.token", "%252e%252e%252fadmin.token", "known%00.json", "/known",
     "known/../known", "..;/known", "known%2f", "known%20", "KNOWN", "%6bnown%2e%2e", "\\known", ".%2fknown"],
)  # fmt: skip
async def test_tricks_in_a_path_reach_no_other_resource(bench: Bench, face: str, trick: str) -> None:
    """H6: nothing is resolved, joined, decoded twice or folded."""
    assert (await ask_raw(bench, f"{face}/known".encode())).status_code == (200 if face else 404)
    answer = await ask_raw(bench, f"{face}/{trick}".encode())
    assert answer.status_code in (400, 404), (answer.status_code, answer.text[:200])
    assert bench.admin_token not in answer.text


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b", "a\u2028b"])
async def test_no_line_break_comes_back_in_a_header(bench: Bench, value: str) -> None:
    """H5: in a name, in a path, in a query, in the name of a request."""
    client = bench.as_("alice")
    refused = await client.post("/api/v1/agents", json=profile(value))
    encoded = value.encode().hex(" ").replace(" ", "%")
    answers = [
        refused,
        await ask_raw(bench, f"/api/v1/agents/%{encoded}".encode()),
        await ask_raw(bench, f"/profile/v1/agents?cursor=%{encoded}".encode()),
        await ask_raw(bench, f"{AF}/?q=%{encoded}".encode()),
        await ask_raw(bench, b"/api/v1/agents", X_Request_Id=value),
    ]
    assert refused.status_code == 400
    for answer in answers:
        assert answer.status_code < 500
        assert "x-evil" not in answer.headers
        assert not any(mark in line for line in answer.headers.values() for mark in "\r\n\0")


async def test_the_method_of_a_request_is_the_one_it_came_with(bench: Bench) -> None:
    """H12."""
    alice = bench.as_("alice")
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        for method in ("GET", "POST"):
            await alice.request(method, "/api/v1/agents/known", headers={name: "DELETE"})
    await alice.get("/api/v1/agents/known", params={"_method": "DELETE"})
    assert (await alice.get("/api/v1/agents/known")).status_code == 200


async def test_no_page_of_another_site_reads_with_a_credential(bench: Bench) -> None:
    """H12: everybody's leave and a credential never go together, and a site is never just echoed."""
    routes = [*bench.application.http_app.router.routes, *MOUNTED_ROUTES]
    paths = {route.path.replace("{id}", "known") for route in routes if not route.path.endswith(("/watch", "/stream"))}
    assert len(paths) > 30
    for client in (bench.anonymous(), bench.as_("alice"), bench.admin()):
        for path in sorted(paths):
            for method in ("OPTIONS", "GET"):
                asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
                told = (await client.request(method, path, headers=asked)).headers
                assert "access-control-allow-credentials" not in told, (method, path)
                assert told.get("access-control-allow-origin", "*") == "*", (method, path)
                assert "DELETE" not in told.get("access-control-allow-methods", ""), (method, path)


async def test_a_problem_reveals_no_internals(bench: Bench, tmp_path: Path) -> None:
    """H13."""
    client = bench.admin()
    bad = [b"", b"[", b"{}", b'{"id": 1}', b"\xff", b'{"id": "' + b"a" * 5000 + b'"}', b"[" * 5000, b'{"a": 1e400}']
    answers = [await client.post(path, content=body) for path in ("/api/v1/agents", "/agents", "/rtfs") for body in bad]
    answers += [await client.post("/profile/v1/discover", content=body) for body in bad]
    answers += [await client.get(f"/api/v1/agents?cursor={text}") for text in ("x", "A" * 64, "%00", "'")]
    answers += [await client.get("/nowhere"), await client.patch("/api/v1/agents"), await client.get(f"{AF}?page=x")]
    for answer in answers:
        assert 400 <= answer.status_code < 500 or "error" in answer.json(), answer.text[:200]
        assert [word for word in (*INSIDE, str(tmp_path)) if word in answer.text] == [], answer.text[:300]


async def test_an_error_repeats_64_characters_at_most(bench: Bench) -> None:
    """H14."""
    long = "y" * 5000
    sent: list[dict[str, Any]] = [
        {"method": long},
        {"method": "rtfs.registry.discover", "params": {"limit": long}},
        {"method": "rtfs.registry.discover", "params": {"agent_id": "a", "version_constraint": long}},
        {"method": "rtfs.registry.discover", "params": {"agent_id": "a", long: 1}},
        {"method": "rtfs.registry.deregister", "params": {"agent_id": long}},
        {"method": "rtfs.registry.register", "params": {"agent_card": {"agent_id": "a", "name": [long]}}},
        {"method": "rtfs.registry.heartbeat", "params": [long]},
    ]
    for call in sent:
        answer = await bench.admin().post("/rtfs", json={"jsonrpc": "2.0", "id": 1, **call})
        assert "y" * 65 not in answer.text, answer.text[:300]


async def test_caller_input_never_begins_a_log_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """H15."""
    forged = "x\nINFO forged"
    with caplog.at_level(logging.DEBUG):
        alice = bench.as_("alice")
        query = {"protocol_version": "v1.1", "query": {"capability": forged}, "query_id": forged}
        await alice.post("/agents", json=query, headers={"X-Request-Id": "r"})
        await alice.post("/api/v1/agents", json=profile("n", name=forged, description=forged))
        await ask_raw(bench, b"/api/v1/agents/x%0AINFO%20forged", X_Request_Id=forged)
        await ask_raw(bench, b"/x%0AINFO%20forged?x=%0AINFO%20forged")
    told = [record.getMessage() for record in caplog.records if record.name.startswith("waypost")]
    assert any("uses protocol version v1.1" in line for line in told), "something was told"
    assert [line for line in told if "\n" in line or "\r" in line] == []
