"""The compiled IVF index equals its fallback bit for bit, and detects damaged arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from waypost.search.kernels.ivf_index_fallback import QUERY_GRID, IvfIndex, IvfRules
from waypost.search.vectors.quantizer import CoarseQuantizer, train_quantizer
from waypost.search.vectors.vector_block import VectorBlock

ivf_index = pytest.importorskip("waypost.search.kernels.ivf_index", reason="the kernels are not compiled here")

DIMS = 96  # 64, and 32 more: numbers that are multiplied at once
FILED = 66_000  # vectors: past the size from which they are filed under lists
SMALL = IvfRules(scan_rows=300, measured=200, shortlist=40)  # so that few vectors go the ways of many
F32 = npt.NDArray[np.float32]
Arrays = dict[str, npt.NDArray[Any]]
Answer = tuple[npt.NDArray[Any], npt.NDArray[Any]]
PROBES = (None, 1, 3, 12, 64, 500)


def on_grid(vectors: npt.NDArray[Any]) -> F32:
    return np.asarray(np.rint(vectors * QUERY_GRID) / QUERY_GRID, np.float32)


def unit(chance: np.random.RandomState, count: int) -> F32:
    made = chance.standard_normal((count, DIMS)) + 2 * THEMES[chance.randint(len(THEMES), size=count)]
    return on_grid(made / np.linalg.norm(made, axis=1, keepdims=True))


THEMES = np.random.RandomState(0).standard_normal((40, DIMS))


@cache
def quantizer() -> CoarseQuantizer:
    return train_quantizer(unit(np.random.RandomState(1), 600), lists=64, seed=1)


def typed(block: VectorBlock) -> Arrays:
    return {name: np.asarray(array) for name, array in block.arrays.items()}


def arrays_of(vectors: F32, sizes: npt.NDArray[np.intp], marks: CoarseQuantizer | None = None) -> Arrays:
    rows = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + (rows % 3 == 0)
    return typed(VectorBlock.build(vectors, rows, places.astype(np.uint16), len(sizes), marks or quantizer()))


@cache
def filed() -> Arrays:
    chance = np.random.RandomState(2)
    sizes = chance.permutation(np.repeat([0, 1, 2, 3, 6], FILED // 12))
    return arrays_of(unit(chance, int(sizes.sum())), sizes)


@cache
def few_lists() -> Arrays:
    """Filed, with many equal vectors, under lists some of which are empty."""
    chance = np.random.RandomState(3)
    vectors = unit(chance, 400)[chance.randint(400, size=FILED)]
    return arrays_of(vectors, np.full(FILED // 2, 2))


def loose(seed: int) -> Arrays:
    """Not filed, of any size from none on."""
    chance = np.random.RandomState(seed)
    sizes = chance.randint(0, 5, size=(0, 1, 3, 40, 700, 3_000)[seed % 6])
    vectors = unit(chance, int(sizes.sum()))
    if seed % 4 == 1 and len(vectors):
        vectors[:] = vectors[chance.randint(1 + len(vectors) // 9, size=len(vectors))]
    return arrays_of(vectors, sizes)


def masks(rows: int, chance: np.random.RandomState) -> Iterator[npt.NDArray[np.bool_] | None]:
    yield None
    for share in (1.0, 0.9, 0.4, 0.01, 0.0):
        yield chance.random_sample(rows) < share


def same(one: Answer, other: Answer) -> bool:
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(one, other, strict=True)
    )


def both(arrays: Arrays, rules: IvfRules = SMALL) -> tuple[IvfIndex, Any]:
    fallback = IvfIndex(arrays, quantizer(), rules)
    return fallback, ivf_index.IvfIndex(fallback)


def row_count(arrays: Arrays) -> int:
    return len(arrays["row_starts"]) - 1


@pytest.mark.parametrize("rules", [SMALL, IvfRules()], ids=["small", "its own"])
@pytest.mark.parametrize("probes", PROBES)
@pytest.mark.parametrize("made", [filed, few_lists])
def test_the_same_rows_are_nearest_in_a_filed_block(
    made: Callable[[], Arrays], probes: int | None, rules: IvfRules
) -> None:
    fallback, kernel = both(made(), rules)
    chance = np.random.RandomState(5)
    for mask in masks(row_count(made()), chance):
        for k, spare in ((1, 0), (20, 30), (900, 0)):
            query = unit(chance, 1)
            assert same(kernel.nearest(query, mask, k, probes, spare), fallback.nearest(query, mask, k, probes, spare))


@pytest.mark.parametrize("seed", range(24))
def test_the_same_rows_are_nearest_in_a_block_that_is_not_filed(seed: int) -> None:
    fallback, kernel = both(loose(seed))
    chance = np.random.RandomState(seed)
    for mask in masks(row_count(fallback.arrays), chance):
        for probes in PROBES:
            query, k = unit(chance, 1), int(chance.choice([0, 1, 10, 60]))
            assert same(kernel.nearest(query, mask, k, probes, 7), fallback.nearest(query, mask, k, probes, 7))


def test_repeating_a_search_with_more_probes_equals_a_fresh_search() -> None:
    fallback, kernel = both(filed())
    chance = np.random.RandomState(6)
    questions = unit(chance, 6)
    half = chance.random_sample(row_count(filed())) < 0.5
    for query in (*questions, *questions[:2]):
        for k, probes, mask in ((5, 8, None), (400, 8, None), (50, 8, half), (50, None, half), (5, 9, None)):
            assert same(
                kernel.nearest(query[None], mask, k, probes, 3), fallback.nearest(query[None], mask, k, probes, 3)
            )


def test_concurrent_searches_return_the_same_as_sequential_ones() -> None:
    fallback, kernel = both(filed())
    queries = unit(np.random.RandomState(7), 40)
    alone = [fallback.nearest(query[None], None, 30, 8, 0) for query in queries]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda query: kernel.nearest(query[None], None, 30, 8, 0), queries))
    assert all(map(same, together, alone))


@pytest.mark.parametrize("units", [0, 1, 3, 8])
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_as_near_to_each_unit_of_a_question(seed: int, units: int) -> None:
    fallback, kernel = both(loose(seed))
    chance = np.random.RandomState(seed)
    rows = chance.randint(max(1, row_count(fallback.arrays)), size=min(200, row_count(fallback.arrays))).astype(
        np.uint32
    )
    queries = unit(chance, units)
    for some in (rows, rows[:1], rows[:0]):
        assert same(kernel.similarities(some, queries), fallback.similarities(some, queries))
    if units:
        assert [kernel.best_example(row, queries) for row in rows[:60].tolist()] == [
            fallback.best_example(row, queries) for row in rows[:60].tolist()
        ]


def test_a_query_off_the_grid_is_answered_by_the_fallback() -> None:
    fallback, kernel = both(filed())
    chance = np.random.RandomState(8)
    odd = unit(chance, 1) + np.float32(1e-5)
    for queries in (odd, unit(chance, 2), 40 * unit(chance, 1)):
        assert same(kernel.nearest(queries, None, 9, 8, 2), fallback.nearest(queries, None, 9, 8, 2))
        rows = np.arange(50, dtype=np.uint32)
        assert same(kernel.similarities(rows, queries), fallback.similarities(rows, queries))
        assert kernel.best_example(11, queries) == fallback.best_example(11, queries)


WILD = {
    "members": "nearest", "rows": "nearest", "spots": "nearest", "lists": "nearest", "list_starts": "nearest",
    "row_starts": "similarities",
}  # fmt: skip


def asked_in_every_way(kernel: Any, rows: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    chance = np.random.RandomState(9)
    query, few = unit(chance, 1), np.zeros(rows, np.bool_)
    few[:290] = True
    for mask in (None, chance.random_sample(rows) < 0.5, few):
        for probes in (None, 2, 60):
            for k in (3, 5_000):
                yield "nearest", lambda mask=mask, probes=probes, k=k: kernel.nearest(query, mask, k, probes, 0)
    yield "similarities", lambda: kernel.similarities(np.arange(rows, dtype=np.uint32), query)
    yield "best_example", lambda: [kernel.best_example(row, query) for row in range(rows)]


@pytest.mark.parametrize("value", [0xFFFF_FFFF, 0x7FFF_FFFF, 300_000])
@pytest.mark.parametrize("name", WILD)
@pytest.mark.parametrize("made", [filed, lambda: loose(5)], ids=["filed", "loose"])
def test_numbers_that_lead_nowhere_are_an_error_and_not_a_crash(
    made: Callable[[], Arrays], name: str, value: int
) -> None:
    arrays = made()
    wild = arrays[name].copy()
    wild[..., 1::2] = np.asarray(value).astype(wild.dtype)
    _, kernel = both({**arrays, name: wild})
    refused = set()
    for way, ask in asked_in_every_way(kernel, row_count(arrays)):
        try:
            ask()
        except IndexError:
            refused.add(way)
    assert WILD[name] in refused or not len(wild)


def test_arrays_of_different_blocks_are_refused() -> None:
    one, other = loose(4), loose(5)
    for name in ("codes", "scales", "places", "lists", "rows", "spots", "members", "signs"):
        with pytest.raises(ValueError, match="one block"):
            both({**one, name: other[name]})
    with pytest.raises(ValueError, match="one block"):
        both({**filed(), "list_starts": filed()["list_starts"][:-1]})
    _, kernel = both(one)
    with pytest.raises(ValueError, match="flag per row"):
        kernel.nearest(unit(np.random.RandomState(1), 1), np.ones(5, np.bool_), 3, None, 0)
    for row in (row_count(one), 2**32 - 1):
        with pytest.raises(IndexError):
            kernel.similarities(np.array([row], np.uint32), unit(np.random.RandomState(1), 1))
        with pytest.raises(IndexError):
            kernel.best_example(row, unit(np.random.RandomState(1), 1))
