# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""A question in ASCII, read once: its terms, its clauses, what it quotes, the tags it names, its language. See
`search/reading.py`, `clauses.py`, `quotes.py`, `expansion.py`, `language.py` and `visible.py` for what each means: the
expressions there are the twins, and read every text that is not ASCII.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_Substring
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memchr, memset

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    const uint8_t *PyUnicode_1BYTE_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

DEF SLOTS = 1024  # of the table of small words: at most half of them are taken
DEF SHORT = 8  # letters of the longest small word
DEF MOST_LANGUAGES = 32
DEF MOST_OWNERS = 8

# What a character of ASCII is.
DEF WORD = 1  # a letter or a digit
DEF LETTER = 2
DEF SPACE = 4
DEF MARK = 8  # ends a sentence, or a line
DEF UNSEEN = 16
DEF BLOB = 32  # of encoded data
cdef uint8_t KINDS[256]


cdef int _learn() except -1:
    cdef int code
    for code in range(128):
        letter = chr(code)
        KINDS[code] = (
            (WORD if letter.isalnum() else 0)
            | (LETTER if letter.isalpha() else 0)
            | (SPACE if letter.isspace() else 0)
            | (MARK if letter in ".!?;:\n" else 0)
            | (UNSEEN if not letter.isprintable() and letter not in "\t\n\r" else 0)
            | (BLOB if letter.isalnum() or letter in "+/_-" else 0)
        )
    return 0


_learn()


cdef inline bint is_a(uint8_t letter, uint8_t kind) noexcept nogil:
    return KINDS[letter] & kind != 0


cdef inline bint is_of_word(uint8_t letter) noexcept nogil:
    """As an expression understands it."""
    return KINDS[letter] & WORD != 0 or letter == 95


cdef inline uint8_t lower(uint8_t letter) noexcept nogil:
    return letter | 32 if KINDS[letter] & LETTER else letter


cdef inline Py_ssize_t past(const uint8_t *text, Py_ssize_t at, Py_ssize_t size, uint8_t kind) noexcept nogil:
    """Behind all that follow and are of a kind."""
    while at < size and KINDS[text[at]] & kind:
        at += 1
    return at


# --- Visible as it is --------------------------------------------------------------------------------


def is_plain(str text not None, Py_ssize_t blob):
    """Whether a reader sees an ASCII text as it is written: no hidden character, no markup, no run of so many characters that
    may be encoded data."""
    cdef const uint8_t *letters
    cdef Py_ssize_t at, size = PyUnicode_GET_LENGTH(text), run = 0
    if not PyUnicode_IS_ASCII(text):
        return False
    letters = PyUnicode_1BYTE_DATA(text)
    for at in range(size):
        if KINDS[letters[at]] & UNSEEN or letters[at] == 60:
            return False
        run = run + 1 if KINDS[letters[at]] & BLOB else 0
        if run >= blob:
            return False
    return True


# --- Terms, clauses, quotations ----------------------------------------------------------------------


cdef struct Tokens:
    # The words of a text: where each stands, and the terms of each, by the order in which they were first met.
    Py_ssize_t count
    int32_t *begin
    int32_t *end
    int32_t *first  # [count + 1]: where its terms begin among
    int32_t *terms
    int32_t *seen  # [terms]: in which count a term was last met
    uint8_t *quoted


cdef Py_ssize_t first_from(const Tokens *tokens, Py_ssize_t begin) noexcept nogil:
    """The first word that does not begin before a place in the text."""
    cdef Py_ssize_t low = 0, high = tokens.count, middle
    while low < high:
        middle = low + (high - low) // 2
        if tokens.begin[middle] < begin:
            low = middle + 1
        else:
            high = middle
    return low


