"""The ranker as the service builds it, and the same with one signal switched off at a time.

The one place of the benchmarks that knows how a ranker is made. A row of `ABLATIONS` is a name and a way to make it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.searchers import MakeRanker
from waypost.model.registration import Registration
from waypost.registry.ports import Ranker
from waypost.search.embedding import Embedder
from waypost.search.ranker import HybridRanker

DEFAULT = "waypost"


def default_ranker(folder: Path | None = None) -> Ranker:
    """As the service makes it; saved in `folder`, or in memory."""
    return HybridRanker(folder)


def filling_ranker(folder: Path, compose: Callable[[Embedder], Embedder]) -> Ranker:
    """The same, to be filled with very many agents: each embedder is replaced by what `compose` makes of it, which bears its
    name, so that the default ranker opens what was filled."""
    return HybridRanker(folder)


@dataclass(frozen=True)
class Ablation:
    """A ranker, and which parts of the records are kept from it."""

    name: str
    make: MakeRanker = default_ranker
    hidden: dict[str, object] = field(default_factory=dict)

    def shown(self, agent: Registration) -> Registration:
        if not self.hidden:
            return agent
        return msgspec.structs.replace(agent, record=msgspec.structs.replace(agent.record, **self.hidden))


SIGNALS: tuple[Ablation, ...] = ()
PARTS: tuple[Ablation, ...] = (
    Ablation("records without examples", hidden={"examples": ()}),
    Ablation("records without tags", hidden={"tags": ()}),
    Ablation("records without description", hidden={"description": ""}),
)
ABLATIONS = SIGNALS + PARTS
