"""Responses about the service itself: statistics, tokens, state, diagnosis and problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from waypost.responses.base import Answer, Count, Part, Timestamp, described, one_of

Severity = Literal["danger", "warning", "info", "ok"]


class WorkerStats(Part, frozen=True, kw_only=True):
    """One process of the service."""

    pid: int
    role: Annotated[str, one_of("leader", "follower")]
    ready: bool
    revision: int
    restarts: int


class NodeStats(Part, frozen=True, kw_only=True):
    """One node of a cluster, as it last reported to the database: every few seconds."""

    name: Annotated[str, described("the URL at which other nodes reach it, or the name of its machine")]
    version: str
    alive: Annotated[bool, described("whether it reported in the last 15 seconds")]
    seen_at: Timestamp
    revision: int
    lag_seconds: Annotated[
        float, described("time between its report and the last moment when it had every change of the cluster")
    ]
    this: Annotated[bool, described("whether it is the node that answers")]


NodeList = Callable[[], tuple[NodeStats, ...]]


class OwnUsage(Answer, frozen=True, kw_only=True):
    """What the caller has here, and how much it may have."""

    agents: int
    agents_limit: Annotated[int, described("absent: none")] | None = None
    stored_bytes: Annotated[int, described("of the documents of its agents")]
    stored_bytes_limit: Annotated[int, described("absent: none")] | None = None


class Stats(Answer, frozen=True, kw_only=True):
    """Counts of the agents that the caller may see; for an admin, the state of the service too.

    Example:
        print(client.stats().agents)
    """

    agents: int
    by_status: dict[str, int]
    by_visibility: dict[str, int]
    own: Annotated[OwnUsage, described("of a caller with a credential")] | None = None
    indexing_pending: Annotated[int, described("changes that the search index does not contain yet")] | None = None
    revision: int | None = None
    workers: tuple[WorkerStats, ...] | None = None
    nodes: Annotated[tuple[NodeStats, ...], described("of the cluster, with the store `postgresql://`")] | None = None


class MintedToken(Answer, frozen=True, kw_only=True):
    """A new token."""

    token: str
    expires_at: Timestamp


class ProtectedResource(Answer, frozen=True, kw_only=True):
    """The metadata of this service as a resource of OAuth 2.0 (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...]
    bearer_methods_supported: tuple[str, ...]
    resource_name: str
    resource_documentation: str


class ServiceKey(Answer, frozen=True, kw_only=True):
    """One key of the service itself. Never the key."""

    name: Annotated[str, one_of("token", "identity", "cursor")]
    changed_at: Timestamp
    accepted_keys: Annotated[int, described("the current one, and replaced ones that are still accepted")]
    key_id: Annotated[str, described("fingerprint of the public key")] | None = None
    accepted_until: Annotated[Timestamp, described("when the last replaced key ends")] | None = None


class ServiceKeyList(Answer, frozen=True, kw_only=True):
    """The keys of the service itself."""

    keys: tuple[ServiceKey, ...]


class ServiceState(Answer, frozen=True, kw_only=True):
    """The state of the service: `ok` if it is alive, `ready` if it accepts requests."""

    status: str


class OperationRow(Part, frozen=True, kw_only=True):
    """One operation with its scope, its command and its method of the client."""

    name: str
    summary: str
    scope: str | None
    idempotent: bool
    errors: tuple[str, ...]
    command: str | None
    method: str | None


class OperationTable(Answer, frozen=True, kw_only=True):
    """The operations of the service."""

    operations: tuple[OperationRow, ...]


class DoctorFinding(Part, frozen=True, kw_only=True):
    """What one rule of the doctor found."""

    layer: str
    severity: Severity
    message: str
    setting: Annotated[str, described("the setting that adds or removes the layer")] | None = None
    hint: str = ""


class Diagnosis(Answer, frozen=True, kw_only=True):
    """The protections of a deployment, and those that are missing."""

    findings: tuple[DoctorFinding, ...]
    counts: dict[Severity, Count]
    at: Timestamp


class Problem(Answer, frozen=True, kw_only=True):
    """An error (RFC 9457) with the members of the discovery profile. Errors may add members of their own."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    message: str
    correlation_id: str
    retry_after: int | None = None
    path: str | None = None
    hint: str | None = None
