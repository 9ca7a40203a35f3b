"""`urn:air:` names (ard.md §2): the strict check, how two of them compare, and minting one for an id of another kind."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.names import domain_of, slug
from waypost.model.record import (
    AgentRecord,
    Binding,
    Example,
    check_id,
    find_object,
    find_objects,
    find_text,
    find_texts,
    need_text,
)
from waypost.protocols.a2a import codec, legacy
from waypost.protocols.ard.schema import ENTRY_SCHEMA, EXAMPLES, QUERIES, WRITTEN_SCHEMA
from waypost.protocols.codec import (
    CARRY,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    MemberGroup,
    apply_remainder,
    attach_residue,
    carries_id,
    collect_tags,
    make_remainder,
    need_endpoint,
    residue_members,
    residue_of,
    restore_wording,
    truncate_text,
    unknown_members,
)
from waypost.protocols.mcp import codec as mcp_codec
from waypost.protocols.mcp import legacy as mcp_legacy
from waypost.protocols.record_reader import VISIBILITY, check_times, read_record, read_time, read_visibility

PREFIX = "urn:air:"

OLD_PREFIX = "urn:ai:"  # invalid since ADR-0009, read as an alias

NAME_CHARS = 255

LOCAL_PUBLISHER = "agent.localhost"  # the naming guide's own choice where there is no domain

_URN = re.compile(r"urn:air:([a-zA-Z0-9.-]+)((?::[a-zA-Z0-9._-]+)+)\Z")

_LABEL = re.compile(r"(?!-)[a-zA-Z0-9-]{1,63}(?<!-)\Z")

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+\Z")

_IPV4 = re.compile(r"[0-9.]+\Z")

_HINT = "Write it like urn:air:example.com:agent:assistant."


class Urn(msgspec.Struct, frozen=True):
    """A name taken apart. The publisher is in lower case; the rest is as it was."""

    publisher: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return PREFIX + ":".join((self.publisher, *self.namespace, self.name))


def parse_urn(text: str, path: str = "$.identifier") -> Urn:
    """The name behind `text`; scheme and publisher in any case, the old scheme `urn:ai:` included (P-7, P-8)."""
    canonical = _canonical_prefix(text)
    found = _URN.match(canonical)
    if found is None or len(canonical) > NAME_CHARS:
        raise InvalidDocument(f"{text[:80]!r} is not a urn:air name.", path=path, hint=_HINT)
    publisher = found.group(1).lower()
    if not is_publisher(publisher):
        raise InvalidDocument(
            f"The publisher {publisher[:80]!r} is not a domain name.",
            path=path,
            hint=f"Use a domain of yours, or {LOCAL_PUBLISHER} on one machine.",
        )
    *namespace, name = found.group(2)[1:].split(":")
    return Urn(publisher, tuple(namespace), name)


def _canonical_prefix(text: str) -> str:
    for prefix in (PREFIX, OLD_PREFIX):
        if text[: len(prefix)].lower() == prefix:
            return PREFIX + text[len(prefix) :]
    return text


def find_urn(text: str) -> Urn | None:
    try:
        return parse_urn(text)
    except InvalidDocument:
        return None


def is_publisher(domain: str) -> bool:
    """Two or more LDH labels, at most 253 characters, and no address."""
    labels = domain.split(".")
    fits = len(labels) >= 2 and len(domain) <= 253 and not _IPV4.match(domain)
    return fits and all(_LABEL.match(label) for label in labels)


def publisher_of(host: str) -> str:
    """The service's own publisher: its domain, or the local one when it has none."""
    domain = host.partition(":")[0].lower()
    return domain if is_publisher(domain) else LOCAL_PUBLISHER


def mint_urn(agent_id: str, host: str) -> Urn:
    """A name for an id of another scheme (P-9). Its publisher is only a claim: mark it as minted."""
    domain = domain_of(agent_id)
    publisher = domain if domain is not None and is_publisher(domain) else publisher_of(host)
    fits = _SEGMENT.match(agent_id) and len(PREFIX) + len(publisher) + len(agent_id) + 7 <= NAME_CHARS
    return Urn(publisher, ("agent",), agent_id if fits else _digest_name(agent_id))


def _digest_name(agent_id: str) -> str:
    digest = hashlib.sha256(agent_id.encode("utf-8", "surrogatepass")).digest()
    return "x-" + base64.b32encode(digest).decode().lower()[:26]


