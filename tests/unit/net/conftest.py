from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from support.certificates import Authority
from support.external_server import ExternalServer, external_server
from support.fake_dns_server import DnsServer, dns_server
from waypost.net.address_policy import AddressPolicy
from waypost.net.dns.upstreams import StubResolver
from waypost.net.fetcher import FETCH_LIMITS, SafeFetcher

# Far above the product's own limits: a busy machine is slow.
PATIENT = {
    purpose: msgspec.structs.replace(bounds, connect_seconds=30.0, total_seconds=60.0)
    for purpose, bounds in FETCH_LIMITS.items()
}
# Far below, so that a test of what takes too long does not.
SMALL = {
    purpose: msgspec.structs.replace(bounds, connect_seconds=0.5, total_seconds=0.6)
    for purpose, bounds in FETCH_LIMITS.items()
}
MakeFetcher = Callable[..., SafeFetcher]


@pytest.fixture
async def names() -> AsyncIterator[DnsServer]:
    async with dns_server() as server:
        yield server


@pytest.fixture
async def site() -> AsyncIterator[ExternalServer]:
    async with external_server() as server:
        yield server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def make_fetcher(names: DnsServer) -> MakeFetcher:
    """A fetcher of this deployment; without a word, one that may go to 127.0.0.1 and nowhere else inside."""

    def make(allow: tuple[str, ...] = ("127.0.0.1/32",), *, hurried: bool = False, **how: object) -> SafeFetcher:
        resolver = StubResolver(names.address, timeout_seconds=0.4 if hurried else 20.0)
        bounds = SMALL if hurried else PATIENT
        return SafeFetcher(AddressPolicy(allow), resolver, fetch_limits=bounds, **how)  # type: ignore[arg-type]

    return make
