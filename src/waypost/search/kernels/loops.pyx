# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The two loops that a query spends most of its own time in. The fallback, which documents them, is `loops_fallback.py`.

Arrays may be memory maps of a file that was damaged after its check: every index is validated before use.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
    #define WAYPOST_COUNTS __attribute__((target_clones("popcnt", "default")))
    #else
    #define WAYPOST_COUNTS
    #endif
    #if defined(_MSC_VER)
    #include <intrin.h>
    #define waypost_ones(x) ((unsigned)__popcnt64(x))
    #else
    #define waypost_ones(x) ((unsigned)__builtin_popcountll(x))
    #endif

    /* The Hamming distances of n codes to a query, and a histogram. `ids` chooses the codes; NULL: the first n. */
    WAYPOST_COUNTS
    static void waypost_compare(const uint64_t *codes, int64_t words, const uint32_t *ids, int64_t n,
        const uint64_t *query, uint8_t *distances, int64_t *counts)
    {
        for (int64_t at = 0; at < n; at++) {
            const uint64_t *code = codes + words * (ids ? (int64_t)ids[at] : at);
            unsigned distance = 0;
            for (int64_t word = 0; word < words; word++)
                distance += waypost_ones(code[word] ^ query[word]);
            distances[at] = (uint8_t)(distance < 255 ? distance : 255);
            counts[distances[at]]++;
        }
    }
    """
    void waypost_compare(
        const uint64_t *, int64_t, const uint32_t *, int64_t, const uint64_t *, uint8_t *, int64_t *
    ) noexcept nogil


def add_impacts(int32_t[::1] totals, const uint32_t[::1] rows, const uint16_t[::1] impacts, int32_t weight):
    cdef Py_ssize_t at, count = rows.shape[0]
    cdef uint32_t most = 0, size = <uint32_t> totals.shape[0]
    if impacts.shape[0] != count:
        raise ValueError("there is not an impact for each row")
    with nogil:
        for at in range(count):
            most = max(most, rows[at])
    if count and most >= size:
        raise IndexError("a row is out of range")
    with nogil:
        for at in range(count):
            totals[rows[at]] += weight * (impacts[at] & 0xFF)


def hamming_distances(const uint64_t[:, ::1] codes, const uint64_t[::1] query, const uint32_t[::1] ids=None):
    cdef Py_ssize_t at, count = codes.shape[0] if ids is None else ids.shape[0], size = codes.shape[0]
    cdef const uint32_t *chosen = NULL
    if codes.shape[1] != query.shape[0]:
        raise ValueError("the query has another number of words than the codes")
    distances, counts = np.empty(count, np.uint8), np.zeros(256, np.int64)
    cdef uint8_t[::1] to = distances
    cdef int64_t[::1] histogram = counts
    if not count:
        return distances, counts
    if ids is not None:
        for at in range(count):
            if ids[at] >= <uint64_t> size:
                raise IndexError("a code is out of range")
        chosen = &ids[0]
    with nogil:
        waypost_compare(&codes[0, 0], query.shape[0], chosen, count, &query[0], &to[0], &histogram[0])
    return distances, counts
