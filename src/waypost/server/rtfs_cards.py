"""The agent_card of any registration: as it was registered, or derived from a profile text or from another dialect."""

from __future__ import annotations

import msgspec

from waypost.dialects.codec import EncodeContext
from waypost.dialects.rtfs import RTFS, native_card
from waypost.dialects.rtfs_card import modern
from waypost.dialects.rtfs_derive import derive_card
from waypost.dialects.rtfs_envelope import CARD, is_envelope
from waypost.dialects.rtfs_profile import read_profile
from waypost.model.health import UNKNOWN
from waypost.model.json import JsonObject
from waypost.model.registration import Registration, Source
from waypost.model.sexpr_start import is_sexpr_text
from waypost.model.times import to_rfc3339
from waypost.registry.entries import expiry_of


def registered_card(source: Source) -> JsonObject:
    """The card in a source, member for member as it came."""
    if is_sexpr_text(source.document):
        return derive_card(read_profile(source.document), base=source.url)[0]
    document: JsonObject = msgspec.json.decode(source.document)  # checked when it came
    card: JsonObject = document[CARD] if is_envelope(document) else document
    return card


def card_to_match(registration: Registration) -> JsonObject:
    """The card under today's names; cheap, because a search looks at many."""
    source = registration.source("rtfs")
    return modern(registered_card(source)) if source is not None else native_card(registration.record)


def card_to_show(registration: Registration, now: float, score: float | None) -> JsonObject:
    """The card as registered, and beside its members what the registry knows of it (P-33)."""
    source = registration.source("rtfs")
    if source is not None:
        card = registered_card(source)
    else:
        context = EncodeContext(now=now, updated_at=registration.changed_at, created_at=registration.created_at)
        card = RTFS.encode(registration.record, context).document
    health = UNKNOWN if registration.health is None else registration.health.state
    known: JsonObject = {"health": health, "registered_at": to_rfc3339(registration.created_at)}
    ends = expiry_of(registration)
    if ends is not None:
        known["expires_at"] = to_rfc3339(ends)
    if score is not None:
        known["score"] = score
    return card | {"registry": known}
