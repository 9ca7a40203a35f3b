"""A document's own wording: kept while it still says what the record says, written anew once it does not.

A reader that digests (skills into tags, headers into auth) cannot be undone from the record alone. So the members that a
codec's writer would word differently ride in the residue, and come back only as long as reading them gives the record's
own values. This module knows no dialect: a codec lists its facets and hands over its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from waypost import limits
from waypost.errors import InvalidDocument
from waypost.model.json import JsonObject, member
from waypost.model.names import fold_tag
from waypost.model.record import AgentRecord, Binding, need_text


class Facet(NamedTuple):
    """Members of a document that together tell some members of the record."""

    members: tuple[str, ...]
    fields: tuple[str, ...]
    instead: Mapping[str, str] = MappingProxyType({})  # a member of the document that takes the place of a written one


def unsaid(document: Mapping[str, Any], written: Mapping[str, Any]) -> JsonObject:
    """The residue: members that the writer leaves out or words differently."""
    return {name: value for name, value in document.items() if name not in written or written[name] != value}


def reword(
    written: JsonObject,
    residue: Mapping[str, Any],
    record: AgentRecord,
    facets: Sequence[Facet],
    read: Callable[[JsonObject], AgentRecord],
) -> JsonObject:
    """`written` with the residue's own wording wherever it still tells what `record` tells."""
    document = dict(written)
    spoken = {name for facet in facets for name in facet.members}
    for name, value in residue.items():
        if name not in spoken:
            document.setdefault(name, value)
    whole = document
    for facet in facets:
        whole = _worded(whole, residue, facet)
    if whole is document or _tells(whole, record, facets, read):
        return whole
    for facet in facets:
        trial = _worded(document, residue, facet)
        if trial is not document and _tells(trial, record, (facet,), read):
            document = trial
    return document


def _worded(document: JsonObject, residue: Mapping[str, Any], facet: Facet) -> JsonObject:
    """The document with one facet in the residue's words; itself when the residue has none."""
    own = {name: residue[name] for name in facet.members if name in residue}
    if not own:
        return document
    ousted = {facet.instead[name] for name in own if name in facet.instead}
    return {name: value for name, value in document.items() if name not in ousted} | own


def _tells(
    document: JsonObject, record: AgentRecord, facets: Sequence[Facet], read: Callable[[JsonObject], AgentRecord]
) -> bool:
    try:
        said = read(document)
    except InvalidDocument:  # a residue may have been edited by hand, in a profile document
        return False
    return all(getattr(said, name) == getattr(record, name) for facet in facets for name in facet.fields)


# --- What several neighbours need when they digest ------------------------------------------------


def gather_tags(*groups: Iterable[Any]) -> tuple[str, ...]:
    """Lower-case tags without repeats, within the record's bounds (PRO-13). What is no text or too long is left out."""
    tags: dict[str, str] = {}
    for group in groups:
        for item in group:
            if isinstance(item, str) and 0 < len(tag := item.strip().lower()) <= limits.TAG_CHARS:
                tags.setdefault(fold_tag(tag), tag)
    return tuple(tags.values())[: limits.TAGS]


def clip(text: str, most: int) -> str:
    """`text` cut at a word to `most` characters, with an ellipsis when something was cut."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    cut = head.rfind(" ")
    return (head[:cut] if cut > most // 2 else head).rstrip() + "…"


def need_endpoint(item: Mapping[str, Any], name: str, path: str) -> str:
    return check_endpoint(need_text(item, name, path, most=limits.ENDPOINT_CHARS, what="URL"), member(path, name))


def check_endpoint(endpoint: str, path: str) -> str:
    if not endpoint or not endpoint.isprintable() or " " in endpoint:
        raise InvalidDocument(
            "An endpoint has no spaces and no control characters, and is not empty.",
            path=path,
            hint="Percent-encode them.",
        )
    return endpoint


def by_preference(bindings: Sequence[Binding]) -> list[Binding]:
    """The preferred first; those without a priority last, in their own order."""
    return sorted(bindings, key=lambda binding: (binding.priority is None, binding.priority or 0))
