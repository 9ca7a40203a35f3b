"""The report of the announce benchmark shows figures beside their goals."""

from __future__ import annotations

from bench import saved_results
from bench.announce.report import DOCUMENT, RESULTS, documented, report

LAN = {
    "known": 100,
    "seconds": 2.0,
    "packets_per_agent": 5.0,
    "bytes_per_agent": 3000.0,
    "listener_cpu_ms_per_agent": 1.0,
    "host_cpu_ms_per_agent": 4.0,
}
FLOOD = {
    "quiet_p99_ms": 2.0,
    "elsewhere_p99_ms": 3.0,
    "flooded_p99_ms": 5.0,
    "flooded_cpu_share": 0.2,
    "grown_mib": 8.0,
}


def test_the_documentation_shows_the_saved_results() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert "<!-- bench: announce -->" in text
    if RESULTS.exists():
        assert documented(text, saved_results.load(RESULTS)) == text


def test_missed_goals_and_missing_figures_are_marked() -> None:
    bare = {**LAN, "seconds": 1.0, "packets_per_agent": 10.0, "listener_cpu_ms_per_agent": 0.0}
    told = report({"lan": {"100": {"ours": LAN, "bare": bare}}, "flood": {"udp": FLOOD}})
    assert "| … ÷ bare zeroconf | ≤ 1 | 2.00 (missed) |" in told
    assert "| packets per agent ÷ bare zeroconf | ≤ 1 | 0.50 |" in told
    assert "| … ÷ bare zeroconf | ≤ 2 | not measured |" in told
    assert "| p99 of HTTP ÷ without a flood | ≤ 2 | 2.50 (missed) |" in told
    assert "| memory grown, MiB | ≤ 64 | 8 |" in told
    assert "WebSocket" not in told
