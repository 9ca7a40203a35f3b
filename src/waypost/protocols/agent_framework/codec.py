"""Texts as the Agent Framework surface shows them: no control characters (AF-53), a summary (P-13), in bounds (AF-20)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, dump_json, member
from waypost.model.names import is_path_safe, slug
from waypost.model.record import (
    AgentRecord,
    Binding,
    check_id,
    find_object,
    find_text,
    need_array,
    need_object,
    need_text,
    record_from_json,
    record_to_json,
)
from waypost.model.times import find_instant, to_rfc3339
from waypost.protocols.codec import (
    CARRY,
    DERIVED,
    Codec,
    DecodeContext,
    Decoded,
    EncodeContext,
    Encoded,
    MappingLoss,
    apply_remainder,
    attach_residue,
    differing_members,
    encode_with_remainder,
    load_resource,
    merge_missing_members,
    residue_name,
    residue_of,
    shrink_remainder,
    unknown_members,
)
from waypost.protocols.record_reader import (
    VISIBILITY,
    check_times,
    read_bindings,
    read_record,
    read_tags,
    read_time,
    read_visibility,
)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_LINE_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_ENDS = (re.compile(r"[.!?](?=\s|$)"), re.compile("[。！？]"))  # of a sentence: those of the second kind need no space

SUMMARY_CHARS = 200


def strip_control_characters(value: Any) -> Any:
    """A JSON value without control characters in its texts; line ends and tabs inside them stay."""
    if isinstance(value, str):
        return value if value.isprintable() else _CONTROL.sub("", value)  # what can be printed holds no such character
    if isinstance(value, dict):
        return {strip_control_characters(name): strip_control_characters(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strip_control_characters(item) for item in value]
    return value


def strip_line_controls(text: str, instead: str) -> str:
    """A text for one line, never empty: a text of control characters alone gives way to `instead`."""
    if text.isprintable() or not _LINE_CONTROL.search(text):
        return text
    return _LINE_CONTROL.sub(" ", text).strip() or instead


def summarize(description: str) -> str:
    """The first sentence, cut on a word boundary."""
    text = " ".join(strip_control_characters(description).split())
    ends = (end.search(text, 1) for end in _ENDS)
    end = next(filter(None, ends), None)
    sentence = text if end is None else text[: end.end()]
    if len(sentence) <= SUMMARY_CHARS:
        return sentence
    head = sentence[: SUMMARY_CHARS - 1]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"


def truncate_bytes(text: str, most: int) -> str:
    """The text in at most `most` UTF-8 bytes, never through a character."""
    raw = text.encode("utf-8")
    return text if len(raw) <= most else raw[:most].decode("utf-8", "ignore")


# ---- Endpoints of the Agent Framework (AF-16, AF-17) and the profile's bindings: paths on one host against whole addresses.

METHOD = "x.method"  # where a binding keeps the endpoint's method (agentframework.md §11)

ENDPOINT = "x.endpoint"  # and its other members: description and what we do not know

_KNOWN = ("method", "path")

_PROTOCOL = "https"  # what an endpoint is called by as a binding, also where its host is reached without TLS (§11)

_TOKEN = re.compile(r"[A-Za-z!#$%&'*+.^_`|~0-9-]{1,32}\Z")

_PATH = re.compile(r"/(?!/)[^?#\\\s\x00-\x1f\x7f]*\Z")

_DOTS = re.compile(r"(?:^|/)\.\.(?:/|$)")


def origin_of(url: str) -> str | None:
    """`scheme://authority` of an http(s) address, lower-cased; None for anything else."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
        return None
    return f"{parts.scheme}://{parts.netloc.lower()}"


def is_path(text: str) -> bool:
    """AF-17: an absolute path with no authority, query, fragment, `..`, space or control character."""
    return _PATH.match(text) is not None and not _DOTS.search(text)


def is_http(endpoint: Mapping[str, Any]) -> bool:
    """A reader passes over endpoints whose `transport` is not HTTP (AF-17)."""
    transport = endpoint.get("transport")
    if isinstance(transport, dict):
        transport = transport.get("type", transport.get("name"))
    return transport is None or (isinstance(transport, str) and transport.lower() in ("http", "https"))


