"""`keep`: an agent is registered while a block runs, its lease is renewed, and it is withdrawn at the end."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.server import RunningServer, clean_environment, running_server, start_server, stop_server
from waypost import Client, SyncClient
from waypost.client.keep import KeptAgent
from waypost.errors import NotFound, OwnerConflict

PATIENCE_SECONDS = 60.0
SHORTEST_LEASE = 10  # renewed after three seconds


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--store", "memory", "--no-health-checks") as running:
        yield running


def document(name: str) -> dict[str, Any]:
    return {
        "id": f"https://agents.example.net/{name}",
        "name": name,
        "description": "Is kept.",
        "bindings": [{"protocol": "https", "endpoint": "https://agents.example.net/invoke"}],
    }


async def test_an_agent_is_kept_during_the_block(server: RunningServer) -> None:
    changes: asyncio.Queue[KeptAgent] = asyncio.Queue()
    async with Client(server.url, server.admin_token) as wp:
        async with wp.keep(document("kept"), ttl_seconds=SHORTEST_LEASE, on_change=changes.put_nowait) as agent:
            first = agent.receipt.expires_at or ""
            renewed = await asyncio.wait_for(changes.get(), PATIENCE_SECONDS)
            assert (renewed, renewed.error) == (agent, None)
            assert (renewed.receipt.expires_at or "") > first
            await wp.withdraw(agent.id)  # a service that lost the agent gets it again
            await asyncio.wait_for(changes.get(), PATIENCE_SECONDS)
            assert (await wp.get(agent.id)).name == "kept"
        with pytest.raises(NotFound):
            await wp.get(agent.id)


async def test_an_agent_is_kept_over_a_restart_that_loses_it(tmp_path: Path) -> None:
    """Renewals fail while the service is away; then the agent is registered again, though the service knows nothing of it."""
    first = start_server("--store", "memory", "--no-health-checks", folder=tmp_path)
    changes: asyncio.Queue[KeptAgent] = asyncio.Queue()
    async with (
        asyncio.timeout(4 * PATIENCE_SECONDS),
        Client(first.url, first.admin_token) as wp,
        wp.keep(document("restarted"), ttl_seconds=SHORTEST_LEASE, on_change=changes.put_nowait) as agent,
    ):
        stop_server(first)
        while (await changes.get()).error is None:
            pass
        assert (agent.is_lost, repr(agent).split()[-1]) == (False, "failing>")
        port = first.url.rsplit(":", 1)[1]
        again = start_server(
            "--store", "memory", "--no-health-checks", "--port", port, folder=tmp_path, data=first.data
        )
        try:
            while (await changes.get()).error is not None:
                pass
            assert agent.receipt.outcome == "created"
            assert (await wp.get(agent.id)).name == "restarted"
        finally:
            stop_server(again)
    # Leaving the block while the service is away raises nothing: the lease ends by itself.


async def test_an_error_in_the_block_withdraws_the_agent(server: RunningServer) -> None:
    async with Client(server.url, server.admin_token) as wp:
        with pytest.raises(ZeroDivisionError):
            async with wp.keep(document("failing")) as agent:
                raise ZeroDivisionError
        with pytest.raises(NotFound):
            await wp.get(agent.id)


def test_a_thread_renews_for_the_blocking_client(server: RunningServer) -> None:
    changes: queue.Queue[KeptAgent] = queue.Queue()
    with SyncClient(server.url, server.admin_token) as wp:
        with wp.keep(document("blocking"), ttl_seconds=SHORTEST_LEASE, on_change=changes.put) as agent:
            first = agent.receipt.expires_at or ""
            changes.get(timeout=PATIENCE_SECONDS)
            assert (agent.receipt.expires_at or "") > first
            assert repr(agent) == "<KeptAgent 'https://agents.example.net/blocking' registered>"
        with pytest.raises(NotFound):
            wp.get(agent.id)


def test_an_agent_that_the_service_refuses_is_lost(server: RunningServer) -> None:
    changes: queue.Queue[KeptAgent] = queue.Queue()
    with SyncClient(server.url, server.admin_token) as admin:
        alice = admin.mint_token("alice", ("discover:read", "discover:write")).token
        bob = admin.mint_token("bob", ("discover:read", "discover:write")).token
        with SyncClient(server.url, alice) as wp, SyncClient(server.url, bob) as other:
            with wp.keep(document("taken"), ttl_seconds=SHORTEST_LEASE, on_change=changes.put) as agent:
                admin.withdraw(agent.id)
                other.register(document("taken"))
                lost = changes.get(timeout=PATIENCE_SECONDS)
                assert lost.is_lost
            assert other.get(agent.id).name == "taken"  # that of another owner is not withdrawn
            with pytest.raises(OwnerConflict):
                wp.register({**document("taken"), "description": "Mine."})


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_the_command_withdraws_on_a_signal(server: RunningServer, tmp_path: Path, sent: signal.Signals) -> None:
    name = f"command-{sent.value}"
    (tmp_path / "agent.json").write_text(json.dumps(document(name)))
    command = [sys.executable, "-m", "waypost", "register", "agent.json", "--keep", "-o", "jsonl"]
    environment = clean_environment(server.environment())
    with (
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process,
        SyncClient(server.url, server.admin_token) as wp,
    ):
        assert process.stdout is not None
        receipt = json.loads(process.stdout.readline())
        assert (receipt["outcome"], receipt["ttl_seconds"]) == ("created", 60)
        assert wp.get(name).id == receipt["id"]
        process.send_signal(sent)
        assert process.wait(PATIENCE_SECONDS) == 0
        with pytest.raises(NotFound):
            wp.get(receipt["id"])


def test_an_address_that_the_service_fetches_cannot_be_kept(server: RunningServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "waypost", "register", "https://agents.example.net", "--keep"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(server.environment()), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 64
    assert "--local" in ran.stderr
