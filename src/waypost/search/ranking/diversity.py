"""How an answer stays open to others: floods of one cluster or one owner are spread over the places.

It knows scores, owners, times and who says the same as whom, no fingerprint and no record. An order is told place by place,
and no further than somebody reads it: what stands behind the ten that are shown is mostly no work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from waypost import limits


class DiversityRules(NamedTuple):
    window: int = limits.DIVERSITY_WINDOW
    per_cluster: int = 2
    per_owner: int = 2
    comparable: float = 0.9  # of a score: what is this good is as good
    # Another owner's candidate goes before the third of one owner when it fits too: two fifths as likely to be what is asked
    # for, and likely enough. Whoever writes many agents for a question scores better than those who wrote theirs for what
    # they do.
    fits_too: float = 0.4
    fits: float = 0.2
    original: float = 0.1  # of its best copy's score: below it the earliest registration has no claim to be shown


DIVERSITY_RULES: Final = DiversityRules()


class RankedCandidates(NamedTuple):
    """Candidates in the order of their ranking, best first."""

    scores: list[float]
    cluster_of: Callable[[int], Sequence[int]]  # all that say the same as one, in order, itself too
    owners: Sequence[int]  # any number that is the same for the same owner
    registered: Sequence[float]  # smaller is earlier: a revision or a time


def diversify(ranked: RankedCandidates, rules: DiversityRules = DIVERSITY_RULES) -> Iterator[int]:
    """Positions in the order to show: in each ten at most two of a cluster, and of an owner while others fit too.

    Of a crowded cluster the best is shown and the earliest registration, right behind it or, where it is as good, before it:
    two hundred copies cannot push out what they were copied from, however they were tuned to the question. The rest is
    pushed behind the ten, never lost: where nothing else is left, it is shown after all.
    The owner's bound yields to relevance: it holds only for candidates of other owners that fit too. So in a registry of
    one owner, or where nobody else does what is asked for, ten different agents are listed as they are ranked.
    """
    ranked = ranked._replace(scores=[*ranked.scores])  # an original becomes as good as the best of its copies
    if len(set(ranked.owners)) == 1:
        rules = rules._replace(per_owner=len(ranked.owners))  # there is nobody to make room for
    queue = _Queue(ranked, rules)
    coming, waiting, turn = iter(queue), list[int](), 0
    while True:
        window = _Window(ranked, queue, turn, rules)
        waiting = window.fill(waiting, coming)
        yield from window.shown
        if len(window.shown) < rules.window:
            return
        turn += 1


class _Queue:
    """The candidates in the order in which they wait: as ranked, but the original of each crowded cluster beside the best of
    its copies, and as good. And in which window each may be shown first: the best and the original, then by rank."""

    def __init__(self, ranked: RankedCandidates, rules: DiversityRules) -> None:
        self._ranked, self._rules = ranked, rules
        self._turns: dict[int, int] = {}
        self._moved: set[int] = set()

    def turn_of(self, at: int) -> int:
        return self._turns.get(at, 0)

    def __iter__(self) -> Iterator[int]:
        beside: list[int] = []  # originals that stand between the one before and this one
        for at in range(len(self._ranked.scores)):
            members = self._ranked.cluster_of(at)
            original, is_as_good = at, False
            if len(members) > self._rules.per_cluster and members[0] == at:
                original, is_as_good = self._found(members)
            if is_as_good:
                beside = sorted((*beside, original))
            yield from beside
            if at not in self._moved:
                yield at
            beside = [] if is_as_good or original == at else [original]
        yield from beside

    def _found(self, members: Sequence[int]) -> tuple[int, bool]:
        """The original of a crowded cluster, the earliest that has a claim, and whether it goes before the best. Everybody
        gets a turn."""
        scores, best = self._ranked.scores, members[0]
        floor = self._rules.original * scores[best]
        original = min(members, key=lambda at: (scores[at] < floor, self._ranked.registered[at], at))
        is_as_good = original != best and scores[original] >= self._rules.comparable * scores[best]
        waiting = [at for at in members if at != original]
        waiting.insert(0 if is_as_good or original == best else 1, original)
        self._turns.update((at, turn // self._rules.per_cluster) for turn, at in enumerate(waiting))
        if original != best:
            self._moved.add(original)
            scores[original] = scores[best]
        return original, is_as_good


class _Window:
    """Ten places, filled in the order of the queue."""

    def __init__(self, ranked: RankedCandidates, queue: _Queue, turn: int, rules: DiversityRules) -> None:
        self.shown: list[int] = []
        self._ranked, self._queue, self._turn, self._rules = ranked, queue, turn, rules
        self._of_cluster: dict[int, int] = {}
        self._of_owner: dict[int, int] = {}

    def fill(self, waiting: list[int], coming: Iterator[int]) -> list[int]:
        """Take what may be shown, of those left by the window before and those who come; returns who is left now."""
        scores, owners = self._ranked.scores, self._ranked.owners
        looked_at: list[int] = []
        behind: list[int] = []  # more of an owner than the bound, until the others fall off
        for at in chain(waiting, coming):
            looked_at.append(at)
            while behind and not self._fits_too(scores[at], scores[behind[0]]):
                self._take(behind.pop(0))
            if self._of_owner.get(owners[at], 0) >= self._rules.per_owner:
                behind.append(at)
            else:
                self._take(at)
            if len(self.shown) >= self._rules.window:
                break
        for at in behind:
            self._take(at)
        chosen = set(self.shown)
        left = [at for at in looked_at if at not in chosen] + waiting[len(looked_at) :]
        missing = self._rules.window - len(self.shown)  # nothing else is left: more of the same is better than nothing
        self.shown += left[:missing]
        return left[missing:]

    def _take(self, at: int) -> None:
        if len(self.shown) >= self._rules.window or self._queue.turn_of(at) > self._turn:
            return
        label, owner = self._ranked.cluster_of(at)[0], self._ranked.owners[at]
        held = self._of_cluster.get(label, 0)
        if held < self._rules.per_cluster:
            self.shown.append(at)
            self._of_cluster[label] = held + 1
            self._of_owner[owner] = self._of_owner.get(owner, 0) + 1

    def _fits_too(self, score: float, better: float) -> bool:
        rules = self._rules
        return score >= rules.comparable * better or (score >= rules.fits and score >= rules.fits_too * better)