def to_endpoint(binding: Binding, origin: str | None) -> JsonObject | None:
    """The endpoint that says the same as the binding, or None when the binding is not a path on this host."""
    if origin is None or binding.protocol not in (_PROTOCOL, origin.split(":", 1)[0]):
        return None
    path = binding.endpoint[len(origin) :]
    if not binding.endpoint.startswith(origin) or not is_path(path):
        return None
    method = binding.extra.get(METHOD)
    if not isinstance(method, str) or not _TOKEN.match(method):
        method = "POST"
    return _with_extra_members({"method": method.upper(), "path": path}, binding.extra.get(ENDPOINT))


def _with_extra_members(endpoint: JsonObject, more: Any) -> JsonObject:
    """The endpoint with its other members, unless somebody wrote them so that it would no longer be one."""
    if not isinstance(more, dict):
        return endpoint
    whole = {**endpoint, **unknown_members(more, _KNOWN)}
    try:
        return read_endpoint(whole, "$") if is_http(whole) else endpoint
    except InvalidDocument:
        return endpoint


def read_endpoint(value: Any, path: str) -> JsonObject:
    """An endpoint whose shape was checked."""
    endpoint = need_object(value, path)
    if not is_http(endpoint):
        return endpoint
    method = need_text(endpoint, "method", path, most=32)
    if not _TOKEN.match(method):
        raise InvalidDocument(f"{method!r} is not an HTTP method.", path=member(path, "method"))
    where = need_text(endpoint, "path", path, most=limits.ENDPOINT_CHARS)
    if not is_path(where):
        raise InvalidDocument(
            "An endpoint's path starts with one / and has no scheme, host, query, fragment, '..' or space.",
            path=member(path, "path"),
            hint="Put addresses on other hosts under metadata.bindings.",
        )
    find_text(endpoint, "description", path, most=limits.DESCRIPTION_CHARS)
    return endpoint


def to_binding(endpoint: JsonObject, origin: str) -> Binding:
    extra: JsonObject = {METHOD: endpoint["method"].upper()}
    more = unknown_members(endpoint, _KNOWN)
    if more:
        extra[ENDPOINT] = more
    return Binding(
        protocol=_PROTOCOL,
        endpoint=origin + endpoint["path"],
        interaction_model="streaming" if endpoint["path"].endswith(":stream") else "request-response",
        extra=extra,
    )


def split_bindings(bindings: Iterable[Binding], origin: str | None) -> tuple[list[JsonObject], list[Binding]]:
    """The endpoints of this host, and the bindings that must be told whole."""
    endpoints: list[JsonObject] = []
    others: list[Binding] = []
    for binding in bindings:
        endpoint = to_endpoint(binding, origin)
        if endpoint is None:
            others.append(binding)
        else:
            endpoints.append(endpoint)
    return endpoints, others


# ---- AgentMetadata of the Agent Framework's app-scoped discovery (agentframework.md §3, §4, §11).
#
# Ids are slugs, endpoints are paths on the service's own host, and what the format has no member for rides in `metadata`.
# It knows the document, not the routes: views by query, caching and who may see what belong to the face.

AGENTS_PATH = "/.well-known/agentframework/v1/agents/"

MEMBERS = (
    "id",
    "name",
    "version",
    "summary",
    "description",
    "tags",
    "owner",
    "endpoints",
    "capabilities",
    "created_at",
    "updated_at",
    "metadata",
)

TRUNCATED = "truncated"

SUMMARY_MEMBERS = ("id", "name", "version", "summary", "tags")

_IN_METADATA = ("status", "expires_at", "auth", "constraints", "signature", "examples")

_NAME_CHARS, _SUMMARY_CHARS, _DESCRIPTION_BYTES = 256, 512, 16 * limits.KIB  # AF-20, as are the next two lines

_TAGS, _TAG_CHARS, _ENDPOINTS = 64, 64, 128

_METADATA_BYTES = 64 * limits.KIB


