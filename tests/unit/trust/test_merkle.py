"""The Merkle tree of RFC 6962: compared with its definition, and proofs for trees of every size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.trust.transparency_log import (
    EMPTY_ROOT,
    TILE_WIDTH,
    TileFrontier,
    consistency_spans,
    inclusion_spans,
    leaf_hash,
    merkle_root,
    node_hash,
    span_hash,
    verify_consistency,
    verify_inclusion,
)

LEAVES = [leaf_hash(b"%d" % number) for number in range(70_000)]


def _by_definition(leaves: list[bytes]) -> bytes:
    """RFC 6962, 2.1, word for word."""
    if not leaves:
        return EMPTY_ROOT
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while 2 * split < len(leaves):
        split *= 2
    return node_hash(_by_definition(leaves[:split]), _by_definition(leaves[split:]))


def test_the_root_is_that_of_the_definition_for_every_size() -> None:
    frontier = TileFrontier()
    for size in range(600):
        assert merkle_root(LEAVES[:size]) == frontier.root() == _by_definition(LEAVES[:size])
        frontier.append(LEAVES[size])


class Tiles:
    """A tree of `size` leaves as a store would keep it."""

    def __init__(self, size: int) -> None:
        self.frontier = TileFrontier()
        self.full: dict[tuple[int, int], bytes] = {}
        for leaf in LEAVES[:size]:
            for tile in self.frontier.append(leaf):
                self.full[tile.level, tile.number] = tile.hashes

    def __call__(self, level: int, number: int) -> bytes:
        return self.full.get((level, number)) or self.frontier.row(level)


@pytest.fixture(scope="module")
def large() -> Tiles:
    return Tiles(len(LEAVES))


def test_every_proof_of_small_trees_convinces_and_fits_no_other_leaf_or_tree() -> None:
    tiles = Tiles(40)
    roots = [merkle_root(LEAVES[:size]) for size in range(41)]
    for size in range(1, 41):
        for index in range(size):
            proof = [span_hash(span, tiles) for span in inclusion_spans(index, size)]
            assert verify_inclusion(LEAVES[index], index, size, proof, roots[size])
            assert not verify_inclusion(LEAVES[index + 1], index, size, proof, roots[size])
        for first in range(size + 1):
            proof = [span_hash(span, tiles) for span in consistency_spans(first, size)]
            assert verify_consistency(first, size, proof, roots[first], roots[size])
            assert not verify_consistency(first, size, proof, b"\x01" * 32, roots[size])
            assert not verify_consistency(
                first, size, [*proof, proof[0] if proof else roots[1]], roots[first], roots[size]
            )


@given(first=st.integers(1, len(LEAVES)), second=st.integers(1, len(LEAVES)), place=st.integers(0, len(LEAVES) - 1))
def test_proofs_over_several_levels_of_tiles_convince(large: Tiles, first: int, second: int, place: int) -> None:
    first, second = sorted((first, second))
    roots = [span_hash((0, size), large) for size in (first, second)]
    proof = [span_hash(span, large) for span in consistency_spans(first, second)]
    assert verify_consistency(first, second, proof, *roots)
    index = place % second
    proof = [span_hash(span, large) for span in inclusion_spans(index, second)]
    assert verify_inclusion(LEAVES[index], index, second, proof, roots[1])


def test_the_root_of_a_large_tree_is_that_of_its_leaves(large: Tiles) -> None:
    assert large.frontier.root() == merkle_root(LEAVES) == span_hash((0, len(LEAVES)), large)
    assert {level for level, _ in large.full} == {0, 1}
    assert len(large.full) == len(LEAVES) // TILE_WIDTH + len(LEAVES) // TILE_WIDTH // TILE_WIDTH


def test_a_frontier_goes_on_where_another_ended() -> None:
    for size in (0, 1, 255, 256, 300, 65_536 + 513):
        tiles = Tiles(size)
        rows = []
        for level in range(3):
            try:
                row = tiles.frontier.row(level)
            except IndexError:
                break
            rows.append([row[start : start + 32] for start in range(0, len(row), 32)])
        again = TileFrontier(size, rows)
        assert again.root() == tiles.frontier.root()
        assert again.append(LEAVES[size]) == tiles.frontier.append(LEAVES[size])


def test_a_frontier_is_not_made_of_another_number_of_hashes() -> None:
    with pytest.raises(ValueError, match="not the partial tiles"):
        TileFrontier(3, [LEAVES[:2]])


def test_a_proof_of_a_missing_leaf_is_refused() -> None:
    for wrong in (lambda: inclusion_spans(5, 5), lambda: inclusion_spans(-1, 5), lambda: consistency_spans(6, 5)):
        with pytest.raises(ValueError, match="tree of 5 leaves"):
            wrong()
    with pytest.raises(ValueError, match="too few hashes"):
        span_hash((0, 64), Tiles(40))
