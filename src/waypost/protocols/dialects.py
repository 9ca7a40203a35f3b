"""Documents that are known and yet are not one agent: collections, messages, pointers. Each is refused with the way to go."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from waypost.errors import InvalidDocument, UnknownDialect
from waypost.model.json import JsonObject, parse_object
from waypost.model.record import RECORD_FIELDS, record_to_json
from waypost.protocols.a2a.codec import A2A
from waypost.protocols.adp.codec import ADP
from waypost.protocols.agent_framework.codec import AF
from waypost.protocols.announce.codec import ANNOUNCE
from waypost.protocols.ard.codec import ARD
from waypost.protocols.codec import Codec, DecodeContext, Decoded
from waypost.protocols.mcp.codec import MCP
from waypost.protocols.oasf.codec import OASF
from waypost.protocols.profile.codec import PROFILE
from waypost.protocols.record_reader import check_times, read_record
from waypost.protocols.rtfs.codec import RTFS, decode_envelope, decode_text, is_envelope
from waypost.protocols.rtfs.sexpr import is_sexpr_text


class _NonAgent(msgspec.Struct, frozen=True):
    matches: Callable[[Mapping[str, Any]], bool]
    message: str
    path: str
    hint: str


def _is_aid(document: Mapping[str, Any]) -> bool:
    """AID's JSON fallback (neighbours.md §3): `v`/`version` aid1 or aid2 beside `u`/`uri`."""
    version = document.get("v", document.get("version"))
    return isinstance(version, str) and version.startswith("aid") and ("u" in document or "uri" in document)


