"""Messages that are handled more than once: those that come twice are taken once, those that fail are tried again, and parked.

A refusal is final, and nobody's fault here. Whatever else goes wrong is tried again after a moment; a message that fails each
time is set aside with its reason, and the others go on (THREATS B3, B5).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

from waypost import limits
from waypost.errors import InternalError, Unavailable, WaypostError
from waypost.transports.port import Clock

log = logging.getLogger("waypost.transports")


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A message that came to nothing, and why."""

    digest: str
    data: bytes
    reason: str
    at: float


class Attempts:
    def __init__(self, name: str, clock: Clock, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._name = name
        self._clock = clock
        self._pause = pause
        self._taken: OrderedDict[str, float] = OrderedDict()  # digests, and when
        self._parked: OrderedDict[str, Parked] = OrderedDict()

    @property
    def parked(self) -> tuple[Parked, ...]:
        return tuple(self._parked.values())

    def begin(self, digest: str) -> bool:
        """Whether a message is worth handling: not one that was taken a moment ago, nor one that is parked."""
        now = self._clock.now()
        parked = self._parked.get(digest)
        if parked is not None and now - parked.at < limits.PARKED_SECONDS:
            return False
        taken = self._taken.get(digest)
        if taken is not None and 0 <= now - taken < limits.REPEATED_SECONDS:
            return False
        self._taken[digest] = now
        self._taken.move_to_end(digest)
        if len(self._taken) > limits.REPEATED_MESSAGES:
            self._taken.popitem(last=False)
        return True

    async def run(self, digest: str, data: bytes, work: Callable[[], Awaitable[None]]) -> None:
        """Until it is done, refused or parked."""
        for seconds in (*limits.ATTEMPT_PAUSES_SECONDS, None):
            failure = await _outcome(work)
            if failure is None:
                self._parked.pop(digest, None)
                return
            if not _is_passing(failure):
                log.debug("%s: a message came to nothing: %s", self._name, failure)
                return
            if seconds is None:
                self._park(digest, data, failure)
            else:
                await self._pause(seconds)

    def _park(self, digest: str, data: bytes, failure: BaseException) -> None:
        reason = failure.message if isinstance(failure, WaypostError) else type(failure).__name__
        self._parked[digest] = Parked(digest=digest, data=data, reason=reason, at=self._clock.now())
        self._parked.move_to_end(digest)
        if len(self._parked) > limits.PARKED_MESSAGES:
            self._parked.popitem(last=False)
        fault = None if isinstance(failure, WaypostError) else failure
        log.warning("%s: message %s is set aside: %s", self._name, digest[:16], reason, exc_info=fault)


def _is_passing(failure: BaseException) -> bool:
    """What may go well the next time. A fault of ours is no answer to a message either."""
    return not isinstance(failure, WaypostError) or isinstance(failure, Unavailable | InternalError)


async def _outcome(work: Callable[[], Awaitable[None]]) -> BaseException | None:
    """What it failed with. A task of its own keeps every fault to itself."""
    task = asyncio.ensure_future(work())
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()
    return task.exception()
