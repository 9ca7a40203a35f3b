"""Entries of the MCP registry API (neighbours.md §2): a server.json, and beside it what the registry says of it."""

from __future__ import annotations

from typing import Any, Final

from waypost.model.json import JsonObject
from waypost.model.times import find_instant, to_rfc3339_millis
from waypost.protocols.mcp.legacy import OFFICIAL, upgrade_server

LATEST: Final = "latest"
DELETED: Final = "deleted"
_STATUSES: Final = {"deprecated": "deprecated", "inactive": DELETED}


def registry_status(status: str) -> str:
    """Return the registry's word for the status of a record."""
    return _STATUSES.get(status, "active")


def find_published_at(document: JsonObject) -> float | None:
    """Return when another registry published a server, if the document came from one."""
    official = (upgrade_server(document).get("_meta") or {}).get(OFFICIAL)
    published = official.get("publishedAt") if isinstance(official, dict) else None
    return find_instant(published) if isinstance(published, str) else None


def make_entry(
    server: JsonObject, *, status: str, published_at: float, updated_at: float, is_latest: bool
) -> JsonObject:
    """Return an entry. What another registry said of the server is replaced by the words of this one."""
    official: dict[str, Any] = {
        "status": status,
        "statusChangedAt": to_rfc3339_millis(updated_at),
        "publishedAt": to_rfc3339_millis(published_at),
        "updatedAt": to_rfc3339_millis(updated_at),
        "isLatest": is_latest,
    }
    meta = {name: value for name, value in (server.get("_meta") or {}).items() if name != OFFICIAL}
    bare = {name: value for name, value in server.items() if name != "_meta"}
    return {"server": bare | ({"_meta": meta} if meta else {}), "_meta": {OFFICIAL: official}}
