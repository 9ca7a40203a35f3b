"""Rate limits by subject and by address, in every API (THREATS §2.1, P9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.service import Bench, profile, service
from waypost import limits
from waypost.errors import RateLimited
from waypost.model.principal import ANONYMOUS, Principal
from waypost.net.clock import ManualClock
from waypost.server.auth.callers import UNKNOWN_CALLER, CallerRateLimiter, RateLimits, TrustedProxies, rate_limit_key

ALICE = Principal(subject="alice")
FAR = "203.0.113.7"


def far(bench: Bench, token: str | None = None, address: str = FAR, **headers: str) -> httpx2.AsyncClient:
    given = dict(headers) if token is None else {"Authorization": f"Bearer {token}", **headers}
    transport = httpx2.ASGITransport(bench.application.http_app, client=(address, 4000))
    return httpx2.AsyncClient(transport=transport, base_url=bench.application.base_url, headers=given)


def test_a_bucket_empties_and_fills_again_at_an_even_pace() -> None:
    clock = ManualClock()
    buckets = CallerRateLimiter(clock.now, 60)
    for _ in range(60):
        buckets.take("alice")
    with pytest.raises(RateLimited) as refused:
        buckets.take("alice")
    assert refused.value.retry_after == 1
    buckets.take("bob")
    clock.advance(1)
    buckets.take("alice")
    with pytest.raises(RateLimited):
        buckets.take("alice")
    with pytest.raises(RateLimited) as refused:
        buckets.take("alice", 30)
    assert refused.value.retry_after == 30


def test_the_least_recent_callers_are_forgotten_first() -> None:
    buckets = CallerRateLimiter(ManualClock().now, 1)
    for number in range(limits.RATE_CALLERS + 1):
        buckets.take(f"caller {number}")
    buckets.take("caller 0")
    with pytest.raises(RateLimited):
        buckets.take(f"caller {limits.RATE_CALLERS}")


def test_a_customer_with_a_whole_network_is_one_caller() -> None:
    assert (
        rate_limit_key("2001:db8:1:2:3:4:5:6") == rate_limit_key("2001:db8:1:2::9") != rate_limit_key("2001:db8:1:3::9")
    )
    assert rate_limit_key("198.51.100.1") != rate_limit_key("198.51.100.2")


def test_callers_on_this_machine_are_counted_only_when_a_rate_was_set() -> None:
    clock = ManualClock()
    usual, chosen = RateLimits(clock.now), RateLimits(clock.now, reads=1, writes=0)
    for _ in range(limits.READS_PER_MINUTE + 1):
        usual.read(ANONYMOUS, "127.0.0.1")
        usual.read(ALICE, "::1")
    chosen.read(ALICE, "127.0.0.1")
    with pytest.raises(RateLimited):
        chosen.read(ALICE, "127.0.0.1")
    for _ in range(limits.WRITES_PER_MINUTE + 1):
        chosen.write(ALICE, FAR)
    for _ in range(limits.READS_PER_MINUTE):
        usual.read(ANONYMOUS, FAR)
    with pytest.raises(RateLimited):
        usual.read(ANONYMOUS, FAR)
    usual.read(ANONYMOUS, "203.0.113.8")


ASKED: dict[str, tuple[str, str, Any]] = {
    "own": ("GET", "/api/v1/agents", None),
    "profile": ("GET", "/profile/v1/agents", None),
    "discover": ("POST", "/profile/v1/discover", {"query": "x"}),
    "af": ("GET", "/.well-known/agentframework/v1/agents", None),
    "document": ("GET", "/.well-known/ai-catalog.json", None),
    "home": ("GET", "/", None),
    "mcp registry": ("GET", "/v0.1/servers", None),
    "feed": ("GET", "/api/v1/feed?wait=0", None),
}


@pytest.mark.parametrize("face", ASKED)
async def test_every_api_refuses_a_caller_over_its_rate_limit(tmp_path: Path, face: str) -> None:
    method, path, body = ASKED[face]
    async with service(tmp_path, anonymous_read=True, rate_limit_reads=3) as bench, far(bench) as client:
        answers = [await client.request(method, path, json=body) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        refused = answers[-1]
        assert refused.headers["retry-after"] == "20"
        assert (refused.json()["code"], refused.json()["retry_after"]) == ("rate_limited", 20)
        async with far(bench, address="203.0.113.99") as other:
            assert (await other.request(method, path, json=body)).status_code == 200
        assert (await client.get("/healthz")).status_code == 200, "whoever looks after the service is not refused"


async def test_the_open_search_of_a2a_is_limited_by_address(tmp_path: Path) -> None:
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "translate"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with service(tmp_path, rate_limit_reads=3) as bench, far(bench) as client:
        answers = [await client.post("/a2a", json=call, headers={"A2A-Version": "1.0"}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert "result" in answers[0].json()
        assert int(answers[-1].headers["retry-after"]) > 0


async def test_json_rpc_counts_every_call_and_reports_in_its_own_form(tmp_path: Path) -> None:
    async with (
        service(tmp_path, rate_limit_reads=5, rate_limit_writes=2) as bench,
        far(bench, bench.token("alice")) as client,
    ):
        call = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.discover", "params": {"agent_id": "x"}}
        assert (await client.post("/rtfs", json=[call] * 5)).status_code == 200
        refused = await client.post("/rtfs", json=call)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, -32009)
        assert int(refused.headers["retry-after"]) > 0
        gone = {"jsonrpc": "2.0", "id": 1, "method": "rtfs.registry.deregister", "params": {"agent_id": "x"}}
        assert (await client.post("/rtfs", json=[gone, gone])).status_code == 200
        assert (await client.post("/rtfs", json=gone)).status_code == 429


async def test_writes_are_counted_by_subject_and_admins_are_not(tmp_path: Path) -> None:
    async with service(tmp_path, rate_limit_writes=3) as bench:
        async with far(bench, bench.token("alice")) as alice, far(bench, bench.token("alice"), "198.51.100.1") as again:
            answers = [await alice.post("/api/v1/agents", json=profile(f"a{n}")) for n in range(3)]
            assert [answer.status_code for answer in answers] == [201] * 3
            assert (await again.post("/api/v1/agents", json=profile("b"))).status_code == 429
            assert (await again.get("/api/v1/agents")).status_code == 200, "reads are another matter"
        async with far(bench, bench.admin_token) as admin:
            for number in range(10):
                assert (await admin.post("/api/v1/agents", json=profile(f"c{number}"))).status_code == 201


async def test_an_owner_may_import_all_agents_at_once(tmp_path: Path) -> None:
    lines = "\n".join(httpx2.Response(200, json=profile(f"a{n}")).text for n in range(limits.AGENTS_PER_OWNER))
    async with service(tmp_path) as bench, far(bench, bench.token("alice")) as alice:
        answer = await alice.post("/api/v1/agents:batch", content=lines.encode())
        assert answer.text.count('"created"') == limits.AGENTS_PER_OWNER


async def test_lines_beyond_the_rate_are_refused_one_by_one(tmp_path: Path) -> None:
    lines = "\n".join(httpx2.Response(200, json=profile(f"a{n}")).text for n in range(600))
    async with service(tmp_path, rate_limit_writes=4) as bench, far(bench, bench.token("alice")) as alice:
        answers = (await alice.post("/api/v1/agents:batch", content=lines.encode())).text.splitlines()
        assert len(answers) == 600
        outcomes = ["created" if '"created"' in line else "refused" for line in answers]
        assert outcomes[:512] == ["created"] * 256 + ["refused"] * 256, "each part of a batch is counted by its lines"
        assert sum('"rate_limited"' in line for line in answers) == 256


# --- Addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, nonsense"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.3"], "10.0.0.3"),
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),
    ],
)
def test_only_a_trusted_proxy_sets_the_client_address(peer: str, forwarded: list[str], seen: str) -> None:
    headers = [(b"x-forwarded-for", text.encode()) for text in forwarded]
    assert TrustedProxies(("10.0.0.0/24",)).client_address({"client": (peer, 1), "headers": headers}) == seen
    assert TrustedProxies().client_address({"client": (peer, 1), "headers": headers}) == peer


async def test_callers_behind_a_trusted_proxy_are_distinguished(tmp_path: Path) -> None:
    settings = {"anonymous_read": True, "rate_limit_reads": 2, "trusted_proxies": ("127.0.0.1/32",)}
    async with service(tmp_path, **settings) as bench:
        for address in ("198.51.100.1", "198.51.100.2"):
            client = bench.client(**{"X-Forwarded-For": f"1.1.1.1, {address}"})
            answers = [(await client.get("/api/v1/agents")).status_code for _ in range(3)]
            assert answers == [200, 200, 429]


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-real-ip", "via"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", ""])
def test_a_caller_behind_an_unknown_proxy_on_this_machine_is_not_loopback(name: str, peer: str) -> None:
    scope = {"client": (peer, 1) if peer else None, "headers": [(name.encode(), b"127.0.0.1")]}
    assert TrustedProxies().client_address(scope) == UNKNOWN_CALLER
    assert TrustedProxies(("10.0.0.0/24",)).client_address(scope) == UNKNOWN_CALLER


def test_a_trusted_proxy_that_names_nobody_is_not_the_caller() -> None:
    scope = {"client": ("127.0.0.1", 1), "headers": [(b"x-forwarded-for", b"nonsense")]}
    assert TrustedProxies(("127.0.0.1/32",)).client_address(scope) == UNKNOWN_CALLER


def test_a_tool_on_this_machine_is_loopback() -> None:
    scope = {"client": ("127.0.0.1", 1), "headers": [(b"host", b"127.0.0.1")]}
    assert TrustedProxies(("127.0.0.1/32",)).client_address(scope) == "127.0.0.1"


async def test_the_default_limits_hold_behind_a_proxy_that_is_not_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "READS_PER_MINUTE", 3)
    async with service(tmp_path, anonymous_read=True) as bench:
        direct, proxied = bench.client(), bench.client(**{"X-Forwarded-For": "198.51.100.1"})
        assert [(await proxied.get("/api/v1/agents")).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
        assert [(await direct.get("/api/v1/agents")).status_code for _ in range(5)] == [200] * 5
    assert [record.message for record in caplog.records if "trusted_proxies" in record.message] == [
        "the proxy at 127.0.0.1 is not in trusted_proxies: its anonymous callers share one rate limit"
    ]


async def test_the_default_limits_hold_behind_a_proxy_that_adds_no_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READS_PER_MINUTE", 3)
    async with service(tmp_path, anonymous_read=True, base_url="https://registry.example") as bench:
        client = bench.client()
        assert [(await client.get("/api/v1/agents")).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
