"""Text layout and bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.cli.output import sanitize, truncate
from waypost.cli.views import bar


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
