"""An outsider learns nothing about a thousand private agents from any API (THREATS V1, V2, E7, P8).

Two services have the same past, keys and clock; one of them then gets a thousand private agents. Whatever an outsider asks
both is answered with the same bytes, and takes the same steps.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from bench.paired_services import TAGS, WORDS, twins

import waypost
from support.service import Bench, profile, service
from waypost.model.principal import Principal
from waypost.registry.change_log import WatchEvent
from waypost.search.text.analyzer import analyze_query, query_terms

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.own_store,  # one of the two services starts from a copy of the other's folder
]
Pair = tuple[Bench, Bench]
PATHS = (
    "/?q=falcon", "/?q=helper&tag=hush", "/?tag=translatio", "/?part=found&status=active", "/?q=falcn+hussh", "/changes",
    "/a/hidden-5", "/a/hidden-1", "/a/hidden-5?as=a2a",
    "/", "/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent-card", "/v1/card",
    "/.well-known/agent-card.json?agent=hidden-5", "/.well-known/agent-card?agent=hidden-5",
    "/.well-known/ai-catalog.json", "/schemas/profile.json", "/readyz",
    "/v0.1/servers", "/v0.1/servers?search=hidden", "/v0.1/servers/hidden-5/versions", "/v0/servers/hidden-1/versions/latest",
    "/a2a/hidden-5/.well-known/agent-card.json", "/a2a/hidden-1/.well-known/agent-card.json?v=0.3",
    "/api/v1/agents", "/api/v1/agents?limit=7", "/api/v1/agents?tag=hush", "/api/v1/agents?tag=translatio",
    "/api/v1/agents?owner=alice", "/api/v1/agents?status=active", "/api/v1/agents/hidden-5", "/api/v1/agents/hidden-1",
    "/api/v1/agents/hidden", "/api/v1/agents/Hidden-5", "/api/v1/agents/hiden-5", "/api/v1/agents/helper",
    "/api/v1/agents/hidden-5:history", "/api/v1/agents/hidden-5:diff", "/api/v1/agents/hidden-5:verify",
    "/api/v1/agents/hidden-5?as=a2a", "/api/v1/agents:export", "/api/v1/agents:export?as=profile",
    "/api/v1/facets", "/api/v1/facets?tag=hus", "/api/v1/stats", "/api/v1/operations", "/api/v1/audit", "/api/v1/keys",
    "/api/v1/allow", "/metrics", "/openapi.json",
    "/profile/v1", "/profile/v1/agents", "/profile/v1/agents?limit=3", "/profile/v1/agents/hidden-5",
    "/.well-known/agentframework/v1/agents", "/.well-known/agentframework/v1/agents?page=2&per_page=7",
    "/.well-known/agentframework/v1/agents?q=falcon", "/.well-known/agentframework/v1/agents?tag=hush",
    "/.well-known/agentframework/v1/agents/hidden-5", "/.agent-framework/v1/agents", "/v1/agents",
    "/agents", "/agents?limit=4", "/agents?capability=hush", "/agents?signed=true", "/agents/hidden-5", "/agents/revocations",
)  # fmt: skip
QUESTIONS: tuple[dict[str, Any], ...] = (
    *({"query": word, "include_evidence": True, "limit": 20} for word in WORDS),
    *({"query": word, "required_tags": [tag]} for word in WORDS for tag in (*TAGS, "hush", "translatio")),
    {"query": "falcon", "facets": ["tag", "protocol", "status", "owner"]},
    {"query": "helper", "constraints": {"region": "asia"}},
    {"query": "helper", "preferred_tags": ["hush"], "excluded_tags": ["legal"], "min_score": 0.1},
    {"query": "helper", "client_context": {"domain": "hush", "region": "asia"}},
    {"query": "helper", "detail": "full"},
    *({"query": word, "min_match": least} for word in WORDS for least in ("strong", "possible")),
)
# Writes to an agent that an outsider does not see. They are all refused, so they change neither service.
WRITES: tuple[tuple[str, str, Any, dict[str, str]], ...] = (
    *(("POST", f"/api/v1/agents/hidden-5:{verb}", body, {}) for verb, body in (
        ("renew", {"ttl_seconds": 60}), ("share", {"add": ["bob"]}), ("host", {"domain": "hidden.example"}),
        ("confirm", {"etag": "x"}), ("reject", {"etag": "x"}), ("verify", {}),
    )),
    *(("DELETE", f"{path}/{name}", None, headers)
      for path in ("/api/v1/agents", "/profile/v1/agents", "/agents") for name in ("hidden-5", "hidden-1")
      for headers in ({}, {"If-Match": '"x"'})),
    *(("PUT", "/profile/v1/agents/hidden-5", profile("hidden-5"), {"If-Match": tag, **key})
      for tag in ('"x"', "*") for key in ({}, {"Idempotency-Key": "k"})),
    ("POST", "/api/v1/agents", profile("hidden-5"), {"If-Match": "*"}),
    *(("POST", "/rtfs", {"jsonrpc": "2.0", "id": 1, "method": f"rtfs.registry.{verb}", "params": {"agent_id": "hidden-5"}}, {})
      for verb in ("heartbeat", "refresh", "deregister")),
)  # fmt: skip
# These give way to others while they work: how often they resume is a matter of the clock, so their steps are not counted.
PACED_PATHS = ("/ard/agents", "/ard/agents?pageSize=3", "/ard/agents?filter=tags%20%3D%20hush")
ARD_QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("search", {"query": {"text": word}, "pageSize": 5}) for word in WORDS),
    ("search", {"query": {"text": "helper", "filter": {"tags": "hush"}}, "federation": "referrals"}),
    ("search", {"query": {"text": "helper", "filter": {"representativeQueries": "falcon"}}}),
    ("explore", {"resultType": {"facets": [{"field": "tags"}, {"field": "publisher"}, {"field": "description"}]}}),
    ("explore", {"query": {"text": "falcon"}, "resultType": {"facets": [{"field": "type"}]}}),
)


async def everything(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Every response with its headers, except for members that differ in every response."""
    found: dict[str, Any] = {}
    for path in (*PATHS, *PACED_PATHS):
        found[path] = comparable(await client.get(path, headers={"X-Request-Id": "r"}))
    for number, asked in enumerate(QUESTIONS):
        answer = await client.post("/profile/v1/discover", json=asked, headers={"X-Request-Id": "r"})
        found[f"discover {number} {asked}"] = comparable(answer)
    for params in (
        {"discovery_tags": ["hush"]},
        {"agent_id": "hidden-5"},
        {"discovery_query": {"text_search": "falcon"}},
    ):
        call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": params}
        found[f"rtfs {params}"] = comparable(await client.post("/rtfs", json=call, headers={"X-Request-Id": "r"}))
    for method, path, body, headers in WRITES:
        answer = await client.request(method, path, json=body, headers={"X-Request-Id": "r", **headers})
        found[f"{method} {path} {body} {headers}"] = comparable(answer)
    for path, body in ARD_QUESTIONS:
        answer = await client.post(f"/ard/{path}", json=body, headers={"X-Request-Id": "r"})
        found[f"ard {path} {body}"] = comparable(answer)
    found["walk"] = await walk(client)
    return found


