"""Known packet sources, and their limits."""

from __future__ import annotations

from waypost import limits
from waypost.transports.packet_filter import KnownSources, PacketSource


def host(number: int) -> PacketSource:
    return PacketSource(f"10.0.{number // 250}.{number % 250}")


def test_only_sources_known_for_some_time_count() -> None:
    believed = KnownSources()
    believed.add(host(1), 0.0)
    believed.add(host(2), 3.0)
    believed.add(host(1), 9.0)
    assert believed.before(limits.KNOWN_SOURCE_AFTER_SECONDS - 1) == frozenset()
    assert believed.before(limits.KNOWN_SOURCE_AFTER_SECONDS + 1) == {host(1)}
    assert believed.before(limits.KNOWN_SOURCE_AFTER_SECONDS + 3) == {host(1), host(2)}


def test_of_many_the_last_ones_count_and_the_memory_is_bounded() -> None:
    believed = KnownSources(capacity=100)
    for number in range(300):
        believed.add(host(number), 0.0)
    assert len(believed) == 100
    assert believed.before(100.0) == {host(number) for number in range(300 - limits.KNOWN_SOURCES, 300)}
