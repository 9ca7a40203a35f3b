"""The catalog over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.service import profile, service


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
