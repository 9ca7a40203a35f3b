"""AgentMetadata of an application's own agents: it may say more than a record of a registry holds (AF-20).

It is read with as much as fits a record, and shown with as much as this surface allows. Knows lengths, no agents.
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
    default_policy,
    is_key_of,
    make_agent,
    page_window,
    search_text,
)

_TEXTS = {
    "name": limits.NAME_CHARS,
    "summary": limits.DESCRIPTION_CHARS,
    "description": limits.DESCRIPTION_CHARS,
}


def truncate_metadata(document: JsonObject) -> JsonObject:
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


def restore_metadata(served: JsonObject, document: JsonObject) -> JsonObject:
    """What was made of the narrow document, with the long members of the whole one, within the bounds of the surface."""
    cut = truncate_metadata(document)
    long = {
        name: document[name] for name in (*_TEXTS, "tags", "endpoints") if name in cut and cut[name] != document[name]
    }
    if not long:
        return served
    whole = served | {name: strip_control_characters(long[name]) for name in ("summary", "description") if name in long}
    if "name" in long:
        whole["name"] = strip_line_controls(long["name"], served["name"])
    if "tags" in long:
        whole["tags"] = _tags(long["tags"])
    if "endpoints" in long:
        whole["endpoints"] = [*served["endpoints"], *_endpoints(long["endpoints"], _endpoints_read(document))]
    return _mark_truncated(bound_members(whole), served["metadata"].get(TRUNCATED, []))


def _endpoints_read(document: JsonObject) -> int:
    """As many as a record has room for beside the bindings in `metadata`."""
    metadata = document.get("metadata")
    others = metadata.get("bindings") if isinstance(metadata, dict) else None
    return max(limits.BINDINGS - (len(others) if isinstance(others, list) else 0), 0)


def _tags(tags: list[Any]) -> list[str]:
    for index, tag in enumerate(tags):
        if not isinstance(tag, str):
            raise InvalidDocument(f"A tag is a string, not {kind_of(tag)}.", path=f"$.tags[{index}]")
    return [tag for tag in (strip_line_controls(tag, "") for tag in tags) if tag]


def _endpoints(endpoints: list[Any], start: int) -> list[JsonObject]:
    read = [read_endpoint(item, f"$.endpoints[{index}]") for index, item in enumerate(endpoints[start:], start)]
    return [
        strip_control_characters({**item, "method": item["method"].upper()} if is_http(item) else item) for item in read
    ]


def _mark_truncated(document: JsonObject, before: list[str]) -> JsonObject:
    """`metadata.truncated` names what was cut here and what was cut before."""
    marks = [*document["metadata"].get(TRUNCATED, []), *before]
    if not marks:
        return document
    return {**document, "metadata": {**document["metadata"], TRUNCATED: list(dict.fromkeys(marks))}}


# ---- Agents as a user's application gives them: records, documents of any dialect, or their JSON text.
#
# Each is read once into a record, rendered once as AgentMetadata, and folded once for free text.

AgentLike: TypeAlias = AgentRecord | Mapping[str, Any] | bytes | str

_PROFILE_MEMBERS = frozenset(("examples", "auth", "constraints", "status", "expires_at", "signature"))

LOCAL_ORIGIN = "http://localhost"  # what paths belong to while no base address is configured; never shown


class ProvidedAgent(NamedTuple):
    """One agent of an application, in every form that the surface needs."""

    record: AgentRecord
    agent: AfAgent
    text: AfSearchText
    tags: frozenset[str]
    a2a: bytes | None  # its A2A card, if it has one

    @property
    def position(self) -> tuple[str, str]:
        """AF-27: the order of every list."""
        return fold(self.record.name), self.agent.id


def item_bytes(item: AgentLike) -> bytes:
    """The item as it is compared with what was read before."""
    if isinstance(item, AgentRecord):
        return record_bytes(item)
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, Mapping):
        return dump_json(dict(item))
    raise InvalidDocument(
        f"An agent is a record, a document or its JSON text, not {kind_of(item)}.",
        hint="Give a dict or an AgentRecord.",
    )


def read_agent(item: AgentLike, *, base_url: str, now: float) -> ProvidedAgent:
    """Read and render one agent. `now` stands in for its time of change when it names none."""
    context = EncodeContext(now=now, base_url=base_url or LOCAL_ORIGIN)
    read = _DecodedAgent(item) if isinstance(item, AgentRecord) else _decode(item_bytes(item), context)
    document = get_codec("af").encode(read.record, context).document
    if read.document is not None:
        document = restore_metadata(document, read.document)
    if read.is_local:
        metadata = {name: value for name, value in document["metadata"].items() if name != "canonical_id"}
        document = {**document, "metadata": metadata}
    card = read.a2a or _a2a_card(read.record, context)
    agent = make_agent(
        document,
        canonical_id=read.record.id,
        changed_at=_changed_at(read.record, now),
        has_a2a_card=card is not None,
    )
    return ProvidedAgent(
        record=read.record,
        agent=agent,
        text=search_text(msgspec.json.decode(agent.summary), document.get("description", read.record.description)),
        tags=frozenset(map(fold_tag, document["tags"])),
        a2a=card,
    )


def to_timestamp(value: float | datetime | None) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else value


class _DecodedAgent(NamedTuple):
    record: AgentRecord
    is_local: bool = False  # its id is this application's own name, not known elsewhere
    a2a: bytes | None = None  # the A2A card that it came as
    document: JsonObject | None = None  # the AgentMetadata that it came as


def _decode(data: bytes, context: EncodeContext) -> _DecodedAgent:
    reading = DecodeContext(now=context.now, base_url=context.base_url)
    document = parse_object(data) if data.lstrip()[:1] == b"{" else None
    if document is not None and _is_minimal(document):
        return _decode_minimal(document, reading)
    if document is None or detect_dialect(document) != "af":
        dialect, _, decoded = decode_document(data, None, reading)
        return _DecodedAgent(decoded.record, a2a=data if dialect == "a2a" else None)
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "canonical_id" in metadata:
        return _DecodedAgent(_record(document, reading), document=document)
    # Without this an id of AF would become an address of wherever the application happens to run.
    record = _record(_with_own_id(document), reading)
    return _DecodedAgent(record, is_local=slug(record.id) == record.id, document=document)


def _record(document: JsonObject, reading: DecodeContext) -> AgentRecord:
    return decode_document(dump_json(truncate_metadata(document)), "af", reading)[2].record


def _is_minimal(document: JsonObject) -> bool:
    """An id and no way to be reached: no dialect's document, and all the same an agent of the application (§4, §11)."""
    if not isinstance(document.get("id"), str) or document.get("bindings"):
        return False
    try:
        return detect_dialect(document) == "profile"
    except UnknownDialect:
        return True


