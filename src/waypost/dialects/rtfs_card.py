"""What an agent_card may say: its rules and bounds (rtfs.md §3, P-18), and the older names that are read as today's (P-16).

Every fault of a card is found in one walk, so that its author mends it once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from waypost import limits
from waypost.dialects.rtfs_profile import fits_id
from waypost.errors import InvalidCapability, InvalidDocument
from waypost.model.json import JsonObject, dump_json, kind_of

_VERSION_SUFFIX = re.compile(r"(?:-v(?P<dashed>[0-9]+(?:\.[0-9]+)*)|@(?P<at>[^@/]+))\Z")
UPDATED = "last_updated_timestamp"
_MOVED = {"provider_id": "owner", "last_updated": UPDATED}  # into `metadata`
OLDER_NAMES = tuple(_MOVED)  # each may be read as another member


class Fault(NamedTuple):
    path: str
    reason: str


def check_card(card: JsonObject) -> None:
    """Passes, or lists every fault of a card that has today's names."""
    faults = list(_faults(card))
    if not faults:
        return
    kind = InvalidCapability if all(fault.path.startswith("$.capabilities[") for fault in faults) else InvalidDocument
    first = faults[0]
    raise kind(
        f"{first.path}: {first.reason}",
        path=first.path,
        hint=f"{len(faults) - 1} more faults are listed in errors." if len(faults) > 1 else None,
        details={"errors": [fault._asdict() for fault in faults]},
    )


def modern(document: JsonObject) -> JsonObject:
    """The document with the names of the earlier examples replaced by the card's own, where the card has none yet."""
    card = dict(document)
    if "capabilities" not in card and isinstance(card.get("capabilities_summary"), list):
        card["capabilities"] = [_summary(item) for item in card.pop("capabilities_summary")]
    if "communication" not in card and isinstance(card.get("communication_summary"), list):
        card["communication"] = {"endpoints": card.pop("communication_summary")}
    moved = {name: card.pop(old) for old, name in _MOVED.items() if old in card}
    metadata = card.get("metadata")
    if moved and (metadata is None or isinstance(metadata, dict)):
        card["metadata"] = moved | (metadata or {})
    return card


def _summary(item: Any) -> Any:
    return {"capability_id": item} if isinstance(item, str) else item


def _faults(card: JsonObject) -> Iterator[Fault]:
    size = len(dump_json(card))
    if size > limits.RTFS_CARD_BYTES:
        yield Fault("$", f"the card has {size} bytes; at most {limits.RTFS_CARD_BYTES} are taken")
    yield from _identity_faults(card)
    for at, item in _items(card, "capabilities"):
        yield from _capability_faults(item, f"$.capabilities[{at}]")
    yield from _list_faults(card, "capabilities", limits.RTFS_CAPABILITIES)
    yield from _list_faults(card, "discovery_tags", limits.RTFS_TAGS)
    for at, item in _items(card, "discovery_tags"):
        if not _is_text(item, limits.TAG_CHARS):
            yield Fault(f"$.discovery_tags[{at}]", f"a tag is a text of 1 to {limits.TAG_CHARS} characters")
    yield from _communication_faults(card.get("communication"))
    if not isinstance(card.get("metadata"), (dict, type(None))):
        yield Fault("$.metadata", f"expected an object, found {kind_of(card['metadata'])}")


def _identity_faults(card: JsonObject) -> Iterator[Fault]:
    agent_id = card.get("agent_id")
    if agent_id is None:
        yield Fault("$.agent_id", "missing")
    elif not isinstance(agent_id, str) or not fits_id(agent_id):
        most = limits.RTFS_ID_CHARS
        yield Fault("$.agent_id", f"a text of 1 to {most} characters without spaces and control characters is expected")
    for name, most in (
        ("name", limits.NAME_CHARS),
        ("version", limits.VERSION_CHARS),
        ("description", limits.DESCRIPTION_CHARS),
        ("agent_profile_uri", limits.ENDPOINT_CHARS),
    ):
        yield from _text_faults(card, name, "$", most)


