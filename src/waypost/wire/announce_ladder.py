"""How an announcement is made to fit (announce.md §6.2, P-23): as it is, compact, in pieces, or as a pointer.

The ladder knows sizes. Signing is an argument: what is left out must be left out before the signature.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import msgspec

from waypost import limits
from waypost.errors import TooLarge
from waypost.model.json import JsonObject, dump_json
from waypost.wire.announce_txt import write_inline
from waypost.wire.announce_udp import DATA_BYTES

Carrier = Literal["mdns", "udp"]
Rung = Literal["whole", "compact", "pieces", "pointer", "none"]
Sign = Callable[[JsonObject], JsonObject]  # an agent → its signed Announce
_STAMPS = ("__seq", "__iat")


class Fitted(msgspec.Struct, frozen=True):
    """A message and how it travels: `pieces` are TXT chunks or UDP fragments; `none`: this carrier cannot take it."""

    message: JsonObject
    rung: Rung


def compact(agent: JsonObject) -> JsonObject:
    """The agent without what it can be found without: no name, of the metadata the stamps against replay alone."""
    bare = {name: value for name, value in agent.items() if name not in ("agent_name", "metadata")}
    metadata = agent.get("metadata") or {}
    stamps = {name: metadata[name] for name in _STAMPS if name in metadata}
    return {**bare, "metadata": stamps} if stamps else bare


def fit(agent: JsonObject, sign: Sign, carrier: Carrier, *, can_point: bool = False) -> Fitted:
    """The first rung that holds. A compact agent is signed anew, so `sign` gives it a stamp of its own: two contents under
    one sequence would look like a stolen key (P-17)."""
    whole = sign(agent)
    if _size(whole) <= limits.DATAGRAM_BYTES:
        return Fitted(whole, "whole")
    small = sign(compact(agent))
    if _size(small) > limits.DATAGRAM_BYTES:
        small = sign({**compact(agent), "public_key": _bare_key(small["agent"].get("public_key"))})
    if _size(small) <= limits.DATAGRAM_BYTES:
        return Fitted(small, "compact")
    for message in (whole, small):
        if _fits_in_pieces(message, carrier):
            return Fitted(message, "pieces")
    return Fitted(whole, "pointer" if can_point and carrier == "mdns" else "none")


def _bare_key(pem: Any) -> Any:
    """The base64 of a key without its PEM lines, which readers take too (§1): sixty bytes that a P-256 key needs here."""
    if not isinstance(pem, str) or "-----BEGIN PUBLIC KEY-----" not in pem:
        return pem
    return "".join(line.strip() for line in pem.splitlines() if not line.startswith("-----"))


def _size(message: JsonObject) -> int:
    return len(dump_json(message))


def _fits_in_pieces(message: JsonObject, carrier: Carrier) -> bool:
    data = dump_json(message)
    if carrier == "udp":
        return len(data) <= limits.FRAGMENTS * DATA_BYTES
    with suppress(TooLarge):
        return bool(write_inline(data, str(message["agent"].get("agent_id"))))
    return False
