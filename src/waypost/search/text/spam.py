"""Spam: damping of stuffed tags, repeated words and keyword lists; and flags for suspicious or hidden text.

Damping weights in 0..1 multiply the impact of a field. Each depends only on its record, so that no other record can change it,
and no text can get a weight above that of ordinary prose.

Flags (instructions to a machine, hidden characters, exfiltration, active markup) are shown with their path and decide nothing: no
score, filter or registration depends on them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import eq
from typing import Final, NamedTuple

from waypost import limits
from waypost.model.names import fold
from waypost.model.record import AgentRecord
from waypost.search.text.analyzer import analyse, split_words, terms_of
from waypost.search.text.sanitize import has_hidden_text, reveal_hidden_text, sanitize_text

_FREE_TAGS: Final = 8  # tags that need not occur in the agent's own texts
_STUFFED_TAGS: Final = 20  # with so many such tags, tags weigh nothing
_STUFFED_WHOLE: Final = 0.95  # factor of the score, so that a stuffed record ranks behind an honest copy
_REPEATS: Final = 6  # of one term that are allowed in any text
_REPEATED_SHARE: Final = 0.12  # of all terms that one term may have
_REPEATED_SHORT_SHARE: Final = 0.24  # Spanish prose is one tenth "de"
_DISTINCT_SHARE: Final = 0.25  # of the terms; with fewer distinct ones, the text is repetition
_MIN_REPEATED_TERMS: Final = 24  # shorter texts are not judged
_REPEATED_WHOLE: Final = 0.9  # factor of the score of a repetitive record: repetition influences its vector
_SUBJECT_TERMS: Final = 6  # terms that half of the examples may share: their common subject
_MIN_WEIGHT: Final = 0.1
_LIST_WORDS: Final = 64  # a shorter description may be a list of features
_LIST_SHARE: Final = 0.1  # of short or stop words; prose has three times as many in any language
_LIST: Final = 0.5
_SHORT_WORD: Final = 3
_MAX_OCCURRENCES: Final = 3  # of one word in a text to embed
_MIN_SENTENCE_WORDS: Final = 4  # a shorter sentence is joined with the next
_STOPS: Final = ".!?;"
_PUNCTUATION: Final = ".,;:!?()[]\"'"


_NONE: Final[frozenset[str]] = frozenset()


class VisibleTexts(NamedTuple):
    """The texts of a record as displayed (see `sanitize`)."""

    name: str
    description: str
    examples: tuple[str, ...]


class AnalyzedFields(NamedTuple):
    """The analysed texts of a record: terms joined by spaces."""

    name: str
    description: str
    tags: tuple[str, ...]  # its own and those of its examples
    examples: tuple[str, ...]
    description_words: int  # before stop words were removed
    shared: frozenset[str] = _NONE  # terms of a keyword list that is repeated in the examples

    @property
    def said(self) -> tuple[str, ...]:
        """The texts of the simhash: all but the name, which is easily changed."""
        return (self.description, *self.examples, *self.tags)


class SpamDamping(NamedTuple):
    """Factors of the impacts of each field; `whole` is a factor of the final score, including vectors."""

    name: float = 1.0
    description: float = 1.0
    tags: float = 1.0
    examples: float = 1.0
    whole: float = 1.0


def visible_texts(record: AgentRecord) -> VisibleTexts:
    """The texts that search reads: the beginning of long ones. An agent without a description is described by its first tags."""
    description = record.description if record.description.strip() else _listed_tags(record)
    return VisibleTexts(
        name=sanitize_text(record.name),
        description=sanitize_text(description[: limits.INDEXED_DESCRIPTION_CHARS]),
        examples=tuple(sanitize_text(example.text[: limits.INDEXED_EXAMPLE_CHARS]) for example in record.examples),
    )


def _listed_tags(record: AgentRecord) -> str:
    return ", ".join(record.tags[:_FREE_TAGS])


def analyze_fields(record: AgentRecord, visible: VisibleTexts | None = None) -> AnalyzedFields:
    """`visible` are its visible texts, if known."""
    name, description, examples = visible or visible_texts(record)
    tags = dict.fromkeys((*record.tags, *(tag for example in record.examples for tag in example.tags)))
    words = split_words(description)
    analysed = tuple(map(analyse, examples))
    return AnalyzedFields(
        name=analyse(name),
        description=terms_of(words),
        tags=tuple(map(_tag_terms, tags)),
        examples=analysed,
        description_words=len(words),
        shared=shared_terms(analysed),
    )


def shared_terms(examples: Iterable[str]) -> frozenset[str]:
    """The terms that at least half of the examples share, if there are more than a common subject has."""
    terms_of_examples = [set(example.split()) for example in examples]
    if (
        sum(map(len, terms_of_examples)) - len(set().union(*terms_of_examples)) <= _SUBJECT_TERMS
    ):  # no more terms occur twice
        return _NONE
    half = max(2, (len(terms_of_examples) + 1) // 2)
    counts = Counter(term for terms in terms_of_examples for term in terms)
    shared = frozenset(term for term, count in counts.items() if count >= half)
    return shared if len(shared) > _SUBJECT_TERMS else _NONE


def drop_repeated_shared(examples: Iterable[str], shared: frozenset[str]) -> list[list[str]]:
    """The terms of each example; a shared term counts in its first example only."""
    if not shared:
        return [example.split() for example in examples]
    found, counted = [], set[str]()
    for example in examples:
        terms = example.split()
        found.append([term for term in terms if term not in counted])
        counted |= shared.intersection(terms)
    return found


def remove_shared_words(text: str, shared: frozenset[str]) -> str:
    """The text to embed, without shared words."""
    if not shared:
        return text
    return " ".join(
        word for word in text.split() if not (terms := _tag_terms(word)) or not shared.issuperset(terms.split())
    )


class _WordCache(dict[str, str]):
    """A derived form of words or tags as written. Cleared when full."""

    def __init__(self, make: Callable[[str], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, written: str) -> str:
        made = self._make(written)
        if len(written) <= limits.TERM_CACHE_CHARS:
            if len(self) >= limits.TERM_CACHE:
                self.clear()
            self[written] = made
        return made


# Concurrent misses store the same value.
_tag_terms = _WordCache(lambda tag: analyse(sanitize_text(tag))).__getitem__
_bare = _WordCache(lambda word: word.strip(_PUNCTUATION).casefold()).__getitem__


def remove_repetition(text: str) -> str:
    """The text to embed, without repetition: a word once per sentence, and a few times per text. Short words may repeat. So a
    repeated list of words has the vector of the list itself."""
    words = text.split()
    plain = list(map(_bare, words))
    if len(set(plain)) == len(words):
        return text
    counts: dict[str, int] = {}  # faster than a Counter for a few words
    for bare in plain:
        counts[bare] = counts.get(bare, 0) + 1
    repeated = {word for word, count in counts.items() if count > 1 and len(word) > _SHORT_WORD}
    if not repeated and plain[0] and not any(map(eq, plain, islice(plain, 1, None))):
        return " ".join(words)
    kept: list[str] = []
    used: set[str] = set()
    begun = 0  # words of the current sentence
    before = ""
    for bare, word in zip(plain, words, strict=True):
        if bare in used or bare == before:
            _end_sentence(kept, word)
        else:
            kept.append(word)
            if bare in repeated:
                used.add(bare)
        before = bare
        begun += 1
        if word[-1] in _STOPS and begun >= _MIN_SENTENCE_WORDS:
            used, begun = {each for each in used if counts[each] > _MAX_OCCURRENCES}, 0
    return " ".join(kept)


def _end_sentence(kept: list[str], dropped: str) -> None:
    """Keep the sentence end of a dropped word."""
    if dropped[-1] in _STOPS and kept:
        kept[-1] = kept[-1].rstrip(_PUNCTUATION) + dropped[-1]


def spam_damping(fields: AnalyzedFields) -> SpamDamping:
    tags = _tag_weight(fields)
    terms = fields.description.split()
    return SpamDamping(
        name=_repetition_weight(fields.name.split()),
        description=_repetition_weight(terms) * _list_weight(terms, fields.description_words),
        tags=tags,
        examples=_example_weight(fields.examples),
        whole=_whole_weight(fields, terms, tags),
    )


def _whole_weight(fields: AnalyzedFields, terms: list[str], tags: float) -> float:
    weight = _STUFFED_WHOLE if tags == 0.0 else 1.0
    return weight * (_REPEATED_WHOLE if fields.shared or is_repetition(terms) else 1.0)


def is_repetition(terms: list[str]) -> bool:
    """Whether the text is mostly repetition: even the longest prose has twice as many distinct words."""
    return len(terms) >= _MIN_REPEATED_TERMS and len(set(terms)) < _DISTINCT_SHARE * len(terms)


def _tag_weight(fields: AnalyzedFields) -> float:
    """1 if all but a few tags occur in the agent's texts; down to 0 for many unrelated tags."""
    if len(fields.tags) <= _FREE_TAGS:
        return 1.0
    own = {*fields.name.split(), *fields.description.split(), *" ".join(fields.examples).split()}
    unfounded = sum(own.isdisjoint(tag.split()) for tag in dict.fromkeys(fields.tags))
    excess = max(0, unfounded - _FREE_TAGS)
    return max(0.0, 1.0 - excess / (_STUFFED_TAGS - _FREE_TAGS))


