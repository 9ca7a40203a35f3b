"""Every route × method × caller: a caller without access cannot detect an agent, through any operation of any API
(THREATS V3, V4, J8, J12). Routes are read from the service, so that new ones are included."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from support.service import Bench, profile, service
from waypost import limits
from waypost.app.http import MOUNTED_ROUTES
from waypost.server.http.routing import Route

# Two names of one length: the answers about both must be equal but for the name.
HIDDEN, UNKNOWN = "https://agents.example/id/hidden-1", "https://agents.example/id/absent-1"
CARD: dict[str, Any] = {
    "agent_id": "hidden-card",
    "name": "Hidden card",
    "description": "A card.",
    "capabilities": [{"capability_id": "c", "description": "d"}],
    "communication": {"protocols": ["http"], "endpoints": [{"protocol": "http", "uri": "http://h.example/"}]},
    "discovery_tags": ["hush"],
}
BODIES: dict[str, Any] = {
    "share": {"add": ["mallory"]},
    "host": {"domain": "hidden.example"},
    "confirm": {"etag": "x"},
    "reject": {"etag": "x"},
    "renew": {"ttl_seconds": 60},
}
CHANGES = frozenset(("withdraw", "renew", "share", "confirm", "reject", "host"))
OUTSIDERS = ("bob", "reader", "anonymous")


class Callers:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.alice = bench.as_("alice")
        self.by_name: dict[str, httpx2.AsyncClient] = {
            "owner": self.alice,
            "bob": bench.as_("bob"),
            "reader": bench.as_("carol", "discover:read"),
            "invitee": bench.as_("dave"),
            "anonymous": bench.anonymous(),
            "admin": bench.admin(),
        }

    def routes(self) -> list[Route]:
        """Those that name one agent in their path. Registrations are asked about by themselves."""
        found = [*self.bench.application.http_app.router.routes, *MOUNTED_ROUTES]
        return [route for route in found if "agents/{id}" in route.path and route.operation != "register"]

    async def ask(self, caller: str, route: Route, agent_id: str) -> httpx2.Response:
        path = route.path.replace("{id}", quote(agent_id, safe=""))
        return await self.by_name[caller].request(
            route.method, path, json=BODIES.get(route.operation), headers={"X-Request-Id": "r"}
        )


@asynccontextmanager
async def callers(folder: Path) -> AsyncIterator[Callers]:
    async with service(folder, anonymous_read=True) as bench:
        made = Callers(bench)
        private = {"Waypost-Visibility": "private"}
        for document in (profile(HIDDEN, name="Hidden"), CARD):
            answer = await made.alice.post("/api/v1/agents", json=document, headers=private)
            assert answer.status_code == 201
        await made.alice.post("/api/v1/agents", json=profile("https://agents.example/id/seen-001"))
        await made.alice.post("/api/v1/agents", json=profile("https://agents.example/id/shared-1"), headers=private)
        shared = quote("https://agents.example/id/shared-1", safe="")
        assert (await made.alice.post(f"/api/v1/agents/{shared}:share", json={"add": ["dave"]})).status_code == 200
        yield made


def comparable(answer: httpx2.Response) -> tuple[int, dict[str, str], str]:
    text = answer.text.replace(UNKNOWN, HIDDEN)
    for safe in ("", "/", "/:", "/%:@!$&'()*+,;=~"):
        text = text.replace(quote(UNKNOWN, safe=safe), quote(HIDDEN, safe=safe))
    return answer.status_code, dict(answer.headers), text


@pytest.mark.parametrize("caller", OUTSIDERS)
async def test_a_hidden_agent_is_answered_as_an_unknown_one(tmp_path: Path, caller: str) -> None:
    async with callers(tmp_path) as made:
        asked = made.routes()
        assert len(asked) >= 15
        for route in asked:
            hidden, unknown = await made.ask(caller, route, HIDDEN), await made.ask(caller, route, UNKNOWN)
            where = (caller, route.method, route.path)
            assert comparable(hidden) == comparable(unknown), where
            assert hidden.status_code in (401, 403, 404), where
            if hidden.status_code == 404:
                assert len(hidden.content) == len(unknown.content), where
        assert (await made.by_name["owner"].get(f"/api/v1/agents/{quote(HIDDEN, safe='')}")).status_code == 200


# Requests that name an agent elsewhere than in a route of agents: in a query, a body or an address of its documents.
NAMED_ELSEWHERE: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/a/{id}", None),
    ("GET", "/a2a/{id}/.well-known/agent-card.json", None),
    ("POST", "/a2a/{id}", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}),
    ("GET", "/.well-known/agents/{id}.json", None),
    ("GET", "/.well-known/agent-capabilities/{id}.json", None),
    ("GET", "/.well-known/agent-card.json?agent={id}", None),
    ("GET", "/.well-known/agent-card?agent={id}", None),
    ("GET", "/v1/card?agent={id}", None),
    ("GET", "/v0.1/servers/{id}/versions", None),
    ("GET", "/v0/servers/{id}/versions/latest", None),
    ("GET", "/agent/tasks?agent={id}", None),
    ("POST", "/agent/tasks:take", {"agent": "{id}"}),
    ("POST", "/agent/tasks?agent={id}", {"task": "t", "input": {}}),
    ("GET", "/agent/swarm?agent={id}", None),
    ("GET", "/api/v1/invitations?agent={id}", None),
    ("POST", "/api/v1/invitations", {"agent": "{id}"}),
    ("POST", "/rtfs", {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.heartbeat", "params": {"agent_id": "{id}"}}),
    (
        "POST",
        "/rtfs",
        {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.deregister", "params": {"agent_id": "{id}"}},
    ),
    (
        "POST",
        "/mcp",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "get_agent", "arguments": {"id": "{id}"}},
        },
    ),
    ("POST", "/profile/v1/discover", {"query": "{id}", "min_match": "weak"}),
    ("POST", "/ard/search", {"query": {"text": "{id}"}}),
    ("GET", "/api/v1/watch?from={id}", None),
)


@pytest.mark.parametrize("caller", OUTSIDERS)
async def test_a_hidden_agent_is_as_unknown_where_a_query_or_a_body_names_it(tmp_path: Path, caller: str) -> None:
    async with callers(tmp_path) as made:
        client = made.by_name[caller]
        for method, path, body in NAMED_ELSEWHERE:
            hidden, unknown = [
                await client.request(
                    method,
                    path.replace("{id}", quote(name, safe="")),
                    content=None if body is None else json.dumps(body).replace("{id}", name),
                    headers={"X-Request-Id": "r", "Content-Type": "application/json", "Accept": "*/*"},
                )
                for name in (HIDDEN, UNKNOWN)
            ]
            without_times = [re.sub(r'"generated_at":"[^"]*"', "", comparable(each)[2]) for each in (hidden, unknown)]
            assert without_times[0] == without_times[1], (method, path)
            assert comparable(hidden)[:2] == comparable(unknown)[:2], (method, path)
            assert hidden.status_code < 500, (method, path, hidden.text)


async def test_the_announced_name_of_a_hidden_agent_reveals_nothing(tmp_path: Path) -> None:
    async with callers(tmp_path) as made:
        listed = (await made.alice.get("/agents")).json()
        names = [agent["agent"]["agent_id"] if "agent" in agent else agent["agent_id"] for agent in listed["agents"]]
        unknown = "00000000-0000-4000-8000-000000000000"
        for name in names:
            answers = [
                await made.by_name["bob"].get(f"/agents/{one}", headers={"X-Request-Id": "r"})
                for one in (name, unknown)
            ]
            seen = (await made.alice.get(f"/agents/{name}")).json()
            if "seen-001" in json.dumps(seen):
                continue
            assert answers[0].status_code == 404
            assert answers[0].text.replace(name, unknown) == answers[1].text


async def test_a_visible_agent_is_readable_through_every_api(tmp_path: Path) -> None:
    shared = "https://agents.example/id/shared-1"
    async with callers(tmp_path) as made:
        for route in made.routes():
            if route.method != "GET" or route.operation == "held":
                continue
            answers = {name: await made.ask(name, route, shared) for name in ("owner", "invitee", "admin", "bob")}
            codes = {name: answer.status_code for name, answer in answers.items()}
            assert codes["owner"] == codes["admin"], (route.path, codes)
            assert codes["bob"] in (403, 404), (route.path, codes)
            if route.operation == "get":
                assert codes == {"owner": 200, "invitee": 200, "admin": 200, "bob": 404}, route.path


@pytest.mark.parametrize("caller", ["invitee", "bob", "reader", "anonymous"])
async def test_only_owner_and_admin_change_an_agent(tmp_path: Path, caller: str) -> None:
    """J8, J12."""
    async with callers(tmp_path) as made:
        for name in ("shared-1", "seen-001", "hidden-1"):
            agent_id = f"https://agents.example/id/{name}"
            before = (await made.alice.get(f"/api/v1/agents/{quote(agent_id, safe='')}")).headers["etag"]
            sees = name == "seen-001" or (name == "shared-1" and caller == "invitee")
            for route in made.routes():
                if route.operation not in CHANGES:
                    continue
                answer = await made.ask(caller, route, agent_id)
                writes = caller in ("invitee", "bob") and route.operation != "host"
                want = 401 if caller == "anonymous" else 403 if sees or not writes else 404
                assert answer.status_code == want, (caller, route.method, route.path, name, answer.text)
            after = (await made.alice.get(f"/api/v1/agents/{quote(agent_id, safe='')}")).headers["etag"]
            assert before == after


async def test_json_rpc_reveals_nothing_of_a_hidden_card(tmp_path: Path) -> None:
    async with callers(tmp_path) as made:
        for caller in ("bob", "reader", "anonymous"):
            client = made.by_name[caller]
            for method in ("deregister", "heartbeat", "refresh"):
                texts = [await rpc(client, method, agent_id=name) for name in ("hidden-card", "absent-card")]
                assert texts[0].replace("hidden", "absent") == texts[1], (caller, method)
            for query in ({"agent_id": "hidden-card"}, {"discovery_tags": ["hush"]}):
                answer = json.loads(await rpc(client, "discover", **query))
                assert (answer["result"]["agents"], answer["result"]["total"]) == ([], 0), (caller, query)
        assert '"total":1' in await rpc(made.alice, "discover", agent_id="hidden-card")


async def test_joining_a_swarm_as_a_hidden_agent_is_answered_as_for_an_unknown_one(tmp_path: Path) -> None:
    """E8."""
    async with callers(tmp_path) as made:
        private = {"Waypost-Visibility": "private"}
        answer = await made.alice.post("/api/v1/agents", json=profile("agent:hidden.example"), headers=private)
        assert answer.status_code == 201
        answers = [
            await made.by_name["bob"].post(
                "/agent/swarm/join",
                json={"task": task, "agent": agent, "role": "worker"},
                headers={"X-Request-Id": "r"},
            )
            for task, agent in (("one", "agent:hidden.example"), ("two", "agent:absent.example"))
        ]
        hidden, unknown = ({**answer.json(), "swarmId": ""} for answer in answers)
        assert answers[0].status_code == answers[1].status_code
        assert json.dumps(hidden).replace("hidden", "absent") == json.dumps(unknown)


async def test_a_precondition_does_not_find_a_hidden_agent(tmp_path: Path) -> None:
    """`If-Match: *` must not tell whether the id is taken: nothing would be left behind by asking."""
    async with callers(tmp_path) as made:
        answers = [
            await made.by_name["bob"].put(
                f"/profile/v1/agents/{quote(name, safe='')}",
                json=profile(name),
                headers={"If-Match": "*", "X-Request-Id": "r"},
            )
            for name in (HIDDEN, UNKNOWN)
        ]
        assert [answer.status_code for answer in answers] == [412, 412]
        assert comparable(answers[0]) == comparable(answers[1])


async def rpc(client: httpx2.AsyncClient, method: str, **params: Any) -> str:
    call = {"jsonrpc": "2.0", "id": 1, "method": f"rtfs.registry.{method}", "params": params}
    return (await client.post("/rtfs", json=call)).text


async def test_taking_a_hidden_id_is_the_same_conflict_as_taking_a_visible_one(tmp_path: Path) -> None:
    """V4: through every API that registers."""
    async with callers(tmp_path) as made:
        bob = made.by_name["bob"]
        seen = "https://agents.example/id/seen-001"
        # `If-Match: *` creates nothing, so it must not find a hidden agent at all: that is the next test but one.
        for headers in ({}, {"If-Match": '"x"'}, {"If-None-Match": "*"}, {"Idempotency-Key": "k"}):
            answers = []
            for name in (seen, HIDDEN):
                path = f"/profile/v1/agents/{quote(name, safe='')}"
                given = {"X-Request-Id": "r", **headers}
                put = await bob.put(path, json=profile(name), headers=given)
                post = await bob.post("/api/v1/agents", json=profile(name), headers=given)
                batch = await bob.post("/api/v1/agents:batch", content=json.dumps(profile(name)).encode())
                texts = [
                    answer.text.replace(quote(name, safe=""), "ID").replace(name, "ID") for answer in (put, post, batch)
                ]
                answers.append(([put.status_code, post.status_code, batch.status_code], texts))
            assert answers[0] == answers[1], headers
            assert answers[0][0][2] == 200
            assert '"conflict"' in answers[0][1][2]
        assert '"created"' in await rpc(made.alice, "register", agent_card={**CARD, "agent_id": "public-card"})
        cards = [{**CARD, "agent_id": name} for name in ("hidden-card", "public-card")]
        hidden, seen = [await rpc(bob, "register", agent_card=card) for card in cards]
        assert hidden.replace("hidden", "public") == seen
        assert json.loads(seen)["error"]["code"] == -32007


async def test_an_idempotency_key_is_its_subjects_own(tmp_path: Path) -> None:
    async with callers(tmp_path) as made:
        key = {"Idempotency-Key": "one-key", "X-Request-Id": "r"}
        private = key | {"Waypost-Visibility": "private"}
        made_by_alice = await made.alice.post("/api/v1/agents", json=profile("idem"), headers=private)
        assert made_by_alice.status_code == 201
        by_bob = await made.by_name["bob"].post("/api/v1/agents", json=profile("idem-b"), headers=key)
        assert (by_bob.status_code, by_bob.json()["id"]) == (201, "idem-b")


async def test_a_cursor_is_its_subjects_own(tmp_path: Path) -> None:
    """H10."""
    async with callers(tmp_path) as made:
        cursor = (await made.alice.get("/api/v1/agents?limit=1")).json()["next_cursor"]
        assert (await made.alice.get("/api/v1/agents", params={"cursor": cursor, "limit": 1})).status_code == 200
        for caller in ("bob", "anonymous", "admin"):
            answer = await made.by_name[caller].get("/api/v1/agents", params={"cursor": cursor, "limit": 1})
            assert answer.status_code == 400, caller
        for changed in (cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB"), cursor + "A", "0", ""):
            answer = await made.alice.get("/api/v1/agents", params={"cursor": changed})
            assert answer.status_code == 400, changed
        answer = await made.alice.get("/api/v1/agents", params={"cursor": cursor, "tag": "other"})
        assert answer.status_code == 400, "it fits the same filters only"


async def test_a_list_cursor_is_valid_for_a_day_and_expires_after_two(tmp_path: Path) -> None:
    """H10. The same page has the same cursor within a day, so that its entity tag holds."""
    async with callers(tmp_path) as made:
        first = await made.alice.get("/api/v1/agents?limit=1")
        announced = (await made.alice.get("/agents?limit=1")).json()["next_cursor"]
        made.bench.clock.advance(limits.CURSOR_SECONDS - 1)
        alice = made.bench.as_("alice")
        cursor = first.json()["next_cursor"]
        for path, given in (("/api/v1/agents", cursor), ("/agents", announced)):
            assert (await alice.get(path, params={"cursor": given, "limit": 1})).status_code == 200, path
        made.bench.clock.advance(limits.CURSOR_SECONDS + 1)
        alice = made.bench.as_("alice")
        for path, given in (("/api/v1/agents", cursor), ("/agents", announced)):
            assert (await alice.get(path, params={"cursor": given, "limit": 1})).status_code == 400, path
