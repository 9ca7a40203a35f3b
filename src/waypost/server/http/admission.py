"""Admission by queue delay: how long a request would wait for the event loop decides whether it is taken or refused.

The loop works in rounds: it reads every socket that has data, then runs what became ready. A request therefore waits for the
rounds before its own, and a counter inside the application sees it only after that wait. The protocol asks here as soon as
the head of a request is complete. The expected delay is the number of requests that wait for their first step, times what
requests of their kind took recently, with everything that ran in between.

Rounds are kept short: when reads and searches have had their slice of one, the others wait for the next. A write takes several
rounds, so it is answered soon, however many searches wait.

Like CoDel (RFC 8289), it lets a burst wait longer, and a queue that stays long is overload: the burst ends a sixth of a second
after the queue was last short. Then the queue is cut to the target, and requests of the lowest priority are refused first. A
queue is not short because requests were refused, so overload lasts until none was refused for a while, or the loop is idle.
Until then a read or search that waited too long all the same is refused when its turn comes.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from enum import IntEnum

from waypost import limits
from waypost.errors import Unavailable
from waypost.model.json import dump_json
from waypost.server.http.asgi import HTML, PROBLEM, Headers, Send
from waypost.server.http.conditional_requests import format_http_date
from waypost.server.http.problems import problem_headers, problem_json, problem_page
from waypost.server.http.request_log import log_refusal, new_request_id


class Priority(IntEnum):
    ESSENTIAL = 0  # health checks and metrics: an orchestrator would restart a service that is only busy
    WRITE = 1  # renewals among them: a lease that ends makes an agent disappear
    READ = 2
    SEARCH = 3  # the most expensive requests, and those that can best be repeated


_ESSENTIAL_PATHS = frozenset((b"/healthz", b"/readyz", b"/metrics"))
_READ_METHODS = frozenset((b"GET", b"HEAD", b"OPTIONS"))
_SEARCH_PATHS = frozenset(
    (
        b"/profile/v1/discover",
        b"/ard/search",
        b"/ard/explore",
        b"/mcp",
        b"/a2a",
        b"/api/v1/facets",
        b"/api/v1/resolve",
        b"/api/v1/organisation",
        b"/api/v1/agents:batch",
        b"/api/v1/agents:export",
        b"/api/v1/agents:fetch",
        b"/api/v1/agents:verify",
    )
)
_SEARCH_PARAMETERS = (b"q=", b"query=", b"search=")


def priority_of(method: bytes, target: bytes) -> Priority:
    """By the request line alone: the body has not been received. A JSON-RPC call may be a heartbeat, so it is a write."""
    path, _, query = target.partition(b"?")
    if path in _ESSENTIAL_PATHS:
        return Priority.ESSENTIAL
    if path in _SEARCH_PATHS:
        return Priority.SEARCH
    if method not in _READ_METHODS:
        return Priority.WRITE
    is_search = query and any(name in query for name in _SEARCH_PARAMETERS)
    return Priority.SEARCH if is_search else Priority.READ


class AdmissionController:
    """One for each event loop. `now` is a monotonic clock in seconds; a `target_seconds` of 0 admits everything.

    A caller reports each request that waits (`admit`), lets it wait for the next round while it must (`must_wait`), reports
    its first step (`start`), or that it is refused after all (`abandon`), and the end of a round (`end_round`), which is the
    first moment after the loop ran everything that was ready when the first request of the round started.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        *,
        target_seconds: float = limits.QUEUE_TARGET_SECONDS,
        count_shed: Callable[[Priority], None] = lambda priority: None,
        observe_delay: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._now = now
        self._target = target_seconds
        self._burst = target_seconds * limits.QUEUE_BURST_FACTOR
        self._count_shed = count_shed
        self._observe_delay = observe_delay
        self._allowed_seconds = [
            target_seconds * limits.QUEUE_ESSENTIAL_FACTOR,
            target_seconds * limits.QUEUE_WRITE_FACTOR,
            target_seconds * limits.QUEUE_READ_FACTOR,
            target_seconds,
        ]
        self._waiting = [0] * len(Priority)
        self._all_waiting = 0
        self._request_seconds = [limits.QUEUE_REQUEST_SECONDS] * len(Priority)  # from one start to the next
        self._last_start: tuple[Priority, float] | None = None  # None: the loop is idle
        self._has_started = False  # a request, in this round
        self._round_began_at = now()
        self._write_share = 1.0  # of their time that writes get: less if they and refusals make rounds long
        self._slice_began_at: float | None = None  # the first read or search of this round
        self._calm_at = now()  # the last time at which there was no overload
        self._refused_at = -math.inf

    def admit(self, priority: Priority) -> float | None:
        """The time at which the request began to wait, or None if it is refused."""
        now = self._now()
        if self._last_start is None and not self._all_waiting:
            self._calm_at = self._round_began_at = now
        if self._all_waiting >= limits.QUEUE_REQUESTS_MIN and self._is_full(priority, now):
            self._refuse(priority, now)
            return None
        self._waiting[priority] += 1
        self._all_waiting += 1
        return now

    def _is_full(self, priority: Priority, now: float) -> bool:
        # Reads and searches wait for each other, and other requests go first.
        first = Priority.READ if priority >= Priority.READ else Priority.ESSENTIAL
        waiting = range(first, Priority.SEARCH + 1 if first else Priority.READ)
        if not self._target or sum(self._waiting[other] for other in waiting) < limits.QUEUE_REQUESTS_MIN:
            return False
        expected = sum(self._waiting[other] * self._request_seconds[other] for other in waiting)
        allowed = self._allowed_seconds[priority]
        if priority == Priority.WRITE:
            allowed *= self._write_share
        # The requests of a burst are started within the same time after its begin, whenever they come.
        return expected > max(allowed, self._burst - (now - self._calm_at))

    def _refuse(self, priority: Priority, now: float) -> None:
        self._refused_at = now
        self._count_shed(priority)

    def must_wait(self, priority: Priority) -> bool:
        """Whether this round has had enough reads and searches. Each round has at least one of those that wait."""
        if priority < Priority.READ or self._slice_began_at is None or not self._target:
            return False
        return self._now() - self._slice_began_at > self._target

    def is_late(self, priority: Priority, queued_at: float) -> bool:
        """Whether a read or search has waited longer than any burst, in overload: its client has a better use of the time."""
        now = self._now()
        is_overload = now - self._refused_at <= limits.QUEUE_INTERVAL_SECONDS
        return is_overload and priority >= Priority.READ and now - queued_at > self._burst

    def abandon(self, priority: Priority) -> None:
        """The request is refused although it was admitted."""
        self._leave(priority)
        self._refuse(priority, self._now())

    def _leave(self, priority: Priority) -> None:
        self._waiting[priority] -= 1
        self._all_waiting -= 1

    def start(self, priority: Priority, queued_at: float) -> bool:
        """The request starts. True if it is the first of its round: then `end_round` is due."""
        now = self._now()
        self._observe_delay(now - queued_at)
        self._leave(priority)
        self._learn(now)
        self._last_start = (priority, now)
        is_first, self._has_started = not self._has_started, True
        if priority >= Priority.READ and self._slice_began_at is None:
            self._slice_began_at = now
        return is_first

    def _learn(self, now: float) -> None:
        """What the last request took, with everything that ran before the next."""
        if self._last_start is None:
            return
        priority, started_at = self._last_start
        before = self._request_seconds[priority]
        # Bounded: a moment in which the system ran something else says nothing about requests.
        sample = min(now - started_at, limits.QUEUE_SAMPLE_FACTOR * before)
        self._request_seconds[priority] += (sample - before) / limits.QUEUE_SAMPLES

    def end_round(self) -> None:
        now = self._now()
        self._has_started, self._slice_began_at = False, None
        longest = limits.QUEUE_ROUND_FACTOR * self._target
        self._write_share = (longest / max(longest, now - self._round_began_at)) ** 2
        if self._refused_at >= self._round_began_at:
            self._refused_at = now  # however long the round was
        self._round_began_at = now
        if not self._all_waiting:
            self._learn(now)
            self._last_start = None
        if self._is_short() and now - self._refused_at > limits.QUEUE_INTERVAL_SECONDS:
            self._calm_at = now

    def _is_short(self) -> bool:
        if not self._all_waiting:
            return True
        waiting = sum(self._waiting[other] * self._request_seconds[other] for other in Priority)
        return waiting < limits.QUEUE_OVERLOAD_FACTOR * self._target


