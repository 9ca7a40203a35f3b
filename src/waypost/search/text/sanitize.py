"""Sanitizing: the visible part of a text, without hidden characters and markup, with look-alike letters replaced.

Only this is indexed, hashed and embedded; queries are sanitized too. The record itself keeps its bytes. The work is linear in the
length of any text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

# Zero-width and filler characters, direction marks, variation selectors, tag characters, and controls but tab and newline.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_OPENING: Final = re.compile(r"<([A-Za-z][A-Za-z0-9]*)\b([^<>]*)>")
_CONCEALED: Final = re.compile(
    r"\bhidden\b(?!\s*=\s*[\"']?false)|display\s*:\s*none|(?:opacity|font-size)\s*:\s*0+(?![.\d]*[1-9])"
    r"|(?<![-\w])color\s*:\s*(?:white|transparent|#f{3}(?:f{3})?\b|rgba?\(\s*255\s*,\s*255\s*,\s*255)"
    r"|(?:left|top|text-indent)\s*:\s*-\d{3}",
    re.IGNORECASE,
)
_UNRENDERED: Final = frozenset({"script", "style", "template", "noscript"})
_BLOB_CHARS: Final = 80
_BLOB: Final = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{_BLOB_CHARS},}}={{0,2}}")
_NOT_PLAIN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\U0010ffff<]")
_LONG_RUN: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{_BLOB_CHARS}}}")
_LOOKALIKE: Final = re.compile(
    "[\u0370-\u058f\u13a0-\u13ff\u2c80-\u2cff\ua4d0-\ua4ff]"
)  # scripts with Latin-like letters
_LATIN: Final = re.compile("[A-Za-z_]")
_MIXED: Final = re.compile(
    r"(?<!\w)((?:[A-Za-z_]++[^\WA-Za-z_]|[^\WA-Za-z_]++[A-Za-z_])\w*+(?:\W++[^\WA-Za-z_]*+[A-Za-z_]\w*+)*)"
)  # a word of Latin and other letters, with all following words that have a Latin letter
_TAG_LETTER: Final = re.compile("[\U000e0020-\U000e007e]")
_NO_SEPARATOR: Final = re.compile(r"[\W_]+")


def sanitize_text(text: str) -> str:
    """The visible text."""
    if _is_plain(text):  # as usual
        return text
    text = _UNSEEN.sub("", text)
    if not text.isascii() and _LOOKALIKE.search(text):
        text = _replace_lookalikes(text)
    if "<" in text:
        text = "".join(_rendered(_COMMENT.sub(" ", text)))
    return text if len(text) < _BLOB_CHARS else _BLOB.sub(_unless_blob, text)


def _is_plain(text: str) -> bool:
    """Whether an ASCII text is displayed as written: no hidden characters, no markup, no encoded data."""
    return not _NOT_PLAIN.search(text) and (len(text) < _BLOB_CHARS or not _LONG_RUN.search(text))


def has_hidden_text(text: str) -> bool:
    """Whether there is text for machines only: hidden elements, comments, or tag characters."""
    if _TAG_LETTER.search(text):
        return True
    return "<" in text and len("".join(_rendered(_COMMENT.sub("", text)))) < len(text)


def reveal_hidden_text(text: str) -> str:
    """The text with all hidden text: tag characters become letters."""
    if text.isascii():
        return text
    letters = _TAG_LETTER.sub(lambda found: chr(ord(found[0]) - 0xE0000), text)
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", letters))


def skeleton(name: str) -> str:
    """The skeleton of a name: equal for confusable names (UTS 39, for Latin letters).

    Case, separators and accents are ignored; 0 and O, 1 and I and l, rn and m, and look-alike letters of other scripts are
    equal. Equal skeletons are a reason to check, not a proof.
    """
    table = _confusables()
    decomposed = unicodedata.normalize("NFKD", _UNSEEN.sub("", name).translate(table))
    letters = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    folded = _NO_SEPARATOR.sub("", letters.casefold().translate(table).casefold())
    return folded.replace("rn", "m").replace("vv", "w").replace("i", "l")


def _replace_lookalikes(text: str) -> str:
    """Replace look-alike letters in words that mix Latin with another script; other words are unchanged.

    The text contains no NUL any more, which separates the parts here."""
    table = _confusable_letters()
    letters = table.keys() & set(text)
    if not letters or not _LATIN.search(text):
        return text
    pieces = _MIXED.split(text)  # every second part is mixed
    mixed = "\0".join(pieces[1::2])
    for letter in letters:
        mixed = mixed.replace(letter, table[letter])
    pieces[1::2] = mixed.split("\0") if mixed else ()
    return "".join(pieces)


def _unless_blob(found: re.Match[str]) -> str:
    """Remove encoded data; keep a long path or a row of hyphens."""
    run = found[0]
    mixed = any(map(str.isdigit, run)) and not run.islower() and not run.isupper()
    return " " if mixed else run


def _rendered(text: str) -> Iterator[str]:
    """The parts of the text outside of hidden elements. An unclosed one hides all that follows."""
    start = 0
    unclosed: set[str] = set()
    for opening in _OPENING.finditer(text):
        name = opening[1].lower()
        conceals = _CONCEALED.search(opening[2]) is not None
        if opening.start() < start or name in unclosed or not (conceals or name in _UNRENDERED):
            continue
        closing = _closing(name).search(text, opening.end())
        if closing is None and not conceals:
            unclosed.add(name)
            continue
        yield text[start : opening.start()]
        yield " "
        if closing is None:
            return
        start = closing.end()
    yield text[start:]


def _closing(name: str) -> re.Pattern[str]:
    return re.compile(rf"</{name}\s*>", re.IGNORECASE)


@cache
def _confusables() -> dict[int, str]:
    """Code point → the ASCII character that it looks like (written by scripts/tables.py)."""
    table: dict[int, str] = {}
    for line in (files(__package__) / "data" / "confusables.txt").read_text("ascii").splitlines():
        if line.startswith("# "):
            continue
        letter, *ranges = line.split()
        for first, _, last in (text.partition("-") for text in ranges):
            table |= dict.fromkeys(range(int(first, 16), int(last or first, 16) + 1), letter)
    return table


@cache
def _confusable_letters() -> dict[str, str]:
    """Only letters of other scripts: within a word, digits and ı are themselves."""
    return {chr(point): letter for point, letter in _confusables().items() if _LOOKALIKE.match(chr(point))}
