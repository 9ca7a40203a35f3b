"""Language detection, and whether a short text is probably not English."""

from __future__ import annotations

import pytest

from waypost.search.text.analyzer import LANGUAGES, detect_language, is_not_english


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Find an agent for the onboarding of a new employee", "en"),
        ("quiero un vuelo barato para mis vacaciones en Japón", "es"),
        ("明天北京会下雨吗", "zh"),
        ("東京から大阪まで", "ja"),
        ("какая завтра погода", "ru"),
        ("billete de avión", ""),
        ("", ""),
    ],
)
def test_a_language_is_detected_if_it_is_clear(text: str, language: str) -> None:
    assert LANGUAGES[detect_language(text)] == language


@pytest.mark.parametrize(
    "text", ["billete de avión", "un vuelo barato", "météo demain", "Welche Restaurants sind beliebt"]
)
def test_a_short_text_leans_away_from_english(text: str) -> None:
    assert is_not_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flight search",
        "infrastructure as code",
        "weather in Los Angeles",
        "die casting",
        "find the café in Rio de Janeiro",
    ],
)
def test_english_keywords_do_not(text: str) -> None:
    assert not is_not_english(text)
