# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Messages of AGP in the form in which we write them, read and written in one pass: ASCII, with nothing that JSON escapes.

Whatever is written in another way is None here, and left to the twins (`wire/agp_frame.py`), which read and write anything.
The frame of a WebSocket around a text (RFC 6455) is made in one pass too; its twin is in `client/text_frames.py`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    bint PyUnicode_Check(object text)
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void *PyUnicode_DATA(object text)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 most)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Whether every byte stands for itself in a text of JSON, and is printable. */
    static int is_plain(const char *text, Py_ssize_t size)
    {
        unsigned char found = 0;
        for (Py_ssize_t at = 0; at < size; at++) {
            unsigned char one = (unsigned char)text[at];
            found |= (unsigned char)((one < 0x20) | (one == '"') | (one == '\\\\') | (one > 0x7E));
        }
        return !found;
    }

    static int begins_with(const char *at, const char *end, const char *what, Py_ssize_t size)
    {
        return end - at >= size && memcmp(at, what, (size_t)size) == 0;
    }

    typedef struct { const char *at; Py_ssize_t size; } part;
    typedef struct { const char *text; Py_ssize_t size; } literal;
    #define LITERAL(text) {text, sizeof(text) - 1}

    /* What stands before each of the eight texts that every message has, in their order. */
    static const literal BEFORE[8] = {
        LITERAL("{\\"id\\":\\""), LITERAL("\\",\\"from\\":\\""), LITERAL("\\",\\"to\\":\\""), LITERAL("\\",\\"type\\":\\""),
        LITERAL("\\",\\"timestamp\\":\\""), LITERAL("\\",\\"signature\\":\\""),
        LITERAL("\\",\\"body\\":{\\"content\\":\\""), LITERAL("\\",\\"contentType\\":\\"")};
    static const literal REPLY_TO = LITERAL("\\",\\"replyTo\\":\\""), MORE = LITERAL(",\\"more\\":true"), END = LITERAL("}}");

    /* One text, with what stands before it; where it ends, at its closing quote. */
    static const char *find_part(const char *at, const char *end, const literal *before, part *out)
    {
        const char *close;
        if (!begins_with(at, end, before->text, before->size)) return 0;
        at += before->size;
        close = memchr(at, '"', (size_t)(end - at));
        if (close == 0 || !is_plain(at, close - at)) return 0;
        out->at = at;
        out->size = close - at;
        return close;
    }

    /* The eight texts and `replyTo`; whether it is all of a message, and nothing else. */
    static int find_parts_of(const char *at, Py_ssize_t size, part *parts, int *more)
    {
        const char *end = at + size;
        for (int number = 0; number < 8; number++) {
            at = find_part(at, end, BEFORE + number, parts + number);
            if (at == 0) return 0;
        }
        parts[8].at = 0;
        if (begins_with(at, end, REPLY_TO.text, REPLY_TO.size)) {
            at = find_part(at, end, &REPLY_TO, parts + 8);
            if (at == 0) return 0;
        }
        at++;
        *more = begins_with(at, end, MORE.text, MORE.size);
        if (*more) at += MORE.size;
        return end - at == END.size && begins_with(at, end, END.text, END.size);
    }

    static char *put(char *at, const char *text, Py_ssize_t size)
    {
        memcpy(at, text, (size_t)size);
        return at + size;
    }

    static Py_ssize_t written_size(const part *parts, int more)
    {
        Py_ssize_t size = 1 + END.size + (more ? MORE.size : 0);
        for (int number = 0; number < 8; number++) size += BEFORE[number].size + parts[number].size;
        return parts[8].at == 0 ? size : size + REPLY_TO.size + parts[8].size;
    }

    static void put_parts(char *at, const part *parts, int more)
    {
        for (int number = 0; number < 8; number++) {
            at = put(at, BEFORE[number].text, BEFORE[number].size);
            at = put(at, parts[number].at, parts[number].size);
        }
        if (parts[8].at != 0) {
            at = put(at, REPLY_TO.text, REPLY_TO.size);
            at = put(at, parts[8].at, parts[8].size);
        }
        *at++ = '"';
        if (more) at = put(at, MORE.text, MORE.size);
        put(at, END.text, END.size);
    }

    static void put_masked(char *out, const char *text, Py_ssize_t size, const char *mask)
    {
        uint64_t word, twice;
        uint32_t once;
        Py_ssize_t at = 0;
        memcpy(&once, mask, 4);
        twice = (uint64_t)once << 32 | once;
        for (; at + 8 <= size; at += 8) {
            memcpy(&word, text + at, 8);
            word ^= twice;
            memcpy(out + at, &word, 8);
        }
        for (; at < size; at++) out[at] = text[at] ^ mask[at & 3];
    }
    """
    ctypedef struct part:
        const char *at
        Py_ssize_t size
    bint is_plain(const char *text, Py_ssize_t size)
    bint find_parts_of(const char *at, Py_ssize_t size, part *parts, int *more)
    Py_ssize_t written_size(const part *parts, int more)
    void put_parts(char *at, const part *parts, int more)
    void put_masked(char *out, const char *text, Py_ssize_t size, const char *mask)


def find_parts(str frame not None):
    """The id, sender, receiver, type, time, signature, content, its type, what it answers, whether more follows, and what the
    signature is over; None for a frame that is not written plainly."""
    cdef part parts[9]
    cdef int more = 0
    if not PyUnicode_IS_COMPACT_ASCII(frame):
        return None
    if not find_parts_of(<const char *> PyUnicode_DATA(frame), PyUnicode_GET_LENGTH(frame), parts, &more):
        return None
    return (
        _text(parts[0]), _text(parts[1]), _text(parts[2]), _text(parts[3]), _text(parts[4]), _text(parts[5]),
        _text(parts[6]), _text(parts[7]), None if parts[8].at == NULL else _text(parts[8]), more != 0, _covered(parts),
    )


def write_parts(str message_id, str sender, str to, str kind, str timestamp, str signature, str content, str content_type,
                str reply_to, bint more):
    """The frame of these; None where one of them cannot be written as it is."""
    cdef part parts[9]
    if not (_find(message_id, &parts[0]) and _find(sender, &parts[1]) and _find(to, &parts[2]) and _find(kind, &parts[3])
            and _find(timestamp, &parts[4]) and _find(signature, &parts[5]) and _find(content, &parts[6])
            and _find(content_type, &parts[7])):
        return None
    parts[8].at = NULL
    if reply_to is not None and not _find(reply_to, &parts[8]):
        return None
    frame = PyUnicode_New(written_size(parts, more), 127)
    put_parts(<char *> PyUnicode_DATA(frame), parts, more)
    return frame


def frame_text(str text not None, bytes mask):
    """A whole text in one frame of a WebSocket; `mask` is None or four bytes."""
    cdef Py_ssize_t size, head, number
    cdef const char *data = PyUnicode_AsUTF8AndSize(text, &size)
    cdef Py_ssize_t lengths = 0 if size < 126 else 2 if size < 65536 else 8
    cdef Py_ssize_t masks = 0 if mask is None else 4
    if masks and PyBytes_GET_SIZE(mask) != 4:
        raise ValueError("a mask has four bytes")
    head = 2 + lengths + masks
    frame = PyBytes_FromStringAndSize(NULL, head + size)
    cdef uint8_t *out = <uint8_t *> PyBytes_AS_STRING(frame)
    out[0] = 0x81
    out[1] = <uint8_t> ((0x80 if masks else 0) | (size if lengths == 0 else 126 if lengths == 2 else 127))
    for number in range(lengths):
        out[2 + number] = <uint8_t> (size >> 8 * (lengths - 1 - number) & 0xFF)
    if masks:
        memcpy(out + 2 + lengths, PyBytes_AS_STRING(mask), 4)
        put_masked(<char *> out + head, data, size, PyBytes_AS_STRING(mask))
    else:
        memcpy(out + head, data, size)
    return frame


cdef _text(part one):
    text = PyUnicode_New(one.size, 127)
    if one.size:
        memcpy(PyUnicode_DATA(text), one.at, one.size)
    return text


cdef bytes _covered(const part *parts):
    """The id, the names, the type, the time and the content, with line feeds between them (ADP-42)."""
    cdef Py_ssize_t size = 5 + parts[6].size, number
    for number in range(5):
        size += parts[number].size
    covered = PyBytes_FromStringAndSize(NULL, size)
    cdef char *at = PyBytes_AS_STRING(covered)
    for number in range(5):
        memcpy(at, parts[number].at, parts[number].size)
        at += parts[number].size
        at[0] = 10
        at += 1
    memcpy(at, parts[6].at, parts[6].size)
    return covered


cdef bint _find(str text, part *out):
    if text is None or not PyUnicode_IS_COMPACT_ASCII(text):
        return False
    out.at = <const char *> PyUnicode_DATA(text)
    out.size = PyUnicode_GET_LENGTH(text)
    return is_plain(out.at, out.size)
