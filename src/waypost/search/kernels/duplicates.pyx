# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Near duplicates by simhash, and the diversity of results. The fallback is `duplicates_fallback.py`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset

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

    /* Flag which of n simhashes (four words) are near duplicates of one; return whether any is. The low byte of the last
       word is the allowed distance. An empty simhash is near nothing. */
    WAYPOST_CLONES
    static int waypost_near_each(const uint64_t *all, long n, const uint64_t *one, uint8_t *near)
    {
        const uint64_t low = 0xFF, bits = ~low;
        const uint64_t first = one[0], second = one[1], third = one[2], fourth = one[3];
        const int allowed = (first | second | third | (fourth & bits)) ? (int)(fourth & low) : -1;
        int any = 0;
        for (long at = 0; at < n; at++) {
            const uint64_t *other = all + 4 * at;
            int theirs = (int)(other[3] & low);
            int apart = waypost_count(first ^ other[0]) + waypost_count(second ^ other[1])
                + waypost_count(third ^ other[2]) + waypost_count((fourth ^ other[3]) & bits);
            near[at] = (uint8_t)(apart <= (theirs < allowed ? theirs : allowed));
            any |= near[at];
        }
        return any;
    }

    /* The same with AVX-512 VPOPCNTDQ, four simhashes at a time. */
    #if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 9)
    #include <immintrin.h>
    #define WAYPOST_AVX512 1
    #define COUNTED(r) _mm256_popcnt_epi64(_mm256_and_si256(_mm256_xor_si256(r, it), bits))
    #define HALVES(x, y) _mm256_add_epi64(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y))
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vpopcntdq")))
    static int waypost_near_avx512(const uint64_t *all, long n, const uint64_t *one, uint8_t *near)
    {
        const uint64_t low = 0xFF;
        const __m256i it = _mm256_loadu_si256((const __m256i *)one), bits = _mm256_set_epi64x((long long)~low, -1, -1, -1);
        const int says = (one[0] | one[1] | one[2] | (one[3] & ~low)) != 0;
        const __m256i allowed = _mm256_set1_epi64x(says ? (long long)(one[3] & low) : -1), bytes = _mm256_set1_epi64x(0xFF);
        long at = 0;
        uint32_t any = 0;
        for (; at + 4 <= n; at += 4) {
            const __m256i *four = (const __m256i *)(all + 4 * at);
            __m256i a = _mm256_loadu_si256(four), b = _mm256_loadu_si256(four + 1);
            __m256i c = _mm256_loadu_si256(four + 2), d = _mm256_loadu_si256(four + 3);
            __m256i first = HALVES(COUNTED(a), COUNTED(b)), second = HALVES(COUNTED(c), COUNTED(d));
            __m256i apart = _mm256_add_epi64(
                _mm256_permute2x128_si256(first, second, 0x20), _mm256_permute2x128_si256(first, second, 0x31));
            __m256i last = _mm256_permute2x128_si256(_mm256_unpackhi_epi64(a, b), _mm256_unpackhi_epi64(c, d), 0x31);
            __m256i most = _mm256_min_epi64(_mm256_and_si256(last, bytes), allowed);
            uint32_t found = ((uint32_t)_mm256_cmple_epi64_mask(apart, most) * 0x00204081u) & 0x01010101u;
            __builtin_memcpy(near + at, &found, 4);
            any |= found;
        }
        return (any != 0) | waypost_near_each(all + 4 * at, n - at, one, near + at);
    }
    #endif

    static int waypost_use_avx512 = 1; /* tests set 0 */

    static int waypost_near(const uint64_t *all, long n, const uint64_t *one, uint8_t *near)
    {
    #ifdef WAYPOST_AVX512
        if (waypost_use_avx512 && __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vl"))
            return waypost_near_avx512(all, n, one, near);
    #endif
        return waypost_near_each(all, n, one, near);
    }
    """
    bint waypost_use_avx512
    bint waypost_near(const uint64_t *records, long n, const uint64_t *one, uint8_t *near) nogil


def use_avx512(bint enabled):
    """For tests: whether to use AVX-512, if the processor has it."""
    global waypost_use_avx512
    waypost_use_avx512 = enabled


# --- Clusters ---


cdef int32_t _reach(
    const uint64_t *prints, int32_t n, int32_t first, int32_t *label, int32_t *line, uint8_t *near
) noexcept nogil:
    """Label the connected component of `first` among the later, unlabelled simhashes; return its size."""
    cdef int32_t size = 1, done = 0, at
    cdef int32_t behind = first + 1
    label[first], line[0] = first, first
    while done < size:
        done += 1
        if not waypost_near(prints + 4 * behind, n - behind, prints + 4 * line[done - 1], near):
            continue
        for at in range(behind, n):
            if near[at - behind] and label[at] < 0:
                label[at], line[size] = first, at
                size += 1
    return size


cdef bint _is_crowded(
    const uint64_t *prints, int32_t n, int32_t least, int32_t *label, int32_t *line, uint8_t *near
) noexcept nogil:
    """Whether there is a cluster of at least so many. Resets all labels."""
    cdef int32_t at
    cdef bint found = False
    memset(label, 0xFF, n * sizeof(int32_t))
    for at in range(n):
        if label[at] < 0 and _reach(prints, n, at, label, line, near) >= least:
            found = True
            break
    memset(label, 0xFF, n * sizeof(int32_t))
    return found


cdef struct Marked:
    uint64_t mark
    int32_t row


cdef int32_t _sampled(
    const uint64_t[::1] marks, const uint32_t[::1] rows, int32_t most, Marked *kept
) except -1:
    """The rows with the smallest marks (hashes of ids), in order: a sample that registration order cannot influence."""
    cdef int32_t count = 0, low, high, middle
    cdef Py_ssize_t at, n = marks.shape[0]
    cdef uint64_t mark
    for at in range(rows.shape[0]):
        if rows[at] >= n:
            raise IndexError("no such record")
        mark = marks[rows[at]]
        if count == most and mark >= kept[count - 1].mark:
            continue
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if kept[middle].mark <= mark:
                low = middle + 1
            else:
                high = middle
        if count < most:
            count += 1
        memmove(kept + low + 1, kept + low, (count - 1 - low) * sizeof(Marked))
        kept[low].mark, kept[low].row = mark, <int32_t> rows[at]
    return count


def find_clusters(
    const uint64_t[::1] marks, const uint64_t[:, ::1] fingerprints, const uint32_t[::1] rows, int32_t sample, int32_t least
):
    cdef int32_t count, at, other
    if sample < 1 or not rows.shape[0]:
        return []
    _check(fingerprints, marks.shape[0])
    cdef char *memory = <char *> calloc(sample, sizeof(Marked) + 4 * 8 + 2 * sizeof(int32_t) + 1)
    if memory == NULL:
        raise MemoryError
    cdef Marked *kept = <Marked *> memory
    cdef uint64_t *prints = <uint64_t *> (kept + sample)
    cdef int32_t *label = <int32_t *> (prints + 4 * sample)
    cdef int32_t *line = label + sample
    cdef uint8_t *near = <uint8_t *> (line + sample)
    found = []
    try:
        count = _sampled(marks, rows, sample, kept)
        for at in range(count):
            memcpy(prints + 4 * at, &fingerprints[kept[at].row, 0], 4 * sizeof(uint64_t))
        memset(label, 0xFF, count * sizeof(int32_t))
        for at in range(count):
            if label[at] < 0 and _reach(prints, count, at, label, line, near) >= least:
                found.append([kept[other].row for other in range(at, count) if label[other] == at])
    finally:
        free(memory)
    return found


cdef void _sort(uint32_t *rows, uint32_t *memory, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t half = n // 2, left = 0, right = half, at
    cdef uint32_t row
    if n <= 8:
        for right in range(1, n):
            row, at = rows[right], right
            while at > 0 and rows[at - 1] > row:
                rows[at] = rows[at - 1]
                at -= 1
            rows[at] = row
        return
    _sort(rows, memory, half)
    _sort(rows + half, memory, n - half)
    memcpy(memory, rows, half * sizeof(uint32_t))
    for at in range(n):
        if left == half:
            return
        if right < n and rows[right] < memory[left]:
            rows[at] = rows[right]
            right += 1
        else:
            rows[at] = memory[left]
            left += 1


cdef Py_ssize_t _distinct(uint32_t *rows, uint32_t *memory, Py_ssize_t n) noexcept nogil:
    """Sort and remove duplicates; return the count."""
    cdef Py_ssize_t at, count = 0
    _sort(rows, memory, n)
    for at in range(n):
        if not at or rows[at] != rows[at - 1]:
            memory[count] = rows[at]
            count += 1
    memcpy(rows, memory, count * sizeof(uint32_t))
    return count


def match_clusters(const uint64_t[:, ::1] fingerprints, parts, const uint64_t[:, ::1] samples):
    cdef Py_ssize_t n = 0, at, sample, count, found = 0
    cdef const uint32_t[::1] rows
    _check(fingerprints, 0)
    _check(samples, 0)
    for rows in parts:
        n += rows.shape[0]
    if not n or not samples.shape[0]:
        return b""
    cdef char *memory = <char *> calloc(n, 4 * 8 + 2 * 4 + 2)
    if memory == NULL:
        raise MemoryError
    cdef uint64_t *prints = <uint64_t *> memory
    cdef uint32_t *chosen = <uint32_t *> (prints + 4 * n)
    cdef uint8_t *is_match = <uint8_t *> (chosen + 2 * n)
    cdef uint8_t *near = is_match + n
    try:
        n = 0
        for rows in parts:
            for at in range(rows.shape[0]):
                if rows[at] >= fingerprints.shape[0]:
                    raise IndexError("no such record")
                chosen[n] = rows[at]
                n += 1
        count = _distinct(chosen, chosen + n, n)
        for at in range(count):
            memcpy(prints + 4 * at, &fingerprints[chosen[at], 0], 4 * sizeof(uint64_t))
        for sample in range(samples.shape[0]):
            if waypost_near(prints, count, &samples[sample, 0], near):
                for at in range(count):
                    is_match[at] |= near[at]
        for at in range(count):
            if is_match[at]:
                chosen[found] = chosen[at]
                found += 1
        return PyBytes_FromStringAndSize(<char *> chosen, found * sizeof(uint32_t))
    finally:
        free(memory)


def are_members(const uint32_t[::1] rows, const uint32_t[::1] members):
    cdef Py_ssize_t n = members.shape[0], at
    found = PyBytes_FromStringAndSize(NULL, rows.shape[0])
    cdef uint8_t *is_member = <uint8_t *> PyBytes_AS_STRING(found)
    if not n:
        memset(is_member, 0, rows.shape[0])
        return found
    for at in range(rows.shape[0]):
        is_member[at] = _last_up_to(&members[0], n, rows[at]) == rows[at]
    return found


cdef inline uint32_t _last_up_to(const uint32_t *members, Py_ssize_t n, uint32_t row) noexcept nogil:
    """The last member up to a row, else the first: a branchless binary search."""
    cdef Py_ssize_t half
    while n > 1:
        half = n // 2
        members += half * (members[half] <= row)
        n -= half
    return members[0]


cdef int _check(const uint64_t[:, ::1] fingerprints, Py_ssize_t least) except -1:
    if fingerprints.shape[0] < least or (fingerprints.shape[0] and fingerprints.shape[1] != 4):
        raise IndexError("no such fingerprint")
    return 0


# --- Diversity ---


cdef struct Rules:
    int32_t window
    int32_t per_cluster
    int32_t per_owner
    double comparable
    double fits_too
    double fits
    double original


ctypedef double *Doubles
ctypedef uint64_t *Words
ctypedef int32_t *Places
ctypedef uint8_t *Flags


cdef class _Diversifier:
    """`ranking.diversity` (`diversify`, `_Queue`, `_Window`) over places in arrays."""

    cdef Rules rules
    cdef int32_t n
    cdef void *memory
    cdef Words prints, whose
    cdef Doubles since, scores
    cdef Places owner  # first place of the same owner
    cdef Places label  # first place of the same cluster, or -1
    cdef Places turns  # first window in which each may be shown
    cdef Places line, of_cluster, of_owner, waiting, looked_at, behind, shown, table
    cdef Flags moved, is_shown, near
    cdef int32_t slots
    # The queue: the next place, those it adds, and an original that follows it.
    cdef int32_t next_at
    cdef int32_t[4] coming
    cdef int32_t comes
    cdef int32_t came
    cdef int32_t beside  # or -1
    # The window
    cdef int32_t turn
    cdef int32_t filled

    def __cinit__(self, int32_t n, rules):
        cdef int32_t slots = 16
        while slots < 2 * n:
            slots *= 2
        self.n, self.slots, self.beside = n, slots, -1
        (
            self.rules.window, self.rules.per_cluster, self.rules.per_owner,
            self.rules.comparable, self.rules.fits_too, self.rules.fits, self.rules.original,
        ) = rules
        if self.rules.window < 1 or self.rules.per_cluster < 1:
            raise ValueError("a window and the bound of a cluster must be positive")
        cdef size_t words = 4 + 3, numbers = 10, flags = 3
        self.memory = calloc(n * (8 * words + 4 * numbers + flags) + 4 * (slots + self.rules.window), 1)
        if self.memory == NULL:
            raise MemoryError
        self.prints = <uint64_t *> self.memory
        self.whose = self.prints + 4 * n
        self.since = <double *> (self.whose + n)
        self.scores = self.since + n
        self.owner = <int32_t *> (self.scores + n)
        self.label = self.owner + n
        self.line = self.label + n
        self.turns = self.line + n
        self.of_cluster = self.turns + n
        self.of_owner = self.of_cluster + n
        self.waiting = self.of_owner + n
        self.looked_at = self.waiting + n
        self.behind = self.looked_at + n
        self.shown = self.behind + n
        self.table = self.shown + n + self.rules.window
        self.moved = <uint8_t *> (self.table + slots)
        self.is_shown = self.moved + n
        self.near = self.is_shown + n

    def __dealloc__(self):
        free(self.memory)

    cdef int32_t name_owners(self, const uint64_t[::1] shared) noexcept:
        """Name each owner by its first place; agents of shared owners are separate. Return the number of owners."""
        cdef int32_t at, spot, count = 0
        cdef Py_ssize_t some
        cdef bint is_shared
        memset(self.table, 0xFF, self.slots * sizeof(int32_t))
        for at in range(self.n):
            is_shared = False
            for some in range(shared.shape[0]):
                is_shared = is_shared or self.whose[at] == shared[some]
            self.owner[at] = at
            if not is_shared:
                spot = <int32_t> ((self.whose[at] * <uint64_t> 0x9E3779B97F4A7C15) >> 32) & (self.slots - 1)
                while self.table[spot] >= 0 and self.whose[self.table[spot]] != self.whose[at]:
                    spot = (spot + 1) & (self.slots - 1)
                if self.table[spot] < 0:
                    self.table[spot] = at
                self.owner[at] = self.table[spot]
            count += self.owner[at] == at
        return count

    cdef bint is_diverse(self, int32_t limit) noexcept:
        """Whether no owner and no cluster exceeds its bound in these places."""
        cdef int32_t at, most = 0
        memset(self.of_owner, 0, self.n * sizeof(int32_t))
        for at in range(min(limit, self.n)):
            self.of_owner[self.owner[at]] += 1
            most = max(most, self.of_owner[self.owner[at]])
        if most > self.rules.per_owner:
            return False
        at = min(limit + self.rules.window, self.n)
        return not _is_crowded(self.prints, at, self.rules.per_cluster + 1, self.label, self.line, self.near)

    cdef int32_t pull(self) noexcept:
        """The next place of the queue, or -1."""
        while self.came == self.comes:
            if self.next_at > self.n:
                return -1
            self.came = self.comes = 0
            self.bring(self.next_at)
            self.next_at += 1
        self.came += 1
        return self.coming[self.came - 1]

    cdef void bring(self, int32_t at) noexcept:
        """Queue one place of the ranking, and the originals that go before it."""
        cdef int32_t original = at, before = self.beside, size
        cdef bint is_as_good = False
        self.beside = -1
        if at == self.n:
            if before >= 0:
                self.push(before)
            return
        if self.label[at] < 0:
            size = _reach(self.prints, self.n, at, self.label, self.line, self.near)
            if size > self.rules.per_cluster:
                original = self.find_original(at, &is_as_good)
        if is_as_good:
            if before >= 0:
                self.push(min(before, original))
                self.push(max(before, original))
            else:
                self.push(original)
        elif before >= 0:
            self.push(before)
        if not self.moved[at]:
            self.push(at)
        if not is_as_good and original != at:
            self.beside = original

    cdef void push(self, int32_t at) noexcept:
        self.coming[self.comes] = at
        self.comes += 1

    cdef int32_t find_original(self, int32_t best, bint *is_as_good) noexcept:
        """The earliest eligible member of a large cluster, and whether it goes before the best. Assigns windows."""
        cdef int32_t at, original = best, number, place = 0
        cdef double floor = self.rules.original * self.scores[best]
        cdef bint is_below, is_original_below = self.scores[best] < floor
        for at in range(best + 1, self.n):
            if self.label[at] == best:
                is_below = self.scores[at] < floor
                if is_below < is_original_below or (
                    is_below == is_original_below and self.since[at] < self.since[original]
                ):
                    original, is_original_below = at, is_below
        is_as_good[0] = original != best and self.scores[original] >= self.rules.comparable * self.scores[best]
        # The original comes first, or second after the best.
        number = 0 if is_as_good[0] or original == best else 1
        self.turns[original] = number // self.rules.per_cluster
        for at in range(best, self.n):
            if self.label[at] == best and at != original:
                if place == number:
                    place += 1
                self.turns[at] = place // self.rules.per_cluster
                place += 1
        if original != best:
            self.moved[original] = 1
            self.scores[original] = self.scores[best]
        return original

    cdef int32_t fill(self, int32_t waiting) noexcept:
        """Fill the next window from the leftovers and the queue; return the number of leftovers."""
        cdef int32_t looked = 0, first = 0, last = 0, at, left = 0, place, missing
        self.filled = 0
        memset(self.of_cluster, 0, self.n * sizeof(int32_t))
        memset(self.of_owner, 0, self.n * sizeof(int32_t))
        while self.filled < self.rules.window:
            at = self.waiting[looked] if looked < waiting else self.pull()
            if at < 0:
                break
            self.looked_at[looked] = at
            looked += 1
            while first < last and not self.fits_too(self.scores[at], self.scores[self.behind[first]]):
                first += 1
                self.take(self.behind[first - 1])
            if self.of_owner[self.owner[at]] >= self.rules.per_owner:
                self.behind[last] = at
                last += 1
            else:
                self.take(at)
        for place in range(first, last):
            self.take(self.behind[place])
        # Leftovers: first of those examined, then those not examined. Nothing unread is overwritten.
        missing = self.rules.window - self.filled
        for place in range(looked):
            at = self.looked_at[place]
            if not self.is_shown[at]:
                if missing > 0:  # nothing else is left
                    missing -= 1
                    self.show(at)
                else:
                    self.line[left] = at
                    left += 1
        for place in range(looked, waiting):
            self.line[left] = self.waiting[place]
            left += 1
        memcpy(self.waiting, self.line, left * sizeof(int32_t))
        return left

    cdef bint fits_too(self, double score, double better) noexcept:
        return score >= self.rules.comparable * better or (
            score >= self.rules.fits and score >= self.rules.fits_too * better
        )

    cdef void take(self, int32_t at) noexcept:
        if self.filled >= self.rules.window or self.turns[at] > self.turn:
            return
        if self.of_cluster[self.label[at]] < self.rules.per_cluster:
            self.of_cluster[self.label[at]] += 1
            self.of_owner[self.owner[at]] += 1
            self.show(at)

    cdef void show(self, int32_t at) noexcept:
        self.is_shown[at] = 1
        self.shown[self.filled] = at
        self.filled += 1


def diversify_rows(
    const double[::1] scores,
    const uint32_t[::1] rows,
    const uint64_t[:, ::1] fingerprints,
    const uint64_t[::1] owners,
    const double[::1] since,
    const uint64_t[::1] shared,
    rules,
    int32_t limit,
    int32_t count,
):
    cdef Py_ssize_t n = rows.shape[0], size = owners.shape[0]
    cdef int32_t left = 0, place
    if scores.shape[0] != n or since.shape[0] != size or n > 1 << 24:
        raise ValueError("arrays differ in length")
    _check(fingerprints, size)
    if not n:
        return None
    cdef _Diversifier work = _Diversifier(<int32_t> n, rules)
    for place in range(<int32_t> n):
        if rows[place] >= size:
            raise IndexError("no such record")
        memcpy(work.prints + 4 * place, &fingerprints[rows[place], 0], 4 * sizeof(uint64_t))
        work.whose[place], work.since[place] = owners[rows[place]], since[rows[place]]
    cdef int32_t distinct = work.name_owners(shared)
    if work.is_diverse(limit):
        return None
    if distinct == 1:
        work.rules.per_owner = <int32_t> n  # no other owner needs room
    memset(work.label, 0xFF, n * sizeof(int32_t))
    memcpy(work.scores, &scores[0], n * sizeof(double))
    found = []
    while len(found) < count:
        left = work.fill(left)
        for place in range(work.filled):
            found.append(work.shown[place])
        if work.filled < work.rules.window:
            break
        work.turn += 1
    return found[:count] if len(found) > count else found
