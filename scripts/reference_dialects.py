"""Where each member of a record goes in each dialect, found by writing one and looking for its values.

So the mapping tables of docs/reference/dialects.md cannot drift from the codecs: they are what the codecs did.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waypost.model.record import AgentRecord, record_from_json
from waypost.protocols.codec import Codec, EncodeContext, Encoded
from waypost.protocols.dialects import DIALECTS

CARRIED = ("org.waypost.record", "org.waypost/record", "urn:waypost:record")

# A record in which every value can be told from every other.
SAMPLE = {
    "id": "https://alpha.example.com/id/alpha",
    "name": "Name of Alpha",
    "description": "Description of alpha.",
    "tags": ["tag-of-alpha"],
    "examples": [
        {"id": "example-1", "text": "Text of an example.", "input_schema": {"title": "input-of-alpha"}},
        {"id": "example-2", "text": "Another text of an example."},
    ],
    "bindings": [
        {"protocol": "https", "endpoint": "https://alpha.example.com/invoke-alpha", "priority": 0},
        {"protocol": "mcp", "endpoint": "https://alpha.example.com/mcp/invoke-alpha", "priority": 1},
        {"protocol": "agp", "endpoint": "wss://alpha.example.com/chat/invoke-alpha", "priority": 2},
    ],
    "auth": {"schemes": [{"type": "auth-of-alpha"}]},
    "constraints": {"region": "region-of-alpha"},
    "status": "testing",
    "expires_at": "2099-01-02T03:04:05Z",
    "version": "4.5.6",
    "updated_at": "2024-05-06T07:08:09Z",
    "signature": {"value": "signature-of-alpha"},
    "com.example.note": "extra-of-alpha",
}
MARKS = {
    "id": "https://alpha.example.com/id/alpha",
    "name": "Name of Alpha",
    "description": "Description of alpha.",
    "tags": "tag-of-alpha",
    "examples[].text": "Text of an example.",
    "examples[].input_schema": "input-of-alpha",
    "bindings[].endpoint": "invoke-alpha",
    "auth": "auth-of-alpha",
    "constraints": "region-of-alpha",
    "status": "testing",
    "expires_at": "2099-01-02T03:04:05Z",
    "version": "4.5.6",
    "updated_at": "2024-05-06T07:08:09Z",
    "signature": "signature-of-alpha",
    "unknown members": "extra-of-alpha",
}
CONTEXT = EncodeContext(
    now=1_800_000_000.0,
    base_url="https://registry.example.org",
    host="registry.example.org",
    announce_id="3cde1b52-1fc2-4f7b-8d8c-5e3e6f5c9c1d",
    updated_at=1_700_000_000.0,
    created_at=1_700_000_000.0,
)


def mapping_rows(codec: Codec) -> list[tuple[str, str]]:
    """Each member of the profile, and where the codec put it."""
    encoded = codec.encode(sample_record(), CONTEXT)
    found = list(_texts(encoded.document, "$"))
    return [(f"`{member}`", _place(member, mark, found, encoded)) for member, mark in MARKS.items()]


def sample_record() -> AgentRecord:
    return record_from_json(SAMPLE)


def _place(member: str, mark: str, found: list[tuple[str, str]], encoded: Encoded) -> str:
    paths = list(dict.fromkeys(path for path, text in found if mark in text))
    own = [path for path in paths if not any(name in path for name in CARRIED)]
    if own:
        return ", ".join(f"`{path}`" for path in own)
    if paths:
        return "remainder"
    top = member.split("[", 1)[0]
    lost = [loss.reason for loss in encoded.losses if loss.path.startswith(f"$.{top}")]
    return f"lost: {lost[0]}" if lost else "not written; read back as its default"


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for name, item in value.items():
                yield f"{path} (names)", name
                yield from _texts(item, f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]")
        case list():
            carried = next((name for name in CARRIED if any(name == _uri(item) for item in value)), None)
            for item in value:
                suffix = f"[{carried}]" if carried and _uri(item) == carried else "[]"
                yield from _texts(item, f"{path}{suffix}")
        case str():
            yield path, value


def _uri(item: Any) -> Any:
    return item.get("uri") if isinstance(item, dict) else None


def carried_at(codec: Codec) -> str:
    """The place of the remainder in a dialect's document; empty when it has none."""
    encoded = codec.encode(sample_record(), CONTEXT)
    for path, _ in _texts(encoded.document, "$"):
        if path.endswith("(names)"):
            continue
        for name in CARRIED:
            at = path.find(name)
            if at >= 0:
                return path[: path.index("]", at) + 1] if "]" in path[at:] else path[: at + len(name)]
    return ""


def all_codecs() -> list[Codec]:
    return [dialect.codec for dialect in DIALECTS.values()]
