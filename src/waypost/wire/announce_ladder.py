"""How an announcement is made to fit (announce.md §6.2, P-23): as it is, compact, in pieces, or as a pointer.

The ladder knows sizes. Signing is an argument: what is left out must be left out before the signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from waypost import limits
from waypost.model.json import JsonObject, dump_json
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
    if _size(small) <= limits.DATAGRAM_BYTES:
        return Fitted(small, "compact")
    if _size(whole) <= _most_in_pieces(carrier):
        return Fitted(whole, "pieces")
    if _size(small) <= _most_in_pieces(carrier):
        return Fitted(small, "pieces")
    return Fitted(whole, "pointer" if can_point and carrier == "mdns" else "none")


def _size(message: JsonObject) -> int:
    return len(dump_json(message))


def _most_in_pieces(carrier: Carrier) -> int:
    """In a TXT record beside its four members (P-22): each chunk of 255 bytes has a length byte and a name in front."""
    if carrier == "udp":
        return limits.FRAGMENTS * DATA_BYTES
    return limits.TXT_BYTES - _TXT_HEAD_BYTES


_TXT_HEAD_BYTES = 100  # pv, id, n and h with their lengths, and three bytes for each of six chunks
