"""Near duplicates and floods: who says the same as whom, and how an answer stays open to others.

A fingerprint is a pure function of what a record says (never of its name, id or owner), made when it is indexed. Clusters
are found among the candidates of one question, so they depend on nothing that the caller may not see. It knows no text
analysis, no score's meaning and no record: arrays in, arrays out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from math import acos, pi
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from waypost import limits

Hashes = npt.NDArray[np.uint64]  # one per term, in the order of the text
Fingerprints = npt.NDArray[np.uint64]  # [records, WORDS]
Positions = npt.NDArray[np.intp]

WORDS: Final = 4  # of 64 bits: 248 bits of SimHash and, in the last byte, the allowed distance (see _allowed_bits)
WINDOW: Final = limits.SPREAD_WINDOW
PER_CLUSTER: Final = 2
PER_OWNER: Final = 2
COMPARABLE: Final = 0.9  # of a score: another owner's candidate this good goes before the third of one owner
ORIGINAL: Final = 0.1  # of its best copy's score: below it the earliest registration has no claim to be shown

_BITS: Final = 248
_TERMS: Final = 4096  # more than any record within its bounds says
_PAIR_WEIGHT: Final = 0.5  # two words in a row tell copies from boilerplate, but one changed word breaks two of them
_SHORT: Final = 4  # distinct terms: what says less is a copy only of exactly the same
# The cosine from which two texts are near duplicates: _FLOOR + _SLOPE / distinct terms. Two authors' long texts are never
# alike; eight words are alike by chance, so a short text must be repeated almost as it stands.
_FLOOR: Final = 0.4
_SLOPE: Final = 2.5
_LOW_BYTE: Final = np.uint64(0xFF)
_SALTS: Final = np.array([0x9E3779B97F4A7C15 * (at + 1) % 2**64 for at in range(WORDS)], dtype=np.uint64)
_PAIR: Final = np.uint64(0xD6E8FEB86659FD93)
_TERM_CACHE: Final = 65_536
_FEW: Final = 3  # records: fewer take less time one by one
_AT_ONCE: Final = 255  # terms: as many as one byte counts; longer records are counted by themselves

# Stems that every agent may say of itself: no copy is known by them.
_BOILERPLATE: Final = (
    "a2a agent ai allow api assist assistant base build built client connect context cursor data enabl get help"
    " implement integr interact interfac llm manag mcp model offici open provid protocol request sdk server servic"
    " simpl support task tool through unoffici use user via work"
)


# --- Fingerprints ---------------------------------------------------------------------------------


def fingerprint(terms: Hashes) -> Hashes:
    """The fingerprint of one record from its terms: description, examples and tags in any order, not the name.

    SimHash over the distinct terms and, at half their weight, pairs of neighbours: records that say nearly the same
    differ in few bits, whatever the order of sentences. Zero for a record that says nothing of its own.
    """
    terms = terms[:_TERMS]
    common = _boilerplate()
    terms = terms[common[np.searchsorted(common, terms)] != terms]
    single = np.unique(terms)
    if not len(single):
        return np.zeros(WORDS, dtype=np.uint64)
    pairs = np.unique(terms[:-1] * _PAIR ^ terms[1:])
    marks = _mixed(np.concatenate((single, pairs))[:, None] ^ _SALTS)
    bits = np.unpackbits(marks.view(np.uint8), axis=1, bitorder="little")
    weights = np.full(len(marks), _PAIR_WEIGHT, dtype=np.float32)
    weights[: len(single)] = 1.0
    words = np.packbits(weights @ bits.astype(np.float32) * 2 > weights.sum(), bitorder="little").view(np.uint64)
    words[-1] = words[-1] & ~_LOW_BYTE | np.uint64(_allowed_bits(len(single)))
    return words


def fingerprints(records: Sequence[Hashes]) -> Fingerprints:
    """Those of many records, each the same as by itself: what numpy takes for a call it then takes once, not for each."""
    words = np.zeros((len(records), WORDS), dtype=np.uint64)
    short = [at for at, terms in enumerate(records) if len(terms) <= _AT_ONCE]
    if len(short) < _FEW:
        short = []
    words[short] = _of_short([records[at] for at in short])
    for at in set(range(len(records))).difference(short):
        words[at] = fingerprint(records[at])
    return words


def _of_short(records: Sequence[Hashes]) -> Fingerprints:
    if not records:
        return np.zeros((0, WORDS), dtype=np.uint64)
    terms = np.concatenate(records)
    places = np.repeat(np.arange(len(records), dtype=np.uint16), [len(each) for each in records])
    common = _boilerplate()
    own = common[np.searchsorted(common, terms)] != terms
    terms, places = terms[own], places[own]
    is_pair = places[:-1] == places[1:]
    singles, distinct = _ones(terms, places, len(records))
    pairs, couples = _ones((terms[:-1] * _PAIR ^ terms[1:])[is_pair], places[1:][is_pair], len(records))
    is_set = 2 * (2 * singles + pairs) > (2 * distinct + couples)[:, None]  # twice the weights: whole numbers
    words = np.packbits(is_set, axis=1, bitorder="little").view(np.uint64)
    words[:, -1] &= ~_LOW_BYTE
    words[:, -1] |= np.array([_allowed_bits(count) for count in distinct.tolist()], dtype=np.uint64)
    words[distinct == 0] = 0
    return words


def _ones(values: Hashes, places: npt.NDArray[np.uint16], count: int) -> tuple[npt.NDArray[np.uint16], Positions]:
    """How many of the distinct values of each record have each bit set, and how many there are."""
    order = values.argsort()
    order = order[places[order].argsort(kind="stable")]
    values, places = values[order], places[order]
    is_first = np.ones(len(values), dtype=np.bool_)
    is_first[1:] = (values[1:] != values[:-1]) | (places[1:] != places[:-1])
    sizes = np.bincount(places[is_first], minlength=count)
    ones = np.zeros((count, 64 * WORDS), dtype=np.uint16)
    filled = np.flatnonzero(sizes)
    if len(filled):
        bits = np.unpackbits(_mixed(values[is_first, None] ^ _SALTS).view(np.uint8), axis=1, bitorder="little")
        starts = (sizes.cumsum() - sizes)[filled]
        # Eight counts in a word: none of them runs over into the next.
        ones[filled] = np.add.reduceat(bits.view(np.uint64), starts, axis=0).view(np.uint8)
    return ones, sizes


def fingerprint_of(texts: Iterable[str]) -> Hashes:
    """The same from analysed texts (terms joined by spaces)."""
    return fingerprint(np.array([_hashed(term) for text in texts for term in text.split()], dtype=np.uint64))


@lru_cache(maxsize=_TERM_CACHE)
def _hashed(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@cache
def _boilerplate() -> Hashes:
    """Sorted, and with an end that no search runs past."""
    return np.array([*sorted(map(_hashed, _BOILERPLATE.split())), 2**64 - 1], dtype=np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """splitmix64's finaliser: every bit of the hash moves every bit of the mark."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ values >> np.uint64(31)
    return mixed


