# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Looks at documents that are taken in: whether a text is JSON that every reader reads alike, and whether a text has one of
several words in it. Neither is a rule: `model/json.py` and `search/lint.py` have those, and do without these.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH
from libc.string cimport memcmp

cdef extern from *:
    """
    #define waypost_is_ascii(text) PyUnicode_IS_ASCII(text)
    """
    bint waypost_is_ascii(object text)

# --- JSON -----------------------------------------------------------------------------------------

cdef enum:
    DEPTH = 64  # containers that may be open at once
    NAMES = 512  # names of all objects that are open
    NAMES_EACH = 48  # of one object: each is compared with those before it

cdef enum:
    ODD_ = 0
    PLAIN_ = 1
    BEYOND_ = 2

ODD = ODD_
PLAIN = PLAIN_
PLAIN_BEYOND_ASCII = BEYOND_

cdef struct Name:
    const unsigned char *text
    Py_ssize_t size


cdef inline bint is_hex(unsigned char c) noexcept nogil:
    return 48 <= c <= 57 or 65 <= c <= 70 or 97 <= c <= 102


cdef Py_ssize_t string_end(const unsigned char *text, Py_ssize_t at, Py_ssize_t size, bint *escaped, bint *beyond) noexcept nogil:
    """The place of the quote that ends a string whose first character is at `at`; -1 for a string that is odd."""
    cdef unsigned char c
    escaped[0] = False
    while at < size:
        c = text[at]
        if c == 34:
            return at
        if c < 0x20:
            return -1
        if c == 92:
            escaped[0] = True
            at += 1
            if at >= size:
                return -1
            c = text[at]
            if c == 117:  # \uXXXX, but no half of a pair
                if at + 4 >= size:
                    return -1
                if not (is_hex(text[at + 1]) and is_hex(text[at + 2]) and is_hex(text[at + 3]) and is_hex(text[at + 4])):
                    return -1
                if text[at + 1] | 0x20 == 100 and text[at + 2] > 55:
                    return -1
                at += 4
            elif not (c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116):
                return -1
        elif c >= 0x80:
            beyond[0] = True
        at += 1
    return -1


cdef Py_ssize_t number_end(const unsigned char *text, Py_ssize_t at, Py_ssize_t size, int digits) noexcept nogil:
    """The place after a number of fewer than `digits` digits and no exponent; -1 for any other."""
    cdef int found = 0
    cdef unsigned char c
    while at < size:
        c = text[at]
        if 48 <= c <= 57:
            found += 1
        elif c == 101 or c == 69:
            return -1
        elif c != 45 and c != 46:
            break
        at += 1
    return at if found < digits else -1


cdef int look(const unsigned char *text, Py_ssize_t size, int depth, int items, int digits) noexcept nogil:
    cdef Name names[NAMES]
    cdef int first[DEPTH]  # of the names of the object that is open at this depth; -1 for an array
    cdef int commas[DEPTH]
    cdef int open_ = 0, count = 0, each
    cdef bint is_name = False, escaped = False, beyond = False
    cdef Py_ssize_t at = 0, end, length
    cdef unsigned char c
    while at < size:
        c = text[at]
        if c == 34:
            end = string_end(text, at + 1, size, &escaped, &beyond)
            if end < 0:
                return ODD_
            if is_name:
                length = end - at - 1
                if escaped or count >= NAMES or count - first[open_ - 1] >= NAMES_EACH:
                    return ODD_
                for each in range(first[open_ - 1], count):
                    if names[each].size == length and memcmp(names[each].text, text + at + 1, length) == 0:
                        return ODD_
                names[count].text = text + at + 1
                names[count].size = length
                count += 1
                is_name = False
            at = end + 1
            continue
        if c == 123 or c == 91:
            if open_ >= depth or open_ >= DEPTH:
                return ODD_
            first[open_] = count if c == 123 else -1
            commas[open_] = 0
            open_ += 1
            is_name = c == 123
        elif c == 125 or c == 93:
            if open_ == 0:
                return ODD_
            open_ -= 1
            if (first[open_] >= 0) != (c == 125):
                return ODD_
            if c == 125:
                count = first[open_]
            is_name = False
        elif c == 44:
            if open_ == 0:
                return ODD_
            commas[open_ - 1] += 1
            if commas[open_ - 1] >= items:
                return ODD_
            is_name = first[open_ - 1] >= 0
        elif c == 45 or 48 <= c <= 57:
            at = number_end(text, at, size, digits)
            if at < 0:
                return ODD_
            continue
        elif c == 78 or c == 73:  # NaN, Infinity
            return ODD_
        at += 1
    return BEYOND_ if beyond else PLAIN_


def plainness(bytes data not None, int depth, int items, int digits):
    """PLAIN where a text, if it is JSON at all, is read alike by all: no name twice in an object, no number of so many
    digits or with an exponent, no half of a surrogate pair, nothing nested deeper or longer than that.
    PLAIN_BEYOND_ASCII likewise, if it is UTF-8. ODD says nothing."""
    return look(<const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), depth, items, digits)


# --- Words in a text ------------------------------------------------------------------------------

cdef enum:
    CUES = 64
    CUE_CHARS = 32


cdef class Cues:
    """Words of which a text may have one, in whatever case. Those that are not ASCII are in no text that is."""

    cdef unsigned char words[CUES][CUE_CHARS]
    cdef int sizes[CUES]
    cdef int count
    cdef unsigned char begins[256]  # 1 where a word begins so, in either case

    def __init__(self, words):
        cdef bytes written
        cdef int at
        self.count = 0
        for at in range(256):
            self.begins[at] = 0
        for word in words:
            if not word.isascii():
                continue
            written = word.lower().encode("ascii")
            if self.count >= CUES or not 0 < len(written) <= CUE_CHARS:
                raise ValueError(f"more or longer cues than there is room for: {word!r}")
            for at in range(len(written)):
                self.words[self.count][at] = written[at]
            self.sizes[self.count] = len(written)
            self.begins[self.words[self.count][0]] = 1
            self.begins[ord(written[:1].upper())] = 1
            self.count += 1

    def are_in(self, str text not None):
        """Whether any of them is in a text of ASCII; another text is not looked at, and has none."""
        if not waypost_is_ascii(text):
            return False
        return self.find(<const unsigned char *>PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text))

    cdef bint find(self, const unsigned char *text, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t at
        cdef int each, place
        cdef unsigned char c
        for at in range(size):
            if not self.begins[text[at]]:
                continue
            for each in range(self.count):
                if self.sizes[each] > size - at:
                    continue
                for place in range(self.sizes[each]):
                    c = text[at + place]
                    if 65 <= c <= 90:
                        c = c | 0x20
                    if c != self.words[each][place]:
                        break
                else:
                    return True
        return False
