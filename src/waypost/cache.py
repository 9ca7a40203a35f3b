"""One bounded cache for all packages: nothing in the service may grow without a limit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The most recently used values. `capacity` limits their number, or the sum of `size_of` over them; with `size_of`,
    `max_entries` can limit their number, too.

    A value larger than the whole capacity is not kept, so that it does not cost all others their place."""

    def __init__(
        self, capacity: int, size_of: Callable[[V], int] = lambda value: 1, *, max_entries: int | None = None
    ) -> None:
        self._capacity = capacity
        self._size_of = size_of
        self._max_entries = capacity if max_entries is None else max_entries
        self._size = 0
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()  # with their sizes, which can be costly to compute

    def get(self, key: K) -> V | None:
        item = self._items.get(key)
        if item is None:
            return None
        self._items.move_to_end(key)
        return item[0]

    def put(self, key: K, value: V) -> None:
        self.drop(key)
        size = self._size_of(value)
        if size > self._capacity:
            return
        self._items[key] = value, size
        self._size += size
        while self._size > self._capacity or len(self._items) > self._max_entries:
            _, (_, dropped) = self._items.popitem(last=False)
            self._size -= dropped

    def drop(self, key: K) -> bool:
        """Returns whether there was a value."""
        item = self._items.pop(key, None)
        if item is None:
            return False
        self._size -= item[1]
        return True

    def clear(self) -> None:
        self._items.clear()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)
