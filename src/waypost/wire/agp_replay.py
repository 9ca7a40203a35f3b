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

    def __len__(self) -> int:
        return len(self._seen)

    def check(self, sender: str, message_id: str) -> None:
        if (sender, message_id) in self._seen:
            raise Replayed("This message was here before.", path="$.id", hint="Give each message an id of its own.")

    def note(self, sender: str, message_id: str, now: float) -> None:
        """Remember it, and forget what is too old to be taken again anyway."""
        self._seen[sender, message_id] = now
        while self._seen:
            first = next(iter(self._seen))
            if len(self._seen) <= self._most and self._seen[first] > now - self._seconds:
                return
            del self._seen[first]
