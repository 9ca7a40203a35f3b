"""AgentMetadata of Agent Framework discovery (agentframework.md §3, §4, §11).

Ids are slugs, endpoints are paths on the service's own host (AF-16, AF-17), and the remainder is carried in `metadata`.
Texts have no control characters (AF-53), a summary (P-13) and bounds (AF-20). Views by query, caching and access belong
to the API.
"""

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
    MappingLoss,
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
_NAME_CHARS, _SUMMARY_CHARS, _DESCRIPTION_BYTES = 256, 512, 16 * limits.KIB  # AF-20, like the next two lines
_TAGS, _TAG_CHARS, _ENDPOINTS = 64, 64, 128
_METADATA_BYTES = 64 * limits.KIB


class AfCodec(Codec):
    name = "af"
    loses = ("$.*",)  # control characters, internal keys, and whatever exceeds 64 KiB of metadata

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
            source_id=record.id,  # the document's own id is local to its application
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
                member("$", name), "Agent Framework responses contain no control characters and no internal keys."
            )
            for name in differing_members(record, served)
        )
        if len(dump_json(document["metadata"])) > _METADATA_BYTES:
            document = _bound_metadata(document)
            losses = tuple(
                MappingLoss(member("$", name), f"AgentMetadata has at most {_METADATA_BYTES} bytes of metadata.")
                for name in differing_members(record, _read(document, context.base_url))
            )
        return Encoded(document=_ordered(_with_times(document, context)), losses=losses)


def responses_schema(url: str) -> JsonObject:
    """Return the schema of every response of this API (AF-32, P-20), named by its own address."""
    return {**load_resource("waypost.protocols.agent_framework", "responses_schema.json"), "$id": url}


def to_summary(full: Mapping[str, Any]) -> JsonObject:
    """Return the summary view of a full AgentMetadata (§4)."""
    return {name: full[name] for name in SUMMARY_MEMBERS if name in full}


def summary_from_record(record: AgentRecord) -> JsonObject:
    """Return the summary view from the record, for lists: equal to `to_summary` of the full view."""
    summary = _text(residue_of(record, "af"), "summary")
    head = _head(record, None if summary is None else strip_control_characters(summary))
    head["name"] = head["name"][:_NAME_CHARS]
    head["summary"] = head["summary"][:_SUMMARY_CHARS]
    head["tags"] = [tag[:_TAG_CHARS] for tag in head["tags"][:_TAGS]]
    return head


# --- Reading --------------------------------------------------------------------------------------


def _base_of(context: DecodeContext) -> str | None:
    """Return the base URL of paths: from the caller, else from the URL of the document."""
    if context.base_url or not context.source_url:
        return context.base_url
    before, found, _ = context.source_url.partition("/.well-known/agentframework/")
    return before if found else origin_of(context.source_url)


