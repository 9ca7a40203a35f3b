"""What of an agent's metadata is shown: views, field groups, and what is kept from callers who may see less.

It knows AgentMetadata documents; where they come from and who asks is decided elsewhere.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from waypost.dialects.af import MEMBERS, SUMMARY_MEMBERS, to_summary
from waypost.model.json import JsonObject, dump_json
from waypost.model.names import fold
from waypost.model.times import find_instant, to_rfc3339

Level = Literal["none", "summary", "full"]
View = Literal["summary", "full"]

GROUPS: dict[str, tuple[str, ...]] = {
    "description": ("description",),
    "owner": ("owner",),
    "endpoints": ("endpoints",),
    "capabilities": ("capabilities",),
    "timestamps": ("created_at", "updated_at"),
    "metadata": ("metadata",),
    "summary": ("summary",),
    "all": MEMBERS,
}
VIEWS: tuple[View, ...] = ("summary", "full")


_SUMMARY = frozenset(SUMMARY_MEMBERS)


class Shape(NamedTuple):
    """The part of a document that is asked for. `members` None is all of it."""

    members: frozenset[str] | None
    owner_email: bool = True

    @property
    def is_summary(self) -> bool:
        return self.members == _SUMMARY


def shape_of(view: View, groups: frozenset[str], *, owner_email: bool) -> Shape:
    """AF-23, AF-24: the members of a view, and of the groups embedded on top of it."""
    if view == "full" or "all" in groups:
        return Shape(None, owner_email)
    members = _SUMMARY.union(*(GROUPS[group] for group in groups))
    return Shape(members, owner_email)


class AfAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, rendered. The two common forms are kept as bytes; others are cut out of the whole one."""

    id: str  # as published: path-safe
    canonical_id: str
    summary: bytes
    whole: bytes = b""  # empty when only the summary was asked for
    changed_at: float | None = None
    has_owner_email: bool = False
    has_a2a_card: bool = False

    def render(self, shape: Shape, level: Level) -> bytes:
        if shape.is_summary:
            return self.summary
        if level == "summary":
            return self._redacted()
        if shape.members is None and (shape.owner_email or not self.has_owner_email):
            return self.whole
        return dump_json(cut(msgspec.json.decode(self.whole), shape))

    def _redacted(self) -> bytes:
        """AF-51: asked for more than may be seen, the caller gets the summary and is told so."""
        return self.summary[:-1] + b',"metadata":{"redacted":true}}'


def make_agent(
    document: JsonObject, *, canonical_id: str, changed_at: float | None, has_a2a_card: bool = False
) -> AfAgent:
    """Render a full AgentMetadata document once."""
    whole = {name: _in_utc(name, value) for name, value in document.items()}
    owner = whole.get("owner")
    return AfAgent(
        id=whole["id"],
        canonical_id=canonical_id,
        summary=dump_json(to_summary(whole)),
        whole=dump_json(whole),
        changed_at=changed_at,
        has_owner_email=isinstance(owner, dict) and "email" in owner,
        has_a2a_card=has_a2a_card,
    )


def cut(document: JsonObject, shape: Shape) -> JsonObject:
    """The members of a shape, in their canonical order."""
    members = document.keys() if shape.members is None else shape.members
    part = {name: value for name, value in document.items() if name in members}
    if not shape.owner_email and isinstance(part.get("owner"), dict):
        part["owner"] = {name: value for name, value in part["owner"].items() if name != "email"}
    return part


def _in_utc(name: str, value: Any) -> Any:
    """P-14: times in UTC and whole seconds, however the agent wrote them."""
    if name not in ("created_at", "updated_at"):
        return value
    instant = find_instant(value)
    return value if instant is None else to_rfc3339(instant)


class Text(NamedTuple):
    """What free text is looked up in: what everybody sees of the agent, and what only some see."""

    open: str
    closed: str

    def holds(self, terms: tuple[str, ...], level: Level) -> bool:
        """AF-21: every term is in one of the fields. Fields are parted by a line feed, which no term holds."""
        if level == "summary":  # a caller must not learn by asking what reading does not show
            return all(term in self.open for term in terms)
        return all(term in self.open or term in self.closed for term in terms)


def text_of(summary: JsonObject, description: str) -> Text:
    fields = [summary["name"], summary.get("summary", ""), *summary.get("tags", ())]
    return Text("\n".join(map(_folded, fields)), _folded(description))


def _folded(text: str) -> str:
    return " ".join(fold(text).split())
