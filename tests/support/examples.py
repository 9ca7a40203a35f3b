"""How many examples property tests with a number of their own try."""

from __future__ import annotations

from hypothesis import settings

_MORE_WHILE_EXPLORING = 5


def examples(count: int) -> int:
    """`count`, or five times as many with `--long` or `--hypothesis-profile=exploring`."""
    return count * (_MORE_WHILE_EXPLORING if settings.get_current_profile_name() == "exploring" else 1)
