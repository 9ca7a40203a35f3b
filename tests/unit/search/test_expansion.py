from __future__ import annotations

from taxonomy import parse_outline
from waypost.search.text.analyzer import analyse
from waypost.search.text.taxonomy import TagMatch, TagQuery, Taxonomy, standard_taxonomy

TAXONOMY = Taxonomy(
    parse_outline("""
education = learning, ~school | es: educación
machine-learning = ml
  deep-learning
finance | es: finanzas
  accounting
chatbot
""")
)


def read(text: str) -> list[str]:
    return TAXONOMY.find_tags(analyse(text).split())


def carried(text: str, asked: tuple[str, ...], *tags: str) -> TagMatch:
    return TagQuery(text, asked, TAXONOMY).match_tags(tags)


def test_phrases_of_a_text_name_tags() -> None:
    assert read("Find me someone who knows machine-learning and accounting") == ["machine-learning", "accounting"]
    assert read("Quiero educación y finanzas") == ["education", "finance"]
    assert read("a chat bot, please") == ["chatbot"]


def test_no_word_counts_twice() -> None:
    assert read("machine learning") == ["machine-learning"]
    assert read("learning, and machine learning") == ["education", "machine-learning"]


def test_words_that_are_too_common_name_nothing() -> None:
    assert read("school") == []
    assert read("") == []


def test_a_long_text_names_a_few_tags_only() -> None:
    names = [f"topic{number}" for number in range(100)]
    assert Taxonomy(parse_outline("\n".join(names))).find_tags(names) == names[:8]


def test_direct_and_expanded_matches_are_distinguished() -> None:
    found = carried("", ("Finance", "ml"), "finance", "accounting", "deep_learning", "zebra")
    assert found == TagMatch(("finance",), ("accounting", "deep_learning"))


def test_words_of_the_text_match_directly_or_by_their_stem() -> None:
    found = carried("automate an API workflow", ("api automation",), "api-automation", "workflows", "API", "zebra")
    assert found == TagMatch(("API",), ("api-automation", "workflows"))


def test_a_tag_that_the_text_names_in_other_words_is_expanded() -> None:
    assert carried("someone for finanzas", (), "finance", "accounting") == TagMatch((), ("finance", "accounting"))


def test_without_matching_tags_the_tag_match_is_empty() -> None:
    assert carried("", ()) == TagMatch((), ())
    assert carried("zebra", ("zebra",)) == TagMatch((), ())


def test_the_standard_taxonomy_serves_questions_in_other_languages() -> None:
    for text in ("Wie wird das Wetter morgen?", "¿Cuál es el pronóstico del tiempo?", "明天的天气怎么样"):
        question = TagQuery(text, (), standard_taxonomy())
        assert question.match_tags(("weather", "chess")).expanded == ("weather",)
