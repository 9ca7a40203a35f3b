"""Who sees what (agentframework.md §9)."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from support.agent_framework import (
    AGENTS,
    ALICE,
    ANNOTATOR,
    FAQ,
    START,
    Opener,
    bearer,
    client_of,
    links_of,
    numbered,
    service,
)
from waypost.model.principal import Principal
from waypost.model.record import AgentRecord
from waypost.server.api.agent_framework.directory import AfLevel
from waypost.server.api.agent_framework.middleware import Discovery, DiscoveryOptions

SUMMARY = {"id", "name", "version", "summary", "tags"}


@pytest.mark.req("AF-50", "AF-51")
async def test_known_callers_see_all_of_an_agent_and_others_its_summary(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        known = (await served.client.get(f"{AGENTS}/image-annotator", headers=ALICE)).json()
        unknown = (await served.client.get(f"{AGENTS}/image-annotator")).json()
        listed = (await served.client.get(f"{AGENTS}?view=full")).json()["agents"]
        asked_for_less = (await served.client.get(f"{AGENTS}/image-annotator?view=summary")).json()
    assert known == ANNOTATOR
    assert set(unknown) == SUMMARY | {"metadata"}
    assert unknown["metadata"] == {"redacted": True}
    assert listed == [unknown]
    assert set(asked_for_less) == SUMMARY


@pytest.mark.req("AF-51")
@pytest.mark.parametrize(
    ("status", "shown"),
    [("active", True), ("testing", True), ("deprecated", True), ("suspended", False), ("inactive", False)],
)
async def test_suspended_and_inactive_agents_are_not_shown(opened: Opener, status: str, shown: bool) -> None:
    async with opened([{**numbered(1)[0], "status": status}]) as served:
        listed = (await served.client.get(AGENTS, headers=ALICE)).json()["agents"]
        item = await served.client.get(f"{AGENTS}/agent-0000", headers=ALICE)
    assert bool(listed) is shown
    assert (item.status_code == 200) is shown


@pytest.mark.req("AF-51")
async def test_an_agent_whose_time_is_over_is_not_shown(opened: Opener) -> None:
    async with opened([{**numbered(1)[0], "expires_at": "2026-09-21T14:13:30Z"}]) as served:
        assert served.clock.at == START
        assert len((await served.client.get(AGENTS)).json()["agents"]) == 1
        served.clock.at += 60
        assert (await served.client.get(AGENTS)).json()["agents"] == []
        assert (await served.client.get(f"{AGENTS}/agent-0000", headers=ALICE)).status_code == 404


def by_tag(principal: Principal | None, record: AgentRecord) -> AfLevel:
    """Alice sees everything; others see the summaries of agents with the tag vision."""
    if principal is not None and principal.subject == "alice":
        return "full"
    return "summary" if "vision" in record.tags else "none"


@pytest.mark.req("AF-50", "AF-51", "AF-52")
async def test_the_applications_policy_decides() -> None:
    app = Discovery(agents=[ANNOTATOR, FAQ], policy=by_tag, options=DiscoveryOptions(principal=bearer))
    async with client_of(app) as client:
        alice = (await client.get(AGENTS, headers=ALICE)).json()["agents"]
        bob = (await client.get(f"{AGENTS}?view=full", headers={"Authorization": "Bearer bob"})).json()["agents"]
    assert [agent["id"] for agent in alice] == ["faq-search", "image-annotator"]
    assert [(agent["id"], agent["metadata"]) for agent in bob] == [("image-annotator", {"redacted": True})]


def comparable(answer: httpx2.Response) -> tuple[Any, ...]:
    """A response without the parts that depend on the requested id and on the request id."""
    body = {name: value for name, value in answer.json().items() if name not in ("instance", "correlation_id")}
    return answer.status_code, sorted((n, v) for n, v in answer.headers.items() if n != "content-length"), body


@pytest.mark.req("AF-52", "AF-6")
async def test_hidden_and_unknown_agents_cannot_be_distinguished() -> None:
    app = Discovery(agents=[ANNOTATOR, FAQ], policy=by_tag, options=DiscoveryOptions(principal=bearer))
    async with client_of(app) as client:
        for suffix in ("", "?view=summary", "?page=1"):
            hidden = await client.get(f"{AGENTS}/faq-search{suffix}")
            unknown = await client.get(f"{AGENTS}/faq-nobody{suffix}")
            assert comparable(hidden) == comparable(unknown)
        page = await client.get(f"{AGENTS}?per_page=1")
        filtered = await client.get(f"{AGENTS}?id=faq-search")
        searched = await client.get(f"{AGENTS}?q=semantic")
    assert page.json()["total"] == 1
    assert "next" not in links_of(page)
    assert filtered.json()["agents"] == searched.json()["agents"] == []


@pytest.mark.req("AF-52")
async def test_a_private_record_leaves_no_trace_for_others() -> None:
    async with service([ANNOTATOR]) as served:
        bob = {"Authorization": "Bearer bob"}
        before = await served.client.get(f"{AGENTS}?page=1", headers=bob)
        served.clock.at += 50
        await served.register(FAQ, visibility="private")
        after = await served.client.get(f"{AGENTS}?page=1", headers=bob)
        hidden = await served.client.get(f"{AGENTS}/faq-search", headers=bob)
        unknown = await served.client.get(f"{AGENTS}/faq-nobody", headers=bob)
        own = await served.client.get(f"{AGENTS}/faq-search", headers=ALICE)
    assert after.content == before.content
    assert after.headers == before.headers  # ETag, Last-Modified, AF-Generation, X-Total-Count and all
    assert comparable(hidden) == comparable(unknown)
    assert own.status_code == 200


@pytest.mark.req("AF-52")
async def test_a_change_that_is_hidden_changes_no_validator() -> None:
    app = Discovery(agents=[ANNOTATOR], policy=by_tag, options=DiscoveryOptions(principal=bearer))
    async with client_of(app) as client:
        before = await client.get(AGENTS)
        app.provider.register(FAQ)
        after = await client.get(AGENTS)
    assert before.headers == after.headers


@pytest.mark.req("AF-52", "AF-21")
async def test_searching_reveals_nothing_that_reading_hides(opened: Opener) -> None:
    async with opened([FAQ]) as served:
        known = (await served.client.get(f"{AGENTS}?q=handbook", headers=ALICE)).json()["agents"]
        unknown = (await served.client.get(f"{AGENTS}?q=handbook")).json()["agents"]
    assert len(known) == 1
    assert unknown == []


@pytest.mark.req("AF-53")
async def test_text_is_data_and_internal_metadata_stays_inside(opened: Opener) -> None:
    agent = {
        **FAQ,
        "name": "FAQ\x1b[31m Search",
        "description": "Bell\x07 and <script>alert(1)</script>\nnext line",
        "metadata": {"canonical_id": "faq-search", "_secret": "x", "shown": "y"},
    }
    async with opened([agent]) as served:
        item = (await served.client.get(f"{AGENTS}/faq-search", headers=ALICE)).json()
    assert "\x1b" not in item["name"]
    assert item["description"] == "Bell and <script>alert(1)</script>\nnext line"
    assert item["metadata"]["shown"] == "y"
    assert "_secret" not in item["metadata"]


@pytest.mark.req("AF-53")
async def test_the_owners_address_is_for_known_callers() -> None:
    async with client_of(Discovery(agents=[ANNOTATOR])) as client:  # an application without authentication
        withheld = (await client.get(f"{AGENTS}/image-annotator")).json()
        listed = (await client.get(f"{AGENTS}?include=owner")).json()["agents"][0]
    async with client_of(Discovery(agents=[ANNOTATOR], options={"owner_email_to_anonymous": True})) as client:
        shown = (await client.get(f"{AGENTS}/image-annotator")).json()
    assert withheld["owner"] == listed["owner"] == {"name": "Vision Team"}
    assert withheld["endpoints"] == ANNOTATOR["endpoints"]
    assert shown["owner"] == ANNOTATOR["owner"]
