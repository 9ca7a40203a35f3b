"""A flood is thinned out by the kernel, source by source, so that reading it costs next to nothing.

Whoever reads the sockets still decides what is let in, and says here what it had to drop. Of a source that sends far more than
anybody has to say a part comes through, by chance: a few times as much as is let in of it, and what is dropped of
the rest wakes nobody. A second after the end of a flood it is forgotten.

Where the sources are too many to be true, all are thinned out alike, but for those that were believed before.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import eq
from typing import Any

from waypost import limits
from waypost.transports.believed import Believed
from waypost.transports.pace import Standing
from waypost.transports.socket_filter import Source, attach, count_dropped, filter_lines

_WINDOW_SECONDS = 0.25
_LOUD = 200  # packets of a source that were dropped in a window
_LOUD_SOURCES = 32  # each is a comparison for every packet; of more at once all are thinned alike
_MARGIN = 4.0  # packets that come for each that is let in: some ten in a window, so that none is without one by chance
_STEADY = 1.5  # a share that changes by less is left: each change is a new program for the kernel
_LEAST_SHARE = 1e-4
_EASING = 4.0  # how fast a source that fell silent is listened to again, in each window

Forget = Callable[[Callable[[Source], bool]], object]  # what waits of sources that are meant


class Sieve:
    def __init__(
        self,
        sockets: Sequence[Any],
        forget: Forget,
        *,
        hops: int | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`forget` is told whose packets are a flood. `hops`: what a packet must have left of them, where that is a rule.
        `now`: the time of the event loop, if not another."""
        self._now = now or asyncio.get_running_loop().time
        self._sockets = sockets
        self._forget = forget
        self._hops = hops
        self._dropped: Counter[Source] = Counter()
        self._dropped_in_all = 0
        self._shares: dict[Source, float] = {}
        self._since: dict[Source, float] = {}  # when each of them was found to flood
        self._share = 1.0  # of everybody else
        self._believed = Believed()
        self._kept: frozenset[Source] = frozenset()  # of those, whoever is not thinned out with everybody else
        self._thinned_since = -math.inf  # when everybody else was found to be too many
        self._began = 0.0
        self._window: asyncio.TimerHandle | None = None
        self._counted = 0  # by sockets that are closed
        self._is_in_place = self._put_in_place()

    def standing(self, source: Source) -> Standing:
        if source in self._shares:
            return Standing.LOUD
        return Standing.STRANGER if self._is_stranger(source) else Standing.USUAL

    def sender(self, source: Source) -> Arrived:
        """Of a packet of this source that was let in just now."""
        return Arrived(self, source, self._now())

    def is_flood(self, source: Source, let_in_at: float) -> bool:
        """Whether the source was found to flood after it had been let in at that time."""
        found_at = self._since.get(source, self._thinned_since if self._is_stranger(source) else -math.inf)
        return let_in_at <= found_at

    def believe(self, source: Source) -> None:
        if self._share == 1:  # in a flood of made-up sources some are believed for once
            self._believed.add(source, self._now())

    def drop(self, source: Source) -> None:
        """A packet of this source was more than can be read."""
        if not self._is_in_place:
            return
        if self._window is None:
            self._begin_window()
        self._dropped_in_all += 1
        if source in self._dropped or len(self._dropped) < limits.ANSWER_SOURCES:
            self._dropped[source] += 1
        if self._dropped[source] == _LOUD and source not in self._shares:
            self._turn()

    def count(self) -> int:
        """Packets that the kernel dropped."""
        return self._counted + sum(count_dropped(each) for each in self._sockets)

    def close(self) -> None:
        """Before the sockets are: their numbers may be those of others afterwards."""
        self._end_window()
        self._counted, self._sockets, self._is_in_place = self.count(), (), False

    def _begin_window(self) -> None:
        self._dropped, self._dropped_in_all, self._began = Counter(), 0, self._now()
        self._window = asyncio.get_running_loop().call_later(_WINDOW_SECONDS, self._turn)

    def _end_window(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None

    def _turn(self) -> None:
        self._end_window()
        seconds = max(0.001, self._now() - self._began)
        before = (dict(self._shares), self._share)
        self._weigh(seconds)
        if before != (self._shares, self._share):
            self._is_in_place = self._put_in_place()
        if self._shares or self._share < 1:
            self._begin_window()

    def _weigh(self, seconds: float) -> None:
        others = self._dropped_in_all
        found = [source for source, count in self._dropped.items() if count >= _LOUD and source not in self._shares]
        for source in tuple(self._shares):
            others -= self._dropped[source]
            self._set(source, next_share(self._shares[source], self._dropped[source] / seconds))
        for source in found[: _LOUD_SOURCES - len(self._shares)]:
            others -= self._dropped[source]
            self._set(source, next_share(1.0, self._dropped[source] / seconds))
            self._since[source] = self._now()
            self._forget(partial(eq, source))
        if self._share < 1 or others >= _LOUD:
            self._thin_all(others / seconds)

    def _thin_all(self, dropped_per_second: float) -> None:
        before, let_in, enough = self._share, limits.HEARD_STRANGERS_PER_SECOND, limits.HEARD_ALL_PER_SECOND
        self._share = steady(before, next_share(before, dropped_per_second, let_in, enough))
        if before == 1 and self._share < 1:
            self._thinned_since = self._now()
            self._kept = self._believed.before(self._thinned_since)
            self._forget(self._is_stranger)

    def _is_stranger(self, source: Source) -> bool:
        return self._share < 1 and source not in self._kept

    def _set(self, source: Source, share: float) -> None:
        if share < 1:
            self._shares[source] = steady(self._shares.get(source, 1.0), share)
        else:
            self._shares.pop(source, None)
            self._since.pop(source, None)

    def _put_in_place(self) -> bool:
        shares = list(self._shares.items())
        if self._share < 1:
            shares += [(source, 1.0) for source in self._kept]
        lines = filter_lines(hops=self._hops, shares=shares, share=self._share)
        return all(attach(each, lines) for each in self._sockets)


class Arrived:
    """Who sent a packet, from when it was let in."""

    __slots__ = ("_at", "_sieve", "_source")

    def __init__(self, sieve: Sieve, source: Source, at: float) -> None:
        self._sieve, self._source, self._at = sieve, source, at

    def is_flood(self) -> bool:
        return self._sieve.is_flood(self._source, self._at)

    def believe(self) -> None:
        self._sieve.believe(self._source)


def steady(before: float, now: float) -> float:
    """The share that was in place, where the new one is about the same."""
    return before if now < 1 and before < 1 and before / _STEADY < now < before * _STEADY else now


def next_share(
    share: float,
    dropped_per_second: float,
    let_in: float = limits.HEARD_LOUD_PER_SECOND,
    enough: float = limits.HEARD_PER_SECOND,
) -> float:
    """What part of a source comes through from now on, when that part came through, `let_in` of it were read in a second,
    and so many were dropped all the same. 1: it sends no more than is `enough`."""
    if not dropped_per_second:
        return min(1.0, share * _EASING)
    sent_per_second = (dropped_per_second + let_in) / share
    if sent_per_second <= enough:
        return 1.0
    return min(1.0, max(_LEAST_SHARE, _MARGIN * let_in / sent_per_second))
