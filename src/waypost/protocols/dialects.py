"""The table of dialects, and its use: detect the dialect of a document, decode bytes of any dialect, unpack
collections.

A new dialect is a folder under `protocols` (codec.py, schema.json, examples.json) and one row in DIALECTS. Only this
module knows all protocols; they do not import each other.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import msgspec

from waypost.errors import InvalidDocument, UnknownDialect
from waypost.model.json import JsonObject, parse_object
from waypost.model.record import RECORD_FIELDS, AgentRecord, record_to_json
from waypost.protocols.a2a.codec import A2A, read_a2a_document
from waypost.protocols.adp.codec import ADP
from waypost.protocols.agent_framework.codec import AF
from waypost.protocols.announce.codec import ANNOUNCE
from waypost.protocols.ard.codec import CATALOG_TYPE, ArdCodec, bare_type, check_catalog_version
from waypost.protocols.codec import Codec, DecodeContext, Decoded
from waypost.protocols.foreign_formats import find_foreign_format
from waypost.protocols.mcp.codec import MCP, read_mcp_document
from waypost.protocols.oasf.codec import OasfCodec
from waypost.protocols.profile.codec import PROFILE
from waypost.protocols.record_reader import check_times, read_record
from waypost.protocols.rtfs.codec import RTFS


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    codec: Codec
    rank: int  # detection order: the dialect with the most distinctive members has the lowest rank
    title: str  # what people call one document of it
    # Its distinctive members, those that are most often forgotten first: the error for a document that is not recognised
    # names the missing ones of the nearest dialect.
    members: str
    # Sets of members, each enough to recognise a document that lacks, or misspells, a distinctive member. It is then
    # decoded as this dialect, so that the error names that member.
    fragments: tuple[str, ...]
    needs_bindings: bool = False  # the format cannot express an agent without an endpoint
    media_types: tuple[str, ...] = ()  # under which other documents embed one of this dialect
    read: Callable[[JsonObject], AgentRecord] | None = None  # reads an embedded document


def read_embedded(media_type: str, document: JsonObject) -> AgentRecord | None:
    """Read a document that another one embeds under a media type; None if no dialect has that type."""
    bare = bare_type(media_type)
    for dialect in DIALECTS.values():
        if bare in dialect.media_types and dialect.read is not None:
            return dialect.read(document)
    return None


ARD = ArdCodec(read_embedded)
OASF = OasfCodec(read_embedded)

DIALECTS: dict[str, Dialect] = {
    row.codec.name: row
    for row in (
        Dialect(
            codec=PROFILE,
            rank=9,
            title="a profile document",
            members="bindings id name description",
            fragments=("bindings",),
            media_types=("application/agent-metadata+json",),
            read=read_record,
        ),
        Dialect(
            codec=AF,
            rank=8,
            title="an Agent Framework agent",
            members="endpoints id name summary",
            fragments=("name endpoints", "name summary"),
        ),
        Dialect(
            codec=RTFS,
            rank=3,
            title="an RTFS card",
            members="capabilities agent_id name discovery_tags",
            fragments=("communication", "discovery_tags"),
        ),
        Dialect(
            codec=ANNOUNCE,
            rank=2,
            title="an announced agent",
            members="transport capabilities agent_id agent_name",
            fragments=("agent_name transport", "public_key transport"),
        ),
        Dialect(
            codec=ADP,
            rank=1,
            title="an ADP document",
            members="protocol endpoints identity",
            fragments=("identity endpoints",),
        ),
        Dialect(
            codec=A2A,
            rank=6,
            title="an A2A card",
            members="capabilities skills url supportedInterfaces name",
            fragments=("skills defaultInputModes", "skills defaultOutputModes"),
            needs_bindings=True,
            media_types=("application/a2a-agent-card+json", "application/agent-card+json"),
            read=read_a2a_document,
        ),
        Dialect(
            codec=ARD,
            rank=4,
            title="an AI Catalog entry",
            members="type url identifier displayName",
            fragments=(
                *(f"displayName {other}" for other in ("identifier", "type", "mediaType", "url", "data")),
                *(f"identifier {other}" for other in ("url", "data")),
            ),
        ),
        Dialect(
            codec=MCP,
            rank=7,
            title="an MCP server.json",
            members="remotes version name description",
            fragments=("remotes version", "remotes description", "packages version", "packages description"),
            media_types=("application/mcp-server-card+json",),
            read=read_mcp_document,
        ),
        Dialect(
            codec=OASF,
            rank=5,
            title="an OASF record",
            members="schema_version skills authors name",
            fragments=(
                *(f"schema_version {other}" for other in ("authors", "skills")),
                *(f"skills {other}" for other in ("authors", "locators", "modules")),
            ),
        ),
    )
}

_ANY_TIME = 4_000_000_000.0  # later than the times of the examples

_MISSING_MEMBERS = 3  # a document that lacks more of its distinctive members is not near to a dialect

_PROFILE_MEMBERS = frozenset(RECORD_FIELDS)


def get_codec(name: str) -> Codec:
    """Return the codec of a dialect; the error for an unknown one names the nearest."""
    dialect = DIALECTS.get(name)
    if dialect is not None:
        return dialect.codec
    near = difflib.get_close_matches(name.lower()[:64], DIALECTS, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise UnknownDialect(
        f"{name[:64]!r} is not a dialect.", path="dialect", hint=f"{hint}Known: {', '.join(DIALECTS)}."
    )


def detect_dialect(document: Mapping[str, Any]) -> str:
    """Return the dialect of a document, from its content alone."""
    if document.keys() <= _PROFILE_MEMBERS and "id" in document and "bindings" in document:
        return PROFILE.name  # none of these members identifies another dialect or a document that is no agent
    reject_non_agent(document)
    ranked = sorted(DIALECTS.values(), key=lambda dialect: dialect.rank)
    for dialect in ranked:
        if dialect.codec.recognises(document):
            return dialect.codec.name
    for dialect in ranked:
        if any(document.keys() >= set(members.split()) for members in dialect.fragments):
            return dialect.codec.name
    raise _not_recognised(document)


class NearestDialect(NamedTuple):
    name: str
    missing: tuple[str, ...]  # members with which the document would be recognised


def find_nearest_dialect(document: Mapping[str, Any]) -> NearestDialect | None:
    """The dialect that recognises the document once the fewest members are added; None if no dialect knows its members."""
    found: list[tuple[int, float, NearestDialect]] = []
    for name, dialect in DIALECTS.items():
        known = set(dialect.members.split()).union(*dialect.codec.examples())
        overlap = len(known & document.keys()) / len(document) if document else 0.0
        missing = _find_missing(document, dialect) if overlap else None
        if missing is not None:
            found.append((len(missing), -overlap, NearestDialect(name, missing)))
    if not found:
        return None
    nearest = min(found, key=lambda item: item[:2])[2]
    completed = _add_members(document, nearest.missing, DIALECTS[nearest.name].codec)
    return NearestDialect(nearest.name, nearest.missing + _find_required(completed, DIALECTS[nearest.name].codec))


def _find_missing(document: Mapping[str, Any], dialect: Dialect) -> tuple[str, ...] | None:
    members = [member for member in dialect.members.split() if member not in document]
    for size in range(1, _MISSING_MEMBERS + 1):
        for missing in combinations(members, size):
            if dialect.codec.recognises(_add_members(document, missing, dialect.codec)):
                return missing
    return None


def _add_members(document: Mapping[str, Any], members: Iterable[str], codec: Codec) -> JsonObject:
    return {**document, **{member: _example_value(codec, member) for member in members}}


def _find_required(document: JsonObject, codec: Codec) -> tuple[str, ...]:
    """Further members that the codec requires and the document lacks."""
    found: list[str] = []
    for _ in range(_MISSING_MEMBERS):
        try:
            codec.decode(document, DecodeContext(now=_ANY_TIME))
        except InvalidDocument as error:
            member = (error.path or "").removeprefix("$.")
            if member in document or not member.isidentifier():
                break
            document = _add_members(document, (member,), codec)
            found.append(member)
        else:
            break
    return tuple(found)


def _example_value(codec: Codec, member: str) -> Any:
    return next((example[member] for example in codec.examples() if member in example), "https://agents.example.net/")


def _not_recognised(document: Mapping[str, Any]) -> UnknownDialect:
    foreign = find_foreign_format(document)
    if foreign is not None:
        return UnknownDialect(
            f"This is {foreign.title}, which is not read. The closest format is {DIALECTS[foreign.dialect].title}.",
            path="$",
            hint=foreign.hint,
        )
    nearest = find_nearest_dialect(document)
    if nearest is None:
        return UnknownDialect(
            "This is not the document of an agent: no dialect knows its members.",
            path="$",
            hint="The simplest one has id, name, description and bindings [{protocol, endpoint}].",
        )
    missing = ", ".join(f"`{member}`" for member in nearest.missing)
    return UnknownDialect(
        f"The dialect is not recognised. This looks like {DIALECTS[nearest.name].title}: add {missing}.",
        path="$",
        hint=f"`waypost validate FILE` lists every problem. If it is complete, name the dialect: {nearest.name}.",
    )


def decode_document(data: bytes, dialect: str | None, context: DecodeContext) -> tuple[str, JsonObject | None, Decoded]:
    """Return the dialect, the parsed document (None for a text that is not JSON) and the decoded record."""
    if dialect is not None:
        get_codec(dialect)  # reject an unknown name before the document is parsed
    if not data.lstrip().startswith(b"{"):
        for row in DIALECTS.values():
            if row.codec.recognises_text(data):
                return row.codec.name, None, _decode_text(row.codec, data, dialect, context)
    document = parse_object(data)
    name = dialect or detect_dialect(document)
    decoded = get_codec(name).decode(document, context)
    if decoded.record.signature is not None:
        decoded = msgspec.structs.replace(decoded, parsed=document)
    return name, document, _check_record(decoded, name, context)


def _decode_text(codec: Codec, data: bytes, dialect: str | None, context: DecodeContext) -> Decoded:
    if dialect not in (None, codec.name):
        raise InvalidDocument(
            f"An {codec.name} text is not a document of dialect {dialect!r}.",
            path="$",
            hint=f"Name {codec.name}, or send JSON.",
        )
    return _check_record(codec.decode_text(data, context), codec.name, context)


def _check_record(decoded: Decoded, dialect: str, context: DecodeContext) -> Decoded:
    """Check the profile's bounds for a record of any dialect: otherwise another dialect could not write it."""
    if dialect != PROFILE.name:  # its codec has checked them already
        read_record(record_to_json(decoded.record))
        check_times(decoded.record, context.now)
    return decoded


