# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Nearest vectors of a block. The fallback, which documents each method, is `ivf_index_fallback.py`.

Queries and stored codes are on an integer grid, so products add up to the same in any order; other queries go to the
fallback. Arrays may be memory maps of damaged files: every index is checked against the size of its array.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

import numpy as np

cdef object _ascontiguous = np.ascontiguousarray, _empty = np.empty, _zeros = np.zeros
cdef object _F32 = np.dtype(np.float32), _U32 = np.dtype(np.uint32), _FLAG = np.dtype(np.bool_)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
    #define WAYPOST_COUNTS __attribute__((target_clones("popcnt", "default")))
    #define WAYPOST_ADDS __attribute__((target_clones("avx2", "default")))
    #else
    #define WAYPOST_COUNTS
    #define WAYPOST_ADDS
    #endif
    #if defined(_MSC_VER)
    #include <intrin.h>
    #define waypost_count(x) ((int)__popcnt64(x))
    #define waypost_fetch(x)
    #else
    #define waypost_count(x) __builtin_popcountll(x)
    #define waypost_fetch(x) __builtin_prefetch(x)
    #endif
    #define WAYPOST_AHEAD 12 /* vectors to prefetch */
    #define WAYPOST_FAR 128 /* codes to prefetch in a row: the hardware prefetcher stops at the end of a page */

    /* A Hamming distance of 256 becomes 0. */
    static inline uint32_t waypost_apart(const uint64_t *a, const uint64_t *b)
    {
        return (uint8_t)(waypost_count(a[0] ^ b[0]) + waypost_count(a[1] ^ b[1])
            + waypost_count(a[2] ^ b[2]) + waypost_count(a[3] ^ b[3]));
    }

    /* The Hamming distance of each of n binary codes, and a histogram. Four at a time, each with its own table, so that no
       increment waits for another. */
    WAYPOST_COUNTS
    static void waypost_compare(const uint64_t *signs, int64_t n, const uint64_t *query, uint8_t *apart, int64_t *counts)
    {
        const uint64_t one[4] = {query[0], query[1], query[2], query[3]};
        uint32_t tables[4][256] = {{0}};
        int64_t at = 0;
        for (; at + 4 <= n; at += 4) {
            const uint64_t *four = signs + 4 * at;
            uint32_t a = waypost_apart(four, one), b = waypost_apart(four + 4, one);
            uint32_t c = waypost_apart(four + 8, one), d = waypost_apart(four + 12, one);
            waypost_fetch(four + 4 * WAYPOST_FAR);
            waypost_fetch(four + 4 * WAYPOST_FAR + 8);
            apart[at] = (uint8_t)a, apart[at + 1] = (uint8_t)b, apart[at + 2] = (uint8_t)c, apart[at + 3] = (uint8_t)d;
            tables[0][a]++, tables[1][b]++, tables[2][c]++, tables[3][d]++;
        }
        for (; at < n; at++)
            tables[0][apart[at] = (uint8_t)waypost_apart(signs + 4 * at, one)]++;
        for (int number = 0; number < 256; number++)
            counts[number] += (int64_t)tables[0][number] + tables[1][number] + tables[2][number] + tables[3][number];
    }

    /* The same for scattered codes. */
    WAYPOST_COUNTS
    static void waypost_compare_at(const uint64_t *signs, const uint32_t *spots, int64_t n, const uint64_t *one,
        uint8_t *apart, int64_t *counts)
    {
        for (int64_t at = 0; at < n; at++) {
            if (at + WAYPOST_AHEAD < n)
                waypost_fetch(signs + 4 * (int64_t)spots[at + WAYPOST_AHEAD]);
            apart[at] = (uint8_t)waypost_apart(signs + 4 * (int64_t)spots[at], one);
            counts[apart[at]]++;
        }
    }

    /* The positions, from `first` on, of distances above `low` and up to `high`. May write one past the last. Most do not
       match: eight at a time are skipped. */
    static int64_t waypost_pick(const uint8_t *apart, int64_t n, int low, int high, uint32_t first, uint32_t *picked)
    {
        const uint64_t each = 0x0101010101010101u;
        unsigned from = (unsigned)(low + 1), width = (unsigned)(high - low);
        int64_t found = 0, at = 0;
        while (at < n) {
            int64_t end = at + 8 < n ? at + 8 : n;
            uint64_t eight;
            if (high < 127 && end == at + 8) {
                memcpy(&eight, apart + at, 8);
                if (!((eight - each * (unsigned)(high + 1)) & ~eight & (each << 7))) {
                    at = end;
                    continue;
                }
            }
            for (; at < end; at++) {
                picked[found] = first + (uint32_t)at;
                found += (unsigned)apart[at] - from < width;
            }
        }
        return found;
    }

    /* Add to the distance of each code the extra weight of bits far from the threshold. */
    WAYPOST_COUNTS
    static void waypost_weigh(const uint64_t *signs, const uint32_t *spots, int64_t n, const uint64_t *words, int heavier,
        uint16_t *weights)
    {
        for (int64_t at = 0; at < n; at++) {
            const uint64_t *code = signs + 4 * (int64_t)spots[at];
            int clear = 0, very = 0;
            if (at + WAYPOST_AHEAD < n)
                waypost_fetch(signs + 4 * (int64_t)spots[at + WAYPOST_AHEAD]);
            for (int word = 0; word < 4; word++) {
                uint64_t differing = code[word] ^ words[word];
                clear += waypost_count(differing & words[4 + word]);
                very += waypost_count(differing & words[8 + word]);
            }
            weights[at] = (uint16_t)(weights[at] + heavier * (clear & 0xFF) + heavier * (very & 0xFF));
        }
    }

    static inline int32_t waypost_product(const int8_t *codes, const int16_t *query, int64_t dims)
    {
        int32_t sum = 0;
        for (int64_t at = 0; at < dims; at++)
            sum += (int32_t)query[at] * (int16_t)codes[at];
        return sum;
    }

    /* Dot products of vectors with each of m queries: [n, m]. Prefetches scales and rows, which the caller reads next. */
    WAYPOST_ADDS
    static void waypost_measure(const int8_t *codes, int64_t dims, const float *scales, const uint32_t *rows,
        const uint32_t *ids, int64_t n, const int16_t *queries, int64_t m, int32_t *sums)
    {
        for (int64_t at = 0; at < n; at++) {
            const int8_t *vector = codes + dims * (int64_t)ids[at];
            if (at + WAYPOST_AHEAD < n) {
                int64_t next = ids[at + WAYPOST_AHEAD];
                waypost_fetch(scales + next);
                waypost_fetch(rows + next);
                for (int64_t line = 0; line < dims; line += 64)
                    waypost_fetch(codes + dims * next + line);
            }
            for (int64_t query = 0; query < m; query++)
                sums[m * at + query] = waypost_product(vector, queries + dims * query, dims);
        }
    }

    /* The same for all vectors and one query. */
    WAYPOST_ADDS
    static void waypost_measure_all(const int8_t *codes, int64_t dims, int64_t n, const int16_t *query, int32_t *sums)
    {
        for (int64_t at = 0; at < n; at++)
            sums[at] = waypost_product(codes + dims * at, query, dims);
    }

    /* The number of bytes that are 1 (the others are 0). */
    WAYPOST_COUNTS
    static int64_t waypost_count_mask(const uint8_t *mask, int64_t n)
    {
        int64_t seen = 0, at = 0;
        for (; at + 64 <= n; at += 64) {
            uint64_t words[8], joined = 0;
            memcpy(words, mask + at, 64);
            for (int word = 0; word < 8; word++)
                joined |= (words[word] & 0x0101010101010101u) << word;
            seen += waypost_count(joined);
        }
        for (; at < n; at++)
            seen += mask[at] & 1;
        return seen;
    }

    /* An integer key that sorts floats in descending order, NaN last. */
    static inline uint32_t waypost_descending(float figure)
    {
        union { float figure; uint32_t bits; } as;
        if (figure != figure)
            return UINT32_MAX;
        as.figure = figure + 0.0f; /* -0 is 0 */
        return as.bits & 0x80000000u ? as.bits : 0x7FFFFFFFu - as.bits;
    }
    """
    void waypost_compare(const uint64_t *, int64_t, const uint64_t *, uint8_t *, int64_t *) noexcept nogil
    void waypost_compare_at(
        const uint64_t *, const uint32_t *, int64_t, const uint64_t *, uint8_t *, int64_t *
    ) noexcept nogil
    int64_t waypost_pick(const uint8_t *, int64_t, int, int, uint32_t, uint32_t *) noexcept nogil
    void waypost_weigh(const uint64_t *, const uint32_t *, int64_t, const uint64_t *, int, uint16_t *) noexcept nogil
    void waypost_measure(
        const int8_t *, int64_t, const float *, const uint32_t *, const uint32_t *, int64_t, const int16_t *, int64_t, int32_t *
    ) noexcept nogil
    void waypost_measure_all(const int8_t *, int64_t, int64_t, const int16_t *, int32_t *) noexcept nogil
    int64_t waypost_count_mask(const uint8_t *, int64_t) noexcept nogil
    uint32_t waypost_descending(float) noexcept nogil


cdef enum:
    _WORKSPACES = 4  # kept for later queries
    _SPARE = 1 << 23  # bytes that one buffer of a workspace keeps; larger ones are rare, and freed
    _DIGIT = 11  # bits per pass of the radix sort
    _HEAVIEST = 2048  # more than any weighted distance

cdef enum Fault:
    FINE = 0
    DAMAGED = -1
    FULL = -2


cdef struct Buffer:
    void *at
    size_t size


cdef int grow(Buffer *buffer, size_t size) noexcept nogil:
    """Enlarge a buffer, keeping its content."""
    cdef void *at
    if size > buffer.size:
        size += size // 2
        at = realloc(buffer.at, size)
        if at == NULL:
            return FULL
        buffer.at, buffer.size = at, size
    return FINE


cdef void shrink(Buffer *buffer, size_t most) noexcept nogil:
    if buffer.size > most:
        free(buffer.at)
        buffer.at, buffer.size = NULL, 0


_KINDS = {
    "codes": np.int8, "scales": np.float32, "rows": np.uint32, "places": np.uint16, "lists": np.uint16, "signs": np.uint64,
    "members": np.uint32, "spots": np.uint32, "list_starts": np.uint32, "row_starts": np.uint32,
}


cdef class Workspace:
    """Buffers of one search. A deeper search for the same query finds its distances computed."""

    cdef object query, probes  # that the distances belong to
    cdef uint64_t words[12]
    cdef int64_t counts[256]  # codes by Hamming distance
    cdef Buffer flags, apart, starts, ends, often, spots, picked, other, weights, ids, sums, rows, figures
    cdef Py_ssize_t runs, total, own, chosen, found
    cdef bint is_listed  # codes by number instead of in runs
    cdef bint is_compared

    def __dealloc__(self):
        self.empty(0)

    cdef void empty(self, size_t most) noexcept nogil:
        self.is_compared = self.is_compared and self.apart.size <= most
        shrink(&self.flags, most)
        shrink(&self.apart, most)
        shrink(&self.starts, most)
        shrink(&self.ends, most)
        shrink(&self.often, most)
        shrink(&self.spots, most)
        shrink(&self.picked, most)
        shrink(&self.other, most)
        shrink(&self.weights, most)
        shrink(&self.ids, most)
        shrink(&self.sums, most)
        shrink(&self.rows, most)
        shrink(&self.figures, most)

    cdef int add_run(self, int64_t start, int64_t end) noexcept nogil:
        if grow(&self.starts, 8 * (self.runs + 1)) or grow(&self.ends, 8 * (self.runs + 1)):
            return FULL
        (<int64_t *> self.starts.at)[self.runs] = start
        (<int64_t *> self.ends.at)[self.runs] = end
        self.runs += 1
        self.total += end - start
        return FINE


ctypedef const uint32_t *U32s
ctypedef const uint16_t *U16s


cdef class IvfIndex:
    """The vectors of one block, in the arrays of its fallback."""

    cdef object _fallback, _workspaces, _arrays
    cdef const int8_t *_codes
    cdef const float *_scales
    cdef U32s _rows, _row_starts, _members, _spots, _list_starts
    cdef U16s _places, _lists
    cdef const uint64_t *_signs
    cdef const int8_t *_centres
    cdef const double *_shortening
    cdef Py_ssize_t _size, _dims, _row_count, _code_count, _spill, _list_count
    cdef Py_ssize_t _scan_rows, _measured, _shortlist, _rough
    cdef int _heavier
    cdef double _grid
    cdef bint _is_filed

    def __init__(self, fallback):
        arrays, quantizer, rules = fallback.arrays, fallback.quantizer, fallback.rules
        self._fallback, self._workspaces = fallback, []
        self._scan_rows, self._grid, self._measured = rules.scan_rows, rules.grid, rules.measured
        self._shortlist, self._rough, self._heavier = rules.shortlist, rules.rough, rules.heavier
        if not 0 <= 255 * (1 + 2 * self._heavier) < _HEAVIEST:
            raise ValueError("bits weigh too much")
        typed = {name: np.ascontiguousarray(arrays[name], kind) for name, kind in _KINDS.items()}
        typed["centres"] = np.ascontiguousarray(quantizer.codes, np.int8)
        typed["shortening"] = np.ascontiguousarray(quantizer.shortening / self._grid, np.float64)
        self._arrays = typed
        self._size, self._dims = typed["codes"].shape
        self._code_count, self._spill, self._list_count = len(typed["signs"]), typed["lists"].shape[1], len(typed["centres"])
        self._row_count, self._is_filed = len(typed["row_starts"]) - 1, len(typed["list_starts"]) > 0
        sizes = {len(typed[name]) for name in ("codes", "scales", "places", "lists", "rows", "spots")}
        if (
            len(sizes) > 1 or self._row_count < 0 or typed["members"].shape != (self._code_count,)
            or typed["signs"].shape != (self._code_count, 4) or typed["centres"].shape[1] != self._dims
            or (self._is_filed and len(typed["list_starts"]) != self._list_count + 1)
        ):
            raise ValueError("these arrays are not of one block")
        self._codes, self._centres = <const int8_t *> _memory(typed["codes"]), <const int8_t *> _memory(typed["centres"])
        self._scales, self._places = <const float *> _memory(typed["scales"]), <const uint16_t *> _memory(typed["places"])
        self._lists, self._signs = <const uint16_t *> _memory(typed["lists"]), <const uint64_t *> _memory(typed["signs"])
        self._rows, self._spots = <const uint32_t *> _memory(typed["rows"]), <const uint32_t *> _memory(typed["spots"])
        self._row_starts = <const uint32_t *> _memory(typed["row_starts"])
        self._list_starts = <const uint32_t *> _memory(typed["list_starts"])
        self._members = <const uint32_t *> _memory(typed["members"])
        self._shortening = <const double *> _memory(typed["shortening"])

    # --- Nearest rows ---

    def nearest(self, queries, mask, k, probes, spare):
        cdef const uint8_t *shown = NULL
        cdef Py_ssize_t count, wanted = k, most = k + spare
        cdef bint is_few = False, is_everywhere = probes is None
        cdef const int16_t *query
        cdef int fault
        cdef Workspace work
        steps_key = self._on_grid(queries)
        if steps_key is None or len(queries) != 1:
            return self._fallback.nearest(queries, mask, k, probes, spare)
        if mask is not None:
            mask = _ascontiguous(mask, _FLAG)
            if mask.shape != (self._row_count,):
                raise ValueError("a mask has one flag per row")
            shown = <const uint8_t *> _memory(mask)
            count = waypost_count_mask(shown, self._row_count)
            is_few = count <= self._scan_rows
            if count == self._row_count and not is_few:
                shown = NULL
        work = self._acquire(steps_key, probes)
        is_listed = is_few or not (is_everywhere or self._is_filed)
        if is_listed or work.is_listed or work.query != steps_key or work.probes != probes:
            self._prepare(work, queries, steps_key, probes, is_listed, shown)
        query = <const int16_t *> PyBytes_AS_STRING(steps_key)
        with nogil:
            fault = self._search(work, query, shown, wanted, is_everywhere)
        if fault:
            raise _raised(fault)
        answer = _in_order(work, most)
        self._release(work)
        return answer

    cdef object _on_grid(self, queries):
        """The queries in steps of the grid; None if they are not on it, or sums could be too large to be exact."""
        if queries.shape[1] != self._dims:
            return None
        queries = _ascontiguous(queries, _F32)
        cdef const float *given = <const float *> _memory(queries)
        cdef Py_ssize_t count = len(queries), at, number
        cdef float grid = <float> self._grid, step
        cdef int64_t square
        cdef int32_t whole
        made = PyBytes_FromStringAndSize(NULL, 2 * count * self._dims)
        cdef int16_t *into = <int16_t *> PyBytes_AS_STRING(made)
        for number in range(count):
            square = 0
            for at in range(self._dims):
                step = given[number * self._dims + at] * grid
                if not -32767 <= step <= 32767:
                    return None
                whole = <int32_t> step
                if <float> whole != step:
                    return None
                into[number * self._dims + at] = <int16_t> whole
                square += whole * whole
            # A sum is at most 128 * sqrt(dims) * |query|, and float32 is exact up to 2**24.
            if <double> square * self._dims > <double> (1 << 17) * (1 << 17):
                return None
        return made

    cdef Workspace _acquire(self, steps_key, probes):
        """A free workspace, preferably one of the same query."""
        cdef Workspace work
        workspaces = self._workspaces
        for at in range(len(workspaces)):
            work = workspaces[at]
            if work.query == steps_key and work.probes == probes:
                return workspaces.pop(at)
        return workspaces.pop() if workspaces else Workspace()

    cdef int _release(self, Workspace work) except -1:
        work.empty(_SPARE)
        if len(self._workspaces) < _WORKSPACES:
            self._workspaces.append(work)
        return 0

    cdef int _prepare(self, Workspace work, queries, steps_key, probes, bint is_listed, const uint8_t *shown) except -1:
        """Compute the query's binary code, and the codes to compare it with."""
        cdef int fault = FINE
        cdef const uint8_t *flags = NULL
        words = np.ascontiguousarray(self._fallback.binary_code(queries[0]).words, np.uint64)
        if words.nbytes != sizeof(work.words):
            raise ValueError("a binary code has four words")
        memcpy(work.words, _memory(words), sizeof(work.words))
        work.query, work.probes, work.is_listed, work.is_compared = None, probes, is_listed, False
        work.runs = work.total = 0
        if probes is not None:
            self._flag_closest(work, <const int16_t *> PyBytes_AS_STRING(steps_key), min(probes, self._list_count))
            flags = <const uint8_t *> work.flags.at
        if is_listed:
            fault = self._list_vectors(work, shown, flags)
        elif flags == NULL:
            fault = work.add_run(0, self._code_count)
        else:
            fault = self._add_lists(work, flags)
        if fault:
            raise _raised(fault)
        work.query = steps_key
        return 0

    cdef int _flag_closest(self, Workspace work, const int16_t *steps, Py_ssize_t probes) except -1:
        """Flag the lists to probe."""
        cdef uint8_t *flags
        cdef Py_ssize_t at
        if grow(&work.flags, self._list_count) or grow(&work.sums, 4 * self._list_count):
            raise MemoryError
        flags = <uint8_t *> work.flags.at
        memset(flags, probes == self._list_count, self._list_count)
        if probes == self._list_count or probes < 1:
            return 0
        self._choose_lists(work, steps, probes)
        for at in range(probes):
            flags[(<Py_ssize_t *> work.ids.at)[at]] = 1
        return 0

    cdef int _choose_lists(self, Workspace work, const int16_t *steps, Py_ssize_t probes) except -1:
        """Put the lists of the nearest centres into `ids`, best first; ties by number."""
        cdef int32_t *sums = <int32_t *> work.sums.at
        cdef double *best
        cdef Py_ssize_t *lists
        cdef Py_ssize_t at, place, held = 0
        cdef double figure
        if grow(&work.ids, sizeof(Py_ssize_t) * (probes + 1)) or grow(&work.figures, sizeof(double) * (probes + 1)):
            raise MemoryError
        lists, best = <Py_ssize_t *> work.ids.at, <double *> work.figures.at
        waypost_measure_all(self._centres, self._dims, self._list_count, steps, sums)
        for at in range(self._list_count):
            figure = sums[at] * self._shortening[at]
            if held == probes and figure <= best[probes - 1]:
                continue
            place = held  # one past the last, if it is full
            while place > 0 and best[place - 1] < figure:
                best[place], lists[place] = best[place - 1], lists[place - 1]
                place -= 1
            best[place], lists[place] = figure, at
            held += held < probes
        return 0

    cdef int _add_lists(self, Workspace work, const uint8_t *flags) noexcept nogil:
        cdef Py_ssize_t at
        cdef int64_t start, end
        for at in range(self._list_count):
            if flags[at]:
                start, end = self._list_starts[at], self._list_starts[at + 1]
                if not start <= end <= self._code_count:
                    return DAMAGED
                if work.add_run(start, end):
                    return FULL
        return FINE

    cdef int _list_vectors(self, Workspace work, const uint8_t *shown, const uint8_t *flags) noexcept nogil:
        """The vectors of all visible rows, each once per probed list."""
        cdef int64_t row, number, start, end, times, own = 0, often = 0, place
        cdef uint32_t *more
        cdef uint32_t *spots
        for row in range(self._row_count):
            if shown != NULL and not shown[row]:
                continue
            start, end = self._row_starts[row], self._row_starts[row + 1]
            if not start <= end <= self._size:
                return DAMAGED
            if grow(&work.often, 4 * (often + (end - start) * (self._spill + 1))):
                return FULL
            more = <uint32_t *> work.often.at
            for number in range(start, end):
                times = 1
                if flags != NULL:
                    times = 0
                    for place in range(self._spill):
                        if self._lists[number * self._spill + place] >= self._list_count:
                            return DAMAGED
                        times += flags[self._lists[number * self._spill + place]]
                own += times > 0
                for place in range(times):
                    more[often] = <uint32_t> number
                    often += 1
        if grow(&work.spots, 4 * often):
            return FULL
        spots, more = <uint32_t *> work.spots.at, <uint32_t *> work.often.at
        for number in range(often):
            spots[number] = self._spots[more[number]]
            if spots[number] >= self._code_count:
                return DAMAGED
        work.own = own
        return work.add_run(0, often)

    cdef int _search(
        self, Workspace work, const int16_t *query, const uint8_t *shown, Py_ssize_t k, bint is_everywhere
    ) noexcept nogil:
        """Find rows and similarities, ordered by row."""
        cdef Py_ssize_t size = max(self._shortlist, 2 * k)
        cdef bint is_all = False
        cdef int fault
        while True:
            fault = self._take_if_few(work, shown, size, is_everywhere, &is_all)
            if not fault and not is_all:
                fault = FINE if work.is_compared else self._compare(work)
                if not fault:
                    fault = self._choose(work, shown, size, is_everywhere)
            if not fault:
                fault = self._measure(work, query)
            if fault or work.found >= k or is_all:
                return fault
            size *= 4  # rows with many vectors filled the shortlist

    cdef int _take_if_few(
        self, Workspace work, const uint8_t *shown, Py_ssize_t size, bint is_everywhere, bint *is_all
    ) noexcept nogil:
        """Take all vectors, if there are no more than wanted."""
        cdef int fault = FINE
        if work.is_listed:
            is_all[0] = work.own <= max(size, self._measured if is_everywhere else size)
            fault = self._take_own(work) if is_all[0] else FINE
        elif is_everywhere:
            is_all[0] = self._size <= size
            fault = self._take_all(work, shown) if is_all[0] else FINE
        elif work.total <= size * self._spill:
            fault = self._take_members(work, shown)
            is_all[0] = work.chosen <= size
        return fault

    cdef int _take_own(self, Workspace work) noexcept nogil:
        """The listed vectors, each once."""
        cdef const uint32_t *often = <const uint32_t *> work.often.at
        cdef uint32_t *ids
        cdef Py_ssize_t at
        if grow(&work.ids, 4 * work.total):
            return FULL
        ids, work.chosen = <uint32_t *> work.ids.at, 0
        for at in range(work.total):
            if at == 0 or often[at] != often[at - 1]:
                ids[work.chosen] = often[at]
                work.chosen += 1
        return FINE

    cdef int _take_all(self, Workspace work, const uint8_t *shown) noexcept nogil:
        cdef Py_ssize_t number
        cdef uint32_t *ids
        if grow(&work.ids, 4 * self._size):
            return FULL
        ids, work.chosen = <uint32_t *> work.ids.at, 0
        for number in range(self._size):
            if self._rows[number] >= self._row_count:
                return DAMAGED
            if shown == NULL or shown[self._rows[number]]:
                ids[work.chosen] = <uint32_t> number
                work.chosen += 1
        return FINE

    cdef int _take_members(self, Workspace work, const uint8_t *shown) noexcept nogil:
        """The visible vectors of the lists, each once."""
        cdef Py_ssize_t run
        cdef int64_t at
        cdef uint32_t number
        cdef uint32_t *ids
        if grow(&work.ids, 4 * work.total) or grow(&work.other, 16 * work.total):
            return FULL
        ids, work.chosen = <uint32_t *> work.ids.at, 0
        for run in range(work.runs):
            for at in range((<int64_t *> work.starts.at)[run], (<int64_t *> work.ends.at)[run]):
                number = self._members[at]
                if number >= self._size or self._rows[number] >= self._row_count:
                    return DAMAGED
                if shown == NULL or shown[self._rows[number]]:
                    ids[work.chosen] = number
                    work.chosen += 1
        work.chosen = _unique(&work.other, ids, work.chosen, self._size)
        return FINE

    cdef int _compare(self, Workspace work) noexcept nogil:
        """Compute the Hamming distance of every code."""
        cdef Py_ssize_t run, done = 0
        cdef int64_t start, size
        cdef uint8_t *apart
        memset(work.counts, 0, sizeof(work.counts))
        if grow(&work.apart, work.total + 1):
            return FULL
        apart, work.is_compared = <uint8_t *> work.apart.at, True
        if work.is_listed:
            waypost_compare_at(self._signs, <uint32_t *> work.spots.at, work.total, work.words, apart, work.counts)
            return FINE
        for run in range(work.runs):
            start = (<int64_t *> work.starts.at)[run]
            size = (<int64_t *> work.ends.at)[run] - start
            waypost_compare(self._signs + 4 * start, size, work.words, apart + done, work.counts)
            done += size
        return FINE

    cdef int _choose(self, Workspace work, const uint8_t *shown, Py_ssize_t size, bint is_everywhere) noexcept nogil:
        """As `BinaryCode.nearest`."""
        cdef Py_ssize_t at, kept = 0, level = 0
        cdef int last = _HEAVIEST
        cdef uint32_t *picked
        cdef uint32_t *ids
        cdef uint16_t *weights
        cdef int fault
        if work.is_listed:
            shown = NULL  # all listed vectors are of visible rows
        elif is_everywhere and self._is_filed:
            size *= self._spill
        fault = self._pick_nearest(work, shown, self._rough * size)
        if not fault and (grow(&work.ids, 4 * work.chosen) or grow(&work.other, 16 * work.chosen)):
            fault = FULL
        if fault:
            return fault
        ids, picked, weights = <uint32_t *> work.ids.at, <uint32_t *> work.picked.at, <uint16_t *> work.weights.at
        if work.chosen > size:
            self._weigh(work)
            last = _highest_of(weights, work.chosen, size)
        for at in range(work.chosen):  # first those below the last, then those equal to it
            ids[kept] = picked[at]
            kept += weights[at] < last
        for at in range(work.chosen):
            if weights[at] == last:
                ids[kept + level] = picked[at]
                level += 1
        if self._name(work, ids, kept + level):
            return DAMAGED
        if level > size:
            level = min(_unique(&work.other, ids + kept, level, self._size), size)
        work.chosen = _unique(&work.other, ids, kept + level, self._size)
        return FINE

    cdef int _pick_nearest(self, Workspace work, const uint8_t *shown, Py_ssize_t wanted) noexcept nogil:
        """Pick the `wanted` visible codes of the smallest distance, and all with the distance of the last."""
        cdef int64_t seen[256]
        cdef int low = -1, cut, last
        cdef int64_t enough = wanted
        cdef int fault
        work.chosen = 0
        memset(seen, 0, sizeof(seen))
        while True:
            cut = max(_cut_of(work.counts, enough), low + 1)
            fault = self._pick(work, shown, low, cut, seen)
            if fault or shown == NULL or work.chosen >= wanted or cut >= 255:
                break
            low = cut
            enough = _below(work.counts, cut) * (wanted + 64) // (work.chosen + 16)  # by the share that was visible so far
        if not fault and shown != NULL:
            last = _cut_of(seen, wanted)
            if last < cut:
                _drop_farther(work, last)
        return fault

    cdef int _pick(self, Workspace work, const uint8_t *shown, int low, int high, int64_t *seen) noexcept nogil:
        """The visible codes with a distance above `low` and up to `high`."""
        cdef int64_t most = work.chosen + _below(work.counts, high) - _below(work.counts, low) + 1
        cdef const uint8_t *apart = <const uint8_t *> work.apart.at
        cdef Py_ssize_t run, at, found, first, done = 0
        cdef int64_t start, size
        cdef uint32_t number
        cdef uint32_t *picked
        cdef uint16_t *weights
        if grow(&work.picked, 4 * most) or grow(&work.weights, 2 * most):
            return FULL
        picked, weights = <uint32_t *> work.picked.at, <uint16_t *> work.weights.at
        for run in range(work.runs):
            start = (<int64_t *> work.starts.at)[run]
            size = (<int64_t *> work.ends.at)[run] - start
            first = work.chosen
            found = first + waypost_pick(apart + done, size, low, high, <uint32_t> start, picked + first)
            for at in range(first, found):
                number = picked[at]
                if shown != NULL:
                    if self._members[number] >= self._size or self._rows[self._members[number]] >= self._row_count:
                        return DAMAGED
                    if not shown[self._rows[self._members[number]]]:
                        continue
                picked[work.chosen] = number
                weights[work.chosen] = apart[done + number - start]
                seen[weights[work.chosen]] += 1
                work.chosen += 1
            done += size
        return FINE

    cdef void _weigh(self, Workspace work) noexcept nogil:
        cdef uint32_t *picked = <uint32_t *> work.picked.at
        cdef uint32_t *spots = picked
        cdef Py_ssize_t at
        if work.is_listed:
            spots = <uint32_t *> work.other.at
            for at in range(work.chosen):
                spots[at] = (<uint32_t *> work.spots.at)[picked[at]]
        waypost_weigh(self._signs, spots, work.chosen, work.words, self._heavier, <uint16_t *> work.weights.at)

    cdef int _name(self, Workspace work, uint32_t *picked, Py_ssize_t count) noexcept nogil:
        """Replace codes by their vectors."""
        cdef Py_ssize_t at
        for at in range(count):
            picked[at] = (<uint32_t *> work.often.at)[picked[at]] if work.is_listed else self._members[picked[at]]
            if picked[at] >= self._size:
                return DAMAGED
        return FINE

    cdef int _measure(self, Workspace work, const int16_t *query) noexcept nogil:
        """The rows of the chosen vectors, with the highest similarity of each."""
        cdef const uint32_t *ids = <const uint32_t *> work.ids.at
        cdef Py_ssize_t count = work.chosen, at
        cdef float step = <float> (1 / self._grid), figure
        cdef uint32_t row
        cdef uint32_t *rows
        cdef float *figures
        if grow(&work.sums, 4 * count) or grow(&work.rows, 4 * count) or grow(&work.figures, 4 * count):
            return FULL
        rows, figures, work.found = <uint32_t *> work.rows.at, <float *> work.figures.at, 0
        self._multiply(ids, count, query, 1, <int32_t *> work.sums.at)
        for at in range(count):
            row = self._rows[ids[at]]
            if row >= self._row_count:
                return DAMAGED
            figure = <float> (<int32_t *> work.sums.at)[at] * step * self._scales[ids[at]]
            if work.found and rows[work.found - 1] == row:
                figures[work.found - 1] = max(figures[work.found - 1], figure)
            else:
                rows[work.found], figures[work.found] = row, figure
                work.found += 1
        return FINE

    cdef void _multiply(
        self, const uint32_t *ids, Py_ssize_t count, const int16_t *queries, Py_ssize_t units, int32_t *sums
    ) noexcept nogil:
        waypost_measure(self._codes, self._dims, self._scales, self._rows, ids, count, queries, units, sums)

    # --- Similarities ---

    def similarities(self, rows, queries):
        steps_key = self._on_grid(queries)
        if steps_key is None:
            return self._fallback.similarities(rows, queries)
        rows = _ascontiguous(rows, _U32)
        cdef const uint32_t *given = <const uint32_t *> _memory(rows)
        cdef Py_ssize_t count = len(rows), units = len(queries), at, vectors = 0
        context, example = both = _zeros((2, count, units), _F32)
        cdef float *contexts = <float *> _memory(both)
        cdef float *examples = contexts + count * units
        cdef Workspace work = self._acquire(steps_key, None)
        cdef int32_t *sums
        cdef uint32_t number
        for at in range(count):
            vectors += self._count_of(given[at])
        if grow(&work.ids, 4 * vectors) or grow(&work.sums, 4 * vectors * units):
            raise MemoryError
        vectors = 0
        for at in range(count):
            for number in range(self._row_starts[given[at]], self._row_starts[given[at] + 1]):
                (<uint32_t *> work.ids.at)[vectors] = number
                vectors += 1
        sums = <int32_t *> work.sums.at
        self._multiply(<uint32_t *> work.ids.at, vectors, <const int16_t *> PyBytes_AS_STRING(steps_key), units, sums)
        vectors = 0
        for at in range(count):
            vectors += self._measure_row(given[at], sums + vectors * units, units, contexts + at * units, examples + at * units)
        self._release(work)
        return context, example

    cdef Py_ssize_t _count_of(self, uint32_t row) except -1:
        if row >= self._row_count or not self._row_starts[row] <= self._row_starts[row + 1] <= self._size:
            raise _raised(DAMAGED)
        return self._row_starts[row + 1] - self._row_starts[row]

    cdef Py_ssize_t _measure_row(
        self, uint32_t row, const int32_t *sums, Py_ssize_t units, float *context, float *example
    ) noexcept:
        """Similarities of one row from its products; return its number of vectors."""
        cdef float step = <float> (1 / self._grid), figure
        cdef Py_ssize_t start = self._row_starts[row], end = self._row_starts[row + 1], number, unit
        cdef bint is_first = True
        for number in range(start, end):
            for unit in range(units):
                figure = <float> sums[(number - start) * units + unit] * step * self._scales[number]
                if self._places[number] == 0:
                    context[unit] = figure
                elif is_first or figure > example[unit]:
                    example[unit] = figure
            is_first = is_first and self._places[number] == 0
        return end - start

    def best_example(self, row, queries):
        steps_key = self._on_grid(queries)
        if steps_key is None or not len(queries):
            return self._fallback.best_example(row, queries)
        cdef const int16_t *units = <const int16_t *> PyBytes_AS_STRING(steps_key)
        cdef Py_ssize_t count = len(queries), unit
        cdef uint32_t its_row = row, number
        cdef int32_t product
        cdef float step = <float> (1 / self._grid), figure, best = 0
        cdef int place = 0
        self._count_of(its_row)
        for number in range(self._row_starts[its_row], self._row_starts[its_row + 1]):
            if self._places[number] == 0:
                continue
            for unit in range(count):
                self._multiply(&number, 1, units + unit * self._dims, 1, &product)
                figure = <float> product * step * self._scales[number]
                if not place or figure > best:
                    best, place = figure, self._places[number]
        return best, place


