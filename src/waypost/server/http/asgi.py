"""Requests and responses over ASGI, without a framework, so that the AF endpoints run inside any ASGI application
(docs/decisions/0002-asgi-by-hand.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from waypost import limits
from waypost.errors import InvalidParameter, TooLarge, TooSlow, Unavailable, UriTooLong
from waypost.model.json import dump_json
from waypost.model.names import parse_authority

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON = b"application/json"
PROBLEM = b"application/problem+json"
HTML = b"text/html; charset=utf-8"
SUBJECT_SCOPE_KEY = "waypost.caller"  # in the scope of a request: a dict that copies of the scope share
NO_STORE = (b"cache-control", b"no-store")

_HEX_DIGITS = "0123456789abcdefABCDEF"
_ESCAPES = {(high + low).encode(): bytes.fromhex(high + low) for high in _HEX_DIGITS for low in _HEX_DIGITS}


class ClientDisconnect(Exception):
    """The client closed the connection before its request or our response was complete."""


class BodyMemory:
    """What bodies take in all requests of an application: many slow clients, which need no credential, must not take it all."""

    def __init__(self) -> None:
        self.incomplete_bytes = 0  # in memory, of bodies that are still being received
        self.drained = 0  # bodies that are read only to be discarded

    def check(self) -> None:
        if self.incomplete_bytes > limits.INCOMPLETE_BODIES_BYTES:
            raise Unavailable(
                "Too many bodies are being received.",
                path="$",
                hint="Send the request again later, with the whole body at once.",
                retry_after=limits.RETRY_SECONDS,
            )


# --- Requests -------------------------------------------------------------------------------------


class Request:
    """One HTTP request. Headers and query are parsed on first use."""

    __slots__ = (
        "_headers",
        "_query",
        "_started_at",
        "bodies",
        "has_unread_body",
        "method",
        "path",
        "query_string",
        "raw_path",
        "receive",
        "scope",
        "state",
    )

    def __init__(self, scope: Scope, receive: Receive, bodies: BodyMemory | None = None) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope.get("raw_path") or self.path.encode()  # as it was sent, with its escapes
        self.query_string: bytes = scope.get("query_string", b"")
        self.bodies = bodies or BodyMemory()  # shared by the requests of an application
        self.state: dict[str, str] = {}  # results that handlers keep for the rest of the request
        self.has_unread_body = False  # reading was given up, so the connection cannot be reused
        self._started_at = time.perf_counter()
        self._headers: dict[bytes, bytes] | None = None
        self._query: list[tuple[str, str]] | None = None

    def elapsed_seconds(self) -> float:
        return time.perf_counter() - self._started_at

    def set_subject(self, subject: str | None) -> None:
        """Record the authenticated subject for the request log."""
        self.scope.setdefault(SUBJECT_SCOPE_KEY, {})["subject"] = subject

    def header(self, name: bytes, default: str | None = None) -> str | None:
        """A header by its lower-case name. Repeated ones are joined by a comma (RFC 9110 §5.2)."""
        headers = self._headers
        if headers is None:
            headers = {}
            for key, value in self.scope["headers"]:
                headers[key] = headers[key] + b", " + value if key in headers else value
            self._headers = headers
        value = headers.get(name)
        return default if value is None else value.decode("latin-1")

    @property
    def host_name(self) -> str:
        """The name or address in the Host header, in lower case and without port; empty if it is missing or malformed."""
        return parse_authority(self.header(b"host", "") or "") or ""

    @property
    def query(self) -> list[tuple[str, str]]:
        """Query parameters in order. Broken escapes, invalid UTF-8 and control characters are refused."""
        if self._query is None:
            self._query = parse_query(self.query_string)
        return self._query

    def param(self, name: str, default: str | None = None) -> str | None:
        """A query parameter that may occur once."""
        if not self.query_string:
            return default
        values = [value for key, value in self.query if key == name]
        if len(values) > 1:
            raise InvalidParameter(
                f"The parameter {name!r} occurs {len(values)} times.", path=name, hint="Send it once."
            )
        return values[0] if values else default

    async def body(self, max_bytes: int = limits.DOCUMENT_BYTES) -> bytes:
        """The whole body. Raises as soon as it is known to be too long."""
        self._check_declared_length(max_bytes)
        deadline = asyncio.get_running_loop().time() + limits.BODY_READ_SECONDS
        parts: list[bytes] = []
        size, counted, has_more = 0, 0, True
        try:
            while has_more:
                part, has_more = await self._read_part(max_bytes, size, deadline)
                parts.append(part)
                size += len(part)
                if has_more and size > limits.UNCOUNTED_BODY_BYTES:
                    self.bodies.incomplete_bytes += size - counted
                    counted = size
                    self.bodies.check()
        finally:
            self.bodies.incomplete_bytes -= counted
        return b"".join(parts)

    async def chunks(self, max_bytes: int) -> AsyncIterator[bytes]:
        """The body as it arrives. The time limit is for each part, not for the whole body. Raises before the first one
        if the declared length is too long: nothing of such a body is used."""
        self._check_declared_length(max_bytes)
        size, has_more = 0, True
        while has_more:
            deadline = asyncio.get_running_loop().time() + limits.BODY_READ_SECONDS
            part, has_more = await self._read_part(max_bytes, size, deadline)
            size += len(part)
            if part:
                yield part

    async def drain(self) -> None:
        """Read and discard the rest of the body for a while: closing a connection on a client that still sends would
        lose the response (RFC 9112 §9.6). A client that sent Expect: 100-continue has sent no body."""
        if not self.has_unread_body or self.header(b"expect") is not None:
            return
        if self.bodies.drained >= limits.DRAINED_BODIES:
            return
        size, deadline = 0, asyncio.get_running_loop().time() + limits.BODY_READ_SECONDS
        self.bodies.drained += 1
        try:
            async with asyncio.timeout_at(deadline):
                while self.has_unread_body and size < limits.LINGER_BYTES:
                    async with asyncio.timeout(limits.LINGER_SECONDS):
                        message = await self.receive()
                    size += len(message.get("body", b""))
                    self.has_unread_body = message["type"] == "http.request" and bool(message.get("more_body"))
        except TimeoutError:
            return
        finally:
            self.bodies.drained -= 1

    def _check_declared_length(self, max_bytes: int) -> None:
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared[:20]) > max_bytes:
            self.has_unread_body = True
            raise _too_large(f"has {declared[:20]} bytes", max_bytes)

    async def _read_part(self, max_bytes: int, size: int, deadline: float) -> tuple[bytes, bool]:
        """The part after the first `size` bytes, and whether more follows."""
        self.has_unread_body = True
        message = await receive_until(deadline, self.receive)
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        self.has_unread_body = bool(message.get("more_body"))
        if size + len(part) > max_bytes:
            raise _too_large(f"has more than {max_bytes} bytes", max_bytes)
        return part, self.has_unread_body


async def receive_until(deadline: float, receive: Receive) -> Message:
    """The next part of a body; raises if it has not come at this time of the event loop."""
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        raise TooSlow(
            f"The body did not arrive within {limits.BODY_READ_SECONDS} seconds.",
            path="$",
            hint="Send the request again, with the whole body.",
        ) from None


def _too_large(problem: str, max_bytes: int) -> TooLarge:
    return TooLarge(f"The body {problem}.", path="$", hint=f"Send at most {max_bytes} bytes.")


def parse_query(raw: bytes) -> list[tuple[str, str]]:
    if not raw:
        return []
    if len(raw) > limits.QUERY_STRING_BYTES:
        raise UriTooLong(
            f"The query string has {len(raw)} bytes; at most {limits.QUERY_STRING_BYTES} are allowed.",
            hint="Shorten it.",
        )
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise InvalidParameter("The query string is not percent-encoded UTF-8.") from None
    for name, value in pairs:
        if _has_control_character(name + value):
            raise InvalidParameter(f"The parameter {name[:32]!r} contains a control character.", path=name[:32])
    return pairs


def decode_segment(segment: str | bytes) -> str:
    """A percent-decoded path segment (AF-15, H5, H6)."""
    raw = segment.encode("ascii", "replace") if isinstance(segment, str) else segment
    if len(raw) > limits.PATH_SEGMENT_BYTES:
        raise InvalidParameter("The id in the path is too long.", path="id")
    first, *rest = raw.split(b"%")
    try:
        text = (first + b"".join([_ESCAPES[part[:2]] + part[2:] for part in rest])).decode("utf-8")
    except KeyError:
        raise InvalidParameter("The path contains an invalid percent escape.", path="id") from None
    except UnicodeDecodeError:
        raise InvalidParameter("The path is not valid UTF-8 after percent-decoding.", path="id") from None
    if _has_control_character(text):
        raise InvalidParameter("The path contains a control character.", path="id")
    return text


def _has_control_character(text: str) -> bool:
    return not text.isprintable() and any(char < " " or char == "\x7f" for char in text)


# --- Responses ------------------------------------------------------------------------------------


class Response:
    """A complete response. Header names are lower-case; content-length is added on sending."""

    __slots__ = ("body", "headers", "sent_bytes", "status")

    def __init__(
        self, status: int, body: bytes = b"", *, content_type: bytes = JSON, headers: Headers | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.sent_bytes = 0  # of the body
        self.headers: Headers = headers if headers is not None else []
        if body:
            self.headers.append((b"content-type", content_type))

    def add(self, name: bytes, value: str | bytes) -> Response:
        self.headers.append((name, value if isinstance(value, bytes) else encode_header(value)))
        return self

    async def send(self, send: Send, *, head: bool = False) -> None:
        headers = self.headers
        if self.status not in (204, 304):
            headers.append((b"content-length", str(len(self.body)).encode()))
        body = b"" if head else self.body
        self.sent_bytes = len(body)
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class StreamingResponse:
    """A response that is produced while it is sent. A client that reads nothing for `stall_seconds` is disconnected."""

    __slots__ = ("headers", "parts", "receive", "sent_bytes", "stall_seconds", "status")

    def __init__(
        self,
        status: int,
        parts: AsyncIterator[bytes],
        *,
        content_type: bytes,
        receive: Receive | None = None,
        headers: Headers | None = None,
        stall_seconds: float | None = None,
    ) -> None:
        self.status = status
        self.parts = parts
        self.sent_bytes = 0  # of the body, until now
        self.receive = receive
        self.headers: Headers = [(b"content-type", content_type), *(headers or ())]
        self.stall_seconds = stall_seconds

    def add(self, name: bytes, value: str | bytes) -> StreamingResponse:
        self.headers.append((name, value if isinstance(value, bytes) else encode_header(value)))
        return self

    async def send(self, send: Send, *, head: bool = False) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        if head:
            await send({"type": "http.response.body", "body": b""})
            return
        sender = asyncio.create_task(self._send_parts(send))
        if self.receive is None:
            await sender
            return
        # ASGI servers ignore what is sent after a disconnect; only `receive` reports it.
        disconnect = asyncio.create_task(_wait_for_disconnect(self.receive))
        try:
            await asyncio.wait((sender, disconnect), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sender, disconnect):
                task.cancel()
            results = await asyncio.gather(sender, disconnect, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _send_parts(self, send: Send) -> None:
        async for part in self.parts:
            self.sent_bytes += len(part)
            try:
                async with asyncio.timeout(self.stall_seconds):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            except TimeoutError:
                raise ClientDisconnect from None
        await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


AnyResponse: TypeAlias = Response | StreamingResponse


def json_response(
    value: Any, status: int = 200, *, headers: Headers | None = None, content_type: bytes = JSON
) -> Response:
    return Response(status, dump_json(value), content_type=content_type, headers=headers)


def encode_header(text: str) -> bytes:
    """A header value. Control characters, which could end the header, and non-ASCII characters are escaped."""
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    return "".join(char if " " <= char <= "~" else f"%{ord(char):02X}" for char in text).encode("ascii")


def merge_vary(headers: Headers, names: Iterable[str]) -> None:
    present = [value for name, value in headers if name == b"vary"]
    known = {part.strip().lower() for value in present for part in value.decode("latin-1").split(",")}
    missing = [name for name in names if name.lower() not in known]
    if missing:
        joined = ", ".join([value.decode("latin-1") for value in present] + missing).encode()
        headers[:] = [pair for pair in headers if pair[0] != b"vary"] + [(b"vary", joined)]
