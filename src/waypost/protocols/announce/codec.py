"""The announce protocol's `agent` object, bare or in its Announce envelope (announce.md §1, §2, §13).

Both are read; the bare object is written. `capabilities` map names to a version or text, in three shapes; `transport`
maps to a binding. A signature is only text here: `trust` verifies it.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, kind_of, member
from waypost.model.record import AgentRecord, Binding, MappingLoss, find_object, find_text, need_object, need_text
from waypost.protocols.announce.messages import parse_minor
from waypost.protocols.codec import (
    CARRY,
    DERIVED,
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    apply_remainder,
    attach_residue,
    carries_id,
    differing_members,
    encode_with_remainder,
    merge_missing_members,
    residue_of,
    shrink_remainder,
    unknown_members,
)
from waypost.protocols.record_reader import VISIBILITY, check_times, read_time, read_visibility

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}\Z")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\Z")
_MEMBERS = ("agent_id", "agent_name", "capabilities", "transport", "metadata")
_PUBLIC_KEY_BYTES = 8 * limits.KIB

_DESCRIPTION_BYTES = 1500  # for a long description: leaves room in the 4 KiB for the members that identify the agent
_PLATFORM_CHARS = 32  # of an operating system or architecture
_DESCRIPTION_NAMES = 8  # capabilities in a derived description


class AnnounceCodec(Codec):
    name = "announce"
    loses = ("$.*",)  # whatever exceeds 4 KiB of metadata

    def recognises(self, document: Mapping[str, Any]) -> bool:
        agent = document.get("agent", document)
        if not isinstance(agent, dict) or "agent_id" not in agent:
            return False
        return "transport" in agent or isinstance(agent.get("capabilities"), dict)

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        agent, path = _unwrap(document)
        record = _read(agent, path)
        if path != "$" and document.get("signature") is not None and record.signature is None:
            record = msgspec.structs.replace(record, signature=_signature(document, agent))
        check_times(record, context.now, updated_at=f"{path}.metadata.__iat")
        metadata = agent.get("metadata") or {}
        own_id = f"urn:uuid:{agent['agent_id'].lower()}"
        return Decoded(
            record=record,
            source_id=agent["agent_id"],
            aliases=(own_id,) if carries_id(metadata.get(CARRY)) else (),
            warnings=tuple(_warnings(document, agent, path)),
            visibility=read_visibility(metadata, f"{path}.metadata"),
            ttl_seconds=_ttl(document) if path != "$" else None,
            sequence=_sequence(metadata, f"{path}.metadata"),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        residue = residue_of(record, self.name, "metadata")
        attempts = (
            (residue, limits.METADATA_BYTES),
            (residue, _DESCRIPTION_BYTES),
            (unknown_members(residue, ("metadata",)), _DESCRIPTION_BYTES),
        )
        for part, max_bytes in attempts:
            with suppress(InvalidDocument):  # the native metadata alone is too large
                document = _with_rest(*_native(record, part, max_bytes, context))
                if _fits(document):
                    return Encoded(document=document)
        return _cut(record, *_native(record, *attempts[-1], context))


# --- Reading --------------------------------------------------------------------------------------


def _unwrap(document: JsonObject) -> tuple[JsonObject, str]:
    """Return the agent object and its path. The version of an envelope must be major 1 (ANN-50)."""
    if "agent" not in document or "agent_id" in document:
        return document, "$"
    parse_minor(need_text(document, "protocol_version", most=16))
    for name in ("signature", "previous_signature"):
        find_text(document, name, most=4 * limits.KIB)
    return need_object(document["agent"], "$.agent"), "$.agent"


def _read(agent: JsonObject, path: str) -> AgentRecord:
    agent_id = need_text(agent, "agent_id", path, most=64, what="UUIDv4 text")
    if not _UUID.match(agent_id):
        raise InvalidDocument(
            f"{agent_id!r} is not a UUID.", path=f"{path}.agent_id", hint="Use a UUIDv4 as 8-4-4-4-12 hex digits."
        )
    label = find_text(agent, "agent_name", path, most=63)
    if label is not None and not _LABEL.match(label):
        raise InvalidDocument(
            f"{label!r} is not a DNS label.", path=f"{path}.agent_name", hint="1 to 63 letters, digits and hyphens."
        )
    find_text(agent, "public_key", path, most=_PUBLIC_KEY_BYTES)
    capabilities = read_capabilities(agent, path)
    binding = _read_transport(_needed(agent, "transport", path), f"{path}.transport")
    metadata = _read_metadata(agent, path)
    tags = _to_tags(capabilities)
    description = _text(metadata, "description")
    record = AgentRecord(
        id=f"urn:uuid:{agent_id.lower()}",
        name=label or agent_id.lower(),
        description=description or _offering(tags),
        bindings=(binding,),
        tags=tags,
        constraints=_constraints(capabilities, tags, metadata),
        updated_at=read_time(metadata, "__iat", f"{path}.metadata"),
        extra={} if description else {DERIVED: ["description"]},
    )
    record = attach_residue(record, "announce", _residue(agent, metadata, record))
    return apply_remainder(record, metadata.get(CARRY), f"{path}.metadata['{CARRY}']")


def _needed(agent: JsonObject, name: str, path: str) -> Any:
    if name not in agent:
        raise InvalidDocument(f"The member {name!r} is missing.", path=member(path, name), hint="Add it as an object.")
    return agent[name]


def _read_metadata(agent: JsonObject, path: str) -> JsonObject:
    metadata = find_object(agent, "metadata", path) or {}
    size = len(dump_json(metadata))
    if size > limits.METADATA_BYTES:
        raise InvalidDocument(
            f"The metadata has {size} bytes; at most {limits.METADATA_BYTES} are allowed.",
            path=f"{path}.metadata",
            hint="Shorten it.",
        )
    return metadata


def _text(metadata: Mapping[str, Any], name: str) -> str | None:
    """Return a string of the free-form metadata, or None."""
    value = metadata.get(name)
    return value if isinstance(value, str) and value.strip() else None


def _offering(tags: tuple[str, ...]) -> str:
    names = ", ".join(tags[:_DESCRIPTION_NAMES]) + (" and more" if len(tags) > _DESCRIPTION_NAMES else "")
    return f"Agent offering {names}" if tags else "Agent offering nothing in particular"


def _constraints(capabilities: dict[str, str], tags: tuple[str, ...], metadata: JsonObject) -> JsonObject | None:
    constraints: JsonObject = {}
    versions = {tag: capabilities[tag] for tag in tags if capabilities[tag]}
    if versions:
        constraints["capabilities"] = versions
    for name in ("os", "arch"):
        value = _text(metadata, f"__{name}")
        if value:
            constraints[name] = value
    return constraints or None


def _residue(agent: JsonObject, metadata: JsonObject, record: AgentRecord) -> JsonObject:
    residue = {name: value for name, value in unknown_members(agent, _MEMBERS).items() if value is not None}
    if agent["agent_id"] != agent["agent_id"].lower():
        residue["agent_id"] = agent["agent_id"]
    if agent["capabilities"] != _write_capabilities(record, None):
        residue["capabilities"] = agent["capabilities"]
    more = unknown_members(agent["transport"], ("type", "endpoint"))
    if more:
        residue["transport"] = more
    own = [name for name in ("description", "__os", "__arch") if _text(metadata, name)]
    vendor = unknown_members(metadata, {*own, "__iat", "__seq", VISIBILITY, CARRY})
    if vendor:
        residue["metadata"] = vendor
    return residue


def _signature(document: JsonObject, agent: JsonObject) -> JsonObject:
    """§13: return the signature for the record. It covers the agent object, not the record."""
    signature: JsonObject = {"type": "announce-sig", "canon": "jcs", "value": document["signature"]}
    key_id = _key_id(agent.get("public_key"))
    return {"type": "announce-sig", "key_id": key_id, **signature} if key_id else signature


def _key_id(pem: Any) -> str | None:
    """P-3: return `sha256:` and the digest of the SPKI; None for a certificate, which `trust` parses."""
    if not isinstance(pem, str) or "CERTIFICATE" in pem:
        return None
    body = "".join(line for line in pem.splitlines() if "-----" not in line).strip()
    try:
        der = base64.b64decode(body, validate=True)
    except ValueError:
        return None
    return f"sha256:{hashlib.sha256(der).hexdigest()}" if der else None


def _ttl(document: JsonObject) -> int | None:
    """Return the advisory TTL, within the limits of every lease. A LAN message, which anyone can repeat with another TTL,
    is limited further (P-7, `server/api/announce/lan.py`)."""
    value = document.get("ttl")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return int(min(max(value, limits.TTL_MIN_SECONDS), limits.TTL_MAX_SECONDS))


def _sequence(metadata: JsonObject, path: str) -> int | None:
    value = metadata.get("__seq")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidDocument(
            "'__seq' must be a non-negative integer.", path=f"{path}.__seq", hint="Use Unix milliseconds."
        )
    return value


def _warnings(document: JsonObject, agent: JsonObject, path: str) -> Iterator[str]:
    version = document.get("protocol_version", "v1.0") if path != "$" else "v1.0"
    if version not in ("v1.0", "v1.1"):
        yield f"$.protocol_version: {version} is newer than v1.1; read as v1.1."
    uuid_version = agent["agent_id"][14]
    if uuid_version != "4":
        yield f"{path}.agent_id: a UUID of version {uuid_version}; the protocol requires version 4."


# --- Writing --------------------------------------------------------------------------------------


def _native(
    record: AgentRecord, residue: JsonObject, max_bytes: int, context: EncodeContext
) -> tuple[JsonObject, JsonObject]:
    return encode_with_remainder(
        record,
        residue,
        write=lambda part: _write(record, part, max_bytes, context),
        read=lambda agent: _read(agent, "$"),
    )


def _write(record: AgentRecord, residue: JsonObject, max_bytes: int, context: EncodeContext) -> JsonObject:
    agent: JsonObject = {"agent_id": _agent_id(record, residue, context)}
    label = _label(record.name)
    if label and label != agent["agent_id"].lower():
        agent["agent_name"] = label
    agent["capabilities"] = _write_capabilities(record, residue.get("capabilities"))
    agent["transport"] = _to_transport(record.bindings[0]) if record.bindings else {"type": "none", "endpoint": "none"}
    metadata = _write_metadata(record, max_bytes)
    if metadata:
        agent["metadata"] = metadata
    return merge_missing_members(agent, unknown_members(residue, ("agent_id", "agent_name", "capabilities")))


def _agent_id(record: AgentRecord, residue: JsonObject, context: EncodeContext) -> str:
    """Return the agent's own UUID; else the one stored with the record; else one of version 5."""
    own = record.id.removeprefix("urn:uuid:")
    original = residue.get("agent_id")
    if own != record.id and _UUID.match(own):
        return original if isinstance(original, str) and original.lower() == own else own
    return context.announce_id or str(uuid.uuid5(uuid.NAMESPACE_URL, record.id))


