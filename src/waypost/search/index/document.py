"""A record as the index keeps it: what it says, in numbers that depend on nothing but the record itself.

A term's impact is fielded BM25 with fixed yardsticks instead of the corpus's average lengths:

    tf = Σ over name, description, tags that say the term:  WEIGHT / (½ + ½ · length / YARDSTICK)
       + EXAMPLES · (examples with the term) / (examples + SHRINK) / (½ + ½ · mean example length / YARDSTICK)
    impact = tf / (K1 + tf)        as one byte, 1..255

so that a record weighs the same while it waits, when it is folded in, and whatever else is registered. Only the rarity of a
term comes from the corpus, at the moment of the question. A field says a term or does not: saying it again only makes the
field longer. Examples count by how many of them hold a term: one long list of examples is no better than a short one.
Stuffing and repetition are damped field by field (see `honesty`).
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
from waypost.model.names import fold_tag
from waypost.model.principal import VISIBILITIES, record_scopes
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.search.index.simhash import simhashes
from waypost.search.text.analyzer import analyse, split_identifier
from waypost.search.text.language import detect_language
from waypost.search.text.spam import (
    AnalyzedFields,
    SpamDamping,
    VisibleTexts,
    analyze_fields,
    drop_repeated_shared,
    remove_repetition,
    remove_shared_words,
    shared_terms,
    spam_damping,
    visible_texts,
)
from waypost.search.text.taxonomy import spellings

RANKED_STATUSES = ("active", "testing", "deprecated")  # the others are never an answer
VERSION: Final = 6  # raise it when the same record gives other numbers: saved segments are then built anew

NAME: Final = (2.0, 3.0)  # weight and yardstick: a name says most in the fewest words
DESCRIPTION: Final = (1.0, 10.0)
TAGS: Final = (0.5, 4.0)  # tags cost nothing to write
EXAMPLES: Final = (6.0, 10.0)
EXAMPLE_SHRINKAGE: Final = 4.0
K1: Final = 2.0
IN_DESCRIPTION: Final = 256  # added to the impact of a term that the description says

_HASH_CACHE: Final = 262_144


class _Hashes(dict[str, int]):
    """Text → 64 bits. Bounded: it is emptied when full."""

    def __missing__(self, text: str) -> int:
        if len(self) >= _HASH_CACHE:
            self.clear()
        value = self[text] = int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little")
        return value


hash_of = _Hashes().__getitem__  # two threads may both miss: they put the same value


def tag_key(tag: str) -> int:
    return hash_of("tag\0" + tag)


def protocol_key(protocol: str) -> int:
    return hash_of("protocol\0" + protocol)


def scope_key(scope: str) -> int:
    return hash_of("scope\0" + scope)


def id_key(agent_id: str) -> int:
    """Not remembered: an id is asked for once."""
    return int.from_bytes(blake2b(agent_id.encode(), digest_size=8).digest(), "little")


def spelling_key(spelling: str) -> int:
    return hash_of("alike\0" + spelling)


@lru_cache(maxsize=limits.TERM_CACHE)
def _tag_keys(tag: str) -> tuple[int, ...]:
    """Of a tag as written: its own key, then those of its spellings."""
    return (tag_key(fold_tag(tag)), *map(spelling_key, spellings(tag)))


class IndexDocument(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One agent, ready for a segment."""

    id: str
    tier: int  # index into VISIBILITIES
    owner: int
    is_deprecated: bool
    since: float  # registered
    updated: float  # by its own word, or when it was registered
    impacts: dict[int, int]  # term → 1..255, and SAID
    said: int  # distinct terms of the description
    keys: tuple[int, ...]  # of tags, their spellings, protocols and private scopes
    texts: tuple[str, ...]  # to embed: what it is, then each example
    worth: float  # what stuffing leaves of its score
    language: int
    fingerprint: npt.NDArray[np.uint64]


def prepare_documents(registrations: Sequence[Registration], *, with_texts: bool = True) -> list[IndexDocument]:
    """Those of a status that is an answer. The texts are for those who embed; without them, each has none."""
    ranked = [each for each in registrations if (each.record.status or "active") in RANKED_STATUSES]
    if not ranked:  # as of every question while nothing waits
        return []
    seen = [visible_texts(each.record) for each in ranked]
    fields = [analyze_fields(each.record, texts) for each, texts in zip(ranked, seen, strict=True)]
    marks = simhashes([_hashes(each.said) for each in fields])
    return [_prepare_document(*parts, with_texts=with_texts) for parts in zip(ranked, seen, fields, marks, strict=True)]


