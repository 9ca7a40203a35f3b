"""Swarms (ADP-47, P-5): join, leave, members, broadcasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from support.service import profile
from support.signing import key_of
from support.tasks import BOB, TaskService, place
from waypost import limits
from waypost.protocols.adp.agp.messages import signing_input, verify
from waypost.responses.messaging import SwarmMembership, SwarmMessageList, SwarmView
from waypost.server.http.openapi import answer_schema
from waypost.trust.keys.private_key import load_private_key

JOIN = "/agent/swarm/join"
CAROL = "agent:carol.example.com"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[TaskService]:
    async with place(tmp_path) as made:
        yield made


async def join(client: httpx2.AsyncClient, agent: str, task: str = "analysis", **members: Any) -> httpx2.Response:
    return await client.post(JOIN, json={"agent": agent, "task": task, **members})


@pytest.mark.req("ADP-47")
async def test_an_agent_joins_the_swarm_of_a_task(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    first = await join(alice, BOB, role="participant")
    assert first.status_code == 200
    jsonschema.validate(first.json(), answer_schema(SwarmMembership))
    assert (first.json()["agent"], first.json()["role"]) == (BOB, "participant")
    second = await join(here.bench.as_("carol"), CAROL, role="observer")
    assert second.json()["swarmId"] == first.json()["swarmId"]
    assert [(each["agent"], each["role"]) for each in second.json()["members"]] == [
        (BOB, "participant"),
        (CAROL, "observer"),
    ]
    elsewhere = await join(alice, BOB, task="another")
    assert elsewhere.json()["swarmId"] != first.json()["swarmId"]


@pytest.mark.req("ADP-47")
async def test_joining_again_changes_nothing_and_with_another_role_is_a_conflict(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    first = await join(alice, BOB)
    assert first.json()["role"] == "participant"
    assert (await join(alice, BOB)).json() == first.json()
    assert (await join(alice, BOB, role="observer")).status_code == 409
    assert (await here.bench.as_("carol").post(JOIN, json={"agent": BOB, "task": "analysis"})).status_code == 403
    await alice.post(f"/agent/swarm/{first.json()['swarmId']}:leave", json={"agent": BOB})
    assert (await join(alice, BOB, role="observer")).status_code == 200


@pytest.mark.req("ADP-47")
async def test_no_agent_joins_for_another_or_as_the_host(here: TaskService) -> None:
    await here.trust(BOB, key_of())
    document = profile(CAROL.replace("agent:", "https://") + "/a", name="Carol")
    await here.bench.as_("carol").post("/api/v1/agents", json=document)
    await here.bench.admin().post(
        f"/api/v1/agents/{document['id'].replace('/', '%2F')}:host", json={"domain": "carol.example.com"}
    )
    assert (await join(here.bench.as_("alice"), CAROL)).status_code == 403
    assert (await join(here.bench.as_("carol"), CAROL)).status_code == 200
    assert (await join(here.bench.as_("alice"), BOB, role="coordinator")).status_code == 403
    assert (await join(here.bench.admin(), BOB, role="coordinator")).status_code == 200
    signed = await here.signing().request("POST", JOIN, {"agent": CAROL, "task": "other"})
    assert signed.status_code == 403
    itself = await here.signing().request("POST", JOIN, {"agent": BOB, "task": "other"})
    assert itself.status_code == 200, itself.text
    assert (await here.bench.anonymous().post(JOIN, json={"agent": BOB, "task": "x"})).status_code == 401


@pytest.mark.req("ADP-47")
@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"task": "t"}, "$.agent"),
        ({"agent": "bob", "task": "t"}, "$.agent"),
        ({"agent": "agent:bad domain", "task": "t"}, "$.agent"),
        ({"agent": BOB}, "$.task"),
        ({"agent": BOB, "task": "a\nb"}, "$.task"),
        ({"agent": BOB, "task": "t", "role": ""}, "$.role"),
        ({"agent": BOB, "task": "t", "role": "x" * (limits.SWARM_ROLE_CHARS + 1)}, "$.role"),
        ({"agent": BOB, "task": "t", "callback": "http://bob.example.com/"}, "$.callback"),
        ({"agent": BOB, "task": "t", "callback": 7}, "$.callback"),
    ],
)
async def test_an_invalid_join_request_is_refused_with_its_path(
    here: TaskService, document: dict[str, Any], path: str
) -> None:
    answer = await here.bench.as_("alice").post(JOIN, json=document)
    assert answer.status_code == 400
    assert answer.json()["path"] == path


@pytest.mark.req("ADP-47")
async def test_the_number_of_members_of_a_swarm_is_limited(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    several = [join(alice, f"agent:a{n}.example.com") for n in range(limits.SWARM_MEMBERS + 1)]
    statuses = [answer.status_code for answer in [await each for each in several]]
    assert statuses == [200] * limits.SWARM_MEMBERS + [403]


@pytest.mark.req("ADP-47")
async def test_concurrent_joins_all_succeed(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    answers = await asyncio.gather(*(join(alice, f"agent:a{n}.example.com") for n in range(20)))
    swarm = (await alice.get(f"/agent/swarm/{answers[0].json()['swarmId']}")).json()
    jsonschema.validate(swarm, answer_schema(SwarmView))
    assert {each["agent"] for each in swarm["members"]} == {f"agent:a{n}.example.com" for n in range(20)}


@pytest.mark.req("ADP-47")
async def test_only_members_see_a_swarm_and_the_last_one_to_leave_ends_it(here: TaskService) -> None:
    alice, carol = here.bench.as_("alice"), here.bench.as_("carol")
    path = f"/agent/swarm/{(await join(alice, BOB)).json()['swarmId']}"
    unknown = await carol.get("/agent/swarm/000000000000000000000000")
    for hidden in (await carol.get(path), await carol.get(f"{path}:messages")):
        assert (hidden.status_code, hidden.json()["title"]) == (404, unknown.json()["title"])
    assert (await carol.post(f"{path}:leave", json={"agent": BOB})).status_code == 404
    assert [each["task"] for each in (await alice.get("/agent/swarm")).json()["swarms"]] == ["analysis"]
    assert (await carol.get("/agent/swarm")).json() == {"swarms": []}
    assert (await alice.post(f"{path}:leave", json={"agent": BOB})).json()["members"] == []
    assert (await alice.get(path)).status_code == 404
    assert (await alice.get("/agent/swarm")).json() == {"swarms": []}


@pytest.mark.req("ADP-47")
async def test_a_broadcast_is_stored_and_delivered_to_members_with_an_address(here: TaskService) -> None:
    alice, carol = here.bench.as_("alice"), here.bench.as_("carol")
    joined = (await join(alice, BOB, callback=here.callback)).json()
    await join(carol, CAROL)
    path = f"/agent/swarm/{joined['swarmId']}"
    told = await carol.post(f"{path}:broadcast", json={"agent": CAROL, "content": "half is done"})
    assert told.status_code == 200, told.text
    (taken,) = await here.taking.wait()
    assert taken.json == told.json()
    assert (taken.json["from"], taken.json["content"], taken.json["number"]) == (CAROL, "half is done", 1)
    covered = signing_input(
        taken.json["messageId"], here.own, BOB, "task", taken.headers["adp-timestamp"], taken.body.decode()
    )
    identity = load_private_key((here.bench.application.settings.data / "keys/identity.pem").read_bytes())
    assert verify(identity.public, taken.headers["adp-signature"], covered)
    await alice.post(f"{path}:broadcast", json={"agent": BOB, "content": "all is done"})
    found = (await carol.get(f"{path}:messages")).json()
    jsonschema.validate(found, answer_schema(SwarmMessageList))
    assert [each["content"] for each in found["messages"]] == ["half is done", "all is done"]
    after = (await carol.get(f"{path}:messages", params={"after": 1})).json()["messages"]
    assert [each["content"] for each in after] == ["all is done"]
    stranger = await here.bench.as_("dora").post(f"{path}:broadcast", json={"agent": BOB, "content": "x"})
    assert stranger.status_code == 404
    await here.work()
    assert len(here.taking.taken) == 1  # a sender does not get its own message


@pytest.mark.req("ADP-47")
async def test_only_the_last_messages_are_kept(here: TaskService) -> None:
    alice = here.bench.as_("alice")
    path = f"/agent/swarm/{(await join(alice, BOB)).json()['swarmId']}"
    for number in range(limits.SWARM_MESSAGES + 2):
        await alice.post(f"{path}:broadcast", json={"agent": BOB, "content": str(number)})
    first = (await alice.get(f"{path}:messages", params={"limit": 1})).json()["messages"]
    assert [each["number"] for each in first] == [3]


@pytest.mark.req("ADP-47")
async def test_a_hidden_agent_is_joined_like_an_unknown_one(here: TaskService) -> None:
    """E8: the response does not tell that a private agent exists."""
    document = profile("agent:hidden.example.com", name="Hidden")
    stored = await here.bench.as_("carol").post(
        "/api/v1/agents", json=document, headers={"Waypost-Visibility": "private"}
    )
    assert stored.status_code == 201
    hidden = await join(here.bench.as_("alice"), "agent:hidden.example.com", task="one")
    unknown = await join(here.bench.as_("alice"), "agent:nobody.example.com", task="two")
    assert (hidden.status_code, unknown.status_code) == (200, 200)
    same = hidden.text.replace("hidden", "nobody").replace(hidden.json()["swarmId"], unknown.json()["swarmId"])
    assert same == unknown.text


@pytest.mark.req("ADP-47")
async def test_every_member_and_message_says_whether_its_name_is_proven(here: TaskService) -> None:
    """E9: anybody can write a name."""
    await here.trust(BOB, key_of())
    alice, carol = here.bench.as_("alice"), here.bench.as_("carol")
    await carol.post("/api/v1/agents", json=profile(CAROL))
    claimed = await join(alice, BOB)
    assert claimed.json()["verdict"] == "unverified"
    own = await join(carol, CAROL)
    assert own.json()["verdict"] == "registered"
    swarm = claimed.json()["swarmId"]
    said = await alice.post(f"/agent/swarm/{swarm}:broadcast", json={"agent": BOB, "content": "I am Bob."})
    assert said.json()["verdict"] == "unverified"
    read = await carol.get(f"/agent/swarm/{swarm}:messages")
    assert [each["verdict"] for each in read.json()["messages"]] == ["unverified"]


@pytest.mark.req("ADP-47")
async def test_a_member_that_proves_its_name_replaces_one_that_does_not(here: TaskService) -> None:
    await here.trust(BOB, key_of())
    alice = here.bench.as_("alice")
    swarm = (await join(alice, BOB)).json()["swarmId"]
    proven = await here.signing().request("POST", JOIN, {"agent": BOB, "task": "analysis"})
    assert proven.status_code == 200, proven.text
    assert [(each["agent"], each["verdict"]) for each in proven.json()["members"]] == [(BOB, "verified")]
    again = await alice.post(f"/agent/swarm/{swarm}:broadcast", json={"agent": BOB, "content": "I am Bob."})
    assert again.status_code == 404
    assert (await join(alice, BOB)).status_code == 403
