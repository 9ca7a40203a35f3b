"""A record as the index keeps it: what it says, in numbers that depend on nothing but the record itself.

A term's impact is fielded BM25 with fixed yardsticks instead of the corpus's average lengths:

    tf  = Σ over fields  WEIGHT · count / (1 − B + B · length / YARDSTICK)
    impact = tf / (K1 + tf)        as one byte, 1..255

so that a record weighs the same while it waits, when it is folded in, and whatever else is registered. Only the rarity of a
term comes from the corpus, at the moment of the question.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from waypost.model.names import fold_tag
from waypost.model.principal import VISIBILITIES, record_scopes
from waypost.model.record import AgentRecord, protocols_of
from waypost.model.registration import Registration
from waypost.model.times import find_instant
from waypost.search.question import RANKED_STATUSES
from waypost.search.text import analyse

VERSION: Final = 1  # raise it when the same record gives other numbers: saved segments are then built anew

FIELDS: Final = ("name", "description", "tags", "examples")
WEIGHTS: Final = (2.0, 1.0, 0.7, 1.0)
YARDSTICKS: Final = (4.0, 20.0, 6.0, 30.0)
B: Final = 0.6
K1: Final = 1.2

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


class Prepared(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One agent, ready for a segment."""

    id: str
    tier: int  # index into VISIBILITIES
    owner: int
    is_deprecated: bool
    since: float  # registered
    updated: float  # by its own word, or when it was registered
    impacts: dict[int, int]  # term → 1..255
    keys: tuple[int, ...]  # of tags, protocols and private scopes
    texts: tuple[str, ...]  # to embed: what it is, then each example


def prepare(registration: Registration) -> Prepared | None:
    """None: of a status that is never an answer."""
    record = registration.record
    if (record.status or "active") not in RANKED_STATUSES:
        return None
    scopes = record_scopes(registration.owner, registration.visibility, registration.invitees)
    updated = find_instant(record.updated_at)
    return Prepared(
        id=record.id,
        tier=VISIBILITIES.index(registration.visibility),
        owner=hash_of(registration.owner),
        is_deprecated=record.status == "deprecated",
        since=registration.created_at,
        updated=registration.changed_at if updated is None else updated,
        impacts=impacts_of(texts_of(record)),
        keys=tuple(
            {
                *(tag_key(fold_tag(tag)) for tag in record.tags),
                *map(protocol_key, protocols_of(record)),
                *(scope_key(scope) for scope in scopes if scope not in VISIBILITIES),
            }
        ),
        texts=embedded_texts(record),
    )


def embedded_texts(record: AgentRecord) -> tuple[str, ...]:
    """What vectors are made of: the agent as a whole, and each example by itself, so that one fitting example is enough."""
    return (f"{record.name}. {record.description}", *(example.text for example in record.examples))


def texts_of(record: AgentRecord) -> tuple[str, str, str, str]:
    """The analysed text of each of FIELDS. Examples follow each other in one field, with the tags they carry."""
    examples = " ".join(part for example in record.examples for part in (example.text, *example.tags))
    return analyse(record.name), analyse(record.description), analyse(" ".join(record.tags)), analyse(examples)


def impacts_of(texts: Iterable[str]) -> dict[int, int]:
    frequencies: dict[str, float] = {}
    for text, weight, yardstick in zip(texts, WEIGHTS, YARDSTICKS, strict=True):
        terms = text.split()
        step = weight / (1 - B + B * len(terms) / yardstick)
        for term in terms:
            frequencies[term] = frequencies.get(term, 0.0) + step
    return {hash_of(term): max(1, round(255 * tf / (K1 + tf))) for term, tf in frequencies.items()}
