"""HTTP as raw bytes on a socket."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ANSWER_SECONDS = 60.0  # more than any bound of the service


@dataclass
class RawAnswer:
    status: int
    headers: dict[str, str]
    body: bytes
    closed: bool  # by the service

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json", self.body
        value: dict[str, Any] = json.loads(self.body)
        return value


class RawConnection:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=ANSWER_SECONDS)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until_refused(self, part: bytes, most: int) -> int:
        """Send the same bytes repeatedly; return how many were accepted before the service closed the connection."""
        sent = 0
        try:
            while sent < most:
                self.socket.sendall(part)
                sent += len(part)
        except OSError:
            pass
        return sent

    def read_all(self) -> bytes:
        """Read until the service closes the connection."""
        received = b""
        while True:
            try:
                part = self.socket.recv(65536)
            except ConnectionResetError:
                return received
            if not part:
                return received
            received += part

    def read_until(self, mark: bytes) -> bytes:
        received = b""
        while mark not in received:
            part = self.socket.recv(65536)
            assert part, f"closed after {received!r}"
            received += part
        return received

    def answer(self) -> RawAnswer:
        """The only response on a connection that the service then closes."""
        return parse_answer(self.read_all())


def parse_answer(received: bytes) -> RawAnswer:
    assert received.startswith(b"HTTP/1.1 "), received
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return RawAnswer(int(status.split()[1]), headers, body, closed=True)
