"""A bounded memory of recent values. Nothing in the engine grows without end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._most:
            self._items.popitem(last=False)

    def drop(self, key: K) -> None:
        self._items.pop(key, None)

    def clear(self) -> None:
        self._items.clear()

    def __len__(self) -> int:
        return len(self._items)


class GenerationalCache(Generic[K, V]):
    """As `Lru`, for what is asked for ten times in an answer: nothing is moved when it is found. What was used since the young
    half began is in it; when it is full it becomes the old one, and what nobody used since then is forgotten."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def get_each(self, keys: Sequence[K]) -> list[V | None]:
        """The same for several, in their order."""
        found = [*map(self._young.get, keys)]
        if None in found:
            found = [self.get(key) if value is None else value for key, value in zip(keys, found, strict=True)]
        return found

    def put(self, key: K, value: V) -> None:
        if len(self._young) >= self._half:
            self._young, self._old = {}, self._young
        self._young[key] = value

    def __len__(self) -> int:
        """How many are held, at most `most`: one that is in both halves is held once."""
        return len(self._young.keys() | self._old.keys())
