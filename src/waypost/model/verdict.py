"""Trust is a verdict with its evidence, never a bare bool: "not checked" must not look like "failed"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

VerdictState = Literal["passed", "failed", "unknown", "not_checked"]
TrustState = Literal["verified", "self_asserted", "failed"]

TRUST_MEMBER: Final = "org.waypost.trust"  # where a format has free members but none for this

BADGES: Final = {"verified": "verified", "self_asserted": "claimed", "failed": "FAILED"}  # for people

# This shows that a document agrees with itself. Anybody can sign with a key of their own: `key-pinned` says whose it is.
# That a domain has a record of the agent says where it is (ADP-48: no cryptography was done).
CONSISTENT: Final = frozenset(("announce-signature", "dns-verified", "svcb-signature"))
# These cover the whole document: a change that passes one is the key holder's own. An ADP proof and an ARD manifest cover a
# name and themselves, and go on holding whatever is written around them.
SIGNED: Final = frozenset(("key-pinned", "a2a-signature", "profile-signature"))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found."""

    check: str
    state: VerdictState
    reason: str = ""
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)
    at: str | None = None


# Of documents without a signature nothing is kept; this is what answers say of them.
UNCHECKED: Final = {
    "profile": Verdict(check="profile-signature", state="not_checked", reason="the record is not signed"),
    "a2a": Verdict(check="a2a-signature", state="not_checked", reason="the card is not signed"),
    "adp": Verdict(check="adp-key", state="not_checked", reason="the document states no key"),
    "ard": Verdict(check="ard-manifest", state="not_checked", reason="the entry has no trust manifest"),
    "announce": Verdict(check="announce-signature", state="not_checked", reason="the announcement is not signed"),
}


def level_of(verdicts: Iterable[Verdict]) -> TrustState:
    """One failure is told before anything else; what passed counts where it binds the document to its agent."""
    level: TrustState = "self_asserted"
    for verdict in verdicts:
        if verdict.state == "failed":
            return "failed"
        if verdict.state == "passed" and verdict.check not in CONSISTENT:
            level = "verified"
    return level


def states_of(verdicts: Iterable[Verdict]) -> set[tuple[str, VerdictState]]:
    """What was found, without evidence and times. What was not checked is as good as not told."""
    return {(verdict.check, verdict.state) for verdict in verdicts if verdict.state != "not_checked"}


def is_signed(verdicts: Iterable[Verdict]) -> bool:
    """Whether a document is by the holder of a key that is bound to its agent."""
    told = tuple(verdicts)
    return level_of(told) == "verified" and any(
        verdict.state == "passed" and verdict.check in SIGNED for verdict in told
    )


def trust_summary(verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """`trust` as every answer shows it. Without a check everything is only claimed (PRO-55)."""
    return {
        "level": level_of(verdicts),
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
