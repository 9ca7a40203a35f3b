# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Fingerprints compared: see `search/clusters.py` for what they mean, and for the twin of each function."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

cdef extern from *:
    """
    #if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
    #define WAYPOST_CLONES __attribute__((target_clones("popcnt", "default")))
    #else
    #define WAYPOST_CLONES
    #endif
    #include <stdint.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    #define waypost_count(x) ((int)__popcnt64(x))
    #else
    #define waypost_count(x) __builtin_popcountll(x)
    #endif

    /* Which of n records of four words differ from one in few enough bits; what says nothing is near nothing. */
    WAYPOST_CLONES
    static void waypost_near(const uint64_t *all, long n, const uint64_t *one, uint8_t *near)
    {
        const uint64_t low = 0xFF, bits = ~low;
        int allowed = (int)(one[3] & low);
        for (long at = 0; at < n; at++) {
            const uint64_t *other = all + 4 * at;
            int theirs = (int)(other[3] & low);
            int apart = waypost_count(one[0] ^ other[0]) + waypost_count(one[1] ^ other[1])
                + waypost_count(one[2] ^ other[2]) + waypost_count((one[3] ^ other[3]) & bits);
            int says = (other[0] | other[1] | other[2] | (other[3] & bits)) != 0;
            near[at] = (uint8_t)(says & (apart <= (theirs < allowed ? theirs : allowed)));
        }
    }
    """
    void waypost_near(const uint64_t *records, long n, const uint64_t *one, uint8_t *near) nogil


def near_each(const uint64_t[:, ::1] fingerprints, const Py_ssize_t[::1] places):
    """For each place, one byte a record: whether it says the same. Everybody is near itself."""
    cdef Py_ssize_t n = fingerprints.shape[0], m = places.shape[0], at, place
    if n and fingerprints.shape[1] != 4:
        raise ValueError("a fingerprint has four words")
    out = PyBytes_FromStringAndSize(NULL, n * m)
    cdef uint8_t *near = <uint8_t *> PyBytes_AS_STRING(out)
    for at in range(m):
        place = places[at]
        if not 0 <= place < n:
            raise IndexError("no such record")
        waypost_near(&fingerprints[0, 0], n, &fingerprints[place, 0], near + at * n)
        near[at * n + place] = 1
    return out
