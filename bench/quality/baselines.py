"""The baselines, defined once: BM25, one sentence model by brute force, and the textbook hybrid of the two.

| baseline | definition |
|---|---|
| text | name (twice), description, tags and examples, joined; identifiers split at case changes, `_` and `-`; lower case |
| terms | words of letters and digits without English function words (the product's list), English Snowball stems |
| BM25 | one field, k1 = 1.5, b = 0.75, idf = ln(1 + (N − df + 0.5) / (df + 0.5)), each query term once per occurrence |
| vectors | one of "name. description tags" and one of each example; an agent scores as its nearest vector |
| RRF | Σ 1 / (60 + rank) over the best 100 by BM25 and by vectors |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import Stemmer

from bench.sets import text_of
from waypost.model.query import Hit
from waypost.model.registration import Registration
from waypost.search.text.analyzer import STOP_WORDS

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

K1: Final = 1.5
B: Final = 0.75
RRF_K: Final = 60
RRF_DEPTH: Final = 100
_JOINT: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|[_-]")
_WORD: Final = re.compile(r"[^\W_]+")


class Bm25:
    """BM25 over one field, in numpy: a posting list per term."""

    def __init__(self) -> None:
        self._stem = Stemmer.Stemmer("english").stemWord
        self._ids: list[str] = []
        self._postings: dict[str, tuple[npt.NDArray[np.int64], Vectors]] = {}

    def _terms(self, text: str) -> list[str]:
        words = (word.casefold() for word in _WORD.findall(split_identifiers(text)))
        return [self._stem(word) for word in words if word not in STOP_WORDS]

    def fill(self, agents: Iterable[Registration]) -> None:
        rows: dict[str, list[tuple[int, int]]] = {}
        lengths: list[int] = []
        for at, agent in enumerate(agents):
            terms = self._terms(f"{agent.record.name}\n{text_of(agent)}")
            self._ids.append(agent.id)
            lengths.append(len(terms))
            for term, count in Counter(terms).items():
                rows.setdefault(term, []).append((at, count))
        norms = K1 * (1 - B + B * np.array(lengths) / max(np.mean(lengths), 1.0))
        for term, found in rows.items():
            places, counts = np.array(found).T
            idf = np.log1p((len(lengths) - len(found) + 0.5) / (len(found) + 0.5))
            impacts = idf * counts * (K1 + 1) / (counts + norms[places])
            self._postings[term] = places, impacts.astype(np.float32)

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        scores = np.zeros(len(self._ids), dtype=np.float32)
        for term in self._terms(text):
            if term in self._postings:
                places, impacts = self._postings[term]
                scores[places] += impacts
        return [hit for hit in best(scores, self._ids, limit) if hit.score > 0]

    def close(self) -> None:
        self._postings.clear()


class BruteForce:
    """Every vector against the query's, each time."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode

    def fill(self, agents: Iterable[Registration]) -> None:
        self._ids: list[str] = []
        texts: list[str] = []
        sizes: list[int] = []
        for agent in agents:
            record = agent.record
            own = [split_identifiers(f"{record.name}. {record.description} {', '.join(record.tags)}".strip())]
            own += [each.text for each in record.examples]
            self._ids.append(agent.id)
            texts += own
            sizes.append(len(own))
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._vectors = np.asarray(self._encode(texts), dtype=np.float32)

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        scores = np.maximum.reduceat(self._vectors @ self._encode([text])[0], self._starts)
        return best(scores, self._ids, limit)

    def close(self) -> None:
        del self._vectors


class Rrf:
    """Reciprocal rank fusion."""

    def __init__(self, *searchers: Bm25 | BruteForce) -> None:
        self._searchers = searchers

    def fill(self, agents: Iterable[Registration]) -> None:
        held = list(agents)
        for each in self._searchers:
            each.fill(held)

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        scores: dict[str, float] = {}
        for each in self._searchers:
            for at, hit in enumerate(each.find(text, RRF_DEPTH), 1):
                scores[hit.id] = scores.get(hit.id, 0.0) + 1 / (RRF_K + at)
        ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [Hit(agent_id, score) for agent_id, score in ordered[:limit]]

    def close(self) -> None:
        for each in self._searchers:
            each.close()


def split_identifiers(text: str) -> str:
    """Words of identifiers apart: getWeatherReport, get_weather-report."""
    return _JOINT.sub(" ", text)


def best(scores: Vectors, ids: Sequence[str], limit: int) -> list[Hit]:
    count = min(limit, len(ids))
    top = np.argpartition(-scores, count - 1)[:count]
    return [Hit(ids[at], float(scores[at])) for at in top[np.lexsort((top, -scores[top]))]]
