# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The layers of the sentence network and the sums of word vectors: `embedders/plain_network.py` says what each step is, and is
the twin of `Layers`; `embedders/plain_means.py` that of `Means`. Sums of floats are added up in the order of the twins."""

import numpy as np

from libc.math cimport sqrtf
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

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

    /* Each of m rows (row i begins at rows + at[i]) times each of n columns, k numbers each. Three rows and four columns at a
       time: as many sums as a processor holds beside what it reads. The columns are read once, the next ones meanwhile. */
    WAYPOST_CLONES
    static void waypost_products(const int16_t *rows, const long *at, long m, const int16_t *columns, long k, long n,
                                 int32_t *out)
    {
        for (long j = 0; j + 4 <= n; j += 4) {
            const int16_t *w0 = columns + j * k, *w1 = w0 + k, *w2 = w1 + k, *w3 = w2 + k;
            long i = 0;
            if (j + 8 <= n) for (long x = 0; x < 4 * k; x += 32) waypost_fetch(w3 + k + x);
            for (; i + 3 <= m; i += 3) {
                const int16_t *a = rows + at[i], *b = rows + at[i + 1], *c = rows + at[i + 2];
                int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0, c0 = 0, c1 = 0, c2 = 0, c3 = 0;
                for (long x = 0; x < k; x++) {
                    a0 += (int32_t)a[x] * w0[x]; a1 += (int32_t)a[x] * w1[x];
                    a2 += (int32_t)a[x] * w2[x]; a3 += (int32_t)a[x] * w3[x];
                    b0 += (int32_t)b[x] * w0[x]; b1 += (int32_t)b[x] * w1[x];
                    b2 += (int32_t)b[x] * w2[x]; b3 += (int32_t)b[x] * w3[x];
                    c0 += (int32_t)c[x] * w0[x]; c1 += (int32_t)c[x] * w1[x];
                    c2 += (int32_t)c[x] * w2[x]; c3 += (int32_t)c[x] * w3[x];
                }
                int32_t *o = out + i * n + j, *p = o + n, *q = p + n;
                o[0] = a0; o[1] = a1; o[2] = a2; o[3] = a3;
                p[0] = b0; p[1] = b1; p[2] = b2; p[3] = b3;
                q[0] = c0; q[1] = c1; q[2] = c2; q[3] = c3;
            }
            for (; i < m; i++) {
                const int16_t *a = rows + at[i];
                int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0;
                for (long x = 0; x < k; x++) {
                    a0 += (int32_t)a[x] * w0[x]; a1 += (int32_t)a[x] * w1[x];
                    a2 += (int32_t)a[x] * w2[x]; a3 += (int32_t)a[x] * w3[x];
                }
                int32_t *o = out + i * n + j;
                o[0] = a0; o[1] = a1; o[2] = a2; o[3] = a3;
            }
        }
    }

    /* The largest of n numbers, by size. */
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

    /* To the nearest whole number, halves to the even one: what is added leaves no digits behind the point. */
    WAYPOST_CLONES
    static void waypost_whole(const float *x, long n, float inverse, int16_t *out)
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

    /* What sums of whole numbers are worth. */
    WAYPOST_CLONES
    static void waypost_worth(const int32_t *sums, const float *steps, long n, float step, float *out)
    {
        for (long j = 0; j < n; j++) out[j] = (float)sums[j] * steps[j] * step;
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

    /* A bend between two sums: max(x + bias, 0) + residual. */
    WAYPOST_CLONES
    static void waypost_bend(float *x, const float *bias, const float *residual, long n)
    {
        for (long j = 0; j < n; j++) {
            float bent = x[j] + bias[j];
            x[j] = (bent > 0 ? bent : 0) + residual[j];
        }
    }

    WAYPOST_CLONES
    static void waypost_positive(float *x, long n)
    {
        for (long j = 0; j < n; j++) x[j] = x[j] > 0 ? x[j] : 0;
    }

    /* Sum and sum of squares of the numbers of a piece. */
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
    WAYPOST_CLONES
    static void waypost_weigh(float *x, const float *y, float factor, long n, int first)
    {
        if (first) for (long j = 0; j < n; j++) x[j] = factor * y[j];
        else for (long j = 0; j < n; j++) x[j] += factor * y[j];
    }

    WAYPOST_CLONES
    static void waypost_weigh_bytes(float *x, const uint8_t *y, float factor, long n, int first)
    {
        if (first) for (long j = 0; j < n; j++) x[j] = factor * (float)y[j];
        else for (long j = 0; j < n; j++) x[j] += factor * (float)y[j];
    }

    WAYPOST_CLONES
    static void waypost_weigh_codes(float *x, const int8_t *y, float factor, long n, int first)
    {
        if (first) for (long j = 0; j < n; j++) x[j] = factor * (float)y[j];
        else for (long j = 0; j < n; j++) x[j] += factor * (float)y[j];
    }

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

    /* What follows only calls these: it is compiled in half the time. */
    #if defined(__GNUC__) && !defined(__clang__)
    #pragma GCC optimize ("O1")
    #endif
    """
    void waypost_products(const int16_t *rows, const long *at, long m, const int16_t *columns, long k, long n,
                          int32_t *out) nogil
    float waypost_highest(const float *x, long n) nogil
    void waypost_whole(const float *x, long n, float inverse, int16_t *out) nogil
    float waypost_sum(const float *x, long n) nogil
    float waypost_squares(const float *x, long n) nogil
    void waypost_worth(const int32_t *sums, const float *steps, long n, float step, float *out) nogil
    void waypost_shift(float *x, const float *y, float factor, long n) nogil
    void waypost_normal(float *x, long n, float mean, float epsilon, const float *gain, const float *bias) nogil
    void waypost_add(float *x, const float *y, long n) nogil
    void waypost_bend(float *x, const float *bias, const float *residual, long n) nogil
    void waypost_positive(float *x, long n) nogil
    void waypost_bytes(const uint8_t *x, long n, double *sum, double *squares) nogil
    void waypost_wide(const uint8_t *x, long n, int16_t *out) nogil
    void waypost_weigh(float *x, const float *y, float factor, long n, int first) nogil
    void waypost_weigh_bytes(float *x, const uint8_t *y, float factor, long n, int first) nogil
    void waypost_weigh_codes(float *x, const int8_t *y, float factor, long n, int first) nogil
    void waypost_centre(float *x, float more, float centre, float root, const float *gain, long n) nogil
    void waypost_divide(float *x, float by, long n) nogil


