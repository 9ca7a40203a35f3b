"""What an announcer says: its agent, signed anew in time, in the size that a carrier takes. Time is an argument."""

from __future__ import annotations

from collections.abc import Iterable

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

_TIGHT = ("mdns", "udp")
_DESCRIPTION_CHARS = 200
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
        carriers: Iterable[str],
        older: bool = False,
    ) -> None:
        """`carriers`: the names of the transports that it goes out by. `older`: with the salt that the first implementation
        asks for."""
        self._agent = agent
        self._key = key
        self._previous = previous
        self._sequence = sequence
        names = set(carriers)
        self._tight = sorted(names & set(_TIGHT))
        self._prefers_small = names == {
            "udp"
        }  # nobody else hears it, so one datagram is what it should fit into (P-23)
        self._for_older = older
        self._kept: _Message | None = None

    @property
    def agent_id(self) -> str:
        return str(self._agent["agent_id"]).lower()

    def change(self, agent: JsonObject) -> None:
        self._agent = agent
        self.refresh()

    def refresh(self) -> None:
        """What is said next is signed anew."""
        self._kept = None

    def message(self, carrier: str, now: float) -> JsonObject:
        """Signed within the last minute, for a registry each time: there it must be newer than what was heard elsewhere. All
        carriers with little room say the same, so that nobody hears two contents."""
        if carrier not in _TIGHT:
            return self._sign(self._agent, now)
        kept = self._kept
        if kept is None or not 0 <= now - kept.signed_at < limits.RESIGN_SECONDS * _KEPT_PART:
            kept = self._kept = _Message(self._fitting(now), now)
        return kept.message

    def goodbye(self, now: float) -> JsonObject:
        """P-19: signed, under a sequence of its own, and short."""
        bare = compact(self._agent)
        return self._sign({**bare, "metadata": {**bare.get("metadata", {}), "__state": "shutdown"}}, now)

    def _fitting(self, now: float) -> JsonObject:
        """The whole agent, or one without what only registries use, or a compact one."""
        for agent in (self._agent, modest(self._agent)):
            message = self._sign(agent, now)
            is_large = len(dump_json(message)) > limits.DATAGRAM_BYTES
            if not (self._prefers_small and is_large) and all(_fits(message, carrier) for carrier in self._tight):
                return message
        return fit(self._agent, lambda agent: self._sign(agent, now), "udp").message

    def _sign(self, agent: JsonObject, now: float) -> JsonObject:
        stamps = {"__seq": self._sequence.next(now), "__iat": to_rfc3339(now)}
        said = {**agent, "metadata": {**(agent.get("metadata") or {}), **stamps}}
        return sign_announcement(said, self._key, self._previous, older_readers=self._for_older)


def modest(agent: JsonObject) -> JsonObject:
    """With its name and the head of its description, which people look for; without the rest of its metadata."""
    bare = {name: value for name, value in agent.items() if name != "metadata"}
    description = (agent.get("metadata") or {}).get("description")
    if not isinstance(description, str):
        return bare
    return {**bare, "metadata": {"description": description[:_DESCRIPTION_CHARS]}}


def _fits(message: JsonObject, carrier: str) -> bool:
    data = dump_json(message)
    try:
        if carrier == "udp":
            return bool(datagrams(data))
        return bool(write_inline(data, str(message["agent"]["agent_id"]), str(message["protocol_version"])))
    except TooLarge:
        return False
