"""Credentials leave no trace, and responses that depend on them are not shared by caches (THREATS J11, J14, H9)."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.certificates import Authority
from support.files import content
from support.mutual_tls import tls, today, with_certificate
from support.server import running_server
from support.service import profile, service
from waypost import limits
from waypost.model.credentials import ClientSubject
from waypost.model.json import parse_object
from waypost.trust.encodings import decode_base64url

AGENT = "6b7f2c1e-9a3d-4f5e-8b1a-2c3d4e5f6a7b"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


# --- Certificates ----------------------------------------------------------------------------------


async def test_a_certificate_names_its_credential_and_address_in_the_trail(
    tmp_path: Path, authority: Authority
) -> None:
    shown = authority.client("agent", f"urn:uuid:{AGENT}")
    async with (
        service(tmp_path / "data", clock=today(), **tls(authority)) as bench,
        with_certificate(bench, shown) as agent,
    ):
        assert (await agent.post("/api/v1/agents", json=profile(f"urn:uuid:{AGENT}"))).status_code == 201
        trail = (await bench.admin().get("/api/v1/audit")).json()
        entry = next(row for row in trail["entries"] if row["action"] == "register")
        assert (entry["subject"], entry["credential"]) == (AGENT, f"cert:{shown.fingerprint[:12]}")
        assert entry["address"] == "127.0.0.1"


async def test_a_serial_that_was_revoked_by_hand_is_refused_at_once(tmp_path: Path, authority: Authority) -> None:
    shown = authority.client("agent", f"urn:uuid:{AGENT}")
    async with (
        service(tmp_path / "data", clock=today(), **tls(authority)) as bench,
        with_certificate(bench, shown) as agent,
    ):
        assert (await agent.get("/api/v1/agents")).status_code == 200
        revoked = await bench.admin().post("/api/v1/keys:revoke", json={"serial": f"{shown.serial:x}"})
        assert revoked.status_code == 200, revoked.text
        answer = await agent.get("/api/v1/agents")
        assert (answer.status_code, "revoked" in answer.text) == (401, True)


@pytest.mark.parametrize("is_suspended", [False, True])
async def test_a_certificate_expires_also_on_an_open_connection(
    tmp_path: Path, authority: Authority, is_suspended: bool
) -> None:
    """E13: by the system clock, which runs on while the machine is suspended."""
    shown, clock = authority.client("agent", f"urn:uuid:{AGENT}"), today()
    async with (
        service(tmp_path / "data", clock=clock, **tls(authority)) as bench,
        with_certificate(bench, shown) as agent,
    ):
        assert (await agent.get("/api/v1/agents")).status_code == 200
        (clock.jump if is_suspended else clock.advance)(2 * 86_400)
        assert (await agent.get("/api/v1/agents")).status_code == 401


async def test_a_certificate_of_a_mapped_name_is_its_subject_and_no_agent(tmp_path: Path, authority: Authority) -> None:
    shown = authority.client("build", f"urn:uuid:{AGENT}", dns=("build.example.net",))
    row = ClientSubject(subject="build", san="dns:build.example.net")
    settings = tls(authority, client_subjects=(row,))
    async with service(tmp_path / "data", clock=today(), **settings) as bench, with_certificate(bench, shown) as build:
        assert (await build.post("/api/v1/agents", json=profile("any"))).status_code == 201


async def test_no_header_is_taken_for_a_certificate(tmp_path: Path, authority: Authority) -> None:
    shown = authority.client("agent", f"urn:uuid:{AGENT}")
    pem = shown.certificate.read_text().replace("\n", "%0A")
    async with service(tmp_path / "data", clock=today(), **tls(authority)) as bench:
        names = ("X-Client-Cert", "X-SSL-Client-Cert", "X-Forwarded-Client-Cert", "Client-Cert", "waypost-certificate")
        client = bench.client(**dict.fromkeys(names, pem))
        assert (await client.get("/api/v1/agents")).status_code == 401


# --- No trace of a token ---------------------------------------------------------------------------


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that the service logs while the test runs. (The client of the test logs the addresses that it asks.)"""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger("waypost")
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


