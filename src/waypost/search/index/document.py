"""Index documents: the terms, keys and texts of a record, independent of all other records.

The impact of a term is fielded BM25 (BM25F) with fixed reference lengths instead of the corpus averages:

    tf = Σ over name, description, tags that contain the term:  WEIGHT / (½ + ½ · length / REFERENCE)
       + EXAMPLES · (examples with the term) / (examples + SHRINK) / (½ + ½ · mean example length / REFERENCE)
    impact = tf / (K1 + tf)        as one byte, 1..255

so that a record has the same impacts before and after compaction, whatever else is registered. Only the idf comes from the
corpus, at query time. A description counts as at most LONGEST references, unless it is mere repetition: among long texts, words
must not lose to vectors. Repeating a term in a field only makes the field longer. Examples count by the share of them that
contain a term: a long list of examples is no better than a short one. Stuffing and repetition are damped by field (see `spam`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from waypost import limits
from waypost.model.names import fold, fold_tag
from waypost.model.principal import VISIBILITIES, record_scopes
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.search.index.simhash import simhash
from waypost.search.index.vocabulary import is_vocabulary_word
from waypost.search.text.analyzer import (
    analyse,
    detect_language,
    fold_words,
    grams_of,
    split_identifier,
    split_words,
)
from waypost.search.text.spam import (
    AnalyzedFields,
    SpamDamping,
    VisibleTexts,
    analyze_fields,
    drop_repeated_shared,
    is_repetition,
    remove_repetition,
    remove_shared_words,
    shared_terms,
    spam_damping,
    visible_texts,
)
from waypost.search.text.taxonomy import spellings

RANKED_STATUSES = ("active", "testing", "deprecated")  # others are never a result
VERSION: Final = 11  # raise it when the same record gives other numbers: saved segments are then rebuilt
NAME: Final = (2.0, 3.0)  # weight and reference length: a name says most in the fewest words
DESCRIPTION: Final = (1.0, 10.0)
TAGS: Final = (0.5, 4.0)  # tags cost nothing to write
EXAMPLES: Final = (6.0, 10.0)
EXAMPLE_SHRINKAGE: Final = 4.0
LONGEST: Final = 3.0  # references: a longer description is worth as much
K1: Final = 2.0
IN_NAME: Final = 256  # added to the impact of a term in the name
_EXAMPLE_CHARS: Final = 160  # of an example, embedded: about 32 tokens
_HASH_CACHE: Final = 262_144


class _Hashes(dict[str, int]):
    """Text → 64-bit hash. Cleared when full."""

    def __missing__(self, text: str) -> int:
        if len(self) >= _HASH_CACHE:
            self.clear()
        value = self[text] = int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little")
        return value


hash_of = _Hashes().__getitem__  # concurrent misses store the same value


def tag_key(tag: str) -> int:
    return hash_of("tag\0" + tag)


def protocol_key(protocol: str) -> int:
    return hash_of("protocol\0" + protocol)


def scope_key(scope: str) -> int:
    return hash_of("scope\0" + scope)


def id_key(agent_id: str) -> int:
    """Not cached: an id is hashed once."""
    return int.from_bytes(blake2b(agent_id.encode(), digest_size=8).digest(), "little")


def spelling_key(spelling: str) -> int:
    return hash_of("alike\0" + spelling)


def exact_key(text: str) -> int:
    """Of a name, id or tag, without separators: `invoice-translator` is `Invoice Translator`."""
    return id_key("exact\0" + "".join(split_words(fold(text))))


@lru_cache(maxsize=limits.TERM_CACHE)
def _tag_keys(tag: str) -> tuple[int, ...]:
    """The key of a tag as written, then those of its spellings, and its exact key."""
    return (tag_key(fold_tag(tag)), *map(spelling_key, spellings(tag)), exact_key(tag))


class IndexDocument(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One agent, ready to be added to a segment."""

    id: str
    tier: int  # index into VISIBILITIES
    owner: int
    is_deprecated: bool
    since: float  # when it was registered
    updated: float  # as it declares, else when it was changed here
    impacts: dict[int, int]  # term → 1..255, plus IN_NAME
    name_terms: int  # distinct terms of the name
    grams: npt.NDArray[np.uint16]  # distinct grams of all texts
    vocabulary: tuple[str, ...]  # its words as written, but for private examples
    keys: tuple[int, ...]  # of tags, their spellings, protocols and private scopes
    texts: tuple[str, ...]  # to embed: the description, then each example
    worth: float  # factor of the score, below 1 for spam
    language: int
    fingerprint: npt.NDArray[np.uint64]


def prepare_documents(registrations: Sequence[Registration], *, with_texts: bool = True) -> list[IndexDocument]:
    """The documents of registrations with a ranked status. `with_texts` includes the texts to embed."""
    ranked = [each for each in registrations if (each.record.status or "active") in RANKED_STATUSES]
    if not ranked:  # most queries find no pending changes
        return []
    visible = [visible_texts(each.record) for each in ranked]
    fields = [analyze_fields(each.record, texts) for each, texts in zip(ranked, visible, strict=True)]
    return [_prepare_document(*parts, with_texts=with_texts) for parts in zip(ranked, visible, fields, strict=True)]


