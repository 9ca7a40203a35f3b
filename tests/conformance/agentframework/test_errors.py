"""Problems: their members, their headers, their statuses (agentframework.md §8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, BASE, BASE_URL, Clock, Opener, client_of, service
from waypost.errors import Forbidden, StoreUnavailable, Unauthorized, WaypostError
from waypost.model.principal import Principal
from waypost.server.api.agent_framework.api import AfRateLimiter
from waypost.server.api.agent_framework.middleware import Discovery, DiscoveryOptions
from waypost.server.http.asgi import Scope


def refusing(error: WaypostError) -> Any:
    """An application whose authentication refuses every caller."""

    def principal(scope: Scope) -> Principal:
        raise error

    return Discovery(agents=[ANNOTATOR], options=DiscoveryOptions(principal=principal, challenge='Basic realm="app"'))


class Broken:
    """A provider whose database is unavailable, or that raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def list(self, principal: Principal | None) -> tuple[Iterable[Any], None, None]:
        raise self._error

    async def get(self, principal: Principal | None, agent_id: str) -> None:
        raise self._error


@pytest.mark.req("AF-40")
async def test_a_problem_has_the_members_of_the_rfc_and_ours(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        problem = (await served.client.get(f"{AGENTS}/no%2Fbody?view=full")).json()
    assert problem["type"] == f"{BASE_URL}{BASE}/problems/not_found"
    assert (problem["title"], problem["status"]) == ("Not found", 404)
    assert problem["instance"] == f"{AGENTS}/no%2Fbody"
    assert problem["code"] == "not_found"
    assert problem["detail"].startswith(problem["message"])
    assert problem["correlation_id"]


@pytest.mark.req("AF-40")
async def test_the_callers_request_id_is_the_correlation_id_if_it_is_fit_to_be_repeated() -> None:
    async with client_of(Discovery(agents=[])) as client:
        given = await client.get(f"{AGENTS}/x", headers={"X-Request-Id": "abc-123"})
        made = await client.get(f"{AGENTS}/x", headers={"X-Request-Id": "x" * 500})
    assert given.json()["correlation_id"] == "abc-123"
    assert len(made.json()["correlation_id"]) == 16


@pytest.mark.req("AF-40", "AF-41", "AF-42", "AF-50")
async def test_refused_callers_get_401_with_a_challenge_or_403() -> None:
    async with client_of(refusing(Unauthorized("No credential."))) as client:
        unknown = await client.get(AGENTS, headers={"If-None-Match": "*"})
    async with client_of(refusing(Forbidden("No right to discovery."))) as client:
        refused = await client.get(f"{AGENTS}/image-annotator", headers={"If-None-Match": "*"})
    assert (unknown.status_code, unknown.json()["code"]) == (401, "unauthorized")
    assert unknown.headers["www-authenticate"] == 'Basic realm="app"'
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


@pytest.mark.req("AF-41")
async def test_every_problem_type_leads_to_a_page(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        for path, code in ((f"{AGENTS}/nobody", "not_found"), (f"{AGENTS}?page=0", "invalid_request")):
            problem = (await served.client.get(path)).json()
            page = await served.client.get(problem["type"].removeprefix(BASE_URL))
            assert page.status_code == 200
            assert page.headers["content-type"].startswith("text/plain")
            assert page.text.startswith(code)
        for code in ("unauthorized", "forbidden", "rate_limited", "unavailable", "internal", "stale_metadata"):
            assert (await served.client.get(f"{BASE}/problems/{code}")).status_code == 200
        assert (await served.client.get(f"{BASE}/problems/colour")).status_code == 404


@pytest.mark.req("AF-41")
async def test_a_problem_is_sent_even_if_accept_excludes_it(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        answer = await served.client.get(f"{AGENTS}/nobody", headers={"Accept": "application/json"})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.req("AF-41", "AF-42")
async def test_a_fault_reveals_no_internals_and_an_unavailable_store_sends_retry_after() -> None:
    async with client_of(Discovery(provider=Broken(RuntimeError("secret path /etc/agents")))) as client:
        fault = await client.get(AGENTS)
    async with client_of(Discovery(provider=Broken(StoreUnavailable("The database is away.")))) as client:
        down = await client.get(f"{AGENTS}/x")
    assert (fault.status_code, fault.json()["code"]) == (500, "internal")
    assert "secret" not in fault.text
    assert (down.status_code, down.json()["code"]) == (503, "unavailable")
    assert int(down.headers["retry-after"]) > 0


@pytest.mark.req("AF-42")
async def test_an_agent_that_was_withdrawn_is_no_longer_found() -> None:
    async with service([ANNOTATOR]) as served:
        await served.withdraw("image-annotator")
        assert (await served.client.get(f"{AGENTS}/image-annotator", headers=ALICE)).status_code == 404


@pytest.mark.req("AF-54", "AF-41", "AF-42")
async def test_each_caller_has_a_rate_limit_with_retry_after(opened: Opener) -> None:
    clock = Clock()
    async with opened([ANNOTATOR], limiter=AfRateLimiter(clock.now)) as served:
        for _ in range(60):
            assert (await served.client.get(AGENTS)).status_code == 200
        refused = await served.client.get(AGENTS)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert refused.headers["retry-after"] == "1"
        for _ in range(600):  # the limit of an authenticated caller is ten times as high
            assert (await served.client.get(AGENTS, headers=ALICE)).status_code == 200
        assert (await served.client.get(AGENTS, headers=ALICE)).status_code == 429
        clock.at += 1
        assert (await served.client.get(AGENTS)).status_code == 200
        assert (await served.client.get(AGENTS)).status_code == 429
