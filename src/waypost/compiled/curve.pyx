# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Sums on edwards25519 for whoever verifies: s·B + h·P with multiples of both points that were computed before.

No secret ever comes here: which multiples are looked up can be seen from outside. What is asked and what follows from the
answer is in `trust/known_keys.py`. Numbers modulo p = 2^255 − 19 are five limbs of 51 bits; the law of addition is the complete
one, which has no exceptions (RFC 8032 §5.1.4).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__SIZEOF_INT128__)
    #define WAYPOST_HAS_CURVE 1
    typedef unsigned __int128 wide;
    #else   /* the module says so when it is loaded, and nobody computes with it */
    #define WAYPOST_HAS_CURVE 0
    typedef uint64_t wide;
    #endif

    #if defined(__GNUC__) && !defined(__clang__)  /* limbs go to multiplications: in wide registers they are in the wrong place */
    #pragma GCC optimize("no-tree-vectorize", "no-tree-slp-vectorize")
    #endif

    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
    #define WAYPOST_CLONES __attribute__((target_clones("bmi2", "default")))
    #define WAYPOST_INLINE static inline __attribute__((always_inline))
    #else
    #define WAYPOST_CLONES
    #define WAYPOST_INLINE static inline
    #endif

    /* --- Numbers modulo p. A product has limbs below 2^51 + 2^14; sums and differences of two products stay below
       2^53, and factors may be that large. */

    typedef struct { uint64_t v[5]; } number;
    #define LOW ((1ULL << 51) - 1)

    WAYPOST_INLINE number plus(number a, number b)
    {
        for (int at = 0; at < 5; at++) a.v[at] += b.v[at];
        return a;
    }

    /* b is a product: its limbs are below those of 2p, which keep the difference from passing below zero. */
    WAYPOST_INLINE number minus(number a, number b)
    {
        a.v[0] += 0xFFFFFFFFFFFDAULL - b.v[0];
        for (int at = 1; at < 5; at++) a.v[at] += 0xFFFFFFFFFFFFEULL - b.v[at];
        return a;
    }

    WAYPOST_INLINE number times(number a, number b)
    {
        uint64_t a0 = a.v[0], a1 = a.v[1], a2 = a.v[2], a3 = a.v[3], a4 = a.v[4];
        uint64_t b0 = b.v[0], b1 = b.v[1], b2 = b.v[2], b3 = b.v[3], b4 = b.v[4];
        uint64_t c1 = 19 * b1, c2 = 19 * b2, c3 = 19 * b3, c4 = 19 * b4;  /* 2^255 is 19 */
        wide t0 = (wide)a0 * b0 + (wide)a1 * c4 + (wide)a2 * c3 + (wide)a3 * c2 + (wide)a4 * c1;
        wide t1 = (wide)a0 * b1 + (wide)a1 * b0 + (wide)a2 * c4 + (wide)a3 * c3 + (wide)a4 * c2;
        wide t2 = (wide)a0 * b2 + (wide)a1 * b1 + (wide)a2 * b0 + (wide)a3 * c4 + (wide)a4 * c3;
        wide t3 = (wide)a0 * b3 + (wide)a1 * b2 + (wide)a2 * b1 + (wide)a3 * b0 + (wide)a4 * c4;
        wide t4 = (wide)a0 * b4 + (wide)a1 * b3 + (wide)a2 * b2 + (wide)a3 * b1 + (wide)a4 * b0;
        /* The carries of all limbs at once, twice, rather than each after the one before it. */
        uint64_t r0 = ((uint64_t)t0 & LOW) + 19 * (uint64_t)(t4 >> 51), r1 = ((uint64_t)t1 & LOW) + (uint64_t)(t0 >> 51);
        uint64_t r2 = ((uint64_t)t2 & LOW) + (uint64_t)(t1 >> 51), r3 = ((uint64_t)t3 & LOW) + (uint64_t)(t2 >> 51);
        uint64_t r4 = ((uint64_t)t4 & LOW) + (uint64_t)(t3 >> 51);
        number out = {{(r0 & LOW) + 19 * (r4 >> 51), (r1 & LOW) + (r0 >> 51), (r2 & LOW) + (r1 >> 51),
                       (r3 & LOW) + (r2 >> 51), (r4 & LOW) + (r3 >> 51)}};
        return out;
    }

    WAYPOST_INLINE number squared(number a, int often)
    {
        while (often-- > 0) a = times(a, a);
        return a;
    }

    /* a^(p − 2), which is 1 / a, by powers of 2^k − 1. */
    static number inverted(number a)
    {
        number a2 = times(a, a), a9 = times(squared(a2, 2), a), a11 = times(a9, a2);
        number ones5 = times(times(a11, a11), a9);
        number ones10 = times(squared(ones5, 5), ones5), ones20 = times(squared(ones10, 10), ones10);
        number ones40 = times(squared(ones20, 20), ones20), ones50 = times(squared(ones40, 10), ones10);
        number ones100 = times(squared(ones50, 50), ones50), ones200 = times(squared(ones100, 100), ones100);
        number ones250 = times(squared(ones200, 50), ones50);
        return times(squared(ones250, 5), a11);
    }

    static number read_number(const uint8_t *in)
    {
        uint64_t words[4];
        number out;
        for (int word = 0; word < 4; word++) {
            words[word] = 0;
            for (int at = 7; at >= 0; at--) words[word] = words[word] << 8 | in[8 * word + at];
        }
        out.v[0] = words[0] & LOW;
        out.v[1] = (words[0] >> 51 | words[1] << 13) & LOW;
        out.v[2] = (words[1] >> 38 | words[2] << 26) & LOW;
        out.v[3] = (words[2] >> 25 | words[3] << 39) & LOW;
        out.v[4] = words[3] >> 12 & LOW;
        return out;
    }

    /* The one way to write it, below p. */
    static void write_number(uint8_t *out, number a)
    {
        uint64_t carry, words[4];
        for (int turn = 0; turn < 2; turn++) {
            for (int at = 0; at < 4; at++) { a.v[at + 1] += a.v[at] >> 51; a.v[at] &= LOW; }
            a.v[0] += 19 * (a.v[4] >> 51);
            a.v[4] &= LOW;
        }
        carry = (a.v[0] + 19) >> 51;  /* whether it is p or more */
        for (int at = 1; at < 5; at++) carry = (a.v[at] + carry) >> 51;
        a.v[0] += 19 * carry;
        for (int at = 0; at < 4; at++) { a.v[at + 1] += a.v[at] >> 51; a.v[at] &= LOW; }
        a.v[4] &= LOW;
        words[0] = a.v[0] | a.v[1] << 51;
        words[1] = a.v[1] >> 13 | a.v[2] << 38;
        words[2] = a.v[2] >> 26 | a.v[3] << 25;
        words[3] = a.v[3] >> 39 | a.v[4] << 12;
        for (int word = 0; word < 4; word++)
            for (int at = 0; at < 8; at++) out[8 * word + at] = (uint8_t)(words[word] >> 8 * at);
    }

    /* --- Points */

    typedef struct { number x, y, z, t; } point;  /* x/z, y/z, and t = xy/z */
    typedef struct { number sum, difference, twice; } multiple;  /* y + x, y − x and 2dxy of a point with z = 1 */

    static const number ONE = {{1, 0, 0, 0, 0}};
    static const number TWICE_D = {{0x69B9426B2F159ULL, 0x35050762ADD7AULL, 0x3CF44C0038052ULL, 0x6738CC7407977ULL,
                                    0x2406D9DC56DFFULL}};

    WAYPOST_INLINE point with_multiple(point p, const multiple *m, int negative)
    {
        number a = times(minus(p.y, p.x), negative ? m->sum : m->difference);
        number b = times(plus(p.y, p.x), negative ? m->difference : m->sum);
        number c = times(p.t, m->twice), d = plus(p.z, p.z);
        number e = minus(b, a), h = plus(b, a), f = negative ? plus(d, c) : minus(d, c);
        number g = negative ? minus(d, c) : plus(d, c);
        point out = {times(e, f), times(g, h), times(f, g), times(e, h)};
        return out;
    }

    static point added(point p, point q)
    {
        number a = times(minus(p.y, p.x), minus(q.y, q.x)), b = times(plus(p.y, p.x), plus(q.y, q.x));
        number c = times(times(p.t, q.t), TWICE_D), d = times(plus(p.z, p.z), q.z);
        number e = minus(b, a), h = plus(b, a), f = minus(d, c), g = plus(d, c);
        point out = {times(e, f), times(g, h), times(f, g), times(e, h)};
        return out;
    }

    /* 1 / z of each, by one inversion: it costs as much as fifty additions of points. */
    static void invert_each(point *points, number *inverses, long n)
    {
        number product = ONE;
        for (long at = 0; at < n; at++) { inverses[at] = product; product = times(product, points[at].z); }
        product = inverted(product);
        for (long at = n - 1; at >= 0; at--) {
            inverses[at] = times(inverses[at], product);
            product = times(product, points[at].z);
        }
    }

    static int windows(int bits) { return (253 + bits - 1) / bits; }

    /* For each window of so many bits of a scalar: the point, twice it, … 2^(bits − 1) times it. */
    WAYPOST_CLONES
    static void tabulate(multiple *table, point *points, number *inverses, const uint8_t *x, const uint8_t *y, int bits)
    {
        long each = 1L << (bits - 1), n = each * windows(bits);
        point one = {read_number(x), read_number(y), ONE, ONE};
        one.t = times(one.x, one.y);
        for (long at = 0; at < n; at++) {
            if (at && at % each == 0) one = added(points[at - 1], points[at - 1]);
            points[at] = at % each ? added(points[at - 1], one) : one;
        }
        invert_each(points, inverses, n);
        for (long at = 0; at < n; at++) {
            number left = times(points[at].x, inverses[at]), up = times(points[at].y, inverses[at]);
            table[at].sum = times(plus(up, left), ONE);
            table[at].difference = times(minus(up, left), ONE);
            table[at].twice = times(times(left, up), TWICE_D);
        }
    }

    /* p + scalar times the point of the table. Digits go from −2^(bits − 1) + 1 to 2^(bits − 1). */
    WAYPOST_INLINE point with_times(point p, const uint8_t *scalar, const multiple *table, int bits)
    {
        uint8_t padded[36] = {0};
        int each = 1 << (bits - 1), carry = 0, count = windows(bits);
        memcpy(padded, scalar, 32);
        for (int window = 0; window < count; window++) {
            int from = window * bits, byte = from >> 3;
            int pair = padded[byte] | padded[byte + 1] << 8;
            int digit = (pair >> (from & 7) & ((1 << bits) - 1)) + carry;
            carry = digit > each;
            digit -= carry << bits;
            if (digit) p = with_multiple(p, table + window * each + (digit < 0 ? -digit : digit) - 1, digit < 0);
        }
        return p;
    }

    /* --- Scalars: modulo the order of B, 2^252 + c */

    static const uint64_t ORDER[5] = {0x5812631A5CF5D3EDULL, 0x14DEF9DEA2F79CD6ULL, 0, 0x1000000000000000ULL, 0};

    /* 64 bytes become 32, 32 bits at a time from the highest: what lies above 2^252, times c, is taken away. */
    static void reduce(uint8_t *out, const uint8_t *in)
    {
        uint64_t r[5] = {0};
        for (int word = 15; word >= 0; word--) {
            uint64_t next = (uint64_t)in[4 * word] | (uint64_t)in[4 * word + 1] << 8
                | (uint64_t)in[4 * word + 2] << 16 | (uint64_t)in[4 * word + 3] << 24;
            for (int at = 4; at > 0; at--) r[at] = r[at] << 32 | r[at - 1] >> 32;
            r[0] = r[0] << 32 | next;
            uint64_t above = r[4] << 4 | r[3] >> 60, borrow, was;
            wide low = (wide)above * ORDER[0], high = (wide)above * ORDER[1] + (uint64_t)(low >> 32 >> 32);
            uint64_t less[5] = {(uint64_t)low, (uint64_t)high, (uint64_t)(high >> 32 >> 32), 0, 0};
            r[3] &= 0x0FFFFFFFFFFFFFFFULL;
            r[4] = 0;
            borrow = 0;
            for (int at = 0; at < 5; at++) {
                was = r[at];
                r[at] = was - less[at] - borrow;
                borrow = was < less[at] || (was == less[at] && borrow);
            }
            if (borrow) {
                wide carry = 0;
                for (int at = 0; at < 5; at++) {
                    carry += (wide)r[at] + ORDER[at];
                    r[at] = (uint64_t)carry;
                    carry = carry >> 32 >> 32;
                }
            }
        }
        for (int at = 0; at < 32; at++) out[at] = (uint8_t)(r[at / 8] >> 8 * (at % 8));
    }

    /* The encodings of s·B + h·P, for n pairs of s (32 bytes, the second half of a signature) and h (64, a hash). */
    WAYPOST_CLONES
    static void sum_each(uint8_t *out, const uint8_t *const *signatures, const uint8_t *const *hashes, long n,
                         const multiple *base, int base_bits, const multiple *other, int other_bits,
                         point *sums, number *inverses)
    {
        uint8_t h[32], left[32];
        for (long at = 0; at < n; at++) {
            point sum = {{{0}}, ONE, ONE, {{0}}};
            reduce(h, hashes[at]);
            sum = with_times(sum, signatures[at] + 32, base, base_bits);
            sums[at] = with_times(sum, h, other, other_bits);
        }
        invert_each(sums, inverses, n);
        for (long at = 0; at < n; at++) {
            write_number(left, times(sums[at].x, inverses[at]));
            write_number(out + 32 * at, times(sums[at].y, inverses[at]));
            out[32 * at + 31] |= (uint8_t)(left[0] << 7);
        }
    }
    """
    ctypedef struct multiple:
        pass
    ctypedef struct point:
        pass
    ctypedef struct number:
        pass
    const int WAYPOST_HAS_CURVE
    int windows(int bits) nogil
    void tabulate(multiple *table, point *points, number *inverses, const uint8_t *x, const uint8_t *y, int bits) nogil
    void sum_each(uint8_t *out, const uint8_t *const *signatures, const uint8_t *const *hashes, long n,
                  const multiple *base, int base_bits, const multiple *other, int other_bits,
                  point *sums, number *inverses) nogil

if not WAYPOST_HAS_CURVE:
    raise ImportError("this compiler has no integers of 128 bits")

cdef class Multiples:
    """Of one point: as many for each window of `bits` bits of a scalar as one addition needs."""

    cdef multiple *table
    cdef int bits

    def __cinit__(self, bytes x, bytes y, int bits):
        if PyBytes_GET_SIZE(x) != 32 or PyBytes_GET_SIZE(y) != 32 or not 2 <= bits <= 8:
            raise ValueError("a point has two numbers of 32 bytes, a window 2 to 8 bits")
        cdef long count = windows(bits) * (1 << (bits - 1))
        cdef point *points = <point *> malloc(count * sizeof(point))
        cdef number *inverses = <number *> malloc(count * sizeof(number))
        self.table = <multiple *> malloc(count * sizeof(multiple))
        self.bits = bits
        try:
            if points == NULL or inverses == NULL or self.table == NULL:
                raise MemoryError
            tabulate(self.table, points, inverses, <uint8_t *> PyBytes_AS_STRING(x), <uint8_t *> PyBytes_AS_STRING(y), bits)
        finally:
            free(points)
            free(inverses)

    def __dealloc__(self):
        free(self.table)


def sums_each(Multiples base not None, Multiples other not None, list signatures not None, list hashes not None):
    """The encoding of s·B + h·P for each signature, whose second half is s, and each hash, which is h modulo the order."""
    cdef Py_ssize_t n = len(signatures), at
    if n != len(hashes):
        raise ValueError("as many signatures as hashes")
    out = PyBytes_FromStringAndSize(NULL, 32 * n)
    cdef uint8_t *written = <uint8_t *> PyBytes_AS_STRING(out)
    cdef const uint8_t **halves = <const uint8_t **> malloc((n + 1) * sizeof(void *))
    cdef const uint8_t **numbers = <const uint8_t **> malloc((n + 1) * sizeof(void *))
    cdef point *sums = <point *> malloc((n + 1) * sizeof(point))
    cdef number *inverses = <number *> malloc((n + 1) * sizeof(number))
    try:
        if halves == NULL or numbers == NULL or sums == NULL or inverses == NULL:
            raise MemoryError
        for at in range(n):
            halves[at] = _bytes_of(signatures[at], 64)
            numbers[at] = _bytes_of(hashes[at], 64)
            if halves[at][63] & 0xE0:
                raise ValueError("a scalar is below 2^253")
        with nogil:
            sum_each(written, halves, numbers, n, base.table, base.bits, other.table, other.bits, sums, inverses)
    finally:
        free(halves)
        free(numbers)
        free(sums)
        free(inverses)
    return [out[32 * at:32 * at + 32] for at in range(n)]


cdef const uint8_t *_bytes_of(object value, Py_ssize_t size) except NULL:
    if type(value) is not bytes or PyBytes_GET_SIZE(value) != size:
        raise ValueError("bytes of the right length are needed")
    return <const uint8_t *> PyBytes_AS_STRING(value)
