# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Selection, fusion and ranking of candidates. The fallback is `scoring_fallback.py`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport exp, pow, rint
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset


cdef struct Ranked:
    double step  # of the score; higher is better
    uint64_t mark  # breaks ties
    uint64_t at


cdef inline bint _is_before(const Ranked *one, const Ranked *other) noexcept nogil:
    return one.step > other.step or (one.step == other.step and one.mark < other.mark)


cdef void _sort(Ranked *all, Ranked *room, Py_ssize_t n) noexcept nogil:
    """Stable merge sort."""
    cdef Py_ssize_t half = n // 2, left = 0, right = half, at
    cdef Ranked one
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
    memcpy(room, all, half * sizeof(Ranked))
    for at in range(n):
        if left == half:
            return
        if right < n and _is_before(all + right, room + left):
            all[at] = all[right]
            right += 1
        else:
            all[at] = room[left]
            left += 1


cdef struct Shares:
    float lexical, network, static, coverage, tags, example, skills, thinned, foreign
    float vectors  # both spaces, if one is missing
    float others  # all but lexical
    float best  # the best clause
    float whole


cdef class _Fusion:
    """The columns of the candidates of one query."""

    cdef Shares shares
    cdef float mass
    cdef Py_ssize_t n
    cdef const float[:, :] lexical, coverage, network, network_example, static, static_example
    cdef const float[:] tags, skills
    cdef const uint8_t[:] covered
    cdef bint has_network, has_static

    def __cinit__(self, signals, names, weights, double mass):
        self.mass = <float> mass
        self.lexical, self.coverage = signals.lexical, signals.coverage
        self.tags, self.skills = signals.tags, signals.skills
        self.has_network = names.network in signals.centres
        self.has_static = names.static in signals.centres
        if self.has_network:
            self.network, self.network_example = signals.centres[names.network], signals.examples[names.network]
            self.covered = signals.covered[names.network].view("u1")
        if self.has_static:
            self.static, self.static_example = signals.centres[names.static], signals.examples[names.static]
        self.n = self.lexical.shape[0]
        self._check()
        self._share(weights)

    cdef int _check(self) except -1:
        cdef Py_ssize_t n = self.n, units = self.lexical.shape[1]
        cdef bint is_right = units > 0 and self.tags.shape[0] == n and self.skills.shape[0] == n
        is_right = is_right and _is_like(self.coverage, n, units)
        if self.has_network:
            is_right = is_right and _is_like(self.network, n, units) and _is_like(self.network_example, n, units)
            is_right = is_right and self.covered.shape[0] == n
        if self.has_static:
            is_right = is_right and _is_like(self.static, n, units) and _is_like(self.static_example, n, units)
        if not is_right:
            raise ValueError("arrays differ in length")
        return 0

    cdef int _share(self, weights) except -1:
        """Weights are added as float64 and used as float32, as numpy does."""
        cdef double network = weights.network, static = weights.static, coverage = weights.coverage, best = 0.0
        cdef Py_ssize_t wishes = self.lexical.shape[1] - 1
        if wishes > 0:
            best = weights.clauses * (1 - 1 / <double> wishes)  # two clauses often state one wish
        self.shares.lexical, self.shares.tags = weights.lexical, weights.tags
        self.shares.network, self.shares.static, self.shares.coverage = network, static, coverage
        self.shares.vectors, self.shares.others = static + network, network + static + coverage
        self.shares.example, self.shares.skills, self.shares.foreign = weights.example, weights.skills, weights.foreign
        self.shares.best, self.shares.whole = best, 1 - best
        self.shares.thinned = <double> weights.lexical * <double> weights.thinned
        return 0

    cdef float figure(self, Py_ssize_t at, bint is_foreign) noexcept:
        cdef float whole = self.part(at, 0, is_foreign), best, part
        cdef Py_ssize_t unit, units = self.lexical.shape[1]
        if units > 1:
            best = self.part(at, 1, is_foreign)
            for unit in range(2, units):
                part = self.part(at, unit, is_foreign)
                best = part if part > best else best
            whole = self.shares.whole * whole + self.shares.best * best
        return whole + self.shares.tags * self.tags[at]

    cdef float part(self, Py_ssize_t at, Py_ssize_t unit, bint is_foreign) noexcept:
        """The score of one candidate by one unit of the query."""
        cdef float lexical = self.lexical[at, unit] / self.mass
        cdef float words = self.shares.lexical * lexical + self.shares.coverage * self.coverage[at, unit]
        cdef float network, static = 0.0, part
        if self.has_static:
            static = self.near(self.static[at, unit], self.static_example[at, unit])
        if not self.has_network:
            return words + self.shares.vectors * static if self.has_static else words
        network = self.near(self.network[at, unit], self.network_example[at, unit])
        if is_foreign:
            part = self.shares.foreign * network
        elif self.has_static:
            # An agent that has no sentence vectors yet is scored by its static vectors instead.
            words = words + self.shares.static * static
            part = words + self.shares.network * (network if self.covered[at] else static)
        else:
            part = words + self.shares.network * network
        return part if self.skills[at] == 0 else self.by_best_example(at, unit, part, lexical, is_foreign)

    cdef float by_best_example(self, Py_ssize_t at, Py_ssize_t unit, float part, float lexical, bint is_foreign) noexcept:
        """The same for an agent of many topics: by its best example, if that scores higher."""
        cdef float example = self.network_example[at, unit], more
        if is_foreign:
            more = self.shares.foreign * example - part
        else:
            more = self.shares.thinned * lexical + self.shares.others * example - part
        return part + self.shares.skills * self.skills[at] * (more if more > 0 else 0)

    cdef float near(self, float centre, float example) noexcept:
        """The similarity in a space: of the centre, raised by a nearer example."""
        cdef float more = example - centre
        centre = centre + self.shares.example * (more if more > 0 else 0)
        return centre if centre > 0 else 0


