"""Announced agents in the catalogue: which are signed, and the capabilities that are more than a record has tags for.

Both are facts of an entry, so that a list of a hundred thousand agents is paged from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pyroaring import BitMap

from waypost import limits
from waypost.dialects.announce_capabilities import read_capabilities
from waypost.dialects.codec import residue_name
from waypost.errors import InvalidDocument
from waypost.model.facts import FACT_CHARS
from waypost.model.names import fold_tag
from waypost.model.principal import Principal, audience
from waypost.model.record import AgentRecord
from waypost.model.registration import Registration
from waypost.registry.catalogue import LISTED, Catalogue, Position, position_of
from waypost.registry.publication import Page
from waypost.trust.admission import SIGNATURE
from waypost.trust.seal import Seal

CAPABILITY: Final = "capability"
_ANNOUNCE: Final = "announce"
_SIGNED: Final = "signed"
_RESIDUE: Final = residue_name("announce")


def announced_facts(registration: Registration) -> tuple[str, ...]:
    """Nothing for an agent that was never announced."""
    source = registration.source("announce")
    if source is None:
        return ()
    signed = any(verdict.check == SIGNATURE and verdict.state == "passed" for verdict in source.verdicts)
    more = (f"{CAPABILITY}:{fold_tag(name)}" for name in _beyond_tags(registration.record))
    return (*((f"{_ANNOUNCE}:{_SIGNED}",) if signed else ()), *dict.fromkeys(more))


def _beyond_tags(record: AgentRecord) -> list[str]:
    """Capabilities that are not among the record's tags: it has at most so many."""
    residue = record.extra.get(_RESIDUE)
    if len(record.tags) < limits.TAGS or not isinstance(residue, dict) or "capabilities" not in residue:
        return []
    try:
        names = read_capabilities(residue, "$")
    except InvalidDocument:  # anybody may write our residue into a profile document
        return []
    known = set(record.tags)
    return [name for name in names if name not in known and len(name) <= FACT_CHARS]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Which agents a list of announced ones is to show."""

    names: tuple[str, ...] = ()  # of capabilities
    signed: bool = False
    limit: int = limits.PAGE_DEFAULT
    cursor: str | None = None


def page_announced(catalogue: Catalogue, seal: Seal, principal: Principal, wish: Wish, now: float) -> Page:
    """One page of entries that may fit. The cursor fits only the same caller and the same wish."""
    who = "admin" if principal.is_admin else f"subject {principal.subject}" if principal.subject else "anonymous"
    context = (who, "\0".join(wish.names), "signed" if wish.signed else "")
    after: Position | None = None
    if wish.cursor is not None:
        after = msgspec.msgpack.decode(seal.open_page("announced", wish.cursor, now, *context), type=tuple[str, str])
    seen_by = audience(principal)
    among = select_announced(catalogue, seen_by, wish.names, signed=wish.signed)
    entries, total = catalogue.page(seen_by, limit=wish.limit + 1, after=after, among=among)
    if len(entries) <= wish.limit:
        return Page(entries=entries, total=total)
    entries = entries[: wish.limit]
    cursor = seal.seal_page("announced", msgspec.msgpack.encode(position_of(entries[-1])), now, *context)
    return Page(entries=entries, total=total, next_cursor=cursor)


def select_announced(
    catalogue: Catalogue, audience: frozenset[str] | None, names: Sequence[str], *, signed: bool
) -> BitMap | None:
    """The agents that may have all these capabilities (their spelling is compared later); None for all of them."""
    if not names and not signed:
        return None
    chosen = catalogue.select(audience, statuses=LISTED)
    for name in names:
        folded = fold_tag(name)
        chosen &= catalogue.tags.select(required=(folded,), audience=audience) | catalogue.stated.stating(
            CAPABILITY, (folded,)
        )
    return chosen & catalogue.stated.stating(_ANNOUNCE, (_SIGNED,)) if signed else chosen
