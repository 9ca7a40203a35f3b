"""ARD catalog entries (ard.md §1–3, §10): `urn:air:` names, trust manifests, and one entry <-> one record.

An entry points at an artifact. The artifact behind `url` is not fetched here: its binding is marked `unresolved`.
Inline `data` is read by the dialect that its media type names; an inline catalog has the bindings of its entries. A
written entry points at the best native document that this service has of the record.

Identifiers are read in any form: those that start with `urn:air:` are names of ARD and are checked, others are opaque (AIC).
A catalog lists the latter under a minted name (P-9), because ARD's own schema takes no other.

`metadata` holds scalars only, so the remainder is a member of its own, named CARRY: the entry's schema is open.
Catalogs leave it out to stay small. A trust manifest is kept verbatim and never made here.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
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
from waypost.protocols.codec import (
    CARRY,
    Codec,
    DecodeContext,
    Decoded,
    EmbeddedReader,
    EncodeContext,
    Encoded,
    MemberGroup,
    apply_remainder,
    attach_residue,
    carries_id,
    collect_tags,
    cut_losses,
    make_remainder,
    need_cut_text,
    need_endpoint,
    residue_members,
    residue_of,
    restore_wording,
    truncate_text,
    unknown_members,
)
from waypost.protocols.record_reader import VISIBILITY, check_times, read_time, read_visibility

# --- Names (ard.md §2) ----------------------------------------------------------------------------

PREFIX: Final = "urn:air:"

OLD_PREFIX: Final = "urn:ai:"  # invalid since ADR-0009, read as an alias

LOCAL_PUBLISHER: Final = "agent.localhost"  # the naming guide's choice where there is no domain

_NAME_CHARS: Final = 255

_URN: Final = re.compile(r"urn:air:([a-zA-Z0-9.-]+)((?::[a-zA-Z0-9._-]+)+)\Z")

_LABEL: Final = re.compile(r"(?!-)[a-zA-Z0-9-]{1,63}(?<!-)\Z")

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._-]+\Z")

_IPV4: Final = re.compile(r"[0-9.]+\Z")


class Urn(msgspec.Struct, frozen=True):
    """A parsed name. The publisher is lower-case; the other parts keep their case."""

    publisher: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return PREFIX + ":".join((self.publisher, *self.namespace, self.name))


def parse_urn(text: str, path: str = "$.identifier") -> Urn:
    """Parse a name; scheme and publisher in any case, the old scheme `urn:ai:` included (P-7, P-8)."""
    canonical = _canonical_prefix(text)
    match = _URN.match(canonical)
    if match is None or len(canonical) > _NAME_CHARS:
        raise InvalidDocument(
            f"{text[:80]!r} is not a urn:air name.",
            path=path,
            hint="Write it like urn:air:example.com:agent:assistant.",
        )
    publisher = match[1].lower()
    if not is_publisher(publisher):
        raise InvalidDocument(
            f"The publisher {publisher[:80]!r} is not a domain name.",
            path=path,
            hint=f"Use a domain of yours, or {LOCAL_PUBLISHER} on one machine.",
        )
    *namespace, name = match[2][1:].split(":")
    return Urn(publisher, tuple(namespace), name)


def _canonical_prefix(text: str) -> str:
    for prefix in (PREFIX, OLD_PREFIX):
        if text[: len(prefix)].lower() == prefix:
            return PREFIX + text[len(prefix) :]
    return text


def canonical_identifier(text: str, path: str = "$.identifier") -> str:
    """Return an identifier in the form in which it is compared: a `urn:air` name normalized, any other as it is."""
    is_name = text.lower().startswith((PREFIX, OLD_PREFIX))
    return str(parse_urn(text, path)) if is_name else check_id(text, path)


def find_urn(text: str) -> Urn | None:
    try:
        return parse_urn(text)
    except InvalidDocument:
        return None


def is_publisher(domain: str) -> bool:
    """Two or more LDH labels, at most 253 characters, and not an IP address."""
    labels = domain.split(".")
    fits = len(labels) >= 2 and len(domain) <= 253 and not _IPV4.match(domain)
    return fits and all(_LABEL.match(label) for label in labels)


def publisher_of(host: str) -> str:
    """Return the service's own publisher: its domain, or the local one if it has none."""
    domain = host.partition(":")[0].lower()
    return domain if is_publisher(domain) else LOCAL_PUBLISHER


