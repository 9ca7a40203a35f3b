"""The catalog over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.service import profile, service
from waypost.model.json import dump_json
from waypost.protocols.codec import DecodeContext
from waypost.protocols.dialects import decode_document
from waypost.samples import load


@pytest.mark.req("ARD-9")
async def test_the_catalog_has_its_media_type_and_can_be_cached(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("a"))
        anyone = bench.anonymous()
        first = await anyone.get("/.well-known/ai-catalog.json")
        assert first.headers["content-type"] == "application/ai-catalog+json"
        assert first.headers["cache-control"] == "public, max-age=300"
        assert first.headers["access-control-allow-origin"] == "*"
        again = await anyone.get("/.well-known/ai-catalog.json", headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304
        await bench.admin().post("/api/v1/agents", json=profile("b"))
        changed = await anyone.get("/.well-known/ai-catalog.json", headers={"If-None-Match": first.headers["etag"]})
        assert changed.status_code == 200


@pytest.mark.req("ARD-10")
@pytest.mark.parametrize("host", [None, "alice.example.com"])
async def test_the_page_links_to_the_catalog_in_its_head_and_in_a_header(tmp_path: Path, host: str | None) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("a"))
        await bench.admin().post("/api/v1/agents/a:host", json={"domain": "alice.example.com"})
        headers = {"Host": host} if host else {}
        page = await bench.anonymous().get("/", headers=headers)
        assert page.headers["link"] == '</.well-known/ai-catalog.json>; rel="ai-catalog"'
        assert '<link rel="ai-catalog" href="/.well-known/ai-catalog.json">' in page.text.partition("</head>")[0]
        assert (await bench.anonymous().head("/", headers=headers)).headers["link"] == page.headers["link"]
        catalog = (await bench.anonymous().get("/.well-known/ai-catalog.json", headers=headers)).json()
        assert catalog["host"]["displayName"] == ("Minimal Agent" if host else "Waypost")


@pytest.mark.req("ARD-9")
@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", "application/ai-catalog+json"),
        ("application/json", "application/json"),
        ("application/json, application/ai-catalog+json", "application/ai-catalog+json"),
        ("text/html", "application/ai-catalog+json"),
    ],
)
async def test_a_client_that_accepts_plain_json_alone_is_given_the_catalog_so(
    tmp_path: Path, accept: str, given: str
) -> None:
    async with service(tmp_path) as bench:
        answer = await bench.anonymous().get("/.well-known/ai-catalog.json", headers={"Accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (200, given)
        assert answer.headers["vary"] == "Host, Accept"


@pytest.mark.req("ARD-4")
async def test_every_link_of_the_catalog_leads_anyone_to_the_named_document(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        for sample in load():
            await bench.admin().post("/api/v1/agents", content=sample.data)
        hidden = {**profile("hidden"), "bindings": [{"protocol": "a2a+jsonrpc", "endpoint": "https://h.example/a"}]}
        await bench.admin().post("/api/v1/agents", json=hidden, headers={"Waypost-Visibility": "internal"})
        anyone = bench.anonymous()
        entries = (await anyone.get("/.well-known/ai-catalog.json")).json()["entries"]
        own = [entry for entry in entries if entry.get("url", "").startswith(bench.application.base_url)]
        assert len(own) > 2
        for entry in own:
            answer = await anyone.get(entry["url"])
            assert (answer.status_code, answer.headers["content-type"]) == (200, entry["type"])
            assert (
                await anyone.get(entry["url"], headers={"If-None-Match": answer.headers["etag"]})
            ).status_code == 304
            if entry["type"] == "application/ai-registry+json":
                assert answer.json()["metadata"]["search"] == f"{entry['url']}search"
            else:
                assert answer.headers["vary"] == "Host, Accept"
        for entry in entries:
            if "data" in entry:
                _, _, decoded = decode_document(dump_json(entry["data"]), None, DecodeContext(now=bench.clock.now()))
                assert decoded.record.name == entry["displayName"]
        found = await bench.admin().post("/ard/search", json={"query": {"text": "hidden"}, "pageSize": 1})
        assert found.json()["results"][0]["data"]["supportedInterfaces"][0]["protocolBinding"] == "JSONRPC"


@pytest.mark.req("ARD-4")
async def test_a_card_is_plain_json_for_a_client_that_accepts_nothing_else(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await bench.admin().post("/api/v1/agents", json=profile("a"))
        anyone = bench.anonymous()
        path = "/a2a/a/.well-known/agent-card.json"
        typed, plain = [await anyone.get(path, headers={"Accept": accept}) for accept in ("*/*", "application/json")]
        assert plain.headers["content-type"] == "application/json"
        assert plain.content == typed.content
        assert plain.headers["etag"] != typed.headers["etag"]
