"""Remotes and packages of a server.json, and the inputs they ask for: what must be there, and of which type (neighbours.md §2).

A client builds a request or a command line out of them, so a part that it could not use is refused, with its place.
"""

from __future__ import annotations

from typing import Final

from waypost import limits
from waypost.dialects.wording import need_endpoint
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.record import find_flag, find_object, find_objects, find_text, need_object, need_text

REMOTE_TYPES: Final = ("streamable-http", "sse")
_PACKAGE_TYPES: Final = ("stdio", *REMOTE_TYPES)


def check_remote(item: JsonObject, path: str) -> None:
    need_endpoint(item, "url", path)
    _check_type(item, path, REMOTE_TYPES)
    _check_inputs(item, "headers", path, named=True)
    for name, value in (find_object(item, "variables", path) or {}).items():
        where = member(f"{path}.variables", name)
        _check_input(need_object(value, where), where)


def check_package(item: JsonObject, path: str) -> None:
    need_text(item, "registryType", path, most=limits.TAG_CHARS)
    need_endpoint(item, "identifier", path)
    find_text(item, "version", path, most=limits.VERSION_CHARS)
    for name in ("registryBaseUrl", "fileSha256", "runtimeHint"):
        find_text(item, name, path, most=limits.ENDPOINT_CHARS)
    for name in ("runtimeArguments", "packageArguments"):
        _check_inputs(item, name, path)
    _check_inputs(item, "environmentVariables", path, named=True)
    where = f"{path}.transport"
    if "transport" not in item:
        raise InvalidDocument("The package names no transport.", path=where, hint='Add {"type":"stdio"}.')
    transport = need_object(item["transport"], where)
    _check_type(transport, where, _PACKAGE_TYPES)
    find_text(transport, "url", where, most=limits.ENDPOINT_CHARS)
    _check_inputs(transport, "headers", where, named=True)


def _check_type(item: JsonObject, path: str, known: tuple[str, ...]) -> None:
    kind = need_text(item, "type", path, most=limits.TAG_CHARS)
    if kind not in known:
        raise InvalidDocument(f"{kind!r} is not a transport.", path=f"{path}.type", hint=f"Use {' or '.join(known)}.")


def _check_inputs(item: JsonObject, name: str, path: str, *, named: bool = False) -> None:
    """Arguments, or what goes by a name: a header or a variable without one cannot be set."""
    for entry, where in find_objects(item, name, path, most=limits.JSON_ARRAY_ITEMS):
        if named:
            need_text(entry, "name", where, most=limits.ID_CHARS)
        _check_input(entry, where)


def _check_input(entry: JsonObject, path: str) -> None:
    for name in ("name", "description", "value"):
        find_text(entry, name, path, most=limits.DOCUMENT_BYTES)
    for name in ("isRequired", "isSecret"):
        find_flag(entry, name, path)
