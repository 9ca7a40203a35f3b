"""The hash tree of RFC 6962 and 9162: roots, proofs that an entry is in a tree, proofs that a tree only grew.

Knows hashes and numbers; where hashes are kept is for others to know. A proof is made in two steps: which spans of leaves it
consists of, and then the hash of each span, which `trust/tiles.py` finds with few reads. Leaves are counted from 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()
_LEAF = b"\x00"  # leaves and nodes are told apart, so that no leaf can pass for a node
_NODE = b"\x01"

Span = tuple[int, int]  # leaves from the first, up to but without the second
Peak = tuple[int, int]  # a full subtree: how high, and the how-manieth of its height


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(_LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


def root_of(hashes: Sequence[bytes]) -> bytes:
    """The root over leaf hashes (or over the roots of equally high full subtrees)."""
    if not hashes:
        return EMPTY_ROOT
    row = list(hashes)
    while len(row) > 1:  # level by level; the odd one out rises as it is
        odd = [row[-1]] if len(row) % 2 else []
        row = [node_hash(left, right) for left, right in zip(row[::2], row[1::2], strict=False)] + odd
    return row[0]


def peaks(span: Span) -> list[Peak]:
    """The full subtrees of a span that begins at a multiple of its largest one; highest first."""
    start, end = span
    found = []
    while start < end:
        height = (end - start).bit_length() - 1
        found.append((height, start >> height))
        start += 1 << height
    return found


def folded(hashes: Sequence[bytes]) -> bytes:
    """The root over peaks, highest first."""
    if not hashes:
        return EMPTY_ROOT
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = node_hash(left, root)
    return root


# --- Which spans a proof consists of --------------------------------------------------------------


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def inclusion_spans(index: int, size: int) -> list[Span]:
    """The spans whose hashes lead from a leaf to the root of a tree of `size`, from the leaf upwards."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    spans: list[Span] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    return spans[::-1]


def consistency_spans(first: int, second: int) -> list[Span]:
    """The spans whose hashes show that a tree of `second` leaves begins with the tree of `first`."""
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {second} leaves does not hold one of {first}")
    if first in (0, second):
        return []
    spans: list[Span] = []
    start, end = 0, second
    while end != first:
        middle = start + _split(end - start)
        if first <= middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((start, middle))
            start = middle
    # Whoever checks has the old root itself; where that is a subtree of the new tree, it need not be told.
    return spans[::-1] if start == 0 else [(start, end), *spans[::-1]]


# --- Checking -------------------------------------------------------------------------------------


def is_included(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether the proof leads from this leaf hash to the root (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size or not _are_hashes(leaf, root, *proof):
        return False
    place, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(step, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, step)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def is_consistent(first: int, second: int, proof: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """Whether the proof shows that the second tree begins with all of the first (RFC 9162, 2.1.4.2)."""
    if first == 0 and first_root != EMPTY_ROOT:
        return False
    if first == second:
        return not proof and first_root == second_root
    if not 0 <= first < second or not _are_hashes(first_root, second_root, *proof):
        return False
    if first == 0:
        return not proof
    steps = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    return bool(steps) and _climb(first, second, steps) == (first_root, second_root)


def _climb(first: int, second: int, steps: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Both roots that the steps lead to; None when there are too many or too few of them."""
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = steps[0]
    for step in steps[1:]:
        if last == 0:
            return None
        if place & 1 or place == last:
            old, new = node_hash(step, old), node_hash(step, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, step)
        place, last = place >> 1, last >> 1
    return (old, new) if last == 0 else None


def _are_hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)
