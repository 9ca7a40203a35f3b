"""One resolver over UDP, and over TCP where an answer does not fit.

Each question has a socket of its own: a port that nobody knows, an id that nobody knows, and a kernel that lets no other
address in. Whatever does not fit the question is not an answer; it is waited on.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import msgspec

from waypost import limits
from waypost.errors import FetchFailed
from waypost.net.dns.packet import Message, Question, failure, parse
from waypost.net.servers import Server


class PlainCarrier:
    """`Carrier` of upstreams.py."""

    def __init__(self, server: Server, *, try_seconds: float = limits.DNS_TRY_SECONDS) -> None:
        self.server = server
        self._try_seconds = try_seconds

    async def ask(self, question: Question) -> Message:
        for attempt in range(1, limits.DNS_TRIES + 1):
            try:
                message = await self._over_udp(question)
            except TimeoutError:
                continue
            if not message.is_truncated:
                return msgspec.structs.replace(message, queries=attempt, round_trips=attempt)
            message = await self._over_tcp(question)
            return msgspec.structs.replace(message, queries=attempt + 1, round_trips=attempt + 1)
        raise failure(f"The resolver {self.server} gives no answer.", "timed_out", "Does it run?")

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def _over_udp(self, question: Question) -> Message:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()
        number = secrets.randbelow(65536)
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(question, number, answer), remote_addr=(self.server.host, self.server.port)
            )
        except OSError:
            raise _unreachable(self.server) from None
        try:
            transport.sendto(question.wire(number))
            async with asyncio.timeout(self._try_seconds):
                return await answer
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise _unreachable(self.server) from None
        finally:
            transport.close()

    async def _over_tcp(self, question: Question) -> Message:
        number = secrets.randbelow(65536)
        try:
            async with asyncio.timeout(limits.DNS_TRIES * self._try_seconds):
                reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
                try:
                    writer.write(framed(question.wire(number)))
                    message = parse(await read_frame(reader))
                finally:
                    writer.transport.abort()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            raise _unreachable(self.server) from None
        if message.id != number or not message.answers(question) or message.is_truncated:
            raise failure("The resolver answered another question.", "malformed")
        return message


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, question: Question, number: int, answer: asyncio.Future[Message]) -> None:
        self._question = question
        self._id = number.to_bytes(2, "big")
        self._answer = answer

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if self._answer.done() or data[:2] != self._id:
            return
        try:
            message = parse(data)
        except FetchFailed as error:
            self._answer.set_exception(error)
            return
        if message.answers(self._question):
            self._answer.set_result(message)

    def error_received(self, exc: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc)


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))


def _unreachable(server: Server) -> FetchFailed:
    return failure(f"The resolver {server} cannot be reached.", "refused", "Does it run?")
