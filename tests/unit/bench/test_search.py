"""The speed benchmark uses realistic agents, and the documentation shows its results."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
from bench import saved_results
from bench.search.agents import DESCRIPTION_CHARS, EXAMPLE_CHARS, EXAMPLES, agents, new_word
from bench.search.borrowed_vectors import Borrowed
from bench.search.corpus_statistics import text_figures, words_of
from bench.search.questions import distinct, paraphrases, repeated
from bench.search.ranker_stages import answer, build, saved
from bench.search.report import DOCUMENT, PLOT, RESULTS, documented, drawn
from bench.sets import document, real_servers

from support.records import DECODE
from waypost.protocols.profile.codec import PROFILE

needs_data = pytest.mark.usefixtures("retrieval_data")


def test_the_documentation_shows_the_saved_results() -> None:
    results = saved_results.load(RESULTS)
    text = DOCUMENT.read_text(encoding="utf-8")
    assert documented(text, results) == text
    assert drawn(results) == PLOT.read_text(encoding="utf-8")


@needs_data
def test_agents_are_valid_and_the_same_wherever_one_begins() -> None:
    made = list(agents(300))
    assert made[200:] == list(agents(100, first=200))
    assert len({agent.id for agent in made}) == 300
    assert all(len(agent.record.examples) == EXAMPLES for agent in made)
    for agent in made:
        PROFILE.decode(document(agent), DECODE)


def test_no_two_new_words_are_alike() -> None:
    assert len({new_word(rank) for rank in range(500_000)}) == 500_000


@needs_data
def test_made_text_has_the_statistics_of_real_text() -> None:
    count = 2048
    real = text_figures(map(words_of, Random(7).sample(real_servers(), count)))
    made = text_figures(map(words_of, agents(count)))
    for name in ("words", "heaps_exponent", "length_p50", "df_1_percent", "df_100_percent"):
        assert 0.6 < made[name] / real[name] < 2, name


@needs_data
def test_made_texts_are_as_long_as_those_of_people_who_want_to_be_found() -> None:
    made = [agent.record for agent in agents(300)]
    descriptions = [len(record.description) for record in made]
    examples = [len(example.text) for record in made for example in record.examples]
    assert max(descriptions) <= DESCRIPTION_CHARS[1]
    assert max(examples) <= EXAMPLE_CHARS[1]
    assert 200 < sum(descriptions) / len(descriptions) < 350
    assert 200 < sum(examples) / len(examples) < 350


@needs_data
def test_queries_differ_and_a_paraphrase_is_mapped_to_its_agent() -> None:
    asked = distinct(500, 300)
    assert len({question.text for question in asked}) == 300
    assert len({question.text for question in repeated(500, 300)}) < 300
    question = next(paraphrases(500))
    target = next(agents(1, first=int(next(iter(question.relevant)).rsplit("/", 1)[1])))
    assert any(set(question.text.split()) & set(example.text.split()) for example in target.record.examples)


@needs_data
def test_an_index_that_is_built_is_opened_and_finds_its_agents(tmp_path: Path) -> None:
    build(150, tmp_path / "index")
    found = answer(150, tmp_path / "index", 30)
    assert saved(tmp_path / "index")["saved_mib"] > 0
    assert found["found_percent"] > 50
    assert found["new_missed"] == 0


def test_borrowed_vectors_depend_on_their_text_alone() -> None:
    lent = np.eye(8, dtype=np.float32)
    borrowed = Borrowed(lambda texts: lent[: len(texts)], "model", ["lent"] * 8)
    together = borrowed.encode(["translate", "summarise", "translate"])
    assert np.array_equal(together[0], together[2])
    assert np.array_equal(together[1], borrowed.encode(["summarise"])[0])
    assert np.allclose(np.linalg.norm(together, axis=1), 1)


@needs_data
def test_real_questions_come_before_their_paraphrases() -> None:
    assert len(list(islice((each for each in distinct(100, 50) if not each.relevant), 10))) == 10
