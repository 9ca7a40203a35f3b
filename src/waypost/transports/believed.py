"""Sources whose messages were believed, and since when: whom a flood of made-up addresses must not drown out.

Whoever is believed for the first time in such a flood may be a part of it, so only those count that were believed some time
before. Pure: the time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict

from waypost import limits
from waypost.transports.socket_filter import Source


class Believed:
    def __init__(self, most: int = limits.ANSWER_SOURCES) -> None:
        self._most = most
        self._since: OrderedDict[Source, float] = OrderedDict()  # the last one that was believed at the end

    def __len__(self) -> int:
        return len(self._since)

    def add(self, source: Source, now: float) -> None:
        self._since.setdefault(source, now)
        self._since.move_to_end(source)
        if len(self._since) > self._most:
            self._since.popitem(last=False)

    def before(self, now: float) -> frozenset[Source]:
        """Those that were believed long enough before, as many as can be told apart for each packet."""
        latest = now - limits.BELIEVED_AFTER_SECONDS
        found = [source for source, since in reversed(self._since.items()) if since <= latest]
        return frozenset(found[: limits.BELIEVED_SOURCES])
