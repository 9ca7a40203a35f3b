"""Protocol versions: what is processed, logged, and answered with our version."""

from __future__ import annotations

import pytest

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.protocols.announce.messages import VersionDecision, VersionNegotiation


def test_our_own_protocol_version_needs_no_negotiation() -> None:
    negotiation = VersionNegotiation()
    assert negotiation.read("a", "v1.0", 0.0) == VersionDecision(process=True)
    assert len(negotiation) == 0


def test_another_minor_is_processed_and_warned_of_once_an_hour_for_each_peer() -> None:
    """ANN-51."""
    negotiation = VersionNegotiation()
    assert negotiation.read("a", "v1.1", 0.0) == VersionDecision(process=True, warn=True)
    assert negotiation.read("a", "v1.7", 3599.0) == VersionDecision(process=True)
    assert negotiation.read("b", "v1.1", 3599.0) == VersionDecision(process=True, warn=True)
    assert negotiation.read("a", "v1.1", 3600.0) == VersionDecision(process=True, warn=True)


def test_a_higher_major_is_ignored_and_answered_once_a_minute_for_each_source() -> None:
    """ANN-50."""
    negotiation = VersionNegotiation()
    assert negotiation.read("a", "v2.0", 0.0) == VersionDecision(process=False, answer=True)
    assert negotiation.read("a", "v3.0", 59.9) == VersionDecision(process=False)
    assert negotiation.read("b", "v2.0", 59.9) == VersionDecision(process=False, answer=True)
    assert negotiation.read("a", "v2.0", 60.0) == VersionDecision(process=False, answer=True)


@pytest.mark.parametrize("version", ["v0.9", "1.0", "v1", "v1.0 ", "", None, 1.0, "v1.0.0", "v٢.0"])
def test_an_invalid_protocol_version_is_malformed(version: object) -> None:
    with pytest.raises(InvalidDocument):
        VersionNegotiation().read("a", version, 0.0)


def test_the_memory_of_peers_is_bounded() -> None:
    negotiation = VersionNegotiation()
    for number in range(limits.VERSION_PEERS + 5):
        negotiation.read(f"peer {number}", "v1.1", 0.0)
    assert len(negotiation) == limits.VERSION_PEERS