@cache
def _allowed_bits(distinct_terms: int) -> int:
    """How many bits a near duplicate of a text with so many distinct terms may differ in."""
    if distinct_terms < _SHORT:
        return 0
    return int(_BITS * acos(min(0.95, _FLOOR + _SLOPE / distinct_terms)) / pi)


# --- Clusters -------------------------------------------------------------------------------------


def cluster(fingerprints: Fingerprints, least: int = 2) -> Positions:
    """A label for each candidate: the position of the first one that says the same, directly or through others. With `least`,
    clusters of fewer need not be told.

    The work grows with the square of the candidates: give it the two hundred best, not all.
    """
    labels = np.arange(len(fingerprints), dtype=np.intp)
    near = _near(fingerprints)
    if np.count_nonzero(near) < 2 * (least - 1):  # each of a cluster but the first is near another, and that near it
        return labels
    crowd = np.flatnonzero(near.any(axis=1))
    if len(crowd) >= least:
        labels[crowd] = crowd[_joined(near[crowd][:, crowd])]
    return labels


def _near(fingerprints: Fingerprints) -> npt.NDArray[np.bool_]:
    """Which differ in few enough bits; none is near itself, and what says nothing is near nothing."""
    columns, allowed = _columns(fingerprints)
    near: npt.NDArray[np.bool_] = _apart(columns, columns) <= np.minimum(allowed[:, None], allowed)
    near &= columns.any(axis=0)
    near.reshape(-1)[:: len(near) + 1] = False
    return near


