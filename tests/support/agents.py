"""Registrations for search tests: realistic ones by name, and many random ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from waypost.model.query import Hit, Query
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker

PUBLIC = frozenset({"public"})
_WORDS = (
    "weather forecast rain storm city travel flight hotel booking invoice payment tax ledger audit translate english german "
    "summary document contract legal search index image resize video caption music playlist recipe diet health sleep code "
    "review test deploy server metric alert calendar meeting email draft reply sensor robot map route traffic parcel"
)
WORDS = _WORDS.split()


def agent(
    agent_id: str,
    name: str = "Agent",
    description: str = "Does things.",
    *,
    tags: Iterable[str] = (),
    examples: Iterable[str] = (),
    protocols: Sequence[str] = ("https",),
    status: str | None = None,
    owner: str = "alice",
    visibility: str = "public",
    **members: Any,
) -> Registration:
    record = AgentRecord(
        id=agent_id,
        name=name,
        description=description,
        tags=tuple(tags),
        examples=tuple(Example(text=text) for text in examples),
        bindings=tuple(Binding(protocol=protocol, endpoint="https://a.example/x") for protocol in protocols),
        status=status,
    )
    envelope = {"etag": "", "revision": 1, "created_at": 0.0, "changed_at": 0.0, "renewed_at": 0.0, **members}
    return Registration(record=record, owner=owner, visibility=visibility, **envelope)


def some_agent(agent_id: str, dice: random.Random, **members: Any) -> Registration:
    return agent(
        agent_id,
        " ".join(dice.choices(WORDS, k=2)),
        " ".join(dice.choices(WORDS, k=dice.randint(3, 20))) + ".",
        tags=dice.sample(WORDS, dice.randint(0, 4)),
        examples=[" ".join(dice.choices(WORDS, k=6)) for _ in range(dice.randint(0, 2))],
        **members,
    )


def opened(*registrations: Registration, maintained: bool = False) -> HybridRanker:
    """A ranker in memory with these agents, in the delta or in the index."""
    ranker = HybridRanker()
    ranker.index.open()
    for registration in registrations:
        ranker.index.put(registration)
    if maintained:
        ranker.index.maintain(1)
    return ranker


def ask(
    ranker: HybridRanker, text: str = "", audience: frozenset[str] | None = PUBLIC, **filters: Any
) -> tuple[Hit, ...]:
    """As the service asks: many recent changes are prepared first."""
    query = Query(text=text, **filters)
    if ranker.index.is_behind(audience):
        ranker.index.prepare_for(audience, query)
    return ranker.rank(query, audience, alive=lambda _: True, now=0.0).hits


def ids(hits: Iterable[Hit]) -> list[str]:
    return [hit.id for hit in hits]
