# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Cutting a text into pieces: see `embedders/plain_pieces.py` for what it means, and for the twin.

Texts and pieces are UTF-8 here. All beginnings of pieces are the nodes of a tree; a node is a place in one table, found by
the node before it and the next byte. No word is kept: cutting one takes no longer than finding it would.
"""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy

cdef enum:
    ROOM = 1 << 23  # places of the table at most: the number of a node and a byte are one key of 32 bits
    UNKNOWN = 0

cdef double NEVER = -1e30


cdef struct Text:  # bytes that grow
    char *bytes
    Py_ssize_t size, room


cdef int added(Text *text, const char *some, Py_ssize_t size) except -1:
    cdef Py_ssize_t room = text.room
    cdef char *moved
    if text.size + size > room:
        room = 2 * (text.size + size) + 64
        moved = <char *> realloc(text.bytes, room)
        if moved == NULL:
            raise MemoryError
        text.bytes, text.room = moved, room
    memcpy(text.bytes + text.size, some, size)
    text.size += size
    return 0


cdef class _Tree:
    """The pieces by their bytes."""

    cdef uint32_t[:, ::1] places  # key (0: nobody here), and one more than the number of the piece that ends here (0: none)
    cdef uint32_t root
    cdef int shift

    def __init__(self, list pieces):
        cdef Py_ssize_t room = 1024
        while room < 4 * len(pieces):
            room *= 2
        while not self._filled(pieces, room):
            room *= 2

    cdef bint _filled(self, list pieces, Py_ssize_t room) except -1:
        """False: there is too little room."""
        cdef Py_ssize_t left = room * 3 // 4, at, size
        cdef uint32_t node, before, number = 0
        cdef const char *raw
        if room > ROOM:
            raise ValueError("the vocabulary is too large")
        self.places = np.zeros((room, 2), np.uint32)
        self.root, self.shift = <uint32_t> room, 33 - (<object> room).bit_length()
        for piece in pieces:
            spelled = piece.encode()
            raw, size = spelled, len(spelled)
            node = self.root
            for at in range(size):
                before, node = node, self._place(node, <uint8_t> raw[at])
                if not self.places[node, 0]:
                    self.places[node, 0] = (before << 8 | <uint8_t> raw[at]) + 1
                    left -= 1
                    if left < 0:
                        return False
            number += 1
            if size:
                self.places[node, 1] = number
        return True

    cdef inline uint32_t _place(self, uint32_t node, uint8_t byte) noexcept nogil:
        """Where the next node is, or would be."""
        cdef uint32_t key = (node << 8 | byte) + 1, at = (key * <uint32_t> 2654435769) >> self.shift, mask = self.root - 1
        while self.places[at, 0] and self.places[at, 0] != key:
            at = (at + 1) & mask
        return at


cdef class Tokenizer:
    """May be used by several threads."""

    cdef _Tree tree
    cdef const float[::1] scores
    cdef double unknown_score
    cdef const uint32_t[::1] units
    cdef bytes replacements, space
    cdef list ascii  # how each of the first 128 characters is spelled

    def __init__(self, vocabulary):
        pieces, scores, charsmap = vocabulary.pieces, vocabulary.scores, vocabulary.charsmap
        if len(pieces) != len(scores):
            raise ValueError("pieces and scores do not belong together")
        self.tree, self.scores = _Tree(pieces), scores
        self.unknown_score, self.space = vocabulary.unknown_score, vocabulary.space.encode()
        size = int.from_bytes(charsmap[:4], "little")
        self.units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.uint32)
        self.replacements = charsmap[4 + size :]
        self.ascii = [self._alone(bytes((code,))) for code in range(128)]

    def encode(self, str text, Py_ssize_t most):
        """The numbers of the first `most` pieces or a few more; none for a text without a character that counts."""
        cdef Text plain = Text(NULL, 0, 0)
        cdef list numbers = []
        cdef bytes raw = text.encode("utf-8", "replace")
        try:
            if text.isascii():
                self._spell_ascii(raw, &plain)
            else:
                self._spell(raw, len(raw), &plain)
            self._cut_words(&plain, most, numbers)
        finally:
            free(plain.bytes)
        return numbers

    # --- How it is spelled ------------------------------------------------------------------------

    cdef bytes _alone(self, bytes raw):
        cdef Text text = Text(NULL, 0, 0)
        try:
            self._spell(raw, len(raw), &text)
            return text.bytes[: text.size] if text.size else b""
        finally:
            free(text.bytes)

    cdef int _spell_ascii(self, bytes raw, Text *out) except -1:
        cdef const char *some = raw
        cdef Py_ssize_t at
        cdef bytes spelled
        for at in range(len(raw)):
            spelled = <bytes> self.ascii[<uint8_t> some[at] & 127]
            added(out, spelled, len(spelled))
        return 0

    cdef int _spell(self, const char *raw, Py_ssize_t size, Text *out) except -1:
        """By the character map: the longest match is replaced, at each place."""
        cdef Py_ssize_t at = 0, stop = 0, value = 0
        cdef const char *replacements = self.replacements
        cdef const char *end
        while at < size:
            self._match(raw, size, at, &stop, &value)
            if stop > at:
                end = NULL
                if value < len(self.replacements):
                    end = <const char *> memchr(replacements + value, 0, len(self.replacements) - value)
                if end == NULL:
                    raise ValueError("the character map has no such replacement")
                added(out, replacements + value, end - replacements - value)
            else:
                stop = at + 1
                while stop < size and raw[stop] & 0xC0 == 0x80:  # the rest of one character
                    stop += 1
                added(out, raw + at, stop - at)
            at = stop
        return 0

    cdef int _match(self, const char *raw, Py_ssize_t size, Py_ssize_t start, Py_ssize_t *stop, Py_ssize_t *value) except -1:
        """Where the longest match from `start` ends (`start`: there is none), and its value."""
        cdef Py_ssize_t at, node = 0, count = self.units.shape[0]
        cdef uint32_t unit
        stop[0], value[0] = start, 0
        if not count:
            raise IndexError("the character map is empty")
        node = offset(self.units[0])
        for at in range(start, size):
            node ^= <uint8_t> raw[at]
            if node >= count:
                raise IndexError("the character map points beyond itself")
            unit = self.units[node]
            if unit & 0x800000FF != <uint8_t> raw[at]:
                break
            node ^= offset(unit)
            if unit & 0x100:
                if node >= count:
                    raise IndexError("the character map points beyond itself")
                stop[0], value[0] = at + 1, self.units[node] & 0x7FFFFFFF
        return 0

    # --- How it is cut ----------------------------------------------------------------------------

    cdef int _cut_words(self, Text *plain, Py_ssize_t most, list numbers) except -1:
        cdef Py_ssize_t start = 0, stop
        cdef Text word = Text(NULL, 0, 0)
        try:
            while start < plain.size and len(numbers) < most:
                stop = start
                while stop < plain.size and plain.bytes[stop] != 32:
                    stop += 1
                if stop > start:
                    word.size = 0
                    added(&word, self.space, len(self.space))
                    added(&word, plain.bytes + start, stop - start)
                    self._cut(word.bytes, word.size, numbers)
                start = stop + 1
        finally:
            free(word.bytes)
        return 0

    cdef int _cut(self, const char *word, Py_ssize_t size, list numbers) except -1:
        """The cut of one word whose pieces are likeliest together."""
        cdef double *best = <double *> malloc((size + 1) * sizeof(double))
        cdef Py_ssize_t *back = <Py_ssize_t *> malloc((size + 1) * sizeof(Py_ssize_t))
        cdef int32_t *chosen = <int32_t *> malloc((size + 1) * sizeof(int32_t))
        cdef Py_ssize_t at = size, first = len(numbers)
        try:
            if best == NULL or back == NULL or chosen == NULL:
                raise MemoryError
            self._search(word, size, best, back, chosen)
            while at > 0:
                numbers.append(chosen[at])
                at = back[at]
            numbers[first:] = numbers[first:][::-1]
        finally:
            free(best)
            free(back)
            free(chosen)
        return 0

    cdef void _search(self, const char *word, Py_ssize_t size, double *best, Py_ssize_t *back, int32_t *chosen) noexcept nogil:
        """At each place the likeliest pieces up to there: how likely, where the last one begins, and which it is."""
        cdef Py_ssize_t start = 0, at, after
        cdef uint32_t node
        cdef int32_t number
        cdef double here
        best[0] = 0
        for at in range(1, size + 1):
            best[at], back[at], chosen[at] = NEVER, 0, UNKNOWN
        while start < size:
            here, node, at = best[start], self.tree.root, start
            while at < size:
                node = self.tree._place(node, <uint8_t> word[at])
                at += 1
                if not self.tree.places[node, 0]:
                    break
                number = <int32_t> self.tree.places[node, 1] - 1
                if number >= 0 and here + self.scores[number] > best[at]:
                    best[at], back[at], chosen[at] = here + self.scores[number], start, number
            after = start + 1
            while after < size and word[after] & 0xC0 == 0x80:
                after += 1
            if here + self.unknown_score > best[after]:
                best[after], back[after], chosen[after] = here + self.unknown_score, start, UNKNOWN
            start = after


cdef inline uint32_t offset(uint32_t unit) noexcept nogil:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def run_of(list part, list pieces, Py_ssize_t most):
    """Where a part stands in the first `most` of the whole (from, to); None: nowhere."""
    cdef Py_ssize_t size = len(part), start, at, count = min(len(pieces), most)
    for start in range(count - size + 1 if size else 0):
        at = 0
        while at < size and <long> pieces[start + at] == <long> part[at]:
            at += 1
        if at == size:
            return start, start + size
    return None
