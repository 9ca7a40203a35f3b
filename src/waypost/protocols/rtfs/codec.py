"""RTFS agent cards <-> the record (rtfs.md §3, §8), envelopes of `rtfs.registry.register`, and agent profiles, by way
of their card.

`metadata` is a card's free-form place for the remainder. Other members of capabilities and endpoints stay with the
example or binding that they belong to. All errors of a card are reported at once (P-18). Member names of earlier
examples are read as well (P-16).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from waypost import limits
from waypost.errors import InvalidCapability, InvalidDocument
from waypost.model.json import JsonObject, dump_json, kind_of, parse_object
from waypost.model.names import hash_slug
from waypost.model.record import AgentRecord, Binding, Example, MappingLoss, find_text, need_object
from waypost.model.times import find_instant
from waypost.protocols.codec import (
    CARRY,
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    MemberGroup,
    apply_remainder,
    attach_residue,
    carries_id,
    collect_tags,
    differing_members,
    make_remainder,
    member_paths,
    residue_members,
    residue_name,
    residue_of,
    restore_wording,
    shrink_remainder,
    sort_by_priority,
    truncate_text,
    unknown_members,
)
from waypost.protocols.record_reader import VISIBILITY, check_times, read_visibility
from waypost.protocols.rtfs.agent_profile import is_agent_id, parse_profile
from waypost.protocols.rtfs.card_derivation import derive_card
from waypost.protocols.rtfs.sexpr import is_sexpr_text

CARD = "agent_card"
_VERSION_SUFFIX = re.compile(r"(?:-v(?P<dashed>[0-9]+(?:\.[0-9]+)*)|@(?P<at>[^@/]+))\Z")
_UPDATED = "last_updated_timestamp"
_MOVED = {"provider_id": "owner", "last_updated": _UPDATED}  # into `metadata`
_OLDER_NAMES = tuple(_MOVED)  # names that the upgrade changes
_RESIDUE = residue_name("rtfs")
_CARRY_PATH = f"$.metadata[{CARRY!r}]"
_STREAMING = re.compile(r"websocket|wss?\Z|.*stream", re.IGNORECASE)
_SCHEMA_MEMBERS = ("input_schema_ref", "output_schema_ref")
_DEFAULT_CAPABILITY = "default"
_MINTED_ID = "example"
_GROUPS = (
    MemberGroup(("capabilities", "discovery_tags"), ("tags", "examples", "constraints")),
    MemberGroup(("communication",), ("bindings", "auth")),
    MemberGroup(("name", "description"), ("name", "description")),
    MemberGroup(("version",), ("version",)),
    MemberGroup(("agent_profile_uri",), ()),
    MemberGroup(_OLDER_NAMES, ()),
)
_TOO_LARGE = f"An agent_card has at most {limits.RTFS_CARD_BYTES} bytes."


class RtfsCodec(Codec):
    name = "rtfs"
    loses = ("$.*",)  # if the record is larger than a card may be

    def recognises(self, document: Mapping[str, Any]) -> bool:
        if is_envelope(document):
            return True
        if not isinstance(document.get("agent_id"), str) or "transport" in document:
            return False
        own = ("communication", "discovery_tags", "agent_profile_uri", "capabilities_summary", "communication_summary")
        return isinstance(document.get("capabilities"), list) or any(name in document for name in own)

    def recognises_text(self, data: bytes) -> bool:
        return is_sexpr_text(data)

    def decode_text(self, data: bytes, context: DecodeContext) -> Decoded:
        """Decode an `(agent-profile …)` text. Relative references belong to the context's base, or to the source
        URL."""
        card, warnings = derive_card(parse_profile(data), base=context.base_url or context.source_url)
        if not card["communication"]["endpoints"]:
            raise InvalidDocument(
                "The profile has no endpoint, so the agent cannot be registered.",
                path=":communication-endpoints",
                hint='Add one, e.g. [{:endpoint-id "main" :protocol :json-rpc :uri "https://…"}].',
            )
        decoded = self._decode_card(parse_object(dump_json(card)), context)  # same bounds as a card sent as JSON
        return replace(decoded, warnings=(*warnings, *decoded.warnings))

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        if not is_envelope(document):
            return self._decode_card(document, context)
        card = _with_endpoint(upgrade_card(need_object(document[CARD], f"$.{CARD}")), find_endpoint(document))
        try:
            decoded = self._decode_card(card, context)
        except InvalidDocument as error:
            error.path = f"$.{CARD}{(error.path or '$').removeprefix('$')}"
            raise
        return replace(decoded, ttl_seconds=_ttl(document))

    def _decode_card(self, document: JsonObject, context: DecodeContext) -> Decoded:
        card, carried = _split_carried(_checked(upgrade_card(document)))
        metadata = card.get("metadata") or {}
        record = apply_remainder(_with_residue(read_card(card), card), carried, _CARRY_PATH)
        check_times(record, context.now, updated_at=f"$.metadata.{_UPDATED}", expires_at=_CARRY_PATH)
        return Decoded(
            record=record,
            source_id=card["agent_id"],
            aliases=() if carries_id(carried) or record.id == card["agent_id"] else (card["agent_id"],),
            losses=tuple(_losses(card)),
            warnings=tuple(_warnings(card)),
            visibility=read_visibility(metadata, "$.metadata"),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        card = _write_fitting(record)
        carried = make_remainder(record, _with_residue(read_card(card), card))
        document = _with_carried(card, carried) if carried else card
        if len(dump_json(document)) <= limits.RTFS_CARD_BYTES:
            return Encoded(document=document)
        return _cut(record, card, carried)


def native_card(record: AgentRecord) -> JsonObject:
    """Return the card without the remainder: enough for matching, and much cheaper."""
    residue = residue_of(record, "rtfs")
    wording = {name: value for name, value in residue.items() if name != "metadata"}
    try:
        card = restore_wording(_checked(_write(record)), wording, record, _GROUPS, _read_checked)
    except InvalidDocument:  # residues of examples and bindings may have been edited by hand
        card = restore_wording(_write(_plain(record)), wording, record, _GROUPS, _read_checked)
    metadata = dict(residue["metadata"]) if isinstance(residue.get("metadata"), dict) else {}
    if record.updated_at is not None:
        metadata[_UPDATED] = record.updated_at
    return card | ({"metadata": metadata} if metadata else {})


def _checked(card: JsonObject) -> JsonObject:
    _check_card(card)
    return card


def _read_checked(card: JsonObject) -> AgentRecord:
    """Read a card that is about to be written. A residue edited by hand may have older names, read differently."""
    if upgrade_card(card) != card:
        raise InvalidDocument("The card has member names of earlier examples.", path="$")
    return read_card(_checked(card))


def _plain(record: AgentRecord) -> AgentRecord:
    """Return the record without the residues of its examples and bindings."""
    return replace(
        record,
        examples=tuple(replace(example, extra={}) for example in record.examples),
        bindings=tuple(replace(binding, extra={}) for binding in record.bindings),
    )


# --- Card -> record -------------------------------------------------------------------------------


def read_card(card: JsonObject) -> AgentRecord:
    """Read the native members of a checked card."""
    agent_id = card["agent_id"]
    name = truncate_text(_described(card.get("name")) or agent_id, limits.NAME_CHARS)
    capabilities = card.get("capabilities") or []
    endpoints = (card.get("communication") or {}).get("endpoints") or []
    names = [capability["capability_id"] for capability in capabilities]
    return AgentRecord(
        id=agent_id,
        name=name,
        description=_described(card.get("description")) or name,
        bindings=tuple(_binding(item, at) for at, item in enumerate(endpoints[: limits.BINDINGS])),
        tags=collect_tags(card.get("discovery_tags") or (), names, (split_version(name)[0] for name in names)),
        examples=tuple(map(_example, capabilities[: limits.EXAMPLES])),
        auth=_auth(endpoints),
        constraints=_constraints(capabilities),
        version=_described(card.get("version")),
        updated_at=_updated_at(card),
    )


def _described(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _binding(item: JsonObject, index: int) -> Binding:
    protocol = item.get("protocol") or _scheme_of(item["uri"])
    rest = unknown_members(item, ("uri", "protocol"))
    return Binding(
        protocol=protocol,
        endpoint=item["uri"],
        interaction_model="streaming" if _STREAMING.match(protocol) else None,
        priority=index,
        extra={_RESIDUE: rest} if rest else {},
    )


def _example(item: JsonObject) -> Example:
    takes, gives = (item.get(side) if isinstance(item.get(side), dict) else None for side in _SCHEMA_MEMBERS)
    inline = [side for side in _SCHEMA_MEMBERS if isinstance(item.get(side), dict)]
    rest = unknown_members(item, ("capability_id", "description", *inline))
    return Example(
        id=item["capability_id"],
        text=truncate_text(_described(item.get("description")) or item["capability_id"], limits.EXAMPLE_CHARS),
        input_schema=takes,
        output_schema=gives,
        extra={_RESIDUE: rest} if rest else {},
    )


def _auth(endpoints: list[JsonObject]) -> JsonObject | None:
    """Return the distinct authentication schemes of the endpoints."""
    schemes: list[JsonObject] = []
    for item in endpoints:
        scheme = (item.get("details") or {}).get("authentication")
        if isinstance(scheme, dict) and scheme.get("type") != "none" and scheme not in schemes:
            schemes.append(scheme)
    return {"schemes": schemes, "required": True} if schemes else None


def _constraints(capabilities: list[JsonObject]) -> JsonObject | None:
    """Merge the annotations of all capabilities; the first one of a name counts."""
    merged: JsonObject = {}
    for item in capabilities:
        notes = item.get("annotations")
        if isinstance(notes, dict):
            merged = notes | merged
    return merged or None


def _updated_at(card: JsonObject) -> str | None:
    text = (card.get("metadata") or {}).get(_UPDATED)
    return text if isinstance(text, str) and find_instant(text) is not None else None


def _with_residue(record: AgentRecord, card: JsonObject) -> AgentRecord:
    body = {name: value for name, value in card.items() if name != "metadata"}
    residue = residue_members(body, _write(record))
    known = (_UPDATED, VISIBILITY, CARRY) if record.updated_at is not None else (VISIBILITY, CARRY)
    metadata = unknown_members(card.get("metadata") or {}, known)
    return attach_residue(record, "rtfs", residue | ({"metadata": metadata} if metadata else {}))


def _split_carried(card: JsonObject) -> tuple[JsonObject, Any]:
    metadata = card.get("metadata")
    if not isinstance(metadata, dict) or CARRY not in metadata:
        return card, None
    rest = {name: value for name, value in metadata.items() if name != CARRY}
    without = {name: value for name, value in card.items() if name != "metadata"}
    return without | ({"metadata": rest} if rest else {}), metadata[CARRY]


def _warnings(card: JsonObject) -> Iterator[str]:
    metadata = card.get("metadata") or {}
    if _UPDATED in metadata and _updated_at(card) is None:
        yield f"$.metadata.{_UPDATED}: not an RFC 3339 time; it is ignored for freshness."
    if not card.get("capabilities"):
        yield "$.capabilities: empty; the agent can be found by its name, description and tags only."
    if not (card.get("communication") or {}).get("endpoints"):
        yield "$.communication.endpoints: empty; the agent has no address, and profile searches leave it out."


def _losses(card: JsonObject) -> Iterator[MappingLoss]:
    """Yield what exceeds the limits of the record. The card keeps it, and RTFS searches use it."""
    endpoints = (card.get("communication") or {}).get("endpoints") or []
    for path, items, most in (
        ("$.capabilities", card.get("capabilities") or [], limits.EXAMPLES),
        ("$.communication.endpoints", endpoints, limits.BINDINGS),
        ("$.discovery_tags", card.get("discovery_tags") or [], limits.TAGS),
    ):
        if len(items) > most:
            yield MappingLoss(path, f"{len(items)} items; other dialects get the first {most}.")


# --- Record -> card -------------------------------------------------------------------------------


def _write(record: AgentRecord) -> JsonObject:
    """Write the native card of a record, without `metadata`."""
    card: JsonObject = {"agent_id": card_id(record.id), "name": record.name}
    if record.version is not None:
        card["version"] = record.version
    card["description"] = record.description
    card["capabilities"] = _write_capabilities(record)
    card["communication"] = _write_communication(record)
    if record.tags:
        card["discovery_tags"] = list(record.tags[: limits.RTFS_TAGS])
    return card


def card_id(record_id: str) -> str:
    return record_id if is_agent_id(record_id) else hash_slug(record_id)


def _write_capabilities(record: AgentRecord) -> list[JsonObject]:
    if not record.examples:
        return [{"capability_id": next(iter(record.tags), _DEFAULT_CAPABILITY), "description": record.description}]
    taken: set[str] = set()
    return [_write_capability(example, at, taken) for at, example in enumerate(record.examples, 1)]


def _write_capability(example: Example, number: int, taken: set[str]) -> JsonObject:
    own = _described(example.id)
    name = own if own is not None and len(own) <= limits.RTFS_ID_CHARS else f"{_MINTED_ID}-{number}"
    name = f"{name}-{number}"[-limits.RTFS_ID_CHARS :] if name in taken else name
    taken.add(name)
    capability: JsonObject = {"capability_id": name}
    if example.text != name:
        capability["description"] = example.text
    for side in ("input_schema", "output_schema"):
        schema = getattr(example, side)
        if isinstance(schema, dict):
            capability[f"{side}_ref"] = schema
    return _own_members(example.extra) | capability


def _own_members(extra: Mapping[str, Any]) -> JsonObject:
    own = extra.get(_RESIDUE)
    return own if isinstance(own, dict) else {}


def _write_communication(record: AgentRecord) -> JsonObject:
    endpoints = [_write_endpoint(binding, record.auth) for binding in sort_by_priority(record.bindings)]
    return {"protocols": list(dict.fromkeys(item["protocol"] for item in endpoints)), "endpoints": endpoints}


def _write_endpoint(binding: Binding, auth: Any) -> JsonObject:
    endpoint = _own_members(binding.extra) | {"protocol": binding.protocol, "uri": binding.endpoint}
    schemes = auth.get("schemes") if isinstance(auth, dict) else None
    if "details" not in endpoint and isinstance(schemes, list) and len(schemes) == 1 and isinstance(schemes[0], dict):
        endpoint["details"] = {"authentication": schemes[0]}
    return endpoint


def _write_fitting(record: AgentRecord) -> JsonObject:
    """Return the native card, with fewer members if it is too large."""
    texts = tuple(Example(text=example.text, id=example.id) for example in record.examples)
    slim = replace(_plain(record), extra={}, examples=texts, auth=None)
    for candidate in (record, slim):
        card = native_card(candidate)
        if len(dump_json(card)) <= limits.RTFS_CARD_BYTES:
            return card
    return native_card(replace(slim, examples=(), tags=()))


def _cut(record: AgentRecord, card: JsonObject, carried: JsonObject) -> Encoded:
    """Carry what fits of the remainder; the rest is reported as lost."""
    free_bytes = limits.RTFS_CARD_BYTES - len(dump_json(card)) - len(CARRY) - len('"metadata":{"":},')
    document = _with_carried(card, shrink_remainder(carried, free_bytes))
    bare, rest = _split_carried(document)
    lost = differing_members(record, apply_remainder(_with_residue(read_card(bare), bare), rest, _CARRY_PATH))
    return Encoded(document=document, losses=tuple(MappingLoss(path, _TOO_LARGE) for path in member_paths(lost)))


def _with_carried(card: JsonObject, carried: JsonObject) -> JsonObject:
    return card | {"metadata": (card.get("metadata") or {}) | {CARRY: carried}}


# --- Envelopes: {"agent_card", "endpoint_url"?, "ttl_seconds"?} (rtfs.md §5) --------------------------


def is_envelope(document: Mapping[str, Any]) -> bool:
    return CARD in document and "agent_id" not in document


def find_endpoint(document: JsonObject) -> str | None:
    return find_text(document, "endpoint_url", most=limits.ENDPOINT_CHARS)


def _with_endpoint(card: JsonObject, endpoint_url: str | None) -> JsonObject:
    """Add the envelope's endpoint to a card without one (P-22)."""
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


