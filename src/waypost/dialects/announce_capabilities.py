"""The announce protocol's `capabilities`: names with a version or a text, in the three shapes that are seen (announce.md §1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, kind_of, member
from waypost.model.record import AgentRecord

CAPABILITIES = 64
NAME_CHARS = 64


def read_capabilities(agent: JsonObject, path: str) -> dict[str, str]:
    """Name → version or text, nested ones flattened with `/`. Missing or not an object: refused (ANN-2)."""
    where = member(path, "capabilities")
    if "capabilities" not in agent:
        raise InvalidDocument("The member 'capabilities' is missing.", path=where, hint="Add it; it may be {}.")
    value = agent["capabilities"]
    if not isinstance(value, dict):
        raise InvalidDocument(f"'capabilities' must be an object, not {kind_of(value)}.", path=where)
    if len(value) > CAPABILITIES:
        raise InvalidDocument(f"{len(value)} capabilities; at most {CAPABILITIES} are allowed.", path=where)
    return dict(_flat(value, "", where))


def _flat(value: JsonObject, prefix: str, path: str) -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        where = member(path, name)
        if not is_name(name):
            raise InvalidDocument(f"A capability's name has 1 to {NAME_CHARS} visible characters.", path=where)
        if isinstance(item, str):
            yield prefix + name, item
        elif not isinstance(item, dict):
            raise InvalidDocument(
                f"A capability is told by a string, not {kind_of(item)}.", path=where, hint='Write {"name": "1.0"}.'
            )
        elif not item or isinstance(item.get("version"), str):
            yield prefix + name, item.get("version", "")
        elif all(isinstance(inner, (str, dict)) for inner in item.values()):
            yield from _flat(item, f"{prefix}{name}/", where)
        else:
            yield prefix + name, ""


def is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS and text.isprintable() and bool(text.strip())


def to_tags(capabilities: dict[str, str]) -> tuple[str, ...]:
    """The names that can be tags; the rest stays in the document's own wording."""
    return tuple(name for name in capabilities if len(name) <= limits.TAG_CHARS)[: limits.TAGS]


def write_capabilities(record: AgentRecord, own: Any) -> JsonObject:
    """The document's own wording while it still names the record's tags, else one capability for each tag."""
    if isinstance(own, dict):
        try:
            if to_tags(read_capabilities({"capabilities": own}, "$")) == record.tags:
                return own
        except InvalidDocument:  # anybody may write our residue into a profile document
            pass
    versions = (record.constraints or {}).get("capabilities")
    known = versions if isinstance(versions, dict) else {}
    return {tag: known[tag] if isinstance(known.get(tag), str) else "" for tag in record.tags if is_name(tag)}
