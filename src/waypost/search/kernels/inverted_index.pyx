# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The inverted index of one segment. The fallback, which documents each method, is `inverted_index_fallback.py`.

Arrays may be memory maps of a file that was damaged after its check: every index is validated before use.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import numpy as np

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define waypost_prefetch(place) __builtin_prefetch(place)
    #else
    #define waypost_prefetch(place) ((void)(place))
    #endif
    #if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
    #define WAYPOST_SEEKS __attribute__((target_clones("avx2", "default")))
    #else
    #define WAYPOST_SEEKS
    #endif
    #include <stdint.h>

    /* The position (from 1; 0: none) of each of k numbers among n distinct ones. No branch depends on the data. */
    WAYPOST_SEEKS
    static void waypost_seek(const uint32_t *values, int64_t n, const uint32_t *numbers, int k, uint32_t *spots)
    {
        for (int at = 0; at < k; at++) {
            uint32_t number = numbers[at], spot = 0, size = (uint32_t)n;
            for (uint32_t i = 0; i < size; i++)
                spot += values[i] == number ? i + 1 : 0;
            spots[at] = spot;
        }
    }
    """
    void waypost_prefetch(const void *place) noexcept nogil
    void waypost_seek(const uint32_t *values, int64_t n, const uint32_t *numbers, int k, uint32_t *spots) noexcept nogil

DEF MOST_TERMS = 255
DEF MOST_CHOSEN = 1024
DEF MOST_UNITS = 64
DEF MOST_LEVELS = 200
DEF ARRAYS = 18  # of a segment
DEF SLOTS = 512  # of the hash table from a term to its place in the query; at most half are used
DEF BUCKETS = 1024
DEF BLOCK = 16384  # rows summed together: their totals fit into the L1 or L2 cache
DEF FEW = 2048  # scores of one bucket that are copied before the next pass
DEF SAMPLE = 2048  # scores that estimate the cut
DEF MARGIN = 3  # the cut aims at this many times the wanted rows
DEF FAR = 64  # scores to prefetch for
DEF FEW_ROWS = 256  # up to this many admitted rows are read one by one
DEF FEW_TERMS = 16  # up to this many query terms are searched in each row
DEF AHEAD = 8  # rows to prefetch

cdef uint32_t FREE = 0xFFFFFFFF
cdef uint8_t ONE = 1
cdef long LONG_WORK = 50_000  # postings from which a call releases the GIL


cdef struct Places:
    uint32_t number[SLOTS]
    uint8_t place[SLOTS]


cdef struct Chosen:
    # Terms or keys by their highest possible contribution, and their posting lists.
    int count
    const uint32_t *holders
    const uint8_t *impacts
    int step  # between impacts; 0 if all are one
    uint32_t number[MOST_CHOSEN]
    int64_t start[MOST_CHOSEN]
    int64_t stop[MOST_CHOSEN]
    float weight[MOST_CHOSEN]
    double bound[MOST_CHOSEN]


cdef class Scratch:
    """Buffers of one query: allocating them would cost more than the query."""

    cdef Py_ssize_t size
    cdef float totals[BLOCK]  # zeros between two blocks
    cdef uint32_t *rows  # touched rows
    cdef uint32_t *bits  # of their positive float scores, which sort like integers

    def __dealloc__(self):
        free(self.rows)
        free(self.bits)

    cdef int need(self, Py_ssize_t count) except -1:
        if count <= self.size:
            return 0
        free(self.rows)
        free(self.bits)
        self.size = 0
        self.rows = <uint32_t *> malloc((count + 1) * sizeof(uint32_t))
        self.bits = <uint32_t *> malloc((count + 1) * sizeof(uint32_t))
        if not (self.rows and self.bits):
            raise MemoryError
        self.size = count
        return 0


cdef list _spare = []  # one for each concurrent query


cdef inline uint32_t slot_of(uint32_t number) noexcept nogil:
    return (number * <uint32_t> 2654435761u) >> 23


cdef void put(Places *places, uint32_t number, uint8_t place) noexcept nogil:
    cdef uint32_t slot = slot_of(number)
    while places.number[slot] != FREE and places.number[slot] != number:
        slot = (slot + 1) & (SLOTS - 1)
    places.number[slot] = number
    places.place[slot] = place


cdef inline int place_of(const Places *places, uint32_t number) noexcept nogil:
    """The place of a term in the query, or -1."""
    cdef uint32_t slot = slot_of(number)
    while places.number[slot] != FREE:
        if places.number[slot] == number:
            return places.place[slot]
        slot = (slot + 1) & (SLOTS - 1)
    return -1


cdef int few_of(const Places *places, uint32_t *numbers, uint8_t *placed) noexcept nogil:
    """The terms of a query, their places and their number; -1 if there are too many."""
    cdef int slot, count = 0
    for slot in range(SLOTS):
        if places.number[slot] != FREE:
            if count == FEW_TERMS:
                return -1
            numbers[count], placed[count] = places.number[slot], places.place[slot]
            count += 1
    return count


cdef int64_t number_of(const uint64_t *keys, int64_t count, uint64_t key) noexcept nogil:
    """The index of a key among sorted keys, or -1. Interpolation search, because keys are hashes."""
    cdef int64_t low = 0, high = count, step = 16, middle
    cdef int64_t guess = <int64_t> (<double> key / 18446744073709551616.0 * <double> count)
    if count == 0:
        return -1
    if guess >= count:
        guess = count - 1
    if keys[guess] < key:
        low = guess + 1
        while low + step < count and keys[low + step] < key:
            low += step + 1
            step *= 2
        if low + step < high:
            high = low + step
    else:
        high = guess
        while high - step > 0 and keys[high - step] >= key:
            high -= step
            step *= 2
        if high - step > 0:
            low = high - step + 1
    while low < high:
        middle = low + (high - low) // 2
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < count and keys[low] == key else -1


cdef inline uint32_t bits_of(float figure) noexcept nogil:
    cdef uint32_t bits
    memcpy(&bits, &figure, 4)
    return bits


cdef inline float figure_of(uint32_t bits) noexcept nogil:
    cdef float figure
    memcpy(&figure, &bits, 4)
    return figure


cdef uint32_t nth_largest(const uint32_t *bits, Py_ssize_t count, Py_ssize_t wanted) noexcept nogil:
    """The `wanted`-th largest value. Zeros do not count; there are at least `wanted` others."""
    cdef uint32_t low = 0xFFFFFFFF, high = 0, value, span
    cdef uint32_t counts[BUCKETS]
    cdef uint32_t few[FEW]
    cdef Py_ssize_t at, taken
    cdef int shift, bucket
    for at in range(count):
        value = bits[at]
        high = value if value > high else high
        low = value if value - 1 < low - 1 else low  # a zero wraps around
    while True:
        span, shift = high - low, 0
        while (span >> shift) >= BUCKETS:
            shift += 1
        memset(counts, 0, ((span >> shift) + 1) * sizeof(uint32_t))
        for at in range(count):
            value = bits[at] - low
            if value <= span:
                counts[value >> shift] += 1
        bucket = span >> shift
        while counts[bucket] < wanted:
            wanted -= counts[bucket]
            bucket -= 1
        low += <uint32_t> bucket << shift
        if shift == 0 or low == high:
            return low
        span = (<uint32_t> 1 << shift) - 1
        high = low + span if high - low > span else high
        if counts[bucket] <= FEW and bits != few:
            taken, span = 0, high - low
            for at in range(count):
                if bits[at] - low <= span:
                    few[taken] = bits[at]
                    taken += 1
            bits, count = few, taken


cdef Py_ssize_t count_from(const uint32_t *bits, Py_ssize_t count, float least) noexcept nogil:
    """The number of scores of at least `least`, which is positive."""
    cdef int32_t cut = <int32_t> bits_of(least)
    cdef Py_ssize_t at, found = 0
    for at in range(count):
        found += <int32_t> bits[at] >= cut
    return found


cdef Py_ssize_t keep_from(uint32_t *rows, uint32_t *bits, Py_ssize_t count, uint32_t least) noexcept nogil:
    """Keep only scores of at least `least`; return their number."""
    cdef uint32_t value
    cdef Py_ssize_t at, found = 0
    for at in range(count):
        value = bits[at]
        rows[found], bits[found] = rows[at], value
        found += value >= least
    return found


cdef Py_ssize_t narrow(uint32_t *rows, uint32_t *bits, Py_ssize_t count, Py_ssize_t limit) noexcept nogil:
    """Drop most rows that cannot be among the best `limit`, by the cut of a sample; return the number left."""
    cdef uint32_t sample[SAMPLE]
    cdef Py_ssize_t at, wanted, step = max(<Py_ssize_t> 16, count // SAMPLE + 1), taken = 0
    cdef uint32_t cut
    wanted = MARGIN * limit // step + 2
    if count <= 2 * step * wanted:
        return count
    for at in range(count // step):
        sample[taken] = bits[at * step]
        taken += sample[taken] != 0
    if taken < wanted:
        return count
    cut = nth_largest(sample, taken, wanted)
    return keep_from(rows, bits, count, cut) if count_from(bits, count, figure_of(cut)) >= limit else count


cdef void in_order(uint64_t *pairs, uint64_t *room, Py_ssize_t count, uint32_t most) noexcept nogil:
    """Radix sort by the upper half of each pair, the row."""
    cdef Py_ssize_t starts[256]
    cdef Py_ssize_t at, sum_, here
    cdef int shift = 32
    cdef uint64_t *from_ = pairs
    cdef uint64_t *to = room
    cdef uint64_t *other
    while shift == 32 or (shift < 64 and (<uint64_t> most << 32) >> shift):
        memset(starts, 0, sizeof(starts))
        for at in range(count):
            starts[(from_[at] >> shift) & 0xFF] += 1
        sum_ = 0
        for at in range(256):
            here, starts[at] = starts[at], sum_
            sum_ += here
        for at in range(count):
            here = (from_[at] >> shift) & 0xFF
            to[starts[here]] = from_[at]
            starts[here] += 1
        other, from_, to = from_, to, from_
        shift += 8
    if from_ != pairs:
        memcpy(pairs, from_, count * sizeof(uint64_t))


cdef void sink(uint64_t *marks, uint32_t *rows, Py_ssize_t count, uint64_t mark, uint32_t row) noexcept nogil:
    """Replace the largest mark, which is the first of a heap."""
    cdef Py_ssize_t at = 0, child
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and marks[child + 1] > marks[child]:
            child += 1
        if marks[child] <= mark:
            break
        marks[at], rows[at] = marks[child], rows[child]
        at = child
    marks[at], rows[at] = mark, row


cdef int acquire(array, dtype, Py_ssize_t count, Py_buffer *buffer) except -1:
    """Acquire the buffer of an array of so many items; the caller releases it."""
    if array.dtype != dtype:
        raise ValueError(f"{array.dtype} for {dtype}")
    PyObject_GetBuffer(array, buffer, PyBUF_SIMPLE)
    if buffer.len != count * dtype.itemsize:
        PyBuffer_Release(buffer)
        raise ValueError("an array has the wrong length")
    return 0


cdef uint8_t restart_levels(uint8_t *flags, Py_ssize_t count, uint8_t level) noexcept nogil:
    """Restart the levels: rows of this level are now at level 1."""
    cdef Py_ssize_t at
    for at in range(count):
        flags[at] = flags[at] == level
    return 1


cdef void keep_level(uint8_t *flags, const uint8_t *seen, Py_ssize_t count, uint8_t level) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(count):
        flags[at] = (flags[at] == level) & (seen[at] != 0)


cdef Py_ssize_t total(const uint8_t *flags, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t at, found = 0
    for at in range(count):
        found += flags[at]
    return found


cdef inline int64_t gallop(const uint32_t *rows, int64_t low, int64_t stop, uint32_t row) noexcept nogil:
    """The position of the first row of at least `row`, from `low` on: galloping search."""
    cdef int64_t step = 1, high, middle
    while low + step < stop and rows[low + step] < row:
        low += step
        step *= 2
    high = min(stop, low + step + 1)
    while low < high:
        middle = low + (high - low) // 2
        if rows[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low


cdef void add_among(
    const Chosen *chosen, int term, const uint32_t *rows, Py_ssize_t count, float *totals
) noexcept nogil:
    """Add the impacts of a term to sorted rows; its postings are sorted too."""
    cdef int64_t spot = chosen.start[term], stop = chosen.stop[term], at = 0
    cdef float weight = chosen.weight[term]
    while at < count and spot < stop:
        spot = gallop(chosen.holders, spot, stop, rows[at])
        if spot == stop:
            break
        if chosen.holders[spot] == rows[at]:
            totals[at] += <float> chosen.impacts[spot * chosen.step] * weight
            at += 1
        else:
            at = gallop(rows, at, count, chosen.holders[spot])


ctypedef const uint64_t *U64s
ctypedef const int64_t *I64s
ctypedef const uint32_t *U32s
ctypedef const uint16_t *U16s
ctypedef const uint8_t *U8s


cdef class InvertedIndex:

    cdef Py_buffer _buffers[ARRAYS]  # keep the memory of the pointers alive
    cdef int _acquired
    cdef U64s _terms, _keys, _mark
    cdef I64s _term_starts, _key_starts, _row_starts
    cdef U32s _term_rows, _key_rows, _row_terms
    cdef U8s _impacts, _tops, _deprecated, _language, _tier
    cdef U16s _row_impacts, _said
    cdef const float *_worth
    cdef const double *_updated
    cdef Py_ssize_t _count, _term_count, _key_count, _posted, _key_posted, _row_posted
    cdef uint16_t _said_from, _impact_bits
    cdef float _unit
    cdef long _gather, _prune_from, _look_up

    def __init__(self, arrays, *, said, unit, gather, prune_from, look_up):
        self._count, self._term_count, self._key_count = len(arrays["tier"]), len(arrays["terms"]), len(arrays["keys"])
        self._posted, self._key_posted = len(arrays["term_rows"]), len(arrays["key_rows"])
        self._row_posted = len(arrays["row_terms"])
        if self._count >= FREE or self._term_count >= FREE:
            raise ValueError("the segment has too many rows or terms")
        self._acquire_postings(arrays)
        self._acquire_traits(arrays)
        self._said_from, self._impact_bits = said, said - 1
        self._unit = unit
        self._gather, self._prune_from, self._look_up = gather, prune_from, look_up

    def __dealloc__(self):
        while self._acquired:
            self._acquired -= 1
            PyBuffer_Release(&self._buffers[self._acquired])

    cdef int _acquire_postings(self, arrays) except -1:
        self._terms = <const uint64_t *> self._acquire(arrays["terms"], _UINT64, self._term_count)
        self._term_starts = <const int64_t *> self._acquire(arrays["term_starts"], _INT64, self._term_count + 1)
        self._term_rows = <const uint32_t *> self._acquire(arrays["term_rows"], _UINT32, self._posted)
        self._impacts = <const uint8_t *> self._acquire(arrays["term_impacts"], _UINT8, self._posted)
        self._tops = <const uint8_t *> self._acquire(arrays["term_tops"], _UINT8, self._term_count)
        self._keys = <const uint64_t *> self._acquire(arrays["keys"], _UINT64, self._key_count)
        self._key_starts = <const int64_t *> self._acquire(arrays["key_starts"], _INT64, self._key_count + 1)
        self._key_rows = <const uint32_t *> self._acquire(arrays["key_rows"], _UINT32, self._key_posted)
        self._row_starts = <const int64_t *> self._acquire(arrays["row_starts"], _INT64, self._count + 1)
        self._row_terms = <const uint32_t *> self._acquire(arrays["row_terms"], _UINT32, self._row_posted)
        self._row_impacts = <const uint16_t *> self._acquire(arrays["row_impacts"], _UINT16, self._row_posted)
        return 0

    cdef int _acquire_traits(self, arrays) except -1:
        self._mark = <const uint64_t *> self._acquire(arrays["mark"], _UINT64, self._count)
        self._said = <const uint16_t *> self._acquire(arrays["said"], _UINT16, self._count)
        self._worth = <const float *> self._acquire(arrays["worth"], _FLOAT32, self._count)
        self._updated = <const double *> self._acquire(arrays["updated"], _FLOAT64, self._count)
        self._language = <const uint8_t *> self._acquire(arrays["language"], _UINT8, self._count)
        self._tier = <const uint8_t *> self._acquire(arrays["tier"], _UINT8, self._count)
        self._deprecated = <const uint8_t *> self._acquire(arrays["deprecated"], _BOOL, self._count)
        return 0

    cdef const void *_acquire(self, array, dtype, Py_ssize_t count) except? NULL:
        """The memory of a contiguous array."""
        acquire(array, dtype, count, &self._buffers[self._acquired])
        self._acquired += 1
        return self._buffers[self._acquired - 1].buf

    # --- Statistics ---

    def find_terms(self, terms):
        return [number_of(self._terms, self._term_count, term) for term in terms]

    def count_documents(self, counts, terms, tiers):
        cdef Py_buffer buffer
        cdef const int32_t *held
        cdef int64_t number, sum_
        cdef Py_ssize_t tier, all_tiers = len(counts)
        acquire(counts, _INT32, all_tiers * self._term_count, &buffer)
        held = <const int32_t *> buffer.buf
        numbers, containing = [], []
        try:
            for term in terms:
                number, sum_ = number_of(self._terms, self._term_count, term), 0
                if number >= 0:
                    for tier in tiers:
                        if not 0 <= tier < all_tiers:
                            raise IndexError("no such tier")
                        sum_ += held[tier * self._term_count + number]
                numbers.append(number)
                containing.append(sum_)
        finally:
            PyBuffer_Release(&buffer)
        return numbers, containing

    def count_in_rows(self, rows, numbers, tiers):
        cdef Py_buffer buffer
        cdef Places places
        cdef Py_ssize_t counts[MOST_TERMS]
        cdef Py_ssize_t at, shared
        cdef uint64_t wanted = 0
        for tier in tiers:
            wanted |= (<uint64_t> 1) << <int> tier
        self._take_in(numbers, &places)
        acquire(rows, _UINT32, len(rows), &buffer)
        try:
            shared = self._count_in(<const uint32_t *> buffer.buf, len(rows), &places, wanted, counts)
        finally:
            PyBuffer_Release(&buffer)
        return shared, [counts[at] for at in range(len(numbers))]

    cdef Py_ssize_t _count_in(
        self, const uint32_t *rows, Py_ssize_t n, const Places *places, uint64_t tiers, Py_ssize_t *counts
    ) except -1:
        cdef Py_ssize_t at, shared = 0
        cdef int64_t spot
        cdef int place
        cdef uint32_t row
        memset(counts, 0, MOST_TERMS * sizeof(Py_ssize_t))
        for at in range(n):
            row = rows[at]
            self._check_row(row)
            if self._tier[row] > 63 or not (tiers >> self._tier[row]) & 1:
                continue
            shared += 1
            for spot in range(self._row_starts[row], self._row_starts[row + 1]):
                place = place_of(places, self._row_terms[spot])
                if place >= 0:
                    counts[place] += 1
        return shared

    cdef int _take_in(self, numbers, Places *places) except -1:
        cdef Py_ssize_t at
        cdef int64_t number
        if len(numbers) > MOST_TERMS:
            raise ValueError("the query has too many terms")
        memset(places.number, 0xFF, sizeof(places.number))
        for at in range(len(numbers)):
            number = numbers[at]
            if number >= self._term_count:
                raise IndexError("no such term")
            if number >= 0:
                put(places, <uint32_t> number, <uint8_t> at)
        return 0

    cdef inline bint _is_sound(self, uint32_t row) noexcept nogil:
        """Whether the terms of a row can be read."""
        return (
            row < self._count
            and 0 <= self._row_starts[row] <= self._row_starts[row + 1] <= self._row_posted
        )

    cdef inline int _check_row(self, uint32_t row) except -1:
        if not self._is_sound(row):
            raise IndexError("no such row, or a damaged one")
        return 0

    # --- Hard filters ---

    def filter_rows(self, required, accepted, excluded, mask):
        cdef Py_buffer seen
        cdef uint8_t level = 0
        out = PyByteArray_FromStringAndSize(NULL, self._count)
        cdef uint8_t *flags = <uint8_t *> PyByteArray_AS_STRING(out)
        memset(flags, 0, self._count)
        for key in required:
            self._raise(key, flags, level)
            level += 1
            if level == MOST_LEVELS:
                level = restart_levels(flags, self._count, level)
        for key in accepted:
            self._raise(key, flags, level)
        level += len(accepted) > 0
        acquire(mask, _BOOL, self._count, &seen)
        keep_level(flags, <const uint8_t *> seen.buf, self._count, level)
        PyBuffer_Release(&seen)
        for key in excluded:
            self._clear(key, flags)
        return _array((self._count,), _BOOL, out), total(flags, self._count)

    cdef int _raise(self, key, uint8_t *flags, uint8_t level) except -1:
        """Move rows with the key from this level to the next."""
        cdef int64_t spot, number = self._sound_key(key)
        cdef uint32_t row
        if number < 0:
            return 0
        for spot in range(self._key_starts[number], self._key_starts[number + 1]):
            row = self._key_rows[spot]
            if row >= self._count:
                raise IndexError("a key is damaged")
            flags[row] += flags[row] == level
        return 0

    cdef int _clear(self, key, uint8_t *flags) except -1:
        cdef int64_t spot, number = self._sound_key(key)
        if number < 0:
            return 0
        for spot in range(self._key_starts[number], self._key_starts[number + 1]):
            if self._key_rows[spot] >= self._count:
                raise IndexError("a key is damaged")
            flags[self._key_rows[spot]] = 0
        return 0

    cdef int64_t _sound_key(self, key) except -2:
        """The number of a key, or -1."""
        cdef int64_t number = number_of(self._keys, self._key_count, key)
        if number >= 0 and not 0 <= self._key_starts[number] <= self._key_starts[number + 1] <= self._key_posted:
            raise IndexError("a key is damaged")
        return number

    # --- The best rows ---

    def best_by_terms(self, numbers, weights, selective, mask, Py_ssize_t admitted, Py_ssize_t limit):
        cdef Chosen chosen
        self._choose(numbers, weights, selective, &chosen)
        return self._best(&chosen, mask, admitted, limit)

    def best_by_keys(self, keys, mask, Py_ssize_t admitted, Py_ssize_t limit):
        cdef Chosen chosen
        cdef int64_t number
        chosen.count, chosen.holders, chosen.impacts, chosen.step = 0, self._key_rows, &ONE, 0
        for key in keys:
            number = self._sound_key(key)
            if number < 0:
                continue
            if chosen.count == MOST_CHOSEN:
                raise ValueError("the query has too many keys")
            chosen.start[chosen.count], chosen.stop[chosen.count] = self._key_starts[number], self._key_starts[number + 1]
            chosen.weight[chosen.count] = 1
            chosen.count += 1
        return self._best(&chosen, mask, admitted, limit)

    cdef object _best(self, const Chosen *chosen, mask, Py_ssize_t admitted, Py_ssize_t limit):
        cdef Py_buffer seen
        cdef Scratch scratch
        if chosen.count == 0 or admitted <= 0 or limit <= 0:
            return _rows_array(NULL, 0), _scores_array(NULL, 0), 0
        scratch = _spare.pop() if _spare else Scratch()
        scratch.need(self._count)
        acquire(mask, _BOOL, self._count, &seen)
        try:
            return self._rank(chosen, scratch, <const uint8_t *> seen.buf, admitted, limit)
        finally:
            PyBuffer_Release(&seen)
            _spare.append(scratch)

    cdef int _choose(self, numbers, weights, selective, Chosen *chosen) except -1:
        """The known selective terms by their highest possible contribution; ties by place in the query."""
        cdef Py_ssize_t at, place
        cdef int64_t number
        cdef double weight, bound
        chosen.count, chosen.holders, chosen.impacts, chosen.step = 0, self._term_rows, self._impacts, 1
        if len(numbers) > MOST_TERMS or len(weights) != len(numbers):
            raise ValueError("the query has too many terms, or not a weight for each")
        for at in range(len(numbers)):
            number, weight = numbers[at], weights[at]
            if number < 0 or not weight > 0 or at not in selective:
                continue
            if number >= self._term_count:
                raise IndexError("no such term")
            if not 0 <= self._term_starts[number] <= self._term_starts[number + 1] <= self._posted:
                raise IndexError("a term is damaged")
            bound, place = weight * self._tops[number] * <double> self._unit, chosen.count
            while place > 0 and chosen.bound[place - 1] < bound:
                chosen.number[place], chosen.bound[place] = chosen.number[place - 1], chosen.bound[place - 1]
                chosen.weight[place] = chosen.weight[place - 1]
                place -= 1
            chosen.number[place], chosen.bound[place] = <uint32_t> number, bound
            chosen.weight[place] = <float> weight * self._unit
            chosen.count += 1
        for place in range(chosen.count):
            chosen.start[place] = self._term_starts[chosen.number[place]]
            chosen.stop[place] = self._term_starts[chosen.number[place] + 1]
        return 0

    cdef object _rank(
        self, const Chosen *chosen, Scratch scratch, const uint8_t *seen, Py_ssize_t admitted, Py_ssize_t limit
    ):
        cdef Py_ssize_t found
        cdef int64_t work = 0
        cdef int at
        cdef bint by_row = admitted < self._gather and admitted != self._count
        for at in range(chosen.count):
            work += chosen.stop[at] - chosen.start[at]
        if admitted == self._count:
            seen = NULL
        if work > LONG_WORK:
            with nogil:
                found = self._score(chosen, scratch, seen, admitted, limit, work, by_row)
        else:
            found = self._score(chosen, scratch, seen, admitted, limit, work, by_row)
        if found < 0:
            raise IndexError("the arrays of a segment are damaged")
        return self._largest(scratch, found, limit)

    cdef Py_ssize_t _score(
        self,
        const Chosen *chosen,
        Scratch scratch,
        const uint8_t *seen,
        Py_ssize_t admitted,
        Py_ssize_t limit,
        int64_t work,
        bint by_row,
    ) noexcept nogil:
        """Put touched rows and the bits of their scores (0: not visible) into the scratch; return their number, -1: damaged."""
        if by_row and chosen.step and admitted <= FEW_ROWS:
            return self._by_row(chosen, scratch, seen)
        if by_row:
            return self._among(chosen, scratch, seen)
        if admitted < self._gather or work <= self._prune_from or not chosen.step:
            return self._by_term(chosen, chosen.count, scratch, seen)
        return self._pruned(chosen, scratch, seen, limit, work)

    cdef Py_ssize_t _by_row(self, const Chosen *chosen, Scratch scratch, const uint8_t *seen) noexcept nogil:
        """Sum over the terms of each admitted row."""
        cdef Places places
        cdef Py_ssize_t row, found = 0
        cdef uint64_t eight
        cdef float figure
        self._put_from(chosen, 0, &places)
        row = 0
        while row < self._count:
            if row + 8 <= self._count:
                memcpy(&eight, seen + row, 8)
                if eight == 0:
                    row += 8
                    continue
            if seen[row]:
                if not self._is_sound(<uint32_t> row):
                    return -1
                figure = self._added(chosen, &places, <uint32_t> row)
                if figure > 0:
                    scratch.rows[found] = <uint32_t> row
                    scratch.bits[found] = bits_of(figure)
                    found += 1
            row += 1
        return found

    cdef Py_ssize_t _among(self, const Chosen *chosen, Scratch scratch, const uint8_t *seen) noexcept nogil:
        """The same by searching the admitted rows in the posting list of each term."""
        cdef Py_ssize_t row, at, rows = 0, found = 0
        cdef uint32_t *admitted = scratch.rows
        cdef float *totals = scratch.totals
        cdef uint64_t eight
        cdef int term
        row = 0
        while row < self._count:
            if row + 8 <= self._count:
                memcpy(&eight, seen + row, 8)
                if eight == 0:
                    row += 8
                    continue
            admitted[rows] = <uint32_t> row
            rows += seen[row] != 0
            row += 1
        if rows > BLOCK:
            return -1  # the caller promised few
        for term in range(chosen.count):
            add_among(chosen, term, admitted, rows, totals)
        for at in range(rows):
            admitted[found], scratch.bits[found] = admitted[at], bits_of(totals[at])
            found += totals[at] > 0
            totals[at] = 0
        return found

    cdef void _put_from(self, const Chosen *chosen, int first, Places *places) noexcept nogil:
        cdef int at
        memset(places.number, 0xFF, sizeof(places.number))
        for at in range(first, chosen.count):
            put(places, chosen.number[at], <uint8_t> at)

    cdef inline float _added(self, const Chosen *chosen, const Places *places, uint32_t row) noexcept nogil:
        """The score of a checked row, added in the order of the terms."""
        cdef uint16_t impacts[MOST_TERMS]
        cdef int at, place, first = MOST_TERMS, last = -1
        cdef int64_t spot
        cdef float figure = 0
        for spot in range(self._row_starts[row], self._row_starts[row + 1]):
            place = place_of(places, self._row_terms[spot])
            if place >= 0:
                if last < 0:
                    memset(impacts, 0, chosen.count * sizeof(uint16_t))
                impacts[place] = self._row_impacts[spot] & self._impact_bits
                first, last = min(first, place), max(last, place)
        for at in range(first, last + 1):
            if impacts[at]:
                figure += <float> impacts[at] * chosen.weight[at]
        return figure

    cdef Py_ssize_t _by_term(
        self, const Chosen *chosen, int terms, Scratch scratch, const uint8_t *seen
    ) noexcept nogil:
        """Score by the first terms, block by block of rows. Posting lists are sorted."""
        cdef int64_t spots[MOST_CHOSEN]
        cdef Py_ssize_t first, at, touched = 0
        cdef int term
        memcpy(spots, chosen.start, terms * sizeof(int64_t))
        for first in range(0, self._count, BLOCK):
            touched = self._by_block(chosen, terms, scratch, spots, first, touched)
            if touched < 0:
                return -1
        for term in range(terms):
            if spots[term] != chosen.stop[term]:
                return -1
        if seen != NULL:
            for at in range(touched):
                scratch.bits[at] = scratch.bits[at] if seen[scratch.rows[at]] else 0
        return touched

    cdef Py_ssize_t _by_block(
        self, const Chosen *chosen, int terms, Scratch scratch, int64_t *spots, Py_ssize_t first, Py_ssize_t touched
    ) noexcept nogil:
        """A row whose sum is zero is touched for the first time."""
        cdef float *totals = scratch.totals
        cdef uint32_t *rows = scratch.rows
        cdef uint32_t *bits = scratch.bits
        cdef const uint32_t *holders = chosen.holders
        cdef const uint8_t *impacts = chosen.impacts
        cdef int64_t step = chosen.step
        cdef uint32_t row, size = <uint32_t> min(<Py_ssize_t> BLOCK, self._count - first), base = <uint32_t> first
        cdef Py_ssize_t at, found = touched, room = self._count
        cdef int64_t spot, stop
        cdef float weight, before
        cdef int term
        for term in range(terms):
            spot, stop, weight = spots[term], chosen.stop[term], chosen.weight[term]
            while spot < stop:
                row = holders[spot] - base
                if row >= size or found > room:  # also one before the block, which wraps around
                    break
                before = totals[row]
                rows[found] = row
                found += bits_of(before) == 0  # without a branch, which could not be predicted
                totals[row] = before + <float> impacts[spot * step] * weight
                spot += 1
            spots[term] = spot
        for at in range(touched, min(found, room)):
            row = rows[at]
            bits[at], rows[at] = bits_of(totals[row]), row + base
            totals[row] = 0
        return found if found <= room else -1

    cdef Py_ssize_t _pruned(
        self, const Chosen *chosen, Scratch scratch, const uint8_t *seen, Py_ssize_t limit, int64_t left
    ) noexcept nogil:
        """The same with MaxScore pruning: once the remaining terms cannot lift an untouched row into the result, only touched rows
        are completed."""
        cdef Py_ssize_t touched
        cdef int at
        cdef double rest = 0, taken = 0, try_below = 0.5
        cdef float cut
        for at in range(chosen.count):
            rest += chosen.bound[at]
        for at in range(chosen.count):
            if left > self._prune_from and rest < try_below * taken:
                try_below = rest / taken / 2  # a check costs a pass over the touched rows
                touched = self._by_term(chosen, at, scratch, seen)
                if touched < 0:
                    return -1
                cut = self._cut(chosen, at, scratch, touched, limit)
                if cut > 0 and count_from(scratch.bits, touched, cut) * (chosen.count - at) * self._look_up < left:
                    return self._complete(chosen, at, scratch, touched, cut)
            left -= chosen.stop[at] - chosen.start[at]
            rest, taken = rest - chosen.bound[at], taken + chosen.bound[at]
        return self._by_term(chosen, chosen.count, scratch, seen)

    cdef float _cut(
        self, const Chosen *chosen, int at, Scratch scratch, Py_ssize_t touched, Py_ssize_t limit
    ) noexcept nogil:
        """The score needed so far to be in the result, if no untouched row can be; else 0."""
        cdef double left = 0
        cdef float rest
        cdef int term
        for term in range(at, chosen.count):
            left += chosen.bound[term]
        rest = <float> left
        # A row with no more than the rest can be passed by an untouched one.
        if count_from(scratch.bits, touched, figure_of(bits_of(rest) + 1)) < limit:
            return 0
        return figure_of(nth_largest(scratch.bits, touched, limit)) - rest

    cdef Py_ssize_t _complete(
        self, const Chosen *chosen, int first, Scratch scratch, Py_ssize_t touched, float cut
    ) noexcept nogil:
        """Add the remaining terms to rows that may still be in the result."""
        cdef Places places
        cdef Py_ssize_t at, found = keep_from(scratch.rows, scratch.bits, touched, bits_of(cut))
        cdef uint32_t row
        self._put_from(chosen, first, &places)
        for at in range(found):
            if at + 2 * AHEAD < found:
                waypost_prefetch(self._row_starts + scratch.rows[at + 2 * AHEAD])
            if at + AHEAD < found:
                row = scratch.rows[at + AHEAD]
                waypost_prefetch(self._row_terms + self._row_starts[row])
                waypost_prefetch(self._row_terms + self._row_starts[row] + 16)
                waypost_prefetch(self._row_terms + self._row_starts[row] + 32)
            row = scratch.rows[at]
            if not self._is_sound(row):
                return -1
            scratch.bits[at] = bits_of(figure_of(scratch.bits[at]) + self._added(chosen, &places, row))
        return found

    cdef object _largest(self, Scratch scratch, Py_ssize_t touched, Py_ssize_t limit):
        """The best rows; ties with the last are broken by mark."""
        cdef Py_ssize_t at, seen = 0, found = 0, level = 0, deprecated = 0
        cdef uint32_t floor = 1, most = 0
        cdef uint64_t *pairs
        touched = narrow(scratch.rows, scratch.bits, touched, limit)
        for at in range(touched):
            seen += scratch.bits[at] != 0
        limit = min(limit, seen)
        if seen > limit:
            floor = nth_largest(scratch.bits, touched, limit) + 1
        pairs = <uint64_t *> malloc(max(1, limit) * (3 * sizeof(uint64_t) + sizeof(uint32_t)))
        if not pairs:
            raise MemoryError
        for at in range(touched):
            if scratch.bits[at] >= floor:
                pairs[found] = (<uint64_t> scratch.rows[at]) << 32 | scratch.bits[at]
                found += 1
        if found < limit:
            found = self._with_level(scratch, touched, floor - 1, pairs, found, limit)
        for at in range(found):
            most = max(most, <uint32_t> (pairs[at] >> 32))
            deprecated += self._deprecated[pairs[at] >> 32] != 0
        in_order(pairs, pairs + max(1, limit), found, most)
        try:
            return _rows_array(pairs, found), _scores_array(pairs, found), deprecated
        finally:
            free(pairs)

    cdef Py_ssize_t _with_level(
        self, Scratch scratch, Py_ssize_t touched, uint32_t floor, uint64_t *pairs, Py_ssize_t found, Py_ssize_t limit
    ) noexcept nogil:
        """Fill up with rows of the last score, by the smallest marks."""
        cdef uint64_t *marks = pairs + 2 * limit
        cdef uint32_t *rows = <uint32_t *> (pairs + 3 * limit)
        cdef Py_ssize_t at, room = limit - found, held = 0, back
        cdef uint64_t mark
        for at in range(touched):
            if at + FAR < touched and scratch.bits[at + FAR] == floor:
                waypost_prefetch(self._mark + scratch.rows[at + FAR])
            if scratch.bits[at] != floor:
                continue
            mark = self._mark[scratch.rows[at]]
            if held < room:
                held += 1
                back = held - 1
                while back > 0 and marks[(back - 1) // 2] < mark:
                    marks[back], rows[back] = marks[(back - 1) // 2], rows[(back - 1) // 2]
                    back = (back - 1) // 2
                marks[back], rows[back] = mark, scratch.rows[at]
            elif mark < marks[0]:
                sink(marks, rows, held, mark, scratch.rows[at])
        for at in range(held):
            pairs[found + at] = (<uint64_t> rows[at]) << 32 | floor
        return found + held

    # --- Columns of rows ---

    def measure_rows(self, place, rows, numbers, weights, has, wishes):
        cdef Py_buffer given, flags
        cdef Py_ssize_t n = len(rows)
        acquire(rows, _UINT32, n, &given)
        try:
            acquire(has, _FLOAT32, has.size, &flags)
            try:
                if has.ndim != 2 or len(has) != len(numbers):
                    raise ValueError("`has` needs a row for each term")
                return self._measure(
                    place, <const uint32_t *> given.buf, n, numbers, weights, <const float *> flags.buf, has.shape[1], wishes
                )
            finally:
                PyBuffer_Release(&flags)
        finally:
            PyBuffer_Release(&given)

    cdef object _measure(
        self,
        int64_t place,
        const uint32_t *rows,
        Py_ssize_t n,
        numbers,
        weights,
        const float *has,
        Py_ssize_t units,
        wishes,
    ):
        cdef Py_ssize_t at
        cdef Places places
        cdef float by_term[MOST_TERMS]
        self._take_in(numbers, &places)
        if len(weights) != len(numbers) or not 1 <= units <= MOST_UNITS:
            raise ValueError("the query has too many units, or not a weight for each term")
        for at in range(len(numbers)):
            by_term[at] = <float> <double> weights[at] * self._unit
        for at in range(n):
            self._check_row(rows[at])
        out = PyByteArray_FromStringAndSize(NULL, n * (24 + 8 * units + 12 + 2))
        cdef char *to = PyByteArray_AS_STRING(out)
        cdef int64_t *place_to = <int64_t *> to
        cdef uint64_t *mark = <uint64_t *> (to + 8 * n)
        cdef double *updated = <double *> (to + 16 * n)
        cdef float *lexical = <float *> (to + 24 * n)
        cdef float *coverage = lexical + n * units
        cdef float *worth = coverage + n * units
        cdef float *tags = worth + n
        cdef uint8_t *deprecated = <uint8_t *> (tags + 2 * n)
        cdef uint8_t *language = deprecated + n
        cdef uint32_t row
        self._weigh(rows, n, &places, by_term, has, units, lexical, coverage)
        for at in range(n):
            row = rows[at]
            place_to[at], mark[at], updated[at] = place, self._mark[row], self._updated[row]
            worth[at], deprecated[at], language[at] = self._worth[row], self._deprecated[row], self._language[row]
        self._wish(rows, n, wishes, tags)
        return (
            _array((n,), _INT64, out, 0),
            _array((n,), _UINT64, out, 8 * n),
            _array((n,), _BOOL, out, <char *> deprecated - to),
            _array((n,), _FLOAT32, out, <char *> worth - to),
            _array((n,), _FLOAT64, out, 16 * n),
            _array((n,), _UINT8, out, <char *> language - to),
            _array((n, units), _FLOAT32, out, 24 * n),
            _array((n, units), _FLOAT32, out, <char *> coverage - to),
            _array((n,), _FLOAT32, out, <char *> tags - to),
            _array((n,), _FLOAT32, out, <char *> (tags + n) - to),
        )

    cdef void _weigh(
        self,
        const uint32_t *rows,
        Py_ssize_t n,
        const Places *places,
        const float *weights,
        const float *has,
        Py_ssize_t units,
        float *lexical,
        float *coverage,
    ) noexcept nogil:
        """Sums are float64, so that the number of terms shows in no digit."""
        cdef Py_ssize_t at, unit
        cdef int64_t spot, start, stop
        cdef int place, term, terms
        cdef uint32_t row
        cdef float length
        cdef double sums[2 * MOST_UNITS]
        cdef uint32_t numbers[FEW_TERMS]
        cdef uint32_t spots[FEW_TERMS]
        cdef uint8_t placed[FEW_TERMS]
        terms = few_of(places, numbers, placed)
        for at in range(n):
            if at + AHEAD < n:
                self._prefetch(rows[at + AHEAD])
            row = rows[at]
            start, stop = self._row_starts[row], self._row_starts[row + 1]
            for unit in range(2 * units):
                sums[unit] = 0
            if terms >= 0:
                waypost_seek(self._row_terms + start, stop - start, numbers, terms, spots)
                for term in range(terms):
                    spot = start + <int64_t> spots[term] - 1
                    if spots[term] and spot < stop:
                        self._add(self._row_impacts[spot], weights[placed[term]], has + placed[term] * units, units, sums)
            else:
                for spot in range(start, stop):
                    place = place_of(places, self._row_terms[spot])
                    if place >= 0:
                        self._add(self._row_impacts[spot], weights[place], has + place * units, units, sums)
            length = <float> max(self._said[row], 1)
            for unit in range(units):
                lexical[at * units + unit] = <float> sums[unit]
                coverage[at * units + unit] = <float> sums[units + unit] / length

    cdef inline void _add(
        self, uint16_t impact, float weight, const float *has, Py_ssize_t units, double *sums
    ) noexcept nogil:
        """Add one term to the score and the coverage of each unit."""
        cdef float added = <float> (impact & self._impact_bits) * weight
        cdef Py_ssize_t unit
        for unit in range(units):
            sums[unit] += <double> added * has[unit]
            if impact >= self._said_from:
                sums[units + unit] += has[unit]

    cdef inline void _prefetch(self, uint32_t row) noexcept nogil:
        """Prefetch the columns of a row."""
        cdef int64_t start = self._row_starts[row]
        waypost_prefetch(self._row_terms + start)
        waypost_prefetch(self._row_terms + start + 16)
        waypost_prefetch(self._row_terms + start + 32)
        waypost_prefetch(&self._said[row])
        waypost_prefetch(&self._mark[row])
        waypost_prefetch(&self._updated[row])
        waypost_prefetch(&self._worth[row])
        waypost_prefetch(&self._deprecated[row])
        waypost_prefetch(&self._language[row])

    cdef int _wish(self, const uint32_t *rows, Py_ssize_t n, wishes, float *shares) except -1:
        """For each wished tag the weight of the best spelling that a row carries: the mean over the tags found in the query text,
        then over the explicitly preferred ones."""
        cdef Py_ssize_t at, asked = 0, read = 0
        cdef int64_t number
        cdef float *best
        cdef float *sums
        memset(shares, 0, 2 * n * sizeof(float))
        best = <float *> malloc(max(1, n) * sizeof(float))
        if not best:
            raise MemoryError
        try:
            for keys, is_explicit in wishes:
                sums = shares + n if is_explicit else shares
                asked, read = asked + bool(is_explicit), read + (not is_explicit)
                memset(best, 0, n * sizeof(float))
                for key, worth in keys:
                    number = number_of(self._keys, self._key_count, key)
                    if number >= 0:
                        self._carry(rows, n, number, <float> <double> worth, best)
                for at in range(n):
                    sums[at] += best[at]
        finally:
            free(best)
        for at in range(n):
            shares[at] /= <float> max(1, read)
            shares[n + at] /= <float> max(1, asked)
        return 0

    cdef int _carry(
        self, const uint32_t *rows, Py_ssize_t n, int64_t number, float worth, float *best
    ) except -1:
        """Raise `best` of the rows that have a key; both lists are sorted."""
        cdef int64_t start = self._key_starts[number], stop = self._key_starts[number + 1], low
        cdef Py_ssize_t at
        cdef uint32_t last = 0
        if not 0 <= start <= stop <= self._key_posted:
            raise IndexError("a key is damaged")
        low = start
        for at in range(n):
            low = gallop(self._key_rows, low if rows[at] >= last else start, stop, rows[at])
            last = rows[at]
            if low < stop and self._key_rows[low] == rows[at] and best[at] < worth:
                best[at] = worth
        return 0


cdef object _array = np.ndarray
cdef object _INT64 = np.dtype(np.int64), _UINT64 = np.dtype(np.uint64), _UINT8 = np.dtype(np.uint8)
cdef object _INT32 = np.dtype(np.int32), _UINT32 = np.dtype(np.uint32), _UINT16 = np.dtype(np.uint16)
cdef object _BOOL = np.dtype(np.bool_)
cdef object _FLOAT32 = np.dtype(np.float32), _FLOAT64 = np.dtype(np.float64)


cdef object _rows_array(const uint64_t *pairs, Py_ssize_t count):
    """The rows of pairs."""
    out = PyByteArray_FromStringAndSize(NULL, 4 * count)
    cdef uint32_t *rows = <uint32_t *> PyByteArray_AS_STRING(out)
    cdef Py_ssize_t at
    for at in range(count):
        rows[at] = <uint32_t> (pairs[at] >> 32)
    return _array((count,), _UINT32, out)


cdef object _scores_array(const uint64_t *pairs, Py_ssize_t count):
    """The scores of pairs."""
    out = PyByteArray_FromStringAndSize(NULL, 4 * count)
    cdef uint32_t *bits = <uint32_t *> PyByteArray_AS_STRING(out)
    cdef Py_ssize_t at
    for at in range(count):
        bits[at] = <uint32_t> pairs[at]
    return _array((count,), _FLOAT32, out)