def _columns(fingerprints: Fingerprints) -> tuple[Fingerprints, npt.NDArray[np.uint8]]:
    """The bits word by word, and how many may differ."""
    columns = np.array(fingerprints.T, order="C")
    allowed = columns[-1].astype(np.uint8)  # the low byte
    columns[-1] &= ~_LOW_BYTE
    return columns, allowed


def _apart(columns: Fingerprints, others: Fingerprints) -> npt.NDArray[np.uint8]:
    """In how many bits each differs from each of the others."""
    counts = np.bitwise_count(columns[:, :, None] ^ others[:, None, :])
    apart: npt.NDArray[np.uint8] = np.add.reduce(counts, 0, dtype=np.uint8)
    return apart


def is_near_any(fingerprints: Fingerprints, others: Fingerprints) -> npt.NDArray[np.bool_]:
    """Which of the first say the same as any of the others."""
    columns, allowed = _columns(fingerprints)
    theirs, their_allowed = _columns(others)
    is_near = _apart(theirs, columns) <= np.minimum(their_allowed[:, None], allowed)
    near: npt.NDArray[np.bool_] = np.any(is_near, axis=0)
    return near & columns.any(axis=0)


def _joined(near: npt.NDArray[np.bool_]) -> Positions:
    """Connected components, each by the position of its first member. Rows become whole numbers, one bit a neighbour: a
    few hundred of them are walked faster than arrays are made."""
    packed = np.packbits(near, axis=1, bitorder="little")
    width, rows = packed.shape[1], packed.tobytes()
    neighbours = [int.from_bytes(rows[at : at + width], "little") for at in range(0, len(rows), width)]
    labels = np.empty(len(near), dtype=np.intp)
    unseen = (1 << len(near)) - 1
    while unseen:
        first = _lowest(unseen)
        reached = waiting = 1 << first
        while waiting:
            at = _lowest(waiting)
            labels[at] = first
            waiting = (waiting ^ 1 << at) | neighbours[at] & ~reached
            reached |= neighbours[at]
        unseen &= ~reached
    return labels


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


# --- Spreading ------------------------------------------------------------------------------------


class Ranked(NamedTuple):
    """Candidates in the order of their ranking, best first."""

    scores: npt.NDArray[np.floating]
    labels: npt.NDArray[np.integer]
    owners: npt.NDArray[np.integer]  # any number that is the same for the same owner
    registered: npt.NDArray[np.generic]  # smaller is earlier: a revision or a time