_MOMENT = re.compile(r'"(generated_at|request_id|query_id|took_ms|elapsed_ms|latency_ms|timestamp)":("[^"]*"|[\d.]+)')


def comparable(answer: httpx2.Response) -> tuple[int, list[tuple[str, str]], str]:
    return answer.status_code, sorted(answer.headers.items()), _MOMENT.sub(r'"\1":"…"', answer.text)


async def walk(client: httpx2.AsyncClient) -> list[str]:
    """The pages of a list, cursors and all."""
    pages, cursor = [], None
    while True:
        params = {"limit": "7"} | ({"cursor": cursor} if cursor else {})
        answer = await client.get("/api/v1/agents", params=params)
        pages.append(answer.text)
        cursor = answer.json().get("next_cursor")
        if cursor is None:
            return pages


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    start = functools.partial(service, store="sqlite", anonymous_read=True)
    async with twins(tmp_path_factory.mktemp("twins"), start) as made:
        yield made


@pytest.mark.parametrize("outsider", ["bob", None])
async def test_no_byte_of_any_response_reveals_a_thousand_private_agents(pair: Pair, outsider: str | None) -> None:
    clients = [bench.as_(outsider) if outsider else bench.anonymous() for bench in pair]
    without, with_them = [await everything(client) for client in clients]
    for asked, expected in without.items():
        assert with_them[asked] == expected, asked
    assert len((await pair[1].as_("alice").get("/api/v1/agents?limit=200")).json()["agents"]) == 200


