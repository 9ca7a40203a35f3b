# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Vectors near a query: see `search/kernels/near_fallback.py` for what is looked for and why, and for the twin of each method.

A vector of a query stands on a grid of whole numbers, and so do the stored codes: their products add up to the same in any
order, here as there. Vectors that stand on no such grid are left to the twin. Arrays may be mapped files, and files may be
damaged: every number that leads somewhere is held against the size of what it leads into.
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
    #define WAYPOST_AHEAD 12 /* vectors that are fetched before they are measured */
    #define WAYPOST_FAR 128 /* sketches, where they stand side by side: a processor by itself stops at the end of a page */

    /* All 256 count as none. */
    static inline uint32_t waypost_apart(const uint64_t *a, const uint64_t *b)
    {
        return (uint8_t)(waypost_count(a[0] ^ b[0]) + waypost_count(a[1] ^ b[1])
            + waypost_count(a[2] ^ b[2]) + waypost_count(a[3] ^ b[3]));
    }

    /* How many signs differ, of each of n sketches, and how often each number came. Four at a time, each with a table of its
       own, so that none waits for another. */
    WAYPOST_COUNTS
    static void waypost_compare_each(const uint64_t *signs, int64_t n, const uint64_t *query, uint8_t *apart, int64_t *counts)
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

    /* The same where bits of whole registers are counted by one instruction. */
    #if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 9)
    #include <immintrin.h>
    #define WAYPOST_BROAD 1
    #define BROAD __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx512vpopcntdq")))
    #define COUNTED(r) _mm256_popcnt_epi64(_mm256_xor_si256(_mm256_loadu_si256(r), one))
    #define HALVES(x, y) _mm256_add_epi64(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y))
    BROAD static void waypost_compare_fours(const uint64_t *signs, int64_t n, const uint64_t *query, uint8_t *apart, int64_t *counts)
    {
        const __m256i one = _mm256_loadu_si256((const __m256i *)query);
        uint32_t tables[4][256] = {{0}};
        int64_t at = 0;
        for (; at + 4 <= n; at += 4) {
            const __m256i *four = (const __m256i *)(signs + 4 * at);
            __m256i first = HALVES(COUNTED(four), COUNTED(four + 1)), second = HALVES(COUNTED(four + 2), COUNTED(four + 3));
            __m256i sums = _mm256_add_epi64(
                _mm256_permute2x128_si256(first, second, 0x20), _mm256_permute2x128_si256(first, second, 0x31));
            uint32_t bytes = (uint32_t)_mm_cvtsi128_si32(_mm256_cvtepi64_epi8(sums));
            waypost_fetch(four + WAYPOST_FAR);
            waypost_fetch(four + WAYPOST_FAR + 2);
            memcpy(apart + at, &bytes, 4);
            tables[0][bytes & 0xFF]++, tables[1][bytes >> 8 & 0xFF]++, tables[2][bytes >> 16 & 0xFF]++, tables[3][bytes >> 24]++;
        }
        for (int number = 0; number < 256; number++)
            counts[number] += (int64_t)tables[0][number] + tables[1][number] + tables[2][number] + tables[3][number];
        waypost_compare_each(signs + 4 * at, n - at, query, apart + at, counts);
    }

    static int waypost_is_broad(void)
    {
        return __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vnni")
            && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    }
    #endif

    static int waypost_narrow = 0; /* 1: for tests, as on a lesser processor */

    static void waypost_compare(const uint64_t *signs, int64_t n, const uint64_t *query, uint8_t *apart, int64_t *counts)
    {
    #ifdef WAYPOST_BROAD
        if (!waypost_narrow && waypost_is_broad()) {
            waypost_compare_fours(signs, n, query, apart, counts);
            return;
        }
    #endif
        waypost_compare_each(signs, n, query, apart, counts);
    }

    /* The same of sketches that stand here and there. */
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

    /* Where, from `first` on, a number is above `low` and at most `high`. May write one past the last. Few are: eight at a
       time are passed over, if none of them is below 128 and at most `high`. */
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

    /* Adds to the weight of each sketch what its clear and very clear signs weigh more. */
    WAYPOST_COUNTS
    static void waypost_weigh(const uint64_t *signs, const uint32_t *spots, int64_t n, const uint64_t *words, int heavier,
        uint16_t *weights)
    {
        for (int64_t at = 0; at < n; at++) {
            const uint64_t *sketch = signs + 4 * (int64_t)spots[at];
            int clear = 0, very = 0;
            if (at + WAYPOST_AHEAD < n)
                waypost_fetch(signs + 4 * (int64_t)spots[at + WAYPOST_AHEAD]);
            for (int word = 0; word < 4; word++) {
                uint64_t differing = sketch[word] ^ words[word];
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

    #define MEASURED(product) \
        for (int64_t at = 0; at < n; at++) { \
            const int8_t *vector = codes + dims * (int64_t)ids[at]; \
            if (at + WAYPOST_AHEAD < n) { \
                int64_t next = ids[at + WAYPOST_AHEAD]; \
                waypost_fetch(scales + next); \
                waypost_fetch(rows + next); \
                for (int64_t line = 0; line < dims; line += 64) \
                    waypost_fetch(codes + dims * next + line); \
            } \
            for (int64_t query = 0; query < m; query++) \
                sums[m * at + query] = product(vector, queries + dims * query, dims); \
        }

    /* The products of some vectors with each of m queries: [n, m]. Whoever asks for them reads the scales and rows next. */
    WAYPOST_ADDS
    static void waypost_measure_each(const int8_t *codes, int64_t dims, const float *scales, const uint32_t *rows,
        const uint32_t *ids, int64_t n, const int16_t *queries, int64_t m, int32_t *sums)
    {
        MEASURED(waypost_product)
    }

    #ifdef WAYPOST_BROAD
    /* The same for vectors of 32 numbers, or a multiple: 32 of them are multiplied and added up by one instruction. */
    BROAD static int32_t waypost_broad_product(const int8_t *codes, const int16_t *query, int64_t dims)
    {
        __m512i even = _mm512_setzero_si512(), odd = even;
        int64_t at = 0;
        for (; at + 64 <= dims; at += 64) {
            __m512i low = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(codes + at)));
            __m512i high = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(codes + at + 32)));
            even = _mm512_dpwssd_epi32(even, low, _mm512_loadu_si512(query + at));
            odd = _mm512_dpwssd_epi32(odd, high, _mm512_loadu_si512(query + at + 32));
        }
        for (; at < dims; at += 32) {
            __m512i low = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(codes + at)));
            even = _mm512_dpwssd_epi32(even, low, _mm512_loadu_si512(query + at));
        }
        return _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd));
    }

    BROAD static void waypost_measure_broad(const int8_t *codes, int64_t dims, const float *scales, const uint32_t *rows,
        const uint32_t *ids, int64_t n, const int16_t *queries, int64_t m, int32_t *sums)
    {
        MEASURED(waypost_broad_product)
    }

    BROAD static void waypost_measure_all_broad(const int8_t *codes, int64_t dims, int64_t n, const int16_t *query, int32_t *sums)
    {
        for (int64_t at = 0; at < n; at++)
            sums[at] = waypost_broad_product(codes + dims * at, query, dims);
    }
    #endif

    static void waypost_measure(const int8_t *codes, int64_t dims, const float *scales, const uint32_t *rows,
        const uint32_t *ids, int64_t n, const int16_t *queries, int64_t m, int32_t *sums)
    {
    #ifdef WAYPOST_BROAD
        if (!waypost_narrow && dims % 32 == 0 && waypost_is_broad()) {
            waypost_measure_broad(codes, dims, scales, rows, ids, n, queries, m, sums);
            return;
        }
    #endif
        waypost_measure_each(codes, dims, scales, rows, ids, n, queries, m, sums);
    }

    /* The same of all vectors, with one query. */
    WAYPOST_ADDS
    static void waypost_measure_all_each(const int8_t *codes, int64_t dims, int64_t n, const int16_t *query, int32_t *sums)
    {
        for (int64_t at = 0; at < n; at++)
            sums[at] = waypost_product(codes + dims * at, query, dims);
    }

    static void waypost_measure_all(const int8_t *codes, int64_t dims, int64_t n, const int16_t *query, int32_t *sums)
    {
    #ifdef WAYPOST_BROAD
        if (!waypost_narrow && dims % 32 == 0 && waypost_is_broad()) {
            waypost_measure_all_broad(codes, dims, n, query, sums);
            return;
        }
    #endif
        waypost_measure_all_each(codes, dims, n, query, sums);
    }

    /* How many bytes are 1; the others are 0. */
    WAYPOST_COUNTS
    static int64_t waypost_seen(const uint8_t *mask, int64_t n)
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

    /* A whole number that is the lower, the higher the figure is; what is no number comes last. */
    static inline uint32_t waypost_descending(float figure)
    {
        union { float figure; uint32_t bits; } as;
        if (figure != figure)
            return UINT32_MAX;
        as.figure = figure + 0.0f; /* -0 is 0 */
        return as.bits & 0x80000000u ? as.bits : 0x7FFFFFFFu - as.bits;
    }
    """
    bint waypost_narrow
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
    int64_t waypost_seen(const uint8_t *, int64_t) noexcept nogil
    uint32_t waypost_descending(float) noexcept nogil


def narrow(bint yes):
    """For tests: whether to work as on a processor without AVX-512."""
    global waypost_narrow
    waypost_narrow = yes


cdef enum:
    _ROOMS = 4  # kept between questions: as many as ask at once, if they are few
    _SPARE = 1 << 23  # bytes that one array of a room keeps; more is rare, and given back
    _DIGIT = 11  # bits by which numbers are sorted in one pass
    _HEAVIEST = 2048  # more than any sketch weighs

cdef enum Fault:
    FINE = 0
    DAMAGED = -1
    FULL = -2


cdef struct Store:
    void *at
    size_t room


cdef int grow(Store *store, size_t size) noexcept nogil:
    """What it holds stays."""
    cdef void *at
    if size > store.room:
        size += size // 2
        at = realloc(store.at, size)
        if at == NULL:
            return FULL
        store.at, store.room = at, size
    return FINE


cdef void give_back(Store *store, size_t most) noexcept nogil:
    if store.room > most:
        free(store.at)
        store.at, store.room = NULL, 0


_KINDS = {
    "codes": np.int8, "scales": np.float32, "rows": np.uint32, "places": np.uint16, "lists": np.uint16, "signs": np.uint64,
    "members": np.uint32, "spots": np.uint32, "list_starts": np.uint32, "row_starts": np.uint32,
}


cdef class Room:
    """Where one search at a time works. The next question for the same vector, which looks deeper, finds its sketches compared."""

    cdef object asked, probes  # whose sketch this is, and which runs were looked for; None: of nobody
    cdef uint64_t words[12]
    cdef int64_t counts[256]  # how many sketches differ by so many signs
    cdef Store flags, apart, starts, ends, often, spots, picked, other, weights, ids, sums, rows, figures
    cdef Py_ssize_t runs, total, own, chosen, found
    cdef bint is_spelled_out  # sketches by number instead of in runs
    cdef bint is_compared

    def __dealloc__(self):
        self.empty(0)

    cdef void empty(self, size_t most) noexcept nogil:
        self.is_compared = self.is_compared and self.apart.room <= most
        give_back(&self.flags, most)
        give_back(&self.apart, most)
        give_back(&self.starts, most)
        give_back(&self.ends, most)
        give_back(&self.often, most)
        give_back(&self.spots, most)
        give_back(&self.picked, most)
        give_back(&self.other, most)
        give_back(&self.weights, most)
        give_back(&self.ids, most)
        give_back(&self.sums, most)
        give_back(&self.rows, most)
        give_back(&self.figures, most)

    cdef int add_run(self, int64_t start, int64_t end) noexcept nogil:
        if grow(&self.starts, 8 * (self.runs + 1)) or grow(&self.ends, 8 * (self.runs + 1)):
            return FULL
        (<int64_t *> self.starts.at)[self.runs] = start
        (<int64_t *> self.ends.at)[self.runs] = end
        self.runs += 1
        self.total += end - start
        return FINE


cdef class Near:
    """The vectors of one block. It holds the arrays of its twin."""

    cdef object _twin, _rooms, _held
    cdef const int8_t *_codes
    cdef const float *_scales
    cdef const uint32_t *_rows
    cdef const uint32_t *_row_starts
    cdef const uint16_t *_places
    cdef const uint16_t *_lists
    cdef const uint64_t *_signs
    cdef const uint32_t *_members
    cdef const uint32_t *_spots
    cdef const uint32_t *_list_starts
    cdef const int8_t *_centres
    cdef const double *_shortening
    cdef Py_ssize_t _size, _dims, _row_count, _sketches, _spill, _list_count
    cdef Py_ssize_t _scan_rows, _measured, _shortlist, _rough
    cdef int _heavier
    cdef double _grid
    cdef bint _is_filed

    def __init__(self, twin):
        arrays, landmarks, rules = twin.arrays, twin.landmarks, twin.rules
        self._twin, self._rooms = twin, []
        self._scan_rows, self._grid, self._measured = rules.scan_rows, rules.grid, rules.measured
        self._shortlist, self._rough, self._heavier = rules.shortlist, rules.rough, rules.heavier
        if not 0 <= 255 * (1 + 2 * self._heavier) < _HEAVIEST:
            raise ValueError("signs weigh too much")
        held = {name: np.ascontiguousarray(arrays[name], kind) for name, kind in _KINDS.items()}
        held["centres"] = np.ascontiguousarray(landmarks.codes, np.int8)
        held["shortening"] = np.ascontiguousarray(landmarks.shortening / self._grid, np.float64)
        self._held = held
        self._size, self._dims = held["codes"].shape
        self._sketches, self._spill, self._list_count = len(held["signs"]), held["lists"].shape[1], len(held["centres"])
        self._row_count, self._is_filed = len(held["row_starts"]) - 1, len(held["list_starts"]) > 0
        sizes = {len(held[name]) for name in ("codes", "scales", "places", "lists", "rows", "spots")}
        if (
            len(sizes) > 1 or self._row_count < 0 or held["members"].shape != (self._sketches,)
            or held["signs"].shape != (self._sketches, 4) or held["centres"].shape[1] != self._dims
            or (self._is_filed and len(held["list_starts"]) != self._list_count + 1)
        ):
            raise ValueError("these arrays are not those of one block")
        self._codes, self._centres = <const int8_t *> _memory(held["codes"]), <const int8_t *> _memory(held["centres"])
        self._scales, self._places = <const float *> _memory(held["scales"]), <const uint16_t *> _memory(held["places"])
        self._lists, self._signs = <const uint16_t *> _memory(held["lists"]), <const uint64_t *> _memory(held["signs"])
        self._rows, self._spots = <const uint32_t *> _memory(held["rows"]), <const uint32_t *> _memory(held["spots"])
        self._row_starts = <const uint32_t *> _memory(held["row_starts"])
        self._list_starts = <const uint32_t *> _memory(held["list_starts"])
        self._members = <const uint32_t *> _memory(held["members"])
        self._shortening = <const double *> _memory(held["shortening"])

    # --- Which are near --------------------------------------------------------------------------

    def nearest(self, queries, mask, k, probes, spare):
        """As its twin."""
        cdef const uint8_t *shown = NULL
        cdef Py_ssize_t count, wanted = k, most = k + spare
        cdef bint is_few = False, is_everywhere = probes is None
        cdef const int16_t *query
        cdef int fault
        cdef Room room
        asked = self._on_grid(queries)
        if asked is None or len(queries) != 1:
            return self._twin.nearest(queries, mask, k, probes, spare)
        if mask is not None:
            mask = _ascontiguous(mask, _FLAG)
            if mask.shape != (self._row_count,):
                raise ValueError("a mask has one flag for each row")
            shown = <const uint8_t *> _memory(mask)
            count = waypost_seen(shown, self._row_count)
            is_few = count <= self._scan_rows
            if count == self._row_count and not is_few:
                shown = NULL
        room = self._room_for(asked, probes)
        is_spelled_out = is_few or not (is_everywhere or self._is_filed)
        if is_spelled_out or room.is_spelled_out or room.asked != asked or room.probes != probes:
            self._prepare(room, queries, asked, probes, is_spelled_out, shown)
        query = <const int16_t *> PyBytes_AS_STRING(asked)
        with nogil:
            fault = self._search(room, query, shown, wanted, is_everywhere)
        if fault:
            raise _raised(fault)
        answer = _in_order(room, most)
        self._leave(room)
        return answer

    cdef object _on_grid(self, queries):
        """The queries in steps of the grid; None where they do not stand on it, or sums might be too large to be exact."""
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
            # A sum is at most 128 * sqrt(dims) * the length of the query, and float32 is exact up to 2**24.
            if <double> square * self._dims > <double> (1 << 17) * (1 << 17):
                return None
        return made

    cdef Room _room_for(self, asked, probes):
        """One that nobody else works in; if it can be, one that knows the question."""
        cdef Room room
        rooms = self._rooms
        for at in range(len(rooms)):
            room = rooms[at]
            if room.asked == asked and room.probes == probes:
                return rooms.pop(at)
        return rooms.pop() if rooms else Room()

    cdef int _leave(self, Room room) except -1:
        room.empty(_SPARE)
        if len(self._rooms) < _ROOMS:
            self._rooms.append(room)
        return 0

    cdef int _prepare(self, Room room, queries, asked, probes, bint is_spelled_out, const uint8_t *shown) except -1:
        """What the query's sketch is, and which sketches it is held against."""
        cdef int fault = FINE
        cdef const uint8_t *flags = NULL
        words = np.ascontiguousarray(self._twin.sketch(queries[0]).words, np.uint64)
        if words.nbytes != sizeof(room.words):
            raise ValueError("a sketch has four words")
        memcpy(room.words, _memory(words), sizeof(room.words))
        room.asked, room.probes, room.is_spelled_out, room.is_compared = None, probes, is_spelled_out, False
        room.runs = room.total = 0
        if probes is not None:
            self._flag_closest(room, <const int16_t *> PyBytes_AS_STRING(asked), min(probes, self._list_count))
            flags = <const uint8_t *> room.flags.at
        if is_spelled_out:
            fault = self._spell_out(room, shown, flags)
        elif flags == NULL:
            fault = room.add_run(0, self._sketches)
        else:
            fault = self._add_lists(room, flags)
        if fault:
            raise _raised(fault)
        room.asked = asked
        return 0

    cdef int _flag_closest(self, Room room, const int16_t *steps, Py_ssize_t probes) except -1:
        """Which lists are read."""
        cdef uint8_t *flags
        cdef Py_ssize_t at
        if grow(&room.flags, self._list_count) or grow(&room.sums, 4 * self._list_count):
            raise MemoryError
        flags = <uint8_t *> room.flags.at
        memset(flags, probes == self._list_count, self._list_count)
        if probes == self._list_count or probes < 1:
            return 0
        self._choose_lists(room, steps, probes)
        for at in range(probes):
            flags[(<Py_ssize_t *> room.ids.at)[at]] = 1
        return 0

    cdef int _choose_lists(self, Room room, const int16_t *steps, Py_ssize_t probes) except -1:
        """Puts the lists of the best centres into `ids`, best first, of equal ones the first."""
        cdef int32_t *sums = <int32_t *> room.sums.at
        cdef double *best
        cdef Py_ssize_t *lists
        cdef Py_ssize_t at, place, held = 0
        cdef double figure
        if grow(&room.ids, sizeof(Py_ssize_t) * (probes + 1)) or grow(&room.figures, sizeof(double) * (probes + 1)):
            raise MemoryError
        lists, best = <Py_ssize_t *> room.ids.at, <double *> room.figures.at
        waypost_measure_all(self._centres, self._dims, self._list_count, steps, sums)
        for at in range(self._list_count):
            figure = sums[at] * self._shortening[at]
            if held == probes and figure <= best[probes - 1]:
                continue
            place = held  # one behind the last, if all are held
            while place > 0 and best[place - 1] < figure:
                best[place], lists[place] = best[place - 1], lists[place - 1]
                place -= 1
            best[place], lists[place] = figure, at
            held += held < probes
        return 0

    cdef int _add_lists(self, Room room, const uint8_t *flags) noexcept nogil:
        cdef Py_ssize_t at
        cdef int64_t start, end
        for at in range(self._list_count):
            if flags[at]:
                start, end = self._list_starts[at], self._list_starts[at + 1]
                if not start <= end <= self._sketches:
                    return DAMAGED
                if room.add_run(start, end):
                    return FULL
        return FINE

    cdef int _spell_out(self, Room room, const uint8_t *shown, const uint8_t *flags) noexcept nogil:
        """The vectors of all rows that are shown, and each as often as one of its lists is read."""
        cdef int64_t row, number, start, end, times, own = 0, often = 0, place
        cdef uint32_t *more
        cdef uint32_t *spots
        for row in range(self._row_count):
            if shown != NULL and not shown[row]:
                continue
            start, end = self._row_starts[row], self._row_starts[row + 1]
            if not start <= end <= self._size:
                return DAMAGED
            if grow(&room.often, 4 * (often + (end - start) * (self._spill + 1))):
                return FULL
            more = <uint32_t *> room.often.at
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
        if grow(&room.spots, 4 * often):
            return FULL
        spots, more = <uint32_t *> room.spots.at, <uint32_t *> room.often.at
        for number in range(often):
            spots[number] = self._spots[more[number]]
            if spots[number] >= self._sketches:
                return DAMAGED
        room.own = own
        return room.add_run(0, often)

    cdef int _search(
        self, Room room, const int16_t *query, const uint8_t *shown, Py_ssize_t k, bint is_everywhere
    ) noexcept nogil:
        """The rows and their figures, by row."""
        cdef Py_ssize_t size = max(self._shortlist, 2 * k)
        cdef bint is_all = False
        cdef int fault
        while True:
            fault = self._take_if_few(room, shown, size, is_everywhere, &is_all)
            if not fault and not is_all:
                fault = FINE if room.is_compared else self._compare(room)
                if not fault:
                    fault = self._choose(room, shown, size, is_everywhere)
            if not fault:
                fault = self._measure(room, query)
            if fault or room.found >= k or is_all:
                return fault
            size *= 4  # few rows with many vectors each filled the list

    cdef int _take_if_few(
        self, Room room, const uint8_t *shown, Py_ssize_t size, bint is_everywhere, bint *is_all
    ) noexcept nogil:
        """Takes all there are, where no more than wanted."""
        cdef int fault = FINE
        if room.is_spelled_out:
            is_all[0] = room.own <= max(size, self._measured if is_everywhere else size)
            fault = self._take_own(room) if is_all[0] else FINE
        elif is_everywhere:
            is_all[0] = self._size <= size
            fault = self._take_all(room, shown) if is_all[0] else FINE
        elif room.total <= size * self._spill:
            fault = self._take_members(room, shown)
            is_all[0] = room.chosen <= size
        return fault

    cdef int _take_own(self, Room room) noexcept nogil:
        """Those that were spelled out, each once."""
        cdef const uint32_t *often = <const uint32_t *> room.often.at
        cdef uint32_t *ids
        cdef Py_ssize_t at
        if grow(&room.ids, 4 * room.total):
            return FULL
        ids, room.chosen = <uint32_t *> room.ids.at, 0
        for at in range(room.total):
            if at == 0 or often[at] != often[at - 1]:
                ids[room.chosen] = often[at]
                room.chosen += 1
        return FINE

    cdef int _take_all(self, Room room, const uint8_t *shown) noexcept nogil:
        cdef Py_ssize_t number
        cdef uint32_t *ids
        if grow(&room.ids, 4 * self._size):
            return FULL
        ids, room.chosen = <uint32_t *> room.ids.at, 0
        for number in range(self._size):
            if self._rows[number] >= self._row_count:
                return DAMAGED
            if shown == NULL or shown[self._rows[number]]:
                ids[room.chosen] = <uint32_t> number
                room.chosen += 1
        return FINE

    cdef int _take_members(self, Room room, const uint8_t *shown) noexcept nogil:
        """All that are shown of the lists, each once."""
        cdef Py_ssize_t run
        cdef int64_t at
        cdef uint32_t number
        cdef uint32_t *ids
        if grow(&room.ids, 4 * room.total) or grow(&room.other, 16 * room.total):
            return FULL
        ids, room.chosen = <uint32_t *> room.ids.at, 0
        for run in range(room.runs):
            for at in range((<int64_t *> room.starts.at)[run], (<int64_t *> room.ends.at)[run]):
                number = self._members[at]
                if number >= self._size or self._rows[number] >= self._row_count:
                    return DAMAGED
                if shown == NULL or shown[self._rows[number]]:
                    ids[room.chosen] = number
                    room.chosen += 1
        room.chosen = _once(&room.other, ids, room.chosen, self._size)
        return FINE

    cdef int _compare(self, Room room) noexcept nogil:
        """How many signs differ, of every sketch."""
        cdef Py_ssize_t run, done = 0
        cdef int64_t start, size
        cdef uint8_t *apart
        memset(room.counts, 0, sizeof(room.counts))
        if grow(&room.apart, room.total + 1):
            return FULL
        apart, room.is_compared = <uint8_t *> room.apart.at, True
        if room.is_spelled_out:
            waypost_compare_at(self._signs, <uint32_t *> room.spots.at, room.total, room.words, apart, room.counts)
            return FINE
        for run in range(room.runs):
            start = (<int64_t *> room.starts.at)[run]
            size = (<int64_t *> room.ends.at)[run] - start
            waypost_compare(self._signs + 4 * start, size, room.words, apart + done, room.counts)
            done += size
        return FINE

    cdef int _choose(self, Room room, const uint8_t *shown, Py_ssize_t size, bint is_everywhere) noexcept nogil:
        """As `Sketch.nearest`."""
        cdef Py_ssize_t at, kept = 0, level = 0
        cdef int last = _HEAVIEST
        cdef uint32_t *picked
        cdef uint32_t *ids
        cdef uint16_t *weights
        cdef int fault
        if room.is_spelled_out:
            shown = NULL  # they are all of rows that are shown
        elif is_everywhere and self._is_filed:
            size *= self._spill
        fault = self._least_seen(room, shown, self._rough * size)
        if not fault and (grow(&room.ids, 4 * room.chosen) or grow(&room.other, 16 * room.chosen)):
            fault = FULL
        if fault:
            return fault
        ids, picked, weights = <uint32_t *> room.ids.at, <uint32_t *> room.picked.at, <uint16_t *> room.weights.at
        if room.chosen > size:
            self._weigh(room)
            last = _highest_of(weights, room.chosen, size)
        for at in range(room.chosen):  # those below the last first, then those that weigh as much
            ids[kept] = picked[at]
            kept += weights[at] < last
        for at in range(room.chosen):
            if weights[at] == last:
                ids[kept + level] = picked[at]
                level += 1
        if self._name(room, ids, kept + level):
            return DAMAGED
        if level > size:
            level = min(_once(&room.other, ids + kept, level, self._size), size)
        room.chosen = _once(&room.other, ids, kept + level, self._size)
        return FINE

    cdef int _least_seen(self, Room room, const uint8_t *shown, Py_ssize_t wanted) noexcept nogil:
        """Picks the `wanted` sketches of the least differences among those shown, and those that differ as little as the last."""
        cdef int64_t seen[256]
        cdef int low = -1, cut, last
        cdef int64_t enough = wanted
        cdef int fault
        room.chosen = 0
        memset(seen, 0, sizeof(seen))
        while True:
            cut = max(_cut_of(room.counts, enough), low + 1)
            fault = self._pick(room, shown, low, cut, seen)
            if fault or shown == NULL or room.chosen >= wanted or cut >= 255:
                break
            low = cut
            enough = _below(room.counts, cut) * (wanted + 64) // (room.chosen + 16)  # as many of them as were seen so far
        if not fault and shown != NULL:
            last = _cut_of(seen, wanted)
            if last < cut:
                _leave_out(room, last)
        return fault

    cdef int _pick(self, Room room, const uint8_t *shown, int low, int high, int64_t *seen) noexcept nogil:
        """Those that are shown and differ by more than `low` signs and at most `high`."""
        cdef int64_t most = room.chosen + _below(room.counts, high) - _below(room.counts, low) + 1
        cdef const uint8_t *apart = <const uint8_t *> room.apart.at
        cdef Py_ssize_t run, at, found, first, done = 0
        cdef int64_t start, size
        cdef uint32_t number
        cdef uint32_t *picked
        cdef uint16_t *weights
        if grow(&room.picked, 4 * most) or grow(&room.weights, 2 * most):
            return FULL
        picked, weights = <uint32_t *> room.picked.at, <uint16_t *> room.weights.at
        for run in range(room.runs):
            start = (<int64_t *> room.starts.at)[run]
            size = (<int64_t *> room.ends.at)[run] - start
            first = room.chosen
            found = first + waypost_pick(apart + done, size, low, high, <uint32_t> start, picked + first)
            for at in range(first, found):
                number = picked[at]
                if shown != NULL:
                    if self._members[number] >= self._size or self._rows[self._members[number]] >= self._row_count:
                        return DAMAGED
                    if not shown[self._rows[self._members[number]]]:
                        continue
                picked[room.chosen] = number
                weights[room.chosen] = apart[done + number - start]
                seen[weights[room.chosen]] += 1
                room.chosen += 1
            done += size
        return FINE

    cdef void _weigh(self, Room room) noexcept nogil:
        cdef uint32_t *picked = <uint32_t *> room.picked.at
        cdef uint32_t *spots = picked
        cdef Py_ssize_t at
        if room.is_spelled_out:
            spots = <uint32_t *> room.other.at
            for at in range(room.chosen):
                spots[at] = (<uint32_t *> room.spots.at)[picked[at]]
        waypost_weigh(self._signs, spots, room.chosen, room.words, self._heavier, <uint16_t *> room.weights.at)

    cdef int _name(self, Room room, uint32_t *picked, Py_ssize_t count) noexcept nogil:
        """Whose sketches these are, in their place."""
        cdef Py_ssize_t at
        for at in range(count):
            picked[at] = (<uint32_t *> room.often.at)[picked[at]] if room.is_spelled_out else self._members[picked[at]]
            if picked[at] >= self._size:
                return DAMAGED
        return FINE

    cdef int _measure(self, Room room, const int16_t *query) noexcept nogil:
        """The rows of the chosen vectors, and the highest similarity of each."""
        cdef const uint32_t *ids = <const uint32_t *> room.ids.at
        cdef Py_ssize_t count = room.chosen, at
        cdef float step = <float> (1 / self._grid), figure
        cdef uint32_t row
        cdef uint32_t *rows
        cdef float *figures
        if grow(&room.sums, 4 * count) or grow(&room.rows, 4 * count) or grow(&room.figures, 4 * count):
            return FULL
        rows, figures, room.found = <uint32_t *> room.rows.at, <float *> room.figures.at, 0
        self._multiply(ids, count, query, 1, <int32_t *> room.sums.at)
        for at in range(count):
            row = self._rows[ids[at]]
            if row >= self._row_count:
                return DAMAGED
            figure = <float> (<int32_t *> room.sums.at)[at] * step * self._scales[ids[at]]
            if room.found and rows[room.found - 1] == row:
                figures[room.found - 1] = max(figures[room.found - 1], figure)
            else:
                rows[room.found], figures[room.found] = row, figure
                room.found += 1
        return FINE

    cdef void _multiply(
        self, const uint32_t *ids, Py_ssize_t count, const int16_t *queries, Py_ssize_t units, int32_t *sums
    ) noexcept nogil:
        waypost_measure(self._codes, self._dims, self._scales, self._rows, ids, count, queries, units, sums)

    # --- How near they are -----------------------------------------------------------------------

    def similarities(self, rows, queries):
        """As its twin."""
        asked = self._on_grid(queries)
        if asked is None:
            return self._twin.similarities(rows, queries)
        rows = _ascontiguous(rows, _U32)
        cdef const uint32_t *given = <const uint32_t *> _memory(rows)
        cdef Py_ssize_t count = len(rows), units = len(queries), at, vectors = 0
        context, example = both = _zeros((2, count, units), _F32)
        cdef float *contexts = <float *> _memory(both)
        cdef float *examples = contexts + count * units
        cdef Room room = self._room_for(asked, None)
        cdef int32_t *sums
        cdef uint32_t number
        for at in range(count):
            vectors += self._count_of(given[at])
        if grow(&room.ids, 4 * vectors) or grow(&room.sums, 4 * vectors * units):
            raise MemoryError
        vectors = 0
        for at in range(count):
            for number in range(self._row_starts[given[at]], self._row_starts[given[at] + 1]):
                (<uint32_t *> room.ids.at)[vectors] = number
                vectors += 1
        sums = <int32_t *> room.sums.at
        self._multiply(<uint32_t *> room.ids.at, vectors, <const int16_t *> PyBytes_AS_STRING(asked), units, sums)
        vectors = 0
        for at in range(count):
            vectors += self._tell(given[at], sums + vectors * units, units, contexts + at * units, examples + at * units)
        self._leave(room)
        return context, example

    cdef Py_ssize_t _count_of(self, uint32_t row) except -1:
        if row >= self._row_count or not self._row_starts[row] <= self._row_starts[row + 1] <= self._size:
            raise _raised(DAMAGED)
        return self._row_starts[row + 1] - self._row_starts[row]

    cdef Py_ssize_t _tell(
        self, uint32_t row, const int32_t *sums, Py_ssize_t units, float *context, float *example
    ) noexcept:
        """Of one row, by its products with every unit; how many vectors it has."""
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
        """As its twin."""
        asked = self._on_grid(queries)
        if asked is None or not len(queries):
            return self._twin.best_example(row, queries)
        cdef const int16_t *units = <const int16_t *> PyBytes_AS_STRING(asked)
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
    """Where an array that somebody holds, and that is in one piece, begins."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    PyBuffer_Release(&view)
    return view.buf


cdef object _raised(int fault):
    return MemoryError() if fault == FULL else IndexError("the arrays of a block do not fit each other")


cdef int _cut_of(const int64_t *counts, int64_t wanted) noexcept nogil:
    """The least number of differences up to which so many are found; 255 where there are fewer."""
    cdef int64_t found = 0
    cdef int number
    for number in range(256):
        found += counts[number]
        if found >= wanted:
            return number
    return 255


cdef int64_t _below(const int64_t *counts, int high) noexcept nogil:
    """How many differ by so many or fewer."""
    cdef int64_t found = 0
    cdef int number
    for number in range(high + 1):
        found += counts[number]
    return found


cdef int _highest_of(const uint16_t *weights, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
    """The weight of the last of the `size` lightest."""
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


cdef void _leave_out(Room room, int last) noexcept nogil:
    """Those that differ by more."""
    cdef uint32_t *picked = <uint32_t *> room.picked.at
    cdef uint16_t *weights = <uint16_t *> room.weights.at
    cdef Py_ssize_t at, kept = 0
    for at in range(room.chosen):
        picked[kept], weights[kept] = picked[at], weights[at]
        kept += weights[kept] <= last
    room.chosen = kept


cdef Py_ssize_t _once(Store *other, uint32_t *ids, Py_ssize_t count, Py_ssize_t limit) noexcept nogil:
    """Puts numbers below `limit` in order, and keeps each once. `other` has room to sort in."""
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


cdef object _in_order(Room room, Py_ssize_t most):
    """The best `most`, best first; of equal ones the lower row, which comes first as they are."""
    cdef Py_ssize_t count = room.found, at
    most = min(most, count)
    rows, figures = _empty(most, _U32), _empty(most, _F32)
    cdef uint32_t *its_rows = <uint32_t *> _memory(rows)
    cdef float *its_figures = <float *> _memory(figures)
    cdef uint64_t *keys
    if grow(&room.other, 16 * count):
        raise MemoryError
    keys = <uint64_t *> room.other.at
    for at in range(count):
        keys[at] = <uint64_t> waypost_descending((<float *> room.figures.at)[at]) << 32 | <uint64_t> at
    keys = _sorted(keys, keys + count, count, 32, ~(<uint64_t> 0))
    for at in range(most):
        its_rows[at] = (<uint32_t *> room.rows.at)[<uint32_t> keys[at]]
        its_figures[at] = (<float *> room.figures.at)[<uint32_t> keys[at]]
    return rows, figures


cdef uint64_t *_sorted(uint64_t *keys, uint64_t *other, Py_ssize_t count, int shift, uint64_t limit) noexcept nogil:
    """By the bits from `shift` on, up to those of `limit`, digit by digit; equal ones stay as they stand. In one of the two."""
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
