"""Vectors of one space in one segment: nearest neighbours, similarities, and no influence of hidden agents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from train_spaces import train_quantizer
from waypost.search.vectors.quantizer import CoarseQuantizer
from waypost.search.vectors.vector_block import DROPPED, QUERY_GRID, VectorBlock, code_vectors

DIMS = 16
MANY = 70_000  # vectors
F32 = npt.NDArray[np.float32]


def unit(chance: np.random.RandomState, count: int, dims: int = DIMS) -> F32:
    made = chance.standard_normal((count, dims)).astype(np.float32)
    return on_grid(made / np.linalg.norm(made, axis=1, keepdims=True))


def on_grid(vectors: F32) -> F32:
    """As vectors of questions are, so that products are exact."""
    return np.asarray(np.rint(vectors * QUERY_GRID) / QUERY_GRID, np.float32)


THEMES = unit(np.random.RandomState(0), 200)


def clustered(chance: np.random.RandomState, count: int, spread: float = 0.6) -> F32:
    made = THEMES[chance.randint(len(THEMES), size=count)] + spread * unit(chance, count)
    return on_grid(made / np.linalg.norm(made, axis=1, keepdims=True))


LANDMARKS = train_quantizer(clustered(np.random.RandomState(3), 2_000, 0.7), lists=256, seed=1)


def rows_and_places(sizes: npt.ArrayLike) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    counts = np.asarray(sizes, np.intp)
    rows = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    places = np.concatenate([np.arange(count, dtype=np.uint16) for count in counts] or [np.zeros(0, np.uint16)])
    return rows, places.astype(np.uint16)


def block_of(made: F32, sizes: npt.ArrayLike, landmarks: CoarseQuantizer = LANDMARKS) -> VectorBlock:
    counts = np.asarray(sizes, np.intp)
    rows = np.arange(len(counts), dtype=np.uint32)
    return VectorBlock.build(code_vectors(made, landmarks), counts.tolist(), rows, len(counts), landmarks)


def every(block: VectorBlock) -> npt.NDArray[np.bool_]:
    return np.ones(block.row_count, np.bool_)


def exact(made: F32, rows: npt.NDArray[np.uint32], queries: F32, visible: npt.NDArray[np.bool_], k: int) -> list[int]:
    best = np.full(len(visible), -np.inf)
    np.maximum.at(best, rows, (made @ queries.T).max(axis=1))
    best[~visible] = -np.inf
    order = np.argsort(-best, kind="stable")[:k]
    return [int(row) for row in order if best[row] > -np.inf]


@pytest.fixture(scope="module")
def many() -> F32:
    return clustered(np.random.RandomState(9), MANY)


@pytest.fixture(scope="module")
def large(many: F32) -> VectorBlock:
    """35,000 rows of two vectors each."""
    return block_of(many, [2] * (MANY // 2))


def test_the_nearest_rows_of_a_small_block_are_those_of_a_full_comparison() -> None:
    chance = np.random.RandomState(1)
    sizes = chance.randint(1, 5, size=300)
    made = unit(chance, int(sizes.sum()))
    block, queries = block_of(made, sizes), unit(chance, 1)
    found, similarities = block.nearest(queries[0], every(block), 10)
    found, similarities = found[:10], similarities[:10]
    wanted = exact(made, rows_and_places(sizes)[0], queries, every(block), 10)
    assert len(set(found.tolist()) & set(wanted)) >= 9  # int8 may swap the last two
    assert found[0] == wanted[0]
    assert np.all(np.diff(similarities) <= 0)
    best = (made @ queries.T).max(axis=1)[rows_and_places(sizes)[0] == found[0]].max()
    assert similarities[0] == pytest.approx(best, abs=0.01)


def test_equal_rows_come_in_the_order_of_their_numbers() -> None:
    same = np.repeat(unit(np.random.RandomState(2), 1), 50, axis=0)
    found, _ = block_of(same, [1] * 50).nearest(same[0], np.ones(50, np.bool_), 10)
    assert found.tolist() == list(range(50))


def test_similarities_tell_context_and_best_example_of_each_query() -> None:
    chance = np.random.RandomState(4)
    sizes = [3, 0, 1, 4]
    made, queries = unit(chance, 8), unit(chance, 2)
    block = block_of(made, sizes)
    context, example = block.similarities(np.array([3, 1, 2, 0, 3], np.uint32), queries)
    near = made @ queries.T
    assert context == pytest.approx(np.stack([near[4], np.zeros(2), near[3], near[0], near[4]]), abs=0.02)
    assert example[[0, 3]] == pytest.approx(np.stack([near[5:8].max(axis=0), near[1:3].max(axis=0)]), abs=0.02)
    assert not example[[1, 2]].any()
    best, which = block.best_example(3, queries)
    assert (best, which) == (pytest.approx(near[5:8].max(), abs=0.02), 1 + near[5:8].max(axis=1).argmax())
    assert block.best_example(2, queries) == block.best_example(1, queries) == (0.0, 0)


def test_nearest_and_similarities_agree() -> None:
    chance = np.random.RandomState(5)
    block, queries = block_of(unit(chance, 400), [4] * 100), unit(chance, 1)
    found, similarities = block.nearest(queries[0], every(block), 20)
    context, example = block.similarities(found, queries)
    assert similarities == pytest.approx(np.maximum(context, example).max(axis=1), abs=1e-6)


def test_an_empty_block_finds_nothing() -> None:
    block, query = block_of(np.zeros((0, DIMS), np.float32), [0, 0, 0]), unit(np.random.RandomState(6), 1)
    for scanned in (0, 3):
        rows, similarities = block.nearest(query[0], every(block), 5, scanned)
        assert (len(rows), len(similarities)) == (0, 0)
    context, example = block.similarities(np.array([0, 2], np.uint32), query)
    assert not context.any()
    assert not example.any()
    assert block.similarities(np.zeros(0, np.uint32), query)[0].shape == (0, 1)


def test_nothing_visible_finds_nothing() -> None:
    made = unit(np.random.RandomState(7), 90)
    rows, _ = block_of(made, [3] * 30).nearest(made[0], np.zeros(30, np.bool_), 5)
    assert not len(rows)


def test_an_empty_text_is_near_to_nothing() -> None:
    made = unit(np.random.RandomState(8), 3)
    made[1] = 0
    context, _ = block_of(made, [1, 1, 1]).similarities(np.array([1], np.uint32), made[:1])
    assert context[0, 0] == 0


@pytest.mark.parametrize("share", [1.0, 0.7, 0.2])
@pytest.mark.parametrize("scanned", [0, MANY])
def test_lists_and_codes_find_nearly_all_of_the_ten_nearest(
    large: VectorBlock, many: F32, share: float, scanned: int
) -> None:
    chance = np.random.RandomState(21)
    rows = rows_and_places([2] * large.row_count)[0]
    mask = chance.random_sample(large.row_count) < share
    hits = 0
    for query in clustered(chance, 20):
        found, _ = large.nearest(query, mask, 10, scanned)
        assert mask[found].all()
        hits += len(set(found[:10].tolist()) & set(exact(many, rows, query[None], mask, 10)))
    assert hits / 200 >= 0.9


def test_a_row_with_very_many_near_examples_does_not_push_others_out() -> None:
    chance = np.random.RandomState(10)
    query = unit(chance, 1)
    crowd = query + 0.02 * unit(chance, 3_000)
    others = query + 0.3 * unit(chance, 30)
    made = np.concatenate([crowd, others]).astype(np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    block = block_of(made, [3_000] + [1] * 30)
    found, _ = block.nearest(query[0], every(block), 20)
    assert len(found) >= 20
    assert found[0] == 0


@st.composite
def hidden_and_seen(draw: st.DrawFn) -> tuple[int, int, float, int]:
    return (
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(1, 600)),
        draw(st.floats(0, 1)),
        draw(st.sampled_from([0, 600])),
    )


@given(hidden_and_seen())
@settings(max_examples=40, deadline=None)
def test_hidden_vectors_never_change_the_visible_answer(case: tuple[int, int, float, int]) -> None:
    seed, count, share, scanned = case
    chance = np.random.RandomState(seed)
    mask = chance.random_sample(count) < share
    made, query = clustered(chance, 2 * count, 0.5), clustered(chance, 1, 0.5)[0]
    whole = block_of(made, [2] * count)
    alone = block_of(made[np.repeat(mask, 2)], [2] * int(mask.sum()))
    found, near = whole.nearest(query, mask, 10, scanned)
    wanted, nearness = alone.nearest(query, every(alone), 10, scanned)
    assert found.tolist() == np.flatnonzero(mask)[wanted].tolist()
    assert near.tolist() == nearness.tolist()


@pytest.mark.parametrize("scanned", [0, MANY])
@pytest.mark.parametrize("share", [0.8, 0.3, 0.02])
def test_hidden_vectors_do_not_change_how_a_large_block_answers(
    large: VectorBlock, many: F32, share: float, scanned: int
) -> None:
    chance = np.random.RandomState(11)
    mask = chance.random_sample(large.row_count) < share
    alone = block_of(many[np.repeat(mask, 2)], [2] * int(mask.sum()))
    for query in clustered(chance, 5):
        found, near = large.nearest(query, mask, 10, scanned)
        wanted, nearness = alone.nearest(query, every(alone), 10, scanned)
        assert found.tolist() == np.flatnonzero(mask)[wanted].tolist()
        assert near.tolist() == nearness.tolist()


def same_arrays(one: VectorBlock, other: VectorBlock) -> bool:
    return one.arrays.keys() == other.arrays.keys() and all(
        array.dtype == other.arrays[name].dtype and np.array_equal(array, other.arrays[name])
        for name, array in one.arrays.items()
    )


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 40), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_a_merged_block_equals_a_block_built_from_scratch(seed: int, counts: list[int]) -> None:
    chance = np.random.RandomState(seed)
    sizes = [chance.randint(0, 4, size=count) for count in counts]
    parts = [unit(chance, int(each.sum())) for each in sizes]
    alive = [chance.random_sample(count) < 0.7 for count in counts]
    numbers = np.full(sum(counts), DROPPED, np.uint32)
    living = np.concatenate(alive)
    numbers[living] = chance.permutation(int(living.sum()))
    kept = np.split(numbers, np.cumsum(counts)[:-1])
    blocks = [block_of(made, each) for made, each in zip(parts, sizes, strict=True)]
    merged = VectorBlock.merge(blocks, kept, int(living.sum()))
    vectors = np.split(np.concatenate(parts), np.cumsum(np.concatenate(sizes))[:-1]) if sum(counts) else []
    placed = {int(row): own for row, own in zip(numbers, vectors, strict=True) if row != DROPPED}
    anew = block_of(
        np.concatenate([np.zeros((0, DIMS), np.float32), *(placed[row] for row in sorted(placed))]),
        [len(placed[row]) for row in sorted(placed)],
    )
    assert same_arrays(merged, anew)


def test_small_blocks_merged_into_a_large_one_equal_one_built_at_once(large: VectorBlock, many: F32) -> None:
    first, rest = 10_000, large.row_count - 10_000
    halves = [block_of(many[: 2 * first], [2] * first), block_of(many[2 * first :], [2] * rest)]
    numbers = np.arange(large.row_count, dtype=np.uint32)
    assert same_arrays(VectorBlock.merge(halves, [numbers[:first], numbers[first:]], large.row_count), large)
    back = VectorBlock.merge([large], [np.where(numbers < first, numbers, DROPPED).astype(np.uint32)], first)
    assert same_arrays(back, halves[0])


def test_memory_mapped_arrays_answer_like_those_in_memory(large: VectorBlock, tmp_path: Path) -> None:
    queries = clustered(np.random.RandomState(13), 2)
    for name, array in large.arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    mapped = VectorBlock({name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in large.arrays}, LANDMARKS)
    for scanned in (0, MANY):
        asked = (queries[0], every(large), 9, scanned)
        answers = zip(mapped.nearest(*asked), large.nearest(*asked), strict=True)
        assert all(np.array_equal(one, other) for one, other in answers)
    rows = np.arange(0, large.row_count, 7, dtype=np.uint32)
    answers = zip(mapped.similarities(rows, queries), large.similarities(rows, queries), strict=True)
    assert all(np.array_equal(one, other) for one, other in answers)


def test_several_threads_may_ask_at_once(large: VectorBlock) -> None:
    queries = clustered(np.random.RandomState(14), 40)
    alone = [large.nearest(query, every(large), 10, 0)[0].tolist() for query in queries]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda query: large.nearest(query, every(large), 10, 0)[0].tolist(), queries))
    assert together == alone


def test_a_block_is_not_read_with_the_landmarks_of_another_space(large: VectorBlock) -> None:
    with pytest.raises(ValueError, match="quantizer"):
        VectorBlock(large.arrays, CoarseQuantizer.single(DIMS))


def test_a_space_without_landmarks_is_looked_at_as_a_whole() -> None:
    chance = np.random.RandomState(15)
    made = unit(chance, 2_000)
    block = block_of(made, [1] * 2_000, CoarseQuantizer.single(DIMS))
    assert block.nearest(made[700], every(block), 3, scanned=0)[0][0] == 700


def test_a_block_lists_the_rows_with_vectors() -> None:
    block = block_of(unit(np.random.RandomState(16), 3), [2, 0, 1])
    assert block.covered.tolist() == [True, False, True]
    assert (block.size, block.row_count) == (3, 3)


def test_the_same_texts_give_the_same_landmarks() -> None:
    made = clustered(np.random.RandomState(17), 500, 0.5)
    assert np.array_equal(train_quantizer(made, 16, seed=2).codes, train_quantizer(made, 16, seed=2).codes)
    assert train_quantizer(made[:5], 16, seed=2).lists == 5
