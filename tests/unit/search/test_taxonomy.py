from __future__ import annotations

import pytest

from taxonomy import TABLE, BrokenOutline, encode_table, parse_outline
from waypost.search.text.taxonomy import (
    BROADER,
    NARROWER,
    SYNONYM,
    Taxonomy,
    spellings,
    standard_outline,
    standard_taxonomy,
)

OUTLINE = """
# a comment
finance = money | es: finanzas
  accounting = ~books
    invoicing = billing
legal
  contracts | under: finance
"""


def expansions(taxonomy: Taxonomy, tag: str) -> dict[str, float]:
    return {key: weight for key, weight in taxonomy.keys_of(tag).items() if key not in spellings(tag)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Smart_Homes", "smart-home"),
        ("smart home", "smarthome"),
        ("MachineLearning", "machine learning"),
        (":translation", "Translations"),
        ("translate", "translating"),
        ("node.js", "NodeJS"),
        ("no-code", "nocode"),
        ("internet of things", "Internet-of-Things"),
        ("q&a", "QA"),
        ("the", "The"),
    ],
)
def test_spellings_of_one_tag_share_a_key(one: str, other: str) -> None:
    assert set(spellings(one)) & set(spellings(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("c", "c++"), ("c", "c#"), ("no-code", "code"), ("on-call", "call"), ("q&a", "q"), ("天", "天气")],
)
def test_different_tags_share_none(one: str, other: str) -> None:
    assert not set(spellings(one)) & set(spellings(other))


def test_synonyms_narrower_and_broader_tags_have_their_weights() -> None:
    assert expansions(Taxonomy(parse_outline(OUTLINE)), "Accounting") == {
        "book": SYNONYM,
        "invoic": NARROWER,
        "bill": NARROWER,
        "financ": BROADER,
        "money": BROADER,
        "finanza": BROADER,
    }


def test_deeper_tags_weigh_less_and_a_tag_may_have_two_parents() -> None:
    found = expansions(Taxonomy(parse_outline(OUTLINE)), "money")
    assert found["invoic"] == NARROWER**2
    assert found["contract"] == NARROWER
    assert "legal" not in found


def test_an_unknown_tag_expands_to_nothing_but_itself() -> None:
    found = Taxonomy(parse_outline(OUTLINE)).keys_of("zebra-crossing")
    assert dict(found) == {"zebra cross": 1.0, "zebracross": 1.0}


@pytest.mark.parametrize(
    ("outline", "line"),
    [
        ("finance\n   accounting", "line 2"),
        ("  finance", "line 1"),
        ("finance | spanish", "line 1"),
        ("finance | under: nothing", "line 1"),
        ("= money", "line 1"),
    ],
)
def test_a_broken_outline_is_refused_with_its_line(outline: str, line: str) -> None:
    with pytest.raises(BrokenOutline, match=line):
        parse_outline(outline)


def test_circles_end() -> None:
    assert set(expansions(Taxonomy(parse_outline("a1 | under: b1\nb1 | under: a1")), "a1")) == {"b1"}


@pytest.mark.parametrize(
    ("asked", "tag", "weight"),
    [
        ("hr", "human-resources", SYNONYM),
        ("k8s", "kubernetes", SYNONYM),
        ("Übersetzung", "translation", SYNONYM),
        ("翻译", "translation", SYNONYM),
        ("clima", "environment", SYNONYM),
        ("finance", "accounting", NARROWER),
        ("finance", "invoice-processing", NARROWER),
        ("invoice-processing", "accounting", BROADER),
        ("NLP", "sentiment-analysis", NARROWER),
        ("postgres", "database", BROADER),
        ("c++", "cpp", SYNONYM),
    ],
)
def test_the_standard_taxonomy_contains_common_tags(asked: str, tag: str, weight: float) -> None:
    found = expansions(standard_taxonomy(), asked)
    assert {found[key] for key in spellings(tag)} <= {weight, weight**2}


def test_the_standard_taxonomy_is_large_and_every_expansion_of_it_is_bounded() -> None:
    assert len(standard_taxonomy()) > 500
    for line in standard_outline().splitlines():
        label = line.partition("=")[0].partition("|")[0].strip().removeprefix("~")
        if label and not label.startswith("#"):
            assert len(standard_taxonomy().keys_of(label)) <= 200


def test_words_too_common_to_mean_a_tag_are_not_read_in_a_text() -> None:
    assert standard_taxonomy().find_tags(["go", "data", "translat"]) == ["translation"]


def test_the_table_that_a_start_loads_is_the_outline_as_it_is_read() -> None:
    assert TABLE.read_bytes() == encode_table(parse_outline(standard_outline())), "write it with scripts/taxonomy.py"
