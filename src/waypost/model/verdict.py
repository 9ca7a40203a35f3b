"""Verdicts: the result of a check with its evidence, never a bool, so that "not checked" differs from "failed"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

VerdictState = Literal["passed", "failed", "unknown", "not_checked"]
TrustState = Literal["verified", "self_asserted", "failed"]

TRUST_MEMBER: Final = "org.waypost.trust"  # member name in formats with free-form members

BADGES: Final = {"verified": "verified", "self_asserted": "self-asserted", "failed": "FAILED"}  # for display

# These checks show only that a document is consistent. Anyone can sign with a key of their own; `key-pinned` shows
# whose key it is. A record in a domain shows where the agent is (ADP-48: without cryptography).
CONSISTENT: Final = frozenset(("announce-signature", "dns-verified", "svcb-signature"))
# These checks cover the whole document: a change that passes one was made by the holder of the key. An ADP proof and an
# ARD manifest cover a name and themselves only, and stay valid when the rest of the document changes.
SIGNED: Final = frozenset(("key-pinned", "a2a-signature", "profile-signature"))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    state: VerdictState
    reason: str = ""
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)
    at: str | None = None


# For documents without a signature no verdict is stored; responses show these.
UNCHECKED: Final = {
    "profile": Verdict(check="profile-signature", state="not_checked", reason="the record is not signed"),
    "a2a": Verdict(check="a2a-signature", state="not_checked", reason="the card is not signed"),
    "adp": Verdict(check="adp-key", state="not_checked", reason="the document has no key"),
    "ard": Verdict(check="ard-manifest", state="not_checked", reason="the entry has no trust manifest"),
    "announce": Verdict(check="announce-signature", state="not_checked", reason="the announcement is not signed"),
}


def level_of(verdicts: Iterable[Verdict]) -> TrustState:
    """One failure decides; a passed check counts if it binds the document to its agent."""
    level: TrustState = "self_asserted"
    for verdict in verdicts:
        if verdict.state == "failed":
            return "failed"
        if verdict.state == "passed" and verdict.check not in CONSISTENT:
            level = "verified"
    return level


def states_of(verdicts: Iterable[Verdict]) -> set[tuple[str, VerdictState]]:
    """Return the results without evidence and times; `not_checked` is left out."""
    return {(verdict.check, verdict.state) for verdict in verdicts if verdict.state != "not_checked"}


def is_signed(verdicts: Iterable[Verdict]) -> bool:
    """Return whether the holder of a key that is bound to the agent signed the whole document."""
    known = tuple(verdicts)
    return level_of(known) == "verified" and any(
        verdict.state == "passed" and verdict.check in SIGNED for verdict in known
    )


class CheckResult(Verdict, frozen=True, kw_only=True, omit_defaults=True):
    """A verdict as answers show it: without its empty members."""


# A client accepts levels that it does not know, and trusts them no more than a failed one.
ShownTrust = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(get_args(TrustState))})]


class TrustSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The level of trust and the checks behind it. `checks` is absent where an answer shows the level only."""

    level: ShownTrust
    checks: tuple[CheckResult, ...] | None = None


def trust_summary(verdicts: Iterable[Verdict]) -> TrustSummary:
    """Return `trust` for responses. Without a check the level is self-asserted (PRO-55)."""
    verdicts = tuple(verdicts)
    checks = tuple(msgspec.convert(verdict, CheckResult, from_attributes=True) for verdict in verdicts)
    return TrustSummary(level=level_of(verdicts), checks=checks)