def _prepare_document(
    registration: Registration,
    seen: VisibleTexts,
    fields: AnalyzedFields,
    mark: npt.NDArray[np.uint64],
    *,
    with_texts: bool,
) -> IndexDocument:
    record = registration.record
    updated = find_instant(record.updated_at)
    damped = spam_damping(fields)
    texts = _texts(seen, fields.shared)
    impacts, said = term_impacts(fields, damped)
    return IndexDocument(
        id=record.id,
        tier=VISIBILITIES.index(registration.visibility),
        owner=hash_of(registration.owner),
        is_deprecated=record.status == "deprecated",
        since=registration.created_at,
        updated=registration.changed_at if updated is None else updated,
        impacts=impacts,
        said=said,
        keys=_keys(registration, has_tags=damped.tags > 0),
        texts=texts if with_texts else (),
        worth=damped.whole,
        language=detect_language(" ".join(texts)),
        fingerprint=mark,
    )


def _keys(registration: Registration, *, has_tags: bool) -> tuple[int, ...]:
    """What hard filters ask for, as written; and spellings of tags, for those that are only preferred."""
    record = registration.record
    scopes = record_scopes(registration.owner, registration.visibility, registration.invitees)
    keys = {key for tag in record.tags for key in (_tag_keys(tag) if has_tags else _tag_keys(tag)[:1])}
    keys.update(map(protocol_key, protocols_of(record)))
    keys.update(scope_key(scope) for scope in scopes if scope not in VISIBILITIES)
    return tuple(keys)


def embedded_texts(record: AgentRecord) -> tuple[str, ...]:
    """What vectors are made of: the agent as a whole, and each example by itself, so that one fitting example is enough.
    No tags: a vector cannot tell a stuffed one. No word said over and over, for the same reason."""
    seen = visible_texts(record)
    return _texts(seen, shared_terms(map(analyse, seen.examples)))


def _texts(seen: VisibleTexts, shared: frozenset[str]) -> tuple[str, ...]:
    name = split_identifier(remove_repetition(seen.name))
    examples = (remove_repetition(remove_shared_words(example, shared)) for example in seen.examples)
    return (f"{name}. {remove_repetition(seen.description)}", *examples)


def term_impacts(fields: AnalyzedFields, damped: SpamDamping) -> tuple[dict[int, int], int]:
    """The impact of each term, and how many distinct terms the description has."""
    found: dict[str, float] = {}
    _add(found, fields.name.split(), NAME, damped.name)
    description = fields.description.split()
    _add(found, description, DESCRIPTION, damped.description)
    _add(found, " ".join(fields.tags).split(), TAGS, damped.tags)
    _add_examples(found, drop_repeated_shared(fields.examples, fields.shared), damped.examples)
    said = set(description)
    impacts = {tf: max(1, round(255 * tf / (K1 + tf))) for tf in set(found.values())}  # many terms, few figures
    return {
        hash_of(term): impacts[tf] + IN_DESCRIPTION if term in said else impacts[tf]
        for term, tf in found.items()
        if tf > 0
    }, len(said)


def _add(found: dict[str, float], terms: list[str], field: tuple[float, float], damped: float) -> None:
    weight, yardstick = field
    step = damped * weight / (0.5 + 0.5 * len(terms) / yardstick)
    for term in dict.fromkeys(terms):
        found[term] = found.get(term, 0.0) + step


def _add_examples(found: dict[str, float], examples: list[list[str]], damped: float) -> None:
    if not examples:
        return
    weight, yardstick = EXAMPLES
    length = sum(map(len, examples)) / len(examples)
    step = damped * weight / (len(examples) + EXAMPLE_SHRINKAGE) / (0.5 + 0.5 * length / yardstick)
    for example in examples:
        for term in dict.fromkeys(example):
            found[term] = found.get(term, 0.0) + step


def _hashes(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    terms = " ".join(texts).split()
    return np.fromiter(map(hash_of, terms), dtype=np.uint64, count=len(terms))
