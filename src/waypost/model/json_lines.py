"""JSON documents as lines: of exports, batches, event streams and output for programs.

Knows only what divides lines. Many readers (`str.splitlines`, httpx's `iter_lines`) divide where Unicode does, and JSON
lets three such characters stand in a text as they are. Escaped they mean the same, and every reader sees one line.
"""

from __future__ import annotations

from typing import Final

_DIVIDERS: Final = tuple((char.encode(), b"\\u%04x" % ord(char)) for char in "\x85\u2028\u2029")


def one_line(document: bytes) -> bytes:
    """The same JSON without anything that anybody takes for the end of a line."""
    if b"\n" in document or b"\r" in document:  # between tokens: inside of texts they are escaped
        document = document.replace(b"\r", b"").replace(b"\n", b" ")
    if document.isascii():
        return document
    for raw, escaped in _DIVIDERS:
        document = document.replace(raw, escaped)
    return document
