"""Tags similar to a word."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.registry.catalog.tag_index import TagSuggester

TAGS = ("translation", "translator", "invoice", "invoice-processing", "finance", "hr", "weather", "ocr")


@pytest.fixture
def neighbours() -> TagSuggester:
    made = TagSuggester()
    made.add(TAGS)
    return made


@pytest.mark.parametrize(
    ("word", "tag"),
    [
        ("transaltion", "translation"),
        ("invioce", "invoice"),
        ("finanze", "finance"),
        ("wether", "weather"),
        ("weatther", "weather"),
        ("translate", "translation"),
        ("translations", "translation"),
        ("orc", "ocr"),
    ],
)
def test_a_slip_or_another_form_of_the_word_leads_to_the_tag(neighbours: TagSuggester, word: str, tag: str) -> None:
    assert tag in neighbours.near(word)


def test_a_word_is_not_its_own_neighbour_and_short_words_have_none(neighbours: TagSuggester) -> None:
    assert "invoice" not in neighbours.near("invoice")
    assert neighbours.near("hx") == set()
    assert list(neighbours.with_common_prefix("in")) == []


def test_a_common_beginning_leads_there_and_back(neighbours: TagSuggester) -> None:
    assert list(neighbours.with_common_prefix("invo")) == ["invoice", "invoice-processing"]
    assert list(neighbours.with_common_prefix("invoice-reading")) == ["invoice"]


letters = st.text("abcde", min_size=6, max_size=12)


@given(st.sets(letters, min_size=1, max_size=30), st.data())
def test_one_slip_in_any_tag_is_always_forgiven(tags: set[str], data: st.DataObject) -> None:
    made = TagSuggester()
    made.add(sorted(tags))
    tag = data.draw(st.sampled_from(sorted(tags)))
    at = data.draw(st.integers(0, len(tag) - 1))
    changed = data.draw(
        st.sampled_from([tag[:at] + tag[at + 1 :], tag[:at] + "z" + tag[at:], tag[:at] + "z" + tag[at + 1 :]])
    )
    if changed not in tags:
        assert tag in made.near(changed)


def test_bulk_loaded_tags_are_found_like_tags_added_one_by_one() -> None:
    chance = random.Random(7)
    tags = ["".join(chance.choices(string.ascii_lowercase, k=10)) for _ in range(3000)]
    at_once, one_by_one = TagSuggester(), TagSuggester()
    at_once.add(tags)
    for tag in tags:
        one_by_one.add((tag,))
    for tag in tags[::97]:
        word = tag[:4] + tag[5:]
        assert at_once.near(word) == one_by_one.near(word) == {tag}