class AfCodec(Codec):
    name = "af"
    loses = ("$.*",)  # control characters, internal keys, and what 64 KiB of metadata do not hold

    def recognises(self, document: Mapping[str, Any]) -> bool:
        if not isinstance(document.get("id"), str) or "bindings" in document:
            return False
        if any(name in document for name in ("endpoints", "summary", "created_at")):
            return True
        if isinstance(document.get("owner"), dict) or isinstance(document.get("capabilities"), dict):
            return True
        metadata = document.get("metadata")
        return isinstance(metadata, dict) and "canonical_id" in metadata

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        record = _read(document, _base_of(context))
        check_times(record, context.now)
        metadata = find_object(document, "metadata") or {}
        return Decoded(
            record=record,
            source_id=record.id,  # the id in the document means nothing outside its application
            warnings=tuple(_warnings(record)),
            visibility=read_visibility(metadata, "$.metadata"),
        )

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        served = _sanitized(record)
        document, rest = encode_with_remainder(
            served,
            residue_of(served, self.name),
            write=lambda residue: _write(served, residue, context),
            read=lambda written: _read(written, context.base_url),
        )
        document = _with_rest(document, rest)
        losses = tuple(
            MappingLoss(
                member("$", name), "The Agent Framework surface serves neither control characters nor internal keys."
            )
            for name in differing_members(record, served)
        )
        if len(dump_json(document["metadata"])) > _METADATA_BYTES:
            document = _bound_metadata(document)
            losses = tuple(
                MappingLoss(member("$", name), f"AgentMetadata holds at most {_METADATA_BYTES} bytes of metadata.")
                for name in differing_members(record, _read(document, context.base_url))
            )
        return Encoded(document=_ordered(_with_times(document, context)), losses=losses)


def responses_schema(url: str) -> JsonObject:
    """Return the schema of every response of this API (AF-32, P-20), named by its own address."""
    return {**load_resource("waypost.protocols.agent_framework", "responses_schema.json"), "$id": url}


def to_summary(full: Mapping[str, Any]) -> JsonObject:
    """The summary view of a full AgentMetadata (§4)."""
    return {name: full[name] for name in SUMMARY_MEMBERS if name in full}


def summary_from_record(record: AgentRecord) -> JsonObject:
    """The summary view straight from the record, for lists: equal to `to_summary` of the full view."""
    summary = _text(residue_of(record, "af"), "summary")
    head = _head(record, None if summary is None else strip_control_characters(summary))
    head["name"] = head["name"][:_NAME_CHARS]
    head["summary"] = head["summary"][:_SUMMARY_CHARS]
    head["tags"] = [tag[:_TAG_CHARS] for tag in head["tags"][:_TAGS]]
    return head


# --- Reading --------------------------------------------------------------------------------------


def _base_of(context: DecodeContext) -> str | None:
    """Where paths lead: what the caller says, else where the document was found."""
    if context.base_url or not context.source_url:
        return context.base_url
    before, found, _ = context.source_url.partition("/.well-known/agentframework/")
    return before if found else origin_of(context.source_url)


def _read(document: JsonObject, base: str | None) -> AgentRecord:
    local_id = need_text(document, "id", most=limits.ID_CHARS)
    if not is_path_safe(local_id):
        raise InvalidDocument(
            f"{local_id[:80]!r} does not fit one path segment.",
            path="$.id",
            hint="Use at most 128 letters, digits and . _ ~ -, starting with a letter or digit.",
        )
    name = find_text(document, "name", most=limits.NAME_CHARS) or local_id[: limits.NAME_CHARS]
    summary = find_text(document, "summary", most=limits.DESCRIPTION_CHARS)
    description = find_text(document, "description", most=limits.DESCRIPTION_CHARS)
    metadata = find_object(document, "metadata") or {}
    mapped = _read_metadata(metadata)
    bindings, unbound = _read_bindings(document, metadata, mapped, base)
    derived = not (description or "").strip()
    record = record_from_json(
        {
            **{name: mapped[name] for name in _IN_METADATA if name in mapped},
            "id": mapped.get("canonical_id") or _absolute_id(local_id, base),
            "name": name if name.strip() else local_id[: limits.NAME_CHARS],
            "description": _derived_description(summary, name) if derived else description,
            "tags": read_tags(document, "tags", "$"),
            "version": find_text(document, "version", most=limits.VERSION_CHARS),
            "updated_at": read_time(document, "updated_at", "$"),
            **({DERIVED: ["description"]} if derived else {}),
        }
    )
    record = msgspec.structs.replace(record, bindings=bindings)
    residue = _residue(document, mapped, unbound)
    if summary is not None and summary != summarize(record.description):
        residue["summary"] = summary
    record = attach_residue(record, "af", residue)
    return apply_remainder(record, metadata.get(CARRY), f"$.metadata['{CARRY}']")


