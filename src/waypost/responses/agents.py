"""Responses about agents: documents, receipts, lists, versions, changes, imports and zones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Self

import msgspec

from waypost.errors import ERROR_CODES, InternalError, WaypostError
from waypost.model.events import JsonDifference
from waypost.model.query import MATCHES
from waypost.model.record import STATUSES, MappingLoss
from waypost.model.verdict import TrustSummary
from waypost.responses.base import Answer, Part, Timestamp, described, one_of

_OUTCOMES = ("created", "updated", "refreshed", "unchanged", "held", "rejected")
_HEALTH_STATES = ("unknown", "healthy", "suspect", "dead", "unhealthy")

HealthState = Annotated[str, one_of(*_HEALTH_STATES)]
Suggestions = dict[str, dict[str, tuple[str, ...]]]  # kind → unknown value → known values


class Agent(dict[str, Any]):
    """An agent as the discovery profile describes it; members that the profile does not define are allowed.

    It is a dict, so it is accepted wherever a document is.

    >>> agent = Agent("https://a.example/translator", "Translator", "Translates invoices.", tags=["translation"])
    >>> agent.bind("https", "https://a.example/invoke").example("Translate this invoice to French.").name
    'Translator'
    """

    health: str | None = None
    """State of the endpoint in lists of a service that checks endpoints: healthy, suspect, dead or unhealthy."""

    def __init__(
        self,
        id: str,  # noqa: A002 - the profile's own word
        name: str,
        description: str,
        *,
        bindings: Iterable[Mapping[str, Any]] = (),
        tags: Iterable[str] = (),
        examples: Iterable[str | Mapping[str, Any]] = (),
        **members: Any,
    ) -> None:
        """Describe an agent.

        Args:
            id: The id, usually a URL or URN.
            name: The name for people.
            description: What the agent does.
            bindings: Where it can be called: mappings with `protocol` and `endpoint`.
            tags: Tags for search and filters.
            examples: Tasks that it can do, as texts or as mappings with `text`.
            **members: Further members of the document.
        """
        super().__init__(id=id, name=name, description=description)
        tag_list = list(tags)
        if tag_list:
            self["tags"] = tag_list
        example_list = [{"text": item} if isinstance(item, str) else dict(item) for item in examples]
        if example_list:
            self["examples"] = example_list
        self["bindings"] = [dict(binding) for binding in bindings]
        self.update(members)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Agent:
        """The agent in a profile document. Every member is kept.

        Args:
            document: The profile document.

        Example:
            agent = Agent.from_document({"id": "urn:example:a", "name": "Adder", "description": "Adds numbers."})
            print(agent.name)
        """
        agent = cls.__new__(cls)
        dict.update(agent, document)
        return agent

    def bind(self, protocol: str, endpoint: str, **members: Any) -> Agent:
        """Add a binding and return the agent.

        Args:
            protocol: The protocol of the binding, such as `a2a`, `mcp` or `https`.
            endpoint: The URL of the agent.
            **members: Further members of the binding.

        Example:
            agent = Agent("urn:example:a", "Adder", "Adds numbers.")
            agent.bind("a2a", "https://adder.example.com/a2a")
        """
        self.setdefault("bindings", []).append({"protocol": protocol, "endpoint": endpoint, **members})
        return self

    def example(self, text: str, **members: Any) -> Agent:
        """Add an example task and return the agent.

        Args:
            text: The task in words.
            **members: Further members of the example.

        Example:
            agent = Agent("urn:example:a", "Adder", "Adds numbers.")
            agent.example("What is two plus three?")
        """
        self.setdefault("examples", []).append({"text": text, **members})
        return self

    @property
    def id(self) -> str:
        """The id of the agent."""
        return str(self["id"])

    @property
    def name(self) -> str:
        """The name of the agent."""
        return str(self["name"])

    @property
    def description(self) -> str:
        """What the agent does; empty when the document does not say."""
        return str(self.get("description", ""))

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the agent."""
        return tuple(self.get("tags") or ())

    @property
    def bindings(self) -> tuple[Mapping[str, Any], ...]:
        """The bindings of the agent."""
        return tuple(self.get("bindings") or ())

    @property
    def examples(self) -> tuple[Mapping[str, Any], ...]:
        """The example tasks of the agent."""
        return tuple(self.get("examples") or ())

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols of the bindings, each once, in order."""
        return binding_protocols(self.bindings)

    @property
    def endpoint(self) -> str | None:
        """The endpoint of the preferred binding (the lowest `priority`)."""
        return preferred_endpoint(self.bindings)

    @property
    def version(self) -> str | None:
        """The version that the document states."""
        return self.get("version")

    @property
    def status(self) -> str:
        """The status; active when the document states none."""
        return str(self.get("status") or STATUSES[0])

    @property
    def updated_at(self) -> str | None:
        """When the publisher last changed the document, as it states."""
        return self.get("updated_at")

    def __repr__(self) -> str:
        return f"Agent(id={self.get('id')!r}, name={self.get('name')!r})"


AgentDocument = Annotated[Agent, msgspec.Meta(extra_json_schema={"type": "object"})]


def binding_protocols(bindings: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The protocols of bindings, each once, in order."""
    return tuple(dict.fromkeys(str(binding.get("protocol", "")) for binding in bindings))


