"""/api/v1: any dialect in and out, batches, leases, stats, tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.records import CODECS
from support.service import profile, service
from waypost import limits
from waypost.model.names import slug
from waypost.responses.agents import Page, Receipt
from waypost.responses.service import MintedToken, Problem, Stats
from waypost.server.auth.authenticator import ADMIN
from waypost.server.http.openapi import answer_schema

A2A = {
    "name": "Route Planner",
    "description": "Plans bicycle routes.",
    "supportedInterfaces": [
        {"url": "https://routes.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    ],
    "version": "1.2.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["application/json"],
    "skills": [{"id": "plan", "name": "Plan", "description": "Plans a route.", "tags": ["routing", "bicycle"]}],
    "x-house-style": {"kept": True},
}


async def test_a_document_is_recognised_registered_and_given_back_in_every_dialect(tmp_path: Path) -> None:
    body = json.dumps(A2A, indent=2).encode()
    async with service(tmp_path) as bench:
        admin = bench.admin()
        written = await admin.post("/api/v1/agents", content=body)
        assert written.status_code == 201
        receipt = written.json()
        jsonschema.validate(receipt, answer_schema(Receipt))
        assert (receipt["dialect"], receipt["outcome"]) == ("a2a", "created")
        assert written.headers["etag"] == f'"{receipt["etag"]}"'
        for dialect, codec in CODECS.items():
            read = await admin.get(written.headers["location"], params={"as": dialect})
            assert read.status_code == 200, dialect
            jsonschema.validate(read.json(), codec.schema())
            assert json.loads(read.headers["waypost-losses"]) is not None
            assert read.headers["content-type"] == codec.media_type
        assert (await admin.get(written.headers["location"], params={"as": "a2a"})).content == body


async def test_the_location_of_an_agent_that_cannot_be_reached_leads_to_its_own_document(tmp_path: Path) -> None:
    document = {"id": "annotator", "name": "Annotator", "endpoints": [{"method": "POST", "path": "/v1/message:send"}]}
    async with service(tmp_path) as bench:
        admin = bench.admin()
        written = await admin.post("/api/v1/agents", json=document)
        read = await admin.get(written.headers["location"])
        assert (read.status_code, read.json()["endpoints"]) == (200, document["endpoints"])


async def test_one_agent_in_two_dialects_is_one_record_with_two_sources(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        first = (await admin.post("/api/v1/agents", json=A2A)).json()
        second = profile(first["id"], name="Route Planner", description="Plans routes for cyclists.", tags=["maps"])
        assert (await admin.post("/api/v1/agents", json=second)).json()["outcome"] == "updated"
        assert (await admin.get("/api/v1/stats")).json()["agents"] == 1
        path = f"/api/v1/agents/{first['id'].replace('/', '%2F')}"
        assert (await admin.get(path, params={"as": "a2a"})).json() == A2A
        assert (await admin.get(path)).json() == second
        registration = await bench.registry.get(ADMIN, first["id"])
        assert [source.dialect for source in registration.sources] == ["profile", "a2a"]
        assert registration.record.examples == ()
        assert registration.record.version == "1.2.0"  # the older source supplies members that the newer one lacks


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        (b"", 400, "$"),
        (b"{", 400, "$"),
        (b'{"a":1,"a":2}', 400, "$.a"),
        (b"[1]", 400, "$"),
        (b'{"id":"x","name":"n","description":"d","bindings":[]}', 400, "$.bindings"),
        (b'{"id":"x","name":"n","description":"d","bindings":[{"protocol":"https"}]}', 400, "$.bindings[0].endpoint"),
        (b'{"what":"is this"}', 400, "$"),
        (
            b'{"id":"x y","name":"n","description":"d","bindings":[{"protocol":"https","endpoint":"https://x"}]}',
            400,
            "$.id",
        ),
        (b" " * (limits.DOCUMENT_BYTES + 1), 413, "$"),
    ],
)
async def test_an_invalid_document_is_refused_with_status_and_path(
    tmp_path: Path, body: bytes, status: int, path: str
) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.admin().post("/api/v1/agents", content=body)
        problem = answer.json()
        jsonschema.validate(problem, answer_schema(Problem))
        assert (answer.status_code, problem["path"]) == (status, path)
        assert (await bench.admin().get("/api/v1/stats")).json()["agents"] == 0


async def test_parameters_of_a_write_are_checked(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        for params, headers, path in (
            ({"ttl_seconds": "0"}, {}, "ttl_seconds"),
            ({"ttl_seconds": "ten"}, {}, "ttl_seconds"),
            ({"dialect": "esperanto"}, {}, "dialect"),
            ({}, {"Waypost-Visibility": "secret"}, "Waypost-Visibility"),
            ({}, {"If-Match": "not-a-tag"}, "If-Match"),
            ({}, {"Idempotency-Key": "k" * 256}, "Idempotency-Key"),
        ):
            answer = await admin.post("/api/v1/agents", json=profile("a"), params=params, headers=headers)
            assert (answer.status_code, answer.json()["path"]) == (400, path)


async def test_an_idempotency_key_makes_a_retry_one_change(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        headers = {"Idempotency-Key": "k-1"}
        first = await admin.post("/api/v1/agents", json=profile("a"), headers=headers)
        again = await admin.post("/api/v1/agents", json=profile("a"), headers=headers)
        assert again.json() == first.json()
        assert (await admin.get("/api/v1/stats")).json()["revision"] == 1
        other = await admin.post("/api/v1/agents", json=profile("b"), headers=headers)
        assert (other.status_code, other.json()["code"]) == (409, "conflict")


async def test_a_lease_is_clamped_granted_renewed_and_ends(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        answer = await admin.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": "1"})
        assert answer.json()["ttl_seconds"] == limits.TTL_MIN_SECONDS
        bench.clock.advance(9)
        renewed = await admin.post("/api/v1/agents/a:renew", json={"ttl_seconds": 20})
        jsonschema.validate(renewed.json(), answer_schema(Receipt))
        assert (renewed.json()["outcome"], renewed.json()["ttl_seconds"]) == ("refreshed", 20)
        bench.clock.advance(19)
        assert (await admin.get("/api/v1/agents/a")).status_code == 200
        bench.clock.advance(1)
        assert (await admin.get("/api/v1/agents/a")).status_code == 404
        assert (await admin.post("/api/v1/agents/a:renew")).status_code == 404


async def test_sending_a_leased_document_again_renews_it(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", json=profile("a"), params={"ttl_seconds": "60"})
        bench.clock.advance(50)
        again = await admin.post("/api/v1/agents", json=profile("a"))
        assert again.json()["outcome"] == "refreshed"
        bench.clock.advance(50)
        assert (await admin.get("/api/v1/agents/a")).status_code == 200


@pytest.mark.parametrize("name", ["allow", "apikeys", "keys", "peers", "stats", "audit"])
async def test_lists_of_an_admin_are_tagged_and_answered_briefly_if_unchanged(tmp_path: Path, name: str) -> None:
    async with service(tmp_path) as bench:
        admin, path = bench.admin(), f"/api/v1/{name}"
        first = await admin.get(path)
        etag = first.headers["etag"]
        assert etag.startswith('"')
        again = await admin.get(path, headers={"If-None-Match": etag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert "content-type" not in again.headers
        assert (await admin.head(path)).headers["etag"] == etag
        if name == "allow":
            await admin.post(path, json={"rule": "*"})
            changed = await admin.get(path, headers={"If-None-Match": etag})
            assert (changed.status_code, changed.headers["etag"] == etag) == (200, False)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
async def test_a_batch_without_documents_is_answered_with_no_lines(tmp_path: Path, content: bytes) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.admin().post("/api/v1/agents:batch", content=content)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"] == "application/x-ndjson"


async def test_a_batch_answers_line_by_line_in_order_and_a_bad_line_stops_nothing(tmp_path: Path) -> None:
    lines = [
        json.dumps(profile("a")).encode(),
        b"{not json",
        b"",
        json.dumps(A2A).encode(),
        json.dumps(profile("a")).encode(),
        json.dumps(profile("a", description="Newer.")).encode(),
        b'{"id":"x","name":"n","description":"d","bindings":[]}',
        b'"' + b"x" * (limits.DOCUMENT_BYTES + 10) + b'"',
        json.dumps(profile("b")).encode(),
    ]
    async with service(tmp_path) as bench:
        answer = await bench.admin().post("/api/v1/agents:batch", content=b"\n".join(lines))
        assert answer.headers["content-type"] == "application/x-ndjson"
        rows = [json.loads(line) for line in answer.text.splitlines()]
        outcomes = [row.get("outcome") or row["error"]["code"] for row in rows]
        assert outcomes == [
            "created", "invalid_request", "created", "unchanged", "updated", "invalid_request", "invalid_request", "created",
        ]  # fmt: skip
        assert rows[5]["error"]["path"] == "$.bindings"
        assert {"id", "outcome", "etag"} == set(rows[0])


async def test_a_list_is_filtered_by_tag_protocol_status_and_owner(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        await alice.post("/api/v1/agents", json=profile("a", tags=["Red", "big"]))
        await alice.post("/api/v1/agents", json=profile("b", tags=["red"], status="inactive"))
        mail = [{"protocol": "smtp", "endpoint": "mailto:a@b.example"}]
        await bob.post("/api/v1/agents", json=profile("c", tags=["red"], bindings=mail))

        async def ids(**params: object) -> list[str]:
            answer = await bob.get("/api/v1/agents", params=params)  # type: ignore[arg-type]
            jsonschema.validate(answer.json(), answer_schema(Page))
            return [agent["id"] for agent in answer.json()["agents"]]

        assert await ids() == ["a", "c"]
        assert await ids(tag=["red", "BIG"]) == ["a"]
        assert await ids(status="inactive") == ["b"]
        assert await ids(protocol="smtp") == ["c"]
        assert await ids(owner="alice") == ["a"]
        assert (await bob.get("/api/v1/agents", params={"status": "asleep"})).status_code == 400


async def test_an_export_has_one_line_per_visible_agent(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post("/api/v1/agents", content=json.dumps(A2A, indent=4).encode())
        await admin.post("/api/v1/agents", json=profile("b"))
        lines = (await admin.get("/api/v1/agents:export")).text.splitlines()
        assert [json.loads(line) for line in lines] == [profile("b"), A2A]
        mapped = (await admin.get("/api/v1/agents:export", params={"as": "af"})).text.splitlines()
        assert len(mapped) == 2
        for line in mapped:
            jsonschema.validate(json.loads(line), CODECS["af"].schema())


async def test_figures_show_the_revision_to_admins_only(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.as_("alice").post("/api/v1/agents", json=profile("a"), headers={"Waypost-Visibility": "private"})
        figures = (await bench.admin().get("/api/v1/stats")).json()
        jsonschema.validate(figures, answer_schema(Stats))
        assert (figures["agents"], figures["revision"]) == (1, 1)
        seen = (await bench.as_("bob").get("/api/v1/stats")).json()
        assert seen["agents"] == 0
        assert "revision" not in seen


async def test_stats_count_visible_agents_by_visibility(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for number, (owner, visibility) in enumerate(
            (("alice", "public"), ("alice", "internal"), ("alice", "private"), ("bob", "private"), ("bob", "public"))
        ):
            headers = {"Waypost-Visibility": visibility}
            await bench.as_(owner).post("/api/v1/agents", json=profile(f"agent-{number}"), headers=headers)

        async def seen(client: httpx2.AsyncClient) -> dict[str, int]:
            figures = (await client.get("/api/v1/stats")).json()
            assert sum(figures["by_visibility"].values()) == figures["agents"]
            told: dict[str, int] = figures["by_visibility"]
            return told

        assert await seen(bench.admin()) == {"public": 2, "internal": 1, "private": 2}
        assert await seen(bench.as_("alice")) == {"public": 2, "internal": 1, "private": 1}
        assert await seen(bench.as_("carol")) == {"public": 2, "internal": 1}


async def test_a_minted_token_works_until_it_expires_and_only_for_its_scopes(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        asked = {"sub": "carol", "scopes": ["discover:read"], "ttl_seconds": 60}
        answer = await bench.admin().post("/api/v1/tokens", json=asked)
        assert answer.status_code == 201
        jsonschema.validate(answer.json(), answer_schema(MintedToken))
        carol = bench.client(answer.json()["token"])
        assert (await carol.get("/api/v1/agents")).status_code == 200
        refused = await carol.post("/api/v1/agents", json=profile("a"))
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "discover:write" in refused.json()["message"]
        assert (await carol.post("/api/v1/tokens", json=asked)).status_code == 403
        bench.clock.advance(60)
        expired = await carol.get("/api/v1/agents")
        assert (expired.status_code, expired.json()["code"]) == (401, "unauthorized")
        assert "expired" in expired.json()["message"]


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({"scopes": ["discover:read"]}, "$.sub"),
        ({"sub": "x", "scopes": "discover:read"}, "$.scopes"),
        ({"sub": "x", "scopes": ["everything"]}, "scopes"),
        ({"sub": "x", "scopes": []}, "scopes"),
        ({"sub": "x", "scopes": ["admin"], "ttl_seconds": 90_000}, "ttl_seconds"),
        ({"sub": "x", "scopes": ["admin"], "ttl_seconds": -1}, "$.ttl_seconds"),
    ],
)
async def test_a_token_that_cannot_be_minted_is_refused(tmp_path: Path, asked: dict[str, object], path: str) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.admin().post("/api/v1/tokens", json=asked)
        assert (answer.status_code, answer.json()["path"]) == (400, path)


_BARE: dict[str, dict[str, Any]] = {
    "af": {"id": "bare", "name": "Bare", "summary": "Answers riddles.", "endpoints": [], "capabilities": {}},
    "mcp": {"name": "com.example/bare", "description": "Answers riddles.", "version": "1.0.0"},
    "oasf": {
        "name": "bare",
        "version": "1.0.0",
        "schema_version": "1.0.0",
        "description": "Answers riddles.",
        "authors": ["A"],
        "created_at": "2026-01-01T00:00:00Z",
        "skills": [{"name": "riddles"}],
    },
}


@pytest.mark.parametrize("dialect", _BARE)
async def test_an_agent_without_an_endpoint_is_registered_with_an_empty_list(tmp_path: Path, dialect: str) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        receipt = await admin.post("/api/v1/agents", json=_BARE[dialect])
        assert (receipt.status_code, receipt.json()["dialect"]) == (201, dialect)
        path, _, query = receipt.headers["location"].partition("?")
        assert query == f"as={dialect}"
        assert (await admin.get(path, params={"as": dialect})).json() == _BARE[dialect]
        read = await admin.get(path)
        assert (read.status_code, read.json()["bindings"]) == (200, [])
        assert [agent["bindings"] for agent in (await admin.get("/profile/v1/agents")).json()["agents"]] == [[]]
        assert (await admin.get(path, params={"as": "a2a"})).status_code == 404
        found = await admin.post("/profile/v1/discover", json={"query": "riddles"})
        assert found.json()["candidates"] == []  # there is nothing to call
        listed = (await admin.get("/.well-known/agentframework/v1/agents")).json()["agents"]
        assert len(listed) == 1
        if dialect != "af":
            assert any("without" in warning for warning in receipt.json()["warnings"])


async def test_an_id_may_end_like_the_name_of_an_operation(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        for agent_id in ("example.org:host", "agent:renew"):
            assert (await alice.post("/api/v1/agents", json=profile(agent_id))).status_code == 201
            assert (await alice.get(f"/api/v1/agents/{agent_id}")).json()["id"] == agent_id
            assert (await alice.post(f"/api/v1/agents/{agent_id}:renew")).json()["id"] == agent_id
            assert (await alice.put(f"/api/v1/agents/{agent_id}")).status_code == 405
            assert (await alice.delete(f"/api/v1/agents/{agent_id}")).status_code == 204


async def test_the_type_of_every_problem_leads_to_a_page(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        for row in (await alice.get("/api/v1/operations")).json()["operations"]:
            for code in row["errors"]:
                assert (await alice.get(f"/.well-known/agentframework/v1/problems/{code}")).status_code == 200, code
        await alice.post("/api/v1/agents", json=profile("a"))
        conflict = (await bench.as_("bob").post("/api/v1/agents", json=profile("a", name="Mine"))).json()
        assert (conflict["status"], conflict["code"]) == (409, "conflict")
        assert (await alice.get(conflict["type"])).text.startswith("conflict\n")


@pytest.mark.parametrize("face", ["/api/v1/agents", "/profile/v1/agents", "/agents"])
async def test_a_problem_names_the_path_as_requested(tmp_path: Path, face: str) -> None:
    """RFC 9457: `instance` is a URI reference, which no space, letter beyond ASCII or bare slash of an id is part of."""
    async with service(tmp_path) as bench:
        for escaped in ("a%20b", "%C3%A4", "https%3A%2F%2Fh.example%2Fa", "%00"):
            problem = (await bench.admin().get(f"{face}/{escaped}?x=1")).json()
            assert problem["instance"] == f"{face}/{escaped}"


@pytest.mark.parametrize("agent_id", ["https://h.example/agent", "https://h.example/" + "a" * 200])
@pytest.mark.parametrize("first", [True, False])
async def test_the_address_of_an_agent_cannot_be_taken_by_another_of_that_name(
    tmp_path: Path, agent_id: str, first: bool
) -> None:
    """The path-safe id of one is the id that another chose, sooner or later: its address stays its own."""
    address = slug(agent_id)
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        written = [(alice, agent_id), (bob, address)]
        for caller, name in written if first else reversed(written):
            said = profile(name, name=f"Agent {len(name)}")
            assert (await caller.post("/api/v1/agents", json=said)).status_code == 201
        for face in ("/api/v1/agents", "/profile/v1/agents"):
            assert (await bob.get(f"{face}/{address}")).json()["id"] == agent_id
            assert (await bob.get(f"{face}/{slug(address)}")).json()["id"] == address
        document = await bob.get("/.well-known/agent.json", params={"agent": address})
        assert document.json()["identity"]["name"] == f"Agent {len(agent_id)}"
        framework = await bob.get(f"/.well-known/agentframework/v1/agents/{address}")
        assert framework.json()["metadata"]["canonical_id"] == agent_id
        assert (await bob.delete(f"/api/v1/agents/{address}")).status_code == 403
        assert (await bob.delete(f"/api/v1/agents/{slug(address)}")).status_code == 204


async def test_an_agent_that_is_hidden_takes_no_address(tmp_path: Path) -> None:
    agent_id = "https://h.example/agent"
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        await alice.post("/api/v1/agents", json=profile(agent_id), headers={"Waypost-Visibility": "private"})
        await bob.post("/api/v1/agents", json=profile(slug(agent_id)))
        assert (await bob.get(f"/api/v1/agents/{slug(agent_id)}")).json()["id"] == slug(agent_id)
        assert (await alice.get(f"/api/v1/agents/{slug(agent_id)}")).json()["id"] == agent_id
        assert (await bob.delete(f"/api/v1/agents/{slug(agent_id)}")).status_code == 204
