"""Signed AGP messages between two processes, beside a plain WebSocket echo of the same size in the same run.

    python -m bench.agp [--seconds 3] [--idle 2000] [--save]

Each of the three is something that goes and something that comes back, with as many of them on their way at once (WINDOW):

- `bare`: with the websockets library alone a frame goes, and the same frame comes back;
- `said`: a message goes, signed, and its acknowledgement comes back when it was verified, kept and handed over. One
  acknowledgement may cover several messages;
- `asked`: a question goes and its answer comes back, each of them signed, verified, kept, handed over and acknowledged.

`alone` is one at a time. Both sides run on uvloop. What a machine gives changes from one second to the next, so all of them take
turns in short rounds (ROUNDS), and a ratio is how often per second, divided by `bare` of the same round: its median, with the
lowest and the highest (`_between`). A `cpu_ratio` is the same of the processor's time on the side that needs more of it, a
`cpu_both_ratio` that of both sides together, over all rounds: other work on the machine changes them less. What one core signs
and verifies in a second is measured too, and for each size what the parts of a message take that nobody can leave out
(`parts_us`): below their sum lies no figure of both sides. The figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import psutil
import uvloop
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from bench.measures import quantile
from waypost.client.chat import ChatMessage
from waypost.live import LiveAgent
from waypost.messaging.message_store import AgentMessage
from waypost.protocols.adp.agp.messages import MessageContent, find_signature, parse_message, write_message
from waypost.trust.keys.private_key import new_private_key

SIZES = (64, 1024, 16_384)
WINDOW = 64
ROUNDS = 10
AT_ONCE = 24  # messages that are signed or verified together
AROUND = 430  # bytes of a message that are not its content
CALLER, ANSWERER = "agent:caller.example.com", "agent:answerer.example.com"
KEYS = {CALLER: new_private_key("ed25519", b"c" * 32), ANSWERER: new_private_key("ed25519", b"a" * 32)}
RESULTS = Path(__file__).parent / "results" / "agp.json"


# --- The other process ------------------------------------------------------------------------------


async def answer() -> None:
    async def echo(socket: ServerConnection) -> None:
        async for frame in socket:
            await socket.send(frame)

    agent = LiveAgent(ANSWERER, KEYS[ANSWERER])
    agent.knows(CALLER, fingerprint=KEYS[CALLER].public.fingerprint())

    @agent.on_chat
    async def say(message: ChatMessage) -> str | None:
        return message.text[1:] if message.text.startswith("?") else None

    async with agent, serve(echo, "127.0.0.1", 0, compression=None) as bare:
        port = next(iter(bare.sockets)).getsockname()[1]
        print(json.dumps({"bare": f"ws://127.0.0.1:{port}", "agp": await agent.listen()}), flush=True)
        await asyncio.Event().wait()


# --- This one ---------------------------------------------------------------------------------------


class Rate(NamedTuple):
    """Rate, latencies, and CPU time on both sides."""

    per_second: float
    took: list[float]
    cpu_seconds: tuple[float, float]


class Rates(NamedTuple):
    """The same measurement in every round."""

    rounds: list[Rate]

    @property
    def per_second(self) -> float:
        return median(each.per_second for each in self.rounds)

    @property
    def cpu_us(self) -> tuple[float, float]:
        """CPU time per message. The clock has a resolution of 10 ms, so one round alone is imprecise."""
        count = sum(len(each.took) for each in self.rounds)
        near, far = (sum(each.cpu_seconds[side] for each in self.rounds) / count * 1e6 for side in (0, 1))
        return near, far

    def row(self, name: str) -> dict[str, Any]:
        took = [one for each in self.rounds for one in each.took]
        return {
            f"{name}_per_second": round(self.per_second),
            f"{name}_p99_ms": round(quantile(took, 0.99) * 1000, 1),
            f"{name}_cpu_us": [round(each) for each in self.cpu_us],
        }

    def beside(self, bare: Rates, name: str) -> dict[str, Any]:
        ratios = [own.per_second / other.per_second for own, other in zip(self.rounds, bare.rounds, strict=True)]
        return {
            f"{name}_ratio": round(median(ratios), 3),
            f"{name}_ratio_between": [round(min(ratios), 3), round(max(ratios), 3)],
            f"{name}_cpu_ratio": round(max(bare.cpu_us) / max(self.cpu_us), 3),
            f"{name}_cpu_both_ratio": round(sum(bare.cpu_us) / sum(self.cpu_us), 3),
        }


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def rate(seconds: float, one: Callable[[], Awaitable[None]], at_once: int, other: psutil.Process) -> Rate:
    """Keep this many in flight, for this long."""
    took: list[float] = []
    sides = (psutil.Process(), other)
    before = [cpu_seconds(side) for side in sides]
    begun = time.perf_counter()

    async def work() -> None:
        while time.perf_counter() - begun < seconds:
            at = time.perf_counter()
            await one()
            took.append(time.perf_counter() - at)

    await asyncio.gather(*(work() for _ in range(at_once)))
    lasted = time.perf_counter() - begun
    near, far = (cpu_seconds(side) - was for side, was in zip(sides, before, strict=True))
    return Rate(len(took) / lasted, took, (near, far))


@asynccontextmanager
async def echo_of(url: str, size: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Echo a frame of this size."""
    frame = "x" * (size + AROUND)
    async with connect(url, compression=None) as socket:
        waiting: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

        async def read() -> None:
            async for _ in socket:
                waiting.get_nowait().set_result(None)

        async def one() -> None:
            echoed = asyncio.get_running_loop().create_future()
            waiting.put_nowait(echoed)
            await socket.send(frame)
            await echoed

        reading = asyncio.create_task(read())
        yield one
        reading.cancel()


