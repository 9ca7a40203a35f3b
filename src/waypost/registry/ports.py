"""The ports of the engine: store, key-value store, ranker, clock, and outgoing requests.

A store runs the rule of a command inside its own transaction. Several commands may share one commit; each one is all or
nothing. A command returns when its record, its revision and its event are durable together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.events import Event, EventType, RecordVersion
from waypost.model.query import Query, Ranking
from waypost.model.registration import CatalogEntry, Registration
from waypost.trust.transparency_log import Span

FetchPurpose = Literal[
    "health", "card", "jwks", "peer", "feed", "ask", "crawl", "proof", "webhook", "descriptor", "index", "task"
]


class FetchResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response of another server. The body is read on success only."""

    url: str  # after redirects
    status: int
    headers: Mapping[str, str]  # names in lower case; the last value of each
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Fetcher(Protocol):
    async def fetch(self, url: str, purpose: FetchPurpose) -> FetchResponse:
        """Raises InvalidParameter for an invalid URL, AddressDenied for a forbidden one, else FetchFailed with a `reason` in
        its details."""
        ...


class EndpointProber(Protocol):
    """Probes endpoints of agents. Of a response only the status is read."""

    def check_endpoint(self, endpoint: str) -> None:
        """Raises AddressDenied for a forbidden IP address. Sends nothing."""
        ...

    async def probe(self, endpoint: str) -> int | None:
        """The status of the response; None if the protocol allows only a connection. Raises as `Fetcher.fetch`, and
        RateLimited if the endpoint was probed a moment ago."""
        ...


class OutboundSender(Protocol):
    """Sends results and tasks to addresses that strangers name. It follows no redirects."""

    def check(self, url: str, purpose: FetchPurpose) -> None:
        """Raises what `send` would raise for this URL, without sending anything."""
        ...

    async def send(
        self,
        url: str,
        purpose: FetchPurpose,
        *,
        method: str = "POST",
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
    ) -> FetchResponse:
        """Raises as `Fetcher.fetch`. `headers` must not come from a caller."""
        ...


ANY_VALUE: Final = b"\0anything"  # no stored value begins with a zero byte


class KeyValueWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    kind: str
    key: str
    value: bytes | None  # None removes the item
    expires_at: float | None = None
    expected: bytes | None = ANY_VALUE  # None: only if there is no item