def _repetition_weight(terms: list[str]) -> float:
    """1 for prose; less twice the share of excess repetitions."""
    if len(terms) - len(set(terms)) < _REPEATS:  # no term is repeated more than allowed
        return 1.0
    usual = max(_REPEATS, _REPEATED_SHARE * len(terms))
    usual_short = max(_REPEATS, _REPEATED_SHORT_SHARE * len(terms))
    excess = 0.0
    for term, count in Counter(terms).items():
        if count > _REPEATS:
            excess += max(0.0, count - (usual_short if len(term) <= _SHORT_WORD else usual))
    return max(_MIN_WEIGHT, 1.0 - 2.0 * excess / len(terms))


def _list_weight(terms: list[str], words: int) -> float:
    """Prose has stop words (in English) or short words (in other languages). A keyword list has neither."""
    if words < _LIST_WORDS:
        return 1.0
    small = words - len(terms) + sum(len(term) <= _SHORT_WORD for term in terms)
    return 1.0 if small >= _LIST_SHARE * words else _LIST


def _example_weight(examples: tuple[str, ...]) -> float:
    """The lowest repetition weight of an example, times the share of distinct examples."""
    if not examples:
        return 1.0
    distinct = dict.fromkeys(examples)
    return min(_repetition_weight(text.split()) for text in distinct) * len(distinct) / len(examples)


