"""Document <-> record. One module per dialect; every dialect maps to the record and from it, never to another.

This is the table of dialects and the way into it: `recognise` names the dialect of an unknown document from its content,
`decode_document` reads bytes of any dialect. A new dialect is a module and a row here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from waypost.dialects.a2a import A2A
from waypost.dialects.adp import ADP
from waypost.dialects.af import AF
from waypost.dialects.announce import ANNOUNCE
from waypost.dialects.ard import ARD
from waypost.dialects.codec import Codec, DecodeContext, Decoded
from waypost.dialects.mcp import MCP
from waypost.dialects.oasf import OASF
from waypost.dialects.profile import PROFILE
from waypost.dialects.profile_reader import check_times, read_record
from waypost.dialects.refusals import refuse_what_is_no_agent
from waypost.dialects.rtfs import RTFS, decode_text
from waypost.dialects.rtfs_envelope import decode_envelope, is_envelope
from waypost.errors import InvalidDocument, UnknownDialect
from waypost.model.json import JsonObject, parse_object
from waypost.model.record import RECORD_FIELDS, record_to_json
from waypost.model.sexpr_start import is_sexpr_text

CODECS: dict[str, Codec] = {codec.name: codec for codec in (PROFILE, AF, RTFS, ANNOUNCE, ADP, A2A, ARD, MCP, OASF)}

# The most distinctive first: what is left at the end is told apart by having less.
_RECOGNITION = ("adp", "announce", "rtfs", "ard", "oasf", "a2a", "mcp", "af", "profile")

_PROFILE_MEMBERS = frozenset(RECORD_FIELDS)
_LOOKS = {
    "profile": "id, name, description, bindings",
    "af": "id, name and endpoints, summary, owner or capabilities",
    "rtfs": "agent_id, name, capabilities [{capability_id}], or an (agent-profile …) text",
    "announce": "agent_id (UUID), capabilities {}, transport",
    "adp": "protocol ADP/1.x, identity, endpoints",
    "a2a": "name, skills and supportedInterfaces or url",
    "ard": "identifier, displayName, type, url or data",
    "mcp": "name ns/name, description, version, remotes or packages",
    "oasf": "schema_version, name, skills, authors",
}
# What is left of a document that lacks a member by which it would be known, or has it in a wrong shape. It is read as what it
# looks like, so that the error names that member.
_NEARLY = {
    "adp": ("identity endpoints",),
    "announce": ("agent_name transport", "public_key transport"),
    "rtfs": ("communication", "discovery_tags"),
    "ard": (
        *(f"displayName {other}" for other in ("identifier", "type", "mediaType", "url", "data")),
        *(f"identifier {other}" for other in ("url", "data")),
    ),
    "oasf": ("schema_version authors", "schema_version skills", "skills authors", "skills locators", "skills modules"),
    "a2a": ("skills defaultInputModes", "skills defaultOutputModes"),
    "mcp": ("remotes version", "remotes description", "packages version", "packages description"),
    "af": ("name endpoints", "name summary"),
    "profile": ("bindings",),
}


def codec(name: str) -> Codec:
    """The codec of a dialect, or an error that names the nearest one."""
    found = CODECS.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower()[:64], CODECS, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise UnknownDialect(f"{name[:64]!r} is not a dialect.", path="dialect", hint=f"{hint}Known: {', '.join(CODECS)}.")


def recognise(document: Mapping[str, Any]) -> str:
    """The dialect of a document, from its content alone."""
    if document.keys() <= _PROFILE_MEMBERS and "id" in document and "bindings" in document:
        return PROFILE.name  # no other dialect, and nothing that is refused, is known by one of these members
    refuse_what_is_no_agent(document)
    if is_envelope(document):
        return RTFS.name
    for name in _RECOGNITION:
        if CODECS[name].recognises(document):
            return name
    for name, leavings in _NEARLY.items():
        if any(document.keys() >= set(members.split()) for members in leavings):
            return name
    looks = "; ".join(f"{name}: {look}" for name, look in _LOOKS.items())
    raise UnknownDialect(
        "No dialect recognises this document.", path="$", hint=f"What each looks like: {looks}. Or name the dialect."
    )


def decode_document(data: bytes, dialect: str | None, context: DecodeContext) -> tuple[str, JsonObject | None, Decoded]:
    """The dialect, the parsed document (None for a text that is not JSON) and what it says."""
    if dialect is not None:
        codec(dialect)  # a wrong name is the first thing to tell
    if is_sexpr_text(data):
        return RTFS.name, None, _decode_text(data, dialect, context)
    document = parse_object(data)
    name = dialect or recognise(document)
    if name == RTFS.name and is_envelope(document):
        decoded = decode_envelope(document, context)
    else:
        decoded = codec(name).decode(document, context)
    if decoded.record.signature is not None:
        decoded = msgspec.structs.replace(decoded, parsed=document)
    return name, document, _held_to_the_rules(decoded, name, context)


def _decode_text(data: bytes, dialect: str | None, context: DecodeContext) -> Decoded:
    if dialect not in (None, RTFS.name):
        raise InvalidDocument(
            f"An agent-profile text is not a document of {dialect!r}.", path="$", hint="Name rtfs, or send JSON."
        )
    return _held_to_the_rules(decode_text(data, context), RTFS.name, context)


def _held_to_the_rules(decoded: Decoded, dialect: str, context: DecodeContext) -> Decoded:
    """Whatever it was written in, a record keeps the profile's bounds, or the next dialect could not write it."""
    if dialect != PROFILE.name:  # its codec has just read it so
        read_record(record_to_json(decoded.record))
        check_times(decoded.record, context.now)
    return decoded