def _has_list(name: str, *without: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda document: isinstance(document.get(name), list) and not any(other in document for other in without)


_IMPORT_HINT = "Register its items one by one, as lines to /api/v1/agents:batch, or with `waypost import`."

_NON_AGENTS = (
    _NonAgent(_has_list("entries", "identifier", "id"), "An AI catalogue is not one agent.", "$.entries", _IMPORT_HINT),
    _NonAgent(_has_list("agents", "id", "name"), "A list of agents is not one agent.", "$.agents", _IMPORT_HINT),
    _NonAgent(_has_list("servers", "id", "name"), "A list of MCP servers is not one agent.", "$.servers", _IMPORT_HINT),
    _NonAgent(
        lambda document: "query" in document and "protocol_version" in document,
        "An announce query is not an agent.",
        "$.query",
        "Send it to /agents.",
    ),
    _NonAgent(
        lambda document: isinstance(document.get("invite"), dict) and "identity" not in document,
        "An ADP invitation is not an agent.",
        "$.invite",
        "Fetch the document that `invite.wellKnown` names.",
    ),
    _NonAgent(
        lambda document: "jsonrpc" in document and "method" in document,
        "A JSON-RPC request is not an agent.",
        "$.method",
        "Send it to /rtfs, or only its `params` here.",
    ),
    _NonAgent(_is_aid, "An AID record points at an agent; it does not describe one.", "$", "Fetch what its uri names."),
)


def reject_non_agent(document: Mapping[str, Any]) -> None:
    for refusal in _NON_AGENTS:
        if refusal.matches(document):
            raise InvalidDocument(refusal.message, path=refusal.path, hint=refusal.hint)


# ---- Documents that hold documents: an array, a catalogue, a page of a list. Knows how they are packed, not what they say.

# The member that holds the documents, and the members one of which stands beside it.
_COLLECTIONS = (
    ("entries", ("specVersion",)),  # an AI catalogue (ARD-1)
    ("servers", ("metadata",)),  # a page of an MCP registry
    ("agents", ("next_cursor", "total")),  # our own lists, and those of Agent Framework
)


def unpack_documents(content: bytes) -> list[bytes] | None:
    """The documents inside, byte for byte; None for a single document. Raises msgspec.DecodeError for what is no JSON."""
    try:
        return _split_array(content)
    except msgspec.ValidationError:
        pass
    try:
        members = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return None
    for member, marks in _COLLECTIONS:
        if member in members and (len(members) == 1 or any(mark in members for mark in marks)):
            try:
                return _split_array(bytes(members[member]))
            except msgspec.ValidationError:
                return None
    return None


def _split_array(content: bytes) -> list[bytes]:
    return [bytes(item) for item in msgspec.json.decode(content, type=list[msgspec.Raw])]


# ---- Document <-> record. One module per dialect; every dialect maps to the record and from it, never to another.
#
# This is the table of dialects and the way into it: `recognise` names the dialect of an unknown document from its content,
# `decode_document` reads bytes of any dialect. A new dialect is a module and a row here.

CODECS: dict[str, Codec] = {codec.name: codec for codec in (PROFILE, AF, RTFS, ANNOUNCE, ADP, A2A, ARD, MCP, OASF)}

# The most distinctive first: what is left at the end is told apart by having less.
_DETECTION_ORDER = ("adp", "announce", "rtfs", "ard", "oasf", "a2a", "mcp", "af", "profile")

_PROFILE_MEMBERS = frozenset(RECORD_FIELDS)

_DESCRIPTIONS = {
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
_PARTIAL_MATCHES = {
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


def get_codec(name: str) -> Codec:
    """The codec of a dialect, or an error that names the nearest one."""
    found = CODECS.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower()[:64], CODECS, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise UnknownDialect(f"{name[:64]!r} is not a dialect.", path="dialect", hint=f"{hint}Known: {', '.join(CODECS)}.")


def detect_dialect(document: Mapping[str, Any]) -> str:
    """The dialect of a document, from its content alone."""
    if document.keys() <= _PROFILE_MEMBERS and "id" in document and "bindings" in document:
        return PROFILE.name  # no other dialect, and nothing that is refused, is known by one of these members
    reject_non_agent(document)
    if is_envelope(document):
        return RTFS.name
    for name in _DETECTION_ORDER:
        if CODECS[name].recognises(document):
            return name
    for name, leavings in _PARTIAL_MATCHES.items():
        if any(document.keys() >= set(members.split()) for members in leavings):
            return name
    looks = "; ".join(f"{name}: {look}" for name, look in _DESCRIPTIONS.items())
    raise UnknownDialect(
        "No dialect recognises this document.", path="$", hint=f"What each looks like: {looks}. Or name the dialect."
    )


def decode_document(data: bytes, dialect: str | None, context: DecodeContext) -> tuple[str, JsonObject | None, Decoded]:
    """The dialect, the parsed document (None for a text that is not JSON) and what it says."""
    if dialect is not None:
        get_codec(dialect)  # a wrong name is the first thing to tell
    if is_sexpr_text(data):
        return RTFS.name, None, _decode_text(data, dialect, context)
    document = parse_object(data)
    name = dialect or detect_dialect(document)
    if name == RTFS.name and is_envelope(document):
        decoded = decode_envelope(document, context)
    else:
        decoded = get_codec(name).decode(document, context)
    if decoded.record.signature is not None:
        decoded = msgspec.structs.replace(decoded, parsed=document)
    return name, document, _check_record(decoded, name, context)


def _decode_text(data: bytes, dialect: str | None, context: DecodeContext) -> Decoded:
    if dialect not in (None, RTFS.name):
        raise InvalidDocument(
            f"An agent-profile text is not a document of {dialect!r}.", path="$", hint="Name rtfs, or send JSON."
        )
    return _check_record(decode_text(data, context), RTFS.name, context)


def _check_record(decoded: Decoded, dialect: str, context: DecodeContext) -> Decoded:
    """Whatever it was written in, a record keeps the profile's bounds, or the next dialect could not write it."""
    if dialect != PROFILE.name:  # its codec has just read it so
        read_record(record_to_json(decoded.record))
        check_times(decoded.record, context.now)
    return decoded