cdef class Reader:
    """`words` is a mapping from a word as it is written to its terms, joined by spaces."""

    cdef object _words
    cdef tuple _joining  # words that part two clauses, as bytes
    cdef uint8_t _joins[256]  # the letters that these begin with
    cdef Py_ssize_t _most_terms, _most_clauses, _least_words, _least_terms, _least_beside, _longest_quote

    def __init__(
        self, words, joining, *, most_terms, most_clauses, least_words, least_terms, least_beside, longest_quote
    ):
        if not isinstance(words, dict):
            raise TypeError("words are a dict")
        self._words = words
        self._joining = tuple([word.encode() for word in joining if word.isascii()])
        memset(self._joins, 0, sizeof(self._joins))
        for word in self._joining:
            self._joins[<uint8_t> word[0]] = 1
        self._most_terms, self._most_clauses = most_terms, most_clauses
        self._least_words, self._least_terms, self._least_beside = least_words, least_terms, least_beside
        self._longest_quote = longest_quote

    def read(self, str text not None):
        """The terms of a text, those that it only quotes, its clauses, and which terms each of these has: [terms, 1 + clauses],
        or None without clauses. None for a text that is not ASCII."""
        cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text), room = 2 * size + 4
        cdef Tokens tokens
        cdef int32_t *held
        if not PyUnicode_IS_ASCII(text):
            return None
        held = <int32_t *> PyMem_Malloc(6 * room * sizeof(int32_t))
        if not held:
            raise MemoryError
        try:
            tokens.count, tokens.begin, tokens.end, tokens.first = 0, held, held + room, held + 2 * room
            tokens.terms, tokens.seen, tokens.quoted = held + 3 * room, held + 4 * room, <uint8_t *> (held + 5 * room)
            return self._read(text, PyUnicode_1BYTE_DATA(text), size, room, &tokens)
        finally:
            PyMem_Free(held)

    cdef tuple _read(self, str text, const uint8_t *letters, Py_ssize_t size, Py_ssize_t room, Tokens *tokens):
        cdef list terms = self._taken_apart(text, letters, size, room, tokens)
        cdef Py_ssize_t known = min(<Py_ssize_t> len(terms), self._most_terms)
        quoted = self._quoted(letters, size, tokens, terms)
        parts, spans = self._clauses(text, letters, size, tokens, len(terms))
        has = self._had(tokens, spans, known, len(terms)) if parts else None
        return tuple(terms[:known]), quoted, parts, has

    cdef list _taken_apart(self, str text, const uint8_t *letters, Py_ssize_t size, Py_ssize_t room, Tokens *tokens):
        """The terms of a text, each once."""
        cdef Py_ssize_t at = 0, end, filled = 0
        cdef dict places = {}
        cdef list terms = []
        cdef PyObject *known
        cdef const uint8_t *said
        while True:
            while at < size and not KINDS[letters[at]] & WORD:
                at += 1
            if at == size:
                break
            end = past(letters, at, size, WORD)
            word = PyUnicode_Substring(text, at, end)
            known = PyDict_GetItemWithError(self._words, word)
            joined = <object> known if known else self._words[word]
            tokens.begin[tokens.count], tokens.end[tokens.count] = <int32_t> at, <int32_t> end
            tokens.first[tokens.count] = <int32_t> filled
            tokens.count += 1
            at = end
            if not joined:
                continue
            if type(joined) is not str:
                raise TypeError("terms are text")
            if memchr(PyUnicode_1BYTE_DATA(joined), 32, PyUnicode_GET_LENGTH(joined)) == NULL:
                filled = _put(joined, places, terms, tokens, filled, room)
            else:
                for term in (<str> joined).split():
                    filled = _put(term, places, terms, tokens, filled, room)
        tokens.first[tokens.count] = <int32_t> filled
        return terms

    cdef Py_ssize_t _counted(
        self, Tokens *tokens, Py_ssize_t begin, Py_ssize_t end, int quoted, int32_t mark
    ) noexcept nogil:
        """Marks the terms between two places in the text, in or outside of quotations (-1: wherever they stand), as many as a
        question has; how many these are."""
        cdef Py_ssize_t at, spot, found = 0
        for at in range(first_from(tokens, begin), tokens.count):
            if tokens.end[at] > end:
                break
            if quoted >= 0 and tokens.quoted[at] != quoted:
                continue
            for spot in range(tokens.first[at], tokens.first[at + 1]):
                if tokens.seen[tokens.terms[spot]] != mark:
                    if found == self._most_terms:
                        return found
                    tokens.seen[tokens.terms[spot]] = mark
                    found += 1
        return found

    # --- Quotations ------------------------------------------------------------------------------

    cdef object _quoted(self, const uint8_t *letters, Py_ssize_t size, Tokens *tokens, list terms):
        """The terms that stand in quotation marks and nowhere else."""
        cdef list spans = self._quotations(letters, size)
        cdef Py_ssize_t at, begin, end
        if not spans:
            return _NONE
        memset(tokens.quoted, 0, tokens.count)
        at = 0
        for begin, end in spans:
            while at < tokens.count and tokens.begin[at] < begin:
                at += 1
            while at < tokens.count and tokens.begin[at] < end:
                tokens.quoted[at] = 1
                at += 1
        memset(tokens.seen, 0, len(terms) * sizeof(int32_t))
        if self._counted(tokens, 0, size, 0, 1) < self._least_beside:
            return _NONE
        found = []
        for begin, end in spans:
            self._put_only(tokens, begin, end, terms, found)
        return frozenset(found)

    cdef int _put_only(self, Tokens *tokens, Py_ssize_t begin, Py_ssize_t end, list terms, list found) except -1:
        """The terms of one quotation, as many as a question has, but for those that stand beside."""
        cdef Py_ssize_t at, spot
        cdef set met = set()
        for at in range(first_from(tokens, begin), tokens.count):
            if tokens.end[at] > end:
                break
            for spot in range(tokens.first[at], tokens.first[at + 1]):
                if len(met) == self._most_terms and tokens.terms[spot] not in met:
                    return 0
                met.add(tokens.terms[spot])
                if tokens.seen[tokens.terms[spot]] != 1:
                    found.append(terms[tokens.terms[spot]])
        return 0

    cdef list _quotations(self, const uint8_t *letters, Py_ssize_t size):
        """Where each stands, with its marks."""
        cdef Py_ssize_t at = 0, end
        cdef list found = None
        while at < size:
            if letters[at] == 34 or letters[at] == 39:
                end = self._quotation(letters, at, size)
                if end:
                    found = [] if found is None else found
                    found.append((at, end))
                    at = end
                    continue
            at += 1
        return found

    cdef Py_ssize_t _quotation(self, const uint8_t *letters, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
        """Behind the one that begins here; 0 if none does. An apostrophe is none."""
        cdef uint8_t mark = letters[at]
        cdef Py_ssize_t end = at + 1, last = min(size, at + 2 + self._longest_quote)
        if mark == 39 and (
            (at > 0 and is_of_word(letters[at - 1])) or end == size or is_a(letters[end], SPACE)
        ):
            return 0
        while end < last and letters[end] != mark:
            end += 1
        if end == last or end == at + 1:
            return 0
        if mark == 39 and (
            is_a(letters[end - 1], SPACE) or (end + 1 < size and is_of_word(letters[end + 1]))
        ):
            return 0
        return end + 1

    # --- Clauses ---------------------------------------------------------------------------------

    cdef tuple _clauses(self, str text, const uint8_t *letters, Py_ssize_t size, Tokens *tokens, Py_ssize_t terms):
        """The pieces of a text that stand for themselves, and where they stand; nothing when there are not at least two."""
        cdef list spans = self._long_pieces(letters, size), kept = [], where = []
        cdef Py_ssize_t begin, end
        cdef int32_t mark = 0
        if len(spans) < 2:
            return (), None
        memset(tokens.seen, 0, terms * sizeof(int32_t))
        met = set()
        for begin, end in spans:
            piece = PyUnicode_Substring(text, begin, end)
            if piece in met:
                continue
            met.add(piece)
            mark += 1
            if self._counted(tokens, begin, end, -1, mark) >= self._least_terms:
                kept.append(piece)
                where.append((begin, end))
                if len(kept) == self._most_clauses:
                    break
        return (tuple(kept), where) if len(kept) > 1 else ((), None)

    cdef list _long_pieces(self, const uint8_t *letters, Py_ssize_t size):
        """Where the pieces stand that have enough words."""
        cdef list found = []
        cdef Py_ssize_t at = 0, begin = 0, end, no_marks = 0, no_word = 0
        while at < size:
            if letters[at] != 44 and not KINDS[letters[at]] & (SPACE | MARK):
                at += 1
                continue
            end = self._break(letters, at, size, &no_marks, &no_word)
            if end:
                self._put_piece(letters, begin, at, found)
                begin = at = end
            else:
                at += 1
        self._put_piece(letters, begin, size, found)
        return found

    cdef int _put_piece(self, const uint8_t *letters, Py_ssize_t begin, Py_ssize_t end, list found) except -1:
        cdef Py_ssize_t at, words = 0
        while begin < end and (letters[begin] == 32 or letters[begin] == 44 or letters[begin] == 46):
            begin += 1
        while begin < end and (letters[end - 1] == 32 or letters[end - 1] == 44 or letters[end - 1] == 46):
            end -= 1
        at = past(letters, begin, end, SPACE)
        while at < end and words < self._least_words:
            words += 1
            while at < end and not KINDS[letters[at]] & SPACE:
                at += 1
            at = past(letters, at, end, SPACE)
        if words >= self._least_words:
            found.append((begin, end))
        return 0

    cdef Py_ssize_t _break(
        self, const uint8_t *letters, Py_ssize_t at, Py_ssize_t size, Py_ssize_t *no_marks, Py_ssize_t *no_word
    ):
        """Behind the break that begins here; 0 if none does. Of runs that were looked at in vain it is kept how far they reach:
        what follows from a place within them is known."""
        cdef Py_ssize_t end, back
        if KINDS[letters[at]] & MARK and at >= no_marks[0]:
            end = past(letters, at + 1, size, MARK)
            if end < size and KINDS[letters[end]] & SPACE:
                return past(letters, end, size, SPACE)
            for back in range(end - 1, at, -1):
                if letters[back] == 10:
                    return back + 1
            no_marks[0] = end
        if letters[at] == 44:
            end = past(letters, at + 1, size, SPACE)
            return (self._joined(letters, end, size) or end) if end > at + 1 else 0
        if KINDS[letters[at]] & SPACE and at >= no_word[0]:
            end = past(letters, at + 1, size, SPACE)
            back = self._joined(letters, end, size)
            no_word[0] = 0 if back else end
            return back
        return 0

    cdef Py_ssize_t _joined(self, const uint8_t *letters, Py_ssize_t at, Py_ssize_t size):
        """Behind a word that joins two clauses, and the space after it; 0 if there is none here."""
        cdef Py_ssize_t same, end
        cdef const uint8_t *word
        if at >= size or not self._joins[lower(letters[at])]:
            return 0
        for joining in self._joining:
            word, end = <const uint8_t *> <const char *> <bytes> joining, len(<bytes> joining)
            if at + end >= size or not KINDS[letters[at + end]] & SPACE:
                continue
            same = 0
            while same < end and lower(letters[at + same]) == word[same]:
                same += 1
            if same == end:
                return past(letters, at + end, size, SPACE)
        return 0

    cdef object _had(self, Tokens *tokens, list spans, Py_ssize_t known, Py_ssize_t terms):
        """The terms of the whole, then those of each part."""
        cdef Py_ssize_t units = len(spans) + 1, unit = 0, at, begin, end
        out = PyByteArray_FromStringAndSize(NULL, known * units * sizeof(float))
        cdef float *flags = <float *> PyByteArray_AS_STRING(out)
        memset(flags, 0, known * units * sizeof(float))
        for at in range(known):
            flags[at * units] = 1
        memset(tokens.seen, 0, terms * sizeof(int32_t))
        for begin, end in spans:
            unit += 1
            self._counted(tokens, begin, end, -1, <int32_t> unit)
            for at in range(known):
                if tokens.seen[at] == unit:
                    flags[at * units + unit] = 1
        return out


cdef Py_ssize_t _put(term, dict places, list terms, Tokens *tokens, Py_ssize_t filled, Py_ssize_t room) except -1:
    cdef PyObject *known = PyDict_GetItemWithError(places, term)
    cdef int32_t place
    if filled == room:
        raise ValueError("a word has no more terms than letters")
    if known:
        place = <object> known
    else:
        place = <int32_t> len(terms)
        places[term] = place
        terms.append(term)
    tokens.terms[filled] = place
    return filled + 1


cdef object _NONE = frozenset()


# --- Tags --------------------------------------------------------------------------------------------


def named(
    tuple terms not None,
    dict longest not None,
    dict spoken not None,
    Py_ssize_t phrase_terms,
    Py_ssize_t most,
    phrase_worth,
    word_worth,
):
    """What the terms name: see `expansion.names_in`. `longest` knows of how many terms the phrases are that begin with one."""
    cdef Py_ssize_t start = 0, count = len(terms), size
    cdef dict found = {}
    cdef PyObject *known
    cdef PyObject *begun
    while start < count and len(found) < most:
        known, size = NULL, 1
        begun = PyDict_GetItemWithError(longest, terms[start])
        if begun:
            size = min(<Py_ssize_t> <object> begun, phrase_terms, count - start)
            while size > 1:
                known = PyDict_GetItemWithError(spoken, " ".join(terms[start : start + size]))
                if known:
                    break
                size -= 1
            if not known:
                size = 1
                known = PyDict_GetItemWithError(spoken, terms[start])
        if not known and start + 1 < count:  # chat bot for chatbot
            known = PyDict_GetItemWithError(spoken, <str> terms[start] + <str> terms[start + 1])
            size = 2 if known else 1
        if known:
            found.setdefault((<tuple> <object> known)[0], word_worth if size == 1 else phrase_worth)
        start += size
    return found


# --- Language ----------------------------------------------------------------------------------------


cdef struct Owned:
    uint64_t word  # its letters; 0: nobody's
    int count
    uint8_t language[MOST_OWNERS]


cdef class SmallWords:
    """Small words, and the languages that each belongs to, by number."""

    cdef Owned _slots[SLOTS]
    cdef double _least_marks, _mark_share

    def __init__(self, owners, *, least_marks, mark_share):
        cdef Owned *slot
        cdef uint64_t letters
        memset(self._slots, 0, sizeof(self._slots))
        if 2 * len(owners) > SLOTS:
            raise ValueError("there are fewer small words")
        for word, languages in owners.items():
            if not word.isascii():
                continue
            if not 0 < len(word) <= SHORT or not 0 < len(languages) <= MOST_OWNERS or max(languages) >= MOST_LANGUAGES:
                raise ValueError("a small word is shorter, and of fewer languages")
            letters = 0
            for letter in word:
                letters = letters << 8 | <uint8_t> ord(letter)
            slot = self._slot(letters)
            slot.word, slot.count = letters, 0
            for language in languages:
                slot.language[slot.count] = language
                slot.count += 1
        self._least_marks, self._mark_share = least_marks, mark_share

    cdef Owned *_slot(self, uint64_t word) noexcept nogil:
        cdef uint64_t at = (word * <uint64_t> 0x9E3779B97F4A7C15u) >> 54
        while self._slots[at].word != 0 and self._slots[at].word != word:
            at = (at + 1) & (SLOTS - 1)
        return &self._slots[at]

    def language_of(self, str text not None, Py_ssize_t looked_at, int unknown):
        """The language that its small words speak for, by number; -1 for a text that is not ASCII."""
        if not PyUnicode_IS_ASCII(text):
            return -1
        return self._most_spoken(PyUnicode_1BYTE_DATA(text), min(PyUnicode_GET_LENGTH(text), looked_at), unknown)

    cdef int _most_spoken(self, const uint8_t *letters, Py_ssize_t size, int unknown) noexcept nogil:
        cdef double counts[MOST_LANGUAGES]
        cdef uint8_t order[MOST_LANGUAGES]  # in which they were met: of equals the first is the best
        cdef int met = 0, at, best = 0, language
        cdef Py_ssize_t place = 0, begin, words = 0
        cdef uint64_t word
        cdef Owned *slot
        cdef double others = 0, marks
        memset(counts, 0, sizeof(counts))
        while True:
            while place < size and not KINDS[letters[place]] & LETTER:
                place += 1
            if place == size:
                break
            begin, word = place, 0
            while place < size and KINDS[letters[place]] & LETTER:
                word = word << 8 | (letters[place] | 32)
                place += 1
            words += 1
            if place - begin > SHORT:
                continue
            slot = self._slot(word)
            if slot.word == 0:
                continue
            for at in range(slot.count):
                language = slot.language[at]
                if counts[language] == 0:
                    order[met] = <uint8_t> language
                    met += 1
                counts[language] += 1.0 / slot.count
        if met == 0:
            return unknown
        for at in range(1, met):
            if counts[order[at]] > counts[order[best]]:
                best = at
        marks = counts[order[best]]
        for at in range(met):
            if at != best and counts[order[at]] > others:
                others = counts[order[at]]
        if marks >= self._least_marks and marks >= self._mark_share * <double> words and marks >= 2 * others:
            return order[best]
        return unknown
