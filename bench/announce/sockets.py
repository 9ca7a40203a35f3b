"""WebSocket sessions that announce every 30 seconds, in one process: memory per session, latency of an announcement.

The reference is the server of `websockets` as its documentation shows it, which takes the same frames and answers each with
as many bytes, and does nothing else. Both are asked by the same client.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from bench.measures import quantile
from waypost.model.json import JsonObject
from waypost.model.times import to_rfc3339
from waypost.protocols.announce.websocket import SUBPROTOCOL, AnnounceFrameType, write_frame
from waypost.trust.announce.signed_announcement import sign_announcement
from waypost.trust.keys.private_key import PrivateKey, new_private_key

EVERY_SECONDS = 30.0
OPENED_AT_ONCE = 50


def measure(kind: str, sessions: int, seconds: float) -> dict[str, float]:
    with _server(kind) as (url, process):
        return asyncio.run(_sessions(url, process, sessions, seconds))


async def _sessions(url: str, server: psutil.Process, count: int, seconds: float) -> dict[str, float]:
    empty = server.memory_info().rss
    gate = asyncio.Semaphore(OPENED_AT_ONCE)
    began = time.monotonic()
    opened = await asyncio.gather(*(_open(url, gate) for _ in range(count)))
    took = time.monotonic() - began
    held = server.memory_info().rss - empty
    agents = [Agent(each) for each in opened]
    await asyncio.gather(*(each.begin(gate) for each in agents))
    with_agents = server.memory_info().rss - empty
    spent = cpu_seconds(server)
    taken: list[float] = []
    deadline = time.monotonic() + seconds
    await asyncio.gather(*(each.go_on(deadline, taken) for each in agents))
    cpu = cpu_seconds(server) - spent
    for each in opened:
        each.transport.abort()
    return {
        "opened_per_second": count / took,
        "kib_per_session": held / 1024 / count,
        "kib_with_its_agent": with_agents / 1024 / count,
        "announcements": len(taken),
        "p50_ms": 1000 * quantile(taken, 0.5),
        "p99_ms": 1000 * quantile(taken, 0.99),
        "cpu_us_per_announcement": 1e6 * cpu / max(1, len(taken)),
    }


async def _open(url: str, gate: asyncio.Semaphore) -> ClientConnection:
    async with gate:
        return await connect(
            url, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, ping_interval=None, open_timeout=60
        )


class Agent:
    """One session and its agent."""

    def __init__(self, session: ClientConnection) -> None:
        self._session = session
        self._agent_id, self._key = str(uuid.uuid4()), new_private_key("ed25519", secrets.token_bytes(32))

    async def begin(self, gate: asyncio.Semaphore) -> None:
        async with gate:
            await self._announce()

    async def go_on(self, deadline: float, taken: list[float]) -> None:
        """Announce at a random offset in the period, so that the load is even; none after the end."""
        moment = random.uniform(0, EVERY_SECONDS)
        while time.monotonic() + moment < deadline:
            await asyncio.sleep(moment)
            taken.append(await self._announce())
            moment = EVERY_SECONDS

    async def _announce(self) -> float:
        data = write_frame(AnnounceFrameType.ANNOUNCE, _message(self._agent_id, self._key))
        began = time.monotonic()
        await self._session.send(data)
        answer = await self._session.recv()
        took = time.monotonic() - began
        told = json.loads(answer[1:])
        if told.get("status") == "error":
            raise RuntimeError(f"refused: {told}")
        return took


def _message(agent_id: str, key: PrivateKey) -> JsonObject:
    now = time.time()
    agent: JsonObject = {
        "agent_id": agent_id,
        "agent_name": "data-processor",
        "capabilities": {"metrics": "2.0"},
        "transport": {"type": "tcp", "endpoint": "10.0.0.12:9000"},
        "metadata": {"__seq": int(now * 1000), "__iat": to_rfc3339(now)},
    }
    return {**sign_announcement(agent, key), "ttl": 120}


# --- Servers --------------------------------------------------------------------------------------


@contextmanager
def _server(kind: str) -> Iterator[tuple[str, psutil.Process]]:
    with (
        tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder,
        stopped(_started(_words(kind, Path(folder)))) as started,
    ):
        assert started.stdout is not None
        url = started.stdout.readline().split()[-1]
        yield url.replace("http", "ws", 1) + "/ws", psutil.Process(started.pid)


def _started(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, terminated at the end of the block."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def _words(kind: str, folder: Path) -> list[str]:
    if kind == "bare":
        return [sys.executable, "-m", "bench.announce.sockets"]
    options = ["--port", "0", "--data", str(folder), "--embedder", "none", "--open", "--trust-mode", "tofu"]
    return [sys.executable, "-m", "waypost", "serve", *options, "--log-level", "warning"]


async def _bare() -> None:
    status = {"protocol_version": "v1.0", "status": "done", "agent_id": str(uuid.uuid4()), "expires_at": "x" * 20}
    answer = write_frame(AnnounceFrameType.STATUS, status)

    async def handle(session: ServerConnection) -> None:
        async for data in session:
            json.loads(data[1:])
            await session.send(answer)

    async with serve(handle, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        print(f"ready http://127.0.0.1:{port}", flush=True)
        await server.serve_forever()


def cpu_seconds(process: psutil.Process) -> float:
    times: Any = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    asyncio.run(_bare())
