"""Metrics and readiness of tasks, swarms, invitations and conversations."""

from __future__ import annotations

from pathlib import Path

from support.service import profile, service


async def test_a_service_that_can_keep_no_tasks_is_not_ready(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        assert (await bench.anonymous().get("/readyz")).status_code == 200
        await bench.application.key_value_store.close()
        refused = await bench.anonymous().get("/readyz")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        assert "accepts no writes" in refused.json()["message"]
        assert (await bench.anonymous().get("/healthz")).status_code == 200


async def test_only_admin_sees_the_totals(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        assert (await alice.post("/api/v1/agents", json=profile("urn:agent:vault"))).is_success
        for number in range(3):
            sent = await alice.post("/agent/tasks?agent=urn:agent:vault", json={"task": "read", "input": number})
            assert sent.status_code == 202, sent.text
        joined = await alice.post("/agent/swarm/join", json={"agent": "agent:alice.example.com", "task": "analysis"})
        assert joined.is_success, joined.text
        figures = _figures((await bench.admin().get("/metrics")).text)
        names = ("tasks_open", "swarms", "invitations", "conversations", "held_lines", "deliveries_waiting")
        assert [figures[f"waypost_{name}"] for name in names] == [3, 1, 0, 0, 0, 0]
        assert "waypost_tasks_open" not in (await alice.get("/metrics")).text


def _figures(text: str) -> dict[str, float]:
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}