# --- The refusal ----------------------------------------------------------------------------------


def jittered(seconds: int) -> int:
    """A Retry-After from `seconds` to twice as long: clients that are refused together must not come back together."""
    return random.randint(seconds, 2 * seconds)


_ID_PLACE = "request-id"


class OverloadResponse:
    """The refusal as problem+json or as a page, prepared for each Retry-After that is drawn: it must cost little when there
    is no time."""

    def __init__(self, retry_seconds: tuple[int, int] = limits.QUEUE_RETRY_SECONDS) -> None:
        draws = range(retry_seconds[0], retry_seconds[1] + 1)
        self._problems = [_prepare(retry_after) for retry_after in draws]
        self._pages = [_prepare(retry_after, is_page=True) for retry_after in draws]

    def render(self, *, is_head: bool, is_kept: bool, is_page: bool = False) -> bytes:
        """The response on a connection that is kept, or closed after it."""
        fields, body = self._make(is_page)
        fields.append((b"date", format_http_date(time.time())))
        lines = b"".join(b"%s: %s\r\n" % pair for pair in fields)
        close = b"" if is_kept else b"connection: close\r\n"
        return b"HTTP/1.1 503 Service Unavailable\r\n%s%s\r\n%s" % (lines, close, b"" if is_head else body)

    async def send(self, send: Send, *, is_page: bool) -> None:
        fields, body = self._make(is_page)
        await send({"type": "http.response.start", "status": 503, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    def _make(self, is_page: bool) -> tuple[Headers, bytes]:
        request_id = new_request_id()
        log_refusal(503, request_id)
        fields, before, after = random.choice(self._pages if is_page else self._problems)
        body = before + request_id.encode() + after
        return [
            (b"x-request-id", request_id.encode()),
            *fields,
            (b"content-length", str(len(body)).encode()),
        ], body


def _prepare(retry_after: int, *, is_page: bool = False) -> tuple[Headers, bytes, bytes]:
    error = Unavailable(
        "The service has more requests than it can answer in time.",
        hint="Wait as long as Retry-After says, then send the request again.",
        retry_after=retry_after,
    )
    if is_page:
        body = problem_page(error, correlation_id=_ID_PLACE)
    else:
        body = dump_json(problem_json(error, instance="about:blank", correlation_id=_ID_PLACE))
    before, _, after = body.partition(_ID_PLACE.encode())
    return [*problem_headers(error), (b"content-type", HTML if is_page else PROBLEM)], before, after


OVERLOAD = OverloadResponse()
