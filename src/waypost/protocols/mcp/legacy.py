"""Upgrade of MCP server.json from 2025-07 and earlier (snake_case), and of the registry's envelope (neighbours.md §2).

Only names and places change. The envelope's `_meta` is merged into the server's own: names are reverse-DNS and cannot
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
)  # names in a server that the upgrade changes
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
    """Return the bare server.json in the current form; a current one is unchanged."""
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
                f"{name!r} must be inside `server`, not beside it.", path="$.server", hint="Move it into `server`."
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
    """Move the version out of `version_detail: {version, release_date, is_latest}`; the rest stays."""
    detail = server.get("version_detail")
    if isinstance(detail, dict) and "version" in detail and "version" not in server:
        server["version"] = detail["version"]
        rest = {name: value for name, value in detail.items() if name != "version"}
        del server["version_detail"]
        if rest:
            server["version_detail"] = rest
    return server


def _status(server: JsonObject) -> JsonObject:
    """Move a top-level `status` into the registry's `_meta`."""
    status = server.get("status")
    if status in ("active", "deprecated", "deleted"):
        del server["status"]
        meta = find_object(server, "_meta") or {}
        server["_meta"] = meta | {OFFICIAL: {"status": status} | (find_object(meta, OFFICIAL, "$._meta") or {})}
    return server


def _part(item: Any, path: str) -> Any:
    """Upgrade a package or remote. A package of 2025-05 has `name` for `identifier` and no transport: stdio."""
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
