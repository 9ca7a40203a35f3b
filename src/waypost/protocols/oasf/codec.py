"""OASF / AGNTCY records, v1 (neighbours.md §4, §5).

The id of a record is `name@version`. Endpoints come from a2a and mcp modules and from locators. Tags that name a class of
the taxonomy become skills and domains; the others are listed in the annotation TAGS. `annotations` are the format's
free-form place, but hold strings only: the remainder is carried there as JSON text under CARRY. The prefix `agntcy.` is
reserved and never written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument, MalformedJson
from waypost.model.json import JsonObject, dump_json, kind_of, member, parse_json
from waypost.model.names import domain_of, hash_slug
from waypost.model.record import (
    AgentRecord,
    Binding,
    check_id,
    find_integer,
    find_object,
    find_objects,
    find_text,
    find_texts,
    need_object,
    need_text,
)
from waypost.model.times import parse_rfc3339, to_rfc3339
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
    check_endpoint,
    collect_tags,
    cut_losses,
    make_remainder,
    need_cut_text,
    need_endpoint,
    residue_members,
    residue_of,
    restore_wording,
    unknown_members,
)
from waypost.protocols.oasf.taxonomy import TaxonomyClass, classify_tags, find_class_name
from waypost.protocols.record_reader import check_times

SCHEMA_VERSION = "1.0.0"
PROTOCOL = "org.waypost.protocol"  # annotation of a url locator whose protocol is not https
TAGS = "org.waypost.tags"  # annotation of the record: its tags that name no class, as a JSON array

_HTTPS = "https"
_A2A_TYPE = "application/a2a-agent-card+json"
_MCP_TYPE = "application/mcp-server-card+json"
_ARTIFACTS = ("helm_chart", "container_image", "package", "source_code", "binary")
_OLDER_ARTIFACTS = {"docker_image": "container_image", "python_package": "package"}  # before 0.8
_MCP_TRANSPORTS = {"http": "streamable-http", "streamable": "streamable-http"}  # other names for it in connections
_RESERVED = ("agntcy.", "org.waypost.")
_DEFAULT_VERSION = "1.0.0"
_CARRY_PATH = f"$.annotations[{CARRY!r}]"
_BOUNDS = {"name": limits.NAME_CHARS, "description": limits.DESCRIPTION_CHARS}
_GROUPS = (
    MemberGroup(("name",), ("name",)),
    MemberGroup(("description",), ("description",)),
    MemberGroup(
        ("modules", "extensions", "locators"), ("bindings", "auth"), {"modules": "locators", "extensions": "locators"}
    ),
    MemberGroup(("skills", "domains"), ("tags",)),
    MemberGroup(("annotations",), ("constraints",)),
    MemberGroup(("authors", "schema_version"), ()),
)
_NO_BINDING = "$.locators: neither a locator nor an a2a or mcp module has an endpoint; it is registered without one."


class OasfCodec(Codec):
    name = "oasf"

    def __init__(self, read_embedded: EmbeddedReader) -> None:
        self._read_embedded = read_embedded

    def recognises(self, document: Mapping[str, Any]) -> bool:
        marks = ("authors", "created_at", "locators", "modules", "domains")
        return "schema_version" in document and "skills" in document and any(mark in document for mark in marks)

    def decode(self, document: JsonObject, context: DecodeContext) -> Decoded:
        source, carried = _split_carried(document)
        record = apply_remainder(self._read_with_residue(source), carried, _CARRY_PATH)
        check_times(record, context.now, updated_at="$.created_at", expires_at=_CARRY_PATH)
        source_id = record.id if carries_id(carried) else _identity(source)
        warnings = [*_warnings(source), *(() if record.bindings else (_NO_BINDING,))]
        losses = () if carried else cut_losses(source, _BOUNDS)
        return Decoded(record=record, source_id=source_id, losses=losses, warnings=tuple(warnings))

    def encode(self, record: AgentRecord, context: EncodeContext) -> Encoded:
        residue = residue_of(record, self.name, "annotations")
        document = restore_wording(_write(record, context), residue, record, _GROUPS, self._read)
        carried = make_remainder(record, self._read_with_residue(document))
        if carried:
            text = dump_json(carried).decode()
            document = document | {"annotations": {**document.get("annotations", {}), CARRY: text}}
        return Encoded(document=document)

    def _read_with_residue(self, source: JsonObject) -> AgentRecord:
        record = self._read(source)
        residue = residue_members(source, _write(record, EncodeContext(now=0)))
        if residue.keys() & {"modules", "extensions"} and "locators" in source:
            residue["locators"] = source["locators"]  # together they determine the bindings
        return attach_residue(record, self.name, residue)

    def _read(self, source: JsonObject) -> AgentRecord:
        """Read the native members of an OASF record."""
        _check(source)
        created_at = need_text(source, "created_at", most=limits.TAG_CHARS, what="time such as 2026-05-08T00:00:00Z")
        parse_rfc3339(created_at, "$.created_at")
        cards = list(self._cards(source))
        return AgentRecord(
            id=_identity(source),
            name=need_cut_text(source, "name", most=limits.NAME_CHARS),
            description=need_cut_text(source, "description", most=limits.DESCRIPTION_CHARS),
            bindings=self._bindings(source, cards),
            tags=collect_tags(_terms(source, "skills"), _terms(source, "domains"), _unmapped_tags(source)),
            auth=cards[0].auth if cards else None,
            constraints=_constraints(source),
            version=need_text(source, "version", most=limits.VERSION_CHARS),
            updated_at=created_at,
        )

    def _cards(self, source: JsonObject) -> Iterator[AgentRecord]:
        """Read the A2A cards in modules. Invalid cards are skipped; the module itself is kept either way."""
        for data in _modules(source, "a2a"):
            try:
                card = self._read_embedded(_A2A_TYPE, need_object(data.get("card_data", data), "$"))
            except InvalidDocument:
                continue
            if card is not None:
                yield card

    def _bindings(self, source: JsonObject, cards: list[AgentRecord]) -> tuple[Binding, ...]:
        bindings = [binding for card in cards for binding in card.bindings]
        for data in _modules(source, "mcp"):
            bindings += self._mcp_bindings(data)
        for locator in source.get("locators") or ():
            bindings += [Binding(protocol=_protocol(locator), endpoint=url) for url in _urls(locator)]
        return tuple(bindings[: limits.BINDINGS])

    def _mcp_bindings(self, data: JsonObject) -> tuple[Binding, ...]:
        """Read a server.json, or OASF's own connections; stdio connections have no address."""
        try:
            if "remotes" in data or "packages" in data:
                server = data
            else:
                remotes = [remote for item in _connections(data) if (remote := _find_remote(item)) is not None]
                server = {"name": "oasf/connections", "description": "-", "version": "1.0.0", "remotes": remotes}
            embedded = self._read_embedded(_MCP_TYPE, server)
        except InvalidDocument:
            return ()
        return () if embedded is None else embedded.bindings


