"""Errors in a browser are pages; programs get the format of the API (SURFACE, Operations)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from support.service import service
from waypost.errors import WaypostError, error_codes
from waypost.server.auth.authenticator import Authenticator
from waypost.server.http.app import HttpApp
from waypost.server.http.asgi import Request, Response
from waypost.server.http.content_negotiation import prefers_html
from waypost.server.http.metrics import Metrics
from waypost.server.http.routing import RequestContext, Route

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
PATHS = (
    "/nothing", "/api/v1/agents/none", "/api/v1/agents?limit=x", "/profile/v1/agents/none", "/agents/none", "/ard/nothing",
    "/ard/agents?pageSize=x", "/mcp", "/ws", "/agent/chat", "/.well-known/agentframework/v1/agents/none",
    "/.well-known/agentframework/v1/agents?page=x", "/.well-known/agentframework/v1/nothing", "/v1/nothing",
    "/.well-known/agent.json?agent=none", "/schemas/none.json", "/agent/tasks/none", "/a/none",
)  # fmt: skip


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("text/html, */*", True),
        ("TEXT/HTML;charset=utf-8", True),
        ("text/html;q=0.9, application/json;q=0.8", True),
        ("text/html, application/json", False),
        ("application/json, text/html;q=0.9", False),
        ("application/problem+json, text/html", False),
        ("text/html;q=0.5, */*", False),
        ("text/html;q=0", False),
        ("*/*", False),
        ("text/*", False),
        ("text/plain", False),
        ("", False),
        (None, False),
        ("text/html;;;=", False),
        ("nonsense", False),
    ],
)
def test_who_gets_a_page(accept: str | None, html: bool) -> None:
    assert prefers_html(accept) is html


@pytest.mark.parametrize("access", ["open", "tokens"])
async def test_every_error_is_a_page_in_a_browser_and_no_page_elsewhere(tmp_path: Path, access: str) -> None:
    async with service(tmp_path, open=access == "open") as bench:
        client = bench.anonymous()
        for path in PATHS:
            shown = await client.get(path, headers={"Accept": BROWSER, "X-Request-Id": "the-id"})
            plain = await client.get(path, headers={"Accept": "*/*", "X-Request-Id": "the-id"})
            assert shown.status_code == plain.status_code >= 400, path
            assert shown.headers["content-type"] == "text/html; charset=utf-8", path
            assert shown.headers["cache-control"] == "no-store"
            assert shown.headers["x-request-id"] == "the-id"
            assert f'<p class="code">{shown.status_code}</p>' in shown.text
            assert "<code>the-id</code>" in shown.text
            for name in ("allow", "www-authenticate", "upgrade"):
                assert shown.headers.get(name) == plain.headers.get(name), (path, name)
            if path.startswith("/a/"):  # a page in any case
                continue
            assert "json" in plain.headers["content-type"], path
            message = plain.json().get("message") or plain.json()["error"]["message"]
            assert _escaped(message.split(" At ")[0]) in shown.text, path


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("'", "&#39;").replace('"', "&#34;").replace("<", "&lt;")


async def test_the_text_of_a_request_becomes_no_markup(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        client = bench.anonymous()
        for headers in ({}, {"Host": "<script>alert(1)</script>"}, {"X-Request-Id": "<b>id</b>"}):
            answer = await client.get("/api/v1/agents/%3Cscript%3Ealert(1)", headers={"Accept": BROWSER, **headers})
            assert answer.status_code in (404, 421)
            assert "<script>alert" not in answer.text
            assert "<b>id" not in answer.text
            assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_misdirected_browser_gets_a_page_that_names_the_setting(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        answer = await bench.anonymous().get("/", headers={"Accept": BROWSER, "Host": "rebind.test"})
        assert answer.status_code == 421
        assert "allowed_hosts" in answer.text
        assert "<nav" not in answer.text, "its links would lead to the same wrong name"
        assert 'href="/"' not in answer.text


async def test_a_failure_of_the_service_is_a_page_too() -> None:
    async def fail(call: RequestContext) -> Any:
        raise ZeroDivisionError

    async def page(request: Request, error: WaypostError, request_id: str) -> Response:
        return Response(error_codes(error).http, f"{error} {request_id}".encode(), content_type=b"text/html")

    route = Route(method="GET", path="/fails", operation="page", handler=fail, open=True)
    app = HttpApp(
        [route], [], cast(Authenticator, None), Metrics(), anonymous_read=True, open_access=False, error_page=page
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://service.test") as client:
        answer = await client.get("/fails", headers={"Accept": BROWSER})
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "text/html"
    assert answer.headers["x-request-id"] in answer.text
    assert "ZeroDivisionError" not in answer.text
