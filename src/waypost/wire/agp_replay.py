"""Which messages were seen, by sender and id, for as long as one could come again (ADP-50). Bounded: the oldest give way.

What is acknowledged is remembered on disk as well, for longer (`meeting/mail.py`); this is the memory of one process.
"""

from __future__ import annotations

from collections import OrderedDict

from waypost import limits
from waypost.errors import Replayed

_Key = tuple[str, str]


class ReplayMemory:
    def __init__(self, most: int = limits.AGP_MEMORY, seconds: float = limits.AGP_MEMORY_SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._seen: OrderedDict[_Key, float] = OrderedDict()
        self._oldest = float("inf")  # no entry is older

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, sender: str, message_id: str) -> None:
        if (sender, message_id) in self._seen:
            raise Replayed("This message was here before.", path="$.id", hint="Give each message an id of its own.")

    def take(self, sender: str, message_id: str, now: float) -> None:
        """Check it, and note it."""
        before = len(self._seen)
        self._seen.setdefault((sender, message_id), now)
        if len(self._seen) == before:
            self.check(sender, message_id)
        self._trim(now)

    def note(self, sender: str, message_id: str, now: float) -> None:
        """Remember it, and forget what is too old to be taken again anyway."""
        self._seen[sender, message_id] = now
        self._trim(now)

    def _trim(self, now: float) -> None:
        if now < self._oldest:
            self._oldest = now
        if len(self._seen) > self._most or self._oldest <= now - self._seconds:
            self._forget(now)

    def _forget(self, now: float) -> None:
        while self._seen:
            first = next(iter(self._seen))
            self._oldest = self._seen[first]
            if len(self._seen) <= self._most and self._oldest > now - self._seconds:
                return
            del self._seen[first]