def _split_carried(document: JsonObject) -> tuple[JsonObject, Any]:
    """Return the record without the remainder, and the remainder."""
    annotations = find_object(document, "annotations")
    if not annotations:
        return unknown_members(document, ("annotations",)), None
    text = find_text(annotations, CARRY, "$.annotations", most=limits.DOCUMENT_BYTES)
    if text is None:
        return document, None
    rest = unknown_members(annotations, (CARRY,))
    source = unknown_members(document, ("annotations",)) | ({"annotations": rest} if rest else {})
    try:
        return source, parse_json(text.encode())
    except MalformedJson as error:
        raise InvalidDocument(error.message, path=_CARRY_PATH, hint="Leave the annotation out.") from None


# --- OASF -> record -------------------------------------------------------------------------------


def _check(source: JsonObject) -> None:
    need_text(source, "schema_version", most=limits.TAG_CHARS)
    for name in ("authors", "skills"):
        if source.get(name) is None:
            raise InvalidDocument(
                f"The member {name!r} is missing.", path=member("$", name), hint="Add it as an array; it may be empty."
            )
    find_texts(source, "authors", most=limits.JSON_ARRAY_ITEMS, chars=limits.ENDPOINT_CHARS)
    for name, check in _ITEM_CHECKS.items():
        for item, path in find_objects(source, name, most=limits.JSON_ARRAY_ITEMS):
            check(item, path)
    _check_annotations(source, "$")


def _check_class(item: JsonObject, path: str) -> None:
    """Check a skill or a domain. In 0.3 it has `class_name` instead of `name`."""
    find_text(item, "name", path, most=limits.ID_CHARS)
    find_integer(item, "id", path)
    _check_annotations(item, path)


def _check_module(item: JsonObject, path: str) -> None:
    find_text(item, "name", path, most=limits.ID_CHARS)
    find_integer(item, "id", path)
    for name in ("data", "artifact"):
        find_object(item, name, path)


def _check_locator(locator: JsonObject, path: str) -> None:
    need_text(locator, "type", path, most=limits.TAG_CHARS)
    _check_annotations(locator, path)
    find_texts(locator, "urls", path, most=limits.JSON_ARRAY_ITEMS, chars=limits.ENDPOINT_CHARS)
    if not locator.get("urls"):
        if locator.get("url") is None:
            raise InvalidDocument("The locator has no URL.", path=f"{path}.urls", hint="Add it as an array of strings.")
        need_endpoint(locator, "url", path)
    for index, url in enumerate(locator.get("urls") or ()):
        check_endpoint(url, f"{path}.urls[{index}]")


def _check_annotations(holder: JsonObject, path: str) -> None:
    for name, value in (find_object(holder, "annotations", path) or {}).items():
        if not isinstance(value, str):
            raise InvalidDocument(
                f"An annotation must be a string, not {kind_of(value)}.",
                path=member(member(path, "annotations"), name),
                hint="Quote it.",
            )


_ITEM_CHECKS = {
    "skills": _check_class,
    "domains": _check_class,
    "locators": _check_locator,
    "modules": _check_module,
    "extensions": _check_module,
}


def _urls(locator: JsonObject) -> list[str]:
    """Return `urls`; before 0.8 a locator had one `url`."""
    return locator.get("urls") or [locator["url"]]