cdef enum:
    LANES = 16
    BRANCHES = 3
    PAD = 2  # empty places around each text, as many as a convolution reaches


cdef class _Matrix:
    """One layer: its columns, and what a step of each is worth."""

    cdef const int16_t[:, ::1] columns
    cdef const float[::1] steps
    cdef long k, n

    def __init__(self, dict arrays, str name, long k, long n = 0):
        self.columns, self.steps = arrays[f"{name}.numbers"], arrays[f"{name}.steps"]
        self.n, self.k = self.columns.shape[0], self.columns.shape[1]
        if self.k != k or self.steps.shape[0] != self.n or (n and self.n != n) or self.n % LANES or self.k % LANES or not self.k:
            raise ValueError(f"the layer {name} has another shape")

    cdef int worth(self, const int16_t *rows, const long *at, long m, const float *steps, float *out, long out_step) except -1 nogil:
        """The products of m rows; steps[i] is what one is worth in row i."""
        cdef int32_t *sums = <int32_t *> malloc(m * self.n * sizeof(int32_t))
        cdef long i
        if sums == NULL:
            with gil:
                raise MemoryError
        waypost_products(rows, at, m, &self.columns[0, 0], self.k, self.n, sums)
        for i in range(m):
            waypost_worth(sums + i * self.n, &self.steps[0], self.n, steps[i], out + i * out_step)
        free(sums)
        return 0

    cdef int rows_worth(self, const float *x, long m, long x_step, float most, float *out, long out_step) except -1 nogil:
        """The same of rows that are not whole yet."""
        cdef int16_t *rows = <int16_t *> malloc(m * self.k * sizeof(int16_t))
        cdef long *at = <long *> malloc(m * sizeof(long))
        cdef float *steps = <float *> malloc(m * sizeof(float))
        cdef long i
        try:
            if rows == NULL or at == NULL or steps == NULL:
                with gil:
                    raise MemoryError
            for i in range(m):
                at[i] = i * self.k
                steps[i] = made_whole(x + i * x_step, 1, self.k, 0, most, rows + at[i])
            self.worth(rows, at, m, steps, out, out_step)
        finally:
            free(rows)
            free(at)
            free(steps)
        return 0


