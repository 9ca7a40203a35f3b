from __future__ import annotations

import pytest

from waypost.search.expansion import PHRASE, WORD, Carried, ExpandedTag, TagQuestion, predict
from waypost.search.taxonomy import BROADER, NARROWER, SYNONYM, parse_taxonomy, standard
from waypost.search.text import analyse

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
    return {sought.tag: sought.confidence for sought in predict(analyse(text).split(), TAXONOMY)}


def carried(text: str, asked: tuple[str, ...], *tags: str) -> Carried:
    return TagQuestion(text, asked, TAXONOMY).carried_by(tags)


def test_phrases_of_a_text_name_tags() -> None:
    assert read("Find me someone who knows machine-learning and accounting") == {
        "machine-learning": PHRASE,
        "accounting": WORD,
    }
    assert read("Quiero educación y finanzas") == {"education": WORD, "finance": WORD}
    assert read("a chat bot, please") == {"chatbot": PHRASE}


def test_no_word_counts_twice() -> None:
    assert "education" not in read("machine learning")
    assert read("learning, and machine learning") == {"education": WORD, "machine-learning": PHRASE}


def test_words_that_are_too_common_name_nothing() -> None:
    assert read("school") == {}
    assert read("") == {}


def test_a_phrase_names_a_tag_that_visible_agents_carry() -> None:
    terms = analyse("who walks my dog in the dog park").split()
    found = predict(terms, TAXONOMY, is_tag={"dog park", "walk"}.__contains__)
    assert [(each.tag, each.confidence) for each in found] == [("walk", WORD), ("dog park", PHRASE)]


def test_a_long_text_names_a_few_tags_only() -> None:
    outline = "\n".join(f"topic{number}" for number in range(100))
    text = " ".join(f"topic{number}" for number in range(100))
    assert len(predict(analyse(text).split(), parse_taxonomy(outline))) == 8


def test_direct_and_expanded_matches_are_told_apart() -> None:
    found = carried("", ("Finance", "ml"), "finance", "accounting", "deep_learning", "zebra")
    assert found.direct == ("finance",)
    assert found.expanded == (
        ExpandedTag("accounting", "finance", "narrower", NARROWER),
        ExpandedTag("deep_learning", "ml", "narrower", NARROWER),
    )
    assert found.share == pytest.approx((1 + NARROWER) / 2)


def test_the_share_counts_the_best_match_of_each_tag_asked_for() -> None:
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


def test_nothing_asked_and_nothing_carried_is_nothing() -> None:
    assert carried("", ()) == Carried((), (), 0.0)
    assert carried("zebra", ("zebra",)) == Carried((), (), 0.0)


def test_the_standard_taxonomy_serves_questions_in_other_languages() -> None:
    for text in ("Wie wird das Wetter morgen?", "¿Cuál es el pronóstico del tiempo?", "明天的天气怎么样"):
        question = TagQuestion(text, (), standard())
        assert [each.tag for each in question.carried_by(("weather", "chess")).expanded] == ["weather"]
