from __future__ import annotations

import pytest

from support.agents import agent, ask, ids, opened
from waypost.search.text.analyzer import quoted_terms

ASKED = "please look up the lyrics of a track called "


@pytest.mark.parametrize(
    "quoted",
    [
        '"Bohemian Rhapsody"',
        "'Bohemian Rhapsody'",
        "\u201cBohemian Rhapsody\u201d",
        "\u2018Bohemian Rhapsody\u2019",
        "\u201eBohemian Rhapsody\u201c",
        "\u00abBohemian Rhapsody\u00bb",
        "\u300cBohemian Rhapsody\u300d",
    ],
)
def test_text_in_any_quotation_marks_is_a_quoted_value(quoted: str) -> None:
    assert quoted_terms(f"{ASKED}{quoted}.") == {"bohemian", "rhapsodi"}


@pytest.mark.parametrize(
    "text",
    [
        ASKED + "Bohemian Rhapsody",
        "Ann's dog ate the students' homework and the teachers' lunch again",
        "it's the band's best song, isn't it? I can't recall the singer's name",
        ASKED + '"Bohemian Rhapsody',
        ASKED + '""',
    ],
)
def test_apostrophes_and_single_marks_quote_nothing(text: str) -> None:
    assert quoted_terms(text) == frozenset()


def test_a_word_that_is_also_said_outside_the_marks_is_no_value() -> None:
    assert quoted_terms(ASKED + '"The Track of Tears"') == {"tear"}


def test_in_few_words_marks_insist() -> None:
    assert quoted_terms('find "stripe" payments') == frozenset()
    assert quoted_terms('"weather forecast"') == frozenset()


def test_an_agent_that_is_named_like_a_quoted_value_does_not_win_by_it() -> None:
    ranker = opened(
        agent("lyrics", "Song Texts", "Looks up the lyrics of a track by its title."),
        agent("opera", "Bohemian Rhapsody", "Sells seats for the opera Bohemian Rhapsody."),
        agent("rain", "Weather", "Forecasts rain."),
    )
    assert (
        ids(ask(ranker, 'Could somebody look up the lyrics of "Bohemian Rhapsody" and who wrote them?'))[0] == "lyrics"
    )
    assert ids(ask(ranker, '"Bohemian Rhapsody"'))[0] == "opera"
