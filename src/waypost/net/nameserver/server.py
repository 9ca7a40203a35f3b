"""Sockets of the nameserver: UDP and TCP on one port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.tsig
import dns.update

from waypost import limits
from waypost.errors import ConfigurationError
from waypost.net.dns.upstreams import add_length_prefix
from waypost.net.nameserver.responder import ZoneSet, answer_query, apply_update
from waypost.net.nameserver.signed_zone import SignedZone

log = logging.getLogger("waypost.dns")

_HEADER_BYTES = 12
_MINIMUM_UDP_BYTES = 512  # RFC 1035 §2.3.4
_PORT_TRIES = 20


class Nameserver:
    def __init__(
        self,
        zones: ZoneSet,
        key: dns.tsig.Key | None,
        now: Callable[[], float],
        on_change: Callable[[SignedZone], None] | None = None,
    ) -> None:
        self.zones = zones
        self.port = 0
        self._keyring = {} if key is None else {key.name: key}
        self._now = now
        self._on_change = on_change
        self._listener: asyncio.Server | None = None
        self._datagrams: asyncio.DatagramTransport | None = None
        self.delay_seconds = 0.0  # simulates the distance of a server, over UDP

    async def start(self, host: str, port: int) -> None:
        """Listen on UDP and TCP. With port 0, find a port that is free for both."""
        for _ in range(_PORT_TRIES if port == 0 else 1):
            try:
                self._listener = await asyncio.start_server(self._serve, host, port)
                self.port = self._listener.sockets[0].getsockname()[1]
                self._datagrams, _protocol = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: _UdpServer(self), local_addr=(host, self.port)
                )
            except OSError as error:
                await self.stop()
                problem = error
                continue
            return
        raise ConfigurationError(
            f"Cannot listen on port {port} of {host}: {problem.strerror}.", path="port", hint="Name another --port."
        )

    async def stop(self) -> None:
        if self._datagrams is not None:
            self._datagrams.close()
        if self._listener is not None:
            # Not wait_closed(): from Python 3.12 on it waits until every client has closed its connection.
            self._listener.close()
        self._datagrams = self._listener = None

    def refresh(self) -> None:
        """Sign zones again before their signatures expire."""
        for zone in self.zones:
            if zone.is_stale(self._now()):
                zone.resign(self._now())

    def reply(self, data: bytes, max_bytes: int | None) -> bytes | None:
        """The response to a message; None for a message that is no query. `max_bytes` is the limit over UDP."""
        if len(data) < _HEADER_BYTES or data[2] & 0x80:
            return None
        try:
            query = dns.message.from_wire(data, keyring=self._keyring)
        except dns.exception.DNSException as error:
            return _error_response(data, error)
        response = self._respond(query)
        if max_bytes is None:
            return response.to_wire(max_size=limits.DNS_MESSAGE_BYTES)
        payload = max(query.payload if query.edns >= 0 else 0, _MINIMUM_UDP_BYTES)
        return response.to_wire(max_size=min(max_bytes, payload), prefer_truncation=True)

    def _respond(self, query: dns.message.Message) -> dns.message.Message:
        if not isinstance(query, dns.update.UpdateMessage):
            return answer_query(self.zones, query)
        response, zone = apply_update(self.zones, query, self._now())
        if zone is not None:
            log.info("%s was updated, serial %d", zone.name, zone.serial)
            if self._on_change is not None:
                self._on_change(zone)
        return response

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                async with asyncio.timeout(limits.DNS_IDLE_SECONDS):
                    size = int.from_bytes(await reader.readexactly(2), "big")
                    response = self.reply(await reader.readexactly(size), None)
                    if response is None:
                        return
                    writer.write(add_length_prefix(response))
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            return
        finally:
            writer.close()


class _UdpServer(asyncio.DatagramProtocol):
    def __init__(self, server: Nameserver) -> None:
        self._server = server

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        response = self._server.reply(data, limits.DNS_UDP_BYTES)
        if response is None:
            return
        if self._server.delay_seconds:
            asyncio.get_running_loop().call_later(self._server.delay_seconds, self._transport.sendto, response, addr)
        else:
            self._transport.sendto(response, addr)


def _error_response(data: bytes, error: dns.exception.DNSException) -> bytes:
    """The response to a malformed message, or one with an unknown or invalid TSIG: its id and an rcode."""
    bad_tsig = isinstance(
        error, dns.message.UnknownTSIGKey | dns.tsig.BadSignature | dns.tsig.BadTime | dns.tsig.BadKey
    )
    response = dns.message.Message(id=int.from_bytes(data[:2], "big"))
    response.flags = dns.flags.QR | (int.from_bytes(data[2:4], "big") & (0x7800 | dns.flags.RD))
    response.set_rcode(dns.rcode.NOTAUTH if bad_tsig else dns.rcode.FORMERR)
    return response.to_wire()
