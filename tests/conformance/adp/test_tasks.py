"""Tasks over HTTP (adp.md §7, P-5): accepted with 202, asked for, cancelled, brought to a callback that is signed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema
import pytest

from support.service import profile
from support.signing import key_of
from support.tasks import BOB, TASKS, TaskService, place
from waypost import limits
from waypost.errors import TooLarge, error_codes
from waypost.protocols.adp.agp.messages import signing_input, verify
from waypost.responses.messaging import AcceptedTask, LeasedTaskList, TaskStatus
from waypost.server.http.openapi import answer_schema
from waypost.trust.keys.private_key import load_private_key

AGENT = "https://agents.example.net/id/minimal"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[TaskService]:
    async with place(tmp_path) as made:
        yield made


@pytest.mark.req("ADP-44", "ADP-45")
async def test_a_task_is_accepted_with_a_place_to_ask_for_it_and_done(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    answer = await alice.post(TASKS, json={"task": "echo", "input": {"text": "hello", "n": [1, 2.5, None]}})
    assert answer.status_code == 202
    accepted = answer.json()
    jsonschema.validate(accepted, answer_schema(AcceptedTask))
    assert accepted["status"] == "accepted"
    assert answer.headers["location"] == f"/agent/tasks/{accepted['taskId']}"
    assert accepted["statusUrl"] == here.bench.application.base_url + answer.headers["location"]
    status = await here.ended(alice, answer.headers["location"])
    jsonschema.validate(status, answer_schema(TaskStatus))
    assert status["status"] == "succeeded"
    assert status["result"] == {"text": "hello", "n": [1, 2.5, None]}
    assert status["agent"] == here.own


@pytest.mark.req("ADP-45")
async def test_the_status_of_a_task_supports_conditional_requests(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    place_of = (await alice.post(TASKS, params={"agent": AGENT}, json={"task": "review"})).headers["location"]
    waiting = await alice.get(place_of)
    same = {"If-None-Match": waiting.headers["etag"]}
    assert (await alice.get(place_of, headers=same)).status_code == 304
    since = {"If-Modified-Since": waiting.headers["last-modified"]}
    assert (await alice.get(place_of, headers=since)).status_code == 200, "it may end within the second"
    await alice.delete(place_of)
    ended = await alice.get(place_of, headers=same)
    assert (ended.status_code, ended.json()["status"]) == (200, "cancelled")
    assert (await alice.get(place_of, headers={"If-None-Match": ended.headers["etag"]})).status_code == 304
    assert (await here.bench.as_("mallory").get(place_of, headers=same)).status_code == 404


@pytest.mark.req("ADP-44")
async def test_the_service_discovers_as_the_sender_would_itself(here: TaskService) -> None:
    alice, bob = here.bench.as_("alice"), here.bench.as_("bob")
    await alice.post("/api/v1/agents", json=profile(AGENT), headers={"Waypost-Visibility": "private"})
    for client, found in ((alice, [AGENT]), (bob, [])):
        sent = await client.post(TASKS, json={"task": "discover", "input": {"query": "short factual questions"}})
        status = await here.ended(client, sent.headers["location"])
        assert [each["id"] for each in status["result"]["candidates"]] == found


@pytest.mark.req("ADP-44")
@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({}, "$.task"),
        ({"task": 7}, "$.task"),
        ({"task": ""}, "$.task"),
        ({"task": "a\nb"}, "$.task"),
        ({"task": "x" * (limits.TASK_NAME_CHARS + 1)}, "$.task"),
        ({"task": "sing"}, "$.task"),
        ({"task": "echo", "callback": 7}, "$.callback"),
        ({"task": "echo", "ttl_seconds": limits.TASK_TTL_MIN_SECONDS - 1}, "$.ttl_seconds"),
        ({"task": "echo", "ttl_seconds": limits.TASK_TTL_MAX_SECONDS + 1}, "$.ttl_seconds"),
        ([], "$"),
    ],
)
async def test_an_invalid_task_is_refused_with_its_path(here: TaskService, document: object, path: str) -> None:
    answer = await here.bench.as_("alice").post(TASKS, json=document)
    assert answer.status_code == 400
    assert answer.json()["path"] == path


@pytest.mark.req("ADP-44")
async def test_the_size_of_a_task_is_limited(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    room = limits.TASK_BYTES - len('{"task":"echo","input":""}')
    largest = await alice.post(TASKS, content='{"task":"echo","input":"%s"}' % ("x" * room))
    assert largest.status_code == 202, largest.text
    larger = await alice.post(TASKS, content='{"task":"echo","input":"%s"}' % ("x" * (room + 1)))
    assert larger.status_code == error_codes(TooLarge("x")).http


@pytest.mark.req("ADP-45")
async def test_a_failed_task_has_a_reason(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    for wrong in ({"limit": 3}, "text", None):
        sent = await alice.post(TASKS, json={"task": "discover", "input": wrong})
        status = await here.ended(alice, sent.headers["location"])
        assert status["status"] == "failed"
        assert status["error"]["code"] == "invalid_request"
        assert status["error"]["message"]


@pytest.mark.req("ADP-45")
async def test_tasks_need_write_scope_and_are_visible_to_their_sender(here: TaskService) -> None:
    bench = here.bench
    assert (await bench.anonymous().post(TASKS, json={"task": "echo"})).status_code == 401
    assert (await bench.as_("alice", "discover:read").post(TASKS, json={"task": "echo"})).status_code == 403
    only_writes = await bench.as_("alice", "discover:write").post(TASKS, json={"task": "discover", "input": {}})
    assert only_writes.status_code == 403
    sent = await bench.as_("alice").post(TASKS, json={"task": "echo"})
    where = sent.headers["location"]
    unknown = await bench.as_("bob").get(f"{TASKS}/3f7cc0e9-fc57-4d09-a978-ce220937b942")
    for stranger in (await bench.as_("bob").get(where), await bench.as_("bob").delete(where)):
        assert stranger.status_code == unknown.status_code == 404
        assert stranger.json()["title"] == unknown.json()["title"]
    assert (await bench.admin().get(where)).status_code == 200


@pytest.mark.req("ADP-45")
async def test_the_same_key_gives_the_same_task(here: TaskService) -> None:
    alice, bob = here.bench.as_("alice"), here.bench.as_("bob")
    key = {"Idempotency-Key": "once"}
    sent = [alice.post(TASKS, json={"task": "echo", "input": 1}, headers=key) for _ in range(5)]
    answers = await asyncio.gather(*sent)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["taskId"] for answer in answers}) == 1
    other = await alice.post(TASKS, json={"task": "echo", "input": 2}, headers=key)
    assert other.status_code == 409
    of_bob = await bob.post(TASKS, json={"task": "echo", "input": 2}, headers=key)
    assert of_bob.json()["taskId"] != answers[0].json()["taskId"]


@pytest.mark.req("ADP-45")
async def test_a_task_is_cancelled_once_and_not_after_its_end(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    sent = await alice.post(TASKS, params={"agent": AGENT}, json={"task": "read"})
    where = sent.headers["location"]
    assert (await alice.delete(where)).json()["status"] == "cancelled"
    assert (await alice.delete(where)).json()["status"] == "cancelled"
    assert (await alice.get(where)).json()["status"] == "cancelled"
    done = await alice.post(TASKS, json={"task": "echo"})
    await here.ended(alice, done.headers["location"])
    assert (await alice.delete(done.headers["location"])).status_code == 409


@pytest.mark.req("ADP-45")
async def test_a_task_that_is_not_done_in_time_fails(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    sent = await alice.post(TASKS, params={"agent": AGENT}, json={"task": "read", "ttl_seconds": 60})
    here.bench.clock.advance(59)
    await here.work()
    assert (await alice.get(sent.headers["location"])).json()["status"] == "accepted"
    here.bench.clock.advance(1)
    status = await here.ended(alice, sent.headers["location"])
    assert (status["status"], status["error"]["code"]) == ("failed", "expired")
    here.bench.clock.advance(limits.TASK_KEEP_SECONDS)
    assert (await here.bench.admin().get(sent.headers["location"])).status_code == 404


@pytest.mark.req("ADP-45")
async def test_the_number_of_waiting_tasks_per_caller_is_limited(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    several = [
        alice.post(TASKS, params={"agent": AGENT}, json={"task": "read"}) for _ in range(limits.TASKS_PER_CALLER + 3)
    ]
    answers = await asyncio.gather(*several)
    taken = [answer for answer in answers if answer.status_code == 202]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert (len(taken), len(refused)) == (limits.TASKS_PER_CALLER, 3)
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    assert (await here.bench.as_("bob").post(TASKS, json={"task": "echo"})).status_code == 202
    await alice.delete(taken[0].headers["location"])
    assert (await alice.post(TASKS, params={"agent": AGENT}, json={"task": "read"})).status_code == 202


# --- Callbacks ------------------------------------------------------------------------------------


@pytest.mark.req("ADP-46")
async def test_the_result_is_brought_to_the_callback_signed(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    sent = await alice.post(TASKS, json={"task": "echo", "input": "hi", "callback": here.callback})
    await here.ended(alice, sent.headers["location"])
    (taken,) = await here.taking.wait()
    assert (taken.method, taken.path) == ("POST", "/agent/webhook")
    assert taken.headers["content-type"] == "application/json"
    jsonschema.validate(taken.json, answer_schema(TaskStatus))
    task_id = sent.json()["taskId"]
    assert (taken.json["taskId"], taken.json["status"], taken.json["result"]) == (task_id, "succeeded", "hi")
    assert taken.headers["adp-agent"] == here.own
    covered = signing_input(task_id, here.own, BOB, "task", taken.headers["adp-timestamp"], taken.body.decode())
    identity = load_private_key((here.bench.application.settings.data / "keys/identity.pem").read_bytes())
    assert verify(identity.public, taken.headers["adp-signature"], covered)
    await here.work()
    status = (await alice.get(sent.headers["location"])).json()
    assert status["callback"] == {"url": here.callback, "state": "delivered"}


@pytest.mark.req("ADP-46")
async def test_a_callback_that_fails_is_tried_three_times_more(here: TaskService) -> None:
    here.taking.answers = [("503 Busy", b""), ("302 Found", b""), ("500 Oh", b"")]
    alice = here.bench.as_("alice")
    sent = await alice.post(TASKS, json={"task": "echo", "callback": here.callback})
    await here.ended(alice, sent.headers["location"])
    await here.taking.wait(1)
    for count in (2, 3, 4):
        here.bench.clock.advance(2 * max(limits.CALLBACK_DELAYS_SECONDS))
        await here.work()
        await here.taking.wait(count)
    await here.work()
    assert (await alice.get(sent.headers["location"])).json()["callback"]["state"] == "delivered"
    assert {each.path for each in here.taking.taken} == {"/agent/webhook"}
    assert len({each.body for each in here.taking.taken}) == 1


@pytest.mark.req("ADP-46")
async def test_an_undeliverable_callback_is_given_up_and_the_result_stays(here: TaskService) -> None:
    here.taking.answers = [("500 Oh", b"")] * 9
    alice = here.bench.as_("alice")
    sent = await alice.post(TASKS, json={"task": "echo", "input": 1, "callback": here.callback})
    await here.ended(alice, sent.headers["location"])
    for _ in range(6):
        here.bench.clock.advance(2 * max(limits.CALLBACK_DELAYS_SECONDS))
        await here.work()
    assert len(here.taking.taken) == 1 + len(limits.CALLBACK_DELAYS_SECONDS)
    status = (await alice.get(sent.headers["location"])).json()
    assert (status["result"], status["callback"]["state"]) == (1, "failed")


# --- Agents that sign -----------------------------------------------------------------------------


@pytest.mark.req("ADP-29", "ADP-44", "ADP-46")
async def test_a_signed_task_is_accepted_and_its_result_delivered(here: TaskService) -> None:
    await here.trust(BOB, key_of())
    bob = here.signing()
    wanted = {"task": "echo", "input": 5, "callback": here.callback}
    sent = await bob.request("POST", TASKS, wanted)
    assert sent.status_code == 202, sent.text
    (taken,) = await here.taking.wait()
    assert taken.json["result"] == 5
    assert (await bob.request("GET", sent.headers["location"])).json()["status"] == "succeeded"
    assert (await here.bench.as_("alice").get(sent.headers["location"])).status_code == 404


@pytest.mark.req("ADP-29")
async def test_results_of_signed_tasks_go_to_the_domain_of_the_sender_only(here: TaskService) -> None:
    """S8: otherwise a domain owner could direct results to any host."""
    await here.trust(BOB, key_of())
    for host, status in (("victim.example.com", 403), ("notbob.example.com", 403), ("hooks.bob.example.com", 202)):
        wanted = {"task": "echo", "callback": f"https://{host}/x"}
        assert (await here.signing().request("POST", TASKS, wanted)).status_code == status, host
    joining = {"agent": BOB, "task": "t", "callback": "https://victim.example.com/x"}
    assert (await here.signing().request("POST", "/agent/swarm/join", joining)).status_code == 403


@pytest.mark.req("ADP-29")
async def test_an_agent_that_signs_its_requests_finds_public_agents_only(here: TaskService) -> None:
    await here.trust(BOB, key_of())
    alice = here.bench.as_("alice")
    for name, visibility in (("open", "public"), ("inner", "internal"), ("hidden", "private")):
        document = profile(f"https://agents.example.net/{name}")
        await alice.post("/api/v1/agents", json=document, headers={"Waypost-Visibility": visibility})
    bob = here.signing()
    sent = await bob.request("POST", TASKS, {"task": "discover", "input": {"query": "short factual questions"}})
    await here.work()
    status = (await bob.request("GET", sent.headers["location"])).json()
    assert [each["id"] for each in status["result"]["candidates"]] == ["https://agents.example.net/open"]


@pytest.mark.req("ADP-49", "ADP-50")
async def test_wrongly_signed_requests_are_refused(here: TaskService) -> None:
    await here.trust(BOB, key_of())
    bob, task, now = here.signing(), {"task": "echo"}, here.bench.clock.now()
    refused = {
        "no key": await here.signing("agent:nobody.example.com").request("POST", TASKS, task),
        "another key": await here.signing(key=key_of(number=1)).request("POST", TASKS, task),
        "to another": await bob.request("POST", TASKS, task, to="agent:carol.example.com"),
        "too old": await bob.request("POST", TASKS, task, at=now - limits.SIGNED_PAST_SECONDS - 1),
        "of tomorrow": await bob.request("POST", TASKS, task, at=now + limits.SIGNED_AHEAD_SECONDS + 1),
    }
    body = b'{"task":"echo"}'
    signed = bob.headers("POST", TASKS, body)
    plain = here.bench.anonymous()
    refused["other body"] = await plain.post(TASKS, content=b'{"task":"echo","input":1}', headers=signed)
    refused["other path"] = await plain.post("/agent/swarm/join", content=body, headers=signed)
    refused["upper case"] = await plain.post(TASKS, content=body, headers={**signed, "ADP-Agent": BOB.upper()})
    refused["no time"] = await plain.post(
        TASKS, content=body, headers={name: text for name, text in signed.items() if name != "ADP-Timestamp"}
    )
    assert {name: answer.status_code for name, answer in refused.items() if name != "upper case"} == dict.fromkeys(
        [name for name in refused if name != "upper case"], 401
    )
    assert refused["upper case"].status_code in (400, 401)
    assert (await plain.post(TASKS, content=body, headers=signed)).status_code == 202
    again = await plain.post(TASKS, content=body, headers=signed)
    assert (again.status_code, again.json()["title"]) == (401, "Replayed")
    for edge in (now - limits.SIGNED_PAST_SECONDS, now + limits.SIGNED_AHEAD_SECONDS):
        assert (await bob.request("POST", TASKS, task, at=edge)).status_code == 202


# --- Agents whose owner does the work ---------------------------------------------------------------


@pytest.mark.req("ADP-44", "ADP-45", "ADP-46")
async def test_a_hosted_agent_takes_tasks_under_its_domain_and_its_owner_does_them(here: TaskService) -> None:
    admin, alice = here.bench.admin(), here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    await admin.post(f"/api/v1/agents/{AGENT.replace('/', '%2F')}:host", json={"domain": "alice.example.com"})
    wanted = {"task": "review", "input": "x", "callback": here.callback}
    sent = await here.bench.as_("bob").post(TASKS, json=wanted, headers={"Host": "alice.example.com"})
    assert sent.status_code == 202
    assert sent.json()["statusUrl"] == f"https://alice.example.com{sent.headers['location']}"
    (waiting,) = (await alice.get(TASKS, headers={"Host": "alice.example.com"})).json()["tasks"]
    assert (waiting["taskId"], waiting["from"], "input" in waiting) == (sent.json()["taskId"], "bob", False)
    assert (await here.bench.as_("carol").get(TASKS, headers={"Host": "alice.example.com"})).json() == {"tasks": []}
    assert (await here.bench.as_("carol").post("/agent/tasks:take", json={"agent": AGENT})).status_code == 403
    taken = (await alice.post("/agent/tasks:take", json={"agent": "agent:alice.example.com"})).json()
    jsonschema.validate(taken, answer_schema(LeasedTaskList))
    (work,) = taken["tasks"]
    assert (work["task"], work["input"], work["from"]) == ("review", "x", "bob")
    assert (await alice.post("/agent/tasks:take", json={"agent": AGENT})).json() == {"tasks": []}
    report = {"lease": work["lease"], "status": "succeeded", "result": "fine"}
    assert (await alice.post(f"{TASKS}/{work['taskId']}:report", json=report)).status_code == 200
    (told,) = await here.taking.wait()
    key = load_private_key((here.bench.application.settings.data / "keys/hosted/alice.example.com.pem").read_bytes())
    from_ = "agent:alice.example.com"
    covered = signing_input(work["taskId"], from_, BOB, "task", told.headers["adp-timestamp"], told.body.decode())
    assert told.headers["adp-agent"] == from_
    assert verify(key.public, told.headers["adp-signature"], covered)
    again = await alice.post(f"{TASKS}/{work['taskId']}:report", json=report)
    assert again.status_code == 409


@pytest.mark.req("ADP-45")
async def test_a_worker_that_is_silent_loses_its_task_and_three_that_are_end_it(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    sent = await alice.post(TASKS, params={"agent": AGENT}, json={"task": "read"})
    leases = []
    for _ in range(limits.TASK_ATTEMPTS):
        (work,) = (await alice.post("/agent/tasks:take", json={"agent": AGENT, "lease_seconds": 60})).json()["tasks"]
        leases.append(work["lease"])
        going_on = {"lease": work["lease"], "status": "running", "lease_seconds": 60}
        here.bench.clock.advance(59)
        assert (await alice.post(f"{TASKS}/{work['taskId']}:report", json=going_on)).status_code == 200
        here.bench.clock.advance(59)
        await here.work()
        assert (await alice.get(sent.headers["location"])).json()["status"] == "running"
        here.bench.clock.advance(1)
        await here.work()
        late = {"lease": leases[0], "status": "succeeded", "result": "late"}
        assert (await alice.post(f"{TASKS}/{work['taskId']}:report", json=late)).status_code == 409
    status = (await alice.get(sent.headers["location"])).json()
    assert (status["status"], status["error"]["code"]) == ("failed", "abandoned")


@pytest.mark.req("ADP-45")
async def test_of_many_workers_one_has_a_task(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    for _ in range(5):
        await alice.post(TASKS, params={"agent": AGENT}, json={"task": "read"})
    workers = [alice.post("/agent/tasks:take", json={"agent": AGENT, "limit": 2}) for _ in range(6)]
    taken = [work["taskId"] for answer in await asyncio.gather(*workers) for work in answer.json()["tasks"]]
    assert len(taken) == len(set(taken)) == 5


@pytest.mark.req("ADP-45")
async def test_a_worker_waits_for_a_task_to_come(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT))
    asked = {"agent": AGENT, "wait_seconds": limits.TASK_WAIT_SECONDS}
    waiting = asyncio.create_task(alice.post("/agent/tasks:take", json=asked))
    while not here.bench.application.messaging.tasks.has_waiting_worker(AGENT):
        await asyncio.sleep(0)
    await here.bench.as_("bob").post(TASKS, params={"agent": AGENT}, json={"task": "read"})
    assert [work["task"] for work in (await waiting).json()["tasks"]] == ["read"]


@pytest.mark.req("ADP-55")
async def test_a_hidden_agent_accepts_no_tasks_from_callers_without_access(here: TaskService) -> None:
    await here.trust(BOB, key_of())
    alice = here.bench.as_("alice")
    await alice.post("/api/v1/agents", json=profile(AGENT), headers={"Waypost-Visibility": "private"})
    for client in (here.bench.as_("carol"),):
        hidden = await client.post(TASKS, params={"agent": AGENT}, json={"task": "read"})
        absent = await client.post(TASKS, params={"agent": AGENT + "0"}, json={"task": "read"})
        assert hidden.status_code == absent.status_code == 404
        assert hidden.json()["message"] == absent.json()["message"].replace("minimal0", "minimal")
    signed = [
        await here.signing().request("POST", f"{TASKS}?agent={name}", {"task": "read"}, to=name)
        for name in (AGENT, AGENT + "0")
    ]
    assert [answer.status_code for answer in signed] == [404, 404]
    wrong = [
        await here.signing().request("POST", f"{TASKS}?agent={name}", {"task": "read"}, to="agent:x.example")
        for name in (AGENT, AGENT + "0")
    ]
    assert [answer.status_code for answer in wrong] == [401, 401]