def _prepare_document(
    registration: Registration,
    visible: VisibleTexts,
    fields: AnalyzedFields,
    *,
    with_texts: bool,
) -> IndexDocument:
    record = registration.record
    updated = find_instant(record.updated_at)
    damped = spam_damping(fields)
    impacts, name_terms = term_impacts(fields, damped)
    has_tags = damped.tags > 0
    words = fold_words((visible.name, visible.description, *visible.examples, *(record.tags if has_tags else ())))
    return IndexDocument(
        id=record.id,
        tier=VISIBILITIES.index(registration.visibility),
        owner=hash_of(registration.owner),
        is_deprecated=record.status == "deprecated",
        since=registration.created_at,
        updated=registration.changed_at if updated is None else updated,
        impacts=impacts,
        name_terms=name_terms,
        grams=_grams(words),
        vocabulary=_vocabulary(record, visible, words),
        keys=_keys(registration, has_tags=has_tags),
        texts=_texts(visible, fields.shared) if with_texts else (),
        worth=damped.whole,
        language=detect_language(" ".join((visible.name, visible.description, *visible.examples))),
        fingerprint=simhash(_hashes(fields.said)),
    )


def _keys(registration: Registration, *, has_tags: bool) -> tuple[int, ...]:
    """Keys for hard filters, as written; spellings of tags, for preferred tags; and what names the agent exactly."""
    record = registration.record
    scopes = record_scopes(registration.owner, registration.visibility, registration.invitees)
    keys = {key for tag in record.tags for key in (_tag_keys(tag) if has_tags else _tag_keys(tag)[:1])}
    keys.update(map(protocol_key, protocols_of(record)))
    short_id = record.id.replace(":", "/").rstrip("/").rpartition("/")[2]
    keys.update(map(exact_key, (record.id, *registration.aliases, short_id, record.name)))
    keys.update(scope_key(scope) for scope in scopes if scope not in VISIBILITIES)
    return tuple(keys)


def embedded_texts(record: AgentRecord) -> tuple[str, ...]:
    """The texts to embed: name and description, then each example, so that one fitting example is enough. Without tags and
    repeated words: a vector cannot distinguish stuffing."""
    visible = visible_texts(record)
    return _texts(visible, shared_terms(map(analyse, visible.examples)))


def _texts(visible: VisibleTexts, shared: frozenset[str]) -> tuple[str, ...]:
    name = split_identifier(remove_repetition(visible.name))
    shown = (_cut(example) for example in visible.examples)
    examples = (remove_repetition(remove_shared_words(example, shared)) for example in shown)
    return (f"{name}. {remove_repetition(visible.description)}", *examples)


def _cut(example: str) -> str:
    """Its beginning, up to a space: a vector of more says no more, and takes longer."""
    return (
        example
        if len(example) <= _EXAMPLE_CHARS
        else example[: _EXAMPLE_CHARS + 1].rpartition(" ")[0] or example[:_EXAMPLE_CHARS]
    )


def term_impacts(fields: AnalyzedFields, damped: SpamDamping) -> tuple[dict[int, int], int]:
    """The impact of each term, and how many distinct terms the name has."""
    found: dict[str, float] = {}
    name = fields.name.split()
    _add(found, name, NAME, damped.name)
    _add(found, fields.description.split(), DESCRIPTION, damped.description)
    _add(found, " ".join(fields.tags).split(), TAGS, damped.tags)
    _add_examples(found, drop_repeated_shared(fields.examples, fields.shared), damped.examples)
    named = set(name)
    impacts = {tf: max(1, round(255 * tf / (K1 + tf))) for tf in set(found.values())}  # many terms, few distinct values
    return {
        hash_of(term): impacts[tf] + IN_NAME if term in named else impacts[tf] for term, tf in found.items() if tf > 0
    }, len(named)


def _vocabulary(record: AgentRecord, visible: VisibleTexts, words: set[str]) -> tuple[str, ...]:
    """Without the words of private examples, which no answer may quote (PRO-38)."""
    is_private = [bool(example.extra.get("private")) for example in record.examples]
    if any(is_private):
        shown = [text for text, hidden in zip(visible.examples, is_private, strict=True) if not hidden]
        words = fold_words((visible.name, visible.description, *record.tags, *shown))
    return tuple(filter(is_vocabulary_word, words))


def _grams(words: set[str]) -> npt.NDArray[np.uint16]:
    grams = grams_of(words)
    return np.sort(np.fromiter(grams, dtype=np.uint16, count=len(grams)))  # the same bytes in every process


def _add(found: dict[str, float], terms: list[str], field: tuple[float, float], damped: float) -> None:
    weight, reference = field
    length = len(terms) / reference
    if field is DESCRIPTION and length > LONGEST and not is_repetition(terms):
        length = LONGEST
    step = damped * weight / (0.5 + 0.5 * length)
    for term in dict.fromkeys(terms):
        found[term] = found.get(term, 0.0) + step


def _add_examples(found: dict[str, float], examples: list[list[str]], damped: float) -> None:
    if not examples:
        return
    weight, reference = EXAMPLES
    length = sum(map(len, examples)) / len(examples)
    step = damped * weight / (len(examples) + EXAMPLE_SHRINKAGE) / (0.5 + 0.5 * length / reference)
    for example in examples:
        for term in dict.fromkeys(example):
            found[term] = found.get(term, 0.0) + step


def _hashes(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    terms = " ".join(texts).split()
    return np.fromiter(map(hash_of, terms), dtype=np.uint64, count=len(terms))
