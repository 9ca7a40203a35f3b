"""MCP server.json before its camelCase days (2025-07 and earlier), and the registry's envelope around it (neighbours.md §2).

Only spellings and places change here. The envelope's `_meta` joins the server's own: its names are reverse-DNS and cannot
collide.
"""

from __future__ import annotations

from typing import Any

from waypost.model.json import JsonObject
from waypost.model.record import find_object, need_object

OFFICIAL = "io.modelcontextprotocol.registry/official"

_CAMEL = {
    "website_url": "websiteUrl",
    "registry_type": "registryType",
    "registry_name": "registryType",  # May 2025 seed
    "registry_base_url": "registryBaseUrl",
    "file_sha256": "fileSha256",
    "runtime_hint": "runtimeHint",
    "runtime_arguments": "runtimeArguments",
    "package_arguments": "packageArguments",
    "environment_variables": "environmentVariables",
    "is_required": "isRequired",
    "is_secret": "isSecret",
    "is_repeated": "isRepeated",
    "value_hint": "valueHint",
    "transport_type": "type",
}
_LISTS = ("headers", "runtimeArguments", "packageArguments", "environmentVariables")
_OFFICIAL_CAMEL = {
    "published_at": "publishedAt",
    "updated_at": "updatedAt",
    "is_latest": "isLatest",
    "status_message": "statusMessage",
    "status_changed_at": "statusChangedAt",
}


def modern(document: JsonObject) -> JsonObject:
    """The bare server.json in its present form; one that has it already comes back as it is."""
    server = _unwrapped(document)
    server = _status(_version(_camel(server)))
    for name in ("packages", "remotes"):
        if isinstance(server.get(name), list):
            server[name] = [_part(item) if isinstance(item, dict) else item for item in server[name]]
    return server


def is_wrapped(document: JsonObject) -> bool:
    return isinstance(document.get("server"), dict)


def _unwrapped(document: JsonObject) -> JsonObject:
    if not is_wrapped(document):
        return dict(document)
    outer = find_object(document, "_meta") or {}
    server = need_object(document["server"], "$.server")
    inner = find_object(server, "_meta", "$.server") or {}
    beside = {name: value for name, value in document.items() if name not in ("server", "_meta")}
    official = {name: _official(value) for name, value in outer.items()}
    return server | beside | ({"_meta": inner | official} if inner or outer else {})


def _official(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {_OFFICIAL_CAMEL.get(name, name): item for name, item in value.items()}


def _camel(value: JsonObject) -> JsonObject:
    return {name if _CAMEL.get(name, name) in value else _CAMEL.get(name, name): item for name, item in value.items()}


def _version(server: JsonObject) -> JsonObject:
    """`version_detail: {version, release_date, is_latest}`: the version moves up, the rest stays where it was."""
    detail = server.get("version_detail")
    if isinstance(detail, dict) and "version" in detail and "version" not in server:
        server["version"] = detail["version"]
        rest = {name: value for name, value in detail.items() if name != "version"}
        del server["version_detail"]
        if rest:
            server["version_detail"] = rest
    return server


def _status(server: JsonObject) -> JsonObject:
    """`status` at the top level became the registry's business."""
    status = server.get("status")
    if status in ("active", "deprecated", "deleted"):
        del server["status"]
        meta = find_object(server, "_meta") or {}
        server["_meta"] = meta | {OFFICIAL: {"status": status} | (find_object(meta, OFFICIAL, "$._meta") or {})}
    return server


def _part(item: JsonObject) -> JsonObject:
    """A package or a remote. A package of 2025-05 named its package `name` and had no transport: stdio."""
    part = _camel(item)
    for name in _LISTS:
        if isinstance(part.get(name), list):
            part[name] = [_camel(entry) if isinstance(entry, dict) else entry for entry in part[name]]
    if "registryType" not in part:
        return part
    if "identifier" not in part and isinstance(part.get("name"), str):
        part["identifier"] = part.pop("name")
    transport = part.get("transport")
    if isinstance(transport, dict):
        part["transport"] = _camel(transport)
    elif transport is None and any("_" in name for name in item):
        part["transport"] = {"type": part.pop("type", "stdio")}
    return part
