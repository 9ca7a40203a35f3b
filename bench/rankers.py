"""The ranker as the service builds it, and ablations: the same with one signal switched off.

Only this module knows how a ranker is built. A row of `ABLATIONS` is a name and a factory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from bench.embedding_cache import CachedEmbedder
from bench.searchers import MakeRanker
from waypost.embedders.choice import choose_embedder
from waypost.model.registration import Registration
from waypost.registry.ports import Ranker
from waypost.search.ranker import HybridRanker
from waypost.search.ranking.scoring import SignalWeights
from waypost.search.vectors import Embedder, SpaceRole, VectorSpace

DEFAULT = "waypost"


@cache
def spaces() -> tuple[VectorSpace, ...]:
    """Those of the service, loaded; vectors are made as agents come, because nobody makes them in the background here."""
    chosen = choose_embedder("auto", None).spaces
    if not chosen:
        raise SystemExit("No sentence model is installed: the figures would be those of words alone.")
    for space in chosen:
        space.embedder.encode(["load"])
    return tuple(space._replace(is_quick=True) for space in chosen)


@cache
def cached_spaces() -> tuple[VectorSpace, ...]:
    """The same with vectors that are kept on disk from run to run: for quality, where only the order counts."""
    return tuple(space._replace(embedder=CachedEmbedder(space.embedder)) for space in spaces())


def quality_ranker() -> HybridRanker:
    return HybridRanker(None, cached_spaces())


def ranker_without_english() -> HybridRanker:
    """Without the English model, which was fine-tuned on questions of the labelled families."""
    return HybridRanker(None, [space for space in cached_spaces() if space.role != SpaceRole.ENGLISH])


def default_ranker(folder: Path | None = None, weights: SignalWeights | None = None) -> Ranker:
    """As the service makes it; saved in `folder`, or in memory."""
    return HybridRanker(folder, spaces(), weights)


def filling_ranker(folder: Path, compose: Callable[[Embedder], Embedder]) -> Ranker:
    """The same, to be filled with very many agents: each embedder is replaced by what `compose` makes of it, which bears its
    name, so that the default ranker opens what was filled."""
    return HybridRanker(folder, [space._replace(embedder=compose(space.embedder)) for space in spaces()])


def sentence_space() -> VectorSpace:
    """The space of the first sentence model, which baselines use, too."""
    return next(space for space in spaces() if space.role != SpaceRole.STATIC)


@dataclass(frozen=True)
class Ablation:
    """A ranker, and the parts of the records that it does not see."""

    name: str
    make: MakeRanker = quality_ranker
    hidden: dict[str, object] = field(default_factory=dict)

    def shown(self, agent: Registration) -> Registration:
        if not self.hidden:
            return agent
        return msgspec.structs.replace(agent, record=msgspec.structs.replace(agent.record, **self.hidden))


def _without(**off: float) -> MakeRanker:
    return lambda: HybridRanker(None, cached_spaces(), SignalWeights()._replace(**off))


def _only(**on: float) -> MakeRanker:
    nothing = SignalWeights(*(0.0 for _ in SignalWeights._fields))
    return lambda: HybridRanker(None, cached_spaces(), nothing._replace(examples=1.0, clauses=1.0, **on))


SIGNALS: tuple[Ablation, ...] = (
    Ablation("words alone", _only(words=1.0)),
    Ablation("spelling alone", _only(spelling=1.0)),
    Ablation("coverage alone", _only(coverage=1.0)),
    Ablation("name alone", _only(name=1.0)),
    Ablation("meaning alone", _only(meaning=1.0)),
    Ablation("without words", _without(words=0.0)),
    Ablation("without spelling", _without(spelling=0.0)),
    Ablation("without coverage", _without(coverage=0.0)),
    Ablation("without name", _without(name=0.0)),
    Ablation("without meaning", _without(meaning=0.0)),
    Ablation("without freshness", _without(freshness=0.0)),
    Ablation("without example vectors", _without(examples=0.0)),
    Ablation("without clauses", _without(clauses=0.0)),
)
PARTS: tuple[Ablation, ...] = (
    Ablation("records without examples", hidden={"examples": ()}),
    Ablation("records without tags", hidden={"tags": ()}),
    Ablation("records without description", hidden={"description": ""}),
)
ABLATIONS = SIGNALS + PARTS
