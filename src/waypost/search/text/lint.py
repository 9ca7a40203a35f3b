"""Marks on texts that try to do more than describe: instructions to a machine, hidden letters, leaks, active markup.

A mark is told, with its place, and decides nothing: no score, no filter and no registration depends on one. To judge words
would let words judge. It knows the texts of a record; what a reader does with a mark is the reader's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from waypost.model.names import fold
from waypost.model.record import AgentRecord
from waypost.search.text.sanitize import has_hidden_text, reveal_hidden_text

SUSPICIOUS_TEXT: Final = "suspicious_text"
HIDDEN_TEXT: Final = "hidden_text"

_MAX_MARKS: Final = 8  # told of one record; whoever sees so many needs no more


class LintMark(NamedTuple):
    path: str  # into the profile document
    flag: str
    why: str

    def __str__(self) -> str:
        return f"{self.flag}: {self.path} {self.why}; it is shown as data and moves no score"


# A text is looked at closely only if it has one of these: most have none.
_CUES: Final = (
    "ignor", "disregard", "forget", "overrid", "rank", "instruction", "prompt", "you must", "always", "do not tell",
    "jailbreak", "<|", "[inst", "anweisung", "instrucci", "忽略", "无视",
)  # fmt: skip
_OTHERS: Final = r"(?:other|all|any|every|the|these|those|your|my|previous|prior|above|earlier|preceding|system|safety)"
_RULES: Final = r"(?:instructions?|prompts?|rules?|guidelines?|directions?|messages?|policy|policies|context)"
_ADDRESSES: Final = re.compile(
    rf"\b(?:ignore|disregard|forget|override|bypass)\s+(?:{_OTHERS}\s+){{1,4}}{_RULES}\b"
    rf"|\b(?:ignore|disregard|skip|exclude)\s+(?:all\s+|the\s+|any\s+)?(?:other|competing|remaining)\s+(?:agents?|tools?"
    r"|servers?|results?|candidates?|entries)\b"
    r"|\brank\s+(?:this|me|us|it)\b[^.\n]{0,40}\b(?:first|highest|top|above|1)\b"
    r"|\b(?:always|must|should)\s+(?:be\s+)?(?:rank(?:ed)?|select(?:ed)?|choose|chosen|prefer(?:red)?|recommend(?:ed)?"
    r"|pick(?:ed)?)\s+(?:this|me|us|first|over|above)\b"
    r"|\b(?:reveal|print|show|repeat|leak|send)\s+(?:me\s+)?(?:your|the)\s+(?:system|hidden|initial)\s+(?:prompt|instructions?)"
    r"|\byou\s+are\s+now\s+(?:a|an|the|in)\b|\bnew\s+(?:system\s+)?instructions?\s*:"
    r"|\bdo\s+not\s+(?:tell|inform|mention\s+(?:this|it)\s+to)\s+the\s+user\b"
    r"|<\|(?:im_start|im_end|system|endoftext)\|>|\[/?inst\]|<<sys>>|\b(?:jailbreak|developer)\s+mode\s+(?:on|enabled)\b"
    r"|\bignorier\w*\s+(?:alle\s+|die\s+|bisherigen\s+|vorherigen\s+|obigen\s+){1,3}anweisungen\b"
    r"|\bignora\s+(?:todas\s+|las\s+|tus\s+){1,2}instrucciones\b"
    r"|(?:忽略|无视)(?:之前|以上|前面|所有|先前)[^。\n]{0,8}(?:指令|指示|提示|说明)",
)

# Where something is to be carried off: a verb, what is worth stealing, and a place to bring it to.
_LEAK_CUES: Final = ("http://", "https://", "@", "webhook", "](", "attacker")
_LEAKS: Final = re.compile(
    r"\b(?:send|post|forward|upload|exfiltrate|transmit|email|append|include|leak)\b[^.\n]{0,60}"
    r"\b(?:api[ _-]?keys?|passwords?|credentials?|secrets?|access tokens?|bearer tokens?|session tokens?|private keys?"
    r"|cookies|environment variables|chat history|conversation(?: history)?|system prompt|user'?s? data)\b"
    r"[^\n]{0,80}(?:https?://|webhook|[\w.-]+@[\w-]+\.)"
)
_MARKUP_CUES: Final = ("<", "](", "javascript:", "vbscript:", "data:text")
_MARKUP: Final = re.compile(
    r"<\s*/?\s*(?:script|iframe|object|embed|meta|base|link|form|svg|style)\b"
    r"|<[a-z][^<>]{0,200}\son[a-z]{3,20}\s*="
    r"|!\[[^\]\n]{0,80}\]\(\s*https?://[^)\s]{0,200}[?&][^)\s]{0,80}=\s*(?:\{|<|%7b|\$|\[)"
    r"|\]\(\s*(?:javascript|data|vbscript):|\bdata:text/html\b|\b(?:javascript|vbscript):\s*\S"
)
_ASCII_CUES: Final = tuple(cue for cue in (*_CUES, "http", "@", "webhook", *_MARKUP_CUES) if cue.isascii())
# What turns or parts text unseen. Joiners and variation selectors are left out: scripts and pictures need them.
_INVISIBLE: Final = re.compile(
    "[\u200b\u2060-\u2064\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]"
)


def lint_record(record: AgentRecord) -> tuple[LintMark, ...]:
    """What a reader should know of a record's texts, each with its place; the first few."""
    found: list[LintMark] = []
    if _is_plain("\n".join((record.name, record.description, *record.tags, *[each.text for each in record.examples]))):
        return ()
    for path, text in _texts(record):
        if not _is_plain(text):
            found += _lint_text(path, text)
        if len(found) >= _MAX_MARKS:
            break
    return tuple(found[:_MAX_MARKS])