cdef float made_whole(const float *x, long m, long n, long x_step, float most, int16_t *out) noexcept nogil:
    """Whole numbers for m rows together; returns what one is worth."""
    cdef float highest = <float> 1e-30, some, step
    cdef long i
    for i in range(m):
        some = waypost_highest(x + i * x_step, n)
        if some > highest:
            highest = some
    step = highest / most
    for i in range(m):
        waypost_whole(x + i * x_step, n, <float> 1 / step, out + i * n)
    return step


cdef const float[::1] _vector(dict arrays, str name, long size):
    cdef const float[::1] found = arrays[name]
    if found.shape[0] != size:
        raise ValueError(f"{name} has another shape")
    return found


cdef class Layers:
    """See the twin. Not to be used by two threads at once where rows are kept (`keep`, `line`)."""

    cdef readonly long dims
    cdef long width, channels, all_hidden, first_width, row_width, capacity, used, shards, count
    cdef long[BRANCHES] widths, lefts
    cdef float epsilon, most
    cdef _Matrix project, out, d1, d2, d3, carry
    cdef _Matrix first0, first1, first2, second0, second1, second2
    cdef const uint8_t[:, ::1] table
    cdef const float[::1] scale, low, project_sum, project_bias, gain, bias, first_bias, second_bias, out_gain, out_bias
    cdef float[:, ::1] rows
    cdef int32_t[::1] slots
    cdef int64_t[::1] holders

    def __init__(self, dict arrays, const uint8_t[:, ::1] table, const float[::1] scale, const float[::1] low,
                 float[:, ::1] rows):
        cdef long hidden, total
        branches, self.most = arrays["branches"].tolist(), arrays["most"][0]
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
            raise ValueError("pieces have no scale")
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
        self.epsilon = _vector(arrays, "epsilon", 1)[0]
        if rows.shape[0] < 2 or rows.shape[1] != self.row_width:
            raise ValueError("rows have another shape")
        self.rows, self.capacity, self.used = rows, rows.shape[0] - 1, 1
        self.slots = np.full(self.count, -1, np.int32)
        self.holders = np.full(rows.shape[0], -1, np.int64)

    cdef _Matrix first(self, long branch):
        return self.first0 if branch == 0 else self.first1 if branch == 1 else self.first2

    cdef _Matrix second(self, long branch):
        return self.second0 if branch == 0 else self.second1 if branch == 1 else self.second2

    # --- Pieces by themselves ---------------------------------------------------------------------

    def keep(self, const int64_t[::1] numbers):
        cdef long m = numbers.shape[0], i, missing
        cdef int32_t[::1] slots
        if 2 * m > self.capacity:
            raise ValueError("more pieces at once than can be kept")
        self._check(numbers)
        made = np.empty(m, np.int32)
        slots = made
        while True:  # again, where making some pushed out others of these
            missing = 0
            for i in range(m):
                slots[i] = self.slots[numbers[i]]
                missing += slots[i] < 0
            if not missing:
                return made
            self._make(np.unique(np.asarray(numbers)[made < 0]))

    cdef int _check(self, const int64_t[::1] numbers) except -1:
        cdef long i
        for i in range(numbers.shape[0]):
            if not 0 <= numbers[i] < self.count:
                raise IndexError("no such piece")
        return 0

    cdef int _make(self, const int64_t[::1] numbers) except -1:
        cdef long m = numbers.shape[0], i, at, branch, column = 0
        cdef float[:, ::1] normal = np.empty((m, self.all_hidden), np.float32)
        cdef _Matrix matrix
        at = self._room(m)
        self._normalise(numbers, normal)
        for branch in range(BRANCHES):
            matrix = self.first(branch)
            with nogil:
                matrix.rows_worth(
                    &normal[0, branch * self.channels], m, self.all_hidden, self.most, &self.rows[at, column], self.row_width
                )
            column += matrix.n
        for i in range(m):
            self.rows[at + i, self.first_width:] = normal[i]
            self.holders[at + i] = numbers[i]
            self.slots[numbers[i]] = <int32_t> (at + i)
        return 0

    cdef int _normalise(self, const int64_t[::1] numbers, float[:, ::1] x) except -1:
        cdef long m = numbers.shape[0], i, shard, n = self.all_hidden
        cdef int16_t[:, ::1] wide = np.empty((m, self.width), np.int16)
        cdef float[::1] scales = np.empty(m, np.float32)
        cdef long[::1] at = np.arange(0, m * self.width, self.width, dtype=np.dtype("l"))
        with nogil:
            for i in range(m):
                waypost_wide(&self.table[numbers[i], 0], self.width, &wide[i, 0])
                scales[i] = self.scale[numbers[i] % self.shards]
            self.project.worth(&wide[0, 0], &at[0], m, &scales[0], &x[0, 0], n)
            for i in range(m):
                shard = numbers[i] % self.shards
                waypost_shift(&x[i, 0], &self.project_sum[0], self.low[shard], n)
                waypost_add(&x[i, 0], &self.project_bias[0], n)
                waypost_normal(&x[i, 0], n, waypost_sum(&x[i, 0], n) / <float> n, self.epsilon, &self.gain[0], &self.bias[0])
        return 0

    cdef long _room(self, long m):
        cdef long at, i
        if self.used + m > self.capacity + 1:
            self.used = 1
        at = self.used
        for i in range(at, at + m):
            if self.holders[i] >= 0:
                self.slots[self.holders[i]] = -1
        self.used = at + m
        return at

    # --- Pieces with their neighbours -------------------------------------------------------------

    def line(self, const int32_t[::1] slots, sizes):
        cdef long m = slots.shape[0], start = 0, stop, i, text, t, other, branch, column, n = self.channels
        cdef int begun
        cdef float *to
        cdef float[:, ::1] out
        cdef long[::1] ends = _ends(sizes, m)
        for i in range(m):
            if not 0 < slots[i] <= self.capacity:
                raise IndexError("no such row")
        made = np.empty((m, self.all_hidden), np.float32)
        out = made
        with nogil:
            for text in range(ends.shape[0]):
                stop = ends[text]
                for i in range(start, stop):
                    column = 0
                    for branch in range(BRANCHES):
                        to, begun = &out[i, branch * n], 0
                        for t in range(self.widths[branch]):
                            other = i - self.lefts[branch] + t
                            if start <= other < stop:
                                waypost_weigh(to, &self.rows[slots[other], column], 1, n, not begun)
                                begun = 1
                            column += n
                    waypost_bend(&out[i, 0], &self.first_bias[0], &self.rows[slots[i], self.first_width], self.all_hidden)
                start = stop
        return made

    def hidden(self, const float[:, ::1] line, sizes):
        cdef long m = line.shape[0], start = 0, stop, i, text, branch, column, n = self.channels
        cdef long[::1] ends = _ends(sizes, m), at
        cdef int16_t[:, ::1] padded
        cdef float[::1] steps
        cdef float[:, ::1] out
        cdef float step
        cdef _Matrix matrix
        if m and line.shape[1] != self.all_hidden:
            raise ValueError("the line has another shape")
        made = np.empty((m, self.all_hidden), np.float32)
        if not m:
            return made
        out = made
        padded = np.zeros((m + PAD * (ends.shape[0] + 1), n), np.int16)
        at, steps = np.empty(m, np.dtype("l")), np.empty(m, np.float32)
        for branch in range(BRANCHES):
            matrix, column = self.second(branch), branch * n
            with nogil:
                start = 0
                for text in range(ends.shape[0]):
                    stop = ends[text]
                    if stop == start:
                        continue
                    i = start + PAD * (text + 1)
                    step = made_whole(&line[start, column], stop - start, n, self.all_hidden, self.most, &padded[i, 0])
                    for i in range(start, stop):
                        at[i] = (i + PAD * (text + 1) - self.lefts[branch]) * n
                        steps[i] = step
                    start = stop
                matrix.worth(&padded[0, 0], &at[0], m, &steps[0], &out[0, column], self.all_hidden)
        for i in range(m):
            waypost_bend(&out[i, 0], &self.second_bias[0], &line[i, 0], self.all_hidden)
        return made

    # --- From the pieces of a text to its vector --------------------------------------------------

    def bent(self, const int64_t[::1] numbers, const float[:, ::1] hidden, groups):
        cdef long g = len(groups), i
        cdef float[:, ::1] pooled, x, y, z, out
        made = np.empty((g, self.d3.n), np.float32)
        if not g:
            return made
        out, roots = made, np.empty(g, np.float32)
        cdef float[::1] root = roots
        pooled = self._pooled(numbers, hidden, groups, root)
        x, y, z = (np.empty((g, n), np.float32) for n in (self.out.n, self.d1.n, self.d2.n))
        with nogil:
            self.out.rows_worth(&pooled[0, 0], g, pooled.shape[1], self.most, &x[0, 0], self.out.n)
            for i in range(g):
                waypost_shift(&x[i, 0], &self.out_bias[0], root[i], self.out.n)
                waypost_positive(&x[i, 0], self.d1.k)
            self.d1.rows_worth(&x[0, 0], g, self.out.n, self.most, &y[0, 0], self.d1.n)
            for i in range(g):
                waypost_add(&y[i, 0], &x[i, self.d1.k], self.d1.n)
                waypost_positive(&y[i, 0], self.d1.n)
            self.d2.rows_worth(&y[0, 0], g, self.d1.n, self.most, &z[0, 0], self.d2.n)
            for i in range(g):
                waypost_positive(&z[i, 0], self.d3.k)
            self.d3.rows_worth(&z[0, 0], g, self.d2.n, self.most, &out[0, 0], self.d3.n)
            for i in range(g):
                waypost_add(&out[i, 0], &z[i, self.d3.k], self.d3.n)
        return made

    def carried(self, const float[:, ::1] x):
        cdef long g = x.shape[0], i
        cdef float[:, ::1] out
        cdef float length
        if g and x.shape[1] != self.d3.n:
            raise ValueError("what is carried has another shape")
        if self.carry is None or not g:
            made = np.array(x, np.float32).reshape(g, -1) if g else np.empty((0, self.dims), np.float32)
        else:
            made = np.empty((g, self.dims), np.float32)
        out = made
        for i in range(g):
            if self.carry is not None:
                if i == 0:
                    self.carry.rows_worth(&x[0, 0], g, x.shape[1], self.most, &out[0, 0], self.dims)
            length = sqrtf(waypost_squares(&out[i, 0], self.dims))
            waypost_divide(&out[i, 0], length if length > <float> 1e-6 else <float> 1e-6, self.dims)
        return made

    cdef float[:, ::1] _pooled(self, const int64_t[::1] numbers, const float[:, ::1] hidden, groups, float[::1] root):
        cdef long m = numbers.shape[0], g = len(groups), i, at, first, start, stop, last
        cdef float[:, ::1] pooled = np.empty((g, self.width + self.all_hidden), np.float32)
        cdef float[:, ::1] moments = np.empty((2, max(m, 1)), np.float32)
        cdef float lows, means
        if hidden.shape[0] != m or (m and hidden.shape[1] != self.all_hidden):
            raise IndexError("no such piece")
        self._check(numbers)
        self._moments(numbers, hidden, moments)
        for i in range(g):
            first, start, stop, last = groups[i]
            if not (0 <= first < m and 0 <= start <= stop <= m and 0 <= last < m):
                raise IndexError("no such place")
            lows = means = 0
            with nogil:
                self._add(&pooled[i, 0], numbers, hidden, moments, first, True, &lows, &means)
                for at in range(start, stop):
                    self._add(&pooled[i, 0], numbers, hidden, moments, at, False, &lows, &means)
                self._add(&pooled[i, 0], numbers, hidden, moments, last, False, &lows, &means)
                root[i] = sqrtf(<float> (stop - start + 2))
                waypost_centre(&pooled[i, 0], lows, means, root[i], &self.out_gain[0], self.width)
                waypost_centre(&pooled[i, self.width], 0, means, root[i], &self.out_gain[self.width], self.all_hidden)
        return pooled

    cdef void _add(self, float *pooled, const int64_t[::1] numbers, const float[:, ::1] hidden, float[:, ::1] moments,
                   long at, bint first, float *lows, float *means) noexcept nogil:
        cdef long shard = numbers[at] % self.shards
        cdef float inverse = moments[1, at]
        waypost_weigh_bytes(pooled, &self.table[numbers[at], 0], inverse * self.scale[shard], self.width, first)
        waypost_weigh(pooled + self.width, &hidden[at, 0], inverse, self.all_hidden, first)
        lows[0] += inverse * self.low[shard]
        means[0] += inverse * moments[0, at]

    cdef void _moments(self, const int64_t[::1] numbers, const float[:, ::1] hidden, float[:, ::1] moments) noexcept nogil:
        """Mean and inverse deviation of all that is known of each piece. Sums of its own numbers are whole, thus exact."""
        cdef long i, shard, n = self.all_hidden
        cdef double plain = 0, squares = 0, wide, deep
        cdef float total, square, mean, all_width = <float> (self.width + n)
        for i in range(numbers.shape[0]):
            shard = numbers[i] % self.shards
            wide, deep = self.scale[shard], self.low[shard]
            waypost_bytes(&self.table[numbers[i], 0], self.width, &plain, &squares)
            total = <float> (wide * plain + self.width * deep)
            square = <float> (wide * wide * squares + 2 * wide * deep * plain + self.width * deep * deep)
            mean = (total + waypost_sum(&hidden[i, 0], n)) / all_width
            moments[0, i] = mean
            moments[1, i] = <float> 1 / sqrtf((square + waypost_squares(&hidden[i, 0], n)) / all_width - mean * mean + self.epsilon)