def _label(name: str) -> str | None:
    """Return the name as a DNS label; None if nothing is left."""
    label = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:63].strip("-") if not _LABEL.match(name) else name
    return label or None


def _write_metadata(record: AgentRecord, max_bytes: int) -> JsonObject:
    metadata: JsonObject = {}
    if record.description != _offering(record.tags) or DERIVED not in record.extra:
        metadata["description"] = _cut_text(record.description, max_bytes)
    constraints = record.constraints or {}
    for name in ("os", "arch"):
        value = _text(constraints, name)
        if value and len(value) <= _PLATFORM_CHARS:
            metadata[f"__{name}"] = value
    return metadata


def _cut_text(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` whose JSON has at most `max_bytes`."""
    if len(dump_json(text)) <= max_bytes:
        return text
    count = bisect.bisect_right(range(len(text)), max_bytes, key=lambda end: len(dump_json(text[:end] + "…"))) - 1
    return text[: max(count, 0)] + "…"


def _with_rest(agent: JsonObject, rest: JsonObject) -> JsonObject:
    return {**agent, "metadata": {**agent.get("metadata", {}), CARRY: rest}} if rest else agent


def _fits(agent: JsonObject) -> bool:
    return len(dump_json(agent.get("metadata", {}))) <= limits.METADATA_BYTES


def _cut(record: AgentRecord, agent: JsonObject, rest: JsonObject) -> Encoded:
    """Carry what fits into the metadata; the rest is reported as lost."""
    free_bytes = limits.METADATA_BYTES - len(dump_json(agent.get("metadata", {}))) - len(CARRY) - 8
    document = _with_rest(agent, shrink_remainder(rest, free_bytes))
    reason = f"An announced agent has at most {limits.METADATA_BYTES} bytes of metadata."
    lost = differing_members(record, _read(document, "$"))
    return Encoded(document=document, losses=tuple(MappingLoss(member("$", name), reason) for name in lost))


# --- Capabilities ---------------------------------------------------------------------------------

_CAPABILITIES = 64
_NAME_CHARS = 64


def read_capabilities(agent: JsonObject, path: str) -> dict[str, str]:
    """Return names with their version or text, nested ones flattened with `/` (ANN-2)."""
    capabilities_path = member(path, "capabilities")
    if "capabilities" not in agent:
        raise InvalidDocument(
            "The member 'capabilities' is missing.",
            path=capabilities_path,
            hint="Add it as an object; it may be empty.",
        )
    value = agent["capabilities"]
    if not isinstance(value, dict):
        raise InvalidDocument(f"'capabilities' must be an object, not {kind_of(value)}.", path=capabilities_path)
    if len(value) > _CAPABILITIES:
        raise InvalidDocument(
            f"{len(value)} capabilities; at most {_CAPABILITIES} are allowed.", path=capabilities_path
        )
    return dict(_flatten(value, "", capabilities_path))


def _flatten(value: JsonObject, prefix: str, path: str) -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        where = member(path, name)
        if not _is_name(name):
            raise InvalidDocument(f"A capability's name must have 1 to {_NAME_CHARS} visible characters.", path=where)
        if isinstance(item, str):
            yield prefix + name, item
        elif not isinstance(item, dict):
            raise InvalidDocument(
                f"A capability's value must be a string, not {kind_of(item)}.",
                path=where,
                hint='Write {"name": "1.0"}.',
            )
        elif not item or isinstance(item.get("version"), str):
            yield prefix + name, item.get("version", "")
        elif all(isinstance(inner, (str, dict)) for inner in item.values()):
            yield from _flatten(item, f"{prefix}{name}/", where)
        else:
            yield prefix + name, ""


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _NAME_CHARS and text.isprintable() and bool(text.strip())


def _to_tags(capabilities: dict[str, str]) -> tuple[str, ...]:
    """Return the names that can be tags; the others stay in the residue."""
    return tuple(name for name in capabilities if len(name) <= limits.TAG_CHARS)[: limits.TAGS]


def _write_capabilities(record: AgentRecord, original: Any) -> JsonObject:
    """Return the original capabilities while they match the record's tags, else one for each tag, as many as are allowed."""
    if isinstance(original, dict):
        with suppress(InvalidDocument):  # anyone can write a residue into a profile document
            if _to_tags(read_capabilities({"capabilities": original}, "$")) == record.tags:
                return original
    versions = (record.constraints or {}).get("capabilities")
    known = versions if isinstance(versions, dict) else {}
    names = [tag for tag in record.tags if _is_name(tag)][:_CAPABILITIES]
    return {name: known[name] if isinstance(known.get(name), str) else "" for name in names}


# --- Transport <-> binding ------------------------------------------------------------------------

_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@]+):(\d{1,5})\Z")
_PREFIX_CHARS = len("tcp://")  # prefix that a binding's endpoint may have in addition
_SCHEMES = {"ws": ("ws", "wss"), "http": ("http", "https")}


def _read_transport(value: Any, path: str) -> Binding:
    """Return the binding of a transport. Unknown types are kept."""
    transport = need_object(value, path)
    kind = need_text(transport, "type", path, most=limits.TAG_CHARS)
    endpoint = need_text(transport, "endpoint", path, most=limits.ENDPOINT_CHARS - _PREFIX_CHARS)
    endpoint_path = member(path, "endpoint")
    for name, text in (("type", kind), ("endpoint", endpoint)):
        if not text.isprintable() or " " in text:
            raise InvalidDocument("Spaces and control characters are not allowed.", path=member(path, name))
    if kind == "tcp":
        return Binding(protocol="tcp", endpoint=f"tcp://{_host_and_port(endpoint, endpoint_path)}")
    if kind == "unix":
        return Binding(protocol="unix", endpoint=f"unix:{_absolute_path(endpoint, endpoint_path)}")
    if kind in _SCHEMES:
        scheme = _scheme(endpoint, _SCHEMES[kind], endpoint_path)
        return Binding(protocol=scheme if kind == "http" else kind, endpoint=endpoint)
    return Binding(protocol=kind, endpoint=endpoint)


def _to_transport(binding: Binding) -> JsonObject:
    """Return the transport that is read as this binding, as far as its two members can express it."""
    protocol, endpoint = binding.protocol, binding.endpoint
    candidates = [
        {"type": "tcp", "endpoint": endpoint.removeprefix("tcp://")},
        {"type": "unix", "endpoint": endpoint.removeprefix("unix:")},
        {"type": "http", "endpoint": endpoint},
        {"type": protocol, "endpoint": endpoint},
    ]
    for candidate in candidates:
        try:
            decoded = _read_transport(candidate, "$")
        except InvalidDocument:
            continue
        if (decoded.protocol, decoded.endpoint) == (protocol, endpoint):
            return candidate
    return {"type": f"x-{protocol}"[: limits.TAG_CHARS], "endpoint": endpoint[: limits.ENDPOINT_CHARS - _PREFIX_CHARS]}


def _host_and_port(text: str, path: str) -> str:
    found = _HOST_PORT.match(text)
    if not found or not 1 <= int(found[1]) <= 65535:
        raise InvalidDocument(f"{text[:80]!r} is not host:port.", path=path, hint="Write it like 10.0.0.12:9000.")
    return text


def _absolute_path(text: str, path: str) -> str:
    if not text.startswith("/"):
        raise InvalidDocument("A unix endpoint must be an absolute path.", path=path)
    return text


def _scheme(url: str, allowed: tuple[str, ...], path: str) -> str:
    try:
        parts = urlsplit(url)
        scheme = parts.scheme if parts.hostname and parts.port != 0 else ""
    except ValueError:
        scheme = ""
    if scheme not in allowed:
        raise InvalidDocument(f"{url[:80]!r} is not a URL with {' or '.join(allowed)}.", path=path)
    return scheme


ANNOUNCE = AnnounceCodec()