def _decode_minimal(document: JsonObject, reading: DecodeContext) -> _DecodedAgent:
    """As AgentMetadata, unless it has members that only the profile knows."""
    bare = {name: value for name, value in document.items() if name != "bindings"}
    if bare.keys() & _PROFILE_MEMBERS and bare.keys() >= {"name", "description"}:
        record = read_record(bare)
        check_times(record, reading.now)
        return _DecodedAgent(record, is_local=slug(record.id) == record.id)
    record = _record(_with_own_id(bare), reading)
    return _DecodedAgent(record, is_local=slug(record.id) == record.id, document=bare)


def _with_own_id(document: JsonObject) -> JsonObject:
    """What does not fit a path is published under its slug (AF-13)."""
    metadata = document.get("metadata")
    own_id = check_id(document["id"])
    return {
        **document,
        "id": slug(own_id),
        "metadata": {**(metadata if isinstance(metadata, dict) else {}), "canonical_id": own_id},
    }


def _a2a_card(record: AgentRecord, context: EncodeContext) -> bytes | None:
    if residue_name("a2a") not in record.extra:
        return None
    return dump_json(get_codec("a2a").encode(record, context).document)


def _changed_at(record: AgentRecord, now: float) -> float:
    updated = find_instant(record.updated_at)
    return updated if updated is not None and updated <= now else now


# ---- Where a user's application keeps its agents, and the directory over it (AF-70).
#
# A provider is two calls, `list` and `get`. Adapters for a list, a callable and a database stand ready.

Generation: TypeAlias = str | int | None

Listing: TypeAlias = tuple[Iterable[AgentLike], Generation, float | datetime | None]


class AgentProvider(Protocol):
    """What an application implements. `principal` is None for a caller that nobody knows."""

    async def list(self, principal: Principal | None) -> Listing:
        """Every agent, a value that changes when they do, and when they last did; None for what is not known."""
        ...

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        """The agent with this canonical id."""
        ...


class StaticProvider:
    """Agents from the code of the application. They may be changed while it runs."""

    def __init__(
        self, agents: Iterable[AgentLike], *, base_url: str = "", now: Callable[[], float] = time.time
    ) -> None:
        self._agents: dict[str, AgentLike] = {}
        for index, item in enumerate(agents):
            offered = read_agent(item, base_url=base_url, now=now())
            if offered.record.id in self._agents:
                raise ConfigurationError(
                    f"Two agents have the id {offered.record.id!r}.", path=f"agents[{index}].id", hint="Rename one."
                )
            self._agents[offered.record.id] = item
        self._base_url = base_url
        self._now = now
        self._listed = tuple(self._agents.values())

    async def list(self, principal: Principal | None) -> Listing:
        return self._listed, None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return self._agents.get(agent_id)

    def register(self, agent: AgentLike) -> None:
        offered = read_agent(agent, base_url=self._base_url, now=self._now())
        self._agents[offered.record.id] = agent
        self._listed = tuple(self._agents.values())

    def withdraw(self, agent_id: str) -> None:
        self._agents.pop(agent_id, None)
        self._listed = tuple(self._agents.values())


