"""Compare the generated corpus with the real one: vocabulary growth (Heaps), lengths, frequency of the commonest words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from bench.measures import quantile
from bench.search.agents import agents
from bench.sets import public_set, real_servers
from waypost.model.registration import Registration

Figures = dict[str, float]
_WORD = re.compile(r"\w+")
_TOP = (1, 10, 100, 1000)


def words_of(agent: Registration) -> list[str]:
    record = agent.record
    return _WORD.findall(f"{record.name} {record.description} {' '.join(record.tags)}".lower())


def text_figures(documents: Iterable[list[str]]) -> Figures:
    """Figures of name, description and tags. `df_k` is the document frequency of the k-th commonest word."""
    held: Counter[str] = Counter()
    lengths: list[int] = []
    grown: dict[int, int] = {}
    for number, words in enumerate(documents, 1):
        held.update(set(words))
        lengths.append(len(words))
        if number.bit_count() == 1:
            grown[number] = len(held)
    common = [count for _, count in held.most_common(max(_TOP))]
    figures = {
        "words": float(len(held)),
        "words_once_percent": 100 * sum(count == 1 for count in held.values()) / len(held),
        "heaps_exponent": _slope(grown),
        "length_p50": quantile(lengths, 0.5),
        "length_p95": quantile(lengths, 0.95),
    }
    for top in _TOP:
        if top <= len(common):
            figures[f"df_{top}_percent"] = 100 * common[top - 1] / len(lengths)
    return {name: round(value, 2) for name, value in figures.items()}


def _slope(grown: dict[int, int]) -> float:
    """The exponent of Heaps' law over the last three doublings."""
    sizes = sorted(grown)
    last, first = sizes[-1], sizes[max(0, len(sizes) - 4)]
    return math.log(grown[last] / grown[first]) / math.log(last / first) if last > first else 0.0


def compared(size: int) -> dict[str, Figures]:
    """The real set, as many made agents, and the first `size` made agents (100,000 at most)."""
    real = _shuffled(real_servers())
    found = {
        "real": text_figures(map(words_of, real)),
        "made, as many": text_figures(map(words_of, agents(len(real)))),
    }
    if size > len(real):
        found[f"made, {min(size, 100_000):,}"] = text_figures(map(words_of, agents(min(size, 100_000))))
    asked = [len(_WORD.findall(each.text)) for each in public_set("metatool").questions]
    made = [len(_WORD.findall(each.text)) for agent in islice(agents(3000), 3000) for each in agent.record.examples]
    for name, lengths in (("real", asked), ("made, as many", made)):
        found[name] |= {"example_p50": quantile(lengths, 0.5), "example_p95": quantile(lengths, 0.95)}
    return found


def _shuffled(real: tuple[Registration, ...]) -> list[Registration]:
    """Shuffled deterministically: the generated agents are not grouped by topic either."""
    return [real[(at * 5003) % len(real)] for at in range(len(real))]
