"""AI catalogs (ard.md §1): written for /.well-known/ai-catalog.json, and read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject
from waypost.model.record import find_object, need_array, need_object, need_text
from waypost.protocols.ard.codec import MAX_QUERIES, MIN_QUERIES, is_metadata_value, parse_urn, publisher_of
from waypost.protocols.codec import CARRY

CATALOG_STATUSES = ("active", "testing")  # of agents in a catalog (§10)
_REGISTRY_TYPE = "application/ai-registry+json"
_SPEC_VERSION = "1.0"


def build_catalog(entries: Iterable[JsonObject], host: JsonObject | None) -> JsonObject:
    """Make a catalog in the form of ARD's own schema; each `(identifier, version)` occurs once."""
    listed: dict[tuple[str, Any], JsonObject] = {}
    for entry in map(catalog_entry, entries):
        listed.setdefault((entry["identifier"], entry.get("version")), entry)
    document: JsonObject = {"specVersion": _SPEC_VERSION}
    if host is not None:
        document["host"] = host
    return document | {"entries": list(listed.values())}


def catalog_entry(entry: JsonObject) -> JsonObject:
    """Return an entry in the form of a catalog (P-3, P-4, ARD-4, ARD-16), without the remainder."""
    listed = {name: value for name, value in entry.items() if name != CARRY and value is not None}
    kind = listed.pop("mediaType", None)
    listed = {**listed, "identifier": str(parse_urn(entry["identifier"])), "type": listed.get("type", kind)}
    queries = listed.pop("representativeQueries", [])[:MAX_QUERIES]
    if len(queries) >= MIN_QUERIES:
        listed["representativeQueries"] = queries
    if "metadata" in listed:
        listed["metadata"] = {name: value for name, value in listed["metadata"].items() if is_metadata_value(value)}
    return listed


def host_entry(display_name: str, host: str) -> JsonObject:
    """Return the publisher of the catalog (ARD-3)."""
    return {"displayName": display_name, "identifier": publisher_of(host)}


def registry_entry(base_url: str, host: str) -> JsonObject:
    """Return the service's own entry: the registry behind the catalog."""
    return {
        "identifier": f"urn:air:{publisher_of(host)}:registry:waypost",
        "displayName": "Waypost registry",
        "type": _REGISTRY_TYPE,
        "url": f"{base_url.rstrip('/')}/ard/",
        "description": "Finds agents by what they can do, through the protocols they speak.",
        "tags": ["discovery", "registry"],
        "representativeQueries": ["find an agent that translates invoices", "which agents can forecast the weather"],
    }


def read_catalog(document: JsonObject) -> list[JsonObject]:
    """Read the entries of a catalog of major version 1; unknown members are ignored (P-1)."""
    _check_version(need_text(document, "specVersion", most=limits.TAG_CHARS))
    if "collections" in document:
        raise InvalidDocument(
            "The member `collections` was removed from the format.",
            path="$.collections",
            hint="List them among the entries.",
        )
    host = find_object(document, "host")
    if host is not None:
        need_text(host, "displayName", "$.host", most=limits.NAME_CHARS)
    items = need_array(document.get("entries"), "$.entries", limits.CATALOG_ENTRIES)
    entries = [need_object(item, f"$.entries[{index}]") for index, item in enumerate(items)]
    _check_unique(entries)
    return entries


def _check_version(version: str) -> None:
    major = version.partition(".")[0]
    if major != "1":
        raise InvalidDocument(
            f"The specVersion {version!r} is not supported.",
            path="$.specVersion",
            hint="Use 1.x.",
        )


def _check_unique(entries: list[JsonObject]) -> None:
    first: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(entries):
        key = (str(entry.get("identifier")), str(entry.get("version")))
        if key in first:
            raise InvalidDocument(
                f"{key[0][:80]!r} is listed twice, first as entry {first[key]}.",
                path=f"$.entries[{index}].identifier",
                hint="List each version of an entry once.",
            )
        first[key] = index