class CallableProvider:
    """Agents from a function, plain or async, that is called for each request."""

    def __init__(self, agents: Callable[[], Iterable[AgentLike] | Awaitable[Iterable[AgentLike]]]) -> None:
        self._call = agents

    async def list(self, principal: Principal | None) -> Listing:
        found = self._call()
        return (await found if inspect.isawaitable(found) else found), None, None

    async def get(self, principal: Principal | None, agent_id: str) -> AgentLike | None:
        return None  # the directory looks through the list


class DatabaseProvider:
    """Agents from any DB-API 2.0 database: one row for each, its first column the document as JSON text."""

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
    """A directory over a provider: reads and renders each agent once, and asks the policy each time."""

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
        self._read: LruCache[bytes, ProvidedAgent] = LruCache(limits.RECORD_CACHE)
        self._sorted: tuple[object, list[ProvidedAgent]] = (None, [])
        self._since: LruCache[str, tuple[str, float]] = LruCache(limits.RECORD_CACHE)

    async def page(self, principal: Principal, query: AfQuery) -> AfPage:
        items, generation, modified = await self._provider.list(_caller(principal))
        visible = [
            (offered, level)
            for offered in self._in_order(items)
            if (level := self._level(principal, offered)) != "none"
        ]
        digest = _digest(visible)
        chosen = [VisibleAgent(offered.agent, level) for offered, level in visible if _matches(offered, level, query)]
        offset, limit, paged = page_window(query, len(visible))
        return AfPage(
            seen=chosen[offset : offset + limit],
            total=len(chosen),
            paged=paged,
            generation=digest if generation is None else str(generation),
            last_modified=self._last_change(principal, digest) if modified is None else to_timestamp(modified),
        )

    async def one(self, principal: Principal, key: str) -> VisibleAgent | None:
        offered = await self.find(principal, key)
        level = self._level(principal, offered) if offered is not None else "none"
        return None if offered is None or level == "none" else VisibleAgent(offered.agent, level)

    async def find(self, principal: Principal, key: str) -> ProvidedAgent | None:
        """The agent that a key names, whoever may see it."""
        for agent_id in candidate_ids(key):
            item = await self._provider.get(_caller(principal), agent_id)
            if item is not None and is_key_of(key, (offered := self._offered(item)).record.id):
                return offered
        items, _, _ = await self._provider.list(_caller(principal))
        return next((offered for offered in self._in_order(items) if is_key_of(key, offered.record.id)), None)

    async def visible_agents(self, principal: Principal) -> list[ProvidedAgent]:
        """All that the caller sees, in order."""
        items, _, _ = await self._provider.list(_caller(principal))
        return [offered for offered in self._in_order(items) if self._level(principal, offered) != "none"]

    def _in_order(self, items: Iterable[AgentLike]) -> list[ProvidedAgent]:
        if self._sorted[0] is items and isinstance(items, tuple):  # the same tuple holds the same agents
            return self._sorted[1]
        found: dict[str, ProvidedAgent] = {}
        for item in items:
            offered = self._offered(item)
            found.setdefault(offered.agent.id, offered)
        ordered = sorted(found.values(), key=lambda offered: offered.position)
        self._sorted = (items, ordered)
        return ordered

    def _offered(self, item: AgentLike) -> ProvidedAgent:
        key = item_bytes(item)
        known = self._read.get(key)
        if known is None:
            known = read_agent(item, base_url=self._base_url, now=self._now())
            self._read.put(key, known)
        return known

    def _level(self, principal: Principal, offered: ProvidedAgent) -> AfLevel:
        if self._policy is not None:
            return self._policy(_caller(principal), offered.record)
        return default_policy(principal, offered.record, self._now())

    def _last_change(self, principal: Principal, digest: str) -> float:
        """AF-35: when this caller's set became what it is, removals included; the first time it was seen so, at the latest."""
        viewer = repr((principal.subject, principal.via))
        known = self._since.get(viewer)
        if known is None or known[0] != digest:
            known = (digest, self._now())
            self._since.put(viewer, known)
        return known[1]


def _caller(principal: Principal) -> Principal | None:
    return None if principal.is_anonymous else principal


def _matches(offered: ProvidedAgent, level: AfLevel, query: AfQuery) -> bool:
    if query.id is not None and query.id not in (offered.record.id, offered.agent.id):
        return False
    return offered.tags.issuperset(query.tags) and offered.text.holds(query.terms, level)


def _digest(visible: Iterable[tuple[ProvidedAgent, AfLevel]]) -> str:
    digest = hashlib.sha256()
    for offered, level in visible:
        digest.update(level.encode())
        digest.update(offered.agent.summary if level == "summary" else offered.agent.whole)
    return digest.hexdigest()[:16]