# --- Known documents that are not one agent: collections, messages, pointers ----------------------


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
    _NonAgent(_has_list("entries", "identifier", "id"), "An AI catalog is not one agent.", "$.entries", _IMPORT_HINT),
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
    _NonAgent(
        _is_aid, "An AID record points at an agent; it does not describe one.", "$", "Fetch the document at its uri."
    ),
)


def reject_non_agent(document: Mapping[str, Any]) -> None:
    for rejection in _NON_AGENTS:
        if rejection.matches(document):
            raise InvalidDocument(rejection.message, path=rejection.path, hint=rejection.hint)


# --- Collections: an array, a catalog, a page of a list -----------------------------------------

# The member that holds the documents, and members of which one must be present beside it.
_COLLECTIONS = (
    ("entries", ("specVersion",)),  # an AI catalog (ARD-1)
    ("servers", ("metadata",)),  # a page of an MCP registry
    ("agents", ("next_cursor", "total")),  # our own lists, and those of Agent Framework
)


def unpack_documents(content: bytes, catalogs: int = 1) -> list[bytes] | None:
    """Return the documents of a collection, byte for byte; None for a single document. With more than one of `catalogs`, a
    catalog inside a catalog is unpacked as well, down to that depth (ARD-8).

    Raises msgspec.DecodeError if the content is not JSON, InvalidDocument for a catalog of an unknown version.
    """
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:  # msgspec raises it for some invalid bytes, and skips others
        raise msgspec.DecodeError(f"byte {error.start} is not valid UTF-8") from None
    try:
        return _split_array(content)
    except msgspec.ValidationError:
        pass
    try:
        members = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return None
    for name, companions in _COLLECTIONS:
        if name in members and (len(members) == 1 or any(companion in members for companion in companions)):
            if "specVersion" in members:
                check_catalog_version(msgspec.json.decode(members["specVersion"]))
            try:
                documents = _split_array(bytes(members[name]))
            except msgspec.ValidationError:
                return None
            return [inner for item in documents for inner in _unpack_catalog(item, catalogs)]
    return None


class _NestedCatalog(msgspec.Struct):
    type: str | None = None
    mediaType: str | None = None  # noqa: N815 - the name in the catalog
    data: msgspec.Raw = msgspec.Raw(b"null")


def _unpack_catalog(document: bytes, catalogs: int) -> list[bytes]:
    """Return the entries of an entry that is itself a catalog; the document alone if it is none, or at the last level."""
    try:
        entry = msgspec.json.decode(document, type=_NestedCatalog)
    except msgspec.ValidationError:
        return [document]
    if catalogs < 2 or bare_type(entry.type or entry.mediaType or "") != CATALOG_TYPE:
        return [document]
    try:
        return unpack_documents(bytes(entry.data), catalogs - 1) or [document]
    except InvalidDocument:  # of an unknown version
        return [document]


def _split_array(content: bytes) -> list[bytes]:
    return [bytes(item) for item in msgspec.json.decode(content, type=list[msgspec.Raw])]
