"""Near duplicates by SimHash.

A simhash depends only on the description, examples and tags of a record, not on its name, id or owner. Clusters are computed
among the candidates of one query, so they depend on nothing that the caller may not see.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from math import acos, pi
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost.search.index.storage import sorted_unique

Hashes = npt.NDArray[np.uint64]  # one per term, in the order of the text
Simhashes = npt.NDArray[np.uint64]  # [records, WORDS]

SIMHASH_WORDS: Final = 4  # of 64 bits: 248 bits of SimHash and, in the last byte, the allowed distance
_BITS: Final = 248
_TERMS: Final = 4096  # more than any record within its limits has
_PAIR_WEIGHT: Final = 0.5  # word pairs distinguish copies from boilerplate, but one changed word breaks two of them
_SHORT: Final = 4  # distinct terms: a shorter text is a duplicate only of an equal one
# The cosine from which two texts are near duplicates: _FLOOR + _SLOPE / distinct terms. Long texts of two authors are never
# similar; eight words can be by chance, so a short text must be almost equal.
_FLOOR: Final = 0.4
_SLOPE: Final = 2.5
_LOW_BYTE: Final = np.uint64(0xFF)
_SALTS: Final = np.array([0x9E3779B97F4A7C15 * (at + 1) % 2**64 for at in range(SIMHASH_WORDS)], dtype=np.uint64)
_PAIR: Final = np.uint64(0xD6E8FEB86659FD93)
_BATCH: Final = 64  # records whose neighbours are computed at once: an export compares thousands

# Stems that any description may contain; they do not identify copies.
_BOILERPLATE: Final = (
    "a2a agent ai allow api assist assistant base build built client connect context cursor data enabl get help"
    " implement integr interact interfac llm manag mcp model offici open provid protocol request sdk server servic"
    " simpl support task tool through unoffici use user via work"
)


# --- Hashes ---


def simhash(terms: Hashes) -> Hashes:
    """The simhash of one record from its terms: description, examples and tags in any order, not the name.

    Over the distinct terms and, at half their weight, pairs of neighbours: similar records differ in few bits, whatever the
    order of sentences. Zero for a record without terms of its own.
    """
    terms = terms[:_TERMS]
    common = _boilerplate()
    terms = terms[common[np.searchsorted(common, terms)] != terms]
    single = sorted_unique(terms)
    if not len(single):
        return np.zeros(SIMHASH_WORDS, dtype=np.uint64)
    pairs = sorted_unique(terms[:-1] * _PAIR ^ terms[1:])
    marks = _splitmix64(np.concatenate((single, pairs))[:, None] ^ _SALTS)
    bits = np.unpackbits(marks.view(np.uint8), axis=1, bitorder="little")
    weights = np.full(len(marks), _PAIR_WEIGHT, dtype=np.float32)
    weights[: len(single)] = 1.0
    words = np.packbits(weights @ bits.astype(np.float32) * 2 > weights.sum(), bitorder="little").view(np.uint64)
    words[-1] = words[-1] & ~_LOW_BYTE | np.uint64(_allowed_bits(len(single)))
    return words


@cache
def _boilerplate() -> Hashes:
    """The hashes of its terms, as of those of records; sorted, with a sentinel at the end."""
    digests = (blake2b(term.encode(), digest_size=8).digest() for term in _BOILERPLATE.split())
    return np.array([*sorted(int.from_bytes(digest, "little") for digest in digests), 2**64 - 1], dtype=np.uint64)


def _splitmix64(values: Hashes) -> Hashes:
    """The finaliser of splitmix64: every input bit affects every output bit."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ values >> np.uint64(31)
    return mixed


@cache
def _allowed_bits(distinct_terms: int) -> int:
    """The number of bits in which a near duplicate of a text with so many distinct terms may differ."""
    if distinct_terms < _SHORT:
        return 0
    return int(_BITS * acos(min(0.95, _FLOOR + _SLOPE / distinct_terms)) / pi)


# --- Clusters ---


def group_duplicates(fingerprints: Simhashes) -> list[list[int]]:
    """For each record the sorted positions of its cluster, including itself: all that near duplicates connect with it."""
    clusters = [[at] for at in range(len(fingerprints))]
    near = _neighbours(fingerprints)
    for at in near:
        if len(clusters[at]) == 1:
            members, waiting = {at}, [at]
            while waiting:
                found = near[waiting.pop()] - members
                members |= found
                waiting += found
            cluster = sorted(members)
            for member in cluster:
                clusters[member] = cluster
    return clusters


def find_clusters(fingerprints: Simhashes, least: int) -> list[list[int]]:
    """The clusters of at least `least` members, ordered by the first."""
    clusters = enumerate(group_duplicates(fingerprints))
    return [members for at, members in clusters if members[0] == at and len(members) >= least]


def _neighbours(fingerprints: Simhashes) -> dict[int, set[int]]:
    """The near duplicates of each record that has any, with itself; an empty record has none."""
    found: dict[int, set[int]] = {}
    for start in range(0, len(fingerprints), _BATCH):
        near = _are_near(fingerprints[start : start + _BATCH], fingerprints)
        for at in np.flatnonzero(np.count_nonzero(near, axis=1) > 1).tolist():
            found[start + at] = set(np.flatnonzero(near[at]).tolist())
    return found


def is_near_any(fingerprints: Simhashes, others: Simhashes) -> npt.NDArray[np.bool_]:
    """Which of the first are near duplicates of any of the others."""
    near: npt.NDArray[np.bool_] = np.logical_or.reduce(_are_near(fingerprints, others), axis=1)
    return near


def _are_near(some: Simhashes, others: Simhashes) -> npt.NDArray[np.bool_]:
    """[some, others]: which differ in few enough bits."""
    mine, theirs = _without_allowed(some), _without_allowed(others)
    apart = np.zeros((len(some), len(others)), dtype=np.uint8)
    for word in range(SIMHASH_WORDS):  # word by word: sums along a short axis are slow
        apart += np.bitwise_count(mine[:, word, None] ^ theirs[:, word])
    allowed = np.minimum((some[:, -1] & _LOW_BYTE)[:, None], others[:, -1] & _LOW_BYTE)
    has_terms: npt.NDArray[np.bool_] = np.logical_or.reduce(mine, axis=1)
    near: npt.NDArray[np.bool_] = (apart <= allowed) & has_terms[:, None]
    return near


def _without_allowed(fingerprints: Simhashes) -> Simhashes:
    """Without the last byte, the allowed distance."""
    words = fingerprints.copy()
    words[:, -1] &= ~_LOW_BYTE
    return words
