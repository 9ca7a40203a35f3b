"""What the registry needs of the net: one document at one address, or the reason why not. How, is not known here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec

from waypost import limits
from waypost.errors import WaypostError
from waypost.model.events import Event, EventType
from waypost.model.history import RecordVersion
from waypost.model.query import Query, Ranking
from waypost.model.registration import CatalogEntry, Registration
from waypost.trust.transparency_log import Span

FetchPurpose = Literal["health", "card", "jwks", "peer", "proof", "webhook", "descriptor", "index", "task"]


class FetchResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What another server answered. The body of an answer that is no success is not read."""

    url: str  # the one that answered, after redirects
    status: int
    headers: Mapping[str, str]  # names in lower case; the last of several
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Fetcher(Protocol):
    async def fetch(self, url: str, purpose: FetchPurpose) -> FetchResponse:
        """Raises InvalidParameter for an address that is none, AddressDenied for one that is not asked, else FetchFailed
        with the reason as a word in its details."""
        ...


class EndpointProber(Protocol):
    """Whether somebody answers at an endpoint of an agent. Nothing of the answer is read but its status."""

    def check_endpoint(self, endpoint: str) -> None:
        """Raises AddressDenied for an endpoint at a number that is not asked. Asks nobody."""
        ...

    async def probe(self, endpoint: str) -> int | None:
        """The status that came; None where a connection is all that can be tried. Raises as `Fetcher.fetch`, and RateLimited
        when this endpoint was asked a moment ago."""
        ...


class OutboundSender(Protocol):
    """What is sent to an address that a stranger named: a result, a task. Nobody follows a redirect with it."""

    def check(self, url: str, purpose: FetchPurpose) -> None:
        """Raises, without asking anybody, what `send` would raise for an address like this one."""
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
        """Raises as `Fetcher.fetch`. `headers` are ours, never a caller's."""
        ...


# ---- A durable place for small things that are no records: tasks, messages in a mailbox, swarms, invitations.
#
# Each thing has a kind and a key. Writes of one commit are all or nothing, and durable when it returns. A write may expect what
# is there now, so that two who race for the same thing cannot both have it.

ANY_VALUE: Final = b"\0anything"  # nothing that is kept begins with a zero


class KeyValueWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    kind: str
    key: str
    value: bytes | None  # None removes it
    expires_at: float | None = None  # from then on it is as if it were not there
    expected: bytes | None = ANY_VALUE  # None: only if nothing is there


