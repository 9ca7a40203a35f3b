"""MCP server.json before its camelCase days (2025-07 and earlier), and the registry's envelope around it (neighbours.md §2).

Only spellings and places change here. The envelope's `_meta` joins the server's own: its names are reverse-DNS and cannot
collide.
"""

from __future__ import annotations

from typing import Any

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import find_object, need_object
from waypost.protocols.codec import rename_members

OFFICIAL = "io.modelcontextprotocol.registry/official"

CAMEL_CASE_NAMES = {
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
OLDER_NAMES = (
    *CAMEL_CASE_NAMES,
    "status",
    "server",
)  # of a server: each may be read as another member, or as an envelope
_MEMBERS = (
    "name",
    "title",
    "description",
    "version",
    "version_detail",
    "status",
    "websiteUrl",
    "icons",
    "repository",
    "packages",
    "remotes",
)
_LISTS = ("headers", "runtimeArguments", "packageArguments", "environmentVariables")
_OFFICIAL = {
    "published_at": "publishedAt",
    "updated_at": "updatedAt",
    "is_latest": "isLatest",
    "status_message": "statusMessage",
    "status_changed_at": "statusChangedAt",
}


def upgrade_server(document: JsonObject) -> JsonObject:
    """The bare server.json in its present form; one that has it already comes back as it is."""
    server = _unwrapped(document)
    server = _status(_version(_camel(server, "$")))
    for name in ("packages", "remotes"):
        if isinstance(server.get(name), list):
            server[name] = [_part(item, f"$.{name}[{index}]") for index, item in enumerate(server[name])]
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
    for name in beside:
        if CAMEL_CASE_NAMES.get(name, name) in _MEMBERS:
            raise InvalidDocument(
                f"{name!r} belongs to the server and stands beside it.", path="$.server", hint="Put it into `server`."
            )
    official = {name: _official(value) for name, value in outer.items()}
    return server | beside | ({"_meta": inner | official} if inner or outer else {})


def _official(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return rename_members(value, _OFFICIAL, "$._meta")


def _camel(value: Any, path: str) -> Any:
    return rename_members(value, CAMEL_CASE_NAMES, path) if isinstance(value, dict) else value


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


def _part(item: Any, path: str) -> Any:
    """A package or a remote. A package of 2025-05 named its package `name` and had no transport: stdio."""
    if not isinstance(item, dict):
        return item
    part = _inputs(_camel(item, path), path)
    if isinstance(part.get("variables"), dict):
        where = f"{path}.variables"
        part["variables"] = {name: _camel(value, member(where, name)) for name, value in part["variables"].items()}
    if "registryType" not in part:
        return part
    if "identifier" not in part and isinstance(part.get("name"), str):
        part["identifier"] = part.pop("name")
    transport = part.get("transport")
    if isinstance(transport, dict):
        part["transport"] = _inputs(_camel(transport, f"{path}.transport"), f"{path}.transport")
    elif transport is None and any("_" in name for name in item):
        part["transport"] = {"type": part.pop("type", "stdio")}
    return part


def _inputs(part: JsonObject, path: str) -> JsonObject:
    for name in _LISTS:
        if isinstance(part.get(name), list):
            part[name] = [_camel(entry, f"{path}.{name}[{index}]") for index, entry in enumerate(part[name])]
    return part
