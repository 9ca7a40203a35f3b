# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Candidates put in order, and what they are called. The twins are in `search/plain_order.py`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport exp, pow, rint
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy


def faded(const float[::1] figures, const double[::1] updated, double now, double half_life, double share):
    """The figures, of each of which a share is halved by every half-life since its record was updated."""
    cdef Py_ssize_t n = figures.shape[0], at
    if updated.shape[0] != n:
        raise ValueError("as many of each")
    made = PyBytes_FromStringAndSize(NULL, n * sizeof(float))
    cdef float *left = <float *> PyBytes_AS_STRING(made)
    cdef double age, rest = 1.0 - share
    for at in range(n):
        age = now - updated[at]
        left[at] = figures[at] * <float> (rest + share * pow(0.5, (0.0 if age < 0.0 else age) / half_life))
    return made


def logistic(const float[::1] figures, const float[::1] lift, double middle, double slope):
    """A score in 0..1 for each figure, and what lifts its odds."""
    cdef Py_ssize_t n = figures.shape[0], at
    if lift.shape[0] != n:
        raise ValueError("as many of each")
    made = PyBytes_FromStringAndSize(NULL, n * sizeof(double))
    cdef double *score = <double *> PyBytes_AS_STRING(made)
    for at in range(n):
        score[at] = 1.0 / (1.0 + exp(-((figures[at] - middle) / slope + lift[at])))
    return made


cdef struct Standing:
    double step  # of the score: more is better
    uint64_t mark  # parts equals
    Py_ssize_t at


cdef inline bint _is_before(const Standing *one, const Standing *other) noexcept nogil:
    return one.step > other.step or (one.step == other.step and one.mark < other.mark)


cdef void _sort(Standing *all, Standing *room, Py_ssize_t n) noexcept nogil:
    """By merging: whoever stood first stays before its equals."""
    cdef Py_ssize_t half = n // 2, left = 0, right = half, at
    cdef Standing one
    if n <= 8:
        for right in range(1, n):
            one, at = all[right], right
            while at > 0 and _is_before(&one, all + at - 1):
                all[at] = all[at - 1]
                at -= 1
            all[at] = one
        return
    _sort(all, room, half)
    _sort(all + half, room, n - half)
    memcpy(room, all, half * sizeof(Standing))
    for at in range(n):
        if left == half:
            return
        if right < n and _is_before(all + right, room + left):
            all[at] = all[right]
            right += 1
        else:
            all[at] = room[left]
            left += 1


def ordered(
    const double[::1] scores,
    const float[::1] worth,
    const uint8_t[::1] deprecated,
    const uint64_t[::1] marks,
    double kept,
    double grid,
):
    """The places of the candidates, best first, and the score of each, in that order: what it scored times what it is worth,
    of which a deprecated one keeps some. Scores are told apart by steps of a grid, equals by their marks."""
    cdef Py_ssize_t n = scores.shape[0], at
    if worth.shape[0] != n or deprecated.shape[0] != n or marks.shape[0] != n:
        raise ValueError("as many of each")
    places = PyBytes_FromStringAndSize(NULL, n * sizeof(Py_ssize_t))
    figures = PyBytes_FromStringAndSize(NULL, n * sizeof(double))
    cdef Py_ssize_t *place = <Py_ssize_t *> PyBytes_AS_STRING(places)
    cdef double *figure = <double *> PyBytes_AS_STRING(figures)
    cdef Standing *all = <Standing *> malloc((2 * n + 1) * sizeof(Standing))
    if all == NULL:
        raise MemoryError
    for at in range(n):
        all[at].step = rint(_worthy(scores[at], worth[at], deprecated[at], kept) * grid)
        all[at].mark, all[at].at = marks[at], at
    _sort(all, all + n, n)
    for at in range(n):
        place[at] = all[at].at
        figure[at] = _worthy(scores[place[at]], worth[place[at]], deprecated[place[at]], kept)
    free(all)
    return places, figures


cdef inline double _worthy(double score, float worth, uint8_t is_deprecated, double kept) noexcept nogil:
    return score * (<float> (worth * kept) if is_deprecated else worth)


def texts(const uint8_t[::1] written, const int64_t[::1] starts, const uint32_t[::1] rows):
    """The texts of some rows, which stand one behind the other."""
    cdef Py_ssize_t at, n = starts.shape[0] - 1
    cdef int64_t start, end
    found = []
    for at in range(rows.shape[0]):
        if rows[at] >= n:
            raise IndexError("no such row")
        start, end = starts[rows[at]], starts[rows[at] + <Py_ssize_t> 1]
        if not 0 <= start <= end <= written.shape[0]:
            raise IndexError("no such text")
        found.append(PyUnicode_DecodeUTF8(<const char *> &written[0] + start, end - start, NULL) if end > start else "")
    return found
