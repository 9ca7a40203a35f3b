"""Which version is spoken with whom (announce.md §8): a memory of peers, bounded, for transports without an answer of their own.

The clock is an argument; what to send, and whether to log, is said, not done.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import UnsupportedVersion
from waypost.model.announce_version import parse_minor, spoken


class Reading(msgspec.Struct, frozen=True):
    """What to do with a message: process it or not, warn of its minor, send the own major back."""

    process: bool
    warn: bool = False
    answer: bool = False


class _Peer(msgspec.Struct):
    minor: int = 0  # the highest that it has shown
    warned_at: float | None = None
    answered_at: float | None = None


class Negotiation:
    def __init__(self) -> None:
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def read(self, peer: str, version: Any, now: float) -> Reading:
        """Raises InvalidDocument for what is no version at all."""
        try:
            minor = parse_minor(version)
        except UnsupportedVersion:
            return Reading(process=False, answer=self._is_answered(peer, now))
        if minor == 0:
            return Reading(process=True)
        known = self._peer(peer)
        known.minor = max(known.minor, minor)
        warn = _is_due(known.warned_at, now, limits.VERSION_WARN_SECONDS)
        if warn:
            known.warned_at = now
        return Reading(process=True, warn=warn)

    def version_for(self, peer: str) -> str:
        """The highest minor that the peer has shown; v1.0 first, which every reader takes."""
        known = self._peers.get(peer)
        return spoken(known.minor if known is not None else 0)

    def _is_answered(self, peer: str, now: float) -> bool:
        known = self._peer(peer)
        due = _is_due(known.answered_at, now, limits.VERSION_ANSWER_SECONDS)
        if due:
            known.answered_at = now
        return due

    def _peer(self, name: str) -> _Peer:
        known = self._peers.setdefault(name, _Peer())
        self._peers.move_to_end(name)
        if len(self._peers) > limits.VERSION_PEERS:
            self._peers.popitem(last=False)
        return known


def _is_due(last: float | None, now: float, pause: float) -> bool:
    return last is None or now - last >= pause
