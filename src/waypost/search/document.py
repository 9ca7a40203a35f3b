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

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from waypost.model.names import fold_tag
from waypost.model.principal import VISIBILITIES, record_scopes
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.search.clusters import fingerprint
from waypost.search.honesty import Damping, Fields, damping, fields_of, unrepeated
from waypost.search.language import language_of
from waypost.search.question import RANKED_STATUSES
from waypost.search.taxonomy import spellings
from waypost.search.visible import visible_text

VERSION: Final = 4  # raise it when the same record gives other numbers: saved segments are then built anew

NAME: Final = (2.0, 3.0)  # weight and yardstick: a name says most in the fewest words
DESCRIPTION: Final = (1.0, 10.0)
TAGS: Final = (0.5, 4.0)  # tags cost nothing to write
EXAMPLES: Final = (6.0, 10.0)
SHRINK: Final = 4.0
K1: Final = 2.0
SAID: Final = 256  # added to the impact of a term that the description says

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


def alike_key(spelling: str) -> int:
    return hash_of("alike\0" + spelling)


class Prepared(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


def prepare(registration: Registration) -> Prepared | None:
    """None: of a status that is never an answer."""
    record = registration.record
    if (record.status or "active") not in RANKED_STATUSES:
        return None
    updated = find_instant(record.updated_at)
    fields = fields_of(record)
    damped = damping(fields)
    texts = embedded_texts(record)
    impacts, said = impacts_of(fields, damped)
    return Prepared(
        id=record.id,
        tier=VISIBILITIES.index(registration.visibility),
        owner=hash_of(registration.owner),
        is_deprecated=record.status == "deprecated",
        since=registration.created_at,
        updated=registration.changed_at if updated is None else updated,
        impacts=impacts,
        said=said,
        keys=_keys(registration, has_tags=damped.tags > 0),
        texts=texts,
        worth=damped.whole,
        language=language_of(" ".join(texts)),
        fingerprint=fingerprint(_hashes(fields.said)),
    )


def _keys(registration: Registration, *, has_tags: bool) -> tuple[int, ...]:
    """What hard filters ask for, as written; and spellings of tags, for those that are only preferred."""
    record = registration.record
    scopes = record_scopes(registration.owner, registration.visibility, registration.invitees)
    keys = {tag_key(fold_tag(tag)) for tag in record.tags}
    if has_tags:
        keys.update(alike_key(spelling) for tag in record.tags for spelling in spellings(tag))
    keys.update(map(protocol_key, protocols_of(record)))
    keys.update(scope_key(scope) for scope in scopes if scope not in VISIBILITIES)
    return tuple(keys)


def embedded_texts(record: AgentRecord) -> tuple[str, ...]:
    """What vectors are made of: the agent as a whole, and each example by itself, so that one fitting example is enough.
    No tags: a vector cannot tell a stuffed one. No word said over and over, for the same reason."""
    name, description, *examples = (
        unrepeated(visible_text(text))
        for text in (record.name, record.description, *(example.text for example in record.examples))
    )
    return (f"{name}. {description}", *examples)


def impacts_of(fields: Fields, damped: Damping) -> tuple[dict[int, int], int]:
    """The impact of each term, and how many distinct terms the description has."""
    found: dict[str, float] = {}
    _add(found, fields.name.split(), NAME, damped.name)
    _add(found, fields.description.split(), DESCRIPTION, damped.description)
    _add(found, " ".join(fields.tags).split(), TAGS, damped.tags)
    _add_examples(found, [example.split() for example in fields.examples], damped.examples)
    said = set(fields.description.split())
    impacts = {
        hash_of(term): max(1, round(255 * tf / (K1 + tf))) + (SAID if term in said else 0)
        for term, tf in found.items()
        if tf > 0
    }
    return impacts, len(said)


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
    step = damped * weight / (len(examples) + SHRINK) / (0.5 + 0.5 * length / yardstick)
    for example in examples:
        for term in dict.fromkeys(example):
            found[term] = found.get(term, 0.0) + step


def _hashes(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    return np.array([hash_of(term) for text in texts for term in text.split()], dtype=np.uint64)
