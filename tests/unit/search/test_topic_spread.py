"""Many skills are distinguished from one skill in many words, by the vectors of the examples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from waypost.search.ranking.candidates import MAX_CREDITED_EXAMPLES, MIN_SPREAD_EXAMPLES, topic_spread
from waypost.search.vectors.vector_block import VectorBlock

DIMS = 64
F32 = npt.NDArray[np.float32]
DIRECTIONS = np.eye(DIMS, dtype=np.float32)


def block(*agents: F32) -> VectorBlock:
    """Of agents by the vectors of their examples; each has one for the whole before them."""
    made = [np.vstack((DIRECTIONS[:1], examples)) for examples in agents]
    sizes = [len(each) for each in made]
    places = np.concatenate([np.arange(size, dtype=np.uint16) for size in sizes])
    rows = np.repeat(np.arange(len(made), dtype=np.uint32), sizes)
    return VectorBlock.build(np.concatenate(made), rows, places, len(made), None)


def unrelated(count: int) -> F32:
    return DIRECTIONS[1 : count + 1]


def akin(count: int) -> F32:
    """Records that share more terms than each has alone."""
    made = DIRECTIONS[1] + 0.7 * DIRECTIONS[2 : count + 2]
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), dtype=np.float32)


def sides(*agents: F32) -> list[float]:
    found: list[float] = topic_spread(block(*agents).arrays, np.arange(len(agents), dtype=np.uint32)).tolist()
    return found


def test_unrelated_examples_are_skills_and_those_of_one_kind_are_one() -> None:
    assert sides(unrelated(8), akin(8), np.repeat(unrelated(1), 8, axis=0)) == [1.0, 0.0, 0.0]


def test_few_examples_give_no_spread() -> None:
    assert sides(unrelated(MIN_SPREAD_EXAMPLES - 1), unrelated(MIN_SPREAD_EXAMPLES), unrelated(1)) == [0.0, 1.0, 0.0]
    assert sides(DIRECTIONS[:0], unrelated(3)) == [0.0, 0.0]


def test_many_claimed_skills_share_a_bounded_credit() -> None:
    assert sides(unrelated(int(MAX_CREDITED_EXAMPLES)), unrelated(2 * int(MAX_CREDITED_EXAMPLES))) == [1.0, 0.5]


def test_topic_spread_does_not_depend_on_other_rows() -> None:
    chance = np.random.RandomState(4)
    agents = [chance.standard_normal((count, DIMS)).astype(np.float32) + 0.6 for count in range(1, 30)]
    arrays = block(*(each / np.linalg.norm(each, axis=1, keepdims=True) for each in agents)).arrays
    rows = np.arange(len(agents), dtype=np.uint32)
    together = topic_spread(arrays, rows)
    assert [float(topic_spread(arrays, rows[at : at + 1])[0]) for at in range(len(rows))] == together.tolist()
    assert topic_spread(arrays, rows[::-1]).tolist() == together[::-1].tolist()
    assert len(set(together.tolist())) > 2


def test_a_damaged_file_is_no_trouble() -> None:
    arrays = dict(block(unrelated(8), unrelated(8)).arrays)
    starts = np.array([0, 0xFFFF_FFF0, 18], dtype=np.uint32)  # rows of far more vectors than a record has examples
    assert topic_spread({**arrays, "row_starts": starts}, np.arange(2, dtype=np.uint32)).tolist() == [0.0, 0.0]
    beyond = np.array([0, 9, 9, 18], dtype=np.uint32) + np.uint32(1_000)
    with pytest.raises(IndexError):
        topic_spread({**arrays, "row_starts": beyond}, np.arange(3, dtype=np.uint32))


def test_no_rows_have_no_topic_spread() -> None:
    assert topic_spread(block(unrelated(8)).arrays, np.zeros(0, dtype=np.uint32)).tolist() == []
