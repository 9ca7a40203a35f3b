"""What is remembered of recent values: no more than the bound, and what is used stays."""

from __future__ import annotations

from waypost.cache import GenerationalCache


def test_halves_hold_no_more_than_their_bound_and_keep_what_is_used() -> None:
    kept: GenerationalCache[int, int] = GenerationalCache(100)
    kept.put(-1, 1)
    for number in range(1000):
        kept.put(number, number)
        assert kept.get(-1) == 1
        assert len(kept) <= 100
    assert kept.get(0) is None
    assert [kept.get(number) for number in range(960, 1000)] == list(range(960, 1000))


def test_a_value_that_was_put_anew_hides_the_one_before() -> None:
    kept: GenerationalCache[str, int] = GenerationalCache(4)
    for value in range(3):
        kept.put("a", value)
        kept.put(f"b{value}", value)
        assert kept.get("a") == value
