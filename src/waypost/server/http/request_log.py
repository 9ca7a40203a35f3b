"""The log of requests: one line each with `access_log`, else one line for each error response.

A line has the route, never the path or the query: both can contain what a user searched for, or a token. The request id is
the `correlation_id` of an error.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Any

from waypost import limits
from waypost.rate_limit import TokenBucket
from waypost.server.http.asgi import SUBJECT_SCOPE_KEY, Message, Scope, Send

log = logging.getLogger("waypost.access")
log.setLevel(logging.INFO)  # `access_log` turns the lines on, not `log_level`

CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that left before the response
FIELDS_ATTRIBUTE = "fields"  # of a log record: members for the JSON format

_PLAIN = re.compile(r"[!#-<>-~]+\Z")  # printable ASCII without space, quotation mark and equals sign


class CountingSend:
    """A `send` that counts the bytes of the response body, and remembers whether a WebSocket was accepted."""

    __slots__ = ("_send", "body_bytes", "is_accepted")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.body_bytes = 0
        self.is_accepted = False

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body":
            self.body_bytes += len(message.get("body", b""))
        elif kind == "websocket.send":
            self.body_bytes += len(message.get("bytes") or (message.get("text") or "").encode())
        elif kind == "websocket.accept":
            self.is_accepted = True
        await self._send(message)


class RequestLog:
    """`logs_all` writes every request. Otherwise errors alone are written, up to a rate: strangers cause them."""

    def __init__(self, *, logs_all: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self.logs_all = logs_all
        self._errors = TokenBucket(limits.LOGGED_ERRORS_PER_MINUTE / 60, limits.LOGGED_ERRORS_PER_MINUTE)
        self._now = now
        self._dropped = 0

    def write(self, scope: Scope, *, route: str, status: int, seconds: float, body_bytes: int, request_id: str) -> None:
        if not self.logs_all and (status < 400 or not self._may_write()):
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
