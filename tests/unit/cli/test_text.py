"""Text layout and bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.cli.output import count_noun, sanitize, truncate
from waypost.cli.views import bar, lease_text
from waypost.model.times import parse_rfc3339


@given(st.text())
def test_no_text_can_command_a_terminal(text: str) -> None:
    assert not any(
        char < " " or char == "\x7f" or "\x80" <= char <= "\x9f" or char in "\u202e\u2066" for char in sanitize(text)
    )


def test_scripts_and_composed_emoji_stay_whole() -> None:
    assert sanitize("Übersetzer 翻訳 👩\u200d🚀") == "Übersetzer 翻訳 👩\u200d🚀"
    assert sanitize("a\x1b[31mred\nb") == "a�[31mred b"


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert truncate("one two three", 8) == "one two…"
    assert truncate("one", 8) == "one"


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.0, "    "), (1.0, "████"), (0.5, "██  "), (0.125, "▌   "), (7.0, "████"), (-1.0, "    ")]
)
def test_a_bar_is_as_long_as_its_share(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (86_399, "lease ends in 24 h"),
        (3_600, "lease ends in 60 min"),
        (119, "lease ends in 2 min"),
        (60, "lease ends in 60 s"),
        (-1, "lease has ended"),
    ],
)
def test_the_end_of_a_lease_is_told_in_words(seconds: int, text: str) -> None:
    assert lease_text("2026-05-08T00:00:00Z", parse_rfc3339("2026-05-08T00:00:00Z") - seconds) == text


def test_one_thing_is_not_counted_in_the_plural() -> None:
    assert [count_noun(count, "agent") for count in (0, 1, 2)] == ["0 agents", "1 agent", "2 agents"]
