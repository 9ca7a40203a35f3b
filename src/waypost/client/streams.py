"""Lines and server-sent events out of chunks of bytes. No sockets: chunks in, values out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from waypost import limits
from waypost.errors import TooLarge


class Lines:
    """Splits at LF alone: U+2028 and its kind may stand inside JSON strings."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._rest += chunk
        *whole, rest = self._rest.split(b"\n")
        if len(rest) > limits.CLIENT_LINE_BYTES:
            raise TooLarge("The service sent a line without end.")
        self._rest = rest
        for line in whole:
            yield bytes(line.removesuffix(b"\r"))

    def rest(self) -> bytes:
        """A last line that no LF ended."""
        return bytes(self._rest)


class ServerEvent(msgspec.Struct, frozen=True):
    event: str
    data: str
    id: str | None


class Events:
    """One server-sent event for each blank line. An event that the end of the stream cut short is not told."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        for line in self._lines.feed(chunk):
            if line:
                self._take(line.decode("utf-8", "replace"))
            elif self._data or self._event:
                yield ServerEvent(self._event or "message", "\n".join(self._data), self._id)
                self._event, self._data = "", []

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
