"""Agents of a user's own application: providers, and the directory over them (AF-70).

A provider gives agents as records, as documents of any dialect or as their JSON text. Each is decoded and rendered once.
AgentMetadata may be longer than a record allows (AF-20): it is cut for the record and restored for the response.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from waypost import limits
from waypost.cache import LruCache
from waypost.errors import ConfigurationError, InvalidDocument, UnknownDialect
from waypost.model.json import JsonObject, dump_json, kind_of, parse_object
from waypost.model.names import fold, fold_tag, slug
from waypost.model.principal import Principal
from waypost.model.record import AgentRecord, check_id, record_bytes
from waypost.model.times import find_instant
from waypost.protocols.agent_framework.codec import (
    TRUNCATED,
    bound_members,
    is_http,
    read_endpoint,
    strip_control_characters,
    strip_line_controls,
)
from waypost.protocols.codec import DecodeContext, EncodeContext, residue_name
from waypost.protocols.dialects import decode_document, detect_dialect, get_codec
from waypost.protocols.record_reader import check_times, read_record
from waypost.server.api.agent_framework.directory import (
    AfAgent,
    AfLevel,
    AfPage,
    AfQuery,
    AfSearchText,
    VisibilityPolicy,
    VisibleAgent,
    candidate_ids,
    default_level,
    is_key_of,
    make_agent,
    page_window,
    search_text,
)

AgentLike: TypeAlias = AgentRecord | Mapping[str, Any] | bytes | str

LOCAL_ORIGIN = "http://localhost"  # the base of relative paths if no base URL is configured; never shown

_TEXT_CHARS = {
    "name": limits.NAME_CHARS,
    "summary": limits.DESCRIPTION_CHARS,
    "description": limits.DESCRIPTION_CHARS,
}
_PROFILE_MEMBERS = frozenset(("examples", "auth", "constraints", "status", "expires_at", "signature"))


# --- Documents ------------------------------------------------------------------------------------


def truncate_metadata(document: JsonObject) -> JsonObject:
    """The document with its long members cut. Members of the wrong type are left to the decoder."""
    cut = dict(document)
    for name, max_chars in _TEXT_CHARS.items():
        if isinstance(document.get(name), str):
            cut[name] = document[name][:max_chars]
    if isinstance(document.get("tags"), list):
        cut["tags"] = [
            tag[: limits.TAG_CHARS] if isinstance(tag, str) else tag for tag in document["tags"][: limits.TAGS]
        ]
    if isinstance(document.get("endpoints"), list):
        cut["endpoints"] = document["endpoints"][: _readable_endpoints(document)]
    return cut


def restore_metadata(served: JsonObject, document: JsonObject) -> JsonObject:
    """The served document with the long members of the original one, within the limits of AF-20."""
    cut = truncate_metadata(document)
    members = (*_TEXT_CHARS, "tags", "endpoints")
    long = {name: document[name] for name in members if name in cut and cut[name] != document[name]}
    if not long:
        return served
    full = served | {name: strip_control_characters(long[name]) for name in ("summary", "description") if name in long}
    if "name" in long:
        full["name"] = strip_line_controls(long["name"], served["name"])
    if "tags" in long:
        full["tags"] = _read_tags(long["tags"])
    if "endpoints" in long:
        full["endpoints"] = [*served["endpoints"], *_read_endpoints(long["endpoints"], _readable_endpoints(document))]
    full = bound_members(full)
    truncated = [*full["metadata"].get(TRUNCATED, []), *served["metadata"].get(TRUNCATED, [])]
    if not truncated:
        return full
    return {**full, "metadata": {**full["metadata"], TRUNCATED: list(dict.fromkeys(truncated))}}


def _readable_endpoints(document: JsonObject) -> int:
    """The number of endpoints that a record can hold beside the bindings in `metadata`."""
    metadata = document.get("metadata")
    others = metadata.get("bindings") if isinstance(metadata, dict) else None
    return max(limits.BINDINGS - (len(others) if isinstance(others, list) else 0), 0)


def _read_tags(tags: list[Any]) -> list[str]:
    for index, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise InvalidDocument(f"A tag must be a string, not {kind_of(tag)}.", path=f"$.tags[{index}]")
    return [tag for tag in (strip_line_controls(tag, "") for tag in tags) if tag]


def _read_endpoints(endpoints: list[Any], start: int) -> list[JsonObject]:
    read = [read_endpoint(item, f"$.endpoints[{index}]") for index, item in enumerate(endpoints[start:], start)]
    return [
        strip_control_characters({**item, "method": item["method"].upper()} if is_http(item) else item) for item in read
    ]


class ProvidedAgent(NamedTuple):
    """One agent of an application, decoded and rendered."""

    record: AgentRecord
    agent: AfAgent
    text: AfSearchText
    tags: frozenset[str]
    a2a: bytes | None  # its A2A card, if it has one

    @property
    def sort_key(self) -> tuple[str, str]:
        """AF-27: the order of every list."""
        return fold(self.record.name), self.agent.id


def item_bytes(item: AgentLike) -> bytes:
    """The bytes of an item: the key of the cache of decoded agents."""
    if isinstance(item, AgentRecord):
        return record_bytes(item)
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, Mapping):
        return dump_json(dict(item))
    raise InvalidDocument(
        f"An agent must be a record, a document or its JSON text, not {kind_of(item)}.",
        hint="Give a dict or an AgentRecord.",
    )


def read_agent(item: AgentLike, *, base_url: str, now: float) -> ProvidedAgent:
    """Decode and render one agent. `now` is its time of change if it names none."""
    context = EncodeContext(now=now, base_url=base_url or LOCAL_ORIGIN)
    decoded = _DecodedAgent(item) if isinstance(item, AgentRecord) else _decode(item_bytes(item), context)
    record = decoded.record
    document = get_codec("af").encode(record, context).document
    if decoded.document is not None:
        document = restore_metadata(document, decoded.document)
    if decoded.is_local:
        metadata = {name: value for name, value in document["metadata"].items() if name != "canonical_id"}
        document = {**document, "metadata": metadata}
    card = decoded.a2a or _a2a_card(record, context)
    updated_at = find_instant(record.updated_at)
    agent = make_agent(
        document,
        canonical_id=record.id,
        changed_at=updated_at if updated_at is not None and updated_at <= now else now,
        has_a2a_card=card is not None,
    )
    return ProvidedAgent(
        record=record,
        agent=agent,
        text=search_text(msgspec.json.decode(agent.summary), document.get("description", record.description)),
        tags=frozenset(map(fold_tag, document["tags"])),
        a2a=card,
    )


def to_timestamp(value: float | datetime | None) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else value


class _DecodedAgent(NamedTuple):
    record: AgentRecord
    is_local: bool = False  # its id is a name of this application, not known elsewhere
    a2a: bytes | None = None  # the A2A card that it was decoded from
    document: JsonObject | None = None  # the AgentMetadata that it was decoded from


def _decode(data: bytes, context: EncodeContext) -> _DecodedAgent:
    decode_context = DecodeContext(now=context.now, base_url=context.base_url)
    document = parse_object(data) if data.lstrip()[:1] == b"{" else None
    if document is not None and _is_minimal(document):
        return _decode_minimal(document, decode_context)
    if document is None or detect_dialect(document) != "af":
        dialect, _, decoded = decode_document(data, None, decode_context)
        return _DecodedAgent(decoded.record, a2a=data if dialect == "a2a" else None)
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "canonical_id" in metadata:
        return _DecodedAgent(_decode_metadata(document, decode_context), document=document)
    # Without a canonical id, the id would become a URL of the host on which the application runs.
    record = _decode_metadata(_with_canonical_id(document), decode_context)
    return _DecodedAgent(record, is_local=slug(record.id) == record.id, document=document)


def _decode_metadata(document: JsonObject, context: DecodeContext) -> AgentRecord:
    return decode_document(dump_json(truncate_metadata(document)), "af", context)[2].record


def _is_minimal(document: JsonObject) -> bool:
    """True for a document with an id and no endpoint: incomplete in any dialect, but valid here (§4, §11)."""
    if not isinstance(document.get("id"), str) or document.get("bindings"):
        return False
    try:
        return detect_dialect(document) == "profile"
    except UnknownDialect:
        return True


def _decode_minimal(document: JsonObject, context: DecodeContext) -> _DecodedAgent:
    """Decode as AgentMetadata, unless the document has members of the profile."""
    document = {name: value for name, value in document.items() if name != "bindings"}
    if document.keys() & _PROFILE_MEMBERS and document.keys() >= {"name", "description"}:
        record = read_record(document)
        check_times(record, context.now)
        return _DecodedAgent(record, is_local=slug(record.id) == record.id)
    record = _decode_metadata(_with_canonical_id(document), context)
    return _DecodedAgent(record, is_local=slug(record.id) == record.id, document=document)


def _with_canonical_id(document: JsonObject) -> JsonObject:
    """The document with its id as canonical id, published under the slug (AF-13)."""
    metadata = document.get("metadata")
    canonical_id = check_id(document["id"])
    return {
        **document,
        "id": slug(canonical_id),
        "metadata": {**(metadata if isinstance(metadata, dict) else {}), "canonical_id": canonical_id},
    }


def _a2a_card(record: AgentRecord, context: EncodeContext) -> bytes | None:
    if residue_name("a2a") not in record.extra:
        return None
    return dump_json(get_codec("a2a").encode(record, context).document)


# --- Providers ------------------------------------------------------------------------------------

Generation: TypeAlias = str | int | None

Listing: TypeAlias = tuple[Iterable[AgentLike], Generation, float | datetime | None]


class AgentProvider(Protocol):
    """The interface of an application. `principal` is None for an anonymous caller."""

    async def list(self, principal: Principal | None) -> Listing:
        """All agents, a generation that changes with them, and the time of the last change; None if unknown."""
        ...

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        """The agent with this canonical id."""
        ...


class StaticProvider:
    """A list of agents that the application may change while it runs."""

    def __init__(
        self, agents: Iterable[AgentLike], *, base_url: str = "", now: Callable[[], float] = time.time
    ) -> None:
        self._agents: dict[str, AgentLike] = {}
        for index, item in enumerate(agents):
            agent_id = read_agent(item, base_url=base_url, now=now()).record.id
            if agent_id in self._agents:
                raise ConfigurationError(
                    f"Two agents have the id {agent_id!r}.", path=f"agents[{index}].id", hint="Rename one."
                )
            self._agents[agent_id] = item
        self._base_url = base_url
        self._now = now
        self._listed = tuple(self._agents.values())

    async def list(self, principal: Principal | None) -> Listing:
        return self._listed, None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return self._agents.get(agent_id)

    def register(self, agent: AgentLike) -> None:
        agent_id = read_agent(agent, base_url=self._base_url, now=self._now()).record.id
        self._agents[agent_id] = agent
        self._listed = tuple(self._agents.values())

    def withdraw(self, agent_id: str) -> None:
        self._agents.pop(agent_id, None)
        self._listed = tuple(self._agents.values())


class CallableProvider:
    """Agents from a sync or async function, which is called for each request."""

    def __init__(self, agents: Callable[[], Iterable[AgentLike] | Awaitable[Iterable[AgentLike]]]) -> None:
        self._call = agents

    async def list(self, principal: Principal | None) -> Listing:
        agents = self._call()
        return (await agents if inspect.isawaitable(agents) else agents), None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return None  # the directory searches the list


class DatabaseProvider:
    """Agents from a DB-API 2.0 database: one row each, with the document as JSON text in the first column."""

    def __init__(self, connect: Callable[[], Any], select: str = "SELECT document FROM agents") -> None:
        self._connect = connect
        self._select = select

    async def list(self, principal: Principal | None) -> Listing:
        return await asyncio.to_thread(self._rows), None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return None

    def _rows(self) -> Sequence[AgentLike]:
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self._select)
            return [row[0] for row in cursor.fetchall()]


class ProviderDirectory:
    """The directory over a provider. It decodes each agent once, and applies the policy on every request."""

    ranked = False

    def __init__(
        self,
        provider: AgentProvider,
        policy: VisibilityPolicy | None = None,
        *,
        base_url: str = "",
        now: Callable[[], float] = time.time,
    ) -> None:
        self._provider = provider
        self._policy = policy
        self._base_url = base_url
        self._now = now
        self._decoded: LruCache[bytes, ProvidedAgent] = LruCache(limits.RECORD_CACHE)
        self._sorted: tuple[object, list[ProvidedAgent]] = (None, [])
        self._changed: LruCache[str, tuple[str, float]] = LruCache(limits.RECORD_CACHE)

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        items, generation, modified = await self._provider.list(_known(principal))
        visible = [(agent, level) for agent in self._sort(items) if (level := self._level(principal, agent)) != "none"]
        digest = _digest(visible)
        matches = [VisibleAgent(agent.agent, level) for agent, level in visible if _matches(agent, level, query)]
        offset, limit, is_paged = page_window(query, len(visible))
        return AfPage(
            agents=matches[offset : offset + limit],
            total=len(matches),
            is_paged=is_paged,
            generation=digest if generation is None else str(generation),
            last_modified=self._last_change(principal, digest) if modified is None else to_timestamp(modified),
        )

    async def find(self, principal: Principal, key: str) -> VisibleAgent | None:
        provided = await self.find_provided(principal, key)
        level = self._level(principal, provided) if provided is not None else "none"
        return None if provided is None or level == "none" else VisibleAgent(provided.agent, level)

    async def find_provided(self, principal: Principal, key: str) -> ProvidedAgent | None:
        """The agent that a key names, even if the policy hides it."""
        for agent_id in candidate_ids(key):
            item = await self._provider.get(_known(principal), agent_id)
            if item is not None and is_key_of(key, (provided := self._decode(item)).record.id):
                return provided
        items, _, _ = await self._provider.list(_known(principal))
        return next((provided for provided in self._sort(items) if is_key_of(key, provided.record.id)), None)

    async def visible_agents(self, principal: Principal) -> list[ProvidedAgent]:
        """All agents that the caller sees, in order."""
        items, _, _ = await self._provider.list(_known(principal))
        return [provided for provided in self._sort(items) if self._level(principal, provided) != "none"]

    def _sort(self, items: Iterable[AgentLike]) -> list[ProvidedAgent]:
        if self._sorted[0] is items and isinstance(items, tuple):  # tuples are immutable
            return self._sorted[1]
        agents: dict[str, ProvidedAgent] = {}
        for item in items:
            provided = self._decode(item)
            agents.setdefault(provided.agent.id, provided)
        ordered = sorted(agents.values(), key=lambda provided: provided.sort_key)
        self._sorted = (items, ordered)
        return ordered

    def _decode(self, item: AgentLike) -> ProvidedAgent:
        key = item_bytes(item)
        provided = self._decoded.get(key)
        if provided is None:
            provided = read_agent(item, base_url=self._base_url, now=self._now())
            self._decoded.put(key, provided)
        return provided

    def _level(self, principal: Principal, provided: ProvidedAgent) -> AfLevel:
        record = provided.record
        if self._policy is not None:
            return self._policy(_known(principal), record)
        return default_level(principal, record.effective_status, find_instant(record.expires_at), self._now())

    def _last_change(self, principal: Principal, digest: str) -> float:
        """AF-35: the time at which this caller's set of agents changed, as far as it was observed."""
        caller = repr((principal.subject, principal.via))
        change = self._changed.get(caller)
        if change is None or change[0] != digest:
            change = (digest, self._now())
            self._changed.put(caller, change)
        return change[1]


def _known(principal: Principal) -> Principal | None:
    return None if principal.is_anonymous else principal


def _matches(provided: ProvidedAgent, level: AfLevel, query: AfQuery) -> bool:
    if query.id is not None and query.id not in (provided.record.id, provided.agent.id):
        return False
    return provided.tags.issuperset(query.tags) and provided.text.contains(query.terms, level)


def _digest(visible: Iterable[tuple[ProvidedAgent, AfLevel]]) -> str:
    digest = hashlib.sha256()
    for provided, level in visible:
        digest.update(level.encode())
        digest.update(provided.agent.summary if level == "summary" else provided.agent.full)
    return digest.hexdigest()[:16]