def lint_flags(record: AgentRecord) -> tuple[str, ...]:
    """The kinds of marks, each once."""
    told = {mark.flag for mark in lint_record(record)}
    return tuple(flag for flag in (SUSPICIOUS_TEXT, HIDDEN_TEXT) if flag in told)


def is_suspicious(text: str) -> bool:
    """Whether a text, or what it hides, gives instructions to whoever ranks or reads it."""
    return _why_suspicious(text) is not None


def _is_plain(text: str) -> bool:
    """Most records are: one look over all their texts at once, and nothing that could be a mark. So are most texts of one
    that is not."""
    if not text.isascii():
        return False
    lowered = text.lower()
    for cue in _ASCII_CUES:  # noqa: SIM110 - a loop takes two thirds of the time of any()
        if cue in lowered:
            return False
    return True


def _texts(record: AgentRecord) -> Iterator[tuple[str, str]]:
    yield "$.name", record.name
    yield "$.description", record.description
    for at, tag in enumerate(record.tags):
        yield f"$.tags[{at}]", tag
    for at, example in enumerate(record.examples):
        yield f"$.examples[{at}].text", example.text


def _lint_text(path: str, text: str) -> Iterator[LintMark]:
    why = _why_suspicious(text)
    if why is not None:
        yield LintMark(path, SUSPICIOUS_TEXT, why)
    if has_hidden_text(text) or (not text.isascii() and _INVISIBLE.search(text)):
        yield LintMark(path, HIDDEN_TEXT, "has letters that a reader does not see")


def _why_suspicious(text: str) -> str | None:
    folded = fold(reveal_hidden_text(text))
    if any(cue in folded for cue in _CUES) and _ADDRESSES.search(folded):
        return "gives instructions to whoever reads or ranks it"
    if any(cue in folded for cue in _LEAK_CUES) and _LEAKS.search(folded):
        return "asks for data to be sent elsewhere"
    if any(cue in folded for cue in _MARKUP_CUES) and _MARKUP.search(folded):
        return "has markup that does something where it is shown"
    return None
