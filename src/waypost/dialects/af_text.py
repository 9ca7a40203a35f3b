"""Texts as the Agent Framework surface shows them: no control characters (AF-53), a summary (P-13), in bounds (AF-20)."""

from __future__ import annotations

import re
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LINE_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ENDS = (re.compile(r"[.!?](?=\s|$)"), re.compile("[。！？]"))  # of a sentence: those of the second kind need no space
SUMMARY_CHARS = 200


def clean(value: Any) -> Any:
    """A JSON value without control characters in its texts; line ends and tabs inside them stay."""
    if isinstance(value, str):
        return value if value.isprintable() else _CONTROL.sub("", value)  # what can be printed holds no such character
    if isinstance(value, dict):
        return {clean(name): clean(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def clean_line(text: str, instead: str) -> str:
    """A text for one line, never empty: a text of control characters alone gives way to `instead`."""
    if text.isprintable() or not _LINE_CONTROL.search(text):
        return text
    return _LINE_CONTROL.sub(" ", text).strip() or instead


def summarise(description: str) -> str:
    """The first sentence, cut on a word boundary."""
    text = " ".join(clean(description).split())
    ends = (end.search(text, 1) for end in _ENDS)
    end = next(filter(None, ends), None)
    sentence = text if end is None else text[: end.end()]
    if len(sentence) <= SUMMARY_CHARS:
        return sentence
    head = sentence[: SUMMARY_CHARS - 1]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"


def cut_bytes(text: str, most: int) -> str:
    """The text in at most `most` UTF-8 bytes, never through a character."""
    raw = text.encode("utf-8")
    return text if len(raw) <= most else raw[:most].decode("utf-8", "ignore")
