"""Rate limits of packet sources."""

from __future__ import annotations

from waypost import limits
from waypost.transports.packet_filter import PacketAdmission, SourceStanding


def test_made_up_sources_share_one_bound() -> None:
    """L3."""
    door = PacketAdmission()
    let_in = sum(door.admits(f"10.0.{number // 250}.{number % 250}", 0.0) for number in range(20_000))
    assert let_in == limits.PACKETS_BURST
    one = PacketAdmission()
    assert sum(one.admits("10.0.0.1", 0.0) for _ in range(20_000)) == limits.SOURCE_PACKETS_BURST


def test_verbose_sources_do_not_displace_quiet_ones() -> None:
    """L3."""
    door = PacketAdmission()
    loud = [f"10.0.0.{number}" for number in range(10)]
    for source in loud:
        for _ in range(1000):
            door.admits(source, 0.0)
    let_in = sum(door.admits(source, 10.0 + turn / 100) for turn in range(200) for source in loud)
    assert let_in <= limits.PACKETS_BURST
    for number in range(100):
        assert door.admits(f"10.0.1.{number}", 12.0)


def test_of_a_flood_next_to_nothing_is_let_in() -> None:
    door = PacketAdmission()
    let_in = sum(door.admits("10.0.0.1", turn / 1000, SourceStanding.FLOODING) for turn in range(10_000))
    assert let_in <= 11 * limits.NOISY_SOURCE_PACKETS_PER_SECOND
    assert door.admits("10.0.0.2", 10.0)


def test_spoofed_sources_do_not_evict_known_sources() -> None:
    """L3."""
    door = PacketAdmission()
    for number in range(20_000):
        door.admits(f"10.0.{number // 250}.{number % 250}", 0.0)
    strangers = sum(
        door.admits(f"10.1.{number // 250}.{number % 250}", 1.0 + number / 4000, SourceStanding.UNKNOWN)
        for number in range(20_000)
    )
    assert strangers <= 6 * limits.UNKNOWN_SOURCE_PACKETS_PER_SECOND
    assert all(door.admits(f"10.2.0.{number}", 6.0) for number in range(200))
