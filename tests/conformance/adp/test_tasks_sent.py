"""Tasks for agents that take them elsewhere: sent on signed, and their results taken from that agent alone (P-5)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.service import profile
from support.signing import key_of
from support.tasks import BOB, TASKS, TaskService, place
from waypost import limits
from waypost.messaging.request_signatures import RequestVerifier, sign_result
from waypost.messaging.request_signatures import SignatureHeaders as Headers
from waypost.registry.memory_key_value import MemoryKeyValueStore
from waypost.trust.keys.private_key import PrivateKey, load_private_key
from waypost.trust.keys.public_key import PublicKey

BASE = "https://registry.example.com"
ACCEPTED = ("202 Accepted", b'{"taskId":"theirs-1","status":"accepted","statusUrl":"/agent/tasks/theirs-1"}')


def document(port: int, key: PrivateKey) -> dict[str, Any]:
    origin = f"https://bob.example.com:{port}"
    stated = {"algorithm": "ed25519", "fingerprint": key.public.fingerprint(), "full": key.public.pem()}
    return {
        "protocol": "ADP/1.1",
        "identity": {"id": BOB, "domain": "bob.example.com", "name": "Bob", "publicKey": stated},
        "endpoints": {"wellKnown": f"{origin}/.well-known/agent.json", "tasks": f"{origin}/agent/tasks"},
        "capabilities": [{"id": "review", "name": "Review"}],
    }


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[TaskService]:
    async with place(tmp_path, base_url=BASE) as made:
        await made.trust(BOB, key_of())
        answer = await made.bench.as_("bob").post("/api/v1/agents", json=document(made.taking.port, key_of()))
        assert answer.is_success, answer.text
        made.taking.answers = [ACCEPTED]
        yield made


async def send(here: TaskService, to: str = BOB, **members: Any) -> httpx2.Response:
    answer = await here.bench.as_("alice").post(
        TASKS, params={"agent": to}, json={"task": "review", "input": {"n": 1}, **members}
    )
    assert answer.status_code == 202, answer.text
    return answer


async def bring(
    here: TaskService, said: dict[str, Any], key: PrivateKey | None = None, **signed: Any
) -> httpx2.Response:
    body = json.dumps(said).encode()
    agent = signed.pop("agent", BOB)
    at = signed.pop("at", here.bench.clock.now())
    to = signed.pop("to", here.own)
    headers = dict(sign_result(key or key_of(), said["taskId"], agent, to, at, body))
    return await here.bench.anonymous().post("/agent/webhook", content=body, headers=headers)


@pytest.mark.req("ADP-44", "ADP-29")
async def test_a_task_for_an_agent_elsewhere_is_sent_there_signed(here: TaskService) -> None:
    sent = await send(here)
    (taken,) = await here.taking.wait()
    assert (taken.method, taken.path) == ("POST", "/agent/tasks")
    assert taken.json == {"task": "review", "input": {"n": 1}, "callback": f"{BASE}/agent/webhook"}
    assert taken.headers["idempotency-key"] == sent.json()["taskId"]
    identity = load_private_key((here.bench.application.settings.data / "keys/identity.pem").read_bytes())
    assert taken.headers["adp-agent"] == here.own == "agent:registry.example.com"
    await check_request(taken.headers, identity.public, taken.body, here.bench.clock.now())


@pytest.mark.req("ADP-44")
@pytest.mark.parametrize(("base_url", "domain"), [("http://bob.example.com:8440", "ann.example.com"), (BASE, BOB[6:])])
async def test_another_port_of_the_same_host_is_elsewhere(tmp_path: Path, base_url: str, domain: str) -> None:
    """Two services on one machine; and a document that an operator registered, which is served here under its domain."""
    async with place(tmp_path, base_url=base_url) as made:
        stated = document(made.taking.port, key_of())
        stated["identity"] |= {"id": f"agent:{domain}", "domain": domain}
        assert (await made.bench.admin().post("/api/v1/agents", json=stated)).is_success
        made.taking.answers = [ACCEPTED]
        await send(made, to=f"agent:{domain}")
        (taken,) = await made.taking.wait()
        assert (taken.method, taken.path) == ("POST", "/agent/tasks")


async def check_request(headers: dict[str, str], key: PublicKey, body: bytes, now: float) -> None:
    async def find_key(agent: str) -> PublicKey:
        return key

    keeper = MemoryKeyValueStore()
    await keeper.open()
    signed = Headers(
        agent=headers["adp-agent"],
        timestamp=headers["adp-timestamp"],
        signature=headers["adp-signature"],
        message_id=headers["adp-id"],
    )
    await RequestVerifier(find_key, keeper, lambda: now).check_request(signed, BOB, "POST", "/agent/tasks", body)


@pytest.mark.req("ADP-46")
async def test_the_webhook_takes_the_result_from_the_agent_that_the_task_was_sent_to(here: TaskService) -> None:
    sent = await send(here)
    await here.taking.wait()
    await here.work()
    said = {"taskId": "theirs-1", "status": "succeeded", "result": {"grade": "good"}, "updated": "2026-05-28T20:26:40Z"}
    first = await bring(here, said)
    assert first.status_code == 200, first.text
    status = (await here.bench.as_("alice").get(sent.headers["location"])).json()
    assert (status["status"], status["result"]) == ("succeeded", {"grade": "good"})
    again = await bring(here, {**said, "result": "other"})
    assert again.status_code == 200
    assert again.json()["result"] == {"grade": "good"}


@pytest.mark.req("ADP-46")
async def test_the_webhook_takes_nothing_from_strangers(here: TaskService) -> None:
    sent = await send(here)
    await here.taking.wait()
    await here.work()
    said = {"taskId": "theirs-1", "status": "succeeded", "result": 1}
    now = here.bench.clock.now()
    plain = here.bench.anonymous()
    assert (await plain.post("/agent/webhook", json=said)).status_code == 401
    assert (await here.bench.admin().post("/agent/webhook", json=said)).status_code == 401
    refused = [
        await bring(here, said, key_of(number=1)),
        await bring(here, said, to="agent:alice.example.com"),
        await bring(here, said, at=now - limits.SIGNED_PAST_SECONDS - 1),
        await bring(here, said, agent="agent:mallory.example.com"),
        await bring(here, {**said, "taskId": "theirs-2"}),
    ]
    assert [answer.status_code for answer in refused] == [401, 401, 401, 404, 404]
    assert not [name for name, _ in here.names.queries if "mallory" in name]  # a stranger triggers no lookup
    assert (await here.bench.as_("alice").get(sent.headers["location"])).json()["status"] == "running"


@pytest.mark.req("ADP-46")
async def test_a_result_without_a_callback_is_polled(here: TaskService) -> None:
    here.taking.answers += [
        ("200 OK", b'{"taskId":"theirs-1","status":"running"}'),
        ("200 OK", b'{"taskId":"theirs-1","status":"failed","error":{"code":"no","message":"No paper."}}'),
    ]
    sent = await send(here)
    await here.taking.wait()
    for count in (2, 3):
        await here.work()
        here.bench.clock.advance(limits.TASK_POLL_SECONDS[count - 1] + 1)
        await here.work()
        taken = (await here.taking.wait(count))[-1]
        assert (taken.method, taken.path) == ("GET", "/agent/tasks/theirs-1")
        assert taken.headers["adp-signature"]
    status = await here.ended(here.bench.as_("alice"), sent.headers["location"])
    assert (status["status"], status["error"]) == ("failed", {"code": "no", "message": "No paper."})


@pytest.mark.req("ADP-46")
async def test_a_task_that_is_cancelled_is_cancelled_where_it_was_sent(here: TaskService) -> None:
    sent = await send(here)
    await here.taking.wait()
    await here.work()
    assert (await here.bench.as_("alice").delete(sent.headers["location"])).json()["status"] == "cancelled"
    await here.work()
    taken = (await here.taking.wait(2))[-1]
    assert (taken.method, taken.path) == ("DELETE", "/agent/tasks/theirs-1")
    assert taken.headers["adp-signature"]
    late = await bring(here, {"taskId": "theirs-1", "status": "succeeded", "result": 1})
    assert (late.status_code, late.json()["status"]) == (200, "cancelled")


@pytest.mark.req("ADP-46")
async def test_only_subjects_of_the_service_have_their_tasks_sent_on(here: TaskService) -> None:
    carol = "agent:carol.example.com"
    await here.trust(carol, key_of(number=2))
    answer = await here.signing(carol, key_of(number=2)).request(
        "POST", f"{TASKS}?agent={BOB}", {"task": "review"}, to=BOB
    )
    assert answer.status_code == 403
    await here.work()
    assert here.taking.taken == []


@pytest.mark.req("ADP-46")
async def test_a_status_url_on_another_server_is_not_called(here: TaskService) -> None:
    elsewhere = b'{"taskId":"theirs-1","status":"accepted","statusUrl":"https://10.0.0.1/x"}'
    here.taking.answers = [("202 Accepted", elsewhere)]
    sent = await send(here)
    await here.taking.wait()
    for _ in range(3):
        here.bench.clock.advance(600)
        await here.work()
    assert len(here.taking.taken) == 1
    assert (await here.bench.as_("alice").get(sent.headers["location"])).json()["status"] == "running"


@pytest.mark.req("ADP-44", "ADP-46")
async def test_a_task_goes_in_the_name_of_a_hosted_agent_and_its_result_comes_to_that_agent(here: TaskService) -> None:
    admin, alice, name = here.bench.admin(), here.bench.as_("alice"), "urn:agent:carol"
    await alice.post("/api/v1/agents", json=profile(name))
    assert (await admin.post(f"/api/v1/agents/{name}:host", json={"domain": "carol.example.com"})).is_success
    carol = "agent:carol.example.com"
    wanted = {"task": "review", "input": {"n": 1}}
    sent = await alice.post(TASKS, params={"agent": BOB, "as": carol}, json=wanted)
    assert sent.status_code == 202, sent.text
    (taken,) = await here.taking.wait()
    assert taken.headers["adp-agent"] == carol
    assert taken.json["callback"] == "https://carol.example.com/agent/webhook"
    key = load_private_key((here.bench.application.settings.data / "keys/hosted/carol.example.com.pem").read_bytes())
    await check_request(taken.headers, key.public, taken.body, here.bench.clock.now())
    await here.work()
    said = {"taskId": "theirs-1", "status": "succeeded", "result": "good"}
    assert (await bring(here, said)).status_code == 401  # signed to the service, which did not send it
    assert (await bring(here, said, to=carol)).status_code == 200
    assert (await alice.get(sent.headers["location"])).json()["result"] == "good"


@pytest.mark.req("ADP-44")
async def test_a_sender_must_own_an_agent_that_is_served_here(here: TaskService) -> None:
    admin, alice, carol = here.bench.admin(), here.bench.as_("alice"), here.bench.as_("carol")
    await alice.post("/api/v1/agents", json=profile("urn:agent:carol"))
    params = {"agent": BOB, "as": "urn:agent:carol"}
    homeless = await alice.post(TASKS, params=params, json={"task": "review"})
    assert (homeless.status_code, homeless.json()["path"]) == (400, "as")
    assert "waypost host" in homeless.json()["hint"]
    assert (await admin.post("/api/v1/agents/urn:agent:carol:host", json={"domain": "carol.example.com"})).is_success
    assert (await carol.post(TASKS, params=params, json={"task": "review"})).status_code == 403
    unknown = await alice.post(TASKS, params={**params, "as": "urn:agent:nobody"}, json={"task": "review"})
    assert unknown.status_code == 404
    await here.trust("agent:dora.example.com", key_of(number=2))
    signing = here.signing("agent:dora.example.com", key_of(number=2))
    signed = await signing.request("POST", f"{TASKS}?as=agent:carol.example.com", {"task": "echo"})
    assert signed.status_code == 403
    await here.work()
    assert here.taking.taken == []