# --- Checks (rtfs.md §3, P-18) --------------------------------------------------------------------


class CardError(NamedTuple):
    path: str
    reason: str


def _check_card(card: JsonObject) -> None:
    """Raise an error with all errors of a card that has current names."""
    errors = list(_errors(card))
    if not errors:
        return
    kind = InvalidCapability if all(error.path.startswith("$.capabilities[") for error in errors) else InvalidDocument
    first = errors[0]
    raise kind(
        f"{first.path}: {first.reason}",
        path=first.path,
        hint=f"{len(errors) - 1} more errors are listed in `errors`." if len(errors) > 1 else None,
        details={"errors": [error._asdict() for error in errors]},
    )


def upgrade_card(document: JsonObject) -> JsonObject:
    """Replace the names of earlier examples by the current ones, where those are missing."""
    card = dict(document)
    if "capabilities" not in card and isinstance(card.get("capabilities_summary"), list):
        card["capabilities"] = [_summary(item) for item in card.pop("capabilities_summary")]
    if "communication" not in card and isinstance(card.get("communication_summary"), list):
        card["communication"] = {"endpoints": card.pop("communication_summary")}
    moved = {name: card.pop(old) for old, name in _MOVED.items() if old in card}
    metadata = card.get("metadata")
    if moved and (metadata is None or isinstance(metadata, dict)):
        card["metadata"] = moved | (metadata or {})
    return card