def _read(document: JsonObject, base: str | None) -> AgentRecord:
    local_id = need_text(document, "id", most=limits.ID_CHARS)
    if not is_path_safe(local_id):
        raise InvalidDocument(
            f"{local_id[:80]!r} is not a path segment.",
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
    """Return the URL of the representation, because ids are local to an application; the id alone without an origin."""
    return check_id(base.rstrip("/") + AGENTS_PATH + local_id) if base else local_id


def _derived_description(summary: str | None, name: str) -> str:
    """§11: a record needs a description; use the summary, else the name."""
    return summary if summary and summary.strip() else name


def _read_metadata(metadata: JsonObject) -> JsonObject:
    """Return the members of `metadata` that are the profile's. It is free-form: invalid ones belong to the vendor."""
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
    """Return the bindings, and the endpoints without one: unknown origin, another transport, or too many."""
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
        warnings.append("$.endpoints: they give no binding; set the origin of the paths (`base`).")
    if DERIVED in record.extra:
        warnings.append("$.description: missing; derived from the summary or the name.")
    return warnings


# --- Writing --------------------------------------------------------------------------------------


def _sanitized(record: AgentRecord) -> AgentRecord:
    """Return the record without control characters and internal keys (AF-53)."""
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
    """Return the members of the summary view."""
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
    original = residue.get("endpoints")
    items = original if isinstance(original, list) else []
    unbound = [item for item in items if isinstance(item, dict) and not is_http(item)]
    document["endpoints"] = endpoints + unbound
    document["capabilities"] = {}
    for name, text in (("created_at", _text(residue, "created_at")), ("updated_at", record.updated_at)):
        instant = find_instant(text)
        if instant is not None:
            document[name] = to_rfc3339(instant)
    document["metadata"] = _metadata(record, others)
    return bound_members(merge_missing_members(document, unknown_members(residue, ("endpoints", "summary"))))


def bound_members(document: JsonObject) -> JsonObject:
    """AF-20: cut members to their limits; `metadata.truncated` lists those that were cut."""
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
    """Return whether a reader without a description would derive this one."""
    summary = _text(residue, "summary") or summarize(record.description)
    return DERIVED in record.extra and _derived_description(summary, record.name) == record.description


def _metadata(record: AgentRecord, others: list[Binding]) -> JsonObject:
    document = record_to_json(msgspec.structs.replace(record, bindings=tuple(others)))
    metadata: JsonObject = {"canonical_id": record.id}
    metadata |= {name: document[name] for name in _IN_METADATA if name in document}
    if others:
        metadata["bindings"] = document["bindings"]
    return metadata


def _with_rest(document: JsonObject, rest: JsonObject) -> JsonObject:
    if not rest:
        return document
    return {**document, "metadata": {**document["metadata"], CARRY: rest}}


def _with_times(document: JsonObject, context: EncodeContext) -> JsonObject:
    """Add the registry's times where the record has none. They are not part of the record, so the remainder ignores
    them."""
    filled = dict(document)
    for name, instant in (("created_at", context.created_at), ("updated_at", context.updated_at)):
        if name not in filled and instant is not None:
            filled[name] = to_rfc3339(instant)
    return filled


def _bound_metadata(document: JsonObject) -> JsonObject:
    """AF-20: drop the largest members of `metadata` until it fits; `truncated` lists it."""
    cut = document["metadata"].get(TRUNCATED, [])
    metadata = {**document["metadata"], TRUNCATED: [*cut, "metadata"]}
    if CARRY in metadata:
        free_bytes = _METADATA_BYTES - len(dump_json(unknown_members(metadata, (CARRY,)))) - len(CARRY) - 8
        metadata[CARRY] = shrink_remainder(metadata[CARRY], max(free_bytes, 0))
    while len(dump_json(metadata)) > _METADATA_BYTES:
        sizes = {
            name: len(dump_json(part)) for name, part in metadata.items() if name not in ("canonical_id", TRUNCATED)
        }
        del metadata[max(sizes, key=lambda name: sizes[name])]
    return {**document, "metadata": metadata}


def _ordered(document: JsonObject) -> JsonObject:
    """AF-19: order members as in the table, unknown ones last."""
    ordered = {name: document[name] for name in MEMBERS if name in document}
    return {**ordered, **unknown_members(document, MEMBERS)}


# --- Endpoints: paths on one host, and bindings ---------------------------------------------------

METHOD = "x.method"  # member of a binding: the endpoint's method (agentframework.md §11)
ENDPOINT = "x.endpoint"  # member of a binding: the endpoint's other members
_KNOWN = ("method", "path")
_PROTOCOL = "https"  # of the binding of an endpoint, also if its host has no TLS (§11)
_TOKEN = re.compile(r"[A-Za-z!#$%&'*+.^_`|~0-9-]{1,32}\Z")
_PATH = re.compile(r"/(?!/)[^?#\\\s\x00-\x1f\x7f]*\Z")
_DOTS = re.compile(r"(?:^|/)\.\.(?:/|$)")


def origin_of(url: str) -> str | None:
    """Return `scheme://authority` of an http(s) URL in lower case, or None."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
        return None
    return f"{parts.scheme}://{parts.netloc.lower()}"


def is_path(text: str) -> bool:
    """AF-17: an absolute path without authority, query, fragment, `..`, space or control character."""
    return _PATH.match(text) is not None and not _DOTS.search(text)


def is_http(endpoint: Mapping[str, Any]) -> bool:
    """Return whether the endpoint uses HTTP. Readers skip endpoints with another `transport` (AF-17)."""
    transport = endpoint.get("transport")
    if isinstance(transport, dict):
        transport = transport.get("type", transport.get("name"))
    return transport is None or (isinstance(transport, str) and transport.lower() in ("http", "https"))


def to_endpoint(binding: Binding, origin: str | None) -> JsonObject | None:
    """Return the endpoint of a binding; None if the binding is not a path on this host."""
    if origin is None or binding.protocol not in (_PROTOCOL, origin.split(":", 1)[0]):
        return None
    path = binding.endpoint[len(origin) :]
    if not binding.endpoint.startswith(origin) or not is_path(path):
        return None
    method = binding.extra.get(METHOD)
    if not isinstance(method, str) or not _TOKEN.match(method):
        method = "POST"
    return _with_extra_members({"method": method.upper(), "path": path}, binding.extra.get(ENDPOINT))


def _with_extra_members(endpoint: JsonObject, extra: Any) -> JsonObject:
    """Add the endpoint's other members, unless they, which anyone can edit, make it invalid."""
    if not isinstance(extra, dict):
        return endpoint
    restored = {**endpoint, **unknown_members(extra, _KNOWN)}
    try:
        return read_endpoint(restored, "$") if is_http(restored) else endpoint
    except InvalidDocument:
        return endpoint


def read_endpoint(value: Any, path: str) -> JsonObject:
    """Check an endpoint and return it."""
    endpoint = need_object(value, path)
    if not is_http(endpoint):
        return endpoint
    method = need_text(endpoint, "method", path, most=32)
    if not _TOKEN.match(method):
        raise InvalidDocument(f"{method!r} is not an HTTP method.", path=member(path, "method"))
    url_path = need_text(endpoint, "path", path, most=limits.ENDPOINT_CHARS)
    if not is_path(url_path):
        raise InvalidDocument(
            "An endpoint's path must start with one / and must not have a scheme, host, query, fragment, '..' or space.",
            path=member(path, "path"),
            hint="Put URLs on other hosts under metadata.bindings.",
        )
    find_text(endpoint, "description", path, most=limits.DESCRIPTION_CHARS)
    return endpoint


def to_binding(endpoint: JsonObject, origin: str) -> Binding:
    extra: JsonObject = {METHOD: endpoint["method"].upper()}
    others = unknown_members(endpoint, _KNOWN)
    if others:
        extra[ENDPOINT] = others
    return Binding(
        protocol=_PROTOCOL,
        endpoint=origin + endpoint["path"],
        interaction_model="streaming" if endpoint["path"].endswith(":stream") else "request-response",
        extra=extra,
    )


def split_bindings(bindings: Iterable[Binding], origin: str | None) -> tuple[list[JsonObject], list[Binding]]:
    """Return the endpoints of this host, and the other bindings."""
    endpoints: list[JsonObject] = []
    others: list[Binding] = []
    for binding in bindings:
        endpoint = to_endpoint(binding, origin)
        if endpoint is None:
            others.append(binding)
        else:
            endpoints.append(endpoint)
    return endpoints, others


# --- Texts ----------------------------------------------------------------------------------------

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LINE_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ENDS = (re.compile(r"[.!?](?=\s|$)"), re.compile("[。！？]"))  # of a sentence: the second kind needs no space
SUMMARY_CHARS = 200


def strip_control_characters(value: Any) -> Any:
    """Remove control characters from the strings of a JSON value, except line ends and tabs."""
    if isinstance(value, str):
        return value if value.isprintable() else _CONTROL.sub("", value)  # fast path
    if isinstance(value, dict):
        return {strip_control_characters(name): strip_control_characters(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strip_control_characters(item) for item in value]
    return value


def strip_line_controls(text: str, fallback: str) -> str:
    """Return the text on one line without control characters; `fallback` if nothing is left."""
    if text.isprintable() or not _LINE_CONTROL.search(text):
        return text
    return _LINE_CONTROL.sub(" ", text).strip() or fallback


def summarize(description: str) -> str:
    """Return the first sentence, cut at a word boundary."""
    text = " ".join(strip_control_characters(description).split())
    ends = (end.search(text, 1) for end in _ENDS)
    end = next(filter(None, ends), None)
    sentence = text if end is None else text[: end.end()]
    if len(sentence) <= SUMMARY_CHARS:
        return sentence
    head = sentence[: SUMMARY_CHARS - 1]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"


def truncate_bytes(text: str, max_bytes: int) -> str:
    """Cut the text to `max_bytes` of UTF-8, at a character boundary."""
    raw = text.encode("utf-8")
    return text if len(raw) <= max_bytes else raw[:max_bytes].decode("utf-8", "ignore")


AF = AfCodec()
