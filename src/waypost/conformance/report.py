"""The report of a conformance run. JSON output, JUnit XML and the text for people come from these structs."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Status: TypeAlias = Literal["passed", "failed", "untested"]

# Why a requirement was not judged:
#   not_observable  nothing that a request to this URL could show
#   not_offered     the service does not have the optional part, or not the specification
#   no_data         the registry holds no agent that would show it
#   needs_write     only a check that changes something shows it (--write)
#   needs_token     the service wants credentials, or others than were given
#   needs_tls       the URL is a plain HTTP address on this machine
#   bound           a bound of the run was reached, or the service stopped answering
Cause: TypeAlias = Literal[
    "not_observable", "not_offered", "no_data", "needs_write", "needs_token", "needs_tls", "bound"
]


class ProbeRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was sent. Credentials are shown as `…`."""

    method: str
    url: str
    headers: dict[str, str] = {}
    body: str = ""


class ProbeResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came back: the status, the headers and the beginning of the body. `error` replaces them if nothing came."""

    status: int | None = None
    headers: dict[str, str] = {}
    body: str = ""
    body_bytes: int = 0
    error: str = ""


class ProbeExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer."""

    request: ProbeRequest
    response: ProbeResponse


class RequirementResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict on one requirement, with its evidence: the last exchanges of the check."""

    id: str
    specification: str
    level: str
    rule: str
    status: Status
    message: str = ""
    cause: Cause | None = None
    exchanges: tuple[ProbeExchange, ...] = ()


class SpecificationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was recognised of one specification, and how many of its requirements passed, failed or were not tested."""

    name: str
    title: str
    recognised: bool
    found: str
    passed: int
    failed: int
    untested: int


class RunBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use, or has used."""

    requests: int
    websockets: int
    bytes: int
    seconds: float


class ConformanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """All verdicts of one run."""

    url: str
    started_at: str
    write: bool
    authenticated: bool
    specifications: tuple[SpecificationSummary, ...]
    results: tuple[RequirementResult, ...]
    notes: tuple[str, ...]
    bounds: RunBounds
    used: RunBounds

    @property
    def failures(self) -> tuple[RequirementResult, ...]:
        """The requirements that are not met."""
        return tuple(result for result in self.results if result.status == "failed")

    @property
    def recognised(self) -> tuple[str, ...]:
        """The names of the specifications that were recognised."""
        return tuple(row.name for row in self.specifications if row.recognised)

    @property
    def ok(self) -> bool:
        """Whether something was recognised and nothing failed."""
        return bool(self.recognised) and not self.failures

    def result(self, requirement_id: str) -> RequirementResult:
        """The verdict on one requirement.

        Args:
            requirement_id: Its id, such as `AF-5`.
        """
        return next(result for result in self.results if result.id == requirement_id)

    def count(self, status: Status) -> int:
        """How many requirements have this status.

        Args:
            status: `passed`, `failed` or `untested`.
        """
        return sum(result.status == status for result in self.results)
