"""Constant documents are dated by the start of the service, and sent once."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from support.service import NOW, service
from waypost.server.http.conditional_requests import format_http_date


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with service(tmp_path) as bench:
        yield bench.admin()


async def test_schemas_the_description_and_its_page_are_dated_and_sent_once(client: httpx2.AsyncClient) -> None:
    for path in ("/schemas/profile.json", "/openapi.json", "/docs"):
        first = await client.get(path)
        assert first.headers["last-modified"] == format_http_date(NOW).decode()
        assert first.headers["etag"].startswith('"')
        for known in (
            {"If-None-Match": first.headers["etag"]},
            {"If-Modified-Since": first.headers["last-modified"]},
        ):
            again = await client.get(path, headers=known)
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]