class KeyValueItem(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    expires_at: float | None = None


class KeyValueStore(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def commit(self, writes: Sequence[KeyValueWrite], now: float) -> bool:
        """False, and nothing written, when one of them expected something else. StorageFull, StoreUnavailable."""
        ...

    async def get(self, kind: str, key: str, now: float) -> bytes | None: ...

    async def scan(
        self, kind: str, now: float, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[KeyValueItem]:
        """In the order of their keys."""
        ...

    async def count(self, kind: str, now: float, *, prefix: str = "") -> int: ...

    async def healthy(self) -> bool:
        """Whether it is open and takes writes. A full disk is the store's to tell: both are on the same one."""
        ...


# ---- What the engine needs from outside: a store, a ranker, a clock.
#
# The store runs `decide` inside its own transaction. Many commands may share one commit; each is all or nothing. A command is
# answered only after its record, its revision and its event are durable together.


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds."""
        ...


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a record that was withdrawn or expired: enough that stale news cannot raise it again."""

    id: str
    owner: str
    at: float
    type: EventType  # withdrawn or expired
    hold_until: float  # until then only the owner may take the id
    forget_at: float
    updated_at: float | None = None
    version: str | None = None
    sequence: int | None = None
    etag: str = ""


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds for the keys of a command, at the moment of decision."""

    registrations: Mapping[str, Registration]  # by canonical id, every one that a key or an alias leads to
    tombstones: Mapping[str, Tombstone]  # by id
    revision: int  # the last revision taken; a change takes the next one
    notes: Mapping[str, bytes] = {}  # of the names that the command asked for, those that are there


class RegistrationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A decision to write. The store fills in the revision: of `registration`, of the event, of nothing else.

    A registration lifts the tombstone of its id and claims its aliases; one that is held stays with its holder.
    """

    type: EventType
    at: float
    registration: Registration | None = None  # after the change; None removes the record
    removed: Registration | None = None  # what is removed, for withdrawn and expired
    tombstone: Tombstone | None = None
    before: tuple[str, ...] | None = None  # scopes that saw the record before
    replaced: Registration | None = None  # what those saw, where the change hides it from some of them
    document: bytes | None = None  # the record as a profile document, where the decision has it at hand


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command gives back: an outcome word, the state after it, and whether anything was written."""

    outcome: str  # created updated refreshed unchanged withdrawn already …
    registration: Registration | None = None
    revision: int = 0
    replayed: bool = False  # answered from the memory of an idempotency key: as it was then, without documents


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did what, when, from where, with which credential. Names and outcomes only: no document, no private field."""

    at: float
    action: str  # register update withdraw expire allow revoke rotate mint refuse …
    subject: str
    object: str = ""  # the agent, key, rule or domain that it was done to
    outcome: str = ""
    via: str = ""
    credential: str = ""
    address: str = ""
    etag: str = ""  # of the content after it
    detail: str = ""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of the trail are asked for, in the order of their numbers."""

    after: int = 0
    limit: int = limits.AUDIT_PAGE_DEFAULT
    subject: str | None = None
    object: str | None = None
    action: str | None = None

    def parts(self) -> list[bytes]:
        """What an entry that fits contains, as canonical JSON. Quotes within a text are escaped, so no text can feign it."""
        asked = {"subject": self.subject, "object": self.object, "action": self.action}
        return [b'"%s":%s' % (name.encode(), msgspec.json.encode(value)) for name, value in asked.items() if value]


class AuditLogPage(msgspec.Struct, frozen=True, kw_only=True):
    leaves: list[bytes]  # canonical JSON, each with its number
    size: int  # of the whole trail
    oldest: int = 1  # whose content is still there
    next_after: int | None = None  # to go on from; a page can be empty and have one


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Change, notes and audit entries are written together. A `refusal` is raised once they are durable: what was tried in
    vain may have to be remembered too."""

    outcome: str
    change: RegistrationChange | None = None  # None: nothing to write
    registration: Registration | None = None  # what the answer shows when nothing is written, or a record is removed
    notes: Mapping[str, bytes | None] = {}  # small facts beside the records (pins, rules, marks); None removes one
    audit: tuple[AuditEntry, ...] = ()
    refusal: WaypostError | None = None


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's key for a write. Same key and same fingerprint: the first answer again. Other fingerprint: conflict."""

    key: str  # subject and key, joined by the engine
    fingerprint: str
    forget_at: float


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One write. `decide` is pure, may be called again after a lost race, and raises a WaypostError to refuse."""

    keys: tuple[str, ...]  # ids and aliases whose registrations `decide` must see
    notes: tuple[str, ...] = ()  # names of notes that `decide` must see
    decide: Callable[[StoreState], Decision]
    idempotency: Idempotency | None = None


class CommittedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What the store tells its listener after a commit, in the order of revisions."""

    event: Event
    registration: Registration | None  # None when the record was removed
    entry: CatalogEntry | None = None  # of the registration, where the store has made it for itself


NoteListener = Callable[[Mapping[str, bytes | None]], None]  # hears which notes were written, and which removed (None)


class Store(Protocol):
    """memory, sqlite, postgres. One contract suite: tests/contract/test_store.py."""

    async def open(
        self, listener: Callable[[Sequence[CommittedChange]], None], noted: NoteListener | None = None
    ) -> None:
        """Open, migrate, check. `listener` is called on the event loop after each commit, before its callers are answered,
        with the changes of this process (and, later, of other nodes) in revision order. `noted` is called before it, and
        only after commits that wrote notes, with the last value of each: a commit without notes does not know of it."""
        ...

    async def close(self) -> None: ...

    async def execute(self, command: Command) -> CommandResult:
        """Decide and write, durable when it returns. Raises what `decide` raises, StoreUnavailable or StorageFull."""
        ...

    async def revision(self) -> int: ...

    def entries(self) -> AsyncIterator[Sequence[CatalogEntry]]:
        """All registrations as compact rows, in pages, expired ones included (their lease may be renewed)."""
        ...

    async def fetch(self, ids: Sequence[str], *, sources: bool = True) -> dict[str, Registration]:
        """The registrations of these canonical ids; missing ones are left out. `sources=False` leaves their documents out:
        each source is there, with an empty document."""
        ...

    async def document(self, entry: CatalogEntry, dialect: str) -> tuple[str, bytes] | None:
        """The latest document of one dialect as it was received, with the etag of the content it belongs to. The short
        way for the most frequent read; None when the agent, or such a source of it, is not there."""
        ...

    def scan(self, ids: Sequence[str] | None = None) -> AsyncIterator[Sequence[Registration]]:
        """Registrations in pages (all, or these ids), with sources; for work that must look at every document."""
        ...

    async def tombstone(self, agent_id: str) -> Tombstone | None: ...

    async def notes(self, prefix: str, after: str = "", limit: int | None = None) -> list[tuple[str, bytes]]:
        """The notes whose names begin so, in the order of names; those after a name, and so many of them."""
        ...

    async def history(self, agent_id: str, limit: int = limits.HISTORY_VERSIONS) -> list[RecordVersion]:
        """Earlier contents of an agent, the newest first. They go with the agent."""
        ...

    async def audit(self, query: AuditQuery) -> AuditLogPage:
        """Entries of the audit trail. One call looks at no more than limits.AUDIT_SCAN of them."""
        ...

    async def audit_size(self) -> int: ...

    async def audit_hashes(self, spans: Sequence[Span]) -> list[bytes]:
        """The tree hash of each span of entries. A span begins at a multiple of its largest power of two, and ends within
        the trail."""
        ...

    async def events(self, after: int, limit: int) -> Sequence[Event]:
        """Events with revision > after, in order."""
        ...

    async def oldest_event(self) -> int:
        """The lowest revision still kept, or revision()+1 when the log is empty."""
        ...

    async def prune(
        self, *, events_before: float, keep_events: int, now: float, keep_audit: int = limits.AUDIT_KEEP
    ) -> int:
        """Drop events older than `events_before` beyond the newest `keep_events`, forgotten tombstones, old idempotency
        keys, and the contents of audit entries beyond about the newest `keep_audit`. Returns how many rows went."""
        ...

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """A secret kept with the data (cursor keys …): made once, the same after every restart and on every node."""
        ...

    async def healthy(self) -> bool:
        """True when writes are accepted."""
        ...


class Ranker(Protocol):
    """A living index. Filled from the change log; a query makes no live call and takes no lock that a write holds."""

    def open(self) -> int:
        """Open what was saved; returns the revision it reflects (0: nothing, feed everything)."""
        ...

    def clear(self) -> None:
        """Forget everything; what is saved is built anew."""
        ...

    def put(self, registration: Registration) -> None: ...

    def remove(self, agent_id: str, revision: int = 0) -> None: ...

    def rank(
        self,
        query: Query,
        audience: frozenset[str] | None,
        *,
        alive: Callable[[str], bool],
        now: float,
        among: Sequence[str] | None = None,
    ) -> Ranking:
        """Hits for `query` that the audience sees, hard filters applied before ranking. `alive` says whether an id still
        lives (leases end by comparison on read); ids it refuses are passed over, not counted. `among` names the only ids
        that can be answers, where constraints leave few."""
        ...

    def is_behind(self, audience: frozenset[str] | None) -> bool:
        """Whether so much is fresh that `rank` would pass some of it over: `prepare_for` first."""
        ...

    def prepare_for(self, audience: frozenset[str] | None) -> None:
        """Take in what is fresh and seen by this audience. Called in a thread."""
        ...

    @property
    def pending(self) -> int:
        """Changes that a slower signal has not taken in yet. Answers include them all the same."""
        ...

    @property
    def unsaved(self) -> int:
        """How much `maintain` would save."""
        ...

    def is_apart(self, *, at_rest: bool = False) -> bool:
        """Whether `maintain` would make questions quicker though there is nothing to save."""
        ...

    def lacking(self, limit: int) -> list[str]:
        """Ids of agents whose slower signals are still to be made."""
        ...

    def embed(self, registrations: Sequence[Registration]) -> None:
        """Make the slower signals of these agents. Called in a thread."""
        ...

    def maintain(self, revision: int, give_way: Callable[[], bool] = ..., *, at_rest: bool = False) -> None:
        """Fold pending changes in, save, and note the revision. Called in a thread, from time to time. `give_way` is called
        there between small steps; it may wait, and says whether others are still at work. `at_rest`: nothing has changed for
        a while."""
        ...

    def follow(self) -> int:
        """Instead of `open`, for a reader of what another process saves: open that, if it is newer, and return the revision
        that it reflects; 0: nothing is saved yet. Changes after it that were put here stay in force. Called in a thread."""
        ...

    def close(self) -> None: ...
