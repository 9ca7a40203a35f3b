"""Trust is a verdict with its evidence, never a bare bool: "not checked" must not look like "failed"."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

State = Literal["passed", "failed", "unknown", "not_checked"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    check: str
    state: State
    reason: str = ""
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)
    at: str | None = None


def summary(verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """`trust` as every answer shows it. Without a check everything is only claimed (PRO-55)."""
    if any(verdict.state == "failed" for verdict in verdicts):
        level = "failed"
    elif any(verdict.state == "passed" for verdict in verdicts):
        level = "verified"
    else:
        level = "self_asserted"
    return {
        "level": level,
        "checks": [
            {
                name: value
                for name, value in (
                    ("check", verdict.check),
                    ("state", verdict.state),
                    ("reason", verdict.reason),
                    ("evidence", verdict.evidence),
                    ("at", verdict.at),
                )
                if value
            }
            for verdict in verdicts
        ],
    }
