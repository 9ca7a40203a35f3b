"""Agents as the Agent Framework endpoints show them: renderings, views, and the port to a directory of agents.

Two directories implement the port: `RegistryDirectory` over the registry, and `ProviderDirectory` over the agents of a
user's own application.
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
from waypost.protocols.codec import CARRY, residue_name

AfLevel = Literal["none", "summary", "full"]
AfView = Literal["summary", "full"]
VIEWS: tuple[AfView, ...] = ("summary", "full")

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
SHOWN_STATUSES = ("active", "testing", "deprecated")

_SUMMARY = frozenset(SUMMARY_MEMBERS)

# The caller in an application without authentication. It sees everything: nobody could be granted more.
UNAUTHENTICATED = Principal(scopes=frozenset((SCOPE_READ,)), via="no-authentication")

VisibilityPolicy = Callable[[Principal | None, AgentRecord], AfLevel]


class AfFieldSet(NamedTuple):
    """The members to show. `members` None: all of them."""

    members: frozenset[str] | None
    owner_email: bool = True

    @property
    def is_summary(self) -> bool:
        return self.members == _SUMMARY


def field_set(view: AfView, groups: frozenset[str], *, owner_email: bool) -> AfFieldSet:
    """AF-23, AF-24: the members of a view and of the groups added to it."""
    if view == "full" or "all" in groups:
        return AfFieldSet(None, owner_email)
    members = _SUMMARY.union(*(FIELD_GROUPS[group] for group in groups))
    return AfFieldSet(members, owner_email)


class AfAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, rendered: the summary and the full document as bytes. Other field sets are cut out of the latter."""

    id: str  # as published: path-safe
    canonical_id: str
    summary: bytes
    full: bytes = b""  # empty if only the summary was needed
    changed_at: float | None = None
    has_owner_email: bool = False
    has_a2a_card: bool = False

    def render(self, fields: AfFieldSet, level: AfLevel) -> bytes:
        if fields.is_summary:
            return self.summary
        if level == "summary":  # AF-51: a caller who may not see the requested members gets the summary, marked so
            return self.summary[:-1] + b',"metadata":{"redacted":true}}'
        if fields.members is None and (fields.owner_email or not self.has_owner_email):
            return self.full
        return dump_json(select_members(msgspec.json.decode(self.full), fields))


def make_agent(
    document: JsonObject, *, canonical_id: str, changed_at: float | None, has_a2a_card: bool = False
) -> AfAgent:
    """Render a full AgentMetadata document."""
    document = {name: _to_utc(name, value) for name, value in document.items()}
    owner = document.get("owner")
    return AfAgent(
        id=document["id"],
        canonical_id=canonical_id,
        summary=dump_json(to_summary(document)),
        full=dump_json(document),
        changed_at=changed_at,
        has_owner_email=isinstance(owner, dict) and "email" in owner,
        has_a2a_card=has_a2a_card,
    )


def select_members(document: JsonObject, fields: AfFieldSet) -> JsonObject:
    """The members of a field set, in the order of the document."""
    members = document.keys() if fields.members is None else fields.members
    selected = {name: value for name, value in document.items() if name in members}
    if not fields.owner_email:
        _drop_owner_email(selected)
        _drop_owner_email(_carried_members(selected))
    return selected


def _drop_owner_email(members: JsonObject) -> None:
    owner = members.get("owner")
    if isinstance(owner, dict):
        owner.pop("email", None)


def _carried_members(document: JsonObject) -> JsonObject:
    """What `metadata` carries of the document as registered, for a lossless way back: it repeats the owner."""
    members: Any = document
    for name in ("metadata", CARRY, "members", residue_name("af")):
        members = members.get(name) if isinstance(members, dict) else None
    return members if isinstance(members, dict) else {}


def _to_utc(name: str, value: Any) -> Any:
    """P-14: times in UTC and whole seconds."""
    if name not in ("created_at", "updated_at"):
        return value
    instant = find_instant(value)
    return value if instant is None else to_rfc3339(instant)


class AfSearchText(NamedTuple):
    """Folded text for `q`: of the summary, which every caller sees, and of the description, which only some see."""

    summary: str
    description: str

    def contains(self, terms: tuple[str, ...], level: AfLevel) -> bool:
        """AF-21: every term occurs in one of the fields. A line feed separates fields; no term contains one."""
        if level == "summary":  # a search must not reveal what the caller may not read
            return all(term in self.summary for term in terms)
        return all(term in self.summary or term in self.description for term in terms)


def search_text(summary: JsonObject, description: str) -> AfSearchText:
    fields = [summary["name"], summary.get("summary", ""), *summary.get("tags", ())]
    return AfSearchText("\n".join(map(_fold_field, fields)), _fold_field(description))


def _fold_field(text: str) -> str:
    return " ".join(fold(text).split())


class VisibleAgent(NamedTuple):
    """An agent, and how much of it the caller may see: summary or full."""

    agent: AfAgent
    level: AfLevel


class AfQuery(NamedTuple):
    """Which agents to list. `limit` None: all of them, unless there are too many for one response (AF-25)."""

    terms: tuple[str, ...] = ()
    text: str = ""
    tags: tuple[str, ...] = ()
    id: str | None = None
    offset: int = 0
    limit: int | None = None
    by_relevance: bool = False
    needs_full: bool = False  # more than summaries will be rendered


class AfPage(NamedTuple):
    agents: Sequence[VisibleAgent]
    total: int
    is_paged: bool  # requested as a page, or too many for one response
    generation: str
    last_modified: float | None


class AfDirectory(Protocol):
    ranked: bool  # the directory has a ranker for sort=relevance

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        """The agents that the caller sees, filtered, in the order of (folded name, id)."""
        ...

    async def find(self, principal: Principal, key: str) -> VisibleAgent | None:
        """The agent with this published id, canonical id or hash (AF-14); None if it is unknown or hidden."""
        ...


def default_level(principal: Principal, status: str, expires_at: float | None, now: float) -> AfLevel:
    """AF-51: what a caller sees of an agent unless a policy decides otherwise."""
    if status not in SHOWN_STATUSES or (expires_at is not None and expires_at <= now):
        return "none"
    return "summary" if principal.is_anonymous and principal != UNAUTHENTICATED else "full"


def page_window(query: AfQuery, visible: int) -> tuple[int, int, bool]:
    """Offset, limit, and whether the response is a page (AF-25). `visible`: the number of agents the caller sees."""
    if query.limit is not None:
        return query.offset, query.limit, True
    if visible <= limits.AF_UNPAGED_MAX:
        return 0, limits.AF_UNPAGED_MAX, False
    return 0, limits.PAGE_DEFAULT, True


def is_key_of(key: str, canonical_id: str) -> bool:
    """AF-14: True if a key is the published id, the canonical id or the hash of an agent."""
    return key in (slug(canonical_id), canonical_id, hash_slug(canonical_id))


def candidate_ids(key: str) -> tuple[str, ...]:
    """The canonical ids that a key may name, the one of a published id first. A hash needs a lookup table."""
    plain = unslug(key)
    return (key,) if plain is None else (plain, key)
