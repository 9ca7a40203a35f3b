"""RTFS agent cards <-> the record (rtfs.md §8), and agent profiles written as S-expressions, by way of their card.

`metadata` is a card's free-form place: what a card has no word for rides there under CARRY. What a record has no word for
stays beside the part it belongs to, or in the residue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from waypost import limits
from waypost.dialects.codec import CARRY, DecodeContext, Decoded, EncodeContext, Encoded, Loss, residue_name
from waypost.dialects.profile_reader import VISIBILITY, check_times, read_visibility
from waypost.dialects.remainder import (
    attach,
    carries_id,
    differing,
    leftover,
    member_paths,
    overlay,
    remainder,
    residue_of,
    shrink,
)
from waypost.dialects.rtfs_card import OLDER_NAMES, UPDATED, check_card, modern, scheme_of, split_version
from waypost.dialects.rtfs_card_schema import EXAMPLES, SCHEMA, WRITTEN_SCHEMA
from waypost.dialects.rtfs_derive import derive_card
from waypost.dialects.rtfs_profile import fits_id, read_profile
from waypost.dialects.wording import Facet, by_preference, clip, gather_tags, reword, unsaid
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, parse_object
from waypost.model.names import hash_slug
from waypost.model.record import AgentRecord, Binding, Example
from waypost.model.times import find_instant

_RESIDUE = residue_name("rtfs")
_CARRIED = f"$.metadata[{CARRY!r}]"
_STREAMS = re.compile(r"websocket|wss?\Z|.*stream", re.IGNORECASE)
_SCHEMA_MEMBERS = ("input_schema_ref", "output_schema_ref")
_DEFAULT_CAPABILITY = "default"
_MINTED_ID = "example"
_FACETS = (
    Facet(("capabilities", "discovery_tags"), ("tags", "examples", "constraints")),
    Facet(("communication",), ("bindings", "auth")),
    Facet(("name", "description"), ("name", "description")),
    Facet(("version",), ("version",)),
    Facet(("agent_profile_uri",), ()),
    Facet(OLDER_NAMES, ()),
)
_TOO_LARGE = f"An agent_card has at most {limits.RTFS_CARD_BYTES} bytes."


class RtfsCodec:
    name = "rtfs"
    media_type = "application/json"
    loses: tuple[str, ...] = ("$.*",)  # only where a record is larger than a card may be

    def recognises(self, document: Mapping[str, Any]) -> bool:
        if not isinstance(document.get("agent_id"), str) or "transport" in document:
            return False
        own = ("communication", "discovery_tags", "agent_profile_uri", "capabilities_summary", "communication_summary")
        return isinstance(document.get("capabilities"), list) or any(name in document for name in own)

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        card, carried = _uncarried(_checked(modern(document)))
        metadata = card.get("metadata") or {}
        record = overlay(_with_residue(read_card(card), card), carried, _CARRIED)
        check_times(record, context.now, updated_at=f"$.metadata.{UPDATED}", expires_at=_CARRIED)
        return Decoded(
            record=record,
            source_id=card["agent_id"],
            aliases=() if carries_id(carried) or record.id == card["agent_id"] else (card["agent_id"],),
            losses=tuple(_losses(card)),
            warnings=tuple(_warnings(card)),
            visibility=read_visibility(metadata, "$.metadata"),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        card = _fitting(record)
        carried = remainder(record, _with_residue(read_card(card), card))
        whole = _carrying(card, carried) if carried else card
        if len(dump_json(whole)) <= limits.RTFS_CARD_BYTES:
            return Encoded(document=whole)
        return _cut(record, card, carried)

    def schema(self) -> JsonObject:
        return SCHEMA

    def written_schema(self) -> JsonObject:
        return WRITTEN_SCHEMA

    def examples(self) -> tuple[JsonObject, ...]:
        return EXAMPLES


def decode_text(text: str | bytes, context: DecodeContext) -> Decoded:
    """What an `(agent-profile …)` text says. Relative references belong to the context's base, or to where it was found."""
    card, warnings = derive_card(read_profile(text), base=context.base_url or context.source_url)
    if not card["communication"]["endpoints"]:
        raise InvalidDocument(
            "The profile names no endpoint, so the agent cannot be registered.",
            path=":communication-endpoints",
            hint='Add one, e.g. [{:endpoint-id "main" :protocol :json-rpc :uri "https://…"}].',
        )
    decoded = RTFS.decode(parse_object(dump_json(card)), context)  # within the bounds of a card that came as JSON
    return replace(decoded, warnings=(*warnings, *decoded.warnings))


