"""The thin layer between ASGI and the faces: a request, a response, a router.

Written by hand because the AF surface must run inside any ASGI application without a framework, and because the hot
reads are measured against a bare handler (docs/decisions/0002-asgi-by-hand.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from waypost import limits
from waypost.errors import InvalidParameter, TooLarge, TooSlow, UriTooLong
from waypost.model.json import dump_json

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON = b"application/json"
PROBLEM = b"application/problem+json"
NO_STORE = (b"cache-control", b"no-store")

_DIGITS = "0123456789abcdefABCDEF"
_OCTETS = {(high + low).encode(): bytes.fromhex(high + low) for high in _DIGITS for low in _DIGITS}  # each escape


class ClientDisconnect(Exception):
    """The client left before its body was complete."""


class Request:
    """One HTTP request. Nothing is decoded before it is asked for."""

    __slots__ = ("_headers", "_query", "_started_at", "body_left", "params", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.params: dict[str, str] = {}
        self.body_left = False  # true when reading was given up: the connection is of no use any more
        self._started_at = time.perf_counter()
        self._headers: dict[bytes, bytes] | None = None
        self._query: list[tuple[str, str]] | None = None

    def elapsed_seconds(self) -> float:
        return time.perf_counter() - self._started_at

    @property
    def method(self) -> str:
        return self.scope["method"]  # type: ignore[no-any-return]

    @property
    def path(self) -> str:
        return self.scope["path"]  # type: ignore[no-any-return]

    @property
    def root_path(self) -> str:
        return self.scope.get("root_path", "")  # type: ignore[no-any-return]

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
    def query_string(self) -> bytes:
        return self.scope.get("query_string", b"")  # type: ignore[no-any-return]

    @property
    def query(self) -> list[tuple[str, str]]:
        """Query parameters in order. Broken escapes, invalid UTF-8 and control characters are refused."""
        if self._query is None:
            self._query = parse_query(self.query_string)
        return self._query

    def param(self, name: str, default: str | None = None) -> str | None:
        """A query parameter that may be given once."""
        if not self.query:
            return default
        found = [value for key, value in self.query if key == name]
        if len(found) > 1:
            raise InvalidParameter(
                f"The parameter {name!r} is given {len(found)} times.", path=name, hint="Give it once."
            )
        return found[0] if found else default

    async def body(self, most: int = limits.DOCUMENT_BYTES) -> bytes:
        """The whole body; refused as soon as it is known to be too long."""
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared[:20]) > most:
            self.body_left = True
            raise _too_large(f"has {declared[:20]} bytes", most)
        ends = asyncio.get_running_loop().time() + limits.BODY_READ_SECONDS
        part, more = await self._part(most, 0, ends)
        if not more:
            return part
        parts, size = [part], len(part)
        while more:
            part, more = await self._part(most, size, ends)
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    async def chunks(self, most: int) -> AsyncIterator[bytes]:
        """The body as it arrives, for work that streams: each part may take its time."""
        size, more = 0, True
        while more:
            ends = asyncio.get_running_loop().time() + limits.BODY_READ_SECONDS
            part, more = await self._part(most, size, ends)
            size += len(part)
            if part:
                yield part

    async def discard(self) -> None:
        """Read on for a while, for nothing: a connection that is closed on somebody who still sends loses the answer too
        (RFC 9112 §9.6). Who asks before sending has sent nothing."""
        if not self.body_left or self.header(b"expect") is not None:
            return
        size, ends = 0, asyncio.get_running_loop().time() + limits.BODY_READ_SECONDS
        try:
            async with asyncio.timeout_at(ends):
                while self.body_left and size < limits.LINGER_BYTES:
                    async with asyncio.timeout(limits.LINGER_SECONDS):
                        message = await self.receive()
                    size += len(message.get("body", b""))
                    self.body_left = message["type"] == "http.request" and bool(message.get("more_body"))
        except TimeoutError:
            return

    async def _part(self, most: int, size: int, ends: float) -> tuple[bytes, bool]:
        """The next part of a body of which `size` bytes were read, and whether more will come."""
        self.body_left = True
        message = await self._next(ends)
        part: bytes = message.get("body", b"")
        self.body_left = bool(message.get("more_body"))
        if size + len(part) > most:
            raise _too_large(f"has more than {most} bytes", most)
        return part, self.body_left

    async def _next(self, ends: float) -> Message:
        try:
            async with asyncio.timeout_at(ends):
                message = await self.receive()
        except TimeoutError:
            raise TooSlow(
                f"The body stopped arriving: {limits.BODY_READ_SECONDS} seconds are its time.",
                path="$",
                hint="Send it again, and all of it.",
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        return message


def _too_large(how: str, most: int) -> TooLarge:
    return TooLarge(f"The body {how}.", path="$", hint=f"At most {most} bytes are read here: send less, or in parts.")


def parse_query(raw: bytes) -> list[tuple[str, str]]:
    if not raw:
        return []
    if len(raw) > limits.QUERY_STRING_BYTES:
        raise UriTooLong(
            f"The query string has {len(raw)} bytes; at most {limits.QUERY_STRING_BYTES} are read.",
            hint="Shorten it.",
        )
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise InvalidParameter("The query string is not percent-encoded UTF-8.") from None
    for name, value in pairs:
        if not (name + value).isprintable() and any(char < " " or char == "\x7f" for char in name + value):
            raise InvalidParameter(f"The parameter {name[:32]!r} holds a control character.", path=name[:32])
    return pairs


def decode_segment(segment: str | bytes) -> str:
    """One percent-decoded path segment: AF-15, H5, H6."""
    raw = segment.encode("ascii", "replace") if isinstance(segment, str) else segment
    if len(raw) > limits.PATH_SEGMENT_BYTES:
        raise InvalidParameter("The id in the path is too long.", path="id")
    try:
        text = _unquote_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidParameter("The path is not valid UTF-8 after percent-decoding.", path="id") from None
    if not text.isprintable() and any(char < " " or char == "\x7f" for char in text):
        raise InvalidParameter("The path holds a control character.", path="id")
    return text


def _unquote_bytes(raw: bytes) -> bytes:
    first, *rest = raw.split(b"%")
    try:
        return first + b"".join([_OCTETS[part[:2]] + part[2:] for part in rest])
    except KeyError:
        raise InvalidParameter("The path holds a broken percent escape.", path="id") from None


class Response:
    """A complete answer. `headers` are lower-case bytes pairs; content-length is added on sending."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, status: int, body: bytes = b"", *, content_type: bytes = JSON, headers: Headers | None = None
    ) -> None:
        self.status = status
        self.body = body
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
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else self.body})