def _absolute_id(local_id: str, base: str | None) -> str:
    """Ids are local to their application, so the address of the representation is the id; alone without an origin."""
    return check_id(base.rstrip("/") + AGENTS_PATH + local_id) if base else local_id


def _derived_description(summary: str | None, name: str) -> str:
    """§11: a record needs a description; the summary, else the name, must do."""
    return summary if summary and summary.strip() else name


def _read_metadata(metadata: JsonObject) -> JsonObject:
    """The members of `metadata` that are the profile's. It is free-form: one of another shape is the vendor's, and stays so."""
    minimal = {"id": "x", "name": "x", "description": "x"}
    mapped: JsonObject = {}
    for name in (*_IN_METADATA, "bindings"):
        if metadata.get(name) is None:
            continue
        try:
            read_record({**minimal, name: metadata[name]})
        except InvalidDocument:
            continue
        mapped[name] = metadata[name]
    with suppress(InvalidDocument):
        mapped["canonical_id"] = check_id(need_text(metadata, "canonical_id", most=limits.ID_CHARS))
    return mapped


def _read_bindings(
    document: JsonObject, metadata: JsonObject, mapped: JsonObject, base: str | None
) -> tuple[tuple[Binding, ...], list[JsonObject]]:
    """The bindings, and the endpoints that give none: no origin is known, another transport, or too many."""
    value = document.get("endpoints")
    endpoints = [
        read_endpoint(item, f"$.endpoints[{index}]")
        for index, item in enumerate(need_array([] if value is None else value, "$.endpoints", limits.JSON_ARRAY_ITEMS))
    ]
    others = read_bindings(mapped.get("bindings"), "$.metadata.bindings")
    origin = origin_of(base) if base else None
    bindings: list[Binding] = []
    unbound: list[JsonObject] = []
    for endpoint in endpoints:
        if origin and is_http(endpoint) and len(bindings) + len(others) < limits.BINDINGS:
            bindings.append(to_binding(endpoint, origin))
        else:
            unbound.append(endpoint)
    return (*bindings, *others), unbound


def _residue(document: JsonObject, mapped: JsonObject, unbound: list[JsonObject]) -> JsonObject:
    residue = unknown_members(document, MEMBERS)
    owner = find_object(document, "owner")
    if owner is not None:
        need_text(owner, "name", "$.owner", most=limits.NAME_CHARS)
        for name in ("email", "url"):
            find_text(owner, name, "$.owner", most=limits.ENDPOINT_CHARS)
        residue["owner"] = owner
    if find_object(document, "capabilities"):
        residue["capabilities"] = document["capabilities"]
    if read_time(document, "created_at", "$"):
        residue["created_at"] = document["created_at"]
    if unbound:
        residue["endpoints"] = unbound
    vendor = unknown_members(find_object(document, "metadata") or {}, {*mapped, CARRY, VISIBILITY, TRUNCATED})
    if vendor:
        residue["metadata"] = vendor
    return residue


def _warnings(record: AgentRecord) -> list[str]:
    warnings = []
    if not record.bindings:
        warnings.append("$.endpoints: no binding comes of them; name the origin that paths belong to (`base`).")
    if DERIVED in record.extra:
        warnings.append("$.description: missing; derived from the summary or the name.")
    return warnings


# --- Writing --------------------------------------------------------------------------------------


def _sanitized(record: AgentRecord) -> AgentRecord:
    """The record as this surface may show it (AF-53): no control characters, no internal keys."""
    document = strip_control_characters(record_to_json(record))
    document["name"] = strip_line_controls(record.name, slug(record.id))
    document["description"] = document["description"] if document["description"].strip() else document["name"]
    document["tags"] = _clean_tags(record.tags)
    document["examples"] = [
        {**example, "tags": _clean_tags(example.get("tags", ()))}
        for example in document.get("examples", ())
        if example["text"].strip()
    ]
    residue = document.get(residue_name("af"))
    if isinstance(residue, dict) and isinstance(residue.get("metadata"), dict):
        vendor = {name: value for name, value in residue["metadata"].items() if not name.startswith("_")}
        document[residue_name("af")] = {**residue, "metadata": vendor}
    return record_from_json(document)


def _clean_tags(tags: Iterable[str]) -> list[str]:
    return [tag for tag in (strip_line_controls(tag, "") for tag in tags) if tag]


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) else None