def _identity(source: JsonObject) -> str:
    """Return `name@version`. Names may contain spaces, ids may not."""
    text = f"{need_text(source, 'name', most=limits.DOCUMENT_BYTES)}@{need_text(source, 'version', most=limits.VERSION_CHARS)}"
    name = re.sub(r"\s+", "-", text.strip())
    fits = name.isprintable() and len(name) <= limits.ID_CHARS
    return check_id(name if fits else hash_slug(name), "$.name")


def _terms(source: JsonObject, name: str) -> Iterator[str]:
    """Yield each taxonomy name twice: its last segment, then the full path. A class may be named by its id alone."""
    for item in source.get(name) or ():
        term = item.get("name") or item.get("class_name")  # 0.3
        if term is None and isinstance(item.get("id"), int):
            term = find_class_name(name, item["id"])
        if isinstance(term, str):
            yield term.rpartition("/")[2]
            yield term


def _unmapped_tags(source: JsonObject) -> list[Any]:
    """Return the tags in the annotation TAGS; anyone can write one, so text that is no JSON array holds none."""
    text = (find_object(source, "annotations") or {}).get(TAGS)
    try:
        tags = parse_json(text.encode()) if isinstance(text, str) else []
    except MalformedJson:
        return []
    return tags if isinstance(tags, list) else []


def _constraints(source: JsonObject) -> JsonObject | None:
    annotations = find_object(source, "annotations") or {}
    return {name: value for name, value in annotations.items() if not name.startswith(_RESERVED)} or None


def _modules(source: JsonObject, kind: str) -> Iterator[JsonObject]:
    """Yield the data of modules such as `integration/a2a` or `runtime/a2a`; until 0.3 they were called extensions."""
    for item in (*(source.get("modules") or ()), *(source.get("extensions") or ())):
        if str(item.get("name")).rpartition("/")[2] == kind and isinstance(item.get("data"), dict):
            yield item["data"]


def _connections(data: JsonObject) -> list[JsonObject]:
    """Return the connections of an mcp module. Until 0.7 they were `servers`: a list, or an object with their names."""
    servers = data.get("servers")
    if "connections" not in data and isinstance(servers, dict):
        return [item for item in servers.values() if isinstance(item, dict)]
    name = "connections" if "connections" in data else "servers"
    return [item for item, _ in find_objects(data, name, most=limits.JSON_ARRAY_ITEMS)]


def _find_remote(connection: JsonObject) -> JsonObject | None:
    """Return a connection with an address as a remote of a server.json."""
    if connection.get("url") is None:
        return None
    kind = connection.get("type") or connection.get("transport") or "streamable-http"
    plain = kind.replace("_", "-") if isinstance(kind, str) else kind
    return {"type": _MCP_TRANSPORTS.get(plain, plain), "url": connection["url"]}


def _protocol(locator: JsonObject) -> str:
    kind: str = locator["type"]
    if kind != "url":
        plain = kind.replace("-", "_")
        return plain if plain in _ARTIFACTS else _OLDER_ARTIFACTS.get(plain, kind)
    named = (locator.get("annotations") or {}).get(PROTOCOL)
    return named if isinstance(named, str) and 0 < len(named.strip()) <= limits.TAG_CHARS else _HTTPS


def _warnings(source: JsonObject) -> list[str]:
    if source["schema_version"].lstrip("v").startswith("1."):
        return []
    return [
        f"$.schema_version: {source['schema_version'][:20]} is older than 1.0; what 1.0 has no member for is kept, but not read."
    ]


# --- Record -> OASF -------------------------------------------------------------------------------


def _write(record: AgentRecord, context: EncodeContext) -> JsonObject:
    version = record.version or ""
    classes = classify_tags(record.tags)
    document: JsonObject = {
        "name": record.name,
        "version": version if version.strip() else _DEFAULT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "description": record.description,
        "authors": [domain_of(record.id) or context.host],
        "created_at": record.updated_at or to_rfc3339(context.created_at or context.updated_at or context.now),
        "skills": _write_classes(classes.skills),
    }
    if classes.domains:
        document["domains"] = _write_classes(classes.domains)
    if record.bindings:
        document["locators"] = [_write_locator(binding) for binding in record.bindings]
    texts = {
        name: value
        for name, value in (record.constraints or {}).items()
        if isinstance(value, str) and not name.startswith(_RESERVED)
    }
    if classes.unmapped:
        texts[TAGS] = dump_json(list(classes.unmapped)).decode()
    return document | ({"annotations": texts} if texts else {})


def _write_classes(classes: Iterable[TaxonomyClass]) -> list[JsonObject]:
    return [{"name": item.name, "id": item.id} for item in classes]


def _write_locator(binding: Binding) -> JsonObject:
    if binding.protocol in _ARTIFACTS:
        return {"type": binding.protocol, "urls": [binding.endpoint]}
    locator: JsonObject = {"type": "url", "urls": [binding.endpoint]}
    return locator if binding.protocol == _HTTPS else locator | {"annotations": {PROTOCOL: binding.protocol}}
