"""UDP packets of two sources: the input is cut at each `FF FF`, and reassembly stays within its bounds."""

from __future__ import annotations

import hashlib

from waypost import limits
from waypost.errors import WaypostError
from waypost.protocols.announce.packets import Fragment, FragmentReassembly, WholeDatagram, parse_datagram


def fuzz(data: bytes) -> None:
    reassembly = FragmentReassembly()
    for number, packet in enumerate(data.split(b"\xff\xff")):
        try:
            found = parse_datagram(packet)
        except WaypostError:
            continue
        if isinstance(found, WholeDatagram):
            assert found.data in packet
        elif isinstance(found, Fragment):
            message = reassembly.add(str(number % 2), found, now=number / 8)
            if message is not None:
                assert hashlib.sha256(message).digest()[:8] == found.id
    assert 0 <= reassembly.byte_count <= limits.FRAGMENT_BYTES
    assert len(reassembly) <= 2 * limits.FRAGMENT_PARTIALS
    reassembly.sweep(now=1e9)
    assert (len(reassembly), reassembly.byte_count) == (0, 0)