cdef bint _is_like(const float[:, :] column, Py_ssize_t n, Py_ssize_t units) noexcept:
    return column.shape[0] == n and column.shape[1] == units


def rank_candidates(signals, names, weights, double mass, foreign, doubtful, double now, rules):
    cdef _Fusion fusion = _Fusion(signals, names, weights, mass if mass > 1e-6 else 1e-6)
    cdef Py_ssize_t n = fusion.n, at
    cdef const uint8_t[::1] other = _flags(foreign, n), unsure = _flags(doubtful, n)
    cdef bint has_other = foreign is not None, has_unsure = doubtful is not None
    cdef const double[::1] updated = signals.updated
    cdef const float[::1] preferred = signals.preferred
    cdef double middle = rules.middle, slope = rules.slope, half_life = rules.half_life, fresh = rules.fresh, age
    cdef float shared = rules.shared, lift = weights.preferred, figure, meant
    cdef double *scores
    if updated.shape[0] != n or preferred.shape[0] != n:
        raise ValueError("arrays differ in length")
    scores = <double *> malloc((n + 1) * sizeof(double))
    if scores == NULL:
        raise MemoryError
    try:
        for at in range(n):
            figure = fusion.figure(at, has_other and other[at])
            if has_unsure and unsure[at] and not (has_other and other[at]):
                meant = fusion.figure(at, True) + shared * fusion.lexical[at, 0] / fusion.mass
                figure = meant if meant > figure else figure
            age = now - updated[at]
            figure = figure * <float> (1.0 - fresh + fresh * pow(0.5, (0.0 if age < 0.0 else age) / half_life))
            scores[at] = 1.0 / (1.0 + exp(-((figure - middle) / slope + <double> (lift * preferred[at]))))
        return _rank(scores, n, signals, rules.deprecated, rules.fine)
    finally:
        free(scores)


cdef const uint8_t[::1] _flags(mask, Py_ssize_t n):
    cdef const uint8_t[::1] flags = None if mask is None else mask.view("u1")
    if flags is not None and flags.shape[0] != n:
        raise ValueError("arrays differ in length")
    return flags


def rank_by_scores(const double[::1] figures, signals, rules):
    return _rank(&figures[0], figures.shape[0], signals, rules.deprecated, rules.fine)


cdef object _rank(const double *scores, Py_ssize_t n, signals, double kept, double grid):
    """Order by score times worth (a deprecated agent keeps a share), in steps of a grid; ties by mark."""
    cdef const float[::1] worth = signals.worth
    cdef const uint8_t[::1] deprecated = signals.deprecated.view("u1")
    cdef const uint64_t[::1] marks = signals.mark
    cdef const uint32_t[::1] rows = signals.rows
    cdef Py_ssize_t at
    if worth.shape[0] != n or deprecated.shape[0] != n or marks.shape[0] != n or rows.shape[0] != n:
        raise ValueError("arrays differ in length")
    places = PyBytes_FromStringAndSize(NULL, n * sizeof(int64_t))
    figures = PyBytes_FromStringAndSize(NULL, n * sizeof(double))
    in_order = PyBytes_FromStringAndSize(NULL, n * sizeof(uint32_t))
    cdef int64_t *place = <int64_t *> PyBytes_AS_STRING(places)
    cdef double *figure = <double *> PyBytes_AS_STRING(figures)
    cdef uint32_t *row = <uint32_t *> PyBytes_AS_STRING(in_order)
    cdef Ranked *all = <Ranked *> malloc((2 * n + 1) * sizeof(Ranked))
    if all == NULL:
        raise MemoryError
    for at in range(n):
        all[at].step = rint(_final_score(scores[at], worth[at], deprecated[at], kept) * grid)
        all[at].mark, all[at].at = marks[at], <uint64_t> at
    _sort(all, all + n, n)
    for at in range(n):
        place[at] = <int64_t> all[at].at
        figure[at] = _final_score(scores[place[at]], worth[place[at]], deprecated[place[at]], kept)
        row[at] = rows[place[at]]
    free(all)
    return places, figures, in_order


cdef inline double _final_score(double score, float worth, uint8_t is_deprecated, double kept) noexcept nogil:
    return score * (<float> (worth * kept) if is_deprecated else worth)