def _head(record: AgentRecord, summary: str | None) -> JsonObject:
    """The members of the summary view."""
    local_id = slug(record.id)
    document: JsonObject = {"id": local_id, "name": strip_line_controls(record.name, local_id)}
    if record.version is not None:
        document["version"] = strip_control_characters(record.version)
    document["summary"] = summarize(record.description) or document["name"] if summary is None else summary
    document["tags"] = _clean_tags(record.tags)
    return document


def _write(record: AgentRecord, residue: JsonObject, context: EncodeContext) -> JsonObject:
    document = _head(record, _text(residue, "summary"))
    if not _derives_again(record, residue):
        document["description"] = record.description
    endpoints, others = split_bindings(record.bindings, origin_of(context.base_url))
    kept = residue.get("endpoints")
    unbound = [item for item in kept if isinstance(item, dict) and not is_http(item)] if isinstance(kept, list) else []
    document["endpoints"] = endpoints + unbound
    document["capabilities"] = {}
    for name, text in (("created_at", _text(residue, "created_at")), ("updated_at", record.updated_at)):
        instant = find_instant(text)
        if instant is not None:
            document[name] = to_rfc3339(instant)
    document["metadata"] = _metadata(record, others)
    return bound_members(merge_missing_members(document, unknown_members(residue, ("endpoints", "summary"))))


def bound_members(document: JsonObject) -> JsonObject:
    """AF-20: no member longer than the surface allows; `metadata.truncated` names those that were cut."""
    within = dict(document)
    within["name"] = document["name"][:_NAME_CHARS]
    within["summary"] = document["summary"][:_SUMMARY_CHARS]
    within["tags"] = [tag[:_TAG_CHARS] for tag in document["tags"][:_TAGS]]
    if "description" in document:
        within["description"] = truncate_bytes(document["description"], _DESCRIPTION_BYTES)
    if "endpoints" in document:
        within["endpoints"] = document["endpoints"][:_ENDPOINTS]
    cut = [name for name in MEMBERS if name in document and within[name] != document[name]]
    return {**within, "metadata": {**document["metadata"], TRUNCATED: cut}} if cut else within


def _derives_again(record: AgentRecord, residue: JsonObject) -> bool:
    """True when a reader that finds no description makes up this one."""
    summary = _text(residue, "summary") or summarize(record.description)
    return DERIVED in record.extra and _derived_description(summary, record.name) == record.description


def _metadata(record: AgentRecord, others: list[Binding]) -> JsonObject:
    whole = record_to_json(msgspec.structs.replace(record, bindings=tuple(others)))
    metadata: JsonObject = {"canonical_id": record.id}
    metadata |= {name: whole[name] for name in _IN_METADATA if name in whole}
    if others:
        metadata["bindings"] = whole["bindings"]
    return metadata


def _with_rest(document: JsonObject, rest: JsonObject) -> JsonObject:
    if not rest:
        return document
    return {**document, "metadata": {**document["metadata"], CARRY: rest}}


def _with_times(document: JsonObject, context: EncodeContext) -> JsonObject:
    """The registry's own times where the record has none. They are not the record's, so the remainder ignores them."""
    filled = dict(document)
    for name, instant in (("created_at", context.created_at), ("updated_at", context.updated_at)):
        if name not in filled and instant is not None:
            filled[name] = to_rfc3339(instant)
    return filled


def _bound_metadata(document: JsonObject) -> JsonObject:
    """AF-20: metadata within its bound; the largest parts go first, and `truncated` says that some are gone."""
    cut = document["metadata"].get(TRUNCATED, [])
    metadata = {**document["metadata"], TRUNCATED: [*cut, "metadata"]}
    if CARRY in metadata:
        room = _METADATA_BYTES - len(dump_json(unknown_members(metadata, (CARRY,)))) - len(CARRY) - 8
        metadata[CARRY] = shrink_remainder(metadata[CARRY], max(room, 0))
    while len(dump_json(metadata)) > _METADATA_BYTES:
        sizes = {
            name: len(dump_json(part)) for name, part in metadata.items() if name not in ("canonical_id", TRUNCATED)
        }
        del metadata[max(sizes, key=lambda name: sizes[name])]
    return {**document, "metadata": metadata}


def _ordered(document: JsonObject) -> JsonObject:
    """AF-19: the order of the table, unknown members last."""
    ordered = {name: document[name] for name in MEMBERS if name in document}
    return {**ordered, **unknown_members(document, MEMBERS)}


AF = AfCodec()
