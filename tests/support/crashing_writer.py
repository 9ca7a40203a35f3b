"""A process that writes to a store until it is killed, or until it reaches a failpoint.

    python -m support.crashing_writer DATA SEED [POINT TIMES]

Eight writers, each with one write in flight. Each prints its next step and, after the store answered, that it is
done; both lines are flushed at once, so that a kill cannot lose them.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec

from support.store_commands import NOW, Listener, make_registration, put, withdraw
from waypost.registry.ports import AuditEntry, Command, Decision, Idempotency, StoreState
from waypost.stores.sqlite.store import SqliteStore

WRITERS = 8
AGENTS = 5  # of each writer


def agent_id(writer: int, number: int) -> str:
    return f"writer-{writer}-agent-{number}"


def command_for(agent: str, step: int, operation: str) -> Command:
    """Deterministic, so that a repeated step has the same key and fingerprint."""
    if operation == "withdraw":
        return _told(withdraw(agent), agent, None)
    key = Idempotency(key=f"{agent}\0{step}", fingerprint=str(step), forget_at=NOW + 10_000)
    registration = make_registration(agent, text=f"step {step}", aliases=(f"alias of {agent}",))
    return _told(put(registration, idempotency=key), agent, step)


def _told(command: Command, agent: str, step: int | None) -> Command:
    """Add a note of the step and an audit entry, which must exist exactly if the change does."""

    def decide(held: StoreState) -> Decision:
        decision = command.decide(held)
        if decision.change is None:
            return decision
        entry = AuditEntry(
            at=NOW, action="put" if step else "withdraw", subject="alice", object=agent, detail=str(step)
        )
        note = None if step is None else str(step).encode()
        return msgspec.structs.replace(decision, notes={f"step:{agent}": note}, audit=(entry,))

    return msgspec.structs.replace(command, decide=decide)


class Crash:
    """Kill the process when a failpoint is reached for the `times`-th time, like a power failure."""

    def __init__(self, point: str, times: int) -> None:
        self.point = point
        self.left = times

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os._exit(137)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write(store: SqliteStore, writer: int, seed: int) -> None:
    choice = random.Random(f"{seed} {writer}")
    step = seed * 1_000_000
    while True:
        step += 1
        agent = agent_id(writer, choice.randrange(AGENTS))
        operation = "withdraw" if choice.random() < 0.3 else "put"
        say("begin", writer, agent, operation, step)
        answer = await store.execute(command_for(agent, step, operation))
        say("done", writer, agent, operation, step, answer.revision)
        if step % 20 == 0 and writer == 0:
            await store.prune(events_before=NOW + 1, keep_events=200, now=NOW, keep_audit=300)


async def main(data: Path, seed: int, crash: Crash) -> None:
    store = SqliteStore(data, failpoint=crash)
    await store.open(Listener())
    say("open")
    await asyncio.gather(*(write(store, writer, seed) for writer in range(WRITERS)))


if __name__ == "__main__":
    point, times = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else ("", 0)
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), Crash(point, times)))
