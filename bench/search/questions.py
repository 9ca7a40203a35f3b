"""Queries for the generated agents: paraphrased examples, and queries of the real sets. Seeded, all distinct."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate, islice

from bench.search.agents import agents
from bench.sets import Question, public_set

_KEPT = 0.7  # of the words of an example
_ADDED = ("please", "today", "quickly", "my", "the", "need", "help", "team", "report", "latest", "in bulk", "for work")
_POPULAR = 2000  # questions that a repeated stream is drawn from


def paraphrases(size: int, seed: int = 1) -> Iterator[Question]:
    """Examples of random agents among the first `size`, with words dropped and added; each is labelled with its agent."""
    dice = random.Random(seed)
    while True:
        agent = next(agents(1, first=dice.randrange(size)))
        words = agent.record.examples[dice.randrange(len(agent.record.examples))].text.split()
        yield Question(_in_other_words(words, dice), frozenset({agent.id}))


def _in_other_words(words: list[str], dice: random.Random) -> str:
    kept = [word for word in words if dice.random() < _KEPT] or words
    for _ in range(dice.randint(1, 3)):
        kept.insert(dice.randint(0, len(kept)), dice.choice(_ADDED))
    return " ".join(kept)[:1000]


def real(seed: int = 2) -> Iterator[Question]:
    """Queries of the two sets: first verbatim, then paraphrased. No generated agent is relevant to them."""
    asked = [each.text for name in ("metatool", "sealtools") for each in public_set(name).questions]
    dice = random.Random(seed)
    dice.shuffle(asked)
    yield from (Question(text[:1000], frozenset()) for text in asked)
    while True:
        yield Question(_in_other_words(dice.choice(asked).split(), dice), frozenset())


def distinct(size: int, count: int, seed: int = 1) -> list[Question]:
    """`count` queries of both kinds alternately, so that no cache has seen one before."""
    found: dict[str, Question] = {}
    turns = zip(paraphrases(size, seed), real(seed + 1), strict=False)
    for question in (each for pair in turns for each in pair):
        found.setdefault(question.text, question)
        if len(found) == count:
            break
    return list(found.values())


def repeated(size: int, count: int, seed: int = 4) -> list[Question]:
    """A stream in which few queries are frequent, as from a population of users (Zipf)."""
    popular = distinct(size, min(_POPULAR, count), seed)
    sums = [*accumulate(1 / rank for rank in range(1, len(popular) + 1))]
    dice = random.Random(seed)
    return list(islice((popular[bisect(sums, dice.random() * sums[-1])] for _ in range(count)), count))
