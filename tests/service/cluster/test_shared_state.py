"""What one node knows, the others know: tasks, invitations, replay memory, rules, keys of hosted domains, conversations.

The nodes of all tests are the same two: what one test made does not disturb the others."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import httpx2
import pytest

from support.agp import ALICE, BOB, key_of
from support.announce import announcement
from support.announce import key as announce_key
from support.postgresql import PostgresqlServer
from support.server import RunningServer
from support.service import profile
from waypost import Client, LiveAgent
from waypost.client.chat import ChatMessage
from waypost.messaging.request_signatures import sign_request
from waypost.trust.document_signatures import sign_adp_public_key

from .conftest import Cluster

WAIT_SECONDS = 30.0
DOMAIN = "vault.example.com"

Nodes = tuple[RunningServer, RunningServer]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, postgresql: PostgresqlServer) -> Iterator[Nodes]:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path_factory.mktemp("nodes"), postgresql.create_database(), stack)
        yield cluster.start(), cluster.start()


def wait_for(condition: Any) -> Any:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < ends_at, "this took too long"
        time.sleep(0.05)
    return found


def at(node: RunningServer, method: str, path: str, **options: Any) -> httpx2.Response:
    options = {"headers": node.headers, "timeout": 30, **options}
    return httpx2.request(method, f"{node.url}{path}", **options)


# --- Tasks ----------------------------------------------------------------------------------------


def test_a_task_sent_to_one_node_is_done_once_and_its_result_is_on_every_node(nodes: Nodes) -> None:
    first, second = nodes
    tasks = [
        at(node, "POST", "/agent/tasks", json={"task": "echo", "input": number}).json()["taskId"]
        for number, node in enumerate(nodes * 5)
    ]
    for number, task_id in enumerate(tasks):
        for node in nodes:
            found = wait_for(
                lambda: (
                    (status := at(node, "GET", f"/agent/tasks/{task_id}").json())["status"] == "succeeded" and status  # noqa: B023
                )
            )
            assert found["result"] == number
    sent = {**first.headers, "Idempotency-Key": "once"}
    answers = [at(node, "POST", "/agent/tasks", json={"task": "echo"}, headers=sent).json() for node in (first, second)]
    assert answers[0]["taskId"] == answers[1]["taskId"]


def test_a_worker_that_waits_at_one_node_gets_a_task_of_the_other(nodes: Nodes) -> None:
    first, second = nodes
    at(first, "POST", "/api/v1/agents", json=profile("urn:agent:worker"))
    with ThreadPoolExecutor(1) as threads:
        body = {"agent": "urn:agent:worker", "limit": 1, "wait_seconds": 20}
        waiting = threads.submit(at, first, "POST", "/agent/tasks:take", json=body)
        time.sleep(0.5)  # it waits
        sent = at(second, "POST", "/agent/tasks?agent=urn:agent:worker", json={"task": "review", "input": 1}).json()
        (taken,) = waiting.result().json()["tasks"]
    assert taken["taskId"] == sent["taskId"]
    report = {"lease": taken["lease"], "status": "succeeded", "result": 2}
    assert at(second, "POST", f"/agent/tasks/{taken['taskId']}:report", json=report).is_success
    assert at(first, "GET", f"/agent/tasks/{taken['taskId']}").json()["result"] == 2


# --- Once in the whole cluster --------------------------------------------------------------------


def test_an_invitation_made_on_one_node_opens_once_on_any(nodes: Nodes) -> None:
    first, second = nodes
    made = at(first, "POST", "/api/v1/agents", json=profile("urn:agent:vault"), headers=private(first))
    assert made.status_code == 201, made.text
    assert at(first, "POST", "/api/v1/agents/urn:agent:vault:host", json={"domain": DOMAIN}).is_success
    invited = at(first, "POST", "/api/v1/invitations", json={"agent": "urn:agent:vault"})
    assert invited.status_code == 201, invited.text
    code = invited.json()["invitation"]["invite"]["code"]
    headers = {"Host": DOMAIN, "Authorization": f"ADP-Invite {code}"}
    statuses = [
        at(node, "GET", "/.well-known/agent.json", headers=headers).status_code for node in (second, first, second)
    ]
    assert statuses == [200, 404, 404]


def private(node: RunningServer) -> dict[str, str]:
    return {**node.headers, "Waypost-Visibility": "private"}


def test_the_key_of_a_hosted_domain_is_on_every_node(nodes: Nodes) -> None:
    first, second = nodes
    domain = "shop.example.com"
    at(first, "POST", "/api/v1/agents", json=profile("urn:agent:shop"))
    assert at(first, "POST", "/api/v1/agents/urn:agent:shop:host", json={"domain": domain}).is_success
    name = f"keys/hosted/{domain}.pem"
    wait_for((second.data / name).exists)
    assert (second.data / name).read_bytes() == (first.data / name).read_bytes()
    assert (second.data / name).stat().st_mode & 0o777 == 0o600
    keys = {
        json.dumps(at(node, "GET", "/.well-known/agent.json", headers={"Host": domain}).json()["identity"]["publicKey"])
        for node in nodes
    }
    assert len(keys) == 1


def test_a_signed_request_is_accepted_once_in_the_whole_cluster(nodes: Nodes) -> None:
    first, second = nodes
    agent, key = "agent:signer.example.com", key_of("agent:signer.example.com")
    body = {"agent_id": agent, "public_key": key.public.pem()}
    trusted = at(first, "POST", "/api/v1/keys", json=body)
    assert trusted.is_success, trusted.text
    content = json.dumps({"task": "echo", "input": 1}).encode()
    ids = (str(uuid.uuid4()), agent, "agent:127.0.0.1")
    headers = dict(sign_request(key, ids, "POST", "/agent/tasks", time.time(), content))
    headers["Content-Type"] = "application/json"
    answers = [at(node, "POST", "/agent/tasks", content=content, headers=headers) for node in (first, second, first)]
    assert answers[0].status_code == 202, answers[0].text
    assert [answer.status_code for answer in answers[1:]] == [401, 401]


def test_a_replayed_announcement_is_refused_on_the_other_node(nodes: Nodes) -> None:
    first, second = nodes
    agent_id = str(uuid.uuid4())
    messages = [
        announcement(announce_key("a"), seq=seq, at=time.time(), agent_id=agent_id, capabilities={"n": str(seq)})
        for seq in (1, 2)
    ]
    assert at(first, "POST", "/agents", json=messages[0]).is_success
    assert at(second, "POST", "/agents", json=messages[1]).is_success
    refused = at(first, "POST", "/agents", json=messages[0])
    assert refused.status_code == 401
    assert at(first, "GET", f"/agents/{agent_id}").json()["agent"]["capabilities"] == {"n": "2"}


# --- Rules, in the order of the log -------------------------------------------------------------


def test_rules_and_revocations_are_in_force_on_every_node_when_they_are_acknowledged(nodes: Nodes) -> None:
    first, second = nodes
    scopes = ["discover:read", "discover:write"]
    for turn in range(5):
        body = {"sub": f"user-{turn}", "scopes": scopes, "ttl_seconds": 600}
        made = at(first, "POST", "/api/v1/tokens", json=body).json()
        headers = {"Authorization": f"Bearer {made['token']}"}
        message = announcement(announce_key("b"), seq=1, at=time.time(), agent_id=str(uuid.uuid4()))
        rule = message["agent"]["agent_id"]
        assert at(second, "POST", "/agents", json=message, headers=headers).status_code == 403
        assert at(first, "POST", "/api/v1/allow", json={"rule": rule}).is_success
        assert at(second, "POST", "/agents", json=message, headers=headers).is_success
        assert at(second, "DELETE", f"/api/v1/allow/{rule}").is_success
        again = announcement(announce_key("b"), seq=2, at=time.time(), agent_id=rule, capabilities={"n": "2"})
        assert at(first, "POST", "/agents", json=again, headers=headers).status_code == 403
        payload = made["token"].split(".")[1]
        token_id = json.loads(base64.urlsafe_b64decode(payload + "=="))["jti"]
        assert at(first, "POST", "/api/v1/keys:revoke", json={"token_id": token_id}).is_success
        assert at(second, "GET", "/api/v1/agents", headers=headers).status_code == 401


# --- Conversations --------------------------------------------------------------------------------


async def register_speakers(client: Client, chat: str) -> None:
    for agent in (ALICE, BOB):
        domain = agent.removeprefix("agent:")
        public = sign_adp_public_key(key_of(agent), domain)
        await client.keys_trust(agent, key_of(agent).public.pem())
        await client.register(
            {
                "protocol": "ADP/1.1",
                "identity": {"id": agent, "domain": domain, "name": domain, "publicKey": public},
                "endpoints": {"wellKnown": f"https://{domain}/.well-known/agent.json", "chat": chat},
                "capabilities": [{"id": "chat", "name": "Chat"}],
            }
        )


async def test_an_agent_is_reached_through_another_node_than_the_one_that_holds_its_line(nodes: Nodes) -> None:
    first, _ = nodes
    token = first.admin_token
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        client = await stack.enter_async_context(Client(first.url, token))
        await register_speakers(client, f"ws{first.url.removeprefix('http')}/agent/chat")
        bob = LiveAgent(BOB, key_of(BOB), registry=first.url, token=token)

        @bob.on_chat
        async def answer(message: ChatMessage) -> str:
            return f"echo: {message.text}"

        async with bob:
            await bob.attach()
            lines = await asyncio.to_thread(lambda: [held_lines(node) for node in nodes])
            assert sorted(lines) == [0, 1], "one node holds the line"
            for node in nodes:
                async with LiveAgent(ALICE, key_of(ALICE), registry=node.url, token=token) as alice:
                    alice.knows(BOB, url=f"ws{node.url.removeprefix('http')}/agent/chat", fingerprint=fingerprint(BOB))
                    reply = await alice.chat(BOB, "good morning")
                    assert str(reply) == "echo: good morning"
                    assert reply.verdict is not None


async def test_a_message_of_a_swarm_reaches_a_member_with_a_line_at_another_node(nodes: Nodes) -> None:
    first, _ = nodes
    token = first.admin_token
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        here, there = [await stack.enter_async_context(Client(node.url, token)) for node in nodes]
        await register_speakers(here, f"ws{first.url.removeprefix('http')}/agent/chat")
        told: asyncio.Queue[str] = asyncio.Queue()
        bob = LiveAgent(BOB, key_of(BOB), registry=first.url, token=token)

        @bob.on_task
        async def hear(message: ChatMessage) -> None:
            told.put_nowait(json.loads(message.text)["content"])

        async with bob:
            await bob.attach()
            swarm = await there.join_swarm(ALICE, "analysis")
            await here.join_swarm(BOB, "analysis")
            for number in range(3):
                for client in (there, here):  # one of them holds the line
                    await client.broadcast(swarm.swarm_id, ALICE, f"half is done {number}")
                    assert await told.get() == f"half is done {number}"


def fingerprint(agent: str) -> str:
    return key_of(agent).public.fingerprint() or ""


def held_lines(node: RunningServer) -> int:
    text = at(node, "GET", "/metrics").text
    return int(float(next(line for line in text.splitlines() if line.startswith("waypost_held_lines ")).split()[1]))
