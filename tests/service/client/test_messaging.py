"""Tasks, swarms and invitations in the SDK, and a worker that does the tasks of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.service import Bench, profile, service
from support.signing import key_of
from waypost.client.aio.client import Client
from waypost.client.identity import AgentSigner
from waypost.client.tasks import serve_tasks
from waypost.errors import BadSignature, Conflict, InvalidParameter, NotFound, Timeout, Unauthorized
from waypost.responses.messaging import LeasedTask

AGENT = "https://agents.example.net/id/minimal"
WAIT_SECONDS = 60.0


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as made:
        yield made


def client(bench: Bench, subject: str) -> Client:
    transport = httpx2.ASGITransport(bench.application.http_app)
    return Client(bench.application.base_url, token=bench.token(subject), transport=transport)


async def test_a_task_is_sent_waited_for_and_cancelled(bench: Bench) -> None:
    async with client(bench, "alice") as alice:
        sent = await alice.send_task("echo", {"n": 1}, idempotency_key="once")
        assert sent.status == "accepted"
        assert sent.status_url.endswith(sent.task_id)
        done = await alice.wait_task(sent.task_id, WAIT_SECONDS)
        assert (done.status, done.result, done.is_done) == ("succeeded", {"n": 1}, True)
        assert (await alice.send_task("echo", {"n": 1}, idempotency_key="once")).task_id == sent.task_id
        await alice.register(profile(AGENT))
        kept = await alice.send_task("read", agent=AGENT)
        assert [task.task_id for task in await alice.list_tasks()] == [kept.task_id]
        with pytest.raises(Timeout):
            await alice.wait_task(kept.task_id, 0)
        assert (await alice.cancel_task(kept.task_id)).status == "cancelled"
        with pytest.raises(Conflict):
            await alice.cancel_task(sent.task_id)
        with pytest.raises(InvalidParameter):
            await alice.send_task("sing")


async def test_a_worker_does_the_tasks_of_its_agent(bench: Bench) -> None:
    async def double(work: LeasedTask) -> Any:
        return work.input * 2

    async def fail(work: LeasedTask) -> Any:
        raise ValueError(work.input)

    async with client(bench, "alice") as alice, client(bench, "bob") as bob:
        await alice.register(profile(AGENT))
        working = asyncio.create_task(
            serve_tasks(alice, AGENT, {"double": double, "fail": fail}, at_once=2, lease_seconds=60)
        )
        numbers = [await bob.send_task("double", number, agent=AGENT) for number in range(5)]
        others = [await bob.send_task(name, 1, agent=AGENT) for name in ("fail", "unknown")]
        done = [await bob.wait_task(sent.task_id, WAIT_SECONDS) for sent in numbers]
        assert [status.result for status in done] == [0, 2, 4, 6, 8]
        failed = [await bob.wait_task(sent.task_id, WAIT_SECONDS) for sent in others]
        assert [status.error.code if status.error else "" for status in failed] == ["failed", "unknown_task"]
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working


async def test_an_agent_signs_instead_of_showing_a_token(bench: Bench) -> None:
    agent, key = "agent:bob.example.com", key_of()
    pinned = {"agent_id": agent, "public_key": key.public.pem()}
    assert (await bench.admin().post("/api/v1/keys", json=pinned)).is_success
    transport = httpx2.ASGITransport(bench.application.http_app)
    signer = AgentSigner(agent, key, now=bench.clock.now)
    async with Client(bench.application.base_url, signer=signer, transport=transport) as bob:
        sent = await bob.send_task("echo", 7)
        assert (await bob.wait_task(sent.task_id, WAIT_SECONDS)).result == 7
        joined = await bob.join_swarm(agent, "analysis")
        assert [member.agent for member in joined.members] == [agent]
        with pytest.raises(Unauthorized):
            await bob.invite(AGENT)
    other = AgentSigner(agent, key_of(number=1), now=bench.clock.now)
    async with Client(bench.application.base_url, signer=other, transport=transport) as mallory:
        with pytest.raises(BadSignature):
            await mallory.send_task("echo", 7)


async def test_a_swarm_from_python(bench: Bench) -> None:
    async with client(bench, "alice") as alice:
        joined = await alice.join_swarm("agent:bob.example.com", "analysis")
        assert [member.role for member in joined.members] == ["participant"]
        told = await alice.broadcast(joined.swarm_id, "agent:bob.example.com", "hello")
        assert (told.number, told.from_) == (1, "agent:bob.example.com")
        assert [each.content for each in await alice.swarm_messages(joined.swarm_id)] == ["hello"]
        assert [swarm.task for swarm in await alice.list_swarms()] == ["analysis"]
        assert (await alice.swarm_members(joined.swarm_id)).messages == 1
        assert (await alice.leave_swarm(joined.swarm_id, "agent:bob.example.com")).members == ()


async def test_an_invitation_from_python(bench: Bench) -> None:
    async with client(bench, "alice") as alice, client(bench, "bob") as bob:
        await alice.register(profile(AGENT), visibility="private")
        await bench.admin().post(f"/api/v1/agents/{AGENT.replace('/', '%2F')}:host", json={"domain": "a.example.com"})
        with pytest.raises(NotFound):
            await bob.get(AGENT)
        made = await alice.invite(AGENT, uses=2)
        assert made.code
        assert made.invitation is not None
        redeemed = await bob.redeem(made.invitation)
        assert (redeemed.agent, redeemed.shared) == ("agent:a.example.com", True)
        assert (await bob.get(AGENT)).id == AGENT
        await alice.revoke_invitation(made.id)
        (listed,) = await alice.list_invitations(AGENT)
        assert (listed.state, listed.code) == ("revoked", None)
        async with client(bench, "carol") as carol:
            with pytest.raises(NotFound):
                await carol.redeem(made.code)
