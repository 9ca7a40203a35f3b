"""The trace of a resolution: its lookups and steps, their cost, and warnings.

The lookups of one round run concurrently; a round costs as many round trips as its slowest lookup.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from waypost.domains.ports import DnsLookup, DnsResolver, RecordType, SecurityState
from waypost.errors import WaypostError
from waypost.model.resolution import ResolutionCost, ResolutionStep
from waypost.model.times import to_rfc3339
from waypost.model.verdict import VerdictState
from waypost.registry.ports import Clock

DnsQuestion = tuple[str, RecordType]
_STATES: dict[str, VerdictState] = {
    "found": "passed",
    "nodata": "not_checked",
    "nxdomain": "not_checked",
    "failed": "unknown",
}
_ABSENCE_REASONS = {"nodata": "no such record", "nxdomain": "no such name"}
_SECURITY_ORDER: dict[SecurityState, int] = {"bogus": 0, "indeterminate": 1, "insecure": 2, "secure": 3}


class ResolutionRefused(Exception):
    """The agent must not be used, or its state is unknown. `level` is the trust level that fails."""

    def __init__(self, code: str, reason: str, *, level: str = "dns-verified", state: VerdictState = "failed") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.level = level
        self.state = state


class ResolutionTrace:
    def __init__(self, dns: DnsResolver, clock: Clock) -> None:
        self._dns = dns
        self._clock = clock
        self._rounds: list[int] = [0]
        self._queries = 0
        self._started_at = time.perf_counter()
        self.steps: list[ResolutionStep] = []
        self.warnings: list[str] = []
        self.fetches = 0

    @property
    def at(self) -> str:
        return to_rfc3339(self._clock.now())

    async def lookup_all(self, *questions: DnsQuestion) -> list[DnsLookup]:
        """Look names up concurrently, as the next round."""
        self.begin_round()
        return await asyncio.gather(*(self.lookup(question) for question in questions))

    def begin_round(self) -> None:
        self._rounds.append(0)

    async def lookup(self, question: DnsQuestion) -> DnsLookup:
        """Look a name up within the current round."""
        name, kind = question
        found = await self._dns.lookup(name, kind)
        self._rounds[-1] = max(self._rounds[-1], found.round_trips)
        self._queries += found.queries
        return found

    def add_step(
        self, name: str, state: VerdictState, reason: str = "", *, code: str = "", took_ms: float = 0.0, **evidence: Any
    ) -> None:
        known = {key: value for key, value in evidence.items() if value not in (None, "", (), [])}
        self.steps.append(
            ResolutionStep(
                name=name, state=state, reason=reason, code=code, evidence=known, took_ms=took_ms, at=self.at
            )
        )

    def add_lookup(self, found: DnsLookup, reason: str = "", *, code: str = "", **evidence: Any) -> None:
        """Add the step of a lookup. That there is no record is an answer, too."""
        state = _STATES[found.outcome] if found.security != "bogus" else "failed"
        shown_reason = reason or _ABSENCE_REASONS.get(found.outcome, "") or (found.reason if state != "passed" else "")
        known = {
            "name": found.name,
            "type": found.type,
            "outcome": found.outcome,
            "dnssec": found.security,
            "dnssec_reason": found.reason if found.reason != shown_reason else None,
            "owner": found.owner if found.owner != found.name else None,
            "ttl": found.ttl,
            "server": found.server,
            "validated": None if found.validated else False,
            **evidence,
        }
        self.steps.append(
            ResolutionStep(
                name=found.type.lower(),
                state=state if not code else "failed",
                reason=shown_reason,
                code=code,
                evidence={key: value for key, value in known.items() if value not in (None, "", (), [])},
                queries=found.queries,
                round_trips=found.round_trips,
                took_ms=round(found.took_ms, 3),
                at=self.at,
            )
        )

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def cost(self) -> ResolutionCost:
        return ResolutionCost(
            queries=self._queries,
            round_trips=sum(self._rounds),
            fetches=self.fetches,
            took_ms=round((time.perf_counter() - self._started_at) * 1000, 3),
        )


def weakest_security(*securities: SecurityState) -> SecurityState:
    """The weakest of several states, by which a chain is judged."""
    return min(securities, key=_SECURITY_ORDER.__getitem__, default="indeterminate")


def is_denied(found: DnsLookup) -> bool:
    """Whether the record does not exist: the only answer after which another lookup is tried (C-11)."""
    return found.outcome in ("nodata", "nxdomain") and found.security != "bogus"


def raise_for_lookup(found: DnsLookup) -> None:
    """Raise for a server failure, a timeout or a bogus answer: nothing weaker is tried instead (D3)."""
    if found.security == "bogus":
        raise ResolutionRefused("bogus", found.reason or f"the answer for {found.name} {found.type} is bogus")
    if found.outcome == "failed":
        reason = found.reason or "no answer"
        raise ResolutionRefused(
            "dns_failed", f"{found.type} of {found.name} could not be looked up: {reason}", state="unknown"
        )


def error_code(error: WaypostError, fallback: str) -> str:
    return str(error.details.get("reason") or fallback)