cdef long[::1] _ends(sizes, long m):
    """Where each text ends."""
    ends = np.empty(len(sizes), np.dtype("l"))
    cdef long[::1] found = ends
    cdef long end = 0, i, size
    for i in range(found.shape[0]):
        size = sizes[i]
        if not 0 <= size <= m - end:
            raise IndexError("texts are not as long as the line")
        end += size
        found[i] = end
    if end != m:
        raise IndexError("texts are not as long as the line")
    return found


cdef class Means:
    """See the twin."""

    cdef const int8_t[:, ::1] codes
    cdef const float[::1] scales

    def __init__(self, const int8_t[:, ::1] codes, const float[::1] scales):
        if codes.shape[0] != scales.shape[0] or codes.shape[1] % LANES or not codes.shape[1]:
            raise ValueError("codes and scales do not belong together")
        self.codes, self.scales = codes, scales

    def sums(self, const int64_t[::1] numbers, runs):
        cdef long m = numbers.shape[0], n = self.codes.shape[1], i, at, start, stop
        cdef float[:, ::1] out
        cdef float length
        for i in range(m):
            if not 0 <= numbers[i] < self.scales.shape[0]:
                raise IndexError("no such piece")
        made = np.zeros((len(runs), n), np.float32)
        out = made
        for i in range(out.shape[0]):
            start, stop = runs[i]
            if not 0 <= start <= stop <= m:
                raise IndexError("no such place")
            with nogil:
                for at in range(start, stop):
                    waypost_weigh_codes(&out[i, 0], &self.codes[numbers[at], 0], self.scales[numbers[at]], n, at == start)
                length = sqrtf(waypost_squares(&out[i, 0], n))
                waypost_divide(&out[i, 0], length if length > <float> 1e-12 else <float> 1e-12, n)
        return made