class KeyValueItem(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    expires_at: float | None = None


class KeyValueStore(Protocol):
    """Durable small items that are not records: tasks, messages, swarms, invitations. An item has a kind and a key. The writes
    of a commit are all or nothing. A write may name the value that it expects, so that only one of two races succeeds."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def commit(self, writes: Sequence[KeyValueWrite], now: float) -> bool:
        """Returns False, and writes nothing, if a write expected another value. Raises StorageFull, StoreUnavailable."""
        ...

    async def get(self, kind: str, key: str, now: float) -> bytes | None: ...

    async def scan(
        self, kind: str, now: float, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[KeyValueItem]:
        """Items in the order of their keys."""
        ...

    async def count(self, kind: str, now: float, *, prefix: str = "") -> int: ...

    async def healthy(self) -> bool:
        """Whether it is open and accepts writes. The record store, on the same disk, reports a full disk."""
        ...


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Receives durations in seconds."""

    search: Callable[[float], None] = lambda seconds: None
    commit: Callable[[float], None] = lambda seconds: None


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds that never jump: for leases and everything else the service measures itself."""
        ...

    def wall(self) -> float:
        """Unix seconds of the system clock, read at each call: for the validity of credentials."""
        ...

    def latest(self) -> float:
        """The later of both: for the age of what others signed or wrote. After a suspend `now` lags behind their clocks; if the
        wall clock is set back, `now` keeps what was too old from becoming valid again."""
        ...


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """Remains of a withdrawn or expired record, so that an older document cannot restore it."""

    id: str
    owner: str
    at: float
    type: EventType  # withdrawn or expired
    hold_until: float  # until then only the owner may use the id
    forget_at: float
    updated_at: float | None = None
    version: str | None = None
    sequence: int | None = None
    etag: str = ""
    origin: str = ""  # of a copy from a peer: the service where the agent was withdrawn
    origin_revision: int = 0
    is_from_origin: bool = False  # the origin itself withdrew it: copies on other paths bring it back no more


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds for the keys of a command, inside the transaction."""

    registrations: Mapping[str, Registration]  # by canonical id, for every key and alias
    tombstones: Mapping[str, Tombstone]  # by id
    revision: int  # the last one; a change gets the next one
    notes: Mapping[str, bytes] = {}  # those of the command's notes that exist


class RegistrationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change to write. The store sets the revision of `registration` and of the event, and nothing else.

    A registration removes the tombstone of its id and claims its aliases; an alias of another agent stays with that one.
    """

    type: EventType
    at: float
    registration: Registration | None = None  # after the change; None removes the record
    removed: Registration | None = None  # for withdrawn and expired
    tombstone: Tombstone | None = None
    before: tuple[str, ...] | None = None  # the scopes before the change
    replaced: Registration | None = None  # the registration before, if the change may hide it from some scopes
    document: bytes | None = None  # the record as a profile document, if the rule made it


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a command and the state after it."""

    outcome: str  # created updated refreshed unchanged withdrawn already …
    registration: Registration | None = None
    revision: int = 0
    replayed: bool = False  # the stored result of an idempotency key, without documents


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what, when, from where, with which credential. It has names and outcomes, no document and no private field."""

    at: float
    action: str  # register update withdraw expire allow revoke rotate mint refuse …
    subject: str
    object: str = ""  # the agent, key, rule or domain that the action changed
    outcome: str = ""
    via: str = ""
    credential: str = ""
    address: str = ""
    etag: str = ""  # of the content after the action
    detail: str = ""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for audit entries, which are returned in the order of their numbers."""

    after: int = 0
    limit: int = limits.AUDIT_PAGE_DEFAULT
    subject: str | None = None
    object: str | None = None
    action: str | None = None

    def parts(self) -> list[bytes]:
        """Substrings of the canonical JSON of a matching entry. Quotes in values are escaped, so no value can fake one."""
        values = {"subject": self.subject, "object": self.object, "action": self.action}
        return [b'"%s":%s' % (name.encode(), msgspec.json.encode(value)) for name, value in values.items() if value]


class AuditLogPage(msgspec.Struct, frozen=True, kw_only=True):
    leaves: list[bytes]  # canonical JSON, each with its number
    size: int  # of the complete trail
    oldest: int = 1  # the first entry that still has its content
    next_after: int | None = None  # for the next page; an empty page can have one


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Change, notes and audit entries are written together. A `refusal` is raised after they are durable: a failed attempt may
    have to be recorded."""

    outcome: str
    change: RegistrationChange | None = None  # None: nothing to write
    registration: Registration | None = None  # for the result, if nothing is written or a record is removed
    notes: Mapping[str, bytes | None] = {}  # small values beside the records (pins, rules, claims); None removes one
    audit: tuple[AuditEntry, ...] = ()
    refusal: WaypostError | None = None


Rule = Callable[[StoreState], Decision]


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """The idempotency key of a write. The same key and fingerprint return the first result; another fingerprint is a
    conflict."""

    key: str  # subject and key
    fingerprint: str
    forget_at: float


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One write. Its rule is pure, may be called again after a lost race, and raises a WaypostError to refuse."""

    keys: tuple[str, ...]  # ids and aliases whose registrations the rule needs
    notes: tuple[str, ...] = ()  # names of notes that the rule needs
    decide: Rule
    idempotency: Idempotency | None = None


class CommittedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change as the store passes it to its listener after the commit, in the order of revisions."""

    event: Event
    registration: Registration | None  # None when the record was removed
    entry: CatalogEntry | None = None  # of the registration, if the store made it


class NewestDocument(msgspec.Struct, frozen=True, gc=False):
    """The newest source of an agent, without the rest of its registration."""

    etag: str
    dialect: str
    document: bytes


NoteListener = Callable[[Mapping[str, bytes | None]], None]  # gets written notes; None for removed ones


class Store(Protocol):
    """The store of records. tests/contract/test_store.py is the contract of every store."""

    async def open(
        self, listener: Callable[[Sequence[CommittedChange]], None], noted: NoteListener | None = None
    ) -> None:
        """Open, migrate and check the store. `listener` is called on the event loop after each commit, before `execute`
        returns, with its changes in the order of revisions. `noted` is called before it, after commits that wrote notes,
        with the last value of each."""
        ...

    async def close(self) -> None: ...

    async def execute(self, command: Command) -> CommandResult:
        """Run the rule and write its decision; durable when it returns. Raises what the rule raises, StoreUnavailable or
        StorageFull."""
        ...

    async def execute_all(self, commands: Sequence[Command]) -> list[CommandResult | WaypostError]:
        """Run the rules of several commands, one after the other, and write their decisions in one commit. The result has, for
        each command, what it returned or the error by which it was refused; a refusal does not affect the others."""
        ...

    async def revision(self) -> int: ...

    def entries(self) -> AsyncIterator[Sequence[CatalogEntry]]:
        """All registrations as compact rows, in pages; with expired ones, whose lease may be renewed."""
        ...

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        """The registrations of these canonical ids that exist. With `sources=False` each source has an empty document."""
        ...

    async def document(self, entry: CatalogEntry, dialect: str) -> tuple[str, bytes] | None:
        """The latest document of a dialect as it was received, with the etag of the content it belongs to; None if there is
        none. A fast path for the most frequent read."""
        ...

    async def newest_documents(self, entries: Sequence[CatalogEntry]) -> dict[str, NewestDocument]:
        """By id, the newest document of each agent as it was received, as far as the entries are current. Much faster than
        `fetch`: nothing else is decoded."""
        ...

    def scan(self, ids: Sequence[str] | None = None) -> AsyncIterator[Sequence[Registration]]:
        """All registrations, or these, with their documents, in pages."""
        ...

    async def tombstone(self, agent_id: str) -> Tombstone | None: ...

    async def notes(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, bytes]]:
        """Notes whose names begin with `prefix`, in the order of names; those after a name, at most `limit`."""
        ...

    async def history(self, agent_id: str, limit: int = limits.HISTORY_VERSIONS) -> list[RecordVersion]:
        """Earlier versions of an agent, newest first. They are removed with the agent."""
        ...

    async def audit(self, query: AuditQuery) -> AuditLogPage:
        """Entries of the audit trail. One call scans at most limits.AUDIT_SCAN of them."""
        ...

    async def audit_size(self) -> int: ...

    async def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        """The tree hash of each span of entries. A span starts at a multiple of its largest power of two and ends within the
        trail."""
        ...

    async def events(self, after: int, limit: int) -> Sequence[Event]:
        """Events with a revision above `after`, in order."""
        ...

    async def oldest_event(self) -> int:
        """The lowest stored revision, or revision() + 1 if the log is empty."""
        ...

    async def prune(
        self,
        *,
        events_before: float,
        keep_events: int,
        now: float,
        keep_audit: int = limits.AUDIT_KEEP,
        keep_bytes: int = limits.WATCH_KEEP_BYTES,
    ) -> int:
        """Remove events older than `events_before` beyond the newest `keep_events`, and the oldest ones until the log has at most
        `keep_bytes`; outdated tombstones and idempotency keys; and the content of audit entries beyond about the newest
        `keep_audit`. Returns the number of removed rows."""
        ...

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """A secret that is stored with the data, such as the cursor key: made once, the same in every process."""
        ...

    async def healthy(self) -> bool:
        """Whether writes are accepted."""
        ...


class QueryRanker(Protocol):
    """Ranks agents for a query."""

    def rank(
        self,
        query: Query,
        audience: frozenset[str] | None,
        *,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None = None,
    ) -> Ranking:
        """Hits that the audience sees; hard filters apply before ranking. Ids that `alive` rejects are skipped, for example
        those of expired agents. `among` restricts the hits to these ids."""
        ...


class AgentIndex(Protocol):
    """What a ranker searches, updated while it is queried."""

    @property
    def is_persistent(self) -> bool:
        """Whether the index is saved, so that a later start need not build it."""
        ...

    def open(self) -> int:
        """Open the saved index; returns the revision that it reflects, 0 if there is none."""
        ...

    def clear(self) -> None:
        """Remove everything, before a rebuild."""
        ...

    def put(self, registration: Registration) -> None: ...

    def remove(self, agent_id: str, revision: int = 0) -> None: ...

    def is_behind(self, audience: frozenset[str] | None) -> bool:
        """Whether a ranking would miss recent changes because there are too many: call `prepare_for` first."""
        ...

    def prepare_for(self, audience: frozenset[str] | None, query: Query) -> None:
        """Index the recent changes that this audience sees and that have the words of the query. Called in a thread."""
        ...

    @property
    def pending(self) -> int:
        """The number of changes that are not compacted into the index yet. Search results include them."""
        ...

    @property
    def unsaved(self) -> int:
        """The number of changes that `maintain` would save."""
        ...

    def is_fragmented(self, *, at_rest: bool = False) -> bool:
        """Whether `maintain` would merge segments, which makes queries faster, although nothing is unsaved."""
        ...

    def lacks_vectors(self, ids: Sequence[str]) -> bool:
        """Whether the vectors of some of these agents are not computed yet."""
        ...

    def lacking(self, limit: int, start: int = 0) -> list[str]:
        """Ids of agents without vectors. Callers with another `start` get others, if there are many."""
        ...

    def embed(self, registrations: Sequence[Registration]) -> Mapping[str, bytes]:
        """Compute the vectors of these agents; return them for `take_vectors` of other nodes. Called in a thread, for
        different agents in several threads at a time."""
        ...

    def take_vectors(self, registrations: Sequence[Registration], packed: Mapping[str, bytes]) -> set[str]:
        """Use vectors of these agents that `embed` returned elsewhere; return the ids of those that fit. Called in a thread."""
        ...

    def maintain(self, revision: int, give_way: Callable[[], bool] = ..., *, at_rest: bool = False) -> None:
        """Compact: fold in pending changes, save, and store the revision. Called in a thread. It calls `give_way` between
        small steps, which may sleep and returns whether a bulk load is going on. `at_rest`: nothing has changed for a
        while."""
        ...

    def follow(self) -> int:
        """Instead of `open`, in a follower: open the files that the leader has saved, if they are newer, and return the
        revision that it reflects, 0 if there is none. Later changes that were put here stay. Called in a thread."""
        ...


class Ranker(QueryRanker, Protocol):
    """Ranks the agents of an index. A query makes no call to the store and waits for no write."""

    @property
    def index(self) -> AgentIndex: ...

    def extend(self, registrations: Sequence[Registration]) -> QueryRanker:
        """A ranker of the same index and of these agents, which are in no index, for one query. Called in a thread."""
        ...

    def close(self) -> None:
        """Close the index, too."""
        ...


class VectorExchange(Protocol):
    """Vectors that the nodes of a cluster compute for each other, because computing them takes longest of all that indexing an
    agent takes. While they cannot be exchanged, each node computes them itself."""

    def is_mine(self, agent_id: str) -> bool:
        """Whether this node is to compute the vectors of an agent."""
        ...

    async def fetch(self, agent_ids: Sequence[str]) -> Mapping[str, bytes]:
        """The vectors of those of these agents that any node has computed, possibly of an earlier version."""
        ...

    async def put(self, vectors: Mapping[str, bytes]) -> None: ...
