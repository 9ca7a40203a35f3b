# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The layers of the Universal Sentence Encoder and the sums of token vectors. The fallback, which documents each step, is
`embedders/network_fallback.py`; floats are added in the same order."""

import numpy as np

from libc.math cimport sqrtf
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
    #define WAYPOST_CLONES __attribute__((target_clones("avx2", "default")))
    #else
    #define WAYPOST_CLONES
    #endif
    #if defined(__GNUC__)
    #define waypost_fetch(x) __builtin_prefetch(x)
    #else
    #define waypost_fetch(x)
    #endif
    #define LANES 16
    #define PANEL 16

    /* Quantized matrix product: m rows (row i begins at rows + at[i]) times n columns of k numbers, scaled by `steps` per
       column and `worth` per row. Columns are packed by `use_model.pack_panels`: sixteen side by side, two numbers of each
       at a time, so that one instruction multiplies two numbers of a row with eight columns. Weights are read once, in
       order, and prefetched. */
    #if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
    #include <immintrin.h>
    #define WAYPOST_AVX2 1
    #define AHEAD 2048 /* numbers to prefetch for few rows */

    /* In assembly, because the compiler spills the sums. */
    #define ADDED(sum, some) __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(some))
    #define BEGUN(i) __m256i s##i = _mm256_setzero_si256(), t##i = s##i; const int16_t *r##i = rows + at[i];
    #define TAKEN(i) { \
        int32_t two; __builtin_memcpy(&two, r##i + x, 4); \
        __m256i both = _mm256_set1_epi32(two); \
        ADDED(s##i, _mm256_madd_epi16(both, a)); ADDED(t##i, _mm256_madd_epi16(both, b)); }
    #define ENDED(i) { \
        __m256 one = _mm256_set1_ps(worth[i]); float *to = out + i * out_step; \
        _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(s##i), _mm256_loadu_ps(steps)), one)); \
        _mm256_storeu_ps(to + 8, _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(t##i), _mm256_loadu_ps(steps + 8)), one)); }
    #define FOR1(D) D(0)
    #define FOR2(D) FOR1(D) D(1)
    #define FOR3(D) FOR2(D) D(2)
    #define FOR4(D) FOR3(D) D(3)
    #define FOR5(D) FOR4(D) D(4)
    #define FOR6(D) FOR5(D) D(5)
    #define BLOCK(R) \
        __attribute__((target("avx2"))) static void waypost_block##R( \
            const int16_t *rows, const long *at, const int16_t *w, long k, const int16_t *next, const float *steps, \
            const float *worth, float *out, long out_step) \
        { \
            FOR##R(BEGUN) \
            for (long x = 0; x < k; x += 2) { \
                __m256i a = _mm256_loadu_si256((const __m256i *)(w + x * PANEL)); \
                __m256i b = _mm256_loadu_si256((const __m256i *)(w + x * PANEL + 16)); \
                if (next) waypost_fetch(next + x * PANEL); \
                FOR##R(TAKEN) \
            } \
            FOR##R(ENDED) \
        }
    BLOCK(1) BLOCK(2) BLOCK(3) BLOCK(4) BLOCK(5) BLOCK(6)

    static void waypost_products_avx2(const int16_t *rows, const long *at, long m, const int16_t *w, long k, long n,
                                      const float *steps, const float *worth, float *out, long out_step)
    {
        for (long j = 0; j < n; j += PANEL, w += k * PANEL) {
            const int16_t *next = w + (m > 6 ? k * PANEL : AHEAD);
            for (long i = 0, some; i < m; i += some, next = 0) {
                some = m - i == 7 ? 4 : m - i < 6 ? m - i : 6;
                float *to = out + i * out_step + j;
                switch (some) {
                    #define CASE(R) case R: waypost_block##R(rows, at + i, w, k, next, steps + j, worth + i, to, out_step); break;
                    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
                }
            }
        }
    }

    /* The same with AVX-512 VNNI: one instruction for all sixteen columns. With few rows, each has several accumulators, so
       that no addition waits for the one before. */
    #if defined(__clang__) || __GNUC__ >= 9
    #define WAYPOST_VNNI 1
    #define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
    #define BROAD 12 /* accumulators */

    WIDE static inline __attribute__((always_inline)) void waypost_broad(
        const int r, const int parts, const int16_t *rows, const long *at, const int16_t *w, long k, const int16_t *next,
        const float *steps, const float *worth, float *out, long out_step)
    {
        __m512i sums[BROAD];
        for (int i = 0; i < r * parts; i++) sums[i] = _mm512_setzero_si512();
        for (long x = 0; x < k; x += 2 * parts)
            for (int p = 0; p < parts; p++) {
                __m512i some = _mm512_loadu_si512(w + (x + 2 * p) * PANEL);
                if (next) waypost_fetch(next + (x + 2 * p) * PANEL);
                for (int i = 0; i < r; i++) {
                    int32_t two;
                    __builtin_memcpy(&two, rows + at[i] + x + 2 * p, 4);
                    sums[i * parts + p] = _mm512_dpwssd_epi32(sums[i * parts + p], some, _mm512_set1_epi32(two));
                }
            }
        for (int i = 0; i < r; i++) {
            for (int p = 1; p < parts; p++) sums[i * parts] = _mm512_add_epi32(sums[i * parts], sums[i * parts + p]);
            __m512 found = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[i * parts]), _mm512_loadu_ps(steps));
            _mm512_storeu_ps(out + i * out_step, _mm512_mul_ps(found, _mm512_set1_ps(worth[i])));
        }
    }

    WIDE static void waypost_products_vnni(const int16_t *rows, const long *at, long m, const int16_t *w, long k, long n,
                                           const float *steps, const float *worth, float *out, long out_step)
    {
        long blocks = (m + BROAD - 1) / BROAD, most = blocks ? (m + blocks - 1) / blocks : 0;
        for (long j = 0; j < n; j += PANEL, w += k * PANEL) {
            const int16_t *next = w + (m > 6 ? k * PANEL : AHEAD);
            for (long i = 0, some; i < m; i += some, next = 0) {
                some = m - i < most ? m - i : most;
                switch (some) {
                    #define BROAD_CASE(R, PARTS) case R: \
                        waypost_broad(R, PARTS, rows, at + i, w, k, next, steps + j, worth + i, out + i * out_step + j, out_step); \
                        break;
                    BROAD_CASE(1, 8) BROAD_CASE(2, 4) BROAD_CASE(3, 4) BROAD_CASE(4, 2) BROAD_CASE(5, 2) BROAD_CASE(6, 2)
                    BROAD_CASE(7, 1) BROAD_CASE(8, 1) BROAD_CASE(9, 1) BROAD_CASE(10, 1) BROAD_CASE(11, 1) BROAD_CASE(12, 1)
                }
            }
        }
    }
    #endif
    #endif

    WAYPOST_CLONES
    static void waypost_products_plain(const int16_t *rows, const long *at, long m, const int16_t *w, long k, long n,
                                       const float *steps, const float *worth, float *out, long out_step)
    {
        for (long j = 0; j < n; j += PANEL, w += k * PANEL)
            for (long i = 0; i < m; i++) {
                const int16_t *row = rows + at[i];
                float *to = out + i * out_step + j;
                int32_t sums[PANEL] = {0};
                for (long x = 0; x < k; x += 2) {
                    const int16_t *two = w + x * PANEL;
                    for (int c = 0; c < PANEL; c++)
                        sums[c] += (int32_t)row[x] * two[2 * c] + (int32_t)row[x + 1] * two[2 * c + 1];
                }
                for (int c = 0; c < PANEL; c++) to[c] = (float)sums[c] * steps[j + c] * worth[i];
            }
    }

    static int waypost_level = 2; /* of the variants below; tests set less */

    static void waypost_products(const int16_t *rows, const long *at, long m, const int16_t *w, long k, long n,
                                 const float *steps, const float *worth, float *out, long out_step)
    {
    #ifdef WAYPOST_VNNI
        if (waypost_level >= 2 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) {
            waypost_products_vnni(rows, at, m, w, k, n, steps, worth, out, out_step);
            return;
        }
    #endif
    #ifdef WAYPOST_AVX2
        if (waypost_level >= 1 && __builtin_cpu_supports("avx2")) {
            waypost_products_avx2(rows, at, m, w, k, n, steps, worth, out, out_step);
            return;
        }
    #endif
        waypost_products_plain(rows, at, m, w, k, n, steps, worth, out, out_step);
    }

    /* The largest absolute value. */
    WAYPOST_CLONES
    static float waypost_highest(const float *x, long n)
    {
        float lanes[LANES] = {0}, highest = 0;
        for (long i = 0; i < n; i += LANES)
            for (int l = 0; l < LANES; l++) {
                float size = x[i + l] < 0 ? -x[i + l] : x[i + l];
                lanes[l] = size > lanes[l] ? size : lanes[l];
            }
        for (int l = 0; l < LANES; l++) highest = lanes[l] > highest ? lanes[l] : highest;
        return highest;
    }

    /* Round half to even, by adding and subtracting 1.5 * 2^23. */
    WAYPOST_CLONES
    static void waypost_quantize(const float *x, long n, float inverse, int16_t *out)
    {
        const float shift = 12582912.0f; /* 1.5 * 2^23 */
        for (long i = 0; i < n; i++) {
            float shifted = x[i] * inverse + shift;
            out[i] = (int16_t)(int32_t)(shifted - shift);
        }
    }

    static inline float waypost_folded(float *lanes)
    {
        for (int half = LANES / 2; half; half /= 2)
            for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
        return lanes[0];
    }

    WAYPOST_CLONES
    static float waypost_sum(const float *x, long n)
    {
        float lanes[LANES];
        for (int l = 0; l < LANES; l++) lanes[l] = x[l];
        for (long i = LANES; i < n; i += LANES)
            for (int l = 0; l < LANES; l++) lanes[l] += x[i + l];
        return waypost_folded(lanes);
    }

    WAYPOST_CLONES
    static float waypost_squares(const float *x, long n)
    {
        float lanes[LANES];
        for (int l = 0; l < LANES; l++) lanes[l] = x[l] * x[l];
        for (long i = LANES; i < n; i += LANES)
            for (int l = 0; l < LANES; l++) lanes[l] += x[i + l] * x[i + l];
        return waypost_folded(lanes);
    }

    WAYPOST_CLONES
    static void waypost_shift(float *x, const float *y, float factor, long n)
    {
        for (long j = 0; j < n; j++) x[j] += factor * y[j];
    }

    WAYPOST_CLONES
    static void waypost_normal(float *x, long n, float mean, float epsilon, const float *gain, const float *bias)
    {
        for (long j = 0; j < n; j++) x[j] -= mean;
        float inverse = 1.0f / __builtin_sqrtf(waypost_squares(x, n) / (float)n + epsilon);
        for (long j = 0; j < n; j++) x[j] = x[j] * inverse * gain[j] + bias[j];
    }

    WAYPOST_CLONES
    static void waypost_add(float *x, const float *y, long n)
    {
        for (long j = 0; j < n; j++) x[j] += y[j];
    }

    /* max(x + bias, 0) + residual */
    #define RELU(NAME, TYPE, RESIDUAL, ...) \
        WAYPOST_CLONES static void NAME(float *x, const float *bias, const TYPE *residual, __VA_ARGS__) \
        { \
            for (long j = 0; j < n; j++) { \
                float sum = x[j] + bias[j]; \
                x[j] = (sum > 0 ? sum : 0) + RESIDUAL; \
            } \
        }
    RELU(waypost_relu, float, residual[j], long n)
    RELU(waypost_relu_quantized, int16_t, (float)residual[j] * step, float step, long n)

    /* The hyperbolic tangent to about 4e-7, as in the fallback. */
    WAYPOST_CLONES
    static void waypost_tanh(float *x, long n, const float *over, const float *under)
    {
        for (long j = 0; j < n; j++) {
            float y = x[j] < -over[7] ? -over[7] : x[j] > over[7] ? over[7] : x[j], z = y * y;
            float p = over[0] * z + over[1], q = under[0] * z + under[1];
            for (int i = 2; i < 7; i++) p = p * z + over[i];
            for (int i = 2; i < 4; i++) q = q * z + under[i];
            x[j] = y * p / q;
        }
    }

    WAYPOST_CLONES
    static void waypost_positive(float *x, long n)
    {
        for (long j = 0; j < n; j++) x[j] = x[j] > 0 ? x[j] : 0;
    }

    /* Sum and sum of squares. */
    WAYPOST_CLONES
    static void waypost_bytes(const uint8_t *x, long n, double *sum, double *squares)
    {
        int32_t one = 0, two = 0;
        for (long j = 0; j < n; j++) { one += x[j]; two += (int32_t)x[j] * x[j]; }
        *sum = one; *squares = two;
    }

    WAYPOST_CLONES
    static void waypost_wide(const uint8_t *x, long n, int16_t *out)
    {
        for (long j = 0; j < n; j++) out[j] = x[j];
    }

    /* x = factor * y, or x += factor * y */
    #define WEIGH(NAME, TYPE) \
        WAYPOST_CLONES static void NAME(float *x, const TYPE *y, float factor, long n, int first) \
        { \
            if (first) for (long j = 0; j < n; j++) x[j] = factor * (float)y[j]; \
            else for (long j = 0; j < n; j++) x[j] += factor * (float)y[j]; \
        }
    WEIGH(waypost_weigh, float) WEIGH(waypost_weigh_quantized, int16_t)
    WEIGH(waypost_weigh_bytes, uint8_t) WEIGH(waypost_weigh_codes, int8_t)

    WAYPOST_CLONES
    static void waypost_centre(float *x, float more, float centre, float root, const float *gain, long n)
    {
        for (long j = 0; j < n; j++) x[j] = (x[j] + more - centre) / root * gain[j];
    }

    WAYPOST_CLONES
    static void waypost_divide(float *x, float by, long n)
    {
        for (long j = 0; j < n; j++) x[j] /= by;
    }

    /* The Cython code only calls these: with -O1 it compiles in half the time. */
    #if defined(__GNUC__) && !defined(__clang__)
    #pragma GCC optimize ("O1")
    #endif
    """
    int waypost_level
    void waypost_products(const int16_t *rows, const long *at, long m, const int16_t *w, long k, long n,
                          const float *steps, const float *worth, float *out, long out_step) nogil
    float waypost_highest(const float *x, long n) nogil
    void waypost_quantize(const float *x, long n, float inverse, int16_t *out) nogil
    float waypost_sum(const float *x, long n) nogil
    float waypost_squares(const float *x, long n) nogil
    void waypost_shift(float *x, const float *y, float factor, long n) nogil
    void waypost_normal(float *x, long n, float mean, float epsilon, const float *gain, const float *bias) nogil
    void waypost_add(float *x, const float *y, long n) nogil
    void waypost_relu(float *x, const float *bias, const float *residual, long n) nogil
    void waypost_relu_quantized(float *x, const float *bias, const int16_t *residual, float step, long n) nogil
    void waypost_tanh(float *x, long n, const float *over, const float *under) nogil
    void waypost_positive(float *x, long n) nogil
    void waypost_bytes(const uint8_t *x, long n, double *sum, double *squares) nogil
    void waypost_wide(const uint8_t *x, long n, int16_t *out) nogil
    void waypost_weigh(float *x, const float *y, float factor, long n, int first) nogil
    void waypost_weigh_quantized(float *x, const int16_t *y, float factor, long n, int first) nogil
    void waypost_weigh_bytes(float *x, const uint8_t *y, float factor, long n, int first) nogil
    void waypost_weigh_codes(float *x, const int8_t *y, float factor, long n, int first) nogil
    void waypost_centre(float *x, float more, float centre, float root, const float *gain, long n) nogil
    void waypost_divide(float *x, float by, long n) nogil


