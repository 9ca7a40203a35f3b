"""The results of an index depend on its contents, not on how it was built."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from support.agents import PUBLIC, WORDS, ask, opened, some_agent
from support.examples import examples
from support.word_embedder import BagOfWords, quick_space, slow_space
from waypost.model.registration import Registration
from waypost.search.ranker import HybridRanker

words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
seeds = st.integers(0, 2**32)
names = st.integers(0, 11).map(lambda number: f"a{number}")
visibilities = st.sampled_from(("public", "public", "internal", "private"))
AUDIENCES = (PUBLIC, frozenset({"public", "internal"}), None)


@settings(max_examples=examples(30), deadline=None)
@given(seed=seeds, count=st.integers(1, 40), texts=st.lists(words, min_size=1, max_size=5))
def test_unsaved_agents_rank_exactly_as_after_saving(seed: int, count: int, texts: list[str]) -> None:
    dice = random.Random(seed)
    ranker = opened(*(some_agent(f"a{number}", dice) for number in range(count)))
    questions = [(text, tuple(dice.sample(WORDS, dice.randrange(2)))) for text in texts]
    before = [ask(ranker, text, preferred_tags=tags, limit=100) for text, tags in questions]
    ranker.index.maintain(1)
    assert [ask(ranker, text, preferred_tags=tags, limit=100) for text, tags in questions] == before


class LivingIndex(RuleBasedStateMachine):
    """A writer on a folder, a reader that follows it, and what both should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.held: dict[str, Registration] = {}
        self.log: list[tuple[int, str, Registration | None]] = []
        self.writer = self.made(self.folder)
        self.reader = self.made(self.folder)

    def made(self, folder: Path | None) -> HybridRanker:
        return HybridRanker(folder, [slow_space(BagOfWords("slow")), quick_space(BagOfWords("quick"))])

    @initialize()
    def begin(self) -> None:
        assert self.writer.index.open() == 0
        self.reader.index.follow()

    # --- Changes -----------------------------------------------------------------------------------

    @rule(name=names, seed=seeds, visibility=visibilities)
    def put(self, name: str, seed: int, visibility: str) -> None:
        revision = len(self.log) + 1
        self.held[name] = some_agent(name, random.Random(seed), visibility=visibility, revision=revision)
        self.tell(name, self.held[name])

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.held.pop(name, None)
        self.tell(name, None)

    def tell(self, name: str, registration: Registration | None) -> None:
        self.log.append((len(self.log) + 1, name, registration))
        for ranker in (self.writer, self.reader):
            self.replay(ranker, len(self.log) - 1)

    def replay(self, ranker: HybridRanker, after: int) -> None:
        for revision, name, registration in self.log[after:]:
            if registration is None:
                ranker.index.remove(name, revision)
            else:
                ranker.index.put(registration)

    # --- Housekeeping ------------------------------------------------------------------------------

    @rule()
    def maintain(self) -> None:
        self.writer.index.maintain(len(self.log))

    @rule()
    def embed(self) -> None:
        if ids := self.writer.index.lacking(3):
            found = [self.held[agent_id] for agent_id in ids if agent_id in self.held]
            if found:
                self.writer.index.embed(found)

    @rule()
    def follow(self) -> None:
        self.reader.index.follow()

    @rule()
    def die_and_come_back(self) -> None:
        self.writer = self.made(self.folder)
        self.replay(self.writer, self.writer.index.open())

    @rule()
    def another_reader(self) -> None:
        self.reader = self.made(self.folder)
        self.replay(self.reader, self.reader.index.follow())

    # --- Questions ---------------------------------------------------------------------------------

    @rule(text=words)
    def ask_in_between(self, text: str) -> None:
        """Preparing what waits must not show later."""
        for ranker in (self.writer, self.reader):
            found = ask(ranker, text, None, limit=50)
            assert len({hit.id for hit in found}) == len(found)
            assert {hit.id for hit in found} <= self.held.keys()

    @rule(text=words)
    def answers_are_those_of_a_fresh_index(self, text: str) -> None:
        self.maintain()
        held = self.held
        while ids := self.writer.index.lacking(50):
            self.writer.index.embed([held[agent_id] for agent_id in ids])
        self.maintain()
        self.follow()
        fresh = HybridRanker(None, [slow_space(BagOfWords("slow")), quick_space(BagOfWords("quick"))])
        fresh.index.open()
        for registration in held.values():
            fresh.index.put(registration)
        fresh.index.maintain(1)
        while ids := fresh.index.lacking(50):
            fresh.index.embed([held[agent_id] for agent_id in ids])
        for audience in AUDIENCES:
            expected = ask(fresh, text, audience, limit=50)
            assert ask(self.writer, text, audience, limit=50) == expected
            assert ask(self.reader, text, audience, limit=50) == expected
        assert self.writer.index.pending == 0

    def teardown(self) -> None:
        self.writer.close()
        self.reader.close()
        shutil.rmtree(self.folder)


LivingIndex.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_any_history_gives_the_answers_of_a_fresh_index = LivingIndex.TestCase
