"""Sorted unique values, as numpy returns them."""

from __future__ import annotations

import numpy as np
import pytest

from waypost.search.index.storage import sorted_unique, sorted_unique_counts


@pytest.mark.parametrize("values", [[], [3], [2, 2], [5, 1, 5, 3, 1, 5]])
def test_each_value_is_there_once_in_order_with_its_count(values: list[int]) -> None:
    array = np.array(values, dtype=np.uint32)
    expected, counts = np.unique(array, return_counts=True)
    assert sorted_unique(array).tolist() == expected.tolist()
    found, times = sorted_unique_counts(array)
    assert (found.tolist(), times.tolist()) == (expected.tolist(), counts.tolist())
    assert found.dtype == array.dtype
