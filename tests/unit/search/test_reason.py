"""Reasons: one sentence per candidate, from its own public text."""

from __future__ import annotations

import pytest

from waypost.model.query import MatchSignals, Query
from waypost.model.record import AgentRecord, Example
from waypost.search.ranking.match import ExactMatcher
from waypost.search.reason import ReasonWriter, add_remark

RECORD = AgentRecord(
    id="urn:example:invoice-translator",
    name="Invoice Translator",
    description="Translates invoices between languages and keeps the layout of each table.",
    tags=("finance", "pdf"),
    examples=(
        Example(text="Translate this Spanish invoice into English and keep the table."),
        Example(text="Which currency is\u202e used\n on page two?"),
    ),
)
NEAR = MatchSignals(words=0.1, context=0.5, example=0.3, place=1)


def reason(
    text: str, near: MatchSignals | None = NEAR, record: AgentRecord = RECORD, **members: tuple[str, ...]
) -> str:
    return ReasonWriter(Query(text=text, **members)).write(record, near, ExactMatcher(text).find_field(record))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("urn:example:invoice-translator", "Its id is what you typed."),
        ("invoice translator", "Its name is what you typed."),
        ("finance", "Tagged finance."),
        ("invoice", "Has the word invoice in its name."),
        ("layouts of a table", "Has the words layouts and table in its description."),
        ("a table with layouts", "Has the words table and layouts in its description."),
        ("pdf layouts of tables", "Has the words layouts and tables in its description."),
        ("spanish invoice", "Matches its example “Translate this Spanish invoice into English and keep the table”."),
        ("a pdf about whales in the ocean", "Tagged pdf."),
        ("whales in the ocean", "Similar in meaning to its description."),
        ("languages but not invoices", "Its name has the word invoices, which the query rules out."),
        ("invoices but not other invoices", "Has the word invoices in its name."),
    ],
)
def test_the_reason_names_what_fits_best(text: str, sentence: str) -> None:
    assert reason(text) == sentence


def test_a_word_of_a_longer_tag_is_named() -> None:
    tagged = AgentRecord(
        id="urn:example:scout", name="Scout", description="Finds papers.", tags=("text_summarization",)
    )
    assert reason("summarize", record=tagged) == "Has the word summarize in its tags."


def test_the_nearest_example_is_quoted_on_one_line_without_hidden_characters() -> None:
    near = MatchSignals(words=0.0, context=0.3, example=0.6, place=2)
    assert reason("whales", near) == "Similar in meaning to its example “Which currency is used on page two?”."


def test_a_long_example_is_shortened() -> None:
    record = AgentRecord(id="a", name="a", description="d", examples=(Example(text="whale " * 60),))
    assert reason("whale", record=record).endswith("…”.")
    assert len(reason("whale", record=record)) < 120


def test_a_reason_exists_without_vectors_and_without_words() -> None:
    assert reason("whales", None) == "Its words are similar to those of the query."
    assert reason("", None) == "It passes the filters."
    assert reason("", None, required_tags=("Finance",)) == "Tagged finance."


def test_a_signal_for_an_example_that_is_gone_quotes_nothing() -> None:
    near = MatchSignals(words=0.0, context=0.3, example=0.6, place=9)
    assert reason("whales", near) == "Similar in meaning to its description."


def test_a_remark_is_part_of_the_sentence() -> None:
    assert add_remark("Tagged finance.", "it is deprecated") == "Tagged finance; it is deprecated."


@pytest.mark.parametrize(
    ("text", "has_all"),
    [
        ("spanish invoices in a table", True),  # in an example
        ("translate the layout", True),
        ("finance invoices", True),
        ("invoice", True),
        ("pdf", True),
        ("layout", False),  # a single word of the description says little
        ("translate a whale", False),
        ("", False),
    ],
)
def test_a_record_has_all_words_of_a_query(text: str, has_all: bool) -> None:
    assert ReasonWriter(Query(text=text)).has_all_words(RECORD) is has_all
