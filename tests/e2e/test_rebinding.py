"""Pages of other sites in a real browser: one of a foreign origin, and one whose name was pointed at this machine (THREATS E3).

The browser resolves `evil.test` and `rebind.test` to loopback. The page of `rebind.test` is delivered to the browser as if its
server had answered; everything that it then requests from its own origin reaches the service, as after a change of the DNS.
Both pages try to read what is private, every write, MCP, WebSockets and tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Route

from support.browser import PATIENCE_MS, chromium
from support.raw_http import RawConnection
from support.server import RunningServer, running_server
from support.service import profile

SECRET = "secret-agent-5f3a"
PUBLIC = "public-agent"
FORGED = "forged-agent"
# Runs in the page. `base` is the address of the service as the page reaches it, `requests` what the page tries.
ATTACK = """
async ({base, requests}) => {
  const read = [], opened = [];
  const limit = (promise) => Promise.race([promise, new Promise((done) => setTimeout(done, 5000, null))]);
  for (const {method, path, body} of requests) {
    for (const options of [
      {mode: "cors", headers: body ? {"Content-Type": "application/json"} : {}},
      {mode: "cors", headers: body ? {"Content-Type": "text/plain"} : {}},
      {mode: "no-cors", credentials: "include"},
    ]) {
      if (options.mode === "no-cors" && !["GET", "POST"].includes(method)) continue;
      try {
        const stop = new AbortController();
        const answer = await limit(fetch(base + path, {...options, method, body: body ?? undefined, signal: stop.signal}));
        if (answer && answer.type !== "opaque") {
          const text = await limit(answer.text());
          read.push({method, path, status: answer.status, text: text ?? ""});
        }
        stop.abort();
      } catch (error) { /* the browser shows the page nothing */ }
    }
  }
  for (const [path, protocol] of [["/ws", "agent-discovery"], ["/agent/chat", "adp-v1"]]) {
    await new Promise((done) => {
      const socket = new WebSocket(base.replace("http", "ws") + path, protocol);
      socket.onopen = () => { opened.push(path); socket.close(); done(); };
      socket.onerror = socket.onclose = () => done();
    });
  }
  await new Promise((done) => {
    const source = new EventSource(base + "/api/v1/watch?from=0&include=agent");
    source.onmessage = (event) => { opened.push(event.data); };
    for (const type of ["registered", "updated"]) source.addEventListener(type, (event) => opened.push(event.data));
    setTimeout(() => { source.close(); done(); }, 700);
  });
  return {read, opened};
}
"""
# A form needs no script of the page and no permission to read: it navigates.
FORM = """
({url, name, value}) => {
  const form = document.createElement("form");
  Object.assign(form, {action: url, method: "post", enctype: "text/plain"});
  const field = document.createElement("input");
  Object.assign(field, {name, value});
  form.append(field);
  document.body.append(form);
  form.submit();
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Newer browsers ask before a page reaches this machine. The service must not depend on that: it is turned off."""
    with chromium(
        "--host-resolver-rules=MAP rebind.test 127.0.0.1, MAP evil.test 127.0.0.1",
        "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets",
    ) as started:
        yield started


@pytest.fixture(scope="module", params=["open", "tokens"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    flags = ("--open",) if request.param == "open" else ()
    with running_server("--store", "memory", *flags) as running:
        with httpx2.Client(base_url=running.url, headers=running.headers) as admin:
            for agent_id, visibility in ((SECRET, "private"), (PUBLIC, "public")):
                headers = {"Waypost-Visibility": visibility}
                assert admin.post("/api/v1/agents", json=profile(agent_id), headers=headers).status_code == 201
        yield running


@pytest.fixture(scope="module")
def open_server() -> Iterator[RunningServer]:
    with running_server("--store", "memory", "--open") as running:
        yield running


def attempts(server: RunningServer) -> list[dict[str, Any]]:
    """Every operation of the API description, with a body that would be accepted where that matters."""
    described = httpx2.get(f"{server.url}/openapi.json", headers=server.headers).json()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    bodies: dict[str, Any] = {
        "/api/v1/agents": profile(FORGED),
        "/api/v1/agents:batch": profile(FORGED),
        "/api/v1/tokens": {"sub": "evil", "scopes": ["admin"], "ttl_seconds": 3600},
        "/api/v1/apikeys": {"sub": "evil", "scopes": ["admin"], "ttl_seconds": 3600},
        "/profile/v1/discover": {"query": "agent"},
        "/profile/v1/agents/{id}": profile(SECRET),
        "/api/v1/allow": {"rule": "*"},
        "/rtfs": {**call, "method": "rtfs.registry.deregister", "params": {"agent_id": SECRET}},
        "/mcp": {**call, "params": {"name": "register_agent", "arguments": {"document": profile(FORGED)}}},
    }
    listed = [
        {
            "method": method.upper(),
            "path": path.replace("{id}", SECRET),
            "body": json.dumps(bodies.get(path, {})) if method in ("post", "put", "patch") else None,
        }
        for path, methods in described["paths"].items()
        for method in methods
        if method in ("get", "post", "put", "patch", "delete") and "/watch" not in path
    ]
    find = {**call, "params": {"name": "get_agent", "arguments": {"id": SECRET}}}
    pages = [{"method": "POST", "path": path, "body": "form=x"} for path in ("/register", "/sign-in", "/sign-out")]
    listed += [
        *pages,
        {"method": "POST", "path": "/mcp", "body": json.dumps(find)},
        {"method": "GET", "path": f"/a/{SECRET}", "body": None},
    ]
    assert sum(each["method"] != "GET" for each in listed) > 20
    return listed


def state(server: RunningServer) -> str:
    with httpx2.Client(base_url=server.url, headers=server.headers) as admin:
        paths = ("/api/v1/agents?limit=200", "/api/v1/audit", "/api/v1/allow", "/api/v1/keys", "/api/v1/apikeys")
        return "\n".join(admin.get(path).text for path in paths)


@pytest.mark.parametrize("attacker", ["foreign", "rebound"])
def test_a_page_of_another_site_reads_nothing_private_writes_nothing_and_gets_no_token(
    browser: Browser, server: RunningServer, attacker: str
) -> None:
    port = urlsplit(server.url).port
    origin = f"http://rebind.test:{port}" if attacker == "rebound" else "http://evil.test"
    base = origin if attacker == "rebound" else server.url
    before = state(server)
    context = browser.new_context()
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.route(f"{origin}/attack", _deliver)
        page.goto(f"{origin}/attack")
        found = page.evaluate(ATTACK, {"base": base, "requests": attempts(server)})
        assert page.evaluate("location.origin") == origin
        _send_forms(page, origin, base)
    finally:
        context.close()
    texts = [each["text"] for each in found["read"]]
    statuses = {(each["method"], each["path"]): each["status"] for each in found["read"]}
    assert found["opened"] == []
    # An error repeats the id of its path, which is no news to the page; an answer does not.
    told = [each for each in found["read"] if SECRET in each["text"] and each["status"] < 400]
    assert told == []
    assert not any('"token"' in text or "wp_" in text for text in texts)
    if attacker == "rebound":
        assert len(statuses) > 40, "the page did not reach the service"
        assert statuses["POST", "/mcp"] == 421
        if "--open" in server.process.args:
            assert set(statuses.values()) == {421}
    assert state(server) == before


def _deliver(route: Route) -> None:
    route.fulfill(content_type="text/html", body="<!doctype html><title>Attack</title><body>")


def _send_forms(page: Any, origin: str, base: str) -> None:
    """A form sends JSON if the name of its field is the start of an object and the value its end."""
    start = json.dumps(profile(FORGED))[:-1] + ', "x": "'
    for path in ("/api/v1/agents", "/api/v1/tokens", "/agents", "/rtfs", "/mcp", "/profile/v1/discover"):
        with page.expect_navigation():
            page.evaluate(FORM, {"url": base + path, "name": start, "value": '"}'})
        assert SECRET not in page.content()
        page.goto(f"{origin}/attack")


def test_the_service_is_used_by_its_own_name_in_the_same_browser(browser: Browser, open_server: RunningServer) -> None:
    """The same requests succeed from the service's own page: it is the host that is refused above."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(open_server.url)
    found = page.evaluate(
        ATTACK,
        {
            "base": open_server.url,
            "requests": [{"method": "POST", "path": "/api/v1/agents", "body": json.dumps(profile(FORGED))}],
        },
    )
    context.close()
    assert found["read"][0]["status"] == 201
    assert "/ws" in found["opened"]


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        ("GET /api/v1/agents HTTP/1.1\r\nHost: {own}", {200}),
        ("GET http://{own}/api/v1/agents HTTP/1.1\r\nHost: {own}", {200}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost: LocalHost.:1", {200}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost: [::1]", {200}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost: rebind.test", {421}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost: Sub.rebind.test.:8440", {421}),
        ("GET /api/v1/agents HTTP/1.0", {421}),
        ("GET /api/v1/agents HTTP/1.0\r\nHost: rebind.test", {421}),
        ("GET http://rebind.test/api/v1/agents HTTP/1.1\r\nHost: rebind.test", {421}),
        ("GET http://rebind.test/api/v1/agents HTTP/1.1\r\nHost: {own}", {400}),
        ("GET http://{own}/api/v1/agents HTTP/1.1\r\nHost: rebind.test", {400}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost: {own}\r\nHost: rebind.test", {400}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost:", {400, 421}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost: {own} rebind.test", {400}),
        ("GET /api/v1/agents HTTP/1.1\r\nHost: ::1", {400, 421}),
    ],
)
def test_the_host_of_a_request_on_the_wire(open_server: RunningServer, head: str, statuses: set[int]) -> None:
    own = urlsplit(open_server.url).netloc
    with RawConnection(open_server.url) as connection:
        connection.send(f"{head.format(own=own)}\r\nConnection: close\r\n\r\n".encode())
        assert connection.answer().status in statuses