def _summary(item: Any) -> Any:
    return {"capability_id": item} if isinstance(item, str) else item


def _errors(card: JsonObject) -> Iterator[CardError]:
    size = len(dump_json(card))
    if size > limits.RTFS_CARD_BYTES:
        yield CardError("$", f"the card has {size} bytes; at most {limits.RTFS_CARD_BYTES} are allowed")
    yield from _identity_errors(card)
    for at, item in _items(card, "capabilities"):
        yield from _capability_errors(item, f"$.capabilities[{at}]")
    yield from _list_errors(card, "capabilities", limits.RTFS_CAPABILITIES)
    yield from _list_errors(card, "discovery_tags", limits.RTFS_TAGS)
    for at, item in _items(card, "discovery_tags"):
        if not _is_text(item, limits.TAG_CHARS):
            yield CardError(f"$.discovery_tags[{at}]", f"a tag must be a string of 1 to {limits.TAG_CHARS} characters")
    yield from _communication_errors(card.get("communication"))
    if not isinstance(card.get("metadata"), (dict, type(None))):
        yield CardError("$.metadata", f"expected an object, found {kind_of(card['metadata'])}")


def _identity_errors(card: JsonObject) -> Iterator[CardError]:
    agent_id = card.get("agent_id")
    if agent_id is None:
        yield CardError("$.agent_id", "missing")
    elif not isinstance(agent_id, str) or not is_agent_id(agent_id):
        most = limits.RTFS_ID_CHARS
        yield CardError(
            "$.agent_id", f"expected a string of 1 to {most} characters without spaces and control characters"
        )
    for name, most in (
        ("name", limits.NAME_CHARS),
        ("version", limits.VERSION_CHARS),
        ("description", limits.DESCRIPTION_CHARS),
        ("agent_profile_uri", limits.ENDPOINT_CHARS),
    ):
        yield from _text_errors(card, name, "$", most)


