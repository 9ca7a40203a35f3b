"""A small load generator: keep-alive connections on loopback, requests prepared beforehand.

It measures requests per second and the CPU time that the server spent on each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop


@dataclass(frozen=True)
class Measured:
    requests: int
    seconds: float
    server_cpu_seconds: float
    body_bytes: int
    failed: int
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.server_cpu_seconds / self.requests


def request_bytes(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body and not any(name.lower() == "content-type" for name in headers or {}):
        lines.append("Content-Type: application/json")
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Caller(asyncio.Protocol):
    """One connection that sends the next request when a response is complete."""

    def __init__(self, requests: list[bytes], done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._done = done
        self._buffer = bytearray()
        self._missing = -1
        self._sent_at = 0.0
        self.latencies: list[float] = []
        self.failed = 0
        self.body_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if not self._requests:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._sent_at = time.perf_counter()
        self._transport.write(self._requests.pop())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._missing < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end]).lower()
            if not head.startswith(b"http/1.1 2"):
                self.failed += 1
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self.body_bytes += length
            self._missing = end + 4 + length
        if len(self._buffer) >= self._missing:
            self.latencies.append(time.perf_counter() - self._sent_at)
            self._buffer.clear()
            self._missing = -1
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))


async def _run(port: int, requests: Sequence[bytes], clients: int) -> tuple[list[_Caller], float]:
    loop = asyncio.get_running_loop()
    shares = [list(requests[index::clients]) for index in range(clients)]
    done = [loop.create_future() for _ in shares]
    started = time.perf_counter()
    callers = []
    for share, future in zip(shares, done, strict=True):
        share.reverse()
        _, caller = await loop.create_connection(lambda s=share, f=future: _Caller(s, f), "127.0.0.1", port)  # type: ignore[misc]
        callers.append(caller)
    await asyncio.wait_for(asyncio.gather(*done), timeout=600)
    return callers, time.perf_counter() - started


def processor_seconds(process: psutil.Process) -> float:
    """CPU time of a process. Linux reports it per thread in nanoseconds; elsewhere the resolution is 10 ms, which is a tenth
    of what the baseline handler uses in a whole run."""
    try:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except (OSError, ValueError):
        times = process.cpu_times()
        return float(times.user + times.system)


def measure(port: int, server: psutil.Process, requests: Sequence[bytes], *, clients: int = 8) -> Measured:
    """Send every request once, over `clients` connections."""
    before = processor_seconds(server)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        callers, seconds = runner.run(_run(port, requests, clients))
    after = processor_seconds(server)
    latencies = sorted(latency for caller in callers for latency in caller.latencies)
    return Measured(
        requests=len(requests),
        seconds=seconds,
        server_cpu_seconds=after - before,
        body_bytes=sum(caller.body_bytes for caller in callers),
        failed=sum(caller.failed for caller in callers),
        p50_ms=1e3 * latencies[len(latencies) // 2],
        p99_ms=1e3 * latencies[int(len(latencies) * 0.99)],
    )
