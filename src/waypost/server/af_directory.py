"""What the AF surface needs to know of agents: a page of them, and one of them, as a caller may see them.

Two adapters stand behind it: `af_registry` over the engine, and `af_provider` over anything a user's application has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from waypost import limits
from waypost.model.names import hash_slug, slug, unslug
from waypost.model.principal import SCOPE_READ, Principal
from waypost.model.record import AgentRecord
from waypost.model.times import find_instant
from waypost.server.af_view import AfAgent, Level

SHOWN_STATUSES = ("active", "testing", "deprecated")

# The caller of an application that knows no authentication at all: nobody could be given more, so nothing is kept back.
EVERYONE = Principal(scopes=frozenset((SCOPE_READ,)), via="no-authentication")

Policy = Callable[[Principal | None, AgentRecord], Level]


class Seen(NamedTuple):
    """An agent, and how much of it this caller may see: summary or full."""

    agent: AfAgent
    level: Level


class AfQuery(NamedTuple):
    """Which agents are asked for. `limit` None: everything, unless that is more than fits one answer."""

    terms: tuple[str, ...] = ()
    text: str = ""
    tags: tuple[str, ...] = ()
    id: str | None = None
    offset: int = 0
    limit: int | None = None
    by_relevance: bool = False
    whole: bool = False  # more than summaries will be rendered


class AfPage(NamedTuple):
    seen: Sequence[Seen]
    total: int
    paged: bool  # part of the whole, or asked for as a page
    generation: str
    last_modified: float | None


class Directory(Protocol):
    ranked: bool  # a ranker is there for sort=relevance

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        """The agents that the caller sees, filtered, in the order of (folded name, id)."""
        ...

    async def one(self, principal: Principal, key: str) -> Seen | None:
        """The agent with this published id, canonical id or hash (AF-14); None when unknown or hidden."""
        ...


def default_level(principal: Principal, status: str, expires_at: float | None, now: float) -> Level:
    """AF-51: shown while it lives and is not withdrawn from use; whole to those who are known."""
    if status not in SHOWN_STATUSES or (expires_at is not None and expires_at <= now):
        return "none"
    return "summary" if principal.is_anonymous and principal != EVERYONE else "full"


def default_policy(principal: Principal, record: AgentRecord, now: float) -> Level:
    return default_level(principal, record.effective_status, find_instant(record.expires_at), now)


def window(query: AfQuery, visible: int) -> tuple[int, int, bool]:
    """Offset, limit and whether the answer is a page (AF-25): `visible` is how many agents the caller sees in all."""
    if query.limit is not None:
        return query.offset, query.limit, True
    if visible <= limits.AF_UNPAGED_MAX:
        return 0, limits.AF_UNPAGED_MAX, False
    return 0, limits.PAGE_DEFAULT, True


def names_agent(key: str, canonical_id: str) -> bool:
    """AF-14: whether a key is the published id, the canonical id or the hash of an agent."""
    return key in (slug(canonical_id), canonical_id, hash_slug(canonical_id))


def candidates(key: str) -> tuple[str, ...]:
    """The canonical ids that a key may stand for without a table, the published form first."""
    plain = unslug(key)
    return (key,) if plain is None else (plain, key)