# ---- The shape of an ARD trust manifest (ard.md §3): what a verifier needs to be there is there, and is of its type.
#
# Whether its claims hold, and whether it speaks of the entry it stands in (ARD-18), is for trust to say.

# list in the manifest -> what each item must say, and what it may (ARD-17)
_LISTS: Final = {
    "attestations": (("type", "uri"), ("mediaType", "digest")),
    "provenance": (("relation", "sourceId"), ("sourceDigest",)),
}


def check_manifest(manifest: JsonObject, path: str) -> None:
    need_text(manifest, "identity", path, most=limits.ENDPOINT_CHARS)
    find_text(manifest, "identityType", path, most=limits.TAG_CHARS)
    find_text(manifest, "signature", path, most=limits.DOCUMENT_BYTES)
    for name, (needed, others) in _LISTS.items():
        for item, where in find_objects(manifest, name, path, most=limits.JSON_ARRAY_ITEMS):
            _check_texts(item, where, needed, others)
    schema = find_object(manifest, "trustSchema", path)
    if schema is not None:
        where = member(path, "trustSchema")
        _check_texts(schema, where, ("identifier", "version"), ("governanceUri",))
        find_texts(schema, "verificationMethods", where, most=limits.JSON_ARRAY_ITEMS, chars=limits.ENDPOINT_CHARS)


def _check_texts(item: JsonObject, path: str, needed: tuple[str, ...], others: tuple[str, ...]) -> None:
    for name in needed:
        need_text(item, name, path, most=limits.ENDPOINT_CHARS)
    for name in others:
        find_text(item, name, path, most=limits.ENDPOINT_CHARS)


# ---- ARD catalog entries (ard.md §1–3, §10): one entry <-> one record; whole catalogs are in `ard_catalog`.
#
# An entry points at an artifact. What lies behind `url` is not fetched here: its binding is marked `unresolved`. Inline `data` is
# read by the dialect that its type names. Written, an entry points at the best native document this service has of the record.
#
# `metadata` holds scalars only, so what an entry has no word for rides in a member of its own, named CARRY: the entry's schema is
# open. Catalogs leave it out and stay small. A trust manifest is kept verbatim and never made here.

ID = "org.agentdiscovery.id"

MINTED = "org.agentdiscovery.minted"

A2A_TYPE = "application/a2a-agent-card+json"

MCP_TYPE = "application/mcp-server-card+json"

PROFILE_TYPE = "application/agent-metadata+json"

DESCRIPTION_CHARS = 1000

QUERY_CHARS = 200

_PROTOCOLS = {
    A2A_TYPE: "a2a",
    "application/agent-card+json": "a2a",
    MCP_TYPE: "mcp",
    "application/ai-registry": "ard-registry",
    "application/ai-registry+json": "ard-registry",
    "application/ai-catalog+json": "ai-catalog",
}

_FACETS = (
    MemberGroup(("type", "mediaType", "url", "data"), ("bindings",), {"data": "url"}),
    MemberGroup(("identifier", "metadata"), ("id", "constraints")),
    MemberGroup(("description",), ("description",)),
    MemberGroup(("tags", "capabilities"), ("tags",)),
    MemberGroup(("representativeQueries",), ("examples",)),
    MemberGroup(("version",), ("version",)),
    MemberGroup(("updatedAt",), ("updated_at",)),
    MemberGroup(("trustManifest", "publisher"), ()),
)