def _text_faults(item: JsonObject, name: str, path: str, most: int) -> Iterator[Fault]:
    value = item.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > most):
        yield Fault(f"{path}.{name}", f"a text of at most {most} characters is expected")


def _is_text(value: Any, most: int) -> bool:
    """A text that says something, within its bound."""
    return isinstance(value, str) and len(value) <= most and bool(value.strip())


def _list_faults(item: JsonObject, name: str, most: int, path: str = "$") -> Iterator[Fault]:
    value = item.get(name)
    if value is None:
        return
    if not isinstance(value, list):
        yield Fault(f"{path}.{name}", f"expected an array, found {kind_of(value)}")
    elif len(value) > most:
        yield Fault(f"{path}.{name}", f"{len(value)} items; at most {most} are taken")


def _items(item: JsonObject, name: str) -> Iterator[tuple[int, Any]]:
    value = item.get(name)
    return iter(enumerate(value)) if isinstance(value, list) else iter(())


def _capability_faults(item: Any, path: str) -> Iterator[Fault]:
    if not isinstance(item, dict):
        yield Fault(path, f"expected an object, found {kind_of(item)}")
        return
    name = item.get("capability_id")
    if not _is_text(name, limits.RTFS_ID_CHARS):
        yield Fault(f"{path}.capability_id", f"a text of 1 to {limits.RTFS_ID_CHARS} characters is expected")
    yield from _text_faults(item, "description", path, limits.DESCRIPTION_CHARS)
    for side in ("input_schema_ref", "output_schema_ref"):
        if not isinstance(item.get(side), (str, dict, type(None))):
            yield Fault(f"{path}.{side}", "a reference (text) or a schema (object) is expected")


def _communication_faults(value: Any) -> Iterator[Fault]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield Fault("$.communication", f"expected an object, found {kind_of(value)}")
        return
    yield from _list_faults(value, "protocols", limits.RTFS_TAGS, "$.communication")
    yield from _list_faults(value, "endpoints", limits.RTFS_ENDPOINTS, "$.communication")
    for at, item in _items(value, "protocols"):
        if not isinstance(item, str) or not item:
            yield Fault(f"$.communication.protocols[{at}]", "a text is expected")
    for at, item in _items(value, "endpoints"):
        yield from _endpoint_faults(item, f"$.communication.endpoints[{at}]")


def _endpoint_faults(item: Any, path: str) -> Iterator[Fault]:
    if not isinstance(item, dict):
        yield Fault(path, f"expected an object, found {kind_of(item)}")
        return
    uri = item.get("uri")
    if not isinstance(uri, str) or not 0 < len(uri) <= limits.ENDPOINT_CHARS or not uri.isprintable() or " " in uri:
        yield Fault(f"{path}.uri", "an address without spaces and control characters is expected")
    protocol = item.get("protocol")
    if protocol is not None and (
        not _is_text(protocol, limits.TAG_CHARS) or not protocol.isprintable() or " " in protocol
    ):
        yield Fault(f"{path}.protocol", f"a word of 1 to {limits.TAG_CHARS} characters is expected, without spaces")
    if not isinstance(item.get("details"), (dict, type(None))):
        yield Fault(f"{path}.details", f"expected an object, found {kind_of(item['details'])}")


def scheme_of(uri: str) -> str:
    """The scheme of an address; the protocol of an endpoint that names none."""
    scheme, colon, _ = uri.partition(":")
    return scheme.lower() if colon and scheme and len(scheme) <= limits.TAG_CHARS else "http"


def split_version(capability_id: str) -> tuple[str, str | None]:
    """`name-v1.2` and `name@1.2.3` as name and version."""
    found = _VERSION_SUFFIX.search(capability_id)
    if found is None or found.start() == 0:
        return capability_id, None
    return capability_id[: found.start()], found["dashed"] or found["at"]
