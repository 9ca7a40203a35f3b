from __future__ import annotations

import pytest

from waypost.search.bm25 import FIELDS, Document, Scale, idf, stored_length


class Corpus:
    docs = 10
    average_lengths = (2.0,) * len(FIELDS)

    def containing(self, term: str) -> tuple[int, ...]:
        return (1, 2, 3, 0)


def document(*, description: str) -> Document:
    return Document(("", description, "", ""))


def test_short_lengths_are_kept_and_long_ones_rounded_down() -> None:
    assert [stored_length(length) for length in (0, 1, 23, 40, 41, 55, 1000)] == [0, 1, 23, 40, 40, 54, 984]


def test_a_term_that_nobody_uses_weighs_most() -> None:
    assert idf(10, 0) > idf(10, 1) > idf(10, 10) > 0


def test_more_holders_than_documents_do_no_harm() -> None:
    assert idf(3, 9) > 0


def test_a_score_is_the_weighted_sum_over_fields() -> None:
    scale = Scale(("rain",), Corpus())
    both = Document(("rain", "rain storm", "", ""))
    apart = scale.score(Document(("rain", "", "", ""))) + scale.score(document(description="rain storm"))
    assert scale.score(both) == pytest.approx(apart)


def test_repeating_a_word_pays_less_and_less_and_never_beyond_its_bound() -> None:
    scale = Scale(("rain",), Corpus())
    scores = [scale.score(document(description=" ".join(["rain"] * times))) for times in (1, 2, 50, 500)]
    assert scores[1] - scores[0] < scores[0]
    assert max(scores) < 2.2 * idf(10, 2)


def test_without_an_average_length_nothing_is_long() -> None:
    class Empty(Corpus):
        average_lengths = (0.0,) * len(FIELDS)

    scale = Scale(("rain",), Empty())
    assert scale.score(document(description="rain")) == scale.score(document(description="rain " + "x " * 90))
