"""A data folder that release 0.1 wrote opens with today's code and holds the same state.

`scripts/make_upgrade_data.py` made the archive with the code of 0.1; `manifest.json` in it is what 0.1 answered.
"""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.server_sent_events import read_events
from support.service import Bench, service
from waypost.net.clock import ManualClock
from waypost.trust.transparency_log import parse_verifier_key, verify_checkpoint, verify_consistency

ARCHIVE = Path(__file__).resolve().parents[1] / "data" / "upgrade" / "0.1.tar.xz"
ORIGIN = "https://agents.example.net/id"
OWN_DIALECTS = {
    f"{ORIGIN}/translator": "profile",
    f"{ORIGIN}/signed": "profile",
    "https://recipes.example.com/a2a": "a2a",
    "io.github.example/files": "mcp",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "data").chmod(0o700)
    return tmp_path


@pytest.fixture
def manifest(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert read["release"] == "0.1.0"
    return read


@pytest.fixture
async def bench(folder: Path, manifest: dict[str, Any]) -> AsyncIterator[Bench]:
    clock = ManualClock(manifest["now"] + 60)  # tokens and leases of 0.1 are still valid
    async with service(folder / "data", store="sqlite", clock=clock) as made:
        yield made


async def listed(client: httpx2.AsyncClient, **params: str) -> list[str]:
    answer = await client.get("/api/v1/agents", params={"limit": "200", **params})
    assert answer.status_code == 200, answer.text
    return sorted(agent["id"] for agent in answer.json()["agents"])


def path_of(agent_id: str) -> str:
    return f"/api/v1/agents/{agent_id.replace('/', '%2F')}"


async def test_every_agent_is_listed_for_the_same_subjects(bench: Bench, manifest: dict[str, Any]) -> None:
    tokens = {**manifest["tokens"], "admin": bench.admin_token}
    assert set(tokens) == set(manifest["listed"])
    for subject, token in tokens.items():
        assert await listed(bench.client(token)) == manifest["listed"][subject], subject


async def test_every_agent_has_the_same_record_and_etag(bench: Bench, manifest: dict[str, Any]) -> None:
    for agent_id, forms in manifest["agents"].items():
        answer = await bench.admin().get(path_of(agent_id), params={"as": "profile"})
        assert answer.json() == json.loads(forms["profile"]["body"]), agent_id
        assert answer.headers["ETag"] == forms["profile"]["etag"], agent_id


async def test_every_document_is_returned_byte_for_byte(bench: Bench, manifest: dict[str, Any]) -> None:
    for agent_id, dialect in OWN_DIALECTS.items():
        answer = await bench.admin().get(path_of(agent_id), params={"as": dialect})
        assert answer.text == manifest["agents"][agent_id][dialect]["body"], agent_id


async def test_a_signed_announcement_keeps_its_signature(bench: Bench, manifest: dict[str, Any]) -> None:
    (agent_id,) = (each for each in manifest["agents"] if each.startswith("urn:uuid:"))
    answer = await bench.admin().get(f"/agents/{agent_id.removeprefix('urn:uuid:')}")
    assert answer.json() == manifest["announced"]
    assert manifest["announced"]["signature"]


async def test_every_agent_has_the_same_owner(bench: Bench, manifest: dict[str, Any]) -> None:
    for owner, agents in manifest["owned"].items():
        assert await listed(bench.admin(), owner=owner) == agents
    translator = json.loads(manifest["agents"][f"{ORIGIN}/translator"]["profile"]["body"])
    changed = {**translator, "description": "Translates invoices into Dutch."}
    refused = await bench.client(manifest["tokens"]["bob"]).post("/api/v1/agents", json=changed)
    assert refused.status_code in (403, 409)
    accepted = await bench.client(manifest["tokens"]["alice"]).post("/api/v1/agents", json=changed)
    assert (accepted.status_code, accepted.json()["outcome"]) == (200, "updated")


async def test_the_admin_token_and_minted_tokens_are_still_valid(bench: Bench, manifest: dict[str, Any]) -> None:
    assert (await bench.admin().get("/api/v1/audit")).status_code == 200
    for token in manifest["tokens"].values():
        assert (await bench.client(token).get("/api/v1/agents")).status_code == 200
        assert (await bench.client(token).get("/api/v1/audit")).status_code == 403


async def test_the_service_has_the_same_identity(bench: Bench, manifest: dict[str, Any]) -> None:
    answer = (await bench.admin().get("/.well-known/agent.json")).json()
    assert answer["identity"] == manifest["identity"]["identity"]


@pytest.mark.parametrize("subject", ["alice", "carol"])
async def test_a_watch_resumes_at_every_cursor(bench: Bench, manifest: dict[str, Any], subject: str) -> None:
    events, token = manifest["watch"][subject], manifest["tokens"][subject]
    new: dict[str, Any] = {"id": f"{ORIGIN}/new", "name": "New", "description": "Came after the upgrade."}
    new["bindings"] = [{"protocol": "https", "endpoint": "https://agents.example.net/new"}]
    created = await bench.admin().post("/api/v1/agents", json=new)
    assert created.status_code == 201, created.text
    expected = [(event["type"], event["id"]) for event in events] + [("registered", f"{ORIGIN}/new")]
    cursors = ["0", *(event["cursor"] for event in events)]
    for start, cursor in enumerate(cursors):
        rest = expected[start:]
        resumed = await read_events(bench.application.http_app, "/api/v1/watch", token, len(rest), **{"from": cursor})
        assert [(event.type, event.data["id"]) for event in resumed] == rest


async def test_a_list_continues_at_its_cursor(bench: Bench, manifest: dict[str, Any]) -> None:
    page = manifest["first_page"]
    answer = await bench.admin().get("/api/v1/agents", params={"limit": "200", "cursor": page["cursor"]})
    rest = [agent["id"] for agent in answer.json()["agents"]]
    assert sorted([*page["ids"], *rest]) == manifest["listed"]["admin"]


async def test_the_audit_trail_is_the_same_and_only_grows(bench: Bench, manifest: dict[str, Any]) -> None:
    admin = bench.admin()
    entries = (await admin.get("/api/v1/audit", params={"limit": "1000"})).json()["entries"]
    size = len(manifest["audit"])
    assert entries[:size] == manifest["audit"]
    before = manifest["checkpoint"]
    verified = verify_checkpoint(before["note"], parse_verifier_key(before["key"]))
    await admin.delete(path_of(f"{ORIGIN}/translator"))
    after = (await admin.get("/api/v1/audit/checkpoint", headers={"Accept": "application/json"})).json()
    assert (after["origin"], after["key"]) == (before["origin"], before["key"])
    assert after["size"] > before["size"]
    proof = await admin.get("/api/v1/audit/proof", params={"from": before["size"], "to": after["size"]})
    hashes = [base64.b64decode(each) for each in proof.json()["hashes"]]
    now = verify_checkpoint(after["note"], parse_verifier_key(after["key"]))
    assert verify_consistency(verified.size, now.size, hashes, verified.root, now.root)


async def test_the_trust_store_is_the_same(bench: Bench, manifest: dict[str, Any]) -> None:
    assert (await bench.admin().get("/api/v1/keys")).json() == manifest["keys"]
    assert (await bench.admin().get("/api/v1/allow")).json() == manifest["allow"]


async def test_earlier_versions_are_kept(bench: Bench, manifest: dict[str, Any]) -> None:
    for agent_id, history in manifest["histories"].items():
        assert (await bench.admin().get(f"{path_of(agent_id)}:history")).json() == history, agent_id


async def test_an_invitation_can_be_redeemed_once(bench: Bench, manifest: dict[str, Any]) -> None:
    code = manifest["invitation"]["invitation"]
    carol = bench.client(manifest["tokens"]["carol"])
    assert (await carol.get(path_of(f"{ORIGIN}/draft"))).status_code == 404
    redeemed = await carol.post("/api/v1/invitations:redeem", json=code)
    assert redeemed.status_code == 200, redeemed.text
    assert (await carol.get(path_of(f"{ORIGIN}/draft"))).status_code == 200
    again = await bench.as_("dave").post("/api/v1/invitations:redeem", json=code)
    assert again.status_code >= 400


async def test_agents_are_found(bench: Bench) -> None:
    answer = await bench.as_("dave").post("/profile/v1/discover", json={"query": "translate an invoice into French"})
    assert answer.json()["candidates"][0]["id"] == f"{ORIGIN}/translator"
