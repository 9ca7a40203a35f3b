from __future__ import annotations

import pytest

from waypost.search.text.analyzer import analyse
from waypost.search.text.taxonomy import (
    BROADER,
    NARROWER,
    PHRASE_CONFIDENCE,
    SYNONYM,
    WORD_CONFIDENCE,
    ExpandedTag,
    TagMatch,
    TagQuery,
    parse_taxonomy,
    predict_tags,
    standard_taxonomy,
)

TAXONOMY = parse_taxonomy(
    """
education = learning, ~school | es: educación
machine-learning = ml
  deep-learning
finance | es: finanzas
  accounting
chatbot
"""
)


def read(text: str) -> dict[str, float]:
    return {sought.tag: sought.confidence for sought in predict_tags(analyse(text).split(), TAXONOMY)}


def carried(text: str, asked: tuple[str, ...], *tags: str) -> TagMatch:
    return TagQuery(text, asked, TAXONOMY).match_tags(tags)


def test_phrases_of_a_text_name_tags() -> None:
    assert read("Find me someone who knows machine-learning and accounting") == {
        "machine-learning": PHRASE_CONFIDENCE,
        "accounting": WORD_CONFIDENCE,
    }
    assert read("Quiero educación y finanzas") == {"education": WORD_CONFIDENCE, "finance": WORD_CONFIDENCE}
    assert read("a chat bot, please") == {"chatbot": PHRASE_CONFIDENCE}


def test_no_word_counts_twice() -> None:
    assert "education" not in read("machine learning")
    assert read("learning, and machine learning") == {
        "education": WORD_CONFIDENCE,
        "machine-learning": PHRASE_CONFIDENCE,
    }


def test_words_that_are_too_common_name_nothing() -> None:
    assert read("school") == {}
    assert read("") == {}


def test_a_phrase_names_a_tag_that_visible_agents_carry() -> None:
    terms = analyse("who walks my dog in the dog park").split()
    found = predict_tags(terms, TAXONOMY, is_tag={"dog park", "walk"}.__contains__)
    assert [(each.tag, each.confidence) for each in found] == [
        ("walk", WORD_CONFIDENCE),
        ("dog park", PHRASE_CONFIDENCE),
    ]


def test_a_long_text_names_a_few_tags_only() -> None:
    outline = "\n".join(f"topic{number}" for number in range(100))
    text = " ".join(f"topic{number}" for number in range(100))
    assert len(predict_tags(analyse(text).split(), parse_taxonomy(outline))) == 8


def test_direct_and_expanded_matches_are_distinguished() -> None:
    found = carried("", ("Finance", "ml"), "finance", "accounting", "deep_learning", "zebra")
    assert found.direct == ("finance",)
    assert found.expanded == (
        ExpandedTag("accounting", "finance", "narrower", NARROWER),
        ExpandedTag("deep_learning", "ml", "narrower", NARROWER),
    )
    assert found.share == pytest.approx((1 + NARROWER) / 2)


def test_the_tag_score_counts_the_best_match_of_each_requested_tag() -> None:
    assert carried("", ("accounting", "other"), "finance").share == BROADER / 2
    assert carried("", ("ml",), "Machine Learning", "deep learning").share == SYNONYM
    assert carried("finance", (), "finance").share == 0.0


def test_words_of_the_text_match_directly_or_by_their_stem() -> None:
    found = carried("automate an API workflow", ("api automation",), "api-automation", "workflows", "API", "zebra")
    assert found.direct == ("API",)
    assert [(each.tag, each.relation) for each in found.expanded] == [
        ("api-automation", "spelling"),
        ("workflows", "spelling"),
    ]


def test_a_tag_that_the_text_names_in_other_words_is_expanded() -> None:
    found = carried("someone for finanzas", (), "finance", "accounting")
    assert found.direct == ()
    assert [(each.tag, each.sought, each.relation) for each in found.expanded] == [
        ("finance", "finance", "spelling"),
        ("accounting", "finance", "narrower"),
    ]
    assert found.expanded[0].weight > found.expanded[1].weight


def test_without_matching_tags_the_tag_match_is_empty() -> None:
    assert carried("", ()) == TagMatch((), (), 0.0)
    assert carried("zebra", ("zebra",)) == TagMatch((), (), 0.0)


def test_the_standard_taxonomy_serves_questions_in_other_languages() -> None:
    for text in ("Wie wird das Wetter morgen?", "¿Cuál es el pronóstico del tiempo?", "明天的天气怎么样"):
        question = TagQuery(text, (), standard_taxonomy())
        assert [each.tag for each in question.match_tags(("weather", "chess")).expanded] == ["weather"]
