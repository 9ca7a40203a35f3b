"""Large responses are compressed for those who accept it, never beside a secret; encoded requests are refused."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from support.service import Bench, profile, service
from waypost import limits

LARGE = "/openapi.json"
GZIP = {"Accept_Encoding": "gzip"}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with service(tmp_path) as running:
        yield running


async def raw(client: httpx2.AsyncClient, path: str, **headers: str) -> tuple[httpx2.Response, bytes]:
    """The response, and its body as it was sent."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream("GET", path, headers=names) as answer:
        return answer, b"".join([part async for part in answer.aiter_raw()])


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("*", True),
        ("identity;q=0.5, gzip;q=0.8", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip;q=0.4, identity", False),
        ("br", False),
        ("", False),
    ],
)
async def test_the_client_chooses(bench: Bench, accepted: str, is_compressed: bool) -> None:
    plain, whole = await raw(bench.admin(), LARGE, Accept_Encoding="identity")
    answer, body = await raw(bench.admin(), LARGE, Accept_Encoding=accepted)
    assert len(whole) > limits.GZIP_BYTES
    assert "Accept-Encoding" in plain.headers["vary"]
    assert answer.headers["vary"] == plain.headers["vary"]
    assert answer.headers.get("content-encoding") == ("gzip" if is_compressed else None)
    assert (gzip.decompress(body) if is_compressed else body) == whole
    assert int(answer.headers["content-length"]) == len(body)
    assert (answer.headers["etag"] == plain.headers["etag"]) is not is_compressed


async def test_either_tag_is_good_for_a_conditional_request(bench: Bench) -> None:
    plain, _ = await raw(bench.admin(), LARGE, Accept_Encoding="identity")
    packed, _ = await raw(bench.admin(), LARGE, **GZIP)
    accepting = {"Accept-Encoding": "gzip"}
    for known in (plain, packed):
        again = await bench.admin().get(LARGE, headers={**accepting, "If-None-Match": known.headers["etag"]})
        assert (again.status_code, again.headers["etag"]) == (304, known.headers["etag"])
        assert set(again.headers["vary"].split(", ")) == set(packed.headers["vary"].split(", "))
        same = await bench.admin().get(LARGE, headers={**accepting, "If-Match": known.headers["etag"]})
        assert same.status_code == 200
    dated = await bench.admin().get(LARGE, headers={**accepting, "If-Modified-Since": packed.headers["last-modified"]})
    assert (dated.status_code, dated.headers["etag"]) == (304, packed.headers["etag"])
    unpacked = await bench.admin().get(
        LARGE, headers={"Accept-Encoding": "identity", "If-None-Match": packed.headers["etag"]}
    )
    assert unpacked.status_code == 200  # the client can no longer read what it has


async def test_a_write_is_guarded_by_the_tag_of_a_compressed_response(bench: Bench) -> None:
    document = profile("large", description="word " * 200)
    document["capabilities"] = [
        {"id": f"skill-{number}", "name": f"Skill {number}", "description": "does this and that " * 20}
        for number in range(60)
    ]
    client = bench.admin()
    path = "/api/v1/agents/large"
    (await client.post("/api/v1/agents", json=document)).raise_for_status()
    packed, _ = await raw(client, path, **GZIP)
    assert packed.headers["content-encoding"] == "gzip"
    stale = await client.delete(path, headers={"If-Match": '"another-gzip"'})
    gone = await client.delete(path, headers={"If-Match": packed.headers["etag"]})
    assert (stale.status_code, gone.status_code) == (412, 204)


async def test_nothing_is_compressed_that_may_hold_a_secret(bench: Bench) -> None:
    """BREACH: a token beside the text of an attacker, in a response whose length he sees."""
    page, body = await raw(bench.admin(), "/docs", **GZIP)
    assert len(body) > limits.GZIP_BYTES
    assert page.headers["content-type"].startswith("text/html")
    assert "content-encoding" not in page.headers
    browser, _ = await raw(bench.admin(), LARGE, **GZIP, Cookie="a=b")
    assert "content-encoding" not in browser.headers
    small, _ = await raw(bench.admin(), "/healthz", **GZIP)
    assert "content-encoding" not in small.headers


@pytest.mark.parametrize("path", ["/api/v1/agents", "/rtfs", "/mcp", "/agents", "/ard/search", "/a2a"])
async def test_an_encoded_body_is_refused_by_every_api(bench: Bench, path: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = await bench.admin().post(path, content=gzip.compress(b"{}"), headers=headers)
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
    assert "The content coding 'gzip' is not supported." in answer.text


async def test_identity_is_no_encoding(bench: Bench) -> None:
    answer = await bench.admin().post("/api/v1/agents", json=profile("plain"), headers={"Content-Encoding": "Identity"})
    assert answer.status_code == 201


async def test_browsers_get_the_icon_that_they_ask_for(bench: Bench) -> None:
    icon = await bench.anonymous().get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/vnd.microsoft.icon")
    assert icon.content.startswith(b"\x00\x00\x01\x00")
    assert "max-age" in icon.headers["cache-control"]
    again = await bench.anonymous().get("/favicon.ico", headers={"If-None-Match": icon.headers["etag"]})
    assert again.status_code == 304