def preferred_endpoint(bindings: Iterable[Mapping[str, Any]]) -> str | None:
    """The endpoint of the binding with the lowest `priority`; None without bindings."""
    preferred = min(bindings, key=lambda binding: binding.get("priority") or 0, default=None)
    return None if preferred is None else str(preferred.get("endpoint"))


class ErrorDetail(Part, frozen=True, kw_only=True):
    """Why one document of several was refused."""

    code: str
    message: str
    path: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, error: WaypostError) -> Self:
        """The members of an error that answers show."""
        return cls(code=error.code, message=error.message, path=error.path, hint=error.hint)

    def to_error(self) -> WaypostError:
        """The error that a client raises for it."""
        kind = next((kind for kind in ERROR_CODES if kind.code == self.code), InternalError)
        return kind(self.message, path=self.path, hint=self.hint)


class PendingDifference(Part, frozen=True, kw_only=True):
    """A protected part of a verified agent that a change would alter."""

    part: Annotated[str, one_of("endpoint", "key", "auth")]
    before: Any
    after: Any


class PendingChangeView(Answer, frozen=True, kw_only=True):
    """A change that the owner of a verified agent has to confirm."""

    etag: Annotated[str, described("names the change in confirm and reject")]
    base: Annotated[str, described("etag of the version that it would replace")]
    changes: tuple[PendingDifference, ...]
    dialect: str
    subject: str
    at: Timestamp
    expires_at: Timestamp


class Receipt(Answer, frozen=True, kw_only=True):
    """The answer to a write.

    Example:
        receipt = client.register(Path("agent.json"))
        print(receipt.id, receipt.outcome, receipt.warnings)
    """

    id: str
    aliases: tuple[str, ...]
    dialect: str
    outcome: Annotated[str, one_of(*_OUTCOMES)]
    etag: str
    losses: tuple[MappingLoss, ...]
    warnings: tuple[str, ...]
    trust: TrustSummary
    held: Annotated[PendingChangeView, described("the pending change, if the outcome is `held`")] | None = None
    expires_at: Timestamp | None = None
    ttl_seconds: int | None = None
    invitees: Annotated[tuple[str, ...], described("who sees a private agent; in the answer to `:share`")] | None = None

    def __repr__(self) -> str:
        return f"<Receipt {self.outcome} {self.id!r} {self.dialect}>"


class BatchLine(Answer, frozen=True, kw_only=True):
    """The result of one document of a batch: either `id`, `outcome` and `etag`, or `error`."""

    id: str = ""
    outcome: Annotated[str, one_of(*_OUTCOMES)] = ""
    etag: str = ""
    error: ErrorDetail | None = None


class ExistingAgent(Part, frozen=True, kw_only=True):
    """The agent that is already registered under an id."""

    id: str
    etag: str
    yours: bool


