"""Words that stand in private records only, looked for wherever something leaves the service (V7)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from support.service import profile, service
from waypost.model.principal import SCOPE_READ, Principal

CANARY = "quagmirebird"
BOB = Principal(subject="bob", scopes=frozenset((SCOPE_READ,)))


async def test_no_word_of_a_private_record_leaves_by_export_watch_log_or_figures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    private = profile(
        f"https://{CANARY}.example/agent",
        name=f"The {CANARY}",
        description=f"Sings like a {CANARY}.",
        tags=[CANARY],
        bindings=[{"protocol": CANARY, "endpoint": f"https://{CANARY}.example/sing"}],
        constraints={"region": CANARY},
    )
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        hidden = {"Waypost-Visibility": "private"}
        with caplog.at_level(logging.DEBUG):
            assert (await alice.post("/api/v1/agents", json=private, headers=hidden)).status_code == 201
            assert (await alice.post("/api/v1/agents", json=profile())).status_code == 201
            found = await alice.post("/profile/v1/discover", json={"query": CANARY, "required_tags": [CANARY]})
            assert len(found.json()["candidates"]) == 1
            changed = {**private, "version": "2"}
            assert (await alice.post("/api/v1/agents", json=changed, headers=hidden)).status_code == 200
            left = [
                (await bob.get(path)).text
                for path in (
                    "/api/v1/agents:export", "/api/v1/agents:export?as=profile", "/api/v1/agents", "/api/v1/facets",
                    "/api/v1/stats", "/metrics", "/agents", "/agents/revocations", "/.well-known/ai-catalog.json",
                    "/.well-known/agentframework/v1/agents", "/", "/changes", "/openapi.json",
                )
            ]  # fmt: skip
            left.append((await bench.admin().get("/metrics")).text)
        cursor, watch = await bench.registry.open_watch(BOB, "0", renewals=True)
        left.append(repr((cursor, await anext(watch))))
    left += [entry.getMessage() for entry in caplog.records if entry.name.startswith("waypost")]
    assert [text for text in left if CANARY in text.lower()] == []
    assert "Minimal Agent" in left[0], "what is public does leave"