def _text_errors(item: JsonObject, name: str, path: str, most: int) -> Iterator[CardError]:
    value = item.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > most):
        yield CardError(f"{path}.{name}", f"expected a string of at most {most} characters")


def _is_text(value: Any, most: int) -> bool:
    """Return whether the value is a string that is neither blank nor too long."""
    return isinstance(value, str) and len(value) <= most and bool(value.strip())


def _list_errors(item: JsonObject, name: str, most: int, path: str = "$") -> Iterator[CardError]:
    value = item.get(name)
    if value is None:
        return
    if not isinstance(value, list):
        yield CardError(f"{path}.{name}", f"expected an array, found {kind_of(value)}")
    elif len(value) > most:
        yield CardError(f"{path}.{name}", f"{len(value)} items; at most {most} are allowed")


def _items(item: JsonObject, name: str) -> Iterator[tuple[int, Any]]:
    value = item.get(name)
    return iter(enumerate(value)) if isinstance(value, list) else iter(())


def _capability_errors(item: Any, path: str) -> Iterator[CardError]:
    if not isinstance(item, dict):
        yield CardError(path, f"expected an object, found {kind_of(item)}")
        return
    name = item.get("capability_id")
    if not _is_text(name, limits.RTFS_ID_CHARS):
        yield CardError(f"{path}.capability_id", f"expected a string of 1 to {limits.RTFS_ID_CHARS} characters")
    yield from _text_errors(item, "description", path, limits.DESCRIPTION_CHARS)
    for side in ("input_schema_ref", "output_schema_ref"):
        if not isinstance(item.get(side), (str, dict, type(None))):
            yield CardError(f"{path}.{side}", "expected a reference (string) or a schema (object)")


