"""Versions of messages (announce.md §8)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from support.announce import AGENT_ID, announce, announcement, error_of, key
from support.service import NOW, service

ONE = key("one")


def make_announcement(version: Any, seq: int = 1, at: float = NOW) -> dict[str, Any]:
    return {**announcement(ONE, seq=seq, at=at), "protocol_version": version}


@pytest.mark.req("ANN-50")
@pytest.mark.parametrize("version", ["v2.0", "v2.7", "v10.0"])
async def test_a_higher_major_is_not_processed_and_gets_our_version(tmp_path: Path, version: str) -> None:
    async with service(tmp_path) as bench:
        for sent in (make_announcement(version), {"protocol_version": version, "query": {"capability": "*"}}):
            answer = await announce(bench.admin(), sent)
            assert error_of(answer)[:2] == (400, "ErrUnsupportedVersion")
            assert answer.json()["supported"] == ["v1.1", "v1.0"]
            assert answer.json()["protocol_version"] == "v1.0"
            assert "retry-after" not in answer.headers
        assert (await bench.admin().get("/agents")).json()["agents"] == []
        other_face = await bench.admin().post("/api/v1/agents", json=make_announcement(version))
        assert (other_face.status_code, other_face.json()["supported"]) == (400, ["v1.1", "v1.0"])


@pytest.mark.req("ANN-50")
@pytest.mark.parametrize("version", ["v0.9", "1.0", "v1", "v1.0.0", "V1.0", "v1.x", "v１.0", "", None, 1.0, ["v1.0"]])
async def test_an_invalid_protocol_version_is_malformed(tmp_path: Path, version: Any) -> None:
    async with service(tmp_path) as bench:
        assert error_of(await announce(bench.admin(), make_announcement(version)))[:2] == (400, "ErrMalformedPayload")


@pytest.mark.req("ANN-51")
async def test_another_minor_is_processed_and_logged_once_an_hour_per_peer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> int:
        return sum("uses protocol version v1." in record.getMessage() for record in caplog.records)

    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/allow", json={"rule": "*"})
        with caplog.at_level(logging.WARNING, "waypost.announce"):
            alice = bench.as_("alice")
            first = await announce(alice, make_announcement("v1.1"))
            assert (first.status_code, first.json()["protocol_version"]) == (200, "v1.1")
            assert (await alice.get(f"/agents/{AGENT_ID}")).json()["protocol_version"] == "v1.0"
            assert warned() == 1
            later = await announce(alice, make_announcement("v1.7", seq=2))
            assert (later.status_code, later.json()["protocol_version"]) == (200, "v1.1")
            assert warned() == 1
            await bench.as_("bob").post("/agents", json={"protocol_version": "v1.1", "query": {"capability": "*"}})
            assert warned() == 2, "another peer"
            bench.clock.advance(3600)
            await announce(bench.as_("alice"), make_announcement("v1.1", seq=3, at=NOW + 3600))
            assert warned() == 3
