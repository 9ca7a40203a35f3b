"""The parameters of `rtfs.registry.register` as a document: `{"agent_card", "endpoint_url"?, "ttl_seconds"?}` (rtfs.md §5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from waypost import limits
from waypost.dialects.codec import DecodeContext, Decoded
from waypost.dialects.rtfs import RTFS
from waypost.dialects.rtfs_card import modern
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, kind_of
from waypost.model.record import find_text, need_object

CARD = "agent_card"


def is_envelope(document: Mapping[str, Any]) -> bool:
    return CARD in document and "agent_id" not in document


def decode_envelope(document: JsonObject, context: DecodeContext) -> Decoded:
    """What the card inside says, with the lease that was asked for. Paths of errors lead through the envelope."""
    card = _with_endpoint(modern(need_object(document[CARD], f"$.{CARD}")), find_endpoint(document))
    try:
        decoded = RTFS.decode(card, context)
    except InvalidDocument as error:
        error.path = f"$.{CARD}{(error.path or '$').removeprefix('$')}"
        raise
    return msgspec.structs.replace(decoded, ttl_seconds=_ttl(document))


def find_endpoint(document: JsonObject) -> str | None:
    return find_text(document, "endpoint_url", most=limits.ENDPOINT_CHARS)


def _with_endpoint(card: JsonObject, endpoint_url: str | None) -> JsonObject:
    """A card that names no endpoint is reached where the envelope says (P-22)."""
    communication = {} if card.get("communication") is None else card["communication"]
    if endpoint_url is None or not isinstance(communication, dict) or communication.get("endpoints") not in (None, []):
        return card
    return {**card, "communication": {**communication, "endpoints": [{"uri": endpoint_url}]}}


def _ttl(document: JsonObject) -> int | None:
    value = document.get("ttl_seconds")
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidDocument(f"'ttl_seconds' must be an integer, not {kind_of(value)}.", path="$.ttl_seconds")
    return value