def native_card(record: AgentRecord) -> JsonObject:
    """The card in its own members only: enough to match against, much cheaper than a whole one."""
    residue = residue_of(record, "rtfs")
    spoken = {name: value for name, value in residue.items() if name != "metadata"}
    try:
        card = reword(_checked(_write(record)), spoken, record, _FACETS, _read_checked)
    except InvalidDocument:  # what stands beside a part of the record may have been edited by hand
        card = reword(_write(_plain(record)), spoken, record, _FACETS, _read_checked)
    metadata = dict(residue["metadata"]) if isinstance(residue.get("metadata"), dict) else {}
    if record.updated_at is not None:
        metadata[UPDATED] = record.updated_at
    return card | ({"metadata": metadata} if metadata else {})


def _checked(card: JsonObject) -> JsonObject:
    check_card(card)
    return card


def _read_checked(card: JsonObject) -> AgentRecord:
    """What a card says that is about to be written. Older names would be read as others: nobody wrote those but by hand."""
    if modern(card) != card:
        raise InvalidDocument("The card has names of the earlier examples.", path="$")
    return read_card(_checked(card))


def _plain(record: AgentRecord) -> AgentRecord:
    """The record without what stands beside its parts."""
    return replace(
        record,
        examples=tuple(replace(example, extra={}) for example in record.examples),
        bindings=tuple(replace(binding, extra={}) for binding in record.bindings),
    )


# --- Card -> record -------------------------------------------------------------------------------


def read_card(card: JsonObject) -> AgentRecord:
    """What a checked card says by its own members."""
    agent_id = card["agent_id"]
    name = clip(_said(card.get("name")) or agent_id, limits.NAME_CHARS)
    capabilities = card.get("capabilities") or []
    endpoints = (card.get("communication") or {}).get("endpoints") or []
    names = [capability["capability_id"] for capability in capabilities]
    return AgentRecord(
        id=agent_id,
        name=name,
        description=_said(card.get("description")) or name,
        bindings=tuple(_binding(item, at) for at, item in enumerate(endpoints[: limits.BINDINGS])),
        tags=gather_tags(card.get("discovery_tags") or (), names, (split_version(name)[0] for name in names)),
        examples=tuple(map(_example, capabilities[: limits.EXAMPLES])),
        auth=_auth(endpoints),
        constraints=_constraints(capabilities),
        version=_said(card.get("version")),
        updated_at=_updated_at(card),
    )


