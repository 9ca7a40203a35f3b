"""Hosts and origins: which names a service answers to, and which pages may use it (SURFACE, THREATS E3).

A page of another site can send requests to this machine; one whose name was pointed at it (DNS rebinding) can also read the
answers. `tests/e2e/test_rebinding.py` tries both in a browser.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.service import Bench, profile, service
from waypost.app.http import MOUNTED_ROUTES
from waypost.errors import ConfigurationError
from waypost.settings import Settings

OWN_NAMES = (
    "127.0.0.1:8440", "127.0.0.1", "localhost", "LOCALHOST:1", "localhost.", "[::1]:8440", "[::1]", "10.1.2.3", "192.0.2.7:80",
    socket.gethostname(), "gateway.test", "gateway.test.:8440", "GATEWAY.test", "hosted.example", "private.example",
)  # fmt: skip
OTHER_NAMES = (
    "rebind.test", "rebind.test:8440", "127.0.0.1.nip.io", "localhost.rebind.test", "gateway.test.rebind.test", "xlocalhost",
    "127.1", "0x7f.0.0.1", "2130706433", "::1", "[::1].rebind.test", "a b", "localhost, rebind.test", "localhost@rebind.test", "",
)  # fmt: skip
OTHER_ORIGINS = (
    "https://evil.test", "http://rebind.test:8440", "null", "http://127.0.0.1:3000", "http://127.0.0.1", "http://localhost:8440",
    "http://127.0.0.1:8440.evil.test", "http://evil.test/http://127.0.0.1:8440", "file://", "",
)  # fmt: skip
PING: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
# Reads by GET, of every kind of path.
PATHS = (
    "/", "/nothing", "/api/v1/agents", "/.well-known/agent.json", "/.well-known/agentframework/v1/agents", "/agents", "/healthz",
    "/style.css", "/metrics", "/a2a", "/v0/servers", "/openapi.json", "/ws", "/mcp",
)  # fmt: skip


async def host_two(bench: Bench) -> None:
    """A public and a private agent, each under a domain."""
    admin = bench.admin()
    for name, visibility in (("hosted", "public"), ("private", "private")):
        made = await admin.post(
            "/api/v1/agents", json=profile(f"agent:{name}.example"), headers={"Waypost-Visibility": visibility}
        )
        assert made.status_code == 201
        answer = await admin.post(f"/api/v1/agents/agent%3A{name}.example:host", json={"domain": f"{name}.example"})
        assert answer.status_code == 200, answer.text


async def test_without_authentication_only_names_of_the_service_are_answered(tmp_path: Path) -> None:
    async with service(tmp_path, open=True, allowed_hosts=("gateway.test",)) as bench:
        await host_two(bench)
        client = bench.anonymous()
        for name in OWN_NAMES:
            assert (await client.get("/api/v1/agents", headers={"Host": name})).status_code == 200, name
        for name in OTHER_NAMES:
            for path in PATHS:
                answer = await client.get(path, headers={"Host": name})
                assert answer.status_code == 421, (name, path)
            answer = await client.get("/api/v1/agents", headers={"Host": name})
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert (problem["code"], problem["path"]) == ("invalid_request", "Host")
            assert "allowed_hosts" in problem["hint"]
            assert problem["correlation_id"] == answer.headers["x-request-id"]


async def test_the_host_of_the_base_url_is_a_name_of_the_service(tmp_path: Path) -> None:
    async with service(tmp_path, base_url="https://agents.example") as bench:
        mcp = bench.as_("bob")
        assert (await mcp.post("/mcp", json=PING, headers={"Host": "agents.example"})).status_code == 200
        assert (await mcp.post("/mcp", json=PING, headers={"Host": "agents.example:443"})).status_code == 200


async def test_a_request_without_a_host_is_misdirected(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        scope = {"type": "http", "method": "GET", "path": "/api/v1/agents", "headers": [], "query_string": b""}
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        await bench.application.http_app(scope, receive, send)
        assert sent[0]["status"] == 421


async def test_with_authentication_an_unknown_host_is_the_service_itself(tmp_path: Path) -> None:
    async with service(tmp_path, anonymous_read=True) as bench:
        await host_two(bench)
        client = bench.as_("bob")
        for name in ("rebind.test", "a b", "gateway.test:1"):
            assert (await client.get("/api/v1/agents", headers={"Host": name})).status_code == 200
            document = (await client.get("/.well-known/agent.json", headers={"Host": name})).json()
            assert "hosted.example" not in str(document["identity"])
            made = await client.post("/api/v1/agents", json=profile("x"), headers={"Host": name})
            assert made.status_code in (200, 201)


async def test_mcp_checks_host_and_origin_with_authentication_too(tmp_path: Path) -> None:
    async with service(tmp_path, allowed_hosts=("gateway.test",)) as bench:
        await host_two(bench)
        client = bench.as_("bob")
        for name in OWN_NAMES:
            if name != "private.example":
                assert (await client.post("/mcp", json=PING, headers={"Host": name})).status_code == 200, name
        # The domain of a hidden agent is answered as an unknown one.
        for name in (*OTHER_NAMES, "private.example"):
            for method in ("GET", "POST", "OPTIONS"):
                answer = await client.request(method, "/mcp", json=PING, headers={"Host": name})
                assert answer.status_code == 421, name
            assert "allowed_hosts" in answer.text
        for origin in OTHER_ORIGINS:
            for method in ("GET", "POST", "OPTIONS"):
                answer = await client.request(method, "/mcp", json=PING, headers={"Origin": origin})
                assert answer.status_code == 403, origin
        base = bench.application.base_url
        for own in (base, base.upper()):
            assert (await client.post("/mcp", json=PING, headers={"Origin": own})).status_code == 200, own


async def post_from(bench: Bench, host: str, origin: str, path: str = "/mcp") -> int:
    headers = {"Host": host, "Origin": origin}
    client = bench.as_("bob")
    if path == "/mcp":
        return (await client.post(path, json=PING, headers=headers)).status_code
    return (await client.post(path, data={"token": bench.token("bob")}, headers=headers)).status_code


@pytest.mark.parametrize(("path", "done"), [("/mcp", 200), ("/sign-in", 303)])
async def test_a_page_with_https_is_not_that_of_a_service_with_http(tmp_path: Path, path: str, done: int) -> None:
    async with service(tmp_path) as bench:
        for host in ("127.0.0.1:8440", "localhost:8440", "[::1]:8440", "10.1.2.3:8440", socket.gethostname()):
            assert await post_from(bench, host, f"http://{host}", path) == done, host
            assert await post_from(bench, host, f"https://{host}", path) == 403, host


@pytest.mark.parametrize(("path", "done"), [("/mcp", 200), ("/sign-in", 303)])
async def test_a_page_with_http_is_not_that_of_a_service_with_https(tmp_path: Path, path: str, done: int) -> None:
    async with service(tmp_path, base_url="https://agents.example") as bench:
        for host in ("agents.example", "10.1.2.3", socket.gethostname()):
            assert await post_from(bench, host, f"https://{host}", path) == done, host
            assert await post_from(bench, host, f"http://{host}", path) == 403, host
        for host in ("127.0.0.1:8440", "localhost:8440", "[::1]:8440"):  # past the proxy, on this machine
            assert await post_from(bench, host, f"http://{host}", path) == done, host
        for host in ("127.rebind.test", "127.0.0.1.nip.io"):
            assert await post_from(bench, host, f"http://{host}", path) >= 400, host


async def test_the_page_of_a_hosted_domain_has_https_though_the_service_has_not(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        await host_two(bench)
        assert await post_from(bench, "hosted.example", "https://hosted.example") == 200
        assert await post_from(bench, "hosted.example", "http://hosted.example") == 200
        assert await post_from(bench, "private.example", "https://private.example") == 421


async def test_the_page_of_a_hosted_domain_has_https_if_the_service_has(tmp_path: Path) -> None:
    async with service(tmp_path, base_url="https://agents.example") as bench:
        await host_two(bench)
        assert await post_from(bench, "hosted.example", "https://hosted.example") == 200
        assert await post_from(bench, "hosted.example", "http://hosted.example") == 403


async def test_an_origin_with_another_scheme_can_be_allowed(tmp_path: Path) -> None:
    async with service(tmp_path, allowed_origins=("https://10.1.2.3:8440",)) as bench:
        assert await post_from(bench, "10.1.2.3:8440", "https://10.1.2.3:8440") == 200
        assert await post_from(bench, "10.1.2.4:8440", "https://10.1.2.4:8440") == 403


async def test_without_authentication_every_write_of_another_site_is_refused(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        client = bench.anonymous()
        routes = [*bench.application.http_app.router.routes, *MOUNTED_ROUTES]
        writes = [route for route in routes if route.method not in ("GET", "HEAD")]
        assert len(writes) > 25
        before = await contents(client)
        for route in writes:
            path = route.path.replace("{id}", "seen")
            for origin in OTHER_ORIGINS:
                answer = await client.request(
                    route.method, path, content=b"{}", headers={"Origin": origin, "Content-Type": "text/plain"}
                )
                assert answer.status_code == 403, (route.method, path, origin)
                assert "access-control-allow-origin" not in answer.headers or "agentframework" in path
        for site in ("cross-site", "same-site"):  # sent without Origin by no browser that we know
            answer = await client.delete("/api/v1/agents/seen", headers={"Sec-Fetch-Site": site})
            assert answer.status_code == 403
        assert await contents(client) == before
        own = {"Origin": bench.application.base_url}
        assert (await client.post("/api/v1/agents", json=profile("own"), headers=own)).status_code == 201


async def contents(client: httpx2.AsyncClient) -> str:
    return (await client.get("/api/v1/agents")).text + (await client.get("/api/v1/audit")).text


async def test_an_allowed_origin_may_write(tmp_path: Path) -> None:
    async with service(tmp_path, open=True, allowed_origins=("https://console.example",)) as bench:
        client = bench.anonymous()
        given = {"Origin": "https://console.example"}
        assert (await client.post("/api/v1/agents", json=profile("x"), headers=given)).status_code == 201
        assert (await client.post("/mcp", json=PING, headers=given)).status_code == 200


async def test_a_page_of_another_site_may_read_nothing_of_an_open_service(tmp_path: Path) -> None:
    """Without CORS headers a browser shows the page no answer; hidden agents are in none that has them."""
    async with service(tmp_path, open=True) as bench:
        client = bench.anonymous()
        private = {"Waypost-Visibility": "private"}
        assert (await client.post("/api/v1/agents", json=profile("secret-1"), headers=private)).status_code == 201
        for route in bench.application.http_app.router.routes:
            if route.method == "GET" and "stream" not in route.path and "watch" not in route.path:
                path = route.path.replace("{id}", "secret-1")
                answer = await client.get(path, headers={"Origin": "https://evil.test"})
                readable = "access-control-allow-origin" in answer.headers
                assert not (readable and "secret-1" in answer.text and answer.status_code == 200), path
        for path in ("agents", "agents/secret-1"):
            answer = await client.get(f"/.well-known/agentframework/v1/{path}", headers={"Origin": "https://evil.test"})
            assert answer.status_code == 200
            assert "access-control-allow-origin" not in answer.headers


async def test_without_authentication_no_token_is_made(tmp_path: Path) -> None:
    async with service(tmp_path, open=True) as bench:
        client = bench.anonymous()
        for headers in ({}, {"Authorization": f"Bearer {bench.admin_token}"}):
            for path in ("/api/v1/tokens", "/api/v1/apikeys"):
                answer = await client.post(path, json={"sub": "x", "scopes": ["admin"]}, headers=headers)
                assert answer.status_code == 403
                assert "token" not in answer.json()
                assert "key" not in answer.json()
                assert "without authentication" in answer.json()["message"]
        assert not (tmp_path / "keys" / "token.pem").exists(), "a command could sign tokens with it"
        for name in ("token", "code"):
            answer = await client.get("/", params={name: "x"})
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("name", ["https://x.test", "*", "*.example", "a b", ""])
def test_an_allowed_host_must_be_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(data=tmp_path, allowed_hosts=(name,))
    assert caught.value.path == "allowed_hosts"
