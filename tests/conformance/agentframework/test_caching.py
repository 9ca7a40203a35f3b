"""Validators and conditional requests (agentframework.md §7)."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import pytest

from support.agent_framework import AGENTS, ALICE, ANNOTATOR, FAQ, START, Opener, application, numbered, service
from waypost.server.http.conditional_requests import format_http_date, parse_http_date

ITEM = f"{AGENTS}/image-annotator"
STRONG = re.compile(r'"[A-Za-z0-9_-]{22}"\Z')


@pytest.mark.req("AF-33", "AF-34")
@pytest.mark.parametrize("path", [AGENTS, ITEM])
async def test_both_endpoints_send_an_etag_of_their_content_and_last_modified(opened: Opener, path: str) -> None:
    async with opened([ANNOTATOR, FAQ]) as served:
        answer = await served.client.get(path, headers=ALICE)
    digest = hashlib.sha256(answer.content + b"application/json").digest()
    assert answer.headers["etag"] == f'"{base64.urlsafe_b64encode(digest).decode()[:22]}"'
    assert parse_http_date(answer.headers["last-modified"]) is not None


@pytest.mark.req("AF-34")
async def test_the_tag_outlives_a_restart_changes_on_edit_and_differs_by_view(opened: Opener) -> None:
    tags = []
    for _ in range(2):
        async with opened([ANNOTATOR, FAQ]) as served:
            tags.append([(await served.client.get(path, headers=ALICE)).headers["etag"] for path in (AGENTS, ITEM)])
            views = {
                (await served.client.get(f"{AGENTS}?{query}", headers=ALICE)).headers["etag"]
                for query in ("", "view=full", "include=owner", "per_page=1", "per_page=1&page=2")
            }
    assert tags[0] == tags[1]
    assert len(views) == 5
    async with opened([ANNOTATOR, FAQ]) as served:
        await served.register({**ANNOTATOR, "summary": "New.", "updated_at": "2025-08-16T00:00:00Z"})
        assert (await served.client.get(AGENTS, headers=ALICE)).headers["etag"] != tags[0][0]
        assert (await served.client.get(ITEM, headers=ALICE)).headers["etag"] != tags[0][1]


@pytest.mark.req("AF-34")
async def test_the_etag_differs_by_what_the_caller_may_see(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        tags = {(await served.client.get(ITEM, headers=headers)).headers["etag"] for headers in (ALICE, {})}
    assert len(tags) == 2


@pytest.mark.req("AF-35")
async def test_a_removal_counts_as_a_change_of_the_list(opened: Opener) -> None:
    async with opened([ANNOTATOR, FAQ]) as served:
        before = await served.client.get(AGENTS)
        served.clock.at += 100
        await served.withdraw("faq-search")
        after = await served.client.get(AGENTS)
    assert before.headers["etag"] != after.headers["etag"]
    assert after.headers["last-modified"] == format_http_date(START + 100).decode()
    assert before.headers["last-modified"] == format_http_date(START).decode()


@pytest.mark.req("AF-35")
async def test_an_expired_agent_counts_as_a_removal() -> None:
    async with service([ANNOTATOR]) as served:
        await served.register({**FAQ, "updated_at": "2026-01-01T00:00:00Z"}, ttl_seconds=60)
        assert len((await served.client.get(AGENTS)).json()["agents"]) == 2
        served.clock.at += 61
        after = await served.client.get(AGENTS)
    assert len(after.json()["agents"]) == 1
    assert after.headers["last-modified"] == format_http_date(START + 60).decode()


@pytest.mark.req("AF-35")
async def test_the_item_changed_when_its_content_did_and_never_in_the_future() -> None:
    ahead = {**FAQ, "updated_at": "2026-09-21T14:15:00.250Z"}  # 100 seconds ahead of the clock
    async with application([ANNOTATOR, ahead]) as served:
        item = await served.client.get(ITEM)
        future = await served.client.get(f"{AGENTS}/faq-search")
    assert item.headers["last-modified"] == "Fri, 15 Aug 2025 10:01:03 GMT"
    assert parse_http_date(future.headers["last-modified"]) == START


@pytest.mark.req("AF-36")
@pytest.mark.parametrize("path", [AGENTS, ITEM, f"{AGENTS}?per_page=1"])
async def test_if_none_match_by_weak_comparison_answers_304(opened: Opener, path: str) -> None:
    async with opened([ANNOTATOR, FAQ]) as served:
        first = await served.client.get(path, headers=ALICE)
        etag = first.headers["etag"]
        for header, status in (
            (etag, 304),
            (f"W/{etag}", 304),
            (f'"other", {etag}', 304),
            ("*", 304),
            ('"other"', 200),
            (etag.strip('"'), 200),
            ('"', 200),
        ):
            for method in ("GET", "HEAD"):
                answer = await served.client.request(method, path, headers={"If-None-Match": header, **ALICE})
                assert answer.status_code == status, header
        fresh = await served.client.get(path, headers={"If-None-Match": etag, **ALICE})
    assert fresh.content == b""
    assert "content-type" not in fresh.headers
    for name in ("etag", "cache-control", "vary", "last-modified"):
        assert fresh.headers[name] == first.headers[name]


@pytest.mark.req("AF-36")
async def test_a_304_carries_the_content_location(opened: Opener) -> None:
    agent: dict[str, Any] = {**numbered(1)[0], "id": "https://h.example/a"}
    path = f"{AGENTS}/https%3A%2F%2Fh.example%2Fa"
    async with opened([agent]) as served:
        first = await served.client.get(path)
        fresh = await served.client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert fresh.status_code == 304
    assert fresh.headers["content-location"] == first.headers["content-location"]


@pytest.mark.req("AF-37")
async def test_if_modified_since_counts_only_alone_and_when_it_is_a_past_date(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        first = await served.client.get(AGENTS)
        served.clock.at += 3600
        when = parse_http_date(first.headers["last-modified"])
        assert when is not None
        for since, status in (
            (format_http_date(when).decode(), 304),
            (format_http_date(when + 60).decode(), 304),
            (format_http_date(when - 1).decode(), 200),
            (format_http_date(served.clock.at + 86_400).decode(), 200),
            ("yesterday", 200),
        ):
            assert (await served.client.get(AGENTS, headers={"If-Modified-Since": since})).status_code == status
        both = {"If-Modified-Since": format_http_date(when + 60).decode(), "If-None-Match": '"other"'}
        assert (await served.client.get(AGENTS, headers=both)).status_code == 200
        both["If-None-Match"] = first.headers["etag"]
        both["If-Modified-Since"] = format_http_date(when - 60).decode()
        assert (await served.client.get(AGENTS, headers=both)).status_code == 304
        assert (await served.client.head(AGENTS, headers=both)).status_code == 304


@pytest.mark.req("AF-38")
async def test_refusals_come_before_preconditions(opened: Opener) -> None:
    anything = {"If-None-Match": "*"}
    async with opened([ANNOTATOR]) as served:
        assert (await served.client.get(f"{AGENTS}/nobody", headers=anything)).status_code == 404
        assert (await served.client.get(f"{AGENTS}?page=0", headers=anything)).status_code == 400
        assert (await served.client.get(AGENTS, headers={**anything, "Accept": "text/html"})).status_code == 406


@pytest.mark.req("AF-39")
async def test_cache_headers_by_kind_of_answer(opened: Opener) -> None:
    async with opened([ANNOTATOR]) as served:
        anonymous = await served.client.get(AGENTS)
        known = await served.client.get(AGENTS, headers=ALICE)
        wrong = await served.client.get(f"{AGENTS}/nobody")
    assert anonymous.headers["cache-control"] == "public, max-age=60, stale-while-revalidate=300"
    assert known.headers["cache-control"] == "private, no-cache"
    assert wrong.headers["cache-control"] == "no-store"