cdef enum:
    LANES = 16
    BRANCHES = 3
    PANEL = 16
    PAD = 2  # zeros around each text, as far as a convolution reaches
    MIN_NOGIL = 64  # tokens from which the GIL is released; below, getting it back takes longer


cdef struct _Scratch:  # for quantized rows
    int16_t *rows
    long *at
    float *steps


cdef class _Matrix:
    """A quantized layer: packed columns and their steps."""

    cdef const int16_t[:, :, :, ::1] columns
    cdef const float[::1] steps
    cdef long k, n

    def __init__(self, dict arrays, str name, long k, long n = 0):
        self.columns, self.steps = arrays[f"{name}.numbers"], arrays[f"{name}.steps"]
        self.n, self.k = PANEL * self.columns.shape[0], 2 * self.columns.shape[1]
        if self.columns.shape[2] != PANEL or self.columns.shape[3] != 2 or self.k != k or self.k % LANES or not self.k \
                or not self.n or self.steps.shape[0] != self.n or (n and self.n != n):
            raise ValueError(f"the layer {name} has the wrong shape")

    cdef void multiply(self, const int16_t *rows, const long *at, long m, const float *steps, float *out, long out_step) noexcept nogil:
        """The products of m quantized rows; steps[i] is the step of row i."""
        waypost_products(rows, at, m, &self.columns[0, 0, 0, 0], self.k, self.n, &self.steps[0], steps, out, out_step)

    cdef void multiply_floats(self, const float *x, long m, long x_step, float most, _Scratch *room, float *out, long out_step) noexcept nogil:
        """The same for float rows, which are quantized first."""
        cdef long i
        for i in range(m):
            room.at[i] = i * self.k
            room.steps[i] = quantize(x + i * x_step, 1, self.k, 0, most, room.rows + room.at[i])
        self.multiply(room.rows, room.at, m, room.steps, out, out_step)


