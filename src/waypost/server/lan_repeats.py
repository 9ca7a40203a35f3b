"""What was heard on the LAN and let in, word for word: the same again needs no second judgement, for a while.

An agent repeats itself every few seconds, and signs anew once a minute. Pure: what is renewed, and how, is not known here.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import msgspec

from waypost import limits


class Repeat(msgspec.Struct, frozen=True, gc=False):
    record_id: str
    etag: str  # of the record as it was let in: what was changed by others since is judged anew
    digest: bytes
    until: float


class Repeats:
    def __init__(self, most: int = limits.DIRECTORY_AGENTS) -> None:
        self._most = most
        self._kept: OrderedDict[str, Repeat] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(
        self, agent_id: str, document: bytes, record_id: str, etag: str, *, now: float, signed_at: float | None
    ) -> None:
        """It was let in. Words without a time, and old ones, are judged each time."""
        self.drop(agent_id)
        if signed_at is None:
            return
        until = min(now + limits.LAN_REPEAT_SECONDS, signed_at + limits.ANNOUNCE_PAST_SECONDS)
        self._kept[agent_id] = Repeat(record_id, etag, _digest(document), until)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def find(self, agent_id: str, document: bytes, now: float) -> Repeat | None:
        kept = self._kept.get(agent_id)
        return kept if kept is not None and now < kept.until and kept.digest == _digest(document) else None

    def drop(self, agent_id: str) -> None:
        self._kept.pop(agent_id, None)


def _digest(document: bytes) -> bytes:
    return hashlib.blake2b(document, digest_size=16).digest()
