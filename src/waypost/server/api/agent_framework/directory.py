"""What of an agent's metadata is shown: views, field groups, and what is kept from callers who may see less.

It knows AgentMetadata documents; where they come from and who asks is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from waypost import limits
from waypost.model.json import JsonObject, dump_json
from waypost.model.names import fold, hash_slug, slug, unslug
from waypost.model.principal import SCOPE_READ, Principal
from waypost.model.record import AgentRecord
from waypost.model.times import find_instant, to_rfc3339
from waypost.protocols.agent_framework.codec import MEMBERS, SUMMARY_MEMBERS, to_summary

AfLevel = Literal["none", "summary", "full"]

AfView = Literal["summary", "full"]

FIELD_GROUPS: dict[str, tuple[str, ...]] = {
    "description": ("description",),
    "owner": ("owner",),
    "endpoints": ("endpoints",),
    "capabilities": ("capabilities",),
    "timestamps": ("created_at", "updated_at"),
    "metadata": ("metadata",),
    "summary": ("summary",),
    "all": MEMBERS,
}

VIEWS: tuple[AfView, ...] = ("summary", "full")

_SUMMARY = frozenset(SUMMARY_MEMBERS)


class AfFieldSet(NamedTuple):
    """The part of a document that is asked for. `members` None is all of it."""

    members: frozenset[str] | None
    owner_email: bool = True

    @property
    def is_summary(self) -> bool:
        return self.members == _SUMMARY


def field_set(view: AfView, groups: frozenset[str], *, owner_email: bool) -> AfFieldSet:
    """AF-23, AF-24: the members of a view, and of the groups embedded on top of it."""
    if view == "full" or "all" in groups:
        return AfFieldSet(None, owner_email)
    members = _SUMMARY.union(*(FIELD_GROUPS[group] for group in groups))
    return AfFieldSet(members, owner_email)


class AfAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, rendered. The two common forms are kept as bytes; others are cut out of the whole one."""

    id: str  # as published: path-safe
    canonical_id: str
    summary: bytes
    whole: bytes = b""  # empty when only the summary was asked for
    changed_at: float | None = None
    has_owner_email: bool = False
    has_a2a_card: bool = False

    def render(self, shape: AfFieldSet, level: AfLevel) -> bytes:
        if shape.is_summary:
            return self.summary
        if level == "summary":
            return self._redacted()
        if shape.members is None and (shape.owner_email or not self.has_owner_email):
            return self.whole
        return dump_json(select_members(msgspec.json.decode(self.whole), shape))

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


def select_members(document: JsonObject, shape: AfFieldSet) -> JsonObject:
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


class AfSearchText(NamedTuple):
    """What free text is looked up in: what everybody sees of the agent, and what only some see."""

    open: str
    closed: str

    def holds(self, terms: tuple[str, ...], level: AfLevel) -> bool:
        """AF-21: every term is in one of the fields. Fields are parted by a line feed, which no term holds."""
        if level == "summary":  # a caller must not learn by asking what reading does not show
            return all(term in self.open for term in terms)
        return all(term in self.open or term in self.closed for term in terms)


def search_text(summary: JsonObject, description: str) -> AfSearchText:
    fields = [summary["name"], summary.get("summary", ""), *summary.get("tags", ())]
    return AfSearchText("\n".join(map(_folded, fields)), _folded(description))


def _folded(text: str) -> str:
    return " ".join(fold(text).split())


# ---- What the AF surface needs to know of agents: a page of them, and one of them, as a caller may see them.
#
# Two adapters stand behind it: `af_registry` over the engine, and `af_provider` over anything a user's application has.

SHOWN_STATUSES = ("active", "testing", "deprecated")

# The caller of an application that knows no authentication at all: nobody could be given more, so nothing is kept back.
UNAUTHENTICATED = Principal(scopes=frozenset((SCOPE_READ,)), via="no-authentication")

VisibilityPolicy = Callable[[Principal | None, AgentRecord], AfLevel]


class VisibleAgent(NamedTuple):
    """An agent, and how much of it this caller may see: summary or full."""

    agent: AfAgent
    level: AfLevel


class AfQuery(NamedTuple):
    """Which agents are asked for. `limit` None: everything, unless that is more than fits one answer."""

    terms: tuple[str, ...] = ()
    text: str = ""
    tags: tuple[str, ...] = ()
    id: str | None = None
    offset: int = 0
    limit: int | None = None
    by_relevance: bool = False
    whole: bool = False  # more than summaries will be rendered


class AfPage(NamedTuple):
    seen: Sequence[VisibleAgent]
    total: int
    paged: bool  # part of the whole, or asked for as a page
    generation: str
    last_modified: float | None


class AfDirectory(Protocol):
    ranked: bool  # a ranker is there for sort=relevance

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        """The agents that the caller sees, filtered, in the order of (folded name, id)."""
        ...

    async def one(self, principal: Principal, key: str) -> VisibleAgent | None:
        """The agent with this published id, canonical id or hash (AF-14); None when unknown or hidden."""
        ...


def default_level(principal: Principal, status: str, expires_at: float | None, now: float) -> AfLevel:
    """AF-51: shown while it lives and is not withdrawn from use; whole to those who are known."""
    if status not in SHOWN_STATUSES or (expires_at is not None and expires_at <= now):
        return "none"
    return "summary" if principal.is_anonymous and principal != UNAUTHENTICATED else "full"


def default_policy(principal: Principal, record: AgentRecord, now: float) -> AfLevel:
    return default_level(principal, record.effective_status, find_instant(record.expires_at), now)


def page_window(query: AfQuery, visible: int) -> tuple[int, int, bool]:
    """Offset, limit and whether the answer is a page (AF-25): `visible` is how many agents the caller sees in all."""
    if query.limit is not None:
        return query.offset, query.limit, True
    if visible <= limits.AF_UNPAGED_MAX:
        return 0, limits.AF_UNPAGED_MAX, False
    return 0, limits.PAGE_DEFAULT, True


def is_key_of(key: str, canonical_id: str) -> bool:
    """AF-14: whether a key is the published id, the canonical id or the hash of an agent."""
    return key in (slug(canonical_id), canonical_id, hash_slug(canonical_id))


def candidate_ids(key: str) -> tuple[str, ...]:
    """The canonical ids that a key may stand for without a table, the published form first."""
    plain = unslug(key)
    return (key,) if plain is None else (plain, key)
