"""How long a block of vectors takes to answer, and how many of the ten nearest rows it finds.

    python -m bench.vector_blocks VECTORS.npy QUERIES.npy [LANDMARKS.npy]

VECTORS are unit float32 [n, dims], four to a row; LANDMARKS are int8 [lists, dims], trained here on a part of the vectors
when none are given (which flatters them: those that are shipped never saw the records).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

from waypost.search.vectors.quantizer import F32, CoarseQuantizer, train_quantizer
from waypost.search.vectors.vector_block import VectorBlock, probe_count

PER_ROW = 4


def main(vectors_path: str, queries_path: str, landmarks_path: str | None = None) -> None:
    vectors, queries = np.load(vectors_path), np.load(queries_path)[:200]
    count = len(vectors) // PER_ROW
    vectors = vectors[: count * PER_ROW]
    landmarks = (
        CoarseQuantizer(np.load(landmarks_path)) if landmarks_path else train_quantizer(vectors[::10], 2048, seed=1)
    )
    rows = np.repeat(np.arange(count, dtype=np.uint32), PER_ROW)
    started = perf_counter()
    block = VectorBlock.build(vectors, rows, np.tile(np.arange(PER_ROW, dtype=np.uint16), count), count, landmarks)
    print(f"{block.size} vectors, built in {perf_counter() - started:.1f} s")
    probes = probe_count(count)
    found = [block.nearest(query[None], None, 10, probes)[0] for query in queries]
    print(f"recall@10 {recall(vectors, queries, found):.3f} with {probes or 'all'} lists of {landmarks.lists}")
    chance = np.random.RandomState(1)
    half = chance.random_sample(count) < 0.5
    few = chance.random_sample(count) < 0.005
    asked = chance.randint(count, size=(len(queries), 400)).astype(np.uint32)
    timed("nearest, 1 query", len(queries), lambda at: block.nearest(queries[at : at + 1], None, 100, probes))
    timed("nearest, 3 queries", len(queries) - 2, lambda at: block.nearest(queries[at : at + 3], None, 100, probes))
    timed("nearest, half visible", len(queries), lambda at: block.nearest(queries[at : at + 1], half, 100, probes))
    timed("nearest, 0.5 % visible", len(queries), lambda at: block.nearest(queries[at : at + 1], few, 100, None))
    timed("similarities, 400 rows", len(queries) - 2, lambda at: block.similarities(asked[at], queries[at : at + 3]))


def recall(vectors: F32, queries: F32, found: list[np.ndarray]) -> float:  # type: ignore[type-arg]
    hits = 0
    for query, rows in zip(queries, found, strict=True):
        near = (vectors @ query).reshape(-1, PER_ROW).max(axis=1)
        hits += len(np.intersect1d(np.argpartition(-near, 10)[:10], rows))
    return hits / (10 * len(queries))


def timed(name: str, count: int, ask: Callable[[int], object]) -> None:
    spent = []
    for at in [*range(count), *range(count)]:
        started = perf_counter()
        ask(at)
        spent.append(perf_counter() - started)
    low, middle, high = np.percentile(spent[count // 4 :], [5, 50, 99]) * 1e6
    print(f"{name:24} p5 {low:7.0f}   p50 {middle:7.0f}   p99 {high:7.0f} µs")


if __name__ == "__main__":
    main(*sys.argv[1:4])
