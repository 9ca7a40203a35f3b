from __future__ import annotations

from importlib.resources import files

import pytest

from waypost.errors import InvalidDocument
from waypost.search.text.taxonomy import (
    BROADER,
    NARROWER,
    SYNONYM,
    Expansion,
    Taxonomy,
    load_taxonomy,
    parse_taxonomy,
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


def expansions(taxonomy: Taxonomy, tag: str) -> dict[str, tuple[str, float]]:
    return {each.tag: (each.relation, each.weight) for each in taxonomy.expand(tag)}


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
    found = expansions(parse_taxonomy(OUTLINE), "Accounting")
    assert found == {
        "books": ("synonym", SYNONYM),
        "invoicing": ("narrower", NARROWER),
        "billing": ("narrower", NARROWER),
        "finance": ("broader", BROADER),
        "money": ("broader", BROADER),
        "finanzas": ("broader", BROADER),
    }


def test_deeper_tags_weigh_less_and_a_tag_may_have_two_parents() -> None:
    found = expansions(parse_taxonomy(OUTLINE), "money")
    assert found["invoicing"] == ("narrower", NARROWER**2)
    assert found["contracts"] == ("narrower", NARROWER)
    assert "legal" not in found


def test_an_unknown_tag_expands_to_nothing_but_itself() -> None:
    taxonomy = parse_taxonomy(OUTLINE)
    assert taxonomy.expand("zebra-crossing") == ()
    assert set(taxonomy.keys_of("zebra-crossing").values()) == {Expansion("zebra cross", "spelling", 1.0)}


def test_an_operators_outline_adds_to_the_one_before_it() -> None:
    taxonomy = parse_taxonomy(OUTLINE, "accounting = fibu\n  closing-of-books\n")
    found = expansions(taxonomy, "accounting")
    assert found["fibu"] == ("synonym", SYNONYM)
    assert found["closing-of-books"] == ("narrower", NARROWER)
    assert found["billing"] == ("narrower", NARROWER)


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
    with pytest.raises(InvalidDocument) as refused:
        parse_taxonomy(outline)
    assert refused.value.path == line


def test_circles_end() -> None:
    found = expansions(parse_taxonomy("a1 | under: b1\nb1 | under: a1"), "a1")
    assert set(found) == {"b1"}


@pytest.mark.parametrize(
    ("asked", "tag", "relation"),
    [
        ("hr", "human-resources", "synonym"),
        ("k8s", "kubernetes", "synonym"),
        ("Übersetzung", "translation", "synonym"),
        ("翻译", "translation", "synonym"),
        ("clima", "environment", "synonym"),
        ("finance", "accounting", "narrower"),
        ("finance", "invoice-processing", "narrower"),
        ("invoice-processing", "accounting", "broader"),
        ("NLP", "sentiment-analysis", "narrower"),
        ("postgres", "database", "broader"),
        ("c++", "cpp", "synonym"),
    ],
)
def test_the_standard_taxonomy_contains_common_tags(asked: str, tag: str, relation: str) -> None:
    assert expansions(standard_taxonomy(), asked)[tag][0] == relation


def test_the_standard_taxonomy_is_large_and_every_expansion_of_it_is_bounded() -> None:
    assert len(standard_taxonomy()) > 500
    for line in standard_outline().splitlines():
        label = line.partition("=")[0].partition("|")[0].strip().removeprefix("~")
        if label and not label.startswith("#"):
            assert len(standard_taxonomy().keys_of(label)) <= 200


def test_words_too_common_to_mean_a_tag_are_not_read_in_a_text() -> None:
    assert standard_taxonomy().spoken("go") is None
    assert standard_taxonomy().spoken("data") is None
    assert standard_taxonomy().spoken("translat") == "translation"
    assert "machin" in standard_taxonomy().phrases[0]
    assert "zebra" not in standard_taxonomy().phrases[0]


def test_the_table_that_a_start_loads_is_the_outline_as_it_is_read() -> None:
    table = (files("waypost.search.text") / "data" / "taxonomy.jsonl").read_bytes()
    assert table == parse_taxonomy(standard_outline()).table(), "write it with scripts/taxonomy.py"
    assert load_taxonomy(table).table() == table
