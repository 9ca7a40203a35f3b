"""Resolvers over TLS (RFC 7858) and HTTPS (RFC 8484): who answers has proved its name, and nobody between can read or change.

One connection over TLS carries many questions at a time, told apart by their ids; it is opened when one is asked and closed
when none was for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from functools import cached_property
from importlib.util import find_spec
from typing import Final

import httpcore
import msgspec

from waypost import limits
from waypost.errors import FetchFailed
from waypost.net.dns.packet import Message, Question, failure, parse
from waypost.net.dns.plain import framed, read_frame
from waypost.net.servers import Server

_MEDIA_TYPE: Final = b"application/dns-message"
_HTTP_CONNECTIONS: Final = 16  # over HTTP/1.1 one connection carries one question at a time
_HTTP_2: Final = find_spec("h2") is not None  # the extra `doh`; some resolvers speak nothing else
_IDS: Final = 65536


class TlsCarrier:
    """`Carrier` of upstreams.py."""

    def __init__(self, server: Server, tls: ssl.SSLContext) -> None:
        self.server = server
        self._tls = tls
        self._opening = asyncio.Lock()
        self._connection: _Connection | None = None

    async def ask(self, question: Question) -> Message:
        for attempt in range(1, limits.DNS_TRIES + 1):
            connection, fresh = await self._open()
            try:
                message = parse(await connection.ask(question))
            except (ConnectionError, asyncio.IncompleteReadError):
                continue  # it may have been closed for its idleness as we asked
            except TimeoutError:
                raise failure(f"The resolver {self.server} gives no answer.", "timed_out", "Does it run?") from None
            if not message.answers(question):
                raise failure("The resolver answered another question.", "malformed")
            trips = attempt + 2 * fresh  # a handshake of TCP, and one of TLS
            return msgspec.structs.replace(message, queries=attempt, round_trips=trips)
        raise _unreachable(self.server)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()

    async def _open(self) -> tuple[_Connection, bool]:
        async with self._opening:
            if self._connection is not None and self._connection.is_open:
                return self._connection, False
            try:
                async with asyncio.timeout(limits.DNS_TRIES * limits.DNS_TRY_SECONDS):
                    reader, writer = await asyncio.open_connection(
                        self.server.host, self.server.port, ssl=self._tls, server_hostname=self.server.name
                    )
            except ssl.SSLError:
                raise _not_proven(self.server) from None
            except (OSError, TimeoutError):
                raise _unreachable(self.server) from None
            self._connection = _Connection(reader, writer)
            return self._connection, True


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._listening = asyncio.create_task(self._listen())

    @property
    def is_open(self) -> bool:
        return not self._listening.done() and not self._writer.is_closing()

    async def ask(self, question: Question) -> bytes:
        loop = asyncio.get_running_loop()
        number = self._free_id()
        answer: asyncio.Future[bytes] = loop.create_future()
        self._waiting[number] = answer
        if self._idle is not None:
            self._idle.cancel()
        try:
            self._writer.write(framed(question.wire(number)))
            async with asyncio.timeout(limits.DNS_TRIES * limits.DNS_TRY_SECONDS):
                return await answer
        finally:
            self._waiting.pop(number, None)
            if not self._waiting:
                self._idle = loop.call_later(limits.DNS_IDLE_SECONDS, self._writer.close)

    async def aclose(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await asyncio.wait([self._listening])

    def _free_id(self) -> int:
        while (number := secrets.randbelow(_IDS)) in self._waiting:
            pass
        return number

    async def _listen(self) -> None:
        try:
            while True:
                frame = await read_frame(self._reader)
                answer = self._waiting.get(int.from_bytes(frame[:2], "big"))
                if answer is not None and not answer.done():
                    answer.set_result(frame)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionResetError())


class HttpsCarrier:
    """`Carrier` of upstreams.py."""

    def __init__(self, server: Server, tls: ssl.SSLContext) -> None:
        self.server = server
        self._tls = tls

    @cached_property
    def _pool(self) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            http2=_HTTP_2,
            max_connections=_HTTP_CONNECTIONS,
            keepalive_expiry=limits.DNS_IDLE_SECONDS,
        )

    async def ask(self, question: Question) -> Message:
        try:
            async with asyncio.timeout(limits.DNS_SECONDS):
                message = parse(await self._post(question.wire(0)))  # an id would only spoil caches (RFC 8484 §4.1)
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise (_not_proven if _is_about_tls(error) else _unreachable)(self.server) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError, TimeoutError):
            raise failure(f"The resolver {self.server} gives no answer.", "timed_out", "Does it run?") from None
        if not message.answers(question):
            raise failure("The resolver answered another question.", "malformed")
        return message

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _post(self, query: bytes) -> bytes:
        server = self.server
        url = httpcore.URL(scheme=b"https", host=server.host.encode(), port=server.port, target=server.path.encode())
        headers = [
            (b"Host", f"{server.host}:{server.port}".encode()),
            (b"Content-Type", _MEDIA_TYPE),
            (b"Accept", _MEDIA_TYPE),
            (b"Content-Length", str(len(query)).encode()),
        ]
        async with self._pool.stream("POST", url, headers=headers, content=query) as response:
            if response.status != 200:
                raise failure(f"The resolver {server} answered with status {response.status}.", "status")
            body = b""
            async for part in response.aiter_stream():
                body += part
                if len(body) > limits.DNS_MESSAGE_BYTES:
                    raise failure("The answer of the resolver is larger than a message can be.", "malformed")
            return body


def _is_about_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _unreachable(server: Server) -> FetchFailed:
    return failure(f"The resolver {server} cannot be reached.", "refused", "Does it run?")


def _not_proven(server: Server) -> FetchFailed:
    return failure(
        f"The resolver {server} could not prove who it is.",
        "tls",
        "Its certificate must be valid for the name; name a private authority in the setting fetch_ca.",
    )
