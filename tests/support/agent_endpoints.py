"""Agent endpoints for tests: servers on loopback with chosen responses, and health checks that the test starts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from support.external_server import ExternalServer, answer
from support.service import Bench
from waypost.errors import FetchFailed
from waypost.net.address_policy import AddressPolicy
from waypost.net.dns.upstreams import StubResolver
from waypost.net.fetcher import SafeFetcher
from waypost.registry.jobs.health_checks import HealthChecks, HealthOptions
from waypost.registry.ports import EndpointProber

LOOPBACK = ("127.0.0.0/8",)
ROUND = 80.0  # seconds after which every endpoint is due again, with any jitter


def status(code: int) -> bytes:
    return answer(b"", status=f"{code} Whatever")


def serve(site: ExternalServer, path: str, code: int) -> str:
    """Set the response of a path and return its URL."""
    site.pages[path] = status(code)
    return f"http://127.0.0.1:{site.port}{path}"


def make_checks(
    bench: Bench, prober: EndpointProber | None = None, *, allow: tuple[str, ...] = LOOPBACK, resolver: str = "127.0.0.1:9",
    **options: Any,
) -> HealthChecks:  # fmt: skip
    """The health checks of a service on the clock of the test; `check` runs a round."""
    if prober is None:
        asked = StubResolver(resolver, timeout_seconds=20.0)
        prober = SafeFetcher(AddressPolicy(allow), asked, clock=bench.clock.now)
    return HealthChecks(bench.registry, prober, HealthOptions(**options), chance=lambda: 0.5)


async def check(bench: Bench, checks: HealthChecks, rounds: int = 1, *, seconds: float = ROUND) -> None:
    for _ in range(rounds):
        bench.clock.advance(seconds)
        await checks.check_due()


class DeadEndpoints:
    """A prober whose endpoints do not answer. It counts calls and concurrency; with `waits` it blocks until released."""

    def __init__(self, *, waits: bool = False) -> None:
        self.asked: Counter[str] = Counter()
        self.at_once = 0
        self.most_at_once = 0
        self.alive: set[str] = set()
        self.let_go = asyncio.Event()
        if not waits:
            self.let_go.set()

    def check_endpoint(self, endpoint: str) -> None:
        """Accept every endpoint."""

    async def probe(self, endpoint: str) -> int | None:
        self.asked[endpoint] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
            await self.let_go.wait()
        finally:
            self.at_once -= 1
        if endpoint in self.alive:
            return 200
        raise FetchFailed("Nobody answers.", path="url", details={"reason": "timed_out"})
