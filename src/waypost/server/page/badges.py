"""How far an agent can be trusted, for people: one word that opens to its evidence, and the ladder step by step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from waypost.model.verdict import BADGES
from waypost.server.page.markup import Content, Html, el, join
from waypost.server.page.times import moment

_MARKS = {"passed": "✓", "failed": "✕", "unknown": "?", "not_checked": "–"}
_STATES = {"passed": "passed", "failed": "failed", "unknown": "not known", "not_checked": "not checked"}
_LEVELS = {
    "verified": "A check that binds this record to its agent passed.",
    "self_asserted": "Everything here is the publisher's own word; nothing binds it to the agent yet.",
    "failed": "A check failed. Do not rely on this record.",
}
# The steps of the ladder, the lowest first: what each one proves. Other checks that were made stand between.
STEPS: dict[str, tuple[str, str]] = {
    "announce-signature": ("Announcement signed", "The announcement agrees with the key that it brings."),
    "key-pinned": ("Key pinned", "The key that signed is the one that is bound to this agent here."),
    "profile-signature": ("Record signed", "A key that is bound to the agent signed the whole record."),
    "a2a-signature": ("Card signed", "A key that is bound to the agent signed the A2A card."),
    "ard-manifest": ("Trust manifest", "The manifest of the catalogue entry is signed by a key of its publisher."),
    "adp-key": ("Key stated", "The document states a key, and its fingerprint is the fingerprint of that key."),
    "adp-proof": ("Key held", "Whoever wrote the document holds that key."),
    "domain": ("Domain proven", "Its owner proved to this registry that the domain is theirs."),
    "dns-verified": ("In DNS", "The agent's own domain names it, with the fingerprint of its key."),
    "dane-verified": ("DANE", "The certificate of its server is the one that signed DNS records name."),
    "key-verified": ("Key matches DNS", "The key in the document hashes to the fingerprint that DNS states."),
    "peer-verified": ("Met", "Signatures were checked in both directions in a conversation with the agent."),
}
_EVIDENCE = 300  # characters of one value
_ALWAYS = ("dns-verified", "dane-verified", "key-verified", "peer-verified")


def badge(level: str) -> Html:
    return el("span", BADGES.get(level, "claimed"), class_=f"badge {level if level in BADGES else 'self_asserted'}")


def trust_badge(trust: dict[str, Any], *, source: Content = None) -> Html:
    """The word, and on opening what it rests on."""
    checks = [_check_line(each) for each in trust.get("checks", ())]
    body = el(
        "div",
        el("p", _LEVELS.get(trust["level"], "")),
        el("ul", checks, class_="checks") if checks else None,
        el("p", source, class_="soft") if source else None,
        class_="pop",
    )
    return el("details", el("summary", badge(trust["level"])), body, class_="trust")


def _check_line(check: dict[str, Any]) -> Html:
    name = STEPS.get(check["check"], (check["check"], ""))[0]
    reason = check.get("reason")
    rows = [join((el("dt", word), el("dd", value))) for word, value in _flat(check.get("evidence") or {})]
    return el(
        "li",
        _mark(check["state"]),
        " ",
        name,
        el("span", f" {reason}", class_="soft") if reason else None,
        el("dl", rows, class_="evidence") if rows else None,
    )


def _mark(state: str) -> Html:
    """A sign for the eye, a word for the ear."""
    return el(
        "span",
        el("span", _MARKS[state], aria_hidden="true"),
        el("span", f"{_STATES[state]}:", class_="ear"),
        class_=f"mark {state}",
    )


def ladder(trust: dict[str, Any]) -> Html:
    """Every step, those that were not looked at included: not checked must not look like failed."""
    made = {check["check"]: check for check in trust.get("checks", ())}
    known = [
        made.get(name) or {"check": name, "state": "not_checked"} for name in STEPS if name in made or name in _ALWAYS
    ]
    other = [check for name, check in made.items() if name not in STEPS]
    return el("ol", [_step(check) for check in (*other, *known)], class_="ladder")


def _step(check: dict[str, Any]) -> Html:
    title, proves = STEPS.get(check["check"], (check["check"], ""))
    state = check["state"]
    return el(
        "li",
        _mark(state),
        el(
            "div",
            el("h3", title, " ", el("code", check["check"]), el("span", f" {_STATES[state]}", class_="soft")),
            el("p", proves) if proves else None,
            el("p", check["reason"], class_="soft") if check.get("reason") else None,
            _evidence(check),
        ),
        class_=state,
    )


def _evidence(check: dict[str, Any]) -> Content:
    rows = list(_flat(check.get("evidence") or {}))
    if check.get("at"):
        rows.append(("checked", moment(check["at"])))
    if not rows:
        return None
    listed = el("dl", [join((el("dt", name), el("dd", value))) for name, value in rows], class_="evidence")
    return el("details", el("summary", "Evidence"), listed)


def _flat(evidence: dict[str, Any]) -> Iterable[tuple[str, Content]]:
    for name, value in evidence.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, el("code", text if len(text) <= _EVIDENCE else f"{text[:_EVIDENCE]}…")
