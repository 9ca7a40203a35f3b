"""API keys: created by an admin, valid wherever a token is, stored as a hash, revocable at once."""

from __future__ import annotations

import asyncio
import io
import logging
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from support.files import content
from support.server import running_server
from support.service import NOW, Bench, profile, service
from support.websocket_clients import socket_service
from support.worker_processes import both
from waypost import limits
from waypost.model.json import parse_object
from waypost.model.times import to_rfc3339
from waypost.trust.encodings import decode_base64url

READ, WRITE = "discover:read", "discover:write"


async def create(bench: Bench, sub: str = "ci", scopes: tuple[str, ...] = (READ, WRITE), **members: Any) -> Any:
    answer = await bench.admin().post("/api/v1/apikeys", json={"sub": sub, "scopes": list(scopes), **members})
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def test_a_created_key_is_answered_once_with_the_members_of_the_contract(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        made = await create(bench, ttl_seconds=90 * 86_400, note="nightly build")
        assert list(made) == ["id", "key", "sub", "scopes", "expires_at"]
        assert made["key"].startswith("wp_")
        assert (made["sub"], made["scopes"], made["expires_at"]) == ("ci", [READ, WRITE], "2026-08-26T20:26:40Z")
        listed = (await bench.admin().get("/api/v1/apikeys")).json()
        assert [(row["id"], row["note"], row["created_by"]) for row in listed["apikeys"]] == [
            (made["id"], "nightly build", "admin")
        ]
        assert made["key"][-30:] not in str(listed)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_key_has_its_subject_and_scopes_until_it_expires(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as bench:
        writer = bench.client((await create(bench, ttl_seconds=172_800))["key"])
        assert (await writer.post("/api/v1/agents", json=profile("a"))).status_code == 201
        assert (await bench.as_("mallory").delete("/api/v1/agents/a")).status_code == 403, "it belongs to ci"
        assert (await bench.as_("ci").delete("/api/v1/agents/a")).status_code == 204
        reader = bench.client((await create(bench, "r", (READ,)))["key"])
        assert (await reader.get("/api/v1/agents")).status_code == 200
        assert (await reader.post("/api/v1/agents", json=profile("b"))).status_code == 403
        assert (await reader.get("/api/v1/apikeys")).status_code == 403
        bench.clock.advance(172_799)
        assert (await writer.get("/api/v1/agents")).status_code == 200, "longer than any token"
        bench.clock.advance(1)
        assert (await writer.get("/api/v1/agents")).status_code == 401
        assert (await reader.get("/api/v1/agents")).status_code == 200, "a key without expiry"


async def test_a_revoked_key_is_refused_by_the_next_request(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        made = await create(bench)
        client = bench.client(made["key"])
        assert (await client.get("/api/v1/agents")).status_code == 200
        assert (await bench.admin().delete(f"/api/v1/apikeys/{made['id']}")).status_code == 204
        refused = await client.get("/api/v1/agents")
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        assert (await bench.admin().delete(f"/api/v1/apikeys/{made['id']}")).status_code == 404
        assert (await bench.admin().get("/api/v1/apikeys")).json() == {"apikeys": []}


async def test_keys_and_revocations_survive_a_restart(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        kept, revoked = await create(bench, "kept"), await create(bench, "revoked")
        await bench.admin().delete(f"/api/v1/apikeys/{revoked['id']}")
    async with service(tmp_path, store="sqlite") as bench:
        assert (await bench.client(kept["key"]).get("/api/v1/agents")).status_code == 200
        assert (await bench.client(revoked["key"]).get("/api/v1/agents")).status_code == 401


async def test_the_expiry_of_a_key_follows_the_wall_clock(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.client((await create(bench, ttl_seconds=60))["key"])
        bench.clock.jump(61)  # a suspend
        assert (await client.get("/api/v1/agents")).status_code == 401


async def test_a_changed_key_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        first, second = await create(bench), await create(bench)
        prefix, key_id, secret = first["key"].split("_", 2)
        other_secret = second["key"].split("_", 2)[2]
        forged = [
            f"{prefix}_{key_id}_{other_secret}",
            f"{prefix}_{second['id']}_{secret}",
            f"{prefix}_{key_id}_{secret[:-1]}",
            f"{prefix}_{key_id}_{secret}A",
            f"{prefix}_{key_id}_{secret.swapcase()}",
            f"{prefix}_{key_id.upper()}_{secret}",
            f"{prefix}_{key_id}_",
            f"{prefix}_{key_id}",
            f"WP_{key_id}_{secret}",
            "wp_",
            "wp__",
            secret,
            key_id,
        ]
        for key in forged:
            assert (await bench.client(key).get("/api/v1/agents")).status_code == 401, key


async def test_a_key_works_wherever_a_token_does(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        client = bench.client((await create(bench))["key"])
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        statuses = [
            (await client.get("/.well-known/agentframework/v1/agents")).status_code,
            (await client.post("/profile/v1/discover", json={"query": "x"})).status_code,
            (await client.post("/mcp", json=call, headers=headers)).status_code,
            (await client.get("/agents")).status_code,
            (await client.get("/api/v1/stats")).status_code,
        ]
        assert statuses == [200] * 5
        discovered = await client.post(
            "/rtfs", json={"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": {}}
        )
        assert "unauthorized" not in discovered.text.lower()


async def test_the_trail_names_a_key_by_its_id_and_no_place_has_its_secret(tmp_path: Path) -> None:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger("waypost")
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        async with service(tmp_path, store="sqlite") as bench:
            made = await create(bench)
            client = bench.client(made["key"])
            await client.post("/api/v1/agents", json=profile("a"))
            await bench.client(made["key"] + "x").get("/api/v1/agents")
            await bench.admin().delete(f"/api/v1/apikeys/{made['id']}")
            trail = (await bench.admin().get("/api/v1/audit")).json()["entries"]
            metrics = (await bench.admin().get("/metrics")).text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    name = f"apikey:{made['id']}"
    assert [(row["action"], row["object"], row["credential"]) for row in trail] == [
        ("create", name, "admin"),
        ("register", "a", name),
        ("revoke", name, "admin"),
    ]
    secret = made["key"].split("_", 2)[2]
    for place in (str(trail), metrics, text.getvalue()):
        assert secret not in place
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert secret.encode() not in content(path), path.name


async def test_only_an_admin_manages_keys(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for client, status in ((bench.as_("alice"), 403), (bench.anonymous(), 401)):
            assert (await client.get("/api/v1/apikeys")).status_code == status
            asked = await client.post("/api/v1/apikeys", json={"sub": "a", "scopes": [READ]})
            assert asked.status_code == status
            assert (await client.delete("/api/v1/apikeys/0000000000000000")).status_code == status


async def test_a_service_without_authentication_makes_no_key(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        for client in (bench.anonymous(), bench.admin()):
            refused = await client.post("/api/v1/apikeys", json={"sub": "a", "scopes": ["admin"]})
            assert refused.status_code == 403
            assert "wp_" not in refused.text
        assert (await bench.admin().get("/api/v1/apikeys")).json() == {"apikeys": []}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"scopes": [READ]}, "$.sub"),
        ({"sub": "", "scopes": [READ]}, "$.sub"),
        ({"sub": "a\nb", "scopes": [READ]}, "$.sub"),
        ({"sub": "a"}, "$.scopes"),
        ({"sub": "a", "scopes": []}, "$.scopes"),
        ({"sub": "a", "scopes": ["everything"]}, "$.scopes"),
        ({"sub": "a", "scopes": READ}, "$.scopes"),
        ({"sub": "a", "scopes": [READ], "ttl_seconds": 0}, "$.ttl_seconds"),
        ({"sub": "a", "scopes": [READ], "ttl_seconds": -5}, "$.ttl_seconds"),
        ({"sub": "a", "scopes": [READ], "ttl_seconds": True}, "$.ttl_seconds"),
        ({"sub": "a", "scopes": [READ], "ttl_seconds": "soon"}, "$.ttl_seconds"),
        ({"sub": "a", "scopes": [READ], "ttl_seconds": 10**12}, "$.ttl_seconds"),
        ({"sub": "a", "scopes": [READ], "lifetime": "90d"}, "$.lifetime"),
        ({"sub": "a", "scopes": [READ], "ttl": "soon"}, "$.ttl"),
        ({"sub": "a", "scopes": [READ], "ttl": 90}, "$.ttl"),
        ({"sub": "a", "scopes": [READ], "ttl": "90d", "ttl_seconds": 60}, "$.ttl"),
        ({"sub": "a", "scopes": [READ], "note": 7}, "$.note"),
        ({"sub": "a", "scopes": [READ], "note": "x" * (limits.API_KEY_NOTE_CHARS + 1)}, "$.note"),
    ],
)
async def test_a_wrong_request_is_told_what_is_wrong(tmp_path: Path, body: dict[str, Any], path: str) -> None:
    async with service(tmp_path) as bench:
        refused = await bench.admin().post("/api/v1/apikeys", json=body)
        assert (refused.status_code, refused.json()["path"]) == (400, path)
        assert (await bench.admin().get("/api/v1/apikeys")).json() == {"apikeys": []}


async def test_a_lifetime_may_have_a_unit(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        made = await create(bench, ttl="90d")
        assert made["expires_at"] == to_rfc3339(NOW + 90 * 86_400)


def test_a_key_revoked_through_one_process_is_refused_by_the_other_at_once() -> None:
    with running_server("--workers", "2") as server, both(server) as (writer, follower):
        for number in range(10):
            asked, told = (writer, follower) if number % 2 else (follower, writer)
            made = told.post("/api/v1/apikeys", json={"sub": "ci", "scopes": [READ]}).json()
            headers = {"Authorization": f"Bearer {made['key']}"}
            assert asked.get("/api/v1/stats", headers=headers).status_code == 200
            assert told.delete(f"/api/v1/apikeys/{made['id']}").status_code == 204
            assert asked.get("/api/v1/stats", headers=headers).status_code == 401
        token = told.post("/api/v1/tokens", json={"sub": "ci", "scopes": [READ]}).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        assert follower.get("/api/v1/stats", headers=headers).status_code == 200
        token_id = parse_object(decode_base64url(token.split(".")[1]))["jti"]
        assert writer.post("/api/v1/keys:revoke", json={"token_id": token_id}).status_code == 200
        assert follower.get("/api/v1/stats", headers=headers).status_code == 401, "tokens are revoked at once, too"


async def test_a_key_opens_a_websocket_and_its_revocation_closes_it(tmp_path: Path) -> None:
    async with socket_service(tmp_path, recheck_seconds=0.05) as sockets:
        made = await create(sockets.bench)
        session = await sockets.session_with(made["key"])
        assert (await sockets.bench.admin().delete(f"/api/v1/apikeys/{made['id']}")).status_code == 204
        await asyncio.wait_for(session.connection.wait_closed(), 20)
        with pytest.raises(InvalidStatus) as refused:
            await sockets.session_with(made["key"])
        assert refused.value.response.status_code == 401
