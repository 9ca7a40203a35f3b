"""Texts of strangers, made fit for a terminal."""

from __future__ import annotations

import unicodedata
from typing import Any

_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # part of some scripts and of composed emoji


def clean(text: Any) -> str:
    """One line without characters that command a terminal or turn the direction of a text."""
    line = " ".join(str(text).split())
    if line.isascii() and line.isprintable():
        return line
    return "".join("�" if unicodedata.category(char) in _UNSEEN and char not in _JOINERS else char for char in line)


def clean_lines(text: str) -> str:
    """The same of a text whose lines and spaces stay as they are."""
    return "".join(
        "�" if unicodedata.category(char) in _UNSEEN and char not in _JOINERS and char not in "\n\t" else char
        for char in text.replace("\r\n", "\n")
    )


def short(text: Any, most: int) -> str:
    """The same, cut at `most` characters."""
    line = clean(text)
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
