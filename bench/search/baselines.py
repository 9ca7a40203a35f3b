"""The baselines at the same size, on the same agents and queries, each in its own process."""

from __future__ import annotations

import time

import psutil

from bench.quality.baselines import Bm25, BruteForce, Rrf
from bench.rankers import sentence_space
from bench.search.agents import agents
from bench.search.composed_vectors import composed
from bench.search.questions import distinct
from bench.search.ranker_stages import Figures, timed
from bench.searchers import Searcher

PEERS = ("sentence model, brute force", "BM25 alone", "RRF of the two")
_MEGA = 1 << 20


def peer(name: str, size: int, count: int) -> Figures:
    searcher = _made(name, size)
    started = time.perf_counter()
    searcher.fill(agents(size))
    built = time.perf_counter() - started
    asked = distinct(size, count + 10)
    for question in asked[:10]:
        searcher.find(question.text)
    figures = timed(searcher.find, asked[10:], "")
    if name != PEERS[1]:
        del figures["found_percent"]  # composed vectors are for speed: what they find is not what the model would
    memory = psutil.Process().memory_full_info()
    return figures | {"build_seconds": round(built, 2), "rss_mib": round(memory.rss / _MEGA, 1)}


def _made(name: str, size: int) -> Searcher:
    if name == PEERS[1]:
        return Bm25()
    encode = sentence_space().embedder.encode
    agents = composed(encode, PEERS[0], size)
    vectors = BruteForce(
        lambda texts: encode(texts) if len(texts) == 1 else agents.encode(texts)
    )  # a query is one text
    return vectors if name == PEERS[0] else Rrf(vectors, Bm25())
