"""A request that is all there and waits for nobody is answered where it was read, without a task of its own.

A task costs as much as finding an agent does. What turns out to wait after all goes on in one. It knows coroutines, no HTTP.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any


def start(running: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
    """Take the first step now; None when it was the last one. Until it waits for the first time it has no task: it must not
    ask for a time limit of its own before that."""
    try:
        awaited = running.send(None)
    except StopIteration:
        return None
    return loop.create_task(_rest(running, awaited))


@types.coroutine
def _rest(running: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """As `await running`, for one that waits already."""
    while True:
        try:
            sent = yield awaited
        except GeneratorExit:
            running.close()
            raise
        except BaseException as error:  # noqa: BLE001 - a cancellation, most likely: it is for who waits to say
            step: Any = running.throw
            given: Any = error
        else:
            step, given = running.send, sent
        try:
            awaited = step(given)
        except StopIteration:
            return