def spread(ranked: Ranked, limit: int, *, per_cluster: int = PER_CLUSTER, per_owner: int = PER_OWNER) -> Positions:
    """Positions in the order to show: in each ten at most two of a cluster, and of an owner while others are as good.

    Of a crowded cluster the best is shown and the earliest registration, right behind it or, where it is as good, before it:
    two hundred copies cannot push out what they were copied from, however they were tuned to the question. The rest is
    pushed behind the ten, never lost: where nothing else is left, it is shown after all.
    The owner's bound yields to relevance: it holds only for a candidate of another owner with a comparable score. So a
    registry of one owner, or with one who knows the matter best, still lists ten different agents.
    """
    count = len(ranked.scores)
    limit = min(limit, count)
    rows = _Rows(ranked.scores.tolist(), ranked.labels.tolist(), ranked.owners.tolist(), [0] * count)
    owners = Counter(rows.owners)
    is_crowded = max(Counter(rows.labels).values(), default=0) > per_cluster
    if not is_crowded and (len(owners) == 1 or max(owners.values(), default=0) <= per_owner):
        return np.arange(limit, dtype=np.intp)
    waiting = list(range(count))
    if is_crowded:
        waiting = _with_turns(rows, ranked.registered.tolist(), per_cluster)
    shown: list[int] = []
    while len(shown) < limit:
        window = _Window(rows, len(shown) // WINDOW, per_cluster, per_owner)
        waiting = window.fill(waiting)
        shown += window.shown
    return np.array(shown[:limit], dtype=np.intp)


class _Rows(NamedTuple):
    scores: list[float]
    labels: list[int]
    owners: list[int]
    turns: list[int]  # the first window in which each may be shown


def _with_turns(rows: _Rows, registered: list[Any], per_cluster: int) -> list[int]:
    """Give each of a crowded cluster its turn: first the best and the original, then by rank. Returns all in the order in
    which they wait, each original right behind the best of its copies and as good."""
    clusters: dict[int, list[int]] = {}
    for at, label in enumerate(rows.labels):
        clusters.setdefault(label, []).append(at)
    places = [float(at) for at in range(len(rows.labels))]
    for members in clusters.values():
        if len(members) > per_cluster:
            best = members[0]
            floor = ORIGINAL * rows.scores[best]
            original = min(members, key=lambda at: (rows.scores[at] < floor, registered[at], at))
            if original != best:
                is_as_good = rows.scores[original] >= COMPARABLE * rows.scores[best]
                places[original] = best - 0.5 if is_as_good else min(original, best + 0.5)
            rows.scores[original] = rows.scores[best]
            for turn, at in enumerate(sorted(members, key=places.__getitem__)):
                rows.turns[at] = turn // per_cluster
    return sorted(range(len(places)), key=places.__getitem__)


class _Window:
    """Ten places, filled in the order of the ranking."""

    def __init__(self, rows: _Rows, turn: int, per_cluster: int, per_owner: int) -> None:
        self.shown: list[int] = []
        self._rows, self._turn = rows, turn
        self._per_cluster, self._per_owner = per_cluster, per_owner
        self._of_cluster: dict[int, int] = {}
        self._of_owner: dict[int, int] = {}

    def fill(self, waiting: list[int]) -> list[int]:
        """Take what may be shown; returns what waits for the next window, in order."""
        behind: list[int] = []  # more of an owner than the bound, until the others fall off
        for at in waiting:
            while behind and self._rows.scores[at] < COMPARABLE * self._rows.scores[behind[0]]:
                self._take(behind.pop(0))
            if len(self.shown) >= WINDOW:
                break
            if self._of_owner.get(self._rows.owners[at], 0) >= self._per_owner:
                behind.append(at)
            else:
                self._take(at)
        for at in behind:
            self._take(at)
        chosen = set(self.shown)
        rest = [at for at in waiting if at not in chosen]
        missing = WINDOW - len(self.shown)  # nothing else is left: more of the same is better than nothing
        self.shown += rest[:missing]
        return rest[missing:]

    def _take(self, at: int) -> None:
        label, owner = self._rows.labels[at], self._rows.owners[at]
        held = self._of_cluster.get(label, 0)
        if len(self.shown) >= WINDOW or held >= self._per_cluster or self._rows.turns[at] > self._turn:
            return
        self.shown.append(at)
        self._of_cluster[label] = held + 1
        self._of_owner[owner] = self._of_owner.get(owner, 0) + 1
