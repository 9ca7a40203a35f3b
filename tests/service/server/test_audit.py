"""The audit trail over HTTP: its entries, its readers, and proofs that verify without trusting the service."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.service import Bench, profile, service
from waypost.responses.trust import AuditTrailPage, LogCheckpoint, LogProof
from waypost.server.http.openapi import answer_schema
from waypost.trust.document_signatures import canonicalize
from waypost.trust.transparency_log import (
    Checkpoint,
    leaf_hash,
    parse_verifier_key,
    verify_checkpoint,
    verify_consistency,
    verify_inclusion,
)

AGENTS = "/api/v1/agents"
ONE = "urn:agent:one"


async def _entries(client: httpx2.AsyncClient, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = 0
    while True:
        page = (await client.get("/api/v1/audit", params={"after": after, "limit": 1000, **asked})).json()
        found += page["entries"]
        if "next_after" not in page:
            return found
        after = page["next_after"]


async def _checkpoint(client: httpx2.AsyncClient) -> Checkpoint:
    told = (await client.get("/api/v1/audit/checkpoint", headers={"Accept": "application/json"})).json()
    return verify_checkpoint(told["note"], parse_verifier_key(told["key"]))


def _hashes(proof: dict[str, Any]) -> list[bytes]:
    return [base64.b64decode(each) for each in proof["hashes"]]


async def _some_life(bench: Bench) -> None:
    alice, admin = bench.as_("alice"), bench.admin()
    await alice.post(AGENTS, json=profile(ONE), headers={"Waypost-Visibility": "private"})
    await alice.post(AGENTS, json=profile(ONE, description="Answers long questions, and private ones."))
    await alice.post(AGENTS, json=profile(ONE, description="Answers long questions, and private ones."))
    await admin.post(f"{AGENTS}/{ONE}:host", json={"domain": "one.example"})
    await admin.post("/api/v1/tokens", json={"sub": "bob", "scopes": ["discover:read"], "ttl_seconds": 60})
    await alice.post(f"{AGENTS}?ttl_seconds=10", json=profile("urn:agent:two"))
    await alice.post(f"{AGENTS}/urn:agent:two:renew", json={"ttl_seconds": 20})
    bench.clock.advance(30)
    await bench.registry.leader.expire_leases()
    await alice.delete(f"{AGENTS}/{ONE}")


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_every_change_but_a_renewal_is_one_audit_entry(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as bench:
        await _some_life(bench)
        entries = await _entries(bench.admin())
        told = [(each["action"], each.get("object"), each["subject"], each.get("outcome")) for each in entries]
        assert told == [
            ("register", ONE, "alice", "created"),
            ("update", ONE, "alice", "updated"),
            ("host", ONE, "admin", "updated"),
            ("mint", "bob", "admin", "minted"),
            ("register", "urn:agent:two", "alice", "created"),
            ("expire", "urn:agent:two", "", "expired"),
            ("withdraw", ONE, "alice", "withdrawn"),
        ]
        assert [each["number"] for each in entries] == [1, 2, 3, 4, 5, 6, 7]
        assert entries[0]["credential"].startswith("jwt:")
        assert entries[2]["credential"] == "admin"
        assert entries[0]["at"].startswith("2026-")
        assert entries[0]["etag"] != entries[1]["etag"]


async def test_no_document_no_token_and_no_text_of_a_record_is_in_the_trail(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await _some_life(bench)
        minted = await bench.admin().post("/api/v1/tokens", json={"sub": "eve", "scopes": ["discover:read"]})
        await bench.as_("alice").get("/api/v1/agents?tag=secret-word")
        trail = (await bench.admin().get("/api/v1/audit")).text
        assert minted.json()["token"] not in trail
        for private in ("private ones", "short factual", "secret-word", "https://example.net", bench.admin_token):
            assert private not in trail


async def test_only_admins_read_the_trail(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        for path in ("/api/v1/audit", "/api/v1/audit/checkpoint", "/api/v1/audit/proof?entry=1"):
            assert (await bench.anonymous().get(path)).status_code == 401
            assert (await bench.as_("alice").get(path)).status_code == 403


async def test_entries_are_filtered_and_paged(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await _some_life(bench)
        assert [each["number"] for each in await _entries(admin, object=ONE)] == [1, 2, 3, 7]
        assert [each["number"] for each in await _entries(admin, subject="admin", action="mint")] == [4]
        page = (await admin.get("/api/v1/audit?limit=3&after=2")).json()
        assert [each["number"] for each in page["entries"]] == [3, 4, 5]
        assert (page["size"], page["next_after"]) == (7, 5)
        for bad in ("after=-1", "after=x", "limit=0", "limit=1001", "subject=", f"object={'x' * 1025}"):
            answer = await admin.get(f"/api/v1/audit?{bad}")
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), bad


async def test_a_checkpoint_is_a_signed_note_of_the_service_key(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post(AGENTS, json=profile(ONE))
        plain = await admin.get("/api/v1/audit/checkpoint")
        assert plain.headers["content-type"] == "text/plain; charset=utf-8"
        assert plain.headers["cache-control"] == "no-store"
        told = (await admin.get("/api/v1/audit/checkpoint", headers={"Accept": "application/json"})).json()
        assert told["note"] == plain.text
        assert (told["size"], told["origin"]) == (1, plain.text.split("\n")[0])
        assert verify_checkpoint(plain.text, parse_verifier_key(told["key"])).size == 1
        card = (await admin.get("/.well-known/agent.json")).json()
        spki = card["identity"]["publicKey"]["full"].split("\n")[1]
        assert base64.b64decode(spki)[-32:] == parse_verifier_key(told["key"]).raw
        refused = await admin.get("/api/v1/audit/checkpoint", headers={"Accept": "image/png"})
        assert refused.status_code == 406


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_proofs_verify_against_the_checkpoint_alone(tmp_path: Path, store: str) -> None:
    async with service(tmp_path, store=store) as bench:
        admin = bench.admin()
        empty = await _checkpoint(admin)
        await admin.post(f"{AGENTS}:batch", content="\n".join(_lines(300)))
        before = await _checkpoint(admin)
        await admin.post(f"{AGENTS}:batch", content="\n".join(_lines(500)))
        now = await _checkpoint(admin)
        assert (empty.size, before.size, now.size) == (0, 300, 500)
        for first in (empty, before, now):
            proof = (await admin.get(f"/api/v1/audit/proof?from={first.size}&to={now.size}")).json()
            assert verify_consistency(first.size, now.size, _hashes(proof), first.root, now.root)
        for entry in (await _entries(admin))[::50]:
            for tree in (before, now):
                if entry["number"] <= tree.size:
                    asked = {"entry": entry["number"], "size": tree.size}
                    proof = (await admin.get("/api/v1/audit/proof", params=asked)).json()
                    leaf = leaf_hash(canonicalize(entry))
                    assert verify_inclusion(leaf, entry["number"] - 1, tree.size, _hashes(proof), tree.root)


def _lines(count: int) -> list[str]:
    return [
        f'{{"id":"urn:agent:{n}","name":"N","description":"D","bindings":[{{"protocol":"https","endpoint":"https://e.example"}}]}}'
        for n in range(count)
    ]


async def test_answers_fit_their_shapes(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await _some_life(bench)
        asked = {
            "/api/v1/audit?limit=2": answer_schema(AuditTrailPage),
            "/api/v1/audit/checkpoint": answer_schema(LogCheckpoint),
            "/api/v1/audit/proof?entry=3": answer_schema(LogProof),
            "/api/v1/audit/proof?from=3": answer_schema(LogProof),
        }
        for path, shape in asked.items():
            answer = await bench.admin().get(path, headers={"Accept": "application/json"})
            jsonschema.validate(answer.json(), shape)
            assert set(answer.json()) <= set(shape["properties"])


async def test_a_proof_of_a_missing_entry_is_refused_with_the_parameter(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        admin = bench.admin()
        await admin.post(AGENTS, json=profile(ONE))
        for asked, path in {
            "": "entry",
            "entry=1&from=1": "entry",
            "entry=0": "entry",
            "entry=2": "entry",
            "entry=1&size=2": "size",
            "from=2": "from",
            "from=0&to=2": "to",
            "entry=x": "entry",
            f"entry={'9' * 30}": "entry",
        }.items():
            answer = await admin.get(f"/api/v1/audit/proof?{asked}")
            assert (answer.status_code, answer.json()["path"]) == (400, path), asked


async def test_the_contents_of_old_entries_go_and_their_hashes_stay(tmp_path: Path) -> None:
    async with service(tmp_path, audit_keep=1000) as bench:
        admin = bench.admin()
        await admin.post(f"{AGENTS}:batch", content="\n".join(_lines(300)))
        before = await _checkpoint(admin)
        await admin.post(f"{AGENTS}:batch", content="\n".join(_lines(1400)[300:]))
        await bench.registry.leader.prune()
        page = (await admin.get("/api/v1/audit?limit=1")).json()
        assert (page["entries"][0]["number"], page["oldest"], page["size"]) == (257, 257, 1400)
        now = await _checkpoint(admin)
        proof = (await admin.get("/api/v1/audit/proof?from=300")).json()
        assert verify_consistency(300, 1400, _hashes(proof), before.root, now.root)