class ArdCodec:
    name = "ard"
    media_type = "application/json"
    loses: tuple[str, ...] = ()

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return (
            "identifier" in document and "displayName" in document and ("type" in document or "mediaType" in document)
        )

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        entry = _modern(document)
        carried = entry.pop(CARRY, None)
        record = apply_remainder(_with_residue(read_entry(entry), entry), carried, f"$[{CARRY!r}]")
        check_times(record, context.now, updated_at="$.updatedAt", expires_at=f"$[{CARRY!r}]")
        names = (entry["identifier"], document["identifier"])
        return Decoded(
            record=record,
            source_id=record.id if carries_id(carried) else entry["identifier"],
            aliases=() if _is_minted(entry) else tuple(dict.fromkeys(name for name in names if name != record.id)),
            warnings=tuple(_warnings(document)),
            visibility=read_visibility(find_object(document, "metadata") or {}, "$.metadata"),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        entry = restore_wording(_write(record, context), residue_of(record, self.name), record, _FACETS, read_entry)
        carried = make_remainder(record, _with_residue(read_entry(entry), entry))
        return Encoded(document=entry | {CARRY: carried} if carried else entry)

    def schema(self) -> JsonObject:
        return ENTRY_SCHEMA

    def written_schema(self) -> JsonObject:
        return WRITTEN_SCHEMA

    def examples(self) -> tuple[JsonObject, ...]:
        return EXAMPLES


def _with_residue(record: AgentRecord, entry: JsonObject) -> AgentRecord:
    return attach_residue(record, "ard", residue_members(entry, _write(record, EncodeContext(now=0))))


def _modern(document: JsonObject) -> JsonObject:
    """ARD's own spelling: `type` for AIC's `mediaType`, a canonical identifier, no wish for visibility."""
    entry = dict(document)
    need_text(entry, "identifier", most=limits.ID_CHARS)
    entry["identifier"] = str(parse_urn(entry["identifier"]))
    if "type" not in entry and "mediaType" in entry:
        entry["type"] = entry.pop("mediaType")
    metadata = find_object(entry, "metadata")
    if metadata is not None and VISIBILITY in metadata:
        entry["metadata"] = unknown_members(metadata, (VISIBILITY,))
    return entry


def _is_minted(entry: JsonObject) -> bool:
    return (find_object(entry, "metadata") or {}).get(MINTED) is True


def _warnings(document: JsonObject) -> list[str]:
    warnings = []
    if document["identifier"].lower().startswith(OLD_PREFIX):
        warnings.append("$.identifier: urn:ai is the old scheme; it is written as urn:air (ARD-16).")
    if "type" in document and document.get("mediaType", document["type"]) != document["type"]:
        warnings.append("$.mediaType: it differs from type, which wins (ARD-6).")
    queries = document.get("representativeQueries")
    if queries is not None and not QUERIES[0] <= len(queries) <= QUERIES[1]:
        warnings.append("$.representativeQueries: two to five are wanted (ARD-4).")
    return warnings


# --- Entry -> record ------------------------------------------------------------------------------


def read_entry(entry: JsonObject) -> AgentRecord:
    """What an entry in ARD's spelling says by its own members."""
    identifier = str(parse_urn(need_text(entry, "identifier", most=limits.ID_CHARS)))
    name = need_text(entry, "displayName", most=limits.NAME_CHARS)
    kind = need_text(entry, "type", most=255)
    metadata = find_object(entry, "metadata") or {}
    data = _artifact(entry)
    _check_unmapped(entry)
    return AgentRecord(
        id=check_id(find_text(metadata, ID, "$.metadata", most=limits.ID_CHARS) or identifier, "$.identifier"),
        name=name,
        description=_description(entry, data) or name,
        bindings=_bindings(entry, kind, identifier, data),
        tags=collect_tags(*(_texts(entry, name) for name in ("tags", "capabilities"))),
        examples=_examples(entry),
        constraints=_constraints(metadata),
        version=find_text(entry, "version", most=limits.VERSION_CHARS),
        updated_at=read_time(entry, "updatedAt", "$"),
    )


def _texts(entry: JsonObject, name: str) -> tuple[str, ...]:
    return find_texts(entry, name, most=limits.JSON_ARRAY_ITEMS, chars=limits.DESCRIPTION_CHARS)


def _artifact(entry: JsonObject) -> JsonObject | None:
    given = [name for name in ("url", "data") if entry.get(name) is not None]
    if len(given) != 1:
        raise InvalidDocument(
            f"An entry has exactly one of url and data; this one has {'both' if given else 'neither'}.",
            path="$.url",
            hint="Point at the artifact, or put it in.",
        )
    return find_object(entry, "data")


def _check_unmapped(entry: JsonObject) -> None:
    find_object(entry, "publisher")
    manifest = find_object(entry, "trustManifest")
    if manifest is not None:
        check_manifest(manifest, "$.trustManifest")


def _description(entry: JsonObject, data: JsonObject | None) -> str | None:
    find_text(entry, "description", most=limits.DOCUMENT_BYTES)
    for holder in (entry, data or {}):
        text = holder.get("description")
        if isinstance(text, str) and text.strip():
            return truncate_text(text, limits.DESCRIPTION_CHARS)
    return None


def _bindings(entry: JsonObject, kind: str, identifier: str, data: JsonObject | None) -> tuple[Binding, ...]:
    if data is None:
        endpoint = need_endpoint(entry, "url", "$")
        binding = Binding(
            protocol=protocol_of(kind), endpoint=endpoint, media_types=(kind,), extra={"unresolved": True}
        )
        return (binding,)
    return _inline(kind, data) or (Binding(protocol="artifact", endpoint=identifier, media_types=(kind,)),)


def protocol_of(kind: str) -> str:
    return _PROTOCOLS.get(kind.partition(";")[0].strip().lower(), "artifact")


def _inline(kind: str, data: JsonObject) -> tuple[Binding, ...]:
    """The bindings of an artifact that came along. Its own faults are the entry's, with the path into it."""
    try:
        if protocol_of(kind) == "a2a":
            return codec.read_card(legacy.upgrade_card(data)).bindings
        if protocol_of(kind) == "mcp":
            return mcp_codec.read_server(mcp_legacy.upgrade_server(data)).bindings
        if kind == PROFILE_TYPE:
            return read_record(data).bindings
    except InvalidDocument as error:
        raise InvalidDocument(error.message, path=f"$.data{(error.path or '$')[1:]}", hint=error.hint) from None
    return ()


def _examples(entry: JsonObject) -> tuple[Example, ...]:
    texts = [text for text in _texts(entry, "representativeQueries") if text.strip()]
    return tuple(
        Example(id=f"rq-{number}", text=truncate_text(text, limits.EXAMPLE_CHARS))
        for number, text in enumerate(texts[: limits.EXAMPLES], 1)
    )


def _constraints(metadata: JsonObject) -> JsonObject | None:
    constraints = {
        name: value
        for name, value in metadata.items()
        if name not in (ID, MINTED) and (value is None or isinstance(value, str | int | float | bool))
    }
    return constraints or None


# --- Record -> entry ------------------------------------------------------------------------------


def encode_without_residue(record: AgentRecord, context: EncodeContext) -> JsonObject | None:
    """What `encode` writes, quickly, for who looks at very many; None where a publisher's own wording has a say in it."""
    return None if residue_of(record, ARD.name) else _write(record, context)


def _write(record: AgentRecord, context: EncodeContext) -> JsonObject:
    own = find_urn(record.id)
    entry: JsonObject = {
        "identifier": str(own or mint_urn(record.id, context.host)),
        "displayName": record.name,
        **_native(record, context),
    }
    if record.description != record.name:
        entry["description"] = truncate_text(record.description, DESCRIPTION_CHARS)
    if record.tags:
        entry["tags"] = list(record.tags)
    queries = list(dict.fromkeys(truncate_text(example.text, QUERY_CHARS) for example in record.examples))[: QUERIES[1]]
    if len(queries) >= QUERIES[0]:
        entry["representativeQueries"] = queries
    if record.version is not None:
        entry["version"] = record.version
    if record.updated_at is not None:
        entry["updatedAt"] = record.updated_at
    if own is None or str(own) != record.id:
        entry["metadata"] = {ID: record.id, MINTED: True}
    return entry


def _native(record: AgentRecord, context: EncodeContext) -> JsonObject:
    """`type` and `url` of the best document there is: the artifact itself, else ours in its own dialect, else AF's."""
    for binding in record.bindings:
        if binding.extra.get("unresolved") is True and binding.media_types:
            return {"type": binding.media_types[0], "url": binding.endpoint}
    protocols = {binding.protocol for binding in record.bindings}
    name = slug(record.id)
    if any(protocol == "a2a" or protocol.startswith("a2a+") for protocol in protocols):
        return {"type": A2A_TYPE, "url": f"{context.base_url}/api/v1/agents/{name}?as=a2a"}
    if protocols & {"mcp", "mcp-package"}:
        return {"type": MCP_TYPE, "url": f"{context.base_url}/api/v1/agents/{name}?as=mcp"}
    return {"type": PROFILE_TYPE, "url": f"{context.base_url}/.well-known/agentframework/v1/agents/{name}"}


ARD = ArdCodec()
