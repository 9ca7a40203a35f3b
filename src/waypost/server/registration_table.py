"""In-memory tables over all registrations."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence

from waypost.model.registration import Registration
from waypost.registry.ports import CommittedChange
from waypost.registry.registry import Registry
from waypost.time_slice import TimeSlice


class RegistrationTable(ABC):
    """A table that is built on first use and then follows the change log."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._changed: set[str] | None = None  # ids that changed during the build
        self._building = asyncio.Lock()
        self._built = False

    @abstractmethod
    def _put(self, registration: Registration) -> None: ...

    @abstractmethod
    def _drop(self, agent_id: str) -> None: ...

    async def build(self) -> None:
        """Read all registrations, unless that was done before."""
        if not self._built:
            async with self._building:
                await self._build()

    async def _build(self) -> None:
        if self._built:
            return
        self._changed = set()
        self._registry.subscribe(self._on_commit)
        time_slice = TimeSlice()
        async for page in self._registry.scan():
            await self._load(page, time_slice)
        self._built, self._changed = True, None

    async def _load(self, page: Sequence[Registration], time_slice: TimeSlice) -> None:
        for registration in page:
            await time_slice.step()
            if self._changed is None or registration.id not in self._changed:
                self._put(registration)

    def _on_commit(self, committed: CommittedChange) -> None:
        if committed.event.type == "renewed":
            return
        if self._changed is not None:
            self._changed.add(committed.event.id)
        self._drop(committed.event.id)
        if committed.registration is not None:
            self._put(committed.registration)
