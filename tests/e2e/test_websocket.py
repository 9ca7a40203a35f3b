"""WebSocket sessions with services in separate processes: restarts, several processes, client certificates."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from support.announce import announcement, key
from support.certificates import Authority
from support.server import RunningServer, running_server, start_server, stop_server
from support.transports import A, B, Watched, eventually
from support.websocket_clients import Session, open_session
from waypost.app import mint_locally
from waypost.errors import Unauthorized, Unavailable
from waypost.net.clock import SystemClock
from waypost.protocols.announce.messages import AgentQuery, parse_capability_requirement
from waypost.settings import Settings
from waypost.transports.websocket import WebSocketTransport, socket_url

METRICS = AgentQuery(requirements=(parse_capability_requirement("metrics"),))


def token(server: RunningServer, subject: str) -> str:
    return mint_locally(Settings(data=server.data), subject, ("discover:read", "discover:write"), 3600)[0]


def transport(server: RunningServer, subject: str) -> WebSocketTransport:
    async def hurry(seconds: float) -> None:
        assert 0 <= seconds <= 60
        await asyncio.sleep(min(seconds, 0.2))

    return WebSocketTransport(
        server.url, SystemClock(), token=token(server, subject), random=random.Random(subject), pause=hurry
    )


@pytest.mark.req("ANN-36", "ANN-37")
async def test_a_client_comes_back_after_a_restart_and_announces_again(tmp_path: Path) -> None:
    server = start_server("--trust-mode", "tofu", folder=tmp_path)
    alice, bob = transport(server, "alice"), transport(server, "bob")
    watched = Watched()
    try:
        await alice.open()
        await bob.open()
        await bob.subscribe(watched)
        assert (await alice.announce(announcement(key(A), seq=1, at=time.time(), agent_id=A), 120)).accepted
        await eventually(lambda: watched.kinds(A) == ["added"])
        await bob.close()
        second = announcement(key(B), seq=1, at=time.time(), agent_id=B)
        assert (await alice.announce(second, 120)).accepted
        port = urlsplit(server.url).port
        await asyncio.to_thread(stop_server, server)
        ack = await alice.announce(announcement(key(A), seq=2, at=time.time(), agent_id=A), 120)
        assert not ack.accepted
        assert "session" in ack.reason
        server = await asyncio.to_thread(
            lambda: start_server("--trust-mode", "tofu", "--port", str(port), folder=tmp_path)
        )
        third = announcement(key(A), seq=3, at=time.time(), agent_id=A, capabilities={"metrics": "3.0"})
        deadline = time.monotonic() + 60
        while not (await alice.announce(third, 120)).accepted:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        carol = transport(server, "carol")
        await carol.open()
        try:
            found = await carol.query(METRICS)
            assert {each["agent"]["agent_id"]: each["agent"] for each in found} == {
                A: third["agent"],
                B: second["agent"],
            }
        finally:
            await carol.close()
    finally:
        await alice.close()
        await asyncio.to_thread(stop_server, server)


@pytest.mark.req("ANN-37")
async def test_a_subscription_goes_on_by_itself_over_a_restart(tmp_path: Path) -> None:
    server = start_server("--trust-mode", "tofu", folder=tmp_path)
    bob = transport(server, "bob")
    watched = Watched()
    try:
        await bob.open()
        await bob.subscribe(watched)
        port = urlsplit(server.url).port
        await asyncio.to_thread(stop_server, server)
        server = await asyncio.to_thread(
            lambda: start_server("--trust-mode", "tofu", "--port", str(port), folder=tmp_path)
        )
        alice = transport(server, "alice")
        await alice.open()
        assert (await alice.announce(announcement(key(A), seq=1, at=time.time(), agent_id=A), 120)).accepted
        await eventually(lambda: watched.kinds(A) == ["added"])
        await alice.withdraw(A)
        await eventually(lambda: watched.kinds(A) == ["added", "removed"])
        await alice.close()
    finally:
        await bob.close()
        await asyncio.to_thread(stop_server, server)


async def test_a_refused_session_is_reported(tmp_path: Path) -> None:
    with running_server("--store", "memory") as server:
        stranger = WebSocketTransport(server.url, SystemClock(), token="no such token")
        with pytest.raises(Unauthorized):
            await stranger.open()
        await stranger.close()
    with pytest.raises(Unavailable):
        await WebSocketTransport(server.url, SystemClock()).open()
    assert socket_url("https://registry.example:8443/") == "wss://registry.example:8443/ws"
    assert socket_url("ws://127.0.0.1:7/ws") == "ws://127.0.0.1:7/ws"


async def test_with_several_processes_every_session_sees_all_announcements() -> None:
    with running_server("--trust-mode", "tofu", "--workers", "2") as server:
        sessions = [Session(await open_session(server.url, token(server, f"agent-{n}"))) for n in range(8)]
        watcher = Session(await open_session(server.url, token(server, "watcher")))
        await watcher.subscribe()
        for number, session in enumerate(sessions):
            agent_id = f"{number:08x}{A[8:]}"
            said = announcement(key(agent_id), seq=1, at=time.time(), agent_id=agent_id)
            assert (await session.announce(said))["status"] == "done"
            assert (await sessions[-1 - number].query("metrics"))[1]["count"] == number + 1
        wrong = announcement(key("another"), seq=2, at=time.time(), agent_id=A.replace(A[:8], "00000000"))
        assert {(await session.announce(wrong))["code"] for session in sessions} == {"ErrDuplicateID"}
        seen = {(await watcher.next())[1]["agent"]["agent_id"] for _ in sessions}
        assert len(seen) == len(sessions)
        trail = {"Authorization": f"Bearer {server.admin_token}"}
        assert await vias(server.url, trail) == {"ws"}
        for session in (*sessions, watcher):
            await session.connection.close()


async def vias(url: str, headers: dict[str, str]) -> set[str]:
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        entries = (await http.get("/api/v1/audit", params={"action": "register"})).json()
    return {entry["via"] for entry in entries["entries"] if entry["action"] == "register"}


@pytest.mark.req("ANN-60")
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_client_certificate_opens_a_session_for_the_agent_that_it_names(tmp_path: Path, workers: str) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, private = authority.server().files
    flags = ("--tls-cert", certificate, "--tls-key", private, "--client-ca", str(authority.certificate))
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(*authority.client("agent", f"urn:uuid:{A}").files)
    with running_server("--trust-mode", "tofu", "--workers", workers, *flags) as server:
        alice = WebSocketTransport(server.url, SystemClock(), tls=context)
        await alice.open()
        assert (await alice.announce(announcement(key(A), seq=1, at=time.time(), agent_id=A), 60)).accepted
        other = await alice.announce(announcement(key(B), seq=1, at=time.time(), agent_id=B), 60)
        assert not other.accepted
        assert [each["agent"]["agent_id"] for each in await alice.query(METRICS)] == [A]
        await alice.close()
