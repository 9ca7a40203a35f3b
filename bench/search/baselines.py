"""The baselines at the same size, on the same agents and queries, each in its own process."""

from __future__ import annotations

import time

import psutil

from bench.quality.baselines import Bm25, BruteForce, Rrf
from bench.rankers import sentence_space
from bench.search.agents import agents
from bench.search.borrowed_vectors import borrow_vectors
from bench.search.questions import distinct
from bench.search.ranker_stages import WARM_UP, Figures, timed
from bench.search.report import BM25
from bench.searchers import Searcher

PEERS = ("sentence model, brute force", BM25, "RRF of the two")
_SLOW = 4  # times fewer questions
_MEGA = 1 << 20


def peer(name: str, size: int, count: int) -> Figures:
    """BM25 gets the questions of the product, so that they can be compared by what they find; the others the first of them."""
    searcher = _made(name, size)
    started = time.perf_counter()
    searcher.fill(agents(size))
    built = time.perf_counter() - started
    asked = distinct(size, WARM_UP + (count if name == BM25 else count // _SLOW))
    for question in asked[:WARM_UP]:
        searcher.find(question.text)
    figures = timed(searcher.find, asked[WARM_UP:], "")
    if name != BM25:
        del figures["found_percent"]  # borrowed vectors are for speed: what they find is not what the model would
    memory = psutil.Process().memory_full_info()
    return figures | {"build_seconds": round(built, 2), "rss_mib": round(memory.rss / _MEGA, 1)}


def _made(name: str, size: int) -> Searcher:
    if name == BM25:
        return Bm25()
    encode = sentence_space().embedder.encode
    agents = borrow_vectors(encode, PEERS[0], size)
    vectors = BruteForce(
        lambda texts: encode(texts) if len(texts) == 1 else agents.encode(texts)
    )  # a query is one text
    return vectors if name == PEERS[0] else Rrf(vectors, Bm25())