async def measure(urls: dict[str, str], size: int, seconds: float, other: psutil.Process) -> dict[str, Any]:
    agent = LiveAgent(CALLER, KEYS[CALLER])
    agent.knows(ANSWERER, url=urls["agp"], fingerprint=KEYS[ANSWERER].public.fingerprint())
    text = "x" * (size - 1)
    async with agent, echo_of(urls["bare"], size) as echo:
        await agent.talk(ANSWERER)
        conversation = agent.me.connections[ANSWERER]

        async def say() -> None:
            await conversation.acknowledgement(await agent.send(ANSWERER, text))

        async def ask() -> None:
            await agent.chat(ANSWERER, "?" + text)

        kinds = {"bare": (echo, WINDOW), "said": (say, WINDOW), "asked": (ask, WINDOW)}
        kinds |= {"bare_alone": (echo, 1), "said_alone": (say, 1)}
        rounds: dict[str, Rates] = {name: Rates([]) for name in kinds}
        for _ in range(ROUNDS):
            for name, (one, at_once) in kinds.items():
                rounds[name].rounds.append(await rate(seconds / ROUNDS, one, at_once, other))
    bare, said, asked = rounds["bare"], rounds["said"], rounds["asked"]
    return {
        "size": size,
        "at_once": WINDOW,
        "bare_alone_per_second": round(rounds["bare_alone"].per_second),
        "said_alone_per_second": round(rounds["said_alone"].per_second),
        "said_alone_ratio": rounds["said_alone"].beside(rounds["bare_alone"], "alone")["alone_ratio"],
        **bare.row("bare"),
        **said.row("said"),
        **asked.row("asked"),
        **said.beside(bare, "said"),
        **asked.beside(bare, "asked"),
    }


def parts(size: int) -> dict[str, float]:
    """CPU time of each part of a message, in µs: the best of many rounds of AT_ONCE messages."""
    key, content = KEYS[CALLER], MessageContent(text="x" * size)
    named = {"sender": CALLER, "to": ANSWERER, "kind": "chat", "at": time.time(), "content": content}
    frames = [write_message(key, message_id=str(uuid.uuid4()), **named) for _ in range(AT_ONCE)]
    messages = [parse_message(frame) for frame in frames]
    signed = [(find_signature(each.signature) or b"", each.signing_input) for each in messages]
    for each in signed:
        assert key.public.verify(*each)
    letters = [AgentMessage(id=each.id, peer=CALLER, content=content) for each in messages * 2]
    works: dict[str, Callable[[], object]] = {
        "sign": lambda: key.sign_each([covered for _, covered in signed]),
        "verify": lambda: [key.public.verify(*each) for each in signed],
        "read": lambda: deque(map(parse_message, frames), 0),
        "kept": lambda: deque(map(msgspec.msgpack.encode, letters), 0),  # on both sides
    }
    return {name: round(best_of(work) / AT_ONCE * 1e6, 1) for name, work in works.items()}


def best_of(work: Callable[[], object], rounds: int = 60) -> float:
    found = math.inf
    for _ in range(rounds):
        begun = time.process_time()
        work()
        found = min(found, time.process_time() - begun)
    return found


def signatures(seconds: float) -> dict[str, int]:
    """The rate that the cryptography alone allows."""
    key, data = KEYS[CALLER], b"x" * 256
    signature = key.sign(data)
    found = {}
    for name, one in (("signed", lambda: key.sign(data)), ("verified", lambda: key.public.verify(signature, data))):
        count, begun = 0, time.process_time()
        while time.process_time() - begun < seconds:
            one()
            count += 1
        found[f"{name}_per_second"] = round(count / seconds)
    return found


async def idle(urls: dict[str, str], count: int, process: psutil.Process) -> dict[str, Any]:
    """The cost of idle sessions on the answering side."""
    agents = [LiveAgent(CALLER, KEYS[CALLER]) for _ in range(count)]
    before = process.memory_info().rss
    for start in range(0, count, 4):  # as many handshakes at once as an address may have
        await asyncio.gather(*(_opened(agent, urls["agp"]) for agent in agents[start : start + 4]))
    grown = process.memory_info().rss - before
    await asyncio.gather(*(agent.__aexit__(None, None, None) for agent in agents))
    return {"idle_sessions": count, "kib_each": round(grown / count / 1024, 1), "mib": round(grown / 2**20, 1)}


async def _opened(agent: LiveAgent, url: str) -> None:
    agent.knows(ANSWERER, url=url, fingerprint=KEYS[ANSWERER].public.fingerprint())
    await agent.__aenter__()
    await agent.talk(ANSWERER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--save", action="store_true", help="write the figures to bench/results")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        uvloop.run(answer())
        return
    command = [sys.executable, "-m", "bench.agp", "--answer"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            urls = json.loads(other.stdout.readline())
            process = psutil.Process(other.pid)
            found: dict[str, Any] = {"sizes": [], **signatures(min(1.0, given.seconds))}
            for size in SIZES:
                row = uvloop.run(measure(urls, size, given.seconds, process)) | {"parts_us": parts(size)}
                found["sizes"].append(row)
                print(json.dumps(row))
            if given.idle:
                found |= uvloop.run(idle(urls, given.idle, process))
                print(json.dumps({name: value for name, value in found.items() if name != "sizes"}))
        finally:
            other.kill()
    if given.save:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