async def test_a_token_appears_in_no_log_no_answer_and_no_trail(tmp_path: Path, log: io.StringIO) -> None:
    """J14."""
    async with service(tmp_path, store="sqlite") as bench:
        good = bench.token("alice")
        canary = good.rpartition(".")[2]
        bad = good[:-6] + "AAAAAA"
        answers = []
        for token in (good, bad, bench.admin_token, f"{bench.admin_token}x"):
            client = bench.client(token)
            answers += [
                await client.post("/api/v1/agents", json=profile("a")),
                await client.get("/api/v1/agents", params={"access_token": token[:40]}),
                await client.post("/rtfs", json={"jsonrpc": "2.0", "id": 1, "method": "x"}),
                await client.get("/.well-known/agentframework/v1/agents"),
                await client.post("/agents", json={"agent": {}}),
            ]
        audit = (await bench.admin().get("/api/v1/audit")).text
        metrics = (await bench.admin().get("/metrics")).text
        said = "".join(answer.text + str(answer.headers) for answer in answers)
        for place in (said, audit, metrics, log.getvalue()):
            for secret in (canary, bad[-20:], bench.admin_token[:20]):
                assert secret not in place
        assert f"jwt:{parse_object(decode_base64url(good.split('.')[1]))['jti']}" in audit, "a token is known by its id"


async def test_a_token_in_the_address_is_no_credential(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        token = bench.token("alice")
        for name in ("access_token", "token", "bearer", "authorization"):
            answer = await bench.anonymous().get("/api/v1/agents", params={name: token})
            assert answer.status_code == 401, name


def test_a_running_service_writes_no_token_to_its_log_or_its_folder(tmp_path: Path) -> None:
    with running_server("--log-level", "debug", data=tmp_path / "data") as server:
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            minted = client.post(
                "/api/v1/tokens", json={"sub": "alice", "scopes": ["discover:write"]}, headers=server.headers
            ).json()["token"]
            for token in (minted, minted[:-4] + "AAAA"):
                client.post("/api/v1/agents", json=profile("a"), headers={"Authorization": f"Bearer {token}"})
                client.get("/nowhere", headers={"Authorization": f"Bearer {token}"})
        canary = minted.rpartition(".")[2][:40]
        assert canary not in server.log.read_text()
        kept = b"".join(content(path) for path in (tmp_path / "data").rglob("*") if path.is_file())
        assert canary.encode() not in kept


# --- Caches ----------------------------------------------------------------------------------------


async def test_caller_dependent_answers_are_not_cached_for_others(tmp_path: Path) -> None:
    """H9: on every route that asks who is there."""
    async with service(tmp_path) as bench:
        alice = bench.as_("alice")
        await alice.post("/api/v1/agents", json=profile("a"), headers={"Waypost-Visibility": "private"})
        asked = [
            ("GET", route.path.replace("{id}", "a"))
            for route in bench.application.http_app.router.routes
            if route.method == "GET" and not route.open and route.handler and "watch" not in route.path
        ]
        asked += [
            ("GET", "/.well-known/agentframework/v1/agents"),
            ("GET", "/.well-known/agentframework/v1/agents/a"),
            ("GET", "/agents"),
            ("POST", "/profile/v1/discover"),
        ]
        assert len(asked) > 20
        for method, path in asked:
            answer = await alice.request(method, path, json={"query": "x"} if method == "POST" else None)
            vary = {part.strip().lower() for part in answer.headers.get("vary", "").split(",")}
            control = answer.headers.get("cache-control", "")
            where = (method, path, answer.status_code, dict(answer.headers))
            assert "private" in control or "no-store" in control, where
            if answer.status_code == 200:
                assert {"authorization", "accept"} <= vary, where


async def test_an_entity_tag_reveals_nothing_to_another_caller(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        alice, bob = bench.as_("alice"), bench.as_("bob")
        await alice.post("/api/v1/agents", json=profile("a"), headers={"Waypost-Visibility": "private"})
        etag = (await alice.get("/api/v1/agents/a")).headers["etag"]
        assert (await bob.get("/api/v1/agents/a", headers={"If-None-Match": etag})).status_code == 404
        listed = (await alice.get("/api/v1/agents")).headers["etag"]
        assert (await bob.get("/api/v1/agents", headers={"If-None-Match": listed})).status_code == 200


async def test_a_token_of_our_own_lives_a_day_at_most(tmp_path: Path) -> None:
    async with service(tmp_path) as bench:
        asked = {"sub": "x", "scopes": ["discover:read"], "ttl_seconds": limits.TOKEN_TTL_MAX_SECONDS + 1}
        assert (await bench.admin().post("/api/v1/tokens", json=asked)).status_code == 400