def _said(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _binding(item: JsonObject, index: int) -> Binding:
    protocol = item.get("protocol") or scheme_of(item["uri"])
    rest = leftover(item, ("uri", "protocol"))
    return Binding(
        protocol=protocol,
        endpoint=item["uri"],
        interaction_model="streaming" if _STREAMS.match(protocol) else None,
        priority=index,
        extra={_RESIDUE: rest} if rest else {},
    )


def _example(item: JsonObject) -> Example:
    takes, gives = (item.get(side) if isinstance(item.get(side), dict) else None for side in _SCHEMA_MEMBERS)
    inline = [side for side in _SCHEMA_MEMBERS if isinstance(item.get(side), dict)]
    rest = leftover(item, ("capability_id", "description", *inline))
    return Example(
        id=item["capability_id"],
        text=clip(_said(item.get("description")) or item["capability_id"], limits.EXAMPLE_CHARS),
        input_schema=takes,
        output_schema=gives,
        extra={_RESIDUE: rest} if rest else {},
    )


def _auth(endpoints: list[JsonObject]) -> JsonObject | None:
    """The distinct ways to authenticate that the endpoints name."""
    schemes: list[JsonObject] = []
    for item in endpoints:
        scheme = (item.get("details") or {}).get("authentication")
        if isinstance(scheme, dict) and scheme.get("type") != "none" and scheme not in schemes:
            schemes.append(scheme)
    return {"schemes": schemes, "required": True} if schemes else None


def _constraints(capabilities: list[JsonObject]) -> JsonObject | None:
    """The annotations of all capabilities; the first to name a thing says it."""
    merged: JsonObject = {}
    for item in capabilities:
        notes = item.get("annotations")
        if isinstance(notes, dict):
            merged = notes | merged
    return merged or None


def _updated_at(card: JsonObject) -> str | None:
    text = (card.get("metadata") or {}).get(UPDATED)
    return text if isinstance(text, str) and find_instant(text) is not None else None


def _with_residue(record: AgentRecord, card: JsonObject) -> AgentRecord:
    body = {name: value for name, value in card.items() if name != "metadata"}
    residue = unsaid(body, _write(record))
    known = (UPDATED, VISIBILITY, CARRY) if record.updated_at is not None else (VISIBILITY, CARRY)
    metadata = leftover(card.get("metadata") or {}, known)
    return attach(record, "rtfs", residue | ({"metadata": metadata} if metadata else {}))


def _uncarried(card: JsonObject) -> tuple[JsonObject, Any]:
    metadata = card.get("metadata")
    if not isinstance(metadata, dict) or CARRY not in metadata:
        return card, None
    rest = {name: value for name, value in metadata.items() if name != CARRY}
    without = {name: value for name, value in card.items() if name != "metadata"}
    return without | ({"metadata": rest} if rest else {}), metadata[CARRY]


def _warnings(card: JsonObject) -> Iterator[str]:
    metadata = card.get("metadata") or {}
    if UPDATED in metadata and _updated_at(card) is None:
        yield f"$.metadata.{UPDATED}: not an RFC 3339 time; it does not count for freshness."
    if not card.get("capabilities"):
        yield "$.capabilities: none; the agent is found by its name, description and tags only."
    if not (card.get("communication") or {}).get("endpoints"):
        yield "$.communication.endpoints: none; nobody can reach the agent, and a search by the profile does not give it."


def _losses(card: JsonObject) -> Iterator[Loss]:
    """What the record has no room for. The card keeps it, and finds by it."""
    endpoints = (card.get("communication") or {}).get("endpoints") or []
    for path, items, most in (
        ("$.capabilities", card.get("capabilities") or [], limits.EXAMPLES),
        ("$.communication.endpoints", endpoints, limits.BINDINGS),
        ("$.discovery_tags", card.get("discovery_tags") or [], limits.TAGS),
    ):
        if len(items) > most:
            yield Loss(path, f"{len(items)} items; other dialects see the first {most}.")


# --- Record -> card -------------------------------------------------------------------------------


def _write(record: AgentRecord) -> JsonObject:
    """The native card of a record, without `metadata`."""
    card: JsonObject = {"agent_id": card_id(record.id), "name": record.name}
    if record.version is not None:
        card["version"] = record.version
    card["description"] = record.description
    card["capabilities"] = _write_capabilities(record)
    card["communication"] = _write_communication(record)
    if record.tags:
        card["discovery_tags"] = list(record.tags)
    return card


def card_id(record_id: str) -> str:
    return record_id if fits_id(record_id) else hash_slug(record_id)


def _write_capabilities(record: AgentRecord) -> list[JsonObject]:
    if not record.examples:
        return [{"capability_id": next(iter(record.tags), _DEFAULT_CAPABILITY), "description": record.description}]
    taken: set[str] = set()
    return [_write_capability(example, at, taken) for at, example in enumerate(record.examples, 1)]


def _write_capability(example: Example, number: int, taken: set[str]) -> JsonObject:
    own = _said(example.id)
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
    endpoints = [_write_endpoint(binding, record.auth) for binding in by_preference(record.bindings)]
    return {"protocols": list(dict.fromkeys(item["protocol"] for item in endpoints)), "endpoints": endpoints}


def _write_endpoint(binding: Binding, auth: Any) -> JsonObject:
    endpoint = _own_members(binding.extra) | {"protocol": binding.protocol, "uri": binding.endpoint}
    schemes = auth.get("schemes") if isinstance(auth, dict) else None
    if "details" not in endpoint and isinstance(schemes, list) and len(schemes) == 1 and isinstance(schemes[0], dict):
        endpoint["details"] = {"authentication": schemes[0]}
    return endpoint


def _fitting(record: AgentRecord) -> JsonObject:
    """The native card, made slimmer until it fits."""
    texts = tuple(Example(text=example.text, id=example.id) for example in record.examples)
    slim = replace(_plain(record), extra={}, examples=texts, auth=None)
    for candidate in (record, slim):
        card = native_card(candidate)
        if len(dump_json(card)) <= limits.RTFS_CARD_BYTES:
            return card
    return native_card(replace(slim, examples=(), tags=()))


def _cut(record: AgentRecord, card: JsonObject, carried: JsonObject) -> Encoded:
    """What of the remainder fits the card; the rest is lost and said to be."""
    room = limits.RTFS_CARD_BYTES - len(dump_json(card)) - len(CARRY) - len('"metadata":{"":},')
    whole = _carrying(card, shrink(carried, room))
    bare, rest = _uncarried(whole)
    lost = differing(record, overlay(_with_residue(read_card(bare), bare), rest, _CARRIED))
    return Encoded(document=whole, losses=tuple(Loss(path, _TOO_LARGE) for path in member_paths(lost)))


def _carrying(card: JsonObject, carried: JsonObject) -> JsonObject:
    return card | {"metadata": (card.get("metadata") or {}) | {CARRY: carried}}


RTFS = RtfsCodec()
