"""Callbacks are the only addresses that a stranger makes this service call: none leads inside (P6, S1-S9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.external_server import external_server
from support.tasks import TASKS, TaskService, place
from support.vectors import load_own_vectors

VECTORS = load_own_vectors("ssrf_targets")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[TaskService]:
    async with place(tmp_path, allow_cidrs=(), rate_limit_writes=0) as made:
        yield made


async def test_no_callback_reaches_a_denied_address_or_reveals_the_reason(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    async with external_server("0.0.0.0") as canary:
        texts = [text for text in VECTORS["deny_ips"] if "%" not in text]
        for text in texts:
            host = f"[{text}]" if ":" in text else text
            refused = await alice.post(TASKS, json={"task": "echo", "callback": f"https://{host}:{canary.port}/"})
            assert refused.status_code in (400, 422), text
            assert refused.json()["path"] == "$.callback"
        for url in VECTORS["deny_urls"]:
            refused = await alice.post(TASKS, json={"task": "echo", "callback": url})
            assert refused.status_code in (400, 422), url
        where = []
        for number, text in enumerate(texts):
            here.names.set(f"t{number}.test", "AAAA" if ":" in text else "A", [text])
            callback = f"https://t{number}.test:{canary.port}/"
            sent = await alice.post(TASKS, json={"task": "echo", "callback": callback})
            assert sent.status_code == 202
            where.append((await here.ended(alice, sent.headers["location"]), callback))
        for _ in range(5):
            here.bench.clock.advance(300)
            await here.work()
        assert canary.connections == 0
        states = set()
        for status, callback in where:
            told = (await alice.get(f"{TASKS}/{status['taskId']}")).json()["callback"]
            states.add((told["state"], told["url"] == callback, tuple(told)))
        assert states == {("failed", True, ("url", "state"))}


async def test_denied_closed_and_missing_look_alike(here: TaskService) -> None:
    """S1, S9: callbacks cannot be used to scan a network."""
    alice = here.bench.as_("alice")
    here.names.set("inner.test", "A", ["10.0.0.1"])
    told = []
    for name in ("inner.test", "missing.test"):
        sent = await alice.post(TASKS, json={"task": "echo", "callback": f"https://{name}/"})
        await here.ended(alice, sent.headers["location"])
        for _ in range(5):
            here.bench.clock.advance(300)
            await here.work()
        status = (await alice.get(sent.headers["location"])).json()
        told.append({**status["callback"], "url": ""})
    assert told[0] == told[1] == {"url": "", "state": "failed"}


async def test_a_callback_to_the_service_itself_is_refused(tmp_path: Path) -> None:
    """S10."""
    async with place(tmp_path, base_url="https://registry.example.com") as here:
        callback = "https://registry.example.com/agent/webhook"
        answer = await here.bench.as_("alice").post(TASKS, json={"task": "echo", "callback": callback})
        assert answer.status_code == 422


async def test_the_response_of_a_callback_is_not_disclosed(tmp_path: Path) -> None:
    """S9."""
    async with place(tmp_path) as here:
        here.taking.answers = [("200 OK", b"a secret of the inside")]
        alice = here.bench.as_("alice")
        sent = await alice.post(TASKS, json={"task": "echo", "callback": here.callback})
        await here.taking.wait()
        await here.work()
        answer = await alice.get(sent.headers["location"])
        assert answer.json()["callback"]["state"] == "delivered"
        assert "secret" not in answer.text
