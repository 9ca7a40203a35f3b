"""What is not committed yet ranks as it will once it is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import WORDS, ask, opened, some_agent

words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
seeds = st.integers(0, 2**32)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, count=st.integers(1, 40), texts=st.lists(words, min_size=1, max_size=5))
def test_a_delta_alone_ranks_exactly_as_its_commit(seed: int, count: int, texts: list[str]) -> None:
    dice = random.Random(seed)
    ranker = opened(*(some_agent(f"a{number}", dice) for number in range(count)))
    questions = [(text, tuple(dice.sample(WORDS, dice.randrange(2)))) for text in texts]
    before = [ask(ranker, text, preferred_tags=tags, limit=100) for text, tags in questions]
    ranker.maintain(1)
    after = [ask(ranker, text, preferred_tags=tags, limit=100) for text, tags in questions]
    for fresh, committed in zip(before, after, strict=True):
        scores = {hit.id: hit.score for hit in committed}
        assert {hit.id for hit in fresh} == set(scores)
        assert all(abs(hit.score - scores[hit.id]) <= 2e-4 for hit in fresh)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, text=words)
def test_a_delta_beside_an_index_finds_the_same_with_scores_close_by(seed: int, text: str) -> None:
    dice = random.Random(seed)
    ranker = opened(*(some_agent(f"a{number}", dice) for number in range(100)), maintained=True)
    for number in range(90, 110):
        ranker.put(some_agent(f"a{number}", dice))
    for number in range(5):
        ranker.remove(f"a{number}")
    before = {hit.id: hit.score for hit in ask(ranker, text, limit=200)}
    ranker.maintain(2)
    after = {hit.id: hit.score for hit in ask(ranker, text, limit=200)}
    assert before.keys() == after.keys()
    for agent_id, score in before.items():
        assert after[agent_id] == pytest.approx(score, abs=0.05)
