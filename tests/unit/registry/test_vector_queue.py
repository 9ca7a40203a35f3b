"""Which vectors a node of a cluster computes, and which it takes from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from support.agents import agent
from support.word_embedder import BagOfWords, slow_space
from waypost.model.registration import Registration
from waypost.registry.jobs.indexer import _PATIENCE_SECONDS, LiveIndex, VectorQueue
from waypost.search.ranker import HybridRanker

AGENTS = {registration.id: registration for registration in (agent(f"agent-{number}") for number in range(12))}
EVEN = {agent_id for number, agent_id in enumerate(AGENTS) if number % 2 == 0}


class Registrations:
    """A store of these agents."""

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        return {agent_id: AGENTS[agent_id] for agent_id in ids if agent_id in AGENTS}


class Exchange:
    """This node is to compute the vectors of agents with an even number."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def is_mine(self, agent_id: str) -> bool:
        return agent_id in EVEN

    async def fetch(self, agent_ids: Sequence[str]) -> Mapping[str, bytes]:
        return {agent_id: self.stored[agent_id] for agent_id in agent_ids if agent_id in self.stored}

    async def put(self, vectors: Mapping[str, bytes]) -> None:
        self.stored |= vectors


class Node:
    def __init__(self, exchange: Exchange | None) -> None:
        self.embedder = BagOfWords()
        self.now = 0.0
        live = LiveIndex(lambda: HybridRanker(None, (slow_space(self.embedder),)))
        self.ranker: HybridRanker = live.ranker  # type: ignore[assignment]
        self.ranker.index.open()
        live.open_queue()
        for registration in AGENTS.values():
            self.ranker.index.put(registration)
        self.ranker.index.maintain(1)
        self.queue = VectorQueue(live, Registrations(), exchange, lambda: self.now)  # type: ignore[arg-type]

    async def embed(self, limit: int = 2) -> set[str]:
        """The ids of all agents whose vectors this node computes now."""
        made: set[str] = set()
        while found := await self.queue.take(limit):
            await self.queue.put(self.ranker.index.embed(found))
            made.update(registration.id for registration in found)
        return made


async def test_a_service_of_one_node_computes_all_vectors() -> None:
    node = Node(None)
    assert await node.embed() == set(AGENTS)
    assert node.ranker.index.lacking(20) == []


async def test_a_node_computes_its_share_and_takes_the_rest() -> None:
    exchange = Exchange()
    node, other = Node(exchange), Node(None)
    for _ in range(12):
        await node.embed(limit=1)  # it looks at four agents at a time
    assert exchange.stored.keys() == EVEN
    assert set(node.ranker.index.lacking(20)) == AGENTS.keys() - EVEN
    other.ranker.index.lacking(20)
    await exchange.put(other.ranker.index.embed([*AGENTS.values()]))
    count = len(node.embedder.encoded)
    for _ in range(12):
        assert await node.embed() == set()
    assert node.ranker.index.lacking(20) == []
    assert len(node.embedder.encoded) == count


async def test_a_new_node_takes_also_the_vectors_that_would_be_its_share() -> None:
    exchange = Exchange()
    other = Node(None)
    other.ranker.index.lacking(20)
    await exchange.put(other.ranker.index.embed([*AGENTS.values()]))
    node = Node(exchange)
    assert await node.embed() == set()
    assert node.ranker.index.lacking(20) == []


async def test_a_node_computes_vectors_that_no_other_node_computes() -> None:
    node = Node(Exchange())
    assert await node.embed(20) == EVEN
    node.now += _PATIENCE_SECONDS - 1
    assert await node.embed(20) == set()
    node.now += 1
    assert await node.embed(20) == AGENTS.keys() - EVEN
    assert node.ranker.index.lacking(20) == []


async def test_a_node_waits_as_long_as_others_get_on() -> None:
    exchange = Exchange()
    node, other = Node(exchange), Node(None)
    await node.embed(20)
    slow = sorted(AGENTS.keys() - EVEN)
    for agent_id in slow[:-1]:
        node.now += _PATIENCE_SECONDS - 1
        other.ranker.index.lacking(20)
        await exchange.put(other.ranker.index.embed([AGENTS[agent_id]]))
        assert await node.embed(20) == set()
    assert node.ranker.index.lacking(20) == slow[-1:]
    node.now += _PATIENCE_SECONDS
    assert await node.embed(20) == {slow[-1]}


async def test_vectors_of_an_earlier_version_are_computed_again() -> None:
    exchange = Exchange()
    node = Node(exchange)
    old = agent("agent-0", description="Did something else.")
    other = HybridRanker(None, (slow_space(BagOfWords()),))
    other.index.open()
    other.index.put(old)
    other.index.maintain(1)
    other.index.lacking(1)
    exchange.stored |= other.index.embed([old])
    assert "agent-0" in await node.embed(20)
