"""The bounded cache: by entries, by size, and by both; and the estimate of memory by which the record caches are bounded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import msgspec
import pytest

from support.agents import agent
from waypost import limits
from waypost.cache import LruCache
from waypost.model.json import dump_json, memory_size
from waypost.model.registration import SourceDocument
from waypost.registry.state import make_record_cache


def _keys(cache: LruCache[int, bytes]) -> list[int]:
    return [key for key in range(20) if cache.get(key) is not None]


def test_entries_bound_a_cache_at_its_limit() -> None:
    cache: LruCache[int, bytes] = LruCache(3)
    for key in range(3):
        cache.put(key, b"")
    assert _keys(cache) == [0, 1, 2]
    cache.put(3, b"")
    assert _keys(cache) == [1, 2, 3]


def test_size_bounds_a_cache_at_its_limit() -> None:
    cache: LruCache[int, bytes] = LruCache(10, len)
    cache.put(0, b"12345")
    cache.put(1, b"12345")
    assert _keys(cache) == [0, 1]
    cache.put(2, b"1")
    assert _keys(cache) == [1, 2]


def test_size_and_entries_both_bound_a_cache() -> None:
    cache: LruCache[int, bytes] = LruCache(10, len, max_entries=2)
    for key in range(3):
        cache.put(key, b"1")
    assert _keys(cache) == [1, 2]
    cache.put(3, b"1234567890")
    assert _keys(cache) == [3]


def test_a_value_beyond_the_capacity_is_not_kept_and_displaces_no_other() -> None:
    cache: LruCache[int, bytes] = LruCache(10, len)
    cache.put(0, b"12345")
    cache.put(1, b"12345678901")
    assert _keys(cache) == [0]
    cache.put(0, b"12345678901")
    assert not _keys(cache), "an older value under the same key is gone, too"


def test_replaced_and_dropped_values_give_their_room_back() -> None:
    cache: LruCache[int, bytes] = LruCache(10, len)
    for _ in range(5):
        cache.put(0, b"12345")
        cache.put(1, b"12345")
        cache.drop(1)
    cache.put(2, b"12345")
    assert _keys(cache) == [0, 2]


@pytest.mark.parametrize(
    "value",
    [
        [[[] for _ in range(1000)] for _ in range(40)],
        [[{} for _ in range(1000)] for _ in range(40)],
        [[{str(1000 * row + column): 0} for column in range(1000)] for row in range(15)],
        [[[[[[]]]] for _ in range(1000)] for _ in range(20)],
        [[str(1000 * row + column) for column in range(1000)] for row in range(20)],
        ["\U0001f600" + "a" * 100_000],
        "a" * 100_000,
    ],
    ids=["lists", "objects", "members", "nested", "strings", "wide", "text"],
)
def test_the_estimate_of_memory_is_not_below_what_a_value_takes(value: object) -> None:
    text = dump_json(value)
    tracemalloc.start()
    parsed = msgspec.json.decode(text)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= memory_size(parsed) <= 4 * taken


@pytest.mark.parametrize(
    ("notes", "count", "kept"),
    [
        ("x" * 200_000, 300, range(100, 201)),
        ([[[] for _ in range(900)] for _ in range(80)], 60, range(4, 21)),
        ("", 300, [300]),
    ],
    ids=["text", "lists", "usual"],
)
def test_records_of_any_shape_stay_within_the_bytes_of_their_cache(
    notes: object, count: int, kept: Sequence[int]
) -> None:
    document = dump_json(notes)
    cache = make_record_cache()
    tracemalloc.start()
    for number in range(count):
        source = SourceDocument(
            dialect="profile",
            document=bytes(bytearray(document)),
            digest="",
            id="a",
            received_at=0.0,
            subject="alice",
            via="http",
        )
        made = agent(f"a{number}", sources=(source,))
        record = msgspec.structs.replace(made.record, extra={"x_notes": msgspec.json.decode(document)})
        cache.put(made.id, msgspec.structs.replace(made, record=record))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(cache) in kept
    assert taken <= limits.RECORD_CACHE_BYTES + limits.MIB


def test_usual_records_are_bounded_by_their_number() -> None:
    cache = make_record_cache()
    made = agent("a")
    for number in range(limits.RECORD_CACHE + 1):
        cache.put(str(number), made)
    assert len(cache) == limits.RECORD_CACHE
    assert cache.get("0") is None
