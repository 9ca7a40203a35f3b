"""Filters that the kernel runs on a socket (Linux, classic BPF): what they drop wakes nobody and costs the listener nothing.

It knows how such a program is written and put in place, not who should be dropped. On other systems there is none, and
whoever reads the socket drops by itself.
"""

from __future__ import annotations

import ctypes
import ipaddress
import logging
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from waypost import limits

log = logging.getLogger("waypost.transports")

_SO_ATTACH_FILTER, _SO_MEMINFO = 26, 55
_DROPS_AT = 8  # of what SO_MEMINFO tells: packets that the socket's filter or its full buffer kept out
_ALL, _NONE = 0xFFFFFFFF, 0

_NETWORK_HEADER, _RANDOM = 0xFFF00000, 0xFFFFF000 + 56
_SOURCE_PORT = 0  # a filter of a UDP socket sees the packet from its UDP header on
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _LOAD_KEPT, _KEEP = 0x20, 0x28, 0x30, 0x60, 0x02
_AND, _JUMP, _IF_EQUAL, _IF_GREATER, _RETURN = 0x54, 0x05, 0x15, 0x25, 0x06
_V4 = 0x40  # the first half byte of a packet
_HOPS_AT = {4: 8, 6: 7}
_SOURCE_END_AT = {4: 12, 6: 20}  # the last four bytes of the source

Line = tuple[int, int, int, int]  # what to do, how far to jump if so and if not, with what


class Source(NamedTuple):
    """Whose packets: of a host, or of one socket of it."""

    host: str
    port: int | None = None


@lru_cache(limits.ANSWER_SOURCES)  # it is asked for each packet
def source_of(address: tuple[Any, ...]) -> Source:
    """Of what a socket tells: a machine is one source; of this one, every socket."""
    host = str(address[0]).removeprefix("::ffff:")  # how a socket of both kinds tells of IPv4
    return Source(host, int(address[1])) if host.startswith("127.") else Source(host)


def filter_lines(
    *, hops: int | None = None, shares: Sequence[tuple[Source, float]] = (), share: float = 1.0
) -> list[Line]:
    """A program that lets in what arrives with so many `hops` left: of each source in `shares` that part, of all others
    `share`, by chance. Sources are told apart by the last four bytes of their address."""
    four, six = _head(4, hops), _head(6, hops)
    lines = [(_LOAD_BYTE, 0, 0, _NETWORK_HEADER), (_AND, 0, 0, 0xF0), (_IF_EQUAL, 0, len(four) + 1, _V4)]
    lines += [*four, (_JUMP, 0, 0, len(six)), *six, (_KEEP, 0, 0, 0)]
    for source, part in shares:
        lines += _of_source(source, part)
    return [*lines, *_by_chance(share)]


def _head(version: int, hops: int | None) -> list[Line]:
    """Drop what came too far; else leave the end of the source's address."""
    checked: list[Line] = []
    if hops is not None:
        checked = [(_LOAD_BYTE, 0, 0, _NETWORK_HEADER + _HOPS_AT[version])]
        checked += [(_IF_EQUAL, 1, 0, hops), (_RETURN, 0, 0, _NONE)]
    return [*checked, (_LOAD_WORD, 0, 0, _NETWORK_HEADER + _SOURCE_END_AT[version])]


def _of_source(source: Source, part: float) -> Iterator[Line]:
    let_in = _by_chance(part)
    port: list[Line] = []
    if source.port is not None:
        port = [(_LOAD_HALF, 0, 0, _SOURCE_PORT), (_IF_EQUAL, 0, len(let_in), source.port)]
    end = int.from_bytes(ipaddress.ip_address(source.host.partition("%")[0]).packed[-4:])
    yield (_LOAD_KEPT, 0, 0, 0)
    yield (_IF_EQUAL, 0, len(port) + len(let_in), end)
    yield from port
    yield from let_in


def _by_chance(part: float) -> list[Line]:
    if part >= 1:
        return [(_RETURN, 0, 0, _ALL)]
    if part <= 0:
        return [(_RETURN, 0, 0, _NONE)]
    drawn = (_LOAD_WORD, 0, 0, _RANDOM)
    return [drawn, (_IF_GREATER, 0, 1, int(part * _ALL)), (_RETURN, 0, 0, _NONE), (_RETURN, 0, 0, _ALL)]


def attach(each: Any, lines: Sequence[Line]) -> bool:
    """Put it in the place of the one before. Whether the system takes it."""
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    told = struct.pack("HP", len(lines), ctypes.addressof(program))
    try:
        each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, told)
    except OSError as error:  # whoever reads the socket checks again
        log.debug("no filter on a socket: %s", error)
        return False
    return True


def count_dropped(each: Any) -> int:
    """Packets that the kernel kept from the socket, as far as it tells."""
    if sys.platform != "linux":
        return 0
    try:
        told = each.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * (_DROPS_AT + 1))
    except OSError:
        return 0
    return int(struct.unpack_from("I", told, 4 * _DROPS_AT)[0]) if len(told) > 4 * _DROPS_AT else 0