def mint_urn(agent_id: str, host: str) -> Urn:
    """Mint a name for an id of another scheme (P-9). Its publisher is only a claim, so entries mark it with MINTED."""
    domain = domain_of(agent_id)
    publisher = domain if domain is not None and is_publisher(domain) else publisher_of(host)
    fits = _SEGMENT.match(agent_id) and len(PREFIX) + len(publisher) + len(agent_id) + 7 <= _NAME_CHARS
    return Urn(publisher, ("agent",), agent_id if fits else _digest_name(agent_id))


def _digest_name(agent_id: str) -> str:
    digest = hashlib.sha256(agent_id.encode("utf-8", "surrogatepass")).digest()
    return "x-" + base64.b32encode(digest).decode().lower()[:26]


# --- Trust manifests (ard.md §3): required members and types only. `trust` verifies the claims (ARD-18). ---

# list in the manifest -> required and optional members of each item (ARD-17)
_MANIFEST_LISTS: Final = {
    "attestations": (("type", "uri"), ("mediaType", "digest")),
    "provenance": (("relation", "sourceId"), ("sourceDigest",)),
}


def _check_manifest(manifest: JsonObject, path: str) -> None:
    need_text(manifest, "identity", path, most=limits.ENDPOINT_CHARS)
    find_text(manifest, "identityType", path, most=limits.TAG_CHARS)
    find_text(manifest, "signature", path, most=limits.DOCUMENT_BYTES)
    for name, (required, optional) in _MANIFEST_LISTS.items():
        for item, item_path in find_objects(manifest, name, path, most=limits.JSON_ARRAY_ITEMS):
            _check_texts(item, item_path, required, optional)
    schema = find_object(manifest, "trustSchema", path)
    if schema is not None:
        schema_path = member(path, "trustSchema")
        _check_texts(schema, schema_path, ("identifier", "version"), ("governanceUri",))
        find_texts(
            schema, "verificationMethods", schema_path, most=limits.JSON_ARRAY_ITEMS, chars=limits.ENDPOINT_CHARS
        )


