"""The trust ladder: what was checked about an agent, in four rungs, lowest first. 'Not checked' never looks like 'failed'."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from waypost.model.verdict import BADGES, TrustSummary, Verdict

_EVIDENCE_CHARS: Final = 300  # characters of one value
_STATES: Final = {"passed": "passed", "failed": "failed", "unknown": "not known", "not_checked": "not checked"}
_LEVEL_TEXTS: Final = {
    "verified": "A check that binds this record to its agent passed.",
    "self_asserted": "All of this is what the publisher claims: no signature, key or domain confirms it.",
    "failed": "A check failed. Do not rely on this record.",
}
# Every check with its name and what it proves.
CHECK_LABELS: Final[dict[str, tuple[str, str]]] = {
    "announce-signature": ("Announcement signed", "The announcement was signed with the key that it contains."),
    "profile-signature": ("Record signed", "A key bound to the agent signed the whole record."),
    "a2a-signature": ("Card signed", "A key bound to the agent signed the A2A card."),
    "ard-manifest": ("Trust manifest", "A key of its publisher signed the manifest of the catalog entry."),
    "adp-key": ("Key stated", "The document contains a key that matches its own fingerprint."),
    "adp-proof": ("Key held", "The author of the document holds that key."),
    "key-pinned": ("Key pinned", "The signing key is the one bound to this agent here."),
    "key-verified": ("Key matches DNS", "The key in the document matches the fingerprint in the DNS."),
    "domain": ("Domain proven", "The owner proved control of the domain to this registry."),
    "dns-verified": ("In DNS", "The agent's own domain names it, with the fingerprint of its key."),
    "dane-verified": ("DANE", "The certificate of its server matches signed DNS records."),
    "peer-verified": ("Met", "Signatures were verified in both directions of a conversation."),
}
# The rungs, lowest first: name, what it means, and the checks that belong to it.
_RUNGS: Final = (
    (
        "Signed",
        "Shows that a signature on the document fits.",
        ("announce-signature", "profile-signature", "a2a-signature", "ard-manifest", "adp-key", "adp-proof"),
    ),
    (
        "Key known",
        "Shows that something outside the document binds the key to this agent.",
        ("key-pinned", "key-verified"),
    ),
    (
        "Domain proven",
        "Shows that the domain that the agent names agrees.",
        ("domain", "dns-verified", "dane-verified"),
    ),
    ("Met", "Shows that both sides proved their keys in a conversation.", ("peer-verified",)),
)
_STRONGEST_FIRST: Final = ("failed", "passed", "unknown", "not_checked")


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """One check with its evidence, as pages show it."""

    check: str
    title: str
    proves: str
    state: str
    word: str
    reason: str
    evidence: list[tuple[str, str]]
    at: str | None


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    means: str
    state: str
    word: str
    checks: list[CheckView]


class TrustLadder(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    badge: str
    text: str
    rungs: list[Rung]  # lowest first
    others: list[CheckView]  # checks that belong to no rung

    @property
    def is_bare(self) -> bool:
        """Nothing was checked."""
        return all(rung.state == "not_checked" for rung in self.rungs) and not self.others

    @property
    def summary(self) -> str:
        """One phrase for screen readers, where the picture is small."""
        done = ", ".join(f"{rung.title} {rung.word}" for rung in self.rungs if rung.state != "not_checked")
        return done or "nothing was checked"


def make_trust_ladder(trust: TrustSummary) -> TrustLadder:
    made = {check.check: _check_view(check) for check in trust.checks or ()}
    level = trust.level if trust.level in BADGES else "self_asserted"
    placed = {name for _, _, names in _RUNGS for name in names}
    return TrustLadder(
        level=level,
        badge=BADGES[level],
        text=_LEVEL_TEXTS.get(trust.level, ""),
        rungs=[_rung(title, means, [made[name] for name in names if name in made]) for title, means, names in _RUNGS],
        others=[check for name, check in made.items() if name not in placed],
    )


def _rung(title: str, means: str, checks: Sequence[CheckView]) -> Rung:
    states = {check.state for check in checks}
    state = next((each for each in _STRONGEST_FIRST if each in states), "not_checked")
    return Rung(title=title, means=means, state=state, word=_STATES[state], checks=list(checks))


def _check_view(check: Verdict) -> CheckView:
    title, proves = CHECK_LABELS.get(check.check, (check.check, ""))
    return CheckView(
        check=check.check,
        title=title,
        proves=proves,
        state=check.state,
        word=_STATES[check.state],
        reason=check.reason,
        evidence=list(_flatten_evidence(check.evidence)),
        at=check.at,
    )


def _flatten_evidence(evidence: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in evidence.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, text if len(text) <= _EVIDENCE_CHARS else f"{text[:_EVIDENCE_CHARS]}…"
