"""An answer that is all there, sent in one step: its head and its body are put together once and written once. Likewise a
request's body that is all there, taken without waiting for it.

It stands beside what uvicorn does for what comes in parts, keeps its books, and leaves to it whatever is unusual.
It knows HTTP framing and nothing of what is asked and answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from waypost.server.http.asgi import FAST_PATH_KEY, Scope
from waypost.server.http.outgoing import Outgoing

Pairs = Sequence[tuple[bytes, bytes]]

_FRAMING = frozenset((b"connection", b"content-length", b"transfer-encoding"))
_WITHOUT_BODY = (204, 304)
# H5: a value that would end its line, or holds what no line may hold. Tabs may stand in one.
_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code != 0x09)


def offer_whole(cycle: RequestResponseCycle, outgoing: Outgoing) -> None:
    """Let whoever answers this request do it in one step."""
    scope: Scope = cast(Scope, cycle.scope)
    scope[FAST_PATH_KEY] = _Exchange(cycle, outgoing)


class _Exchange:
    """One request and its answer (`asgi.Whole`)."""

    __slots__ = ("_cycle", "_outgoing")

    def __init__(self, cycle: RequestResponseCycle, outgoing: Outgoing) -> None:
        self._cycle = cycle
        self._outgoing = outgoing

    def take_body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or cycle.response_complete or cycle.waiting_for_100_continue:
            return None
        cycle.flow.resume_reading()
        cycle.message_event.clear()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def __call__(self, status: int, headers: Pairs, body: bytes) -> bool:
        cycle = self._cycle
        if cycle.disconnected or cycle.response_started or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        if (body and status in _WITHOUT_BODY) or not _FRAMING.isdisjoint(dict(headers)):
            return False
        head = _head(status, (*cycle.default_headers, *headers), len(body))
        if head is None:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self._outgoing.write_whole(head if cycle.scope["method"] == "HEAD" else head + body)
        cycle.message_event.set()
        cycle.on_response()
        return True


def _head(status: int, headers: Pairs, length: int) -> bytes | None:
    """None where a value would break out of its line."""
    lines = [name + b": " + value for name, value in headers]
    if status not in _WITHOUT_BODY:
        lines.append(b"content-length: %d" % length)
    joined = b"\r\n".join(lines)
    if len(joined.translate(None, _CONTROLS)) != len(joined) - 2 * (len(lines) - 1):
        return None
    return STATUS_LINE[status] + joined + b"\r\n\r\n"
