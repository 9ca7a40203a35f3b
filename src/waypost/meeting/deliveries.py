"""Messages on their way to addresses that somebody named: kept until they were taken, tried four times, then given up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec

from waypost import limits
from waypost.meeting.sending import Courier
from waypost.registry.keeping import Keeper, Write

DELIVERY = "delivery"
_AT_ONCE = limits.CALLBACKS_AT_ONCE


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    url: str
    message_id: str  # goes into what is signed
    from_: str
    to: str
    body: bytes
    attempt: int = 0

    @property
    def key(self) -> str:
        return f"{self.at:017.3f} {self.message_id} {self.to}"

    def write(self) -> Write:
        return Write(kind=DELIVERY, key=self.key, value=msgspec.msgpack.encode(self))

    def removal(self) -> Write:
        return Write(kind=DELIVERY, key=self.key, value=None)


_read = msgspec.msgpack.Decoder(Delivery).decode


class Deliveries:
    """Whoever makes a delivery commits its `write` together with what it tells of."""

    def __init__(
        self, keeper: Keeper, courier: Courier, now: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        self._keeper = keeper
        self._courier = courier
        self._now = now
        self._chance = chance

    async def turn(self) -> bool:
        """Try what is due; whether there was anything."""
        now = self._now()
        kept = await self._keeper.scan(DELIVERY, now, limit=_AT_ONCE)
        due = [delivery for one in kept if (delivery := _read(one.value)).at <= now]
        await asyncio.gather(*map(self._try, due))
        return bool(due)

    async def _try(self, delivery: Delivery) -> None:
        taken = await self._courier.bring(delivery.url, delivery.message_id, delivery.from_, delivery.to, delivery.body)
        writes = [delivery.removal()]
        if not taken and delivery.attempt < len(limits.CALLBACK_DELAYS_SECONDS):
            pause = limits.CALLBACK_DELAYS_SECONDS[delivery.attempt] * (0.5 + self._chance())
            again = msgspec.structs.replace(delivery, at=self._now() + pause, attempt=delivery.attempt + 1)
            writes.append(again.write())
        await self._keeper.commit(writes, self._now())