def _communication_errors(value: Any) -> Iterator[CardError]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield CardError("$.communication", f"expected an object, found {kind_of(value)}")
        return
    yield from _list_errors(value, "protocols", limits.RTFS_TAGS, "$.communication")
    yield from _list_errors(value, "endpoints", limits.RTFS_ENDPOINTS, "$.communication")
    for at, item in _items(value, "protocols"):
        if not isinstance(item, str) or not item:
            yield CardError(f"$.communication.protocols[{at}]", "expected a string")
    for at, item in _items(value, "endpoints"):
        yield from _endpoint_errors(item, f"$.communication.endpoints[{at}]")


def _endpoint_errors(item: Any, path: str) -> Iterator[CardError]:
    if not isinstance(item, dict):
        yield CardError(path, f"expected an object, found {kind_of(item)}")
        return
    uri = item.get("uri")
    if not isinstance(uri, str) or not 0 < len(uri) <= limits.ENDPOINT_CHARS or not uri.isprintable() or " " in uri:
        yield CardError(f"{path}.uri", "expected a URI without spaces and control characters")
    protocol = item.get("protocol")
    if protocol is not None and (
        not _is_text(protocol, limits.TAG_CHARS) or not protocol.isprintable() or " " in protocol
    ):
        yield CardError(f"{path}.protocol", f"expected a string of 1 to {limits.TAG_CHARS} characters without spaces")
    if not isinstance(item.get("details"), (dict, type(None))):
        yield CardError(f"{path}.details", f"expected an object, found {kind_of(item['details'])}")


def _scheme_of(uri: str) -> str:
    """Return the scheme of a URI, used as the protocol of an endpoint without one."""
    scheme, colon, _ = uri.partition(":")
    return scheme.lower() if colon and scheme and len(scheme) <= limits.TAG_CHARS else "http"


def split_version(capability_id: str) -> tuple[str, str | None]:
    """Split `name-v1.2` or `name@1.2.3` into name and version."""
    match = _VERSION_SUFFIX.search(capability_id)
    if match is None or match.start() == 0:
        return capability_id, None
    return capability_id[: match.start()], match["dashed"] or match["at"]


RTFS = RtfsCodec()
