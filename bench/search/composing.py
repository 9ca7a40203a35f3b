"""Vectors for the made agents, composed of those of their commonest words (bench/vectors.py)."""

from __future__ import annotations

import re
from collections import Counter

from bench.search.agents import agents
from bench.vectors import Composed, Encode

_COMMON_WORDS = 4000
_SAMPLED = 3000
_FAR = 90_000_000  # agents that no run reaches
_WORD = re.compile(r"\w+")


def composed(encode: Encode, name: str, size: int) -> Composed:
    """Vectors like those that `encode` would make of so many of the agents here."""
    sampled = min(_SAMPLED, 4 * size)
    counted: Counter[str] = Counter()
    samples: list[str] = []
    for agent in agents(sampled, first=_FAR):
        texts = [f"{agent.record.name}. {agent.record.description}", *(each.text for each in agent.record.examples)]
        counted.update(word for text in texts for word in _WORD.findall(text.lower()))
        samples.append(texts[len(samples) % len(texts)])
    return Composed(encode, name, [word for word, _ in counted.most_common(min(_COMMON_WORDS, 2 * sampled))], samples)
