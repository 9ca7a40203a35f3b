"""A worker: takes the tasks of an agent that answers no requests itself, does them, and reports.

    async def translate(work): return {"text": …}
    await serve_tasks(client, "agent:alice.example.com", {"translate": translate})

A task that takes long keeps its lease. What a handler raises is told as the task's failure; it ends no other task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from waypost import limits
from waypost.client.aio.client import Client
from waypost.client.meetings import Work
from waypost.client.retry import Retry
from waypost.errors import Conflict, NotFound, RateLimited, Unavailable, WaypostError

log = logging.getLogger("waypost.client")

Handler = Callable[[Work], Awaitable[Any]]
_RENEW_PART = 3  # of a lease, after which it is prolonged


async def serve_tasks(
    client: Client,
    agent: str,
    handlers: Mapping[str, Handler],
    *,
    at_once: int = 4,
    lease_seconds: int = limits.TASK_LEASE_SECONDS,
    wait_seconds: int = limits.TASK_WAIT_SECONDS,
) -> None:
    """Work until cancelled. What is under way then is given up; its lease ends, and another worker takes it."""
    retry, failures = Retry(), 0
    async with asyncio.TaskGroup() as group:
        working: set[asyncio.Task[None]] = set()
        while True:
            if len(working) >= at_once:
                await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                taken = await client.take_tasks(
                    agent, limit=at_once - len(working), lease_seconds=lease_seconds, wait_seconds=wait_seconds
                )
                failures = 0
            except (Unavailable, RateLimited) as error:
                failures += 1
                log.warning("no tasks can be taken now: %s", error)
                await asyncio.sleep(error.retry_after or retry.backoff(failures, 1.0))
                continue
            for work in taken:
                task = group.create_task(_do(client, work, handlers.get(work.task), lease_seconds))
                working.add(task)
                task.add_done_callback(working.discard)


async def _do(client: Client, work: Work, handler: Handler | None, lease_seconds: int) -> None:
    if handler is None:
        await _report(client, work, "failed", error={"code": "unknown_task", "message": f"No task {work.task!r}."})
        return
    renewing = asyncio.create_task(_keep(client, work, lease_seconds))
    try:
        result = await handler(work)
    except WaypostError as error:
        await _report(client, work, "failed", error={"code": error.code, "message": str(error)})
    except Exception as error:  # a handler is the user's code: whatever it raises is its task's failure
        log.exception("the task %s failed", work.task_id)
        await _report(client, work, "failed", error={"code": "failed", "message": f"{type(error).__name__}"})
    else:
        await _report(client, work, "succeeded", result=result)
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


async def _keep(client: Client, work: Work, lease_seconds: int) -> None:
    """Prolong the lease while the handler works."""
    while True:
        await asyncio.sleep(lease_seconds / _RENEW_PART)
        await _report(client, work, "running", lease_seconds=lease_seconds)


async def _report(client: Client, work: Work, status: str, **members: Any) -> None:
    try:
        await client.report_task(work.task_id, work.lease, status, **members)
    except (Conflict, NotFound) as error:
        log.info("the task %s is no longer ours: %s", work.task_id, error)
    except WaypostError as error:
        log.warning("the task %s could not be reported: %s", work.task_id, error)