class FetchedAgent(Part, frozen=True, kw_only=True):
    """One document at an address. The members of a receipt are present if it was registered."""

    url: str
    dialect: str = ""
    id: str = ""
    name: str = ""
    outcome: Annotated[str, one_of("found", "failed", *_OUTCOMES)]
    losses: tuple[MappingLoss, ...] | None = None
    warnings: tuple[str, ...] | None = None
    trust: TrustSummary | None = None
    agent: Annotated[dict[str, Any], described("the profile document that it maps to")] | None = None
    document: Annotated[Any, described("the document: JSON, or a string if it is not JSON")] = None
    existing: ExistingAgent | None = None
    aliases: tuple[str, ...] | None = None
    etag: str | None = None
    held: PendingChangeView | None = None
    expires_at: Timestamp | None = None
    ttl_seconds: int | None = None
    error: ErrorDetail | None = None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, if the document was registered."""
        if self.etag is None or self.trust is None:
            return None
        return Receipt(
            id=self.id,
            aliases=self.aliases or (),
            dialect=self.dialect,
            outcome=self.outcome,
            etag=self.etag,
            losses=self.losses or (),
            warnings=self.warnings or (),
            trust=self.trust,
            held=self.held,
            expires_at=self.expires_at,
            ttl_seconds=self.ttl_seconds,
        )


class FetchResult(Answer, frozen=True, kw_only=True):
    """The documents at an address: one agent, or those of a catalog."""

    url: Annotated[str, described("where the documents are, after redirects")]
    digest: Annotated[str, described("SHA-256 of the content")]
    agents: tuple[FetchedAgent, ...]


class AgentHealth(Answer, frozen=True, kw_only=True):
    """The state of an agent's endpoint."""

    id: str
    state: HealthState
    status: Annotated[str, described("the status under which lists show the agent")]
    since: Timestamp | None = None
    endpoint: Annotated[str, described("the endpoint that is checked")] | None = None
    reason: Annotated[str, described("why the check fails; for the owner and admins")] | None = None


class Page(Answer, frozen=True, kw_only=True):
    """One page of a list of agents.

    Example:
        page = client.page(limit=50)
        following = client.page(limit=50, cursor=page.next_cursor)
    """

    agents: tuple[AgentDocument, ...]
    next_cursor: Annotated[str, described("the cursor of the next page; absent on the last one")] | None = None
    health: Annotated[dict[str, HealthState], described("state of checked endpoints, by id")] = msgspec.field(
        default_factory=dict
    )
    suggestions: Suggestions = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """The page in a JSON object, with the state of its endpoint on each agent."""
        page = super().parse(document)
        for agent in page.agents:
            agent.health = page.health.get(agent.get("id", ""))
        return page

    def __iter__(self) -> Iterator[Agent]:
        return iter(self.agents)

    def __repr__(self) -> str:
        more = "" if self.next_cursor is None else ", more follow"
        return f"<{type(self).__name__} {len(self.agents)} agents{more}>"


class AgentVersion(Part, frozen=True, kw_only=True):
    """One version of an agent."""

    etag: str
    at: Timestamp
    current: bool
    changed: Annotated[tuple[str, ...], described("JSON paths that differ from the next older version")] | None = None
    subject: Annotated[str, described("who wrote it; for the owner and admins")] | None = None
    digests: Annotated[dict[str, str], described("SHA-256 of each dialect's document; as subject")] | None = None


class HistoryResult(Answer, frozen=True, kw_only=True):
    """The versions of an agent that are kept, newest first."""

    id: str
    versions: tuple[AgentVersion, ...]


class DiffResult(Answer, frozen=True, kw_only=True):
    """How two versions of an agent differ. A side of a difference that has no such member is absent."""

    id: str
    from_: str = msgspec.field(name="from")
    to: str
    differences: tuple[JsonDifference, ...]
    complete: Annotated[bool, described("false if there are more differences than are listed")]


class Change(Answer, frozen=True, kw_only=True):
    """One change of the registry.

    Example:
        for change in client.watch():
            print(change.type, change.id)
    """

    type: Annotated[str, one_of("registered", "updated", "renewed", "withdrawn", "expired")]
    id: str
    at: Timestamp
    etag: str
    match: Annotated[str, one_of(*MATCHES), described("how well it fits, in a watch with a query")] | None = None
    agent: AgentDocument | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type} {self.id!r} at {self.at}>"

    @classmethod
    def from_event(cls, document: Mapping[str, Any], cursor: str) -> Self:
        """The change in an event of a watch.

        Args:
            document: The data of the event.
            cursor: The id of the event.
        """
        change = cls.parse(document)
        change.__dict__["cursor"] = cursor
        return change

    @cached_property
    def cursor(self) -> str:
        """The cursor of the event: a watch from it continues after this change."""
        return ""


class AgentZoneRecord(Part, frozen=True, kw_only=True):
    """One DNS record in presentation format, its name without the final dot."""

    name: str
    type: str
    ttl: int
    data: str


class AgentZone(Answer, frozen=True, kw_only=True):
    """The DNS records that lead to an agent."""

    id: str
    domain: str
    format: str
    text: Annotated[str, described("the zone in this format")]
    records: tuple[AgentZoneRecord, ...]
    warnings: tuple[str, ...]
