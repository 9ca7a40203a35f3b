"""The compiled loops equal their fallbacks bit for bit, and refuse indexes out of range."""

from __future__ import annotations

import numpy as np
import pytest

from waypost.search.kernels import loops_fallback

loops = pytest.importorskip("waypost.search.kernels.loops", reason="the kernels are not compiled here")

CHANCE = np.random.RandomState(7)


@pytest.mark.parametrize("count", [0, 1, 5, 3000])
def test_impacts_are_added_alike(count: int) -> None:
    rows = np.sort(CHANCE.permutation(2 * count)[:count]).astype(np.uint32)
    impacts = CHANCE.randint(1, 512, count).astype(np.uint16)
    ours, theirs = CHANCE.randint(0, 1000, (1, 2 * count)).astype(np.int32).repeat(2, axis=0)
    for weight in (0, 1, 7000):
        loops.add_impacts(ours, rows, impacts, weight)
        loops_fallback.add_impacts(theirs, rows, impacts, weight)
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 2000])
def test_codes_are_compared_alike(count: int, words: int) -> None:
    codes = CHANCE.randint(0, 2**63, (count, words), dtype=np.uint64) * np.uint64(3)
    query = codes[0].copy() if count else np.zeros(words, np.uint64)
    codes[count // 2 :] = ~query  # as far as a code can be
    for ids in (None, np.arange(0, count, 3, dtype=np.uint32)):
        for mine, other in zip(
            loops.hamming_distances(codes, query, ids), loops_fallback.hamming_distances(codes, query, ids), strict=True
        ):
            assert (mine.dtype, mine.tobytes()) == (other.dtype, other.tobytes())


def test_memory_maps_are_read_only() -> None:
    codes, rows = np.ones((4, 4), np.uint64), np.arange(4, dtype=np.uint32)
    codes.flags.writeable = rows.flags.writeable = False
    assert loops.hamming_distances(codes, codes[0], rows)[0].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("module", [loops, loops_fallback])
def test_an_index_out_of_range_is_an_error_and_no_crash(module: object) -> None:
    """As after damage to a file that is mapped."""
    totals, impacts = np.zeros(4, np.int32), np.ones(2, np.uint16)
    with pytest.raises(IndexError):
        module.add_impacts(totals, np.array([0, 4], np.uint32), impacts, 1)
    with pytest.raises(IndexError):
        module.hamming_distances(np.ones((4, 1), np.uint64), np.ones(1, np.uint64), np.array([4], np.uint32))
    assert not totals.any()


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="impact"):
        loops.add_impacts(np.zeros(4, np.int32), np.zeros(2, np.uint32), np.ones(3, np.uint16), 1)
    with pytest.raises(ValueError, match="words"):
        loops.hamming_distances(np.ones((4, 2), np.uint64), np.ones(1, np.uint64))
