"""The log of requests: one line each with `access_log`, else one line for each error response.

A line has the route, never the path or the query: both can contain what a user searched for, or a token. The request id is
the `correlation_id` of an error.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from waypost import limits
from waypost.rate_limit import TokenBucket
from waypost.server.http.asgi import SUBJECT_SCOPE_KEY, Message, Scope, Send

log = logging.getLogger("waypost.access")
log.setLevel(logging.INFO)  # `access_log` turns the lines on, not `log_level`

CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that left before the response
FIELDS_ATTRIBUTE = "fields"  # of a log record: members for the JSON format

_ID_BYTES = 8
_IDS_AT_ONCE = 256

_PLAIN = re.compile(r"[!#-<>-~]+\Z")  # printable ASCII without space, quotation mark and equals sign


class SessionSend:
    """The `send` of a WebSocket session. It counts the bytes that are sent, and remembers whether the session was accepted."""

    __slots__ = ("_send", "is_accepted", "sent_bytes")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.sent_bytes = 0
        self.is_accepted = False

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "websocket.send":
            self.sent_bytes += len(message.get("bytes") or (message.get("text") or "").encode())
        elif kind == "websocket.accept":
            self.is_accepted = True
        await self._send(message)


def _draw_ids() -> Iterator[str]:
    """Random ids, because consecutive ones would tell every caller how many requests there are. Many are drawn at a time: at
    a system call for each, another thread could take the interpreter."""
    while True:
        drawn = secrets.token_hex(_ID_BYTES * _IDS_AT_ONCE)
        for start in range(0, len(drawn), 2 * _ID_BYTES):
            yield drawn[start : start + 2 * _ID_BYTES]


_ids = _draw_ids()  # the first are drawn for the first request, after the processes of a service were forked


def new_request_id() -> str:
    return next(_ids)


class RequestLog:
    """`logs_all` writes every request. Otherwise errors alone are written, up to a rate: strangers cause them."""

    def __init__(self, *, logs_all: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self.logs_all = logs_all
        self._errors = TokenBucket(limits.LOGGED_ERRORS_PER_MINUTE / 60, limits.LOGGED_ERRORS_PER_MINUTE)
        self._now = now
        self._dropped = 0

    def logs(self, status: int) -> bool:
        """Whether requests with this status are written."""
        return self.logs_all or status >= 400

    def write(self, scope: Scope, *, route: str, status: int, seconds: float, body_bytes: int, request_id: str) -> None:
        if not self.logs(status) or (not self.logs_all and not self._may_write()):
            return
        fields: dict[str, Any] = {
            "method": scope.get("method", "GET"),
            "route": route,
            "status": status,
            "milliseconds": round(seconds * 1000, 1),
            "bytes": body_bytes,
            "request_id": request_id,
            "subject": scope.get(SUBJECT_SCOPE_KEY, {}).get("subject") or "-",
        }
        if self._dropped:
            fields["errors_not_logged"], self._dropped = self._dropped, 0
        text = " ".join(f"{name}={_quote(value)}" for name, value in fields.items())
        log.info("%s", text, extra={FIELDS_ATTRIBUTE: fields})

    def _may_write(self) -> bool:
        if self._errors.take(self._now()):
            return True
        self._dropped += 1
        return False


_refusals = RequestLog()


def log_refusal(status: int, request_id: str) -> None:
    """A refusal before there was a request with a route: a broken head, too many connections, overload. Up to the rate of
    errors, also with `access_log`: strangers cause refusals by the thousand."""
    _refusals.write({"method": "-"}, route="refused", status=status, seconds=0.0, body_bytes=0, request_id=request_id)


def _quote(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.match(text) else json.dumps(text)
