"""What an announcer says: its agent, signed anew in time, in the size that a carrier takes. Time is an argument."""

from __future__ import annotations

import msgspec

from waypost import limits
from waypost.client.identity import Sequence
from waypost.errors import TooLarge
from waypost.model.json import JsonObject, dump_json
from waypost.model.times import to_rfc3339
from waypost.trust.signing import PrivateKey, sign_announcement
from waypost.wire.announce_ladder import compact, fit
from waypost.wire.announce_txt import write_inline
from waypost.wire.announce_udp import datagrams

_KEPT_PART = 0.8  # of the time between two signatures: the next turn may come a little late


class _Message(msgspec.Struct, frozen=True):
    message: JsonObject
    signed_at: float


class SignedAgent:
    def __init__(
        self,
        agent: JsonObject,
        key: PrivateKey,
        sequence: Sequence,
        *,
        previous: PrivateKey | None,
        small: bool,
        older: bool = False,
    ) -> None:
        """`small`: nobody but listeners of datagrams hears it, so one datagram is what it should fit into (P-23). `older`: with
        the salt that the first implementation asks for."""
        self._agent = agent
        self._key = key
        self._previous = previous
        self._sequence = sequence
        self._prefers_small = small
        self._for_older = older
        self._kept: dict[str, _Message] = {}  # `whole`, `small`

    @property
    def agent_id(self) -> str:
        return str(self._agent["agent_id"]).lower()

    def change(self, agent: JsonObject) -> None:
        self._agent = agent
        self._kept.clear()

    def message(self, carrier: str, now: float) -> JsonObject:
        """Signed within the last minute. All carriers say the same, but for one that cannot take it whole."""
        whole = self._fresh("whole", now)
        if carrier not in ("mdns", "udp"):
            return whole
        is_large = len(dump_json(whole)) > limits.DATAGRAM_BYTES
        if (self._prefers_small and is_large) or not _fits(whole, carrier):
            return self._fresh("small", now)
        return whole

    def goodbye(self, now: float) -> JsonObject:
        """P-19: signed, under a sequence of its own, and short."""
        bare = compact(self._agent)
        return self._sign({**bare, "metadata": {**bare.get("metadata", {}), "__state": "shutdown"}}, now)

    def _fresh(self, size: str, now: float) -> JsonObject:
        kept = self._kept.get(size)
        if kept is None or not 0 <= now - kept.signed_at < limits.RESIGN_SECONDS * _KEPT_PART:
            kept = self._kept[size] = _Message(self._make(size, now), now)
        return kept.message

    def _make(self, size: str, now: float) -> JsonObject:
        if size == "whole":
            return self._sign(self._agent, now)
        return fit(self._agent, lambda agent: self._sign(agent, now), "udp").message

    def _sign(self, agent: JsonObject, now: float) -> JsonObject:
        stamps = {"__seq": self._sequence.next(now), "__iat": to_rfc3339(now)}
        said = {**agent, "metadata": {**(agent.get("metadata") or {}), **stamps}}
        return sign_announcement(said, self._key, self._previous, older_readers=self._for_older)


def _fits(message: JsonObject, carrier: str) -> bool:
    data = dump_json(message)
    try:
        if carrier == "udp":
            return bool(datagrams(data))
        return bool(write_inline(data, str(message["agent"]["agent_id"]), str(message["protocol_version"])))
    except TooLarge:
        return False
