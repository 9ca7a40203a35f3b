"""What happened in a cluster, and whether its guarantees held. Pure: every check takes one pass over sorted lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class AcknowledgedWrite:
    """One increment of the counter of an agent. Times are those of one clock."""

    node: str
    agent: str
    counter: int
    revision: int
    sent_at: float
    answered_at: float


@dataclass(frozen=True)
class StrongRead:
    node: str
    agent: str
    revision: int  # 0: it was not there
    sent_at: float


@dataclass(frozen=True)
class LoggedChange:
    revision: int
    agent: str
    counter: int | None  # None: of an agent that nobody counts


@dataclass(frozen=True)
class NoteSighting:
    """A note that was acknowledged on one node, looked for on another one after that."""

    name: str
    is_seen: bool


@dataclass(frozen=True)
class ChoreRun:
    """A write of a chore in the order of the log. `current` is the epoch of the lease when it was stored."""

    epoch: int
    current: int


@dataclass(frozen=True)
class LeaseSighting:
    """A read of an agent with a lease. Times are those of the wall clock of the clients, which is that of the database."""

    agent: str
    node: str
    ends_at: float
    sent_at: float
    answered_at: float
    is_seen: bool


@dataclass
class ClusterHistory:
    writes: list[AcknowledgedWrite] = field(default_factory=list)
    reads: list[StrongRead] = field(default_factory=list)
    notes: list[NoteSighting] = field(default_factory=list)
    chores: list[ChoreRun] = field(default_factory=list)
    leases: list[LeaseSighting] = field(default_factory=list)
    results: dict[str, set[str]] = field(default_factory=dict)  # of what may happen once: all that callers were told
    log: list[LoggedChange] = field(default_factory=list)  # of the database, in order
    watched: dict[str, list[int]] = field(default_factory=dict)  # revisions that the listener of each node got
    states: dict[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)  # revision and counter of each agent
    failures: list[str] = field(default_factory=list)  # nodes that gave up


CLOCK_SECONDS = 2.0  # by which nodes may misjudge the time of the database: as long as they wait for its answer


def find_violations(history: ClusterHistory) -> list[str]:
    """All broken guarantees, in words."""
    return [
        *history.failures,
        *_check_log(history.log),
        *_check_acknowledged(history.writes, history.log),
        *_check_order(history.writes),
        *_check_reads(history.writes, history.reads),
        *_check_states(history.log, history.states),
        *_check_watchers(history.watched, len(history.log)),
        *(f"the note {note.name} was acknowledged and not seen" for note in history.notes if not note.is_seen),
        *(
            f"a chore of epoch {run.epoch} wrote in epoch {run.current}"
            for run in history.chores
            if run.epoch < run.current
        ),
        *(
            f"{lease.node} showed {lease.agent} {lease.sent_at - lease.ends_at:.1f} s after the end of its lease"
            for lease in history.leases
            if lease.is_seen and lease.sent_at > lease.ends_at + CLOCK_SECONDS
        ),
        *(
            f"{lease.node} hid {lease.agent} {lease.ends_at - lease.answered_at:.1f} s before the end of its lease"
            for lease in history.leases
            if not lease.is_seen and lease.answered_at < lease.ends_at - CLOCK_SECONDS
        ),
        *(f"{name} happened {len(told)} times" for name, told in history.results.items() if len(told) > 1),
    ]


def _check_log(log: Sequence[LoggedChange]) -> Iterator[str]:
    """Revisions are dense, and no increment was decided on an old counter."""
    counters: dict[str, int] = defaultdict(int)
    for place, change in enumerate(log, 1):
        if change.revision != place:
            yield f"the log has revision {change.revision} at place {place}"
            return
        if change.counter is None:
            continue
        if change.counter != counters[change.agent] + 1:
            yield f"revision {change.revision} lost an update of {change.agent}"
        counters[change.agent] = change.counter


def _check_acknowledged(writes: Iterable[AcknowledgedWrite], log: Sequence[LoggedChange]) -> Iterator[str]:
    acknowledged: set[int] = set()
    for write in writes:
        found = log[write.revision - 1] if 0 < write.revision <= len(log) else None
        if found is None or (found.agent, found.counter) != (write.agent, write.counter):
            yield f"the acknowledged revision {write.revision} of {write.agent} is not in the log"
        elif write.revision in acknowledged:
            yield f"revision {write.revision} of {write.agent} was acknowledged to two writers"
        acknowledged.add(write.revision)


def _check_order(writes: Iterable[AcknowledgedWrite]) -> Iterator[str]:
    """A write that was sent after the answer to another one comes later in the log."""
    for agent, group in _by_agent(writes).items():
        newest_answer = 0.0
        for write in sorted(group, key=lambda each: each.revision, reverse=True):
            # Going back in the log: nothing here may have been sent after a later one was answered.
            if newest_answer and write.sent_at > newest_answer:
                yield f"revision {write.revision} of {agent} was sent after a later one was answered"
            newest_answer = min(newest_answer or write.answered_at, write.answered_at)


def _check_reads(writes: Iterable[AcknowledgedWrite], reads: Iterable[StrongRead]) -> Iterator[str]:
    by_agent = _by_agent(writes)
    reads_by_agent: dict[str, list[StrongRead]] = defaultdict(list)
    for read in reads:
        reads_by_agent[read.agent].append(read)
    for agent, group in reads_by_agent.items():
        answered = iter(sorted(by_agent.get(agent, ()), key=lambda each: each.answered_at))
        following, newest = next(answered, None), 0
        for read in sorted(group, key=lambda each: each.sent_at):
            while following is not None and following.answered_at < read.sent_at:
                newest, following = max(newest, following.revision), next(answered, None)
            if read.revision < newest:
                yield f"a read of {agent} on {read.node} saw {read.revision}, but {newest} was acknowledged before"


def _check_states(log: Sequence[LoggedChange], states: Mapping[str, Mapping[str, tuple[int, int]]]) -> Iterator[str]:
    replayed = {change.agent: (change.revision, change.counter) for change in log if change.counter is not None}
    for node, state in states.items():
        if dict(state) != replayed:
            differing = [agent for agent in {*state, *replayed} if state.get(agent) != replayed.get(agent)]
            yield f"{node} differs from the log in {len(differing)} agents"


def _check_watchers(watched: Mapping[str, Sequence[int]], length: int) -> Iterator[str]:
    for node, revisions in watched.items():
        first = revisions[0] if revisions else length + 1
        if list(revisions) != list(range(first, length + 1)):
            yield f"the watcher of {node} missed or repeated changes"


def _by_agent(writes: Iterable[AcknowledgedWrite]) -> dict[str, list[AcknowledgedWrite]]:
    found: dict[str, list[AcknowledgedWrite]] = defaultdict(list)
    for write in writes:
        found[write.agent].append(write)
    return found