class StreamingResponse:
    """An answer that is produced as it is sent. `stall_seconds` closes a reader that takes nothing."""

    __slots__ = ("headers", "parts", "receive", "stall_seconds", "status")

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
        pump = asyncio.create_task(self._pump(send))
        if self.receive is None:
            await pump
            return
        # A server goes on swallowing what is sent to a client that left; only `receive` tells.
        gone = asyncio.create_task(_until_disconnect(self.receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone):
                task.cancel()
            results = await asyncio.gather(pump, gone, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _pump(self, send: Send) -> None:
        async for part in self.parts:
            message = {"type": "http.response.body", "body": part, "more_body": True}
            try:
                async with asyncio.timeout(self.stall_seconds):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect from None
        await send({"type": "http.response.body", "body": b""})


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


AnyResponse: TypeAlias = Response | StreamingResponse


def json_response(
    value: Any, status: int = 200, *, headers: Headers | None = None, content_type: bytes = JSON
) -> Response:
    return Response(status, dump_json(value), content_type=content_type, headers=headers)


def encode_header(text: str) -> bytes:
    """A header value; what would split a header or is not Latin-1 is escaped."""
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    return "".join(char if " " <= char <= "~" else f"%{ord(char):02X}" for char in text).encode("ascii")


def merge_vary(headers: Headers, names: Iterable[str]) -> None:
    present = [value for name, value in headers if name == b"vary"]
    have = {part.strip().lower() for value in present for part in value.decode("latin-1").split(",")}
    missing = [name for name in names if name.lower() not in have]
    if missing:
        joined = ", ".join([value.decode("latin-1") for value in present] + missing).encode()
        headers[:] = [pair for pair in headers if pair[0] != b"vary"] + [(b"vary", joined)]
