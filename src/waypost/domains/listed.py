"""What an index says of one agent, in each of the forms that indices have (AID-5). Believes nothing of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from waypost import limits
from waypost.model.json import JsonObject
from waypost.model.resolution import IndexEntry
from waypost.wire.dns_data import is_host


def parse_entry(document: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return msgspec.json.decode(document)
    except msgspec.DecodeError:
        return None


def entries_of_map(parsed: JsonObject) -> Iterator[tuple[JsonObject, IndexEntry]]:
    """`{"name": {"location": {"fqdn", "endpoint"}, "capability": {"protocols": []}}}`."""
    agents = parsed.get("agents") if isinstance(parsed.get("agents"), dict) else parsed
    for name, item in list((agents or {}).items())[: limits.INDEX_AGENTS]:
        location = item.get("location") if isinstance(item, Mapping) else None
        fqdn = location.get("fqdn") if isinstance(location, Mapping) else None
        if isinstance(fqdn, str) and is_host(fqdn.lower().removesuffix(".")):
            domain = fqdn.lower().removesuffix(".")
            yield item, IndexEntry(name=name[:128], domain=domain, protocol=_protocol(item)[:32], via="index")


def _protocol(item: Mapping[str, Any]) -> str:
    capability = item.get("capability")
    protocols = capability.get("protocols") if isinstance(capability, Mapping) else None
    return next((each for each in protocols if isinstance(each, str)), "") if isinstance(protocols, list) else ""


def entry_of(document: bytes, listed_at: str) -> IndexEntry:
    """An entry of a catalogue: where its document is, else the catalogue that holds it."""
    parsed = parse_entry(document)
    told = parsed if isinstance(parsed, dict) else {}
    names = (told.get(key) for key in ("displayName", "name", "identifier", "id"))
    stated = told.get("url")
    url = stated if isinstance(stated, str) and stated.startswith("https://") else listed_at
    name = next((name[:128] for name in names if isinstance(name, str)), "")
    return IndexEntry(name=name, url=url[: limits.FETCH_URL_CHARS], via="catalog")
