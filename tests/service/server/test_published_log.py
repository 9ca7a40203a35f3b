"""The published log (E17): anyone may witness it, and it tells nothing of hidden agents."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.server import running_server
from support.service import profile, service
from waypost import limits
from waypost.cli.main import main
from waypost.model.json import dump_json
from waypost.trust.transparency_log import (
    Checkpoint,
    leaf_hash,
    parse_verifier_key,
    verify_checkpoint,
    verify_consistency,
    verify_inclusion,
)

HOUR = limits.PUBLISH_SECONDS


async def _checkpoint(client: httpx2.AsyncClient) -> Checkpoint:
    told = (await client.get("/audit/checkpoint", headers={"Accept": "application/json"})).json()
    return verify_checkpoint(told["note"], parse_verifier_key(told["key"]))


async def _proof(client: httpx2.AsyncClient, **params: int) -> dict[str, Any]:
    answer = await client.get("/audit/proof", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    found["hashes"] = [base64.b64decode(each) for each in found["hashes"]]
    return found


async def test_the_log_grows_with_time_alone(tmp_path: Path) -> None:
    """An hour with many private agents looks like an hour without any."""
    sizes = []
    for count in (0, 20):
        async with service(tmp_path / str(count), store="sqlite") as bench:
            for hour in range(5):
                for number in range(count):
                    document = profile(f"urn:agent:{hour}-{number}")
                    await bench.as_("alice").post(
                        "/api/v1/agents", json=document, headers={"Waypost-Visibility": "private"}
                    )
                bench.clock.advance(HOUR)
                assert await bench.application.published_log.publish_if_due()
                assert not await bench.application.published_log.publish_if_due()
            sizes.append((await _checkpoint(bench.anonymous())).size)
    assert sizes == [6, 6]


async def test_anyone_verifies_that_the_log_only_grew(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        open_, seen = bench.anonymous(), []
        for _ in range(9):
            seen.append(await _checkpoint(open_))
            bench.clock.advance(HOUR)
            await bench.application.published_log.publish_if_due()
        last = await _checkpoint(open_)
        for before in seen:
            proof = await _proof(open_, **{"from": before.size, "to": last.size})
            assert verify_consistency(before.size, last.size, proof["hashes"], before.root, last.root)
        assert last.origin.endswith("/published")
    async with service(tmp_path, store="sqlite", clock=bench.clock) as bench:
        assert await _checkpoint(bench.anonymous()) == last, "a restart changed it"


async def test_an_admin_opens_a_leaf_and_nobody_else_can(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        await bench.as_("alice").post("/api/v1/agents", json=profile("urn:agent:1"))
        bench.clock.advance(HOUR)
        await bench.application.published_log.publish_if_due()
        assert (await bench.anonymous().get("/api/v1/audit/published")).status_code == 401
        assert (await bench.as_("alice").get("/api/v1/audit/published")).status_code == 403
        opened = (await bench.admin().get("/api/v1/audit/published")).json()
        checkpoint = await _checkpoint(bench.anonymous())
        for leaf in opened["leaves"]:
            text = Checkpoint(opened["origin"], leaf["size"], base64.b64decode(leaf["root"])).text().encode()
            commitment = hashlib.sha256(base64.b64decode(leaf["nonce"]) + text).hexdigest()
            content = dump_json({"at": leaf["at"], "commitment": commitment})
            proof = await _proof(bench.anonymous(), entry=leaf["number"], size=checkpoint.size)
            assert verify_inclusion(
                leaf_hash(content), leaf["number"] - 1, checkpoint.size, proof["hashes"], checkpoint.root
            )
        assert [leaf["size"] for leaf in opened["leaves"]] == [0, 1]


async def test_the_note_is_plain_text_and_bad_proofs_are_refused(tmp_path: Path) -> None:
    async with service(tmp_path, store="sqlite") as bench:
        note = await bench.anonymous().get("/audit/checkpoint")
        assert note.headers["content-type"].startswith("text/plain")
        origin, size, root, *_ = note.text.split("\n")
        assert (origin.startswith("waypost/"), size, len(base64.b64decode(root))) == (True, "1", 32)
        for params in ({}, {"entry": 9}, {"entry": 1, "size": 9}, {"from": 5}, {"entry": 0}, {"from": 0, "entry": 1}):
            assert (await bench.anonymous().get("/audit/proof", params=params)).status_code == 400, params


def test_the_command_witnesses_without_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_server() as server:
        witness = ["verify", "--log", "--public", "--server", server.url, "--data", str(tmp_path / "witness")]
        assert main(witness) == 0
        assert main(["keys", "rotate", "--service", "identity", "--data", str(server.data)]) == 0
        capsys.readouterr()
        assert main(witness) == 0
        assert "a new key, which the stored one confirms" in capsys.readouterr().out
        assert main(["keys", "rotate", "--service", "identity", "--overlap", "0", "--data", str(server.data)]) == 0
        assert main(witness) == 1
        assert "which the old one does not confirm" in capsys.readouterr().out
