"""Upgrade of MCP server.json from 2025-07 and earlier (snake_case), and of the registry's envelopes (neighbours.md §2).

Only names and places change. The envelope's `_meta` is merged into the server's own: names are reverse-DNS and cannot
collide. The envelope of August 2025 has members of its own instead, `x-publisher` and `x-io.modelcontextprotocol.registry`.
"""

from __future__ import annotations

from typing import Any

from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import find_object, need_object
from waypost.protocols.codec import rename_members

OFFICIAL = "io.modelcontextprotocol.registry/official"
_PUBLISHER = "io.modelcontextprotocol.registry/publisher-provided"
_X_OFFICIAL = "x-io.modelcontextprotocol.registry"
_X_PUBLISHER = "x-publisher"
_TRANSPORTS = {"streamable": "streamable-http"}  # of remotes, before 2025-09
_REGISTRY_TYPES = {"docker": "oci", "docker-hub": "oci", "github-releases": "mcpb"}  # before 2025-09
_SHA_256 = "sha-256"

CAMEL_CASE_NAMES = {
    "website_url": "websiteUrl",
    "registry_type": "registryType",
    "registry_name": "registryType",  # until August 2025
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
    "version_detail",
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
    "release_date": "publishedAt",
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
    outer = outer | {
        current: document[name]
        for name, current in ((_X_OFFICIAL, OFFICIAL), (_X_PUBLISHER, _PUBLISHER))
        if isinstance(document.get(name), dict) and current not in outer
    }
    moved = ("server", "_meta", _X_OFFICIAL, _X_PUBLISHER)
    beside = {name: value for name, value in document.items() if name not in moved}
    for name in beside:
        if CAMEL_CASE_NAMES.get(name, name) in _MEMBERS:
            raise InvalidDocument(
                f"{name!r} must be inside `server`, not beside it.", path="$.server", hint="Move it into `server`."
            )
    official = {name: _official(value) if isinstance(value, dict) else value for name, value in outer.items()}
    return server | beside | ({"_meta": inner | official} if inner or outer else {})


def _official(value: JsonObject) -> JsonObject:
    if "published_at" in value:  # the release date repeats it
        value = {name: item for name, item in value.items() if name != "release_date"}
    return rename_members(value, _OFFICIAL, "$._meta")


def _camel(value: Any, path: str) -> Any:
    return rename_members(value, CAMEL_CASE_NAMES, path) if isinstance(value, dict) else value


def _version(server: JsonObject) -> JsonObject:
    """Move the version out of `version_detail: {version, release_date, is_latest}`, and the rest, which the registry says,
    into its `_meta`."""
    detail = server.get("version_detail")
    if isinstance(detail, dict) and "version" in detail and "version" not in server:
        server["version"] = detail["version"]
        rest = {name: value for name, value in detail.items() if name != "version"}
        del server["version_detail"]
        server = _with_official(server, _official(rest)) if rest else server
    return server


def _with_official(server: JsonObject, members: JsonObject) -> JsonObject:
    """Add what a registry says of the server; what its `_meta` has already stays."""
    meta = find_object(server, "_meta") or {}
    return server | {"_meta": meta | {OFFICIAL: members | (find_object(meta, OFFICIAL, "$._meta") or {})}}


def _status(server: JsonObject) -> JsonObject:
    """Move a top-level `status` into the registry's `_meta`."""
    status = server.get("status")
    if status in ("active", "deprecated", "deleted"):
        del server["status"]
        server = _with_official(server, {"status": status})
    return server


def _part(item: Any, path: str) -> Any:
    """Upgrade a package or remote. A package of 2025-05 has `name` for `identifier` and no transport: stdio."""
    if not isinstance(item, dict):
        return item
    part = _variables(_inputs(_registry(_camel(item, path)), path), path)
    if "registryType" not in part:
        if isinstance(part.get("type"), str):
            part["type"] = _TRANSPORTS.get(part["type"], part["type"])
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
            part[name] = [_input(entry, f"{path}.{name}[{index}]") for index, entry in enumerate(part[name])]
    return part


def _input(entry: Any, path: str) -> Any:
    return _variables(_camel(entry, path), path) if isinstance(entry, dict) else entry


def _variables(holder: JsonObject, path: str) -> JsonObject:
    if isinstance(holder.get("variables"), dict):
        where = f"{path}.variables"
        holder["variables"] = {name: _camel(value, member(where, name)) for name, value in holder["variables"].items()}
    return holder


def _registry(part: JsonObject) -> JsonObject:
    """Name a package's registry as today. In 2025-08 it had `package_type` beside it, and `file_hashes`."""
    if "package_type" in part and isinstance(part.get("registry"), str):
        part.setdefault("registryType", part.pop("registry"))
    kind = part.get("registryType")
    if not isinstance(kind, str):
        return part
    part["registryType"] = _REGISTRY_TYPES.get(kind, kind)
    part.pop("package_type", None)
    hashes = part.get("file_hashes")
    if isinstance(hashes, dict) and hashes.keys() == {_SHA_256} and "fileSha256" not in part:
        part["fileSha256"] = part.pop("file_hashes")[_SHA_256]
    return part
