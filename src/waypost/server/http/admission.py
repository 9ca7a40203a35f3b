"""Admission by queue delay: how long a request would wait for the event loop decides whether it is taken or refused.

The loop works in rounds: it reads every socket that has data, then runs what became ready. A request therefore waits for the
rounds before its own, and a counter inside the application sees it only after that wait. The protocol asks here as soon as
the head of a request is complete. The expected delay is the number of requests that wait for their first step, times what a
request took of the recent rounds.

Like CoDel (RFC 8289), it lets a burst wait longer, and a queue that stays long is overload: the burst ends a fifth of a second
after the last short round. Then the queue is cut to the target, and requests of the lowest priority are refused first. A round
is not short because requests were refused, so overload lasts until none was refused for a while, or the loop is idle.
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
        b"/api/v1/facets",
        b"/api/v1/resolve",
        b"/api/v1/organisation",
        b"/api/v1/agents:batch",
        b"/api/v1/agents:export",
        b"/api/v1/agents:fetch",
        b"/api/v1/agents:verify",
    )
)


def priority_of(method: bytes, target: bytes) -> Priority:
    """By the request line alone: the body has not been received. A JSON-RPC call may be a heartbeat, so it is a write."""
    path, _, query = target.partition(b"?")
    if path in _ESSENTIAL_PATHS:
        return Priority.ESSENTIAL
    if path in _SEARCH_PATHS:
        return Priority.SEARCH
    if method not in _READ_METHODS:
        return Priority.WRITE
    return Priority.SEARCH if b"q=" in query or b"query=" in query else Priority.READ


class AdmissionController:
    """One for each event loop. `now` is a monotonic clock in seconds; a `target_seconds` of 0 admits everything.

    A caller reports each request that waits (`admit`), its first step (`start`) and the end of a round (`end_round`), which
    is the first moment after the loop ran everything that was ready when the last waiting request started.
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
        self._count_shed = count_shed
        self._observe_delay = observe_delay
        self._allowed_seconds = {
            Priority.ESSENTIAL: target_seconds * limits.QUEUE_ESSENTIAL_FACTOR,
            Priority.WRITE: target_seconds * limits.QUEUE_WRITE_FACTOR,
            Priority.READ: target_seconds * limits.QUEUE_READ_FACTOR,
            Priority.SEARCH: target_seconds,
        }
        self._waiting = 0
        self._round_began_at: float | None = None  # None: the loop is idle
        self._started = 0  # in this round
        self._offered = 0  # in this round, with those that were refused
        self._request_seconds = limits.QUEUE_REQUEST_SECONDS
        self._share = 1.0  # of their time that reads and searches get: less if writes and refusals fill the rounds
        self._calm_at = now()  # the last time at which there was no overload
        self._refused_at = -math.inf

    def admit(self, priority: Priority) -> float | None:
        """The time at which the request began to wait, or None if it is refused."""
        now = self._now()
        if self._round_began_at is None:
            self._round_began_at = self._calm_at = now
        self._offered += 1
        if self._is_full(priority, now):
            self._refused_at = now
            self._count_shed(priority)
            return None
        self._waiting += 1
        return now

    @property
    def expected_seconds(self) -> float:
        """How long another request would wait for its first step."""
        return self._waiting * self._request_seconds

    def _is_full(self, priority: Priority, now: float) -> bool:
        if not self._target or self._waiting < limits.QUEUE_REQUESTS_MIN:
            return False
        return self.expected_seconds > self._allow(priority, now)

    def _allow(self, priority: Priority, now: float) -> float:
        allowed = self._allowed_seconds[priority]
        if priority >= Priority.READ:
            allowed *= self._share
        # The requests of a burst are started within the same time after its begin, whenever they come.
        return max(allowed, limits.QUEUE_BURST_FACTOR * self._target - (now - self._calm_at))

    def start(self, queued_at: float) -> bool:
        """A request starts. True if it was the last one that waited: then `end_round` is due."""
        self._observe_delay(self._now() - queued_at)
        self._waiting -= 1
        self._started += 1
        return self._waiting == 0

    def end_round(self) -> None:
        if self._round_began_at is None or not self._started:
            return
        now = self._now()
        round_seconds = now - self._round_began_at
        weight = min(1.0, self._started / limits.QUEUE_SAMPLE)
        # At most doubled: one round in which the system ran something else says nothing about requests.
        sample = min(round_seconds / self._started, 2 * self._request_seconds)
        self._request_seconds += weight * (sample - self._request_seconds)
        self._share = min(1.0, (limits.QUEUE_ROUND_FACTOR * self._target / max(round_seconds, 1e-6)) ** 2)
        is_short = self._offered * self._request_seconds < limits.QUEUE_OVERLOAD_FACTOR * self._target
        if is_short and now - self._refused_at > limits.QUEUE_INTERVAL_SECONDS:
            self._calm_at = now
        self._started = self._offered = 0
        self._round_began_at = now if self._waiting else None


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
