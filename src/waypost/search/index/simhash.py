"""Near duplicates by SimHash.

A simhash depends only on the description, examples and tags of a record, not on its name, id or owner. Clusters are computed
among the candidates of one query, so they depend on nothing that the caller may not see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from math import acos, pi
from typing import Final

import numpy as np
import numpy.typing as npt

from waypost.search.index.storage import sorted_unique

Hashes = npt.NDArray[np.uint64]  # one per term, in the order of the text
Simhashes = npt.NDArray[np.uint64]  # [records, WORDS]
Positions = npt.NDArray[np.intp]

SIMHASH_WORDS: Final = 4  # of 64 bits: 248 bits of SimHash and, in the last byte, the allowed distance

_BITS: Final = 248
_TERMS: Final = 4096  # more than any record within its limits has
_PAIR_WEIGHT: Final = 0.5  # word pairs distinguish copies from boilerplate, but one changed word breaks two of them
_SHORT: Final = 4  # distinct terms: a shorter text is a duplicate only of an equal one
# The cosine from which two texts are near duplicates: _FLOOR + _SLOPE / distinct terms. Long texts of two authors are never
# similar; eight words can be by chance, so a short text must be almost equal.
_FLOOR: Final = 0.4
_SLOPE: Final = 2.5
_WORD_BYTES: Final = 8
_LOW_BYTE: Final = np.uint64(0xFF)
_SALTS: Final = np.array([0x9E3779B97F4A7C15 * (at + 1) % 2**64 for at in range(SIMHASH_WORDS)], dtype=np.uint64)
_PAIR: Final = np.uint64(0xD6E8FEB86659FD93)
_TERM_CACHE: Final = 65_536
_FEW: Final = 3  # fewer records are faster one by one
_BATCH: Final = 20  # candidates whose neighbours are computed at once
_MAX_COUNTED: Final = 255  # terms that a byte can count; longer records are hashed one by one

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


def simhashes(records: Sequence[Hashes]) -> Simhashes:
    """The simhashes of many records, equal to `simhash` of each: fewer numpy calls."""
    words = np.zeros((len(records), SIMHASH_WORDS), dtype=np.uint64)
    short = [at for at, terms in enumerate(records) if len(terms) <= _MAX_COUNTED]
    if len(short) < _FEW:
        short = []
    words[short] = _of_short([records[at] for at in short])
    for at in set(range(len(records))).difference(short):
        words[at] = simhash(records[at])
    return words


def _of_short(records: Sequence[Hashes]) -> Simhashes:
    if not records:
        return np.zeros((0, SIMHASH_WORDS), dtype=np.uint64)
    terms = np.concatenate(records)
    places = np.repeat(np.arange(len(records), dtype=np.uint16), [len(each) for each in records])
    common = _boilerplate()
    own = common[np.searchsorted(common, terms)] != terms
    terms, places = terms[own], places[own]
    is_pair = places[:-1] == places[1:]
    singles, distinct = _bit_counts(terms, places, len(records))
    pairs, couples = _bit_counts((terms[:-1] * _PAIR ^ terms[1:])[is_pair], places[1:][is_pair], len(records))
    is_set = 2 * (2 * singles + pairs) > (2 * distinct + couples)[:, None]  # twice the weights, to stay in integers
    words = np.packbits(is_set, axis=1, bitorder="little").view(np.uint64)
    words[:, -1] &= ~_LOW_BYTE
    words[:, -1] |= np.array([_allowed_bits(count) for count in distinct.tolist()], dtype=np.uint64)
    words[distinct == 0] = 0
    return words


def _bit_counts(values: Hashes, places: npt.NDArray[np.uint16], count: int) -> tuple[npt.NDArray[np.uint16], Positions]:
    """Per record, the number of distinct values that have each bit set, and the number of distinct values."""
    order = values.argsort()
    order = order[places[order].argsort(kind="stable")]
    values, places = values[order], places[order]
    is_first = np.ones(len(values), dtype=np.bool_)
    is_first[1:] = (values[1:] != values[:-1]) | (places[1:] != places[:-1])
    sizes = np.bincount(places[is_first], minlength=count)
    ones = np.zeros((count, 64 * SIMHASH_WORDS), dtype=np.uint16)
    filled = np.flatnonzero(sizes)
    if len(filled):
        bits = np.unpackbits(_splitmix64(values[is_first, None] ^ _SALTS).view(np.uint8), axis=1, bitorder="little")
        starts = (sizes.cumsum() - sizes)[filled]
        # Eight counts in a word; none overflows into the next.
        ones[filled] = np.add.reduceat(bits.view(np.uint64), starts, axis=0).view(np.uint8)
    return ones, sizes


@lru_cache(maxsize=_TERM_CACHE)
def _hashed(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@cache
def _boilerplate() -> Hashes:
    """Sorted, with a sentinel at the end."""
    return np.array([*sorted(map(_hashed, _BOILERPLATE.split())), 2**64 - 1], dtype=np.uint64)


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


def find_clusters(fingerprints: Simhashes, least: int) -> list[list[int]]:
    """The clusters of at least `least` members: their sorted positions, ordered by the first."""
    if len(fingerprints) < least:
        return []
    near = _neighbour_matrix(fingerprints)
    # Each is near itself; each member of a cluster but the first adds a symmetric pair.
    if np.count_nonzero(near) < len(near) + 2 * (least - 1):
        return []
    return [*_connected_components(_as_bits(near), least)]


def _neighbour_matrix(fingerprints: Simhashes) -> npt.NDArray[np.bool_]:
    """Which differ in few enough bits; each is near itself, an empty one near nothing else."""
    columns, allowed = _columns(fingerprints)
    near: npt.NDArray[np.bool_] = _hamming_distances(columns, columns) <= np.minimum(allowed[:, None], allowed)
    if not allowed.all():
        near &= columns.any(axis=0)
        near.reshape(-1)[:: len(near) + 1] = True
    return near


def _columns(fingerprints: Simhashes) -> tuple[Simhashes, npt.NDArray[np.uint8]]:
    """The words by column, and the allowed distances."""
    columns = np.array(fingerprints.T, order="C")
    allowed = columns[-1].astype(np.uint8)  # the low byte
    columns[-1] &= ~_LOW_BYTE
    return columns, allowed


def _hamming_distances(columns: Simhashes, others: Simhashes) -> npt.NDArray[np.uint8]:
    """Pairwise Hamming distances."""
    counts = np.bitwise_count(columns[:, :, None] ^ others[:, None, :])
    apart: npt.NDArray[np.uint8] = np.add.reduce(counts, 0, dtype=np.uint8)
    return apart


def is_near_any(fingerprints: Simhashes, others: Simhashes) -> npt.NDArray[np.bool_]:
    """Which of the first are near duplicates of any of the others."""
    columns, allowed = _columns(fingerprints)
    theirs, their_allowed = _columns(others)
    is_near = _hamming_distances(theirs, columns) <= np.minimum(their_allowed[:, None], allowed)
    near: npt.NDArray[np.bool_] = np.any(is_near, axis=0)
    return near & columns.any(axis=0)


def _as_bits(near: npt.NDArray[np.bool_]) -> list[int]:
    """Each row as an integer with one bit per neighbour: for a few hundred, this is faster than arrays."""
    packed = np.packbits(near, axis=1, bitorder="little")
    width, rows = packed.shape[1], packed.tobytes()
    if width == _WORD_BYTES:
        words: list[int] = packed.view("<u8").reshape(-1).tolist()
        return words
    return [int.from_bytes(rows[at : at + width], "little") for at in range(0, len(rows), width)]


def _connected_components(neighbours: Sequence[int], least: int) -> Iterator[list[int]]:
    """Connected components of at least `least` members, each sorted. Each is near itself."""
    groups = dict.fromkeys(neighbours)
    if sum(map(int.bit_count, groups)) == len(neighbours):  # mostly all members of a cluster are near each other
        yield from (_places(bits) for bits in groups if bits.bit_count() >= least)
        return
    seen = 0
    for bits in groups:
        if not bits & seen:
            members = _reachable(bits, neighbours.__getitem__) if bits & bits - 1 else bits
            seen |= members
            if members.bit_count() >= least:
                yield _places(members)


def _reachable(bits: int, neighbours: Callable[[int], int]) -> int:
    """The closure of these under neighbourhood."""
    waiting = bits
    while waiting:
        lowest = waiting & -waiting
        more = neighbours(lowest.bit_length() - 1) & ~bits
        waiting = (waiting ^ lowest) | more
        bits |= more
    return bits


def _places(bits: int) -> list[int]:
    places = []
    while bits:
        lowest = bits & -bits
        places.append(lowest.bit_length() - 1)
        bits ^= lowest
    return places


class DuplicateGroups:
    """The clusters of candidates, computed on demand: of a hundred candidates only ten are shown."""

    def __init__(self, fingerprints: Simhashes) -> None:
        self._columns, self._allowed = _columns(fingerprints)
        self._near: dict[int, int] = {}  # one bit per neighbour, including itself
        self._clusters: dict[int, list[int]] = {}
        self._closed = 0  # one bit each: its closure is computed

    def has_cluster(self, first: int, least: int) -> bool:
        """Whether the first candidates contain a cluster of at least `least`."""
        first = min(first, len(self._allowed))
        self._compute([at for at in range(first) if at not in self._near])
        among = (1 << first) - 1
        return any(_connected_components([self._near[at] & among for at in range(first)], least))

    def of(self, at: int) -> list[int]:
        """The sorted cluster of a candidate, including itself."""
        found = self._clusters.get(at)
        if found is None:
            if not self._closed >> at & 1:
                self._close(at, min(at + _BATCH, len(self._allowed)))
            near = self._near[at]
            found = [at] if near == 1 << at else _places(_reachable(near, self._near.__getitem__))
            self._clusters.update(dict.fromkeys(found, found))
        return found

    def _close(self, start: int, end: int) -> None:
        """Compute the closure of these."""
        found = (1 << end) - (1 << start)
        while ahead := found & ~self._closed:
            places = _places(ahead)
            self._compute([at for at in places if at not in self._near])
            for at in places:
                found |= self._near[at]
            self._closed |= ahead

    def _compute(self, places: list[int]) -> None:
        if not places:
            return
        distances = _hamming_distances(self._columns.take(places, axis=1), self._columns)
        near = distances <= np.minimum(self._allowed.take(places)[:, None], self._allowed)
        if not self._allowed.all():
            near &= self._columns.any(axis=0)  # an empty simhash is near nothing else
        for at, bits in zip(places, _as_bits(near), strict=True):
            self._near[at] = bits | 1 << at