cdef int allocate(_Scratch *room, long m, long numbers) except -1 nogil:
    """Scratch for m rows of at most `numbers` numbers in total."""
    room.at = <long *> malloc(m * (sizeof(long) + sizeof(float)) + numbers * sizeof(int16_t))
    if room.at == NULL:
        with gil:
            raise MemoryError
    room.steps = <float *> (room.at + m)
    room.rows = <int16_t *> (room.steps + m)
    return 0


cdef float quantize(const float *x, long m, long n, long x_step, float most, int16_t *out) noexcept nogil:
    """Quantize m rows with one step; return the step."""
    cdef float highest = <float> 1e-30, some, step
    cdef long i
    for i in range(m):
        some = waypost_highest(x + i * x_step, n)
        if some > highest:
            highest = some
    step = highest / most
    for i in range(m):
        waypost_quantize(x + i * x_step, n, <float> 1 / step, out + i * n)
    return step


cdef const float[::1] _vector(dict arrays, str name, long size):
    cdef const float[::1] found = arrays[name]
    if found.shape[0] != size:
        raise ValueError(f"{name} has the wrong shape")
    return found


def limit_instructions(int level):
    """For tests: 0 is without AVX2, 1 without AVX-512 VNNI, 2 any processor."""
    global waypost_level
    waypost_level = level