def select_rows(signals, marks):
    cdef Py_ssize_t total = 0, taken = 0
    for found, _ in signals:
        for rows, _ in found:
            total += len(rows)
    cdef Ranked *room = <Ranked *> malloc((2 * total + 1) * (sizeof(Ranked) + sizeof(uint64_t)))
    if room == NULL:
        raise MemoryError
    cdef uint64_t *kept = <uint64_t *> (room + 2 * total)
    try:
        for found, count in signals:
            taken += _best(room, kept + taken, found, marks, count)
        return _by_segment(_in_order(kept, kept + total, taken), taken, <uint32_t *> room, len(marks))
    finally:
        free(room)


cdef Py_ssize_t _best(Ranked *room, uint64_t *kept, found, marks, Py_ssize_t count) except -1:
    """The best hits of one signal, as segment and row; return their number."""
    cdef const uint32_t[::1] rows
    cdef const float[::1] figures
    cdef const uint64_t[::1] mark
    cdef Py_ssize_t n = 0, at, segment
    if len(found) != len(marks) or count < 1:
        raise ValueError("arrays differ in length")
    for segment in range(len(marks)):
        rows = found[segment][0]
        if not rows.shape[0]:
            continue
        figures, mark = found[segment][1], marks[segment]
        if figures.shape[0] != rows.shape[0]:
            raise ValueError("arrays differ in length")
        for at in range(rows.shape[0]):
            if rows[at] >= mark.shape[0]:
                raise IndexError("no such row")
            room[n].step, room[n].mark, room[n].at = figures[at], mark[rows[at]], <uint64_t> segment << 32 | rows[at]
            n += 1
    if n > count:
        _put_first(room, n, count)
        n = count
    for at in range(n):
        kept[at] = room[at].at
    return n


cdef void _put_first(Ranked *all, Py_ssize_t n, Py_ssize_t count) noexcept nogil:
    """Quickselect: move the best `count` to the front."""
    cdef Py_ssize_t first = 0, last = n - 1, left, right
    cdef Ranked middle
    while first < last and first < count <= last:
        middle = _middle(all[first], all[(first + last) // 2], all[last])
        left, right = first, last
        while left <= right:
            while _is_before(all + left, &middle):
                left += 1
            while _is_before(&middle, all + right):
                right -= 1
            if left <= right:
                all[left], all[right] = all[right], all[left]
                left += 1
                right -= 1
        if count <= right + 1:
            last = right
        elif count > left:
            first = left
        else:
            return


cdef Ranked _middle(Ranked one, Ranked two, Ranked three) noexcept nogil:
    if _is_before(&two, &one):
        one, two = two, one
    if _is_before(&three, &two):
        two = one if _is_before(&three, &one) else three
    return two


cdef uint64_t *_in_order(uint64_t *keys, uint64_t *room, Py_ssize_t n) noexcept nogil:
    """Radix sort. The result is in one of the two arrays."""
    cdef Py_ssize_t[256] ends
    cdef Py_ssize_t at, end
    cdef uint64_t most = 0
    cdef int shift = 0
    for at in range(n):
        most |= keys[at]
    while most >> shift:
        memset(ends, 0, sizeof(ends))
        for at in range(n):
            ends[keys[at] >> shift & 0xFF] += 1
        end = n
        for at in range(255, -1, -1):
            end -= ends[at]
            ends[at] = end
        for at in range(n):
            room[ends[keys[at] >> shift & 0xFF]] = keys[at]
            ends[keys[at] >> shift & 0xFF] += 1
        keys, room = room, keys
        shift += 8
        if shift == 64:
            break
    return keys


cdef list _by_segment(const uint64_t *keys, Py_ssize_t n, uint32_t *rows, Py_ssize_t segments):
    cdef Py_ssize_t at = 0, count, segment
    found = []
    for segment in range(segments):
        count = 0
        while at < n and keys[at] >> 32 == <uint64_t> segment:
            if not count or rows[count - 1] != <uint32_t> keys[at]:
                rows[count] = <uint32_t> keys[at]
                count += 1
            at += 1
        found.append(PyBytes_FromStringAndSize(<char *> rows, count * sizeof(uint32_t)))
    return found


def read_ids(
    const uint8_t[::1] written,
    const int64_t[::1] starts,
    const uint32_t[::1] rows,
    const double[::1] scores,
    some,
    double grid,
):
    cdef Py_ssize_t place, n = starts.shape[0] - 1
    cdef int64_t start, end
    ids, shown = [], []
    if rows.shape[0] != scores.shape[0]:
        raise ValueError("arrays differ in length")
    for place in some:
        if not 0 <= place < rows.shape[0] or rows[place] >= n:
            raise IndexError("no such row")
        start, end = starts[rows[place]], starts[rows[place] + <Py_ssize_t> 1]
        if not 0 <= start <= end <= written.shape[0]:
            raise IndexError("no such text")
        ids.append(PyUnicode_DecodeUTF8(<const char *> &written[0] + start, end - start, NULL) if end > start else "")
        shown.append(rint(scores[place] * grid) / grid)
    return ids, shown
