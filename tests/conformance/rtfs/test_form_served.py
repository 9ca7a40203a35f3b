"""rtfs.md §3 and §7 on HTTP, in the SDK and in the command: forms in, agent profiles out."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.apis import ServedApis, serve_apis
from support.rtfs import WEATHER_PROFILE, card
from support.service import profile
from waypost.client.requests import DiscoverCache
from waypost.errors import Timeout
from waypost.model.json import parse_object
from waypost.protocols.rtfs.agent_profile import parse_profile
from waypost.protocols.rtfs.card_derivation import derive_card
from waypost.protocols.rtfs.discover_form import DiscoverValue, failed_discovery, parse_discover
from waypost.protocols.rtfs.sexpr import Keyword, Map, Vector, parse_form

FORM = "(discover-agents {:discovery-tags [:weather] :limit 5} [{:timeout-ms 5000}])"
RTFS = {"Content-Type": "application/rtfs"}


@pytest.fixture
async def apis(tmp_path: Path) -> AsyncIterator[ServedApis]:
    async with serve_apis(tmp_path) as started:
        for document in (card("storm"), card("breeze"), card("other", discovery_tags=["cooking"])):
            await started.subject("alice").rpc.register(document)
        yield started


def agent_ids(text: str) -> list[Any]:
    value = parse_form(text)
    assert isinstance(value, Vector)
    return [item.find("agent_id") for item in value.items if isinstance(item, Map)]


def failure_type(text: str) -> str:
    value = parse_form(text)
    assert isinstance(value, Vector)
    marker, details = value.items
    assert marker == Keyword("error")
    assert isinstance(details, Map)
    found = details.find("type")
    assert isinstance(found, Keyword)
    return found.name


async def post_form(client: httpx2.AsyncClient, form: str) -> httpx2.Response:
    return await client.post("/rtfs", content=form, headers=RTFS)


@pytest.mark.req("RTFS-60", "RTFS-63")
async def test_a_form_has_the_same_value_on_http_in_the_clients_and_in_the_command(apis: ServedApis) -> None:
    alice = apis.subject("alice")
    response = await post_form(alice.http, FORM)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/rtfs")
    assert response.headers["cache-control"] == "no-store"
    assert agent_ids(response.text) == ["breeze", "storm"]
    async with alice.client() as client:
        value = await client.discover_agents(FORM)
    with alice.sync_client() as sync:
        assert await asyncio.to_thread(sync.discover_agents, FORM) == value
    assert value.text == response.text
    assert [found["agent_id"] for found in value.cards] == ["breeze", "storm"]
    ran = await alice.run("find", FORM)
    assert (ran.code, ran.out) == (0, response.text)
    ran = await alice.run("find", FORM, "-o", "json")
    assert [found["agent_id"] for found in json.loads(ran.out)] == ["breeze", "storm"]


@pytest.mark.req("RTFS-60", "RTFS-61")
async def test_ignored_keys_are_named_in_comments_and_the_text_stays_readable(apis: ServedApis) -> None:
    form = '(discover-agents {:agent-id "storm" :colour :red} {:retries 3})'
    response = await post_form(apis.subject("alice").http, form)
    assert response.text.splitlines()[:2] == [
        "; warning: :colour: not a criterion; it was ignored.",
        "; warning: :retries: not an option; it was ignored.",
    ]
    assert agent_ids(response.text) == ["storm"]
    assert (await apis.subject("alice").run("find", form)).out == response.text


@pytest.mark.req("RTFS-61")
async def test_the_service_never_asks_the_registry_that_a_form_names(apis: ServedApis) -> None:
    form = '(discover-agents {:agent-id "storm"} {:registry-uri "http://127.0.0.1:1/rtfs"})'
    assert agent_ids((await post_form(apis.subject("alice").http, form)).text) == ["storm"]
    ran = await apis.subject("alice").run("find", form)
    assert (ran.code, failure_type(ran.out)) == (69, "error/discovery.unavailable")


@pytest.mark.req("RTFS-61")
async def test_another_registry_is_called_without_the_credentials_of_the_client(apis: ServedApis) -> None:
    form = f'(discover-agents {{:agent-id "storm"}} {{:registry-uri "{apis.url}/agents"}})'
    async with apis.subject("alice").client() as client:
        refused = await client.discover_agents(form)
    assert refused.failure is not None
    assert refused.failure.type == "unauthorized"
    assert refused.failure.details["registry_uri"] == f"{apis.url}/agents"


@pytest.mark.req("RTFS-61")
async def test_a_value_of_the_last_minute_is_reused_unless_the_form_says_otherwise(apis: ServedApis) -> None:
    async with apis.subject("alice").client() as client:

        async def found(policy: str) -> list[str]:
            form = f"(discover-agents {{:tags [:weather]}} {{:cache-policy :{policy}}})"
            return [item["agent_id"] for item in (await client.discover_agents(form)).cards]

        assert await found("no-cache") == ["breeze", "storm"]
        await apis.subject("alice").rpc.register(card("gale"))
        assert await found("use-cache") == ["breeze", "gale", "storm"]
        await apis.subject("alice").rpc.register(card("hail"))
        assert await found("use-cache") == ["breeze", "gale", "storm"]
        assert await found("no-cache") == ["breeze", "gale", "hail", "storm"]
        assert await found("use-cache") == ["breeze", "gale", "storm"]
        assert await found("refresh-cache") == await found("use-cache") == ["breeze", "gale", "hail", "storm"]


@pytest.mark.req("RTFS-61")
def test_a_value_is_fresh_for_a_minute_and_a_failure_is_not_cached() -> None:
    now = 0.0
    cache = DiscoverCache(lambda: now)
    form = parse_discover('(discover-agents {:agent-id "a"})')
    cache.put(form, failed_discovery(Timeout("Too slow.")))
    assert cache.find(form) is None
    value = DiscoverValue(cards=({"agent_id": "a"},))
    cache.put(form, value)
    now = 60.0
    assert cache.find(form) == value
    now = 60.1
    assert cache.find(form) is None


@pytest.mark.req("RTFS-62", "RTFS-63")
async def test_a_form_that_is_not_data_fails_alike_and_the_client_sends_nothing(apis: ServedApis) -> None:
    form = "(discover-agents {:agent-id (whoami)})"
    response = await post_form(apis.subject("alice").http, form)
    assert response.status_code == 200
    assert failure_type(response.text) == "error/discovery.query-failed"
    ran = await apis.subject("alice").run("--server", "http://127.0.0.1:1", "find", form)
    assert (ran.code, ran.out) == (1, response.text)
    ran = await apis.subject("alice").run("find", form, "-o", "json")
    assert (ran.code, ran.out) == (1, "")
    assert "(whoami) is not data" in ran.err


@pytest.mark.req("RTFS-63")
async def test_a_refusal_has_its_http_status_and_the_type_of_the_form(apis: ServedApis) -> None:
    response = await post_form(apis.caller(None).http, FORM)
    assert (response.status_code, response.headers["content-type"]) == (401, "application/rtfs")
    assert failure_type(response.text) == "error/discovery.unauthorized"
    ran = await apis.caller(None).run("find", FORM)
    assert (ran.code, failure_type(ran.out)) == (77, "error/discovery.unauthorized")
    forbidden = await post_form(apis.subject("eve", "discover:write").http, FORM)
    assert failure_type(forbidden.text) == "error/discovery.unauthorized"


@pytest.mark.req("RTFS-60")
async def test_a_form_takes_no_options_of_the_command(apis: ServedApis) -> None:
    ran = await apis.subject("alice").run("find", FORM, "--tag", "weather")
    assert ran.code == 64
    assert "--tag cannot be combined with a form" in ran.err


# --- Agent profiles -----------------------------------------------------------------------------------


@pytest.mark.req("RTFS-10", "RTFS-20")
async def test_a_profile_comes_back_as_the_text_that_was_registered(apis: ServedApis) -> None:
    alice = apis.subject("alice")
    made = await alice.http.post("/api/v1/agents", content=WEATHER_PROFILE, headers=RTFS)
    assert made.status_code == 201
    path = f"/api/v1/agents/{made.json()['id']}"
    response = await alice.http.get(path, params={"as": "rtfs", "form": "profile"})
    assert (response.headers["content-type"], response.text) == ("application/rtfs", WEATHER_PROFILE)
    card_etag = (await alice.http.get(path, params={"as": "rtfs", "form": "card"})).headers["etag"]
    assert response.headers["etag"] not in (card_etag, made.headers["etag"])
    again = await alice.http.get(
        path, params={"as": "rtfs", "form": "profile"}, headers={"If-None-Match": response.headers["etag"]}
    )
    assert again.status_code == 304


@pytest.mark.req("RTFS-20")
async def test_a_card_is_printed_as_a_profile_that_gives_the_card_again(apis: ServedApis) -> None:
    alice = apis.subject("alice")
    document = card("squall", metadata={"owner": "acme", "snake_key": {"a_b": [None, True]}}, house_style="brutalist")
    await alice.rpc.register(document)
    response = await alice.http.get("/api/v1/agents/squall", params={"as": "rtfs", "form": "profile"})
    derived = derive_card(parse_profile(response.text))[0]
    kept = {name: value for name, value in document.items() if name not in ("house_style", "communication")}
    assert {name: derived[name] for name in kept} == kept
    assert derived["communication"]["endpoints"] == document["communication"]["endpoints"]
    losses = json.loads(response.headers["waypost-losses"])
    assert losses == [{"path": "$.house_style", "reason": "an agent profile has no such member"}]
    async with alice.client() as client:
        found = await client.document("squall", "rtfs", "profile")
    assert (found.content, found.losses[0].path) == (response.content, "$.house_style")
    ran = await alice.run("get", "squall", "--as", "rtfs", "--form", "profile")
    assert (ran.code, ran.out) == (0, response.text)
    ran = await alice.run("get", "squall", "--as", "rtfs", "--form", "profile", "-o", "json")
    assert json.loads(ran.out) == response.text


@pytest.mark.req("RTFS-20")
async def test_an_agent_of_another_dialect_has_a_profile_too(apis: ServedApis) -> None:
    alice = apis.subject("alice")
    assert (await alice.http.post("/api/v1/agents", json=profile("plain", tags=["ü b"]))).status_code == 201
    params = {"as": "rtfs", "form": "profile"}
    text = (await alice.http.get("/api/v1/agents/plain", params=params)).text
    shown = parse_object((await alice.http.get("/api/v1/agents/plain", params={"as": "rtfs"})).content)
    derived = derive_card(parse_profile(text))[0]
    assert (derived["agent_id"], derived["discovery_tags"]) == ("plain", shown["discovery_tags"])


@pytest.mark.req("RTFS-20")
@pytest.mark.parametrize(
    "params", [{"as": "rtfs", "form": "scroll"}, {"as": "a2a", "form": "profile"}, {"form": "profile"}]
)
async def test_only_rtfs_has_the_forms_card_and_profile(apis: ServedApis, params: dict[str, str]) -> None:
    refused = await apis.subject("alice").http.get("/api/v1/agents/storm", params=params)
    assert (refused.status_code, refused.json()["path"]) == (400, "form")
    ran = await apis.subject("alice").run("get", "storm", "--form", "profile")
    assert (ran.code, "--form needs --as rtfs, a2a or mcp." in ran.err) == (64, True)
