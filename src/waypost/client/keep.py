"""Keeping an agent registered while a program runs: the state of the lease, and tasks in the background.

The renewals themselves are in `Client.keep` and `SyncClient.keep`; the latter is generated, so each class here that awaits has a
counterpart with the same methods for threads (see scripts/unasync.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

from waypost import limits
from waypost.errors import Conflict, Forbidden, InvalidRequest, Unauthorized, WaypostError
from waypost.responses.agents import Receipt

log = logging.getLogger("waypost.keep")

# Errors that another attempt does not change.
_FINAL = (Unauthorized, Forbidden, Conflict, InvalidRequest)


class KeptAgent:
    """An agent that `keep` keeps registered.

    Attributes:
        id: The id under which it is registered.
        receipt: The receipt of the last registration or renewal.
        error: Why the last renewal failed; None if it succeeded.
        is_lost: Whether `keep` has given up, because the service refuses the agent for good.

    Example:
        with SyncClient() as wp, wp.keep(Path("agent.json"), on_change=print) as agent:
            print(agent.id, agent.receipt.expires_at, agent.error)
    """

    def __init__(self, receipt: Receipt, ttl_seconds: int, on_change: Callable[[KeptAgent], None] | None) -> None:
        """Start with the receipt of the registration."""
        self.id = receipt.id
        self.receipt = receipt
        self.error: WaypostError | None = None
        self.is_lost = False
        self._requested = ttl_seconds
        self._on_change = on_change

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else "failing" if self.error is not None else "registered"
        return f"<KeptAgent {self.id!r} {state}>"

    def seconds_to_renewal(self, chance: float) -> float:
        """Seconds until the next renewal, so that two may fail before the lease ends.

        Args:
            chance: A random number from 0 to 1, which spreads the renewals of many agents.
        """
        granted = self.receipt.ttl_seconds or self._requested
        return granted / limits.KEEP_RENEWALS_PER_LEASE * (0.8 + 0.2 * chance)

    def note_renewal(self, receipt: Receipt) -> None:
        """Record a renewal or a new registration.

        Args:
            receipt: Its receipt.
        """
        self.receipt, self.error = receipt, None
        self._report()

    def note_failure(self, error: WaypostError) -> None:
        """Record a failed renewal.

        Args:
            error: Why it failed.
        """
        self.error, self.is_lost = error, isinstance(error, _FINAL)
        log.warning("%s was not renewed: %s", self.id, error)
        self._report()

    def _report(self) -> None:
        if self._on_change is not None:
            self._on_change(self)


class AsyncStopSignal:
    """Tells a task to end."""

    def __init__(self) -> None:
        """Create a signal that is not set."""
        self._event = asyncio.Event()

    def set(self) -> None:
        """Tell the task to end."""
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for the signal; True if it is set.

        Args:
            seconds: How long to wait.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        return self._event.is_set()


class StopSignal:
    """Tells a thread to end."""

    def __init__(self) -> None:
        """Create a signal that is not set."""
        self._event = threading.Event()

    def set(self) -> None:
        """Tell the thread to end."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the signal; True if it is set.

        Args:
            seconds: How long to wait.
        """
        return self._event.wait(seconds)


class BackgroundTask:
    """A function that runs beside the caller until it is stopped, as a task of the event loop."""

    def __init__(self, function: Callable[[AsyncStopSignal], Awaitable[None]]) -> None:
        """Start it.

        Args:
            function: It ends when the signal that it receives is set.
        """
        self._stop = AsyncStopSignal()
        self._task = asyncio.ensure_future(function(self._stop))

    async def stop(self) -> None:
        """End it and wait until it has ended."""
        self._stop.set()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


class BackgroundThread:
    """A function that runs beside the caller until it is stopped, in a thread."""

    def __init__(self, function: Callable[[StopSignal], None]) -> None:
        """Start it.

        Args:
            function: It ends when the signal that it receives is set.
        """
        self._stop = StopSignal()
        self._thread = threading.Thread(target=function, args=(self._stop,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it and wait until it has ended: at most for the request that it is sending."""
        self._stop.set()
        self._thread.join()