def _check_texts(item: JsonObject, path: str, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    for name in required:
        need_text(item, name, path, most=limits.ENDPOINT_CHARS)
    for name in optional:
        find_text(item, name, path, most=limits.ENDPOINT_CHARS)


# --- Entries --------------------------------------------------------------------------------------

ID: Final = "org.agentdiscovery.id"

MINTED: Final = "org.agentdiscovery.minted"

MIN_QUERIES: Final = 2  # representative queries of an entry: fewer or more fail ARD's own schema (ARD-4)

MAX_QUERIES: Final = 5

A2A_TYPE: Final = "application/a2a-agent-card+json"

_MCP_TYPE: Final = "application/mcp-server-card+json"

# Media types that catalogs used earlier, and the present ones.
_OLDER_TYPES: Final = {"application/mcp-server+json": _MCP_TYPE}

_PROFILE_TYPE: Final = "application/agent-metadata+json"

# The dialect of the document that a written entry points at, by its media type.
INLINE_DIALECTS: Final = {A2A_TYPE: "a2a", _MCP_TYPE: "mcp", _PROFILE_TYPE: "profile"}

CATALOG_TYPE: Final = "application/ai-catalog+json"

_TYPE_CHARS: Final = 255

_DESCRIPTION_CHARS: Final = 1000

_QUERY_CHARS: Final = 200

_PROTOCOLS: Final = {
    A2A_TYPE: "a2a",
    "application/agent-card+json": "a2a",
    _MCP_TYPE: "mcp",
    "application/ai-registry": "ard-registry",
    "application/ai-registry+json": "ard-registry",
    CATALOG_TYPE: "ai-catalog",
}

_BOUNDS: Final = {"displayName": limits.NAME_CHARS, "description": limits.DESCRIPTION_CHARS}

_GROUPS: Final = (
    MemberGroup(("type", "mediaType", "url", "data"), ("bindings",), {"data": "url"}),
    MemberGroup(("identifier", "metadata"), ("id", "constraints"), {"identifier": "metadata"}),
    MemberGroup(("displayName",), ("name",)),
    MemberGroup(("description",), ("description",)),
    MemberGroup(("tags", "capabilities"), ("tags",)),
    MemberGroup(("representativeQueries",), ("examples",)),
    MemberGroup(("version",), ("version",)),
    MemberGroup(("updatedAt",), ("updated_at",)),
    MemberGroup(("trustManifest", "publisher"), ()),
)


class ArdCodec(Codec):
    name = "ard"

    def __init__(self, read_embedded: EmbeddedReader) -> None:
        self._read_embedded = read_embedded

    def recognises(self, document: Mapping[str, Any]) -> bool:
        has_artifact = any(name in document for name in ("displayName", "url", "data"))
        return "identifier" in document and has_artifact and ("type" in document or "mediaType" in document)

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        entry = _normalize(document)
        carried = entry.pop(CARRY, None)
        record = apply_remainder(self._read_with_residue(entry), carried, f"$[{CARRY!r}]")
        check_times(record, context.now, updated_at="$.updatedAt", expires_at=f"$[{CARRY!r}]")
        names = (entry["identifier"], document["identifier"])
        return Decoded(
            record=record,
            source_id=record.id if carries_id(carried) else entry["identifier"],
            aliases=() if _is_minted(entry) else tuple(dict.fromkeys(name for name in names if name != record.id)),
            losses=() if carried else cut_losses(entry, _BOUNDS),
            warnings=tuple(_warnings(document)),
            visibility=read_visibility(find_object(document, "metadata") or {}, "$.metadata"),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        entry = restore_wording(_write(record, context), residue_of(record, self.name), record, _GROUPS, self._read)
        carried = make_remainder(record, self._read_with_residue(entry))
        return Encoded(document=entry | {CARRY: carried} if carried else entry)

    def _read_with_residue(self, entry: JsonObject) -> AgentRecord:
        record = self._read(entry)
        return attach_residue(record, self.name, residue_members(entry, _write(record, EncodeContext(now=0))))

    def _read(self, entry: JsonObject) -> AgentRecord:
        """Read the native members of an entry in ARD's spelling."""
        identifier = canonical_identifier(need_text(entry, "identifier", most=limits.ID_CHARS))
        media_type = need_text(entry, "type", most=_TYPE_CHARS)
        metadata = find_object(entry, "metadata") or {}
        data = _artifact(entry)
        name = _name(entry, identifier, data)
        _check_unmapped(entry)
        return AgentRecord(
            id=check_id(find_text(metadata, ID, "$.metadata", most=limits.ID_CHARS) or identifier, "$.identifier"),
            name=name,
            description=_description(entry, data) or name,
            bindings=self._bindings(entry, media_type, identifier, data),
            tags=collect_tags(*(_texts(entry, name) for name in ("tags", "capabilities"))),
            examples=_examples(entry),
            constraints=_constraints(metadata),
            version=find_text(entry, "version", most=limits.VERSION_CHARS),
            updated_at=read_time(entry, "updatedAt", "$"),
        )

    def _bindings(
        self, entry: JsonObject, media_type: str, identifier: str, data: JsonObject | None
    ) -> tuple[Binding, ...]:
        if entry.get("url") is not None:
            endpoint = need_endpoint(entry, "url", "$")
            protocol = _PROTOCOLS.get(bare_type(media_type), "artifact")
            extra = {"unresolved": True}
            return (Binding(protocol=protocol, endpoint=endpoint, media_types=(media_type,), extra=extra),)
        bindings = self._embedded_bindings(media_type, data) if data is not None else ()
        return bindings or (Binding(protocol="artifact", endpoint=identifier, media_types=(media_type,)),)

    def _embedded_bindings(self, media_type: str, data: JsonObject) -> tuple[Binding, ...]:
        if bare_type(media_type) == CATALOG_TYPE:
            return tuple(_linked_bindings(data, limits.ARD_NESTED_CATALOGS))[: limits.BINDINGS]
        try:
            embedded = self._read_embedded(media_type, data)
        except InvalidDocument as error:
            raise InvalidDocument(error.message, path=f"$.data{(error.path or '$')[1:]}", hint=error.hint) from None
        return embedded.bindings if embedded is not None else ()


def bare_type(media_type: str) -> str:
    """Return a media type as it is compared: without parameters, in lower case, an older one by its present name."""
    plain = media_type.partition(";")[0].strip().lower()
    return _OLDER_TYPES.get(plain, plain)


def _linked_bindings(catalog: JsonObject, depth: int) -> Iterator[Binding]:
    """Yield what the entries of an inline catalog link to: one agent that speaks several protocols is listed so (AIC)."""
    listed = catalog.get("entries")
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, dict):
            continue
        media_type, url = entry.get("type", entry.get("mediaType")), entry.get("url")
        if not isinstance(media_type, str) or not 0 < len(media_type) <= _TYPE_CHARS:
            continue
        if isinstance(url, str) and 0 < len(url) <= limits.ENDPOINT_CHARS and url.isprintable() and " " not in url:
            protocol = _PROTOCOLS.get(bare_type(media_type), "artifact")
            yield Binding(protocol=protocol, endpoint=url, media_types=(media_type,), extra={"unresolved": True})
        elif isinstance(entry.get("data"), dict) and bare_type(media_type) == CATALOG_TYPE and depth > 1:
            yield from _linked_bindings(entry["data"], depth - 1)


def _normalize(document: JsonObject) -> JsonObject:
    """Return the entry in ARD's spelling: `type` for AIC's `mediaType`, a canonical identifier, no `visibility`."""
    entry = dict(document)
    need_text(entry, "identifier", most=limits.ID_CHARS)
    entry["identifier"] = canonical_identifier(entry["identifier"])
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
        warnings.append("$.mediaType: it differs from type, which takes precedence (ARD-6).")
    queries = document.get("representativeQueries")
    if queries is not None and not MIN_QUERIES <= len(queries) <= MAX_QUERIES:
        warnings.append(f"$.representativeQueries: expected {MIN_QUERIES} to {MAX_QUERIES} (ARD-4).")
    return warnings


# --- Entry -> record ------------------------------------------------------------------------------


def _texts(entry: JsonObject, name: str) -> tuple[str, ...]:
    return find_texts(entry, name, most=limits.JSON_ARRAY_ITEMS, chars=limits.DESCRIPTION_CHARS)


def _artifact(entry: JsonObject) -> JsonObject | None:
    """Return the inline artifact; None if the entry links to it, or if it is no object: AIC allows any JSON value."""
    given = [name for name in ("url", "data") if entry.get(name) is not None]
    if len(given) != 1:
        raise InvalidDocument(
            f"An entry has exactly one of url and data; this one has {'both' if given else 'neither'}.",
            path="$.url",
            hint="Link the artifact in `url` or embed it in `data`.",
        )
    data = entry.get("data")
    return data if isinstance(data, dict) else None


def _name(entry: JsonObject, identifier: str, data: JsonObject | None) -> str:
    """Return `displayName`. AIC leaves it out where the artifact has a name; without both it is the end of the identifier."""
    if entry.get("displayName") is not None:
        return need_cut_text(entry, "displayName", most=limits.NAME_CHARS)
    named = (text for text in ((data or {}).get("title"), (data or {}).get("name")) if isinstance(text, str))
    own = next((text for text in named if 0 < len(text.strip()) <= limits.NAME_CHARS), None)
    return own or re.split("[:/]", identifier.rstrip(":/"))[-1][: limits.NAME_CHARS] or identifier[: limits.NAME_CHARS]


def _check_unmapped(entry: JsonObject) -> None:
    find_object(entry, "publisher")
    manifest = find_object(entry, "trustManifest")
    if manifest is not None:
        _check_manifest(manifest, "$.trustManifest")


def _description(entry: JsonObject, data: JsonObject | None) -> str | None:
    find_text(entry, "description", most=limits.DOCUMENT_BYTES)
    for holder in (entry, data or {}):
        text = holder.get("description")
        if isinstance(text, str) and text.strip():
            return truncate_text(text, limits.DESCRIPTION_CHARS)
    return None


def _examples(entry: JsonObject) -> tuple[Example, ...]:
    texts = [text for text in _texts(entry, "representativeQueries") if text.strip()]
    return tuple(
        Example(id=f"rq-{number}", text=truncate_text(text, limits.EXAMPLE_CHARS))
        for number, text in enumerate(texts[: limits.EXAMPLES], 1)
    )


def _constraints(metadata: JsonObject) -> JsonObject | None:
    constraints = {
        name: value for name, value in metadata.items() if name not in (ID, MINTED) and is_metadata_value(value)
    }
    return constraints or None


def is_metadata_value(value: Any) -> bool:
    """`metadata` of an entry holds scalars only."""
    return value is None or isinstance(value, str | int | float | bool)


# --- Record -> entry ------------------------------------------------------------------------------


def encode_without_residue(record: AgentRecord, context: EncodeContext) -> JsonObject | None:
    """Return what `encode` writes, without reading it back; None if the record has a residue. For long lists."""
    return None if residue_of(record, ArdCodec.name) else _write(record, context)


def _write(record: AgentRecord, context: EncodeContext) -> JsonObject:
    own = find_urn(record.id)
    entry: JsonObject = {
        "identifier": str(own or mint_urn(record.id, context.host)),
        "displayName": record.name,
        **_link(record, context),
    }
    if record.description != record.name:
        entry["description"] = truncate_text(record.description, _DESCRIPTION_CHARS)
    if record.tags:
        entry["tags"] = list(record.tags)
    queries = list(dict.fromkeys(truncate_text(example.text, _QUERY_CHARS) for example in record.examples))
    if len(queries) >= MIN_QUERIES:
        entry["representativeQueries"] = queries[:MAX_QUERIES]
    if record.version is not None:
        entry["version"] = record.version
    if record.updated_at is not None:
        entry["updatedAt"] = record.updated_at
    if own is None or str(own) != record.id:
        entry["metadata"] = {ID: record.id, MINTED: True}
    return entry


def _link(record: AgentRecord, context: EncodeContext) -> JsonObject:
    """Return `type` and `url` of the best document: the artifact itself, else ours in its own dialect, else AF's."""
    for binding in record.bindings:
        if binding.extra.get("unresolved") is True and binding.media_types:
            return {"type": binding.media_types[0], "url": binding.endpoint}
    protocols = {binding.protocol for binding in record.bindings}
    name = slug(record.id)
    if any(protocol == "a2a" or protocol.startswith("a2a+") for protocol in protocols):
        return {"type": A2A_TYPE, "url": f"{context.base_url}/a2a/{name}/.well-known/agent-card.json"}
    if protocols & {"mcp", "mcp-package"}:
        return {"type": _MCP_TYPE, "url": f"{context.base_url}/api/v1/agents/{name}?as=mcp"}
    return {"type": _PROFILE_TYPE, "url": f"{context.base_url}/.well-known/agentframework/v1/agents/{name}"}


# AI catalogs (ard.md §1), as written for /.well-known/ai-catalog.json.

CATALOG_STATUSES = ("active", "testing")  # of agents in a catalog (§10)

REGISTRY_TYPE = "application/ai-registry+json"

_SPEC_VERSION = "1.0"


def build_catalog(
    entries: Iterable[JsonObject], host: JsonObject | None, service_host: str = "localhost"
) -> JsonObject:
    """Make a catalog in the form of ARD's own schema; each `(identifier, version)` occurs once."""
    listed: dict[tuple[str, Any], JsonObject] = {}
    for entry in (catalog_entry(entry, service_host) for entry in entries):
        listed.setdefault((entry["identifier"], entry.get("version")), entry)
    document: JsonObject = {"specVersion": _SPEC_VERSION}
    if host is not None:
        document["host"] = host
    return document | {"entries": list(listed.values())}


def catalog_entry(entry: JsonObject, host: str = "localhost") -> JsonObject:
    """Return an entry in the form of a catalog (P-3, P-4, P-9, ARD-4, ARD-16), without the remainder.

    `host` is that of the service, the publisher of names that are minted here.
    """
    listed = {name: value for name, value in entry.items() if name != CARRY and value is not None}
    kind = listed.pop("mediaType", None)
    listed["type"] = listed.get("type", kind)
    identifier = canonical_identifier(entry["identifier"])
    if find_urn(identifier) is None:
        listed["metadata"] = {**listed.get("metadata", {}), ID: identifier, MINTED: True}
        identifier = str(mint_urn(identifier, host))
    listed["identifier"] = identifier
    listed.setdefault("displayName", _name(entry, canonical_identifier(entry["identifier"]), _artifact(entry)))
    if "data" in listed and not isinstance(listed["data"], dict):
        listed["data"] = {"value": listed["data"]}  # ARD's schema takes objects only (ARD-5)
    queries = listed.pop("representativeQueries", [])[:MAX_QUERIES]
    if len(queries) >= MIN_QUERIES:
        listed["representativeQueries"] = queries
    if "metadata" in listed:
        listed["metadata"] = {name: value for name, value in listed["metadata"].items() if is_metadata_value(value)}
    return listed


def host_entry(display_name: str, host: str) -> JsonObject:
    """Return the publisher of the catalog (ARD-3)."""
    return {"displayName": display_name, "identifier": publisher_of(host)}


def registry_entry(base_url: str, host: str) -> JsonObject:
    """Return the service's own entry: the registry behind the catalog."""
    return {
        "identifier": f"urn:air:{publisher_of(host)}:registry:waypost",
        "displayName": "Waypost registry",
        "type": REGISTRY_TYPE,
        "url": f"{base_url.rstrip('/')}/ard/",
        "description": "Finds agents by what they can do, through the protocols they speak.",
        "tags": ["discovery", "registry"],
        "representativeQueries": ["find an agent that translates invoices", "which agents can forecast the weather"],
    }


def check_catalog_version(version: object) -> None:
    """Accept any catalog of major version 1 (P-1)."""
    if not isinstance(version, str) or version.partition(".")[0] != "1":
        raise InvalidDocument("The catalog has an unsupported version.", path="$.specVersion", hint="Use 1.x.")