cdef void *_memory(array) except? NULL:
    """The memory of a contiguous array, which the caller keeps alive."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    PyBuffer_Release(&view)
    return view.buf


cdef object _raised(int fault):
    return MemoryError() if fault == FULL else IndexError("the arrays of the block are damaged")


cdef int _cut_of(const int64_t *counts, int64_t wanted) noexcept nogil:
    """The smallest distance up to which there are so many codes; 255 if there are fewer."""
    cdef int64_t found = 0
    cdef int number
    for number in range(256):
        found += counts[number]
        if found >= wanted:
            return number
    return 255


cdef int64_t _below(const int64_t *counts, int high) noexcept nogil:
    """The number of codes up to a distance."""
    cdef int64_t found = 0
    cdef int number
    for number in range(high + 1):
        found += counts[number]
    return found


cdef int _highest_of(const uint16_t *weights, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
    """The weight of the last of the `size` lightest codes."""
    cdef uint32_t counts[_HEAVIEST]
    cdef Py_ssize_t at, found = 0
    cdef int weight = -1
    memset(counts, 0, sizeof(counts))
    for at in range(count):
        counts[weights[at]] += 1
    while found < size:
        weight += 1
        found += counts[weight]
    return weight


cdef void _drop_farther(Workspace work, int last) noexcept nogil:
    """Remove codes of a larger distance."""
    cdef uint32_t *picked = <uint32_t *> work.picked.at
    cdef uint16_t *weights = <uint16_t *> work.weights.at
    cdef Py_ssize_t at, kept = 0
    for at in range(work.chosen):
        picked[kept], weights[kept] = picked[at], weights[at]
        kept += weights[kept] <= last
    work.chosen = kept


cdef Py_ssize_t _unique(Buffer *other, uint32_t *ids, Py_ssize_t count, Py_ssize_t limit) noexcept nogil:
    """Sort numbers below `limit` and remove duplicates. `other` is scratch space."""
    cdef uint64_t *keys = <uint64_t *> other.at
    cdef Py_ssize_t at, kept = 0
    for at in range(count):
        keys[at] = ids[at]
    keys = _sorted(keys, keys + count, count, 0, limit)
    for at in range(count):
        if at == 0 or keys[at] != keys[at - 1]:
            ids[kept] = <uint32_t> keys[at]
            kept += 1
    return kept


cdef object _in_order(Workspace work, Py_ssize_t most):
    """The best `most` rows, best first; ties by row."""
    cdef Py_ssize_t count = work.found, at
    most = min(most, count)
    rows, figures = _empty(most, _U32), _empty(most, _F32)
    cdef uint32_t *its_rows = <uint32_t *> _memory(rows)
    cdef float *its_figures = <float *> _memory(figures)
    cdef uint64_t *keys
    if grow(&work.other, 16 * count):
        raise MemoryError
    keys = <uint64_t *> work.other.at
    for at in range(count):
        keys[at] = <uint64_t> waypost_descending((<float *> work.figures.at)[at]) << 32 | <uint64_t> at
    keys = _sorted(keys, keys + count, count, 32, ~(<uint64_t> 0))
    for at in range(most):
        its_rows[at] = (<uint32_t *> work.rows.at)[<uint32_t> keys[at]]
        its_figures[at] = (<float *> work.figures.at)[<uint32_t> keys[at]]
    return rows, figures


cdef uint64_t *_sorted(uint64_t *keys, uint64_t *other, Py_ssize_t count, int shift, uint64_t limit) noexcept nogil:
    """Stable radix sort by the bits from `shift` on, up to those of `limit`. The result is in one of the two arrays."""
    cdef uint32_t counts[1 << _DIGIT]
    cdef uint64_t *swapped
    cdef uint32_t before, here
    cdef Py_ssize_t at
    while shift < 64 and limit >> shift:
        memset(counts, 0, sizeof(counts))
        for at in range(count):
            counts[keys[at] >> shift & ((1 << _DIGIT) - 1)] += 1
        before = 0
        for at in range(1 << _DIGIT):
            here = counts[at]
            counts[at] = before
            before += here
        for at in range(count):
            other[counts[keys[at] >> shift & ((1 << _DIGIT) - 1)]] = keys[at]
            counts[keys[at] >> shift & ((1 << _DIGIT) - 1)] += 1
        swapped = keys
        keys, other = other, swapped
        shift += _DIGIT
    return keys