# --- Flags ---

SUSPICIOUS_TEXT: Final = "suspicious_text"
HIDDEN_TEXT: Final = "hidden_text"
_MAX_MARKS: Final = 8  # reported for one record


class LintMark(NamedTuple):
    path: str  # into the profile document
    flag: str
    why: str

    def __str__(self) -> str:
        return f"{self.flag}: {self.path} {self.why}; it is shown as data and does not change the score"


# A text is matched only if it contains one of these: most have none.
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

# Exfiltration: a verb, something worth stealing, and a destination.
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
# Invisible and directional characters, except joiners and variation selectors, which scripts and emoji need.
_INVISIBLE: Final = re.compile(
    "[\u200b\u2060-\u2064\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0001-\U000e007f]"
)


def lint_record(record: AgentRecord) -> tuple[LintMark, ...]:
    """Suspicious or hidden text in a record, with its path; the first few."""
    found: list[LintMark] = []
    if _is_unremarkable(
        "\n".join((record.name, record.description, *record.tags, *[each.text for each in record.examples]))
    ):
        return ()
    for path, text in _texts(record):
        if not _is_unremarkable(text):
            found += _lint_text(path, text)
        if len(found) >= _MAX_MARKS:
            break
    return tuple(found[:_MAX_MARKS])


def lint_flags(record: AgentRecord) -> tuple[str, ...]:
    """The distinct kinds of marks."""
    flags = {mark.flag for mark in lint_record(record)}
    return tuple(flag for flag in (SUSPICIOUS_TEXT, HIDDEN_TEXT) if flag in flags)


def _is_unremarkable(text: str) -> bool:
    """Whether nothing in the text can be a mark, as in most records."""
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
        yield LintMark(path, HIDDEN_TEXT, "has invisible characters")


def _why_suspicious(text: str) -> str | None:
    folded = fold(reveal_hidden_text(text))
    if any(cue in folded for cue in _CUES) and _ADDRESSES.search(folded):
        return "gives instructions to its reader or ranker"
    if any(cue in folded for cue in _LEAK_CUES) and _LEAKS.search(folded):
        return "asks for data to be sent elsewhere"
    if any(cue in folded for cue in _MARKUP_CUES) and _MARKUP.search(folded):
        return "has active markup"
    return None
