"""Background work that is repeated while the process runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from waypost.errors import WaypostError

log = logging.getLogger("waypost.jobs")

Work = Callable[[], Awaitable[Any]]


class Job(NamedTuple):
    name: str
    seconds: float  # between two runs
    run: Work
    is_chore: bool = True  # of the whole service: in a cluster, one node does it


ChoreCheck = Callable[[str], Awaitable[bool]]


async def do_all_chores(chore: str) -> bool:
    """The check of a service that is no cluster."""
    return True


def guard_chore(job: Job, may_do: ChoreCheck) -> Job:
    """The job, run only on the node that has its lease."""
    if not job.is_chore or may_do is do_all_chores:
        return job

    async def run() -> None:
        if await may_do(job.name):
            await job.run()

    return job._replace(run=run)


class PeriodicJobs:
    """Runs each job in a task of its own, so that a slow one delays no other."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks += [asyncio.create_task(repeat(job), name=job.name) for job in self._jobs]

    async def stop(self) -> None:
        await cancel_all(self._tasks)
        self._tasks.clear()


async def repeat(job: Job) -> None:
    while True:
        await asyncio.sleep(job.seconds)
        await run_tolerant(job.name, job.run)


async def run_tolerant(name: str, work: Work) -> None:
    """Log an error of the service's own kind, such as a full disk, instead of raising it: the next run tries again."""
    try:
        await work()
    except WaypostError as error:
        log.warning("%s: %s", name, error)


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