cdef class UseLayers:

    cdef readonly long dims
    cdef long width, channels, all_hidden, first_width, row_width, capacity, used, shards, count
    cdef long[BRANCHES] widths, lefts
    cdef float epsilon, most, row_most
    cdef _Matrix project, out, d1, d2, d3, carry
    cdef _Matrix first0, first1, first2, second0, second1, second2
    cdef const uint8_t[:, ::1] table
    cdef const float[::1] scale, low, project_sum, project_bias, gain, bias, first_bias, second_bias, out_gain, out_bias
    cdef const float[::1] tanh_over, tanh_under
    cdef int16_t[:, ::1] rows
    cdef float[::1] steps
    cdef int32_t[::1] slots
    cdef int64_t[::1] holders

    def __init__(self, dict arrays, const uint8_t[:, ::1] table, const float[::1] scale, const float[::1] low,
                 int16_t[:, ::1] rows):
        cdef long hidden, total
        branches, self.most, self.row_most = arrays["branches"].tolist(), arrays["most"][0], arrays["most"][1]
        if len(branches) != BRANCHES or any(not 0 <= left < width <= left + 1 + PAD <= 2 * PAD + 1 for width, left in branches):
            raise ValueError("a convolution reaches too far")
        for at, (width, left) in enumerate(branches):
            self.widths[at], self.lefts[at] = width, left
        hidden = self.all_hidden = len(arrays["gain"])
        self.channels = hidden // BRANCHES
        self.first_width = sum(width for width, _ in branches) * self.channels
        self.row_width = self.first_width + hidden
        self.table, self.scale, self.low = table, scale, low
        self.count, self.width, self.shards = table.shape[0], table.shape[1], scale.shape[0]
        if not self.shards or low.shape[0] != self.shards:
            raise ValueError("tokens have no scale")
        total = self.width + hidden
        self.project = _Matrix(arrays, "project", self.width, hidden)
        self.first0, self.first1, self.first2 = (
            _Matrix(arrays, f"first{width}", self.channels, width * self.channels) for width, _ in branches
        )
        self.second0, self.second1, self.second2 = (
            _Matrix(arrays, f"second{width}", width * self.channels, self.channels) for width, _ in branches
        )
        self.out = _Matrix(arrays, "out", total)
        self.d1 = _Matrix(arrays, "d1", self.out.n // 2, self.out.n // 2)
        self.d2 = _Matrix(arrays, "d2", self.d1.n)
        self.d3 = _Matrix(arrays, "d3", self.d2.n // 2, self.d2.n // 2)
        self.carry = _Matrix(arrays, "carry", self.d3.n) if "carry.numbers" in arrays else None
        self.dims = self.d3.n if self.carry is None else self.carry.n
        self.project_sum, self.project_bias = _vector(arrays, "project.sum", hidden), _vector(arrays, "project.bias", hidden)
        self.gain, self.bias = _vector(arrays, "gain", hidden), _vector(arrays, "bias", hidden)
        self.first_bias, self.second_bias = _vector(arrays, "first.bias", hidden), _vector(arrays, "second.bias", hidden)
        self.out_gain, self.out_bias = _vector(arrays, "out.gain", total), _vector(arrays, "out.bias", self.out.n)
        self.tanh_over, self.tanh_under = _vector(arrays, "tanh.over", 8), _vector(arrays, "tanh.under", 4)
        self.epsilon = _vector(arrays, "epsilon", 1)[0]
        if rows.shape[0] < 2 or rows.shape[1] != self.row_width:
            raise ValueError("rows have the wrong shape")
        self.rows, self.capacity, self.used = rows, rows.shape[0] - 1, 1
        self.steps = np.zeros(rows.shape[0], np.float32)
        self.slots = np.full(self.count, -1, np.int32)
        self.holders = np.full(rows.shape[0], -1, np.int64)

    cdef _Matrix first(self, long branch):
        return self.first0 if branch == 0 else self.first1 if branch == 1 else self.first2

    cdef int _check(self, const int64_t[::1] numbers) except -1:
        cdef long i
        for i in range(numbers.shape[0]):
            if not 0 <= numbers[i] < self.count:
                raise IndexError("no such token")
        return 0

    # --- Tokens by themselves ---

    def token_rows(self, const int64_t[::1] numbers):
        cdef long m = numbers.shape[0]
        cdef int16_t[:, ::1] rows
        cdef float[::1] steps
        self._check(numbers)
        found = np.empty((m, self.row_width), np.int16), np.empty(m, np.float32)
        rows, steps = found
        if m:
            self._make(&numbers[0], m, &rows[0, 0], &steps[0])
        return found

    cdef int _cache_rows(self, const int64_t *numbers, long m, int32_t *slots) except -1:
        """The slot of each token's row. Missing rows are computed; again if that evicts others of these."""
        cdef int64_t *missing = <int64_t *> malloc((m + 1) * sizeof(int64_t))
        cdef long i, count = 1, at
        if missing == NULL:
            raise MemoryError
        try:
            while count:
                count = 0
                for i in range(m):
                    if self.slots[numbers[i]] == -1:
                        self.slots[numbers[i]] = -2  # counted
                        missing[count] = numbers[i]
                        count += 1
                for i in range(count):
                    self.slots[missing[i]] = -1
                if count:
                    at = self._room(count)
                    self._make(missing, count, &self.rows[at, 0], &self.steps[at])
                    for i in range(count):
                        self.holders[at + i] = missing[i]
                        self.slots[missing[i]] = <int32_t> (at + i)
            for i in range(m):
                slots[i] = self.slots[numbers[i]]
        finally:
            free(missing)
        return 0

    cdef long _room(self, long m):
        cdef long at, i
        if self.used + m > self.capacity + 1:
            self.used = 1
        at = self.used
        for i in range(at, at + m):
            if self.holders[i] >= 0:
                self.slots[self.holders[i]] = -1
                self.holders[i] = -1
        self.used = at + m
        return at

    cdef int _make(self, const int64_t *numbers, long m, int16_t *rows, float *steps) except -1:
        cdef long i, branch, column = 0, wide = self.row_width
        cdef _Scratch room
        cdef _Matrix matrix
        cdef float *made = <float *> malloc(m * wide * sizeof(float))
        if made == NULL:
            raise MemoryError
        try:
            allocate(&room, m, m * max(self.width, self.channels))
            try:
                self._normalise(numbers, m, &room, made + self.first_width)
                for branch in range(BRANCHES):
                    matrix = self.first(branch)
                    matrix.multiply_floats(
                        made + self.first_width + branch * self.channels, m, wide, self.most, &room, made + column, wide
                    )
                    column += matrix.n
                for i in range(m):
                    steps[i] = quantize(made + i * wide, 1, wide, 0, self.row_most, rows + i * wide)
            finally:
                free(room.at)
        finally:
            free(made)
        return 0

    cdef void _normalise(self, const int64_t *numbers, long m, _Scratch *room, float *x) noexcept nogil:
        cdef long i, shard, n = self.all_hidden
        cdef float *row
        for i in range(m):
            room.at[i] = i * self.width
            waypost_wide(&self.table[numbers[i], 0], self.width, room.rows + room.at[i])
            room.steps[i] = self.scale[numbers[i] % self.shards]
        self.project.multiply(room.rows, room.at, m, room.steps, x, self.row_width)
        for i in range(m):
            shard, row = numbers[i] % self.shards, x + i * self.row_width
            waypost_shift(row, &self.project_sum[0], self.low[shard], n)
            waypost_add(row, &self.project_bias[0], n)
            waypost_normal(row, n, waypost_sum(row, n) / <float> n, self.epsilon, &self.gain[0], &self.bias[0])

    # --- Convolutions ---

    def first_convolution(self, const int64_t[::1] numbers, sizes):
        cdef long m = numbers.shape[0], text, start = 0
        cdef int32_t *slots
        cdef float[:, ::1] out
        cdef long[::1] ends = _ends(sizes, m)
        if 2 * m > self.capacity:
            raise ValueError("more tokens at once than the cache holds")
        self._check(numbers)
        made = np.empty((m, self.all_hidden), np.float32)
        if not m:
            return made
        out = made
        slots = <int32_t *> malloc(m * sizeof(int32_t))
        if slots == NULL:
            raise MemoryError
        try:
            self._cache_rows(&numbers[0], m, slots)
            for text in range(ends.shape[0]):
                if ends[text] > start:
                    self._line(slots + start, ends[text] - start, &out[start, 0])
                start = ends[text]
        finally:
            free(slots)
        return made

    cdef void _line(self, const int32_t *slots, long m, float *out) noexcept nogil:
        cdef long i, t, other, branch, column, n = self.channels
        cdef float *to
        cdef bint begun
        for i in range(m):
            column = 0
            for branch in range(BRANCHES):
                to, begun = out + i * self.all_hidden + branch * n, False
                for t in range(self.widths[branch]):
                    other = i - self.lefts[branch] + t
                    if 0 <= other < m:
                        waypost_weigh_quantized(to, &self.rows[slots[other], column], self.steps[slots[other]], n, not begun)
                        begun = True
                    column += n
            waypost_relu_quantized(
                out + i * self.all_hidden, &self.first_bias[0], &self.rows[slots[i], self.first_width], self.steps[slots[i]],
                self.all_hidden
            )

    def second_convolution(self, const float[:, ::1] line, sizes):
        cdef long m = line.shape[0]
        cdef long[::1] ends = _ends(sizes, m)
        cdef float[:, ::1] out
        cdef _Scratch room
        if m and line.shape[1] != self.all_hidden:
            raise ValueError("the input has the wrong shape")
        made = np.empty((m, self.all_hidden), np.float32)
        if not m:
            return made
        out = made
        allocate(&room, m, (m + PAD * (ends.shape[0] + 1)) * self.channels)
        try:
            if m > MIN_NOGIL:
                with nogil:
                    self._hidden(&line[0, 0], m, &ends[0], ends.shape[0], &room, &out[0, 0])
            else:
                self._hidden(&line[0, 0], m, &ends[0], ends.shape[0], &room, &out[0, 0])
        finally:
            free(room.at)
        return made

    cdef void _hidden(self, const float *line, long m, const long *ends, long texts, _Scratch *room, float *out) noexcept nogil:
        cdef long i, branch, column, n = self.channels, wide = self.all_hidden
        memset(room.rows, 0, (m + PAD * (texts + 1)) * n * sizeof(int16_t))
        for branch in range(BRANCHES):
            column = branch * n
            self._padded(line + column, ends, texts, self.lefts[branch], room)
            if branch == 0:
                self.second0.multiply(room.rows, room.at, m, room.steps, out + column, wide)
            elif branch == 1:
                self.second1.multiply(room.rows, room.at, m, room.steps, out + column, wide)
            else:
                self.second2.multiply(room.rows, room.at, m, room.steps, out + column, wide)
        for i in range(m):
            waypost_relu(out + i * wide, &self.second_bias[0], line + i * wide, wide)

    cdef void _padded(self, const float *line, const long *ends, long texts, long left, _Scratch *room) noexcept nogil:
        """One branch of each text, quantized and padded with zeros, and the start of each window."""
        cdef long start = 0, text, i, n = self.channels, pad
        cdef float step
        for text in range(texts):
            pad = PAD * (text + 1)
            if ends[text] > start:
                step = quantize(
                    line + start * self.all_hidden, ends[text] - start, n, self.all_hidden, self.most,
                    room.rows + (start + pad) * n
                )
                for i in range(start, ends[text]):
                    room.at[i] = (i + pad - left) * n
                    room.steps[i] = step
            start = ends[text]

    # --- Pooling ---

    def pool(self, const int64_t[::1] numbers, const float[:, ::1] hidden, groups):
        cdef long m = numbers.shape[0], g = len(groups), wide
        cdef long[:, ::1] places
        cdef float[:, ::1] out
        cdef _Scratch room
        cdef float *x
        if hidden.shape[0] != m or (m and hidden.shape[1] != self.all_hidden):
            raise IndexError("no such token")
        self._check(numbers)
        made = np.empty((g, self.dims), np.float32)
        if not g:
            return made
        out, places = made, _places(groups, m)
        wide = max(self.width + self.all_hidden, self.out.n, self.d1.n, self.d2.n, self.d3.n)
        x = <float *> malloc((2 * m + g + 2 * g * wide) * sizeof(float))
        if x == NULL:
            raise MemoryError
        try:
            allocate(&room, g, g * wide)
            try:
                if m > MIN_NOGIL:
                    with nogil:
                        self._vectors(&numbers[0], m, &hidden[0, 0], &places[0, 0], g, wide, x, &room, &out[0, 0])
                else:
                    self._vectors(&numbers[0], m, &hidden[0, 0], &places[0, 0], g, wide, x, &room, &out[0, 0])
            finally:
                free(room.at)
        finally:
            free(x)
        return made

    cdef void _vectors(self, const int64_t *numbers, long m, const float *hidden, const long *places, long g, long wide,
                       float *x, _Scratch *room, float *out) noexcept nogil:
        """`x` has space for two numbers per token, one per group, and two wide rows per group."""
        cdef float *moments = x
        cdef float *roots = moments + 2 * m
        cdef float *y = roots + g + g * wide
        cdef long i
        x = roots + g
        self._moments(numbers, m, hidden, moments)
        for i in range(g):
            self._pooled(numbers, m, hidden, moments, places + 4 * i, roots + i, x + i * (self.width + self.all_hidden))
        self.out.multiply_floats(x, g, self.width + self.all_hidden, self.most, room, y, wide)
        for i in range(g):
            waypost_shift(y + i * wide, &self.out_bias[0], roots[i], self.out.n)
            waypost_positive(y + i * wide, self.d1.k)
        self.d1.multiply_floats(y, g, wide, self.most, room, x, wide)
        for i in range(g):
            waypost_add(x + i * wide, y + i * wide + self.d1.k, self.d1.n)
            waypost_positive(x + i * wide, self.d1.n)
        self.d2.multiply_floats(x, g, wide, self.most, room, y, wide)
        for i in range(g):
            waypost_positive(y + i * wide, self.d3.k)
        self.d3.multiply_floats(y, g, wide, self.most, room, x, wide)
        for i in range(g):
            waypost_add(x + i * wide, y + i * wide + self.d3.k, self.d3.n)
            waypost_tanh(x + i * wide, self.d3.n, &self.tanh_over[0], &self.tanh_under[0])
        if self.carry is not None:
            self.carry.multiply_floats(x, g, wide, self.most, room, out, self.dims)
        else:
            for i in range(g):
                memcpy(out + i * self.dims, x + i * wide, self.dims * sizeof(float))
        for i in range(g):
            self._unit(out + i * self.dims)

    cdef void _unit(self, float *x) noexcept nogil:
        cdef float length = sqrtf(waypost_squares(x, self.dims))
        waypost_divide(x, length if length > <float> 1e-6 else <float> 1e-6, self.dims)

    cdef void _pooled(self, const int64_t *numbers, long m, const float *hidden, const float *moments, const long *place,
                      float *root, float *pooled) noexcept nogil:
        cdef long at
        cdef float lows = 0, means = 0
        self._add(pooled, numbers, m, hidden, moments, place[0], True, &lows, &means)
        for at in range(place[1], place[2]):
            self._add(pooled, numbers, m, hidden, moments, at, False, &lows, &means)
        self._add(pooled, numbers, m, hidden, moments, place[3], False, &lows, &means)
        root[0] = sqrtf(<float> (place[2] - place[1] + 2))
        waypost_centre(pooled, lows, means, root[0], &self.out_gain[0], self.width)
        waypost_centre(pooled + self.width, 0, means, root[0], &self.out_gain[self.width], self.all_hidden)

    cdef void _add(self, float *pooled, const int64_t *numbers, long m, const float *hidden, const float *moments,
                   long at, bint first, float *lows, float *means) noexcept nogil:
        cdef long shard = numbers[at] % self.shards
        cdef float inverse = moments[m + at]
        waypost_weigh_bytes(pooled, &self.table[numbers[at], 0], inverse * self.scale[shard], self.width, first)
        waypost_weigh(pooled + self.width, hidden + at * self.all_hidden, inverse, self.all_hidden, first)
        lows[0] += inverse * self.low[shard]
        means[0] += inverse * moments[at]

    cdef void _moments(self, const int64_t *numbers, long m, const float *hidden, float *moments) noexcept nogil:
        """Mean and inverse deviation of each token's numbers. Sums of its integers are exact."""
        cdef long i, shard, n = self.all_hidden
        cdef double plain = 0, squares = 0, wide, deep
        cdef float total, square, mean, all_width = <float> (self.width + n)
        for i in range(m):
            shard = numbers[i] % self.shards
            wide, deep = self.scale[shard], self.low[shard]
            waypost_bytes(&self.table[numbers[i], 0], self.width, &plain, &squares)
            total = <float> (wide * plain + self.width * deep)
            square = <float> (wide * wide * squares + 2 * wide * deep * plain + self.width * deep * deep)
            mean = (total + waypost_sum(hidden + i * n, n)) / all_width
            moments[i] = mean
            moments[m + i] = <float> 1 / sqrtf((square + waypost_squares(hidden + i * n, n)) / all_width - mean * mean + self.epsilon)


cdef long[:, ::1] _places(groups, long m):
    cdef long[:, ::1] places = np.array(groups, np.dtype("l")).reshape(len(groups), 4)
    cdef long i
    for i in range(places.shape[0]):
        if not (0 <= places[i, 0] < m and 0 <= places[i, 1] <= places[i, 2] <= m and 0 <= places[i, 3] < m):
            raise IndexError("no such position")
    return places


cdef long[::1] _ends(sizes, long m):
    """The end of each text."""
    ends = np.empty(len(sizes), np.dtype("l"))
    cdef long[::1] found = ends
    cdef long end = 0, i, size
    for i in range(found.shape[0]):
        size = sizes[i]
        if not 0 <= size <= m - end:
            raise IndexError("the sizes do not add up to the number of tokens")
        end += size
        found[i] = end
    if end != m:
        raise IndexError("the sizes do not add up to the number of tokens")
    return found


cdef class TokenSums:

    cdef const int8_t[:, ::1] codes
    cdef const float[::1] scales

    def __init__(self, const int8_t[:, ::1] codes, const float[::1] scales):
        if codes.shape[0] != scales.shape[0] or codes.shape[1] % LANES or not codes.shape[1]:
            raise ValueError("codes and scales do not match")
        self.codes, self.scales = codes, scales

    def sum_runs(self, const int64_t[::1] numbers, runs):
        cdef long m = numbers.shape[0], n = self.codes.shape[1], i, at, start, stop
        cdef float[:, ::1] out
        cdef float length
        for i in range(m):
            if not 0 <= numbers[i] < self.scales.shape[0]:
                raise IndexError("no such token")
        made = np.zeros((len(runs), n), np.float32)
        out = made
        for i in range(out.shape[0]):
            start, stop = runs[i]
            if not 0 <= start <= stop <= m:
                raise IndexError("no such position")
            with nogil:
                for at in range(start, stop):
                    waypost_weigh_codes(&out[i, 0], &self.codes[numbers[at], 0], self.scales[numbers[at]], n, at == start)
                length = sqrtf(waypost_squares(&out[i, 0], n))
                waypost_divide(&out[i, 0], length if length > <float> 1e-12 else <float> 1e-12, n)
        return made
