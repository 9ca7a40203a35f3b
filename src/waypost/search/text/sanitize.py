"""What a reader sees of a text: without hidden characters and markup, with disguised letters read as they look.

Only this is indexed, fingerprinted and embedded, and a question is read in the same way. The record itself keeps every
character it came with. It knows no field and no score; its work grows in step with the text, whatever the text is.
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
)  # a word of Latin letters and others, with all that follow and have a Latin letter
_TAG_LETTER: Final = re.compile("[\U000e0020-\U000e007e]")
_NO_SEPARATOR: Final = re.compile(r"[\W_]+")


def sanitize_text(text: str) -> str:
    """The text as a reader sees it."""
    if _is_plain(text):  # as most are
        return text
    text = _UNSEEN.sub("", text)
    if not text.isascii() and _LOOKALIKE.search(text):
        text = _undisguised(text)
    if "<" in text:
        text = "".join(_rendered(_COMMENT.sub(" ", text)))
    return text if len(text) < _BLOB_CHARS else _BLOB.sub(_unless_blob, text)


def _is_plain(text: str) -> bool:
    """Whether a reader sees an ASCII text as it is written: no hidden character, no markup, no run of characters that may be
    encoded data."""
    return not _NOT_PLAIN.search(text) and (len(text) < _BLOB_CHARS or not _LONG_RUN.search(text))


def has_hidden_text(text: str) -> bool:
    """Whether there is text meant for machines alone: hidden elements and comments, or letters written in tag characters."""
    if _TAG_LETTER.search(text):
        return True
    return "<" in text and len("".join(_rendered(_COMMENT.sub("", text)))) < len(text)


def reveal_hidden_text(text: str) -> str:
    """The text with all that it hides, for whoever looks for what machines are told: tag characters read as letters."""
    if text.isascii():
        return text
    letters = _TAG_LETTER.sub(lambda found: chr(ord(found[0]) - 0xE0000), text)
    return unicodedata.normalize("NFKC", _UNSEEN.sub("", letters))


def skeleton(name: str) -> str:
    """What a name looks like: equal for names that a reader may take for each other (UTS 39, for Latin letters).

    Case, separators and accents do not tell names apart, nor do 0 and O, 1 and I and l, rn and m, or letters of other
    scripts that look like Latin ones. Two names of one skeleton are a reason to look closer, not a proof.
    """
    table = _confusables()
    seen = unicodedata.normalize("NFKD", _UNSEEN.sub("", name).translate(table))
    letters = "".join(letter for letter in seen if not unicodedata.combining(letter))
    folded = _NO_SEPARATOR.sub("", letters.casefold().translate(table).casefold())
    return folded.replace("rn", "m").replace("vv", "w").replace("i", "l")


def _undisguised(text: str) -> str:
    """Words that mix Latin letters with those of another script are read as all Latin; words of another script are not.

    The text holds no zero any more, which is none of the characters that are seen."""
    table = _confusable_letters()
    letters = table.keys() & set(text)
    if not letters or not _LATIN.search(text):
        return text
    pieces = _MIXED.split(text)  # every second one is mixed
    mixed = "\0".join(pieces[1::2])
    for letter in letters:
        mixed = mixed.replace(letter, table[letter])
    pieces[1::2] = mixed.split("\0") if mixed else ()
    return "".join(pieces)


def _unless_blob(found: re.Match[str]) -> str:
    """Encoded data goes; a long path or a ruler of hyphens stays."""
    run = found[0]
    mixed = any(map(str.isdigit, run)) and not run.islower() and not run.isupper()
    return " " if mixed else run


def _rendered(text: str) -> Iterator[str]:
    """The pieces of the text outside of elements that are not shown. One left open hides all that follows."""
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
    """Code point to the ASCII character that it looks like (written by scripts/tables.py)."""
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
    """Only letters of other scripts: within a word, a digit is a digit and ı is a letter of its own."""
    return {chr(point): letter for point, letter in _confusables().items() if _LOOKALIKE.match(chr(point))}