def varied(count: int) -> Iterator[dict[str, Any]]:
    """Questions with all that one may ask for, each another."""
    chance = random.Random(11)
    tags = (*TAGS, "hush", "translatio", "falcon")
    for number in range(count):
        words = chance.sample((*WORDS, *tags, "zebra"), chance.randint(1, 4))
        asked: dict[str, Any] = {"query": f"{' '.join(words)} {number}", "limit": chance.choice((1, 5, 20))}
        for name in ("required_tags", "preferred_tags", "excluded_tags"):
            if chance.random() < 0.25:
                asked[name] = chance.sample(tags, chance.randint(1, 2))
        if chance.random() < 0.2:
            asked["constraints"] = {"region": chance.choice(("eu", "us", "asia"))}
        if chance.random() < 0.2:
            asked["facets"] = ["tag", "protocol", "status"]
        yield {**asked, "include_evidence": chance.random() < 0.5, "diversity": chance.random() < 0.8}


async def test_no_byte_of_four_hundred_more_answers_does(pair: Pair) -> None:
    clients = [bench.as_("carol") for bench in pair]
    found = 0
    for question in varied(400):
        answers = [
            await client.post("/profile/v1/discover", json=question, headers={"X-Request-Id": "r"})
            for client in clients
        ]
        without, with_them = map(comparable, answers)
        assert with_them == without, question
        assert without[0] == 200, question
        found += bool(answers[0].json()["candidates"])
    assert found > 100


# --- Steps -----------------------------------------------------------------------------------------
#
# How long an answer takes is measured by `python -m bench.privacy`. Here it is held that nothing is done for the private
# agents at all: every function of the service is called as often as without them. A preferred tag is left out: one that
# is there is looked up among the visible agents, which costs microseconds and is part of that measurement.

Ask = Callable[[httpx2.AsyncClient], Awaitable[object]]
SOURCE = str(Path(waypost.__file__).parent)


def every_request() -> Iterator[tuple[str, Ask]]:
    for path in PATHS:
        yield path, lambda client, path=path: client.get(path)
    for method, path, body, headers in WRITES:
        yield (
            f"{method} {path} {body} {headers}",
            lambda client, method=method, path=path, body=body, headers=headers: client.request(
                method, path, json=body, headers=headers
            ),
        )
    for question in QUESTIONS:
        if "preferred_tags" not in question:
            yield str(question), lambda client, question=question: client.post("/profile/v1/discover", json=question)


def never_asked() -> Iterator[tuple[Ask, Ask]]:
    """Questions with the same words in two orders: the second finds every word known, and is no answer from memory."""
    for words in itertools.permutations(("zebra", *WORDS[0].split(), *WORDS[3].split()), 3):
        first, second = ({"query": " ".join(order), "limit": 20} for order in (words, reversed(words)))
        yield (
            lambda client, question=first: client.post("/profile/v1/discover", json=question),
            lambda client, question=second: client.post("/profile/v1/discover", json=question),
        )


async def steps(client: httpx2.AsyncClient, ask: Ask) -> Counter[str]:
    """How often each function of the service was called."""
    calls: Counter[str] = Counter()
    task = asyncio.current_task()  # background work of the services is not counted

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE) and asyncio.current_task() is task:
            calls[f"{frame.f_code.co_filename.removeprefix(SOURCE)}:{frame.f_code.co_qualname}"] += 1

    query_terms.cache_clear()  # of the process, which in life only one of the two has
    analyze_query.cache_clear()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        await ask(client)
    finally:
        sys.setprofile(before)
    return calls


async def test_hidden_agents_cost_no_work_for_other_callers(pair: Pair) -> None:
    clients = [bench.as_("bob") for bench in pair]
    for name, ask in every_request():
        for client in clients:
            await ask(client)
        without, with_them = [await steps(client, ask) for client in clients]
        assert without, "nothing was counted"
        assert with_them == without, name


async def test_nothing_is_done_for_them_when_a_question_is_new(pair: Pair) -> None:
    clients = [bench.as_("bob") for bench in pair]
    for warm, ask in never_asked():
        for client in clients:
            await warm(client)
        without, with_them = [await steps(client, ask) for client in clients]
        assert any("rank" in name for name in without), "the question was not searched for"
        assert with_them == without


# --- Events, last: one more agent is registered with both, and that is folded in its own time


async def test_no_event_reveals_private_agents(pair: Pair) -> None:
    told = []
    for bench in pair:
        events: list[tuple[str, str, str, float]] = []
        stream = await bench.registry.watch(Principal(subject="bob"), "0", renewals=True)
        await bench.as_("owner").post("/api/v1/agents", json=profile("last"))
        async with asyncio.timeout(60):
            async for item in stream:
                assert isinstance(item, WatchEvent)
                events.append((item.type, item.event.id, item.event.shown or item.event.etag, item.event.at))
                if item.event.id == "last":
                    break
        told.append((events, len(item.cursor)))
    assert told[0] == told[1]
