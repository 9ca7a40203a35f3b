"""AgentMetadata of an application's own agents: it may say more than a record of a registry holds (AF-20).

It is read with as much as fits a record, and shown with as much as this surface allows. Knows lengths, no agents.
"""

from __future__ import annotations

from typing import Any

from waypost import limits
from waypost.dialects.af import TRUNCATED, bounded
from waypost.dialects.af_endpoints import is_http, read_endpoint
from waypost.dialects.af_text import clean, clean_line
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, kind_of

_TEXTS = {
    "name": limits.NAME_CHARS,
    "summary": limits.DESCRIPTION_CHARS,
    "description": limits.DESCRIPTION_CHARS,
}


def narrow(document: JsonObject) -> JsonObject:
    """The document with its long members cut. What is of the wrong kind is left to whoever reads it."""
    cut = dict(document)
    for name, most in _TEXTS.items():
        if isinstance(document.get(name), str):
            cut[name] = document[name][:most]
    if isinstance(document.get("tags"), list):
        cut["tags"] = [
            tag[: limits.TAG_CHARS] if isinstance(tag, str) else tag for tag in document["tags"][: limits.TAGS]
        ]
    if isinstance(document.get("endpoints"), list):
        cut["endpoints"] = document["endpoints"][: _endpoints_read(document)]
    return cut


def widen(served: JsonObject, document: JsonObject) -> JsonObject:
    """What was made of the narrow document, with the long members of the whole one, within the bounds of the surface."""
    cut = narrow(document)
    long = {
        name: document[name] for name in (*_TEXTS, "tags", "endpoints") if name in cut and cut[name] != document[name]
    }
    if not long:
        return served
    whole = served | {name: clean(long[name]) for name in ("summary", "description") if name in long}
    if "name" in long:
        whole["name"] = clean_line(long["name"], served["name"])
    if "tags" in long:
        whole["tags"] = _tags(long["tags"])
    if "endpoints" in long:
        whole["endpoints"] = [*served["endpoints"], *_endpoints(long["endpoints"], _endpoints_read(document))]
    return _with_marks(bounded(whole), served["metadata"].get(TRUNCATED, []))


def _endpoints_read(document: JsonObject) -> int:
    """As many as a record has room for beside the bindings in `metadata`."""
    metadata = document.get("metadata")
    others = metadata.get("bindings") if isinstance(metadata, dict) else None
    return max(limits.BINDINGS - (len(others) if isinstance(others, list) else 0), 0)


def _tags(tags: list[Any]) -> list[str]:
    for index, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise InvalidDocument(f"A tag is a string, not {kind_of(tag)}.", path=f"$.tags[{index}]")
    return [tag for tag in (clean_line(tag, "") for tag in tags) if tag]


def _endpoints(endpoints: list[Any], start: int) -> list[JsonObject]:
    read = [read_endpoint(item, f"$.endpoints[{index}]") for index, item in enumerate(endpoints[start:], start)]
    return [clean({**item, "method": item["method"].upper()} if is_http(item) else item) for item in read]


def _with_marks(document: JsonObject, before: list[str]) -> JsonObject:
    """`metadata.truncated` names what was cut here and what was cut before."""
    marks = [*document["metadata"].get(TRUNCATED, []), *before]
    if not marks:
        return document
    return {**document, "metadata": {**document["metadata"], TRUNCATED: list(dict.fromkeys(marks))}}
