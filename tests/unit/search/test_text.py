from __future__ import annotations

import threading

import pytest

from support.vectors import naughty_strings
from waypost import limits
from waypost.search.text.analyzer import analyse, query_terms, split_identifier


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("getFoodSecurityData", "getfoodsecuritydata food secur data"),
        ("GitHub", "github git hub"),
        ("HTTPServer", "httpserver http server"),
        ("AI2sql", "ai2sql ai2 sql"),
        ("snake_case kebab-case a2a/mcp", "snake case kebab case a2a mcp"),
        ("oauth2 2024", "oauth2 2024"),
        ("translating translations", "translat translat"),
        ("What is the best of these?", "best"),
        ("Ｆｕｌｌ Ｗｉｄｔｈ", "full width"),
        ("STRASSE straße", "strass strass"),
        ("天气预报", "天气 气预 预报"),
        ("税", "税"),
        ("天气API查询", "天气 api 查询"),
        ("", ""),
        ("!?… \x00", ""),
    ],
)
def test_a_text_gives_these_terms(text: str, terms: str) -> None:
    assert analyse(text) == terms


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("getFoodSecurityData", "get food security data"),
        ("HTTPServer", "http server"),
        ("web_scraper-v2", "web scraper v2"),
        ("YouTube transcripts", "YouTube transcripts"),  # words, not an identifier
        ("天气API", "天气API"),
        ("--", "--"),
        ("", ""),
    ],
)
def test_a_name_that_is_an_identifier_is_spelled_out_for_a_vector(name: str, words: str) -> None:
    assert split_identifier(name) == words


def test_a_question_has_distinct_terms_within_bounds() -> None:
    assert query_terms("rain, rain and raining") == ("rain",)
    assert len(query_terms(" ".join(f"w{number}" for number in range(1000)))) == limits.QUERY_TERMS
    assert query_terms("x" * limits.QUERY_CHARS + " beyond") == ("x" * 40,)


def test_every_naughty_string_is_analysed_into_terms_without_blanks() -> None:
    for text in naughty_strings():
        for term in analyse(text).split(" "):
            assert term == term.strip()
            term.encode()


def test_lone_surrogates_are_no_part_of_a_term() -> None:
    assert analyse("rain\ud800storm") == "rain storm"


def test_many_threads_get_the_same_terms() -> None:
    texts = [f"translating{number} Invoices{number}For{number}" for number in range(2000)]
    answers: list[list[str]] = []
    threads = [threading.Thread(target=lambda: answers.append([analyse(text) for text in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)
