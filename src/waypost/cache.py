"""One bounded cache for all packages: nothing in the service may grow without a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The most recently used values. `capacity` limits their number, or the sum of `size_of` over them."""

    def __init__(self, capacity: int, size_of: Callable[[V], int] = lambda value: 1) -> None:
        self._capacity = capacity
        self._size_of = size_of
        self._size = 0
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self.drop(key)
        self._items[key] = value
        self._size += self._size_of(value)
        while self._size > self._capacity:
            _, dropped = self._items.popitem(last=False)
            self._size -= self._size_of(dropped)

    def drop(self, key: K) -> None:
        value = self._items.pop(key, None)
        if value is not None:
            self._size -= self._size_of(value)

    def clear(self) -> None:
        self._items.clear()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)
